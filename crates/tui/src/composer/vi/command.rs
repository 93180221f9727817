//! Commands of normal mode, read from what was typed so far: whole, not yet whole, or none.

use super::motion::{Find, Motion};
use super::object::Object;

/// The longest command that is typed; a count of more digits means nobody any good.
const TYPED_MOST: usize = 12;
/// The largest count.
const COUNT_MOST: usize = 9_999;
/// How a terminal sends Ctrl-R.
pub(super) const REDO: char = '\u{12}';

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Delete,
    Change,
    Yank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Motion(Motion),
    Object(Object),
    /// The line, as by `dd`.
    Lines,
}

/// Where an insertion begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Here,
    Behind,
    LineStart,
    LineEnd,
    Below,
    Above,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Move(Motion),
    Operate(Operator, Target),
    Insert(Entry),
    Replace(char),
    Case,
    Join,
    Put {
        before: bool,
    },
    Undo,
    Redo,
    Repeat,
    Select {
        lines: bool,
    },
    /// `/` in an empty composer.
    Slash,
    // In visual mode only.
    OnSelection(Operator, Lines),
    ToObject(Object),
    Swap,
}

/// Whether an operator takes whole lines of a selection in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    AsSelected,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) count: Option<usize>,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Whole(Command),
    /// More is to be typed.
    Begun,
    None,
}

/// Reads what was typed; `selecting` in visual mode.
pub(super) fn read(typed: &str, selecting: bool) -> Read {
    if typed.chars().count() > TYPED_MOST {
        return Read::None;
    }
    let mut letters = Letters { rest: typed.chars().collect(), at: 0 };
    match command(&mut letters, selecting) {
        Ok(command) => Read::Whole(command),
        Err(Not::Yet) => Read::Begun,
        Err(Not::Ever) => Read::None,
    }
}

/// The command without its count, which `.` may replace.
pub(super) fn without_count(typed: &str) -> &str {
    if typed.starts_with('0') {
        typed
    } else {
        typed.trim_start_matches(|letter: char| letter.is_ascii_digit())
    }
}

enum Not {
    Yet,
    Ever,
}

struct Letters {
    rest: Vec<char>,
    at: usize,
}

impl Letters {
    fn next(&mut self) -> Result<char, Not> {
        let letter = self.rest.get(self.at).copied().ok_or(Not::Yet)?;
        self.at += 1;
        Ok(letter)
    }

    /// A zero at the beginning is a motion.
    fn count(&mut self) -> Option<usize> {
        let mut count = None;
        while let Some(digit) = self.rest.get(self.at).and_then(|letter| letter.to_digit(10)) {
            if count.is_none() && digit == 0 {
                break;
            }
            let digit = usize::try_from(digit).unwrap_or(0);
            count = Some((count.unwrap_or(0) * 10 + digit).min(COUNT_MOST));
            self.at += 1;
        }
        count
    }
}

fn command(letters: &mut Letters, selecting: bool) -> Result<Command, Not> {
    let mut count = letters.count();
    let letter = letters.next()?;
    if let Some(operator) = operator(letter).filter(|_| !selecting) {
        // `2d3w` is six words.
        let second = letters.count();
        if let Some(second) = second {
            count = Some((count.unwrap_or(1) * second).min(COUNT_MOST));
        }
        let target = match letters.next()? {
            same if same == letter => Target::Lines,
            'i' => Target::Object(object(letters, false)?),
            'a' => Target::Object(object(letters, true)?),
            other => Target::Motion(motion(other, letters)?),
        };
        return Ok(Command { count, what: What::Operate(operator, target) });
    }
    let what = if selecting { on_selection(letter, letters)? } else { alone(letter, letters)? };
    Ok(Command { count, what })
}

fn operator(letter: char) -> Option<Operator> {
    match letter {
        'd' => Some(Operator::Delete),
        'c' => Some(Operator::Change),
        'y' => Some(Operator::Yank),
        _ => None,
    }
}

fn alone(letter: char, letters: &mut Letters) -> Result<What, Not> {
    let operate = |operator, motion| What::Operate(operator, Target::Motion(motion));
    Ok(match letter {
        'x' => operate(Operator::Delete, Motion::Right),
        'X' => operate(Operator::Delete, Motion::Left),
        'D' => operate(Operator::Delete, Motion::LineEnd),
        'C' => operate(Operator::Change, Motion::LineEnd),
        's' => operate(Operator::Change, Motion::Right),
        'S' => What::Operate(Operator::Change, Target::Lines),
        'Y' => What::Operate(Operator::Yank, Target::Lines),
        'i' => What::Insert(Entry::Here),
        'a' => What::Insert(Entry::Behind),
        'I' => What::Insert(Entry::LineStart),
        'A' => What::Insert(Entry::LineEnd),
        'o' => What::Insert(Entry::Below),
        'O' => What::Insert(Entry::Above),
        'r' => What::Replace(letters.next()?),
        '~' => What::Case,
        'J' => What::Join,
        'p' => What::Put { before: false },
        'P' => What::Put { before: true },
        'u' => What::Undo,
        REDO => What::Redo,
        '.' => What::Repeat,
        'v' => What::Select { lines: false },
        'V' => What::Select { lines: true },
        '/' => What::Slash,
        other => What::Move(motion(other, letters)?),
    })
}

fn on_selection(letter: char, letters: &mut Letters) -> Result<What, Not> {
    Ok(match letter {
        'd' | 'x' => What::OnSelection(Operator::Delete, Lines::AsSelected),
        'c' | 's' => What::OnSelection(Operator::Change, Lines::AsSelected),
        'y' => What::OnSelection(Operator::Yank, Lines::AsSelected),
        'D' | 'X' => What::OnSelection(Operator::Delete, Lines::Whole),
        'C' | 'S' | 'R' => What::OnSelection(Operator::Change, Lines::Whole),
        'Y' => What::OnSelection(Operator::Yank, Lines::Whole),
        'r' => What::Replace(letters.next()?),
        '~' => What::Case,
        'J' => What::Join,
        'p' | 'P' => What::Put { before: false },
        'o' => What::Swap,
        'v' => What::Select { lines: false },
        'V' => What::Select { lines: true },
        'i' => What::ToObject(object(letters, false)?),
        'a' => What::ToObject(object(letters, true)?),
        other => What::Move(motion(other, letters)?),
    })
}

fn motion(letter: char, letters: &mut Letters) -> Result<Motion, Not> {
    Ok(match letter {
        'h' => Motion::Left,
        'l' | ' ' => Motion::Right,
        'j' => Motion::Down,
        'k' => Motion::Up,
        'w' => Motion::Word { big: false },
        'W' => Motion::Word { big: true },
        'b' => Motion::WordBack { big: false },
        'B' => Motion::WordBack { big: true },
        'e' => Motion::WordEnd { big: false },
        'E' => Motion::WordEnd { big: true },
        '0' => Motion::LineStart,
        '^' => Motion::FirstLetter,
        '$' => Motion::LineEnd,
        'G' => Motion::Line,
        'g' => match letters.next()? {
            'g' => Motion::FirstLine,
            _ => return Err(Not::Ever),
        },
        '{' => Motion::ParagraphBack,
        '}' => Motion::Paragraph,
        'f' => Motion::Find(Find { letter: letters.next()?, back: false, till: false }),
        'F' => Motion::Find(Find { letter: letters.next()?, back: true, till: false }),
        't' => Motion::Find(Find { letter: letters.next()?, back: false, till: true }),
        'T' => Motion::Find(Find { letter: letters.next()?, back: true, till: true }),
        ';' => Motion::FindAgain { turned: false },
        ',' => Motion::FindAgain { turned: true },
        _ => return Err(Not::Ever),
    })
}

fn object(letters: &mut Letters, around: bool) -> Result<Object, Not> {
    let kind = letters.next()?;
    Object::named(kind, around).ok_or(Not::Ever)
}
