//! One database: a session that is made in one home is seen from another, and spoken to only where it lives.

use serde_json::Value;

use crate::server::Server;
use crate::world::World;

const SCRIPT: &str = r#"
[[turn]]
text = ["Hello ", "from the tables."]
"#;

/// A session with its pod asleep.
fn said(world: &World) -> String {
    world.write("s.toml", SCRIPT);
    let done = world.run(&["exec", "hi", "--model", "scripted:s.toml", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let sessions = world.json(&["log", "verify", "--json"]);
    sessions["sessions"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_in_postgres_is_like_one_in_files() {
    let Some(server) = Server::start() else { return };
    let world = World::new().with("MINKE_STORE", &server.address());
    let id = said(&world);
    assert!(!world.home().join("data/sessions").exists(), "nothing of it is in files");
    assert_ne!(server.ask("select count(*) from minke.entry"), "0");
    world.verify();
    let threads = world.json(&["thread", "list", "--json"]);
    assert_eq!(threads["threads"][0]["id"], *id);
    assert_eq!(threads["threads"][0]["path"], Value::Null, "there is no directory to look at");
    assert!(world.run(&["read", &id]).out.contains("from the tables"));
    // The flag says the same as the variable, and nothing else.
    let plain = World::new();
    assert!(plain.json(&["thread", "list", "--json"])["threads"].as_array().unwrap().is_empty());
    let flagged = plain.json(&["--store", &server.address(), "thread", "list", "--json"]);
    assert_eq!(flagged["threads"][0]["id"], *id);
    let forked = world.run(&["fork", &id, "--json"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    assert_eq!(world.sessions(), 2);
}

#[test]
fn a_thread_is_spoken_to_where_its_workspace_is() {
    let Some(server) = Server::start() else { return };
    let here = World::new().with("MINKE_STORE", &server.address()).with("MINKE_STORE_LABEL", "north");
    let id = said(&here);
    let there = World::new().with("MINKE_STORE", &server.address()).with("MINKE_STORE_LABEL", "south");
    assert!(there.run(&["read", &id]).out.contains("from the tables"), "everybody may read it");
    let refused = there.run(&["send", &id, "hello?"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("`north`") && refused.err.contains("`south`"), "{refused:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_said_without_its_password() {
    let world = World::new();
    for address in ["postgres://minke:hunter2@127.0.0.1:1/minke", "mysql://minke:hunter2@127.0.0.1/minke"] {
        let mut command = world.command();
        command.env("MINKE_STORE", address).env("MINKE_STORE_LEASE_MS", "900").args(["thread", "list"]);
        let done = world.done(command);
        assert_ne!(done.code, Some(0), "{done:?}");
        assert!(!done.err.contains("hunter2") && !done.out.contains("hunter2"), "{done:?}");
        assert!(done.err.contains("MINKE_STORE") || done.err.contains("database"), "{done:?}");
    }
    let done = world.run(&["--store", "postgres://", "thread", "list"]);
    assert!(done.code != Some(0) && done.err.contains("docs/reference/store.md"), "{done:?}");
}
