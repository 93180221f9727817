//! The composer: the current input with attachments, and the input history.
//!
//! A value that handles keys; it neither sends nor saves. Parts: the text with cursor and undo
//! (`text_buffer`, `graphemes`), shell keys (`shell_keys`), vi keys (`vi`), attachments (`attachments`),
//! earlier inputs (`history`), drawing (`layout`). Elsewhere: key bindings (`keys`), completions
//! (`app::popup`), files of drafts and history (`storage`).
//! Invariant: the sent input is the displayed text with the full content of each attachment in its place
//! (`a_long_paste_is_a_chip_and_is_sent_whole`).

mod attachments;
mod graphemes;
mod history;
mod layout;
mod shell_keys;
#[cfg(test)]
mod tests;
mod text_buffer;
mod vi;

use std::ops::Range;

use minke_record::{InputSegment, Text};
use serde::{Deserialize, Serialize};

use crate::event::{KeyPress, KeySymbol};
use attachments::{PasteContent, classify_paste, unique_mark};
use history::InputHistory;
use text_buffer::{EditKind, TextBuffer};
use vi::ViState;

pub use attachments::Attachment;
pub(crate) use history::MAX_INPUTS;
pub(crate) use layout::ComposerStyle;
pub(crate) use vi::{KeyResult, ViMode};

/// The current input as it is stored on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComposerDraft {
    pub text: String,
    #[serde(default)]
    pub chips: Vec<Attachment>,
}

/// A word that may be a reference: `@src/li`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReferenceToken {
    pub(crate) sigil: char,
    pub(crate) rest: String,
    /// The first word of the input.
    pub(crate) is_first_word: bool,
}

#[derive(Default)]
pub(crate) struct Composer {
    buffer: TextBuffer,
    /// Set if vi keys are enabled.
    vi: Option<ViState>,
    paste_count: u64,
    history: InputHistory,
    /// The first visible row.
    top_row: usize,
}

impl Composer {
    pub(crate) fn new(past: Vec<String>) -> Composer {
        Composer { history: InputHistory::new(past), ..Composer::default() }
    }

    pub(crate) fn text(&self) -> String {
        self.buffer.text().to_owned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.text().trim().is_empty()
    }

    pub(crate) fn to_draft(&self) -> ComposerDraft {
        ComposerDraft { text: self.text(), chips: self.buffer.attachments_in_text() }
    }

    pub(crate) fn set_draft(&mut self, draft: ComposerDraft) {
        self.show_draft(draft);
        self.history.stop_recall();
        if let Some(vi) = &mut self.vi {
            vi.reset_mode(ViMode::Insert);
        }
    }

    /// Shows another draft in any mode.
    fn show_draft(&mut self, draft: ComposerDraft) {
        self.buffer.reset_text(draft.text, draft.chips);
        if let Some(vi) = &mut self.vi {
            vi.reset_mode(vi.mode());
            vi.settle_cursor(&mut self.buffer);
        }
    }

    /// Replaces the text with undo.
    pub(crate) fn replace_text(&mut self, text: &str) {
        self.buffer.end_edit_step();
        self.buffer.replace_range(
            EditKind::Single,
            0..self.buffer.text().len(),
            &attachments::strip_controls(text),
        );
        self.history.stop_recall();
        self.settle_cursor();
    }

    /// Enables vi keys or shell keys.
    pub(crate) fn set_vi(&mut self, target: bool) {
        if target != self.vi.is_some() {
            self.vi = target.then(ViState::default);
        }
    }

    /// Returns the vi mode and the pending keys of a command.
    pub(crate) fn vi_state(&self) -> Option<(ViMode, &str)> {
        self.vi.as_ref().map(|vi| (vi.mode(), vi.pending_keys()))
    }

    /// Returns whether letters are inserted as text.
    pub(crate) fn is_typing(&self) -> bool {
        self.vi.as_ref().is_none_or(|vi| vi.mode() == ViMode::Insert)
    }

    /// Handles a key in vi mode.
    pub(crate) fn handle_vi_key(&mut self, key: KeyPress) -> KeyResult {
        let Some(vi) = &mut self.vi else { return KeyResult::Unhandled };
        let before = self.buffer.text().len();
        let heard = vi.handle_key(key, &mut self.buffer);
        if self.buffer.text().len() != before {
            self.history.stop_recall();
        }
        heard
    }

    /// Returns the selected bytes.
    fn selected_range(&self) -> Option<Range<usize>> {
        self.vi.as_ref()?.selected_range(&self.buffer)
    }

    /// Takes the error of the last operation.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        self.buffer.take_error()
    }

    pub(crate) fn undo_edit(&mut self) -> bool {
        let undone = self.buffer.undo_step();
        self.settle_cursor();
        undone
    }

    pub(crate) fn redo_edit(&mut self) -> bool {
        let redone = self.buffer.redo_step();
        self.settle_cursor();
        redone
    }

    fn settle_cursor(&mut self) {
        if let Some(vi) = &mut self.vi {
            vi.settle_cursor(&mut self.buffer);
        }
    }

    /// Restores an input from the queue or a rewind. The current text remains below it.
    pub(crate) fn restore_input(&mut self, segments: Vec<InputSegment>) {
        let mut back = ComposerDraft::default();
        for segment in segments {
            let mark = match segment {
                InputSegment::Text { content: Text::Inline(text) } => {
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
                InputSegment::Paste { lines, chars, .. } => self.paste_mark("paste", lines, chars),
                InputSegment::Image { .. } => self.paste_mark("image", 0, 0),
                InputSegment::Text { .. } => self.paste_mark("text", 0, 0),
                InputSegment::Unknown(_) => self.paste_mark("input", 0, 0),
            };
            back.text.push_str(&mark);
            back.chips.push(Attachment { mark, segment });
        }
        if !self.is_empty() {
            let here = self.to_draft();
            back.text = format!("{}\n{}", back.text, here.text);
            back.chips.extend(here.chips);
        }
        self.set_draft(back);
    }

    /// Takes the input and adds it to the history. Returns `None` if it is empty.
    pub(crate) fn take_input(&mut self) -> Option<Vec<InputSegment>> {
        if self.is_empty() {
            return None;
        }
        let segments = self.input_segments();
        self.history.add_input(&self.to_draft());
        self.clear_text();
        Some(segments)
    }

    pub(crate) fn clear_text(&mut self) {
        self.set_draft(ComposerDraft::default());
    }

    /// Returns the newest input of the history.
    pub(crate) fn newest_input(&self) -> Option<&str> {
        self.history.newest_input()
    }

    /// Returns the text with its attachments as segments.
    fn input_segments(&self) -> Vec<InputSegment> {
        let mut rest = self.buffer.text().trim();
        let mut segments = Vec::new();
        let here = |text: &str| InputSegment::from_text(text.to_owned());
        loop {
            // The first attachment in the remaining text.
            let next = self
                .buffer
                .attachments()
                .iter()
                .filter_map(|chip| rest.find(&chip.mark).map(|at| (at, chip)));
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

    /// Handles a key as in a shell.
    pub(crate) fn handle_key(&mut self, key: KeyPress) {
        // A tab is not text here, and only an action inserts a newline.
        if matches!(key.symbol, KeySymbol::Tab | KeySymbol::Enter) {
            return;
        }
        match &mut self.vi {
            Some(vi) if vi.mode() == ViMode::Insert => vi.handle_insert_key(key, &mut self.buffer),
            Some(vi) => {
                self.buffer.handle_shell_key(key, None);
                vi.settle_cursor(&mut self.buffer);
            }
            None => self.buffer.handle_shell_key(key, None),
        }
        self.history.stop_recall();
    }

    pub(crate) fn insert_newline(&mut self) {
        self.insert_text("\n");
    }

    /// Inserts text at the cursor in any mode.
    fn insert_text(&mut self, text: &str) {
        match &mut self.vi {
            Some(vi) if vi.mode() == ViMode::Insert => vi.insert_text(text, &mut self.buffer),
            _ => {
                self.buffer.end_edit_step();
                self.buffer.insert_text(EditKind::Single, text);
            }
        }
        self.history.stop_recall();
        self.settle_cursor();
    }

    /// Inserts pasted text or attaches it.
    pub(crate) fn paste_text(&mut self, text: &str) -> Result<(), String> {
        match classify_paste(text, self.buffer.attachments())? {
            PasteContent::Text(text) => self.insert_text(&text),
            PasteContent::Attachment { name, segment } => {
                self.insert_attachment(unique_mark(&name, self.buffer.attachments()), segment)
            }
            PasteContent::LongText { lines, chars, text } => {
                let mark = self.paste_mark("paste", lines, chars);
                let content = text.into();
                self.insert_attachment(
                    mark,
                    InputSegment::Paste { id: self.paste_count, chars, lines, content },
                );
            }
        }
        self.buffer.take_error().map_or(Ok(()), Err)
    }

    fn insert_attachment(&mut self, mark: String, segment: InputSegment) {
        let step = if self.is_typing() && self.vi.is_some() { EditKind::Insertion } else { EditKind::Single };
        self.buffer.insert_attachment(step, Attachment { mark, segment });
        self.history.stop_recall();
        self.settle_cursor();
    }

    /// Returns a unique label for an attachment.
    fn paste_mark(&mut self, what: &str, lines: u64, chars: u64) -> String {
        self.paste_count += 1;
        let size = match (lines, chars) {
            (0, 0) => String::new(),
            (1, chars) => format!(": {chars} characters"),
            (lines, _) => format!(": {lines} lines"),
        };
        unique_mark(&format!("{what} {}{size}", self.paste_count), self.buffer.attachments())
    }

    /// Recalls the previous input if the cursor is in the first line. Saves the current draft.
    pub(crate) fn recall_older(&mut self) -> bool {
        if self.move_line(false) {
            return true;
        }
        let here = self.to_draft();
        let older = self.history.recall_older(here);
        older.map(|draft| self.show_draft(draft)).is_some()
    }

    /// Recalls the next input, and finally the saved draft.
    pub(crate) fn recall_newer(&mut self) -> bool {
        if self.move_line(true) {
            return true;
        }
        let newer = self.history.recall_newer();
        newer.map(|draft| self.show_draft(draft)).is_some()
    }

    /// Moves the cursor up or down by a line, if there is one.
    fn move_line(&mut self, down: bool) -> bool {
        let units = self.buffer.graphemes();
        let at = self.buffer.grapheme_at_cursor(&units);
        let line = if down { units.line_below(at) } else { units.line_above(at) };
        let Some(line) = line else { return false };
        self.buffer.move_to(&units, units.index_in_column(line, units.column_of(at)));
        self.buffer.end_edit_step();
        self.settle_cursor();
        true
    }

    fn text_before_cursor(&self) -> &str {
        let units = self.buffer.graphemes();
        let start = units.byte_offset(units.line_start(self.buffer.grapheme_at_cursor(&units)));
        self.buffer.text_range(start..self.buffer.cursor_byte())
    }

    /// Returns the word before the cursor if it looks like a reference.
    pub(crate) fn reference_at_cursor(&self) -> Option<ReferenceToken> {
        let before = self.text_before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut letters = word.chars();
        let sigil = letters.next().filter(|letter| matches!(letter, '@' | '#' | '/'))?;
        let is_first_word = before.len() == self.buffer.cursor_byte() && before.trim_start() == word;
        Some(ReferenceToken { sigil, rest: letters.collect(), is_first_word })
    }

    /// Replaces the word before the cursor.
    pub(crate) fn complete_word(&mut self, with: &str) {
        let word = self.text_before_cursor().rsplit(char::is_whitespace).next().map_or(0, str::len);
        let end = self.buffer.cursor_byte();
        let step = if self.vi.is_some() { EditKind::Insertion } else { EditKind::Single };
        self.buffer.replace_range(step, end - word..end, with);
    }
}
