//! Stories of the UI state machine: keys and frames in, effects and screens out, without terminal, pod or
//! clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use minke_protocol::{Completion, CompletionKind, Completions, Frame, Method, ReplyData, RunMode};
use minke_record::{Decision, InputSegment, SessionId};
use minke_tui::panes::ThreadRow;
use minke_tui::{
    App, AppEffect, AppMessage, AppSetup, BackendError, BackendRequest, BackendResponse, FirstRun,
    KeyBindings, KeyPress, LinkEvent, ModelLine, TerminalEvent, TuiSettings, WorkTarget,
};
use minke_view::PodRow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

#[path = "app/reach.rs"]
mod reach;

const H: &str = "6f1c0000000000000000000000000000";
const RUN: &str = "01970000-0000-7000-8000-000000000005";
const ASK: &str = "01970000-0000-7000-8000-000000000004";
const QUEUED: &str = "01970000-0000-7000-8000-000000000002";

fn sample_session() -> SessionId {
    "01970000-0000-7000-8000-000000000001".parse().unwrap()
}

/// A UI without a terminal.
struct TestApp {
    app: App,
    now: u64,
    seq: u64,
    size: (u16, u16),
    /// Effects that the test has not taken.
    effects: Vec<AppEffect>,
}

impl TestApp {
    fn new(setup: AppSetup) -> TestApp {
        TestApp { app: App::new(setup), now: 1_000_000, seq: 0, size: (80, 24), effects: Vec::new() }
    }

    /// Attached to an idle pod after its hello.
    fn attached_app() -> TestApp {
        TestApp::attached_app_with(AppSetup { seed: "t".into(), ..AppSetup::default() })
    }

    fn attached_app_with(setup: AppSetup) -> TestApp {
        let mut app = TestApp::new(setup);
        app.effects = app.app.attach_session(sample_session(), app.now);
        assert_eq!(app.effects, [AppEffect::Attach { session: sample_session(), rejoin: false }]);
        app.effects.clear();
        app.join_pod(None);
        app.send_snapshot("idle");
        app.send_entry(json!({ "kind": "user_input", "segments": [{"kind": "text", "content": "hi"}], "from": {"actor": "person"} }));
        app.send_model_reply("Hello, *you*.");
        app
    }

    fn join_pod(&mut self, draft: Option<minke_tui::ComposerDraft>) {
        self.send_message(AppMessage::LinkEvent(LinkEvent::Joined {
            session: sample_session(),
            name: "tale".into(),
            draft,
        }));
    }

    fn send_message(&mut self, msg: AppMessage) {
        self.effects.extend(self.app.update(msg, self.now));
    }

    fn send_frame(&mut self, frame: &Value) {
        let frame = Frame::parse(&frame.to_string()).unwrap_or_else(|e| panic!("{e}: {frame}"));
        self.send_message(AppMessage::Frame(Box::new(frame)));
    }

    fn send_snapshot(&mut self, status: &str) {
        let greeting = json!({ "pod_name": "tale", "cwd": "/w", "model": "m/one", "posture": "ask", "scope_summary": "write /w", "sandbox": "namespaces", "context_window": 1000 });
        let start = json!({ "seq": 0, "ts": 1, "h": H, "kind": "session_start", "session": sample_session(), "format": 1, "name": "tale", "workspace": "/w", "cwd": "/w", "created_by": { "actor": "person" }, "version": "1", "manifest": {}, "scope": { "allow": [] } });
        let entries = if self.seq == 0 { vec![start] } else { Vec::new() };
        let data = json!({ "entries": entries, "greeting": greeting, "status": status, "head": { "seq": self.seq, "h": H } });
        self.send_frame(&json!({ "event": "snapshot", "data": data }));
    }

    fn send_entry(&mut self, kind: Value) {
        self.seq += 1;
        let mut entry = json!({ "seq": self.seq, "ts": self.now, "h": H });
        entry.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        self.send_frame(&json!({ "event": "entry", "data": { "entry": entry }, "seq": self.seq }));
    }

    fn send_model_reply(&mut self, text: &str) {
        let item =
            json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
        self.send_entry(json!({ "kind": "assistant_item", "run": RUN, "call": 0, "item": item }));
    }

    fn send_status(&mut self, status: &str) {
        let seq = self.seq;
        self.send_frame(&json!({ "event": "status", "data": { "status": status }, "after_seq": seq }));
    }

    fn send_ask(&mut self) {
        let subject = json!({ "tool": "Bash", "call_id": "c1", "digest": "d", "cwd": "/w", "action": { "class": "once", "command": "make it" } });
        let options = ["approved", "approved_for_session", "approved_rule", "denied", "abort"];
        self.send_entry(
            json!({ "kind": "ask", "id": ASK, "ask": "approval", "subject": subject, "options": options }),
        );
    }

    fn press_key(&mut self, key: KeyPress) {
        self.send_message(AppMessage::Terminal(TerminalEvent::KeyPress(key)));
    }

    /// Presses keys by their names; `…` types the rest.
    fn press_keys(&mut self, name: &str) {
        self.press_key(name.parse().unwrap());
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|letter| self.press_key(KeyPress::from_letter(letter)));
    }

    /// Returns the last saved settings.
    fn saved_settings(&mut self) -> TuiSettings {
        let saved = self.effects.iter().rev().find_map(|effect| match effect {
            AppEffect::SaveSettings(settings) => Some(settings.clone()),
            _ => None,
        });
        saved.unwrap_or_default()
    }

    /// Returns the effects other than saving drafts and history.
    fn take_effects(&mut self) -> Vec<AppEffect> {
        let kept =
            |effect: &AppEffect| matches!(effect, AppEffect::SaveDraft { .. } | AppEffect::AddHistory(_));
        std::mem::take(&mut self.effects).into_iter().filter(|order| !kept(order)).collect()
    }

    fn screen_text(&mut self) -> String {
        let (columns, rows) = self.size;
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| self.app.draw_app(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row =
            |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..rows).map(row).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn assert_shows(&mut self, expected: &str) {
        let picture = self.screen_text();
        assert!(picture.contains(expected), "`{expected}` is not shown:\n{picture}");
    }

    #[track_caller]
    fn assert_not_shows(&mut self, unwanted: &str) {
        let picture = self.screen_text();
        assert!(!picture.contains(unwanted), "`{unwanted}` is shown:\n{picture}");
    }

    /// Returns the only sent method and its token.
    #[track_caller]
    fn sent_method(&mut self) -> (u64, Method) {
        let ordered = self.take_effects();
        match ordered.as_slice() {
            [AppEffect::Send { token, method }] => (*token, method.clone()),
            other => panic!("one method should be sent: {other:?}"),
        }
    }

    #[track_caller]
    fn sent_input(&mut self) -> (u64, String, RunMode, String) {
        let ordered = self.take_effects();
        match ordered.as_slice() {
            [AppEffect::SendInput { token, input, mode, op_id }] => {
                let [InputSegment::Text { content }] = input.as_slice() else { panic!("{input:?}") };
                (*token, content.inline().unwrap().to_owned(), *mode, op_id.clone())
            }
            other => panic!("expected one input: {other:?}"),
        }
    }

    fn accept_method(&mut self, token: u64, result: Value) {
        self.send_message(AppMessage::Reply { token, data: ReplyData::from_result(&result) });
    }

    fn refuse_method(&mut self, token: u64, message: &str) {
        let data = serde_json::from_value(
            json!({ "ok": false, "error": { "code": "storage_failed", "message": message } }),
        );
        self.send_message(AppMessage::Reply { token, data: data.unwrap() });
    }
}

#[test]
fn what_is_typed_is_said_and_what_is_answered_is_seen() {
    let mut app = TestApp::attached_app();
    app.assert_shows("Hello, you.");
    app.assert_shows("idle");
    app.type_text("and now?");
    app.assert_shows("> and now?");
    app.press_keys("enter");
    let (_, text, mode, _) = app.sent_input();
    assert_eq!((text.as_str(), mode), ("and now?", RunMode::Queue));
    app.assert_not_shows("> and now?");
}

#[test]
fn enter_queues_while_it_runs_and_the_other_key_steers() {
    let mut room = TestApp::attached_app();
    room.send_status("running");
    room.type_text("later");
    room.press_keys("enter");
    assert_eq!(room.sent_input().2, RunMode::Queue);
    room.type_text("now");
    room.press_keys("alt-s");
    assert_eq!(room.sent_input().2, RunMode::Steer);
    room.type_text("now");
    room.press_keys("ctrl-enter");
    assert_eq!(room.sent_input().2, RunMode::Steer);
    room.send_status("idle");
    room.type_text("no run to steer");
    room.press_keys("ctrl-enter");
    assert_eq!(room.sent_input().2, RunMode::Queue);
}

#[test]
fn an_input_that_is_refused_comes_back() {
    let mut app = TestApp::attached_app();
    app.type_text("too much");
    app.press_keys("enter");
    let (token, ..) = app.sent_input();
    app.type_text("and more");
    app.refuse_method(token, "64 inputs wait already");
    app.assert_shows("> too much");
    app.assert_shows("and more");
    app.assert_shows("64 inputs wait already");
    // The reason remains visible until the next key.
    app.now += 60_000;
    app.send_message(AppMessage::Tick);
    app.assert_shows("64 inputs wait already");
    app.press_keys("end");
    app.assert_not_shows("64 inputs wait already");
}

#[test]
fn what_was_under_way_is_said_again_to_the_pod_that_was_started_anew() {
    let mut room = TestApp::attached_app();
    room.type_text("hear me");
    room.press_keys("enter");
    let (token, _, _, op_id) = room.sent_input();
    room.send_message(AppMessage::LinkEvent(LinkEvent::Lost));
    assert_eq!(room.take_effects(), [AppEffect::Attach { session: sample_session(), rejoin: true }]);
    room.assert_shows("restarting");
    room.join_pod(None);
    let (again, text, _, same) = room.sent_input();
    assert_eq!(
        (again, text.as_str(), same),
        (token, "hear me", op_id),
        "it has the same op_id and is performed once"
    );
    room.accept_method(again, json!({ "run": RUN }));
    // A pod that crashes repeatedly is not restarted, and nothing is lost.
    room.type_text("and me");
    room.press_keys("enter");
    room.sent_input();
    for _ in 0..2 {
        room.send_message(AppMessage::LinkEvent(LinkEvent::Lost));
        room.take_effects();
        room.join_pod(None);
    }
    room.take_effects();
    room.send_message(AppMessage::LinkEvent(LinkEvent::Lost));
    assert_eq!(room.take_effects(), []);
    room.assert_shows("crashed");
    room.assert_shows("> and me");
    room.press_keys("enter");
    assert_eq!(room.take_effects(), [AppEffect::Attach { session: sample_session(), rejoin: true }]);
}

#[test]
fn a_pod_that_was_stopped_is_started_by_the_next_word() {
    let mut app = TestApp::attached_app();
    let seq = app.seq;
    app.send_frame(&json!({ "event": "shutdown", "after_seq": seq }));
    app.send_message(AppMessage::LinkEvent(LinkEvent::Lost));
    assert_eq!(app.take_effects(), [], "it was meant to stop");
    app.assert_shows("stopped");
    app.type_text("wake up");
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [AppEffect::Attach { session: sample_session(), rejoin: true }]);
    app.join_pod(None);
    assert_eq!(app.sent_input().1, "wake up");
    // If it cannot be started, the input returns.
    app.send_message(AppMessage::LinkEvent(LinkEvent::Failed(BackendError {
        message: "no such session".into(),
        hint: None,
    })));
    app.assert_shows("> wake up");
    app.assert_shows("no such session");
}

#[test]
fn a_question_takes_the_keys_only_if_nothing_is_being_typed() {
    let mut room = TestApp::attached_app();
    room.type_text("my thoughts, y");
    room.send_ask();
    room.type_text("es");
    assert_eq!(room.take_effects(), []);
    room.assert_shows("> my thoughts, yes");
    room.assert_shows("make it");
    room.press_keys("tab");
    room.press_keys("y");
    let (_, method) = room.sent_method();
    let Method::Answer(answer) = method else { panic!("{method:?}") };
    assert_eq!((answer.decision, answer.note), (Decision::Approved, None));
    room.assert_shows("> my thoughts, yes");
}

#[test]
fn a_key_that_was_under_way_does_not_answer_a_question() {
    let mut app = TestApp::attached_app();
    app.send_ask();
    app.now += 100;
    app.press_keys("y");
    assert_eq!(app.take_effects(), []);
    app.assert_shows("press the key again");
    app.now += 300;
    app.press_keys("y");
    assert!(matches!(app.sent_method().1, Method::Answer(_)));
}

#[test]
fn every_key_of_a_card_is_its_answer() {
    let answers = [
        ("y", Decision::Approved),
        ("a", Decision::ApprovedForSession),
        ("r", Decision::ApprovedRule),
        ("x", Decision::Abort),
    ];
    for (key, decision) in answers {
        let mut app = TestApp::attached_app();
        app.send_ask();
        app.now += 1_000;
        app.press_keys(key);
        let Method::Answer(answer) = app.sent_method().1 else { panic!("an answer") };
        assert_eq!(answer.decision, decision);
    }
    let mut room = TestApp::attached_app();
    room.send_ask();
    room.now += 1_000;
    room.press_keys("n");
    assert_eq!(room.take_effects(), [], "a note may be given");
    room.assert_shows("why not?");
    room.type_text("not like that");
    room.press_keys("enter");
    let Method::Answer(answer) = room.sent_method().1 else { panic!("an answer") };
    assert_eq!((answer.decision, answer.note.as_deref()), (Decision::Denied, Some("not like that")));
}

#[test]
fn a_question_that_is_answered_elsewhere_closes_here() {
    let mut app = TestApp::attached_app();
    app.send_ask();
    app.now += 1_000;
    app.press_keys("n");
    app.type_text("half a no");
    app.send_entry(json!({ "kind": "answer", "id": ASK, "decision": "approved", "by": { "actor": "person", "surface": "cli" } }));
    app.assert_shows("answered in another client");
    app.press_keys("y");
    assert_eq!(app.take_effects(), [], "it is a letter again");
}

#[test]
fn what_waits_is_shown_and_comes_back_into_the_composer() {
    let mut room = TestApp::attached_app();
    room.send_status("running");
    room.send_entry(json!({ "kind": "queued_input", "id": QUEUED, "segments": [{"kind": "text", "content": "then this"}], "from": {"actor": "person"}, "mode": "queue" }));
    room.assert_shows("queued: then this");
    room.press_keys("up");
    let (token, method) = room.sent_method();
    assert!(matches!(method, Method::Dequeue(_)), "{method:?}");
    room.accept_method(token, json!({ "segments": [{ "kind": "text", "content": "then this" }] }));
    room.send_entry(json!({ "kind": "dequeued", "id": QUEUED, "why": "removed" }));
    room.assert_shows("> then this");
    room.assert_not_shows("queued:");
}

#[test]
fn escape_pauses_and_twice_goes_back() {
    let mut app = TestApp::attached_app();
    app.send_status("running");
    app.press_keys("esc");
    assert!(matches!(app.sent_method().1, Method::Pause(_)));
    app.now += 2_000;
    app.send_status("paused");
    app.assert_shows("paused");
    app.press_keys("enter");
    assert!(matches!(app.sent_method().1, Method::Resume(_)), "an empty composer resumes the run");
    app.send_status("idle");
    app.press_keys("esc");
    app.press_keys("esc");
    let (token, method) = app.sent_method();
    assert_eq!(method, Method::RewindTargets);
    let targets = json!([{ "seq": 1, "ts": 1, "turn": 0, "preview": "hi" }, { "seq": 7, "ts": 1, "turn": 1, "preview": "the second", "warning": "files stay" }]);
    app.accept_method(token, json!({ "head": { "seq": 9, "h": H }, "targets": targets }));
    app.assert_shows("the second");
    app.assert_shows("files stay");
    app.press_keys("down");
    app.press_keys("enter");
    let (token, method) = app.sent_method();
    let Method::Rewind(rewind) = method else { panic!("{method:?}") };
    assert_eq!((rewind.to_seq, rewind.expected_head.seq), (1, 9));
    app.accept_method(token, json!({ "input": [{ "kind": "text", "content": "hi" }] }));
    app.assert_shows("> hi");
}

#[test]
fn leaving_takes_two_presses_and_time_forgets_the_first() {
    let mut room = TestApp::attached_app();
    room.press_keys("ctrl-c");
    room.assert_shows("the pod keeps running");
    room.now += 2_000;
    room.send_message(AppMessage::Tick);
    room.assert_not_shows("the pod keeps running");
    room.press_keys("ctrl-c");
    assert_eq!(room.take_effects(), []);
    room.press_keys("ctrl-c");
    assert_eq!(room.take_effects(), [AppEffect::Quit]);
}

#[test]
fn nothing_is_drawn_and_no_time_is_wanted_while_nothing_happens() {
    let mut app = TestApp::attached_app();
    app.app.take_dirty();
    assert_eq!(app.app.next_tick_ms(), None);
    app.send_message(AppMessage::Tick);
    assert!(!app.app.take_dirty());
    app.send_status("running");
    assert!(app.app.next_tick_ms().is_some());
}

#[test]
fn a_draft_is_kept_with_every_change() {
    let mut room = TestApp::attached_app();
    room.type_text("dr");
    let drafts: Vec<AppEffect> = std::mem::take(&mut room.effects);
    let Some(AppEffect::SaveDraft { session, draft }) = drafts.last() else { panic!("{drafts:?}") };
    assert_eq!((*session, draft.text.as_str()), (Some(sample_session()), "dr"));
    let mut other = TestApp::new(AppSetup::default());
    other.app.attach_session(sample_session(), other.now);
    other.join_pod(Some(draft.clone()));
    other.assert_shows("> dr");
}

#[test]
fn a_word_after_a_slash_is_a_command_and_others_are_said() {
    let mut app = TestApp::attached_app();
    app.type_text("/comp");
    app.assert_shows("compact");
    app.take_effects();
    app.press_keys("tab");
    app.type_text("the tests");
    app.take_effects();
    app.press_keys("enter");
    let Method::Compact(compact) = app.sent_method().1 else { panic!("compact") };
    assert_eq!(compact.instructions.as_deref(), Some("the tests"));
    app.type_text("/deploy it");
    app.take_effects();
    app.press_keys("enter");
    assert_eq!(app.sent_input().1, "/deploy it", "it may name a workflow");
    app.type_text("/cost ");
    app.press_keys("enter");
    app.assert_shows("cost");
    app.press_keys("esc");
    app.type_text("/quit ");
    app.take_effects();
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [AppEffect::Quit]);
}

#[test]
fn what_is_nearly_a_command_is_said_only_when_it_is_meant() {
    let mut room = TestApp::attached_app();
    room.type_text("/hlep me");
    room.take_effects();
    room.press_keys("enter");
    assert!(room.take_effects().iter().all(|effect| !matches!(effect, AppEffect::SendInput { .. })));
    room.assert_shows("unknown command /hlep; did you mean /help?");
    room.assert_shows("> /hlep me");
    room.press_keys("enter");
    assert_eq!(room.sent_input().1, "/hlep me", "it was meant");
    room.type_text("/forks ");
    room.press_keys("enter");
    room.take_effects();
    room.type_text("x");
    room.press_keys("enter");
    room.assert_shows("unknown command /forks; did you mean /fork?");
    assert!(
        room.take_effects().iter().all(|effect| !matches!(effect, AppEffect::SendInput { .. })),
        "another text, another slip"
    );
    room.press_keys("ctrl-u");
    for word in ["/etc/hosts is odd", "/up", "/deploy"] {
        room.type_text(word);
        room.take_effects();
        room.press_keys("enter");
        assert_eq!(room.sent_input().1, word, "nothing like a command");
    }
}

/// A skill of the pod may have a name similar to a command.
#[test]
fn what_the_pod_has_a_name_for_is_no_slip() {
    let mut app = TestApp::attached_app();
    app.type_text("/polici");
    let requests = app.take_effects();
    let Some(AppEffect::Send { token, method: Method::ListCompletions(list) }) = requests.last() else {
        panic!("{requests:?}")
    };
    assert_eq!(list.kind, CompletionKind::Skill);
    app.accept_method(*token, json!({ "kind": "skill", "entries": [{ "value": "polici" }] }));
    app.press_keys("esc");
    app.press_keys("enter");
    assert_eq!(app.sent_input().1, "/polici");
}

#[test]
fn files_are_completed_by_the_pod() {
    let mut room = TestApp::attached_app();
    room.type_text("see @sr");
    let requests = room.take_effects();
    let Some(AppEffect::Send { token, method: Method::ListCompletions(list) }) = requests.last() else {
        panic!("{requests:?}")
    };
    assert_eq!(list.prefix, "sr");
    let position =
        json!({ "kind": "file", "entries": [{ "value": "src/", "is_dir": true }, { "value": "srv.rs" }] });
    room.accept_method(*token, position);
    room.assert_shows("srv.rs");
    room.press_keys("down");
    room.press_keys("enter");
    room.assert_shows("> see @srv.rs");
    assert!(
        room.take_effects().iter().all(|effect| !matches!(effect, AppEffect::SendInput { .. })),
        "Enter chose"
    );
    room.press_keys("enter");
    assert_eq!(room.sent_input().1, "see @srv.rs");
}

/// The completions of a shorter word remain until those of the longer word arrive.
#[test]
fn a_directory_that_is_typed_in_full_is_not_completed_to_itself() {
    let mut app = TestApp::attached_app();
    app.type_text("see @notes");
    let requests = app.take_effects();
    let Some(AppEffect::Send { token, .. }) = requests.last() else { panic!("{requests:?}") };
    let entries = json!([{ "value": "notes/", "is_dir": true }, { "value": "notes/plan.md" }]);
    app.accept_method(*token, json!({ "kind": "file", "entries": entries }));
    app.assert_shows("  @notes/plan.md");
    app.type_text("/");
    app.assert_shows("> @notes/plan.md");
    app.press_keys("tab");
    app.assert_shows("> see @notes/plan.md");
}

#[test]
fn blocks_are_chosen_opened_and_copied() {
    let mut room = TestApp::attached_app();
    room.press_keys("tab");
    room.assert_shows("▌");
    room.press_keys("c");
    assert_eq!(room.take_effects(), [AppEffect::Copy("Hello, *you*.".into())]);
    room.press_keys("up");
    room.press_keys("c");
    assert_eq!(room.take_effects(), [AppEffect::Copy("hi".into())]);
    room.type_text("z");
    room.assert_shows("> z");
}

#[test]
fn older_entries_are_read_when_the_beginning_is_reached() {
    let mut app = TestApp::new(AppSetup::default());
    app.app.attach_session(sample_session(), app.now);
    app.join_pod(None);
    app.seq = 1_000;
    app.send_snapshot("idle");
    assert!(matches!(app.sent_method(), (_, Method::Status)));
    for number in 0..30 {
        app.send_model_reply(&format!("reply {number}"));
    }
    app.screen_text();
    for _ in 0..20 {
        app.press_keys("pageup");
    }
    let requests = app.take_effects();
    let [AppEffect::Send { token, method: Method::Read(read) }] = requests.as_slice() else {
        panic!("once: {requests:?}")
    };
    assert_eq!((read.from_seq, read.limit), (501, 500));
    let entry = |seq: u64| {
        let item = json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": format!("older {seq}") }] });
        json!({ "seq": seq, "ts": 1, "run": RUN, "kind": "assistant_item", "call": 0, "item": item, "h": H })
    };
    // The page does not fit a frame, so fewer entries are requested.
    app.accept_method(
        *token,
        json!({ "entries": (501..=600).map(entry).collect::<Vec<_>>(), "next_seq": 601 }),
    );
    let requests = app.take_effects();
    let [AppEffect::Send { token, method: Method::Read(read) }] = requests.as_slice() else {
        panic!("again: {requests:?}")
    };
    assert_eq!((read.from_seq, read.limit), (751, 250));
    app.accept_method(*token, json!({ "entries": (751..=1_000).map(entry).collect::<Vec<_>>() }));
    app.assert_shows("reply 0");
    app.press_keys("pageup");
    app.assert_shows("older 1000");
    app.press_keys("ctrl-end");
    app.assert_shows("reply 29");
}

#[test]
fn without_a_session_there_is_what_can_be_gone_on_with() {
    let mut room = TestApp::new(AppSetup { cwd: "/w".into(), ..AppSetup::default() });
    let requests = room.app.show_start(room.now);
    let tokens: Vec<(u64, BackendRequest)> = requests
        .into_iter()
        .map(|effect| match effect {
            AppEffect::Request { token, request } => (token, request),
            other => panic!("{other:?}"),
        })
        .collect();
    for (token, question) in tokens {
        let answer = match question {
            BackendRequest::FirstRun => {
                BackendResponse::FirstRun(FirstRun { model: Some("m/one".into()), ..FirstRun::default() })
            }
            BackendRequest::Pods => {
                BackendResponse::Pods(vec![pod_row("boss", 1, 0), pod_row("child", 2, 1)])
            }
            BackendRequest::Threads { .. } => BackendResponse::Threads(vec![ThreadRow {
                session: "01970000-0000-7000-8000-0000000000aa".parse().unwrap(),
                name: "old".into(),
                summary: "fix the parser".into(),
                state: "idle".into(),
                cwd: "/w".into(),
                updated_at: room.now,
                is_archived: false,
            }]),
            BackendRequest::Asks { everywhere: true } => {
                BackendResponse::Asks { rows: Vec::new(), unreadable_logs: Vec::new() }
            }
            other => panic!("{other:?}"),
        };
        room.send_message(AppMessage::Response { token, result: Box::new(Ok(answer)) });
    }
    room.assert_shows("fix the parser");
    room.assert_shows("> child");
    room.press_keys("down");
    room.press_keys("down");
    room.press_keys("enter");
    let old = "01970000-0000-7000-8000-0000000000aa".parse().unwrap();
    assert_eq!(room.take_effects(), [AppEffect::Attach { session: old, rejoin: false }]);
    // An input starts a new session.
    let mut app = TestApp::new(AppSetup::default());
    app.app.show_start(app.now);
    app.type_text("do it");
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [launch_effect("do it", None)]);
    app.assert_shows("starting a pod");
    app.send_message(AppMessage::LinkEvent(LinkEvent::Failed(BackendError {
        message: "there is no model to ask".into(),
        hint: Some("choose one".into()),
    })));
    app.assert_shows("no model to ask");
    app.assert_shows("> do it");
    // The error remains visible until the next key.
    app.now += 60_000;
    app.send_message(AppMessage::Tick);
    assert_eq!(app.app.next_tick_ms(), None);
    app.assert_shows("no model to ask");
    app.press_keys("end");
    app.assert_not_shows("no model to ask");
}

#[test]
fn what_a_pod_waits_for_is_shown_on_the_narrowest_screen() {
    let mut room = TestApp::attached_app();
    room.size = (40, 12);
    let seq = room.seq;
    room.send_status("running");
    let retry = json!({ "llm_call": 0, "failed_attempt": 1, "max_attempts": 5, "wait_ms": 9_000, "status": 503,
                        "error": "far too many people want to know something at the same time" });
    room.send_frame(&json!({ "event": "llm_retry", "data": retry, "after_seq": seq }));
    room.assert_shows("retry in 9 s (1/5)");
}

#[test]
fn somebody_new_chooses_a_model_first() {
    let mut app = TestApp::new(AppSetup::default());
    let requests = app.app.show_start(app.now);
    let first = requests.iter().find_map(|effect| match effect {
        AppEffect::Request { token, request: BackendRequest::FirstRun } => Some(*token),
        _ => None,
    });
    let line = |reference: &str| ModelLine {
        reference: reference.into(),
        is_ready: true,
        note: "needs no key".into(),
    };
    let position = FirstRun {
        model: None,
        ready_models: vec![line("m/one"), line("scripted:demo")],
        missing_keys: Vec::new(),
    };
    app.send_message(AppMessage::Response {
        token: first.unwrap(),
        result: Box::new(Ok(BackendResponse::FirstRun(position))),
    });
    app.assert_shows("Choose a model");
    app.assert_shows("scripted:demo");
    let ordered = app.take_effects();
    assert!(
        matches!(ordered.as_slice(), [AppEffect::Request { request: BackendRequest::LocalModels, .. }]),
        "{ordered:?}"
    );
    app.press_keys("down");
    app.press_keys("enter");
    let ordered = app.take_effects();
    assert!(
        matches!(ordered.as_slice(), [AppEffect::Request { request: BackendRequest::SetModel(model), .. }] if model == "scripted:demo"),
        "{ordered:?}"
    );
    app.assert_not_shows("Choose a model");
    app.type_text("go");
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [launch_effect("go", Some("scripted:demo"))]);
}

/// New users may type before they choose a model.
#[test]
fn what_somebody_new_types_waits_for_a_model() {
    let mut room = TestApp::new(AppSetup::default());
    let requests = room.app.show_start(room.now);
    let first = requests.iter().find_map(|effect| match effect {
        AppEffect::Request { token, request: BackendRequest::FirstRun } => Some(*token),
        _ => None,
    });
    let line = ModelLine { reference: "m/one".into(), is_ready: true, note: "needs no key".into() };
    let position = FirstRun { model: None, ready_models: vec![line.clone()], missing_keys: Vec::new() };
    room.send_message(AppMessage::Response {
        token: first.unwrap(),
        result: Box::new(Ok(BackendResponse::FirstRun(position))),
    });
    room.take_effects();
    room.type_text("do it");
    room.press_keys("enter");
    room.assert_shows("choose a model first; your input is kept");
    let ordered = room.take_effects();
    let Some(AppEffect::Request { token, request: BackendRequest::Models }) = ordered.last() else {
        panic!("{ordered:?}")
    };
    room.send_message(AppMessage::Response {
        token: *token,
        result: Box::new(Ok(BackendResponse::Models(vec![line]))),
    });
    room.assert_shows("m/one");
    room.take_effects();
    room.press_keys("enter");
    room.assert_shows("> do it");
    let ordered = room.take_effects();
    assert!(
        matches!(ordered.first(), Some(AppEffect::Request { request: BackendRequest::SetModel(model), .. }) if model == "m/one"),
        "{ordered:?}"
    );
    room.press_keys("enter");
    assert_eq!(room.take_effects(), [launch_effect("do it", Some("m/one"))]);
}

fn launch_effect(text: &str, model: Option<&str>) -> AppEffect {
    let input = vec![InputSegment::from_text(text)];
    AppEffect::Launch { input, model: model.map(str::to_owned), place: WorkTarget::CurrentDir }
}

fn pod_row(name: &str, number: u64, asks: u32) -> PodRow {
    let session = |number: u64| format!("01970000-0000-7000-8000-0000000000{number:02}").parse().unwrap();
    let mut pod = PodRow::new(session(30 + number), name);
    pod.state = "running".into();
    pod.asks = asks;
    // Each pod is the child of the previous one; the first two have no parent.
    pod.parent = (number > 1).then(|| session(29 + number));
    pod
}

#[test]
fn pods_are_a_tree_and_can_be_ordered_about() {
    let mut app = TestApp::attached_app();
    app.press_keys("ctrl-p");
    let requests = app.take_effects();
    let [AppEffect::Request { token, request: BackendRequest::Pods }] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    let pods = vec![pod_row("alone", 0, 0), pod_row("boss", 1, 0), pod_row("child", 2, 1)];
    app.send_message(AppMessage::Response {
        token: *token,
        result: Box::new(Ok(BackendResponse::Pods(pods.clone()))),
    });
    let picture = app.screen_text();
    let at = |word: &str| picture.find(word).unwrap_or_else(|| panic!("{word}:\n{picture}"));
    assert!(at("boss") < at("child") && at("child") < at("alone"), "pods with asks come first:\n{picture}");
    app.press_keys("down");
    app.press_keys("ctrl-x");
    let requests = app.take_effects();
    assert!(
        matches!(requests.as_slice(), [AppEffect::Request { request: BackendRequest::Stop(session), .. }] if *session == pods[2].session),
        "{requests:?}"
    );
    app.type_text("alo");
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [AppEffect::Attach { session: pods[0].session, rejoin: false }]);
}

#[test]
fn every_size_has_room_for_what_counts() {
    for size in [(80, 24), (120, 40), (40, 12), (20, 6), (9, 3), (1, 1), (200, 60)] {
        let mut app = TestApp::attached_app();
        app.size = size;
        app.type_text("something that is typed and longer than a narrow screen");
        app.screen_text();
        app.press_keys("f1");
        app.screen_text();
        app.press_keys("esc");
        app.send_ask();
        app.screen_text();
        if size.0 >= 40 {
            app.assert_shows("make it");
        }
    }
}

#[test]
fn texts_from_outside_cannot_move_anything() {
    let mut room = TestApp::attached_app();
    room.send_status("running");
    let text = "evil\u{1b}[2J\u{9b}31m\u{202e}text\u{7}";
    room.send_entry(json!({ "kind": "queued_input", "id": QUEUED, "segments": [{"kind": "text", "content": text}], "from": {"actor": "person"}, "mode": "queue" }));
    room.send_model_reply(text);
    let picture = room.screen_text();
    assert!(
        !picture.chars().any(|c| c.is_control() && c != '\n') && !picture.contains('\u{202e}'),
        "{picture:?}"
    );
}

#[test]
fn a_view_of_everything_reads_the_whole_log() {
    let mut app = TestApp::attached_app();
    app.type_text("/diff ");
    app.take_effects();
    app.press_keys("enter");
    let (token, method) = app.sent_method();
    assert!(matches!(method, Method::Read(read) if read.from_seq == 0));
    app.accept_method(token, json!({ "entries": [], "next_seq": 5 }));
    let (token, method) = app.sent_method();
    assert!(matches!(method, Method::Read(read) if read.from_seq == 5), "page by page");
    app.accept_method(token, json!({ "entries": [] }));
    app.assert_shows("Changes");
    app.press_keys("esc");
    app.type_text("/context ");
    app.take_effects();
    app.press_keys("enter");
    let (token, _) = app.sent_method();
    app.accept_method(token, json!({ "entries": [] }));
    app.assert_shows("Context");
}

#[test]
fn a_childs_question_is_answered_at_the_child() {
    let mut room = TestApp::attached_app();
    let child = "01970000-0000-7000-8000-0000000000cc";
    let ask = json!({ "id": ASK, "ask": "approval", "subject": { "tool": "Bash", "digest": "d", "action": { "class": "once", "command": "make it" } }, "options": ["approved", "denied"] });
    let event = json!({ "kind": "asked", "pod_name": "child", "ask": ask, "socket": "/run/child/sock" });
    room.send_entry(json!({ "kind": "inbox", "event": event, "from": { "actor": "pod", "session": child }, "from_seq": 3, "wake": false }));
    room.assert_shows("make it");
    room.now += 1_000;
    room.press_keys("y");
    let ordered = room.take_effects();
    let [AppEffect::SendTo { token, socket, method: Method::Answer(answer) }] = ordered.as_slice() else {
        panic!("{ordered:?}")
    };
    assert_eq!((socket.to_str(), &answer.decision), (Some("/run/child/sock"), &Decision::Approved));
    room.accept_method(*token, json!({}));
    room.assert_not_shows("1 open question");
}

#[test]
fn settings_are_turned_and_kept() {
    let mut app = TestApp::attached_app();
    app.type_text("/settings ");
    app.take_effects();
    app.press_keys("enter");
    app.assert_shows("theme");
    assert_eq!(app.saved_settings().theme, None, "nothing is changed by looking");
    app.press_keys("enter");
    assert_eq!(app.saved_settings().theme.as_deref(), Some("dark"));
    for (key, theme) in [("right", "light"), ("left", "dark"), ("space", "light"), ("left", "dark")] {
        app.press_keys(key);
        assert_eq!(app.saved_settings().theme.as_deref(), Some(theme), "{key}");
        app.assert_shows("labelled lines for a screen reader");
    }
    app.press_keys("down");
    app.press_keys("space");
    assert!(app.saved_settings().plain);
    app.press_keys("down");
    app.press_keys("right");
    assert!(app.saved_settings().mouse);
    // A letter closes nothing.
    app.type_text("q");
    app.assert_shows("Settings");
    app.press_keys("esc");
    app.assert_not_shows("Settings");
}

#[test]
fn settings_are_changed_by_words_too() {
    let mut room = TestApp::attached_app();
    let say = |room: &mut TestApp, words: &str| {
        room.type_text(words);
        room.press_keys("enter");
        room.saved_settings()
    };
    assert!(say(&mut room, "/settings mouse").mouse && !say(&mut room, "/settings mouse").mouse);
    assert!(say(&mut room, "/settings mouse on").mouse && say(&mut room, "/settings mouse on").mouse);
    assert!(say(&mut room, "/settings plain").plain && !say(&mut room, "/settings plain off").plain);
    assert_eq!(say(&mut room, "/theme light").theme.as_deref(), Some("light"));
    assert_eq!(say(&mut room, "/settings theme none").theme.as_deref(), Some("none"));
    for (words, told) in [
        ("/settings mouse maybe", "/settings mouse: off, on"),
        ("/settings mouse on off", "/settings mouse: off, on"),
        ("/settings wings", "unknown setting `wings`; the settings are theme, plain, mouse, vi"),
        ("/theme pink", "/settings theme: terminal, dark, light, contrast, none"),
        ("/theme ", "/settings theme: terminal, dark, light, contrast, none"),
    ] {
        room.effects.clear();
        assert_eq!(say(&mut room, words), TuiSettings::default(), "{words} changes nothing");
        room.assert_shows(told);
    }
}

#[test]
fn plain_lines_that_were_wished_for_once_are_not_kept() {
    let mut app = TestApp::new(AppSetup { plain: true, ..AppSetup::default() });
    app.effects = app.app.show_start(app.now);
    app.type_text("/settings mouse");
    app.press_keys("enter");
    assert_eq!((app.saved_settings().plain, app.saved_settings().mouse), (false, true));
    app.type_text("/settings ");
    app.press_keys("enter");
    app.assert_shows("> theme");
    app.press_keys("esc");
    app.type_text("/settings plain");
    app.press_keys("enter");
    app.type_text("/settings ");
    app.press_keys("enter");
    app.assert_shows("› theme");
}

#[test]
fn what_was_said_before_a_fork_stands_before_it() {
    let mut room = TestApp::new(AppSetup { seed: "t".into(), ..AppSetup::default() });
    room.effects = room.app.attach_session(sample_session(), room.now);
    room.join_pod(None);
    let from = json!({ "session": RUN, "seq": 12, "h": H });
    let start = json!({ "seq": 0, "ts": 1, "h": H, "kind": "session_start", "session": sample_session(), "format": 1, "name": "tale", "workspace": "/w", "cwd": "/w", "created_by": { "actor": "person" }, "version": "1", "manifest": {}, "scope": { "allow": [] }, "from": from });
    let greeting = json!({ "pod_name": "tale", "cwd": "/w", "model": "m/one", "posture": "ask", "scope_summary": "write /w", "sandbox": "namespaces", "context_window": 1000 });
    let data =
        json!({ "entries": [start], "greeting": greeting, "status": "idle", "head": { "seq": 0, "h": H } });
    room.take_effects();
    room.send_frame(&json!({ "event": "snapshot", "data": data }));
    let token = match room.take_effects().as_slice() {
        [AppEffect::Request { token, request: BackendRequest::ForkHistory(of) }]
            if *of == sample_session() =>
        {
            *token
        }
        other => panic!("{other:?}"),
    };
    room.send_model_reply("Said in the fork.");
    assert_eq!(room.take_effects(), [], "it is requested once");
    let message = |role: &str, text: &str| json!({ "kind": "message", "role": role, "content": [{ "kind": "text", "text": text }] });
    let items = [message("user", "Said before."), message("assistant", "Answered before.")];
    let items = items.map(|item| serde_json::from_value(item).unwrap()).to_vec();
    room.send_message(AppMessage::Response {
        token,
        result: Box::new(Ok(BackendResponse::ForkHistory(items))),
    });
    let picture = room.screen_text();
    let at = |text: &str| {
        picture.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{picture}"))
    };
    let places = ["Said before.", "Answered before.", "forked from", "Said in the fork."].map(at);
    assert!(places.is_sorted(), "{picture}");
    assert_eq!(room.take_effects(), [], "it is requested once");
}

#[test]
fn a_text_that_lies_in_a_blob_is_fetched_when_it_is_seen() {
    let mut app = TestApp::attached_app();
    let name = "ab".repeat(32);
    let text = json!({ "blob": name, "bytes": 400_000 });
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
    app.send_entry(json!({ "kind": "assistant_item", "run": RUN, "call": 1, "item": item }));
    app.assert_shows("more in the log");
    assert_eq!(app.app.next_tick_ms(), Some(1));
    app.take_effects();
    app.send_message(AppMessage::Tick);
    let (token, method) = app.sent_method();
    assert!(matches!(&method, Method::ReadBlob(read) if read.blob == name && read.offset == 0), "{method:?}");
    assert_ne!(app.app.next_tick_ms(), Some(1), "it is requested once");
    // The piece ends inside of a character.
    let data =
        json!({ "data": "VGhlIHN0YXJ0IG9mIGl0LsM=", "offset": 0, "bytes": 400_000, "next_offset": 17 });
    app.send_message(AppMessage::Reply { token, data: ReplyData::from_result(&data) });
    app.assert_shows("The start of it.");
    app.assert_shows("more in the log");
    assert_eq!(app.take_effects(), [], "it is there");
}

#[test]
fn a_screen_with_room_is_filled_with_what_is_older() {
    let mut room = TestApp::attached_app();
    // A pod only sends the entries after its last compaction, or the end of them.
    room.seq = 40;
    room.send_snapshot("idle");
    let (token, method) = room.sent_method();
    assert_eq!(method, Method::Status);
    let usage = json!({ "input": 20_000, "output": 7, "cost_usd": 2.5 });
    let status = |seq: u64| json!({ "status": "idle", "head": { "seq": seq, "h": H }, "usage": usage });
    room.accept_method(token, status(39));
    let (token, _) = room.sent_method();
    room.accept_method(token, status(40));
    assert_eq!(room.take_effects(), [], "nothing was drawn yet");
    room.assert_shows("$2.5");
    assert_eq!(room.app.next_tick_ms(), Some(1));
    room.send_message(AppMessage::Tick);
    let (token, method) = room.sent_method();
    assert!(matches!(&method, Method::Read(read) if read.from_seq == 0 && read.limit == 41), "{method:?}");
    room.screen_text();
    room.send_message(AppMessage::Tick);
    assert_eq!(room.take_effects(), [], "one page at a time");
    room.refuse_method(token, "the log is damaged");
    room.assert_shows("the log is damaged");
    room.send_message(AppMessage::Tick);
    assert_eq!(room.take_effects(), [], "a refused page is not requested again");
}

/// Attached, with vi keys in the composer.
fn vi_app() -> TestApp {
    let mut app = TestApp::attached_app();
    app.type_text("/settings vi on");
    app.press_keys("enter");
    assert!(app.saved_settings().vi);
    app.effects.clear();
    app.now += 10_000;
    app.send_message(AppMessage::Tick);
    app
}

#[test]
fn vi_keys_are_the_composers_and_everything_else_stays() {
    let mut room = vi_app();
    room.assert_shows("INSERT");
    room.type_text("one two @src");
    room.press_keys("esc");
    room.assert_shows("NORMAL");
    assert!(
        room.take_effects()
            .iter()
            .all(|effect| !matches!(effect, AppEffect::Send { method: Method::Pause(_), .. }))
    );
    room.type_text("bbd");
    room.assert_shows("NORMAL d");
    room.type_text("w");
    room.assert_shows("> one two src");
    // Enter sends in any mode, and the next input starts in insert mode.
    room.press_keys("enter");
    let (_, text, _, _) = room.sent_input();
    assert_eq!(text, "one two src");
    room.assert_shows("INSERT");
}

#[test]
fn escape_leaves_the_insertion_first_then_pauses_then_goes_back() {
    let mut app = vi_app();
    app.send_status("running");
    app.type_text("half");
    app.press_keys("esc");
    assert_eq!(app.take_effects(), []);
    app.press_keys("esc");
    assert!(matches!(app.sent_method().1, Method::Pause(_)));
    app.press_keys("esc");
    assert!(matches!(app.sent_method().1, Method::RewindTargets));
    app.assert_shows("> half");
}

#[test]
fn letters_of_normal_mode_reach_earlier_inputs_and_commands() {
    let mut room = vi_app();
    for word in ["first", "second"] {
        room.type_text(word);
        room.press_keys("enter");
    }
    room.type_text("third");
    room.press_keys("esc");
    room.type_text("kk");
    room.assert_shows("> first");
    room.type_text("jj");
    room.assert_shows("> third");
    room.assert_shows("NORMAL");
    room.type_text("dd/hel");
    room.assert_shows("> /hel");
    room.assert_shows("Show keys and commands");
    // Without vi the behaviour is unchanged.
    room.press_keys("esc");
    room.press_keys("esc");
    room.type_text("dd/settings vi off");
    room.press_keys("enter");
    room.type_text("dd");
    room.assert_shows("> dd");
    room.assert_not_shows("NORMAL");
}

#[test]
fn a_step_back_in_the_composer_has_a_key() {
    let mut app = TestApp::attached_app();
    app.type_text("one two");
    app.press_keys("ctrl-_");
    app.assert_shows("> one");
    app.press_keys("alt-_");
    app.assert_shows("> one two");
    app.press_keys("alt-_");
    app.assert_shows("nothing to redo");
}

#[test]
fn before_a_pod_lives_the_program_around_completes() {
    let mut room = TestApp::new(AppSetup::default());
    room.effects = room.app.show_start(room.now);
    room.type_text("see @no");
    let requests = |effect: &AppEffect| match effect {
        AppEffect::Request { token, request: BackendRequest::Complete(list) } => Some((*token, list.clone())),
        _ => None,
    };
    let (token, list) = room.take_effects().iter().rev().find_map(requests).unwrap();
    assert_eq!((list.kind, list.prefix.as_str()), (CompletionKind::File, "no"));
    let entries = vec![Completion { value: "notes".into(), is_dir: true }];
    let position = Completions { kind: CompletionKind::File, entries };
    room.send_message(AppMessage::Response {
        token,
        result: Box::new(Ok(BackendResponse::Completions(position))),
    });
    room.assert_shows("> @notes");
    room.press_keys("tab");
    room.assert_shows("> see @notes/");
    for (typed, kinds) in [
        (" #a", vec![CompletionKind::Knowledge]),
        ("/a", vec![CompletionKind::Workflow, CompletionKind::Skill]),
    ] {
        if typed.starts_with('/') {
            room.press_keys("ctrl-u");
        }
        room.take_effects();
        room.type_text(typed);
        let lists: Vec<_> = room.take_effects().iter().filter_map(requests).map(|(_, list)| list).collect();
        let asked: Vec<CompletionKind> =
            lists.iter().filter(|list| list.prefix == "a").map(|list| list.kind).collect();
        assert_eq!(asked, kinds, "{typed}");
    }
}

#[test]
fn every_key_can_be_another_and_is_named_where_it_counts() {
    let file = "answer-once = \"j\"\nanswer-deny = \"k\"\nanswer-rule = []\nsend = \"f5\"\nleave = \"f10\"\n\
                copy = \"w\"\nlist-stop = \"f8\"\nolder = \"f6\"\nnewer = \"f7\"\ncomplete = \"f9\"\nlist-right = \"f4\"\n";
    let (keys, problems) = KeyBindings::parse_config(file);
    assert_eq!(problems, Vec::<String>::new());
    let mut app = TestApp::attached_app_with(AppSetup { keys, seed: "t".into(), ..AppSetup::default() });
    app.send_ask();
    app.now += 1_000;
    app.assert_shows("j once   a this session   k no, with a note   x end the run");
    // An action without a key takes no space.
    app.assert_shows("j yes, once  a for this session  k no, with a note  x no, and stop");
    app.press_keys("j");
    let (_, method) = app.sent_method();
    assert!(matches!(&method, Method::Answer(answer) if answer.decision == Decision::Approved), "{method:?}");
    app.press_keys("f10");
    app.assert_shows("press F10 again to quit");
    app.now += 5_000;
    app.send_message(AppMessage::Tick);
    // The completions use the keys of the composer.
    app.type_text("/t");
    app.assert_shows("> /tasks");
    app.press_keys("f7");
    app.assert_shows("  /tasks");
    app.press_keys("f6");
    app.assert_shows("> /tasks");
    app.press_keys("ctrl-u");
    app.type_text("/sett");
    app.press_keys("f9");
    app.assert_shows("> /settings");
    app.press_keys("f5");
    app.assert_shows("Settings");
    app.press_keys("f4");
    assert_eq!(app.saved_settings().theme.as_deref(), Some("dark"));
    app.press_keys("esc");
    app.send_status("paused");
    app.assert_shows("F5 resumes");
}
