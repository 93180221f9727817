//! Lenient values: fields with different types at different providers of one scheme.
//!
//! The usual type is parsed directly from the text of the event, without an intermediate tree.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value};
use serde_json::Value;

/// Usually a text, sometimes null, rarely another value, which is boxed to keep events small.
#[derive(Debug, Default, PartialEq)]
pub(super) enum LenientText<'a> {
    #[default]
    Null,
    Text(Cow<'a, str>),
    Other(Box<Value>),
}

impl<'a> LenientText<'a> {
    /// Returns the text if it is one and not empty.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            LenientText::Text(text) if !text.is_empty() => Some(text),
            LenientText::Null | LenientText::Text(_) | LenientText::Other(_) => None,
        }
    }

    /// Returns a text as it is, any other value as JSON, and null as an empty text.
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            LenientText::Null => Cow::Borrowed(""),
            LenientText::Text(text) => text,
            LenientText::Other(value) => Cow::Owned(value.to_string()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LenientText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientTextVisitor)
    }
}

struct LenientTextVisitor;

impl<'de> Visitor<'de> for LenientTextVisitor {
    type Value = LenientText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_string<E>(self, text: String) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Text(Cow::Owned(text)))
    }
    fn visit_unit<E>(self) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Other(Box::new(value.into())))
    }
    fn visit_u64<E>(self, value: u64) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Other(Box::new(value.into())))
    }
    fn visit_i64<E>(self, value: i64) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Other(Box::new(value.into())))
    }
    fn visit_f64<E>(self, value: f64) -> Result<LenientText<'de>, E> {
        Ok(LenientText::Other(Box::new(value.into())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<LenientText<'de>, A::Error> {
        Value::deserialize(value::SeqAccessDeserializer::new(seq))
            .map(|value| LenientText::Other(Box::new(value)))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientText<'de>, A::Error> {
        Value::deserialize(value::MapAccessDeserializer::new(map))
            .map(|value| LenientText::Other(Box::new(value)))
    }
}

/// A number of tokens. Any other value counts as absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LenientCount(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for LenientCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientCountVisitor)
    }
}

struct LenientCountVisitor;

impl<'de> Visitor<'de> for LenientCountVisitor {
    type Value = LenientCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    fn visit_u64<E>(self, value: u64) -> Result<LenientCount, E> {
        Ok(LenientCount(Some(value)))
    }
    fn visit_i64<E>(self, value: i64) -> Result<LenientCount, E> {
        Ok(LenientCount(u64::try_from(value).ok()))
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an integer number of tokens that some servers write as a float; `as` saturates"
    )]
    fn visit_f64<E>(self, value: f64) -> Result<LenientCount, E> {
        Ok(LenientCount((value.is_finite() && value >= 0.0).then_some(value as u64)))
    }
    fn visit_str<E>(self, text: &str) -> Result<LenientCount, E> {
        Ok(LenientCount(text.parse().ok()))
    }
    fn visit_unit<E>(self) -> Result<LenientCount, E> {
        Ok(LenientCount(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<LenientCount, E> {
        Ok(LenientCount(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientCount, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LenientCount(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LenientCount, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(LenientCount(None))
    }
}

/// An object of a known type, boxed because few events contain one. Any other value counts as absent.
#[derive(Debug)]
pub(super) struct LenientObject<T>(pub(super) Option<Box<T>>);

impl<T> Default for LenientObject<T> {
    fn default() -> Self {
        LenientObject(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientObjectVisitor(PhantomData))
    }
}

struct LenientObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LenientObjectVisitor<T> {
    type Value = LenientObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientObject<T>, A::Error> {
        T::deserialize(value::MapAccessDeserializer::new(map))
            .map(|value| LenientObject(Some(Box::new(value))))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientObject<T>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LenientObject(None))
    }
    fn visit_str<E>(self, _: &str) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
    fn visit_unit<E>(self) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
    fn visit_u64<E>(self, _: u64) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
    fn visit_i64<E>(self, _: i64) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
    fn visit_f64<E>(self, _: f64) -> Result<LenientObject<T>, E> {
        Ok(LenientObject(None))
    }
}

/// Tracks the brackets of a JSON text that arrives in pieces, to detect its end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JsonNesting {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    has_begun: bool,
}

impl JsonNesting {
    pub(super) fn push(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ => {}
            }
            self.has_begun = true;
        }
    }

    /// Returns whether only white space has arrived.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_begun
    }

    /// Returns whether all brackets are closed.
    pub(super) fn is_complete(&self) -> bool {
        self.has_begun && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_values_take_what_comes() {
        let read = |text| serde_json::from_str::<LenientText<'_>>(text).unwrap();
        assert!(matches!(read(r#""plain""#), LenientText::Text(Cow::Borrowed("plain"))));
        assert!(matches!(read(r#""\u0061""#), LenientText::Text(Cow::Owned(_))));
        assert_eq!(read("null"), LenientText::Null);
        assert_eq!(read(r#"{"b":[1,-2,0.5,true]}"#).into_text(), r#"{"b":[1,-2,0.5,true]}"#);
        for (text, count) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            (r#""12""#, Some(12)),
            ("-1", None),
            ("null", None),
            ("true", None),
            (r#"{"a":[1]}"#, None),
            ("[1,[2]]", None),
        ] {
            assert_eq!(serde_json::from_str::<LenientCount>(text).unwrap().0, count, "{text}");
        }
    }

    #[test]
    fn an_object_is_one_or_not_there() {
        for (text, there) in
            [(r#"{"a":1}"#, true), ("[1]", false), ("7", false), ("null", false), ("\"x\"", false)]
        {
            let read: LenientObject<std::collections::BTreeMap<String, u8>> =
                serde_json::from_str(text).unwrap();
            assert_eq!(read.0.is_some(), there, "{text}");
        }
    }

    #[test]
    fn a_text_is_whole_when_all_is_closed() {
        for (pieces, whole) in [
            (&["{", "\"a\": \"}\\\"", "]\"", "}"][..], true),
            (&["{\"a\": \"}"][..], false),
            (&["[{}", "]"][..], true),
            (&[" "][..], false),
            (&["{}"][..], true),
        ] {
            let mut nesting = JsonNesting::default();
            pieces.iter().for_each(|piece| nesting.push(piece));
            assert_eq!(nesting.is_complete(), whole, "{pieces:?}");
        }
    }
}
