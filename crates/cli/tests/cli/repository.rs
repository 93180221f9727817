//! Hostile repositories: opening one runs nothing of it, loosens nothing, ends soon, and says what was ignored.
//!
//! Every repository of `variants` is opened twice with the real binary: by a model that only answers, and by one that
//! reads AGENTS.md and calls git. Whatever of it is run leaves a mark (`the_bait_leaves_its_marks`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Done, World, commands_are_held};

mod variants;

use variants::{FILES, GIT, Git, INNER, Land, OURS, OUTER, SECRET, Variant, hook};

/// Opening takes less, on a machine that has nothing else to do.
const SOON: Duration = Duration::from_secs(2);
const ANSWERS: &str = "[[turn]]\ntext = \"Hello.\"\n";
const WORKS: &str = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"AGENTS.md\" }\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"git status\", timeout = 20 }\n[[turn]]\ntext = \"Done.\"\n";
const READS: &str = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"AGENTS.md\" }\n[[turn]]\ntext = \"Done.\"\n";

/// A machine with an ordinary repository that is copied for each trick.
struct Yard {
    world: World,
    base: PathBuf,
}

impl Yard {
    /// Not below /tmp, which is another one inside of a fence.
    fn new() -> Yard {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (base, home) = (dir.path().to_owned(), dir.path().join("home"));
        let yard = Yard { world: World::with_home(dir, home), base };
        let template = yard.base.join("template");
        fs::create_dir(&template).unwrap();
        fs::write(template.join("README.md"), "An ordinary repository.\n").unwrap();
        for args in [
            &["init", "-q", "-b", "main"][..],
            &["add", "."],
            &["-c", "user.name=x", "-c", "user.email=x@example", "commit", "-q", "-m", "x"],
        ] {
            yard.git(&template, args);
        }
        for (name, script) in [("answers", ANSWERS), ("works", WORKS), ("reads", READS)] {
            fs::write(yard.base.join(format!("{name}.toml")), script).unwrap();
        }
        yard
    }

    fn git(&self, dir: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command.args(args).current_dir(dir).env("HOME", &self.base).env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.stdin(Stdio::null()).status().unwrap().success(), "git {args:?}");
    }

    /// A place of its own, with the ordinary repository in it.
    fn land(&self, name: &str) -> Land {
        let place = self.base.join(name);
        let land = Land { work: place.join("work"), outside: place.join("outside") };
        fs::create_dir_all(&land.outside).unwrap();
        fs::write(land.secret(), SECRET).unwrap();
        copy(&self.base.join("template"), &land.work);
        land
    }

    /// Opens a repository as a person does who stands in it, with a path that looks there first.
    fn open(&self, land: &Land, name: &str, script: &str) -> (Done, Duration) {
        let mut command = self.world.command();
        let model = format!("scripted:{}", self.base.join(script).display());
        let mut path = std::ffi::OsString::from(".:./bin:");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).current_dir(&land.work);
        command.args(["exec", "--name", name, "--model", &model, "hi"]);
        let began = Instant::now();
        let done = self.world.done(command);
        (done, began.elapsed())
    }

    /// The log of the session that worked there under this name.
    fn log(&self, name: &str) -> Vec<Value> {
        let shown = self.world.run(&["log", "show", name, "--json"]);
        assert_eq!(shown.code, Some(0), "{name}: {}", shown.err);
        shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(&from, &to).is_ok()) }
    }
}

fn no_git(test: &str) -> bool {
    let there = Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
        eprintln!("SKIPPED: {test}: no git on this machine");
    }
    !there
}

/// What a pod was told at its birth, without what differs from place to place, and the fence it has.
fn manifest(log: &[Value]) -> Value {
    let start = log.iter().find(|entry| entry["kind"] == "session_start").unwrap();
    let opened = log.iter().find(|entry| entry["kind"] == "opened").unwrap();
    let mut manifest = start["manifest"].clone();
    manifest["model"] = Value::Null;
    // Alerts about what did not count.
    manifest.as_object_mut().unwrap().shift_remove("left_out");
    manifest["fence"] = opened["fence"].clone();
    assert!(manifest["permissions"].is_object() && manifest["sandbox"].is_object(), "{manifest}");
    assert!(manifest["fence"].is_string(), "{manifest}");
    manifest
}

/// Nothing is freer than in an ordinary repository.
fn check_log(variant: &Variant, land: &Land, log: &[Value], ordinary: &Value) {
    let name = variant.name;
    assert_eq!(&manifest(log), ordinary, "{name}");
    let start = log.iter().find(|entry| entry["kind"] == "session_start").unwrap();
    let scope = serde_json::json!([{ "target": land.work, "permission": "write", "recursive": true }]);
    assert_eq!(start["scope"]["allow"], scope, "{name}: {}", start["scope"]);
    for entry in log {
        let text = entry.to_string();
        assert!(!text.contains(SECRET), "{name}: what lies outside is in an entry {}", entry["kind"]);
        if entry["kind"] == "config_changed" {
            assert!(!text.contains("allow"), "{name}: {text}");
        }
        if entry["kind"] == "tool_dispatch" {
            assert_ne!(entry["verdict"]["layer"], "workspace", "{name}: {text}");
            assert_ne!(entry["fence"], "off", "{name}: {text}");
        }
    }
}

/// Opens every one of them, and gives the slowest.
fn open_all(yard: &Yard, variants: &[Variant], working: bool) -> (Duration, &'static str) {
    let plain = yard.land("ordinary");
    let (done, usual) = yard.open(&plain, "ordinary", "answers.toml");
    assert_eq!(done.code, Some(0), "{}", done.err);
    let ordinary = manifest(&yard.log("ordinary"));
    let mut slowest = (Duration::ZERO, "");
    for (number, variant) in variants.iter().enumerate() {
        let pod = format!("v{number}");
        let land = yard.land(&pod);
        (variant.lay)(&land);
        let script = match (working, variant.git) {
            (false, _) => "answers.toml",
            (true, Git::NotCalled) => "reads.toml",
            (true, Git::RunsNothing | Git::MayRunInTheFence) => "works.toml",
        };
        let (done, took) = yard.open(&land, &pod, script);
        let name = variant.name;
        assert_eq!(done.code, Some(0), "{name}: {}{}", done.out, done.err);
        assert!(!land.outside.join(OUTER).exists(), "{name}: something was run outside of any fence");
        let inner = land.work.join(INNER).exists();
        if working && variant.git == Git::MayRunInTheFence {
            eprintln!("{name}: git ran {} of it in the fence", if inner { "some" } else { "nothing" });
        } else {
            assert!(!inner, "{name}: something was run");
        }
        assert!(done.err.contains(variant.named), "{name}: {:?} is not named in {}", variant.named, done.err);
        if !working {
            // Nothing but what the pod says itself.
            assert!(!done.err.chars().any(|c| c.is_control() && c != '\n'), "{name}: {:?}", done.err);
        }
        // The machine may have much else to do; then the ordinary one took long, too.
        assert!(took < SOON.max(usual * 4), "{name}: {took:?}, an ordinary one {usual:?}");
        slowest = slowest.max((took, name));
        let log = yard.log(&pod);
        check_log(variant, &land, &log, &ordinary);
        let results = log.iter().filter(|entry| entry["kind"] == "tool_result");
        let outcomes: Vec<&Value> = results.map(|entry| &entry["outcome"]).collect();
        assert_eq!(outcomes.is_empty(), !working, "{name}");
        assert!(!outcomes.contains(&&Value::from("invalid")), "{name}: {outcomes:?}");
        let ran = log.iter().any(|entry| entry["kind"] == "tool_dispatch" && entry["tool"] == "Bash");
        assert_eq!(ran, script == "works.toml", "{name}");
        // Thousands of files are not kept until the end.
        fs::remove_dir_all(land.work).unwrap();
    }
    let sound = yard.world.run(&["log", "verify", "--json"]);
    assert_eq!(sound.code, Some(0), "{}", sound.out);
    slowest
}

fn opening(test: &str, variants: &[Variant]) {
    if no_git(test) {
        return;
    }
    let (took, name) = open_all(&Yard::new(), variants, false);
    eprintln!("{} repositories opened; the slowest in {took:?}: {name}", variants.len());
}

fn working(test: &str, variants: &[Variant]) {
    if no_git(test) || !commands_are_held(test) {
        return;
    }
    let (took, name) = open_all(&Yard::new(), variants, true);
    eprintln!("{} repositories worked in; the slowest in {took:?}: {name}", variants.len());
}

#[test]
fn opening_a_hostile_repository_runs_nothing_of_it() {
    opening("opening_a_hostile_repository_runs_nothing_of_it", &OURS);
}

#[test]
fn opening_a_repository_that_tricks_git_runs_nothing_of_it() {
    opening("opening_a_repository_that_tricks_git_runs_nothing_of_it", &GIT);
}

#[test]
fn opening_a_repository_of_odd_files_runs_nothing_of_it() {
    opening("opening_a_repository_of_odd_files_runs_nothing_of_it", &FILES);
}

#[test]
fn working_in_a_hostile_repository_runs_nothing_of_it() {
    working("working_in_a_hostile_repository_runs_nothing_of_it", &OURS);
}

#[test]
fn working_in_a_repository_that_tricks_git_leaves_no_mark_outside() {
    working("working_in_a_repository_that_tricks_git_leaves_no_mark_outside", &GIT);
}

#[test]
fn working_in_a_repository_of_odd_files_runs_nothing_of_it() {
    working("working_in_a_repository_of_odd_files_runs_nothing_of_it", &FILES);
}

/// A test that no bait could fail would show nothing.
#[test]
fn the_bait_leaves_its_marks() {
    let test = "the_bait_leaves_its_marks";
    if no_git(test) {
        return;
    }
    let yard = Yard::new();
    let land = yard.land("bait");
    assert!(Command::new("sh").args(["-c", &land.bait()]).status().unwrap().success());
    assert!(land.outside.join(OUTER).exists() && land.work.join(INNER).exists());
    // What git is told to run it runs, where nothing holds it.
    let land = yard.land("git");
    let monitor = GIT.iter().find(|variant| variant.name == "core.fsmonitor").unwrap();
    (monitor.lay)(&land);
    yard.git(&land.work, &["status"]);
    assert!(land.outside.join(OUTER).exists());
}

/// The same hooks that are ignored above run, in the fence, once somebody has trusted the workspace, and no longer when
/// they change.
#[test]
fn hooks_of_a_workspace_run_once_it_is_trusted_and_not_after_a_change() {
    let test = "hooks_of_a_workspace_run_once_it_is_trusted_and_not_after_a_change";
    if no_git(test) || !commands_are_held(test) {
        return;
    }
    let yard = Yard::new();
    let land = yard.land("trusted");
    land.put(".minke/hooks.toml", hook(&land, "before_tool"));
    let trusted = yard.world.run(&["trust", "--yes", land.work.to_str().unwrap()]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.err);
    let (done, _) = yard.open(&land, "first", "works.toml");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("ignored"), "{}", done.err);
    assert!(land.work.join(INNER).exists(), "trusted hooks run: {}", done.err);
    assert!(!land.outside.join(OUTER).exists(), "and the fence holds them");
    fs::remove_file(land.work.join(INNER)).unwrap();
    land.put(".minke/hooks.toml", hook(&land, "before_tool") + "# changed\n");
    let (done, _) = yard.open(&land, "second", "works.toml");
    assert!(done.err.contains(".minke/hooks.toml changed"), "{}", done.err);
    assert!(!land.work.join(INNER).exists(), "changed hooks do not run");
}
