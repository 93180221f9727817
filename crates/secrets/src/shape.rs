//! What a key looks like that we do not know by value.
//!
//! Here: the shapes that the ecosystem's keys have. A text that has one is probably a key, so it is told or masked where
//! text leaves for strangers; it is no proof, so history keeps it. Elsewhere: values that we know (`redact`).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// Prefixes name firms, and code outside `llm` does not: they are data.
const TABLE: &str = include_str!("../data/shapes.txt");

/// A key begins so, and so many of these letters follow at least.
struct Shape {
    prefix: &'static str,
    least: usize,
    letters: Letters,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    Word,
    Dashed,
    Capital,
    Token,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Letters::Word => byte.is_ascii_alphanumeric(),
            Letters::Dashed => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Letters::Capital => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Letters::Token => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
        }
    }
}

/// The table, read once. A row that cannot be read would be missing: `every_row_of_the_table_is_read`.
fn shapes() -> &'static [Shape] {
    static SHAPES: OnceLock<Vec<Shape>> = OnceLock::new();
    let read = |line: &'static str| {
        let mut words = line.split_whitespace();
        let (prefix, least, letters) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        let letters = match letters {
            "word" => Letters::Word,
            "dashed" => Letters::Dashed,
            "capital" => Letters::Capital,
            "token" => Letters::Token,
            _ => return None,
        };
        Some(Shape { prefix, least, letters })
    };
    SHAPES.get_or_init(|| rows().filter_map(read).collect())
}

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// How the first key in a text begins, if there is one.
pub fn shape(text: &str) -> Option<&'static str> {
    next(text, 0).map(|(shape, _)| shape)
}

/// The text with `[key PREFIX…]` in the place of everything that looks like a key.
pub fn mask_shapes(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut shown = 0;
    while let Some((prefix, at)) = next(text, shown) {
        out.push_str(text.get(shown..at.start).unwrap_or_default());
        out.push_str(&format!("[key {prefix}…]"));
        shown = at.end;
    }
    if shown == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(shown..).unwrap_or_default());
    Cow::Owned(out)
}

/// The next key at or after this place.
fn next(text: &str, from: usize) -> Option<(&'static str, Range<usize>)> {
    let bytes = text.as_bytes();
    let shapes = shapes();
    let rest = |at: usize| bytes.get(at..).unwrap_or_default();
    (from..bytes.len()).find_map(|at| {
        // In the middle of a word no key begins.
        if at.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(u8::is_ascii_alphanumeric) {
            return None;
        }
        shapes.iter().find_map(|shape| {
            let body = rest(at).strip_prefix(shape.prefix.as_bytes())?;
            let length = body.iter().take_while(|byte| shape.letters.has(**byte)).count();
            let whole = at..at + shape.prefix.len() + length;
            let probable = length >= shape.least && is_random(text.get(whole.clone())?, shape);
            probable.then_some((shape.prefix, whole))
        })
    })
}

/// Long names made of words are not keys: these have digits. A token in three parts has a second one that is an object
/// too.
fn is_random(key: &str, shape: &Shape) -> bool {
    if shape.letters == Letters::Token {
        let parts: Vec<&str> = key.split('.').collect();
        return parts.len() == 3
            && parts.iter().take(2).all(|part| part.starts_with(shape.prefix))
            && parts.iter().all(|part| part.len() >= 10);
    }
    let body = key.strip_prefix(shape.prefix).unwrap_or(key);
    body.bytes().filter(u8::is_ascii_digit).count() >= 2
        && body.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up, of the ten families; the prefix apart, so that no scanner takes them for somebody's.
    const KEYS: [(&str, &str); 10] = [
        ("sk-ant-", "api03-Zq8kT2vXw9LmN4pR7sB1cD5fG6hJ0kQ3-AbCdEfAA"),
        ("sk-", "proj-9xYzQ2w8E4rT6yU1iO3pA5sD7fG0hJ2kL4zX6cV8bN1m"),
        ("sk-or-v1-", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        ("AIza", "SyD3m0K3yTh4tIsN0tR3al1234567890abc"),
        ("xai-", "7Hq2Lm9Xv4Bn6Zc8Kd1Pf3Rt5Wy0Us2Ag4Je6Ih8No1Mq3"),
        ("gsk_", "2Wn4Qe6Rt8Yu0Io1Pa3Sd5Fg7Hj9Kl2Zx4Cv6Bn8Mq"),
        ("ghp_", "1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8"),
        ("AKIA", "Q3EGR7XW2LKJ5T4B"),
        ("hf_", "QwErTyUiOpAsDfGhJkLzXcVbNm123456"),
        ("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLW5vdC1yZWFs"),
    ];

    #[test]
    fn keys_are_known_by_their_shape_wherever_they_stand() {
        for (prefix, body) in KEYS {
            let key = &format!("{prefix}{body}");
            for text in [
                key.to_owned(),
                format!("Bearer {key}"),
                format!("é{{\"k\":\"{key}\"}}"),
                format!("k={key};"),
            ] {
                assert_eq!(shape(&text), Some(prefix), "{text}");
                let masked = mask_shapes(&text);
                assert_eq!(masked, text.replace(key, &format!("[key {prefix}…]")));
                assert_eq!(shape(&masked), None, "{masked}");
            }
        }
        let all: Vec<String> = KEYS.iter().map(|(prefix, body)| format!("{prefix}{body}")).collect();
        assert_eq!(mask_shapes(&all.join(" ")).matches("[key ").count(), 10);
    }

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(shapes().len(), rows().count());
        assert_eq!(shapes().len(), 14);
    }

    #[test]
    fn ordinary_text_has_none() {
        for text in [
            "",
            "sk-ant-…",
            "the prefix sk-proj- is followed by letters",
            "sk-this-is-a-long-class-name-of-a-style-sheet-and-no-key",
            "task-0123456789abcdef0123456789abcdef0123",
            "AKIAMARAMARAMARAMARA",
            "eyJhbGciOiJIUzI1NiJ9.notanobject.c2lnbmF0dXJl",
            "0194f8a2-7c6e-7d3a-9b1f-2e4d6c8a0b1c 5d41402abc4b2a76b9719d911017c592",
            "日本語 ghp_ äöü",
        ] {
            assert_eq!(shape(text), None, "{text}");
            assert_eq!(mask_shapes(text), text);
        }
    }
}
