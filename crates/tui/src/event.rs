//! Terminal events as own types, so that only this file depends on the library that reads them.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEvent, MouseEventKind};

/// A terminal event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    KeyPress(KeyPress),
    /// Text of a bracketed paste.
    Paste(String),
    /// Wheel movement in lines; negative is up.
    Wheel(i32),
    Resize,
    /// The window has gained or lost the focus.
    Focus(bool),
}

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPress {
    pub symbol: KeySymbol,
    pub ctrl: bool,
    pub alt: bool,
    /// Never set for a letter, which is a capital then.
    pub shift: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySymbol {
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

/// Lines per notch of the wheel.
const WHEEL_LINES: i32 = 3;

impl TerminalEvent {
    /// Converts an event of the library. Returns `None` for irrelevant events.
    pub(crate) fn from_crossterm(event: Event) -> Option<TerminalEvent> {
        match event {
            Event::Key(key) => KeyPress::from_key_event(key).map(TerminalEvent::KeyPress),
            Event::Paste(text) => Some(TerminalEvent::Paste(text)),
            Event::Resize(..) => Some(TerminalEvent::Resize),
            Event::FocusGained => Some(TerminalEvent::Focus(true)),
            Event::FocusLost => Some(TerminalEvent::Focus(false)),
            Event::Mouse(MouseEvent { kind: MouseEventKind::ScrollUp, .. }) => {
                Some(TerminalEvent::Wheel(-WHEEL_LINES))
            }
            Event::Mouse(MouseEvent { kind: MouseEventKind::ScrollDown, .. }) => {
                Some(TerminalEvent::Wheel(WHEEL_LINES))
            }
            Event::Mouse(_) => None,
        }
    }
}

impl KeyPress {
    pub const fn from_symbol(symbol: KeySymbol) -> KeyPress {
        KeyPress { symbol, ctrl: false, alt: false, shift: false }
    }

    pub const fn from_letter(letter: char) -> KeyPress {
        KeyPress::from_symbol(KeySymbol::Char(letter))
    }

    pub const fn with_ctrl(letter: char) -> KeyPress {
        KeyPress { ctrl: true, ..KeyPress::from_letter(letter) }
    }

    /// Returns the key as written in sentences: `Ctrl-C`, `Enter`.
    pub fn display_name(self) -> String {
        let symbol_name = self.to_string();
        // A single letter is shown as it is.
        if symbol_name.chars().count() == 1 {
            return symbol_name;
        }
        let part = |part: &str| {
            let mut letters = part.chars();
            letters
                .next()
                .map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
        };
        symbol_name.split('-').map(part).collect::<Vec<_>>().join("-")
    }

    /// Returns the letter that the key types.
    pub fn typed_letter(self) -> Option<char> {
        match self.symbol {
            KeySymbol::Char(letter) if !self.ctrl && !self.alt => Some(letter),
            _ => None,
        }
    }

    fn from_key_event(key: KeyEvent) -> Option<KeyPress> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let modifiers = |modifier| key.modifiers.contains(modifier);
        let (ctrl, alt) = (modifiers(KeyModifiers::CONTROL), modifiers(KeyModifiers::ALT));
        let mut shift = modifiers(KeyModifiers::SHIFT);
        let symbol = match key.code {
            KeyCode::Char(letter) => {
                let shifted = std::mem::take(&mut shift);
                // Terminals report a capital with Ctrl or without; both mean the same key. The byte of Ctrl-_
                // is reported as Ctrl-7, and terminals with extended keys report the physical key.
                KeySymbol::Char(match letter {
                    '7' if ctrl => '_',
                    '-' if ctrl && shifted => '_',
                    _ if ctrl => letter.to_ascii_lowercase(),
                    _ => letter,
                })
            }
            KeyCode::BackTab => {
                shift = true;
                KeySymbol::Tab
            }
            KeyCode::F(number) => KeySymbol::F(number),
            KeyCode::Enter => KeySymbol::Enter,
            KeyCode::Esc => KeySymbol::Esc,
            KeyCode::Tab => KeySymbol::Tab,
            KeyCode::Backspace => KeySymbol::Backspace,
            KeyCode::Delete => KeySymbol::Delete,
            KeyCode::Insert => KeySymbol::Insert,
            KeyCode::Up => KeySymbol::Up,
            KeyCode::Down => KeySymbol::Down,
            KeyCode::Left => KeySymbol::Left,
            KeyCode::Right => KeySymbol::Right,
            KeyCode::Home => KeySymbol::Home,
            KeyCode::End => KeySymbol::End,
            KeyCode::PageUp => KeySymbol::PageUp,
            KeyCode::PageDown => KeySymbol::PageDown,
            _ => return None,
        };
        Some(KeyPress { symbol, ctrl, alt, shift })
    }
}

impl std::fmt::Display for KeyPress {
    /// Formats the key as in `keys.toml` and in the footer.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modifiers = [(self.ctrl, "ctrl-"), (self.alt, "alt-"), (self.shift, "shift-")];
        for (_, symbol_name) in modifiers.iter().filter(|(held, _)| *held) {
            f.write_str(symbol_name)?;
        }
        match self.symbol {
            KeySymbol::Char(' ') => f.write_str("space"),
            KeySymbol::Char('-') => f.write_str("minus"),
            KeySymbol::Char(letter) => write!(f, "{letter}"),
            KeySymbol::F(number) => write!(f, "f{number}"),
            named => {
                let symbol_name =
                    NAMED_KEYS.iter().find(|(_, code)| *code == named).map_or("?", |(word, _)| *word);
                f.write_str(symbol_name)
            }
        }
    }
}

const NAMED_KEYS: [(&str, KeySymbol); 14] = [
    ("enter", KeySymbol::Enter),
    ("esc", KeySymbol::Esc),
    ("tab", KeySymbol::Tab),
    ("backspace", KeySymbol::Backspace),
    ("delete", KeySymbol::Delete),
    ("insert", KeySymbol::Insert),
    ("up", KeySymbol::Up),
    ("down", KeySymbol::Down),
    ("left", KeySymbol::Left),
    ("right", KeySymbol::Right),
    ("home", KeySymbol::Home),
    ("end", KeySymbol::End),
    ("pageup", KeySymbol::PageUp),
    ("pagedown", KeySymbol::PageDown),
];

impl std::str::FromStr for KeyPress {
    type Err = String;

    /// Parses `ctrl-p`, `alt-enter`, `f1`, `y`.
    fn from_str(symbol_name: &str) -> Result<KeyPress, String> {
        let bad = || {
            format!("`{symbol_name}` is not a key; keys are written like `ctrl-p`, `alt-enter`, `f1` or `y`")
        };
        let mut key = KeyPress::from_letter(' ');
        let mut rest = symbol_name.trim();
        while let Some((modifiers, after)) = rest.split_once('-').filter(|(_, after)| !after.is_empty()) {
            match modifiers {
                "ctrl" => key.ctrl = true,
                "alt" => key.alt = true,
                "shift" => key.shift = true,
                _ => return Err(bad()),
            }
            rest = after;
        }
        let named = NAMED_KEYS.iter().find(|(name, _)| *name == rest).map(|(_, code)| *code);
        let function = rest.strip_prefix('f').and_then(|number| number.parse().ok()).map(KeySymbol::F);
        let mut letters = rest.chars();
        let letter = match (rest, letters.next(), letters.next()) {
            ("space", _, _) => Some(KeySymbol::Char(' ')),
            ("minus", _, _) => Some(KeySymbol::Char('-')),
            (_, Some(letter), None) => Some(KeySymbol::Char(letter)),
            _ => None,
        };
        key.symbol = named.or(function).or(letter).ok_or_else(bad)?;
        if let KeySymbol::Char(letter) = key.symbol {
            if key.ctrl {
                key.symbol = KeySymbol::Char(letter.to_ascii_lowercase());
            } else if key.shift {
                key.symbol = KeySymbol::Char(letter.to_uppercase().next().unwrap_or(letter));
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
        for symbol_name in
            ["ctrl-p", "alt-enter", "shift-tab", "f1", "y", "space", "minus", "ctrl-alt-delete", "Y"]
        {
            let key: KeyPress = symbol_name.parse().unwrap();
            assert_eq!(key.to_string(), symbol_name);
        }
        assert_eq!("ctrl-P".parse::<KeyPress>().unwrap(), KeyPress::with_ctrl('p'));
        assert_eq!("shift-y".parse::<KeyPress>().unwrap(), KeyPress::from_letter('Y'));
        for word in ["", "meta-x", "ctrl-", "fx", "enterr", "ctrl-alt"] {
            assert!(word.parse::<KeyPress>().is_err(), "{word}");
        }
    }

    #[test]
    fn a_key_that_is_let_go_is_no_key() {
        let mut event = KeyEvent::new(KeyCode::Char('P'), KeyModifiers::CONTROL);
        assert_eq!(
            TerminalEvent::from_crossterm(Event::Key(event)),
            Some(TerminalEvent::KeyPress(KeyPress::with_ctrl('p')))
        );
        event.kind = KeyEventKind::Release;
        assert_eq!(TerminalEvent::from_crossterm(Event::Key(event)), None);
        // Two encodings of Ctrl-_.
        for (letter, modifiers) in
            [('7', KeyModifiers::CONTROL), ('-', KeyModifiers::CONTROL | KeyModifiers::SHIFT)]
        {
            let event = Event::Key(KeyEvent::new(KeyCode::Char(letter), modifiers));
            assert_eq!(
                TerminalEvent::from_crossterm(event),
                Some(TerminalEvent::KeyPress(KeyPress::with_ctrl('_')))
            );
        }
        let back = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        let tab = KeyPress { shift: true, ..KeyPress::from_symbol(KeySymbol::Tab) };
        assert_eq!(TerminalEvent::from_crossterm(Event::Key(back)), Some(TerminalEvent::KeyPress(tab)));
    }
}
