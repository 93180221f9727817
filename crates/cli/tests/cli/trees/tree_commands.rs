//! Commands for live pods, with the real binary: read, wait, top, tail and stop of a tree, and clones.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::pty::PtyProcess;
use crate::support::world::CliWorld;
use crate::tui::screen::TuiTerminal;

const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW_SCRIPT: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";
const ASK_POLICY: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const WRITE_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

/// Creates an idle live pod called `tale`.
fn world_with_idle_pod() -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let done = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run_minke(&["send", "tale", "second"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "tale"]).code, Some(0));
    world
}

#[test]
fn read_gives_what_was_said_and_where_to_go_on() {
    let world = world_with_idle_pod();
    let last = world.run_minke(&["read", "tale"]);
    assert_eq!((last.code, last.out.as_str()), (Some(0), "You said: second\n"), "{last:?}");
    let read = world.run_json(&["read", "tale", "--json"]);
    assert_eq!((&read["text"], &read["state"]), (&"You said: second".into(), &"idle".into()));
    let next = read["next"].as_u64().unwrap().to_string();
    let nothing = world.run_minke(&["read", "tale", "--since", &next]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
    assert!(nothing.err.contains("nothing new"), "{nothing:?}");
    assert_eq!(world.run_minke(&["send", "tale", "third"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "tale"]).code, Some(0));
    assert_eq!(world.run_minke(&["read", "tale", "--since", &next]).out, "You said: third\n");
    let whole = world.run_minke(&["read", "tale", "--since", "0", "--detail"]).out;
    let order = ["> first", "You said: first", "> second", "You said: second", "> third", "You said: third"];
    let mut rest = whole.as_str();
    for wanted in order {
        rest = rest.split_once(wanted).unwrap_or_else(|| panic!("{wanted}: {whole}")).1;
    }
    assert_eq!(world.run_minke(&["stop", "tale"]).code, Some(0));
    assert_eq!(world.run_json(&["read", "tale", "--json"])["state"], "stopped", "a log can always be read");
}

#[test]
fn wait_says_what_has_become_of_each() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    let late = world.run_minke(&["wait", "tale", "--timeout", "0"]);
    assert_eq!((late.code, late.out.as_str()), (Some(75), "tale: running\n"), "{late:?}");
    assert!(late.err.contains("has not finished"), "{late:?}");
    let waiting = world.start_minke(&["wait", "tale", "--json"]);
    assert_eq!(world.run_minke(&["cancel", "tale"]).code, Some(0));
    let done = waiting.wait_for_exit();
    assert_eq!(done.code, Some(0), "{done:?}");
    let rows: Value = serde_json::from_str(&done.out).unwrap();
    assert!(["idle", "stopped"].contains(&rows[0]["state"].as_str().unwrap()), "{rows}");
    going.wait_for_exit();
    let over = world.run_minke(&["wait", "tale"]);
    assert_eq!((over.code, over.out.as_str()), (Some(0), "tale: stopped\n"), "past events count");
    assert_eq!(world.run_minke(&["wait", "tale", "--ask"]).code, Some(1), "no pod is left that could ask");
    assert_eq!(world.run_minke(&["wait", "missing"]).code, Some(2));
}

#[test]
fn a_question_ends_every_wait() {
    let world = CliWorld::new();
    world.write_file("s.toml", WRITE_SCRIPT);
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/policy.toml"), ASK_POLICY).unwrap();
    let going = world.start_minke(&[
        "exec",
        "--name",
        "tale",
        "--on-ask",
        "wait",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    wait_until_live(&world, "tale");
    let wanted = world.run_minke(&["wait", "tale", "--ask"]);
    assert_eq!((wanted.code, wanted.out.as_str()), (Some(0), "tale: asks\n"), "{wanted:?}");
    let other = world.run_minke(&["wait", "tale", "--all"]);
    assert_eq!(other.code, Some(3), "{other:?}");
    assert!(other.err.contains("minke asks"), "{other:?}");
    let ask = world.run_json(&["asks", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run_minke(&["answer", &ask, "approved"]).code, Some(0));
    assert_eq!(going.wait_for_exit().code, Some(0));
}

/// Waits until a pod of this name is live.
fn wait_until_live(world: &CliWorld, name: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !world.run_json(&["ps", "--json"]).as_array().unwrap().iter().any(|row| row["name"] == name) {
        assert!(Instant::now() < until, "{name} is not live");
    }
}

#[test]
fn top_shows_the_tree_and_leaves_the_terminal_as_it_was() {
    let world = world_with_idle_pod();
    let top = |sort: &str| {
        let mut command = world.minke_command();
        command.args(["top", "--sort", sort]).env("TERM", "xterm");
        let mut pty = PtyProcess::start_process(command);
        pty.wait_for("minke top");
        pty.wait_for("tale");
        assert!(!pty.is_line_mode(), "keys arrive one by one");
        pty
    };
    let mut pty = top("tokens");
    pty.send_keys("n");
    pty.wait_for("by name");
    pty.send_keys("n");
    pty.wait_for("reversed");
    pty.send_keys("mare you there?\r");
    pty.wait_for("sent to");
    pty.send_keys("x");
    pty.wait_for("stop tale");
    pty.send_keys("n");
    pty.wait_for("choose");
    pty.send_keys("q");
    assert!(pty.wait_for_exit().success(), "{}", pty.output_text());
    assert!(pty.is_line_mode() && pty.output_text().ends_with("\x1b[?1049l"), "{:?}", pty.output_text());
    assert_eq!(world.only_live_pod()["name"], "tale", "the stop was not confirmed");
    assert_eq!(world.run_minke(&["wait", "tale"]).code, Some(0));
    assert_eq!(world.run_minke(&["read", "tale"]).out, "You said: are you there?\n");
    // Also when a signal ends it.
    let mut pty = top("name");
    kill_process(pty.process_id(), Signal::TERM).unwrap();
    assert_eq!(pty.wait_for_exit().code(), Some(130));
    assert!(pty.is_line_mode() && pty.output_text().ends_with("\x1b[?1049l"));
    // Attach takes over the terminal; leaving it returns to `top`.
    let mut top = TuiTerminal::start_tui(&world, &["top", "--sort", "age"], (24, 160));
    top.wait_for_text("minke top");
    top.wait_for_text("tale");
    top.send_keys("a");
    top.wait_for_text("type a message");
    top.send_keys("\x03");
    top.wait_for_text("again to quit");
    top.send_keys("\x03");
    top.wait_for_text("minke top");
    top.send_keys("x");
    top.wait_for_text("stop tale");
    top.send_keys("y");
    top.wait_for_text("no live pods");
    top.send_keys("\x03");
    assert!(top.pty.wait_for_exit().success());
    top.check_restored();
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn without_a_terminal_top_prints_once() {
    let world = world_with_idle_pod();
    let done = world.run_minke(&["top"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.out.starts_with("NAME") && done.out.contains("tale") && !done.out.contains('\x1b'),
        "{done:?}"
    );
    let rows = world.run_json(&["top", "--json"]);
    assert_eq!(
        (&rows[0]["name"], &rows[0]["depth"], &rows[0]["children"]),
        (&"tale".into(), &0.into(), &Value::Array(Vec::new()))
    );
}

#[test]
fn a_pod_that_hangs_shows_as_such_and_a_dead_one_is_not_shown_as_living() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    let pid = world.only_live_pod()["pid"].clone();
    let lease =
        world.run_json(&["paths", "--json"])["runtime"].as_str().unwrap().to_owned() + "/pods/tale/lease";
    kill_process(Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap(), Signal::STOP)
        .unwrap();
    // The state after a minute without a heartbeat.
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(120);
    std::fs::File::options().write(true).open(lease).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(world.run_json(&["ps", "--tree", "--json"])[0]["state"], "stuck");
    assert!(world.run_minke(&["ps", "--tree"]).out.contains("stuck"));
    crate::support::world::kill_by_pid(&pid);
    going.wait_for_exit();
    assert_eq!(world.run_json(&["ps", "--tree", "--json"]), Value::Array(Vec::new()));
    assert_eq!(world.run_json(&["ps", "--all", "--json"])[0]["state"], "crashed");
}

#[test]
fn a_budget_is_said_and_shown() {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let wrong = world.run_minke(&["exec", "--model", "scripted:s.toml", "--budget", "tokens=many", "go"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("--budget usd=1") && world.session_count() == 0, "{wrong:?}");
    let said = ["exec", "--name", "tale", "--model", "scripted:s.toml", "--budget", "tokens=1.5M,turns=7"];
    let done = world.run_minke(&[&said[..], &["--set", "budget.turns=3", "go"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run_minke(&["send", "tale", "more"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "tale"]).code, Some(0));
    let row = world.only_live_pod();
    let budget = &row["budget"];
    assert_eq!(
        (&budget["granted"]["tokens"], &budget["granted"]["turns"]),
        (&1_500_000.into(), &7.into()),
        "{budget}"
    );
    let used = row["usage"]["input"].as_u64().unwrap() + row["usage"]["output"].as_u64().unwrap();
    assert_eq!(budget["spent"]["tokens"], used, "{budget}");
    assert_eq!(
        (&budget["left"]["tokens"], &budget["left"]["turns"]),
        (&(1_500_000 - used).into(), &5.into()),
        "{budget}"
    );
    assert!(world.run_minke(&["ps", "--tree"]).out.contains("1.4M tokens, 5 turns"));
}

/// Creates a world whose directory is a git repository with one commit; `None` without git.
pub(crate) fn world_with_repository(test: &str) -> Option<CliWorld> {
    if Command::new("git").arg("--version").output().is_err() {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
        eprintln!("SKIPPED: {test}: no git on this machine");
        return None;
    }
    let world = CliWorld::new();
    world.write_file("a.txt", "committed\n");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "Ann"],
        &["config", "user.email", "ann@example.com"],
        &["add", "."],
        &["commit", "-q", "-m", "first"],
    ] {
        run_git(&world, args);
    }
    Some(world)
}

pub(crate) fn run_git(world: &CliWorld, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(world.work_dir())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_run_in_a_clone_leaves_the_directory_alone_until_its_branch_is_fetched() {
    let Some(world) = world_with_repository("exec --clone") else { return };
    world.write_file("s.toml", "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"new.txt\", content = \"new\\n\" }\n[[turn]]\ntext = \"Done.\"\n");
    let done = world.run_minke(&["exec", "--clone", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!world.work_dir().join("new.txt").exists());
    let clones = world.home_dir().join("data/clones");
    let path = std::fs::read_dir(&clones)
        .unwrap()
        .map(|found| found.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    assert_eq!(std::fs::read_to_string(path.join("new.txt")).unwrap(), "new\n");
    assert_eq!(std::fs::read_to_string(path.join("a.txt")).unwrap(), "committed\n");
    let session = path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(run_git(&world, &["for-each-ref"]).contains(&format!("refs/minke/{session}")));
    clones_of_the_living_stay(&world, &path, &session);
    // The owner of its directory has ended.
    world.verify_logs();
}

fn clones_of_the_living_stay(world: &CliWorld, path: &std::path::Path, session: &str) {
    assert_eq!(world.run_minke(&["send", session, "and more"]).code, Some(0));
    let living = world.run_json(&["gc", "--clones", "--yes", "--json"]);
    assert_eq!(
        (&living[0]["stays"], &living[0]["removed"]),
        (&"its pod is live".into(), &false.into()),
        "{living}"
    );
    assert_eq!(world.run_minke(&["stop", session]).code, Some(0));
    let kept = world.run_minke(&["gc", "--yes"]);
    assert!(kept.out.contains("not archived") && path.is_dir(), "{kept:?}");
    let listed = world.run_minke(&["gc", "--clones"]);
    assert!(listed.out.contains("can be removed") && path.is_dir(), "listing removes nothing: {listed:?}");
    assert_eq!(world.run_minke(&["gc", "--clones", "--yes"]).code, Some(0));
    assert!(!path.exists());
    assert_eq!(run_git(world, &["for-each-ref", "refs/minke"]), "");
    assert_eq!(world.run_json(&["gc", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn outside_git_there_is_no_clone_and_nothing_is_made() {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let refused = world.run_minke(&["exec", "--clone", "--model", "scripted:s.toml", "go"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("not in a git repository"), "{refused:?}");
    assert_eq!(world.session_count(), 0);
}

/// Creates a pod with a child called `web` that has finished its task.
fn world_with_child() -> CliWorld {
    let world = world_with_idle_pod();
    std::fs::create_dir(world.work_dir().join("web")).unwrap();
    let spawned = run_spawn(&world, "tale", "web", &["--scope", "write:web"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    assert_eq!(world.run_minke(&["wait", "web"]).code, Some(0));
    world
}

fn run_spawn(
    world: &CliWorld,
    parent: &str,
    name: &str,
    more: &[&str],
) -> crate::support::world::CommandResult {
    let words = ["spawn", parent, name, "--task", "from below", "--profile", "inherit"];
    world.run_minke(&[&words[..], more].concat())
}

fn pod_row(world: &CliWorld, name: &str) -> Value {
    let rows = world.run_json(&["ps", "--tree", "--json"]);
    let found = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is missing: {rows}")).clone()
}

#[test]
fn a_child_is_spawned_seen_read_and_stopped_with_its_parent() {
    let world = world_with_child();
    let (parent, child) = (pod_row(&world, "tale"), pod_row(&world, "web"));
    assert_eq!((&parent["depth"], &child["depth"]), (&0.into(), &1.into()));
    assert_eq!((&parent["children"][0], &child["parent"]), (&child["session"], &parent["session"]));
    let place = world.work_dir().canonicalize().unwrap().join("web");
    assert_eq!(child["scope"]["allow"][0]["target"], place.to_str().unwrap(), "{child}");
    assert_eq!(
        parent["scope"]["deny"][0]["target"],
        place.to_str().unwrap(),
        "a lent path is not in its scope: {parent}"
    );
    let shown = world.run_minke(&["ps", "--tree"]).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("tale ") && lines[2].starts_with("└─ web "), "{shown}");
    assert_eq!(world.run_minke(&["read", "web"]).out, "You said: from below\n");
    for (args, code) in [
        (&["--scope", "write:web"][..], 2),
        (&["--scope", "write:nowhere"], 2),
        (&["--scope", "all:web"], 2),
        (&["--scope", "write:web", "--budget", "tokens=few"], 2),
    ] {
        let refused = run_spawn(&world, "tale", "web", args);
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
    }
    let stopped = world.run_minke(&["stop", "tale", "--tree"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(stopped.err, "web: stopped\ntale: stopped\n");
    let alone = run_spawn(&world, "tale", "web", &["--scope", "write:web"]);
    assert_eq!(alone.code, Some(1), "{alone:?}");
    world.verify_logs();
}

#[test]
fn a_tree_is_followed_and_every_line_has_a_name() {
    let world = world_with_child();
    let last = world.run_minke(&["tail", "tale", "--tree", "--no-follow", "-n", "1000"]).out;
    for wanted in ["tale │ > second", "web  │ > from below", "web  │ You said: from below"] {
        assert_eq!(last.lines().filter(|line| *line == wanted).count(), 1, "{wanted}: {last}");
    }
    assert!(last.lines().all(|line| line.contains(" │ ")), "{last}");
    let mut tail = world.start_minke(&["tail", "tale", "--tree", "-n", "1000"]);
    tail.wait_for_stdout("web  │ You said: from below");
    std::fs::create_dir(world.work_dir().join("api")).unwrap();
    assert_eq!(run_spawn(&world, "tale", "api", &["--scope", "write:api"]).code, Some(0));
    tail.wait_for_stdout("api  │ You said: from below");
    assert_eq!(world.run_minke(&["send", "web", "and now?"]).code, Some(0));
    tail.wait_for_stdout("web  │ You said: and now?");
    assert_eq!(world.run_minke(&["stop", "tale", "--tree"]).code, Some(0));
    assert_eq!(tail.wait_for_exit().code, Some(0), "it ends when no pod is left");
    let objects = world.run_minke(&["tail", "tale", "--tree", "--no-follow", "--json", "-n", "2"]).out;
    for line in objects.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        assert!(object["pod"].is_string() && object["entry"]["seq"].is_u64(), "{object}");
    }
    assert_eq!(objects.lines().count(), 6, "two of each: {objects}");
}

#[test]
fn a_child_that_died_is_shown_as_such_and_so_is_a_parent() {
    let world = world_with_child();
    crate::support::world::kill_by_pid(&pod_row(&world, "web")["pid"]);
    wait_for_state(&world, "web", "crashed");
    assert_eq!(world.run_minke(&["send", "web", "again"]).code, Some(0), "its parent lends its scope again");
    assert_eq!(world.run_minke(&["wait", "web"]).code, Some(0));
    assert_eq!(world.run_minke(&["read", "web"]).out, "You said: again\n");
    crate::support::world::kill_by_pid(&pod_row(&world, "tale")["pid"]);
    wait_for_state(&world, "tale", "stopped");
    let child = pod_row(&world, "web");
    assert_eq!(
        (&child["depth"], &child["state"]),
        (&1.into(), &"idle".into()),
        "a child outlives its parent"
    );
    assert_eq!(world.run_minke(&["stop", "tale", "--tree"]).err, "web: stopped\n");
    world.verify_logs();
}

fn wait_for_state(world: &CliWorld, name: &str, state: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = pod_row(world, name)["state"].as_str().unwrap().to_owned();
        if found == state {
            return;
        }
        assert!(Instant::now() < until, "{name} is {found}, not {state}");
    }
}

#[test]
fn a_child_in_a_clone_works_beside_its_parent() {
    let Some(world) = world_with_repository("spawn --clone") else { return };
    world.write_file("s.toml", ECHO_SCRIPT);
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]).code,
        Some(0)
    );
    assert_eq!(world.run_minke(&["send", "tale", "second"]).code, Some(0));
    let spawned = run_spawn(&world, "tale", "web", &["--clone", "--wait"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    let child = pod_row(&world, "web");
    let session = child["session"].as_str().unwrap().strip_prefix("s_").unwrap().to_owned();
    let clone = world.home_dir().canonicalize().unwrap().join("data/clones").join(&session);
    assert!(clone.join("a.txt").exists());
    assert_eq!(child["scope"]["allow"][0]["target"], clone.to_str().unwrap(), "{child}");
    assert!(run_git(&world, &["for-each-ref"]).contains(&session));
    assert_eq!(world.run_minke(&["stop", "tale", "--tree"]).code, Some(0));
    assert_eq!(world.run_minke(&["gc", "--clones", "--yes"]).code, Some(0));
    assert!(!clone.exists());
}
