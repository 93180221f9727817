//! Streams that break off before any part of the reply is usable, and replies without content: the documented
//! outcome in all four wire formats.

use serde_json::Value;

use crate::providers::faulty_proxy::{FaultyProxy, ProxyBehavior};
use crate::support::mock_world::{MockWorld, WIRE_MODELS, only_session_log, point_providers, run_ends};
use crate::support::world::{CliWorld, CommandResult};

/// Requests of one turn: the first one and its continuations.
const REQUESTS_PER_TURN: usize = 4;
/// Exit codes for a provider error and for a refused reply.
const EXIT_PROVIDER: Option<i32> = Some(5);
const EXIT_REFUSED: Option<i32> = Some(6);

const THINKING_ERROR: &str =
    "[[turn]]\nthinking = ['First ', 'BREAK', ' lost']\n[[turn]]\nexpect = ''\ntext = 'never'";

/// A reply with thinking and text; the break is in the middle of its thinking.
const ANSWER_SCRIPT: &str = "[[turn]]\nthinking = ['First ', 'BREAK', ' lost']\ntext = 'The answer.'";

/// A reply with one call; the break is in the middle of its arguments.
const CALL_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = 'Bash'\nargs = { command = 'touch aaaaaaaaaaaaaaaaaaaaBREAKbbbb' }\n\
                    [[turn]]\ntext = 'The answer.'";

/// Runs against a mock behind a proxy that breaks connections.
fn run_behind_proxy(
    model: &str,
    script: &str,
    manners: &'static [ProxyBehavior],
) -> (CommandResult, Vec<Value>, FaultyProxy, CliWorld) {
    let wired = MockWorld::with_script(script);
    let front = FaultyProxy::start_before(Some(wired.mock_address()), manners);
    let world = CliWorld::new();
    let mut command = world.minke_command();
    point_providers(&mut command, &front.base);
    command.args(["exec", "--posture", "full", "--model", model, "hello"]);
    let done = world.run_command(command);
    let log = only_session_log(&world);
    (done, log, front, world)
}

fn request_outcomes(log: &[Value]) -> Vec<&str> {
    log.iter()
        .filter(|entry| entry["kind"] == "llm_end")
        .map(|entry| entry["outcome"].as_str().unwrap())
        .collect()
}

#[test]
fn three_breaks_inside_thinking_are_made_good() {
    const MANNERS: &[ProxyBehavior] = &[
        ProxyBehavior::CloseAt("BREAK"),
        ProxyBehavior::ResetAt("BREAK"),
        ProxyBehavior::CloseAt("BREAK"),
        ProxyBehavior::Forward,
    ];
    for model in WIRE_MODELS {
        let (done, log, front, _world) = run_behind_proxy(model, ANSWER_SCRIPT, MANNERS);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "The answer.\n"), "{model}: {done:?}");
        assert_eq!(request_outcomes(&log), ["broken", "broken", "broken", "done"], "{model}");
        assert_eq!((run_ends(&log).len(), front.connection_count()), (1, REQUESTS_PER_TURN), "{model}");
    }
}

#[test]
fn the_fourth_break_in_a_turn_fails_the_run() {
    for model in WIRE_MODELS {
        let (done, log, front, _world) =
            run_behind_proxy(model, THINKING_ERROR, &[ProxyBehavior::CloseAt("BREAK")]);
        assert_eq!(done.code, EXIT_PROVIDER, "{model}: {done:?}");
        assert_eq!(request_outcomes(&log), ["broken"; REQUESTS_PER_TURN], "{model}");
        assert_eq!(front.connection_count(), REQUESTS_PER_TURN, "{model}");
        let ends = run_ends(&log);
        assert_eq!((ends.len(), &ends[0]["code"]), (1, &"provider_error".into()), "{model}: {ends:?}");
        assert_eq!(ends[0]["retryable"], true, "{model}: {ends:?}");
    }
}

#[test]
fn breaks_inside_the_only_call_are_made_good_and_it_runs_once() {
    const MANNERS: &[ProxyBehavior] =
        &[ProxyBehavior::ResetAt("BREAK"), ProxyBehavior::CloseAt("BREAK"), ProxyBehavior::Forward];
    for model in WIRE_MODELS {
        let (done, log, front, world) = run_behind_proxy(model, CALL_SCRIPT, MANNERS);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "The answer.\n"), "{model}: {done:?}");
        // Two broken requests, the call, and the request after it; the last two share a connection.
        let attempts: u64 = log.iter().filter_map(|entry| entry["attempts"].as_u64()).sum();
        assert_eq!((run_ends(&log).len(), attempts, front.connection_count()), (1, 4, 3), "{model}");
        let dispatched = log.iter().filter(|entry| entry["kind"] == "tool_dispatch").count();
        assert_eq!(dispatched, 1, "{model}");
        assert!(world.work_dir().join("aaaaaaaaaaaaaaaaaaaaBREAKbbbb").exists(), "{model}");
    }
}

#[test]
fn a_refused_reply_is_an_outcome_in_every_format() {
    for stop in ["refusal", "content_filter"] {
        let wired =
            MockWorld::with_script(&format!("loop = true\n[[turn]]\ntext = 'Not this.'\nstop = '{stop}'"));
        for model in WIRE_MODELS {
            let world = CliWorld::new();
            let exec = |json: &[&str]| {
                let mut command = world.minke_command();
                point_providers(&mut command, &format!("http://{}", wired.mock_address()));
                command.args(["exec", "--model", model]).args(json).arg("hello");
                world.run_command(command)
            };
            let done = exec(&["--json"]);
            assert_eq!(done.code, EXIT_REFUSED, "{model}, {stop}: {done:?}");
            let lines: Vec<Value> =
                done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |kind: &str| lines.iter().find(|line| line["type"] == kind);
            assert_eq!(of("turn.failed").unwrap()["error"]["code"], "refused", "{model}, {stop}: {lines:#?}");
            let last = lines.last().unwrap();
            assert_eq!(
                (&last["type"], &last["result"]),
                (&"run.completed".into(), &"refused".into()),
                "{last}"
            );
            let reason = last["reason"].as_str().unwrap();
            assert!(reason.contains("refused") || reason.contains("filter"), "{model}, {stop}: {reason}");
            let log = only_session_log(&world);
            let ends = run_ends(&log);
            assert_eq!((ends.len(), &ends[0]["code"]), (1, &"refused".into()), "{model}, {stop}: {ends:?}");
            assert_eq!(ends[0]["retryable"], false);
            let done = exec(&[]);
            assert_eq!(done.code, EXIT_REFUSED, "{model}, {stop}: {done:?}");
            let said = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(reason), "{model}, {stop}: `{reason}` is not in: {said}");
        }
    }
}

#[test]
fn a_prompt_that_the_provider_refuses_is_the_same_outcome() {
    for model in WIRE_MODELS {
        let wired = MockWorld::with_script("[[turn]]\nerror = { kind = 'refused', message = 'violence' }");
        let done = wired.run_exec(model, &["hello"]);
        assert_eq!(done.code, EXIT_REFUSED, "{model}: {done:?}");
        assert!(done.err.contains("violence"), "{model}: {done:?}");
        assert_eq!(run_ends(&wired.session_log())[0]["code"], "refused", "{model}");
    }
}

#[test]
fn a_job_whose_reply_is_refused_fails_and_is_not_tried_again() {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = 'Not this.'\nstop = 'refusal'");
    let args = ["job", "run", "do it", "--json", "--wait", "--model", "scripted:s.toml", "--retries", "3"];
    let done = world.run_minke(&args);
    assert_eq!(done.code, Some(1), "{done:?}");
    let made: Value = serde_json::from_str(&done.out).unwrap();
    let job = &made["data"]["job"];
    assert_eq!((&job["status"], &job["retry"]["attempt"]), (&"failed".into(), &0.into()), "{job:#}");
    assert!(job["detail"].as_str().unwrap().contains("refused"), "{job:#}");
}
