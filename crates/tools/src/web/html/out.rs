//! Text that is being written: words with single spaces between them, lines, paragraphs, and the marks of quotes.

use super::DEPTH;

/// Text that is being written: words with single spaces between them, lines, paragraphs.
#[derive(Default)]
pub(super) struct Out {
    pub(super) text: String,
    /// Line breaks that come before the next word.
    breaks: usize,
    space: bool,
    pub(super) pre: bool,
    pub(super) quote: usize,
}

impl Out {
    pub(super) fn line(&mut self) {
        self.breaks = self.breaks.max(1);
    }

    pub(super) fn paragraph(&mut self) {
        self.breaks = self.breaks.max(2);
    }

    pub(super) fn words(&mut self, text: &str) {
        if self.pre {
            self.begin();
            self.text.push_str(text);
            return;
        }
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            if !word.is_empty() {
                self.begin();
                self.text.push_str(word);
            }
            self.space |= word.len() < piece.len();
        }
    }

    /// Something of ours, with its own spaces.
    pub(super) fn mark(&mut self, mark: &str) {
        self.begin();
        self.text.push_str(mark);
    }

    /// Writes the breaks or the space that wait.
    pub(super) fn begin(&mut self) {
        if self.breaks > 0 && !self.text.is_empty() {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            for _ in 0..self.breaks {
                self.text.push('\n');
            }
        } else if self.space && !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        if (self.breaks > 0 || self.text.is_empty()) && self.quote > 0 {
            self.text.push_str(&"> ".repeat(self.quote.min(DEPTH)));
        }
        self.breaks = 0;
        self.space = false;
    }

    pub(super) fn finish(mut self) -> String {
        if self.pre {
            self.text.push_str("\n```");
        }
        self.text
    }
}
