//! `minke trust`: listing, asking and storing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use crate::support::world::CliWorld;

fn write_hostile_workspace(world: &CliWorld) {
    std::fs::create_dir_all(world.work_dir().join(".minke")).unwrap();
    world.write_file(".minke/hooks.toml", "[[hook]]\nevent = \"before_tool\"\ncommand = \"./check\"\n");
    world.write_file(".mcp.json", r#"{"mcpServers":{"x":{"command":"\u001b[2J"}}}"#);
}

#[test]
fn a_workspace_is_trusted_once_and_asked_about_again_when_it_changes() {
    let world = CliWorld::new();
    write_hostile_workspace(&world);
    let refused = world.run_minke(&["trust"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("minke trust --yes") && refused.out.contains("runs `./check`"),
        "{refused:?}"
    );
    assert_eq!(world.run_json(&["trust", "--show", "--json"])["standing"], "unknown");
    assert_eq!(world.run_json(&["trust", "--list", "--json"]), serde_json::json!([]));
    assert!(!world.home_dir().join("data").exists(), "--show creates nothing");
    let said = world.run_minke(&["trust", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains('\u{1b}') && said.out.contains("\\u{1b}[2J"), "{said:?}");
    assert_eq!(world.run_json(&["trust", "--show", "--json"])["standing"], "trusted");
    assert_eq!(world.run_minke(&["trust"]).code, Some(0), "no question is left");
    assert!(
        world.run_minke(&["doctor"]).out.contains(".mcp.json names MCP servers"),
        "doctor reports the unused servers"
    );
    world.write_file(".mcp.json", "{}");
    let changed = world.run_json(&["trust", "--show", "--json"]);
    assert_eq!(
        (&changed["standing"], &changed["changes"][0]),
        (&"changed".into(), &".mcp.json changed".into())
    );
    assert_eq!(world.run_json(&["trust", "--list", "--json"])[0]["standing"], "changed");
    assert_eq!(world.run_minke(&["trust"]).code, Some(2));
    assert_eq!(world.run_minke(&["trust", "--remove", "."]).code, Some(0));
    let gone = world.run_minke(&["trust", "--remove", "."]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert_eq!(world.run_json(&["trust", "--show", "--json"])["standing"], "unknown");
}

#[test]
fn a_workspace_that_is_gone_can_be_forgotten() {
    let world = CliWorld::new();
    write_hostile_workspace(&world);
    let elsewhere = world.work_dir().with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(world.work_dir().join(".minke"), elsewhere.join(".minke")).unwrap();
    let path = elsewhere.to_str().unwrap();
    assert_eq!(world.run_minke(&["trust", "--yes", path]).code, Some(0));
    std::fs::remove_dir_all(&elsewhere).unwrap();
    assert_eq!(world.run_json(&["trust", "--list", "--json"])[0]["standing"], "gone");
    assert_eq!(world.run_minke(&["trust", "--remove", path]).code, Some(0));
    assert_eq!(world.run_minke(&["trust", path]).code, Some(2), "a missing directory");
    assert_eq!(world.run_minke(&["trust", "--yes", "--show"]).code, Some(2));
}

#[test]
fn a_damaged_store_is_told_and_kept() {
    let world = CliWorld::new();
    write_hostile_workspace(&world);
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    let path = world.home_dir().join("data/trust.json");
    std::fs::write(&path, "{").unwrap();
    for args in
        [&["trust", "--yes"][..], &["trust", "--show"], &["trust", "--list"], &["trust", "--remove", "."]]
    {
        let done = world.run_minke(args);
        assert_eq!(done.code, Some(74), "{args:?} {done:?}");
        assert!(
            done.err.contains("trust.json") && done.err.contains("trust your workspaces again"),
            "{done:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
    // A pod starts all the same, trusts nothing, and reports it.
    let done = world.run_minke(&["exec", "--model", "scripted:demo", "hi"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("trust.json is damaged"), "{done:?}");
}

/// Returns both ends of a pseudo-terminal.
fn open_terminal() -> (OwnedFd, OwnedFd) {
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
        let world = CliWorld::new();
        write_hostile_workspace(&world);
        let (near, far) = open_terminal();
        let ends = || Stdio::from(far.try_clone().unwrap());
        let mut command = world.minke_command();
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
        assert_eq!(world.run_json(&["trust", "--show", "--json"])["standing"], trusted, "{typed:?}");
    }
}
