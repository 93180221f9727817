//! Programs that Minke starts, with the real binary: none comes from the workspace, with any `PATH`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::world::CliWorld;

fn plant_program(path: &Path, mark: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\ntouch '{}'\nexit 1\n", mark.display())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Creates a repository with a program for each name that Minke starts.
fn hostile_world() -> Option<(CliWorld, PathBuf)> {
    if Command::new("git").arg("--version").output().is_err() {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "this test needs git");
        eprintln!("SKIPPED: no git on this machine");
        return None;
    }
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\ntext = \"Over.\"\n");
    for args in [
        &["init", "-q", "-b", "main", "--template="][..],
        &["config", "user.name", "Ann"],
        &["config", "user.email", "ann@example.com"],
        &["add", "."],
        &["commit", "-q", "-m", "first"],
    ] {
        let mut git = Command::new("git");
        git.current_dir(world.work_dir())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.args(args).status().unwrap().success(), "{args:?}");
    }
    let mark = world.home_dir().with_file_name("mark");
    for name in ["git", "sh", "bash", "vi", "ps", "bwrap", "minke", "sleep", "sandbox-exec"] {
        plant_program(&world.work_dir().join(name), &mark);
        plant_program(&world.work_dir().join("rel/bin").join(name), &mark);
    }
    Some((world, mark))
}

#[test]
fn no_path_makes_minke_start_a_program_of_the_workspace() {
    let Some((world, mark)) = hostile_world() else { return };
    let work = world.work_dir().canonicalize().unwrap();
    let link = world.home_dir().with_file_name("link");
    symlink(&work, &link).unwrap();
    let real = std::env::var("PATH").unwrap();
    let (inside, linked) = (work.display().to_string(), link.display().to_string());
    for first in [
        ".",
        "",
        "./",
        "rel/bin",
        "./rel/bin",
        ":",
        &inside,
        &format!("{inside}/rel/bin"),
        &linked,
        &format!("{linked}/rel/bin"),
    ] {
        for args in [
            &["exec", "--clone", "--model", "scripted:s.toml", "go"][..],
            &["exec", "--model", "scripted:s.toml", "go"],
            &["doctor"],
        ] {
            let mut command = world.minke_command();
            command.args(args).env("PATH", format!("{first}:{real}"));
            let done = world.run_command(command);
            assert!(!mark.exists(), "{first:?} {args:?}: {done:?}");
            assert!(args[0] == "doctor" || done.code == Some(0), "{first:?} {args:?}: {done:?}");
        }
    }
}

#[test]
fn a_clone_without_a_git_outside_the_workspace_says_what_was_searched() {
    let Some((world, mark)) = hostile_world() else { return };
    let work = world.work_dir().canonicalize().unwrap().display().to_string();
    for (path, said) in [
        (Some(format!(".:{work}:{work}/rel/bin:rel/bin")), "inside the workspace"),
        (Some(".::".to_owned()), "names no absolute directory"),
        (None, "names no absolute directory"),
    ] {
        let mut command = world.minke_command();
        command.args(["exec", "--clone", "--model", "scripted:s.toml", "go"]);
        match &path {
            Some(path) => command.env("PATH", path),
            None => command.env_remove("PATH"),
        };
        let done = world.run_command(command);
        assert_ne!(done.code, Some(0), "{path:?}: {done:?}");
        assert!(
            done.err.contains("could not find the program `git`") && done.err.contains(said),
            "{path:?}: {}",
            done.err
        );
        assert!(!mark.exists(), "{path:?}");
    }
}
