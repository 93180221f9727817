//! Writes Markdown: words with single spaces between them, lines, paragraphs, and quote marks.

use super::MAX_DEPTH;

/// Writes words with single spaces between them, lines and paragraphs.
#[derive(Default)]
pub(super) struct MarkdownWriter {
    pub(super) text: String,
    /// Line breaks before the next word.
    pending_breaks: usize,
    pending_space: bool,
    pub(super) in_pre: bool,
    pub(super) quote_depth: usize,
}

impl MarkdownWriter {
    pub(super) fn break_line(&mut self) {
        self.pending_breaks = self.pending_breaks.max(1);
    }

    pub(super) fn break_paragraph(&mut self) {
        self.pending_breaks = self.pending_breaks.max(2);
    }

    pub(super) fn push_words(&mut self, text: &str) {
        if self.in_pre {
            self.write_pending();
            self.text.push_str(text);
            return;
        }
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            if !word.is_empty() {
                self.write_pending();
                self.text.push_str(word);
            }
            self.pending_space |= word.len() < piece.len();
        }
    }

    /// Writes markup with its own spaces.
    pub(super) fn push_markup(&mut self, mark: &str) {
        self.write_pending();
        self.text.push_str(mark);
    }

    /// Writes the pending breaks or space.
    pub(super) fn write_pending(&mut self) {
        if self.pending_breaks > 0 && !self.text.is_empty() {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            for _ in 0..self.pending_breaks {
                self.text.push('\n');
            }
        } else if self.pending_space && !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        if (self.pending_breaks > 0 || self.text.is_empty()) && self.quote_depth > 0 {
            self.text.push_str(&"> ".repeat(self.quote_depth.min(MAX_DEPTH)));
        }
        self.pending_breaks = 0;
        self.pending_space = false;
    }

    pub(super) fn finish(mut self) -> String {
        if self.in_pre {
            self.text.push_str("\n```");
        }
        self.text
    }
}
