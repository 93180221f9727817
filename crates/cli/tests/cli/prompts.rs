//! What a model is told first, with real pods: assets, instructions of the project, and `minke prompt show`.

use std::path::PathBuf;

use serde_json::Value;

use crate::tree::of_kind;
use crate::world::{Done, World};

fn config(world: &World) -> PathBuf {
    PathBuf::from(world.json(&["paths", "--json"])["config"].as_str().unwrap())
}

/// A file of the configuration directory, or of the working directory.
fn write(dir: &std::path::Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn exec(world: &World, extra: &[&str]) -> Done {
    let done = world.run(&[&["exec", "--model", "scripted:demo", "Say hello"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done
}

/// What the model was told first in each segment.
fn told(world: &World, session: &str) -> Vec<String> {
    let text = |segment: Value| segment["system_prompt"].as_str().unwrap().to_owned();
    of_kind(world, session, "segment_start").into_iter().map(text).collect()
}

fn shown(world: &World, extra: &[&str]) -> String {
    let done = world.run(&[&["prompt", "show", "--model", "scripted:demo"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done.out
}

/// Runs the session again from its log, in every way that there is.
fn replays(world: &World, session: &str) {
    for command in [&["replay", session][..], &["log", "verify", session]] {
        let done = world.run(command);
        assert_eq!(done.code, Some(0), "{command:?}: {}{}", done.out, done.err);
    }
}

#[test]
fn what_is_shown_is_what_the_model_is_told() {
    let world = World::new();
    let config = config(&world);
    write(&config, "AGENTS.md", "Answer in whole sentences.\n");
    write(&world.work(), "AGENTS.md", "Test with `make check`. Ünïcödé.\n\n");
    write(
        &config,
        "prompts/own.md",
        "On {{ date }} in {{ cwd }} of {{ workspace }}, {{ platform }}, {{ model }}, {{ language }}:\n\
         {% for tool in tools %}{{ tool }} {% endfor %}\n{% include \"$user/deep/more\" %}{% include \"$minke/calls\" %}\n",
    );
    write(&config, "prompts/deep/more.md", "<more & {{ 'more' }}>\n");
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
        let before = shown(&world, &options);
        exec(&world, &options);
        let told = told(&world, name);
        assert_eq!(told, [before.as_str()], "{name}");
        assert!(before.contains("make check") && before.contains("whole sentences"), "{before}");
        replays(&world, name);
    }
    let own = shown(&world, &["--set", "worker.instruction=$user/own", "--name", "x"]);
    for word in
        ["scripted/demo", "Bash BashInput", "<more & more>", "the language of the person", "- Calls that"]
    {
        assert!(own.contains(word), "`{word}` is missing: {own}");
    }
    let json = world.json(&["prompt", "show", "--json", "--name", "x", "--model", "scripted:demo"]);
    let prompt = json["prompt"].as_str().unwrap();
    assert_eq!(prompt, shown(&world, &["--name", "x"]));
    assert_eq!(json["bytes"], prompt.len());
    let parts = json["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum + 2 * (parts.len() as u64 - 1), prompt.len() as u64);
    let done = world.run(&["prompt", "show"]);
    assert_eq!(done.code, Some(0), "no model is needed: {}", done.err);
    assert!(done.err.contains(" tokens: instruction "), "{}", done.err);
}

/// The items that a model was told besides, with their causes.
fn items(world: &World, session: &str) -> Vec<(String, Value)> {
    let of =
        |entry: Value| (entry["item"]["body"].as_str().unwrap().to_owned(), entry["item"]["cause"].clone());
    of_kind(world, session, "system_item").into_iter().map(of).collect()
}

#[test]
fn instructions_of_a_subtree_are_told_when_work_moves_there_and_once() {
    let world = World::new();
    let work = world.work();
    write(&work, "AGENTS.md", "Above all.");
    write(&work, "a/AGENTS.md", "For a.");
    write(&work, "a/b/CLAUDE.md", "For b.");
    write(&work, "a/b/one.txt", "1");
    write(&work, "a/b/two.txt", "2");
    write(&work, "c/AGENTS.md", "x".repeat(70_000));
    write(&work, "d/AGENTS.md", "For d, which has no room.".repeat(4_000));
    write(&work, "closed/AGENTS.md", "Nobody may see this.");
    write(&work, "closed/x.txt", "x");
    std::fs::create_dir(work.join("linked")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", work.join("linked/AGENTS.md")).unwrap();
    world.write(
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
    let done = world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "--set", deny, "go"]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.err.contains("linked/AGENTS.md is not used: a symbolic link"), "{}", done.err);
    let told = items(&world, "tale");
    let paths: Vec<&str> = told.iter().map(|(_, cause)| cause["instructions"].as_str().unwrap()).collect();
    let file = |name: &str| work.canonicalize().unwrap().join(name).display().to_string();
    assert_eq!(paths, ["a/AGENTS.md", "a/b/CLAUDE.md", "c/AGENTS.md", "d/AGENTS.md"].map(file));
    assert!(told[0].0.ends_with("\n\nFor a.") && told[0].0.contains(&file("a/AGENTS.md")), "{}", told[0].0);
    assert!(told[1].0.ends_with("\n\nFor b."), "{}", told[1].0);
    // What does not fit is only named.
    for (at, name) in [(2, "c/AGENTS.md"), (3, "d/AGENTS.md")] {
        assert_eq!(told[at].0, format!("[Instructions] Read {} before you work there.", file(name)));
    }
    let kinds: Vec<Value> =
        crate::tree::entries(&world, "tale").iter().map(|entry| entry["kind"].clone()).collect();
    let first = kinds.iter().position(|kind| kind == "system_item").unwrap();
    let results = kinds[..first].iter().filter(|kind| **kind == "tool_result").count();
    assert_eq!(results, 2, "every call has its result before anything is told: {kinds:?}");
    let again = world.run(&["exec", "--resume", "tale", "once more"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert_eq!(items(&world, "tale").len(), 4, "another life of the pod knows what was told");
    replays(&world, "tale");
}

#[test]
fn texts_of_the_catalog_come_from_the_highest_layer_and_are_replayed() {
    let world = World::new();
    let config = config(&world);
    write(
        &config,
        "prompts/catalog.toml",
        "project = 'Follow these:'\nloop = '{{ tool }} fails {{ times }} times.'\n",
    );
    write(&world.work(), ".minke/prompts/catalog.toml", "project = 'Trusted:'\n");
    write(&world.work(), "pack/catalog.toml", "loop = 'Enough of {{ tool }}.'\n");
    write(&world.work(), "AGENTS.md", "Be kind.");
    let script = r#"[[turn]]
repeat = 3
[[turn.call]]
tool = "Read"
args = { file_path = "/nowhere" }
[[turn]]
text = "Sorry."
"#;
    world.write("s.toml", script);
    let exec = |name: &str, extra: &[&str]| {
        let words = [&["exec", "--name", name, "--model", "scripted:s.toml", "go"], extra].concat();
        let done = world.run(&words);
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
        replays(&world, name);
        let told = told(&world, name).remove(0);
        (told, items(&world, name).into_iter().map(|(body, _)| body).collect::<Vec<_>>())
    };
    let (prompt, said) = exec("user", &[]);
    assert!(prompt.contains("\n\nFollow these:\n\n## "), "{prompt}");
    assert_eq!(said, ["Read fails 3 times."]);
    let (prompt, said) = exec("pack", &["--set", "pod.prompt_pack=pack"]);
    assert!(prompt.contains("Follow these:"), "{prompt}");
    assert_eq!(said, ["Enough of Read."]);
    let trusted = world.run(&["trust", "--yes"]);
    assert_eq!(trusted.code, Some(0), "{}{}", trusted.out, trusted.err);
    assert!(exec("trusted", &[]).0.contains("Trusted:"));
    // A session keeps its texts in its log: without the file it says so and has the built-in ones again.
    std::fs::remove_file(config.join("prompts/catalog.toml")).unwrap();
    write(&world.work(), "s.toml", format!("{script}{script}"));
    let again = world.run(&["exec", "--resume", "user", "once more"]);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    let last = items(&world, "user").pop().unwrap().0;
    assert!(last.starts_with("[Loop] The same call of Read has failed 3 times"), "{last}");
    replays(&world, "user");
    write(&config, "prompts/catalog.toml", "lop = 'x'\n");
    for words in [&["config", "check"][..], &["exec", "--model", "scripted:demo", "hi"]] {
        let done = world.run(words);
        assert_eq!(done.code, Some(2), "{words:?}: {}{}", done.out, done.err);
        assert!(done.err.contains("catalog.toml: `lop` is no key of the catalog"), "{}", done.err);
    }
    let woken = world.run(&["exec", "--resume", "pack", "once more"]);
    assert_ne!(woken.code, Some(0));
    assert!(woken.err.contains("`lop` is no key of the catalog"), "{}", woken.err);
}
