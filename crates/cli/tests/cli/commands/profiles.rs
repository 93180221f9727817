//! Profiles with real pods: selected on the command line, and used for children.

use serde_json::{Value, json};

use crate::support::world::CliWorld;
use crate::trees::tree::{
    TreeScript, call_results, check_nothing_left, entries_of_kind, run_to_end, world_with_dirs,
    write_scope_rule,
};

/// Writes files of the configuration directory.
fn write_config_files(world: &CliWorld, files: &[(&str, &str)]) {
    let config = world.run_json(&["paths", "--json"])["config"].as_str().unwrap().to_owned();
    for (name, text) in files {
        let path = std::path::Path::new(&config).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn profile_text(fields: &str) -> String {
    format!(
        "local profile, scope = require('minke.profile'), require('minke.scope')\nreturn profile {{ {fields} }}"
    )
}

fn session_start(world: &CliWorld, session: &str) -> Value {
    entries_of_kind(world, session, "session_start").remove(0)
}

#[test]
fn a_pod_is_made_from_the_profile_that_was_chosen() {
    let world = CliWorld::new();
    write_config_files(
        &world,
        &[
            ("profiles.toml", "default = 'mine'\n[profile]\nmine = 'mine.lua'\nother = 'other.lua'"),
            (
                "mine.lua",
                &profile_text("slug = 'mine', worker = { max_turns = 7 }, scope = scope.workspace_read()"),
            ),
            ("other.lua", &profile_text("extends = 'mine', worker = { max_turns = 8, max_tokens = 50 }")),
            ("config.toml", "[worker]\nmax_turns = 3\nmax_tokens = 40\n"),
        ],
    );
    let exec = |extra: &[&str]| {
        let done = world.run_minke(&[&["exec", "--model", "scripted:demo", "hi"], extra].concat());
        assert!(done.code == Some(0) || done.code == Some(1), "{done:?}");
    };
    exec(&[]);
    let mine = session_start(&world, "mine");
    assert_eq!(mine["manifest"]["worker"]["max_turns"], 7, "a profile overrides the user's file");
    assert_eq!(mine["manifest"]["worker"]["max_tokens"], 40);
    let scope = &mine["scope"];
    assert_eq!(scope["allow"][0]["permission"], "read", "{scope}");
    exec(&["--profile", "other", "--name", "chosen", "--set", "worker.max_turns=9"]);
    let chosen = session_start(&world, "chosen");
    assert_eq!(chosen["manifest"]["worker"]["max_turns"], 9, "the command line overrides a profile");
    assert_eq!(chosen["manifest"]["worker"]["max_tokens"], 50);
    exec(&["--profile", "builtin:default", "--name", "plain"]);
    assert_eq!(session_start(&world, "plain")["manifest"]["worker"]["max_turns"], 3);
}

#[test]
fn children_are_made_from_registered_profiles() {
    let world = world_with_dirs(&["a", "b", "c", "d"]);
    write_config_files(
        &world,
        &[
            (
                "profiles.toml",
                "default = 'quiet'\n[profile]\nquiet = 'quiet.lua'\ncoder = 'quiet.lua'\nbroken = 'none.lua'",
            ),
            (
                "quiet.lua",
                &profile_text(
                    "description = 'says little', worker = { instruction = 'Say little.', max_turns = 5 }, permissions = { \
                     posture = 'full', may_answer = true }, sandbox = { network = 'on' }, scope = scope.workspace_write()",
                ),
            ),
        ],
    );
    let spawn = |name: &str, more: Value| {
        let mut spawn = json!({ "name": name, "task": "go", "scope": [write_scope_rule(&world.work_dir().join(name))], "wait": true });
        spawn.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spawn
    };
    let mut script = TreeScript::default();
    for more in ["./x.lua", "path:x", "missing", "coder", "else:x", "user:"] {
        script = script.add_call("boss", "SpawnPod", &spawn("a", json!({ "profile": more })));
    }
    script
        .add_call("boss", "SpawnPod", &spawn("a", json!({})))
        .add_call("boss", "SpawnPod", &spawn("b", json!({ "profile": "inherit" })))
        .add_call("boss", "SpawnPod", &spawn("c", json!({ "profile": "user:quiet", "instruction": "Sing." })))
        .add_call("boss", "SpawnPod", &spawn("d", json!({ "profile": "broken" })))
        .add_text("boss", "done")
        .add_text("a", "a")
        .add_text("b", "b")
        .add_text("c", "c")
        .write_with_greeting(&world);
    run_to_end(
        &world,
        &[
            "--posture",
            "auto",
            "--profile",
            "builtin:default",
            "--set",
            "worker.instruction=Lead.",
            "--set",
            "worker.max_turns=100",
        ],
    );
    let results = call_results(&world, "boss");
    let refused = [
        "names a file",
        "names a file",
        "no profile `missing`",
        "`builtin:coder` or `user:coder`",
        "prefix",
        "no name after",
    ];
    for ((outcome, text), words) in results.iter().zip(refused) {
        assert_eq!(outcome, "invalid", "{text}");
        assert!(text.contains(words), "`{words}` is missing: {text}");
    }
    let (outcome, text) = results.last().unwrap();
    assert!(
        outcome != "done" && text.contains("none.lua") && text.contains("does not exist"),
        "{outcome}: {text}"
    );
    let tools = &entries_of_kind(&world, "boss", "segment_start").remove(0)["tools"];
    assert!(tools.to_string().contains("user:quiet (default): says little"), "{tools}");
    let manifest = |name: &str| session_start(&world, name)["manifest"].clone();
    let (a, b, c) = (manifest("a"), manifest("b"), manifest("c"));
    assert_eq!(a["worker"]["instruction"], "Say little.");
    assert_eq!(a["worker"]["max_turns"], 5);
    assert_eq!(a["permissions"]["posture"], "auto", "a profile grants a child nothing");
    assert_eq!((&a["permissions"]["may_answer"], &a["sandbox"]["network"]), (&json!(false), &json!("off")));
    assert_eq!(a["model"], b["model"], "the parent's model");
    assert_eq!(b["worker"]["instruction"], "Lead.");
    assert_eq!(b["worker"]["max_turns"], 100, "all other settings come from the parent");
    let mut same = c.clone();
    same["worker"]["instruction"] = a["worker"]["instruction"].clone();
    assert_eq!(
        (same, &c["worker"]["instruction"]),
        (a, &json!("Sing.")),
        "an instruction changes nothing else"
    );
    for name in ["a", "b", "c"] {
        let scope = &session_start(&world, name)["scope"]["allow"];
        assert_eq!(
            scope[0]["target"],
            json!(world.work_dir().join(name)),
            "the loan, without the profile's scope"
        );
    }
    check_nothing_left(&world);
}
