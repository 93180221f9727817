//! `minke thread` and `minke index`, with real sessions: what is listed and found is what the logs say.

use serde_json::Value;

use crate::world::World;

/// Three conversations, the last of which was changed last.
fn three() -> World {
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n");
    for (name, said) in [("one", "mend the hinge"), ("two", "paint the door"), ("three", "open the window")] {
        let done = world.run(&["exec", "--name", name, "--model", "scripted:s.toml", said]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    world
}

fn names(listed: &Value) -> Vec<&str> {
    listed["threads"].as_array().unwrap().iter().map(|thread| thread["name"].as_str().unwrap()).collect()
}

#[test]
fn lists_and_searches_follow_the_logs() {
    let world = three();
    let listed = world.json(&["thread", "list", "--json"]);
    assert_eq!(names(&listed), ["three", "two", "one"]);
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
    let hits = world.json(&["thread", "search", "door", "--json"]);
    assert_eq!(hits["hits"].as_array().unwrap().len(), 2, "the question and the answer: {hits:#}");
    assert_eq!(world.run(&["exec", "--resume", "one", "and the lock"]).code, Some(0));
    let listed = world.json(&["thread", "list", "--json", "--limit", "2"]);
    assert_eq!(names(&listed), ["one", "three"]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    assert_eq!(names(&world.json(&["thread", "list", "--json", "--cursor", cursor])), ["two"]);
    // Whatever becomes of the index.
    let index = world.home().join("data/index.sqlite");
    std::fs::write(&index, "nonsense").unwrap();
    let done = world.run(&["thread", "list"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("made anew") && done.out.lines().count() == 3, "{done:?}");
    std::fs::remove_file(&index).unwrap();
    assert_eq!(names(&world.json(&["thread", "list", "--json"])), ["one", "three", "two"]);
    let rebuilt = world.json(&["index", "rebuild", "--json"]);
    assert_eq!((&rebuilt["sessions"], &rebuilt["read"]), (&3.into(), &3.into()));
}

#[test]
fn a_thread_is_named_put_away_and_taken_out() {
    let world = three();
    assert_eq!(world.run(&["thread", "name", "two", "door"]).code, Some(0));
    assert_eq!(world.run(&["thread", "archive", "three"]).code, Some(0));
    assert_eq!(names(&world.json(&["thread", "list", "--json"])), ["door", "one"]);
    assert_eq!(names(&world.json(&["thread", "list", "--json", "--archived"])), ["three"]);
    let shown = world.json(&["thread", "show", "three", "--json"]);
    let shown = &shown["thread"];
    assert!(shown["archived_at"].is_u64() && shown["archived"] == true, "{shown:#}");
    assert_eq!(world.run(&["thread", "unarchive", "three"]).code, Some(0));
    assert_eq!(names(&world.json(&["thread", "list", "--json", "--status", "idle"])).len(), 3);
    assert_eq!(names(&world.json(&["thread", "list", "--json", "--status", "running"])).len(), 0);
    for (bad, says) in [
        (&["thread", "show", "nobody"][..], "nobody"),
        (&["thread", "list", "--cursor", "x"], "next_cursor"),
        (&["thread", "name", "one", "not/a/name"], "name"),
        (&["thread", "list", "--status", "odd"], "odd"),
    ] {
        let done = world.run(bad);
        assert!(done.code != Some(0) && done.err.contains(says), "{bad:?}: {done:?}");
    }
    world.verify();
}

#[test]
fn a_fork_shows_what_was_said_before_it_and_a_posture_is_always_named() {
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"yes\"]\n");
    let exec = ["exec", "--name", "first", "--model", "scripted:s.toml", "count the whales"];
    assert_eq!(world.run(&exec).code, Some(0));
    let show = |name: &str| world.json(&["thread", "show", name, "--json"])["thread"].clone();
    let first = show("first");
    let posture = world.json(&["doctor", "--json"])["sandbox"]["default_posture"].clone();
    assert_eq!(first["approval_mode"], posture, "nobody chose: the fence decides");
    assert_eq!(world.run(&["thread", "fork", "first", "--name", "second"]).code, Some(0));
    assert_eq!(world.run(&["thread", "fork", "second", "--name", "third"]).code, Some(0));
    // What the first says later was not said before they parted.
    assert_eq!(world.run(&["send", "first", "and the dolphins"]).code, Some(0));
    for name in ["second", "third"] {
        assert_eq!(show(name)["preview"], "count the whales", "{name}");
    }
    let listed = world.json(&["thread", "list", "--json"]);
    let third = listed["threads"].as_array().unwrap().iter().find(|one| one["name"] == "third").unwrap();
    assert_eq!(third["preview"], "count the whales");
}
