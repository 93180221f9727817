//! Wrapping: words, wide letters, joined emoji, code.

use minke_tui::paint::{Clean, LinePrefix, StyledText, WrapMode, line_width, truncate_line, wrap_line};
use ratatui::style::{Modifier, Style};

use crate::support::{DiceRng, lines_text};

fn wrapped_prose(source: &str, width: u16) -> String {
    lines_text(&wrap_line(
        &[StyledText::new(Clean::from_prose_line(source), Style::new())],
        width,
        &LinePrefix::default(),
        WrapMode::Words,
    ))
}

#[test]
fn words_are_broken_only_if_they_are_longer_than_a_line() {
    assert_eq!(wrapped_prose("the quick brown fox", 10), "the quick\nbrown fox\n");
    assert_eq!(wrapped_prose("a incomprehensibilities b", 10), "a\nincomprehe\nnsibilitie\ns b\n");
    assert_eq!(wrapped_prose("exactly10! next", 10), "exactly10!\nnext\n");
    assert_eq!(wrapped_prose("", 10), "\n");
}

#[test]
fn wide_letters_count_as_two() {
    assert_eq!(wrapped_prose("漢字漢字漢字", 5), "漢字\n漢字\n漢字\n");
    assert_eq!(wrapped_prose("漢", 1), "·\n");
}

#[test]
fn a_joined_picture_is_one_letter_and_stays_off_the_edge() {
    assert_eq!(wrapped_prose("aaaa 👩‍💻 b", 20), "aaaa 👩‍💻 b\n");
    // A terminal that shows two emoji needs four columns, so it is not placed in the last three.
    assert_eq!(wrapped_prose("aaaa 👩‍💻", 8), "aaaa\n👩‍💻\n");
}

#[test]
fn code_keeps_its_spaces() {
    let code = StyledText::new(Clean::from_prose_line("    if x {    y }"), Style::new());
    let lines = wrap_line(&[code], 8, &LinePrefix::default(), WrapMode::Anywhere);
    assert_eq!(lines_text(&lines), "    if x\n {    y \n}\n");
}

#[test]
fn spans_keep_their_styles_over_line_ends() {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let pieces =
        [StyledText::from_static("plain ", Style::new()), StyledText::from_static("bold words", bold)];
    let lines = wrap_line(&pieces, 11, &LinePrefix::default(), WrapMode::Words);
    assert_eq!(lines_text(&lines), "plain bold\nwords\n");
    assert_eq!(lines[0].spans.last().map(|span| span.style), Some(bold));
    assert_eq!(lines[1].spans[0].style, bold);
}

#[test]
fn what_is_cut_says_so() {
    let piece = |source| [StyledText::new(Clean::from_prose_line(source), Style::new())];
    assert_eq!(lines_text(&[truncate_line(&piece("abcdef"), 4)]), "abc…\n");
    assert_eq!(lines_text(&[truncate_line(&piece("abcd"), 4)]), "abcd\n");
    assert_eq!(lines_text(&[truncate_line(&piece("漢字漢"), 4)]), "漢…\n");
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let letters = ["a", " ", "  ", "word", "漢", "👩‍💻", "e\u{301}", "-", "🇩🇪", "❤️", "ﾊﾞ", "क्षि", "👍🏽"];
    for seed in 0..4000 {
        let mut dice = DiceRng::new(seed);
        let source: String = (0..dice.next_below(60)).map(|_| dice.choose_from(&letters)).collect();
        let width = u16::try_from(1 + dice.next_below(40)).unwrap();
        let before = LinePrefix {
            first: vec![StyledText::from_static("▎ • ", Style::new())],
            rest: vec![StyledText::from_static("▎   ", Style::new())],
        };
        for how in [WrapMode::Words, WrapMode::Anywhere] {
            let pieces = [StyledText::new(Clean::from_prose_line(&source), Style::new())];
            for line in wrap_line(&pieces, width, &before, how) {
                let wide = line_width(&line);
                assert!(wide <= usize::from(width), "seed {seed}: {wide} > {width}: {line:?}");
            }
        }
        let line = truncate_line(&[StyledText::new(Clean::from_prose_line(&source), Style::new())], width);
        assert!(line_width(&line) <= usize::from(width), "seed {seed}: {line:?}");
    }
}
