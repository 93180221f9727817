//! Figures: what it takes to lay out a long thread once, and to find it again. Printed, and held to generous bounds.

use std::time::{Duration, Instant};

use minke_record::Outcome;
use minke_tui::paint::{Drawn, Theme, warm};
use minke_view::{Block, BlockId, Body, Call, CallState, Said, Saying, Tail, Words};

use crate::support;

const BLOCKS: u64 = 10_000;
const REPLY: &str = "I looked at **three** files and found this:\n\n- `view` folds events into blocks\n- `tui` draws them\n\n\
    | crate | lines |\n|---|---|\n| view | 2100 |\n| tui | 5200 |\n\n```rust\nfn main() {\n    println!(\"hello {}\", 42);\n}\n```\n\n\
    That is all; the rest follows from it, and the tests say so.\n";

fn thread() -> Vec<Block> {
    (0..BLOCKS)
        .map(|seq| {
            let body = match seq % 4 {
                0 => Body::Said(Said {
                    who: "you".to_owned(),
                    text: "Make it faster, please, and say how much.".to_owned(),
                    chips: Vec::new(),
                    state: Saying::Said,
                }),
                1 => Body::Reply(Words { text: REPLY.to_owned(), ..Words::default() }),
                2 => Body::Thinking(Words { text: "Let me see. ".repeat(40), ..Words::default() }),
                _ => Body::Call(Box::new(Call {
                    state: CallState::Ended(Outcome::Done),
                    output: Tail { text: "test a ... ok\n".repeat(100), ..Tail::default() },
                    ..support::call("Bash", "cargo test")
                })),
            };
            Block { id: BlockId { seq, part: 0, live: false }, version: 1, ts: 0, body }
        })
        .collect()
}

#[test]
fn a_long_thread_is_laid_out_once() {
    let begin = Instant::now();
    warm();
    let loaded = begin.elapsed();
    let thread = thread();
    let mut drawn = Drawn::default();
    let theme = Theme::default();
    let begin = Instant::now();
    let lines: usize = thread.iter().map(|block| drawn.lines(block, 100, &theme, false).len()).sum();
    let once = begin.elapsed();
    let begin = Instant::now();
    let screen = &thread[thread.len() - 40..];
    for _ in 0..60 {
        for block in screen {
            drawn.lines(block, 100, &theme, false);
        }
    }
    let again = begin.elapsed() / 60;
    let painted = drawn.painted();
    println!(
        "{BLOCKS} blocks, {lines} lines: {once:?}; grammars loaded in {loaded:?}; a screen found again in {again:?}"
    );
    assert_eq!(painted, BLOCKS, "nothing of the last screen was laid out again");
    assert!(again < Duration::from_millis(16), "{again:?} for a screen that did not change");
}
