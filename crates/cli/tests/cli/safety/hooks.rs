//! Hooks with the real binary: listing, testing, their effects on a run, and their notifications.

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, can_sandbox_commands};

fn write_hooks(world: &CliWorld, text: &str) {
    let config = world.home_dir().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("hooks.toml"), text).unwrap();
}

/// Runs a call of Bash and a text.
fn run_bash_call(world: &CliWorld) -> CommandResult {
    world.write_file(
        "s.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo ran >> ran\" }\n[[turn]]\ntext = \"Done.\"\n",
    );
    world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"])
}

fn entries_of_kind(world: &CliWorld, kind: &str) -> Vec<Value> {
    let log = world.run_minke(&["log", "show", "tale", "--json", "--kind", kind]).out;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn hooks_of_a_workspace_count_once_it_is_trusted() {
    let world = CliWorld::new();
    std::fs::create_dir(world.work_dir().join(".minke")).unwrap();
    let text = "[[hook]]\nevent = \"before_tool\"\nname = \"theirs\"\ncommand = \"touch canary; exit 2\"\n";
    world.write_file(".minke/hooks.toml", text);
    let before = world.run_minke(&["hooks", "list"]);
    assert_eq!(before.code, Some(0));
    assert!(
        before.err.contains("ignored until you trust it") && !before.out.contains("theirs"),
        "{before:?}"
    );
    let tried = world.run_minke(&["hooks", "test", "before_tool"]);
    assert_eq!((tried.code, world.work_dir().join("canary").exists()), (Some(0), false), "{tried:?}");
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    let after = world.run_json(&["hooks", "list", "--json"]);
    assert_eq!(
        (after["hooks"][0]["name"].as_str(), after["hooks"][0]["layer"].as_str()),
        (Some("theirs"), Some("workspace"))
    );
    if !can_sandbox_commands("hooks_of_a_workspace_count_once_it_is_trusted") {
        return;
    }
    let tried = world.run_minke(&["hooks", "test", "before_tool"]);
    assert_eq!((tried.code, world.work_dir().join("canary").exists()), (Some(4), true), "{tried:?}");
}

#[test]
fn trying_hooks_says_what_each_said_and_leaves_nothing() {
    let world = CliWorld::new();
    let say = |name: &str, event: &str, line: &str| {
        format!("[[hook]]\nname = \"{name}\"\nevent = \"{event}\"\ncommand = '''{line}'''\ntimeout_s = 1\n")
    };
    write_hooks(
        &world,
        &[
            say("reads", "before_tool", "cat > told.json"),
            say("rewrites", "before_tool", r#"echo '{"updated_input":{"command":"ls"},"context":"hear"}'"#),
            say("hangs", "before_tool", "sleep 60"),
            say("sets", "shell_env", "echo TOKEN=s3cret"),
            say("mistaken", "befor_tool", "true"),
        ]
        .concat(),
    );
    assert_eq!(world.run_minke(&["hooks", "test", "nothing"]).code, Some(2));
    assert!(world.run_minke(&["hooks", "list"]).err.contains("did you mean `before_tool`?"));
    if !can_sandbox_commands("trying_hooks_says_what_each_said_and_leaves_nothing") {
        return;
    }
    let done = world.run_minke(&["hooks", "test", "before_tool", "--json"]);
    assert_eq!(done.code, Some(1), "one hook hangs: {done:?}");
    let said: Value = serde_json::from_str(&done.out).unwrap();
    let by: Vec<&str> =
        said["asked"].as_array().unwrap().iter().map(|one| one["said"].as_str().unwrap()).collect();
    assert_eq!(by, ["nothing", "verdict", "problem"]);
    assert_eq!(said["rewritten"], "{\"command\":\"ls\"}");
    let told: Value = serde_json::from_str(&world.read_file("told.json")).unwrap();
    assert_eq!((&told["event"]["tool"], &told["event"]["sample"]), (&"Bash".into(), &true.into()));
    let env = world.run_minke(&["hooks", "test", "shell_env"]);
    assert_eq!(env.code, Some(0), "{env:?}");
    assert!(env.out.contains("variables: TOKEN") && !env.out.contains("s3cret"), "{env:?}");
    let left: Vec<_> =
        std::fs::read_dir(world.home_dir().join("run")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("hooks-test")), "{left:?}");
}

#[test]
fn a_hook_stops_a_call_and_others_are_told() {
    if !can_sandbox_commands("a_hook_stops_a_call_and_others_are_told") {
        return;
    }
    let world = CliWorld::new();
    let file = world.home_dir().join("told/events.jsonl");
    let observers: String = ["session_start", "user_prompt", "after_tool", "run_end"]
        .map(|event| format!("[[hook]]\nevent = \"{event}\"\nfile = \"{}\"\n", file.display()))
        .concat();
    let no = "[[hook]]\nname = \"no\"\nevent = \"before_tool\"\nwhen = { tool = \"Bash\" }\ncommand = \"echo not here >&2; exit 2\"\n";
    write_hooks(&world, &format!("{no}{observers}"));
    let done = run_bash_call(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work_dir().join("ran").exists(), "the call did not run");
    let result = &entries_of_kind(&world, "tool_result")[0];
    assert_eq!(result["outcome"], "refused");
    assert_eq!(
        (
            result["verdict"]["layer"].as_str(),
            result["verdict"]["reason"].as_str().unwrap().contains("not here")
        ),
        (Some("hook"), true),
        "{result}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut types: Vec<&str> = told.iter().map(|line| line["event"]["type"].as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, ["after_tool", "run_end", "session_start", "user_prompt"], "{text}");
    world.verify_logs();
}

#[test]
fn a_hook_rewrites_a_call_and_what_it_becomes_is_in_the_log() {
    if !can_sandbox_commands("a_hook_rewrites_a_call_and_what_it_becomes_is_in_the_log") {
        return;
    }
    let world = CliWorld::new();
    let line = r#"echo '{"updated_input":{"command":"echo changed >> ran"}}'"#;
    write_hooks(
        &world,
        &format!("[[hook]]\nname = \"r\"\nevent = \"before_tool\"\ncommand = '''{line}'''\n"),
    );
    let done = run_bash_call(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read_file("ran"), "changed\n");
    let dispatch = &entries_of_kind(&world, "tool_dispatch")[0];
    assert!(dispatch["arguments"].as_str().unwrap().contains("changed"), "{dispatch}");
    assert_eq!(dispatch["action"]["command"], "echo changed >> ran");
    world.verify_logs();
}

#[test]
fn a_strict_hook_that_cannot_be_read_lets_nothing_run() {
    let world = CliWorld::new();
    write_hooks(&world, "[[hook]]\nevent = \"before_tool\"\ncomand = \"true\"\nstrict = true\n");
    let done = run_bash_call(&world);
    assert!(!world.work_dir().join("ran").exists(), "{}", done.err);
    let results = entries_of_kind(&world, "tool_result");
    if can_sandbox_commands("a_strict_hook_that_cannot_be_read_lets_nothing_run") {
        assert!(results[0]["verdict"]["reason"].as_str().unwrap().contains("hooks.toml:"), "{}", results[0]);
    }
    world.verify_logs();
}

#[test]
fn bad_hooks_are_alerts_and_nothing_else() {
    if !can_sandbox_commands("bad_hooks_are_alerts_and_nothing_else") {
        return;
    }
    let world = CliWorld::new();
    write_hooks(
        &world,
        "[[hook]]\nname = \"g\"\nevent = \"before_tool\"\ncommand = \"echo garbage\"\n\
         [[hook]]\nname = \"d\"\nevent = \"before_tool\"\nhttp = \"http://127.0.0.1:1/\"\n\
         [[hook]]\nname = \"o\"\nevent = \"after_tool\"\nhttp = \"http://127.0.0.1:1/\"\n\
         [[hook]]\nname = \"b\"\nevent = \"no_such\"\ncommand = \"true\"\n",
    );
    let done = run_bash_call(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read_file("ran"), "ran\n");
    let alerts: Vec<String> = entries_of_kind(&world, "alert")
        .iter()
        .map(|alert| alert["message"].as_str().unwrap().to_owned())
        .collect();
    for wanted in ["hook g: its output `garbage`", "hook d: could not reach http://127.0.0.1:1"] {
        assert!(alerts.iter().any(|alert| alert.contains(wanted)), "{wanted}: {alerts:#?}");
    }
    let said = format!("{}{}", alerts.join("\n"), done.err);
    assert!(said.contains("unknown event `no_such`"), "{said}");
    world.verify_logs();
}

#[test]
fn an_observer_that_hangs_delays_no_call_and_is_gone_with_the_pod() {
    if !can_sandbox_commands("an_observer_that_hangs_delays_no_call_and_is_gone_with_the_pod") {
        return;
    }
    const CALL_COUNT: usize = 20;
    let mark = format!("7321.{}", std::process::id());
    let script =
        "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n".repeat(CALL_COUNT);
    let took = |text: &str| {
        let world = CliWorld::new();
        write_hooks(&world, text);
        world.write_file("s.toml", &format!("{script}[[turn]]\ntext = \"Done.\"\n"));
        let done = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        assert_eq!(done.code, Some(0), "{}", done.err);
        // Time from the first request to the end of the run, from the log.
        let first = entries_of_kind(&world, "llm_call")[0]["ts"].as_u64().unwrap();
        let last = entries_of_kind(&world, "run_completed")[0]["ts"].as_u64().unwrap();
        assert_eq!(entries_of_kind(&world, "tool_result").len(), CALL_COUNT);
        last - first
    };
    let alone = took("");
    let beside = took(&format!("[[hook]]\nevent = \"after_tool\"\ncommand = \"sleep {mark}\"\n"));
    eprintln!("{CALL_COUNT} calls: {alone} ms without, {beside} ms with an observer that hangs");
    assert!(beside < 2 * alone + 500, "{alone} ms without, {beside} ms with it");
    let has_mark = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::fs::read_dir("/proc").unwrap().flatten().any(|entry| has_mark(&entry)) {
        assert!(std::time::Instant::now() < until, "the hook outlives its pod");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_input_that_a_hook_refuses_is_told_as_refused() {
    if !can_sandbox_commands("an_input_that_a_hook_refuses_is_told_as_refused") {
        return;
    }
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\ntext = \"Never.\"\n");
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    let hook =
        "[[hook]]\nevent = \"user_prompt\"\nname = \"guard\"\ncommand = \"echo not today >&2; exit 2\"\n";
    std::fs::write(world.home_dir().join("config/hooks.toml"), hook).unwrap();
    let done = world.run_minke(&["exec", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert!(done.err.contains("not today") && done.err.contains("guard"), "{}", done.err);
    assert!(!done.out.contains("Never"), "{}", done.out);
    world.verify_logs();
}
