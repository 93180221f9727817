//! Hooks through the real binary: what is listed and tried, what they do to a pod's run, what they are told of it.

use serde_json::Value;

use crate::world::{Done, World, commands_are_held};

fn hooks(world: &World, text: &str) {
    let config = world.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("hooks.toml"), text).unwrap();
}

/// One run that calls Bash and then says something.
fn exec(world: &World) -> Done {
    world.write(
        "s.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo ran >> ran\" }\n[[turn]]\ntext = \"Done.\"\n",
    );
    world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"])
}

fn entries(world: &World, kind: &str) -> Vec<Value> {
    let log = world.run(&["log", "show", "tale", "--json", "--kind", kind]).out;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn hooks_of_a_workspace_count_once_it_is_trusted() {
    let world = World::new();
    std::fs::create_dir(world.work().join(".minke")).unwrap();
    let text = "[[hook]]\nevent = \"before_tool\"\nname = \"theirs\"\ncommand = \"touch canary; exit 2\"\n";
    world.write(".minke/hooks.toml", text);
    let before = world.run(&["hooks", "list"]);
    assert_eq!(before.code, Some(0));
    assert!(
        before.err.contains("ignored until you trust it") && !before.out.contains("theirs"),
        "{before:?}"
    );
    let tried = world.run(&["hooks", "test", "before_tool"]);
    assert_eq!((tried.code, world.work().join("canary").exists()), (Some(0), false), "{tried:?}");
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    let after = world.json(&["hooks", "list", "--json"]);
    assert_eq!(
        (after["hooks"][0]["name"].as_str(), after["hooks"][0]["layer"].as_str()),
        (Some("theirs"), Some("workspace"))
    );
    if !commands_are_held("hooks_of_a_workspace_count_once_it_is_trusted") {
        return;
    }
    let tried = world.run(&["hooks", "test", "before_tool"]);
    assert_eq!((tried.code, world.work().join("canary").exists()), (Some(4), true), "{tried:?}");
}

#[test]
fn trying_hooks_says_what_each_said_and_leaves_nothing() {
    let world = World::new();
    let say = |name: &str, event: &str, line: &str| {
        format!("[[hook]]\nname = \"{name}\"\nevent = \"{event}\"\ncommand = '''{line}'''\ntimeout_s = 1\n")
    };
    hooks(
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
    assert_eq!(world.run(&["hooks", "test", "nothing"]).code, Some(2));
    assert!(world.run(&["hooks", "list"]).err.contains("did you mean `before_tool`?"));
    if !commands_are_held("trying_hooks_says_what_each_said_and_leaves_nothing") {
        return;
    }
    let done = world.run(&["hooks", "test", "before_tool", "--json"]);
    assert_eq!(done.code, Some(1), "one hook hangs: {done:?}");
    let said: Value = serde_json::from_str(&done.out).unwrap();
    let by: Vec<&str> =
        said["asked"].as_array().unwrap().iter().map(|one| one["said"].as_str().unwrap()).collect();
    assert_eq!(by, ["nothing", "verdict", "problem"]);
    assert_eq!(said["rewritten"], "{\"command\":\"ls\"}");
    let told: Value = serde_json::from_str(&world.read("told.json")).unwrap();
    assert_eq!((&told["event"]["tool"], &told["event"]["sample"]), (&"Bash".into(), &true.into()));
    let env = world.run(&["hooks", "test", "shell_env"]);
    assert_eq!(env.code, Some(0), "{env:?}");
    assert!(env.out.contains("variables: TOKEN") && !env.out.contains("s3cret"), "{env:?}");
    let left: Vec<_> =
        std::fs::read_dir(world.home().join("run")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("hooks-test")), "{left:?}");
}

#[test]
fn a_hook_stops_a_call_and_others_are_told() {
    if !commands_are_held("a_hook_stops_a_call_and_others_are_told") {
        return;
    }
    let world = World::new();
    let file = world.home().join("told/events.jsonl");
    let observers: String = ["session_start", "user_prompt", "after_tool", "run_end"]
        .map(|event| format!("[[hook]]\nevent = \"{event}\"\nfile = \"{}\"\n", file.display()))
        .concat();
    let no = "[[hook]]\nname = \"no\"\nevent = \"before_tool\"\nwhen = { tool = \"Bash\" }\ncommand = \"echo not here >&2; exit 2\"\n";
    hooks(&world, &format!("{no}{observers}"));
    let done = exec(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work().join("ran").exists(), "the call did not run");
    let result = &entries(&world, "tool_result")[0];
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
    world.verify();
}

#[test]
fn a_hook_rewrites_a_call_and_what_it_becomes_is_in_the_log() {
    if !commands_are_held("a_hook_rewrites_a_call_and_what_it_becomes_is_in_the_log") {
        return;
    }
    let world = World::new();
    let line = r#"echo '{"updated_input":{"command":"echo changed >> ran"}}'"#;
    hooks(&world, &format!("[[hook]]\nname = \"r\"\nevent = \"before_tool\"\ncommand = '''{line}'''\n"));
    let done = exec(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read("ran"), "changed\n");
    let dispatch = &entries(&world, "tool_dispatch")[0];
    assert!(dispatch["arguments"].as_str().unwrap().contains("changed"), "{dispatch}");
    assert_eq!(dispatch["action"]["command"], "echo changed >> ran");
    world.verify();
}

#[test]
fn a_strict_hook_that_cannot_be_read_lets_nothing_run() {
    let world = World::new();
    hooks(&world, "[[hook]]\nevent = \"before_tool\"\ncomand = \"true\"\nstrict = true\n");
    let done = exec(&world);
    assert!(!world.work().join("ran").exists(), "{}", done.err);
    let results = entries(&world, "tool_result");
    if commands_are_held("a_strict_hook_that_cannot_be_read_lets_nothing_run") {
        assert!(results[0]["verdict"]["reason"].as_str().unwrap().contains("hooks.toml:"), "{}", results[0]);
    }
    world.verify();
}

#[test]
fn bad_hooks_are_alerts_and_nothing_else() {
    if !commands_are_held("bad_hooks_are_alerts_and_nothing_else") {
        return;
    }
    let world = World::new();
    hooks(
        &world,
        "[[hook]]\nname = \"g\"\nevent = \"before_tool\"\ncommand = \"echo garbage\"\n\
         [[hook]]\nname = \"d\"\nevent = \"before_tool\"\nhttp = \"http://127.0.0.1:1/\"\n\
         [[hook]]\nname = \"o\"\nevent = \"after_tool\"\nhttp = \"http://127.0.0.1:1/\"\n\
         [[hook]]\nname = \"b\"\nevent = \"no_such\"\ncommand = \"true\"\n",
    );
    let done = exec(&world);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read("ran"), "ran\n");
    let alerts: Vec<String> =
        entries(&world, "alert").iter().map(|alert| alert["message"].as_str().unwrap().to_owned()).collect();
    for wanted in ["hook g: it said `garbage`", "hook d: http://127.0.0.1:1 cannot be reached"] {
        assert!(alerts.iter().any(|alert| alert.contains(wanted)), "{wanted}: {alerts:#?}");
    }
    let said = format!("{}{}", alerts.join("\n"), done.err);
    assert!(said.contains("unknown event `no_such`"), "{said}");
    world.verify();
}

#[test]
fn an_observer_that_hangs_delays_no_call_and_is_gone_with_the_pod() {
    if !commands_are_held("an_observer_that_hangs_delays_no_call_and_is_gone_with_the_pod") {
        return;
    }
    const CALLS: usize = 20;
    let mark = format!("7321.{}", std::process::id());
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n".repeat(CALLS);
    let took = |text: &str| {
        let world = World::new();
        hooks(&world, text);
        world.write("s.toml", &format!("{script}[[turn]]\ntext = \"Done.\"\n"));
        let done = world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        assert_eq!(done.code, Some(0), "{}", done.err);
        // From the first request to the end of the run, as the log has it.
        let first = entries(&world, "llm_call")[0]["ts"].as_u64().unwrap();
        let last = entries(&world, "run_completed")[0]["ts"].as_u64().unwrap();
        assert_eq!(entries(&world, "tool_result").len(), CALLS);
        last - first
    };
    let alone = took("");
    let beside = took(&format!("[[hook]]\nevent = \"after_tool\"\ncommand = \"sleep {mark}\"\n"));
    eprintln!("{CALLS} calls: {alone} ms alone, {beside} ms beside an observer that hangs");
    assert!(beside < 2 * alone + 500, "{alone} ms alone, {beside} ms beside it");
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
    if !commands_are_held("an_input_that_a_hook_refuses_is_told_as_refused") {
        return;
    }
    let world = World::new();
    world.write("s.toml", "[[turn]]\ntext = \"Never.\"\n");
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    let hook =
        "[[hook]]\nevent = \"user_prompt\"\nname = \"guard\"\ncommand = \"echo not today >&2; exit 2\"\n";
    std::fs::write(world.home().join("config/hooks.toml"), hook).unwrap();
    let done = world.run(&["exec", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert!(done.err.contains("not today") && done.err.contains("guard"), "{}", done.err);
    assert!(!done.out.contains("Never"), "{}", done.out);
    world.verify();
}
