//! Decoders for the escapes of JSON, URLs and HTML.
//!
//! A model or a program can write `\u0073k-…`, `%73k-…` or `&#115;k-…` for `sk-…`. Any program that decodes
//! the text then has the key.

use crate::layer::{DecodedLayer, DecodedUnit, ParsedEscape};

/// The longest HTML escape: `&#x`, the digits of the largest character with two leading zeros, `;`.
const MAX_ENTITY_BYTES: usize = 12;

/// Named HTML characters that may occur in keys.
const NAMED_ENTITIES: [(&[u8], char); 6] =
    [(b"amp;", '&'), (b"lt;", '<'), (b"gt;", '>'), (b"quot;", '"'), (b"apos;", '\''), (b"sol;", '/')];

/// Decodes JSON escapes, and the `\xHH` escapes of many programming languages.
pub(crate) fn unescape_json(raw: &[u8], last: bool) -> DecodedLayer {
    let next = |from: usize| memchr::memchr(b'\\', raw.get(from..)?).map(|at| from + at);
    DecodedLayer::decode(raw, last, next, |at| parse_json_escape(raw.get(at..).unwrap_or_default()))
}

/// Decodes the percent escapes of URLs.
pub(crate) fn unescape_percent(raw: &[u8], last: bool) -> DecodedLayer {
    let next = |from: usize| memchr::memchr(b'%', raw.get(from..)?).map(|at| from + at);
    DecodedLayer::decode(raw, last, next, |at| parse_percent_escape(raw.get(at..).unwrap_or_default()))
}

/// Decodes the character references of HTML.
pub(crate) fn unescape_html(raw: &[u8], last: bool) -> DecodedLayer {
    let next = |from: usize| memchr::memchr(b'&', raw.get(from..)?).map(|at| from + at);
    DecodedLayer::decode(raw, last, next, |at| parse_html_entity(raw.get(at..).unwrap_or_default()))
}

/// Parses the escape at the start of `text`, which begins with a backslash. A decoded character never starts
/// another escape: `\\u0073` is a backslash followed by `u0073`.
fn parse_json_escape(text: &[u8]) -> ParsedEscape {
    let Some(kind) = text.get(1) else { return ParsedEscape::Incomplete };
    let letter = match kind {
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return parse_hex_escape(text, 4),
        b'x' => return parse_hex_escape(text, 2),
        _ => return ParsedEscape::Literal,
    };
    ParsedEscape::Escape(2, DecodedUnit::Char(letter))
}

/// Parses `\uXXXX` and `\xXX`. A lone surrogate becomes an unreadable character, because no key contains one.
fn parse_hex_escape(text: &[u8], wanted: usize) -> ParsedEscape {
    let digits = text.get(2..).unwrap_or_default();
    match parse_hex_digits(digits, wanted) {
        Ok(code) if wanted == 2 => {
            ParsedEscape::Escape(4, DecodedUnit::Byte(u8::try_from(code).unwrap_or_default()))
        }
        Ok(code) => {
            let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            ParsedEscape::Escape(2 + wanted, DecodedUnit::Char(letter))
        }
        Err(undecided) => undecided,
    }
}

/// Parses `%XX`.
fn parse_percent_escape(text: &[u8]) -> ParsedEscape {
    match parse_hex_digits(text.get(1..).unwrap_or_default(), 2) {
        Ok(code) => ParsedEscape::Escape(3, DecodedUnit::Byte(u8::try_from(code).unwrap_or_default())),
        Err(undecided) => undecided,
    }
}

/// Parses a number of exactly `wanted` hexadecimal digits.
fn parse_hex_digits(text: &[u8], wanted: usize) -> Result<u32, ParsedEscape> {
    let digits = text.iter().take(wanted).map_while(|byte| char::from(*byte).to_digit(16));
    let (count, code) = digits.fold((0, 0), |(count, code), digit| (count + 1, code * 16 + digit));
    match count {
        count if count == wanted => Ok(code),
        count if count == text.len() => Err(ParsedEscape::Incomplete),
        _ => Err(ParsedEscape::Literal),
    }
}

/// Parses `&#115;`, `&#x73;` and `&amp;`.
fn parse_html_entity(text: &[u8]) -> ParsedEscape {
    let rest = text.get(1..).unwrap_or_default();
    if rest.first().is_some_and(|byte| *byte != b'#') {
        let named = NAMED_ENTITIES.iter().find(|(name, _)| rest.starts_with(name));
        return match named {
            Some((name, letter)) => ParsedEscape::Escape(1 + name.len(), DecodedUnit::Char(*letter)),
            None if NAMED_ENTITIES.iter().any(|(name, _)| name.starts_with(rest)) => ParsedEscape::Incomplete,
            None => ParsedEscape::Literal,
        };
    }
    let (radix, from) = match rest.get(1) {
        Some(b'x' | b'X') => (16, 2),
        _ => (10, 1),
    };
    let digits = rest.get(from..).unwrap_or_default();
    let room = MAX_ENTITY_BYTES - 2 - from;
    let count = digits.iter().take(room).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    match digits.get(count) {
        None if count < room => ParsedEscape::Incomplete,
        Some(b';') if count > 0 => {
            let code = digits.iter().take(count).fold(0_u32, |code, byte| {
                let digit = char::from(*byte).to_digit(radix).unwrap_or_default();
                code.saturating_mul(radix).saturating_add(digit)
            });
            match char::from_u32(code) {
                Some(letter) => ParsedEscape::Escape(1 + from + count + 1, DecodedUnit::Char(letter)),
                None => ParsedEscape::Literal,
            }
        }
        _ => ParsedEscape::Literal,
    }
}
