//! A job's state is what its log says, and a log can only move it by the table.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use minke_record::{Chain, Entry, JobState};
use minke_thread::{Mandate, Restart, Schedule, Summary, may_move};
use serde_json::{Value, json};

const SESSION: &str = "01970000-0000-7000-8000-000000000001";
const RUN: &str = "01970000-0000-7000-8000-0000000000aa";
/// How many random logs, and how long each is.
const LOGS: u64 = 400;
const ENTRIES: usize = 80;

fn start(mandate: Value) -> Value {
    json!({"kind": "session_start", "session": SESSION, "format": 1, "version": "0", "name": "job",
        "created_by": {"actor": "person", "surface": "cli"}, "cwd": "/w", "workspace": "/w", "manifest": {},
        "scope": {"allow": []}, "mandate": mandate})
}

fn entry(seq: u64, kind: &Value) -> Entry {
    let of_run = matches!(kind["kind"].as_str().unwrap(), "invoke" | "run_completed" | "run_errored");
    let mut line = kind.clone();
    let members = line.as_object_mut().unwrap();
    if of_run {
        members.insert("run".to_owned(), json!(RUN));
    }
    members.insert("seq".to_owned(), json!(seq));
    members.insert("ts".to_owned(), json!(1_000 * seq));
    members.insert("h".to_owned(), json!(Chain::default()));
    serde_json::from_value(line).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

fn told(mandate: Value, kinds: &[Value]) -> Summary {
    let kinds: Vec<Value> = std::iter::once(start(mandate)).chain(kinds.iter().cloned()).collect();
    let entries: Vec<Entry> = kinds.iter().zip(0..).map(|(kind, seq)| entry(seq, kind)).collect();
    Summary::of(&entries)
}

fn invoke() -> Value {
    json!({"kind": "invoke", "trigger": "job", "by": {"actor": "job"}, "attempt": 1})
}

fn end(result: &str) -> Value {
    json!({"kind": "run_completed", "result": result})
}

fn failed(retryable: bool) -> Value {
    json!({"kind": "run_errored", "code": "provider_error", "message": "busy", "retryable": retryable})
}

fn state(word: &str, by: &str) -> Value {
    json!({"kind": "state", "state": word, "on": "time", "until": 99_000, "by": {"actor": by}})
}

fn accepted(code: i32) -> Value {
    json!({"kind": "tool_result", "item": {"kind": "tool_result", "call_id": "accept_0",
        "summary": format!("$ make (exit {code})"), "is_error": false}, "outcome": "done", "by": {"actor": "job"}})
}

fn at(kinds: &[Value]) -> JobState {
    told(json!({"objective": "x", "retry": {"max": 1}}), kinds).job.unwrap().state
}

#[test]
fn a_run_moves_its_job() {
    use JobState::{Cancelled, Completed, Failed, Interrupted, Paused, Queued, Running, Waiting};
    assert_eq!(at(&[]), Queued);
    assert_eq!(at(&[invoke()]), Running);
    for (result, job) in [
        ("finished", Completed),
        ("paused", Paused),
        ("interrupted", Interrupted),
        ("cancelled", Cancelled),
        ("rolled_back", Cancelled),
        ("limit_reached", Failed),
        ("a word of a later version", Paused),
    ] {
        assert_eq!(at(&[invoke(), end(result)]), job, "{result}");
    }
    assert_eq!(at(&[invoke(), failed(false)]), Failed);
    assert_eq!(at(&[invoke(), failed(true)]), Waiting);
    assert_eq!(at(&[invoke(), failed(true), invoke(), failed(true)]), Failed, "one retry is allowed");
    assert_eq!(at(&[state("paused", "person")]), Paused);
    assert_eq!(at(&[state("abandoned", "person")]), Cancelled);
    assert_eq!(at(&[state("abandoned", "minke")]), Failed, "nobody gave it up: its time was over");
    assert_eq!(at(&[invoke(), end("finished"), invoke(), end("cancelled")]), Completed, "final is final");
}

#[test]
fn retries_and_their_times_are_counted() {
    let job = told(
        json!({"objective": "x", "retry": {"max": 2}}),
        &[invoke(), failed(true), state("waiting", "job")],
    );
    let job = job.job.unwrap();
    assert_eq!((job.state, job.until, job.retries, job.failed), (JobState::Waiting, Some(99_000), 0, true));
    let phases: Vec<String> = job
        .history
        .iter()
        .map(|item| serde_json::to_value(item.phase).unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(phases, ["created", "running", "failed"]);
    assert_eq!(job.history.back().unwrap().until, Some(99_000));
}

#[test]
fn the_acceptance_command_has_the_last_word() {
    let mandate = || json!({"objective": "x", "acceptance": "make", "retry": {"max": 1}});
    let job = |kinds: &[Value]| told(mandate(), kinds).job.unwrap();
    let finished = [invoke(), end("finished")];
    assert!(job(&finished).accepting);
    let with = |code| [finished.as_slice(), &[accepted(code)]].concat();
    assert_eq!(job(&with(0)).state, JobState::Completed);
    let no = job(&with(2));
    assert_eq!((no.state, no.rejected.unwrap().summary.as_str()), (JobState::Waiting, "$ make (exit 2)"));
    // Somebody else's call of that name says nothing.
    let mut other = accepted(0);
    other["by"] = json!({"actor": "person"});
    assert!(job(&[finished.as_slice(), &[other]].concat()).accepting);
}

#[test]
fn what_cannot_be_read_needs_attention() {
    let job = told(json!({"objective": 7}), &[]).job.unwrap();
    assert_eq!(job.state, JobState::Paused);
    assert!(job.detail.unwrap().starts_with("needs attention"));
    assert_eq!(told(json!({"budget": {"tokens": 5}}), &[]).job, None, "what a parent allows is no job");
}

#[test]
fn every_log_moves_a_job_by_the_table() {
    let choices = [
        invoke(),
        end("finished"),
        end("paused"),
        end("interrupted"),
        end("cancelled"),
        failed(true),
        failed(false),
        state("paused", "person"),
        state("queued", "minke"),
        state("working", "person"),
        state("waiting", "job"),
        accepted(0),
        accepted(1),
        json!({"kind": "progress", "percent": 250.0, "note": "much"}),
    ];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..LOGS {
        let mandate = json!({"objective": "x", "retry": {"max": number % 4},
            "acceptance": (number % 2 == 0).then_some("make")});
        let mut kinds = Vec::new();
        let mut before: Option<minke_record::JobFacts> = None;
        for _ in 0..ENTRIES {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            kinds.push(choices[usize::try_from(dice % choices.len() as u64).unwrap()].clone());
            let job = told(mandate.clone(), &kinds).job.unwrap();
            if let Some(before) = &before {
                let moved = before.state != job.state;
                assert!(!moved || may_move(before.state, job.state).is_ok(), "{before:?} to {job:?}");
                assert!(job.retries <= job.max, "{job:?}");
                assert!(job.percent <= 100 && job.history.len() <= 64);
                seen.insert((before.state, job.state));
            }
            let done = job.state.is_final();
            before = Some(job);
            if done {
                break;
            }
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}

#[test]
fn a_mandate_is_checked_when_it_is_asked_for() {
    let refused = |value: Value| Mandate::asked(&value).unwrap_err();
    assert!(refused(json!([])).contains("an object"));
    assert!(refused(json!({})).contains("objective"));
    assert!(refused(json!({"objective": "  "})).contains("empty"));
    assert!(refused(json!({"objective": "x", "retries": 3})).contains("`retries`"));
    assert!(refused(json!({"objective": "x", "retry": {"maximum": 3}})).contains("maximum"));
    assert!(refused(json!({"objective": "x", "restart": "often"})).contains("often"));
    for wrong in [json!([" "]), json!("me"), json!([3]), json!({})] {
        let why = refused(json!({"objective": "x", "notify": wrong}));
        assert!(why.contains("`notify`"), "{why}");
    }
    assert!(refused(json!({"objective": "x", "notify": vec!["me"; 65]})).contains("at most 64"));
    assert_eq!(Mandate::asked(&json!({"objective": "x", "notify": ["me"]})).unwrap().notify, ["me"]);
    assert!(refused(json!({"objective": "x".repeat(2 << 20)})).contains("bytes"));
    let mandate = Mandate::asked(&json!({"objective": "x", "restart": "never", "deadline": 12})).unwrap();
    assert_eq!((mandate.restart, mandate.deadline()), (Restart::Never, Some(12_000)));
    let kept = json!({"objective": "x", "schedule": {"cron": "0 3 * * *", "tz": "Europe/Berlin"}});
    let kept = Mandate::read(Some(&kept)).unwrap().unwrap();
    assert!(matches!(kept.schedule, Some(Schedule::Cron { .. })));
}
