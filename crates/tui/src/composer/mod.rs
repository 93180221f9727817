//! The composer: what is being typed, with chips for what is too long or no text, and what was sent before.
//!
//! Here: a value that takes keys; nothing is sent or saved from here. Its parts: the text with its cursor and the way back
//! (`field`, `units`), keys as in a shell (`shell`) and as in vi (`vi`), chips (`chips`), earlier inputs (`past`), the
//! picture (`picture`). Elsewhere: what keys mean (`keys`), pop-ups (`app::popup`), the files of drafts and history (`keep`).
//! Invariant: what is sent is what is shown, each chip with its whole content in its place
//! (`a_long_paste_is_a_chip_and_is_sent_whole`).

mod chips;
mod field;
mod past;
mod picture;
mod shell;
#[cfg(test)]
mod tests;
mod units;
mod vi;

use std::ops::Range;

use minke_record::{InputSegment, Text};
use serde::{Deserialize, Serialize};

use crate::event::{Code, Key};
use chips::{Pasted, pasted, unique};
use field::{Field, Step};
use past::Past;
use vi::Vi;

pub use chips::Chip;
pub(crate) use past::PAST;
pub(crate) use picture::Placed;
pub(crate) use vi::{Heard, Mode};

/// What is being typed, as it is kept on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    pub text: String,
    #[serde(default)]
    pub chips: Vec<Chip>,
}

/// A word that may refer to something: `@src/li`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) sigil: char,
    pub(crate) rest: String,
    /// It is the first word of the input.
    pub(crate) first: bool,
}

#[derive(Default)]
pub(crate) struct Composer {
    field: Field,
    /// If the person wants it so.
    vi: Option<Vi>,
    pastes: u64,
    past: Past,
    /// The first row that is seen.
    top: usize,
}

impl Composer {
    pub(crate) fn new(past: Vec<String>) -> Composer {
        Composer { past: Past::new(past), ..Composer::default() }
    }

    pub(crate) fn text(&self) -> String {
        self.field.text().to_owned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.field.text().trim().is_empty()
    }

    pub(crate) fn draft(&self) -> Draft {
        Draft { text: self.text(), chips: self.field.standing() }
    }

    pub(crate) fn set(&mut self, draft: Draft) {
        self.show(draft);
        self.past.leave();
        if let Some(vi) = &mut self.vi {
            vi.begin(Mode::Insert);
        }
    }

    /// Another text, in whatever mode it is.
    fn show(&mut self, draft: Draft) {
        self.field.begin(draft.text, draft.chips);
        if let Some(vi) = &mut self.vi {
            vi.begin(vi.mode());
            vi.settle(&mut self.field);
        }
    }

    /// Another text that came of this one: there is a way back.
    pub(crate) fn replace(&mut self, text: &str) {
        self.field.close_step();
        self.field.change(Step::Alone, 0..self.field.text().len(), &chips::harmless(text));
        self.past.leave();
        self.settle();
    }

    /// Keys as in vi, or as in a shell.
    pub(crate) fn set_vi(&mut self, wanted: bool) {
        if wanted != self.vi.is_some() {
            self.vi = wanted.then(Vi::default);
        }
    }

    /// What vi is at, and what was typed of a command.
    pub(crate) fn vi(&self) -> Option<(Mode, &str)> {
        self.vi.as_ref().map(|vi| (vi.mode(), vi.typed()))
    }

    /// Whether letters are text.
    pub(crate) fn is_typing(&self) -> bool {
        self.vi.as_ref().is_none_or(|vi| vi.mode() == Mode::Insert)
    }

    /// Whether vi takes the key.
    pub(crate) fn vi_key(&mut self, key: Key) -> Heard {
        let Some(vi) = &mut self.vi else { return Heard::Not };
        let before = self.field.text().len();
        let heard = vi.key(key, &mut self.field);
        if self.field.text().len() != before {
            self.past.leave();
        }
        heard
    }

    /// What is selected, in bytes.
    fn selected(&self) -> Option<Range<usize>> {
        self.vi.as_ref()?.selected(&self.field)
    }

    /// Why something was not done, once.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        self.field.trouble()
    }

    pub(crate) fn undo(&mut self) -> bool {
        let undone = self.field.undo();
        self.settle();
        undone
    }

    pub(crate) fn redo(&mut self) -> bool {
        let redone = self.field.redo();
        self.settle();
        redone
    }

    fn settle(&mut self) {
        if let Some(vi) = &mut self.vi {
            vi.settle(&mut self.field);
        }
    }

    /// Puts an input back that was taken out of the queue or came back by a rewind. What is there stays, below it.
    pub(crate) fn put_back(&mut self, segments: Vec<InputSegment>) {
        let mut back = Draft::default();
        for segment in segments {
            let mark = match segment {
                InputSegment::Text { content: Text::Here(text) } => {
                    back.text.push_str(&text);
                    continue;
                }
                InputSegment::FileRef { path } => {
                    back.text.push_str(&format!("@{path}"));
                    continue;
                }
                InputSegment::KnowledgeRef { slug } => {
                    back.text.push_str(&format!("#{slug}"));
                    continue;
                }
                InputSegment::WorkflowInvoke { slug: name } | InputSegment::SkillRef { name } => {
                    back.text.push_str(&format!("/{name}"));
                    continue;
                }
                InputSegment::Paste { lines, chars, .. } => self.mark("paste", lines, chars),
                InputSegment::Image { .. } => self.mark("image", 0, 0),
                InputSegment::Text { .. } => self.mark("text", 0, 0),
                InputSegment::Unknown(_) => self.mark("input", 0, 0),
            };
            back.text.push_str(&mark);
            back.chips.push(Chip { mark, segment });
        }
        if !self.is_empty() {
            let here = self.draft();
            back.text = format!("{}\n{}", back.text, here.text);
            back.chips.extend(here.chips);
        }
        self.set(back);
    }

    /// Gives the input away and remembers it; nothing, if there is none.
    pub(crate) fn take(&mut self) -> Option<Vec<InputSegment>> {
        if self.is_empty() {
            return None;
        }
        let segments = self.segments();
        self.past.remember(&self.draft());
        self.clear();
        Some(segments)
    }

    pub(crate) fn clear(&mut self) {
        self.set(Draft::default());
    }

    /// The newest input that was remembered.
    pub(crate) fn newest(&self) -> Option<&str> {
        self.past.newest()
    }

    /// The text with its chips in their places.
    fn segments(&self) -> Vec<InputSegment> {
        let mut rest = self.field.text().trim();
        let mut segments = Vec::new();
        let here = |text: &str| InputSegment::text(text.to_owned());
        loop {
            // The chip that stands first in what is left.
            let next =
                self.field.chips().iter().filter_map(|chip| rest.find(&chip.mark).map(|at| (at, chip)));
            let Some((at, chip)) = next.min_by_key(|(at, _)| *at) else { break };
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                segments.push(here(before));
            }
            segments.push(chip.segment.clone());
            rest = after.strip_prefix(chip.mark.as_str()).unwrap_or(after);
        }
        if !rest.is_empty() || segments.is_empty() {
            segments.push(here(rest));
        }
        segments
    }

    /// A key as in a shell.
    pub(crate) fn key(&mut self, key: Key) {
        // A tab is no text here, and a line is broken on purpose only.
        if matches!(key.code, Code::Tab | Code::Enter) {
            return;
        }
        match &mut self.vi {
            Some(vi) if vi.mode() == Mode::Insert => vi.insert_key(key, &mut self.field),
            Some(vi) => {
                self.field.shell_key(key, None);
                vi.settle(&mut self.field);
            }
            None => self.field.shell_key(key, None),
        }
        self.past.leave();
    }

    pub(crate) fn newline(&mut self) {
        self.insert("\n");
    }

    /// Text where the cursor is, in whatever mode.
    fn insert(&mut self, text: &str) {
        match &mut self.vi {
            Some(vi) if vi.mode() == Mode::Insert => vi.insert(text, &mut self.field),
            _ => {
                self.field.close_step();
                self.field.insert(Step::Alone, text);
            }
        }
        self.past.leave();
        self.settle();
    }

    /// Text that came in one piece: as it is, or as a chip.
    pub(crate) fn paste(&mut self, text: &str) -> Result<(), String> {
        match pasted(text, self.field.chips())? {
            Pasted::Text(text) => self.insert(&text),
            Pasted::Chip { name, segment } => self.chip(unique(&name, self.field.chips()), segment),
            Pasted::Long { lines, chars, text } => {
                let mark = self.mark("paste", lines, chars);
                let content = text.into();
                self.chip(mark, InputSegment::Paste { id: self.pastes, chars, lines, content });
            }
        }
        self.field.trouble().map_or(Ok(()), Err)
    }

    fn chip(&mut self, mark: String, segment: InputSegment) {
        let step = if self.is_typing() && self.vi.is_some() { Step::Insertion } else { Step::Alone };
        self.field.insert_chip(step, Chip { mark, segment });
        self.past.leave();
        self.settle();
    }

    /// A name for a chip that no other one has here.
    fn mark(&mut self, what: &str, lines: u64, chars: u64) -> String {
        self.pastes += 1;
        let size = match (lines, chars) {
            (0, 0) => String::new(),
            (1, chars) => format!(": {chars} characters"),
            (lines, _) => format!(": {lines} lines"),
        };
        unique(&format!("{what} {}{size}", self.pastes), self.field.chips())
    }

    /// The earlier input, if the cursor is at the top. What was typed is kept and comes back.
    pub(crate) fn older(&mut self) -> bool {
        if self.by_line(false) {
            return true;
        }
        let here = self.draft();
        let older = self.past.older(here);
        older.map(|draft| self.show(draft)).is_some()
    }

    /// The later one, and at the end what was typed.
    pub(crate) fn newer(&mut self) -> bool {
        if self.by_line(true) {
            return true;
        }
        let newer = self.past.newer();
        newer.map(|draft| self.show(draft)).is_some()
    }

    /// A line up or down, if there is one.
    fn by_line(&mut self, down: bool) -> bool {
        let units = self.field.units();
        let at = self.field.at(&units);
        let line = if down { units.below(at) } else { units.above(at) };
        let Some(line) = line else { return false };
        self.field.go(&units, units.in_column(line, units.column(at)));
        self.field.close_step();
        self.settle();
        true
    }

    fn before_cursor(&self) -> &str {
        let units = self.field.units();
        let start = units.byte(units.line_start(self.field.at(&units)));
        self.field.part(start..self.field.cursor())
    }

    /// The word before the cursor, if it begins like a reference.
    pub(crate) fn token(&self) -> Option<Token> {
        let before = self.before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut letters = word.chars();
        let sigil = letters.next().filter(|letter| matches!(letter, '@' | '#' | '/'))?;
        let first = before.len() == self.field.cursor() && before.trim_start() == word;
        Some(Token { sigil, rest: letters.collect(), first })
    }

    /// Puts a word in the place of the one before the cursor.
    pub(crate) fn complete(&mut self, with: &str) {
        let word = self.before_cursor().rsplit(char::is_whitespace).next().map_or(0, str::len);
        let end = self.field.cursor();
        let step = if self.vi.is_some() { Step::Insertion } else { Step::Alone };
        self.field.change(step, end - word..end, with);
    }
}
