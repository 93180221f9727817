//! The text buffer: a text with a cursor, attachments, the cut text and the undo history.
//!
//! Every change goes through `replace_range`, so that it can be undone.
//! Invariant: the cursor is between two graphemes, and an attachment is complete or removed
//! (`any_keys_keep_the_text_whole`, `undo_all_the_way_gives_back_the_beginning`).

use std::collections::VecDeque;
use std::ops::Range;

use super::attachments::{Attachment, unique_mark};
use super::graphemes::Graphemes;

/// Limit for the text; a longer text belongs in a file.
pub(super) const MAX_TEXT_BYTES: usize = 3 * 1024 * 1024;
/// Limits for undo steps and their bytes.
const MAX_UNDO_STEPS: usize = 500;
const MAX_UNDO_BYTES: usize = 8 * 1024 * 1024;

/// Consecutive changes of one kind form one undo step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditKind {
    Single,
    Typing,
    Erasing,
    /// All changes between two mode changes.
    Insertion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UndoState {
    text: String,
    cursor_byte: usize,
}

/// A cut or copied text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TextRegister {
    pub(super) text: String,
    /// Complete lines.
    pub(super) is_linewise: bool,
    attachments: Vec<Attachment>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct TextBuffer {
    text: String,
    /// In bytes.
    cursor_byte: usize,
    /// The attachments of the text and of the undo history.
    attachments: Vec<Attachment>,
    pub(super) register: TextRegister,
    undo_stack: VecDeque<UndoState>,
    redo_stack: Vec<UndoState>,
    open_step: Option<EditKind>,
    /// The error of the last operation.
    error: Option<String>,
}

impl TextBuffer {
    /// Replaces the text without undo history and moves the cursor to its end.
    pub(super) fn reset_text(&mut self, text: String, attachments: Vec<Attachment>) {
        let register = std::mem::take(&mut self.register);
        *self = TextBuffer { cursor_byte: text.len(), text, attachments, register, ..TextBuffer::default() };
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns a part of the text, or an empty string if the range is invalid.
    pub(super) fn text_range(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    pub(super) fn cursor_byte(&self) -> usize {
        self.cursor_byte
    }

    pub(super) fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Returns the attachments in the text.
    pub(super) fn attachments_in_text(&self) -> Vec<Attachment> {
        self.attachments.iter().filter(|chip| self.text.contains(&chip.mark)).cloned().collect()
    }

    pub(super) fn graphemes(&self) -> Graphemes {
        Graphemes::split_text(&self.text, &self.attachments)
    }

    /// Returns the index of the grapheme at the cursor.
    pub(super) fn grapheme_at_cursor(&self, units: &Graphemes) -> usize {
        units.index_at_byte(self.cursor_byte)
    }

    /// Moves the cursor before a grapheme.
    pub(super) fn move_to(&mut self, units: &Graphemes, at: usize) {
        self.cursor_byte = units.byte_offset(at);
    }

    /// Ends the current undo step.
    pub(super) fn end_edit_step(&mut self) {
        self.open_step = None;
    }

    pub(super) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    /// Replaces a range and moves the cursor behind it. Returns whether the text has changed.
    pub(super) fn replace_range(&mut self, step: EditKind, part: Range<usize>, with: &str) -> bool {
        if self.text_range(part.clone()) == with {
            return false;
        }
        if self.text.len() - part.len().min(self.text.len()) + with.len() > MAX_TEXT_BYTES {
            self.error = Some(format!(
                "a text is limited to {MAX_TEXT_BYTES} bytes: put it into a file and reference it with @"
            ));
            return false;
        }
        let (Some(before), Some(after)) = (self.text.get(..part.start), self.text.get(part.end..)) else {
            return false;
        };
        let changed = [before, with, after].concat();
        let cursor = part.start + with.len();
        let had =
            UndoState { text: std::mem::replace(&mut self.text, changed), cursor_byte: self.cursor_byte };
        self.cursor_byte = cursor;
        self.redo_stack.clear();
        if step == EditKind::Single || self.open_step != Some(step) {
            self.undo_stack.push_back(had);
            self.trim_undo();
        }
        self.open_step = Some(step);
        self.snap_cursor();
        true
    }

    /// Adjacent characters may merge into one grapheme. Moves the cursor out of it.
    fn snap_cursor(&mut self) {
        let units = self.graphemes();
        let at = self.grapheme_at_cursor(&units);
        if units.byte_offset(at) != self.cursor_byte {
            // Behind it, so that the last typed character precedes the cursor.
            self.cursor_byte = units.byte_offset(at + 1);
        }
    }

    /// Drops the oldest undo steps beyond the limits.
    fn trim_undo(&mut self) {
        let mut bytes: usize = self.undo_stack.iter().map(|moment| moment.text.len()).sum();
        while self.undo_stack.len() > MAX_UNDO_STEPS || (bytes > MAX_UNDO_BYTES && self.undo_stack.len() > 1)
        {
            bytes -= self.undo_stack.pop_front().map_or(0, |moment| moment.text.len());
        }
        let (past, future, text) = (&self.undo_stack, &self.redo_stack, &self.text);
        let is_intact = |chip: &Attachment| {
            let mut texts = past.iter().chain(future.iter()).map(|moment| &moment.text).chain([text]);
            texts.any(|text| text.contains(&chip.mark))
        };
        // Drop attachments that no undo step can restore.
        if !self.attachments.is_empty() {
            self.attachments.retain(is_intact);
        }
    }

    pub(super) fn undo_step(&mut self) -> bool {
        let Some(moment) = self.undo_stack.pop_back() else { return false };
        let at_cursor = self.swap_state(moment);
        self.redo_stack.push(at_cursor);
        true
    }

    pub(super) fn redo_step(&mut self) -> bool {
        let Some(moment) = self.redo_stack.pop() else { return false };
        let here = self.swap_state(moment);
        self.undo_stack.push_back(here);
        true
    }

    fn swap_state(&mut self, moment: UndoState) -> UndoState {
        self.open_step = None;
        let cursor_byte = std::mem::replace(&mut self.cursor_byte, moment.cursor_byte);
        let text = std::mem::replace(&mut self.text, moment.text);
        self.snap_cursor();
        UndoState { text, cursor_byte }
    }

    pub(super) fn insert_text(&mut self, step: EditKind, text: &str) -> bool {
        self.replace_range(step, self.cursor_byte..self.cursor_byte, text)
    }

    /// Inserts an attachment at the cursor.
    pub(super) fn insert_attachment(&mut self, step: EditKind, chip: Attachment) {
        let mark = chip.mark.clone();
        self.attachments.push(chip);
        if !self.insert_text(step, &mark) {
            self.attachments.retain(|chip| chip.mark != mark);
        }
    }

    /// Copies a range to the register.
    pub(super) fn copy_range(&mut self, part: Range<usize>, is_linewise: bool) {
        let text = self.text_range(part).to_owned();
        let attachments = self.attachments.iter().filter(|chip| text.contains(&chip.mark)).cloned().collect();
        self.register = TextRegister { text, is_linewise, attachments };
    }

    /// Cuts a range into the register.
    pub(super) fn cut_range(&mut self, step: EditKind, part: Range<usize>) -> bool {
        if part.is_empty() {
            return false;
        }
        self.copy_range(part.clone(), false);
        self.replace_range(step, part, "")
    }

    /// Returns the register with its attachments. Renames an attachment whose label is in use.
    pub(super) fn take_register(&mut self) -> TextRegister {
        let mut register = self.register.clone();
        for chip in register.attachments.drain(..) {
            match self.attachments.iter().find(|at_cursor| at_cursor.mark == chip.mark) {
                Some(here) if here.segment == chip.segment => {}
                Some(_) => {
                    let name = chip.mark.trim_start_matches('[').trim_end_matches(']');
                    let mark = unique_mark(name, &self.attachments);
                    register.text = register.text.replace(&chip.mark, &mark);
                    self.attachments.push(Attachment { mark, segment: chip.segment });
                }
                None => self.attachments.push(chip),
            }
        }
        register
    }
}
