//! What a terminal tells us, in our own words, so that the library that reads it can be exchanged in this one file.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEvent, MouseEventKind};

/// One thing that happened at the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermEvent {
    Key(Key),
    /// Text that came in one piece, as the terminal says.
    Paste(String),
    /// The wheel, in lines; up is negative.
    Wheel(i32),
    Resize,
    /// The window has the person's attention, or not any more.
    Focus(bool),
}

/// A key with what was held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub code: Code,
    pub ctrl: bool,
    pub alt: bool,
    /// Never set with a letter, which is a capital then.
    pub shift: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    Char(char),
    F(u8),
    Enter,
    Esc,
    Tab,
    Backspace,
    Delete,
    Insert,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
}

/// Lines that one notch of the wheel moves.
const NOTCH: i32 = 3;

impl TermEvent {
    /// What of the library's events means something here.
    pub(crate) fn read(event: Event) -> Option<TermEvent> {
        match event {
            Event::Key(key) => Key::read(key).map(TermEvent::Key),
            Event::Paste(text) => Some(TermEvent::Paste(text)),
            Event::Resize(..) => Some(TermEvent::Resize),
            Event::FocusGained => Some(TermEvent::Focus(true)),
            Event::FocusLost => Some(TermEvent::Focus(false)),
            Event::Mouse(MouseEvent { kind: MouseEventKind::ScrollUp, .. }) => Some(TermEvent::Wheel(-NOTCH)),
            Event::Mouse(MouseEvent { kind: MouseEventKind::ScrollDown, .. }) => {
                Some(TermEvent::Wheel(NOTCH))
            }
            Event::Mouse(_) => None,
        }
    }
}

impl Key {
    pub const fn plain(code: Code) -> Key {
        Key { code, ctrl: false, alt: false, shift: false }
    }

    pub const fn char(letter: char) -> Key {
        Key::plain(Code::Char(letter))
    }

    pub const fn ctrl(letter: char) -> Key {
        Key { ctrl: true, ..Key::char(letter) }
    }

    /// As it is written in a sentence: `Ctrl-C`, `Enter`.
    pub fn spoken(self) -> String {
        let word = self.to_string();
        // A letter alone is the key that it is.
        if word.chars().count() == 1 {
            return word;
        }
        let part = |part: &str| {
            let mut letters = part.chars();
            letters
                .next()
                .map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
        };
        word.split('-').map(part).collect::<Vec<_>>().join("-")
    }

    /// The letter, if that is what would be typed.
    pub fn typed(self) -> Option<char> {
        match self.code {
            Code::Char(letter) if !self.ctrl && !self.alt => Some(letter),
            _ => None,
        }
    }

    fn read(key: KeyEvent) -> Option<Key> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let held = |modifier| key.modifiers.contains(modifier);
        let (ctrl, alt) = (held(KeyModifiers::CONTROL), held(KeyModifiers::ALT));
        let mut shift = held(KeyModifiers::SHIFT);
        let code = match key.code {
            KeyCode::Char(letter) => {
                let shifted = std::mem::take(&mut shift);
                // Terminals tell a capital with Ctrl or without; both mean the same key. The one byte of Ctrl-_ is read as
                // Ctrl-7, and those that tell more tell which key it is on.
                Code::Char(match letter {
                    '7' if ctrl => '_',
                    '-' if ctrl && shifted => '_',
                    _ if ctrl => letter.to_ascii_lowercase(),
                    _ => letter,
                })
            }
            KeyCode::BackTab => {
                shift = true;
                Code::Tab
            }
            KeyCode::F(number) => Code::F(number),
            KeyCode::Enter => Code::Enter,
            KeyCode::Esc => Code::Esc,
            KeyCode::Tab => Code::Tab,
            KeyCode::Backspace => Code::Backspace,
            KeyCode::Delete => Code::Delete,
            KeyCode::Insert => Code::Insert,
            KeyCode::Up => Code::Up,
            KeyCode::Down => Code::Down,
            KeyCode::Left => Code::Left,
            KeyCode::Right => Code::Right,
            KeyCode::Home => Code::Home,
            KeyCode::End => Code::End,
            KeyCode::PageUp => Code::PageUp,
            KeyCode::PageDown => Code::PageDown,
            _ => return None,
        };
        Some(Key { code, ctrl, alt, shift })
    }
}

impl std::fmt::Display for Key {
    /// As `keys.toml` and the bottom line write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = [(self.ctrl, "ctrl-"), (self.alt, "alt-"), (self.shift, "shift-")];
        for (_, word) in held.iter().filter(|(held, _)| *held) {
            f.write_str(word)?;
        }
        match self.code {
            Code::Char(' ') => f.write_str("space"),
            Code::Char('-') => f.write_str("minus"),
            Code::Char(letter) => write!(f, "{letter}"),
            Code::F(number) => write!(f, "f{number}"),
            named => {
                let word = NAMED.iter().find(|(_, code)| *code == named).map_or("?", |(word, _)| *word);
                f.write_str(word)
            }
        }
    }
}

const NAMED: [(&str, Code); 14] = [
    ("enter", Code::Enter),
    ("esc", Code::Esc),
    ("tab", Code::Tab),
    ("backspace", Code::Backspace),
    ("delete", Code::Delete),
    ("insert", Code::Insert),
    ("up", Code::Up),
    ("down", Code::Down),
    ("left", Code::Left),
    ("right", Code::Right),
    ("home", Code::Home),
    ("end", Code::End),
    ("pageup", Code::PageUp),
    ("pagedown", Code::PageDown),
];

impl std::str::FromStr for Key {
    type Err = String;

    /// `ctrl-p`, `alt-enter`, `f1`, `y`.
    fn from_str(word: &str) -> Result<Key, String> {
        let bad =
            || format!("`{word}` is not a key; keys are written like `ctrl-p`, `alt-enter`, `f1` or `y`");
        let mut key = Key::char(' ');
        let mut rest = word.trim();
        while let Some((held, after)) = rest.split_once('-').filter(|(_, after)| !after.is_empty()) {
            match held {
                "ctrl" => key.ctrl = true,
                "alt" => key.alt = true,
                "shift" => key.shift = true,
                _ => return Err(bad()),
            }
            rest = after;
        }
        let named = NAMED.iter().find(|(name, _)| *name == rest).map(|(_, code)| *code);
        let function = rest.strip_prefix('f').and_then(|number| number.parse().ok()).map(Code::F);
        let mut letters = rest.chars();
        let letter = match (rest, letters.next(), letters.next()) {
            ("space", _, _) => Some(Code::Char(' ')),
            ("minus", _, _) => Some(Code::Char('-')),
            (_, Some(letter), None) => Some(Code::Char(letter)),
            _ => None,
        };
        key.code = named.or(function).or(letter).ok_or_else(bad)?;
        if let Code::Char(letter) = key.code {
            if key.ctrl {
                key.code = Code::Char(letter.to_ascii_lowercase());
            } else if key.shift {
                key.code = Code::Char(letter.to_uppercase().next().unwrap_or(letter));
            }
            key.shift = false;
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_it_is_read() {
        for word in ["ctrl-p", "alt-enter", "shift-tab", "f1", "y", "space", "minus", "ctrl-alt-delete", "Y"]
        {
            let key: Key = word.parse().unwrap();
            assert_eq!(key.to_string(), word);
        }
        assert_eq!("ctrl-P".parse::<Key>().unwrap(), Key::ctrl('p'));
        assert_eq!("shift-y".parse::<Key>().unwrap(), Key::char('Y'));
        for word in ["", "meta-x", "ctrl-", "fx", "enterr", "ctrl-alt"] {
            assert!(word.parse::<Key>().is_err(), "{word}");
        }
    }

    #[test]
    fn a_key_that_is_let_go_is_no_key() {
        let mut event = KeyEvent::new(KeyCode::Char('P'), KeyModifiers::CONTROL);
        assert_eq!(TermEvent::read(Event::Key(event)), Some(TermEvent::Key(Key::ctrl('p'))));
        event.kind = KeyEventKind::Release;
        assert_eq!(TermEvent::read(Event::Key(event)), None);
        // Two ways of telling Ctrl-_.
        for (letter, held) in
            [('7', KeyModifiers::CONTROL), ('-', KeyModifiers::CONTROL | KeyModifiers::SHIFT)]
        {
            let event = Event::Key(KeyEvent::new(KeyCode::Char(letter), held));
            assert_eq!(TermEvent::read(event), Some(TermEvent::Key(Key::ctrl('_'))));
        }
        let back = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        let tab = Key { shift: true, ..Key::plain(Code::Tab) };
        assert_eq!(TermEvent::read(Event::Key(back)), Some(TermEvent::Key(tab)));
    }
}
