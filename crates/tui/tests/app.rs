//! Stories of the terminal's mind: keys and frames go in, orders and pictures come out. No terminal, no pod, no clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use minke_protocol::{Completion, CompletionKind, Completions, Frame, Method, ReplyData, RunMode};
use minke_record::{Decision, InputSegment, SessionId};
use minke_tui::panes::ThreadRow;
use minke_tui::{
    Answer, App, Do, FirstRun, Key, Keys, Link, ModelLine, Msg, Question, Settings, Setup, TermEvent,
    Trouble, Where,
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

fn session() -> SessionId {
    "01970000-0000-7000-8000-000000000001".parse().unwrap()
}

/// A terminal of paper.
struct Room {
    app: App,
    now: u64,
    seq: u64,
    size: (u16, u16),
    /// Orders that nobody has looked at.
    orders: Vec<Do>,
}

impl Room {
    fn new(setup: Setup) -> Room {
        Room { app: App::new(setup), now: 1_000_000, seq: 0, size: (80, 24), orders: Vec::new() }
    }

    /// Attached to an idle pod that has said hello.
    fn attached() -> Room {
        Room::attached_with(Setup { seed: "t".into(), ..Setup::default() })
    }

    fn attached_with(setup: Setup) -> Room {
        let mut room = Room::new(setup);
        room.orders = room.app.attach(session(), room.now);
        assert_eq!(room.orders, [Do::Attach { session: session(), again: false }]);
        room.orders.clear();
        room.join(None);
        room.snapshot("idle");
        room.entry(json!({ "kind": "user_input", "segments": [{"kind": "text", "content": "hi"}], "from": {"actor": "person"} }));
        room.reply_of_model("Hello, *you*.");
        room
    }

    fn join(&mut self, draft: Option<minke_tui::Draft>) {
        self.msg(Msg::Link(Link::Joined { session: session(), name: "tale".into(), draft }));
    }

    fn msg(&mut self, msg: Msg) {
        self.orders.extend(self.app.update(msg, self.now));
    }

    fn frame(&mut self, frame: &Value) {
        let frame = Frame::parse(&frame.to_string()).unwrap_or_else(|e| panic!("{e}: {frame}"));
        self.msg(Msg::Frame(Box::new(frame)));
    }

    fn snapshot(&mut self, status: &str) {
        let greeting = json!({ "pod_name": "tale", "cwd": "/w", "model": "m/one", "posture": "ask", "scope_summary": "write /w", "fence": "A", "context_window": 1000 });
        let start = json!({ "seq": 0, "ts": 1, "h": H, "kind": "session_start", "session": session(), "format": 1, "name": "tale", "workspace": "/w", "cwd": "/w", "created_by": { "actor": "person" }, "version": "1", "manifest": {}, "scope": { "allow": [] } });
        let entries = if self.seq == 0 { vec![start] } else { Vec::new() };
        let data = json!({ "entries": entries, "greeting": greeting, "status": status, "head": { "seq": self.seq, "h": H } });
        self.frame(&json!({ "event": "snapshot", "data": data }));
    }

    fn entry(&mut self, kind: Value) {
        self.seq += 1;
        let mut entry = json!({ "seq": self.seq, "ts": self.now, "h": H });
        entry.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        self.frame(&json!({ "event": "entry", "data": { "entry": entry }, "seq": self.seq }));
    }

    fn reply_of_model(&mut self, text: &str) {
        let item =
            json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
        self.entry(json!({ "kind": "assistant_item", "run": RUN, "call": 0, "item": item }));
    }

    fn status(&mut self, status: &str) {
        let seq = self.seq;
        self.frame(&json!({ "event": "status", "data": { "status": status }, "after_seq": seq }));
    }

    fn asks(&mut self) {
        let subject = json!({ "tool": "Bash", "call_id": "c1", "digest": "d", "cwd": "/w", "action": { "class": "once", "command": "make it" } });
        let options = ["approved", "approved_for_session", "approved_rule", "denied", "abort"];
        self.entry(
            json!({ "kind": "ask", "id": ASK, "ask": "approval", "subject": subject, "options": options }),
        );
    }

    fn key(&mut self, key: Key) {
        self.msg(Msg::Term(TermEvent::Key(key)));
    }

    /// Keys by their names; `…` types the rest.
    fn press(&mut self, name: &str) {
        self.key(name.parse().unwrap());
    }

    fn write(&mut self, text: &str) {
        text.chars().for_each(|letter| self.key(Key::char(letter)));
    }

    /// The settings as they were kept last.
    fn set(&mut self) -> Settings {
        let kept = self.orders.iter().rev().find_map(|order| match order {
            Do::SaveSettings(settings) => Some(settings.clone()),
            _ => None,
        });
        kept.unwrap_or_default()
    }

    /// Orders other than those that keep drafts and inputs.
    fn ordered(&mut self) -> Vec<Do> {
        let kept = |order: &Do| matches!(order, Do::SaveDraft { .. } | Do::AddPast(_));
        std::mem::take(&mut self.orders).into_iter().filter(|order| !kept(order)).collect()
    }

    fn picture(&mut self) -> String {
        let (columns, rows) = self.size;
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| self.app.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row =
            |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..rows).map(row).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn shows(&mut self, wanted: &str) {
        let picture = self.picture();
        assert!(picture.contains(wanted), "`{wanted}` is not shown:\n{picture}");
    }

    #[track_caller]
    fn shows_not(&mut self, unwanted: &str) {
        let picture = self.picture();
        assert!(!picture.contains(unwanted), "`{unwanted}` is shown:\n{picture}");
    }

    /// The one method that was sent, and its token.
    #[track_caller]
    fn sent(&mut self) -> (u64, Method) {
        let ordered = self.ordered();
        match ordered.as_slice() {
            [Do::Send { token, method }] => (*token, method.clone()),
            other => panic!("one method should be sent: {other:?}"),
        }
    }

    #[track_caller]
    fn said(&mut self) -> (u64, String, RunMode, String) {
        let ordered = self.ordered();
        match ordered.as_slice() {
            [Do::Say { token, input, mode, op_id }] => {
                let [InputSegment::Text { content }] = input.as_slice() else { panic!("{input:?}") };
                (*token, content.here().unwrap().to_owned(), *mode, op_id.clone())
            }
            other => panic!("one thing should be said: {other:?}"),
        }
    }

    fn accept(&mut self, token: u64, result: Value) {
        self.msg(Msg::Reply { token, data: ReplyData::ok(&result) });
    }

    fn refuse(&mut self, token: u64, message: &str) {
        let data = serde_json::from_value(
            json!({ "ok": false, "error": { "code": "storage_failed", "message": message } }),
        );
        self.msg(Msg::Reply { token, data: data.unwrap() });
    }
}

#[test]
fn what_is_typed_is_said_and_what_is_answered_is_seen() {
    let mut room = Room::attached();
    room.shows("Hello, you.");
    room.shows("idle");
    room.write("and now?");
    room.shows("> and now?");
    room.press("enter");
    let (_, text, mode, _) = room.said();
    assert_eq!((text.as_str(), mode), ("and now?", RunMode::Queue));
    room.shows_not("> and now?");
}

#[test]
fn enter_queues_while_it_runs_and_the_other_key_steers() {
    let mut room = Room::attached();
    room.status("running");
    room.write("later");
    room.press("enter");
    assert_eq!(room.said().2, RunMode::Queue);
    room.write("now");
    room.press("alt-s");
    assert_eq!(room.said().2, RunMode::Steer);
    room.write("now");
    room.press("ctrl-enter");
    assert_eq!(room.said().2, RunMode::Steer);
    room.status("idle");
    room.write("nobody to steer");
    room.press("ctrl-enter");
    assert_eq!(room.said().2, RunMode::Queue);
}

#[test]
fn an_input_that_is_refused_comes_back() {
    let mut room = Room::attached();
    room.write("too much");
    room.press("enter");
    let (token, ..) = room.said();
    room.write("and more");
    room.refuse(token, "64 inputs wait already");
    room.shows("> too much");
    room.shows("and more");
    room.shows("64 inputs wait already");
    // Why it is back stays until the person does something.
    room.now += 60_000;
    room.msg(Msg::Tick);
    room.shows("64 inputs wait already");
    room.press("end");
    room.shows_not("64 inputs wait already");
}

#[test]
fn what_was_under_way_is_said_again_to_the_pod_that_was_started_anew() {
    let mut room = Room::attached();
    room.write("hear me");
    room.press("enter");
    let (token, _, _, op_id) = room.said();
    room.msg(Msg::Link(Link::Lost));
    assert_eq!(room.ordered(), [Do::Attach { session: session(), again: true }]);
    room.shows("starting again");
    room.join(None);
    let (again, text, _, same) = room.said();
    assert_eq!(
        (again, text.as_str(), same),
        (token, "hear me", op_id),
        "it is known by its name, and done once"
    );
    room.accept(again, json!({ "run": RUN }));
    // A pod that dies again and again is left alone, and nothing is lost.
    room.write("and me");
    room.press("enter");
    room.said();
    for _ in 0..2 {
        room.msg(Msg::Link(Link::Lost));
        room.ordered();
        room.join(None);
    }
    room.ordered();
    room.msg(Msg::Link(Link::Lost));
    assert_eq!(room.ordered(), []);
    room.shows("dead");
    room.shows("> and me");
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Attach { session: session(), again: true }]);
}

#[test]
fn a_pod_that_was_stopped_is_started_by_the_next_word() {
    let mut room = Room::attached();
    let seq = room.seq;
    room.frame(&json!({ "event": "shutdown", "after_seq": seq }));
    room.msg(Msg::Link(Link::Lost));
    assert_eq!(room.ordered(), [], "it was meant to stop");
    room.shows("stopped");
    room.write("wake up");
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Attach { session: session(), again: true }]);
    room.join(None);
    assert_eq!(room.said().1, "wake up");
    // If it cannot be started, the words come back.
    room.msg(Msg::Link(Link::Failed(Trouble { what: "no such session".into(), hint: None })));
    room.shows("> wake up");
    room.shows("no such session");
}

#[test]
fn a_question_takes_the_keys_only_if_nothing_is_being_typed() {
    let mut room = Room::attached();
    room.write("my thoughts, y");
    room.asks();
    room.write("es");
    assert_eq!(room.ordered(), []);
    room.shows("> my thoughts, yes");
    room.shows("make it");
    room.press("tab");
    room.press("y");
    let (_, method) = room.sent();
    let Method::Answer(answer) = method else { panic!("{method:?}") };
    assert_eq!((answer.decision, answer.note), (Decision::Approved, None));
    room.shows("> my thoughts, yes");
}

#[test]
fn a_key_that_was_under_way_does_not_answer_a_question() {
    let mut room = Room::attached();
    room.asks();
    room.now += 100;
    room.press("y");
    assert_eq!(room.ordered(), []);
    room.shows("press the key again");
    room.now += 300;
    room.press("y");
    assert!(matches!(room.sent().1, Method::Answer(_)));
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
        let mut room = Room::attached();
        room.asks();
        room.now += 1_000;
        room.press(key);
        let Method::Answer(answer) = room.sent().1 else { panic!("an answer") };
        assert_eq!(answer.decision, decision);
    }
    let mut room = Room::attached();
    room.asks();
    room.now += 1_000;
    room.press("n");
    assert_eq!(room.ordered(), [], "a note may be given");
    room.shows("why not?");
    room.write("not like that");
    room.press("enter");
    let Method::Answer(answer) = room.sent().1 else { panic!("an answer") };
    assert_eq!((answer.decision, answer.note.as_deref()), (Decision::Denied, Some("not like that")));
}

#[test]
fn a_question_that_is_answered_elsewhere_closes_here() {
    let mut room = Room::attached();
    room.asks();
    room.now += 1_000;
    room.press("n");
    room.write("half a no");
    room.entry(json!({ "kind": "answer", "id": ASK, "decision": "approved", "by": { "actor": "person", "surface": "cli" } }));
    room.shows("answered elsewhere");
    room.press("y");
    assert_eq!(room.ordered(), [], "it is a letter again");
}

#[test]
fn what_waits_is_shown_and_comes_back_into_the_composer() {
    let mut room = Room::attached();
    room.status("running");
    room.entry(json!({ "kind": "queued_input", "id": QUEUED, "segments": [{"kind": "text", "content": "then this"}], "from": {"actor": "person"}, "mode": "queue" }));
    room.shows("queued: then this");
    room.press("up");
    let (token, method) = room.sent();
    assert!(matches!(method, Method::Dequeue(_)), "{method:?}");
    room.accept(token, json!({ "segments": [{ "kind": "text", "content": "then this" }] }));
    room.entry(json!({ "kind": "dequeued", "id": QUEUED, "why": "removed" }));
    room.shows("> then this");
    room.shows_not("queued:");
}

#[test]
fn escape_pauses_and_twice_goes_back() {
    let mut room = Room::attached();
    room.status("running");
    room.press("esc");
    assert!(matches!(room.sent().1, Method::Pause(_)));
    room.now += 2_000;
    room.status("paused");
    room.shows("paused");
    room.press("enter");
    assert!(matches!(room.sent().1, Method::Resume(_)), "with nothing typed it goes on");
    room.status("idle");
    room.press("esc");
    room.press("esc");
    let (token, method) = room.sent();
    assert_eq!(method, Method::RewindTargets);
    let targets = json!([{ "seq": 1, "ts": 1, "turn": 0, "preview": "hi" }, { "seq": 7, "ts": 1, "turn": 1, "preview": "the second", "warning": "files stay" }]);
    room.accept(token, json!({ "head": { "seq": 9, "h": H }, "targets": targets }));
    room.shows("the second");
    room.shows("files stay");
    room.press("down");
    room.press("enter");
    let (token, method) = room.sent();
    let Method::Rewind(rewind) = method else { panic!("{method:?}") };
    assert_eq!((rewind.to_seq, rewind.expected_head.seq), (1, 9));
    room.accept(token, json!({ "input": [{ "kind": "text", "content": "hi" }] }));
    room.shows("> hi");
}

#[test]
fn leaving_takes_two_presses_and_time_forgets_the_first() {
    let mut room = Room::attached();
    room.press("ctrl-c");
    room.shows("the pod goes on");
    room.now += 2_000;
    room.msg(Msg::Tick);
    room.shows_not("the pod goes on");
    room.press("ctrl-c");
    assert_eq!(room.ordered(), []);
    room.press("ctrl-c");
    assert_eq!(room.ordered(), [Do::Quit]);
}

#[test]
fn nothing_is_drawn_and_no_time_is_wanted_while_nothing_happens() {
    let mut room = Room::attached();
    room.app.take_dirty();
    assert_eq!(room.app.wants_tick(), None);
    room.msg(Msg::Tick);
    assert!(!room.app.take_dirty());
    room.status("running");
    assert!(room.app.wants_tick().is_some());
}

#[test]
fn a_draft_is_kept_with_every_change() {
    let mut room = Room::attached();
    room.write("dr");
    let drafts: Vec<Do> = std::mem::take(&mut room.orders);
    let Some(Do::SaveDraft { of, draft }) = drafts.last() else { panic!("{drafts:?}") };
    assert_eq!((*of, draft.text.as_str()), (Some(session()), "dr"));
    let mut other = Room::new(Setup::default());
    other.app.attach(session(), other.now);
    other.join(Some(draft.clone()));
    other.shows("> dr");
}

#[test]
fn a_word_after_a_slash_is_a_command_and_others_are_said() {
    let mut room = Room::attached();
    room.write("/comp");
    room.shows("compact");
    room.ordered();
    room.press("tab");
    room.write("the tests");
    room.ordered();
    room.press("enter");
    let Method::Compact(compact) = room.sent().1 else { panic!("compact") };
    assert_eq!(compact.instructions.as_deref(), Some("the tests"));
    room.write("/deploy it");
    room.ordered();
    room.press("enter");
    assert_eq!(room.said().1, "/deploy it", "it may name a workflow");
    room.write("/cost ");
    room.press("enter");
    room.shows("cost");
    room.press("esc");
    room.write("/quit ");
    room.ordered();
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Quit]);
}

#[test]
fn what_is_nearly_a_command_is_said_only_when_it_is_meant() {
    let mut room = Room::attached();
    room.write("/hlep me");
    room.ordered();
    room.press("enter");
    assert!(room.ordered().iter().all(|order| !matches!(order, Do::Say { .. })));
    room.shows("there is no /hlep: /help?");
    room.shows("> /hlep me");
    room.press("enter");
    assert_eq!(room.said().1, "/hlep me", "it was meant");
    room.write("/forks ");
    room.press("enter");
    room.ordered();
    room.write("x");
    room.press("enter");
    room.shows("there is no /forks: /fork?");
    assert!(
        room.ordered().iter().all(|order| !matches!(order, Do::Say { .. })),
        "another text, another slip"
    );
    room.press("ctrl-u");
    for word in ["/etc/hosts is odd", "/up", "/deploy"] {
        room.write(word);
        room.ordered();
        room.press("enter");
        assert_eq!(room.said().1, word, "nothing like a command");
    }
}

/// A skill of the pod may have nearly a command's name.
#[test]
fn what_the_pod_has_a_name_for_is_no_slip() {
    let mut room = Room::attached();
    room.write("/polici");
    let asked = room.ordered();
    let Some(Do::Send { token, method: Method::ListCompletions(list) }) = asked.last() else {
        panic!("{asked:?}")
    };
    assert_eq!(list.kind, CompletionKind::Skill);
    room.accept(*token, json!({ "kind": "skill", "entries": [{ "value": "polici" }] }));
    room.press("esc");
    room.press("enter");
    assert_eq!(room.said().1, "/polici");
}

#[test]
fn files_are_completed_by_the_pod() {
    let mut room = Room::attached();
    room.write("see @sr");
    let asked = room.ordered();
    let Some(Do::Send { token, method: Method::ListCompletions(list) }) = asked.last() else {
        panic!("{asked:?}")
    };
    assert_eq!(list.prefix, "sr");
    let found =
        json!({ "kind": "file", "entries": [{ "value": "src/", "is_dir": true }, { "value": "srv.rs" }] });
    room.accept(*token, found);
    room.shows("srv.rs");
    room.press("down");
    room.press("enter");
    room.shows("> see @srv.rs");
    assert!(room.ordered().iter().all(|order| !matches!(order, Do::Say { .. })), "Enter chose");
    room.press("enter");
    assert_eq!(room.said().1, "see @srv.rs");
}

/// The list of a shorter word stays until the one of the longer word is there.
#[test]
fn a_directory_that_is_typed_in_full_is_not_completed_to_itself() {
    let mut room = Room::attached();
    room.write("see @notes");
    let asked = room.ordered();
    let Some(Do::Send { token, .. }) = asked.last() else { panic!("{asked:?}") };
    let entries = json!([{ "value": "notes/", "is_dir": true }, { "value": "notes/plan.md" }]);
    room.accept(*token, json!({ "kind": "file", "entries": entries }));
    room.shows("  @notes/plan.md");
    room.write("/");
    room.shows("> @notes/plan.md");
    room.press("tab");
    room.shows("> see @notes/plan.md");
}

#[test]
fn blocks_are_chosen_opened_and_copied() {
    let mut room = Room::attached();
    room.press("tab");
    room.shows("▌");
    room.press("c");
    assert_eq!(room.ordered(), [Do::Copy("Hello, *you*.".into())]);
    room.press("up");
    room.press("c");
    assert_eq!(room.ordered(), [Do::Copy("hi".into())]);
    room.write("z");
    room.shows("> z");
}

#[test]
fn older_entries_are_read_when_the_beginning_is_reached() {
    let mut room = Room::new(Setup::default());
    room.app.attach(session(), room.now);
    room.join(None);
    room.seq = 1_000;
    room.snapshot("idle");
    assert!(matches!(room.sent(), (_, Method::Status)));
    for number in 0..30 {
        room.reply_of_model(&format!("reply {number}"));
    }
    room.picture();
    for _ in 0..20 {
        room.press("pageup");
    }
    let asked = room.ordered();
    let [Do::Send { token, method: Method::Read(read) }] = asked.as_slice() else {
        panic!("once: {asked:?}")
    };
    assert_eq!((read.from_seq, read.limit), (501, 500));
    let entry = |seq: u64| {
        let item = json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": format!("older {seq}") }] });
        json!({ "seq": seq, "ts": 1, "run": RUN, "kind": "assistant_item", "call": 0, "item": item, "h": H })
    };
    // So many do not fit a frame: it is asked for fewer.
    room.accept(*token, json!({ "entries": (501..=600).map(entry).collect::<Vec<_>>(), "next_seq": 601 }));
    let asked = room.ordered();
    let [Do::Send { token, method: Method::Read(read) }] = asked.as_slice() else {
        panic!("again: {asked:?}")
    };
    assert_eq!((read.from_seq, read.limit), (751, 250));
    room.accept(*token, json!({ "entries": (751..=1_000).map(entry).collect::<Vec<_>>() }));
    room.shows("reply 0");
    room.press("pageup");
    room.shows("older 1000");
    room.press("ctrl-end");
    room.shows("reply 29");
}

#[test]
fn without_a_session_there_is_what_can_be_gone_on_with() {
    let mut room = Room::new(Setup { cwd: "/w".into(), ..Setup::default() });
    let asked = room.app.open(room.now);
    let tokens: Vec<(u64, Question)> = asked
        .into_iter()
        .map(|order| match order {
            Do::Ask { token, question } => (token, question),
            other => panic!("{other:?}"),
        })
        .collect();
    for (token, question) in tokens {
        let answer = match question {
            Question::FirstRun => {
                Answer::FirstRun(FirstRun { model: Some("m/one".into()), ..FirstRun::default() })
            }
            Question::Pods => Answer::Pods(vec![pod("boss", 1, 0), pod("child", 2, 1)]),
            Question::Threads { .. } => Answer::Threads(vec![ThreadRow {
                session: "01970000-0000-7000-8000-0000000000aa".parse().unwrap(),
                name: "old".into(),
                preview: "fix the parser".into(),
                state: "idle".into(),
                cwd: "/w".into(),
                updated: room.now,
                archived: false,
            }]),
            Question::Asks { everywhere: true } => Answer::Asks { rows: Vec::new(), unread: Vec::new() },
            other => panic!("{other:?}"),
        };
        room.msg(Msg::Told { token, result: Box::new(Ok(answer)) });
    }
    room.shows("fix the parser");
    room.shows("> child");
    room.press("down");
    room.press("down");
    room.press("enter");
    let old = "01970000-0000-7000-8000-0000000000aa".parse().unwrap();
    assert_eq!(room.ordered(), [Do::Attach { session: old, again: false }]);
    // What is typed begins a new one.
    let mut room = Room::new(Setup::default());
    room.app.open(room.now);
    room.write("do it");
    room.press("enter");
    assert_eq!(room.ordered(), [launches("do it", None)]);
    room.shows("starting a pod");
    room.msg(Msg::Link(Link::Failed(Trouble {
        what: "there is no model to ask".into(),
        hint: Some("choose one".into()),
    })));
    room.shows("no model to ask");
    room.shows("> do it");
    // Why nothing came of it stays until the person does something.
    room.now += 60_000;
    room.msg(Msg::Tick);
    assert_eq!(room.app.wants_tick(), None);
    room.shows("no model to ask");
    room.press("end");
    room.shows_not("no model to ask");
}

#[test]
fn what_a_pod_waits_for_is_shown_on_the_narrowest_screen() {
    let mut room = Room::attached();
    room.size = (40, 12);
    let seq = room.seq;
    room.status("running");
    let retry = json!({ "llm_call": 0, "failed_attempt": 1, "max_attempts": 5, "wait_ms": 9_000, "status": 503,
                        "error": "far too many people want to know something at the same time" });
    room.frame(&json!({ "event": "llm_retry", "data": retry, "after_seq": seq }));
    room.shows("asked again in 9 s (1/5)");
}

#[test]
fn somebody_new_chooses_a_model_first() {
    let mut room = Room::new(Setup::default());
    let asked = room.app.open(room.now);
    let first = asked.iter().find_map(|order| match order {
        Do::Ask { token, question: Question::FirstRun } => Some(*token),
        _ => None,
    });
    let line =
        |reference: &str| ModelLine { reference: reference.into(), ready: true, note: "needs no key".into() };
    let found =
        FirstRun { model: None, ready: vec![line("m/one"), line("scripted:demo")], missing: Vec::new() };
    room.msg(Msg::Told { token: first.unwrap(), result: Box::new(Ok(Answer::FirstRun(found))) });
    room.shows("Which model");
    room.shows("scripted:demo");
    let ordered = room.ordered();
    assert!(matches!(ordered.as_slice(), [Do::Ask { question: Question::Local, .. }]), "{ordered:?}");
    room.press("down");
    room.press("enter");
    let ordered = room.ordered();
    assert!(
        matches!(ordered.as_slice(), [Do::Ask { question: Question::SetModel(model), .. }] if model == "scripted:demo"),
        "{ordered:?}"
    );
    room.shows_not("Which model");
    room.write("go");
    room.press("enter");
    assert_eq!(room.ordered(), [launches("go", Some("scripted:demo"))]);
}

/// Somebody new may type first and look afterwards.
#[test]
fn what_somebody_new_types_waits_for_a_model() {
    let mut room = Room::new(Setup::default());
    let asked = room.app.open(room.now);
    let first = asked.iter().find_map(|order| match order {
        Do::Ask { token, question: Question::FirstRun } => Some(*token),
        _ => None,
    });
    let line = ModelLine { reference: "m/one".into(), ready: true, note: "needs no key".into() };
    let found = FirstRun { model: None, ready: vec![line.clone()], missing: Vec::new() };
    room.msg(Msg::Told { token: first.unwrap(), result: Box::new(Ok(Answer::FirstRun(found))) });
    room.ordered();
    room.write("do it");
    room.press("enter");
    room.shows("first a model, please; what you typed stays");
    let ordered = room.ordered();
    let Some(Do::Ask { token, question: Question::Models }) = ordered.last() else { panic!("{ordered:?}") };
    room.msg(Msg::Told { token: *token, result: Box::new(Ok(Answer::Models(vec![line]))) });
    room.shows("m/one");
    room.ordered();
    room.press("enter");
    room.shows("> do it");
    let ordered = room.ordered();
    assert!(
        matches!(ordered.first(), Some(Do::Ask { question: Question::SetModel(model), .. }) if model == "m/one"),
        "{ordered:?}"
    );
    room.press("enter");
    assert_eq!(room.ordered(), [launches("do it", Some("m/one"))]);
}

fn launches(text: &str, model: Option<&str>) -> Do {
    let input = vec![InputSegment::text(text)];
    Do::Launch { input, model: model.map(str::to_owned), place: Where::Here }
}

fn pod(name: &str, number: u64, asks: u32) -> PodRow {
    let session = |number: u64| format!("01970000-0000-7000-8000-0000000000{number:02}").parse().unwrap();
    let mut pod = PodRow::new(session(30 + number), name);
    pod.state = "running".into();
    pod.asks = asks;
    // Each is the child of the one before, the first two are nobody's.
    pod.parent = (number > 1).then(|| session(29 + number));
    pod
}

#[test]
fn pods_are_a_tree_and_can_be_ordered_about() {
    let mut room = Room::attached();
    room.press("ctrl-p");
    let asked = room.ordered();
    let [Do::Ask { token, question: Question::Pods }] = asked.as_slice() else { panic!("{asked:?}") };
    let pods = vec![pod("alone", 0, 0), pod("boss", 1, 0), pod("child", 2, 1)];
    room.msg(Msg::Told { token: *token, result: Box::new(Ok(Answer::Pods(pods.clone()))) });
    let picture = room.picture();
    let at = |word: &str| picture.find(word).unwrap_or_else(|| panic!("{word}:\n{picture}"));
    assert!(at("boss") < at("child") && at("child") < at("alone"), "who needs somebody first:\n{picture}");
    room.press("down");
    room.press("ctrl-x");
    let asked = room.ordered();
    assert!(
        matches!(asked.as_slice(), [Do::Ask { question: Question::Stop(session), .. }] if *session == pods[2].session),
        "{asked:?}"
    );
    room.write("alo");
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Attach { session: pods[0].session, again: false }]);
}

#[test]
fn every_size_has_room_for_what_counts() {
    for size in [(80, 24), (120, 40), (40, 12), (20, 6), (9, 3), (1, 1), (200, 60)] {
        let mut room = Room::attached();
        room.size = size;
        room.write("something that is typed and longer than a narrow screen");
        room.picture();
        room.press("f1");
        room.picture();
        room.press("esc");
        room.asks();
        room.picture();
        if size.0 >= 40 {
            room.shows("make it");
        }
    }
}

#[test]
fn texts_from_outside_cannot_move_anything() {
    let mut room = Room::attached();
    room.status("running");
    let text = "evil\u{1b}[2J\u{9b}31m\u{202e}text\u{7}";
    room.entry(json!({ "kind": "queued_input", "id": QUEUED, "segments": [{"kind": "text", "content": text}], "from": {"actor": "person"}, "mode": "queue" }));
    room.reply_of_model(text);
    let picture = room.picture();
    assert!(
        !picture.chars().any(|c| c.is_control() && c != '\n') && !picture.contains('\u{202e}'),
        "{picture:?}"
    );
}

#[test]
fn a_view_of_everything_reads_the_whole_log() {
    let mut room = Room::attached();
    room.write("/diff ");
    room.ordered();
    room.press("enter");
    let (token, method) = room.sent();
    assert!(matches!(method, Method::Read(read) if read.from_seq == 0));
    room.accept(token, json!({ "entries": [], "next_seq": 5 }));
    let (token, method) = room.sent();
    assert!(matches!(method, Method::Read(read) if read.from_seq == 5), "page by page");
    room.accept(token, json!({ "entries": [] }));
    room.shows("Changes");
    room.press("esc");
    room.write("/context ");
    room.ordered();
    room.press("enter");
    let (token, _) = room.sent();
    room.accept(token, json!({ "entries": [] }));
    room.shows("Context");
}

#[test]
fn a_childs_question_is_answered_at_the_child() {
    let mut room = Room::attached();
    let child = "01970000-0000-7000-8000-0000000000cc";
    let ask = json!({ "id": ASK, "ask": "approval", "subject": { "tool": "Bash", "digest": "d", "action": { "class": "once", "command": "make it" } }, "options": ["approved", "denied"] });
    let event = json!({ "kind": "asked", "pod_name": "child", "ask": ask, "socket": "/run/child/sock" });
    room.entry(json!({ "kind": "inbox", "event": event, "from": { "actor": "pod", "session": child }, "from_seq": 3, "wake": false }));
    room.shows("make it");
    room.now += 1_000;
    room.press("y");
    let ordered = room.ordered();
    let [Do::SendTo { token, socket, method: Method::Answer(answer) }] = ordered.as_slice() else {
        panic!("{ordered:?}")
    };
    assert_eq!((socket.to_str(), &answer.decision), (Some("/run/child/sock"), &Decision::Approved));
    room.accept(*token, json!({}));
    room.shows_not("a question waits");
}

#[test]
fn settings_are_turned_and_kept() {
    let mut room = Room::attached();
    room.write("/settings ");
    room.ordered();
    room.press("enter");
    room.shows("theme");
    assert_eq!(room.set().theme, None, "nothing is changed by looking");
    room.press("enter");
    assert_eq!(room.set().theme.as_deref(), Some("dark"));
    for (key, theme) in [("right", "light"), ("left", "dark"), ("space", "light"), ("left", "dark")] {
        room.press(key);
        assert_eq!(room.set().theme.as_deref(), Some(theme), "{key}");
        room.shows("labelled lines for a screen reader");
    }
    room.press("down");
    room.press("space");
    assert!(room.set().plain);
    room.press("down");
    room.press("right");
    assert!(room.set().mouse);
    // A letter that was meant for something else closes nothing.
    room.write("q");
    room.shows("Settings");
    room.press("esc");
    room.shows_not("Settings");
}

#[test]
fn settings_are_changed_by_words_too() {
    let mut room = Room::attached();
    let say = |room: &mut Room, words: &str| {
        room.write(words);
        room.press("enter");
        room.set()
    };
    assert!(say(&mut room, "/settings mouse").mouse && !say(&mut room, "/settings mouse").mouse);
    assert!(say(&mut room, "/settings mouse on").mouse && say(&mut room, "/settings mouse on").mouse);
    assert!(say(&mut room, "/settings plain").plain && !say(&mut room, "/settings plain off").plain);
    assert_eq!(say(&mut room, "/theme light").theme.as_deref(), Some("light"));
    assert_eq!(say(&mut room, "/settings theme none").theme.as_deref(), Some("none"));
    for (words, told) in [
        ("/settings mouse maybe", "/settings mouse: off, on"),
        ("/settings mouse on off", "/settings mouse: off, on"),
        ("/settings wings", "there is no setting `wings`: theme, plain, mouse, vi"),
        ("/theme pink", "/settings theme: terminal, dark, light, contrast, none"),
        ("/theme ", "/settings theme: terminal, dark, light, contrast, none"),
    ] {
        room.orders.clear();
        assert_eq!(say(&mut room, words), Settings::default(), "{words} changes nothing");
        room.shows(told);
    }
}

#[test]
fn plain_lines_that_were_wished_for_once_are_not_kept() {
    let mut room = Room::new(Setup { plain: true, ..Setup::default() });
    room.orders = room.app.open(room.now);
    room.write("/settings mouse");
    room.press("enter");
    assert_eq!((room.set().plain, room.set().mouse), (false, true));
    room.write("/settings ");
    room.press("enter");
    room.shows("> theme");
    room.press("esc");
    room.write("/settings plain");
    room.press("enter");
    room.write("/settings ");
    room.press("enter");
    room.shows("› theme");
}

#[test]
fn what_was_said_before_a_fork_stands_before_it() {
    let mut room = Room::new(Setup { seed: "t".into(), ..Setup::default() });
    room.orders = room.app.attach(session(), room.now);
    room.join(None);
    let from = json!({ "session": RUN, "seq": 12, "h": H });
    let start = json!({ "seq": 0, "ts": 1, "h": H, "kind": "session_start", "session": session(), "format": 1, "name": "tale", "workspace": "/w", "cwd": "/w", "created_by": { "actor": "person" }, "version": "1", "manifest": {}, "scope": { "allow": [] }, "from": from });
    let greeting = json!({ "pod_name": "tale", "cwd": "/w", "model": "m/one", "posture": "ask", "scope_summary": "write /w", "fence": "A", "context_window": 1000 });
    let data =
        json!({ "entries": [start], "greeting": greeting, "status": "idle", "head": { "seq": 0, "h": H } });
    room.ordered();
    room.frame(&json!({ "event": "snapshot", "data": data }));
    let token = match room.ordered().as_slice() {
        [Do::Ask { token, question: Question::Before(of) }] if *of == session() => *token,
        other => panic!("{other:?}"),
    };
    room.reply_of_model("Said in the fork.");
    assert_eq!(room.ordered(), [], "it is asked once");
    let message = |role: &str, text: &str| json!({ "kind": "message", "role": role, "content": [{ "kind": "text", "text": text }] });
    let items = [message("user", "Said before."), message("assistant", "Answered before.")];
    let items = items.map(|item| serde_json::from_value(item).unwrap()).to_vec();
    room.msg(Msg::Told { token, result: Box::new(Ok(Answer::Before(items))) });
    let picture = room.picture();
    let at = |text: &str| {
        picture.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{picture}"))
    };
    let places = ["Said before.", "Answered before.", "forked from", "Said in the fork."].map(at);
    assert!(places.is_sorted(), "{picture}");
    assert_eq!(room.ordered(), [], "it is told once");
}

#[test]
fn a_text_that_lies_in_a_blob_is_fetched_when_it_is_seen() {
    let mut room = Room::attached();
    let name = "ab".repeat(32);
    let text = json!({ "blob": name, "bytes": 400_000 });
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
    room.entry(json!({ "kind": "assistant_item", "run": RUN, "call": 1, "item": item }));
    room.shows("more in the log");
    assert_eq!(room.app.wants_tick(), Some(1));
    room.ordered();
    room.msg(Msg::Tick);
    let (token, method) = room.sent();
    assert!(matches!(&method, Method::ReadBlob(read) if read.blob == name && read.offset == 0), "{method:?}");
    assert_ne!(room.app.wants_tick(), Some(1), "it is asked once");
    // The piece ends in the middle of a letter.
    let data =
        json!({ "data": "VGhlIHN0YXJ0IG9mIGl0LsM=", "offset": 0, "bytes": 400_000, "next_offset": 17 });
    room.msg(Msg::Reply { token, data: ReplyData::ok(&data) });
    room.shows("The start of it.");
    room.shows("more in the log");
    assert_eq!(room.ordered(), [], "it is there");
}

#[test]
fn a_screen_with_room_is_filled_with_what_is_older() {
    let mut room = Room::attached();
    // A pod tells only what follows its last compaction, or the end of it.
    room.seq = 40;
    room.snapshot("idle");
    let (token, method) = room.sent();
    assert_eq!(method, Method::Status);
    let usage = json!({ "input": 20_000, "output": 7, "cost_usd": 2.5 });
    let status = |seq: u64| json!({ "status": "idle", "head": { "seq": seq, "h": H }, "usage": usage });
    room.accept(token, status(39));
    let (token, _) = room.sent();
    room.accept(token, status(40));
    assert_eq!(room.ordered(), [], "nothing was drawn yet");
    room.shows("$2.5");
    assert_eq!(room.app.wants_tick(), Some(1));
    room.msg(Msg::Tick);
    let (token, method) = room.sent();
    assert!(matches!(&method, Method::Read(read) if read.from_seq == 0 && read.limit == 41), "{method:?}");
    room.picture();
    room.msg(Msg::Tick);
    assert_eq!(room.ordered(), [], "one page at a time");
    room.refuse(token, "the log is damaged");
    room.shows("the log is damaged");
    room.msg(Msg::Tick);
    assert_eq!(room.ordered(), [], "what is refused is not asked for again and again");
}

/// Attached, with the composer's keys as in vi.
fn vi_room() -> Room {
    let mut room = Room::attached();
    room.write("/settings vi on");
    room.press("enter");
    assert!(room.set().vi);
    room.orders.clear();
    room.now += 10_000;
    room.msg(Msg::Tick);
    room
}

#[test]
fn vi_keys_are_the_composers_and_everything_else_stays() {
    let mut room = vi_room();
    room.shows("INSERT");
    room.write("one two @src");
    room.press("esc");
    room.shows("NORMAL");
    assert!(room.ordered().iter().all(|order| !matches!(order, Do::Send { method: Method::Pause(_), .. })));
    room.write("bbd");
    room.shows("NORMAL d");
    room.write("w");
    room.shows("> one two src");
    // Enter sends from any mode, and what follows is typed.
    room.press("enter");
    let (_, text, _, _) = room.said();
    assert_eq!(text, "one two src");
    room.shows("INSERT");
}

#[test]
fn escape_leaves_the_insertion_first_then_pauses_then_goes_back() {
    let mut room = vi_room();
    room.status("running");
    room.write("half");
    room.press("esc");
    assert_eq!(room.ordered(), []);
    room.press("esc");
    assert!(matches!(room.sent().1, Method::Pause(_)));
    room.press("esc");
    assert!(matches!(room.sent().1, Method::RewindTargets));
    room.shows("> half");
}

#[test]
fn letters_of_normal_mode_reach_earlier_inputs_and_commands() {
    let mut room = vi_room();
    for word in ["first", "second"] {
        room.write(word);
        room.press("enter");
    }
    room.write("third");
    room.press("esc");
    room.write("kk");
    room.shows("> first");
    room.write("jj");
    room.shows("> third");
    room.shows("NORMAL");
    room.write("dd/hel");
    room.shows("> /hel");
    room.shows("keys and commands");
    // Without vi it is as it was.
    room.press("esc");
    room.press("esc");
    room.write("dd/settings vi off");
    room.press("enter");
    room.write("dd");
    room.shows("> dd");
    room.shows_not("NORMAL");
}

#[test]
fn a_step_back_in_the_composer_has_a_key() {
    let mut room = Room::attached();
    room.write("one two");
    room.press("ctrl-_");
    room.shows("> one");
    room.press("alt-_");
    room.shows("> one two");
    room.press("alt-_");
    room.shows("there is nothing to do again");
}

#[test]
fn before_a_pod_lives_the_program_around_completes() {
    let mut room = Room::new(Setup::default());
    room.orders = room.app.open(room.now);
    room.write("see @no");
    let asked = |order: &Do| match order {
        Do::Ask { token, question: Question::Complete(list) } => Some((*token, list.clone())),
        _ => None,
    };
    let (token, list) = room.ordered().iter().rev().find_map(asked).unwrap();
    assert_eq!((list.kind, list.prefix.as_str()), (CompletionKind::File, "no"));
    let entries = vec![Completion { value: "notes".into(), is_dir: true }];
    let found = Completions { kind: CompletionKind::File, entries };
    room.msg(Msg::Told { token, result: Box::new(Ok(Answer::Completions(found))) });
    room.shows("> @notes");
    room.press("tab");
    room.shows("> see @notes/");
    for (typed, kinds) in [
        (" #a", vec![CompletionKind::Knowledge]),
        ("/a", vec![CompletionKind::Workflow, CompletionKind::Skill]),
    ] {
        if typed.starts_with('/') {
            room.press("ctrl-u");
        }
        room.ordered();
        room.write(typed);
        let lists: Vec<_> = room.ordered().iter().filter_map(asked).map(|(_, list)| list).collect();
        let asked: Vec<CompletionKind> =
            lists.iter().filter(|list| list.prefix == "a").map(|list| list.kind).collect();
        assert_eq!(asked, kinds, "{typed}");
    }
}

#[test]
fn every_key_can_be_another_and_is_named_where_it_counts() {
    let file = "answer-once = \"j\"\nanswer-deny = \"k\"\nanswer-rule = []\nsend = \"f5\"\nleave = \"f10\"\n\
                copy = \"w\"\nlist-stop = \"f8\"\nolder = \"f6\"\nnewer = \"f7\"\ncomplete = \"f9\"\nlist-right = \"f4\"\n";
    let (keys, problems) = Keys::read(file);
    assert_eq!(problems, Vec::<String>::new());
    let mut room = Room::attached_with(Setup { keys, seed: "t".into(), ..Setup::default() });
    room.asks();
    room.now += 1_000;
    room.shows("j once   a this session   k no, with a note   x end the run");
    // What has no key takes no room.
    room.shows("j yes, once  a for this session  k no, with a note  x no, and stop");
    room.press("j");
    let (_, method) = room.sent();
    assert!(matches!(&method, Method::Answer(answer) if answer.decision == Decision::Approved), "{method:?}");
    room.press("f10");
    room.shows("F10 again leaves");
    room.now += 5_000;
    room.msg(Msg::Tick);
    // The pop-up's keys are those of the composer.
    room.write("/t");
    room.shows("> /tasks");
    room.press("f7");
    room.shows("  /tasks");
    room.press("f6");
    room.shows("> /tasks");
    room.press("ctrl-u");
    room.write("/sett");
    room.press("f9");
    room.shows("> /settings");
    room.press("f5");
    room.shows("Settings");
    room.press("f4");
    assert_eq!(room.set().theme.as_deref(), Some("dark"));
    room.press("esc");
    room.status("paused");
    room.shows("F5 goes on");
}
