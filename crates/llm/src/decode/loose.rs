//! Loose values: fields that providers of one scheme write in different types.
//!
//! Read straight from the event's text, without a tree in between where the usual type comes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value};
use serde_json::Value;

/// Usually a text, sometimes nothing, seldom something else, which is boxed so that events stay small.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Loose<'a> {
    #[default]
    Null,
    Text(Cow<'a, str>),
    Other(Box<Value>),
}

impl<'a> Loose<'a> {
    /// The text, if it is one and not empty.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Loose::Text(text) if !text.is_empty() => Some(text),
            Loose::Null | Loose::Text(_) | Loose::Other(_) => None,
        }
    }

    /// The text as it is, anything else as JSON, nothing as nothing.
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            Loose::Null => Cow::Borrowed(""),
            Loose::Text(text) => text,
            Loose::Other(value) => Cow::Owned(value.to_string()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_string<E>(self, text: String) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Owned(text)))
    }
    fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
        Ok(Loose::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Loose<'de>, A::Error> {
        Value::deserialize(value::SeqAccessDeserializer::new(seq)).map(|value| Loose::Other(Box::new(value)))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loose<'de>, A::Error> {
        Value::deserialize(value::MapAccessDeserializer::new(map)).map(|value| Loose::Other(Box::new(value)))
    }
}

/// A number of tokens. Whatever is none counts as not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    fn visit_u64<E>(self, value: u64) -> Result<Count, E> {
        Ok(Count(Some(value)))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(value).ok()))
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of tokens that some server wrote as a float; `as` saturates"
    )]
    fn visit_f64<E>(self, value: f64) -> Result<Count, E> {
        Ok(Count((value.is_finite() && value >= 0.0).then_some(value as u64)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Count, E> {
        Ok(Count(text.parse().ok()))
    }
    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
}

/// An object of a known shape, boxed because few events have one and all are moved about. Whatever is none counts as not
/// there.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) Option<Box<T>>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Object(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(value::MapAccessDeserializer::new(map)).map(|value| Object(Some(Box::new(value))))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Object<T>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Object(None))
    }
    fn visit_str<E>(self, _: &str) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
    fn visit_unit<E>(self) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
    fn visit_u64<E>(self, _: u64) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Object<T>, E> {
        Ok(Object(None))
    }
}

/// Follows the brackets of a JSON text that comes in pieces, to know when it is whole.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Nesting {
    depth: u32,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl Nesting {
    pub(super) fn push(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ => {}
            }
            self.begun = true;
        }
    }

    /// Nothing but blanks has come.
    pub(super) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// Everything that was opened is closed.
    pub(super) fn is_whole(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_values_take_what_comes() {
        let read = |text| serde_json::from_str::<Loose<'_>>(text).unwrap();
        assert!(matches!(read(r#""plain""#), Loose::Text(Cow::Borrowed("plain"))));
        assert!(matches!(read(r#""\u0061""#), Loose::Text(Cow::Owned(_))));
        assert_eq!(read("null"), Loose::Null);
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
            assert_eq!(serde_json::from_str::<Count>(text).unwrap().0, count, "{text}");
        }
    }

    #[test]
    fn an_object_is_one_or_not_there() {
        for (text, there) in
            [(r#"{"a":1}"#, true), ("[1]", false), ("7", false), ("null", false), ("\"x\"", false)]
        {
            let read: Object<std::collections::BTreeMap<String, u8>> = serde_json::from_str(text).unwrap();
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
            let mut nesting = Nesting::default();
            pieces.iter().for_each(|piece| nesting.push(piece));
            assert_eq!(nesting.is_whole(), whole, "{pieces:?}");
        }
    }
}
