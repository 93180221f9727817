//! Patterns of unknown keys.
//!
//! Here: the patterns of the keys of common services. A text that matches one is probably a key, so it is
//! reported, or masked where text leaves the machine. A match is no proof, so the log keeps the text.
//! Elsewhere: known values (`redact`). Invariant: every row of the table finds its key anywhere in a text
//! (`keys_are_known_by_their_shape_wherever_they_stand`), and ordinary files contain no match
//! (`ordinary_files_have_none`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// The prefixes name companies, which only the code of `llm` does. Here they are data.
const PATTERNS_TEXT: &str = include_str!("../data/shapes.txt");
/// The most characters between the name of a setting and its value.
const MAX_SEPARATOR_CHARS: usize = 12;
/// Number of digits before the separator of a numbered key.
const NUMBER_PREFIX_DIGITS: std::ops::RangeInclusive<usize> = 6..=12;
/// The longest user name and the longest password in a URL.
const MAX_LOGIN_BYTES: usize = 200;
/// A shorter password in a URL is probably an example.
const MIN_PASSWORD_BYTES: usize = 8;
/// How far to search for the end of a block.
const MAX_BLOCK_BYTES: usize = 16 * 1024;
/// A block with less content is probably an example.
const MIN_BLOCK_BYTES: usize = 64;
const MAX_BLOCK_NAME_BYTES: usize = 40;

/// One row of the table: the prefix of a key and the rule for the rest.
struct KeyPattern {
    kind: &'static str,
    prefix: &'static str,
    min_len: usize,
    max_len: usize,
    char_class: KeyCharClass,
    rule: KeyRule,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyCharClass {
    Alphanumeric,
    WithDashes,
    Base64,
    Hex,
    Uppercase,
    WithDots,
    WithSlashes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyRule {
    Mixed,
    Unchecked,
    JsonWebToken,
    DottedParts,
    NumberPrefixed,
    NameInContext,
    UrlPassword,
    PemBlock,
}

impl KeyCharClass {
    fn contains(self, byte: u8) -> bool {
        match self {
            KeyCharClass::Alphanumeric => byte.is_ascii_alphanumeric(),
            KeyCharClass::WithDashes => byte.is_ascii_alphanumeric() || b"-_".contains(&byte),
            KeyCharClass::Base64 => byte.is_ascii_alphanumeric() || b"+/=".contains(&byte),
            KeyCharClass::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            KeyCharClass::Uppercase => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            KeyCharClass::WithDots => byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
            KeyCharClass::WithSlashes => byte.is_ascii_alphanumeric() || b"-_/".contains(&byte),
        }
    }
}

/// A text that looks like a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMatch {
    /// The kind of key in one word, usually with the name of the service.
    pub kind: &'static str,
    /// The byte range of the key.
    pub range: Range<usize>,
    /// The prefix, if it alone reveals nothing.
    prefix: &'static str,
}

/// The table and the matcher for its prefixes.
struct PatternTable {
    patterns: Vec<KeyPattern>,
    prefix_matcher: AhoCorasick,
    /// For each pattern: itself and the patterns whose prefix is a prefix of its own, the longest first.
    same_prefix: Vec<Vec<usize>>,
}

/// Returns the table, which is parsed once. `every_row_of_the_table_is_read` detects an invalid row.
fn pattern_table() -> &'static PatternTable {
    static PARSED: OnceLock<PatternTable> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut patterns: Vec<KeyPattern> = table_rows().filter_map(parse_row).collect();
        patterns.sort_by_key(|shape| std::cmp::Reverse(shape.prefix.len()));
        let prefix_matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(patterns.iter().map(|shape| shape.prefix))
            .expect("a hundred short words fit into an automaton");
        let alike = |of: &KeyPattern| {
            let fits = |other: &KeyPattern| of.prefix.starts_with(other.prefix);
            (0..patterns.len()).filter(|at| patterns.get(*at).is_some_and(fits)).collect()
        };
        let same_prefix = patterns.iter().map(alike).collect();
        PatternTable { patterns, prefix_matcher, same_prefix }
    })
}

fn parse_row(line: &'static str) -> Option<KeyPattern> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [kind, prefix, least, most, letters, holds] = words.as_slice() else { return None };
    let char_class = match *letters {
        "word" => KeyCharClass::Alphanumeric,
        "dashed" => KeyCharClass::WithDashes,
        "base64" => KeyCharClass::Base64,
        "hex" => KeyCharClass::Hex,
        "capital" => KeyCharClass::Uppercase,
        "dotted" => KeyCharClass::WithDots,
        "path" => KeyCharClass::WithSlashes,
        _ => return None,
    };
    let rule = match *holds {
        "mixed" => KeyRule::Mixed,
        "one" => KeyRule::Unchecked,
        "token" => KeyRule::JsonWebToken,
        "parts" => KeyRule::DottedParts,
        "numbered" => KeyRule::NumberPrefixed,
        "named" => KeyRule::NameInContext,
        "login" => KeyRule::UrlPassword,
        "block" => KeyRule::PemBlock,
        _ => return None,
    };
    Some(KeyPattern {
        kind,
        prefix,
        min_len: least.parse().ok()?,
        max_len: most.parse().ok()?,
        char_class,
        rule,
    })
}

fn table_rows() -> impl Iterator<Item = &'static str> {
    PATTERNS_TEXT.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Returns every kind of key that has a pattern.
pub fn known_kinds() -> BTreeSet<&'static str> {
    pattern_table().patterns.iter().map(|shape| shape.kind).collect()
}

/// Returns the kind of the first key in a text.
pub fn first_kind_in(text: &str) -> Option<&'static str> {
    next_key(text.as_bytes(), 0).map(|shaped| shaped.kind)
}

/// Returns the kinds of all keys in these bytes.
pub fn kinds_in(bytes: &[u8]) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    let mut from = 0;
    while let Some(found) = next_key(bytes, from) {
        kinds.insert(found.kind);
        from = found.range.end;
    }
    kinds
}

/// Returns every text that looks like a key, in order.
pub fn find_keys(text: &str) -> impl Iterator<Item = KeyMatch> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = next_key(text.as_bytes(), from)?;
        from = found.range.end;
        Some(found)
    })
}

/// Replaces everything that looks like a key by `[key …]`.
pub fn mask_keys(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut shown = 0;
    for KeyMatch { kind, range, prefix } in find_keys(text) {
        out.push_str(text.get(shown..range.start).unwrap_or_default());
        if prefix.is_empty() {
            out.push_str(&format!("[key {kind}]"));
        } else {
            out.push_str(&format!("[key {prefix}…]"));
        }
        shown = range.end;
    }
    if shown == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(shown..).unwrap_or_default());
    Cow::Owned(out)
}

/// Returns the next key at or after `from`.
fn next_key(text: &[u8], mut from: usize) -> Option<KeyMatch> {
    let table = pattern_table();
    while let Some(begin) = table.prefix_matcher.find(Input::new(text).range(from..)) {
        let at = begin.start();
        let fitting = table.same_prefix.get(begin.pattern().as_usize()).into_iter().flatten();
        let shaped = fitting.filter_map(|shape| table.patterns.get(*shape)?.match_at(text, at)).next();
        if shaped.is_some() {
            return shaped;
        }
        from = at + 1;
    }
    None
}

impl KeyPattern {
    /// Returns the key of this pattern that starts at `at`.
    fn match_at(&self, text: &[u8], at: usize) -> Option<KeyMatch> {
        let body = at + self.prefix.len();
        let (range, prefix) = match self.rule {
            KeyRule::UrlPassword => (match_url_password(text, body)?, ""),
            KeyRule::PemBlock => (match_pem_block(text, at, body)?, ""),
            KeyRule::NumberPrefixed => {
                let number = text.get(..at)?.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
                let run = self.match_body(text, body)?;
                let key = text.get(run.clone())?;
                let fits = NUMBER_PREFIX_DIGITS.contains(&number)
                    && is_key_start(text, at - number)
                    && has_letters_and_digits(key, 1);
                (fits.then_some(at - number..run.end)?, "")
            }
            KeyRule::NameInContext => {
                let sign = |byte: &&u8| b" \t\"'=:>\\,".contains(byte);
                let signs = text.get(body..)?.iter().take(MAX_SEPARATOR_CHARS).take_while(sign).count();
                let run = self.match_body(text, body + signs)?;
                ((signs > 0 && has_letters_and_digits(text.get(run.clone())?, 1)).then_some(run)?, "")
            }
            KeyRule::Mixed | KeyRule::Unchecked | KeyRule::JsonWebToken | KeyRule::DottedParts => {
                let run = is_key_start(text, at).then(|| self.match_body(text, body)).flatten()?;
                let key = text.get(run.clone())?;
                let fits = match self.rule {
                    KeyRule::JsonWebToken => self.is_json_web_token(text.get(at..run.end)?),
                    KeyRule::DottedParts => count_parts(key) == 2 && has_letters_and_digits(key, 2),
                    KeyRule::Unchecked => has_letters_and_digits(key, 1),
                    _ => has_letters_and_digits(key, 2),
                };
                (fits.then_some(at..run.end)?, self.prefix)
            }
        };
        Some(KeyMatch { kind: self.kind, range, prefix })
    }

    /// Returns the range of the characters after the prefix if their number is valid.
    fn match_body(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let rest = text.get(from..)?;
        let mut length =
            rest.iter().take(self.max_len + 1).take_while(|byte| self.char_class.contains(**byte)).count();
        // A key may be followed by the full stop of a sentence.
        while self.char_class == KeyCharClass::WithDots && length > 0 && rest.get(length - 1) == Some(&b'.') {
            length -= 1;
        }
        (self.min_len..=self.max_len).contains(&length).then_some(from..from + length)
    }

    /// Returns whether the key has three parts and the second one is a JSON object too.
    fn is_json_web_token(&self, key: &[u8]) -> bool {
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b'.').collect();
        parts.len() == 3
            && parts.iter().take(2).all(|part| part.starts_with(self.prefix.as_bytes()))
            && parts.iter().all(|part| part.len() >= 10)
    }
}

fn count_parts(key: &[u8]) -> usize {
    key.split(|byte| *byte == b'.').filter(|part| part.len() >= 10).count()
}

/// Returns whether a key may start at `at`: not inside a word, but after an escaped line break.
fn is_key_start(text: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| text.get(at)).copied();
    match before(1) {
        Some(b'n' | b'r' | b't') => before(2) == Some(b'\\'),
        other => !other.is_some_and(|byte| KeyCharClass::WithDashes.contains(byte)),
    }
}

/// Returns whether the key contains letters and digits. Long names made of words do not.
fn has_letters_and_digits(key: &[u8], digits: usize) -> bool {
    key.iter().filter(|byte| byte.is_ascii_digit()).count() >= digits
        && key.iter().any(u8::is_ascii_alphabetic)
}

/// Matches the password in a URL: `name:password@host`. A plain word or a placeholder is an example and does
/// not match.
fn match_url_password(text: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let fits = |byte: &&u8| byte.is_ascii_graphic() && !b"/@\"'`<>{}$\\()[]|,".contains(byte);
    let length = rest.iter().take(2 * MAX_LOGIN_BYTES).take_while(fits).count();
    let (login, end) = (rest.get(..length)?, rest.get(length));
    let colon = login.iter().position(|byte| *byte == b':')?;
    let password = login.get(colon + 1..)?;
    let letter = password.iter().any(u8::is_ascii_alphabetic);
    let other = password.iter().any(|byte| !byte.is_ascii_lowercase() && !byte.is_ascii_uppercase());
    let named = login.get(..colon)? == password;
    let host = rest.get(length + 1).is_some_and(u8::is_ascii_alphanumeric);
    let fits =
        end == Some(&b'@') && password.len() >= MIN_PASSWORD_BYTES && letter && other && !named && host;
    fits.then_some(from + colon + 1..from + length)
}

/// Matches the lines of a private key block from its start to its end, or as far as the text goes.
fn match_pem_block(text: &[u8], at: usize, from: usize) -> Option<Range<usize>> {
    const NAME: &[u8] = b"PRIVATE KEY";
    const DASHES: &[u8] = b"-----";
    let rest = text.get(from..)?;
    let name = memchr::memmem::find(rest.get(..MAX_BLOCK_NAME_BYTES.min(rest.len()))?, DASHES)?;
    memchr::memmem::find(rest.get(..name)?, NAME)?;
    let body = rest.get(name + DASHES.len()..)?;
    let body = body.get(..MAX_BLOCK_BYTES.min(body.len()))?;
    let fits = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/= \t\r\n\\:,.-".contains(byte);
    let length = memchr::memmem::find(body, b"-----END").unwrap_or(body.len());
    let lines = body.get(..length)?.iter().take_while(fits).count();
    let whole = lines == length && length < body.len();
    let letters = body.get(..lines)?.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    if letters < MIN_BLOCK_BYTES || !has_letters_and_digits(body.get(..lines)?, 2) {
        return None;
    }
    let begun = from + name + DASHES.len() + lines;
    let behind = text.get(begun + DASHES.len()..).unwrap_or_default();
    let tail = memchr::memmem::find(behind.get(..MAX_BLOCK_NAME_BYTES.min(behind.len()))?, DASHES);
    let end = tail.filter(|_| whole).map_or(begun, |tail| begun + 2 * DASHES.len() + tail);
    Some(at..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(pattern_table().patterns.len(), table_rows().count());
        assert!(known_kinds().len() >= 40, "{}", known_kinds().len());
    }
}
