//! Clones with the real git: their content, the unchanged workspace, and that no code of a workspace runs.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};

use minke_exec::clone::{CloneError, WorkspaceClone, create_clone, fetch_hint, remove_clone, workspace_of};
use minke_record::{IdGenerator, PodName, Scope, SessionId};

struct CloneFixture {
    dir: tempfile::TempDir,
    ids: IdGenerator,
}

impl CloneFixture {
    /// Skips, with a message, if git is missing.
    fn new(test: &str) -> Option<CloneFixture> {
        if Command::new("git").arg("--version").output().is_err() {
            assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
            eprintln!("SKIPPED: {test}: no git on this machine");
            return None;
        }
        let world = CloneFixture { dir: tempfile::tempdir().unwrap(), ids: IdGenerator::new(1, 7) };
        fs::create_dir(world.workspace()).unwrap();
        Some(world)
    }

    /// A repository with one commit.
    fn repository(test: &str) -> Option<CloneFixture> {
        let world = CloneFixture::new(test)?;
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

    fn clone(&mut self, name: &str) -> Result<(WorkspaceClone, SessionId), CloneError> {
        let session = SessionId(self.ids.next_uuid());
        let into = self.dir.path().join("data/clones").join(session.to_string());
        let name: PodName = name.parse().unwrap();
        create_clone(&self.workspace(), &into, &name, session, &Scope::default())
            .map(|cloned| (cloned, session))
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

/// Returns every file below a directory with its content.
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
    let Some(mut world) = CloneFixture::repository("clone") else { return };
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
    let Some(mut world) = CloneFixture::repository("two clones") else { return };
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
    let Some(mut world) = CloneFixture::repository("prune") else { return };
    commit(&world.workspace(), "second.txt");
    let (cloned, session) = world.clone("web").unwrap();
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    world.git(&["reflog", "expire", "--expire=now", "--all"]);
    world.git(&["gc", "-q", "--prune=now"]);
    git(&cloned.path, &["fsck"]);
    assert_eq!(git(&cloned.path, &["show", "HEAD:second.txt"]), "second.txt");
    // The pod may have removed a directory's permissions.
    fs::create_dir(cloned.path.join("closed")).unwrap();
    fs::write(cloned.path.join("closed/file"), "").unwrap();
    fs::set_permissions(cloned.path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    remove_clone(&cloned.path, session).unwrap();
    remove_clone(&cloned.path, session).unwrap();
    assert_eq!(world.clones(), 0);
    assert_eq!(world.git(&["for-each-ref", "refs/minke"]), "");
}

/// A repository in which every way of git to start a program leads to one that leaves a mark.
struct HostileWorkspace {
    fixture: CloneFixture,
    marks: PathBuf,
    program: String,
}

impl HostileWorkspace {
    fn new(test: &str) -> Option<HostileWorkspace> {
        let fixture = CloneFixture::repository(test)?;
        let marks = fixture.dir.path().join("marks");
        fs::create_dir(&marks).unwrap();
        // Its path contains no character that is special to a shell; otherwise the attacks would fail.
        let program = fixture.dir.path().join("evil").to_str().unwrap().to_owned();
        let hostile = HostileWorkspace { fixture, marks, program };
        hostile.plant_program(Path::new(&hostile.program));
        Some(hostile)
    }

    /// Creates a program that leaves a mark with its own name and arguments.
    fn plant_program(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let script = format!("#!/bin/sh\necho \"$0 $*\" > '{}'/$$\n", self.marks.display());
        fs::write(path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes the configuration by hand, because git would run parts of it.
    fn configure(&self, text: &str) {
        let path = self.fixture.workspace().join(".git/config");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, before + &text.replace("EVIL", &self.program)).unwrap();
    }

    fn executed_programs(&self) -> Vec<String> {
        let found = fs::read_dir(&self.marks).unwrap();
        found.map(|mark| fs::read_to_string(mark.unwrap().path()).unwrap()).collect()
    }

    /// Creates and removes a clone.
    fn clone_and_remove(&mut self) -> Result<WorkspaceClone, CloneError> {
        let (cloned, session) = self.fixture.clone("web")?;
        assert_eq!(fs::read_to_string(cloned.path.join("a.txt")).unwrap(), "committed\n");
        remove_clone(&cloned.path, session)?;
        Ok(cloned)
    }
}

/// Configuration keys that each name a program, by kind.
const HOSTILE_KEYS: [(&str, &str); 16] = [
    ("fsmonitor", "[core]\n\tfsmonitor = EVIL\n"),
    ("hooks path", "[core]\n\thooksPath = evil-hooks\n"),
    ("filter", "[filter \"evil\"]\n\tsmudge = EVIL\n\tclean = EVIL\n\tprocess = EVIL\n\trequired = true\n"),
    ("filter with a sign in its name", "[filter \"ev=il\"]\n\tsmudge = EVIL\n"),
    (
        "hooks of the configuration",
        "[hook \"a\"]\n\tcommand = EVIL\n\tevent = reference-transaction\n\tevent = post-checkout\n",
    ),
    (
        "pager and editor",
        "[core]\n\tpager = EVIL\n\teditor = EVIL\n\taskPass = EVIL\n[pager]\n\tconfig = EVIL\n",
    ),
    ("aliases", "[alias]\n\tconfig = !EVIL\n\tinit = !EVIL\n\tcheckout = !EVIL\n\trev-parse = !EVIL\n"),
    ("external diff", "[diff]\n\texternal = EVIL\n[diff \"evil\"]\n\tcommand = EVIL\n\ttextconv = EVIL\n"),
    ("merge driver", "[merge \"evil\"]\n\tdriver = EVIL\n"),
    ("credential helper", "[credential]\n\thelper = !EVIL\n[credential \"https://a.b\"]\n\thelper = !EVIL\n"),
    ("ssh and proxy", "[core]\n\tsshCommand = EVIL\n\tgitProxy = EVIL\n[gpg]\n\tprogram = EVIL\n"),
    ("packing of objects", "[uploadpack]\n\tpackObjectsHook = EVIL\n"),
    ("alternate refs", "[core]\n\talternateRefsCommand = EVIL\n"),
    (
        "submodules",
        "[submodule]\n\trecurse = true\n[submodule \"m\"]\n\turl = ./m\n\tupdate = !EVIL\n\tactive = true\n",
    ),
    (
        "signatures",
        "[commit]\n\tgpgSign = true\n[gpg \"ssh\"]\n\tprogram = EVIL\n\tdefaultKeyCommand = EVIL\n",
    ),
    ("included", "[include]\n\tpath = ../evil.config\n"),
];

#[test]
fn nothing_of_the_workspace_runs() {
    for (kind, keys) in HOSTILE_KEYS.iter().chain([&("hooks", "")]) {
        let Some(mut hostile) = HostileWorkspace::new("hostile workspace") else { return };
        let work = hostile.fixture.workspace();
        fs::write(work.join(".gitattributes"), "* filter=evil diff=evil merge=evil\nb filter=ev=il\n")
            .unwrap();
        commit(&work, "b");
        for dir in [".git/hooks", "evil-hooks"] {
            for hook in
                ["post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc", "post-rewrite"]
            {
                hostile.plant_program(&work.join(dir).join(hook));
            }
        }
        let included = "[core]\n\tfsmonitor = EVIL\n[filter \"evil\"]\n\tprocess = EVIL\n"
            .replace("EVIL", &hostile.program);
        fs::write(work.join("evil.config"), included).unwrap();
        hostile.configure(keys);
        let cloned = hostile.clone_and_remove();
        assert_eq!(hostile.executed_programs(), Vec::<String>::new(), "{kind}");
        assert!(cloned.is_ok(), "{kind}: {cloned:?}");
    }
}

/// Missing objects are fetched from a promisor, whose address and program the repository names.
#[test]
fn no_missing_object_is_fetched_by_a_program_of_the_workspace() {
    for keys in [
        "[remote \"p\"]\n\turl = ext::EVIL\n\tpromisor = true\n[protocol \"ext\"]\n\tallow = always\n",
        "[remote \"p\"]\n\turl = .\n\tuploadpack = EVIL\n\tpromisor = true\n[protocol \"file\"]\n\tallow = always\n",
        "[remote \"p\"]\n\turl = .\n\tvcs = evil\n\tpromisor = true\n[protocol]\n\tallow = always\n",
        "[remote \"p\"]\n\turl = host:x\n\tpromisor = true\n[core]\n\tsshCommand = EVIL\n[protocol]\n\tallow = always\n",
    ] {
        let Some(mut hostile) = HostileWorkspace::new("hostile promisor") else { return };
        let work = hostile.fixture.workspace();
        let head = hostile.fixture.git(&["rev-parse", "HEAD"]);
        let (first, rest) = head.trim().split_at(2);
        fs::remove_file(work.join(".git/objects").join(first).join(rest)).unwrap();
        hostile.configure(&format!(
            "{keys}[extensions]\n\tpartialClone = p\n[core]\n\trepositoryformatversion = 1\n"
        ));
        // Check the attack: an isolated git would run the program (except a remote helper, which is not in `PATH`).
        let log = Command::new("git").arg("-C").arg(&work).args(["log", "-1"]).output().unwrap();
        assert!(!hostile.executed_programs().is_empty() || keys.contains("vcs"), "{keys}: {log:?}");
        fs::remove_dir_all(&hostile.marks).unwrap();
        fs::create_dir(&hostile.marks).unwrap();
        assert!(hostile.clone_and_remove().is_err(), "{keys}");
        assert_eq!(hostile.executed_programs(), Vec::<String>::new(), "{keys}");
    }
}

/// The result looks like that of `git clone`: an origin, its branch, and shallow commits.
#[test]
fn a_clone_knows_its_origin_and_how_deep_it_is() {
    let Some(mut world) = CloneFixture::repository("origin") else { return };
    commit(&world.workspace(), "b.txt");
    let (cloned, _) = world.clone("one").unwrap();
    assert_eq!(
        git(&cloned.path, &["config", "remote.origin.url"]).trim(),
        world.workspace().to_str().unwrap()
    );
    assert_eq!(git(&cloned.path, &["rev-parse", "origin/main"]).trim(), cloned.commit);
    assert_eq!(git(&cloned.path, &["log", "--format=%s", "HEAD"]), "b.txt\nfirst\n");
    let shallow = CloneFixture { dir: tempfile::tempdir().unwrap(), ids: IdGenerator::new(1, 8) };
    let address = format!("file://{}", world.workspace().display());
    let into = shallow.workspace();
    git(shallow.dir.path(), &["clone", "-q", "--depth", "1", &address, into.to_str().unwrap()]);
    let mut shallow = shallow;
    let (cloned, _) = shallow.clone("two").unwrap();
    assert_eq!(git(&cloned.path, &["log", "--format=%s", "HEAD"]), "b.txt\n");
    assert_eq!(git(&cloned.path, &["status", "--porcelain"]), "");
}

#[test]
fn what_cannot_be_cloned_is_refused_and_leaves_nothing() {
    let Some(mut world) = CloneFixture::new("refused clones") else { return };
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
    let twice =
        create_clone(&world.workspace(), &cloned.path, &"web".parse().unwrap(), session, &Scope::default())
            .unwrap_err();
    assert!(matches!(twice, CloneError::Exists { .. }), "{twice}");
    assert!(cloned.path.join("a.txt").exists(), "the existing clone stays");
    remove_clone(&cloned.path, session).unwrap();
    // A repository with a commit whose tree is missing: the ref is created, the clone fails, everything is removed.
    let tree = world.git(&["rev-parse", "HEAD^{tree}"]);
    let (first, rest) = tree.trim().split_at(2);
    fs::remove_file(world.workspace().join(".git/objects").join(first).join(rest)).unwrap();
    let broken = world.clone("web").unwrap_err();
    assert!(matches!(broken, CloneError::Git { .. }), "{broken}");
    assert_eq!((world.clones(), world.git(&["for-each-ref", "refs/minke"]).as_str()), (0, ""));
}
