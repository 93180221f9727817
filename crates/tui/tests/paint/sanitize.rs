//! External text: removed, named and preserved characters.

use minke_tui::paint::Clean;

fn assert_prose(text: &str, expected: &str) {
    assert_eq!(Clean::from_prose(text).as_str(), expected, "{text:?}");
}

fn assert_exact(text: &str, expected: &str) {
    assert_eq!(Clean::from_exact(text).as_str(), expected, "{text:?}");
}

#[test]
fn sequences_are_taken_out_of_words() {
    assert_prose("a\u{1b}[31mred\u{1b}[0m b", "ared b");
    assert_prose("\u{1b}]0;title\u{7}x", "x");
    assert_prose("\u{1b}]52;c;cm0gLXJm\u{1b}\\x", "x");
    assert_prose("\u{1b}Pq#0;2;0\u{1b}\\x", "x");
    assert_prose("\u{1b}_Gf=100;AAAA\u{1b}\\x", "x");
    assert_prose("\u{9b}2Jx\u{9d}0;t\u{9c}y", "xy");
    assert_prose("\u{1b}(0lqk\u{1b}(Bx", "lqkx");
    assert_prose("\u{1b}cx\u{1b}7y\u{1b}", "xy");
    assert_prose("\u{1b}]8;;http://evil\u{1b}\\click\u{1b}]8;;\u{1b}\\", "click");
    assert_prose("\u{7}\u{8}\u{0}a\u{7f}", "a");
}

#[test]
fn an_unclosed_sequence_hides_at_most_its_line() {
    assert_prose("\u{1b}]0;title\nnext", "\nnext");
    assert_prose("\u{1b}[12;\nnext", "\nnext");
    assert_prose("\u{90}payload\nnext", "\nnext");
}

#[test]
fn what_a_person_judges_hides_nothing() {
    assert_exact("rm -rf ~\rls", "rm -rf ~␍ls");
    assert_exact("ls\u{1b}[8m; rm x\u{1b}[0m", "ls␛[8m; rm x␛[0m");
    assert_exact("if a\u{202e} }\u{2066}", "if a<U+202E> }<U+2066>");
    assert_exact("pass\u{200b}word", "pass<U+200B>word");
    assert_exact("x\u{e0041}y\u{9b}2J", "x<U+E0041>y<U+009B>2J");
    assert_exact("a\r\nb", "a\nb");
    assert_eq!(Clean::from_exact_line("a\nb\n").as_str(), "a⏎b");
}

#[test]
fn what_cannot_be_seen_is_taken_out_of_words() {
    assert_prose(
        "a\u{202e}b\u{2066}c\u{200f}d\u{feff}e\u{ad}f\u{2060}g\u{e0061}h\u{3164}i\u{fff9}j",
        "abcdefghij",
    );
    assert_prose("a\u{2028}b\u{2029}c\u{b}d\u{c}e\u{85}f\rg\r\nh", "a\nb\nc\nd\ne\nf\ng\nh");
    assert_prose("a\u{a0}b\u{2003}c", "a b c");
    assert_prose("\u{fdd0}\u{ffff}", "\u{fffd}\u{fffd}");
}

#[test]
fn marks_sit_on_letters_and_do_not_pile_up() {
    assert_prose("\u{301}a", "◌\u{301}a");
    assert_prose("x\n\u{301}\u{301}a", "x\n◌\u{301}\u{301}a");
    let tower = format!("a{}", "\u{301}".repeat(50));
    assert_prose(&tower, &format!("a{}", "\u{301}".repeat(4)));
}

#[test]
fn pictures_and_scripts_stay_what_they_are() {
    for text in ["👩‍💻 🏳️‍🌈 ❤️ 1️⃣ 🇩🇪 👍🏽", "漢字 かな 한국어", "می‌خواهم", "क्‍ष", "é ñ ü e\u{301}", "Ελληνικά"]
    {
        assert_prose(text, text);
        assert_exact(text, text);
    }
    assert_prose("a\u{200d}b\u{200c}c\u{fe0f}", "abc");
}

#[test]
fn tabs_become_columns() {
    assert_prose("a\tb\n\tc\nabcd\td", "a   b\n    c\nabcd    d");
}

#[test]
fn to_clean_twice_changes_nothing() {
    for text in
        ["\u{301}\u{202e}x", "\u{1b}\u{1b}[31mx", "👩\u{200b}\u{200d}💻", "a\u{1b}", "1\u{200b}\u{fe0f}"]
    {
        let once = Clean::from_prose(text);
        assert_eq!(Clean::from_prose(once.as_str()), once, "{text:?}");
        let once = Clean::from_exact(text);
        assert_eq!(Clean::from_exact(once.as_str()), once, "{text:?}");
    }
}
