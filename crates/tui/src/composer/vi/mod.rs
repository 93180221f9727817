//! The composer as people know it from vi: modes, commands that are typed letter by letter, and `.`.
//!
//! Here: which mode it is, what was typed of a command, what the last change was. Its parts: reading a command
//! (`command`), where motions go (`motion`), text objects (`object`), doing it (`perform`, `operate`).
//! Elsewhere: Enter, pausing and everything else that is no text (`app`).

mod command;
mod motion;
mod object;
mod operate;
mod perform;
#[cfg(test)]
mod tests;

use std::ops::Range;

use command::{Command, Entry, REDO, Read, What, read, without_count};
use motion::Find;
use perform::Outcome;

use super::field::{Field, Step};
use crate::event::{Code, Key};

/// What of an insertion is remembered for `.`.
const STROKES: usize = 1_000;
const STROKE_BYTES: usize = 64 * 1024;
/// How often an insertion that is more than text is repeated by a count.
const TIMES: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Insert,
    Normal,
    Visual,
    VisualLines,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Insert => "INSERT",
            Mode::Normal => "NORMAL",
            Mode::Visual => "VISUAL",
            Mode::VisualLines => "V-LINE",
        }
    }

    fn is_selecting(self) -> bool {
        matches!(self, Mode::Visual | Mode::VisualLines)
    }
}

/// What came of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It means what it means without vi.
    Not,
    Done,
    /// Upward from the first line, downward from the last one.
    Older,
    Newer,
}

/// Something that was done while inserting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stroke {
    Text(String),
    Key(Key),
}

/// A change that `.` does again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    /// As it was typed, without its count.
    typed: String,
    count: Option<usize>,
    /// How much was selected.
    selected: Option<Extent>,
    strokes: Vec<Stroke>,
}

/// How far a selection goes from where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    lines: bool,
    below: usize,
    /// In the last line.
    units: usize,
}

/// An insertion that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Insertion {
    change: Change,
    times: usize,
    /// Each time it begins on a line of its own.
    own_line: bool,
    /// It is too long for doing it again.
    lost: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Vi {
    mode: Mode,
    typed: String,
    found: Option<Find>,
    /// Where one comes from, going up and down.
    column: Option<usize>,
    /// The other end of what is selected, in bytes.
    anchor: usize,
    last: Option<Change>,
    insertion: Option<Insertion>,
    repeating: bool,
}

impl Vi {
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// What was typed of a command that is not whole.
    pub(super) fn typed(&self) -> &str {
        &self.typed
    }

    /// There is another text now.
    pub(super) fn begin(&mut self, mode: Mode) {
        self.mode = mode;
        self.typed.clear();
        self.column = None;
        self.insertion = None;
    }

    /// What is selected, in bytes.
    pub(super) fn selected(&self, field: &Field) -> Option<Range<usize>> {
        if !self.mode.is_selecting() {
            return None;
        }
        let units = field.units();
        let part = self.selection(field, &units).units;
        Some(units.byte(part.start)..units.byte(part.end))
    }

    pub(super) fn key(&mut self, key: Key, field: &mut Field) -> Heard {
        let bare = !key.ctrl && !key.alt && !key.shift;
        if bare && key.code == Code::Esc {
            return self.escape(field);
        }
        if self.mode == Mode::Insert {
            return Heard::Not;
        }
        let letter = match (key.typed(), key.code) {
            (Some(letter), _) => letter,
            (None, Code::Char('r')) if key.ctrl && !self.mode.is_selecting() => REDO,
            (None, code) if bare => match arrow(code) {
                Some(letter) => letter,
                None => return self.forget(),
            },
            (None, _) => return self.forget(),
        };
        if key.typed().is_none() && letter != REDO && !self.typed.is_empty() {
            self.typed.clear();
            return Heard::Done;
        }
        self.typed.push(letter);
        match read(&self.typed, self.mode.is_selecting()) {
            Read::Begun => Heard::Done,
            Read::None => {
                self.typed.clear();
                Heard::Done
            }
            Read::Whole(command) => {
                let typed = std::mem::take(&mut self.typed);
                self.run(command, without_count(&typed), field)
            }
        }
    }

    /// A key for somebody else ends what was begun.
    fn forget(&mut self) -> Heard {
        self.typed.clear();
        Heard::Not
    }

    fn escape(&mut self, field: &mut Field) -> Heard {
        match self.mode {
            Mode::Insert => self.leave_insertion(field),
            Mode::Normal if self.typed.is_empty() => return Heard::Not,
            Mode::Normal => self.typed.clear(),
            Mode::Visual | Mode::VisualLines => {
                self.typed.clear();
                self.mode = Mode::Normal;
                self.settle(field);
            }
        }
        Heard::Done
    }

    fn run(&mut self, command: Command, typed: &str, field: &mut Field) -> Heard {
        if command.what == What::Repeat {
            self.repeat(command.count, field);
            self.settle(field);
            return Heard::Done;
        }
        let selected = self.mode.is_selecting().then(|| self.extent(field));
        let outcome = self.perform(command, field);
        if outcome == Outcome::Done && changes(command.what) {
            let (count, typed) = (command.count, typed.to_owned());
            self.remember(Change { typed, count, selected, strokes: Vec::new() }, command.what);
        }
        self.settle(field);
        match outcome {
            Outcome::Done | Outcome::Failed => Heard::Done,
            Outcome::Older => Heard::Older,
            Outcome::Newer => Heard::Newer,
        }
    }

    fn remember(&mut self, change: Change, what: What) {
        if self.mode != Mode::Insert {
            self.last = Some(change);
            return;
        }
        let (times, own_line) = match what {
            What::Insert(entry) => (change.count.unwrap_or(1), matches!(entry, Entry::Below | Entry::Above)),
            _ => (1, false),
        };
        self.insertion = Some(Insertion { change, times, own_line, lost: false });
    }

    /// The last change once more; with another count, if one was typed.
    fn repeat(&mut self, count: Option<usize>, field: &mut Field) {
        let Some(mut change) = self.last.take() else { return };
        change.count = count.or(change.count);
        let number = change.count.map(|count| count.to_string()).unwrap_or_default();
        self.repeating = true;
        if let Some(extent) = change.selected {
            self.select(extent, field);
        }
        if let Read::Whole(command) = read(&format!("{number}{}", change.typed), change.selected.is_some()) {
            self.perform(command, field);
            if self.mode == Mode::Insert {
                let again = Change { strokes: Vec::new(), ..change.clone() };
                self.remember(again, command.what);
                for stroke in &change.strokes {
                    self.stroke(stroke.clone(), field);
                }
                self.leave_insertion(field);
            }
        }
        self.repeating = false;
        self.last = Some(change);
    }

    /// Text that is inserted now.
    pub(super) fn insert(&mut self, text: &str, field: &mut Field) {
        self.stroke(Stroke::Text(text.to_owned()), field);
    }

    /// A key that is no letter, while inserting.
    pub(super) fn insert_key(&mut self, key: Key, field: &mut Field) {
        match key.typed() {
            Some(letter) => self.insert(letter.encode_utf8(&mut [0; 4]), field),
            None => self.stroke(Stroke::Key(key), field),
        }
    }

    fn stroke(&mut self, stroke: Stroke, field: &mut Field) {
        stroke.apply(field);
        let Some(insertion) = &mut self.insertion else { return };
        let strokes = &mut insertion.change.strokes;
        match (strokes.last_mut(), stroke) {
            (Some(Stroke::Text(text)), Stroke::Text(more)) => text.push_str(&more),
            (_, stroke) => strokes.push(stroke),
        }
        let long = matches!(strokes.last(), Some(Stroke::Text(text)) if text.len() > STROKE_BYTES);
        if long || strokes.len() > STROKES {
            strokes.clear();
            insertion.lost = true;
        }
    }

    fn leave_insertion(&mut self, field: &mut Field) {
        if let Some(insertion) = self.insertion.take() {
            insertion.again(field);
            if !insertion.lost && !self.repeating {
                self.last = Some(insertion.change);
            }
        }
        field.close_step();
        self.mode = Mode::Normal;
        let units = field.units();
        let at = field.at(&units);
        if at > units.line_start(at) {
            field.go(&units, at - 1);
        }
    }

    /// Outside of an insertion the cursor stands on something, if there is something in its line.
    pub(super) fn settle(&mut self, field: &mut Field) {
        if self.mode == Mode::Insert {
            return;
        }
        field.close_step();
        let units = field.units();
        let at = field.at(&units);
        field.go(&units, at.min(units.line_last(at)));
    }
}

impl Stroke {
    fn apply(&self, field: &mut Field) {
        match self {
            Stroke::Text(text) => {
                field.insert(Step::Insertion, text);
            }
            Stroke::Key(key) => field.shell_key(*key, Some(Step::Insertion)),
        }
    }
}

impl Insertion {
    /// As often as its count says.
    fn again(&self, field: &mut Field) {
        let more = self.times.saturating_sub(1);
        if self.lost || more == 0 {
            return;
        }
        let line = if self.own_line { "\n" } else { "" };
        match self.change.strokes.as_slice() {
            // At once: a thousand times a letter is one text.
            [Stroke::Text(text)] => {
                let once = format!("{line}{text}");
                let most = super::field::TEXT_MOST / once.len().max(1);
                field.insert(Step::Insertion, &once.repeat(more.min(most)));
            }
            strokes => {
                for _ in 0..more.min(TIMES) {
                    field.insert(Step::Insertion, line);
                    strokes.iter().for_each(|stroke| stroke.apply(field));
                }
            }
        }
    }
}

fn changes(what: What) -> bool {
    use command::Operator;
    match what {
        What::Operate(operator, _) | What::OnSelection(operator, _) => operator != Operator::Yank,
        What::Insert(_) | What::Replace(_) | What::Case | What::Join | What::Put { .. } => true,
        What::Move(_) | What::Undo | What::Redo | What::Repeat | What::Select { .. } => false,
        What::Slash | What::ToObject(_) | What::Swap => false,
    }
}

/// Keys that mean what a letter means.
fn arrow(code: Code) -> Option<char> {
    match code {
        Code::Left | Code::Backspace => Some('h'),
        Code::Right => Some('l'),
        Code::Home => Some('0'),
        Code::End => Some('$'),
        Code::Delete => Some('x'),
        _ => None,
    }
}
