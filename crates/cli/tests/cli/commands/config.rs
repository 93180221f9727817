//! The declared configuration reaches the pod: files, command line and workspace, checked in a session's
//! first entry, its sandbox and its refusals.

use serde_json::{Value, json};

use crate::support::world::{CliWorld, CommandResult};

fn run_ok(world: &CliWorld, args: &[&str]) -> CommandResult {
    let done = world.run_minke(args);
    assert_eq!(done.code, Some(0), "{args:?}: {}{}", done.out, done.err);
    done
}

fn write_config(world: &CliWorld, text: &str) {
    let paths = run_ok(world, &["paths", "--json"]);
    let paths: Value = serde_json::from_str(&paths.out).unwrap();
    let dir = std::path::PathBuf::from(paths["config"].as_str().unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

fn write_workspace_config(world: &CliWorld, text: &str) {
    std::fs::create_dir_all(world.work_dir().join(".minke")).unwrap();
    world.write_file(".minke/config.toml", text);
}

/// Returns the first entry of the newest session.
fn session_start(world: &CliWorld, name: &str) -> Value {
    let shown = run_ok(world, &["log", "show", name, "--json"]);
    let mut entries = shown.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.find(|entry| entry["kind"] == "session_start").unwrap()
}

#[test]
fn what_config_shows_is_what_a_pod_gets() {
    let world = CliWorld::new();
    std::fs::create_dir(world.work_dir().join("secret")).unwrap();
    write_config(
        &world,
        "[model]\nref = \"scripted:demo\"\n[pod]\nname = \"tale\"\n[worker]\nmax_turns = 9\n[sandbox.env.set]\nA = \"1\"\n",
    );
    write_workspace_config(
        &world,
        "[budget]\nturns = 50\n[worker]\nmax_turns = 3\nlanguage = \"Klingon\"\n[[scope.deny]]\ntarget = \"../secret\"\npermission = \"read\"\n",
    );
    let shown = run_ok(&world, &["config", "show", "--json", "--set", "worker.max_tokens=500"]);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let done = run_ok(&world, &["exec", "--set", "worker.max_tokens=500", "Say hello"]);
    assert!(done.err.contains("`worker.max_turns` is ignored"), "the alert is printed: {}", done.err);
    let start = session_start(&world, "tale");
    let manifest = &start["manifest"];
    let mut compared = 0;
    for row in shown["values"].as_array().unwrap() {
        let key = row["key"].as_str().unwrap();
        // The model is stored in canonical form, the name in the session, and a list of rules has no path of
        // its own.
        if row["value"].is_null() || ["model.ref", "pod.name"].contains(&key) || key.contains('[') {
            continue;
        }
        let got = key.split('.').try_fold(manifest, |value, part| value.get(part));
        assert_eq!(got, Some(&row["value"]), "{key}");
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
    assert_eq!(manifest["worker"]["max_turns"], 9);
    assert_eq!(manifest["worker"]["language"], Value::Null, "the workspace is not trusted");
    let secret = world.work_dir().canonicalize().unwrap().join("secret");
    let deny = json!([{ "target": secret, "permission": "read", "recursive": true }]);
    assert_eq!(start["scope"]["deny"], deny);
}

#[test]
fn the_language_is_in_the_system_prompt() {
    let world = CliWorld::new();
    write_config(&world, "[worker]\nlanguage = \"French\"\n");
    run_ok(&world, &["exec", "--name", "tale", "--model", "scripted:demo", "Say hello"]);
    let shown = run_ok(&world, &["log", "show", "tale", "--json"]);
    let mut entries = shown.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let segment = entries.find(|entry| entry["kind"] == "segment_start").unwrap();
    assert!(segment["system_prompt"].to_string().contains("Speak French"), "{segment}");
    run_ok(&world, &["replay", "tale"]);
}

#[test]
fn a_rule_of_the_workspaces_settings_counts_at_once_and_never_loosens() {
    let world = CliWorld::new();
    // Next to the user's own rule, the workspace's rule would be the more specific one.
    write_config(
        &world,
        "[[permissions.rule]]\naction = \"deny\"\ncommand = \"touch\"\n[permissions]\nposture = \"full\"\n",
    );
    write_workspace_config(
        &world,
        "[[permissions.rule]]\naction = \"ask\"\ncommand = \"touch here\"\n\
         [[permissions.rule]]\naction = \"deny\"\ncommand = \"echo no\"\n",
    );
    world.write_file(
        "talk.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"touch here\" }\n\
         [[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo no\" }\n[[turn]]\ntext = \"done\"\n",
    );
    let done =
        world.run_minke(&["exec", "--name", "tale", "--unsandboxed", "--model", "scripted:talk.toml", "go"]);
    let shown = run_ok(&world, &["log", "show", "tale", "--json"]);
    let entries: Vec<Value> = shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut results: Vec<&Value> = entries.iter().filter(|entry| entry["kind"] == "tool_result").collect();
    // Calls of one reply may end in any order.
    results.sort_by_key(|result| result["item"]["call_id"].to_string());
    assert_eq!(results.len(), 2, "{}{}", done.out, done.err);
    // The order in which concurrent calls end is not specified.
    for (layer, rule) in [("user", "\"touch\""), ("workspace", "\"echo no\"")] {
        let by_rule = |verdict: &&Value| verdict["rule"].as_str().is_some_and(|said| said.contains(rule));
        let verdict = results.iter().map(|result| &result["verdict"]).find(by_rule);
        let verdict = verdict.unwrap_or_else(|| panic!("nothing by {rule}: {results:#?}"));
        assert_eq!((&verdict["outcome"], &verdict["layer"]), (&"deny".into(), &layer.into()), "{verdict}");
    }
    assert!(!world.work_dir().join("here").exists());
}
