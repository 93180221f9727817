//! The pod tree, with real processes: spawns, loans, reports, stops and deaths.
//!
//! One script contains the turns of each pod by name. There are no fixed sleeps: conditions are polled until
//! a deadline.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::world::{CliWorld, UNSANDBOXED, can_sandbox_commands, kill_by_pid};

/// Time limit of every condition, on a busy machine.
const TREE_TIMEOUT: Duration = Duration::from_secs(30);

/// A script: turns of pods, each a list of calls or a text.
#[derive(Default)]
pub(crate) struct TreeScript(String);

impl TreeScript {
    pub(crate) fn add_call(mut self, pod: &str, tool: &str, args: &Value) -> TreeScript {
        let raw = args.to_string();
        self.0 +=
            &format!("[[pod.{pod}.turn]]\n[[pod.{pod}.turn.call]]\ntool = \"{tool}\"\nraw = '''{raw}'''\n");
        self
    }

    pub(crate) fn add_text(mut self, pod: &str, text: &str) -> TreeScript {
        self.0 += &format!("[[pod.{pod}.turn]]\ntext = \"{text}\"\n");
        self
    }

    /// Adds a text, followed by a minute of thinking.
    pub(crate) fn add_slow_turn(mut self, pod: &str, text: &str) -> TreeScript {
        self.0 += &format!(
            "[[pod.{pod}.turn]]\nsteps = [{{ text = \"{text}\" }}, {{ delay_ms = 60000 }}, {{ text = \" end.\" }}]\n"
        );
        self
    }

    /// Writes the script without a greeting.
    pub(crate) fn write_script(self, world: &CliWorld) {
        world.write_file("s.toml", &self.0);
    }

    /// Writes the script; the pod `boss` first greets, in the run that creates it.
    pub(crate) fn write_with_greeting(self, world: &CliWorld) {
        world.write_file("s.toml", &TreeScript::default().add_text("boss", "hello").0);
        let greeting = world.read_file("s.toml");
        world.write_file("s.toml", &(greeting + &self.0));
    }
}

pub(crate) fn write_scope_rule(path: &Path) -> Value {
    json!({ "target": path, "permission": "write" })
}

pub(crate) fn spawn_args(name: &str, task: &str, scope: Value) -> Value {
    json!({ "name": name, "task": task, "scope": scope })
}

/// Creates a world with the directories that tests lend.
pub(crate) fn world_with_dirs(dirs: &[&str]) -> CliWorld {
    let world = CliWorld::new();
    for dir in dirs {
        std::fs::create_dir_all(world.work_dir().join(dir)).unwrap();
    }
    world
}

/// Polls until a value is available.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TREE_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn log_entries(world: &CliWorld, session: &str) -> Vec<Value> {
    let log = world.run_minke(&["log", "show", session, "--json"]);
    log.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn entries_of_kind(world: &CliWorld, session: &str, kind: &str) -> Vec<Value> {
    log_entries(world, session).into_iter().filter(|entry| entry["kind"] == kind).collect()
}

/// Returns the results of a pod's calls: outcome and text.
pub(crate) fn call_results(world: &CliWorld, session: &str) -> Vec<(String, String)> {
    let of = |entry: &Value| {
        let item = &entry["item"];
        let outcome = entry["outcome"].as_str().unwrap_or_default().to_owned();
        let content = item["content"].as_str().unwrap_or_default();
        (outcome, format!("{} {content}", item["summary"].as_str().unwrap_or_default()))
    };
    entries_of_kind(world, session, "tool_result").iter().map(of).collect()
}

pub(crate) fn live_pod(world: &CliWorld, name: &str) -> Option<Value> {
    let rows = world.run_json(&["ps", "--json"]);
    rows.as_array()?.iter().find(|row| row["name"] == name).cloned()
}

/// Creates the pod `boss`, sends its task and waits until its run ends. The pod stays live.
#[track_caller]
pub(crate) fn run_to_end(world: &CliWorld, extra: &[&str]) {
    let base = ["exec", "--name", "boss", "--model", "scripted:s.toml", "hello"];
    let made = world.run_minke(&[&base[..], extra].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let sent = world.run_minke(&["send", "boss", "go"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let waited = world.run_minke(&["wait", "boss", "--timeout", "60"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
}

/// Checks that no pod, socket or runtime directory is left, and that every log is valid.
#[track_caller]
pub(crate) fn check_nothing_left(world: &CliWorld) {
    for name in world.run_json(&["ps", "--json"]).as_array().unwrap() {
        let name = name["name"].as_str().unwrap();
        world.run_minke(&["stop", name]);
    }
    wait_for("all pods are gone", || world.run_json(&["ps", "--json"]).as_array()?.is_empty().then_some(()));
    let left = std::fs::read_dir(world.home_dir().join("run/pods")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "a runtime directory is left");
    world.verify_logs();
}

#[test]
fn a_parent_cannot_write_where_a_loan_is_out() {
    if !can_sandbox_commands("a_parent_cannot_write_where_a_loan_is_out") {
        return;
    }
    let world = world_with_dirs(&["lib", "rest"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("kid", "write", json!([write_scope_rule(&lib)])))
        .add_call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .add_call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "no" }))
        .add_call("boss", "Bash", &json!({ "command": "echo no > lib/boss.txt; echo yes > rest/boss.txt" }))
        .add_call("boss", "StopPod", &json!({ "name": "kid" }))
        .add_call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .add_call("boss", "Bash", &json!({ "command": "echo again >> lib/boss.txt" }))
        .add_text("boss", "done")
        .add_call("kid", "Write", &json!({ "file_path": lib.join("kid.txt"), "content": "kid" }))
        .add_text("kid", "written")
        .write_with_greeting(&world);
    run_to_end(&world, &[]);
    let results = call_results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(results[0].0, "done", "{results:#?}");
    assert!(results[0].1.contains("kid") && results[0].1.contains("session"), "{}", results[0].1);
    assert_eq!(results[1].0, "done", "{results:#?}");
    assert_ne!(results[2].0, "done", "{results:#?}");
    assert!(results[2].1.contains("kid"), "the error names the owner of the path: {}", results[2].1);
    assert!(results[3].1.contains("Read-only"), "{}", results[3].1);
    assert_eq!(&outcomes[4..], ["done", "done", "done"], "{results:#?}");
    assert_eq!(world.read_file("lib/kid.txt"), "kid");
    assert_eq!(world.read_file("rest/boss.txt"), "yes\n", "it could write to other paths");
    assert_eq!(world.read_file("lib/boss.txt"), "mineagain\n");
    check_nothing_left(&world);
}

#[test]
fn a_running_command_that_could_write_there_refuses_the_loan() {
    if !can_sandbox_commands("a_running_command_that_could_write_there_refuses_the_loan") {
        return;
    }
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "Bash", &json!({ "command": "sleep 50", "background": true }))
        .add_call("boss", "SpawnPod", &spawn_args("kid", "write", json!([write_scope_rule(&lib)])))
        .add_call("boss", "Write", &json!({ "file_path": lib.join("a.txt"), "content": "mine" }))
        .add_text("boss", "done")
        .write_with_greeting(&world);
    run_to_end(&world, &[]);
    let results = call_results(&world, "boss");
    assert_eq!(results[1].0, "invalid", "{results:#?}");
    assert!(results[1].1.contains("sleep 50"), "the command is named: {}", results[1].1);
    assert_eq!(results[2].0, "done", "a refused call takes nothing: {results:#?}");
    assert!(live_pod(&world, "kid").is_none());
    let ends = entries_of_kind(&world, "boss", "child_end");
    assert_eq!(ends[0]["outcome"], "failed_to_start");
    check_nothing_left(&world);
}

#[test]
fn a_running_command_that_cannot_write_there_refuses_nothing() {
    if !can_sandbox_commands("a_running_command_that_cannot_write_there_refuses_nothing") {
        return;
    }
    let world = world_with_dirs(&["lib", "rest"]);
    let (lib, rest) = (world.work_dir().join("lib"), world.work_dir().join("rest"));
    // During the loan of `lib`, no sandbox allows writes there, and existing sandboxes do not change.
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("first", "write", json!([write_scope_rule(&lib)])))
        .add_call("boss", "Bash", &json!({ "command": "sleep 50", "background": true }))
        .add_call("boss", "StopPod", &json!({ "name": "first" }))
        .add_call("boss", "SpawnPod", &spawn_args("second", "write", json!([write_scope_rule(&lib)])))
        .add_call("boss", "SpawnPod", &spawn_args("third", "write", json!([write_scope_rule(&rest)])))
        .add_text("boss", "done")
        .add_text("first", "written")
        .add_text("second", "written")
        .write_with_greeting(&world);
    run_to_end(&world, &[]);
    let results = call_results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["done", "done", "done", "done", "invalid"], "{results:#?}");
    assert!(results[4].1.contains("sleep 50"), "the command is named: {}", results[4].1);
    assert!(live_pod(&world, "second").is_some() && live_pod(&world, "third").is_none());
    check_nothing_left(&world);
}

#[test]
fn a_killed_childs_loan_is_back_and_it_is_told_once() {
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("kid", "work", json!([write_scope_rule(&lib)])))
        .add_text("boss", "spawned")
        .add_call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .add_text("boss", "heard")
        .add_text("boss", "more")
        .add_slow_turn("kid", "working")
        .write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let kid = live_pod(&world, "kid").expect("the child works");
    kill_by_pid(&kid["pid"]);
    let killed = Instant::now();
    wait_for("the loan is back", || {
        let table = std::fs::read_to_string(world.home_dir().join("run/scope.json")).ok()?;
        (!table.contains("\"kid\"")).then_some(())
    });
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(2), "the loan came back after {took:?}");
    // This wakes the parent, which may write there again.
    wait_for("the parent has recorded it", || {
        (call_results(&world, "boss").len() == 2 && live_pod(&world, "boss")?["state"] == "idle")
            .then_some(())
    });
    assert_eq!(world.read_file("lib/boss.txt"), "mine");
    let ends = entries_of_kind(&world, "boss", "child_end");
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(ends[0]["outcome"], "crashed");
    assert_eq!(ends[0]["exit"], 128 + 9);
    let heard = entries_of_kind(&world, "boss", "inbox");
    assert_eq!(heard.len(), 1, "it is recorded once: {heard:#?}");
    assert!(has_no_zombies(&live_pod(&world, "boss").unwrap()["pid"]));
    check_nothing_left(&world);
}

/// Returns true if a process has no zombie children.
fn has_no_zombies(parent: &Value) -> bool {
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
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("kid", "work", json!([write_scope_rule(&lib)])))
        .add_text("boss", "spawned")
        .add_text("boss", "heard")
        .add_text("boss", "more")
        .add_call(
            "kid",
            "Bash",
            &json!({ "command": "while ! [ -e go ]; do sleep 0.05; done; echo kid > lib/kid.txt" }),
        )
        .add_text("kid", "finished")
        .write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let session =
        live_pod(&world, "boss").unwrap()["session"].as_str().unwrap().trim_start_matches("s_").to_owned();
    kill_by_pid(&live_pod(&world, "boss").unwrap()["pid"]);
    wait_for("the parent is gone", || live_pod(&world, "boss").is_none().then_some(()));
    // The child continues alone and ends its run.
    world.write_file("go", "");
    wait_for("the child has worked", || (world.read_file("lib/kid.txt") == "kid\n").then_some(()));
    wait_for("the child is idle", || (live_pod(&world, "kid")?["state"] == "idle").then_some(()));
    let attached = world.run_with_stdin("", &["attach", &session]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    let reports = || {
        let inbox = entries_of_kind(&world, &session, "inbox");
        inbox.into_iter().filter(|entry| entry["event"].is_object()).collect::<Vec<_>>()
    };
    wait_for("its report arrives", || (!reports().is_empty()).then_some(()));
    wait_for("both are idle", || {
        (live_pod(&world, "boss")?["state"] == "idle" && live_pod(&world, "kid")?["state"] == "idle")
            .then_some(())
    });
    let table = std::fs::read_to_string(world.home_dir().join("run/scope.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    assert!(table.to_string().contains(&session), "{table:#}");
    check_nothing_left(&world);
    assert_eq!(
        reports().iter().filter(|report| report["event"].to_string().contains("turn_ended")).count(),
        1,
        "{:#?}",
        reports()
    );
}

/// Three generations of pods; the last two keep working. Add the reply of the middle one to another message.
pub(crate) fn three_generations(world: &CliWorld) -> TreeScript {
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call("boss", "SpawnPod", &spawn_args("mid", "divide", json!([write_scope_rule(&lib)])))
        .add_text("boss", "spawned")
        .add_text("boss", "heard")
        .add_text("boss", "more")
        .add_call(
            "mid",
            "SpawnPod",
            &spawn_args("leaf", "work", json!([write_scope_rule(&lib.join("deep"))])),
        )
        .add_slow_turn("mid", "divided")
        .add_slow_turn("leaf", "working")
}

#[test]
fn a_grandchild_whose_parent_dies_is_the_grandparents() {
    let world = world_with_dirs(&["lib/deep"]);
    three_generations(&world).write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    wait_for("the grandchild works", || live_pod(&world, "leaf"));
    kill_by_pid(&live_pod(&world, "mid").unwrap()["pid"]);
    let adopted = wait_for("it is adopted", || {
        entries_of_kind(&world, "boss", "child").into_iter().find(|entry| entry["name"] == "leaf")
    });
    let mid = entries_of_kind(&world, "boss", "child")[0]["session"].clone();
    assert_eq!(adopted["adopted_from"], mid, "{adopted:#}");
    assert!(live_pod(&world, "leaf").is_some(), "it is still live");
    let table: Value =
        serde_json::from_str(&std::fs::read_to_string(world.home_dir().join("run/scope.json")).unwrap())
            .unwrap();
    let rows = table["pods"].as_array().or(table["table"]["pods"].as_array()).unwrap().clone();
    let boss = rows.iter().find(|row| row["name"] == "boss").unwrap();
    let loans: Vec<&Value> = boss["loans"].as_array().unwrap().iter().map(|loan| &loan["name"]).collect();
    assert_eq!(loans, ["leaf"], "its loan is the grandparent's: {boss:#}");
    check_nothing_left(&world);
}

#[test]
fn a_scope_that_cannot_be_lent_is_refused_with_its_name() {
    let world = world_with_dirs(&["lib", "other"]);
    let work = world.work_dir();
    std::os::unix::fs::symlink("/etc", work.join("out")).unwrap();
    let dots = format!("{}/lib/../../x", work.display());
    let spawns = [
        (json!([{ "target": dots, "permission": "write" }]), ".."),
        (json!([write_scope_rule(&work.join("out"))]), "out"),
        (json!([{ "target": "/etc", "permission": "write" }]), "/etc"),
        (json!([{ "target": "lib", "permission": "write" }]), "lib"),
        (json!([]), "scope"),
    ];
    let mut script = TreeScript::default();
    for (at, (scope, _)) in spawns.iter().enumerate() {
        script =
            script.add_call("boss", "SpawnPod", &spawn_args(&format!("kid-{at}"), "work", scope.clone()));
    }
    script.add_text("boss", "done").write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let results = call_results(&world, "boss");
    for ((outcome, said), (scope, named)) in results.iter().zip(&spawns) {
        assert_eq!(outcome, "invalid", "{scope}: {said}");
        assert!(said.contains(named), "{scope}: {said}");
    }
    assert_eq!(results.len(), spawns.len());
    assert_eq!(world.run_json(&["ps", "--json"]).as_array().unwrap().len(), 1, "only the parent is live");
    check_nothing_left(&world);
}

#[test]
fn a_child_that_cannot_start_leaves_nothing() {
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    let policy = world.home_dir().join("config/policy.toml");
    let spawn = spawn_args("kid", "work", json!([write_scope_rule(&lib)]));
    let broken = format!("mkdir -p {0}; echo '[[' > {0}/policy.toml", policy.parent().unwrap().display());
    TreeScript::default()
        // Input that no pod can start with.
        .add_call("boss", "Bash", &json!({ "command": broken }))
        .add_call("boss", "SpawnPod", &spawn)
        .add_call("boss", "Write", &json!({ "file_path": lib.join("boss.txt"), "content": "mine" }))
        .add_call("boss", "Bash", &json!({ "command": format!("rm {}", policy.display()) }))
        .add_call("boss", "SpawnPod", &spawn)
        .add_call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .add_text("boss", "done")
        .add_text("kid", "ready")
        .write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let results = call_results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_ne!(outcomes[1], "done", "{results:#?}");
    assert!(results[1].1.contains("policy.toml"), "the error has a reason: {}", results[1].1);
    assert_eq!(outcomes[2], "done", "the loan is back: {results:#?}");
    assert_eq!(&outcomes[4..], ["done", "done"], "the name is free again: {results:#?}");
    let ends = entries_of_kind(&world, "boss", "child_end");
    assert_eq!((ends.len(), &ends[0]["outcome"]), (1, &json!("failed_to_start")), "{ends:#?}");
    check_nothing_left(&world);
}

#[test]
fn a_stopped_child_is_started_again_by_a_message() {
    let world = world_with_dirs(&["lib"]);
    let lib = world.work_dir().join("lib");
    TreeScript::default()
        .add_call(
            "boss",
            "SpawnPod",
            &json!({ "name": "kid", "task": "first", "scope": [write_scope_rule(&lib)], "wait": true }),
        )
        .add_call("boss", "StopPod", &json!({ "name": "kid" }))
        .add_call("boss", "SendToPod", &json!({ "name": "kid", "message": "second" }))
        .add_call("boss", "WaitPods", &json!({ "names": ["kid"], "until": "all" }))
        .add_call("boss", "ReadPodOutput", &json!({ "name": "kid" }))
        .add_call("boss", "ReadPodOutput", &json!({ "name": "kid" }))
        .add_call("boss", "ListPods", &json!({}))
        .add_text("boss", "done")
        .add_text("kid", "one")
        .add_text("kid", "two")
        .add_text("kid", "three")
        .write_with_greeting(&world);
    run_to_end(&world, &UNSANDBOXED);
    let results = call_results(&world, "boss");
    let outcomes: Vec<&str> = results.iter().map(|(outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["done"; 7], "{results:#?}");
    assert!(results[0].1.contains("one"), "{results:#?}");
    assert!(results[4].1.contains("two"), "{results:#?}");
    assert!(results[5].1.contains("nothing new"), "{results:#?}");
    assert!(results[6].1.contains("kid: idle"), "{results:#?}");
    // The same from the command line, while it sleeps: its parent starts it.
    assert_eq!(world.run_minke(&["stop", "kid"]).code, Some(0));
    wait_for("it is gone", || live_pod(&world, "kid").is_none().then_some(()));
    let sent = world.run_minke(&["send", "kid", "third"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    wait_for("it has answered", || {
        log_entries(&world, "kid").iter().any(|entry| entry.to_string().contains("three")).then_some(())
    });
    let row = live_pod(&world, "kid").unwrap();
    let boss = live_pod(&world, "boss").unwrap();
    assert_eq!(row["parent"], boss["session"], "{row:#}");
    check_nothing_left(&world);
}

#[test]
fn spawns_at_once_have_one_winner_for_each_path() {
    let (paths, each) = if std::env::var_os("MINKE_LONG").is_some() { (8, 8) } else { (3, 4) };
    let dirs: Vec<String> = (0..paths).map(|number| format!("lib-{number}")).collect();
    let world = world_with_dirs(&dirs.iter().map(String::as_str).collect::<Vec<_>>());
    let script = TreeScript::default().add_text("boss", "ready");
    script.write_with_greeting(&world);
    world.write_file("s.toml", &format!("{}[[turn]]\ntext = \"kid\"\n", world.read_file("s.toml")));
    run_to_end(&world, &UNSANDBOXED);
    let mut going = Vec::new();
    for dir in &dirs {
        for number in 0..each {
            let scope = format!("write:{}", world.work_dir().join(dir).display());
            let name = format!("{dir}-{number}");
            let args = ["spawn", "boss", &name, "--task", "work", "--scope", &scope];
            going.push((dir.clone(), name.clone(), world.start_minke(&args)));
        }
    }
    let ended: Vec<(String, String, crate::support::world::CommandResult)> =
        going.into_iter().map(|(dir, name, going)| (dir, name, going.wait_for_exit())).collect();
    for dir in &dirs {
        let (won, lost): (Vec<_>, Vec<_>) =
            ended.iter().filter(|(of, _, _)| of == dir).partition(|(_, _, done)| done.code == Some(0));
        assert_eq!(won.len(), 1, "{dir}: {ended:#?}");
        for (_, name, done) in lost {
            assert!(done.err.contains(&won[0].1), "{name} learns the owner of {dir}: {done:?}");
        }
    }
    check_nothing_left(&world);
}
