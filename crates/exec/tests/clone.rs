//! Clones with the real git: what they hold, what they leave alone, and that nothing of a workspace runs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};

use minke_exec::clone::{CloneError, Cloned, fetch_hint, make, remove, workspace_of};
use minke_record::{Ids, PodName, SessionId};

struct World {
    dir: tempfile::TempDir,
    ids: Ids,
}

impl World {
    /// Skips, visibly, where there is no git.
    fn new(test: &str) -> Option<World> {
        if Command::new("git").arg("--version").output().is_err() {
            assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
            eprintln!("SKIPPED: {test}: no git on this machine");
            return None;
        }
        let world = World { dir: tempfile::tempdir().unwrap(), ids: Ids::new(1, 7) };
        fs::create_dir(world.workspace()).unwrap();
        Some(world)
    }

    /// A repository with one commit.
    fn repository(test: &str) -> Option<World> {
        let world = World::new(test)?;
        world.git(&["init", "-q", "-b", "main", "--template="]);
        world.git(&["config", "user.name", "Ann"]);
        world.git(&["config", "user.email", "ann@example.com"]);
        fs::write(world.workspace().join("a.txt"), "committed\n").unwrap();
        world.git(&["add", "."]);
        world.git(&["commit", "-q", "-m", "first"]);
        Some(world)
    }

    fn workspace(&self) -> PathBuf {
        self.dir.path().join("it's a workspace")
    }

    fn git(&self, args: &[&str]) -> String {
        git(&self.workspace(), args)
    }

    fn clone(&mut self, name: &str) -> Result<(Cloned, SessionId), CloneError> {
        let session = SessionId(self.ids.next_uuid());
        let into = self.dir.path().join("data/clones").join(session.to_string());
        let name: PodName = name.parse().unwrap();
        make(&self.workspace(), &into, &name, session).map(|cloned| (cloned, session))
    }

    fn clones(&self) -> usize {
        fs::read_dir(self.dir.path().join("data/clones")).map_or(0, Iterator::count)
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn commit(dir: &Path, file: &str) {
    fs::write(dir.join(file), file).unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "-q", "-m", file]);
}

/// Every file below a directory, with what it holds.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for found in fs::read_dir(dir).unwrap() {
            let path = found.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                all.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    all
}

#[test]
fn a_clone_begins_at_head_on_its_own_branch_without_what_was_not_committed() {
    let Some(mut world) = World::repository("clone") else { return };
    fs::write(world.workspace().join("a.txt"), "changed\n").unwrap();
    fs::write(world.workspace().join("new.txt"), "new\n").unwrap();
    let (cloned, session) = world.clone("web").unwrap();
    assert_eq!(cloned.branch, "minke/web");
    assert_eq!(git(&cloned.path, &["branch", "--show-current"]), "minke/web\n");
    assert_eq!(fs::read_to_string(cloned.path.join("a.txt")).unwrap(), "committed\n");
    assert!(!cloned.path.join("new.txt").exists());
    assert_eq!(world.git(&["rev-parse", &format!("refs/minke/{session}")]), format!("{}\n", cloned.commit));
    assert!(cloned.objects.is_dir() && cloned.objects.starts_with(world.workspace()), "{cloned:?}");
    assert_eq!(workspace_of(&cloned.path).unwrap(), Some(world.workspace()));
    assert_eq!(git(&cloned.path, &["status", "--porcelain"]), "");
}

#[test]
fn two_clones_commit_at_once_and_the_workspace_is_not_written() {
    let Some(mut world) = World::repository("two clones") else { return };
    let ours = [world.clone("left").unwrap().0, world.clone("right").unwrap().0];
    let before = content(&world.workspace().join(".git"));
    let start = Arc::new(Barrier::new(ours.len()));
    let working: Vec<_> = ours
        .iter()
        .cloned()
        .map(|cloned| {
            let start = Arc::clone(&start);
            std::thread::spawn(move || {
                start.wait();
                for number in 0..10 {
                    commit(&cloned.path, &format!("{}-{number}.txt", cloned.branch.replace('/', "-")));
                }
            })
        })
        .collect();
    working.into_iter().for_each(|work| work.join().unwrap());
    assert_eq!(content(&world.workspace().join(".git")), before, "nothing was written");
    for cloned in &ours {
        let hint = fetch_hint(&world.workspace(), &cloned.path, &cloned.branch);
        assert!(Command::new("sh").args(["-c", &hint]).output().unwrap().status.success(), "{hint}");
        let log = world.git(&["log", "--format=%an %s", &format!("{}..{}", cloned.commit, cloned.branch)]);
        assert_eq!(log.lines().count(), 10, "{log}");
        assert!(log.lines().all(|line| line.starts_with("Ann ")), "{log}");
    }
}

#[test]
fn the_shared_objects_outlive_a_prune_of_the_workspace_until_the_clone_is_removed() {
    let Some(mut world) = World::repository("prune") else { return };
    commit(&world.workspace(), "second.txt");
    let (cloned, session) = world.clone("web").unwrap();
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    world.git(&["reflog", "expire", "--expire=now", "--all"]);
    world.git(&["gc", "-q", "--prune=now"]);
    git(&cloned.path, &["fsck"]);
    assert_eq!(git(&cloned.path, &["show", "HEAD:second.txt"]), "second.txt");
    // Its owner may have closed a directory.
    fs::create_dir(cloned.path.join("closed")).unwrap();
    fs::write(cloned.path.join("closed/file"), "").unwrap();
    fs::set_permissions(cloned.path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    remove(&cloned.path, session).unwrap();
    remove(&cloned.path, session).unwrap();
    assert_eq!(world.clones(), 0);
    assert_eq!(world.git(&["for-each-ref", "refs/minke"]), "");
}

#[test]
fn nothing_of_the_workspace_runs() {
    let Some(mut world) = World::repository("hostile workspace") else { return };
    let ran = world.dir.path().join("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\n", ran.display());
    let hooks = world.workspace().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    let evil = world.dir.path().join("evil");
    let plant = |path: &Path| {
        fs::write(path, &script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    plant(&evil);
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"] {
        plant(&hooks.join(hook));
    }
    // Each of these is run by an ordinary clone, checkout or status of somebody who believes the repository.
    let evil = evil.to_str().unwrap().to_owned();
    for (key, value) in [
        ("core.fsmonitor", evil.as_str()),
        ("filter.evil.smudge", evil.as_str()),
        ("filter.evil.process", evil.as_str()),
        ("uploadpack.packObjectsHook", evil.as_str()),
        ("core.sshCommand", evil.as_str()),
        ("core.pager", evil.as_str()),
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("init.templateDir", world.dir.path().to_str().unwrap()),
    ] {
        world.git(&["config", key, value]);
    }
    fs::write(world.workspace().join(".gitattributes"), "* filter=evil\n").unwrap();
    let quiet =
        ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "filter.evil.process="];
    let mut add = quiet.to_vec();
    add.extend(["add", ".gitattributes"]);
    world.git(&add);
    let mut save = quiet.to_vec();
    save.extend(["commit", "-q", "-m", "attributes"]);
    world.git(&save);
    drop(fs::remove_file(&ran));
    let (cloned, session) = world.clone("web").unwrap();
    assert_eq!(fs::read_to_string(cloned.path.join("a.txt")).unwrap(), "committed\n");
    remove(&cloned.path, session).unwrap();
    assert!(!ran.exists(), "something of the workspace was run");
}

#[test]
fn what_cannot_be_cloned_is_refused_and_leaves_nothing() {
    let Some(mut world) = World::new("refused clones") else { return };
    let outside = world.clone("web").unwrap_err();
    assert!(matches!(outside, CloneError::NotGit { .. }), "{outside}");
    world.git(&["init", "-q", "--template="]);
    let empty = world.clone("web").unwrap_err();
    assert!(matches!(empty, CloneError::NoCommit { .. }), "{empty}");
    world.git(&["config", "user.name", "Ann"]);
    world.git(&["config", "user.email", "ann@example.com"]);
    commit(&world.workspace(), "a.txt");
    assert_eq!(world.clones(), 0);
    let (cloned, session) = world.clone("web").unwrap();
    let twice = make(&world.workspace(), &cloned.path, &"web".parse().unwrap(), session).unwrap_err();
    assert!(matches!(twice, CloneError::Exists { .. }), "{twice}");
    assert!(cloned.path.join("a.txt").exists(), "what was there stays");
    remove(&cloned.path, session).unwrap();
    // A repository with a commit whose tree is lost: the ref is set, the clone fails, everything goes again.
    let tree = world.git(&["rev-parse", "HEAD^{tree}"]);
    let (first, rest) = tree.trim().split_at(2);
    fs::remove_file(world.workspace().join(".git/objects").join(first).join(rest)).unwrap();
    let broken = world.clone("web").unwrap_err();
    assert!(matches!(broken, CloneError::Git { .. }), "{broken}");
    assert_eq!((world.clones(), world.git(&["for-each-ref", "refs/minke"]).as_str()), (0, ""));
}
