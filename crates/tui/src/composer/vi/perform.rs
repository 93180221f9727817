//! Doing a command.

use std::ops::Range;

use super::super::field::{Field, Step};
use super::super::units::{Kind, Units};
use super::command::{Command, Entry, Lines, Operator, What};
use super::motion::{From, Motion};
use super::operate::{Part, operate, part_of};
use super::{Extent, Mode, Vi};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It could not be done here.
    Failed,
    Older,
    Newer,
}

impl Vi {
    pub(super) fn perform(&mut self, command: Command, field: &mut Field) -> Outcome {
        let units = field.units();
        let at = field.at(&units);
        let count = command.count.unwrap_or(1);
        if !matches!(command.what, What::Move(_)) {
            self.column = None;
        }
        let done = match command.what {
            What::Move(motion) => return self.go(motion, command.count, field, &units),
            What::Operate(operator, target) => {
                let from = self.from(field, &units, at, command.count);
                let part = part_of(operator, target, &from);
                self.note_find(target.motion());
                part.is_some_and(|part| self.operate(operator, part, field, &units))
            }
            What::Insert(entry) => self.enter(entry, field, &units, at),
            What::Replace(letter) => self.replace(letter, count, field, &units, at),
            What::Case => self.turn_case(count, field, &units, at),
            What::Join => self.join(count, field, &units, at),
            What::Put { before } => self.put(before, count, field, &units),
            What::Undo => (0..count).take_while(|_| field.undo()).count() > 0,
            What::Redo => (0..count).take_while(|_| field.redo()).count() > 0,
            What::Select { lines } => self.select_from(lines, field),
            What::Slash => self.slash(field),
            What::OnSelection(operator, lines) => {
                let mut part = self.selection(field, &units);
                if lines == Lines::Whole {
                    part = part.whole_lines(&units);
                }
                self.mode = Mode::Normal;
                self.operate(operator, part, field, &units)
            }
            What::ToObject(object) => match object.find(field.text(), &units, at) {
                Some(found) if !found.is_empty() => {
                    self.anchor = units.byte(found.start);
                    field.go(&units, found.end - 1);
                    true
                }
                _ => false,
            },
            What::Swap => {
                let cursor = field.cursor();
                field.go(&units, units.at_byte(self.anchor));
                self.anchor = cursor;
                true
            }
            // Whoever is asked to repeat does not come here.
            What::Repeat => false,
        };
        if done { Outcome::Done } else { Outcome::Failed }
    }

    fn from<'a>(&self, field: &'a Field, units: &'a Units, at: usize, count: Option<usize>) -> From<'a> {
        let column = self.column.unwrap_or_else(|| units.column(at));
        From { text: field.text(), units, at, count, column, operating: true, found: self.found }
    }

    fn note_find(&mut self, motion: Option<Motion>) {
        if let Some(Motion::Find(find)) = motion {
            self.found = Some(find);
        }
    }

    fn go(&mut self, motion: Motion, count: Option<usize>, field: &mut Field, units: &Units) -> Outcome {
        let at = field.at(units);
        let from = From { operating: false, ..self.from(field, units, at, count) };
        let column = from.column;
        let went = from.go(motion);
        self.note_find(Some(motion));
        self.column = match motion {
            Motion::Up | Motion::Down => Some(column),
            Motion::LineEnd => Some(usize::MAX),
            _ => None,
        };
        match (went, motion) {
            (Some((to, _)), _) => {
                field.go(units, to);
                Outcome::Done
            }
            (None, Motion::Up) if self.mode == Mode::Normal => Outcome::Older,
            (None, Motion::Down) if self.mode == Mode::Normal => Outcome::Newer,
            (None, _) => Outcome::Failed,
        }
    }

    fn operate(&mut self, operator: Operator, part: Part, field: &mut Field, units: &Units) -> bool {
        field.close_step();
        if !operate(operator, part, field, units) {
            return false;
        }
        if operator == Operator::Change {
            self.mode = Mode::Insert;
        }
        true
    }

    fn enter(&mut self, entry: Entry, field: &mut Field, units: &Units, at: usize) -> bool {
        field.close_step();
        let (start, end) = (units.line_start(at), units.line_end(at));
        let to = match entry {
            Entry::Here => at,
            Entry::Behind => (at + 1).min(end),
            Entry::LineStart => units.first_letter(at),
            Entry::LineEnd | Entry::Below => end,
            Entry::Above => start,
        };
        field.go(units, to);
        self.mode = Mode::Insert;
        if matches!(entry, Entry::Below | Entry::Above) {
            field.insert(Step::Insertion, "\n");
        }
        if entry == Entry::Above {
            field.go(units, to);
        }
        true
    }

    fn slash(&mut self, field: &mut Field) -> bool {
        if !field.text().trim().is_empty() {
            return false;
        }
        field.close_step();
        self.mode = Mode::Insert;
        field.change(Step::Insertion, 0..field.text().len(), "/")
    }

    /// The units that a command without a motion is for: what is selected, or as many as the count from the cursor on.
    fn here(&mut self, count: usize, field: &Field, units: &Units, at: usize) -> Range<usize> {
        if !self.mode.is_selecting() {
            return at..at.saturating_add(count).min(units.line_end(at));
        }
        let part = self.selection(field, units);
        self.mode = Mode::Normal;
        part.units
    }

    fn replace(&mut self, letter: char, count: usize, field: &mut Field, units: &Units, at: usize) -> bool {
        let selecting = self.mode.is_selecting();
        let here = self.here(count, field, units, at);
        if here.is_empty() || (!selecting && here.len() < count) {
            return false;
        }
        let kept = |at: usize| units.is_break(at);
        let with: String = here.clone().map(|at| if kept(at) { '\n' } else { letter }).collect();
        let changed = field.change(Step::Alone, bytes(units, &here), &with);
        let cursor = if selecting { here.start } else { here.end - 1 };
        // What is there now has the units that it had before, as far as the cursor is concerned.
        let new = field.units();
        let first = new.at_byte(units.byte(here.start));
        field.go(&new, first + (cursor - here.start));
        changed
    }

    fn turn_case(&mut self, count: usize, field: &mut Field, units: &Units, at: usize) -> bool {
        let selecting = self.mode.is_selecting();
        let here = self.here(count, field, units, at);
        if here.is_empty() {
            return false;
        }
        let turned: String =
            here.clone().filter_map(|at| units.get(at)).map(|unit| turned(field, unit)).collect();
        let start = units.byte(here.start);
        let changed = field.change(Step::Alone, bytes(units, &here), &turned);
        if !changed {
            field.go(units, here.end);
        }
        if selecting {
            let new = field.units();
            field.go(&new, new.at_byte(start));
        }
        true
    }

    fn join(&mut self, count: usize, field: &mut Field, units: &Units, at: usize) -> bool {
        let (first, mut last) = match self.mode.is_selecting() {
            true => {
                let part = self.selection(field, units);
                self.mode = Mode::Normal;
                (part.units.start, units.line_start(part.units.end.saturating_sub(1).max(part.units.start)))
            }
            false => (at, units.line_start(at)),
        };
        // `3J` makes three lines one, and so does `J` of two.
        if units.line_start(first) == last {
            for _ in 1..count.max(2) {
                last = units.below(last).unwrap_or(last);
            }
        }
        let whole = units.byte(units.line_start(first))..units.byte(units.line_end(last));
        let lines: Vec<String> = field.part(whole.clone()).split('\n').map(str::to_owned).collect();
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
        let changed = field.change(Step::Alone, whole.clone(), &joined);
        if changed {
            let new = field.units();
            field.go(&new, new.at_byte(whole.start + seam));
        }
        changed
    }

    fn put(&mut self, before: bool, count: usize, field: &mut Field, units: &Units) -> bool {
        let taken = field.back();
        if taken.text.is_empty() && !taken.lines {
            return false;
        }
        field.close_step();
        if self.mode.is_selecting() {
            let part = self.selection(field, units);
            self.mode = Mode::Normal;
            let (range, lines) = (bytes(units, &part.units), part.lines);
            field.copy(range.clone(), lines);
            let text = if taken.lines && !lines { format!("\n{}\n", taken.text) } else { taken.text };
            return field.change(Step::Alone, range, &text);
        }
        let at = field.at(units);
        let (start, end) = (units.line_start(at), units.line_end(at));
        let count = count.min(super::super::field::TEXT_MOST / taken.text.len().max(1) + 1);
        if taken.lines {
            let lines = vec![taken.text.as_str(); count].join("\n");
            let (place, text) = if before { (start, lines + "\n") } else { (end, format!("\n{lines}")) };
            let byte = units.byte(place);
            let changed = field.change(Step::Alone, byte..byte, &text);
            let new = field.units();
            let line = new.at_byte(if before { byte } else { byte + 1 });
            field.go(&new, new.first_letter(line).min(new.line_last(line)));
            return changed;
        }
        let place = if before { at } else { (at + 1).min(end) };
        let byte = units.byte(place);
        let changed = field.change(Step::Alone, byte..byte, &taken.text.repeat(count));
        let new = field.units();
        let behind = field.at(&new);
        let several = taken.text.contains('\n');
        field.go(&new, if several { new.at_byte(byte) } else { behind.saturating_sub(1) });
        changed
    }

    fn select_from(&mut self, lines: bool, field: &Field) -> bool {
        let wanted = if lines { Mode::VisualLines } else { Mode::Visual };
        if !self.mode.is_selecting() {
            self.anchor = field.cursor();
        }
        self.mode = if self.mode == wanted { Mode::Normal } else { wanted };
        true
    }

    /// What is selected.
    pub(super) fn selection(&self, field: &Field, units: &Units) -> Part {
        let (one, other) = (field.at(units), units.at_byte(self.anchor));
        let (first, last) = (one.min(other), one.max(other));
        let part = Part { units: first..(last + 1).min(units.len()), lines: false, to: first };
        if self.mode == Mode::VisualLines { part.whole_lines(units) } else { part }
    }

    pub(super) fn extent(&self, field: &Field) -> Extent {
        let units = field.units();
        let part = self.selection(field, &units);
        let last = part.units.end.saturating_sub(1).max(part.units.start);
        let below = (part.units.start..last).filter(|at| units.is_break(*at)).count();
        let from = if below == 0 { part.units.start } else { units.line_start(last) };
        Extent { lines: part.lines, below, units: last.saturating_sub(from) }
    }

    /// Selects as much as was selected once, from the cursor on.
    pub(super) fn select(&mut self, extent: Extent, field: &mut Field) {
        self.mode = if extent.lines { Mode::VisualLines } else { Mode::Visual };
        self.anchor = field.cursor();
        let units = field.units();
        let at = field.at(&units);
        let mut line = at;
        for _ in 0..extent.below {
            line = units.below(line).unwrap_or(line);
        }
        let from = if extent.below == 0 { at } else { units.line_start(line) };
        field.go(&units, from.saturating_add(extent.units).min(units.line_last(line)));
    }
}

fn bytes(units: &Units, range: &Range<usize>) -> Range<usize> {
    units.byte(range.start)..units.byte(range.end)
}

/// A letter with its case turned; a chip stays what it is.
fn turned(field: &Field, unit: super::super::units::Unit) -> String {
    let text = field.part(unit.start..unit.end);
    if unit.kind == Kind::Chip {
        return text.to_owned();
    }
    let turn = |letter: char| -> String {
        if letter.is_lowercase() { letter.to_uppercase().collect() } else { letter.to_lowercase().collect() }
    };
    text.chars().map(turn).collect()
}
