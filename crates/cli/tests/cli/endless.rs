//! Models that never stop by themselves: they spawn, retry or repeat for ever. Real processes; what counts is in the logs.
//!
//! Elsewhere: the same decisions alone (`pod::budget`, the stories of budgets), the tree simulated (`testkit::tree`).
//! Invariant: each comes to its end at a limit, and at most one request of each leaf is over it
//! (`a_model_that_always_spawns_stops_at_depth_width_and_turns`, `a_model_that_always_calls_stops_at_what_it_was_granted`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::tree::{entries, nothing_is_left, of_kind, until, world};
use crate::world::{Done, UNFENCED, World};

/// Spends without end on something that always goes well.
const CALLS_FOR_EVER: &str = r#"
loop = true
[[turn]]
usage = { input = 900, output = 100, cost_usd = 0.5 }
[[turn.call]]
tool = "ListPods"
raw = "{}"
"#;
const TOKENS_OF_A_CALL: u64 = 1_000;
const DOLLARS_OF_A_CALL: f64 = 0.5;

fn exec(world: &World, extra: &[&str]) -> Done {
    let base = ["exec", "--name", "boss", "--model", "scripted:s.toml", "go"];
    world.run(&[&base[..], &UNFENCED[..], extra].concat())
}

fn requests(world: &World, session: &str) -> usize {
    of_kind(world, session, "llm_call").len()
}

/// What a session's own requests have used: tokens and dollars.
fn used(world: &World, session: &str) -> (u64, f64) {
    let usage = of_kind(world, session, "llm_usage");
    let tokens = usage.iter().map(|entry| count(&entry["input"]) + count(&entry["output"])).sum();
    (tokens, usage.iter().filter_map(|entry| entry["cost_usd"].as_f64()).sum())
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Every run that began has ended, and how the last one did.
fn how_it_ended(world: &World, session: &str) -> Value {
    let began = of_kind(world, session, "invoke").len();
    let ended: Vec<Value> = entries(world, session)
        .into_iter()
        .filter(|entry| entry["kind"] == "run_completed" || entry["kind"] == "run_errored")
        .collect();
    assert_eq!(ended.len(), began, "{session}: {ended:#?}");
    ended.last().cloned().unwrap_or_default()
}

#[test]
fn a_model_that_always_calls_stops_at_what_it_was_granted() {
    for (budget, most) in [("turns=4", 4), ("tokens=6k", 6), ("usd=1.2,tokens=1M", 3)] {
        let world = world(&[]);
        world.write("s.toml", CALLS_FOR_EVER);
        let done = exec(&world, &["--budget", budget]);
        assert_eq!(done.code, Some(4), "{budget}: {done:?}");
        assert_eq!(how_it_ended(&world, "boss")["result"], "limit_reached", "{budget}");
        let asked = requests(&world, "boss");
        assert!((1..=most).contains(&asked), "{budget}: {asked} requests");
        let (tokens, dollars) = used(&world, "boss");
        assert!(tokens <= 6 * TOKENS_OF_A_CALL, "{budget}: {tokens} tokens");
        assert!(dollars <= 1.2 + DOLLARS_OF_A_CALL || budget != "usd=1.2,tokens=1M", "{budget}: {dollars} $");
        nothing_is_left(&world);
    }
}

#[test]
fn a_model_that_repeats_what_fails_is_stopped() {
    let world = world(&[]);
    let script =
        "loop = true\n[[turn]]\n[[turn.call]]\ntool = \"Read\"\nraw = '''{\"file_path\":\"/nowhere\"}'''\n";
    world.write("s.toml", script);
    let done = exec(&world, &[]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert_eq!(how_it_ended(&world, "boss")["result"], "limit_reached");
    assert_eq!(requests(&world, "boss"), 10, "the tenth time is the last");
    nothing_is_left(&world);
}

#[test]
fn a_provider_that_always_fails_is_given_up() {
    let world = world(&[]);
    let script = "loop = true\n[[turn]]\nerror = { status = 529, message = \"overloaded\", retry_after_s = 0, times = 6 }\n";
    world.write("s.toml", script);
    let done = exec(&world, &["--budget", "tokens=100k"]);
    assert_eq!(done.code, Some(5), "{done:?}");
    assert_eq!(how_it_ended(&world, "boss")["kind"], "run_errored");
    assert_eq!(requests(&world, "boss"), 1, "retries belong to their request");
    let (tokens, _) = used(&world, "boss");
    assert!(tokens <= 100_000, "{tokens} tokens");
    nothing_is_left(&world);
}

/// Pods below one, live ones of one pod, requests of one pod.
const DEPTH: usize = 2;
const WIDTH: usize = 2;
const TURNS: usize = 6;
const TOKENS: u64 = 200_000;

/// Each pod spawns one more than it may, one level deeper than it may, and then goes on trying.
fn spawners(world: &World, name: &str, depth: usize, script: &mut String) {
    for number in 0..=WIDTH {
        let child = format!("{name}-{number}");
        let scope = json!([{ "target": world.work(), "permission": "read" }]);
        let call = json!({ "name": child, "task": "spawn", "scope": scope });
        let again = if number == WIDTH { "repeat = 1000\n" } else { "" };
        *script += &format!(
            "[[pod.{name}.turn]]\n{again}[[pod.{name}.turn.call]]\ntool = \"SpawnPod\"\nraw = '''{call}'''\n"
        );
        if depth < DEPTH + 1 {
            spawners(world, &child, depth + 1, script);
        }
    }
}

#[test]
fn a_model_that_always_spawns_stops_at_depth_width_and_turns() {
    let world = world(&[]);
    let mut script = String::new();
    spawners(&world, "boss", 0, &mut script);
    world.write("s.toml", &script);
    let limits = ["--set", "pod.limits.depth=2", "--set", "pod.limits.children=2"];
    let budget = format!("turns={TURNS},tokens={TOKENS}");
    let done = exec(&world, &[&limits[..], &["--budget", &budget]].concat());
    assert_eq!(done.code, Some(4), "{done:?}");
    until("nobody works any more", || {
        let rows = world.json(&["ps", "--json"]);
        rows.as_array()?.iter().all(|row| row["state"] == "idle").then_some(())
    });
    let sessions = world.json(&["log", "verify", "--json"]);
    let sessions: Vec<&str> =
        sessions["sessions"].as_array().unwrap().iter().filter_map(|row| row["id"].as_str()).collect();
    let bare = |id: &Value| id.as_str().unwrap_or_default().trim_start_matches("s_").to_owned();
    let starts: BTreeMap<String, Value> = sessions
        .iter()
        .map(|id| (bare(&json!(id)), of_kind(&world, id, "session_start").remove(0)))
        .collect();
    let parent = |id: &str| starts[id]["parent"]["session"].as_str().map(str::to_owned);
    let mut tokens = 0;
    let mut lived = 0;
    for id in starts.keys() {
        let above = std::iter::successors(parent(id), |above| parent(above)).count();
        // A session whose pod could not start stays, without one.
        let opened = of_kind(&world, id, "opened").iter().any(|entry| entry["as"] == "pod");
        lived += usize::from(opened);
        assert!(!opened || above <= DEPTH, "{} has {above} pods above it", starts[id]["name"]);
        let ready = of_kind(&world, id, "child").len();
        let failed = of_kind(&world, id, "child_end");
        let failed = failed.iter().filter(|entry| entry["outcome"] == "failed_to_start").count();
        assert!(ready - failed <= WIDTH, "{} has {} children", starts[id]["name"], ready - failed);
        assert!(requests(&world, id) <= TURNS, "{}: {} requests", starts[id]["name"], requests(&world, id));
        how_it_ended(&world, id);
        tokens += used(&world, id).0;
    }
    assert_eq!(lived, 1 + WIDTH + WIDTH * WIDTH, "the whole tree that is allowed, and nobody else");
    assert!(tokens <= TOKENS, "{tokens} tokens were used");
    nothing_is_left(&world);
}
