//! Vi keys in the composer: modes, commands and `.`.
//!
//! Here: the mode, pending keys and the last change. Parts: parsing commands (`parse`), motions (`motions`),
//! text objects (`text_objects`), execution (`commands`, `operators`). Elsewhere: Enter, pause and all other
//! keys that are not text (`app`).

mod commands;
mod motions;
mod operators;
mod parse;
#[cfg(test)]
mod tests;
mod text_objects;

use std::ops::Range;

use commands::ViOutcome;
use motions::CharFind;
use parse::{CommandParse, InsertPosition, REDO_KEY, ViAction, ViCommand, parse_keys, strip_count};

use super::text_buffer::{EditKind, TextBuffer};
use crate::event::{KeyPress, KeySymbol};

/// Limits for the recorded keys of an insertion, for `.`.
const MAX_STROKES: usize = 1_000;
const MAX_STROKE_BYTES: usize = 64 * 1024;
/// Limit for repeating an insertion with other keys than text.
const MAX_REPEATS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ViMode {
    #[default]
    Insert,
    Normal,
    Visual,
    VisualLines,
}

impl ViMode {
    pub(crate) fn mode_label(self) -> &'static str {
        match self {
            ViMode::Insert => "INSERT",
            ViMode::Normal => "NORMAL",
            ViMode::Visual => "VISUAL",
            ViMode::VisualLines => "V-LINE",
        }
    }

    fn is_selecting(self) -> bool {
        matches!(self, ViMode::Visual | ViMode::VisualLines)
    }
}

/// The outcome of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyResult {
    /// The key has its meaning outside of vi.
    Unhandled,
    Handled,
    /// Up in the first line, down in the last one.
    Older,
    Newer,
}

/// A recorded action of an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InsertStroke {
    Text(String),
    Key(KeyPress),
}

/// A change that `.` repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RepeatableChange {
    /// The typed keys without the count.
    typed: String,
    count: Option<usize>,
    /// The extent of the selection.
    selected_range: Option<SelectionExtent>,
    strokes: Vec<InsertStroke>,
}

/// The extent of a selection from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SelectionExtent {
    lines: bool,
    lines_below: usize,
    /// In the last line.
    units: usize,
}

/// An insertion in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InsertSession {
    change: RepeatableChange,
    times: usize,
    /// Each repetition begins on its own line.
    on_own_line: bool,
    /// The insertion is too long to repeat.
    is_too_long: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ViState {
    mode: ViMode,
    typed: String,
    last_find: Option<CharFind>,
    /// The target column of vertical motions.
    column: Option<usize>,
    /// The other end of the selection, in bytes.
    anchor: usize,
    last_change: Option<RepeatableChange>,
    insertion: Option<InsertSession>,
    repeating: bool,
}

impl ViState {
    pub(super) fn mode(&self) -> ViMode {
        self.mode
    }

    /// Returns the keys of an incomplete command.
    pub(super) fn pending_keys(&self) -> &str {
        &self.typed
    }

    /// Resets the mode for another text.
    pub(super) fn reset_mode(&mut self, mode: ViMode) {
        self.mode = mode;
        self.typed.clear();
        self.column = None;
        self.insertion = None;
    }

    /// Returns the selected bytes.
    pub(super) fn selected_range(&self, field: &TextBuffer) -> Option<Range<usize>> {
        if !self.mode.is_selecting() {
            return None;
        }
        let units = field.graphemes();
        let part = self.selected_edit_range(field, &units).units;
        Some(units.byte_offset(part.start)..units.byte_offset(part.end))
    }

    pub(super) fn handle_key(&mut self, key: KeyPress, field: &mut TextBuffer) -> KeyResult {
        let bare = !key.ctrl && !key.alt && !key.shift;
        if bare && key.symbol == KeySymbol::Esc {
            return self.handle_escape(field);
        }
        if self.mode == ViMode::Insert {
            return KeyResult::Unhandled;
        }
        let letter = match (key.typed_letter(), key.symbol) {
            (Some(letter), _) => letter,
            (None, KeySymbol::Char('r')) if key.ctrl && !self.mode.is_selecting() => REDO_KEY,
            (None, code) if bare => match arrow_letter(code) {
                Some(letter) => letter,
                None => return self.cancel_command(),
            },
            (None, _) => return self.cancel_command(),
        };
        if key.typed_letter().is_none() && letter != REDO_KEY && !self.typed.is_empty() {
            self.typed.clear();
            return KeyResult::Handled;
        }
        self.typed.push(letter);
        match parse_keys(&self.typed, self.mode.is_selecting()) {
            CommandParse::Incomplete => KeyResult::Handled,
            CommandParse::Invalid => {
                self.typed.clear();
                KeyResult::Handled
            }
            CommandParse::Complete(command) => {
                let typed = std::mem::take(&mut self.typed);
                self.run_command(command, strip_count(&typed), field)
            }
        }
    }

    /// Discards an incomplete command after a key with another meaning.
    fn cancel_command(&mut self) -> KeyResult {
        self.typed.clear();
        KeyResult::Unhandled
    }

    fn handle_escape(&mut self, field: &mut TextBuffer) -> KeyResult {
        match self.mode {
            ViMode::Insert => self.finish_insertion(field),
            ViMode::Normal if self.typed.is_empty() => return KeyResult::Unhandled,
            ViMode::Normal => self.typed.clear(),
            ViMode::Visual | ViMode::VisualLines => {
                self.typed.clear();
                self.mode = ViMode::Normal;
                self.settle_cursor(field);
            }
        }
        KeyResult::Handled
    }

    fn run_command(&mut self, command: ViCommand, typed: &str, field: &mut TextBuffer) -> KeyResult {
        if command.action == ViAction::Repeat {
            self.repeat_change(command.parse_count, field);
            self.settle_cursor(field);
            return KeyResult::Handled;
        }
        let selected_range = self.mode.is_selecting().then(|| self.selection_extent(field));
        let outcome = self.apply_command(command, field);
        if outcome == ViOutcome::Done && is_change(command.action) {
            let (count, typed) = (command.parse_count, typed.to_owned());
            self.record_change(
                RepeatableChange { typed, count, selected_range, strokes: Vec::new() },
                command.action,
            );
        }
        self.settle_cursor(field);
        match outcome {
            ViOutcome::Done | ViOutcome::Failed => KeyResult::Handled,
            ViOutcome::Older => KeyResult::Older,
            ViOutcome::Newer => KeyResult::Newer,
        }
    }

    fn record_change(&mut self, change: RepeatableChange, what: ViAction) {
        if self.mode != ViMode::Insert {
            self.last_change = Some(change);
            return;
        }
        let (times, on_own_line) = match what {
            ViAction::Insert(entry) => {
                (change.count.unwrap_or(1), matches!(entry, InsertPosition::Below | InsertPosition::Above))
            }
            _ => (1, false),
        };
        self.insertion = Some(InsertSession { change, times, on_own_line, is_too_long: false });
    }

    /// Repeats the last change, with another count if one was typed.
    fn repeat_change(&mut self, count: Option<usize>, field: &mut TextBuffer) {
        let Some(mut change) = self.last_change.take() else { return };
        change.count = count.or(change.count);
        let number = change.count.map(|count| count.to_string()).unwrap_or_default();
        self.repeating = true;
        if let Some(extent) = change.selected_range {
            self.restore_selection(extent, field);
        }
        if let CommandParse::Complete(command) =
            parse_keys(&format!("{number}{}", change.typed), change.selected_range.is_some())
        {
            self.apply_command(command, field);
            if self.mode == ViMode::Insert {
                let again = RepeatableChange { strokes: Vec::new(), ..change.clone() };
                self.record_change(again, command.action);
                for stroke in &change.strokes {
                    self.record_stroke(stroke.clone(), field);
                }
                self.finish_insertion(field);
            }
        }
        self.repeating = false;
        self.last_change = Some(change);
    }

    /// Records inserted text.
    pub(super) fn insert_text(&mut self, text: &str, field: &mut TextBuffer) {
        self.record_stroke(InsertStroke::Text(text.to_owned()), field);
    }

    /// Handles a non-text key during an insertion.
    pub(super) fn handle_insert_key(&mut self, key: KeyPress, field: &mut TextBuffer) {
        match key.typed_letter() {
            Some(letter) => self.insert_text(letter.encode_utf8(&mut [0; 4]), field),
            None => self.record_stroke(InsertStroke::Key(key), field),
        }
    }

    fn record_stroke(&mut self, stroke: InsertStroke, field: &mut TextBuffer) {
        stroke.apply_stroke(field);
        let Some(insertion) = &mut self.insertion else { return };
        let strokes = &mut insertion.change.strokes;
        match (strokes.last_mut(), stroke) {
            (Some(InsertStroke::Text(text)), InsertStroke::Text(more)) => text.push_str(&more),
            (_, stroke) => strokes.push(stroke),
        }
        let long = matches!(strokes.last(), Some(InsertStroke::Text(text)) if text.len() > MAX_STROKE_BYTES);
        if long || strokes.len() > MAX_STROKES {
            strokes.clear();
            insertion.is_too_long = true;
        }
    }

    fn finish_insertion(&mut self, field: &mut TextBuffer) {
        if let Some(insertion) = self.insertion.take() {
            insertion.repeat_insertion(field);
            if !insertion.is_too_long && !self.repeating {
                self.last_change = Some(insertion.change);
            }
        }
        field.end_edit_step();
        self.mode = ViMode::Normal;
        let units = field.graphemes();
        let at = field.grapheme_at_cursor(&units);
        if at > units.line_start(at) {
            field.move_to(&units, at - 1);
        }
    }

    /// Outside of an insertion, moves the cursor onto a unit if the line has one.
    pub(super) fn settle_cursor(&mut self, field: &mut TextBuffer) {
        if self.mode == ViMode::Insert {
            return;
        }
        field.end_edit_step();
        let units = field.graphemes();
        let at = field.grapheme_at_cursor(&units);
        field.move_to(&units, at.min(units.last_cursor_position(at)));
    }
}

impl InsertStroke {
    fn apply_stroke(&self, field: &mut TextBuffer) {
        match self {
            InsertStroke::Text(text) => {
                field.insert_text(EditKind::Insertion, text);
            }
            InsertStroke::Key(key) => field.handle_shell_key(*key, Some(EditKind::Insertion)),
        }
    }
}

impl InsertSession {
    /// Repeats the insertion according to the count.
    fn repeat_insertion(&self, field: &mut TextBuffer) {
        let more = self.times.saturating_sub(1);
        if self.is_too_long || more == 0 {
            return;
        }
        let line = if self.on_own_line { "\n" } else { "" };
        match self.change.strokes.as_slice() {
            // All at once: a repeated letter is one text.
            [InsertStroke::Text(text)] => {
                let once = format!("{line}{text}");
                let most = super::text_buffer::MAX_TEXT_BYTES / once.len().max(1);
                field.insert_text(EditKind::Insertion, &once.repeat(more.min(most)));
            }
            strokes => {
                for _ in 0..more.min(MAX_REPEATS) {
                    field.insert_text(EditKind::Insertion, line);
                    strokes.iter().for_each(|stroke| stroke.apply_stroke(field));
                }
            }
        }
    }
}

fn is_change(what: ViAction) -> bool {
    use parse::ViOperator;
    match what {
        ViAction::Operate(operator, _) | ViAction::OnSelection(operator, _) => operator != ViOperator::Yank,
        ViAction::Insert(_)
        | ViAction::Replace(_)
        | ViAction::ToggleCase
        | ViAction::Join
        | ViAction::Paste { .. } => true,
        ViAction::Move(_) | ViAction::Undo | ViAction::Redo | ViAction::Repeat | ViAction::Select { .. } => {
            false
        }
        ViAction::Slash | ViAction::SelectObject(_) | ViAction::SwapEnds => false,
    }
}

/// Returns the letter that is equivalent to a key.
fn arrow_letter(code: KeySymbol) -> Option<char> {
    match code {
        KeySymbol::Left | KeySymbol::Backspace => Some('h'),
        KeySymbol::Right => Some('l'),
        KeySymbol::Home => Some('0'),
        KeySymbol::End => Some('$'),
        KeySymbol::Delete => Some('x'),
        _ => None,
    }
}
