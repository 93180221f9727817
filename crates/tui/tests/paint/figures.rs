//! Measures rendering a long thread and finding it in the cache, with generous limits.

use std::time::{Duration, Instant};

use minke_record::Outcome;
use minke_tui::paint::{PaintCache, Theme, load_grammars};
use minke_view::{
    Block, BlockBody, BlockId, CallCard, CallState, InputBlock, InputState, StreamedText, TextTail,
};

use crate::support;

const BLOCKS: u64 = 10_000;
const REPLY: &str = "I looked at **three** files and found this:\n\n- `view` folds events into blocks\n- `tui` draws them\n\n\
    | crate | lines |\n|---|---|\n| view | 2100 |\n| tui | 5200 |\n\n```rust\nfn main() {\n    println!(\"hello {}\", 42);\n}\n```\n\n\
    That is all; the rest follows from it, and the tests say so.\n";

fn long_thread() -> Vec<Block> {
    (0..BLOCKS)
        .map(|seq| {
            let body = match seq % 4 {
                0 => BlockBody::Input(InputBlock {
                    sender: "you".to_owned(),
                    text: "Make it faster, please, and say how much.".to_owned(),
                    attachments: Vec::new(),
                    state: InputState::Delivered,
                }),
                1 => BlockBody::Reply(StreamedText { text: REPLY.to_owned(), ..StreamedText::default() }),
                2 => BlockBody::Thinking(StreamedText {
                    text: "Let me see. ".repeat(40),
                    ..StreamedText::default()
                }),
                _ => BlockBody::CallCard(Box::new(CallCard {
                    state: CallState::RunEndNotice(Outcome::Done),
                    output: TextTail { text: "test a ... ok\n".repeat(100), ..TextTail::default() },
                    ..support::sample_call("Bash", "cargo test")
                })),
            };
            Block { id: BlockId { seq, part: 0, live: false }, version: 1, ts: 0, body }
        })
        .collect()
}

#[test]
fn a_long_thread_is_laid_out_once() {
    let begin = Instant::now();
    load_grammars();
    let loaded = begin.elapsed();
    let thread = long_thread();
    let mut drawn = PaintCache::default();
    let theme = Theme::default();
    let begin = Instant::now();
    let lines: usize = thread.iter().map(|block| drawn.block_lines(block, 100, &theme, false).len()).sum();
    let once = begin.elapsed();
    let begin = Instant::now();
    let screen = &thread[thread.len() - 40..];
    for _ in 0..60 {
        for block in screen {
            drawn.block_lines(block, 100, &theme, false);
        }
    }
    let again = begin.elapsed() / 60;
    let painted = drawn.paint_count();
    println!(
        "{BLOCKS} blocks, {lines} lines: {once:?}; grammars loaded in {loaded:?}; a screen found again in {again:?}"
    );
    assert_eq!(painted, BLOCKS, "nothing of the last screen was laid out again");
    assert!(again < Duration::from_millis(16), "{again:?} for a screen that did not change");
}
