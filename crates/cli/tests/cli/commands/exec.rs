//! `exec`: output, exit codes, resuming a session.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, UNSANDBOXED};

const NOTE_SCRIPT: &str = r#"
chunk = 4
[[turn]]
thinking = "Think first."
text = "I note it."
[[turn.call]]
tool = "Write"
args = { file_path = "NOTES.md", content = "once\n" }
[[turn]]
text = "Noted: {{result}}"
"#;

/// Replies that repeat the input.
const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";

/// A run that writes its note and then waits for a minute.
const SLOW_SCRIPT: &str = r#"
[[turn]]
text = "First."
[[turn.call]]
tool = "Write"
args = { file_path = "NOTES.md", content = "once\n" }
[[turn]]
steps = [{ text = "Half" }, { delay_ms = 60000 }, { text = " and half." }]
[[turn]]
text = "Later."
"#;

#[test]
fn exec_in_a_fresh_home_streams_calls_the_tool_and_ends() {
    let world = CliWorld::new();
    world.write_file("s.toml", NOTE_SCRIPT);
    let CommandResult { code, out, err } = world.run_minke(&["exec", "--model", "scripted:s.toml", "go"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("I note it.\nNoted: created "), "{out}");
    assert!(out.ends_with('\n') && !out.contains('\u{1b}'), "plain lines in a pipe: {out:?}");
    assert!(err.contains("Write") && err.contains("finished · 2 turns"), "{err}");
    assert_eq!(world.read_file("NOTES.md"), "once\n");
    world.verify_logs();
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()), "its pod stops at the end");
    let quiet = world.run_minke(&["exec", "--quiet", "--model", "scripted:s.toml", "go"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""));
}

#[test]
fn exec_json_prints_only_documented_objects() {
    let world = CliWorld::new();
    world.write_file("s.toml", NOTE_SCRIPT);
    let done = world.run_minke(&["exec", "--json", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let objects = parse_objects(&done.out);
    objects.iter().for_each(check_documented);
    let kinds: Vec<&str> = objects.iter().map(|object| object["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"thread.started"));
    assert_eq!(kinds.last(), Some(&"run.completed"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "turn.started").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == "turn.completed").count(), 2);
    let messages: Vec<&str> =
        completed_items(&objects, "agent_message").map(|item| item["text"].as_str().unwrap()).collect();
    assert_eq!(messages.first(), Some(&"I note it."));
    assert_eq!(completed_items(&objects, "reasoning").count(), 1);
    let change = completed_items(&objects, "file_change").next().expect("the note is a change of a file");
    assert!(change["changes"][0]["path"].as_str().unwrap().ends_with("/NOTES.md"), "{change}");
    check_items_completed(&objects);
}

fn parse_objects(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn completed_items<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let done = objects.iter().filter(|object| object["type"] == "item.completed");
    done.map(|object| &object["item"]).filter(move |item| item["type"] == kind)
}

fn check_items_completed(objects: &[Value]) {
    for started in objects.iter().filter(|object| object["type"] == "item.started") {
        let id = &started["item"]["id"];
        let ends =
            objects.iter().filter(|object| object["type"] == "item.completed" && object["item"]["id"] == *id);
        assert_eq!(ends.count(), 1, "item {id}");
    }
}

/// Checks the documented shapes of `docs/reference/cli.md`, without extra members.
fn check_documented(object: &Value) {
    let members = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let exactly = |value: &Value, wanted: &[&str]| assert_eq!(members(value), wanted, "{object}");
    match object["type"].as_str().unwrap() {
        "thread.started" => {
            exactly(object, &["type", "thread_id"]);
            assert!(object["thread_id"].as_str().unwrap().starts_with("s_"), "{object}");
        }
        "turn.started" => exactly(object, &["type"]),
        "turn.completed" => {
            exactly(object, &["type", "usage"]);
            exactly(&object["usage"], &["input_tokens", "cached_input_tokens", "output_tokens"]);
        }
        "turn.failed" => {
            exactly(object, &["type", "error"]);
            exactly(&object["error"], &["code", "message"]);
        }
        "run.completed" => exactly(object, &["type", "result"]),
        "item.started" | "item.updated" | "item.completed" => {
            exactly(object, &["type", "item"]);
            let item = &object["item"];
            assert!(item["id"].is_string(), "{object}");
            let known = [
                "agent_message",
                "reasoning",
                "command_execution",
                "file_change",
                "mcp_tool_call",
                "web_search",
                "todo_list",
                "pod",
                "error",
            ];
            assert!(known.contains(&item["type"].as_str().unwrap()), "{object}");
        }
        other => panic!("`{other}` is not documented: {object}"),
    }
}

#[test]
fn a_run_that_fails_says_so_in_objects_and_exits_with_5() {
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\nerror = { kind = \"permanent\", message = \"no such model\" }\n");
    let done = world.run_minke(&["exec", "--json", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(5), "{done:?}");
    let objects = parse_objects(&done.out);
    objects.iter().for_each(check_documented);
    let failed = objects.iter().find(|object| object["type"] == "turn.failed").unwrap();
    assert_eq!(failed["error"]["code"], "provider_error");
    assert!(failed["error"]["message"].as_str().unwrap().contains("no such model"));
    assert_eq!(objects.last().unwrap()["result"], "error");
    let error: Value = serde_json::from_str(done.err.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "provider_error");
    let text = world.run_minke(&["exec", "--model", "scripted:s.toml", "go"]);
    assert_eq!(text.code, Some(5));
    assert!(text.err.contains("error: the run failed: ") && text.err.contains("  try: "), "{}", text.err);
    world.verify_logs();
}

#[test]
fn a_piped_prompt_and_a_last_message_in_a_file() {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let args = ["exec", "-", "--model", "scripted:s.toml", "--output-last-message", "last.txt"];
    let done = world.run_with_stdin("from a pipe", &args);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(done.out, "You said: from a pipe\n");
    assert_eq!(world.read_file("last.txt"), "You said: from a pipe");
    let bare = world.run_with_stdin("again", &["exec", "--model", "scripted:s.toml"]);
    assert_eq!((bare.code, bare.out.as_str()), (Some(0), "You said: again\n"), "{}", bare.err);
}

#[test]
fn a_session_is_gone_on_with_by_id_by_name_and_as_the_last() {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let first = world.run_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "one"]);
    let id = parse_objects(&first.out)[0]["thread_id"].as_str().unwrap().to_owned();
    let beginning: String = id.trim_start_matches("s_").chars().take(13).collect();
    for (word, said) in [(id.as_str(), "two"), ("tale", "three"), (beginning.as_str(), "four")] {
        let done = world.run_minke(&["exec", "--resume", word, said]);
        assert_eq!((done.code, done.out), (Some(0), format!("You said: {said}\n")), "{}", done.err);
    }
    let last = world.run_minke(&["exec", "--last", "five"]);
    assert_eq!((last.code, last.out.as_str()), (Some(0), "You said: five\n"), "{}", last.err);
    assert_eq!(world.session_count(), 1);
    world.verify_logs();
    let nothing = world.run_minke(&["exec", "--resume", "tale"]);
    assert_eq!(nothing.code, Some(1), "nothing is paused: {}", nothing.err);
    assert!(nothing.err.contains("error: "), "{}", nothing.err);
}

#[test]
fn a_fork_goes_on_by_itself_and_the_parent_does_not_notice() {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "one"]).code,
        Some(0)
    );
    let before = world.run_minke(&["log", "export", "tale"]).out;
    let fork = world.run_json(&["fork", "tale", "--name", "other", "--json"]);
    let id = fork["session"].as_str().unwrap();
    let done = world.run_minke(&["exec", "--resume", id, "two"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "You said: two\n"), "{}", done.err);
    assert_eq!(world.run_minke(&["log", "export", "tale"]).out, before);
    assert_eq!(world.session_count(), 2);
    world.verify_logs();
    let nowhere = world.run_minke(&["fork", "tale", "--at", "99999"]);
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    let early = world.run_json(&["fork", "tale", "--at", "1", "--json"]);
    let done = world.run_minke(&["exec", "--resume", early["session"].as_str().unwrap(), "early"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "You said: early\n"), "{}", done.err);
    world.verify_logs();
}

#[test]
fn the_first_ctrl_c_cancels_the_run_and_stops_the_pod() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going = world.start_minke(&["exec", "--json", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    going.send_signal(Signal::INT);
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.out.contains(r#"{"type":"run.completed","result":"cancelled"}"#), "{}", done.out);
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()));
    world.verify_logs();
}

#[test]
fn sigterm_leaves_a_run_that_can_be_resumed() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going = world.start_minke(&["exec", "--json", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    going.send_signal(Signal::TERM);
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(75), "{done:?}");
    assert!(done.out.contains(r#"{"type":"run.completed","result":"interrupted"}"#), "{}", done.out);
    world.write_file("s.toml", &SLOW_SCRIPT.replace("60000", "1"));
    let resumed = world.run_minke(&["exec", "--last"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(world.read_file("NOTES.md"), "once\n");
    world.verify_logs();
}

#[test]
fn a_closed_pipe_is_no_error() {
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\nsteps = [{ text = \"line\\n\", repeat = 20000 }]\n");
    let script = "\"$@\" exec -q --model scripted:s.toml go | head -n 1";
    let done = world.run_through_shell(script, &[]);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("line\n", ""));
    let shown = world.run_through_shell("\"$@\" log show --json | head -n 1", &[]);
    assert_eq!((shown.out.lines().count(), shown.err.as_str()), (1, ""));
    world.verify_logs();
}

#[test]
fn the_newest_keys_of_the_manifest_are_set_and_a_limit_exits_with_4() {
    let world = CliWorld::new();
    let turn = "[[turn]]\nrepeat = 9\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo again >> NOTES.md\" }\n";
    world.write_file("s.toml", turn);
    let args = ["exec", "--set", "worker.max_turns=2", "--model", "scripted:s.toml", "go"];
    let done = world.run_minke(&[&args[..], &UNSANDBOXED].concat());
    assert_eq!(done.code, Some(4), "{done:?}");
    assert_eq!(world.read_file("NOTES.md"), "again\nagain\n");
    world.verify_logs();
}

/// A file planted in a home directory would run with the user's next command.
const PLANTING_SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = ".local/bin/git", content = "planted" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "tools/ls", content = "planted" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = ".config/systemd/user/x.service", content = "planted" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "notes.md", content = "ours" }
[[turn]]
text = "done"
"#;

#[test]
fn a_headless_run_in_a_broad_root_needs_a_flag() {
    let world = CliWorld::new();
    let script = world.write_file("s.toml", PLANTING_SCRIPT).display().to_string();
    let model = format!("scripted:{script}");
    let home = world.work_dir().canonicalize().unwrap();
    std::fs::create_dir(home.join("tools")).unwrap();
    let path = format!("{}:{}", home.join("tools").display(), std::env::var("PATH").unwrap());
    let in_home = |args: &[&str]| {
        let mut command = world.minke_command();
        command.env("HOME", &home).env("PATH", &path).args(["exec", "--model", &model]).args(args);
        world.run_command(command)
    };
    let refused = in_home(&["go"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("--allow-broad-root") && refused.err.contains("--cwd"), "{refused:?}");
    assert!(!home.join("notes.md").exists());
    // Other paths to a broad root behave the same.
    for root in ["/", "/tmp", "/var/tmp", "/usr"] {
        let refused = in_home(&["--cwd", root, "go"]);
        assert_eq!(refused.code, Some(2), "{root}: {refused:?}");
        assert!(refused.err.contains("--allow-broad-root"), "{root}: {refused:?}");
    }
    let done = in_home(&["--allow-broad-root", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(std::fs::read_to_string(home.join("notes.md")).unwrap(), "ours");
    for planted in [".local/bin/git", "tools/ls", ".config/systemd/user/x.service"] {
        assert!(!home.join(planted).exists(), "{planted}: {done:?}");
    }
    // A subdirectory is not a broad root, and reading needs no consent.
    std::fs::create_dir(home.join("project")).unwrap();
    let below = in_home(&["--cwd", "project", "go"]);
    assert_eq!(below.code, Some(0), "{below:?}");
    assert!(home.join("project/notes.md").exists());
    assert_eq!(in_home(&["--read-only", "go"]).code, Some(0));
}

const WRITING_SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "made/by-tool.md", content = "ours" }
[[turn]]
[[turn.call]]
tool = "Bash"
args = { command = "umask; mkdir by-command; echo ours > by-command/file" }
[[turn]]
text = "done"
"#;

/// With any umask, files of Minke are private, and files of the workspace follow the user's umask.
#[test]
fn what_minke_writes_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    fn file_mode(path: &std::path::Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }
    fn collect_paths(dir: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                collect_paths(&entry.path(), into);
            }
            into.push(entry.path());
        }
    }
    for (umask, file, directory) in
        [("000", 0o666, 0o777), ("022", 0o644, 0o755), ("027", 0o640, 0o750), ("077", 0o600, 0o700)]
    {
        let world = CliWorld::new();
        world.write_file("s.toml", WRITING_SCRIPT);
        let script = format!("umask {umask}; exec \"$@\"");
        let args = ["exec", "--model", "scripted:s.toml", "go"];
        let done = world.run_through_shell(&script, &[&args[..], &UNSANDBOXED].concat());
        assert_eq!(done.code, Some(0), "{umask}: {done:?}");
        for (name, expected) in [
            ("made", directory),
            ("made/by-tool.md", file),
            ("by-command", directory),
            ("by-command/file", file),
        ] {
            let found = file_mode(&world.work_dir().join(name));
            assert_eq!(found, expected, "{umask}: {name} has {found:o}");
        }
        let mut ours = Vec::new();
        collect_paths(world.home_dir(), &mut ours);
        assert!(!ours.is_empty());
        let open: Vec<String> = ours
            .iter()
            .filter(|path| !path.is_symlink() && file_mode(path) & 0o077 != 0)
            .map(|path| format!("{} {:o}", path.display(), file_mode(path)))
            .collect();
        assert_eq!(open, Vec::<String>::new(), "{umask}");
    }
}
