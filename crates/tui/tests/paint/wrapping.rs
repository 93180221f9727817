//! Lines that fit: words, wide letters, joined pictures, code.

use minke_tui::paint::{Before, Break, Clean, Piece, cut, width_of, wrap};
use ratatui::style::{Modifier, Style};

use crate::support::{Dice, text};

fn words(said: &str, width: u16) -> String {
    text(&wrap(&[Piece::new(Clean::line(said), Style::new())], width, &Before::default(), Break::Words))
}

#[test]
fn words_are_broken_only_if_they_are_longer_than_a_line() {
    assert_eq!(words("the quick brown fox", 10), "the quick\nbrown fox\n");
    assert_eq!(words("a incomprehensibilities b", 10), "a\nincomprehe\nnsibilitie\ns b\n");
    assert_eq!(words("exactly10! next", 10), "exactly10!\nnext\n");
    assert_eq!(words("", 10), "\n");
}

#[test]
fn wide_letters_count_as_two() {
    assert_eq!(words("漢字漢字漢字", 5), "漢字\n漢字\n漢字\n");
    assert_eq!(words("漢", 1), "·\n");
}

#[test]
fn a_joined_picture_is_one_letter_and_stays_off_the_edge() {
    assert_eq!(words("aaaa 👩‍💻 b", 20), "aaaa 👩‍💻 b\n");
    // Where a terminal shows it as two pictures it takes four columns: it does not stand in the last three.
    assert_eq!(words("aaaa 👩‍💻", 8), "aaaa\n👩‍💻\n");
}

#[test]
fn code_keeps_its_spaces() {
    let code = Piece::new(Clean::line("    if x {    y }"), Style::new());
    let lines = wrap(&[code], 8, &Before::default(), Break::Anywhere);
    assert_eq!(text(&lines), "    if x\n {    y \n}\n");
}

#[test]
fn spans_keep_their_styles_over_line_ends() {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let pieces = [Piece::own("plain ", Style::new()), Piece::own("bold words", bold)];
    let lines = wrap(&pieces, 11, &Before::default(), Break::Words);
    assert_eq!(text(&lines), "plain bold\nwords\n");
    assert_eq!(lines[0].spans.last().map(|span| span.style), Some(bold));
    assert_eq!(lines[1].spans[0].style, bold);
}

#[test]
fn what_is_cut_says_so() {
    let piece = |said| [Piece::new(Clean::line(said), Style::new())];
    assert_eq!(text(&[cut(&piece("abcdef"), 4)]), "abc…\n");
    assert_eq!(text(&[cut(&piece("abcd"), 4)]), "abcd\n");
    assert_eq!(text(&[cut(&piece("漢字漢"), 4)]), "漢…\n");
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let letters = ["a", " ", "  ", "word", "漢", "👩‍💻", "e\u{301}", "-", "🇩🇪", "❤️", "ﾊﾞ", "क्षि", "👍🏽"];
    for seed in 0..4000 {
        let mut dice = Dice::new(seed);
        let said: String = (0..dice.below(60)).map(|_| dice.of(&letters)).collect();
        let width = u16::try_from(1 + dice.below(40)).unwrap();
        let before = Before {
            first: vec![Piece::own("▎ • ", Style::new())],
            rest: vec![Piece::own("▎   ", Style::new())],
        };
        for how in [Break::Words, Break::Anywhere] {
            let pieces = [Piece::new(Clean::line(&said), Style::new())];
            for line in wrap(&pieces, width, &before, how) {
                let wide = width_of(&line);
                assert!(wide <= usize::from(width), "seed {seed}: {wide} > {width}: {line:?}");
            }
        }
        let line = cut(&[Piece::new(Clean::line(&said), Style::new())], width);
        assert!(width_of(&line) <= usize::from(width), "seed {seed}: {line:?}");
    }
}
