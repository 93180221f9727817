//! Models that never stop: they spawn, retry or repeat forever. Real processes; the logs are checked.
//!
//! Elsewhere: the decisions alone (`pod::budget`, the budget stories), the simulated tree (`testkit::tree`).
//! Invariant: each ends at a limit, and at most one request of each leaf exceeds it
//! (`a_model_that_always_spawns_stops_at_depth_width_and_turns`,
//! `a_model_that_always_calls_stops_at_what_it_was_granted`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::world::{CliWorld, CommandResult, UNSANDBOXED};
use crate::trees::tree::{check_nothing_left, entries_of_kind, log_entries, wait_for, world_with_dirs};

/// Spends without end on a call that always succeeds.
const ENDLESS_SCRIPT: &str = r#"
loop = true
[[turn]]
usage = { input = 900, output = 100, cost_usd = 0.5 }
[[turn.call]]
tool = "ListPods"
raw = "{}"
"#;
const TOKENS_PER_CALL: u64 = 1_000;
const DOLLARS_PER_CALL: f64 = 0.5;

fn run_exec(world: &CliWorld, extra: &[&str]) -> CommandResult {
    let base = ["exec", "--name", "boss", "--model", "scripted:s.toml", "go"];
    world.run_minke(&[&base[..], &UNSANDBOXED[..], extra].concat())
}

fn count_requests(world: &CliWorld, session: &str) -> usize {
    entries_of_kind(world, session, "llm_call").len()
}

/// Returns the tokens and dollars of a session's own requests.
fn tokens_and_cost(world: &CliWorld, session: &str) -> (u64, f64) {
    let usage = entries_of_kind(world, session, "llm_usage");
    let tokens = usage.iter().map(|entry| as_count(&entry["input"]) + as_count(&entry["output"])).sum();
    (tokens, usage.iter().filter_map(|entry| entry["cost_usd"].as_f64()).sum())
}

fn as_count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Checks that every started run has ended, and returns the last end.
fn last_run_end(world: &CliWorld, session: &str) -> Value {
    let began = entries_of_kind(world, session, "invoke").len();
    let ended: Vec<Value> = log_entries(world, session)
        .into_iter()
        .filter(|entry| entry["kind"] == "run_completed" || entry["kind"] == "run_errored")
        .collect();
    assert_eq!(ended.len(), began, "{session}: {ended:#?}");
    ended.last().cloned().unwrap_or_default()
}

#[test]
fn a_model_that_always_calls_stops_at_what_it_was_granted() {
    for (budget, most) in [("turns=4", 4), ("tokens=6k", 6), ("usd=1.2,tokens=1M", 3)] {
        let world = world_with_dirs(&[]);
        world.write_file("s.toml", ENDLESS_SCRIPT);
        let done = run_exec(&world, &["--budget", budget]);
        assert_eq!(done.code, Some(4), "{budget}: {done:?}");
        assert_eq!(last_run_end(&world, "boss")["result"], "limit_reached", "{budget}");
        let asked = count_requests(&world, "boss");
        assert!((1..=most).contains(&asked), "{budget}: {asked} requests");
        let (tokens, dollars) = tokens_and_cost(&world, "boss");
        assert!(tokens <= 6 * TOKENS_PER_CALL, "{budget}: {tokens} tokens");
        assert!(dollars <= 1.2 + DOLLARS_PER_CALL || budget != "usd=1.2,tokens=1M", "{budget}: {dollars} $");
        check_nothing_left(&world);
    }
}

#[test]
fn a_model_that_repeats_what_fails_is_stopped() {
    let world = world_with_dirs(&[]);
    let script =
        "loop = true\n[[turn]]\n[[turn.call]]\ntool = \"Read\"\nraw = '''{\"file_path\":\"/nowhere\"}'''\n";
    world.write_file("s.toml", script);
    let done = run_exec(&world, &[]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert_eq!(last_run_end(&world, "boss")["result"], "limit_reached");
    assert_eq!(count_requests(&world, "boss"), 10, "the tenth time is the last");
    check_nothing_left(&world);
}

#[test]
fn a_provider_that_always_fails_is_given_up() {
    let world = world_with_dirs(&[]);
    let script = "loop = true\n[[turn]]\nerror = { status = 529, message = \"overloaded\", retry_after_s = 0, times = 6 }\n";
    world.write_file("s.toml", script);
    let done = run_exec(&world, &["--budget", "tokens=100k"]);
    assert_eq!(done.code, Some(5), "{done:?}");
    assert_eq!(last_run_end(&world, "boss")["kind"], "run_errored");
    assert_eq!(count_requests(&world, "boss"), 1, "retries belong to their request");
    let (tokens, _) = tokens_and_cost(&world, "boss");
    assert!(tokens <= 100_000, "{tokens} tokens");
    check_nothing_left(&world);
}

/// Pods below one, live children of one pod, requests of one pod.
const MAX_DEPTH: usize = 2;
const MAX_CHILDREN: usize = 2;
const MAX_TURNS: usize = 6;
const TOKEN_BUDGET: u64 = 200_000;

/// Each pod spawns one child more and one level deeper than allowed, and then keeps trying.
fn write_spawner_script(world: &CliWorld, name: &str, depth: usize, script: &mut String) {
    for number in 0..=MAX_CHILDREN {
        let child = format!("{name}-{number}");
        let scope = json!([{ "target": world.work_dir(), "permission": "read" }]);
        let call = json!({ "name": child, "task": "spawn", "scope": scope });
        let again = if number == MAX_CHILDREN { "repeat = 1000\n" } else { "" };
        *script += &format!(
            "[[pod.{name}.turn]]\n{again}[[pod.{name}.turn.call]]\ntool = \"SpawnPod\"\nraw = '''{call}'''\n"
        );
        if depth < MAX_DEPTH + 1 {
            write_spawner_script(world, &child, depth + 1, script);
        }
    }
}

#[test]
fn a_model_that_always_spawns_stops_at_depth_width_and_turns() {
    let world = world_with_dirs(&[]);
    let mut script = String::new();
    write_spawner_script(&world, "boss", 0, &mut script);
    world.write_file("s.toml", &script);
    let limits = ["--set", "pod.limits.depth=2", "--set", "pod.limits.children=2"];
    let budget = format!("turns={MAX_TURNS},tokens={TOKEN_BUDGET}");
    let done = run_exec(&world, &[&limits[..], &["--budget", &budget]].concat());
    assert_eq!(done.code, Some(4), "{done:?}");
    wait_for("all work has ended", || {
        let rows = world.run_json(&["ps", "--json"]);
        rows.as_array()?.iter().all(|row| row["state"] == "idle").then_some(())
    });
    let sessions = world.run_json(&["log", "verify", "--json"]);
    let sessions: Vec<&str> =
        sessions["sessions"].as_array().unwrap().iter().filter_map(|row| row["id"].as_str()).collect();
    let bare = |id: &Value| id.as_str().unwrap_or_default().trim_start_matches("s_").to_owned();
    let starts: BTreeMap<String, Value> = sessions
        .iter()
        .map(|id| (bare(&json!(id)), entries_of_kind(&world, id, "session_start").remove(0)))
        .collect();
    let parent = |id: &str| starts[id]["parent"]["session"].as_str().map(str::to_owned);
    let mut tokens = 0;
    let mut lived = 0;
    for id in starts.keys() {
        let above = std::iter::successors(parent(id), |above| parent(above)).count();
        // The session of a pod that could not start remains, without a pod.
        let opened = entries_of_kind(&world, id, "opened").iter().any(|entry| entry["as"] == "pod");
        lived += usize::from(opened);
        assert!(!opened || above <= MAX_DEPTH, "{} has {above} pods above it", starts[id]["name"]);
        let ready = entries_of_kind(&world, id, "child").len();
        let failed = entries_of_kind(&world, id, "child_end");
        let failed = failed.iter().filter(|entry| entry["outcome"] == "failed_to_start").count();
        assert!(ready - failed <= MAX_CHILDREN, "{} has {} children", starts[id]["name"], ready - failed);
        assert!(
            count_requests(&world, id) <= MAX_TURNS,
            "{}: {} requests",
            starts[id]["name"],
            count_requests(&world, id)
        );
        last_run_end(&world, id);
        tokens += tokens_and_cost(&world, id).0;
    }
    assert_eq!(lived, 1 + MAX_CHILDREN + MAX_CHILDREN * MAX_CHILDREN, "exactly the allowed tree");
    assert!(tokens <= TOKEN_BUDGET, "{tokens} tokens were used");
    check_nothing_left(&world);
}
