//! Stories of what can be reached from the terminal beside the conversation: everybody's questions, other pods, threads,
//! a directory that is held, a first run, and somebody who only looks on.

use minke_record::{AskId, Decision, InputSegment, SessionId};
use minke_tui::panes::{AskRow, ThreadRow};
use minke_tui::{
    Answer, Do, FirstRun, Holder, Link, Look, ModelLine, Msg, Question, Setup, SkillLine, Trouble, Where,
};
use minke_view::AskCard;
use serde_json::json;

use crate::{Room, launches, pod, session};

fn other(number: u8) -> SessionId {
    format!("01970000-0000-7000-8000-0000000001{number:02}").parse().unwrap()
}

fn ask_id(number: u8) -> AskId {
    format!("01970000-0000-7000-8000-0000000002{number:02}").parse().unwrap()
}

fn question(number: u8, pod: &str, command: &str) -> AskRow {
    let subject = json!({ "tool": "Bash", "call_id": "c", "digest": "d", "cwd": "/w", "action": { "class": "once", "command": command } });
    let ask = json!({ "id": ask_id(number), "ask": "approval", "subject": subject, "options": ["approved", "approved_for_session", "approved_rule", "denied", "abort"] });
    let ask = serde_json::from_value(ask).unwrap();
    let card = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session: other(number), pod: pod.into(), since: 900_000 + u64::from(number), card }
}

fn in_words(number: u8, pod: &str, text: &str) -> AskRow {
    let ask = json!({ "id": ask_id(number), "ask": "question", "subject": { "text": text, "digest": "d" }, "options": ["red", "blue"] });
    let ask = serde_json::from_value(ask).unwrap();
    let card = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session: other(number), pod: pod.into(), since: 900_000, card }
}

impl Room {
    /// The one question to the program around, and its token.
    #[track_caller]
    fn asked(&mut self) -> (u64, Question) {
        let ordered = self.ordered();
        match ordered.as_slice() {
            [Do::Ask { token, question }] => (*token, question.clone()),
            other => panic!("one thing should be asked: {other:?}"),
        }
    }

    fn told(&mut self, token: u64, answer: Answer) {
        self.msg(Msg::Told { token, result: Box::new(Ok(answer)) });
    }

    fn failed(&mut self, token: u64, what: &str) {
        let trouble = Trouble { what: what.into(), hint: None };
        self.msg(Msg::Told { token, result: Box::new(Err(trouble)) });
    }

    fn command(&mut self, line: &str) {
        self.write(line);
        self.ordered();
        self.press("enter");
    }
}

/// Somebody who looks at all questions does not take these for all.
#[test]
fn a_log_that_cannot_be_read_is_named_where_the_questions_are() {
    let mut room = Room::attached();
    let unread = || vec!["s_1 may ask something".to_owned(), "s_2 may ask something".to_owned()];
    let answer = || Answer::Asks { rows: vec![question(1, "early", "make a")], unread: unread() };
    room.msg(Msg::Around);
    let (token, _) = room.asked();
    room.told(token, answer());
    room.shows_not("may ask something");
    for _ in 0..2 {
        room.command("/asks ");
        let (token, _) = room.asked();
        room.told(token, answer());
        room.shows("s_1 may ask something (and 1 more)");
        room.press("down");
        room.shows_not("may ask something");
        room.msg(Msg::Around);
        let (token, _) = room.asked();
        room.told(token, answer());
        room.shows_not("may ask something");
        room.press("esc");
    }
}

#[test]
fn who_asks_elsewhere_is_said_at_the_bottom_and_answered_in_one_list() {
    let mut room = Room::attached();
    room.msg(Msg::Around);
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Asks { everywhere: true });
    room.told(
        token,
        Answer::Asks {
            rows: vec![question(2, "late", "make b"), question(1, "early", "make a")],
            unread: Vec::new(),
        },
    );
    room.shows("2 ask: alt-a");
    room.press("alt-a");
    let (token, _) = room.asked();
    room.told(
        token,
        Answer::Asks {
            rows: vec![question(2, "late", "make b"), question(1, "early", "make a")],
            unread: Vec::new(),
        },
    );
    let picture = room.picture();
    assert!(picture.find("early").unwrap() < picture.find("late").unwrap(), "oldest first:\n{picture}");
    room.shows("make a");
    room.now += 1_000;
    room.press("y");
    let (token, asked) = room.asked();
    let (session, ask) = (other(1), ask_id(1));
    assert_eq!(asked, Question::Answer { session, ask, decision: Decision::Approved, note: None });
    room.told(token, Answer::Done("answered".into()));
    room.shows_not("make a");
    room.shows("make b");
    // A no may have a word with it.
    room.now += 1_000;
    room.press("n");
    assert_eq!(room.ordered(), []);
    room.shows("why not?");
    room.write("not like that");
    room.press("enter");
    let (token, asked) = room.asked();
    let note = Some("not like that".to_owned());
    let (session, ask) = (other(2), ask_id(2));
    assert_eq!(asked, Question::Answer { session, ask, decision: Decision::Denied, note });
    room.told(token, Answer::Done("answered".into()));
    room.shows("nobody waits for an answer");
    room.press("esc");
    room.shows_not("ask: alt-a");
    room.shows("Hello, you.");
}

#[test]
fn a_question_that_comes_into_the_place_of_another_is_not_answered_by_its_key() {
    let mut room = Room::attached();
    room.press("alt-a");
    let (token, _) = room.asked();
    room.told(
        token,
        Answer::Asks {
            rows: vec![question(1, "early", "make a"), question(2, "late", "make b")],
            unread: Vec::new(),
        },
    );
    room.now += 1_000;
    // The first was answered by somebody else while the finger was on its way.
    room.msg(Msg::Around);
    let (token, _) = room.asked();
    room.told(token, Answer::Asks { rows: vec![question(2, "late", "make b")], unread: Vec::new() });
    room.press("y");
    assert_eq!(room.ordered(), []);
    room.shows("press the key again");
    room.now += 400;
    room.press("y");
    assert!(matches!(room.asked().1, Question::Answer { ask, .. } if ask == ask_id(2)));
}

#[test]
fn a_question_in_words_is_answered_from_the_list_and_enter_attaches() {
    let mut room = Room::attached();
    room.command("/asks ");
    let (token, _) = room.asked();
    room.told(
        token,
        Answer::Asks { rows: vec![in_words(3, "painter", "Which colour?")], unread: Vec::new() },
    );
    room.shows("Which colour?");
    room.now += 1_000;
    room.press("2");
    let (token, asked) = room.asked();
    let note = Some("blue".to_owned());
    assert!(
        matches!(asked, Question::Answer { decision: Decision::Answered, note: given, .. } if given == note)
    );
    // One that could not be delivered stays, and everybody is asked again.
    room.failed(token, "its pod does not answer");
    room.shows("its pod does not answer");
    let (token, _) = room.asked();
    room.told(
        token,
        Answer::Asks { rows: vec![in_words(3, "painter", "Which colour?")], unread: Vec::new() },
    );
    room.press("y");
    room.write("green");
    room.press("enter");
    assert!(
        matches!(room.asked().1, Question::Answer { note, .. } if note.as_deref() == Some("green")),
        "in its own words"
    );
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Attach { session: other(3), again: false }]);
}

#[test]
fn looking_around_draws_nothing_that_is_known() {
    let mut room = Room::attached();
    for _ in 0..2 {
        room.msg(Msg::Around);
        let (token, _) = room.asked();
        room.told(token, Answer::Asks { rows: vec![question(1, "early", "make a")], unread: Vec::new() });
    }
    room.app.take_dirty();
    room.msg(Msg::Around);
    room.msg(Msg::Around);
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Asks { everywhere: false }, "one at a time, and the short look");
    room.told(token, Answer::Asks { rows: vec![question(1, "early", "make a")], unread: Vec::new() });
    assert!(!room.app.take_dirty());
    assert_eq!(room.app.wants_tick(), None);
}

#[test]
fn another_pod_is_told_something_and_goes_on_from_the_list() {
    let mut room = Room::attached();
    room.write("my own thoughts");
    room.press("ctrl-p");
    let (token, _) = room.asked();
    let mut sleepy = pod("sleepy", 0, 0);
    sleepy.state = "paused".into();
    room.told(token, Answer::Pods(vec![sleepy.clone()]));
    room.shows("ctrl-o go on");
    room.press("ctrl-o");
    assert_eq!(room.asked().1, Question::ResumePod(sleepy.session));
    room.press("ctrl-s");
    room.shows("to sleepy:");
    room.write("wake up");
    room.shows("to sleepy: wake up");
    room.press("enter");
    let (token, asked) = room.asked();
    let input = vec![InputSegment::text("wake up")];
    assert_eq!(asked, Question::Message { session: sleepy.session, input });
    room.shows("> my own thoughts");
    room.told(token, Answer::Done("told sleepy".into()));
    room.shows("told sleepy");
    room.press("ctrl-s");
    room.write("never mind");
    room.press("esc");
    assert_eq!(room.ordered(), [], "it is not sent");
    room.shows("> my own thoughts");
}

#[test]
fn a_message_that_could_not_be_delivered_comes_back() {
    let mut room = Room::attached();
    room.press("ctrl-p");
    let (token, _) = room.asked();
    room.told(token, Answer::Pods(vec![pod("deaf", 0, 0)]));
    room.press("ctrl-s");
    room.write("hear me");
    room.press("enter");
    let (token, _) = room.asked();
    room.failed(token, "it does not listen");
    room.shows("to deaf: hear me");
    room.shows("it does not listen");
    room.press("enter");
    assert!(matches!(room.asked().1, Question::Message { .. }));
}

fn thread(number: u8, name: &str, archived: bool) -> ThreadRow {
    ThreadRow {
        session: other(number),
        name: name.into(),
        preview: "its first words".into(),
        state: "idle".into(),
        cwd: "/w".into(),
        updated: 1_000,
        archived,
    }
}

#[test]
fn a_thread_is_looked_into_renamed_and_put_away_and_back() {
    let mut room = Room::attached();
    room.press("ctrl-r");
    let (token, _) = room.asked();
    room.told(token, Answer::Threads(vec![thread(1, "one", false), thread(2, "two", true)]));
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Look(other(1)));
    let (said, replied) = ("mend the roof".to_owned(), "It is dry now.".to_owned());
    room.told(token, Answer::Look(Look { session: other(1), said, replied }));
    room.shows("mend the roof");
    room.shows("It is dry now.");
    room.press("ctrl-n");
    room.shows("name: one");
    room.write("-more");
    room.press("enter");
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Rename { session: other(1), name: "one-more".into() });
    room.failed(token, "`one-more` is taken");
    room.shows("is taken");
    room.press("ctrl-a");
    assert_eq!(room.asked().1, Question::Archive(other(1)));
    room.press("down");
    assert_eq!(room.asked().1, Question::Look(other(2)));
    room.shows("put back");
    room.press("ctrl-a");
    assert_eq!(room.asked().1, Question::Unarchive(other(2)));
}

fn holder() -> Msg {
    let says = "`busy` is running in /w".to_owned();
    Msg::Link(Link::Held(Holder { session: other(9), name: "busy".into(), says }))
}

#[test]
fn a_directory_that_is_held_leaves_three_ways_and_loses_nothing() {
    let begin = || {
        let mut room = Room::new(Setup::default());
        room.app.open(room.now);
        room.write("do it");
        room.press("enter");
        assert_eq!(room.ordered(), [launches("do it", None)]);
        room.msg(holder());
        room.shows("`busy` is running in /w");
        room.shows("join busy");
        room
    };
    let mut room = begin();
    room.press("enter");
    assert_eq!(room.ordered(), [Do::Attach { session: other(9), again: false }]);
    room.msg(Msg::Link(Link::Joined { session: other(9), name: "busy".into(), draft: None }));
    room.shows("> do it");
    for (steps, place) in [(1, Where::ReadOnly), (2, Where::Clone)] {
        let mut room = begin();
        (0..steps).for_each(|_| room.press("down"));
        room.press("enter");
        let input = vec![InputSegment::text("do it")];
        assert_eq!(room.ordered(), [Do::Launch { input, model: None, place }]);
        room.shows_not("> do it");
        let trouble = Trouble { what: "no clone could be made".into(), hint: None };
        room.msg(Msg::Link(Link::Failed(trouble)));
        room.shows("> do it");
    }
    let mut room = begin();
    room.press("esc");
    assert_eq!(room.ordered(), []);
    room.shows("> do it");
}

fn line(reference: &str, ready: bool, note: &str) -> ModelLine {
    ModelLine { reference: reference.into(), ready, note: note.into() }
}

#[test]
fn somebody_new_finds_a_local_server_the_tour_and_how_to_set_up_the_rest() {
    let mut room = Room::new(Setup::default());
    let asked = room.app.open(room.now);
    let first = asked.iter().find_map(|order| match order {
        Do::Ask { token, question: Question::FirstRun } => Some(*token),
        _ => None,
    });
    let found = FirstRun {
        model: None,
        ready: vec![line("scripted:demo", true, "a script")],
        missing: vec![line("far", false, "set FAR_KEY, or `minke login far`")],
    };
    room.told(first.unwrap(), Answer::FirstRun(found));
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Local);
    room.told(token, Answer::Local(vec![line("near/small", true, "on this machine")]));
    let picture = room.picture();
    let at = |word: &str| picture.find(word).unwrap_or_else(|| panic!("{word}:\n{picture}"));
    assert!(at("near/small") < at("scripted:demo") && at("scripted:demo") < at("minke tour"));
    assert!(at("minke tour") < at("set FAR_KEY"), "{picture}");
    // What was chosen before the server answered stays chosen.
    room.shows("> scripted:demo");
    (0..2).for_each(|_| room.press("down"));
    room.press("enter");
    assert_eq!(room.ordered(), [], "it cannot be asked yet");
    room.shows("far: set FAR_KEY, or `minke login far`");
    room.press("up");
    room.press("enter");
    let ordered = room.ordered();
    let [Do::Tour { token }] = ordered.as_slice() else { panic!("{ordered:?}") };
    room.told(*token, Answer::Text { title: "What the tour has shown".into(), lines: vec!["much".into()] });
    room.shows("much");
    room.press("esc");
    room.shows("near/small");
    (0..2).for_each(|_| room.press("up"));
    room.press("enter");
    assert_eq!(room.asked().1, Question::SetModel("near/small".into()));
}

#[test]
fn rules_skills_the_doctor_and_an_export_are_a_word_away() {
    let mut room = Room::attached();
    room.command("/policy ");
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Policy { session: Some(session()), line: None });
    let lines = vec!["deny rm -rf\u{1b}[2J".to_owned()];
    room.told(token, Answer::Text { title: "Policy".into(), lines });
    room.shows("deny rm -rf");
    assert!(!room.picture().contains('\u{1b}'));
    room.press("esc");
    // A page that is too wide is wrapped, and one that is too long is scrolled to its end and not beyond.
    room.size = (40, 12);
    room.command("/policy ");
    let (token, _) = room.asked();
    let long = "words that go on and on beyond the edge of a narrow screen to the very end".to_owned();
    let lines = (0..30).map(|number| format!("{number} {long}")).collect();
    room.told(token, Answer::Text { title: "Policy".into(), lines });
    room.shows("to the very");
    (0..20).for_each(|_| room.press("pagedown"));
    room.shows("29 words");
    room.press("up");
    room.press("up");
    room.shows("28 words");
    room.press("esc");
    room.size = (80, 24);
    room.command("/policy rm -rf /");
    let line = Some("rm -rf /".to_owned());
    assert_eq!(room.asked().1, Question::Policy { session: Some(session()), line });
    room.command("/doctor ");
    assert_eq!(room.asked().1, Question::Doctor);
    room.command("/export out.md");
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Export { session: session(), file: Some("out.md".into()) });
    room.told(token, Answer::Done("it is in /w/out.md".into()));
    room.shows("it is in /w/out.md");
    room.command("/skills ");
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Skills(Some(session())));
    let (name, says, from) = ("release".to_owned(), "how we release".to_owned(), "workflow".to_owned());
    room.told(token, Answer::Skills(vec![SkillLine { name, says, from }]));
    room.shows("how we release");
    room.press("enter");
    room.shows("> /release");
}

#[test]
fn somebody_who_looks_on_says_nothing_and_goes_from_pod_to_pod() {
    let mut room = Room::new(Setup { looks_on: true, ..Setup::default() });
    room.app.attach(session(), room.now);
    room.join(None);
    room.snapshot("running");
    room.ordered();
    room.shows("you only look on");
    room.write("hello");
    room.press("enter");
    room.press("esc");
    assert_eq!(room.ordered(), []);
    room.shows_not("hello");
    room.asks();
    room.now += 1_000;
    room.press("y");
    assert_eq!(room.ordered(), [], "somebody else answers");
    room.press("tab");
    let (token, asked) = room.asked();
    assert_eq!(asked, Question::Pods);
    let mut here = pod("tale", 0, 0);
    here.session = session();
    let child = pod("child", 1, 0);
    room.told(token, Answer::Pods(vec![here, child.clone()]));
    room.press("tab");
    assert_eq!(room.ordered(), [Do::Attach { session: child.session, again: false }]);
    room.msg(Msg::Link(Link::Joined { session: child.session, name: "child".into(), draft: None }));
    room.press("ctrl-p");
    room.ordered();
    room.press("ctrl-x");
    room.press("ctrl-s");
    assert_eq!(room.ordered(), []);
    room.shows("only looks on");
}
