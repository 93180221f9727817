//! The position in a shell text: peeks at characters and skips blanks.

use super::parse::is_reserved_word;

/// The unread part of a text. `end` is reduced to parse a part of the text (backticks).
pub(super) struct TextCursor<'t> {
    pub(super) text: &'t str,
    pub(super) pos: usize,
    pub(super) end: usize,
}

impl<'t> TextCursor<'t> {
    pub(super) fn new(text: &'t str) -> TextCursor<'t> {
        TextCursor { text, pos: 0, end: text.len() }
    }

    pub(super) fn parse_digits(&mut self, radix: u32, most: usize) -> Option<u32> {
        let mut value = None;
        for _ in 0..most {
            let Some(digit) = self.peek_byte(0).and_then(|b| char::from(b).to_digit(radix)) else { break };
            value = Some(value.unwrap_or(0_u32).wrapping_mul(radix).wrapping_add(digit));
            self.pos += 1;
        }
        value
    }

    pub(in crate::shell) fn peek_char(&self, ahead: usize) -> Option<char> {
        self.text.get(self.pos + ahead..self.end)?.chars().next()
    }

    pub(super) fn peek_byte(&self, ahead: usize) -> Option<u8> {
        let at = self.pos + ahead;
        if at < self.end { self.text.as_bytes().get(at).copied() } else { None }
    }

    pub(super) fn starts_with(&self, with: &str) -> bool {
        self.text.get(self.pos..self.end).is_some_and(|rest| rest.starts_with(with))
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }

    pub(super) fn excerpt(&self) -> String {
        self.text.get(self.pos..self.end).unwrap_or_default().chars().take(16).collect()
    }

    /// Skips blanks, continued lines and comments.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek_byte(0) {
                Some(b' ' | b'\t') => self.pos += 1,
                Some(b'\\') if self.peek_byte(1) == Some(b'\n') => self.pos += 2,
                Some(b'#') => {
                    while self.peek_byte(0).is_some_and(|b| b != b'\n') {
                        self.pos += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Returns the reserved word at the current position, if it is unquoted and complete.
    pub(super) fn reserved_word(&self) -> Option<&str> {
        let rest = self.text.get(self.pos..self.end)?;
        let word = rest.split([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')']).next()?;
        is_reserved_word(word).then_some(word)
    }

    pub(super) fn at_reserved_word(&self, word: &str) -> bool {
        self.reserved_word() == Some(word)
    }
}
