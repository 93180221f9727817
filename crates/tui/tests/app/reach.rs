//! Stories of requests to the backend: asks of all pods, other pods, threads, a locked directory, the first
//! start, read-only mode.

use minke_record::{AskId, Decision, InputSegment, SessionId};
use minke_tui::panes::{AskRow, ThreadRow};
use minke_tui::{
    AppEffect, AppMessage, AppSetup, BackendError, BackendRequest, BackendResponse, FirstRun, LinkEvent,
    ModelLine, ScopeHolder, SkillLine, ThreadPreview, WorkTarget,
};
use minke_view::AskCard;
use serde_json::json;

use crate::{TestApp, launch_effect, pod_row, sample_session};

fn other_session(number: u8) -> SessionId {
    format!("01970000-0000-7000-8000-0000000001{number:02}").parse().unwrap()
}

fn ask_id(number: u8) -> AskId {
    format!("01970000-0000-7000-8000-0000000002{number:02}").parse().unwrap()
}

fn ask_row(number: u8, pod: &str, command: &str) -> AskRow {
    let subject = json!({ "tool": "Bash", "call_id": "c", "digest": "d", "cwd": "/w", "action": { "class": "once", "command": command } });
    let ask = json!({ "id": ask_id(number), "ask": "approval", "subject": subject, "options": ["approved", "approved_for_session", "approved_rule", "denied", "abort"] });
    let ask = serde_json::from_value(ask).unwrap();
    let card_lines = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow {
        session: other_session(number),
        pod: pod.into(),
        asked_at: 900_000 + u64::from(number),
        card_lines,
    }
}

fn text_ask_row(number: u8, pod: &str, text: &str) -> AskRow {
    let ask = json!({ "id": ask_id(number), "ask": "question", "subject": { "text": text, "digest": "d" }, "options": ["red", "blue"] });
    let ask = serde_json::from_value(ask).unwrap();
    let card_lines = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session: other_session(number), pod: pod.into(), asked_at: 900_000, card_lines }
}

impl TestApp {
    /// Returns the only request to the backend and its token.
    #[track_caller]
    fn sent_request(&mut self) -> (u64, BackendRequest) {
        let ordered = self.take_effects();
        match ordered.as_slice() {
            [AppEffect::Request { token, request }] => (*token, request.clone()),
            other => panic!("expected one request: {other:?}"),
        }
    }

    fn send_response(&mut self, token: u64, answer: BackendResponse) {
        self.send_message(AppMessage::Response { token, result: Box::new(Ok(answer)) });
    }

    fn send_backend_error(&mut self, token: u64, what: &str) {
        let error = BackendError { message: what.into(), hint: None };
        self.send_message(AppMessage::Response { token, result: Box::new(Err(error)) });
    }

    fn run_command(&mut self, line: &str) {
        self.type_text(line);
        self.take_effects();
        self.press_keys("enter");
    }
}

/// A user who looks at all asks must know that some are missing.
#[test]
fn a_log_that_cannot_be_read_is_named_where_the_questions_are() {
    let mut app = TestApp::attached_app();
    let unread = || vec!["s_1 may ask something".to_owned(), "s_2 may ask something".to_owned()];
    let answer =
        || BackendResponse::Asks { rows: vec![ask_row(1, "early", "make a")], unreadable_logs: unread() };
    app.send_message(AppMessage::Poll);
    let (token, _) = app.sent_request();
    app.send_response(token, answer());
    app.assert_not_shows("may ask something");
    for _ in 0..2 {
        app.run_command("/asks ");
        let (token, _) = app.sent_request();
        app.send_response(token, answer());
        app.assert_shows("s_1 may ask something (and 1 more)");
        app.press_keys("down");
        app.assert_not_shows("may ask something");
        app.send_message(AppMessage::Poll);
        let (token, _) = app.sent_request();
        app.send_response(token, answer());
        app.assert_not_shows("may ask something");
        app.press_keys("esc");
    }
}

#[test]
fn who_asks_elsewhere_is_said_at_the_bottom_and_answered_in_one_list() {
    let mut room = TestApp::attached_app();
    room.send_message(AppMessage::Poll);
    let (token, request) = room.sent_request();
    assert_eq!(request, BackendRequest::Asks { everywhere: true });
    room.send_response(
        token,
        BackendResponse::Asks {
            rows: vec![ask_row(2, "late", "make b"), ask_row(1, "early", "make a")],
            unreadable_logs: Vec::new(),
        },
    );
    room.assert_shows("2 ask: alt-a");
    room.press_keys("alt-a");
    let (token, _) = room.sent_request();
    room.send_response(
        token,
        BackendResponse::Asks {
            rows: vec![ask_row(2, "late", "make b"), ask_row(1, "early", "make a")],
            unreadable_logs: Vec::new(),
        },
    );
    let picture = room.screen_text();
    assert!(picture.find("early").unwrap() < picture.find("late").unwrap(), "oldest first:\n{picture}");
    room.assert_shows("make a");
    room.now += 1_000;
    room.press_keys("y");
    let (token, request) = room.sent_request();
    let (session, ask) = (other_session(1), ask_id(1));
    assert_eq!(request, BackendRequest::AnswerAsk { session, ask, decision: Decision::Approved, note: None });
    room.send_response(token, BackendResponse::Done("answered".into()));
    room.assert_not_shows("make a");
    room.assert_shows("make b");
    // A denial may have a note.
    room.now += 1_000;
    room.press_keys("n");
    assert_eq!(room.take_effects(), []);
    room.assert_shows("why not?");
    room.type_text("not like that");
    room.press_keys("enter");
    let (token, request) = room.sent_request();
    let note = Some("not like that".to_owned());
    let (session, ask) = (other_session(2), ask_id(2));
    assert_eq!(request, BackendRequest::AnswerAsk { session, ask, decision: Decision::Denied, note });
    room.send_response(token, BackendResponse::Done("answered".into()));
    room.assert_shows("no open questions");
    room.press_keys("esc");
    room.assert_not_shows("ask: alt-a");
    room.assert_shows("Hello, you.");
}

#[test]
fn a_question_that_comes_into_the_place_of_another_is_not_answered_by_its_key() {
    let mut app = TestApp::attached_app();
    app.press_keys("alt-a");
    let (token, _) = app.sent_request();
    app.send_response(
        token,
        BackendResponse::Asks {
            rows: vec![ask_row(1, "early", "make a"), ask_row(2, "late", "make b")],
            unreadable_logs: Vec::new(),
        },
    );
    app.now += 1_000;
    // Another client answers the first ask just before the key.
    app.send_message(AppMessage::Poll);
    let (token, _) = app.sent_request();
    app.send_response(
        token,
        BackendResponse::Asks { rows: vec![ask_row(2, "late", "make b")], unreadable_logs: Vec::new() },
    );
    app.press_keys("y");
    assert_eq!(app.take_effects(), []);
    app.assert_shows("press the key again");
    app.now += 400;
    app.press_keys("y");
    assert!(matches!(app.sent_request().1, BackendRequest::AnswerAsk { ask, .. } if ask == ask_id(2)));
}

#[test]
fn a_question_in_words_is_answered_from_the_list_and_enter_attaches() {
    let mut room = TestApp::attached_app();
    room.run_command("/asks ");
    let (token, _) = room.sent_request();
    room.send_response(
        token,
        BackendResponse::Asks {
            rows: vec![text_ask_row(3, "painter", "Which colour?")],
            unreadable_logs: Vec::new(),
        },
    );
    room.assert_shows("Which colour?");
    room.now += 1_000;
    room.press_keys("2");
    let (token, request) = room.sent_request();
    let note = Some("blue".to_owned());
    assert!(
        matches!(request, BackendRequest::AnswerAsk { decision: Decision::Answered, note: given, .. } if given == note)
    );
    // An undelivered answer keeps the ask, and the asks are requested again.
    room.send_backend_error(token, "its pod does not answer");
    room.assert_shows("its pod does not answer");
    let (token, _) = room.sent_request();
    room.send_response(
        token,
        BackendResponse::Asks {
            rows: vec![text_ask_row(3, "painter", "Which colour?")],
            unreadable_logs: Vec::new(),
        },
    );
    room.press_keys("y");
    room.type_text("green");
    room.press_keys("enter");
    assert!(
        matches!(room.sent_request().1, BackendRequest::AnswerAsk { note, .. } if note.as_deref() == Some("green")),
        "in its own words"
    );
    room.press_keys("enter");
    assert_eq!(room.take_effects(), [AppEffect::Attach { session: other_session(3), rejoin: false }]);
}

#[test]
fn looking_around_draws_nothing_that_is_known() {
    let mut app = TestApp::attached_app();
    for _ in 0..2 {
        app.send_message(AppMessage::Poll);
        let (token, _) = app.sent_request();
        app.send_response(
            token,
            BackendResponse::Asks { rows: vec![ask_row(1, "early", "make a")], unreadable_logs: Vec::new() },
        );
    }
    app.app.take_dirty();
    app.send_message(AppMessage::Poll);
    app.send_message(AppMessage::Poll);
    let (token, request) = app.sent_request();
    assert_eq!(request, BackendRequest::Asks { everywhere: false }, "one at a time, and the short look");
    app.send_response(
        token,
        BackendResponse::Asks { rows: vec![ask_row(1, "early", "make a")], unreadable_logs: Vec::new() },
    );
    assert!(!app.app.take_dirty());
    assert_eq!(app.app.next_tick_ms(), None);
}

#[test]
fn another_pod_is_told_something_and_goes_on_from_the_list() {
    let mut room = TestApp::attached_app();
    room.type_text("my own thoughts");
    room.press_keys("ctrl-p");
    let (token, _) = room.sent_request();
    let mut sleepy = pod_row("sleepy", 0, 0);
    sleepy.state = "paused".into();
    room.send_response(token, BackendResponse::Pods(vec![sleepy.clone()]));
    room.assert_shows("ctrl-o resume");
    room.press_keys("ctrl-o");
    assert_eq!(room.sent_request().1, BackendRequest::ResumePod(sleepy.session));
    room.press_keys("ctrl-s");
    room.assert_shows("to sleepy:");
    room.type_text("wake up");
    room.assert_shows("to sleepy: wake up");
    room.press_keys("enter");
    let (token, request) = room.sent_request();
    let input = vec![InputSegment::from_text("wake up")];
    assert_eq!(request, BackendRequest::Message { session: sleepy.session, input });
    room.assert_shows("> my own thoughts");
    room.send_response(token, BackendResponse::Done("told sleepy".into()));
    room.assert_shows("told sleepy");
    room.press_keys("ctrl-s");
    room.type_text("never mind");
    room.press_keys("esc");
    assert_eq!(room.take_effects(), [], "it is not sent");
    room.assert_shows("> my own thoughts");
}

#[test]
fn a_message_that_could_not_be_delivered_comes_back() {
    let mut app = TestApp::attached_app();
    app.press_keys("ctrl-p");
    let (token, _) = app.sent_request();
    app.send_response(token, BackendResponse::Pods(vec![pod_row("deaf", 0, 0)]));
    app.press_keys("ctrl-s");
    app.type_text("hear me");
    app.press_keys("enter");
    let (token, _) = app.sent_request();
    app.send_backend_error(token, "it does not listen");
    app.assert_shows("to deaf: hear me");
    app.assert_shows("it does not listen");
    app.press_keys("enter");
    assert!(matches!(app.sent_request().1, BackendRequest::Message { .. }));
}

fn thread_row(number: u8, name: &str, is_archived: bool) -> ThreadRow {
    ThreadRow {
        session: other_session(number),
        name: name.into(),
        summary: "its first words".into(),
        state: "idle".into(),
        cwd: "/w".into(),
        updated_at: 1_000,
        is_archived,
    }
}

#[test]
fn a_thread_is_looked_into_renamed_and_put_away_and_back() {
    let mut app = TestApp::attached_app();
    app.press_keys("ctrl-r");
    let (token, _) = app.sent_request();
    app.send_response(
        token,
        BackendResponse::Threads(vec![thread_row(1, "one", false), thread_row(2, "two", true)]),
    );
    let (token, request) = app.sent_request();
    assert_eq!(request, BackendRequest::Preview(other_session(1)));
    let (message, last_reply) = ("fix the roof".to_owned(), "It is dry now.".to_owned());
    app.send_response(
        token,
        BackendResponse::Preview(ThreadPreview {
            session: other_session(1),
            last_input: message,
            last_reply,
        }),
    );
    app.assert_shows("fix the roof");
    app.assert_shows("It is dry now.");
    app.press_keys("ctrl-n");
    app.assert_shows("name: one");
    app.type_text("-more");
    app.press_keys("enter");
    let (token, request) = app.sent_request();
    assert_eq!(request, BackendRequest::Rename { session: other_session(1), name: "one-more".into() });
    app.send_backend_error(token, "`one-more` is taken");
    app.assert_shows("is taken");
    app.press_keys("ctrl-a");
    assert_eq!(app.sent_request().1, BackendRequest::Archive(other_session(1)));
    app.press_keys("down");
    assert_eq!(app.sent_request().1, BackendRequest::Preview(other_session(2)));
    app.assert_shows("unarchive");
    app.press_keys("ctrl-a");
    assert_eq!(app.sent_request().1, BackendRequest::Unarchive(other_session(2)));
}

fn scope_holder() -> AppMessage {
    let description = "`busy` is running in /w".to_owned();
    AppMessage::LinkEvent(LinkEvent::ScopeHeld(ScopeHolder {
        session: other_session(9),
        name: "busy".into(),
        description,
    }))
}

#[test]
fn a_directory_that_is_held_leaves_three_ways_and_loses_nothing() {
    let begin = || {
        let mut app = TestApp::new(AppSetup::default());
        app.app.show_start(app.now);
        app.type_text("do it");
        app.press_keys("enter");
        assert_eq!(app.take_effects(), [launch_effect("do it", None)]);
        app.send_message(scope_holder());
        app.assert_shows("`busy` is running in /w");
        app.assert_shows("join busy");
        app
    };
    let mut room = begin();
    room.press_keys("enter");
    assert_eq!(room.take_effects(), [AppEffect::Attach { session: other_session(9), rejoin: false }]);
    room.send_message(AppMessage::LinkEvent(LinkEvent::Joined {
        session: other_session(9),
        name: "busy".into(),
        draft: None,
    }));
    room.assert_shows("> do it");
    for (steps, place) in [(1, WorkTarget::ReadOnly), (2, WorkTarget::Clone)] {
        let mut app = begin();
        (0..steps).for_each(|_| app.press_keys("down"));
        app.press_keys("enter");
        let input = vec![InputSegment::from_text("do it")];
        assert_eq!(app.take_effects(), [AppEffect::Launch { input, model: None, place }]);
        app.assert_not_shows("> do it");
        let error = BackendError { message: "no clone could be made".into(), hint: None };
        app.send_message(AppMessage::LinkEvent(LinkEvent::Failed(error)));
        app.assert_shows("> do it");
    }
    let mut room = begin();
    room.press_keys("esc");
    assert_eq!(room.take_effects(), []);
    room.assert_shows("> do it");
}

fn model_line(reference: &str, is_ready: bool, note: &str) -> ModelLine {
    ModelLine { reference: reference.into(), is_ready, note: note.into() }
}

#[test]
fn somebody_new_finds_a_local_server_the_tour_and_how_to_set_up_the_rest() {
    let mut app = TestApp::new(AppSetup::default());
    let request = app.app.show_start(app.now);
    let first = request.iter().find_map(|order| match order {
        AppEffect::Request { token, request: BackendRequest::FirstRun } => Some(*token),
        _ => None,
    });
    let position = FirstRun {
        model: None,
        ready_models: vec![model_line("scripted:demo", true, "a script")],
        missing_keys: vec![model_line("far", false, "set FAR_KEY, or `minke login far`")],
    };
    app.send_response(first.unwrap(), BackendResponse::FirstRun(position));
    let (token, request) = app.sent_request();
    assert_eq!(request, BackendRequest::LocalModels);
    app.send_response(
        token,
        BackendResponse::LocalModels(vec![model_line("near/small", true, "on this machine")]),
    );
    let picture = app.screen_text();
    let at = |word: &str| picture.find(word).unwrap_or_else(|| panic!("{word}:\n{picture}"));
    assert!(at("near/small") < at("scripted:demo") && at("scripted:demo") < at("minke tour"));
    assert!(at("minke tour") < at("set FAR_KEY"), "{picture}");
    // The selection survives the response of the local server.
    app.assert_shows("> scripted:demo");
    (0..2).for_each(|_| app.press_keys("down"));
    app.press_keys("enter");
    assert_eq!(app.take_effects(), [], "a model that is not ready cannot be selected");
    app.assert_shows("far: set FAR_KEY, or `minke login far`");
    app.press_keys("up");
    app.press_keys("enter");
    let ordered = app.take_effects();
    let [AppEffect::Tour { token }] = ordered.as_slice() else { panic!("{ordered:?}") };
    app.send_response(
        *token,
        BackendResponse::Text { title: "Tour report".into(), lines: vec!["much".into()] },
    );
    app.assert_shows("much");
    app.press_keys("esc");
    app.assert_shows("near/small");
    (0..2).for_each(|_| app.press_keys("up"));
    app.press_keys("enter");
    assert_eq!(app.sent_request().1, BackendRequest::SetModel("near/small".into()));
}

#[test]
fn rules_skills_the_doctor_and_an_export_are_a_word_away() {
    let mut room = TestApp::attached_app();
    room.run_command("/policy ");
    let (token, request) = room.sent_request();
    assert_eq!(request, BackendRequest::Policy { session: Some(sample_session()), line: None });
    let lines = vec!["deny rm -rf\u{1b}[2J".to_owned()];
    room.send_response(token, BackendResponse::Text { title: "Policy".into(), lines });
    room.assert_shows("deny rm -rf");
    assert!(!room.screen_text().contains('\u{1b}'));
    room.press_keys("esc");
    // A page that is too wide is wrapped, and one that is too long scrolls up to its end.
    room.size = (40, 12);
    room.run_command("/policy ");
    let (token, _) = room.sent_request();
    let long = "words that continue far beyond the edge of a narrow screen to the very end".to_owned();
    let lines = (0..30).map(|number| format!("{number} {long}")).collect();
    room.send_response(token, BackendResponse::Text { title: "Policy".into(), lines });
    room.assert_shows("to the very");
    (0..20).for_each(|_| room.press_keys("pagedown"));
    room.assert_shows("29 words");
    room.press_keys("up");
    room.press_keys("up");
    room.assert_shows("28 words");
    room.press_keys("esc");
    room.size = (80, 24);
    room.run_command("/policy rm -rf /");
    let line = Some("rm -rf /".to_owned());
    assert_eq!(room.sent_request().1, BackendRequest::Policy { session: Some(sample_session()), line });
    room.run_command("/doctor ");
    assert_eq!(room.sent_request().1, BackendRequest::Doctor);
    room.run_command("/export out.md");
    let (token, request) = room.sent_request();
    assert_eq!(request, BackendRequest::Export { session: sample_session(), file: Some("out.md".into()) });
    room.send_response(token, BackendResponse::Done("it is in /w/out.md".into()));
    room.assert_shows("it is in /w/out.md");
    room.run_command("/skills ");
    let (token, request) = room.sent_request();
    assert_eq!(request, BackendRequest::Skills(Some(sample_session())));
    let (name, description, source) =
        ("release".to_owned(), "how we release".to_owned(), "workflow".to_owned());
    room.send_response(token, BackendResponse::Skills(vec![SkillLine { name, description, source }]));
    room.assert_shows("how we release");
    room.press_keys("enter");
    room.assert_shows("> /release");
}

#[test]
fn somebody_who_looks_on_says_nothing_and_goes_from_pod_to_pod() {
    let mut app = TestApp::new(AppSetup { read_only: true, ..AppSetup::default() });
    app.app.attach_session(sample_session(), app.now);
    app.join_pod(None);
    app.send_snapshot("running");
    app.take_effects();
    app.assert_shows("read-only:");
    app.type_text("hello");
    app.press_keys("enter");
    app.press_keys("esc");
    assert_eq!(app.take_effects(), []);
    app.assert_not_shows("hello");
    app.send_ask();
    app.now += 1_000;
    app.press_keys("y");
    assert_eq!(app.take_effects(), [], "another client answers");
    app.press_keys("tab");
    let (token, request) = app.sent_request();
    assert_eq!(request, BackendRequest::Pods);
    let mut here = pod_row("tale", 0, 0);
    here.session = sample_session();
    let child = pod_row("child", 1, 0);
    app.send_response(token, BackendResponse::Pods(vec![here, child.clone()]));
    app.press_keys("tab");
    assert_eq!(app.take_effects(), [AppEffect::Attach { session: child.session, rejoin: false }]);
    app.send_message(AppMessage::LinkEvent(LinkEvent::Joined {
        session: child.session,
        name: "child".into(),
        draft: None,
    }));
    app.press_keys("ctrl-p");
    app.take_effects();
    app.press_keys("ctrl-x");
    app.press_keys("ctrl-s");
    assert_eq!(app.take_effects(), []);
    app.assert_shows("this view is read-only");
}
