//! `minke trust`: what is shown, who is asked, what is kept.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use crate::world::World;

fn hostile(world: &World) {
    std::fs::create_dir_all(world.work().join(".minke")).unwrap();
    world.write(".minke/hooks.toml", "[[hook]]\nevent = \"before_tool\"\ncommand = \"./check\"\n");
    world.write(".mcp.json", r#"{"mcpServers":{"x":{"command":"\u001b[2J"}}}"#);
}

#[test]
fn a_workspace_is_trusted_once_and_asked_about_again_when_it_changes() {
    let world = World::new();
    hostile(&world);
    let nobody = world.run(&["trust"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.err.contains("minke trust --yes") && nobody.out.contains("runs `./check`"), "{nobody:?}");
    assert_eq!(world.json(&["trust", "--show", "--json"])["standing"], "unknown");
    assert_eq!(world.json(&["trust", "--list", "--json"]), serde_json::json!([]));
    assert!(!world.home().join("data").exists(), "looking makes nothing");
    let said = world.run(&["trust", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains('\u{1b}') && said.out.contains("\\u{1b}[2J"), "{said:?}");
    assert_eq!(world.json(&["trust", "--show", "--json"])["standing"], "trusted");
    assert_eq!(world.run(&["trust"]).code, Some(0), "nothing to ask any more");
    assert!(
        world.run(&["doctor"]).out.contains(".mcp.json names MCP servers"),
        "doctor says what is not used"
    );
    world.write(".mcp.json", "{}");
    let changed = world.json(&["trust", "--show", "--json"]);
    assert_eq!(
        (&changed["standing"], &changed["changes"][0]),
        (&"changed".into(), &".mcp.json changed".into())
    );
    assert_eq!(world.json(&["trust", "--list", "--json"])[0]["standing"], "changed");
    assert_eq!(world.run(&["trust"]).code, Some(2));
    assert_eq!(world.run(&["trust", "--remove", "."]).code, Some(0));
    let gone = world.run(&["trust", "--remove", "."]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert_eq!(world.json(&["trust", "--show", "--json"])["standing"], "unknown");
}

#[test]
fn a_workspace_that_is_gone_can_be_forgotten() {
    let world = World::new();
    hostile(&world);
    let elsewhere = world.work().with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(world.work().join(".minke"), elsewhere.join(".minke")).unwrap();
    let path = elsewhere.to_str().unwrap();
    assert_eq!(world.run(&["trust", "--yes", path]).code, Some(0));
    std::fs::remove_dir_all(&elsewhere).unwrap();
    assert_eq!(world.json(&["trust", "--list", "--json"])[0]["standing"], "gone");
    assert_eq!(world.run(&["trust", "--remove", path]).code, Some(0));
    assert_eq!(world.run(&["trust", path]).code, Some(2), "a directory that is not there");
    assert_eq!(world.run(&["trust", "--yes", "--show"]).code, Some(2));
}

#[test]
fn a_damaged_store_is_told_and_kept() {
    let world = World::new();
    hostile(&world);
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    let path = world.home().join("data/trust.json");
    std::fs::write(&path, "{").unwrap();
    for args in
        [&["trust", "--yes"][..], &["trust", "--show"], &["trust", "--list"], &["trust", "--remove", "."]]
    {
        let done = world.run(args);
        assert_eq!(done.code, Some(74), "{args:?} {done:?}");
        assert!(
            done.err.contains("trust.json") && done.err.contains("trust your workspaces again"),
            "{done:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
    // A pod starts all the same, trusts nothing, and says so.
    let done = world.run(&["exec", "--model", "scripted:demo", "hi"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("trust.json cannot be understood"), "{done:?}");
}

/// Both ends of a terminal of its own.
fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let far = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    (near, far)
}

#[test]
fn a_person_is_asked_and_only_a_clear_yes_counts() {
    for (typed, code, trusted) in [
        ("y\n", 0, "trusted"),
        ("yes\n", 0, "trusted"),
        ("\n", 3, "unknown"),
        ("nope\n", 3, "unknown"),
        ("\u{4}", 3, "unknown"),
    ] {
        let world = World::new();
        hostile(&world);
        let (near, far) = terminal();
        let ends = || Stdio::from(far.try_clone().unwrap());
        let mut command = world.command();
        let mut child =
            command.arg("trust").stdin(ends()).stdout(Stdio::null()).stderr(ends()).spawn().unwrap();
        drop(far);
        let mut near = std::fs::File::from(near);
        let mut seen = Vec::new();
        let mut piece = [0; 512];
        while !String::from_utf8_lossy(&seen).contains("[y/N]") {
            let read = near.read(&mut piece).unwrap();
            assert!(read > 0);
            seen.extend_from_slice(&piece[..read]);
        }
        near.write_all(typed.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{typed:?}");
        assert_eq!(world.json(&["trust", "--show", "--json"])["standing"], trusted, "{typed:?}");
    }
}
