//! Table tests: a text with `|` before the cursor, the typed keys and the result.

use minke_record::InputSegment;
use proptest::prelude::*;

use super::super::{Composer, ComposerDraft};
use super::*;

/// Parses typed text; `<esc>` and similar names are keys.
fn parse_key_names(typed: &str) -> Vec<KeyPress> {
    let mut keys = Vec::new();
    let mut rest = typed;
    while let Some(letter) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let key = named.and_then(|(name, behind)| Some((name.parse::<KeyPress>().ok()?, behind)));
        let (key, behind) = key.filter(|_| !rest.starts_with("<>")).unwrap_or_else(|| {
            let mut letters = rest.chars();
            letters.next();
            (KeyPress::from_letter(letter), letters.as_str())
        });
        keys.push(key);
        rest = behind;
    }
    keys
}

/// Passes a key on as the application does.
fn press_key(composer: &mut Composer, key: KeyPress) -> KeyResult {
    let heard = composer.handle_vi_key(key);
    if heard == KeyResult::Unhandled {
        composer.handle_key(key);
    }
    heard
}

fn run_keys(composer: &mut Composer, typed: &str) -> String {
    for key in parse_key_names(typed) {
        press_key(composer, key);
    }
    composer.text()
}

fn composer_at(marked: &str) -> Composer {
    let (before, after) = marked.split_once('|').expect("a cursor is marked");
    let mut composer = Composer::default();
    composer.set_vi(true);
    composer.set_draft(ComposerDraft { text: format!("{before}{after}"), chips: Vec::new() });
    press_key(&mut composer, KeyPress::from_symbol(KeySymbol::Esc));
    let units = composer.buffer.graphemes();
    composer.buffer.move_to(&units, units.index_at_byte(before.len()));
    composer
}

fn marked_text(composer: &Composer) -> String {
    let (text, cursor) = (composer.buffer.text(), composer.buffer.cursor_byte());
    let (before, after) = text.split_at(cursor);
    format!("{before}|{after}")
}

#[track_caller]
fn check_table(table: &[(&str, &str, &str)]) {
    for (before, typed, after) in table {
        let mut composer = composer_at(before);
        for key in parse_key_names(typed) {
            press_key(&mut composer, key);
        }
        assert_eq!(marked_text(&composer), *after, "`{before}` and then `{typed}`");
    }
}

#[test]
fn motions_go_where_people_expect_them_to() {
    check_table(&[
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
    check_table(&[
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
    check_table(&[
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
    check_table(&[
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
    check_table(&[
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
    check_table(&[
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
    check_table(&[
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
        press_key(&mut composer, KeyPress::from_letter(letter));
    }
    composer.paste_text(&"line\n".repeat(30)).unwrap();
    assert_eq!(run_keys(&mut composer, " now<esc>bh"), "see [paste 1: 30 lines] now");
    assert_eq!(run_keys(&mut composer, "hX"), "see[paste 1: 30 lines] now");
    assert_eq!(run_keys(&mut composer, "u"), "see [paste 1: 30 lines] now");
    assert_eq!(run_keys(&mut composer, "0wx"), "see  now", "one letter, as far as keys go");
    assert!(composer.to_draft().chips.is_empty());
    assert_eq!(run_keys(&mut composer, "P"), "see [paste 1: 30 lines] now");
    assert_eq!(run_keys(&mut composer, "~r.u"), "see [paste 1: 30 lines] now");
    // The content is restored even after another input was sent.
    run_keys(&mut composer, "0wdl");
    composer.take_input();
    run_keys(&mut composer, "<esc>p");
    let sent = composer.take_input().unwrap();
    assert!(matches!(sent.as_slice(), [InputSegment::Paste { lines: 30, .. }]), "{sent:?}");
}

#[test]
fn a_paste_is_text_in_either_mode() {
    let mut composer = composer_at("a|b");
    composer.paste_text("dd\nx").unwrap();
    assert_eq!(composer.text(), "add\nxb");
    assert_eq!(composer.vi_state().unwrap().0, ViMode::Normal);
    press_key(&mut composer, KeyPress::from_letter('u'));
    assert_eq!(composer.text(), "ab");
}

#[test]
fn at_the_edges_earlier_inputs_are_asked_for() {
    let mut composer = composer_at("a\n|b");
    assert_eq!(press_key(&mut composer, KeyPress::from_letter('j')), KeyResult::Newer);
    assert_eq!(press_key(&mut composer, KeyPress::from_letter('k')), KeyResult::Handled);
    assert_eq!(press_key(&mut composer, KeyPress::from_letter('k')), KeyResult::Older);
    press_key(&mut composer, KeyPress::from_letter('d'));
    assert_eq!(
        press_key(&mut composer, KeyPress::from_letter('k')),
        KeyResult::Handled,
        "an operator does not recall inputs"
    );
    assert_eq!(press_key(&mut composer, KeyPress::from_symbol(KeySymbol::Enter)), KeyResult::Unhandled);
    assert_eq!(
        press_key(&mut composer, KeyPress::from_symbol(KeySymbol::Esc)),
        KeyResult::Unhandled,
        "it is a pause"
    );
    let mut composer = composer_at("|");
    assert_eq!(press_key(&mut composer, KeyPress::from_letter('/')), KeyResult::Handled);
    assert_eq!((composer.text().as_str(), composer.vi_state().unwrap().0), ("/", ViMode::Insert));
}

#[test]
fn everything_has_an_end() {
    let mut composer = composer_at("|");
    run_keys(&mut composer, "9999ix<esc>");
    assert_eq!(composer.text().len(), 9_999);
    run_keys(&mut composer, "yy9999p");
    assert!(composer.text().len() < 2 * super::super::text_buffer::MAX_TEXT_BYTES);
    assert!(composer.take_error().is_some(), "the error is reported");
    run_keys(&mut composer, "99999999999999999999x");
}

/// Letters that have caused bugs: wide, joined, combining, flags, newlines.
fn key_strategy() -> impl Strategy<Value = KeyPress> {
    let letters = "hjklwbeWBE0^$gGfFtT;,{}dcyxXDCYsSrJ~pPuiIaAoOvV./123\"([)] xé日👩\u{200d}\u{301}🇩🇪क्ष_-\t";
    let letters: Vec<char> = letters.chars().collect();
    prop_oneof![
        12 => prop::sample::select(letters).prop_map(KeyPress::from_letter),
        3 => Just(KeyPress::from_symbol(KeySymbol::Esc)),
        1 => prop::sample::select(vec!['r', 'a', 'e', 'w', 'u', 'k', 'y', 'd', 'h', 'b', 'f']).prop_map(KeyPress::with_ctrl),
        1 => prop::sample::select(vec![KeySymbol::Left, KeySymbol::Right, KeySymbol::Home, KeySymbol::End, KeySymbol::Backspace, KeySymbol::Delete])
            .prop_map(KeyPress::from_symbol),
    ]
}

#[derive(Debug, Clone)]
enum EditorAction {
    Key(KeyPress),
    Newline,
    Paste,
    LongPaste,
    Older,
    Newer,
    Undo,
    Redo,
}

fn action_strategy() -> impl Strategy<Value = EditorAction> {
    prop_oneof![
        30 => key_strategy().prop_map(EditorAction::Key),
        2 => Just(EditorAction::Newline),
        1 => Just(EditorAction::Paste),
        1 => Just(EditorAction::LongPaste),
        1 => Just(EditorAction::Undo),
        1 => Just(EditorAction::Redo),
        1 => Just(EditorAction::Older),
        1 => Just(EditorAction::Newer),
    ]
}

fn assert_consistent(composer: &Composer) {
    let field = &composer.buffer;
    let units = field.graphemes();
    let on_unit = units.byte_offset(field.grapheme_at_cursor(&units)) == field.cursor_byte();
    assert!(on_unit, "the cursor is inside a unit: {}", marked_text(composer));
    // Brackets only occur as complete attachments.
    let standing = field.attachments_in_text();
    let opened = field.text().matches("[paste ").count();
    let there: usize = standing.iter().map(|chip| field.text().matches(&chip.mark).count()).sum();
    assert_eq!(opened, there, "an attachment was cut: {}", field.text());
    if composer.vi_state().is_some_and(|(mode, _)| mode != ViMode::Insert) {
        let at = field.grapheme_at_cursor(&units);
        assert!(
            at <= units.last_cursor_position(at),
            "the cursor is not on a unit: {}",
            marked_text(composer)
        );
    }
}

fn apply_action(composer: &mut Composer, deed: &EditorAction) {
    match deed {
        EditorAction::Key(key) => {
            press_key(composer, *key);
        }
        EditorAction::Newline => composer.insert_newline(),
        EditorAction::Paste => composer.paste_text("two\nlines 👩‍👩‍👧").unwrap(),
        EditorAction::LongPaste => composer.paste_text(&"x\n".repeat(20)).unwrap(),
        EditorAction::Older => {
            composer.recall_older();
        }
        EditorAction::Newer => {
            composer.recall_newer();
        }
        EditorAction::Undo => {
            composer.undo_edit();
        }
        EditorAction::Redo => {
            composer.redo_edit();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_keep_the_text_whole(deeds in prop::collection::vec(action_strategy(), 0..120), vi in any::<bool>()) {
        let mut composer = Composer::new(vec!["earlier\ninput".to_owned(), "another".to_owned()]);
        composer.set_vi(vi);
        for deed in &deeds {
            apply_action(&mut composer, deed);
            assert_consistent(&composer);
        }
        prop_assert!(composer.take_input().is_none() || composer.is_empty());
    }

    #[test]
    fn undo_all_the_way_gives_back_the_beginning(
        begun in "[a-z \n(\"]{0,20}",
        deeds in prop::collection::vec(key_strategy(), 0..80),
        vi in any::<bool>(),
    ) {
        let mut composer = Composer::default();
        composer.set_vi(vi);
        composer.set_draft(ComposerDraft { text: begun.clone(), chips: Vec::new() });
        for key in &deeds {
            press_key(&mut composer, *key);
        }
        press_key(&mut composer, KeyPress::from_symbol(KeySymbol::Esc));
        while composer.redo_edit() {}
        let ended = composer.text();
        while composer.undo_edit() {
            assert_consistent(&composer);
        }
        prop_assert_eq!(composer.text(), begun);
        while composer.redo_edit() {
            assert_consistent(&composer);
        }
        prop_assert_eq!(composer.text(), ended);
    }
}
