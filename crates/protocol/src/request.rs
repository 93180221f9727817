//! A request: one line of a client, with the method it names and the id it wants the answer under.
//!
//! Here: reading one, and saying what is wrong with it in words that name the field. Elsewhere: lines (`codec`).
//! Invariant: no line panics, and a line that is no request says why (`hostile_lines_are_refused`).

use std::fmt;

use minke_record::ErrorCode;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::Refusal;
use crate::id::Id;
use crate::limits::{QUOTE_CHARS, REFUSAL_BYTES};
use crate::method::Method;

/// One line of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: Option<Id>,
    pub method: Method,
}

/// A line that is no request, with the id to refuse it under, if one could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct BadRequest {
    pub id: Option<Id>,
    pub refusal: Refusal,
}

impl Request {
    pub fn new(method: Method) -> Request {
        Request { id: None, method }
    }

    /// Reads a line, given without its newline.
    pub fn parse(line: &str) -> Result<Request, BadRequest> {
        let bad = |id: Option<Id>, message: String| {
            Err(BadRequest { id, refusal: Refusal::new(ErrorCode::InvalidRequest, cut(message)) })
        };
        // A struct would also be read from an array; a line is an object.
        if !line.trim_start().starts_with('{') {
            return bad(None, format!("the line is not a JSON object: it begins with `{}`", quote(line)));
        }
        let envelope: Envelope<'_> = match serde_json::from_str(line) {
            Ok(envelope) => envelope,
            Err(e) => return bad(None, format!("the line is not a JSON object with a `method`: {e}")),
        };
        let id = match envelope.id.map(|raw| Id::from_json(raw.get())) {
            Some(Err(why)) => return bad(None, why),
            Some(Ok(id)) => Some(id),
            None => None,
        };
        let Some(name) = envelope.method else {
            return bad(id, "`method` is missing: write {\"method\":\"…\",\"params\":{…}}".to_owned());
        };
        let Ok(name) = serde_json::from_str::<String>(name.get()) else {
            return bad(id, "`method` is not a text".to_owned());
        };
        match Method::read(&name, envelope.params) {
            Ok(method) => Ok(Request { id, method }),
            Err(BadParams(why)) => bad(id, why),
        }
    }

    /// The line that says it, newline included. Params that say nothing are left out, as older pods expect.
    pub fn line(&self) -> String {
        let mut line =
            serde_json::to_string(&self.method).expect("writing plain data to memory does not fail");
        line.pop();
        // Only the params of the method itself can stand right before the last brace.
        if let Some(short) = line.strip_suffix(",\"params\":{}") {
            line.truncate(short.len());
        }
        if let Some(id) = &self.id {
            line.push_str(",\"id\":");
            line.push_str(id.json());
        }
        line.push_str("}\n");
        line
    }
}

/// `null` counts as absent, for each of the three.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

/// What is wrong with a method's name or params.
#[derive(Debug)]
pub(crate) struct BadParams(String);

impl BadParams {
    pub(crate) fn new(why: impl Into<String>) -> BadParams {
        BadParams(why.into())
    }

    pub(crate) fn field(name: &str, why: impl fmt::Display) -> BadParams {
        BadParams(format!("params.{name}: {why}"))
    }

    pub(crate) fn unknown_method(name: &str) -> BadParams {
        BadParams(format!("`method`: `{}` is none of {}", quote(name), Method::NAMES.join(", ")))
    }
}

/// A client's own words in a message for a person: their beginning.
pub(crate) fn quote(text: &str) -> String {
    text.chars().take(QUOTE_CHARS).collect()
}

/// A message that quotes a client at length is cut.
fn cut(mut message: String) -> String {
    if message.len() > REFUSAL_BYTES {
        message.truncate(message.floor_char_boundary(REFUSAL_BYTES));
        message.push('…');
    }
    message
}

/// Reads params; absent, `null` and `{}` are the same. An error names the field that it is in.
pub(crate) fn read_params<T: for<'de> Deserialize<'de>>(params: Option<&RawValue>) -> Result<T, BadParams> {
    struct Params<'a, T>(&'a mut String, std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Params<'_, T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(Named { map, at: self.0 }))
        }
    }
    let text = params.map_or("{}", RawValue::get);
    let mut at = String::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_map(Params(&mut at, std::marker::PhantomData));
    read.map_err(|e| {
        let why = without_place(&e.to_string());
        let at = if at.is_empty() { culprit::<T>(text) } else { Some(at) };
        match at {
            Some(name) => BadParams::field(&quote(&name), why),
            None => BadParams(format!("params: {why}")),
        }
    })
}

/// The field behind an error of a tagged shape, whose members are read only when all of them have come: the one
/// without which the error is another. A field that is missing names itself.
fn culprit<T: for<'de> Deserialize<'de>>(text: &str) -> Option<String> {
    const TRIED_FIELDS: usize = 16;
    let error = |members: serde_json::Map<String, Value>| {
        T::deserialize(Value::Object(members)).err().map(|e| e.to_string())
    };
    let members: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let why = error(members.clone());
    if members.len() > TRIED_FIELDS || why.as_ref().is_some_and(|why| why.starts_with("missing field")) {
        return None;
    }
    let matters = |name: &&String| {
        let mut without = members.clone();
        without.remove(*name);
        error(without) != why
    };
    // The tag changes every error; it is to blame only if nothing else is.
    members.keys().filter(|name| *name != "kind").find(matters).cloned()
}

/// The place that serde_json adds counts from the beginning of the params, not of the line: it would mislead.
fn without_place(message: &str) -> String {
    message.rfind(" at line ").and_then(|at| message.get(..at)).unwrap_or(message).to_owned()
}

/// The members of an object, remembering the name of the one that is being read.
struct Named<'a, A> {
    map: A,
    at: &'a mut String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.at.clear();
        let Some(name) = self.map.next_key::<std::borrow::Cow<'de, str>>()? else {
            return Ok(None);
        };
        self.at.push_str(&name);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
