//! Stories of the composer: keys in, text and segments out.

use minke_record::{ImageSource, InputSegment, Text};

use super::chips::PASTE_MOST;
use super::*;

fn typed(text: &str) -> Composer {
    let mut composer = Composer::new(Vec::new());
    write(&mut composer, text);
    composer
}

fn write(composer: &mut Composer, text: &str) {
    for letter in text.chars() {
        match letter {
            '\n' => composer.newline(),
            letter => composer.key(Key::char(letter)),
        }
    }
}

#[test]
fn a_long_paste_is_a_chip_and_is_sent_whole() {
    let long: String = (0..40).map(|n| format!("line {n}\n")).collect();
    let mut composer = typed("look: ");
    composer.paste(&long).unwrap();
    write(&mut composer, " and ");
    composer.paste("/home/ann/a\\ b.PNG").unwrap();
    assert_eq!(composer.text(), "look: [paste 1: 40 lines] and [image a b.PNG]");
    let sent = composer.take().unwrap();
    let [before, paste, between, picture] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((before, between), (&InputSegment::text("look: "), &InputSegment::text(" and ")));
    assert!(
        matches!(paste, InputSegment::Paste { lines: 40, content: Text::Here(text), .. } if *text == long)
    );
    assert!(
        matches!(picture, InputSegment::Image { source: ImageSource::Path(path), .. } if path == "/home/ann/a b.PNG")
    );
    assert!(composer.is_empty() && composer.draft().chips.is_empty());
    assert_eq!(composer.take(), None);
}

#[test]
fn a_chip_goes_as_a_whole_and_a_short_paste_is_text() {
    let mut composer = typed("a ");
    composer.paste(&"x\n".repeat(30)).unwrap();
    composer.key(Key::plain(Code::Backspace));
    assert_eq!(composer.text(), "a ");
    composer.paste("two\r\nlines\u{1b}[31m\ttab").unwrap();
    assert_eq!(composer.text(), "a two\nlines[31m    tab", "nothing that is not text comes in");
    assert_eq!(composer.take().unwrap(), [InputSegment::text("a two\nlines[31m    tab")]);
    assert!(composer.paste(&"x".repeat(PASTE_MOST + 1)).is_err());
}

#[test]
fn what_was_typed_comes_back_after_looking_at_earlier_inputs() {
    let mut composer = Composer::new(vec!["first".into(), "second\nline".into()]);
    write(&mut composer, "new");
    assert!(composer.older());
    assert_eq!(composer.text(), "second\nline");
    assert!(composer.older() && composer.text() == "second\nline", "a line up first");
    assert!(composer.older());
    assert_eq!(composer.text(), "first");
    assert!(!composer.older());
    assert_eq!(composer.text(), "first");
    assert!(composer.newer() && composer.newer());
    assert_eq!(composer.text(), "new");
    assert!(!composer.newer());
    let sent = composer.take().unwrap();
    assert_eq!(sent, [InputSegment::text("new")]);
    assert_eq!(composer.newest(), Some("new"));
}

#[test]
fn a_line_is_edited_as_in_a_shell() {
    // What is typed, the keys, and what is there then.
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
        let mut composer = typed(text);
        keys.split(' ').for_each(|key| composer.key(key.parse().unwrap()));
        assert_eq!(composer.text(), after, "{text}: {keys}");
    }
}

#[test]
fn what_was_done_can_be_undone_word_by_word() {
    let mut composer = typed("one two");
    assert!(composer.undo());
    assert_eq!(composer.text(), "one");
    assert!(composer.undo() && !composer.undo());
    assert_eq!(composer.text(), "");
    assert!(composer.redo() && composer.redo() && !composer.redo());
    assert_eq!(composer.text(), "one two");
    composer.paste(&"x\n".repeat(30)).unwrap();
    composer.key(Key::plain(Code::Backspace));
    assert_eq!((composer.text().as_str(), composer.draft().chips.len()), ("one two", 0));
    composer.undo();
    assert_eq!(composer.draft().chips.len(), 1, "a chip comes back with what is in it");
    composer.replace("from the editor");
    composer.undo();
    assert_eq!(composer.text(), "one two[paste 1: 30 lines]");
    // What is typed after a step back is the way on.
    composer.undo();
    write(&mut composer, "!");
    assert!(!composer.redo());
}

#[test]
fn a_draft_is_read_back_as_it_was_written() {
    let mut composer = typed("a\nb ");
    composer.paste(&"x\n".repeat(30)).unwrap();
    let written = serde_json::to_string(&composer.draft()).unwrap();
    let mut other = Composer::new(Vec::new());
    other.set(serde_json::from_str(&written).unwrap());
    assert_eq!(other.take(), composer.take());
}

#[test]
fn an_input_that_comes_back_stands_before_what_is_there() {
    let mut composer = typed("mine");
    let paste = InputSegment::Paste { id: 1, chars: 9, lines: 3, content: "a\nb\nc".into() };
    composer.put_back(vec![
        InputSegment::text("back "),
        paste.clone(),
        InputSegment::FileRef { path: "a.rs".into() },
    ]);
    assert_eq!(composer.text(), "back [paste 1: 3 lines]@a.rs\nmine");
    assert_eq!(composer.take().unwrap()[1], paste);
}

#[test]
fn the_word_before_the_cursor_may_refer_to_something() {
    let token = |text: &str| typed(text).token().map(|token| (token.sigil, token.rest, token.first));
    assert_eq!(token("/mod"), Some(('/', "mod".into(), true)));
    assert_eq!(token("see @src/l"), Some(('@', "src/l".into(), false)));
    assert_eq!(token("a\n#rules"), Some(('#', "rules".into(), false)));
    assert_eq!(token("mail@host"), None);
    assert_eq!(token("@done "), None);
    let mut composer = typed("see @src/l");
    composer.complete("@src/lib.rs ");
    assert_eq!(composer.text(), "see @src/lib.rs ");
}

#[test]
fn rows_are_counted_as_they_are_drawn() {
    assert_eq!(typed("").rows(10), 1);
    assert_eq!(typed("123456789").rows(10), 1);
    assert_eq!(typed("1234567890").rows(10), 2, "the cursor needs room");
    assert_eq!(typed("日本語日本語").rows(10), 2);
    assert_eq!(typed("a\nb\n").rows(10), 3);
}
