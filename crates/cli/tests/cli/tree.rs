//! The tree, with real processes: pods that spawn, lend, report, stop and die.
//!
//! What each pod says comes from one script with turns by pod name. Nothing sleeps: what must be waited for is looked at
//! again until a deadline.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{UNFENCED, World, commands_are_held, kill};

/// How long anything here may take at most, on a machine with much to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A script: turns of pods, each a list of calls or a text.
#[derive(Default)]
pub(crate) struct Script(String);

impl Script {
    pub(crate) fn call(mut self, pod: &str, tool: &str, args: &Value) -> Script {
        let raw = args.to_string();
        self.0 +=
            &format!("[[pod.{pod}.turn]]\n[[pod.{pod}.turn.call]]\ntool = \"{tool}\"\nraw = '''{raw}'''\n");
        self
    }

    pub(crate) fn say(mut self, pod: &str, text: &str) -> Script {
        self.0 += &format!("[[pod.{pod}.turn]]\ntext = \"{text}\"\n");
        self
    }

    /// Says something, then thinks for a minute.
    pub(crate) fn linger(mut self, pod: &str, text: &str) -> Script {
        self.0 += &format!(
            "[[pod.{pod}.turn]]\nsteps = [{{ text = \"{text}\" }}, {{ delay_ms = 60000 }}, {{ text = \" end.\" }}]\n"
        );
        self
    }

    /// As it stands, without a greeting.
    pub(crate) fn write_alone(self, world: &World) {
        world.write("s.toml", &self.0);
    }

    /// The pod `boss` greets first, in the run that makes it.
    pub(crate) fn write(self, world: &World) {
        world.write("s.toml", &Script::default().say("boss", "hello").0);
        let greeting = world.read("s.toml");
        world.write("s.toml", &(greeting + &self.0));
    }
}

pub(crate) fn write_rule(path: &Path) -> Value {
    json!({ "target": path, "permission": "write" })
}

pub(crate) fn spawn(name: &str, task: &str, scope: Value) -> Value {
    json!({ "name": name, "task": task, "scope": scope })
}

/// The directories that tests lend, and a world around them.
pub(crate) fn world(dirs: &[&str]) -> World {
    let world = World::new();
    for dir in dirs {
        std::fs::create_dir_all(world.work().join(dir)).unwrap();
    }
    world
}

/// Looks again until something holds.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn entries(world: &World, session: &str) -> Vec<Value> {
    let log = world.run(&["log", "show", session, "--json"]);
    log.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn of_kind(world: &World, session: &str, kind: &str) -> Vec<Value> {
    entries(world, session).into_iter().filter(|entry| entry["kind"] == kind).collect()
}

/// The results of a pod's calls: how each ended, and what it said in one text.
pub(crate) fn results(world: &World, session: &str) -> Vec<(String, String)> {
    let of = |entry: &Value| {
        let item = &entry["item"];
        let outcome = entry["outcome"].as_str().unwrap_or_default().to_owned();
        let content = item["content"].as_str().unwrap_or_default();
        (outcome, format!("{} {content}", item["summary"].as_str().unwrap_or_default()))
    };
    of_kind(world, session, "tool_result").iter().map(of).collect()
}

pub(crate) fn pod(world: &World, name: &str) -> Option<Value> {
    let rows = world.json(&["ps", "--json"]);
    rows.as_array()?.iter().find(|row| row["name"] == name).cloned()
}

/// Makes the pod `boss`, gives it its task and waits until its run is over. It lives on.
#[track_caller]
pub(crate) fn run_to_its_end(world: &World, extra: &[&str]) {
    let base = ["exec", "--name", "boss", "--model", "scripted:s.toml", "hello"];
    let made = world.run(&[&base[..], extra].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let sent = world.run(&["send", "boss", "go"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let waited = world.run(&["wait", "boss", "--timeout", "60"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
}

/// Nothing is left: no pod, no socket, no runtime directory, and every log is sound.
#[track_caller]
pub(crate) fn nothing_is_left(world: &World) {
    for name in world.json(&["ps", "--json"]).as_array().unwrap() {
        let name = name["name"].as_str().unwrap();
        world.run(&["stop", name]);
    }
    until("all pods are gone", || world.json(&["ps", "--json"]).as_array()?.is_empty().then_some(()));
    let left = std::fs::read_dir(world.home().join("run/pods")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "a runtime directory is left");
    world.verify();
}

#[test]
fn a_parent_cannot_write_where_a_loan_is_out() {
    if !commands_are_held("a_parent_cannot_write_where_a_loan_is_out") {
        return;
    }
    let world = world(&["lib", "rest"]);
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "SpawnPod", &spawn("kid", "write", json!([write_rule(&lib)])))
        .call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "no" }))
        .call("boss", "Bash", &json!({ "command": "echo no > lib/boss.txt; echo yes > rest/boss.txt" }))
        .call("boss", "StopPod", &json!({ "name": "kid" }))
        .call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .call("boss", "Bash", &json!({ "command": "echo again >> lib/boss.txt" }))
        .say("boss", "done")
        .call("kid", "Write", &json!({ "file_path": lib.join("kid.txt"), "content": "kid" }))
        .say("kid", "written")
        .write(&world);
    run_to_its_end(&world, &[]);
    let results = results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(results[0].0, "done", "{results:#?}");
    assert!(results[0].1.contains("kid") && results[0].1.contains("session"), "{}", results[0].1);
    assert_eq!(results[1].0, "done", "{results:#?}");
    assert_ne!(results[2].0, "done", "{results:#?}");
    assert!(results[2].1.contains("kid"), "the error names who holds the path: {}", results[2].1);
    assert!(results[3].1.contains("Read-only"), "{}", results[3].1);
    assert_eq!(&outcomes[4..], ["done", "done", "done"], "{results:#?}");
    assert_eq!(world.read("lib/kid.txt"), "kid");
    assert_eq!(world.read("rest/boss.txt"), "yes\n", "elsewhere it could write");
    assert_eq!(world.read("lib/boss.txt"), "mineagain\n");
    nothing_is_left(&world);
}

#[test]
fn a_running_command_that_could_write_there_refuses_the_loan() {
    if !commands_are_held("a_running_command_that_could_write_there_refuses_the_loan") {
        return;
    }
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "Bash", &json!({ "command": "sleep 50", "background": true }))
        .call("boss", "SpawnPod", &spawn("kid", "write", json!([write_rule(&lib)])))
        .call("boss", "Write", &json!({ "file_path": lib.join("a.txt"), "content": "mine" }))
        .say("boss", "done")
        .write(&world);
    run_to_its_end(&world, &[]);
    let results = results(&world, "boss");
    assert_eq!(results[1].0, "invalid", "{results:#?}");
    assert!(results[1].1.contains("sleep 50"), "the command is named: {}", results[1].1);
    assert_eq!(results[2].0, "done", "what was refused took nothing: {results:#?}");
    assert!(pod(&world, "kid").is_none());
    let ends = of_kind(&world, "boss", "child_end");
    assert_eq!(ends[0]["outcome"], "failed_to_start");
    nothing_is_left(&world);
}

#[test]
fn a_running_command_that_cannot_write_there_refuses_nothing() {
    if !commands_are_held("a_running_command_that_cannot_write_there_refuses_nothing") {
        return;
    }
    let world = world(&["lib", "rest"]);
    let (lib, rest) = (world.work().join("lib"), world.work().join("rest"));
    // While `lib` is lent out no fence lets write there, and a fence stays what it was.
    Script::default()
        .call("boss", "SpawnPod", &spawn("first", "write", json!([write_rule(&lib)])))
        .call("boss", "Bash", &json!({ "command": "sleep 50", "background": true }))
        .call("boss", "StopPod", &json!({ "name": "first" }))
        .call("boss", "SpawnPod", &spawn("second", "write", json!([write_rule(&lib)])))
        .call("boss", "SpawnPod", &spawn("third", "write", json!([write_rule(&rest)])))
        .say("boss", "done")
        .say("first", "written")
        .say("second", "written")
        .write(&world);
    run_to_its_end(&world, &[]);
    let results = results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["done", "done", "done", "done", "invalid"], "{results:#?}");
    assert!(results[4].1.contains("sleep 50"), "the command is named: {}", results[4].1);
    assert!(pod(&world, "second").is_some() && pod(&world, "third").is_none());
    nothing_is_left(&world);
}

#[test]
fn a_killed_childs_loan_is_back_and_it_is_told_once() {
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "SpawnPod", &spawn("kid", "work", json!([write_rule(&lib)])))
        .say("boss", "spawned")
        .call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .say("boss", "heard")
        .say("boss", "more")
        .linger("kid", "working")
        .write(&world);
    run_to_its_end(&world, &UNFENCED);
    let kid = pod(&world, "kid").expect("the child works");
    kill(&kid["pid"]);
    let killed = Instant::now();
    until("the loan is back", || {
        let table = std::fs::read_to_string(world.home().join("run/scope.json")).ok()?;
        (!table.contains("\"kid\"")).then_some(())
    });
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(2), "the loan came back after {took:?}");
    // The parent is woken by it, and may write there again.
    until("the parent has heard of it", || {
        (results(&world, "boss").len() == 2 && pod(&world, "boss")?["state"] == "idle").then_some(())
    });
    assert_eq!(world.read("lib/boss.txt"), "mine");
    let ends = of_kind(&world, "boss", "child_end");
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(ends[0]["outcome"], "crashed");
    assert_eq!(ends[0]["exit"], 128 + 9);
    let heard = of_kind(&world, "boss", "inbox");
    assert_eq!(heard.len(), 1, "it is told once: {heard:#?}");
    assert!(no_zombies_of(&pod(&world, "boss").unwrap()["pid"]));
    nothing_is_left(&world);
}

/// Whether a process has no child that has ended and was not waited for.
fn no_zombies_of(parent: &Value) -> bool {
    let Ok(all) = std::fs::read_dir("/proc") else { return true };
    let stats = all.flatten().filter_map(|found| std::fs::read_to_string(found.path().join("stat")).ok());
    let zombie = |stat: String| {
        let rest: Vec<String> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        rest.first().is_some_and(|state| state == "Z")
            && rest.get(1).and_then(|parent| parent.parse::<i64>().ok()) == parent.as_i64()
    };
    !stats.into_iter().any(zombie)
}

#[test]
fn a_report_survives_the_parents_death() {
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "SpawnPod", &spawn("kid", "work", json!([write_rule(&lib)])))
        .say("boss", "spawned")
        .say("boss", "heard")
        .say("boss", "more")
        .call(
            "kid",
            "Bash",
            &json!({ "command": "while ! [ -e go ]; do sleep 0.05; done; echo kid > lib/kid.txt" }),
        )
        .say("kid", "finished")
        .write(&world);
    run_to_its_end(&world, &UNFENCED);
    let session =
        pod(&world, "boss").unwrap()["session"].as_str().unwrap().trim_start_matches("s_").to_owned();
    kill(&pod(&world, "boss").unwrap()["pid"]);
    until("the parent is gone", || pod(&world, "boss").is_none().then_some(()));
    // The child goes on alone and ends its run.
    world.write("go", "");
    until("the child has worked", || (world.read("lib/kid.txt") == "kid\n").then_some(()));
    until("the child is idle", || (pod(&world, "kid")?["state"] == "idle").then_some(()));
    let attached = world.pipe("", &["attach", &session]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    let reports = || {
        let inbox = of_kind(&world, &session, "inbox");
        inbox.into_iter().filter(|entry| entry["event"].is_object()).collect::<Vec<_>>()
    };
    until("its report arrives", || (!reports().is_empty()).then_some(()));
    until("both are idle", || {
        (pod(&world, "boss")?["state"] == "idle" && pod(&world, "kid")?["state"] == "idle").then_some(())
    });
    let table = std::fs::read_to_string(world.home().join("run/scope.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    assert!(table.to_string().contains(&session), "{table:#}");
    nothing_is_left(&world);
    assert_eq!(
        reports().iter().filter(|report| report["event"].to_string().contains("turn_ended")).count(),
        1,
        "{:#?}",
        reports()
    );
}

/// Three pods one below the other; the last two stay at their work. What the middle one says when it is asked again is to
/// be added.
pub(crate) fn three_generations(world: &World) -> Script {
    let lib = world.work().join("lib");
    Script::default()
        .call("boss", "SpawnPod", &spawn("mid", "divide", json!([write_rule(&lib)])))
        .say("boss", "spawned")
        .say("boss", "heard")
        .say("boss", "more")
        .call("mid", "SpawnPod", &spawn("leaf", "work", json!([write_rule(&lib.join("deep"))])))
        .linger("mid", "divided")
        .linger("leaf", "working")
}

#[test]
fn a_grandchild_whose_parent_dies_is_the_grandparents() {
    let world = world(&["lib/deep"]);
    three_generations(&world).write(&world);
    run_to_its_end(&world, &UNFENCED);
    until("the grandchild works", || pod(&world, "leaf"));
    kill(&pod(&world, "mid").unwrap()["pid"]);
    let adopted = until("it is adopted", || {
        of_kind(&world, "boss", "child").into_iter().find(|entry| entry["name"] == "leaf")
    });
    let mid = of_kind(&world, "boss", "child")[0]["session"].clone();
    assert_eq!(adopted["adopted_from"], mid, "{adopted:#}");
    assert!(pod(&world, "leaf").is_some(), "it lives on");
    let table: Value =
        serde_json::from_str(&std::fs::read_to_string(world.home().join("run/scope.json")).unwrap()).unwrap();
    let rows = table["pods"].as_array().or(table["table"]["pods"].as_array()).unwrap().clone();
    let boss = rows.iter().find(|row| row["name"] == "boss").unwrap();
    let loans: Vec<&Value> = boss["loans"].as_array().unwrap().iter().map(|loan| &loan["name"]).collect();
    assert_eq!(loans, ["leaf"], "its loan is the grandparent's: {boss:#}");
    nothing_is_left(&world);
}

#[test]
fn a_scope_that_cannot_be_lent_is_refused_with_its_name() {
    let world = world(&["lib", "other"]);
    let work = world.work();
    std::os::unix::fs::symlink("/etc", work.join("out")).unwrap();
    let dots = format!("{}/lib/../../x", work.display());
    let spawns = [
        (json!([{ "target": dots, "permission": "write" }]), ".."),
        (json!([write_rule(&work.join("out"))]), "out"),
        (json!([{ "target": "/etc", "permission": "write" }]), "/etc"),
        (json!([{ "target": "lib", "permission": "write" }]), "lib"),
        (json!([]), "scope"),
    ];
    let mut script = Script::default();
    for (at, (scope, _)) in spawns.iter().enumerate() {
        script = script.call("boss", "SpawnPod", &spawn(&format!("kid-{at}"), "work", scope.clone()));
    }
    script.say("boss", "done").write(&world);
    run_to_its_end(&world, &UNFENCED);
    let results = results(&world, "boss");
    for ((outcome, said), (scope, named)) in results.iter().zip(&spawns) {
        assert_eq!(outcome, "invalid", "{scope}: {said}");
        assert!(said.contains(named), "{scope}: {said}");
    }
    assert_eq!(results.len(), spawns.len());
    assert_eq!(world.json(&["ps", "--json"]).as_array().unwrap().len(), 1, "only the parent lives");
    nothing_is_left(&world);
}

#[test]
fn a_child_that_cannot_start_leaves_nothing() {
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    let policy = world.home().join("config/policy.toml");
    let spawn = spawn("kid", "work", json!([write_rule(&lib)]));
    let broken = format!("mkdir -p {0}; echo '[[' > {0}/policy.toml", policy.parent().unwrap().display());
    Script::default()
        // What no pod can start with.
        .call("boss", "Bash", &json!({ "command": broken }))
        .call("boss", "SpawnPod", &spawn)
        .call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .call("boss", "Bash", &json!({ "command": format!("rm {}", policy.display()) }))
        .call("boss", "SpawnPod", &spawn)
        .call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .say("boss", "done")
        .say("kid", "ready")
        .write(&world);
    run_to_its_end(&world, &UNFENCED);
    let results = results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_ne!(outcomes[1], "done", "{results:#?}");
    assert!(results[1].1.contains("policy.toml"), "it says why: {}", results[1].1);
    assert_eq!(outcomes[2], "done", "the loan is back: {results:#?}");
    assert_eq!(&outcomes[4..], ["done", "done"], "the name is free again: {results:#?}");
    let ends = of_kind(&world, "boss", "child_end");
    assert_eq!((ends.len(), &ends[0]["outcome"]), (1, &json!("failed_to_start")), "{ends:#?}");
    nothing_is_left(&world);
}

#[test]
fn a_stopped_child_is_started_again_by_a_message() {
    let world = world(&["lib"]);
    let lib = world.work().join("lib");
    Script::default()
        .call(
            "boss",
            "SpawnPod",
            &json!({ "name": "kid", "task": "first", "scope": [write_rule(&lib)], "wait": true }),
        )
        .call("boss", "StopPod", &json!({ "name": "kid" }))
        .call("boss", "SendToPod", &json!({ "name": "kid", "message": "second" }))
        .call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .call("boss", "ReadPodOutput", &json!({ "name": "kid" }))
        .call("boss", "ReadPodOutput", &json!({ "name": "kid" }))
        .call("boss", "ListPods", &json!({}))
        .say("boss", "done")
        .say("kid", "one")
        .say("kid", "two")
        .say("kid", "three")
        .write(&world);
    run_to_its_end(&world, &UNFENCED);
    let results = results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["done"; 7], "{results:#?}");
    assert!(results[0].1.contains("one"), "{results:#?}");
    assert!(results[4].1.contains("two"), "{results:#?}");
    assert!(results[5].1.contains("nothing new"), "{results:#?}");
    assert!(results[6].1.contains("kid: idle"), "{results:#?}");
    // The same from the command line, while it sleeps: its parent starts it.
    assert_eq!(world.run(&["stop", "kid"]).code, Some(0));
    until("it is gone", || pod(&world, "kid").is_none().then_some(()));
    let sent = world.run(&["send", "kid", "third"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it has answered", || {
        entries(&world, "kid").iter().any(|entry| entry.to_string().contains("three")).then_some(())
    });
    let row = pod(&world, "kid").unwrap();
    let boss = pod(&world, "boss").unwrap();
    assert_eq!(row["parent"], boss["session"], "{row:#}");
    nothing_is_left(&world);
}

#[test]
fn spawns_at_once_have_one_winner_for_each_path() {
    let (paths, each) = if std::env::var_os("MINKE_LONG").is_some() { (8, 8) } else { (3, 4) };
    let dirs: Vec<String> = (0..paths).map(|number| format!("lib-{number}")).collect();
    let world = world(&dirs.iter().map(String::as_str).collect::<Vec<_>>());
    let script = Script::default().say("boss", "ready");
    script.write(&world);
    world.write("s.toml", &format!("{}[[turn]]\ntext = \"kid\"\n", world.read("s.toml")));
    run_to_its_end(&world, &UNFENCED);
    let mut going = Vec::new();
    for dir in &dirs {
        for number in 0..each {
            let scope = format!("write:{}", world.work().join(dir).display());
            let name = format!("{dir}-{number}");
            let args = ["spawn", "boss", &name, "--task", "work", "--scope", &scope];
            going.push((dir.clone(), name.clone(), world.start(&args)));
        }
    }
    let ended: Vec<(String, String, crate::world::Done)> =
        going.into_iter().map(|(dir, name, going)| (dir, name, going.end())).collect();
    for dir in &dirs {
        let (won, lost): (Vec<_>, Vec<_>) =
            ended.iter().filter(|(of, _, _)| of == dir).partition(|(_, _, done)| done.code == Some(0));
        assert_eq!(won.len(), 1, "{dir}: {ended:#?}");
        for (_, name, done) in lost {
            assert!(done.err.contains(&won[0].1), "{name} is told who holds {dir}: {done:?}");
        }
    }
    nothing_is_left(&world);
}
