//! Every kind of block, folded and open, at three widths and for people who listen.

use std::fmt::Write as _;

use minke_record::{
    Action, AlertLevel, AskKind, AskSubject, ChildOutcome, Decision, Judgement, Outcome, PodName,
};
use minke_record::{SessionId, Verdict};
use minke_tui::paint::{Role, Theme, ThemeName, block, spaced};
use minke_view::{
    Answered, AskCard, Body, Call, CallState, ChildCard, Ended, Notice, NoticeKind, Said, Saying, Tail, Words,
};
use uuid::Uuid;

use crate::support::{self, asked, call, golden, text};

const CHANGE: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,3 +1,3 @@\n use std::fs;\n-let total = count(files);\n+let total = count(paths);\n // end\n";

fn said(who: &str, said: &str, state: Saying) -> Body {
    Body::Said(Said { who: who.to_owned(), text: said.to_owned(), chips: Vec::new(), state })
}

fn words(text: &str, open: bool) -> Words {
    Words { text: text.to_owned(), open, ..Words::default() }
}

fn ended_call(outcome: Outcome, exit: Option<i32>) -> Call {
    Call {
        command: Some("cargo test -p minke-tui --no-fail-fast".to_owned()),
        state: CallState::Ended(outcome),
        exit,
        began: Some(1_000),
        ended: Some(3_140),
        fence: Some("landlock+seccomp".to_owned()),
        output: Tail {
            text: "running 3 tests\ntest a ... \u{1b}[32mok\u{1b}[0m\n10%\r50%\r100%\n".to_owned(),
            ..Tail::default()
        },
        ..call("Bash", "cargo test -p minke-tui --no-fail-fast")
    }
}

fn approval() -> AskCard {
    let mut card = asked();
    card.ask.subject = AskSubject {
        tool: Some("Bash".to_owned()),
        cwd: Some("/home/ada/project".to_owned()),
        action: Some(Action {
            command: Some("cargo publish --dry-run\u{200b} && rm -rf target".to_owned()),
            commands: vec!["cargo publish --dry-run".to_owned(), "rm -rf target".to_owned()],
            writes: vec!["/home/ada/project/target".to_owned()],
            ..Action::default()
        }),
        verdict: Some(Verdict {
            outcome: Judgement::Ask,
            rule: Some("ask Bash(cargo publish*)".to_owned()),
            layer: Some("user".to_owned()),
            reason: "the rule says that it is asked".to_owned(),
            fence: Some("landlock".to_owned()),
        }),
        always: Some("allow Bash(cargo publish --dry-run*)".to_owned()),
        ..AskSubject::default()
    };
    card.ask.options.push("approved_rule".to_owned());
    card
}

fn all() -> Vec<(&'static str, Body)> {
    let answer = |decision, note: Option<&str>| {
        Some(Answered { decision, note: note.map(str::to_owned), by: "ada".to_owned() })
    };
    let edit = Call {
        diff: Some(CHANGE.to_owned()),
        path: Some("src/lib.rs".to_owned()),
        state: CallState::Ended(Outcome::Done),
        ..call("Edit", "src/lib.rs")
    };
    let mut diff_ask = approval();
    diff_ask.ask.subject.action = None;
    diff_ask.ask.subject.tool = Some("Edit".to_owned());
    diff_ask.ask.subject.diff = Some(CHANGE.to_owned());
    diff_ask.pod = Some(PodName::from_any("worker-2"));
    let mut question = asked();
    question.ask.ask = AskKind::Question;
    question.ask.subject.text = Some("Which database shall it be?".to_owned());
    question.ask.options = vec!["SQLite".to_owned(), "PostgreSQL".to_owned()];
    let child = |told: &str, ended| {
        Body::Child(Box::new(ChildCard {
            session: SessionId(Uuid::nil()),
            name: PodName::from_any("worker-1"),
            scope: "write crates/view".to_owned(),
            told: told.to_owned(),
            ended,
        }))
    };
    let notice = |kind, text: &str| Body::Notice(Notice { kind, text: text.to_owned() });
    let ended = |result: &str, reason: &str, resumable| {
        Body::Ended(Ended { result: result.to_owned(), reason: reason.to_owned(), resumable })
    };
    vec![
        (
            "said",
            said(
                "you",
                "Make the tests of `view` faster,\nplease, and tell me which of them was the slowest before.",
                Saying::Said,
            ),
        ),
        (
            "said with chips",
            Body::Said(Said {
                who: "you".to_owned(),
                text: "look".to_owned(),
                chips: vec!["file src/lib.rs".to_owned(), "picture, 12 kB".to_owned()],
                state: Saying::Said,
            }),
        ),
        ("steered", said("you", "not that one", Saying::Steered)),
        ("left", said("you", "never mind", Saying::Left)),
        ("a pod speaks", said("worker-1", "done", Saying::Said)),
        ("reply", Body::Reply(words("Two things:\n\n1. **slow** test\n2. `fast` one\n", false))),
        ("reply, cut", Body::Reply(Words { left_out: 123_456, ..words("The beginning", false) })),
        (
            "thinking",
            Body::Thinking(words(
                "**Looking at the tests**\n\nThe slowest is probably the property test.",
                true,
            )),
        ),
        (
            "thought",
            Body::Thinking(words(
                "I should look at the tests first, because the slowest of them is what was asked for, and then at the code.",
                false,
            )),
        ),
        ("call, written", Body::Call(Box::new(Call { state: CallState::Written, ..call("Bash", "") }))),
        (
            "call, waits",
            Body::Call(Box::new(Call { state: CallState::Waiting, ..call("Read", "src/lib.rs") })),
        ),
        (
            "call, runs",
            Body::Call(Box::new(Call {
                output: Tail { text: "one\ntwo\nthree\nfour\nfive\n".to_owned(), ..Tail::default() },
                ..call("Bash", "make")
            })),
        ),
        ("call, done", Body::Call(Box::new(ended_call(Outcome::Done, Some(0))))),
        (
            "call, failed",
            Body::Call(Box::new(Call {
                summary: "2 tests failed".to_owned(),
                ..ended_call(Outcome::Done, Some(101))
            })),
        ),
        (
            "call, refused",
            Body::Call(Box::new(Call {
                state: CallState::Ended(Outcome::Refused),
                summary: "the scope does not hold /etc".to_owned(),
                arguments: "{\"path\": \"/etc/passwd\"}".to_owned(),
                ..call("Write", "/etc/passwd")
            })),
        ),
        (
            "call, goes on",
            Body::Call(Box::new(Call {
                behind: true,
                state: CallState::Ended(Outcome::Done),
                ..call("Bash", "npm run dev")
            })),
        ),
        ("edit", Body::Call(Box::new(edit))),
        ("ask", Body::Ask(Box::new(approval()))),
        ("ask of a child", Body::Ask(Box::new(diff_ask))),
        (
            "ask, approved",
            Body::Ask(Box::new(AskCard {
                answer: answer(Decision::ApprovedForSession, None),
                closed: true,
                ..approval()
            })),
        ),
        (
            "ask, denied",
            Body::Ask(Box::new(AskCard {
                answer: answer(Decision::Denied, Some("not today")),
                closed: true,
                ..approval()
            })),
        ),
        ("ask, gone", Body::Ask(Box::new(AskCard { closed: true, ..approval() }))),
        ("question", Body::Ask(Box::new(question))),
        ("child", child("working: Bash cargo check", None)),
        ("child, done", child("", Some(ChildOutcome::Slept))),
        ("child, crashed", child("killed by signal 9", Some(ChildOutcome::Crashed))),
        ("warning", notice(NoticeKind::Alert(AlertLevel::Warn), "the provider is busy; asked again in 4 s")),
        ("error", notice(NoticeKind::Alert(AlertLevel::Error), "the key was refused\ntry: minke login")),
        (
            "compaction",
            notice(NoticeKind::Compaction, "the session went on in a new segment: 182k tokens became 9k"),
        ),
        ("change", notice(NoticeKind::Change, "posture: auto")),
        ("opened", notice(NoticeKind::Opened, "the pod was started again")),
        ("rewound", notice(NoticeKind::Rewound, "back to before `make it faster`")),
        ("paused", ended("paused", "", true)),
        ("failed", ended("error", "the provider answered 500 five times", true)),
        ("cancelled", ended("cancelled", "", false)),
    ]
}

fn page(width: u16, theme: &Theme, open: bool) -> String {
    let mut out = String::new();
    for (name, body) in all() {
        let shown = text(&block(&support::block(body), width, theme, open));
        writeln!(out, "[{name}]\n{shown}").expect("a string takes everything");
    }
    out
}

#[test]
fn every_block_at_three_widths() {
    for width in [120, 80, 40] {
        golden(&format!("blocks-{width}"), &page(width, &Theme::default(), false));
        golden(&format!("blocks-open-{width}"), &page(width, &Theme::default(), true));
    }
}

#[test]
fn every_block_for_people_who_listen() {
    golden("blocks-plain", &page(80, &Theme::plain(), false));
    golden("blocks-plain-open", &page(80, &Theme::plain(), true));
}

#[test]
fn a_card_shows_what_hides_in_a_command() {
    let shown = text(&block(&support::block(Body::Ask(Box::new(approval()))), 120, &Theme::default(), false));
    assert!(shown.contains("--dry-run<U+200B> && rm -rf target"), "{shown}");
}

#[test]
fn a_card_offers_only_what_can_be_answered() {
    let shown = |card: AskCard| {
        text(&block(&support::block(Body::Ask(Box::new(card))), 120, &Theme::default(), false))
    };
    let with = shown(approval());
    assert!(with.contains("r always: allow Bash(cargo publish --dry-run*)"), "{with}");
    let mut card = approval();
    card.ask.options.retain(|option| option != "approved_rule");
    let without = shown(card);
    assert!(!without.contains("r always"), "{without}");
    assert!(without.contains("y once   a this session   n no, with a note   x end the run"), "{without}");
}

#[test]
fn a_long_command_in_a_card_says_that_there_is_more() {
    let mut card = approval();
    let command = card.ask.subject.action.as_mut().and_then(|action| action.command.as_mut()).unwrap();
    *command = "echo x\n".repeat(100);
    let theme = Theme::default();
    let lines = block(&support::block(Body::Ask(Box::new(card))), 80, &theme, false);
    let more = lines.iter().find(|line| line.to_string().contains("… 80 more lines")).expect("it says so");
    assert!(more.spans.iter().any(|span| span.style == theme.style(Role::Warn)), "{more:?}");
}

#[test]
fn a_long_input_is_folded_and_opens() {
    let body = said("you", &"line\n".repeat(100), Saying::Said);
    let folded = block(&support::block(body.clone()), 80, &Theme::default(), false);
    assert_eq!(folded.len(), 25);
    assert_eq!(text(&folded[24..]), "… 76 more lines\n");
    assert_eq!(block(&support::block(body), 80, &Theme::default(), true).len(), 100);
}

#[test]
fn the_last_state_of_a_progress_bar_is_shown() {
    let output =
        Tail { text: "fetch 1%\rfetch 100%\r\nabc\rx\u{1b}[K\nab\u{8}c\n".to_owned(), ..Tail::default() };
    let body = Body::Call(Box::new(Call { output, ..call("Bash", "get") }));
    let shown = text(&block(&support::block(body), 80, &Theme::default(), false));
    assert_eq!(shown, "● Bash get  runs\n  fetch 100%\n  x\n  ac\n");
}

#[test]
fn calls_in_a_row_stand_close_together() {
    let call = Body::Call(Box::new(call("Bash", "ls")));
    let reply = Body::Reply(words("x", false));
    assert!(!spaced(&call, &call));
    assert!(spaced(&reply, &call));
    assert!(spaced(&call, &reply));
}

#[test]
fn every_theme_tells_roles_apart_that_must_not_be_mixed_up() {
    for name in ThemeName::ALL {
        let theme = Theme::new(name);
        let style = |role| theme.style(role);
        assert_ne!(style(Role::Text), style(Role::Error), "{name:?}");
        assert_ne!(style(Role::Text), style(Role::Warn), "{name:?}");
        assert_ne!(style(Role::Added), style(Role::AddedWord), "{name:?}");
        assert_ne!(style(Role::Removed), style(Role::RemovedWord), "{name:?}");
        assert_ne!(style(Role::Text), style(Role::Selected), "{name:?}");
        assert_ne!(style(Role::Text), style(Role::Key), "{name:?}");
        assert_eq!(ThemeName::named(name.as_str()), Some(name));
    }
    assert_eq!(ThemeName::named("neon"), None);
}

#[test]
fn a_card_says_how_long_it_waits() {
    let mut card = approval();
    card.ask.expires = Some(1_000_000 + 600_000);
    let shown = |card: AskCard| {
        let mut told = support::block(Body::Ask(Box::new(card)));
        told.ts = 1_000_000;
        let theme = Theme::default();
        [text(&block(&told, 100, &theme, true)), text(&block(&told, 100, &Theme::plain(), true))]
    };
    for said in shown(card.clone()) {
        assert!(said.contains("time: denied if nobody answers within 10 min of the question"), "{said}");
    }
    card.closed = true;
    for said in shown(card) {
        assert!(!said.contains("time:"), "{said}");
    }
}
