//! System prompts with real pods: assets, instructions of the project, and `minke prompt show`.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult};
use crate::trees::tree::entries_of_kind;

fn config_dir(world: &CliWorld) -> PathBuf {
    PathBuf::from(world.run_json(&["paths", "--json"])["config"].as_str().unwrap())
}

/// Writes a file of the configuration directory, or of the working directory.
fn write_file(dir: &std::path::Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn run_exec(world: &CliWorld, extra: &[&str]) -> CommandResult {
    let done = world.run_minke(&[&["exec", "--model", "scripted:demo", "Say hello"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done
}

/// Returns the system prompt of each segment.
fn system_prompts(world: &CliWorld, session: &str) -> Vec<String> {
    let text = |segment: Value| segment["system_prompt"].as_str().unwrap().to_owned();
    entries_of_kind(world, session, "segment_start").into_iter().map(text).collect()
}

fn shown_prompt(world: &CliWorld, extra: &[&str]) -> String {
    let done = world.run_minke(&[&["prompt", "show", "--model", "scripted:demo"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done.out
}

/// Replays the session in all ways.
fn check_replays(world: &CliWorld, session: &str) {
    for command in [&["replay", session][..], &["log", "verify", session]] {
        let done = world.run_minke(command);
        assert_eq!(done.code, Some(0), "{command:?}: {}{}", done.out, done.err);
    }
}

#[test]
fn what_is_shown_is_what_the_model_is_told() {
    let world = CliWorld::new();
    let config = config_dir(&world);
    write_file(&config, "AGENTS.md", "Answer in whole sentences.\n");
    write_file(&world.work_dir(), "AGENTS.md", "Test with `make check`. Ünïcödé.\n\n");
    write_file(
        &config,
        "prompts/own.md",
        "On {{ date }} in {{ cwd }} of {{ workspace }}, {{ platform }}, {{ model }}, {{ language }}:\n\
         {% for tool in tools %}{{ tool }} {% endfor %}\n{% include \"$user/deep/more\" %}{% include \"$minke/calls\" %}\n",
    );
    write_file(&config, "prompts/deep/more.md", "<more & {{ 'more' }}>\n");
    let cases: [(&str, &[&str]); 6] = [
        ("plain", &[]),
        ("coder", &["--profile", "coder"]),
        ("planner", &["--profile", "planner"]),
        ("words", &["--set", "worker.instruction=Sing.", "--set", "worker.language=French"]),
        ("own", &["--set", "worker.instruction=$user/own", "--set", "web={}"]),
        ("read", &["--read-only", "--unsandboxed"]),
    ];
    for (name, options) in cases {
        let options = [options, &["--name", name]].concat();
        let before = shown_prompt(&world, &options);
        run_exec(&world, &options);
        let told = system_prompts(&world, name);
        assert_eq!(told, [before.as_str()], "{name}");
        assert!(before.contains("make check") && before.contains("whole sentences"), "{before}");
        check_replays(&world, name);
    }
    let own = shown_prompt(&world, &["--set", "worker.instruction=$user/own", "--name", "x"]);
    for word in
        ["scripted/demo", "Bash BashInput", "<more & more>", "the language of the person", "- Calls that"]
    {
        assert!(own.contains(word), "`{word}` is missing: {own}");
    }
    let json = world.run_json(&["prompt", "show", "--json", "--name", "x", "--model", "scripted:demo"]);
    let prompt = json["prompt"].as_str().unwrap();
    assert_eq!(prompt, shown_prompt(&world, &["--name", "x"]));
    assert_eq!(json["bytes"], prompt.len());
    let parts = json["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum + 2 * (parts.len() as u64 - 1), prompt.len() as u64);
    let done = world.run_minke(&["prompt", "show"]);
    assert_eq!(done.code, Some(0), "no model is needed: {}", done.err);
    assert!(done.err.contains(" tokens: instruction "), "{}", done.err);
}

/// Returns the system items of a session, with their causes.
fn system_items(world: &CliWorld, session: &str) -> Vec<(String, Value)> {
    let of =
        |entry: Value| (entry["item"]["body"].as_str().unwrap().to_owned(), entry["item"]["cause"].clone());
    entries_of_kind(world, session, "system_item").into_iter().map(of).collect()
}

#[test]
fn instructions_of_a_subtree_are_told_when_work_moves_there_and_once() {
    let world = CliWorld::new();
    let work = world.work_dir();
    write_file(&work, "AGENTS.md", "Above all.");
    write_file(&work, "a/AGENTS.md", "For a.");
    write_file(&work, "a/b/CLAUDE.md", "For b.");
    write_file(&work, "a/b/one.txt", "1");
    write_file(&work, "a/b/two.txt", "2");
    write_file(&work, "c/AGENTS.md", "x".repeat(70_000));
    write_file(&work, "d/AGENTS.md", "For d, which has no room.".repeat(4_000));
    write_file(&work, "closed/AGENTS.md", "This is private.");
    write_file(&work, "closed/x.txt", "x");
    std::fs::create_dir(work.join("linked")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", work.join("linked/AGENTS.md")).unwrap();
    world.write_file(
        "s.toml",
        r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/a/b/one.txt" }
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/a/b/two.txt" }
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/a/b/one.txt" }
[[turn.call]]
tool = "Write"
args = { file_path = "{{cwd}}/c/new.txt", content = "c" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "{{cwd}}/d/new.txt", content = "d" }
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/c/none.txt" }
[[turn.call]]
tool = "Write"
args = { file_path = "{{cwd}}/linked/new.txt", content = "e" }
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/closed/x.txt" }
[[turn]]
text = "Done."
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/a/b/two.txt" }
[[turn]]
text = "Done again."
"#,
    );
    let deny = r#"scope.deny=[{"target":"closed/AGENTS.md","permission":"read"}]"#;
    let done =
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "--set", deny, "go"]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.err.contains("linked/AGENTS.md is not used: a symbolic link"), "{}", done.err);
    let told = system_items(&world, "tale");
    let paths: Vec<&str> = told.iter().map(|(_, cause)| cause["instructions"].as_str().unwrap()).collect();
    let file = |name: &str| work.canonicalize().unwrap().join(name).display().to_string();
    assert_eq!(paths, ["a/AGENTS.md", "a/b/CLAUDE.md", "c/AGENTS.md", "d/AGENTS.md"].map(file));
    assert!(told[0].0.ends_with("\n\nFor a.") && told[0].0.contains(&file("a/AGENTS.md")), "{}", told[0].0);
    assert!(told[1].0.ends_with("\n\nFor b."), "{}", told[1].0);
    // Content over the limit is only named.
    for (at, name) in [(2, "c/AGENTS.md"), (3, "d/AGENTS.md")] {
        assert_eq!(told[at].0, format!("[Instructions] Read {} before you work there.", file(name)));
    }
    let kinds: Vec<Value> =
        crate::trees::tree::log_entries(&world, "tale").iter().map(|entry| entry["kind"].clone()).collect();
    let first = kinds.iter().position(|kind| kind == "system_item").unwrap();
    let results = kinds[..first].iter().filter(|kind| **kind == "tool_result").count();
    assert_eq!(results, 2, "every call has its result before the instructions: {kinds:?}");
    let again = world.run_minke(&["exec", "--resume", "tale", "once more"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert_eq!(
        system_items(&world, "tale").len(),
        4,
        "another process of the pod knows the sent instructions"
    );
    check_replays(&world, "tale");
}

#[test]
fn texts_of_the_catalog_come_from_the_highest_layer_and_are_replayed() {
    let world = CliWorld::new();
    let config = config_dir(&world);
    write_file(
        &config,
        "prompts/catalog.toml",
        "project = 'Follow these:'\nloop = '{{ tool }} fails {{ times }} times.'\n",
    );
    write_file(&world.work_dir(), ".minke/prompts/catalog.toml", "project = 'Trusted:'\n");
    write_file(&world.work_dir(), "pack/catalog.toml", "loop = 'Enough of {{ tool }}.'\n");
    write_file(&world.work_dir(), "AGENTS.md", "Be kind.");
    let script = r#"[[turn]]
repeat = 3
[[turn.call]]
tool = "Read"
args = { file_path = "/nowhere" }
[[turn]]
text = "Sorry."
"#;
    world.write_file("s.toml", script);
    let exec = |name: &str, extra: &[&str]| {
        let words = [&["exec", "--name", name, "--model", "scripted:s.toml", "go"], extra].concat();
        let done = world.run_minke(&words);
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
        check_replays(&world, name);
        let told = system_prompts(&world, name).remove(0);
        (told, system_items(&world, name).into_iter().map(|(body, _)| body).collect::<Vec<_>>())
    };
    let (prompt, said) = exec("user", &[]);
    assert!(prompt.contains("\n\nFollow these:\n\n## "), "{prompt}");
    assert_eq!(said, ["Read fails 3 times."]);
    let (prompt, said) = exec("pack", &["--set", "pod.prompt_pack=pack"]);
    assert!(prompt.contains("Follow these:"), "{prompt}");
    assert_eq!(said, ["Enough of Read."]);
    let trusted = world.run_minke(&["trust", "--yes"]);
    assert_eq!(trusted.code, Some(0), "{}{}", trusted.out, trusted.err);
    assert!(exec("trusted", &[]).0.contains("Trusted:"));
    // A session stores its texts in its log: without the file it reports that and uses the built-in ones.
    std::fs::remove_file(config.join("prompts/catalog.toml")).unwrap();
    write_file(&world.work_dir(), "s.toml", format!("{script}{script}"));
    let again = world.run_minke(&["exec", "--resume", "user", "once more"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    let last = system_items(&world, "user").pop().unwrap().0;
    assert!(last.starts_with("[Loop] The same call of Read has failed 3 times"), "{last}");
    check_replays(&world, "user");
    write_file(&config, "prompts/catalog.toml", "lop = 'x'\n");
    for words in [&["config", "check"][..], &["exec", "--model", "scripted:demo", "hi"]] {
        let done = world.run_minke(words);
        assert_eq!(done.code, Some(2), "{words:?}: {}{}", done.out, done.err);
        assert!(done.err.contains("catalog.toml: `lop` is not a catalog key"), "{}", done.err);
    }
    let woken = world.run_minke(&["exec", "--resume", "pack", "once more"]);
    assert_ne!(woken.code, Some(0));
    assert!(woken.err.contains("`lop` is not a catalog key"), "{}", woken.err);
}
