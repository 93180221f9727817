//! Stories of the composer: keys in, text and segments out.

use minke_record::{ImageSource, InputSegment, Text};

use super::attachments::MAX_PASTE_BYTES;
use super::*;

fn composer_with(text: &str) -> Composer {
    let mut composer = Composer::new(Vec::new());
    type_text(&mut composer, text);
    composer
}

fn type_text(composer: &mut Composer, text: &str) {
    for letter in text.chars() {
        match letter {
            '\n' => composer.insert_newline(),
            letter => composer.handle_key(KeyPress::from_letter(letter)),
        }
    }
}

#[test]
fn a_long_paste_is_a_chip_and_is_sent_whole() {
    let long: String = (0..40).map(|n| format!("line {n}\n")).collect();
    let mut composer = composer_with("look: ");
    composer.paste_text(&long).unwrap();
    type_text(&mut composer, " and ");
    composer.paste_text("/home/ann/a\\ b.PNG").unwrap();
    assert_eq!(composer.text(), "look: [paste 1: 40 lines] and [image a b.PNG]");
    let sent = composer.take_input().unwrap();
    let [before, paste, between, picture] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((before, between), (&InputSegment::from_text("look: "), &InputSegment::from_text(" and ")));
    assert!(
        matches!(paste, InputSegment::Paste { lines: 40, content: Text::Inline(text), .. } if *text == long)
    );
    assert!(
        matches!(picture, InputSegment::Image { source: ImageSource::Path(path), .. } if path == "/home/ann/a b.PNG")
    );
    assert!(composer.is_empty() && composer.to_draft().chips.is_empty());
    assert_eq!(composer.take_input(), None);
}

#[test]
fn a_chip_goes_as_a_whole_and_a_short_paste_is_text() {
    let mut composer = composer_with("a ");
    composer.paste_text(&"x\n".repeat(30)).unwrap();
    composer.handle_key(KeyPress::from_symbol(KeySymbol::Backspace));
    assert_eq!(composer.text(), "a ");
    composer.paste_text("two\r\nlines\u{1b}[31m\ttab").unwrap();
    assert_eq!(composer.text(), "a two\nlines[31m    tab", "control characters are removed");
    assert_eq!(composer.take_input().unwrap(), [InputSegment::from_text("a two\nlines[31m    tab")]);
    assert!(composer.paste_text(&"x".repeat(MAX_PASTE_BYTES + 1)).is_err());
}

#[test]
fn what_was_typed_comes_back_after_looking_at_earlier_inputs() {
    let mut composer = Composer::new(vec!["first".into(), "second\nline".into()]);
    type_text(&mut composer, "new");
    assert!(composer.recall_older());
    assert_eq!(composer.text(), "second\nline");
    assert!(composer.recall_older() && composer.text() == "second\nline", "a line up first");
    assert!(composer.recall_older());
    assert_eq!(composer.text(), "first");
    assert!(!composer.recall_older());
    assert_eq!(composer.text(), "first");
    assert!(composer.recall_newer() && composer.recall_newer());
    assert_eq!(composer.text(), "new");
    assert!(!composer.recall_newer());
    let sent = composer.take_input().unwrap();
    assert_eq!(sent, [InputSegment::from_text("new")]);
    assert_eq!(composer.newest_input(), Some("new"));
}

#[test]
fn a_line_is_edited_as_in_a_shell() {
    // The text, the keys and the resulting text.
    for (text, keys, after) in [
        ("one two", "ctrl-u", ""),
        ("one two", "ctrl-w", "one "),
        ("one two.three", "alt-backspace", "one two."),
        ("one two", "ctrl-a ctrl-k", ""),
        ("one two", "ctrl-a alt-d", " two"),
        ("one two", "ctrl-w ctrl-a ctrl-y", "twoone "),
        ("one two", "ctrl-left delete", "one wo"),
        ("one two", "home ctrl-right ctrl-d", "onetwo"),
        ("one", "left left ctrl-h", "ne"),
        ("a\nb", "ctrl-u ctrl-h", "a"),
        ("a\nb", "up ctrl-k", "a\nb"),
        ("e\u{301}", "backspace", ""),
        ("a👩‍👩‍👧", "backspace", "a"),
        ("🇩🇪🇫🇷", "left backspace", "🇫🇷"),
    ] {
        let mut composer = composer_with(text);
        keys.split(' ').for_each(|key| composer.handle_key(key.parse().unwrap()));
        assert_eq!(composer.text(), after, "{text}: {keys}");
    }
}

#[test]
fn what_was_done_can_be_undone_word_by_word() {
    let mut composer = composer_with("one two");
    assert!(composer.undo_edit());
    assert_eq!(composer.text(), "one");
    assert!(composer.undo_edit() && !composer.undo_edit());
    assert_eq!(composer.text(), "");
    assert!(composer.redo_edit() && composer.redo_edit() && !composer.redo_edit());
    assert_eq!(composer.text(), "one two");
    composer.paste_text(&"x\n".repeat(30)).unwrap();
    composer.handle_key(KeyPress::from_symbol(KeySymbol::Backspace));
    assert_eq!((composer.text().as_str(), composer.to_draft().chips.len()), ("one two", 0));
    composer.undo_edit();
    assert_eq!(composer.to_draft().chips.len(), 1, "an attachment is restored with its content");
    composer.replace_text("from the editor");
    composer.undo_edit();
    assert_eq!(composer.text(), "one two[paste 1: 30 lines]");
    // Typing after an undo discards the redo history.
    composer.undo_edit();
    type_text(&mut composer, "!");
    assert!(!composer.redo_edit());
}

#[test]
fn a_draft_is_read_back_as_it_was_written() {
    let mut composer = composer_with("a\nb ");
    composer.paste_text(&"x\n".repeat(30)).unwrap();
    let written = serde_json::to_string(&composer.to_draft()).unwrap();
    let mut other = Composer::new(Vec::new());
    other.set_draft(serde_json::from_str(&written).unwrap());
    assert_eq!(other.take_input(), composer.take_input());
}

#[test]
fn an_input_that_comes_back_stands_before_what_is_there() {
    let mut composer = composer_with("mine");
    let paste = InputSegment::Paste { id: 1, chars: 9, lines: 3, content: "a\nb\nc".into() };
    composer.restore_input(vec![
        InputSegment::from_text("back "),
        paste.clone(),
        InputSegment::FileRef { path: "a.rs".into() },
    ]);
    assert_eq!(composer.text(), "back [paste 1: 3 lines]@a.rs\nmine");
    assert_eq!(composer.take_input().unwrap()[1], paste);
}

#[test]
fn the_word_before_the_cursor_may_refer_to_something() {
    let token = |text: &str| {
        composer_with(text).reference_at_cursor().map(|token| (token.sigil, token.rest, token.is_first_word))
    };
    assert_eq!(token("/mod"), Some(('/', "mod".into(), true)));
    assert_eq!(token("see @src/l"), Some(('@', "src/l".into(), false)));
    assert_eq!(token("a\n#rules"), Some(('#', "rules".into(), false)));
    assert_eq!(token("mail@host"), None);
    assert_eq!(token("@done "), None);
    let mut composer = composer_with("see @src/l");
    composer.complete_word("@src/lib.rs ");
    assert_eq!(composer.text(), "see @src/lib.rs ");
}

#[test]
fn rows_are_counted_as_they_are_drawn() {
    assert_eq!(composer_with("").row_count(10), 1);
    assert_eq!(composer_with("123456789").row_count(10), 1);
    assert_eq!(composer_with("1234567890").row_count(10), 2, "the cursor needs a column");
    assert_eq!(composer_with("日本語日本語").row_count(10), 2);
    assert_eq!(composer_with("a\nb\n").row_count(10), 3);
}
