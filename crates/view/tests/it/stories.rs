//! Situations as the user meets them.

use minke_protocol::{
    CommandEvent, CommandOutput, CommandUpdate, Delta, Event, InFlight, LlmRetry, OpenCommand, OutputStream,
    ToolCallArgsDelta, ToolCallStart,
};
use minke_record::{Answer, Kind};
use minke_view::{BlockBody, CallState, Conversation, StreamedText, TextTail};
use serde_json::json;

use crate::log_builder::*;

fn text_event(text: &str) -> Event {
    Event::TextDelta(Delta { text: text.to_owned() })
}

fn output_event(stream: OutputStream, start: u64, text: &str) -> Event {
    let end = start + text.len() as u64;
    let news = CommandUpdate::Output(CommandOutput { stream, start, end, text: text.to_owned() });
    Event::Command(CommandEvent { command_id: "x".to_owned(), call_id: "c1".into(), news: Some(news) })
}

#[test]
fn a_message_is_said_and_answered() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("hello")
        .add_llm_call(0)
        .add_item(0, thinking_json("hm"))
        .add_reply(0, "hi **you**")
        .add_llm_end(0)
        .end_run("finished");
    assert_eq!(log.block_lines(), ["you: hello", "thinking: hm", "reply: hi **you**"]);
    let conversation = log.fold_entries();
    let standing = conversation.status();
    assert_eq!((standing.name.as_str(), standing.model.as_str()), ("alpha", "m"));
    assert_eq!((standing.tokens.input, standing.tokens.context_tokens), (10, 115));
    assert_eq!(standing.cost_micros, Some(500_000));
}

#[test]
fn what_streams_becomes_the_entry_in_its_place() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("hello").add_llm_call(0);
    let mut conversation = log.fold_entries();
    assert_eq!(conversation.take_changed(), Some(0));
    assert_eq!(conversation.take_changed(), None);
    conversation.apply_live(&Event::ThinkingStart, 1);
    conversation.apply_live(&text_event("one "), 1);
    conversation.apply_live(&text_event("two"), 1);
    assert_eq!(conversation_lines(&conversation), ["you: hello", "~thinking…:", "~reply…: one two"]);
    assert_eq!(conversation.take_changed(), Some(1));
    log.add_item(0, thinking_json("")).add_reply(0, "one two three");
    for entry in log.entries.iter().rev().take(2).rev() {
        conversation.apply_entry(entry);
    }
    assert_eq!(conversation_lines(&conversation), ["you: hello", "thinking:", "reply: one two three"]);
    assert_eq!(conversation.take_changed(), Some(1));
}

#[test]
fn a_reply_that_breaks_off_leaves_what_the_log_kept() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("go").add_llm_call(0);
    let mut conversation = log.fold_entries();
    conversation.apply_live(&text_event("the beg"), 1);
    conversation
        .apply_live(&Event::ToolCallStart(ToolCallStart { id: "c9".into(), name: "Bash".to_owned() }), 1);
    log.add_reply(0, "the beg")
        .add_entry(json!({ "kind": "llm_end", "call": 0, "outcome": "broken", "attempts": 1 }));
    log.add_entry(json!({
        "kind": "llm_call", "call": 1, "turn": 0, "purpose": "turn", "request_hash": "r", "builder": 1,
        "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
        "reserved": { "input": 1, "output": 1 }, "continues": { "call": 0, "attempt": 1, "reason": "cut" },
    }));
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    conversation.apply_live(&text_event("inning"), 1);
    assert_eq!(conversation_lines(&conversation), ["you: go", "reply: the beg", "~reply…: inning"]);
    log.add_reply(1, "inning");
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    assert_eq!(conversation_lines(&conversation), log.block_lines());
}

#[test]
fn who_joins_in_the_middle_sees_what_the_others_see() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("go").add_llm_call(0);
    let mut conversation = log.fold_entries();
    conversation.apply_live(&text_event("stale"), 1);
    let blocks = vec![
        minke_protocol::StreamingBlock::Text { text: "one tw".to_owned() },
        minke_protocol::StreamingBlock::ToolCall {
            id: "c1".into(),
            name: "Bash".to_owned(),
            arguments: r#"{"command":"ls","#.to_owned(),
        },
    ];
    conversation.apply_live(&Event::InFlight(InFlight { blocks, commands: Vec::new() }), 1);
    conversation.apply_live(&text_event("o"), 1);
    assert_eq!(
        conversation_lines(&conversation),
        ["you: go", "~reply…: one two", "~call: Bash ls [written]"]
    );
}

#[test]
fn what_a_child_was_lent_is_told_as_it_is_seen_from_here() {
    let mut log = LogBuilder::with_session_start();
    let lent = |target: &str| json!({ "target": target, "permission": "write", "recursive": true });
    log.add_entry(json!({ "kind": "child", "session": "01970000-0000-7000-8000-000000000009", "name": "lib", "call_id": "c1",
        "scope": { "allow": [lent("/w/lib"), lent("/w"), lent("/elsewhere")] } }));
    let conversation = log.fold_entries();
    let BlockBody::Child(card) = &conversation.blocks()[0].body else { panic!("not a child") };
    assert_eq!(card.scope, "write:lib, write:/w, write:/elsewhere");
}

#[test]
fn a_call_about_a_number_says_what_became_of_it() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("go").add_llm_call(0);
    let update = |arguments: &serde_json::Value| tool_call_json("c1", "TaskUpdate", arguments);
    log.add_item(0, update(&json!({ "id": 2, "status": "completed" })));
    assert_eq!(log.block_lines()[1], "call: TaskUpdate 2: completed [waiting]");
    let mut log = LogBuilder::with_session_start();
    log.add_input("go").add_llm_call(0).add_item(0, update(&json!({ "id": 2, "subject": "Sing" })));
    assert_eq!(log.block_lines()[1], "call: TaskUpdate Sing [waiting]");
}

#[test]
fn a_command_is_written_asked_about_run_and_ended() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("build").add_llm_call(0);
    let mut conversation = log.fold_entries();
    let start = ToolCallStart { id: "c1".into(), name: "Bash".to_owned() };
    conversation.apply_live(&Event::ToolCallStart(start), 1);
    let json = r#"{"command":"cargo test"}"#;
    conversation.apply_live(
        &Event::ToolCallArgsDelta(ToolCallArgsDelta { id: "c1".into(), json: json.to_owned() }),
        1,
    );
    assert_eq!(conversation_lines(&conversation)[1], "~call: Bash cargo test [written]");
    let step = |log: &mut LogBuilder, conversation: &mut Conversation, kind| {
        log.add_entry(kind);
        log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
        conversation_lines(conversation)[1].clone()
    };
    let call = json!({ "kind": "assistant_item", "call": 0,
        "item": tool_call_json("c1", "Bash", &json!({ "command": "cargo test" })) });
    assert_eq!(step(&mut log, &mut conversation, call), "call: Bash cargo test [waiting]");
    assert_eq!(step(&mut log, &mut conversation, ask_json(ASK, "c1")), "call: Bash cargo test [asked]");
    assert_eq!(conversation_lines(&conversation)[2], "ask (open): $ rm -r build");
    assert_eq!(conversation.status().asks.len(), 1);
    let answer = json!({ "kind": "answer", "id": ASK, "decision": "approved", "by": user_actor() });
    assert_eq!(step(&mut log, &mut conversation, answer), "call: Bash cargo test [waiting]");
    assert_eq!(conversation_lines(&conversation)[2], "ask: $ rm -r build → approved by you (tui)");
    assert!(conversation.status().asks.is_empty());
    let started = dispatch_json("c1", "Bash", &json!({ "command": "cargo test", "side_effects": true }));
    assert_eq!(step(&mut log, &mut conversation, started), "call: Bash cargo test [running]");
    conversation.apply_live(&output_event(OutputStream::Stdout, 0, "one\n"), 1);
    conversation.apply_live(&output_event(OutputStream::Stderr, 0, "bad\n"), 1);
    // A repeated piece is shown once; an overlapping one from its first new byte.
    conversation.apply_live(&output_event(OutputStream::Stdout, 0, "one\n"), 1);
    conversation.apply_live(&output_event(OutputStream::Stdout, 2, "e\ntwo\n"), 1);
    assert_eq!(conversation_lines(&conversation)[1], "call: Bash cargo test [running] one\nbad\ntwo");
    conversation.apply_live(&output_event(OutputStream::Stdout, 20, "late"), 1);
    assert!(
        conversation_lines(&conversation)[1].ends_with("[12 bytes were not shown]\nlate"),
        "{:?}",
        conversation_lines(&conversation)
    );
    let ended = result_json("c1", "$ cargo test (exit 1)", "one\nbad\ntwo\n", "done");
    assert_eq!(step(&mut log, &mut conversation, ended), "call: Bash cargo test [done exit 1] one\nbad\ntwo");
    let BlockBody::CallCard(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!((call.sandbox.as_deref(), call.summary.as_str()), (Some("landlock"), "$ cargo test (exit 1)"));
    assert!(call.started_at.is_some() && call.ended_at > call.started_at);
    // Output after the end does not belong to the call anymore.
    conversation.apply_live(&output_event(OutputStream::Stdout, 24, "ghost"), 1);
    assert_eq!(conversation_lines(&conversation), log.block_lines());
}

#[test]
fn a_command_that_ran_already_is_joined_by_its_last_words() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x")
        .add_llm_call(0)
        .add_item(0, tool_call_json("c1", "Bash", &json!({ "command": "yes" })));
    log.add_llm_end(0).add_entry(dispatch_json("c1", "Bash", &json!({ "command": "yes" })));
    let mut conversation = log.fold_entries();
    let piece = CommandOutput { stream: OutputStream::Both, start: 90, end: 94, text: "y\ny\n".to_owned() };
    let open = OpenCommand {
        command_id: "x".to_owned(),
        call_id: "c1".into(),
        command: "yes".into(),
        cwd: "/w".to_owned(),
        output: vec![piece],
    };
    let flight = InFlight { blocks: Vec::new(), commands: vec![open] };
    conversation.apply_live(&Event::InFlight(flight.clone()), 1);
    conversation.apply_live(&output_event(OutputStream::Both, 94, "z\n"), 1);
    conversation.apply_live(&Event::InFlight(flight), 1);
    let BlockBody::CallCard(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!(call.state, CallState::Running);
    assert_eq!((call.output.text.as_str(), call.output.omitted_bytes), ("y\ny\n", 90));
}

#[test]
fn long_output_is_held_by_its_end() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x")
        .add_llm_call(0)
        .add_item(0, tool_call_json("c1", "Bash", &json!({ "command": "yes" })));
    log.add_entry(dispatch_json("c1", "Bash", &json!({ "command": "yes" })));
    let mut conversation = log.fold_entries();
    for at in 0..5_000_u64 {
        conversation.apply_live(&output_event(OutputStream::Both, at * 100, &"y".repeat(100)), 1);
    }
    let BlockBody::CallCard(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert!(call.output.text.len() <= TextTail::BYTES);
    assert_eq!(call.output.text.len() as u64 + call.output.omitted_bytes, 500_000);
}

#[test]
fn an_edit_shows_its_diff_and_its_path_from_here() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x")
        .add_llm_call(0)
        .add_item(0, tool_call_json("c1", "Edit", &json!({ "path": "/w/src/a.rs", "old": "a" })));
    assert_eq!(log.block_lines()[1], "call: Edit src/a.rs [waiting]");
    let mut started = dispatch_json("c1", "Edit", &json!({ "writes": ["/w/src/a.rs"] }));
    started["preview"] = json!({ "path": "/w/src/a.rs", "before": "1", "after": "2", "diff": "-a\n+b\n" });
    log.add_entry(started);
    let conversation = log.fold_entries();
    let BlockBody::CallCard(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!((call.diff.as_deref(), call.path.as_deref()), (Some("-a\n+b\n"), Some("src/a.rs")));
}

#[test]
fn a_refused_call_says_why() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x")
        .add_llm_call(0)
        .add_item(0, tool_call_json("c1", "Write", &json!({ "path": "/etc/passwd" })));
    log.add_entry(result_json("c1", "refused: outside the scope", "", "refused"));
    assert_eq!(log.block_lines()[1], "call: Write /etc/passwd [refused]");
    let conversation = log.fold_entries();
    let BlockBody::CallCard(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!(call.summary, "refused: outside the scope");
}

#[test]
fn a_clients_call_is_marked_as_such() {
    let mut log = LogBuilder::with_session_start();
    let mut started = dispatch_json("u1", "Undo", &json!({ "writes": ["/w/a"] }));
    started["by"] = user_actor();
    let mut ended = result_json("u1", "1 file restored", "", "done");
    ended["by"] = user_actor();
    log.add_entry(started).add_entry(ended);
    assert_eq!(log.block_lines(), ["call by you (tui): Undo a [done]"]);
}

#[test]
fn a_pause_can_be_gone_on_with_until_somebody_does() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0).add_reply(0, "half").add_llm_end(0).end_run("paused");
    assert_eq!(log.block_lines()[2], "ended paused (resumable): because");
    log.add_entry(
        json!({ "kind": "invoke", "trigger": "resume", "by": user_actor(), "attempt": 2, "continues": RUN }),
    );
    assert_eq!(log.block_lines()[2], "ended paused: because");
    log.end_run("finished");
    assert_eq!(log.block_lines().len(), 3);
}

#[test]
fn a_killed_pod_says_that_it_was_started_again() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0);
    let mut conversation = log.fold_entries();
    conversation.apply_live(&text_event("lost wor"), 1);
    log.add_entry(json!({
        "kind": "opened", "epoch": 2, "pid": 2, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
    }));
    log.end_run("interrupted");
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    let expected =
        ["you: x", "reopened: the pod was started again", "ended interrupted (resumable): because"];
    assert_eq!(conversation_lines(&conversation), expected);
    log.add_entry(json!({ "kind": "state", "state": "abandoned" }));
    assert_eq!(log.block_lines()[2], "ended interrupted: because");
}

#[test]
fn what_ran_when_a_pod_was_killed_does_not_run_for_ever() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x")
        .add_llm_call(0)
        .add_item(0, tool_call_json("c1", "Bash", &json!({ "command": "sleep" })))
        .add_llm_end(0);
    log.add_entry(dispatch_json("c1", "Bash", &json!({ "command": "sleep" })));
    assert_eq!(log.block_lines()[1], "call: Bash sleep [running]");
    log.add_entry(json!({
        "kind": "opened", "epoch": 2, "pid": 2, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
    }));
    log.end_run("interrupted");
    assert_eq!(log.block_lines()[1], "call: Bash sleep [waiting]");
    log.add_entry(result_json("c1", "interrupted; it may or may not have taken effect", "", "lost"));
    assert_eq!(log.block_lines()[1], "call: Bash sleep [lost]");
}

#[test]
fn a_failed_run_says_why() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_entry(
        json!({ "kind": "run_errored", "code": "provider_error", "message": "503", "retryable": true }),
    );
    assert_eq!(log.block_lines()[1], "ended error: provider_error: 503");
}

#[test]
fn the_queue_is_shown_held_steered_and_emptied() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x");
    let segments = json!([{ "kind": "text", "content": "later" }, { "kind": "file_ref", "path": "a.rs" }]);
    let queued = |id: &str, mode: &str| json!({ "kind": "queued_input", "id": id, "segments": segments, "from": user_actor(), "mode": mode });
    log.add_entry(queued(QUEUED, "queue"));
    let conversation = log.fold_entries();
    let row = &conversation.status().queue[0];
    assert_eq!((row.text.as_str(), row.attachments.as_slice()), ("later @a.rs", &["@a.rs".to_owned()][..]));
    assert!(!row.is_held && !row.steer);
    log.end_run("paused");
    assert!(log.fold_entries().status().queue[0].is_held);
    log.add_entry(json!({ "kind": "dequeued", "id": QUEUED, "why": "removed" }));
    assert!(log.fold_entries().status().queue.is_empty());

    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0).add_entry(queued(QUEUED, "steer"));
    assert!(log.fold_entries().status().queue[0].steer);
    log.add_entry(json!({ "kind": "dequeued", "id": QUEUED, "why": "steered" }));
    log.add_entry(
        json!({ "kind": "user_input", "segments": segments, "from": user_actor(), "queued": QUEUED }),
    );
    assert_eq!(log.block_lines(), ["you: x", "you (steered): later @a.rs"]);
}

#[test]
fn what_was_rewound_is_gone_but_what_was_said_stays() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("first").add_llm_call(0).add_reply(0, "one").add_llm_end(0).end_run("finished");
    let at = log.entries.len() + 1;
    log.add_input("second")
        .add_llm_call(1)
        .add_reply(1, "two")
        .add_item(1, tool_call_json("c1", "Read", &json!({ "path": "b" })));
    log.add_entry(json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "m" }));
    log.end_run("paused").add_entry(json!({ "kind": "rewound", "to_seq": at }));
    // The result of a removed call is ignored.
    log.add_entry(result_json("c1", "late", "", "cancelled"));
    let words = log.block_lines();
    assert_eq!(words[..4], ["you: first", "reply: one", "you (left): second", "warn: m"]);
    assert_eq!(words.len(), 5);
    assert!(words[4].starts_with("rewound:"), "{words:?}");
}

#[test]
fn a_rolled_back_input_is_marked() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("oops").end_run("rolled_back");
    assert_eq!(log.block_lines(), ["you (left): oops", "ended rolled_back: because"]);
}

#[test]
fn children_have_cards_and_their_questions_close() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x");
    log.add_entry(json!({
        "kind": "child", "session": CHILD, "name": "kid", "call_id": "c1",
        "scope": { "allow": [{ "target": "/w/a", "permission": "write" }] },
    }));
    assert_eq!(log.block_lines()[1], "child kid: running");
    let mut question = ask_json(ASK, "c7");
    question.as_object_mut().unwrap().remove("kind");
    let from = json!({ "actor": "pod", "session": CHILD });
    let report =
        |event| json!({ "kind": "inbox", "from": from, "from_seq": 3, "event": event, "wake": false });
    log.add_entry(report(json!({ "kind": "asked", "pod_name": "kid", "ask": question, "socket": "/run/s" })));
    assert_eq!(log.block_lines()[1..], ["child kid: asks", "ask of kid (open): $ rm -r build"]);
    let conversation = log.fold_entries();
    assert_eq!((conversation.status().asks.len(), conversation.status().children[0].asks), (1, 1));
    log.add_entry(report(json!({ "kind": "turn_ended", "pod_name": "kid", "result": "finished" })));
    assert_eq!(log.block_lines()[1..], ["child kid: finished", "ask of kid: $ rm -r build"]);
    log.add_entry(
        json!({ "kind": "child_end", "session": CHILD, "name": "kid", "outcome": "crashed", "exit": 9 }),
    );
    assert_eq!(log.block_lines()[1], "child kid: crashed");
    assert!(log.fold_entries().status().asks.is_empty());
    assert_eq!(log.fold_entries().status().children[0].asks, 0);
}

#[test]
fn a_childs_question_that_was_answered_there_is_closed_here() {
    let mut log = LogBuilder::with_session_start();
    let mut question = ask_json(ASK, "c7");
    question.as_object_mut().unwrap().remove("kind");
    let event = json!({ "kind": "asked", "pod_name": "kid", "ask": question, "socket": "/run/s" });
    log.add_entry(json!({ "kind": "inbox", "from": { "actor": "pod", "session": CHILD }, "event": event, "wake": false }));
    let mut conversation = log.fold_entries();
    let answer: Answer = {
        let mut log = LogBuilder::default();
        log.add_entry(json!({ "kind": "answer", "id": ASK, "decision": "denied", "by": user_actor() }));
        let Kind::Answer(answer) = log.entries.remove(0).kind else { panic!("not an answer") };
        answer
    };
    let answered =
        minke_view::AskResponse { decision: answer.decision, note: None, answered_by: "you".to_owned() };
    conversation.set_child_answer(answer.id, answered);
    assert_eq!(conversation_lines(&conversation), ["ask of kid: $ rm -r build → denied by you"]);
    assert!(conversation.status().asks.is_empty());
}

#[test]
fn a_retry_counts_down_until_something_comes() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0);
    let mut conversation = log.fold_entries();
    let retry = LlmRetry {
        llm_call: 0,
        failed_attempt: 1,
        max_attempts: 5,
        wait_ms: 9_000,
        status: Some(529),
        error: "busy".to_owned(),
    };
    conversation.apply_live(&Event::LlmRetry(retry), 77);
    let told = conversation.status().retry.clone().expect("a retry is reported");
    assert_eq!((told.received_at, told.wait_ms, told.failed_attempt), (77, 9_000, 1));
    conversation.apply_live(&text_event("hi"), 80);
    assert_eq!(conversation.status().retry, None);
}

#[test]
fn lines_in_between_say_what_changed() {
    let mut log = LogBuilder::with_session_start();
    let by = user_actor();
    log.add_entry(json!({ "kind": "config_changed", "key": "model.ref", "value": "scripted/b", "by": by }));
    log.add_entry(json!({ "kind": "config_changed", "key": "model.scheme", "value": null, "by": by }));
    log.add_entry(
        json!({ "kind": "config_changed", "key": "permissions.posture", "value": "auto", "by": by }),
    );
    log.add_entry(json!({ "kind": "config_changed", "key": "pod.catalog", "value": {}, "by": by }));
    log.add_entry(json!({ "kind": "renamed", "name": "beta", "by": by }));
    log.add_entry(json!({ "kind": "grant", "rule": "allow x", "reach": "call", "by": by }));
    log.add_entry(json!({ "kind": "goal", "change": "set", "text": "all green", "used": 0 }));
    log.add_entry(json!({ "kind": "archived", "by": by }));
    log.add_entry(json!({ "kind": "inbox", "from": by, "message": "look", "wake": true }));
    log.add_entry(
        json!({ "kind": "system_item", "item": { "kind": "notification", "body": "look" }, "note": 9 }),
    );
    log.add_entry(json!({ "kind": "alert", "level": "error", "source": "storage", "message": "disk" }));
    log.add_entry(json!({
        "kind": "segment_start", "segment": 1, "reason": "compaction", "system_prompt": "p", "tools": [],
        "config": {}, "history": [], "carry": { "blob": "b", "bytes": 1 }, "tokens": { "before": 120_000, "after": 9 },
    }));
    assert_eq!(
        log.block_lines(),
        [
            "settingchange: the model is now scripted/b",
            "settingchange: the posture is now auto",
            "settingchange: the name is now beta",
            "settingchange: allowed from now on: allow x",
            "settingchange: the goal is now: all green",
            "settingchange: archived",
            "clientnote: you (tui): look",
            "error: disk",
            "compaction: the conversation was compacted: 120,000 tokens became 9",
        ]
    );
    let conversation = log.fold_entries();
    let standing = conversation.status();
    assert_eq!((standing.model.as_str(), standing.posture.as_str()), ("scripted/b", "auto"));
    assert_eq!((standing.name.as_str(), standing.goal.as_deref()), ("beta", Some("all green")));
    assert!(standing.archived);
}

#[test]
fn tasks_keep_their_order() {
    let mut log = LogBuilder::with_session_start();
    for (id, status) in [(1, "pending"), (2, "pending"), (1, "completed"), (3, "pending"), (2, "deleted")] {
        log.add_entry(json!({ "kind": "task", "id": id, "subject": format!("t{id}"), "status": status }));
    }
    let conversation = log.fold_entries();
    let rows: Vec<_> =
        conversation.status().tasks.iter().map(|task| format!("{} {}", task.subject, task.status)).collect();
    assert_eq!(rows, ["t1 completed", "t3 pending"]);
}

#[test]
fn a_text_in_a_blob_is_held_by_its_beginning() {
    let mut log = LogBuilder::with_session_start();
    let blob = json!({ "blob": "abc", "bytes": 400_000 });
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": blob }] });
    log.add_input("x").add_llm_call(0).add_item(0, item);
    let mut conversation = log.fold_entries();
    let id = conversation.blocks()[1].id;
    let words = |conversation: &Conversation| match &conversation.blocks()[1].body {
        BlockBody::Reply(words) => words.clone(),
        other => panic!("{other:?}"),
    };
    let there =
        StreamedText { omitted_bytes: 400_000, blob: Some("abc".to_owned()), ..StreamedText::default() };
    assert_eq!(words(&conversation), there);
    conversation.set_text_start(id, "the beginning");
    conversation.set_text_start(id, "again");
    assert_eq!(
        (words(&conversation).text.as_str(), words(&conversation).omitted_bytes),
        ("the beginning", 399_987)
    );
}

#[test]
fn an_imported_history_reads_like_any_other() {
    let mut log = LogBuilder::with_session_start();
    let history = json!([
        { "kind": "message", "role": "user", "content": [{ "kind": "text", "text": "hello" }] },
        thinking_json("hm"),
        message_json("hi"),
        tool_call_json("t1", "Bash", &json!({ "command": "ls" })),
        { "kind": "tool_result", "call_id": "t1", "summary": "$ ls (exit 0)", "content": "a" },
        tool_call_json("t2", "Bash", &json!({ "command": "ps" })),
    ]);
    log.add_entry(json!({
        "kind": "segment_start", "segment": 0, "reason": "import", "system_prompt": "p", "tools": [],
        "config": {}, "history": history, "carry": { "blob": "b", "bytes": 1 },
    }));
    assert_eq!(
        log.block_lines(),
        ["you: hello", "thinking: hm", "reply: hi", "call: Bash ls [done exit 0] a", "call: Bash ps [lost]"]
    );
}

#[test]
fn a_summary_of_the_conversation_is_not_part_of_it() {
    let mut log = LogBuilder::with_session_start();
    log.add_entry(json!({
        "kind": "llm_call", "call": 4, "turn": 0, "purpose": "compaction", "request_hash": "r", "builder": 1,
        "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
        "reserved": { "input": 1, "output": 1 },
    }));
    let mut conversation = log.fold_entries();
    conversation.apply_live(&text_event("summary"), 1);
    log.add_reply(4, "summary");
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    assert!(conversation_lines(&conversation).is_empty(), "{:?}", conversation_lines(&conversation));
}
