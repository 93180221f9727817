//! The escapes that a reader of JSON, of addresses and of HTML undoes.
//!
//! Anybody can write `\u0073k-…`, `%73k-…` or `&#115;k-…` for `sk-…`; a program that decodes it has the key.

use crate::layer::{Layer, Meaning, Parsed};

/// The longest escape of HTML: `&#x`, the digits of the last character with two zeros more, `;`.
const ENTITY_BYTES: usize = 12;

/// Named characters of HTML that keys may hold.
const NAMED: [(&[u8], char); 6] =
    [(b"amp;", '&'), (b"lt;", '<'), (b"gt;", '>'), (b"quot;", '"'), (b"apos;", '\''), (b"sol;", '/')];

/// As it reads without the escapes of JSON, and without the `\xHH` of many languages.
pub(crate) fn without_json(raw: &[u8], last: bool) -> Layer {
    let next = |from: usize| memchr::memchr(b'\\', raw.get(from..)?).map(|at| from + at);
    Layer::of(raw, last, next, |at| json(raw.get(at..).unwrap_or_default()))
}

/// As it reads without the escapes of addresses.
pub(crate) fn without_percent(raw: &[u8], last: bool) -> Layer {
    let next = |from: usize| memchr::memchr(b'%', raw.get(from..)?).map(|at| from + at);
    Layer::of(raw, last, next, |at| percent(raw.get(at..).unwrap_or_default()))
}

/// As it reads without the escapes of HTML.
pub(crate) fn without_html(raw: &[u8], last: bool) -> Layer {
    let next = |from: usize| memchr::memchr(b'&', raw.get(from..)?).map(|at| from + at);
    Layer::of(raw, last, next, |at| entity(raw.get(at..).unwrap_or_default()))
}

/// The escape at the beginning of this text, which begins with a backslash. What an escape means never begins in the
/// middle of another: `\\u0073` is a backslash and `u0073`.
fn json(text: &[u8]) -> Parsed {
    let Some(kind) = text.get(1) else { return Parsed::Open };
    let letter = match kind {
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return digits(text, 4),
        b'x' => return digits(text, 2),
        _ => return Parsed::Plain,
    };
    Parsed::Unit(2, Meaning::Letter(letter))
}

/// `\uXXXX` and `\xXX`. Half a pair is shown as unreadable: no key is made of such letters.
fn digits(text: &[u8], wanted: usize) -> Parsed {
    let digits = text.get(2..).unwrap_or_default();
    match hexadecimal(digits, wanted) {
        Ok(code) if wanted == 2 => Parsed::Unit(4, Meaning::Byte(u8::try_from(code).unwrap_or_default())),
        Ok(code) => {
            let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            Parsed::Unit(2 + wanted, Meaning::Letter(letter))
        }
        Err(undecided) => undecided,
    }
}

/// `%XX`.
fn percent(text: &[u8]) -> Parsed {
    match hexadecimal(text.get(1..).unwrap_or_default(), 2) {
        Ok(code) => Parsed::Unit(3, Meaning::Byte(u8::try_from(code).unwrap_or_default())),
        Err(undecided) => undecided,
    }
}

/// The number that exactly so many digits write.
fn hexadecimal(text: &[u8], wanted: usize) -> Result<u32, Parsed> {
    let digits = text.iter().take(wanted).map_while(|byte| char::from(*byte).to_digit(16));
    let (count, code) = digits.fold((0, 0), |(count, code), digit| (count + 1, code * 16 + digit));
    match count {
        count if count == wanted => Ok(code),
        count if count == text.len() => Err(Parsed::Open),
        _ => Err(Parsed::Plain),
    }
}

/// `&#115;`, `&#x73;`, `&amp;`.
fn entity(text: &[u8]) -> Parsed {
    let rest = text.get(1..).unwrap_or_default();
    if rest.first().is_some_and(|byte| *byte != b'#') {
        let named = NAMED.iter().find(|(name, _)| rest.starts_with(name));
        return match named {
            Some((name, letter)) => Parsed::Unit(1 + name.len(), Meaning::Letter(*letter)),
            None if NAMED.iter().any(|(name, _)| name.starts_with(rest)) => Parsed::Open,
            None => Parsed::Plain,
        };
    }
    let (radix, from) = match rest.get(1) {
        Some(b'x' | b'X') => (16, 2),
        _ => (10, 1),
    };
    let digits = rest.get(from..).unwrap_or_default();
    let room = ENTITY_BYTES - 2 - from;
    let count = digits.iter().take(room).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    match digits.get(count) {
        None if count < room => Parsed::Open,
        Some(b';') if count > 0 => {
            let code = digits.iter().take(count).fold(0_u32, |code, byte| {
                let digit = char::from(*byte).to_digit(radix).unwrap_or_default();
                code.saturating_mul(radix).saturating_add(digit)
            });
            match char::from_u32(code) {
                Some(letter) => Parsed::Unit(1 + from + count + 1, Meaning::Letter(letter)),
                None => Parsed::Plain,
            }
        }
        _ => Parsed::Plain,
    }
}
