//! Every kind of block, folded and open, at three widths and for screen readers.

use std::fmt::Write as _;

use minke_record::{
    Action, AlertLevel, AskKind, AskSubject, ChildOutcome, Decision, Judgement, Outcome, PodName,
};
use minke_record::{LoggedBackend, PolicyVerdict, SessionId};
use minke_tui::paint::{StyleRole, Theme, ThemeName, block_lines, needs_gap};
use minke_view::{
    AskCard, AskResponse, BlockBody, CallCard, CallState, ChildCard, InputBlock, InputState, NoticeKind,
    NoticeLine, RunEndNotice, StreamedText, TextTail,
};
use uuid::Uuid;

use crate::support::{self, assert_golden, lines_text, open_ask, sample_call};

const CHANGE: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,3 +1,3 @@\n use std::fs;\n-let total = count(files);\n+let total = count(paths);\n // end\n";

fn input_body(who: &str, said: &str, state: InputState) -> BlockBody {
    BlockBody::Input(InputBlock {
        sender: who.to_owned(),
        text: said.to_owned(),
        attachments: Vec::new(),
        state,
    })
}

fn streamed_text(text: &str, open: bool) -> StreamedText {
    StreamedText { text: text.to_owned(), open, ..StreamedText::default() }
}

fn ended_call(outcome: Outcome, exit: Option<i32>) -> CallCard {
    CallCard {
        command: Some("cargo test -p minke-tui --no-fail-fast".to_owned()),
        state: CallState::RunEndNotice(outcome),
        exit,
        started_at: Some(1_000),
        ended_at: Some(3_140),
        sandbox: Some("landlock".to_owned()),
        output: TextTail {
            text: "running 3 tests\ntest a ... \u{1b}[32mok\u{1b}[0m\n10%\r50%\r100%\n".to_owned(),
            ..TextTail::default()
        },
        ..sample_call("Bash", "cargo test -p minke-tui --no-fail-fast")
    }
}

fn approval_card() -> AskCard {
    let mut card = open_ask();
    card.ask.subject = AskSubject {
        tool: Some("Bash".to_owned()),
        cwd: Some("/home/ada/project".to_owned()),
        action: Some(Action {
            command: Some("cargo publish --dry-run\u{200b} && rm -rf target".to_owned()),
            commands: vec!["cargo publish --dry-run".to_owned(), "rm -rf target".to_owned()],
            writes: vec!["/home/ada/project/target".to_owned()],
            ..Action::default()
        }),
        verdict: Some(PolicyVerdict {
            outcome: Judgement::Ask,
            rule: Some("ask Bash(cargo publish*)".to_owned()),
            layer: Some("user".to_owned()),
            reason: "the rule requires approval".to_owned(),
            sandbox: LoggedBackend::new("landlock"),
        }),
        always: Some("allow Bash(cargo publish --dry-run*)".to_owned()),
        ..AskSubject::default()
    };
    card.ask.options.push("approved_rule".to_owned());
    card
}

fn all_bodies() -> Vec<(&'static str, BlockBody)> {
    let answer = |decision, note: Option<&str>| {
        Some(AskResponse { decision, note: note.map(str::to_owned), answered_by: "ada".to_owned() })
    };
    let edit = CallCard {
        diff: Some(CHANGE.to_owned()),
        path: Some("src/lib.rs".to_owned()),
        state: CallState::RunEndNotice(Outcome::Done),
        ..sample_call("Edit", "src/lib.rs")
    };
    let mut diff_ask = approval_card();
    diff_ask.ask.subject.action = None;
    diff_ask.ask.subject.tool = Some("Edit".to_owned());
    diff_ask.ask.subject.diff = Some(CHANGE.to_owned());
    diff_ask.pod = Some(PodName::from_text("worker-2"));
    let mut question = open_ask();
    question.ask.ask = AskKind::Question;
    question.ask.subject.text = Some("Which database shall it be?".to_owned());
    question.ask.options = vec!["SQLite".to_owned(), "PostgreSQL".to_owned()];
    let child = |told: &str, outcome| {
        BlockBody::Child(Box::new(ChildCard {
            session: SessionId(Uuid::nil()),
            name: PodName::from_text("worker-1"),
            scope: "write crates/view".to_owned(),
            status_text: told.to_owned(),
            outcome,
        }))
    };
    let notice = |kind, text: &str| BlockBody::NoticeLine(NoticeLine { kind, text: text.to_owned() });
    let ended = |result: &str, reason: &str, resumable| {
        BlockBody::RunEnd(RunEndNotice { result: result.to_owned(), reason: reason.to_owned(), resumable })
    };
    vec![
        (
            "said",
            input_body(
                "you",
                "Make the tests of `view` faster,\nplease, and tell me which of them was the slowest before.",
                InputState::Delivered,
            ),
        ),
        (
            "input with attachments",
            BlockBody::Input(InputBlock {
                sender: "you".to_owned(),
                text: "look".to_owned(),
                attachments: vec!["file src/lib.rs".to_owned(), "picture, 12 kB".to_owned()],
                state: InputState::Delivered,
            }),
        ),
        ("steered", input_body("you", "not that one", InputState::Steered)),
        ("left", input_body("you", "never mind", InputState::Rewound)),
        ("a pod speaks", input_body("worker-1", "done", InputState::Delivered)),
        ("reply", BlockBody::Reply(streamed_text("Two things:\n\n1. **slow** test\n2. `fast` one\n", false))),
        (
            "reply, cut",
            BlockBody::Reply(StreamedText {
                omitted_bytes: 123_456,
                ..streamed_text("The beginning", false)
            }),
        ),
        (
            "thinking",
            BlockBody::Thinking(streamed_text(
                "**Looking at the tests**\n\nThe slowest is probably the property test.",
                true,
            )),
        ),
        (
            "thought",
            BlockBody::Thinking(streamed_text(
                "I should look at the tests first, because the slowest of them is what was asked for, and then at the code.",
                false,
            )),
        ),
        (
            "call, written",
            BlockBody::CallCard(Box::new(CallCard {
                state: CallState::Streaming,
                ..sample_call("Bash", "")
            })),
        ),
        (
            "call, waits",
            BlockBody::CallCard(Box::new(CallCard {
                state: CallState::Pending,
                ..sample_call("Read", "src/lib.rs")
            })),
        ),
        (
            "call, runs",
            BlockBody::CallCard(Box::new(CallCard {
                output: TextTail { text: "one\ntwo\nthree\nfour\nfive\n".to_owned(), ..TextTail::default() },
                ..sample_call("Bash", "make")
            })),
        ),
        ("call, done", BlockBody::CallCard(Box::new(ended_call(Outcome::Done, Some(0))))),
        (
            "call, failed",
            BlockBody::CallCard(Box::new(CallCard {
                summary: "2 tests failed".to_owned(),
                ..ended_call(Outcome::Done, Some(101))
            })),
        ),
        (
            "call, refused",
            BlockBody::CallCard(Box::new(CallCard {
                state: CallState::RunEndNotice(Outcome::Refused),
                summary: "the scope does not hold /etc".to_owned(),
                arguments: "{\"path\": \"/etc/passwd\"}".to_owned(),
                ..sample_call("Write", "/etc/passwd")
            })),
        ),
        (
            "call, in background",
            BlockBody::CallCard(Box::new(CallCard {
                in_background: true,
                state: CallState::RunEndNotice(Outcome::Done),
                ..sample_call("Bash", "npm run dev")
            })),
        ),
        ("edit", BlockBody::CallCard(Box::new(edit))),
        ("ask", BlockBody::Ask(Box::new(approval_card()))),
        ("ask of a child", BlockBody::Ask(Box::new(diff_ask))),
        (
            "ask, approved",
            BlockBody::Ask(Box::new(AskCard {
                answer: answer(Decision::ApprovedForSession, None),
                closed: true,
                ..approval_card()
            })),
        ),
        (
            "ask, denied",
            BlockBody::Ask(Box::new(AskCard {
                answer: answer(Decision::Denied, Some("not today")),
                closed: true,
                ..approval_card()
            })),
        ),
        ("ask, gone", BlockBody::Ask(Box::new(AskCard { closed: true, ..approval_card() }))),
        ("question", BlockBody::Ask(Box::new(question))),
        ("child", child("working: Bash cargo check", None)),
        ("child, done", child("", Some(ChildOutcome::Slept))),
        ("child, crashed", child("killed by signal 9", Some(ChildOutcome::Crashed))),
        ("warning", notice(NoticeKind::Alert(AlertLevel::Warn), "the provider is busy; asked again in 4 s")),
        ("error", notice(NoticeKind::Alert(AlertLevel::Error), "the key was refused\ntry: minke login")),
        (
            "compaction",
            notice(NoticeKind::Compaction, "the session went on in a new segment: 182k tokens became 9k"),
        ),
        ("change", notice(NoticeKind::SettingChange, "posture: auto")),
        ("opened", notice(NoticeKind::Reopened, "the pod was started again")),
        ("rewound", notice(NoticeKind::Rewound, "back to before `make it faster`")),
        ("paused", ended("paused", "", true)),
        ("failed", ended("error", "the provider answered 500 five times", true)),
        ("cancelled", ended("cancelled", "", false)),
    ]
}

fn blocks_page(width: u16, theme: &Theme, open: bool) -> String {
    let mut out = String::new();
    for (name, body) in all_bodies() {
        let screen = lines_text(&block_lines(&support::sample_block(body), width, theme, open));
        writeln!(out, "[{name}]\n{screen}").expect("a string takes everything");
    }
    out
}

#[test]
fn every_block_at_three_widths() {
    for width in [120, 80, 40] {
        assert_golden(&format!("blocks-{width}"), &blocks_page(width, &Theme::default(), false));
        assert_golden(&format!("blocks-open-{width}"), &blocks_page(width, &Theme::default(), true));
    }
}

#[test]
fn every_block_for_people_who_listen() {
    assert_golden("blocks-plain", &blocks_page(80, &Theme::screen_reader(), false));
    assert_golden("blocks-plain-open", &blocks_page(80, &Theme::screen_reader(), true));
}

#[test]
fn a_card_shows_what_hides_in_a_command() {
    let screen = lines_text(&block_lines(
        &support::sample_block(BlockBody::Ask(Box::new(approval_card()))),
        120,
        &Theme::default(),
        false,
    ));
    assert!(screen.contains("--dry-run<U+200B> && rm -rf target"), "{screen}");
}

#[test]
fn a_card_offers_only_what_can_be_answered() {
    let shown = |card: AskCard| {
        lines_text(&block_lines(
            &support::sample_block(BlockBody::Ask(Box::new(card))),
            120,
            &Theme::default(),
            false,
        ))
    };
    let with = shown(approval_card());
    assert!(with.contains("r always: allow Bash(cargo publish --dry-run*)"), "{with}");
    let mut card = approval_card();
    card.ask.options.retain(|option| option != "approved_rule");
    let without = shown(card);
    assert!(!without.contains("r always"), "{without}");
    assert!(without.contains("y once   a this session   n no, with a note   x end the run"), "{without}");
}

#[test]
fn a_long_command_in_a_card_says_that_there_is_more() {
    let mut card = approval_card();
    let command = card.ask.subject.action.as_mut().and_then(|action| action.command.as_mut()).unwrap();
    *command = "echo x\n".repeat(100);
    let theme = Theme::default();
    let lines = block_lines(&support::sample_block(BlockBody::Ask(Box::new(card))), 80, &theme, false);
    let more = lines.iter().find(|line| line.to_string().contains("… 80 more lines")).expect("it says so");
    assert!(more.spans.iter().any(|span| span.style == theme.role_style(StyleRole::Warn)), "{more:?}");
}

#[test]
fn a_long_input_is_folded_and_opens() {
    let body = input_body("you", &"line\n".repeat(100), InputState::Delivered);
    let folded = block_lines(&support::sample_block(body.clone()), 80, &Theme::default(), false);
    assert_eq!(folded.len(), 25);
    assert_eq!(lines_text(&folded[24..]), "… 76 more lines\n");
    assert_eq!(block_lines(&support::sample_block(body), 80, &Theme::default(), true).len(), 100);
}

#[test]
fn the_last_state_of_a_progress_bar_is_shown() {
    let output = TextTail {
        text: "fetch 1%\rfetch 100%\r\nabc\rx\u{1b}[K\nab\u{8}c\n".to_owned(),
        ..TextTail::default()
    };
    let body = BlockBody::CallCard(Box::new(CallCard { output, ..sample_call("Bash", "get") }));
    let screen = lines_text(&block_lines(&support::sample_block(body), 80, &Theme::default(), false));
    assert_eq!(screen, "● Bash get  runs\n  fetch 100%\n  x\n  ac\n");
}

#[test]
fn calls_in_a_row_stand_close_together() {
    let call = BlockBody::CallCard(Box::new(sample_call("Bash", "ls")));
    let reply = BlockBody::Reply(streamed_text("x", false));
    assert!(!needs_gap(&call, &call));
    assert!(needs_gap(&reply, &call));
    assert!(needs_gap(&call, &reply));
}

#[test]
fn every_theme_tells_roles_apart_that_must_not_be_mixed_up() {
    for name in ThemeName::ALL {
        let theme = Theme::new(name);
        let style = |role| theme.role_style(role);
        assert_ne!(style(StyleRole::Text), style(StyleRole::Error), "{name:?}");
        assert_ne!(style(StyleRole::Text), style(StyleRole::Warn), "{name:?}");
        assert_ne!(style(StyleRole::Added), style(StyleRole::AddedWord), "{name:?}");
        assert_ne!(style(StyleRole::Removed), style(StyleRole::RemovedWord), "{name:?}");
        assert_ne!(style(StyleRole::Text), style(StyleRole::Selected), "{name:?}");
        assert_ne!(style(StyleRole::Text), style(StyleRole::Key), "{name:?}");
        assert_eq!(ThemeName::from_name(name.as_str()), Some(name));
    }
    assert_eq!(ThemeName::from_name("neon"), None);
}

#[test]
fn a_card_says_how_long_it_waits() {
    let mut card = approval_card();
    card.ask.expires = Some(1_000_000 + 600_000);
    let screen = |card: AskCard| {
        let mut told = support::sample_block(BlockBody::Ask(Box::new(card)));
        told.ts = 1_000_000;
        let theme = Theme::default();
        [
            lines_text(&block_lines(&told, 100, &theme, true)),
            lines_text(&block_lines(&told, 100, &Theme::screen_reader(), true)),
        ]
    };
    for said in screen(card.clone()) {
        assert!(said.contains("time: denied without an answer within 10 min of the question"), "{said}");
    }
    card.closed = true;
    for said in screen(card) {
        assert!(!said.contains("time:"), "{said}");
    }
}
