//! The paint cache: hits, invalidation and limits.

use minke_tui::paint::{PaintCache, Theme, ThemeName, block_lines};
use minke_view::{Block, BlockBody, BlockId, StreamedText};

use crate::support::lines_text;

fn reply_block(seq: u64, version: u64, said: &str, open: bool) -> Block {
    let words = StreamedText { text: said.to_owned(), open, ..StreamedText::default() };
    Block { id: BlockId { seq, part: 0, live: open }, version, ts: 0, body: BlockBody::Reply(words) }
}

#[test]
fn what_did_not_change_is_drawn_once() {
    let mut cache = PaintCache::default();
    let theme = Theme::default();
    let told = reply_block(1, 1, "some *words*", false);
    for _ in 0..10 {
        assert_eq!(cache.block_lines(&told, 80, &theme, false), block_lines(&told, 80, &theme, false));
    }
    assert_eq!(cache.paint_count(), 1);
    for (changed, width, theme, open) in [
        (reply_block(1, 2, "others", false), 80, theme, false),
        (told.clone(), 40, theme, false),
        (told.clone(), 40, Theme::new(ThemeName::Dark), false),
        (told.clone(), 40, Theme::new(ThemeName::Dark), true),
    ] {
        let before = cache.paint_count();
        assert_eq!(
            cache.block_lines(&changed, width, &theme, open),
            block_lines(&changed, width, &theme, open)
        );
        assert_eq!(cache.paint_count(), before + 1);
    }
}

#[test]
fn a_reply_that_grows_looks_as_if_it_had_been_there_at_once() {
    let mut drawn = PaintCache::default();
    let theme = Theme::default();
    let said = "# Title\n\nwords words\n\n```rust\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| c | d |\n";
    for length in 0..=said.len() {
        let told = reply_block(3, length as u64, said.get(..length).unwrap(), true);
        assert_eq!(
            drawn.block_lines(&told, 60, &theme, false),
            block_lines(&told, 60, &theme, false),
            "{length}"
        );
    }
    // Same length, another text: nothing of the old text remains.
    let other = reply_block(3, 1000, &said.replace("words", "WORDS"), true);
    assert_eq!(drawn.block_lines(&other, 60, &theme, false), block_lines(&other, 60, &theme, false));
    let done = reply_block(3, 1001, said, false);
    assert_eq!(
        lines_text(drawn.block_lines(&done, 60, &theme, false)),
        lines_text(&block_lines(&done, 60, &theme, false))
    );
}

/// A text beyond the limit is only counted, however often a frame is drawn.
#[test]
fn a_reply_that_is_too_long_to_be_held_is_not_laid_out_again_for_what_follows() {
    let mut cache = PaintCache::default();
    let theme = Theme::default();
    let said = "some words\n\n- and more";
    for left_out in 0..20 {
        let mut told = reply_block(3, left_out, said, true);
        if let BlockBody::Reply(words) = &mut told.body {
            words.omitted_bytes = left_out * 1_000;
        }
        assert_eq!(
            cache.block_lines(&told, 60, &theme, false),
            block_lines(&told, 60, &theme, false),
            "{left_out}"
        );
    }
    assert_eq!((cache.paint_count(), cache.growth_count()), (20, 19));
}

#[test]
fn what_is_kept_has_an_end() {
    let mut drawn = PaintCache::new(100);
    let theme = Theme::default();
    for seq in 0..1000 {
        drawn.block_lines(&reply_block(seq, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
        assert!(drawn.cached_line_count() <= 105, "{}", drawn.cached_line_count());
    }
    let before = drawn.paint_count();
    drawn.block_lines(&reply_block(999, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
    assert_eq!(drawn.paint_count(), before, "the most recently used block is still cached");
    drawn.block_lines(&reply_block(0, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
    assert_eq!(drawn.paint_count(), before + 1, "the least recently used block was evicted");
    drawn.clear_cache();
    assert_eq!(drawn.cached_line_count(), 0);
}
