//! A job's state follows from its log, and each log changes it only by the table.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use minke_record::{ChainHash, Entry, JobState};
use minke_thread::{Mandate, RestartPolicy, Schedule, SessionSummary, check_transition};
use serde_json::{Value, json};

const SESSION: &str = "01970000-0000-7000-8000-000000000001";
const RUN: &str = "01970000-0000-7000-8000-0000000000aa";
/// Number of random logs and entries per log.
const LOG_COUNT: u64 = 400;
const ENTRIES_PER_LOG: usize = 80;

fn session_start(mandate: Value) -> Value {
    json!({"kind": "session_start", "session": SESSION, "format": 1, "version": "0", "name": "job",
        "created_by": {"actor": "person", "surface": "cli"}, "cwd": "/w", "workspace": "/w", "manifest": {},
        "scope": {"allow": []}, "mandate": mandate})
}

fn entry_at(seq: u64, kind: &Value) -> Entry {
    let of_run = matches!(kind["kind"].as_str().unwrap(), "invoke" | "run_completed" | "run_errored");
    let mut line = kind.clone();
    let members = line.as_object_mut().unwrap();
    if of_run {
        members.insert("run".to_owned(), json!(RUN));
    }
    members.insert("seq".to_owned(), json!(seq));
    members.insert("ts".to_owned(), json!(1_000 * seq));
    members.insert("h".to_owned(), json!(ChainHash::default()));
    serde_json::from_value(line).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

fn summary_of(mandate: Value, kinds: &[Value]) -> SessionSummary {
    let kinds: Vec<Value> = std::iter::once(session_start(mandate)).chain(kinds.iter().cloned()).collect();
    let entries: Vec<Entry> = kinds.iter().zip(0..).map(|(kind, seq)| entry_at(seq, kind)).collect();
    SessionSummary::from_entries(&entries)
}

fn invoke_entry() -> Value {
    json!({"kind": "invoke", "trigger": "job", "by": {"actor": "job"}, "attempt": 1})
}

fn run_completed(result: &str) -> Value {
    json!({"kind": "run_completed", "result": result})
}

fn run_errored(retryable: bool) -> Value {
    json!({"kind": "run_errored", "code": "provider_error", "message": "busy", "retryable": retryable})
}

fn state_change(word: &str, by: &str) -> Value {
    json!({"kind": "state", "state": word, "on": "time", "until": 99_000, "by": {"actor": by}})
}

fn acceptance_result(code: i32) -> Value {
    json!({"kind": "tool_result", "item": {"kind": "tool_result", "call_id": "accept_0",
        "summary": format!("$ make (exit {code})"), "is_error": false}, "outcome": "done", "by": {"actor": "job"}})
}

fn state_after(kinds: &[Value]) -> JobState {
    summary_of(json!({"objective": "x", "retry": {"max": 1}}), kinds).job.unwrap().state
}

#[test]
fn a_run_moves_its_job() {
    use JobState::{Cancelled, Completed, Failed, Interrupted, Paused, Queued, Running, Waiting};
    assert_eq!(state_after(&[]), Queued);
    assert_eq!(state_after(&[invoke_entry()]), Running);
    for (result, job) in [
        ("finished", Completed),
        ("paused", Paused),
        ("interrupted", Interrupted),
        ("cancelled", Cancelled),
        ("rolled_back", Cancelled),
        ("limit_reached", Failed),
        ("a word of a later version", Paused),
    ] {
        assert_eq!(state_after(&[invoke_entry(), run_completed(result)]), job, "{result}");
    }
    assert_eq!(state_after(&[invoke_entry(), run_errored(false)]), Failed);
    assert_eq!(state_after(&[invoke_entry(), run_errored(true)]), Waiting);
    assert_eq!(
        state_after(&[invoke_entry(), run_errored(true), invoke_entry(), run_errored(true)]),
        Failed,
        "one retry is allowed"
    );
    assert_eq!(state_after(&[state_change("paused", "person")]), Paused);
    assert_eq!(state_after(&[state_change("abandoned", "person")]), Cancelled);
    assert_eq!(
        state_after(&[state_change("abandoned", "minke")]),
        Failed,
        "Minke abandoned it at its deadline"
    );
    assert_eq!(
        state_after(&[invoke_entry(), run_completed("finished"), invoke_entry(), run_completed("cancelled")]),
        Completed,
        "final is final"
    );
}

#[test]
fn retries_and_their_times_are_counted() {
    let job = summary_of(
        json!({"objective": "x", "retry": {"max": 2}}),
        &[invoke_entry(), run_errored(true), state_change("waiting", "job")],
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
    let job = |kinds: &[Value]| summary_of(mandate(), kinds).job.unwrap();
    let finished = [invoke_entry(), run_completed("finished")];
    assert!(job(&finished).accepting);
    let with = |code| [finished.as_slice(), &[acceptance_result(code)]].concat();
    assert_eq!(job(&with(0)).state, JobState::Completed);
    let no = job(&with(2));
    assert_eq!((no.state, no.rejected.unwrap().summary.as_str()), (JobState::Waiting, "$ make (exit 2)"));
    // A client's call with this name does not count.
    let mut other = acceptance_result(0);
    other["by"] = json!({"actor": "person"});
    assert!(job(&[finished.as_slice(), &[other]].concat()).accepting);
}

#[test]
fn what_cannot_be_read_needs_attention() {
    let job = summary_of(json!({"objective": 7}), &[]).job.unwrap();
    assert_eq!(job.state, JobState::Paused);
    assert!(job.detail.unwrap().starts_with("needs attention"));
    assert_eq!(
        summary_of(json!({"budget": {"tokens": 5}}), &[]).job,
        None,
        "limits of a parent are not a job"
    );
}

#[test]
fn every_log_moves_a_job_by_the_table() {
    let choices = [
        invoke_entry(),
        run_completed("finished"),
        run_completed("paused"),
        run_completed("interrupted"),
        run_completed("cancelled"),
        run_errored(true),
        run_errored(false),
        state_change("paused", "person"),
        state_change("queued", "minke"),
        state_change("working", "person"),
        state_change("waiting", "job"),
        acceptance_result(0),
        acceptance_result(1),
        json!({"kind": "progress", "percent": 250.0, "note": "much"}),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..LOG_COUNT {
        let mandate = json!({"objective": "x", "retry": {"max": number % 4},
            "acceptance": (number % 2 == 0).then_some("make")});
        let mut kinds = Vec::new();
        let mut before: Option<minke_record::JobFacts> = None;
        for _ in 0..ENTRIES_PER_LOG {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            kinds.push(choices[usize::try_from(random % choices.len() as u64).unwrap()].clone());
            let job = summary_of(mandate.clone(), &kinds).job.unwrap();
            if let Some(before) = &before {
                let moved = before.state != job.state;
                assert!(!moved || check_transition(before.state, job.state).is_ok(), "{before:?} to {job:?}");
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
    let refused = |value: Value| Mandate::from_request(&value).unwrap_err();
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
    assert_eq!(Mandate::from_request(&json!({"objective": "x", "notify": ["me"]})).unwrap().notify, ["me"]);
    assert!(refused(json!({"objective": "x".repeat(2 << 20)})).contains("bytes"));
    let mandate =
        Mandate::from_request(&json!({"objective": "x", "restart": "never", "deadline": 12})).unwrap();
    assert_eq!((mandate.restart, mandate.deadline_ms()), (RestartPolicy::Never, Some(12_000)));
    let kept = json!({"objective": "x", "schedule": {"cron": "0 3 * * *", "tz": "Europe/Berlin"}});
    let kept = Mandate::from_value(Some(&kept)).unwrap().unwrap();
    assert!(matches!(kept.schedule, Some(Schedule::Cron { .. })));
}
