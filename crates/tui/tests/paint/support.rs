//! What these tests share: lines as text, golden files, blocks by hand, dice.

use std::path::Path;

use minke_record::{Ask, AskId, AskKind, AskSubject};
use minke_view::{AskCard, Block, BlockId, Body, Call, CallState, Tail};
use ratatui::text::Line;
use uuid::Uuid;

pub(crate) fn text(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        for span in &line.spans {
            out.push_str(&span.content);
        }
        out.push('\n');
    }
    out
}

pub(crate) fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        std::fs::write(&file, text).expect("the golden file is written");
    }
    let expected = std::fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
    assert_eq!(text, expected, "{name}: if it is meant, MINKE_BLESS=1 writes it anew");
}

pub(crate) fn block(body: Body) -> Block {
    Block { id: BlockId { seq: 7, part: 0, live: false }, version: 1, ts: 0, body }
}

pub(crate) fn call(tool: &str, about: &str) -> Call {
    Call {
        id: "call-1".into(),
        tool: tool.to_owned(),
        about: about.to_owned(),
        command: None,
        arguments: String::new(),
        state: CallState::Running,
        diff: None,
        path: None,
        output: Tail::default(),
        exit: None,
        summary: String::new(),
        behind: false,
        fence: None,
        began: None,
        ended: None,
        by: None,
    }
}

/// A question that nobody has answered.
pub(crate) fn asked() -> AskCard {
    let ask = Ask {
        id: AskId(Uuid::nil()),
        ask: AskKind::Approval,
        subject: AskSubject::default(),
        options: ["approved", "approved_for_session", "denied", "abort"].map(str::to_owned).to_vec(),
        expires: None,
    };
    AskCard { ask, pod: None, socket: None, answer: None, closed: false }
}

/// Dice whose throws can be had again: the seed is in every failure.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("below a usize")
    }

    pub(crate) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}
