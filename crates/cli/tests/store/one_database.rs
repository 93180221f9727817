//! One database: a session created in one home is visible in another, but accepts input only in its own.

use serde_json::Value;

use crate::server::Server;
use crate::world::CliWorld;

const STORE_SCRIPT: &str = r#"
[[turn]]
text = ["Hello ", "from the tables."]
"#;

/// Runs a session and stops its pod.
fn run_session(world: &CliWorld) -> String {
    world.write_file("s.toml", STORE_SCRIPT);
    let done = world.run_minke(&["exec", "hi", "--model", "scripted:s.toml", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let sessions = world.run_json(&["log", "verify", "--json"]);
    sessions["sessions"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_in_postgres_is_like_one_in_files() {
    let Some(server) = Server::start() else { return };
    let world = CliWorld::new().with_env("MINKE_STORE", &server.address());
    let id = run_session(&world);
    assert!(!world.home_dir().join("data/sessions").exists(), "it has no files");
    assert_ne!(server.ask("select count(*) from minke.entry"), "0");
    world.verify_logs();
    let threads = world.run_json(&["thread", "list", "--json"]);
    assert_eq!(threads["threads"][0]["id"], *id);
    assert_eq!(threads["threads"][0]["path"], Value::Null, "it has no directory");
    assert!(world.run_minke(&["read", &id]).out.contains("from the tables"));
    // The option has the same effect as the variable.
    let plain = CliWorld::new();
    assert!(plain.run_json(&["thread", "list", "--json"])["threads"].as_array().unwrap().is_empty());
    let flagged = plain.run_json(&["--store", &server.address(), "thread", "list", "--json"]);
    assert_eq!(flagged["threads"][0]["id"], *id);
    let forked = world.run_minke(&["fork", &id, "--json"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    assert_eq!(world.session_count(), 2);
}

#[test]
fn a_thread_is_spoken_to_where_its_workspace_is() {
    let Some(server) = Server::start() else { return };
    let here =
        CliWorld::new().with_env("MINKE_STORE", &server.address()).with_env("MINKE_STORE_LABEL", "north");
    let id = run_session(&here);
    let there =
        CliWorld::new().with_env("MINKE_STORE", &server.address()).with_env("MINKE_STORE_LABEL", "south");
    assert!(there.run_minke(&["read", &id]).out.contains("from the tables"), "every home may read it");
    let refused = there.run_minke(&["send", &id, "hello?"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("`north`") && refused.err.contains("`south`"), "{refused:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_said_without_its_password() {
    let world = CliWorld::new();
    for address in ["postgres://minke:hunter2@127.0.0.1:1/minke", "mysql://minke:hunter2@127.0.0.1/minke"] {
        let mut command = world.minke_command();
        command.env("MINKE_STORE", address).env("MINKE_STORE_LEASE_MS", "900").args(["thread", "list"]);
        let done = world.run_command(command);
        assert_ne!(done.code, Some(0), "{done:?}");
        assert!(!done.err.contains("hunter2") && !done.out.contains("hunter2"), "{done:?}");
        assert!(done.err.contains("MINKE_STORE") || done.err.contains("database"), "{done:?}");
    }
    let done = world.run_minke(&["--store", "postgres://", "thread", "list"]);
    assert!(done.code != Some(0) && done.err.contains("docs/reference/store.md"), "{done:?}");
}
