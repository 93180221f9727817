//! What a text holds for the eye alone: colours and other sequences of a terminal, and the line breaks of long encoded
//! lines. `grep --color=always` writes them into the middle of a value.

use crate::layer::{Layer, Meaning, Parsed};

/// A sequence is not longer than this; real ones are far shorter.
const SEQUENCE_BYTES: usize = 32;
/// Between two letters there is at most so much of it. The bound keeps what a stream holds back small.
const GAP_BYTES: usize = 64;
/// A line of at least so many letters of base64 or hex goes on in the next one: MIME breaks after 76, PEM after 64.
pub(crate) const WRAPPED_LINE: usize = 60;

/// As it reads to the eye. `before`: so many letters of an encoded line precede the text.
pub(crate) fn without_unseen(raw: &[u8], last: bool, before: usize) -> Layer {
    let find = |from: usize| memchr::memchr3(0x1b, b'\n', b'\r', raw.get(from..)?).map(|at| from + at);
    let find_control = |from: usize| memchr::memchr(0xc2, raw.get(from..)?).map(|at| from + at);
    // Each of the two is looked for once between two places where it is.
    let (mut other, mut control) = (find(0), find_control(0));
    let next = move |from: usize| {
        if other.is_some_and(|at| at < from) {
            other = find(from);
        }
        if control.is_some_and(|at| at < from) {
            control = find_control(from);
        }
        other.into_iter().chain(control).min()
    };
    // Where the unit before this one ended, and how long the gap is so far.
    let (mut gap_end, mut gap) = (usize::MAX, 0);
    Layer::of(raw, last, next, move |at| {
        let (text, line) = (raw.get(at..).unwrap_or_default(), raw.get(..at).unwrap_or_default());
        let parsed = match text.first() {
            Some(b'\n' | b'\r') if is_wrapped(line, before) => line_break(text),
            Some(b'\n' | b'\r') => Parsed::Plain,
            _ => sequence(text),
        };
        let Parsed::Unit(length, _) = parsed else { return parsed };
        gap = if gap_end == at { gap + length } else { length };
        gap_end = at + length;
        if gap > GAP_BYTES { Parsed::Plain } else { parsed }
    })
}

/// How many letters of an encoded line this text ends with, those before it included.
pub(crate) fn encoded_tail(text: &[u8], before: usize) -> usize {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=\\".contains(byte);
    let count = text.iter().rev().take(WRAPPED_LINE).take_while(|byte| is_letter(byte)).count();
    if count == text.len() { (count + before).min(WRAPPED_LINE) } else { count }
}

fn is_wrapped(line: &[u8], before: usize) -> bool {
    encoded_tail(line, before) >= WRAPPED_LINE
}

/// The end of a line and the indentation of the next.
fn line_break(text: &[u8]) -> Parsed {
    let end = match text {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Parsed::Open,
        _ => return Parsed::Plain,
    };
    let indentation = text.iter().skip(end).take(GAP_BYTES / 4);
    let length = end + indentation.take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Parsed::Unit(length, Meaning::Nothing)
}

/// A sequence of ECMA-48 that begins here: `ESC [ … m` and its relatives, the form with U+009B, `ESC ( B`.
fn sequence(text: &[u8]) -> Parsed {
    let (head, is_control) = match (text.first(), text.get(1)) {
        (Some(0x1b), Some(b'[')) | (Some(0xc2), Some(0x9b)) => (2, true),
        (Some(0x1b), Some(b' '..=b'/')) => (1, false),
        (Some(0x1b | 0xc2), None) => return Parsed::Open,
        _ => return Parsed::Plain,
    };
    let rest = text.get(head..).unwrap_or_default().iter().take(SEQUENCE_BYTES);
    let middle = |byte: &u8| matches!(byte, b' '..=b'/') || (is_control && matches!(byte, b'0'..=b'?'));
    let count = rest.clone().take_while(|byte| middle(byte)).count();
    match text.get(head + count) {
        _ if count == SEQUENCE_BYTES => Parsed::Plain,
        None => Parsed::Open,
        Some(b'@'..=b'~') => Parsed::Unit(head + count + 1, Meaning::Nothing),
        Some(b'0'..=b'?') if !is_control => Parsed::Unit(head + count + 1, Meaning::Nothing),
        Some(_) => Parsed::Plain,
    }
}
