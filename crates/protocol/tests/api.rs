//! The format for API clients: objects of older clients are accepted, and each outcome produces its events in
//! the order of the table.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use minke_protocol::api::{
    ApiEvent, ApiFrame, ApprovalAnswer, ApprovalRequirement, CallDescription, InvokeResult, InvokeStatus,
    LegacyDecision, Precheck, ToolInvoke, build_precheck, fold_call_entries,
};
use minke_record::{Action, Ask, Decision, Entry, Judgement, Kind, LoggedBackend, PolicyVerdict, line};
use serde_json::{Value, json};

const GOLDEN: &str = include_str!("golden/api.jsonl");
const RUN: &str = "01970000-0000-7000-8000-000000000005";
const ASK: &str = "01970000-0000-7000-8000-00000000000a";
const RULE: &str = r#"{ action = "allow", command = "cargo test" }"#;

fn verdict_json(outcome: &str) -> Value {
    json!({ "outcome": outcome, "rule": "cargo publish", "layer": "user", "reason": "because", "sandbox": "namespaces" })
}

fn shell_action() -> Value {
    json!({ "command": "cargo test", "commands": ["cargo test"], "side_effects": true })
}

fn numbered_entries(kinds: &[Value]) -> Vec<Entry> {
    let entry = |(seq, kind): (usize, &Value)| {
        let mut object = json!({ "seq": seq, "ts": 1, "run": RUN, "h": "0".repeat(32) });
        object.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        line::parse_entry(&object.to_string()).unwrap_or_else(|e| panic!("{object}: {e}"))
    };
    kinds.iter().enumerate().map(entry).collect()
}

fn dispatch_json() -> Value {
    json!({ "kind": "tool_dispatch", "call_id": "c1", "tool": "Bash", "class": "once", "action": shell_action(),
        "verdict": verdict_json("allow") })
}

fn result_json(outcome: &str, text: &str, verdict: Option<Value>) -> Value {
    let item =
        json!({ "kind": "tool_result", "call_id": "c1", "summary": text, "is_error": outcome != "done" });
    let mut result = json!({ "kind": "tool_result", "item": item, "outcome": outcome });
    if let Some(verdict) = verdict {
        result["verdict"] = verdict;
    }
    result
}

fn ask_json(id: &str, always: Option<&str>) -> Value {
    let mut subject = json!({ "call_id": "c1", "digest": "d", "tool": "Bash", "cwd": "/w", "action": shell_action(),
        "verdict": verdict_json("ask") });
    let mut options = vec!["approved", "approved_for_session", "denied", "abort"];
    if let Some(rule) = always {
        subject["always"] = json!(rule);
        options.insert(2, "approved_rule");
    }
    json!({ "kind": "ask", "id": id, "ask": "approval", "subject": subject, "options": options })
}

fn answer_json(id: &str, decision: &str) -> Value {
    let by = json!({ "actor": "person", "surface": "t" });
    json!({ "kind": "answer", "id": id, "decision": decision, "by": by })
}

fn sample_call() -> CallDescription {
    CallDescription {
        call_id: "c1".into(),
        tool: "Bash".into(),
        arguments: r#"{"command":"cargo test"}"#.into(),
        cwd: "/w".into(),
    }
}

/// Returns one word per event, and the result.
fn event_words(kinds: &[Value]) -> (Vec<String>, Option<InvokeResult>) {
    let (told, fold) = fold_call_entries(sample_call(), &numbered_entries(kinds));
    let word = |event: &ApiEvent| match event {
        ApiEvent::ToolLifecycle { phase, .. } => phase.to_string(),
        ApiEvent::ApprovalLifecycle { phase, .. } => format!("approval {phase}"),
        ApiEvent::GenericEventFrame { frame } => json!(frame)["event"].as_str().unwrap().to_owned(),
    };
    (told.iter().map(|told| word(&told.event)).collect(), fold.invoke_result())
}

#[test]
fn each_outcome_comes_in_the_order_of_the_table() {
    let runs = ["tool_call_start", "dispatching", "tool_call_result", "completed"];
    let fails = ["tool_call_start", "dispatching", "error", "failed"];
    let asked = ["precheck", "approval requested", "exec_approval_request"];
    let rows: Vec<(Vec<Value>, Vec<&str>, &str)> = vec![
        (
            vec![result_json("refused", "no", Some(verdict_json("deny")))],
            vec!["precheck", "approval denied", "error"],
            "denied",
        ),
        (
            vec![dispatch_json(), result_json("done", "ok", None)],
            [&["precheck"][..], &runs].concat(),
            "completed",
        ),
        (
            vec![dispatch_json(), result_json("failed", "no", None)],
            [&["precheck"][..], &fails].concat(),
            "failed",
        ),
        (
            vec![dispatch_json(), result_json("timed_out", "late", None)],
            [&["precheck"][..], &fails].concat(),
            "timeout",
        ),
        (
            vec![dispatch_json(), result_json("cancelled", "-", None)],
            [&["precheck"][..], &fails].concat(),
            "cancelled",
        ),
        (
            vec![dispatch_json(), result_json("lost", "-", None)],
            [&["precheck"][..], &fails].concat(),
            "failed",
        ),
        (vec![ask_json(ASK, Some(RULE))], asked.to_vec(), "approval_required"),
        (
            vec![
                ask_json(ASK, None),
                answer_json(ASK, "approved"),
                dispatch_json(),
                result_json("done", "ok", None),
            ],
            [&asked[..], &["approval approved"], &runs].concat(),
            "completed",
        ),
        (
            vec![
                ask_json(ASK, None),
                answer_json(ASK, "denied"),
                result_json("refused", "no", Some(verdict_json("deny"))),
            ],
            [&asked[..], &["approval denied", "error"]].concat(),
            "denied",
        ),
        // The file has changed since the approval, so a new approval is required.
        (
            vec![
                ask_json(ASK, None),
                answer_json(ASK, "approved"),
                ask_json(RUN, None),
                answer_json(RUN, "abort"),
                result_json("cancelled", "-", None),
            ],
            [&asked[..], &["approval approved"], &asked, &["approval denied", "error"]].concat(),
            "cancelled",
        ),
        (
            vec![ask_json(ASK, None), result_json("cancelled", "-", None)],
            [&asked[..], &["approval denied", "error"]].concat(),
            "cancelled",
        ),
        (vec![result_json("invalid", "no", None)], vec!["error"], "failed"),
    ];
    for (kinds, order, status) in rows {
        let (quoted, result) = event_words(&kinds);
        assert_eq!(quoted, order);
        let result = result.unwrap();
        assert_eq!(result.status.as_str(), status);
        assert_eq!(result.ok, status == "completed");
        assert_eq!(result.approval_id.is_some(), status == "approval_required");
        let frames = quoted.iter().filter(|word| word.contains('_') || *word == "error").count();
        assert_eq!(result.events.len(), frames, "{quoted:?}");
    }
    assert_eq!(event_words(&[dispatch_json()]).1, None, "it is on its way");
    let other = json!({ "kind": "ask", "id": ASK, "ask": "approval", "subject": { "call_id": "c2", "digest": "d" },
        "options": [] });
    assert_eq!(event_words(&[other, answer_json(ASK, "approved")]), (vec![], None), "another call");
}

#[test]
fn frames_name_their_entry() {
    let (told, _) = fold_call_entries(
        sample_call(),
        &numbered_entries(&[
            json!({ "kind": "unarchived", "by": { "actor": "minke" } }),
            dispatch_json(),
            result_json("done", "ok", None),
        ]),
    );
    assert_eq!(told.iter().map(|told| told.seq).collect::<Vec<_>>(), [1, 1, 1, 2, 2]);
}

#[test]
fn what_clients_are_told_is_golden() {
    let stories: [&[Value]; 5] = [
        &[dispatch_json(), result_json("done", "ok", None)],
        &[dispatch_json(), result_json("timed_out", "late", None)],
        &[result_json("refused", "no", Some(verdict_json("deny")))],
        &[ask_json(ASK, Some(RULE))],
        &[
            ask_json(ASK, Some(r#"{ action = "allow", host = "docs.rs" }"#)),
            answer_json(ASK, "denied"),
            result_json("refused", "no", None),
        ],
    ];
    let mut made = String::new();
    for story in stories {
        let (told, fold) = fold_call_entries(sample_call(), &numbered_entries(story));
        for one in told {
            made += &format!("{}\n", json!(one.event));
            let again: ApiEvent = serde_json::from_value(json!(one.event)).unwrap();
            assert_eq!(again, one.event);
        }
        let result = fold.invoke_result().unwrap();
        made += &format!("{}\n", json!(result));
        assert_eq!(serde_json::from_value::<InvokeResult>(json!(result)).unwrap(), result);
    }
    if std::env::var_os("MINKE_BLESS").is_some() {
        write_golden(&made);
        return;
    }
    assert!(made == GOLDEN, "the API events have changed: run `cargo xtask schema`, then look at `git diff`");
}

#[expect(clippy::disallowed_methods, reason = "the test can rewrite its golden file")]
fn write_golden(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/api.jsonl");
    std::fs::write(path, text).unwrap_or_else(|e| panic!("could not write {path}: {e}"));
}

/// Objects as the clients and the server of an older system wrote them.
#[test]
fn older_objects_are_read() {
    let shell = r#"{"call":{"name":"shell","payload":{"type":"local_shell","params":{"command":"cargo test","cwd":"/w"}},"source":"direct"},"cwd":"/w"}"#;
    let invoke: ToolInvoke = serde_json::from_str(shell).unwrap();
    assert_eq!(
        invoke.call.tool_and_arguments(),
        ("Bash".to_owned(), r#"{"command":"cargo test"}"#.to_owned())
    );
    assert_eq!((invoke.requested_cwd(), &invoke.thread_id), (Some("/w"), &None));
    for (payload, name, arguments) in [
        (json!({"type":"function","arguments":"{\"a\":1}"}), "t", r#"{"a":1}"#),
        (json!({"type":"custom","input":"x"}), "t", r#"{"input":"x"}"#),
        (
            json!({"type":"local_shell","params":{"command":"ls","timeout_ms":1500}}),
            "Bash",
            r#"{"command":"ls","timeout":1.5}"#,
        ),
        (json!({"type":"mcp","server":"s","tool":"u","raw_arguments":{"q":1}}), "mcp__s__u", r#"{"q":1}"#),
        (
            json!({"type":"mcp","server":"s","tool":"u","raw_arguments":"{\"q\":1}"}),
            "mcp__s__u",
            r#"{"q":1}"#,
        ),
        (json!({"type":"mcp","server":"s","tool":"u"}), "mcp__s__u", "{}"),
    ] {
        let invoke = json!({ "thread_id": "thread-1", "call": { "name": "t", "payload": payload } });
        let invoke: ToolInvoke = serde_json::from_value(invoke).unwrap();
        assert_eq!(invoke.call.tool_and_arguments(), (name.to_owned(), arguments.to_owned()));
        let again: ToolInvoke = serde_json::from_value(json!(invoke)).unwrap();
        assert_eq!(again, invoke);
    }
    let denied = r#"{"ok":false,"status":"denied","execution_kind":"shell","response_id":"tool-1","precheck":{"allow":false,"requires_approval":false,
 "phase":"forbidden","matched_rule":"cargo publish","reason":"r","command":"c","cwd":"/w","execution_kind":"shell",
 "requirement":{"type":"forbidden","reason":"r"}},"error":"e","events":[{"event":"error","response_id":"tool-1","message":"m"}]}"#;
    let denied: InvokeResult = serde_json::from_str(denied).unwrap();
    assert_eq!(denied.status, InvokeStatus::Denied);
    assert!(matches!(denied.precheck.unwrap().requirement, ApprovalRequirement::Forbidden { .. }));
    let asked = r#"{"event":"exec_approval_request","request":{
 "call_id":"tool-call-1","approval_id":"approval-1","turn_id":"tool-1","command":"cargo test","cwd":"/w","reason":"r",
 "proposed_execpolicy_amendment":["cargo"],"proposed_network_policy_amendments":[],"additional_permissions":[],
 "available_decisions":[{"type":"approved"},{"type":"approved_for_session"},{"type":"denied"},{"type":"abort"},
 {"type":"approved_execpolicy_amendment"}]}}"#;
    let ApiFrame::ExecApprovalRequest { request } = serde_json::from_str(asked).unwrap() else { panic!() };
    // Ours offers all of these, in the same order.
    let entry = numbered_entries(&[ask_json(ASK, Some(RULE))]).remove(0);
    let Kind::Ask(ask) = entry.kind else { panic!() };
    let ours = LegacyDecision::available_for(&ask);
    let shared: Vec<_> = ours.into_iter().filter(|one| *one != LegacyDecision::ApprovedRule).collect();
    assert_eq!(shared, request.available_decisions);
    let line = r#"{"type":"tool_lifecycle","response_id":"tool-1","tool_name":"shell","phase":"precheck","payload":{}}"#;
    assert!(serde_json::from_str::<ApiEvent>(line).is_ok());
}

fn ask_with_rule(always: Option<&str>) -> Ask {
    let Kind::Ask(ask) = numbered_entries(&[ask_json(ASK, always)]).remove(0).kind else { panic!() };
    ask
}

#[test]
fn older_decisions_mean_the_shown_rule_and_no_other() {
    let command = ask_with_rule(Some(RULE));
    let host = ask_with_rule(Some(r#"{ action = "allow", host = "docs.rs" }"#));
    let none = ask_with_rule(None);
    let read = |decision: Value| {
        let answer = json!({ "approval_id": ASK, "decision": decision });
        serde_json::from_value::<ApprovalAnswer>(answer).map(|answer| answer.decision)
    };
    for word in ["approved", "approved_for_session", "approved_rule", "denied", "abort"] {
        for form in [json!(word), json!({ "type": word })] {
            assert_eq!(read(form).unwrap().to_decision(&command).unwrap(), Decision::from(word));
        }
    }
    let amend = read(json!("approved_execpolicy_amendment")).unwrap();
    assert_eq!(amend.to_decision(&command).unwrap(), Decision::ApprovedRule);
    assert!(amend.to_decision(&none).is_err() && amend.to_decision(&host).is_err());
    let listed = |words: &[&str]| {
        read(json!({ "type": "approved_execpolicy_amendment", "proposed_execpolicy_amendment": words }))
            .unwrap()
    };
    assert_eq!(listed(&["cargo test"]).to_decision(&command).unwrap(), Decision::ApprovedRule);
    assert!(listed(&["cargo"]).to_decision(&command).is_err(), "a wider rule than the shown one");
    let network = |host: &str, action: &str| {
        read(json!({ "type": "network_policy_amendment", "host": host, "action": action })).unwrap()
    };
    assert_eq!(network("docs.rs", "allow").to_decision(&host).unwrap(), Decision::ApprovedRule);
    for (name, action, ask) in
        [("evil.example", "allow", &host), ("docs.rs", "deny", &host), ("docs.rs", "allow", &command)]
    {
        assert!(network(name, action).to_decision(ask).is_err(), "{name} {action}");
    }
    for bad in [json!("yes"), json!({}), json!(7), json!({ "type": "network_policy_amendment" })] {
        assert!(read(bad).is_err());
    }
}

#[test]
fn the_sandbox_is_bypassed_only_where_there_is_none() {
    let of = |outcome: Judgement, sandbox: Option<&str>| -> Precheck {
        let verdict = PolicyVerdict {
            outcome,
            rule: None,
            layer: None,
            reason: "r".into(),
            sandbox: sandbox.map_or(LoggedBackend::NONE, LoggedBackend::new),
        };
        build_precheck(
            &verdict,
            &Action { mcp: Some("mcp__a__b".into()), ..Action::default() },
            "T",
            "/w",
            None,
        )
    };
    for (sandbox, bypass) in [
        (None, false),
        (Some("namespaces"), false),
        (Some("landlock"), false),
        (Some("none"), false),
        (Some("off"), true),
    ] {
        let seen = of(Judgement::Allow, sandbox);
        let ApprovalRequirement::Skip { bypass_sandbox, .. } = seen.requirement else { panic!() };
        assert_eq!(bypass_sandbox, bypass, "{sandbox:?}");
        assert_eq!((seen.allow, seen.requires_approval), (true, false));
        assert_eq!((seen.command.as_str(), seen.execution_kind.as_str()), ("mcp__a__b", "mcp"));
    }
    let unknown = of(Judgement::from("maybe"), None);
    assert_eq!((unknown.allow, unknown.phase.as_str()), (false, "forbidden"));
    assert_eq!(of(Judgement::Ask, None).phase.as_str(), "needs_approval");
}
