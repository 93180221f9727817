//! `minke thread` and `minke index`, with real sessions: lists and search results agree with the logs.

use serde_json::Value;

use crate::support::world::CliWorld;

/// Creates three conversations, the last one changed last.
fn world_with_three_threads() -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n");
    for (name, said) in [("one", "mend the hinge"), ("two", "paint the door"), ("three", "open the window")] {
        let done = world.run_minke(&["exec", "--name", name, "--model", "scripted:s.toml", said]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    world
}

fn thread_names(listed: &Value) -> Vec<&str> {
    listed["threads"].as_array().unwrap().iter().map(|thread| thread["name"].as_str().unwrap()).collect()
}

#[test]
fn lists_and_searches_follow_the_logs() {
    let world = world_with_three_threads();
    let listed = world.run_json(&["thread", "list", "--json"]);
    assert_eq!(thread_names(&listed), ["three", "two", "one"]);
    let first = &listed["threads"][0];
    assert_eq!(
        (&first["preview"], &first["status"]),
        (&"open the window".into(), &"idle".into()),
        "{first:#}"
    );
    assert_eq!(
        (&first["last_result"], &first["source"]),
        (&"finished".into(), &"interactive".into()),
        "{first:#}"
    );
    let hits = world.run_json(&["thread", "search", "door", "--json"]);
    assert_eq!(hits["hits"].as_array().unwrap().len(), 2, "the question and the answer: {hits:#}");
    assert_eq!(world.run_minke(&["exec", "--resume", "one", "and the lock"]).code, Some(0));
    let listed = world.run_json(&["thread", "list", "--json", "--limit", "2"]);
    assert_eq!(thread_names(&listed), ["one", "three"]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json", "--cursor", cursor])), ["two"]);
    // With the index in any state.
    let index = world.home_dir().join("data/index.sqlite");
    std::fs::write(&index, "nonsense").unwrap();
    let done = world.run_minke(&["thread", "list"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("was rebuilt") && done.out.lines().count() == 3, "{done:?}");
    std::fs::remove_file(&index).unwrap();
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json"])), ["one", "three", "two"]);
    let rebuilt = world.run_json(&["index", "rebuild", "--json"]);
    assert_eq!((&rebuilt["sessions"], &rebuilt["read"]), (&3.into(), &3.into()));
}

#[test]
fn a_thread_is_named_put_away_and_taken_out() {
    let world = world_with_three_threads();
    assert_eq!(world.run_minke(&["thread", "name", "two", "door"]).code, Some(0));
    assert_eq!(world.run_minke(&["thread", "archive", "three"]).code, Some(0));
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json"])), ["door", "one"]);
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json", "--archived"])), ["three"]);
    let shown = world.run_json(&["thread", "show", "three", "--json"]);
    let shown = &shown["thread"];
    assert!(shown["archived_at"].is_u64() && shown["archived"] == true, "{shown:#}");
    assert_eq!(world.run_minke(&["thread", "unarchive", "three"]).code, Some(0));
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json", "--status", "idle"])).len(), 3);
    assert_eq!(thread_names(&world.run_json(&["thread", "list", "--json", "--status", "running"])).len(), 0);
    for (bad, says) in [
        (&["thread", "show", "missing"][..], "missing"),
        (&["thread", "list", "--cursor", "x"], "next_cursor"),
        (&["thread", "name", "one", "not/a/name"], "name"),
        (&["thread", "list", "--status", "odd"], "odd"),
    ] {
        let done = world.run_minke(bad);
        assert!(done.code != Some(0) && done.err.contains(says), "{bad:?}: {done:?}");
    }
    world.verify_logs();
}

#[test]
fn a_fork_shows_what_was_said_before_it_and_a_posture_is_always_named() {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"yes\"]\n");
    let exec = ["exec", "--name", "first", "--model", "scripted:s.toml", "count the whales"];
    assert_eq!(world.run_minke(&exec).code, Some(0));
    let show = |name: &str| world.run_json(&["thread", "show", name, "--json"])["thread"].clone();
    let first = show("first");
    let posture = world.run_json(&["doctor", "--json"])["sandbox"]["default_posture"].clone();
    assert_eq!(first["approval_mode"], posture, "without a setting the sandbox decides");
    assert_eq!(world.run_minke(&["thread", "fork", "first", "--name", "second"]).code, Some(0));
    assert_eq!(world.run_minke(&["thread", "fork", "second", "--name", "third"]).code, Some(0));
    // A message to the original after the fork is not in the fork.
    assert_eq!(world.run_minke(&["send", "first", "and the dolphins"]).code, Some(0));
    for name in ["second", "third"] {
        assert_eq!(show(name)["preview"], "count the whales", "{name}");
    }
    let listed = world.run_json(&["thread", "list", "--json"]);
    let third = listed["threads"].as_array().unwrap().iter().find(|one| one["name"] == "third").unwrap();
    assert_eq!(third["preview"], "count the whales");
}
