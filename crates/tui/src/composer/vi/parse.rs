//! Parses commands of normal mode from the typed keys: complete, incomplete or invalid.

use super::motions::{CharFind, Motion};
use super::text_objects::TextObject;

/// Limit for the keys of a command; longer counts are useless.
const MAX_COMMAND_CHARS: usize = 12;
/// The largest count.
const MAX_COUNT: usize = 9_999;
/// The character that terminals send for Ctrl-R.
pub(super) const REDO_KEY: char = '\u{12}';

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViOperator {
    Delete,
    Change,
    Yank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperatorTarget {
    Motion(Motion),
    Object(TextObject),
    /// The line, as in `dd`.
    Lines,
}

/// The start of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InsertPosition {
    AtCursor,
    AfterCursor,
    LineStart,
    LineEnd,
    Below,
    Above,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViAction {
    Move(Motion),
    Operate(ViOperator, OperatorTarget),
    Insert(InsertPosition),
    Replace(char),
    ToggleCase,
    Join,
    Paste {
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
    // Only in visual mode.
    OnSelection(ViOperator, LineMode),
    SelectObject(TextObject),
    SwapEnds,
}

/// Whether an operator applies to complete lines of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineMode {
    AsSelected,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ViCommand {
    pub(super) parse_count: Option<usize>,
    pub(super) action: ViAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandParse {
    Complete(ViCommand),
    /// More keys are needed.
    Incomplete,
    Invalid,
}

/// Parses the typed keys; `selecting` in visual mode.
pub(super) fn parse_keys(typed: &str, selecting: bool) -> CommandParse {
    if typed.chars().count() > MAX_COMMAND_CHARS {
        return CommandParse::Invalid;
    }
    let mut letters = LetterReader { rest: typed.chars().collect(), at: 0 };
    match parse_command(&mut letters, selecting) {
        Ok(command) => CommandParse::Complete(command),
        Err(ParseFailure::Incomplete) => CommandParse::Incomplete,
        Err(ParseFailure::Invalid) => CommandParse::Invalid,
    }
}

/// Returns the command without its count, which `.` may replace.
pub(super) fn strip_count(typed: &str) -> &str {
    if typed.starts_with('0') {
        typed
    } else {
        typed.trim_start_matches(|letter: char| letter.is_ascii_digit())
    }
}

enum ParseFailure {
    Incomplete,
    Invalid,
}

struct LetterReader {
    rest: Vec<char>,
    at: usize,
}

impl LetterReader {
    fn next(&mut self) -> Result<char, ParseFailure> {
        let letter = self.rest.get(self.at).copied().ok_or(ParseFailure::Incomplete)?;
        self.at += 1;
        Ok(letter)
    }

    /// A leading zero is a motion.
    fn parse_count(&mut self) -> Option<usize> {
        let mut count = None;
        while let Some(digit) = self.rest.get(self.at).and_then(|letter| letter.to_digit(10)) {
            if count.is_none() && digit == 0 {
                break;
            }
            let digit = usize::try_from(digit).unwrap_or(0);
            count = Some((count.unwrap_or(0) * 10 + digit).min(MAX_COUNT));
            self.at += 1;
        }
        count
    }
}

fn parse_command(letters: &mut LetterReader, selecting: bool) -> Result<ViCommand, ParseFailure> {
    let mut parse_count = letters.parse_count();
    let letter = letters.next()?;
    if let Some(operator) = parse_operator(letter).filter(|_| !selecting) {
        // `2d3w` deletes six words.
        let second = letters.parse_count();
        if let Some(second) = second {
            parse_count = Some((parse_count.unwrap_or(1) * second).min(MAX_COUNT));
        }
        let target = match letters.next()? {
            same if same == letter => OperatorTarget::Lines,
            'i' => OperatorTarget::Object(parse_text_object(letters, false)?),
            'a' => OperatorTarget::Object(parse_text_object(letters, true)?),
            other => OperatorTarget::Motion(parse_motion(other, letters)?),
        };
        return Ok(ViCommand { parse_count, action: ViAction::Operate(operator, target) });
    }
    let action = if selecting {
        parse_visual_command(letter, letters)?
    } else {
        parse_simple_command(letter, letters)?
    };
    Ok(ViCommand { parse_count, action })
}

fn parse_operator(letter: char) -> Option<ViOperator> {
    match letter {
        'd' => Some(ViOperator::Delete),
        'c' => Some(ViOperator::Change),
        'y' => Some(ViOperator::Yank),
        _ => None,
    }
}

fn parse_simple_command(letter: char, letters: &mut LetterReader) -> Result<ViAction, ParseFailure> {
    let operate = |operator, motion| ViAction::Operate(operator, OperatorTarget::Motion(motion));
    Ok(match letter {
        'x' => operate(ViOperator::Delete, Motion::Right),
        'X' => operate(ViOperator::Delete, Motion::Left),
        'D' => operate(ViOperator::Delete, Motion::LineEnd),
        'C' => operate(ViOperator::Change, Motion::LineEnd),
        's' => operate(ViOperator::Change, Motion::Right),
        'S' => ViAction::Operate(ViOperator::Change, OperatorTarget::Lines),
        'Y' => ViAction::Operate(ViOperator::Yank, OperatorTarget::Lines),
        'i' => ViAction::Insert(InsertPosition::AtCursor),
        'a' => ViAction::Insert(InsertPosition::AfterCursor),
        'I' => ViAction::Insert(InsertPosition::LineStart),
        'A' => ViAction::Insert(InsertPosition::LineEnd),
        'o' => ViAction::Insert(InsertPosition::Below),
        'O' => ViAction::Insert(InsertPosition::Above),
        'r' => ViAction::Replace(letters.next()?),
        '~' => ViAction::ToggleCase,
        'J' => ViAction::Join,
        'p' => ViAction::Paste { before: false },
        'P' => ViAction::Paste { before: true },
        'u' => ViAction::Undo,
        REDO_KEY => ViAction::Redo,
        '.' => ViAction::Repeat,
        'v' => ViAction::Select { lines: false },
        'V' => ViAction::Select { lines: true },
        '/' => ViAction::Slash,
        other => ViAction::Move(parse_motion(other, letters)?),
    })
}

fn parse_visual_command(letter: char, letters: &mut LetterReader) -> Result<ViAction, ParseFailure> {
    Ok(match letter {
        'd' | 'x' => ViAction::OnSelection(ViOperator::Delete, LineMode::AsSelected),
        'c' | 's' => ViAction::OnSelection(ViOperator::Change, LineMode::AsSelected),
        'y' => ViAction::OnSelection(ViOperator::Yank, LineMode::AsSelected),
        'D' | 'X' => ViAction::OnSelection(ViOperator::Delete, LineMode::Whole),
        'C' | 'S' | 'R' => ViAction::OnSelection(ViOperator::Change, LineMode::Whole),
        'Y' => ViAction::OnSelection(ViOperator::Yank, LineMode::Whole),
        'r' => ViAction::Replace(letters.next()?),
        '~' => ViAction::ToggleCase,
        'J' => ViAction::Join,
        'p' | 'P' => ViAction::Paste { before: false },
        'o' => ViAction::SwapEnds,
        'v' => ViAction::Select { lines: false },
        'V' => ViAction::Select { lines: true },
        'i' => ViAction::SelectObject(parse_text_object(letters, false)?),
        'a' => ViAction::SelectObject(parse_text_object(letters, true)?),
        other => ViAction::Move(parse_motion(other, letters)?),
    })
}

fn parse_motion(letter: char, letters: &mut LetterReader) -> Result<Motion, ParseFailure> {
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
            _ => return Err(ParseFailure::Invalid),
        },
        '{' => Motion::ParagraphBack,
        '}' => Motion::Paragraph,
        'f' => Motion::Find(CharFind { letter: letters.next()?, backward: false, is_till: false }),
        'F' => Motion::Find(CharFind { letter: letters.next()?, backward: true, is_till: false }),
        't' => Motion::Find(CharFind { letter: letters.next()?, backward: false, is_till: true }),
        'T' => Motion::Find(CharFind { letter: letters.next()?, backward: true, is_till: true }),
        ';' => Motion::RepeatFind { reversed: false },
        ',' => Motion::RepeatFind { reversed: true },
        _ => return Err(ParseFailure::Invalid),
    })
}

fn parse_text_object(
    letters: &mut LetterReader,
    with_surroundings: bool,
) -> Result<TextObject, ParseFailure> {
    let kind = letters.next()?;
    TextObject::from_letter(kind, with_surroundings).ok_or(ParseFailure::Invalid)
}
