//! Shared helpers: lines as text, golden files, sample blocks, random numbers.

use std::path::Path;

use minke_record::{Ask, AskId, AskKind, AskSubject};
use minke_view::{AskCard, Block, BlockBody, BlockId, CallCard, CallState, TextTail};
use ratatui::text::Line;
use uuid::Uuid;

pub(crate) fn lines_text(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        for span in &line.spans {
            out.push_str(&span.content);
        }
        out.push('\n');
    }
    out
}

pub(crate) fn assert_golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        std::fs::write(&file, text).expect("the golden file is written");
    }
    let expected = std::fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
    assert_eq!(text, expected, "{name}: if this is intended, rewrite it with MINKE_BLESS=1");
}

pub(crate) fn sample_block(body: BlockBody) -> Block {
    Block { id: BlockId { seq: 7, part: 0, live: false }, version: 1, ts: 0, body }
}

pub(crate) fn sample_call(tool: &str, about: &str) -> CallCard {
    CallCard {
        id: "call-1".into(),
        tool: tool.to_owned(),
        subject: about.to_owned(),
        command: None,
        arguments: String::new(),
        state: CallState::Running,
        diff: None,
        path: None,
        output: TextTail::default(),
        exit: None,
        summary: String::new(),
        in_background: false,
        sandbox: None,
        started_at: None,
        ended_at: None,
        caller: None,
    }
}

/// An open ask.
pub(crate) fn open_ask() -> AskCard {
    let ask = Ask {
        id: AskId(Uuid::nil()),
        ask: AskKind::Approval,
        subject: AskSubject::default(),
        options: ["approved", "approved_for_session", "denied", "abort"].map(str::to_owned).to_vec(),
        expires: None,
    };
    AskCard { ask, pod: None, socket: None, answer: None, closed: false }
}

/// A seeded random number generator; failures report the seed.
pub(crate) struct DiceRng(u64);

impl DiceRng {
    pub(crate) fn new(seed: u64) -> DiceRng {
        DiceRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn next_below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("below a usize")
    }

    pub(crate) fn choose_from<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.next_below(all.len())]
    }
}
