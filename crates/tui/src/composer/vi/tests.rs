//! Commands by table: a text with `|` before the cursor, what is typed, and what is there then.

use minke_record::InputSegment;
use proptest::prelude::*;

use super::super::{Composer, Draft};
use super::*;

/// What is typed; `<esc>` and the like are keys.
fn keys(typed: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = typed;
    while let Some(letter) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let key = named.and_then(|(name, behind)| Some((name.parse::<Key>().ok()?, behind)));
        let (key, behind) = key.filter(|_| !rest.starts_with("<>")).unwrap_or_else(|| {
            let mut letters = rest.chars();
            letters.next();
            (Key::char(letter), letters.as_str())
        });
        keys.push(key);
        rest = behind;
    }
    keys
}

/// As the terminal's mind hands keys on.
fn press(composer: &mut Composer, key: Key) -> Heard {
    let heard = composer.vi_key(key);
    if heard == Heard::Not {
        composer.key(key);
    }
    heard
}

fn run(composer: &mut Composer, typed: &str) -> String {
    for key in keys(typed) {
        press(composer, key);
    }
    composer.text()
}

fn at(marked: &str) -> Composer {
    let (before, after) = marked.split_once('|').expect("a cursor is marked");
    let mut composer = Composer::default();
    composer.set_vi(true);
    composer.set(Draft { text: format!("{before}{after}"), chips: Vec::new() });
    press(&mut composer, Key::plain(Code::Esc));
    let units = composer.field.units();
    composer.field.go(&units, units.at_byte(before.len()));
    composer
}

fn marked(composer: &Composer) -> String {
    let (text, cursor) = (composer.field.text(), composer.field.cursor());
    let (before, after) = text.split_at(cursor);
    format!("{before}|{after}")
}

#[track_caller]
fn check(table: &[(&str, &str, &str)]) {
    for (before, typed, after) in table {
        let mut composer = at(before);
        for key in keys(typed) {
            press(&mut composer, key);
        }
        assert_eq!(marked(&composer), *after, "`{before}` and then `{typed}`");
    }
}

#[test]
fn motions_go_where_people_expect_them_to() {
    check(&[
        ("ab|c", "h", "a|bc"),
        ("|abc", "h", "|abc"),
        ("a|bc", "l", "ab|c"),
        ("ab|c", "l", "ab|c"),
        ("|abcdef", "3l", "abc|def"),
        ("|abcdef", "99l", "abcde|f"),
        ("a|b\ncd", "j", "ab\nc|d"),
        ("ab\nc|d", "k", "a|b\ncd"),
        ("ab|c\nd\nefg", "jj", "abc\nd\nef|g"),
        ("a|bc\nd", "$j", "abc\n|d"),
        ("|a\nlong", "$jj", "a\nlon|g"),
        ("|one two", "w", "one |two"),
        ("|one, two", "w", "one|, two"),
        ("|one, two", "W", "one, |two"),
        ("|one\n\ntwo", "w", "one\n|\ntwo"),
        ("|one\n\ntwo", "ww", "one\n\n|two"),
        ("|one\n  two", "w", "one\n  |two"),
        ("one |two", "w", "one tw|o"),
        ("|a b c d", "3w", "a b c |d"),
        ("one two|", "b", "one |two"),
        ("one |two", "b", "|one two"),
        ("a.b|c", "b", "a.|bc"),
        ("x a.b|c", "B", "x |a.bc"),
        ("one\n\n|two", "b", "one\n|\ntwo"),
        ("|one two", "e", "on|e two"),
        ("on|e two", "e", "one tw|o"),
        ("|a.b c", "E", "a.|b c"),
        ("|one\n\ntwo", "ee", "one\n\ntw|o"),
        ("  ab|c", "0", "|  abc"),
        ("  ab|c", "^", "  |abc"),
        ("  |  ", "^", "   | "),
        ("|abc\nd", "$", "ab|c\nd"),
        ("|abc\ndef", "2$", "abc\nde|f"),
        ("a\nb\n|c", "gg", "|a\nb\nc"),
        ("|a\nb\n  c", "G", "a\nb\n  |c"),
        ("|a\nb\nc", "2G", "a\n|b\nc"),
        ("a\nb\n|c", "2gg", "a\n|b\nc"),
        ("|a\nb", "9G", "a\n|b"),
        ("|a,b,c", "f,", "a|,b,c"),
        ("|a,b,c", "2f,", "a,b|,c"),
        ("|a,b,c", "3f,", "|a,b,c"),
        ("|ab,c,d", "t,", "a|b,c,d"),
        ("|ab,c,d", "t,;", "ab,|c,d"),
        ("a,b,|c", "F,", "a,b|,c"),
        ("a,b,|c", "F,;", "a|,b,c"),
        ("a,bb,c|c", "T,", "a,bb,|cc"),
        ("a,bb,c|c", "F,T,", "a,|bb,cc"),
        ("|a,b,c", "f,;,", "a|,b,c"),
        ("|a\nb\n\nc", "}", "a\nb\n|\nc"),
        ("a\nb\n|\nc\nd", "}", "a\nb\n\nc\n|d"),
        ("a\n\nb\n|c", "{", "a\n|\nb\nc"),
        ("a\n|b", "{", "|a\nb"),
        ("|abc", "<right>", "a|bc"),
        ("ab|c", "<left>", "a|bc"),
        ("|abc", "<end>", "ab|c"),
        ("ab|c", "<home>", "|abc"),
        ("ab|c", "<backspace>", "a|bc"),
        ("|日本語", "l", "日|本語"),
        ("|e\u{301}x", "l", "e\u{301}|x"),
        ("|👩‍👩‍👧x", "l", "👩‍👩‍👧|x"),
        ("日本|語\nabcdefg", "j", "日本語\nabcd|efg"),
    ]);
}

#[test]
fn operators_take_what_their_motions_go_over() {
    check(&[
        ("|one two", "dw", "|two"),
        ("one |two", "dw", "one| "),
        ("one |two\nthree", "dw", "one| \nthree"),
        ("|a b c d", "2d2w", "|"),
        ("|a b c d", "d2w", "|c d"),
        ("one| two", "de", "on|e"),
        ("one tw|o", "db", "one |o"),
        ("a|bc\nd", "d$", "|a\nd"),
        ("ab|c", "d0", "|c"),
        ("  ab|c", "d^", "  |c"),
        ("ab|c", "dh", "a|c"),
        ("|abc", "dl", "|bc"),
        ("a\nb|\nc\nd", "dj", "a\n|d"),
        ("a\nb\n|c", "dk", "|a"),
        ("a|b\nc", "dk", "a|b\nc"),
        ("a\n|b\nc", "dG", "|a"),
        ("a\n|b\nc", "dgg", "|c"),
        ("|a,b,c", "df,", "|b,c"),
        ("|a,b,c", "dt,", "|,b,c"),
        ("a,b,|c", "dF,", "a,b|c"),
        ("a,b,|c", "dT,", "a,b,|c"),
        ("|a,b,c", "f,d;", "a|c"),
        ("|a\nb\n\nc", "d}", "|\nc"),
        ("x |a\nb\n\nc", "d}", "x| \n\nc"),
        ("a|\nb\nc", "dd", "|b\nc"),
        ("a\nb\n|c", "dd", "a\n|b"),
        ("|only", "dd", "|"),
        ("a\n|b\nc\nd", "2dd", "a\n|d"),
        ("a\n|b", "9dd", "|a"),
        ("  a\n|b\n  c", "dd", "  a\n  |c"),
        ("|one two", "cwnew<esc>", "ne|w two"),
        ("on|e two", "cwX<esc>", "on|X two"),
        ("|one two three", "c2wX<esc>", "|X three"),
        ("one| two", "cwX<esc>", "one|Xtwo"),
        ("a\n|bc\nd", "ccX<esc>", "a\n|X\nd"),
        ("a\n|bc\nd", "SX<esc>", "a\n|X\nd"),
        ("a|bc", "CX<esc>", "a|X"),
        ("a|bcd", "D", "|a"),
        ("|abc", "sX<esc>", "|Xbc"),
        ("|", "sX<esc>", "|X"),
        ("|abc", "2sX<esc>", "|Xc"),
        ("|abc", "x", "|bc"),
        ("ab|c", "x", "a|b"),
        ("|abc", "9x", "|"),
        ("ab|c", "X", "a|c"),
        ("|abc", "X", "|abc"),
        ("|abc", "<delete>", "|bc"),
        ("|abc", "rx", "|xbc"),
        ("|abc", "2rx", "x|xc"),
        ("|abc", "9rx", "|abc"),
        ("|aBc", "~", "A|Bc"),
        ("|aBc", "3~", "Ab|C"),
        ("|a\n  b", "J", "a| b"),
        ("|a\nb\nc", "3J", "a b| c"),
        ("|f(\n)", "J", "f(|)"),
        ("|last", "J", "|last"),
        ("|one two", "yw$p", "one twoone| "),
        ("|one two", "yw$P", "one twone| o"),
        ("|ab", "ylp", "a|ab"),
        ("|ab", "yl3p", "aaa|ab"),
        ("|a\nb", "yyp", "a\n|a\nb"),
        ("|a\nb", "Yjp", "a\nb\n|a"),
        ("a\n|b", "yyP", "a\n|b\nb"),
        ("|a\nb", "ddp", "b\n|a"),
        ("a|b", "xp", "a|b"),
        ("|ab", "xp", "b|a"),
        ("ab|c", "y0", "|abc"),
        ("|a\nb\nc", "yjGp", "a\nb\nc\n|a\nb"),
    ]);
}

#[test]
fn text_objects_are_what_stands_around() {
    check(&[
        ("one t|wo three", "diw", "one | three"),
        ("one t|wo three", "daw", "one |three"),
        ("one tw|o", "daw", "on|e"),
        ("one| two", "diw", "one|two"),
        ("one| two", "daw", "on|e"),
        ("a x.|y b", "diW", "a | b"),
        ("say \"he|llo\" to", "di\"", "say \"|\" to"),
        ("say \"he|llo\" to", "da\"", "say |to"),
        ("s|ay \"hello\" to", "ci\"x<esc>", "say \"|x\" to"),
        ("say \"a\\\"|b\" to", "di\"", "say \"|\" to"),
        ("|no quotes", "di\"", "|no quotes"),
        ("f(a, (b|), c)", "di(", "f(a, (|), c)"),
        ("f(a, |b)", "da(", "|f"),
        ("f(a,\n |b)", "dib", "f(|)"),
        ("f(|)", "ci(x<esc>", "f(|x)"),
        ("[a|b]", "di[", "[|]"),
        ("{a|b}", "diB", "{|}"),
        ("<a|b>", "di<", "<|>"),
        ("|a (b)", "di(", "|a (b)"),
        ("|", "diw", "|"),
    ]);
}

#[test]
fn insertions_begin_where_their_letters_say() {
    check(&[
        ("a|b", "iX<esc>", "a|Xb"),
        ("a|b", "aX<esc>", "ab|X"),
        ("|", "aX<esc>", "|X"),
        ("  a|b", "IX<esc>", "  |Xab"),
        ("|ab\nc", "AX<esc>", "ab|X\nc"),
        ("|ab\nc", "oX<esc>", "ab\n|X\nc"),
        ("ab\n|c", "OX<esc>", "ab\n|X\nc"),
        ("|", "3ixy<esc>", "xyxyx|y"),
        ("|a", "2oX<esc>", "a\nX\n|X"),
        ("|ab cd", "ea<ctrl-w>Z<esc>", "|Z cd"),
        ("|", "iab<left>X<esc>", "a|Xb"),
        ("a|b", "d<esc>x", "|a"),
        ("a|b", "2<esc>x", "|a"),
        ("a|b", "zx", "|a"),
        ("a|b", "gx", "a|b"),
    ]);
}

#[test]
fn a_point_does_the_last_change_again() {
    check(&[
        ("|a b c d", "dw.", "|c d"),
        ("|a b c d e", "dw2.", "|d e"),
        ("|abcdef", "2x.", "|ef"),
        ("|one two", "cwX<esc>w.", "X |X"),
        ("|a\nb\nc", "dd.", "|c"),
        ("|a", "AX<esc>..", "aXX|X"),
        ("|a", "3iX<esc>.", "XXXX|XXa"),
        ("|a\nb", "oX<esc>j.", "a\nX\nb\n|X"),
        ("|abc", "~.", "AB|c"),
        ("|abc", "rxl.", "x|xc"),
        ("|ab ab", "vldw.", "| "),
        ("|a\nb\nc\nd", "Vjd.", "|"),
        ("|abc", ".", "|abc"),
        ("|a b c", "dwu.", "|b c"),
    ]);
}

#[test]
fn what_is_selected_is_taken() {
    check(&[
        ("|abcd", "vld", "|cd"),
        ("|abcd", "vlx", "|cd"),
        ("a|bc\nde", "vjd", "|a"),
        ("|abcd", "vlcX<esc>", "|Xcd"),
        ("|abcd", "vly$p", "abcda|b"),
        ("ab|cd", "vhd", "a|d"),
        ("|one two", "vwd", "|wo"),
        ("|a\nb\nc", "Vd", "|b\nc"),
        ("|a\nb\nc", "Vjd", "|c"),
        ("|a\nb\nc", "VjcX<esc>", "|X\nc"),
        ("|a\nb", "Vyjp", "a\nb\n|a"),
        ("|abc", "vl~", "|ABc"),
        ("|abc", "vlrx", "|xxc"),
        ("|a\nb\nc", "VjJ", "a| b\nc"),
        ("|abcd", "vllohd", "|d"),
        ("o|ne two", "viwd", "| two"),
        ("|abc", "v<esc>x", "|bc"),
        ("|abc", "vVd", "|"),
        ("|abc", "vvx", "|bc"),
        ("|ab cd", "yiwwviwp", "ab a|b"),
    ]);
}

#[test]
fn undo_goes_back_and_forward() {
    check(&[
        ("|a b c", "dwdwuu", "|a b c"),
        ("|a b c", "dwdwuu<ctrl-r>", "|b c"),
        ("|a b c", "dwdw2u2<ctrl-r>", "|c"),
        ("|a", "ione two<esc>u", "|a"),
        ("|a b", "cwlong word<esc>u", "|a b"),
        ("|a b", "dwiX<esc>uu<ctrl-r><ctrl-r>", "|Xb"),
        ("|a", "u", "|a"),
        ("|a", "<ctrl-r>", "|a"),
    ]);
}

#[test]
fn chips_are_one_thing() {
    let mut composer = Composer::default();
    composer.set_vi(true);
    for letter in "see ".chars() {
        press(&mut composer, Key::char(letter));
    }
    composer.paste(&"line\n".repeat(30)).unwrap();
    assert_eq!(run(&mut composer, " now<esc>bh"), "see [paste 1: 30 lines] now");
    assert_eq!(run(&mut composer, "hX"), "see[paste 1: 30 lines] now");
    assert_eq!(run(&mut composer, "u"), "see [paste 1: 30 lines] now");
    assert_eq!(run(&mut composer, "0wx"), "see  now", "one letter, as far as keys go");
    assert!(composer.draft().chips.is_empty());
    assert_eq!(run(&mut composer, "P"), "see [paste 1: 30 lines] now");
    assert_eq!(run(&mut composer, "~r.u"), "see [paste 1: 30 lines] now");
    // It comes back with its content also after another input was sent.
    run(&mut composer, "0wdl");
    composer.take();
    run(&mut composer, "<esc>p");
    let sent = composer.take().unwrap();
    assert!(matches!(sent.as_slice(), [InputSegment::Paste { lines: 30, .. }]), "{sent:?}");
}

#[test]
fn a_paste_is_text_in_either_mode() {
    let mut composer = at("a|b");
    composer.paste("dd\nx").unwrap();
    assert_eq!(composer.text(), "add\nxb");
    assert_eq!(composer.vi().unwrap().0, Mode::Normal);
    press(&mut composer, Key::char('u'));
    assert_eq!(composer.text(), "ab");
}

#[test]
fn at_the_edges_earlier_inputs_are_asked_for() {
    let mut composer = at("a\n|b");
    assert_eq!(press(&mut composer, Key::char('j')), Heard::Newer);
    assert_eq!(press(&mut composer, Key::char('k')), Heard::Done);
    assert_eq!(press(&mut composer, Key::char('k')), Heard::Older);
    press(&mut composer, Key::char('d'));
    assert_eq!(press(&mut composer, Key::char('k')), Heard::Done, "an operator asks for nothing");
    assert_eq!(press(&mut composer, Key::plain(Code::Enter)), Heard::Not);
    assert_eq!(press(&mut composer, Key::plain(Code::Esc)), Heard::Not, "it is a pause");
    let mut composer = at("|");
    assert_eq!(press(&mut composer, Key::char('/')), Heard::Done);
    assert_eq!((composer.text().as_str(), composer.vi().unwrap().0), ("/", Mode::Insert));
}

#[test]
fn everything_has_an_end() {
    let mut composer = at("|");
    run(&mut composer, "9999ix<esc>");
    assert_eq!(composer.text().len(), 9_999);
    run(&mut composer, "yy9999p");
    assert!(composer.text().len() < 2 * super::super::field::TEXT_MOST);
    assert!(composer.trouble().is_some(), "what was not done is told");
    run(&mut composer, "99999999999999999999x");
}

/// Letters that have been trouble: wide, joined, marks that stand on others, flags, ends of lines.
fn any_key() -> impl Strategy<Value = Key> {
    let letters = "hjklwbeWBE0^$gGfFtT;,{}dcyxXDCYsSrJ~pPuiIaAoOvV./123\"([)] xé日👩\u{200d}\u{301}🇩🇪क्ष_-\t";
    let letters: Vec<char> = letters.chars().collect();
    prop_oneof![
        12 => prop::sample::select(letters).prop_map(Key::char),
        3 => Just(Key::plain(Code::Esc)),
        1 => prop::sample::select(vec!['r', 'a', 'e', 'w', 'u', 'k', 'y', 'd', 'h', 'b', 'f']).prop_map(Key::ctrl),
        1 => prop::sample::select(vec![Code::Left, Code::Right, Code::Home, Code::End, Code::Backspace, Code::Delete])
            .prop_map(Key::plain),
    ]
}

#[derive(Debug, Clone)]
enum Deed {
    Key(Key),
    Newline,
    Paste,
    LongPaste,
    Older,
    Newer,
    Undo,
    Redo,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        30 => any_key().prop_map(Deed::Key),
        2 => Just(Deed::Newline),
        1 => Just(Deed::Paste),
        1 => Just(Deed::LongPaste),
        1 => Just(Deed::Undo),
        1 => Just(Deed::Redo),
        1 => Just(Deed::Older),
        1 => Just(Deed::Newer),
    ]
}

fn whole(composer: &Composer) {
    let field = &composer.field;
    let units = field.units();
    let on_unit = units.byte(field.at(&units)) == field.cursor();
    assert!(on_unit, "the cursor is in the middle of something: {}", marked(composer));
    // Wherever a chip's bracket is, the whole chip is.
    let standing = field.standing();
    let opened = field.text().matches("[paste ").count();
    let there: usize = standing.iter().map(|chip| field.text().matches(&chip.mark).count()).sum();
    assert_eq!(opened, there, "a chip was torn apart: {}", field.text());
    if composer.vi().is_some_and(|(mode, _)| mode != Mode::Insert) {
        let at = field.at(&units);
        assert!(at <= units.line_last(at), "the cursor stands on nothing: {}", marked(composer));
    }
}

fn do_it(composer: &mut Composer, deed: &Deed) {
    match deed {
        Deed::Key(key) => {
            press(composer, *key);
        }
        Deed::Newline => composer.newline(),
        Deed::Paste => composer.paste("two\nlines 👩‍👩‍👧").unwrap(),
        Deed::LongPaste => composer.paste(&"x\n".repeat(20)).unwrap(),
        Deed::Older => {
            composer.older();
        }
        Deed::Newer => {
            composer.newer();
        }
        Deed::Undo => {
            composer.undo();
        }
        Deed::Redo => {
            composer.redo();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_keep_the_text_whole(deeds in prop::collection::vec(any_deed(), 0..120), vi in any::<bool>()) {
        let mut composer = Composer::new(vec!["earlier\ninput".to_owned(), "another".to_owned()]);
        composer.set_vi(vi);
        for deed in &deeds {
            do_it(&mut composer, deed);
            whole(&composer);
        }
        prop_assert!(composer.take().is_none() || composer.is_empty());
    }

    #[test]
    fn undo_all_the_way_gives_back_the_beginning(
        begun in "[a-z \n(\"]{0,20}",
        deeds in prop::collection::vec(any_key(), 0..80),
        vi in any::<bool>(),
    ) {
        let mut composer = Composer::default();
        composer.set_vi(vi);
        composer.set(Draft { text: begun.clone(), chips: Vec::new() });
        for key in &deeds {
            press(&mut composer, *key);
        }
        press(&mut composer, Key::plain(Code::Esc));
        while composer.redo() {}
        let ended = composer.text();
        while composer.undo() {
            whole(&composer);
        }
        prop_assert_eq!(composer.text(), begun);
        while composer.redo() {
            whole(&composer);
        }
        prop_assert_eq!(composer.text(), ended);
    }
}
