//! What a key looks like that we do not know by value.
//!
//! Here: the shapes that the ecosystem's keys have. A text that has one is probably a key, so it is told or masked where
//! text leaves for strangers; it is no proof, so history keeps it. Elsewhere: values that we know (`redact`).
//! Invariant: every row of the table finds its key wherever it stands (`keys_are_known_by_their_shape_wherever_they_stand`)
//! and ordinary files have none (`ordinary_files_have_none`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Prefixes name firms, and code outside `llm` does not: they are data.
const TABLE: &str = include_str!("../data/shapes.txt");
/// Between the name of a setting and its value stand no more signs than this.
const SIGNS: usize = 12;
/// Digits in front of a numbered key.
const NUMBER: std::ops::RangeInclusive<usize> = 6..=12;
/// The longest name, and the longest password, in an address.
const LOGIN_BYTES: usize = 200;
/// A shorter password is one of those that examples have.
const PASSWORD_MIN: usize = 8;
/// So much is looked through for the end of a block.
const BLOCK_BYTES: usize = 16 * 1024;
/// A block with less in it is one of those that examples have.
const BLOCK_MIN: usize = 64;
const BLOCK_NAME_BYTES: usize = 40;

/// One row: how a key begins, and what follows.
struct Shape {
    kind: &'static str,
    prefix: &'static str,
    least: usize,
    most: usize,
    letters: Letters,
    holds: Holds,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    Word,
    Dashed,
    Base64,
    Hex,
    Capital,
    Dotted,
    Path,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Mixed,
    One,
    Token,
    Parts,
    Numbered,
    Named,
    Login,
    Block,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Letters::Word => byte.is_ascii_alphanumeric(),
            Letters::Dashed => byte.is_ascii_alphanumeric() || b"-_".contains(&byte),
            Letters::Base64 => byte.is_ascii_alphanumeric() || b"+/=".contains(&byte),
            Letters::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Letters::Capital => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Letters::Dotted => byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
            Letters::Path => byte.is_ascii_alphanumeric() || b"-_/".contains(&byte),
        }
    }
}

/// Something that looks like a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shaped {
    /// Whose or what it is, in one word.
    pub kind: &'static str,
    /// Where it stands, in bytes.
    pub at: Range<usize>,
    /// How it begins, if that alone says nothing.
    begins: &'static str,
}

/// The table, and what finds its beginnings.
struct Table {
    shapes: Vec<Shape>,
    begins: AhoCorasick,
    /// For each shape: itself and those that begin the same and are shorter, the longest first.
    alike: Vec<Vec<usize>>,
}

/// The table, read once. A row that cannot be read would be missing: `every_row_of_the_table_is_read`.
fn table() -> &'static Table {
    static READ: OnceLock<Table> = OnceLock::new();
    READ.get_or_init(|| {
        let mut shapes: Vec<Shape> = rows().filter_map(row).collect();
        shapes.sort_by_key(|shape| std::cmp::Reverse(shape.prefix.len()));
        let begins = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(shapes.iter().map(|shape| shape.prefix))
            .expect("a hundred short words fit into an automaton");
        let alike = |of: &Shape| {
            let fits = |other: &Shape| of.prefix.starts_with(other.prefix);
            (0..shapes.len()).filter(|at| shapes.get(*at).is_some_and(fits)).collect()
        };
        let alike = shapes.iter().map(alike).collect();
        Table { shapes, begins, alike }
    })
}

fn row(line: &'static str) -> Option<Shape> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [kind, prefix, least, most, letters, holds] = words.as_slice() else { return None };
    let letters = match *letters {
        "word" => Letters::Word,
        "dashed" => Letters::Dashed,
        "base64" => Letters::Base64,
        "hex" => Letters::Hex,
        "capital" => Letters::Capital,
        "dotted" => Letters::Dotted,
        "path" => Letters::Path,
        _ => return None,
    };
    let holds = match *holds {
        "mixed" => Holds::Mixed,
        "one" => Holds::One,
        "token" => Holds::Token,
        "parts" => Holds::Parts,
        "numbered" => Holds::Numbered,
        "named" => Holds::Named,
        "login" => Holds::Login,
        "block" => Holds::Block,
        _ => return None,
    };
    Some(Shape { kind, prefix, least: least.parse().ok()?, most: most.parse().ok()?, letters, holds })
}

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Every kind of key that is known by its shape.
pub fn kinds() -> BTreeSet<&'static str> {
    table().shapes.iter().map(|shape| shape.kind).collect()
}

/// The kind of the first key in a text, if there is one.
pub fn shape(text: &str) -> Option<&'static str> {
    next(text.as_bytes(), 0).map(|shaped| shaped.kind)
}

/// The kinds of all keys in these bytes.
pub fn kinds_in(bytes: &[u8]) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    let mut from = 0;
    while let Some(found) = next(bytes, from) {
        kinds.insert(found.kind);
        from = found.at.end;
    }
    kinds
}

/// Everything in a text that looks like a key, in order.
pub fn shapes_in(text: &str) -> impl Iterator<Item = Shaped> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = next(text.as_bytes(), from)?;
        from = found.at.end;
        Some(found)
    })
}

/// The text with `[key …]` in the place of everything that looks like a key.
pub fn mask_shapes(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut shown = 0;
    for Shaped { kind, at, begins } in shapes_in(text) {
        out.push_str(text.get(shown..at.start).unwrap_or_default());
        if begins.is_empty() {
            out.push_str(&format!("[key {kind}]"));
        } else {
            out.push_str(&format!("[key {begins}…]"));
        }
        shown = at.end;
    }
    if shown == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(shown..).unwrap_or_default());
    Cow::Owned(out)
}

/// The next key at or after this place.
fn next(text: &[u8], mut from: usize) -> Option<Shaped> {
    let table = table();
    while let Some(begin) = table.begins.find(Input::new(text).range(from..)) {
        let at = begin.start();
        let fitting = table.alike.get(begin.pattern().as_usize()).into_iter().flatten();
        let shaped = fitting.filter_map(|shape| table.shapes.get(*shape)?.at(text, at)).next();
        if shaped.is_some() {
            return shaped;
        }
        from = at + 1;
    }
    None
}

impl Shape {
    /// The key of this shape that begins here, if there is one.
    fn at(&self, text: &[u8], at: usize) -> Option<Shaped> {
        let body = at + self.prefix.len();
        let (range, begins) = match self.holds {
            Holds::Login => (login(text, body)?, ""),
            Holds::Block => (block(text, at, body)?, ""),
            Holds::Numbered => {
                let number = text.get(..at)?.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
                let run = self.run(text, body)?;
                let key = text.get(run.clone())?;
                let fits = NUMBER.contains(&number) && begins_here(text, at - number) && mixed(key, 1);
                (fits.then_some(at - number..run.end)?, "")
            }
            Holds::Named => {
                let sign = |byte: &&u8| b" \t\"'=:>\\,".contains(byte);
                let signs = text.get(body..)?.iter().take(SIGNS).take_while(sign).count();
                let run = self.run(text, body + signs)?;
                ((signs > 0 && mixed(text.get(run.clone())?, 1)).then_some(run)?, "")
            }
            Holds::Mixed | Holds::One | Holds::Token | Holds::Parts => {
                let run = begins_here(text, at).then(|| self.run(text, body)).flatten()?;
                let key = text.get(run.clone())?;
                let fits = match self.holds {
                    Holds::Token => self.is_token(text.get(at..run.end)?),
                    Holds::Parts => parts(key) == 2 && mixed(key, 2),
                    Holds::One => mixed(key, 1),
                    _ => mixed(key, 2),
                };
                (fits.then_some(at..run.end)?, self.prefix)
            }
        };
        Some(Shaped { kind: self.kind, at: range, begins })
    }

    /// The letters that follow, if they are as many as they should be.
    fn run(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let rest = text.get(from..)?;
        let mut length = rest.iter().take(self.most + 1).take_while(|byte| self.letters.has(**byte)).count();
        // A sentence may end behind a key.
        while self.letters == Letters::Dotted && length > 0 && rest.get(length - 1) == Some(&b'.') {
            length -= 1;
        }
        (self.least..=self.most).contains(&length).then_some(from..from + length)
    }

    /// Three parts, of which the second is an object too.
    fn is_token(&self, key: &[u8]) -> bool {
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b'.').collect();
        parts.len() == 3
            && parts.iter().take(2).all(|part| part.starts_with(self.prefix.as_bytes()))
            && parts.iter().all(|part| part.len() >= 10)
    }
}

fn parts(key: &[u8]) -> usize {
    key.split(|byte| *byte == b'.').filter(|part| part.len() >= 10).count()
}

/// In the middle of a word no key begins; behind an escaped line break one may.
fn begins_here(text: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| text.get(at)).copied();
    match before(1) {
        Some(b'n' | b'r' | b't') => before(2) == Some(b'\\'),
        other => !other.is_some_and(|byte| Letters::Dashed.has(byte)),
    }
}

/// Long names made of words are not keys: these have digits and letters.
fn mixed(key: &[u8], digits: usize) -> bool {
    key.iter().filter(|byte| byte.is_ascii_digit()).count() >= digits
        && key.iter().any(u8::is_ascii_alphabetic)
}

/// The password in an address: `name:password@host`. One that is a word, or stands for one, is an example.
fn login(text: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let fits = |byte: &&u8| byte.is_ascii_graphic() && !b"/@\"'`<>{}$\\()[]|,".contains(byte);
    let length = rest.iter().take(2 * LOGIN_BYTES).take_while(fits).count();
    let (login, end) = (rest.get(..length)?, rest.get(length));
    let colon = login.iter().position(|byte| *byte == b':')?;
    let password = login.get(colon + 1..)?;
    let letter = password.iter().any(u8::is_ascii_alphabetic);
    let other = password.iter().any(|byte| !byte.is_ascii_lowercase() && !byte.is_ascii_uppercase());
    let named = login.get(..colon)? == password;
    let host = rest.get(length + 1).is_some_and(u8::is_ascii_alphanumeric);
    let fits = end == Some(&b'@') && password.len() >= PASSWORD_MIN && letter && other && !named && host;
    fits.then_some(from + colon + 1..from + length)
}

/// A block of lines that is a private key, from its beginning to its end or as far as it goes.
fn block(text: &[u8], at: usize, from: usize) -> Option<Range<usize>> {
    const NAME: &[u8] = b"PRIVATE KEY";
    const EDGE: &[u8] = b"-----";
    let rest = text.get(from..)?;
    let name = memchr::memmem::find(rest.get(..BLOCK_NAME_BYTES.min(rest.len()))?, EDGE)?;
    memchr::memmem::find(rest.get(..name)?, NAME)?;
    let body = rest.get(name + EDGE.len()..)?;
    let body = body.get(..BLOCK_BYTES.min(body.len()))?;
    let fits = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/= \t\r\n\\:,.-".contains(byte);
    let length = memchr::memmem::find(body, b"-----END").unwrap_or(body.len());
    let lines = body.get(..length)?.iter().take_while(fits).count();
    let whole = lines == length && length < body.len();
    let letters = body.get(..lines)?.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    if letters < BLOCK_MIN || !mixed(body.get(..lines)?, 2) {
        return None;
    }
    let begun = from + name + EDGE.len() + lines;
    let behind = text.get(begun + EDGE.len()..).unwrap_or_default();
    let tail = memchr::memmem::find(behind.get(..BLOCK_NAME_BYTES.min(behind.len()))?, EDGE);
    let end = tail.filter(|_| whole).map_or(begun, |tail| begun + 2 * EDGE.len() + tail);
    Some(at..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(table().shapes.len(), rows().count());
        assert!(kinds().len() >= 40, "{}", kinds().len());
    }
}
