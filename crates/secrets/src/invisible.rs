//! Removes text that is invisible to the reader: colours and other terminal sequences, and the line breaks of
//! long encoded lines. `grep --color=always` inserts such sequences into the middle of a value.

use crate::layer::{DecodedLayer, DecodedUnit, ParsedEscape};

/// The longest accepted sequence. Real ones are far shorter.
const MAX_SEQUENCE_BYTES: usize = 32;
/// The most invisible bytes between two characters of a value. The limit keeps the pending text of a stream
/// small.
const MAX_GAP_BYTES: usize = 64;
/// A line with at least this number of base64 or hex characters continues on the next one. MIME wraps after
/// 76 characters, PEM after 64.
pub(crate) const MIN_WRAPPED_LINE: usize = 60;

/// Removes invisible text. `before` is the number of characters of an encoded line that precede the text.
pub(crate) fn strip_invisible(raw: &[u8], last: bool, before: usize) -> DecodedLayer {
    let find = |from: usize| memchr::memchr3(0x1b, b'\n', b'\r', raw.get(from..)?).map(|at| from + at);
    let find_control = |from: usize| memchr::memchr(0xc2, raw.get(from..)?).map(|at| from + at);
    // Each of the two is searched for only once between two matches.
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
    // The end of the previous span, and the length of the gap so far.
    let (mut gap_end, mut gap) = (usize::MAX, 0);
    DecodedLayer::decode(raw, last, next, move |at| {
        let (text, line) = (raw.get(at..).unwrap_or_default(), raw.get(..at).unwrap_or_default());
        let parsed = match text.first() {
            Some(b'\n' | b'\r') if is_wrapped_line(line, before) => parse_line_break(text),
            Some(b'\n' | b'\r') => ParsedEscape::Literal,
            _ => parse_escape_sequence(text),
        };
        let ParsedEscape::Escape(length, _) = parsed else { return parsed };
        gap = if gap_end == at { gap + length } else { length };
        gap_end = at + length;
        if gap > MAX_GAP_BYTES { ParsedEscape::Literal } else { parsed }
    })
}

/// Returns the number of characters of an encoded line at the end of the text, including those before it.
pub(crate) fn encoded_tail_len(text: &[u8], before: usize) -> usize {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=\\".contains(byte);
    let count = text.iter().rev().take(MIN_WRAPPED_LINE).take_while(|byte| is_letter(byte)).count();
    if count == text.len() { (count + before).min(MIN_WRAPPED_LINE) } else { count }
}

fn is_wrapped_line(line: &[u8], before: usize) -> bool {
    encoded_tail_len(line, before) >= MIN_WRAPPED_LINE
}

/// Parses a line break and the indentation of the next line.
fn parse_line_break(text: &[u8]) -> ParsedEscape {
    let end = match text {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return ParsedEscape::Incomplete,
        _ => return ParsedEscape::Literal,
    };
    let indentation = text.iter().skip(end).take(MAX_GAP_BYTES / 4);
    let length = end + indentation.take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    ParsedEscape::Escape(length, DecodedUnit::Nothing)
}

/// Parses an ECMA-48 sequence: `ESC [ … m` and similar ones, the form with U+009B, `ESC ( B`.
fn parse_escape_sequence(text: &[u8]) -> ParsedEscape {
    let (head, is_control) = match (text.first(), text.get(1)) {
        (Some(0x1b), Some(b'[')) | (Some(0xc2), Some(0x9b)) => (2, true),
        (Some(0x1b), Some(b' '..=b'/')) => (1, false),
        (Some(0x1b | 0xc2), None) => return ParsedEscape::Incomplete,
        _ => return ParsedEscape::Literal,
    };
    let rest = text.get(head..).unwrap_or_default().iter().take(MAX_SEQUENCE_BYTES);
    let middle = |byte: &u8| matches!(byte, b' '..=b'/') || (is_control && matches!(byte, b'0'..=b'?'));
    let count = rest.clone().take_while(|byte| middle(byte)).count();
    match text.get(head + count) {
        _ if count == MAX_SEQUENCE_BYTES => ParsedEscape::Literal,
        None => ParsedEscape::Incomplete,
        Some(b'@'..=b'~') => ParsedEscape::Escape(head + count + 1, DecodedUnit::Nothing),
        Some(b'0'..=b'?') if !is_control => ParsedEscape::Escape(head + count + 1, DecodedUnit::Nothing),
        Some(_) => ParsedEscape::Literal,
    }
}
