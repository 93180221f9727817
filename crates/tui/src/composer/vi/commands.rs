//! Executes commands.

use std::ops::Range;

use super::super::graphemes::{GraphemeKind, Graphemes};
use super::super::text_buffer::{EditKind, TextBuffer};
use super::motions::{Motion, MotionContext};
use super::operators::{EditRange, apply_operator, operator_range};
use super::parse::{InsertPosition, LineMode, ViAction, ViCommand, ViOperator};
use super::{SelectionExtent, ViMode, ViState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViOutcome {
    Done,
    /// Not possible here.
    Failed,
    Older,
    Newer,
}

impl ViState {
    pub(super) fn apply_command(&mut self, command: ViCommand, field: &mut TextBuffer) -> ViOutcome {
        let units = field.graphemes();
        let at = field.grapheme_at_cursor(&units);
        let count = command.parse_count.unwrap_or(1);
        if !matches!(command.action, ViAction::Move(_)) {
            self.column = None;
        }
        let done = match command.action {
            ViAction::Move(motion) => return self.move_by(motion, command.parse_count, field, &units),
            ViAction::Operate(operator, target) => {
                let from = self.motion_context(field, &units, at, command.parse_count);
                let part = operator_range(operator, target, &from);
                self.record_find(target.as_motion());
                part.is_some_and(|part| self.run_operator(operator, part, field, &units))
            }
            ViAction::Insert(entry) => self.enter_insert(entry, field, &units, at),
            ViAction::Replace(letter) => self.replace_letters(letter, count, field, &units, at),
            ViAction::ToggleCase => self.toggle_case(count, field, &units, at),
            ViAction::Join => self.join_lines(count, field, &units, at),
            ViAction::Paste { before } => self.paste_register(before, count, field, &units),
            ViAction::Undo => (0..count).take_while(|_| field.undo_step()).count() > 0,
            ViAction::Redo => (0..count).take_while(|_| field.redo_step()).count() > 0,
            ViAction::Select { lines } => self.start_selection(lines, field),
            ViAction::Slash => self.insert_slash(field),
            ViAction::OnSelection(operator, lines) => {
                let mut part = self.selected_edit_range(field, &units);
                if lines == LineMode::Whole {
                    part = part.extend_to_lines(&units);
                }
                self.mode = ViMode::Normal;
                self.run_operator(operator, part, field, &units)
            }
            ViAction::SelectObject(object) => match object.find_range(field.text(), &units, at) {
                Some(found) if !found.is_empty() => {
                    self.anchor = units.byte_offset(found.start);
                    field.move_to(&units, found.end - 1);
                    true
                }
                _ => false,
            },
            ViAction::SwapEnds => {
                let cursor = field.cursor_byte();
                field.move_to(&units, units.index_at_byte(self.anchor));
                self.anchor = cursor;
                true
            }
            // Handled by the caller.
            ViAction::Repeat => false,
        };
        if done { ViOutcome::Done } else { ViOutcome::Failed }
    }

    fn motion_context<'a>(
        &self,
        field: &'a TextBuffer,
        units: &'a Graphemes,
        index: usize,
        count: Option<usize>,
    ) -> MotionContext<'a> {
        let column = self.column.unwrap_or_else(|| units.column_of(index));
        MotionContext {
            text: field.text(),
            units,
            index,
            count,
            column,
            for_operator: true,
            last_find: self.last_find,
        }
    }

    fn record_find(&mut self, motion: Option<Motion>) {
        if let Some(Motion::Find(find)) = motion {
            self.last_find = Some(find);
        }
    }

    fn move_by(
        &mut self,
        motion: Motion,
        count: Option<usize>,
        field: &mut TextBuffer,
        units: &Graphemes,
    ) -> ViOutcome {
        let at = field.grapheme_at_cursor(units);
        let from = MotionContext { for_operator: false, ..self.motion_context(field, units, at, count) };
        let column = from.column;
        let went = from.apply_motion(motion);
        self.record_find(Some(motion));
        self.column = match motion {
            Motion::Up | Motion::Down => Some(column),
            Motion::LineEnd => Some(usize::MAX),
            _ => None,
        };
        match (went, motion) {
            (Some((to, _)), _) => {
                field.move_to(units, to);
                ViOutcome::Done
            }
            (None, Motion::Up) if self.mode == ViMode::Normal => ViOutcome::Older,
            (None, Motion::Down) if self.mode == ViMode::Normal => ViOutcome::Newer,
            (None, _) => ViOutcome::Failed,
        }
    }

    fn run_operator(
        &mut self,
        operator: ViOperator,
        part: EditRange,
        field: &mut TextBuffer,
        units: &Graphemes,
    ) -> bool {
        field.end_edit_step();
        if !apply_operator(operator, part, field, units) {
            return false;
        }
        if operator == ViOperator::Change {
            self.mode = ViMode::Insert;
        }
        true
    }

    fn enter_insert(
        &mut self,
        entry: InsertPosition,
        field: &mut TextBuffer,
        units: &Graphemes,
        at: usize,
    ) -> bool {
        field.end_edit_step();
        let (start, end) = (units.line_start(at), units.line_end(at));
        let to = match entry {
            InsertPosition::AtCursor => at,
            InsertPosition::AfterCursor => (at + 1).min(end),
            InsertPosition::LineStart => units.first_nonblank(at),
            InsertPosition::LineEnd | InsertPosition::Below => end,
            InsertPosition::Above => start,
        };
        field.move_to(units, to);
        self.mode = ViMode::Insert;
        if matches!(entry, InsertPosition::Below | InsertPosition::Above) {
            field.insert_text(EditKind::Insertion, "\n");
        }
        if entry == InsertPosition::Above {
            field.move_to(units, to);
        }
        true
    }

    fn insert_slash(&mut self, field: &mut TextBuffer) -> bool {
        if !field.text().trim().is_empty() {
            return false;
        }
        field.end_edit_step();
        self.mode = ViMode::Insert;
        field.replace_range(EditKind::Insertion, 0..field.text().len(), "/")
    }

    /// Returns the units of a command without a motion: the selection, or as many as the count from the
    /// cursor on.
    fn affected_range(
        &mut self,
        count: usize,
        field: &TextBuffer,
        units: &Graphemes,
        at: usize,
    ) -> Range<usize> {
        if !self.mode.is_selecting() {
            return at..at.saturating_add(count).min(units.line_end(at));
        }
        let part = self.selected_edit_range(field, units);
        self.mode = ViMode::Normal;
        part.units
    }

    fn replace_letters(
        &mut self,
        letter: char,
        count: usize,
        field: &mut TextBuffer,
        units: &Graphemes,
        at: usize,
    ) -> bool {
        let selecting = self.mode.is_selecting();
        let here = self.affected_range(count, field, units, at);
        if here.is_empty() || (!selecting && here.len() < count) {
            return false;
        }
        let kept = |at: usize| units.is_break(at);
        let with: String = here.clone().map(|at| if kept(at) { '\n' } else { letter }).collect();
        let changed = field.replace_range(EditKind::Single, byte_range(units, &here), &with);
        let cursor = if selecting { here.start } else { here.end - 1 };
        // The number of units is unchanged, so the position remains valid.
        let new = field.graphemes();
        let first = new.index_at_byte(units.byte_offset(here.start));
        field.move_to(&new, first + (cursor - here.start));
        changed
    }

    fn toggle_case(&mut self, count: usize, field: &mut TextBuffer, units: &Graphemes, at: usize) -> bool {
        let selecting = self.mode.is_selecting();
        let here = self.affected_range(count, field, units, at);
        if here.is_empty() {
            return false;
        }
        let turned: String =
            here.clone().filter_map(|at| units.get(at)).map(|unit| swap_case(field, unit)).collect();
        let start = units.byte_offset(here.start);
        let changed = field.replace_range(EditKind::Single, byte_range(units, &here), &turned);
        if !changed {
            field.move_to(units, here.end);
        }
        if selecting {
            let new = field.graphemes();
            field.move_to(&new, new.index_at_byte(start));
        }
        true
    }

    fn join_lines(&mut self, count: usize, field: &mut TextBuffer, units: &Graphemes, at: usize) -> bool {
        let (first, mut last) = match self.mode.is_selecting() {
            true => {
                let part = self.selected_edit_range(field, units);
                self.mode = ViMode::Normal;
                (part.units.start, units.line_start(part.units.end.saturating_sub(1).max(part.units.start)))
            }
            false => (at, units.line_start(at)),
        };
        // `3J` joins three lines, `J` and `2J` join two.
        if units.line_start(first) == last {
            for _ in 1..count.max(2) {
                last = units.line_below(last).unwrap_or(last);
            }
        }
        let whole = units.byte_offset(units.line_start(first))..units.byte_offset(units.line_end(last));
        let lines: Vec<String> = field.text_range(whole.clone()).split('\n').map(str::to_owned).collect();
        let mut lines = lines.into_iter();
        let mut joined = lines.next().unwrap_or_default();
        let mut seam = joined.len();
        for line in lines {
            seam = joined.len();
            let line = line.trim_start();
            let close = line.is_empty() || line.starts_with(')') || joined.is_empty();
            if !close && !joined.ends_with(char::is_whitespace) {
                joined.push(' ');
            }
            joined.push_str(line);
        }
        let changed = field.replace_range(EditKind::Single, whole.clone(), &joined);
        if changed {
            let new = field.graphemes();
            field.move_to(&new, new.index_at_byte(whole.start + seam));
        }
        changed
    }

    fn paste_register(
        &mut self,
        before: bool,
        count: usize,
        field: &mut TextBuffer,
        units: &Graphemes,
    ) -> bool {
        let used = field.take_register();
        if used.text.is_empty() && !used.is_linewise {
            return false;
        }
        field.end_edit_step();
        if self.mode.is_selecting() {
            let part = self.selected_edit_range(field, units);
            self.mode = ViMode::Normal;
            let (range, lines) = (byte_range(units, &part.units), part.is_linewise);
            field.copy_range(range.clone(), lines);
            let text = if used.is_linewise && !lines { format!("\n{}\n", used.text) } else { used.text };
            return field.replace_range(EditKind::Single, range, &text);
        }
        let at = field.grapheme_at_cursor(units);
        let (start, end) = (units.line_start(at), units.line_end(at));
        let count = count.min(super::super::text_buffer::MAX_TEXT_BYTES / used.text.len().max(1) + 1);
        if used.is_linewise {
            let lines = vec![used.text.as_str(); count].join("\n");
            let (place, text) = if before { (start, lines + "\n") } else { (end, format!("\n{lines}")) };
            let byte = units.byte_offset(place);
            let changed = field.replace_range(EditKind::Single, byte..byte, &text);
            let new = field.graphemes();
            let line = new.index_at_byte(if before { byte } else { byte + 1 });
            field.move_to(&new, new.first_nonblank(line).min(new.last_cursor_position(line)));
            return changed;
        }
        let place = if before { at } else { (at + 1).min(end) };
        let byte = units.byte_offset(place);
        let changed = field.replace_range(EditKind::Single, byte..byte, &used.text.repeat(count));
        let new = field.graphemes();
        let behind = field.grapheme_at_cursor(&new);
        let several = used.text.contains('\n');
        field.move_to(&new, if several { new.index_at_byte(byte) } else { behind.saturating_sub(1) });
        changed
    }

    fn start_selection(&mut self, lines: bool, field: &TextBuffer) -> bool {
        let wanted = if lines { ViMode::VisualLines } else { ViMode::Visual };
        if !self.mode.is_selecting() {
            self.anchor = field.cursor_byte();
        }
        self.mode = if self.mode == wanted { ViMode::Normal } else { wanted };
        true
    }

    /// Returns the selection as a range.
    pub(super) fn selected_edit_range(&self, field: &TextBuffer, units: &Graphemes) -> EditRange {
        let (one, other) = (field.grapheme_at_cursor(units), units.index_at_byte(self.anchor));
        let (first, last) = (one.min(other), one.max(other));
        let part = EditRange {
            units: first..(last + 1).min(units.len()),
            is_linewise: false,
            cursor_after_copy: first,
        };
        if self.mode == ViMode::VisualLines { part.extend_to_lines(units) } else { part }
    }

    pub(super) fn selection_extent(&self, field: &TextBuffer) -> SelectionExtent {
        let units = field.graphemes();
        let part = self.selected_edit_range(field, &units);
        let last = part.units.end.saturating_sub(1).max(part.units.start);
        let lines_below = (part.units.start..last).filter(|at| units.is_break(*at)).count();
        let from = if lines_below == 0 { part.units.start } else { units.line_start(last) };
        SelectionExtent { lines: part.is_linewise, lines_below, units: last.saturating_sub(from) }
    }

    /// Selects the same extent as before from the cursor.
    pub(super) fn restore_selection(&mut self, extent: SelectionExtent, field: &mut TextBuffer) {
        self.mode = if extent.lines { ViMode::VisualLines } else { ViMode::Visual };
        self.anchor = field.cursor_byte();
        let units = field.graphemes();
        let at = field.grapheme_at_cursor(&units);
        let mut line = at;
        for _ in 0..extent.lines_below {
            line = units.line_below(line).unwrap_or(line);
        }
        let from = if extent.lines_below == 0 { at } else { units.line_start(line) };
        field.move_to(&units, from.saturating_add(extent.units).min(units.last_cursor_position(line)));
    }
}

fn byte_range(units: &Graphemes, range: &Range<usize>) -> Range<usize> {
    units.byte_offset(range.start)..units.byte_offset(range.end)
}

/// Returns a letter with its case swapped; attachments are unchanged.
fn swap_case(field: &TextBuffer, unit: super::super::graphemes::Grapheme) -> String {
    let text = field.text_range(unit.start..unit.end);
    if unit.kind == GraphemeKind::Attachment {
        return text.to_owned();
    }
    let turn = |letter: char| -> String {
        if letter.is_lowercase() { letter.to_uppercase().collect() } else { letter.to_lowercase().collect() }
    };
    text.chars().map(turn).collect()
}
