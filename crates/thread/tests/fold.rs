//! Logs and their summaries.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use minke_record::{ChainHash, Entry, WaitingOn};
use minke_thread::{NEW_CONVERSATION, SessionSummary, ThreadSource, ThreadStatus};
use serde_json::{Value, json};

const RUN: &str = "01a1e000-0000-7000-8000-000000000001";
const SESSION: &str = "01a1e000-0000-7000-8000-0000000000aa";

/// Builds a log from entries, one second apart. An entry with `in_run` belongs to the run.
fn entries_of(kinds: &[Value]) -> Vec<Entry> {
    let entry = |(seq, kind): (usize, &Value)| {
        let mut line = kind.clone();
        let members = line.as_object_mut().unwrap();
        if members.remove("in_run").is_some() {
            members.insert("run".to_owned(), json!(RUN));
        }
        members.insert("seq".to_owned(), json!(seq));
        members.insert("ts".to_owned(), json!(1_000_000 + seq * 1_000));
        members.insert("h".to_owned(), json!(ChainHash::default()));
        serde_json::from_value(line).unwrap()
    };
    kinds.iter().enumerate().map(entry).collect()
}

fn session_start(more: &Value) -> Value {
    let mut start = json!({
        "kind": "session_start", "session": SESSION, "format": 1, "version": "0.1.0", "name": "tale",
        "created_by": {"actor": "person"}, "cwd": "/p", "workspace": "/p",
        "manifest": {"permissions": {"posture": "ask"}, "model": {"ref": "scripted/demo"}}, "scope": {"allow": []},
    });
    let members = start.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    start
}

fn invoke_entry() -> Value {
    json!({"kind": "invoke", "trigger": "user_send", "by": {"actor": "person"}, "attempt": 1, "in_run": true})
}

fn user_input(text: &str) -> Value {
    let segments = json!([{"kind": "text", "content": text}]);
    json!({"kind": "user_input", "segments": segments, "from": {"actor": "person"}, "in_run": true})
}

fn llm_call() -> Value {
    let route = json!({"provider": "first", "model": "m1", "scheme": "scripted"});
    json!({"kind": "llm_call", "call": 0, "turn": 0, "purpose": "turn", "route": route, "request_hash": "", "builder": 1,
        "reserved": {"input": 1, "output": 1}, "in_run": true})
}

fn llm_reply() -> Vec<Value> {
    let reply = json!({"kind": "message", "role": "assistant", "content": [{"kind": "text", "text": "yes"}]});
    vec![
        json!({"kind": "assistant_item", "call": 0, "item": reply, "in_run": true}),
        json!({"kind": "llm_usage", "call": 0, "input": 10, "output": 5, "cost_usd": 0.25, "in_run": true}),
        json!({"kind": "llm_end", "call": 0, "outcome": "done", "attempts": 1, "in_run": true}),
    ]
}

fn run_completed(result: &str) -> Value {
    json!({"kind": "run_completed", "result": result, "in_run": true})
}

fn open_ask() -> Value {
    json!({"kind": "ask", "id": "01a1e000-0000-7000-8000-0000000000bb", "ask": "approval",
        "subject": {"digest": "d"}, "options": [], "in_run": true})
}

fn tool_dispatch(own: bool) -> Value {
    json!({"kind": "tool_dispatch", "call_id": "c1", "tool": "Any", "class": "once", "action": {}, "own": own,
        "verdict": {"outcome": "allow", "rule": "", "layer": "", "reason": "", "sandbox": ""}, "in_run": true})
}

fn full_log() -> Vec<Entry> {
    let mut kinds = vec![session_start(&json!({})), invoke_entry(), user_input("fix it"), llm_call()];
    kinds.extend(llm_reply());
    kinds.extend([tool_dispatch(true), open_ask(), run_completed("interrupted")]);
    kinds.push(json!({"kind": "renamed", "name": "saga", "by": {"actor": "person"}}));
    kinds.push(json!({"kind": "config_changed", "key": "permissions.posture", "value": "auto", "by": {"actor": "person"}}));
    kinds.push(json!({"kind": "archived", "by": {"actor": "person"}}));
    entries_of(&kinds)
}

#[test]
fn a_kept_summary_goes_on_as_if_it_had_read_everything() {
    let entries = full_log();
    let whole = SessionSummary::from_entries(&entries);
    for at in 0..=entries.len() {
        let kept = serde_json::to_string(&SessionSummary::from_entries(entries.iter().take(at))).unwrap();
        let mut summary: SessionSummary = serde_json::from_str(&kept).unwrap();
        // Earlier entries are applied again: a reader may start anywhere.
        for entry in &entries {
            summary.apply_entry(entry);
        }
        assert_eq!(summary, whole, "kept after {at} entries");
    }
}

#[test]
fn the_object_has_what_the_log_says() {
    let thread =
        SessionSummary::from_entries(&full_log()).thread_object(false, Some("/data/x".to_owned())).unwrap();
    let json = serde_json::to_value(&thread).unwrap();
    assert_eq!(json["id"], format!("s_{SESSION}"));
    assert_eq!((&json["name"], &json["preview"]), (&json!("saga"), &json!("fix it")));
    assert_eq!((&json["model_provider"], &json["model"]), (&json!("first"), &json!("m1")));
    assert_eq!((&json["approval_mode"], &json["sandbox"]), (&json!("auto"), &json!("scope")));
    assert_eq!((&json["last_result"], &json["source"]), (&json!("interrupted"), &json!("interactive")));
    assert_eq!((&json["archived"], &json["archived_at"]), (&json!(true), &json!(1_012)));
    assert_eq!((&json["created_at"], &json["updated_at"]), (&json!(1_000), &json!(1_012)));
    assert_eq!((&json["usage"]["input"], &json["usage"]["cost_usd"]), (&json!(10), &json!(0.25)));
    assert!(json.get("git").is_none() && json.get("parent").is_none(), "missing values are absent: {json:#}");
    assert!(SessionSummary::default().thread_object(true, None).is_none());
    let fresh = SessionSummary::from_entries(&entries_of(&[session_start(&json!({}))]))
        .thread_object(false, None)
        .unwrap();
    assert_eq!((fresh.preview.as_str(), fresh.model.as_str()), (NEW_CONVERSATION, "demo"));
}

#[test]
fn a_status_is_the_first_that_fits() {
    use ThreadStatus::{Idle, Interrupted, Paused, Running, Waiting};
    let begun = || vec![session_start(&json!({})), invoke_entry(), user_input("go")];
    let with = |more: Vec<Value>| begun().into_iter().chain(more).collect::<Vec<_>>();
    let waits =
        json!({"kind": "state", "state": "waiting", "on": "time", "until": 5_000_000, "in_run": true});
    let works = json!({"kind": "state", "state": "working", "in_run": true});
    let given_up = json!({"kind": "state", "state": "abandoned", "reason": "no more"});
    let rows = [
        ("nothing yet", vec![session_start(&json!({}))], Idle, Idle),
        ("a run", begun(), Running, Interrupted),
        ("a request", with(vec![llm_call()]), Running, Interrupted),
        ("a question", with(vec![open_ask()]), Waiting, Waiting),
        ("a question beside a command", with(vec![tool_dispatch(false), open_ask()]), Running, Interrupted),
        ("waits for a child", with(vec![tool_dispatch(true)]), Waiting, Waiting),
        ("waits for a time", with(vec![waits.clone()]), Waiting, Waiting),
        ("waited", with(vec![waits.clone(), works]), Running, Interrupted),
        ("a death while it waited", with(vec![waits, run_completed("interrupted")]), Waiting, Waiting),
        ("a death", with(vec![tool_dispatch(false), run_completed("interrupted")]), Paused, Interrupted),
        ("a pause", with(vec![run_completed("paused")]), Paused, Paused),
        ("a pause that was given up", with(vec![run_completed("paused"), given_up]), Idle, Idle),
        ("an end", with(vec![run_completed("finished")]), Idle, Idle),
    ];
    for (what, kinds, held, free) in rows {
        let summary = SessionSummary::from_entries(&entries_of(&kinds));
        assert_eq!((summary.thread_status(true), summary.thread_status(false)), (held, free), "{what}");
    }
    let asks = SessionSummary::from_entries(&entries_of(&with(vec![open_ask()])));
    assert_eq!((asks.thread_wait().unwrap().on, asks.open_ask_count()), (WaitingOn::Ask, 1));
}

#[test]
fn a_source_is_where_the_session_came_from() {
    let parent = json!({"parent": {"session": SESSION, "call_id": "c1"}});
    let fork = json!({"from": {"session": SESSION, "seq": 1, "h": ChainHash::default()}, "mandate": {}});
    let host = json!({"created_by": {"actor": "person", "surface": "host"}});
    for (more, source) in [
        (json!({}), ThreadSource::Interactive),
        (parent, ThreadSource::Pod),
        (fork, ThreadSource::Fork),
        (json!({"mandate": {"objective": "x"}}), ThreadSource::Job),
        (host, ThreadSource::Api),
        (json!({"created_by": {"actor": "hook"}}), ThreadSource::Unknown),
    ] {
        assert_eq!(
            SessionSummary::from_entries(&entries_of(&[session_start(&more)])).thread_source(),
            source,
            "{more}"
        );
    }
    assert_eq!(SessionSummary::default().thread_source(), ThreadSource::Unknown);
}
