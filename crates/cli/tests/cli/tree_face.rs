//! The commands about live pods, with the real binary: read, wait, top, tail and stop of a tree, clones and their end.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::pty::Pty;
use crate::tui_screen::Tui;
use crate::world::World;

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";
const ASKS: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n";
const WRITES: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

/// A pod called `tale` that lives and has nothing to do.
fn living() -> World {
    let world = World::new();
    world.write("s.toml", ECHO);
    let done = world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run(&["send", "tale", "second"]).code, Some(0));
    assert_eq!(world.run(&["wait", "tale"]).code, Some(0));
    world
}

#[test]
fn read_gives_what_was_said_and_where_to_go_on() {
    let world = living();
    let last = world.run(&["read", "tale"]);
    assert_eq!((last.code, last.out.as_str()), (Some(0), "You said: second\n"), "{last:?}");
    let read = world.json(&["read", "tale", "--json"]);
    assert_eq!((&read["text"], &read["state"]), (&"You said: second".into(), &"idle".into()));
    let next = read["next"].as_u64().unwrap().to_string();
    let nothing = world.run(&["read", "tale", "--since", &next]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
    assert!(nothing.err.contains("nothing new"), "{nothing:?}");
    assert_eq!(world.run(&["send", "tale", "third"]).code, Some(0));
    assert_eq!(world.run(&["wait", "tale"]).code, Some(0));
    assert_eq!(world.run(&["read", "tale", "--since", &next]).out, "You said: third\n");
    let whole = world.run(&["read", "tale", "--since", "0", "--detail"]).out;
    let order = ["> first", "You said: first", "> second", "You said: second", "> third", "You said: third"];
    let mut rest = whole.as_str();
    for wanted in order {
        rest = rest.split_once(wanted).unwrap_or_else(|| panic!("{wanted}: {whole}")).1;
    }
    assert_eq!(world.run(&["stop", "tale"]).code, Some(0));
    assert_eq!(world.json(&["read", "tale", "--json"])["state"], "stopped", "a log can always be read");
}

#[test]
fn wait_says_what_has_become_of_each() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    let late = world.run(&["wait", "tale", "--timeout", "0"]);
    assert_eq!((late.code, late.out.as_str()), (Some(75), "tale: running\n"), "{late:?}");
    assert!(late.err.contains("in vain"), "{late:?}");
    let waiting = world.start(&["wait", "tale", "--json"]);
    assert_eq!(world.run(&["cancel", "tale"]).code, Some(0));
    let done = waiting.end();
    assert_eq!(done.code, Some(0), "{done:?}");
    let rows: Value = serde_json::from_str(&done.out).unwrap();
    assert!(["idle", "stopped"].contains(&rows[0]["state"].as_str().unwrap()), "{rows}");
    going.end();
    let over = world.run(&["wait", "tale"]);
    assert_eq!((over.code, over.out.as_str()), (Some(0), "tale: stopped\n"), "what has happened counts");
    assert_eq!(world.run(&["wait", "tale", "--ask"]).code, Some(1), "nobody is left who could ask");
    assert_eq!(world.run(&["wait", "nobody"]).code, Some(2));
}

#[test]
fn a_question_ends_every_wait() {
    let world = World::new();
    world.write("s.toml", WRITES);
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), ASKS).unwrap();
    let going =
        world.start(&["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"]);
    until_lives(&world, "tale");
    let wanted = world.run(&["wait", "tale", "--ask"]);
    assert_eq!((wanted.code, wanted.out.as_str()), (Some(0), "tale: asks\n"), "{wanted:?}");
    let other = world.run(&["wait", "tale", "--all"]);
    assert_eq!(other.code, Some(3), "{other:?}");
    assert!(other.err.contains("minke asks"), "{other:?}");
    let ask = world.json(&["asks", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["answer", &ask, "approved"]).code, Some(0));
    assert_eq!(going.end().code, Some(0));
}

/// Waits until a pod of this name lives.
fn until_lives(world: &World, name: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !world.json(&["ps", "--json"]).as_array().unwrap().iter().any(|row| row["name"] == name) {
        assert!(Instant::now() < until, "{name} does not live");
    }
}

#[test]
fn top_shows_the_tree_and_leaves_the_terminal_as_it_was() {
    let world = living();
    let top = |sort: &str| {
        let mut command = world.command();
        command.args(["top", "--sort", sort]).env("TERM", "xterm");
        let mut pty = Pty::start(command);
        pty.until("minke top");
        pty.until("tale");
        assert!(!pty.is_cooked(), "keys come one by one");
        pty
    };
    let mut pty = top("tokens");
    pty.press("n");
    pty.until("by name");
    pty.press("n");
    pty.until("turned round");
    pty.press("mare you there?\r");
    pty.until("told");
    pty.press("x");
    pty.until("stop tale");
    pty.press("n");
    pty.until("choose");
    pty.press("q");
    assert!(pty.end().success(), "{}", pty.text());
    assert!(pty.is_cooked() && pty.text().ends_with("\x1b[?1049l"), "{:?}", pty.text());
    assert_eq!(world.only_pod()["name"], "tale", "a question was answered with no");
    assert_eq!(world.run(&["wait", "tale"]).code, Some(0));
    assert_eq!(world.run(&["read", "tale"]).out, "You said: are you there?\n");
    // A signal that ends it, too.
    let mut pty = top("name");
    kill_process(pty.pid(), Signal::TERM).unwrap();
    assert_eq!(pty.end().code(), Some(130));
    assert!(pty.is_cooked() && pty.text().ends_with("\x1b[?1049l"));
    // Attaching has the terminal for a while; leaving it comes back.
    let mut top = Tui::start(&world, &["top", "--sort", "age"], (24, 160));
    top.until("minke top");
    top.until("tale");
    top.press("a");
    top.until("say something");
    top.press("\x03");
    top.until("again leaves");
    top.press("\x03");
    top.until("minke top");
    top.press("x");
    top.until("stop tale");
    top.press("y");
    top.until("no pod lives");
    top.press("\x03");
    assert!(top.pty.end().success());
    top.check_restored();
    assert_eq!(world.json(&["ps", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn without_a_terminal_top_prints_once() {
    let world = living();
    let done = world.run(&["top"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.out.starts_with("NAME") && done.out.contains("tale") && !done.out.contains('\x1b'),
        "{done:?}"
    );
    let rows = world.json(&["top", "--json"]);
    assert_eq!(
        (&rows[0]["name"], &rows[0]["depth"], &rows[0]["children"]),
        (&"tale".into(), &0.into(), &Value::Array(Vec::new()))
    );
}

#[test]
fn a_pod_that_hangs_shows_as_such_and_a_dead_one_is_not_shown_as_living() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    let pid = world.only_pod()["pid"].clone();
    let lease = world.json(&["paths", "--json"])["runtime"].as_str().unwrap().to_owned() + "/pods/tale/lease";
    kill_process(Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap(), Signal::STOP)
        .unwrap();
    // As it looks after a minute without a beat.
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(120);
    std::fs::File::options().write(true).open(lease).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(world.json(&["ps", "--tree", "--json"])[0]["state"], "stuck");
    assert!(world.run(&["ps", "--tree"]).out.contains("stuck"));
    crate::world::kill(&pid);
    going.end();
    assert_eq!(world.json(&["ps", "--tree", "--json"]), Value::Array(Vec::new()));
    assert_eq!(world.json(&["ps", "--all", "--json"])[0]["state"], "crashed");
}

#[test]
fn a_budget_is_said_and_shown() {
    let world = World::new();
    world.write("s.toml", ECHO);
    let wrong = world.run(&["exec", "--model", "scripted:s.toml", "--budget", "tokens=many", "go"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("--budget usd=1") && world.sessions() == 0, "{wrong:?}");
    let said = ["exec", "--name", "tale", "--model", "scripted:s.toml", "--budget", "tokens=1.5M,turns=7"];
    let done = world.run(&[&said[..], &["--set", "budget.turns=3", "go"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run(&["send", "tale", "more"]).code, Some(0));
    assert_eq!(world.run(&["wait", "tale"]).code, Some(0));
    let row = world.only_pod();
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
    assert!(world.run(&["ps", "--tree"]).out.contains("1.4M tokens, 5 turns"));
}

/// A world whose directory is a git repository with one commit; none where there is no git.
pub(crate) fn repository(test: &str) -> Option<World> {
    if Command::new("git").arg("--version").output().is_err() {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs git");
        eprintln!("SKIPPED: {test}: no git on this machine");
        return None;
    }
    let world = World::new();
    world.write("a.txt", "committed\n");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "Ann"],
        &["config", "user.email", "ann@example.com"],
        &["add", "."],
        &["commit", "-q", "-m", "first"],
    ] {
        git(&world, args);
    }
    Some(world)
}

pub(crate) fn git(world: &World, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(world.work()).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_run_in_a_clone_leaves_the_directory_alone_until_its_branch_is_fetched() {
    let Some(world) = repository("exec --clone") else { return };
    world.write("s.toml", "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"new.txt\", content = \"new\\n\" }\n[[turn]]\ntext = \"Done.\"\n");
    let done = world.run(&["exec", "--clone", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!world.work().join("new.txt").exists());
    let clones = world.home().join("data/clones");
    let path = std::fs::read_dir(&clones)
        .unwrap()
        .map(|found| found.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    assert_eq!(std::fs::read_to_string(path.join("new.txt")).unwrap(), "new\n");
    assert_eq!(std::fs::read_to_string(path.join("a.txt")).unwrap(), "committed\n");
    let session = path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(git(&world, &["for-each-ref"]).contains(&format!("refs/minke/{session}")));
    clones_of_the_living_stay(&world, &path, &session);
    // Its directory does not belong to anybody now.
    world.verify();
}

fn clones_of_the_living_stay(world: &World, path: &std::path::Path, session: &str) {
    assert_eq!(world.run(&["send", session, "and more"]).code, Some(0));
    let living = world.json(&["gc", "--clones", "--yes", "--json"]);
    assert_eq!(
        (&living[0]["stays"], &living[0]["removed"]),
        (&"its pod lives".into(), &false.into()),
        "{living}"
    );
    assert_eq!(world.run(&["stop", session]).code, Some(0));
    let kept = world.run(&["gc", "--yes"]);
    assert!(kept.out.contains("not archived") && path.is_dir(), "{kept:?}");
    let listed = world.run(&["gc", "--clones"]);
    assert!(
        listed.out.contains("can be removed") && path.is_dir(),
        "nothing goes that was only listed: {listed:?}"
    );
    assert_eq!(world.run(&["gc", "--clones", "--yes"]).code, Some(0));
    assert!(!path.exists());
    assert_eq!(git(world, &["for-each-ref", "refs/minke"]), "");
    assert_eq!(world.json(&["gc", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn outside_git_there_is_no_clone_and_nothing_is_made() {
    let world = World::new();
    world.write("s.toml", ECHO);
    let refused = world.run(&["exec", "--clone", "--model", "scripted:s.toml", "go"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("not in a git repository"), "{refused:?}");
    assert_eq!(world.sessions(), 0);
}

/// A pod with a child called `web` that has done its task.
fn tree() -> World {
    let world = living();
    std::fs::create_dir(world.work().join("web")).unwrap();
    let spawned = spawn(&world, "tale", "web", &["--scope", "write:web"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    assert_eq!(world.run(&["wait", "web"]).code, Some(0));
    world
}

fn spawn(world: &World, parent: &str, name: &str, more: &[&str]) -> crate::world::Done {
    let words = ["spawn", parent, name, "--task", "from below", "--profile", "inherit"];
    world.run(&[&words[..], more].concat())
}

fn row(world: &World, name: &str) -> Value {
    let rows = world.json(&["ps", "--tree", "--json"]);
    let found = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not there: {rows}")).clone()
}

#[test]
fn a_child_is_spawned_seen_read_and_stopped_with_its_parent() {
    let world = tree();
    let (parent, child) = (row(&world, "tale"), row(&world, "web"));
    assert_eq!((&parent["depth"], &child["depth"]), (&0.into(), &1.into()));
    assert_eq!((&parent["children"][0], &child["parent"]), (&child["session"], &parent["session"]));
    let place = world.work().canonicalize().unwrap().join("web");
    assert_eq!(child["scope"]["allow"][0]["target"], place.to_str().unwrap(), "{child}");
    assert_eq!(
        parent["scope"]["deny"][0]["target"],
        place.to_str().unwrap(),
        "what is lent is not its own: {parent}"
    );
    let shown = world.run(&["ps", "--tree"]).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("tale ") && lines[2].starts_with("└─ web "), "{shown}");
    assert_eq!(world.run(&["read", "web"]).out, "You said: from below\n");
    for (args, code) in [
        (&["--scope", "write:web"][..], 2),
        (&["--scope", "write:nowhere"], 2),
        (&["--scope", "all:web"], 2),
        (&["--scope", "write:web", "--budget", "tokens=few"], 2),
    ] {
        let refused = spawn(&world, "tale", "web", args);
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
    }
    let stopped = world.run(&["stop", "tale", "--tree"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(stopped.err, "web: stopped\ntale: stopped\n");
    let alone = spawn(&world, "tale", "web", &["--scope", "write:web"]);
    assert_eq!(alone.code, Some(1), "{alone:?}");
    world.verify();
}

#[test]
fn a_tree_is_followed_and_every_line_has_a_name() {
    let world = tree();
    let last = world.run(&["tail", "tale", "--tree", "--no-follow", "-n", "1000"]).out;
    for wanted in ["tale │ > second", "web  │ > from below", "web  │ You said: from below"] {
        assert_eq!(last.lines().filter(|line| *line == wanted).count(), 1, "{wanted}: {last}");
    }
    assert!(last.lines().all(|line| line.contains(" │ ")), "{last}");
    let mut tail = world.start(&["tail", "tale", "--tree", "-n", "1000"]);
    tail.until("web  │ You said: from below");
    std::fs::create_dir(world.work().join("api")).unwrap();
    assert_eq!(spawn(&world, "tale", "api", &["--scope", "write:api"]).code, Some(0));
    tail.until("api  │ You said: from below");
    assert_eq!(world.run(&["send", "web", "and now?"]).code, Some(0));
    tail.until("web  │ You said: and now?");
    assert_eq!(world.run(&["stop", "tale", "--tree"]).code, Some(0));
    assert_eq!(tail.end().code, Some(0), "it ends when nobody is left");
    let objects = world.run(&["tail", "tale", "--tree", "--no-follow", "--json", "-n", "2"]).out;
    for line in objects.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        assert!(object["pod"].is_string() && object["entry"]["seq"].is_u64(), "{object}");
    }
    assert_eq!(objects.lines().count(), 6, "two of each: {objects}");
}

#[test]
fn a_child_that_died_is_shown_as_such_and_so_is_a_parent() {
    let world = tree();
    crate::world::kill(&row(&world, "web")["pid"]);
    until_state(&world, "web", "crashed");
    assert_eq!(world.run(&["send", "web", "again"]).code, Some(0), "its parent lends it its scope anew");
    assert_eq!(world.run(&["wait", "web"]).code, Some(0));
    assert_eq!(world.run(&["read", "web"]).out, "You said: again\n");
    crate::world::kill(&row(&world, "tale")["pid"]);
    until_state(&world, "tale", "stopped");
    let child = row(&world, "web");
    assert_eq!(
        (&child["depth"], &child["state"]),
        (&1.into(), &"idle".into()),
        "a child outlives its parent"
    );
    assert_eq!(world.run(&["stop", "tale", "--tree"]).err, "web: stopped\n");
    world.verify();
}

fn until_state(world: &World, name: &str, state: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = row(world, name)["state"].as_str().unwrap().to_owned();
        if found == state {
            return;
        }
        assert!(Instant::now() < until, "{name} is {found}, not {state}");
    }
}

#[test]
fn a_child_in_a_clone_works_beside_its_parent() {
    let Some(world) = repository("spawn --clone") else { return };
    world.write("s.toml", ECHO);
    assert_eq!(world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]).code, Some(0));
    assert_eq!(world.run(&["send", "tale", "second"]).code, Some(0));
    let spawned = spawn(&world, "tale", "web", &["--clone", "--wait"]);
    assert_eq!(spawned.code, Some(0), "{spawned:?}");
    let child = row(&world, "web");
    let session = child["session"].as_str().unwrap().strip_prefix("s_").unwrap().to_owned();
    let clone = world.home().canonicalize().unwrap().join("data/clones").join(&session);
    assert!(clone.join("a.txt").exists());
    assert_eq!(child["scope"]["allow"][0]["target"], clone.to_str().unwrap(), "{child}");
    assert!(git(&world, &["for-each-ref"]).contains(&session));
    assert_eq!(world.run(&["stop", "tale", "--tree"]).code, Some(0));
    assert_eq!(world.run(&["gc", "--clones", "--yes"]).code, Some(0));
    assert!(!clone.exists());
}
