//! Hostile repositories: opening one runs none of its programs, loosens no rule, finishes soon, and reports
//! ignored files.
//!
//! Every repository of `variants` is opened twice with the real binary: by a model that only answers, and by
//! one that reads AGENTS.md and calls git. Every program that runs leaves a mark
//! (`the_bait_leaves_its_marks`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, can_sandbox_commands};

mod variants;

use variants::{
    FILE_VARIANTS, GIT_VARIANTS, GitCalls, HostileVariant, INNER_MARK, MINKE_VARIANTS, OUTER_MARK,
    OUTSIDE_SECRET, RepositoryCopy, hook_entry,
};

/// Time limit for opening, on an idle machine.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for opening and running commands, which compare all repositories before and after. Only an endless walk
/// takes longer.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_SCRIPT: &str = "[[turn]]\ntext = \"Hello.\"\n";
const WORK_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"AGENTS.md\" }\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"git status\", timeout = 20 }\n[[turn]]\ntext = \"Done.\"\n";
const READ_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"AGENTS.md\" }\n[[turn]]\ntext = \"Done.\"\n";

/// A world with an ordinary repository that is copied for each variant.
struct RepositoryWorld {
    world: CliWorld,
    base_repository: PathBuf,
}

impl RepositoryWorld {
    /// Not below /tmp, which is a private one in the sandbox.
    fn new() -> RepositoryWorld {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (base_repository, home) = (dir.path().to_owned(), dir.path().join("home"));
        let repositories = RepositoryWorld { world: CliWorld::with_home(dir, home), base_repository };
        let template = repositories.base_repository.join("template");
        fs::create_dir(&template).unwrap();
        fs::write(template.join("README.md"), "An ordinary repository.\n").unwrap();
        for args in [
            &["init", "-q", "-b", "main"][..],
            &["add", "."],
            &["-c", "user.name=x", "-c", "user.email=x@example", "commit", "-q", "-m", "x"],
        ] {
            repositories.run_git(&template, args);
        }
        for (name, script) in [("answers", ANSWER_SCRIPT), ("works", WORK_SCRIPT), ("reads", READ_SCRIPT)] {
            fs::write(repositories.base_repository.join(format!("{name}.toml")), script).unwrap();
        }
        repositories
    }

    fn run_git(&self, dir: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(dir)
            .env("HOME", &self.base_repository)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.stdin(Stdio::null()).status().unwrap().success(), "git {args:?}");
    }

    /// Copies the ordinary repository to a separate directory.
    fn copy_repository(&self, name: &str) -> RepositoryCopy {
        let place = self.base_repository.join(name);
        let copy = RepositoryCopy { work_dir: place.join("work"), outside: place.join("outside") };
        fs::create_dir_all(&copy.outside).unwrap();
        fs::write(copy.secret_file(), OUTSIDE_SECRET).unwrap();
        copy_tree(&self.base_repository.join("template"), &copy.work_dir);
        copy
    }

    /// Opens a repository from inside, with a `PATH` that starts in it.
    fn open_repository(&self, land: &RepositoryCopy, name: &str, script: &str) -> (CommandResult, Duration) {
        let mut command = self.world.minke_command();
        let model = format!("scripted:{}", self.base_repository.join(script).display());
        let mut path = std::ffi::OsString::from(".:./bin:");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).current_dir(&land.work_dir);
        command.args(["exec", "--name", name, "--model", &model, "hi"]);
        let began = Instant::now();
        let done = self.world.run_command(command);
        (done, began.elapsed())
    }

    /// Returns the log of the session with this name.
    fn session_log(&self, name: &str) -> Vec<Value> {
        let shown = self.world.run_minke(&["log", "show", name, "--json"]);
        assert_eq!(shown.code, Some(0), "{name}: {}", shown.err);
        shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() { copy_tree(&from, &to) } else { assert!(fs::copy(&from, &to).is_ok()) }
    }
}

fn is_git_missing(test: &str) -> bool {
    let there = Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
        eprintln!("SKIPPED: {test}: no git on this machine");
    }
    !there
}

/// Returns the pod's manifest, without fields that differ between directories, and its sandbox.
fn start_manifest(log: &[Value]) -> Value {
    let start = log.iter().find(|entry| entry["kind"] == "session_start").unwrap();
    let opened = log.iter().find(|entry| entry["kind"] == "opened").unwrap();
    let mut manifest = start["manifest"].clone();
    manifest["model"] = Value::Null;
    // Alerts about ignored files.
    manifest.as_object_mut().unwrap().shift_remove("left_out");
    manifest["backend"] = opened["sandbox"].clone();
    assert!(manifest["permissions"].is_object() && manifest["sandbox"].is_object(), "{manifest}");
    assert!(manifest["backend"].is_string(), "{manifest}");
    manifest
}

/// Checks that the log allows no more than that of an ordinary repository.
fn check_log(variant: &HostileVariant, copy: &RepositoryCopy, log: &[Value], ordinary: &Value) {
    let name = variant.name;
    assert_eq!(&start_manifest(log), ordinary, "{name}");
    let start = log.iter().find(|entry| entry["kind"] == "session_start").unwrap();
    let scope = serde_json::json!([{ "target": copy.work_dir, "permission": "write", "recursive": true }]);
    assert_eq!(start["scope"]["allow"], scope, "{name}: {}", start["scope"]);
    for entry in log {
        let text = entry.to_string();
        assert!(!text.contains(OUTSIDE_SECRET), "{name}: outside content is in an entry {}", entry["kind"]);
        if entry["kind"] == "config_changed" {
            assert!(!text.contains("allow"), "{name}: {text}");
        }
        if entry["kind"] == "tool_dispatch" {
            assert_ne!(entry["verdict"]["layer"], "workspace", "{name}: {text}");
            assert_ne!(entry["verdict"]["sandbox"], "off", "{name}: {text}");
        }
    }
}

/// Returns the fastest of up to three runs: other programs of a busy machine only make a run slower.
fn open_fastest(
    repositories: &RepositoryWorld,
    variant: &HostileVariant,
    pod: &str,
    script: &str,
    first: Duration,
) -> Duration {
    let mut fastest = first;
    let limit = if script == "answers.toml" { OPEN_TIMEOUT } else { WORK_TIMEOUT };
    for again in 1..3 {
        if fastest < limit {
            break;
        }
        let pod = format!("{pod}-{again}");
        let copy = repositories.copy_repository(&pod);
        (variant.set_up)(&copy);
        let (done, took) = repositories.open_repository(&copy, &pod, script);
        assert_eq!(done.code, Some(0), "{}: {}{}", variant.name, done.out, done.err);
        fastest = fastest.min(took);
        fs::remove_dir_all(copy.work_dir).unwrap();
    }
    fastest
}

/// Opens all variants and returns the slowest time.
fn open_all(
    repositories: &RepositoryWorld,
    variants: &[HostileVariant],
    working: bool,
) -> (Duration, &'static str) {
    let plain = repositories.copy_repository("ordinary");
    let (done, usual) = repositories.open_repository(&plain, "ordinary", "answers.toml");
    assert_eq!(done.code, Some(0), "{}", done.err);
    let ordinary = start_manifest(&repositories.session_log("ordinary"));
    let mut slowest = (Duration::ZERO, "");
    for (number, variant) in variants.iter().enumerate() {
        let pod = format!("v{number}");
        let copy = repositories.copy_repository(&pod);
        (variant.set_up)(&copy);
        let script = match (working, variant.git_calls) {
            (false, _) => "answers.toml",
            (true, GitCalls::NotCalled) => "reads.toml",
            (true, GitCalls::RunsNothing | GitCalls::MayRunInTheSandbox) => "works.toml",
        };
        let (done, took) = repositories.open_repository(&copy, &pod, script);
        let name = variant.name;
        assert_eq!(done.code, Some(0), "{name}: {}{}", done.out, done.err);
        assert!(!copy.outside.join(OUTER_MARK).exists(), "{name}: a program ran outside the sandbox");
        let inner = copy.work_dir.join(INNER_MARK).exists();
        if working && variant.git_calls == GitCalls::MayRunInTheSandbox {
            eprintln!("{name}: git ran {} of it in the sandbox", if inner { "some" } else { "nothing" });
        } else {
            assert!(!inner, "{name}: a program ran");
        }
        assert!(
            done.err.contains(variant.expected_notice),
            "{name}: {:?} is not named in {}",
            variant.expected_notice,
            done.err
        );
        if !working {
            // Only messages of the pod itself.
            assert!(!done.err.chars().any(|c| c.is_control() && c != '\n'), "{name}: {:?}", done.err);
        }
        let took = open_fastest(repositories, variant, &pod, script, took);
        let limit = if working { WORK_TIMEOUT } else { OPEN_TIMEOUT };
        assert!(took < limit.max(usual * 4), "{name}: {took:?}, an ordinary one {usual:?}");
        slowest = slowest.max((took, name));
        let log = repositories.session_log(&pod);
        check_log(variant, &copy, &log, &ordinary);
        let results = log.iter().filter(|entry| entry["kind"] == "tool_result");
        let outcomes: Vec<&Value> = results.map(|entry| &entry["outcome"]).collect();
        assert_eq!(outcomes.is_empty(), !working, "{name}");
        assert!(!outcomes.contains(&&Value::from("invalid")), "{name}: {outcomes:?}");
        let ran = log.iter().any(|entry| entry["kind"] == "tool_dispatch" && entry["tool"] == "Bash");
        assert_eq!(ran, script == "works.toml", "{name}");
        // Remove thousands of files before the end.
        fs::remove_dir_all(copy.work_dir).unwrap();
    }
    let sound = repositories.world.run_minke(&["log", "verify", "--json"]);
    assert_eq!(sound.code, Some(0), "{}", sound.out);
    slowest
}

fn check_opening(test: &str, variants: &[HostileVariant]) {
    if is_git_missing(test) {
        return;
    }
    let (took, name) = open_all(&RepositoryWorld::new(), variants, false);
    eprintln!("{} repositories opened; the slowest in {took:?}: {name}", variants.len());
}

fn check_working(test: &str, variants: &[HostileVariant]) {
    if is_git_missing(test) || !can_sandbox_commands(test) {
        return;
    }
    let (took, name) = open_all(&RepositoryWorld::new(), variants, true);
    eprintln!("{} repositories used; the slowest in {took:?}: {name}", variants.len());
}

#[test]
fn opening_a_hostile_repository_runs_nothing_of_it() {
    check_opening("opening_a_hostile_repository_runs_nothing_of_it", &MINKE_VARIANTS);
}

#[test]
fn opening_a_repository_that_tricks_git_runs_nothing_of_it() {
    check_opening("opening_a_repository_that_tricks_git_runs_nothing_of_it", &GIT_VARIANTS);
}

#[test]
fn opening_a_repository_of_odd_files_runs_nothing_of_it() {
    check_opening("opening_a_repository_of_odd_files_runs_nothing_of_it", &FILE_VARIANTS);
}

#[test]
fn working_in_a_hostile_repository_runs_nothing_of_it() {
    check_working("working_in_a_hostile_repository_runs_nothing_of_it", &MINKE_VARIANTS);
}

#[test]
fn working_in_a_repository_that_tricks_git_leaves_no_mark_outside() {
    check_working("working_in_a_repository_that_tricks_git_leaves_no_mark_outside", &GIT_VARIANTS);
}

#[test]
fn working_in_a_repository_of_odd_files_runs_nothing_of_it() {
    check_working("working_in_a_repository_of_odd_files_runs_nothing_of_it", &FILE_VARIANTS);
}

/// Shows that bait leaves marks, because a test that cannot fail proves nothing.
#[test]
fn the_bait_leaves_its_marks() {
    let test = "the_bait_leaves_its_marks";
    if is_git_missing(test) {
        return;
    }
    let repositories = RepositoryWorld::new();
    let copy = repositories.copy_repository("bait");
    assert!(Command::new("sh").args(["-c", &copy.bait_line()]).status().unwrap().success());
    assert!(copy.outside.join(OUTER_MARK).exists() && copy.work_dir.join(INNER_MARK).exists());
    // Outside a sandbox, git runs the programs in its configuration.
    let land = repositories.copy_repository("git");
    let monitor = GIT_VARIANTS.iter().find(|variant| variant.name == "core.fsmonitor").unwrap();
    (monitor.set_up)(&land);
    repositories.run_git(&land.work_dir, &["status"]);
    assert!(land.outside.join(OUTER_MARK).exists());
}

/// The hooks that are ignored above run in the sandbox once the user has trusted the workspace, and no longer
/// after a change.
#[test]
fn hooks_of_a_workspace_run_once_it_is_trusted_and_not_after_a_change() {
    let test = "hooks_of_a_workspace_run_once_it_is_trusted_and_not_after_a_change";
    if is_git_missing(test) || !can_sandbox_commands(test) {
        return;
    }
    let repositories = RepositoryWorld::new();
    let copy = repositories.copy_repository("trusted");
    copy.write_file(".minke/hooks.toml", hook_entry(&copy, "before_tool"));
    let trusted = repositories.world.run_minke(&["trust", "--yes", copy.work_dir.to_str().unwrap()]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.err);
    let (done, _) = repositories.open_repository(&copy, "first", "works.toml");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("ignored"), "{}", done.err);
    assert!(copy.work_dir.join(INNER_MARK).exists(), "trusted hooks run: {}", done.err);
    assert!(!copy.outside.join(OUTER_MARK).exists(), "and the sandbox confines them");
    fs::remove_file(copy.work_dir.join(INNER_MARK)).unwrap();
    copy.write_file(".minke/hooks.toml", hook_entry(&copy, "before_tool") + "# changed\n");
    let (done, _) = repositories.open_repository(&copy, "second", "works.toml");
    assert!(done.err.contains(".minke/hooks.toml changed"), "{}", done.err);
    assert!(!copy.work_dir.join(INNER_MARK).exists(), "changed hooks do not run");
}
