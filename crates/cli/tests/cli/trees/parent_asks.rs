//! Messages from children to their parent and checks before a spawn, with real processes: asks that a pod may
//! answer itself, and hooks that control a spawn.

use serde_json::json;

use crate::support::world::{CliWorld, UNSANDBOXED};
use crate::trees::tree::{
    TreeScript, call_results, check_nothing_left, entries_of_kind, live_pod, run_to_end, spawn_args,
    wait_for, world_with_dirs, write_scope_rule,
};

fn write_config(world: &CliWorld, name: &str, text: &str) {
    let config = world.home_dir().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join(name), text).unwrap();
}

/// A parent whose child asks before it runs its one command, and who answers.
fn parent_child_script() -> CliWorld {
    let world = world_with_dirs(&["lib"]);
    write_config(&world, "profiles.toml", "[profile]\ncareful = \"careful.lua\"\n");
    let careful = "local profile = require('minke.profile')\nreturn profile { slug = 'careful', description = 'asks', \
                   permissions = { posture = 'ask' } }\n";
    write_config(&world, "careful.lua", careful);
    let lib = world.work_dir().join("lib");
    let kid =
        json!({ "name": "kid", "task": "work", "profile": "careful", "scope": [write_scope_rule(&lib)] });
    let wait = |until: &str| json!({ "names": ["kid"], "until": until, "timeout_s": 30 });
    let answer = json!({ "name": "kid", "ask": "{{ask}}", "decision": "approved" });
    let command = json!({ "command": format!("echo yes > {}", lib.join("yes.txt").display()) });
    TreeScript::default()
        .add_call("boss", "SpawnPod", &kid)
        .add_call("boss", "WaitPods", &wait("ask"))
        .add_call("boss", "AnswerPod", &answer)
        .add_text("boss", "answered")
        .add_text("boss", "heard")
        .add_call("kid", "Bash", &command)
        .add_text("kid", "written")
        .write_with_greeting(&world);
    world
}

#[test]
fn a_pod_answers_what_its_child_asks_if_it_may() {
    let world = parent_child_script();
    run_to_end(&world, &[&UNSANDBOXED[..], &["--set", "permissions.may_answer=true"]].concat());
    let said = call_results(&world, "boss");
    assert_eq!(said[2].0, "done", "{said:#?}");
    wait_for("the child has done it", || live_pod(&world, "kid").filter(|kid| kid["state"] == "idle"));
    assert_eq!(world.read_file("lib/yes.txt"), "yes\n");
    let answer = &entries_of_kind(&world, "kid", "answer")[0];
    let boss = entries_of_kind(&world, "boss", "session_start")[0]["session"].as_str().unwrap().to_owned();
    assert!(answer["by"].to_string().contains(&boss), "the child's log names the answerer: {answer:#}");
    check_nothing_left(&world);
}

#[test]
fn a_pod_that_may_not_answer_leaves_the_question_to_people() {
    let world = parent_child_script();
    run_to_end(&world, &UNSANDBOXED);
    let said = call_results(&world, "boss");
    assert_eq!(said[2].0, "refused", "{said:#?}");
    assert!(!world.work_dir().join("lib/yes.txt").exists());
    let ask = world.run_json(&["asks", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run_minke(&["answer", &ask, "approved"]).code, Some(0));
    wait_for("the child has done it", || world.work_dir().join("lib/yes.txt").exists().then_some(()));
    check_nothing_left(&world);
}

#[test]
fn a_hook_is_asked_before_a_pod_is_made() {
    let world = world_with_dirs(&["lib", "docs"]);
    // Allows the work in `docs` and no other.
    write_config(
        &world,
        "hooks.toml",
        "[[hook]]\nname = \"keeper\"\nevent = \"pod_spawn\"\ncommand = \"grep -q writer || { echo only writers >&2; exit 2; }\"\n",
    );
    let rule = |dir: &str| json!([write_scope_rule(&world.work_dir().join(dir))]);
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("coder", "work", rule("lib")))
        .add_call("boss", "SpawnPod", &spawn_args("writer", "work", rule("docs")))
        .add_text("boss", "done")
        .add_text("boss", "heard")
        .add_text("writer", "written")
        .write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let said = call_results(&world, "boss");
    assert_eq!((said[0].0.as_str(), said[1].0.as_str()), ("refused", "done"), "{said:#?}");
    assert!(said[0].1.contains("only writers"), "the model reads the reason: {said:#?}");
    let children = entries_of_kind(&world, "boss", "child");
    assert_eq!(children.len(), 1, "{children:#?}");
    assert_eq!(children[0]["name"], "writer");
    check_nothing_left(&world);
}
