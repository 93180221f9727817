//! Each situation as a person meets it.

use minke_protocol::{
    CommandEvent, CommandNews, CommandOutput, Delta, Event, InFlight, LlmRetry, OpenCommand, OutputStream,
    ToolCallArgsDelta, ToolCallStart,
};
use minke_record::{Answer, Kind};
use minke_view::{Body, CallState, Conversation, Tail, Words};
use serde_json::json;

use crate::log::*;

fn text(text: &str) -> Event {
    Event::TextDelta(Delta { text: text.to_owned() })
}

fn output(stream: OutputStream, start: u64, text: &str) -> Event {
    let end = start + text.len() as u64;
    let news = CommandNews::Output(CommandOutput { stream, start, end, text: text.to_owned() });
    Event::Command(CommandEvent { command_id: "x".to_owned(), call_id: "c1".into(), news: Some(news) })
}

#[test]
fn a_message_is_said_and_answered() {
    let mut log = Log::begins();
    log.says("hello")
        .asks_model(0)
        .model(0, thinking("hm"))
        .replies(0, "hi **you**")
        .model_ends(0)
        .ends("finished");
    assert_eq!(log.words(), ["you: hello", "thinking: hm", "reply: hi **you**"]);
    let conversation = log.fold();
    let standing = conversation.standing();
    assert_eq!((standing.name.as_str(), standing.model.as_str()), ("alpha", "m"));
    assert_eq!((standing.tokens.input, standing.tokens.context), (10, 115));
    assert_eq!(standing.cost_micros, Some(500_000));
}

#[test]
fn what_streams_becomes_the_entry_in_its_place() {
    let mut log = Log::begins();
    log.says("hello").asks_model(0);
    let mut conversation = log.fold();
    assert_eq!(conversation.changed(), Some(0));
    assert_eq!(conversation.changed(), None);
    conversation.live(&Event::ThinkingStart, 1);
    conversation.live(&text("one "), 1);
    conversation.live(&text("two"), 1);
    assert_eq!(words(&conversation), ["you: hello", "~thinking…:", "~reply…: one two"]);
    assert_eq!(conversation.changed(), Some(1));
    log.model(0, thinking("")).replies(0, "one two three");
    for entry in log.entries.iter().rev().take(2).rev() {
        conversation.entry(entry);
    }
    assert_eq!(words(&conversation), ["you: hello", "thinking:", "reply: one two three"]);
    assert_eq!(conversation.changed(), Some(1));
}

#[test]
fn a_reply_that_breaks_off_leaves_what_the_log_kept() {
    let mut log = Log::begins();
    log.says("go").asks_model(0);
    let mut conversation = log.fold();
    conversation.live(&text("the beg"), 1);
    conversation.live(&Event::ToolCallStart(ToolCallStart { id: "c9".into(), name: "Bash".to_owned() }), 1);
    log.replies(0, "the beg")
        .add(json!({ "kind": "llm_end", "call": 0, "outcome": "broken", "attempts": 1 }));
    log.add(json!({
        "kind": "llm_call", "call": 1, "turn": 0, "purpose": "turn", "request_hash": "r", "builder": 1,
        "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
        "reserved": { "input": 1, "output": 1 }, "continues": { "call": 0, "attempt": 1, "reason": "cut" },
    }));
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    conversation.live(&text("inning"), 1);
    assert_eq!(words(&conversation), ["you: go", "reply: the beg", "~reply…: inning"]);
    log.replies(1, "inning");
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    assert_eq!(words(&conversation), log.words());
}

#[test]
fn who_joins_in_the_middle_sees_what_the_others_see() {
    let mut log = Log::begins();
    log.says("go").asks_model(0);
    let mut conversation = log.fold();
    conversation.live(&text("stale"), 1);
    let blocks = vec![
        minke_protocol::Block::Text { text: "one tw".to_owned() },
        minke_protocol::Block::ToolCall {
            id: "c1".into(),
            name: "Bash".to_owned(),
            arguments: r#"{"command":"ls","#.to_owned(),
        },
    ];
    conversation.live(&Event::InFlight(InFlight { blocks, commands: Vec::new() }), 1);
    conversation.live(&text("o"), 1);
    assert_eq!(words(&conversation), ["you: go", "~reply…: one two", "~call: Bash ls [written]"]);
}

#[test]
fn what_a_child_was_lent_is_told_as_it_is_seen_from_here() {
    let mut log = Log::begins();
    let lent = |target: &str| json!({ "target": target, "permission": "write", "recursive": true });
    log.add(json!({ "kind": "child", "session": "01970000-0000-7000-8000-000000000009", "name": "lib", "call_id": "c1",
        "scope": { "allow": [lent("/w/lib"), lent("/w"), lent("/elsewhere")] } }));
    let conversation = log.fold();
    let Body::Child(card) = &conversation.blocks()[0].body else { panic!("not a child") };
    assert_eq!(card.scope, "write:lib, write:/w, write:/elsewhere");
}

#[test]
fn a_call_about_a_number_says_what_became_of_it() {
    let mut log = Log::begins();
    log.says("go").asks_model(0);
    let update = |arguments: &serde_json::Value| tool_call("c1", "TaskUpdate", arguments);
    log.model(0, update(&json!({ "id": 2, "status": "completed" })));
    assert_eq!(log.words()[1], "call: TaskUpdate 2: completed [waiting]");
    let mut log = Log::begins();
    log.says("go").asks_model(0).model(0, update(&json!({ "id": 2, "subject": "Sing" })));
    assert_eq!(log.words()[1], "call: TaskUpdate Sing [waiting]");
}

#[test]
fn a_command_is_written_asked_about_run_and_ended() {
    let mut log = Log::begins();
    log.says("build").asks_model(0);
    let mut conversation = log.fold();
    let start = ToolCallStart { id: "c1".into(), name: "Bash".to_owned() };
    conversation.live(&Event::ToolCallStart(start), 1);
    let json = r#"{"command":"cargo test"}"#;
    conversation
        .live(&Event::ToolCallArgsDelta(ToolCallArgsDelta { id: "c1".into(), json: json.to_owned() }), 1);
    assert_eq!(words(&conversation)[1], "~call: Bash cargo test [written]");
    let step = |log: &mut Log, conversation: &mut Conversation, kind| {
        log.add(kind);
        log.entries.iter().for_each(|entry| conversation.entry(entry));
        words(conversation)[1].clone()
    };
    let call = json!({ "kind": "assistant_item", "call": 0,
        "item": tool_call("c1", "Bash", &json!({ "command": "cargo test" })) });
    assert_eq!(step(&mut log, &mut conversation, call), "call: Bash cargo test [waiting]");
    assert_eq!(step(&mut log, &mut conversation, ask(ASK, "c1")), "call: Bash cargo test [asked]");
    assert_eq!(words(&conversation)[2], "ask (open): $ rm -r build");
    assert_eq!(conversation.standing().asks.len(), 1);
    let answer = json!({ "kind": "answer", "id": ASK, "decision": "approved", "by": person() });
    assert_eq!(step(&mut log, &mut conversation, answer), "call: Bash cargo test [waiting]");
    assert_eq!(words(&conversation)[2], "ask: $ rm -r build → approved by you (tui)");
    assert!(conversation.standing().asks.is_empty());
    let started = dispatch("c1", "Bash", &json!({ "command": "cargo test", "side_effects": true }));
    assert_eq!(step(&mut log, &mut conversation, started), "call: Bash cargo test [running]");
    conversation.live(&output(OutputStream::Stdout, 0, "one\n"), 1);
    conversation.live(&output(OutputStream::Stderr, 0, "bad\n"), 1);
    // A piece that comes again is heard once, one that overlaps from where it is new.
    conversation.live(&output(OutputStream::Stdout, 0, "one\n"), 1);
    conversation.live(&output(OutputStream::Stdout, 2, "e\ntwo\n"), 1);
    assert_eq!(words(&conversation)[1], "call: Bash cargo test [running] one\nbad\ntwo");
    conversation.live(&output(OutputStream::Stdout, 20, "late"), 1);
    assert!(
        words(&conversation)[1].ends_with("[12 bytes were not shown]\nlate"),
        "{:?}",
        words(&conversation)
    );
    let ended = result("c1", "$ cargo test (exit 1)", "one\nbad\ntwo\n", "done");
    assert_eq!(step(&mut log, &mut conversation, ended), "call: Bash cargo test [done exit 1] one\nbad\ntwo");
    let Body::Call(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!((call.fence.as_deref(), call.summary.as_str()), (Some("full"), "$ cargo test (exit 1)"));
    assert!(call.began.is_some() && call.ended > call.began);
    // What is heard after the end is not the call's any more.
    conversation.live(&output(OutputStream::Stdout, 24, "ghost"), 1);
    assert_eq!(words(&conversation), log.words());
}

#[test]
fn a_command_that_ran_already_is_joined_by_its_last_words() {
    let mut log = Log::begins();
    log.says("x").asks_model(0).model(0, tool_call("c1", "Bash", &json!({ "command": "yes" })));
    log.model_ends(0).add(dispatch("c1", "Bash", &json!({ "command": "yes" })));
    let mut conversation = log.fold();
    let piece = CommandOutput { stream: OutputStream::Both, start: 90, end: 94, text: "y\ny\n".to_owned() };
    let open = OpenCommand {
        command_id: "x".to_owned(),
        call_id: "c1".into(),
        command: "yes".into(),
        cwd: "/w".to_owned(),
        output: vec![piece],
    };
    let flight = InFlight { blocks: Vec::new(), commands: vec![open] };
    conversation.live(&Event::InFlight(flight.clone()), 1);
    conversation.live(&output(OutputStream::Both, 94, "z\n"), 1);
    conversation.live(&Event::InFlight(flight), 1);
    let Body::Call(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!(call.state, CallState::Running);
    assert_eq!((call.output.text.as_str(), call.output.left_out), ("y\ny\n", 90));
}

#[test]
fn long_output_is_held_by_its_end() {
    let mut log = Log::begins();
    log.says("x").asks_model(0).model(0, tool_call("c1", "Bash", &json!({ "command": "yes" })));
    log.add(dispatch("c1", "Bash", &json!({ "command": "yes" })));
    let mut conversation = log.fold();
    for at in 0..5_000_u64 {
        conversation.live(&output(OutputStream::Both, at * 100, &"y".repeat(100)), 1);
    }
    let Body::Call(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert!(call.output.text.len() <= Tail::BYTES);
    assert_eq!(call.output.text.len() as u64 + call.output.left_out, 500_000);
}

#[test]
fn an_edit_shows_its_diff_and_its_path_from_here() {
    let mut log = Log::begins();
    log.says("x")
        .asks_model(0)
        .model(0, tool_call("c1", "Edit", &json!({ "path": "/w/src/a.rs", "old": "a" })));
    assert_eq!(log.words()[1], "call: Edit src/a.rs [waiting]");
    let mut started = dispatch("c1", "Edit", &json!({ "writes": ["/w/src/a.rs"] }));
    started["preview"] = json!({ "path": "/w/src/a.rs", "before": "1", "after": "2", "diff": "-a\n+b\n" });
    log.add(started);
    let conversation = log.fold();
    let Body::Call(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!((call.diff.as_deref(), call.path.as_deref()), (Some("-a\n+b\n"), Some("src/a.rs")));
}

#[test]
fn a_refused_call_says_why() {
    let mut log = Log::begins();
    log.says("x").asks_model(0).model(0, tool_call("c1", "Write", &json!({ "path": "/etc/passwd" })));
    log.add(result("c1", "refused: outside the scope", "", "refused"));
    assert_eq!(log.words()[1], "call: Write /etc/passwd [refused]");
    let conversation = log.fold();
    let Body::Call(call) = &conversation.blocks()[1].body else { panic!("not a call") };
    assert_eq!(call.summary, "refused: outside the scope");
}

#[test]
fn a_clients_call_is_marked_as_such() {
    let mut log = Log::begins();
    let mut started = dispatch("u1", "Undo", &json!({ "writes": ["/w/a"] }));
    started["by"] = person();
    let mut ended = result("u1", "1 file restored", "", "done");
    ended["by"] = person();
    log.add(started).add(ended);
    assert_eq!(log.words(), ["call by you (tui): Undo a [done]"]);
}

#[test]
fn a_pause_can_be_gone_on_with_until_somebody_does() {
    let mut log = Log::begins();
    log.says("x").asks_model(0).replies(0, "half").model_ends(0).ends("paused");
    assert_eq!(log.words()[2], "ended paused (resumable): because");
    log.add(json!({ "kind": "invoke", "trigger": "resume", "by": person(), "attempt": 2, "continues": RUN }));
    assert_eq!(log.words()[2], "ended paused: because");
    log.ends("finished");
    assert_eq!(log.words().len(), 3);
}

#[test]
fn a_killed_pod_says_that_it_was_started_again() {
    let mut log = Log::begins();
    log.says("x").asks_model(0);
    let mut conversation = log.fold();
    conversation.live(&text("lost wor"), 1);
    log.add(json!({
        "kind": "opened", "epoch": 2, "pid": 2, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
    }));
    log.ends("interrupted");
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    let expected = ["you: x", "opened: the pod was started again", "ended interrupted (resumable): because"];
    assert_eq!(words(&conversation), expected);
    log.add(json!({ "kind": "state", "state": "abandoned" }));
    assert_eq!(log.words()[2], "ended interrupted: because");
}

#[test]
fn what_ran_when_a_pod_was_killed_does_not_run_for_ever() {
    let mut log = Log::begins();
    log.says("x")
        .asks_model(0)
        .model(0, tool_call("c1", "Bash", &json!({ "command": "sleep" })))
        .model_ends(0);
    log.add(dispatch("c1", "Bash", &json!({ "command": "sleep" })));
    assert_eq!(log.words()[1], "call: Bash sleep [running]");
    log.add(json!({
        "kind": "opened", "epoch": 2, "pid": 2, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
    }));
    log.ends("interrupted");
    assert_eq!(log.words()[1], "call: Bash sleep [waiting]");
    log.add(result("c1", "interrupted; it may or may not have taken effect", "", "lost"));
    assert_eq!(log.words()[1], "call: Bash sleep [lost]");
}

#[test]
fn a_failed_run_says_why() {
    let mut log = Log::begins();
    log.says("x")
        .add(json!({ "kind": "run_errored", "code": "provider_error", "message": "503", "retryable": true }));
    assert_eq!(log.words()[1], "ended error: provider_error: 503");
}

#[test]
fn the_queue_is_shown_held_steered_and_emptied() {
    let mut log = Log::begins();
    log.says("x");
    let segments = json!([{ "kind": "text", "content": "later" }, { "kind": "file_ref", "path": "a.rs" }]);
    let queued = |id: &str, mode: &str| json!({ "kind": "queued_input", "id": id, "segments": segments, "from": person(), "mode": mode });
    log.add(queued(QUEUED, "queue"));
    let conversation = log.fold();
    let row = &conversation.standing().queue[0];
    assert_eq!((row.text.as_str(), row.chips.as_slice()), ("later @a.rs", &["@a.rs".to_owned()][..]));
    assert!(!row.held && !row.steer);
    log.ends("paused");
    assert!(log.fold().standing().queue[0].held);
    log.add(json!({ "kind": "dequeued", "id": QUEUED, "why": "removed" }));
    assert!(log.fold().standing().queue.is_empty());

    let mut log = Log::begins();
    log.says("x").asks_model(0).add(queued(QUEUED, "steer"));
    assert!(log.fold().standing().queue[0].steer);
    log.add(json!({ "kind": "dequeued", "id": QUEUED, "why": "steered" }));
    log.add(json!({ "kind": "user_input", "segments": segments, "from": person(), "queued": QUEUED }));
    assert_eq!(log.words(), ["you: x", "you (steered): later @a.rs"]);
}

#[test]
fn what_was_rewound_is_gone_but_what_was_said_stays() {
    let mut log = Log::begins();
    log.says("first").asks_model(0).replies(0, "one").model_ends(0).ends("finished");
    let at = log.entries.len() + 1;
    log.says("second")
        .asks_model(1)
        .replies(1, "two")
        .model(1, tool_call("c1", "Read", &json!({ "path": "b" })));
    log.add(json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "m" }));
    log.ends("paused").add(json!({ "kind": "rewound", "to_seq": at }));
    // What comes of a call that is gone is nobody's.
    log.add(result("c1", "late", "", "cancelled"));
    let words = log.words();
    assert_eq!(words[..4], ["you: first", "reply: one", "you (left): second", "warn: m"]);
    assert_eq!(words.len(), 5);
    assert!(words[4].starts_with("rewound:"), "{words:?}");
}

#[test]
fn a_rolled_back_input_is_marked() {
    let mut log = Log::begins();
    log.says("oops").ends("rolled_back");
    assert_eq!(log.words(), ["you (left): oops", "ended rolled_back: because"]);
}

#[test]
fn children_have_cards_and_their_questions_close() {
    let mut log = Log::begins();
    log.says("x");
    log.add(json!({
        "kind": "child", "session": CHILD, "name": "kid", "call_id": "c1",
        "scope": { "allow": [{ "target": "/w/a", "permission": "write" }] },
    }));
    assert_eq!(log.words()[1], "child kid: running");
    let mut question = ask(ASK, "c7");
    question.as_object_mut().unwrap().remove("kind");
    let from = json!({ "actor": "pod", "session": CHILD });
    let report =
        |event| json!({ "kind": "inbox", "from": from, "from_seq": 3, "event": event, "wake": false });
    log.add(report(json!({ "kind": "asked", "pod_name": "kid", "ask": question, "socket": "/run/s" })));
    assert_eq!(log.words()[1..], ["child kid: asks", "ask of kid (open): $ rm -r build"]);
    let conversation = log.fold();
    assert_eq!((conversation.standing().asks.len(), conversation.standing().children[0].asks), (1, 1));
    log.add(report(json!({ "kind": "turn_ended", "pod_name": "kid", "result": "finished" })));
    assert_eq!(log.words()[1..], ["child kid: finished", "ask of kid: $ rm -r build"]);
    log.add(json!({ "kind": "child_end", "session": CHILD, "name": "kid", "outcome": "crashed", "exit": 9 }));
    assert_eq!(log.words()[1], "child kid: crashed");
    assert!(log.fold().standing().asks.is_empty());
    assert_eq!(log.fold().standing().children[0].asks, 0);
}

#[test]
fn a_childs_question_that_was_answered_there_is_closed_here() {
    let mut log = Log::begins();
    let mut question = ask(ASK, "c7");
    question.as_object_mut().unwrap().remove("kind");
    let event = json!({ "kind": "asked", "pod_name": "kid", "ask": question, "socket": "/run/s" });
    log.add(json!({ "kind": "inbox", "from": { "actor": "pod", "session": CHILD }, "event": event, "wake": false }));
    let mut conversation = log.fold();
    let answer: Answer = {
        let mut log = Log::default();
        log.add(json!({ "kind": "answer", "id": ASK, "decision": "denied", "by": person() }));
        let Kind::Answer(answer) = log.entries.remove(0).kind else { panic!("not an answer") };
        answer
    };
    let answered = minke_view::Answered { decision: answer.decision, note: None, by: "you".to_owned() };
    conversation.answered_there(answer.id, answered);
    assert_eq!(words(&conversation), ["ask of kid: $ rm -r build → denied by you"]);
    assert!(conversation.standing().asks.is_empty());
}

#[test]
fn a_retry_counts_down_until_something_comes() {
    let mut log = Log::begins();
    log.says("x").asks_model(0);
    let mut conversation = log.fold();
    let retry = LlmRetry {
        llm_call: 0,
        failed_attempt: 1,
        max_attempts: 5,
        wait_ms: 9_000,
        status: Some(529),
        error: "busy".to_owned(),
    };
    conversation.live(&Event::LlmRetry(retry), 77);
    let told = conversation.standing().retry.clone().expect("it is told");
    assert_eq!((told.told, told.wait_ms, told.failed_attempt), (77, 9_000, 1));
    conversation.live(&text("hi"), 80);
    assert_eq!(conversation.standing().retry, None);
}

#[test]
fn lines_in_between_say_what_changed() {
    let mut log = Log::begins();
    let by = person();
    log.add(json!({ "kind": "config_changed", "key": "model.ref", "value": "scripted/b", "by": by }));
    log.add(json!({ "kind": "config_changed", "key": "model.scheme", "value": null, "by": by }));
    log.add(json!({ "kind": "config_changed", "key": "permissions.posture", "value": "auto", "by": by }));
    log.add(json!({ "kind": "config_changed", "key": "pod.catalog", "value": {}, "by": by }));
    log.add(json!({ "kind": "renamed", "name": "beta", "by": by }));
    log.add(json!({ "kind": "grant", "rule": "allow x", "reach": "call", "by": by }));
    log.add(json!({ "kind": "goal", "change": "set", "text": "all green", "used": 0 }));
    log.add(json!({ "kind": "archived", "by": by }));
    log.add(json!({ "kind": "inbox", "from": by, "message": "look", "wake": true }));
    log.add(json!({ "kind": "system_item", "item": { "kind": "notification", "body": "look" }, "note": 9 }));
    log.add(json!({ "kind": "alert", "level": "error", "source": "storage", "message": "disk" }));
    log.add(json!({
        "kind": "segment_start", "segment": 1, "reason": "compaction", "system_prompt": "p", "tools": [],
        "config": {}, "history": [], "carry": { "blob": "b", "bytes": 1 }, "tokens": { "before": 120_000, "after": 9 },
    }));
    assert_eq!(
        log.words(),
        [
            "change: the model is now scripted/b",
            "change: the posture is now auto",
            "change: the name is now beta",
            "change: allowed from now on: allow x",
            "change: the goal is now: all green",
            "change: archived",
            "note: you (tui): look",
            "error: disk",
            "compaction: the conversation was compacted: 120,000 tokens became 9",
        ]
    );
    let conversation = log.fold();
    let standing = conversation.standing();
    assert_eq!((standing.model.as_str(), standing.posture.as_str()), ("scripted/b", "auto"));
    assert_eq!((standing.name.as_str(), standing.goal.as_deref()), ("beta", Some("all green")));
    assert!(standing.archived);
}

#[test]
fn tasks_keep_their_order() {
    let mut log = Log::begins();
    for (id, status) in [(1, "pending"), (2, "pending"), (1, "completed"), (3, "pending"), (2, "deleted")] {
        log.add(json!({ "kind": "task", "id": id, "subject": format!("t{id}"), "status": status }));
    }
    let conversation = log.fold();
    let rows: Vec<_> = conversation
        .standing()
        .tasks
        .iter()
        .map(|task| format!("{} {}", task.subject, task.status))
        .collect();
    assert_eq!(rows, ["t1 completed", "t3 pending"]);
}

#[test]
fn a_text_in_a_blob_is_held_by_its_beginning() {
    let mut log = Log::begins();
    let blob = json!({ "blob": "abc", "bytes": 400_000 });
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": blob }] });
    log.says("x").asks_model(0).model(0, item);
    let mut conversation = log.fold();
    let id = conversation.blocks()[1].id;
    let words = |conversation: &Conversation| match &conversation.blocks()[1].body {
        Body::Reply(words) => words.clone(),
        other => panic!("{other:?}"),
    };
    let there = Words { left_out: 400_000, blob: Some("abc".to_owned()), ..Words::default() };
    assert_eq!(words(&conversation), there);
    conversation.beginning(id, "the beginning");
    conversation.beginning(id, "again");
    assert_eq!(
        (words(&conversation).text.as_str(), words(&conversation).left_out),
        ("the beginning", 399_987)
    );
}

#[test]
fn an_imported_history_reads_like_any_other() {
    let mut log = Log::begins();
    let history = json!([
        { "kind": "message", "role": "user", "content": [{ "kind": "text", "text": "hello" }] },
        thinking("hm"),
        message("hi"),
        tool_call("t1", "Bash", &json!({ "command": "ls" })),
        { "kind": "tool_result", "call_id": "t1", "summary": "$ ls (exit 0)", "content": "a" },
        tool_call("t2", "Bash", &json!({ "command": "ps" })),
    ]);
    log.add(json!({
        "kind": "segment_start", "segment": 0, "reason": "import", "system_prompt": "p", "tools": [],
        "config": {}, "history": history, "carry": { "blob": "b", "bytes": 1 },
    }));
    assert_eq!(
        log.words(),
        ["you: hello", "thinking: hm", "reply: hi", "call: Bash ls [done exit 0] a", "call: Bash ps [lost]"]
    );
}

#[test]
fn a_summary_of_the_conversation_is_not_part_of_it() {
    let mut log = Log::begins();
    log.add(json!({
        "kind": "llm_call", "call": 4, "turn": 0, "purpose": "compaction", "request_hash": "r", "builder": 1,
        "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
        "reserved": { "input": 1, "output": 1 },
    }));
    let mut conversation = log.fold();
    conversation.live(&text("summary"), 1);
    log.replies(4, "summary");
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    assert!(words(&conversation).is_empty(), "{:?}", words(&conversation));
}
