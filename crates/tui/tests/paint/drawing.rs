//! What was drawn is kept: found again, thrown away when it is out of date, and bounded.

use minke_tui::paint::{Drawn, Theme, ThemeName, block};
use minke_view::{Block, BlockId, Body, Words};

use crate::support::text;

fn reply(seq: u64, version: u64, said: &str, open: bool) -> Block {
    let words = Words { text: said.to_owned(), open, ..Words::default() };
    Block { id: BlockId { seq, part: 0, live: open }, version, ts: 0, body: Body::Reply(words) }
}

#[test]
fn what_did_not_change_is_drawn_once() {
    let mut drawn = Drawn::default();
    let theme = Theme::default();
    let told = reply(1, 1, "some *words*", false);
    for _ in 0..10 {
        assert_eq!(drawn.lines(&told, 80, &theme, false), block(&told, 80, &theme, false));
    }
    assert_eq!(drawn.painted(), 1);
    for (changed, width, theme, open) in [
        (reply(1, 2, "others", false), 80, theme, false),
        (told.clone(), 40, theme, false),
        (told.clone(), 40, Theme::new(ThemeName::Dark), false),
        (told.clone(), 40, Theme::new(ThemeName::Dark), true),
    ] {
        let before = drawn.painted();
        assert_eq!(drawn.lines(&changed, width, &theme, open), block(&changed, width, &theme, open));
        assert_eq!(drawn.painted(), before + 1);
    }
}

#[test]
fn a_reply_that_grows_looks_as_if_it_had_been_there_at_once() {
    let mut drawn = Drawn::default();
    let theme = Theme::default();
    let said = "# Title\n\nwords words\n\n```rust\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| c | d |\n";
    for length in 0..=said.len() {
        let told = reply(3, length as u64, said.get(..length).unwrap(), true);
        assert_eq!(drawn.lines(&told, 60, &theme, false), block(&told, 60, &theme, false), "{length}");
    }
    // The same length, another text: nothing of the old one stays.
    let other = reply(3, 1000, &said.replace("words", "WORDS"), true);
    assert_eq!(drawn.lines(&other, 60, &theme, false), block(&other, 60, &theme, false));
    let done = reply(3, 1001, said, false);
    assert_eq!(text(drawn.lines(&done, 60, &theme, false)), text(&block(&done, 60, &theme, false)));
}

/// What comes then is only counted, as often as a frame is drawn.
#[test]
fn a_reply_that_is_too_long_to_be_held_is_not_laid_out_again_for_what_follows() {
    let mut drawn = Drawn::default();
    let theme = Theme::default();
    let said = "some words\n\n- and more";
    for left_out in 0..20 {
        let mut told = reply(3, left_out, said, true);
        if let Body::Reply(words) = &mut told.body {
            words.left_out = left_out * 1_000;
        }
        assert_eq!(drawn.lines(&told, 60, &theme, false), block(&told, 60, &theme, false), "{left_out}");
    }
    assert_eq!((drawn.painted(), drawn.grown()), (20, 19));
}

#[test]
fn what_is_kept_has_an_end() {
    let mut drawn = Drawn::new(100);
    let theme = Theme::default();
    for seq in 0..1000 {
        drawn.lines(&reply(seq, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
        assert!(drawn.kept() <= 105, "{}", drawn.kept());
    }
    let before = drawn.painted();
    drawn.lines(&reply(999, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
    assert_eq!(drawn.painted(), before, "what was asked for last is still there");
    drawn.lines(&reply(0, 1, "one\n\ntwo\n\nthree", false), 80, &theme, false);
    assert_eq!(drawn.painted(), before + 1, "what was asked for first is gone");
    drawn.clear();
    assert_eq!(drawn.kept(), 0);
}
