//! Streams that break off where nothing of the reply can be kept, and replies that are no answer: the documented outcome
//! in all four wire formats.

use serde_json::Value;

use crate::front::{Front, Manner};
use crate::wired::{MODELS, Wired, ends, log, point};
use crate::world::{Done, World};

/// Requests of one turn: the first one and its continuations.
const REQUESTS: usize = 4;
/// The exit code of a provider that brought no reply, and of a reply that was refused.
const PROVIDER: Option<i32> = Some(5);
const REFUSED: Option<i32> = Some(6);

const THINKING: &str =
    "[[turn]]\nthinking = ['First ', 'BREAK', ' lost']\n[[turn]]\nexpect = ''\ntext = 'never'";

/// A reply that thinks and answers; the word is in the middle of its thinking.
const ANSWER: &str = "[[turn]]\nthinking = ['First ', 'BREAK', ' lost']\ntext = 'The answer.'";

/// A reply with one call; the word is in the middle of its arguments.
const CALL: &str = "[[turn]]\n[[turn.call]]\ntool = 'Bash'\nargs = { command = 'touch aaaaaaaaaaaaaaaaaaaaBREAKbbbb' }\n\
                    [[turn]]\ntext = 'The answer.'";

/// A run against a mock behind connections that break.
fn run(model: &str, script: &str, manners: &'static [Manner]) -> (Done, Vec<Value>, Front, World) {
    let wired = Wired::new(script);
    let front = Front::before(Some(wired.address()), manners);
    let world = World::new();
    let mut command = world.command();
    point(&mut command, &front.base);
    command.args(["exec", "--posture", "full", "--model", model, "hello"]);
    let done = world.done(command);
    let log = log(&world);
    (done, log, front, world)
}

fn outcomes(log: &[Value]) -> Vec<&str> {
    log.iter()
        .filter(|entry| entry["kind"] == "llm_end")
        .map(|entry| entry["outcome"].as_str().unwrap())
        .collect()
}

#[test]
fn three_breaks_inside_thinking_are_made_good() {
    const MANNERS: &[Manner] =
        &[Manner::CloseAt("BREAK"), Manner::ResetAt("BREAK"), Manner::CloseAt("BREAK"), Manner::Forward];
    for model in MODELS {
        let (done, log, front, _world) = run(model, ANSWER, MANNERS);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "The answer.\n"), "{model}: {done:?}");
        assert_eq!(outcomes(&log), ["broken", "broken", "broken", "done"], "{model}");
        assert_eq!((ends(&log).len(), front.connections()), (1, REQUESTS), "{model}");
    }
}

#[test]
fn the_fourth_break_in_a_turn_fails_the_run() {
    for model in MODELS {
        let (done, log, front, _world) = run(model, THINKING, &[Manner::CloseAt("BREAK")]);
        assert_eq!(done.code, PROVIDER, "{model}: {done:?}");
        assert_eq!(outcomes(&log), ["broken"; REQUESTS], "{model}");
        assert_eq!(front.connections(), REQUESTS, "{model}");
        let ends = ends(&log);
        assert_eq!((ends.len(), &ends[0]["code"]), (1, &"provider_error".into()), "{model}: {ends:?}");
        assert_eq!(ends[0]["retryable"], true, "{model}: {ends:?}");
    }
}

#[test]
fn breaks_inside_the_only_call_are_made_good_and_it_runs_once() {
    const MANNERS: &[Manner] = &[Manner::ResetAt("BREAK"), Manner::CloseAt("BREAK"), Manner::Forward];
    for model in MODELS {
        let (done, log, front, world) = run(model, CALL, MANNERS);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "The answer.\n"), "{model}: {done:?}");
        // Two that broke, the call, and what follows it; the last two share a connection.
        let attempts: u64 = log.iter().filter_map(|entry| entry["attempts"].as_u64()).sum();
        assert_eq!((ends(&log).len(), attempts, front.connections()), (1, 4, 3), "{model}");
        let dispatched = log.iter().filter(|entry| entry["kind"] == "tool_dispatch").count();
        assert_eq!(dispatched, 1, "{model}");
        assert!(world.work().join("aaaaaaaaaaaaaaaaaaaaBREAKbbbb").exists(), "{model}");
    }
}

#[test]
fn a_refused_reply_is_an_outcome_in_every_format() {
    for stop in ["refusal", "content_filter"] {
        let wired = Wired::new(&format!("loop = true\n[[turn]]\ntext = 'Not this.'\nstop = '{stop}'"));
        for model in MODELS {
            let world = World::new();
            let exec = |json: &[&str]| {
                let mut command = world.command();
                point(&mut command, &format!("http://{}", wired.address()));
                command.args(["exec", "--model", model]).args(json).arg("hello");
                world.done(command)
            };
            let done = exec(&["--json"]);
            assert_eq!(done.code, REFUSED, "{model}, {stop}: {done:?}");
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
            let log = log(&world);
            let ends = ends(&log);
            assert_eq!((ends.len(), &ends[0]["code"]), (1, &"refused".into()), "{model}, {stop}: {ends:?}");
            assert_eq!(ends[0]["retryable"], false);
            let done = exec(&[]);
            assert_eq!(done.code, REFUSED, "{model}, {stop}: {done:?}");
            let said = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(reason), "{model}, {stop}: `{reason}` is not in: {said}");
        }
    }
}

#[test]
fn a_prompt_that_the_provider_refuses_is_the_same_outcome() {
    for model in MODELS {
        let wired = Wired::new("[[turn]]\nerror = { kind = 'refused', message = 'violence' }");
        let done = wired.exec(model, &["hello"]);
        assert_eq!(done.code, REFUSED, "{model}: {done:?}");
        assert!(done.err.contains("violence"), "{model}: {done:?}");
        assert_eq!(ends(&wired.log())[0]["code"], "refused", "{model}");
    }
}

#[test]
fn a_job_whose_reply_is_refused_fails_and_is_not_tried_again() {
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = 'Not this.'\nstop = 'refusal'");
    let args = ["job", "run", "do it", "--json", "--wait", "--model", "scripted:s.toml", "--retries", "3"];
    let done = world.run(&args);
    assert_eq!(done.code, Some(1), "{done:?}");
    let made: Value = serde_json::from_str(&done.out).unwrap();
    let job = &made["data"]["job"];
    assert_eq!((&job["status"], &job["retry"]["attempt"]), (&"failed".into(), &0.into()), "{job:#}");
    assert!(job["detail"].as_str().unwrap().contains("refused"), "{job:#}");
}
