//! What comes up the tree to a parent and what is asked before a child is made, with real processes: questions that a pod
//! may answer itself, and hooks that steer a spawn.

use serde_json::json;

use crate::tree::{
    Script, nothing_is_left, of_kind, pod, results, run_to_its_end, spawn, until, world, write_rule,
};
use crate::world::{UNFENCED, World};

fn config(world: &World, name: &str, text: &str) {
    let config = world.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join(name), text).unwrap();
}

/// A parent whose child asks before it runs its one command, and who answers that.
fn family() -> World {
    let world = world(&["lib"]);
    config(&world, "profiles.toml", "[profile]\ncareful = \"careful.lua\"\n");
    let careful = "local profile = require('minke.profile')\nreturn profile { slug = 'careful', description = 'asks', \
                   permissions = { posture = 'ask' } }\n";
    config(&world, "careful.lua", careful);
    let lib = world.work().join("lib");
    let kid = json!({ "name": "kid", "task": "work", "profile": "careful", "scope": [write_rule(&lib)] });
    let wait = |until: &str| json!({ "names": ["kid"], "until": until, "timeout_s": 30 });
    let answer = json!({ "name": "kid", "ask": "{{ask}}", "decision": "approved" });
    let command = json!({ "command": format!("echo yes > {}", lib.join("yes.txt").display()) });
    Script::default()
        .call("boss", "SpawnPod", &kid)
        .call("boss", "WaitPods", &wait("ask"))
        .call("boss", "AnswerPod", &answer)
        .say("boss", "answered")
        .say("boss", "heard")
        .call("kid", "Bash", &command)
        .say("kid", "written")
        .write(&world);
    world
}

#[test]
fn a_pod_answers_what_its_child_asks_if_it_may() {
    let world = family();
    run_to_its_end(&world, &[&UNFENCED[..], &["--set", "permissions.may_answer=true"]].concat());
    let said = results(&world, "boss");
    assert_eq!(said[2].0, "done", "{said:#?}");
    until("the child has done it", || pod(&world, "kid").filter(|kid| kid["state"] == "idle"));
    assert_eq!(world.read("lib/yes.txt"), "yes\n");
    let answer = &of_kind(&world, "kid", "answer")[0];
    let boss = of_kind(&world, "boss", "session_start")[0]["session"].as_str().unwrap().to_owned();
    assert!(answer["by"].to_string().contains(&boss), "it is in the child's log who answered: {answer:#}");
    nothing_is_left(&world);
}

#[test]
fn a_pod_that_may_not_answer_leaves_the_question_to_people() {
    let world = family();
    run_to_its_end(&world, &UNFENCED);
    let said = results(&world, "boss");
    assert_eq!(said[2].0, "refused", "{said:#?}");
    assert!(!world.work().join("lib/yes.txt").exists());
    let ask = world.json(&["asks", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["answer", &ask, "approved"]).code, Some(0));
    until("the child has done it", || world.work().join("lib/yes.txt").exists().then_some(()));
    nothing_is_left(&world);
}

#[test]
fn a_hook_is_asked_before_a_pod_is_made() {
    let world = world(&["lib", "docs"]);
    // Lets the work in `docs` through and no other.
    config(
        &world,
        "hooks.toml",
        "[[hook]]\nname = \"keeper\"\nevent = \"pod_spawn\"\ncommand = \"grep -q writer || { echo only writers >&2; exit 2; }\"\n",
    );
    let rule = |dir: &str| json!([write_rule(&world.work().join(dir))]);
    Script::default()
        .call("boss", "SpawnPod", &spawn("coder", "work", rule("lib")))
        .call("boss", "SpawnPod", &spawn("writer", "work", rule("docs")))
        .say("boss", "done")
        .say("boss", "heard")
        .say("writer", "written")
        .write(&world);
    run_to_its_end(&world, &UNFENCED);
    let said = results(&world, "boss");
    assert_eq!((said[0].0.as_str(), said[1].0.as_str()), ("refused", "done"), "{said:#?}");
    assert!(said[0].1.contains("only writers"), "the model is told why: {said:#?}");
    let children = of_kind(&world, "boss", "child");
    assert_eq!(children.len(), 1, "{children:#?}");
    assert_eq!(children[0]["name"], "writer");
    nothing_is_left(&world);
}
