//! Parses requests: one line of a client with a method and an optional id.
//!
//! Errors name the field. Elsewhere: lines (`codec`).
//! Invariant: parsing never panics, and an invalid line is refused with a reason
//! (`hostile_lines_are_refused`).

use std::fmt;

use minke_record::ErrorCode;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::Refusal;
use crate::id::RequestId;
use crate::limits::{QUOTE_CHARS, REFUSAL_BYTES};
use crate::method::Method;

/// One line of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientRequest {
    pub id: Option<RequestId>,
    pub method: Method,
}

/// An invalid line, with the id for the refusal if it could be parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestError {
    pub id: Option<RequestId>,
    pub refusal: Refusal,
}

impl ClientRequest {
    pub fn new(method: Method) -> ClientRequest {
        ClientRequest { id: None, method }
    }

    /// Parses a line without its newline.
    pub fn parse(line: &str) -> Result<ClientRequest, RequestError> {
        let bad = |id: Option<RequestId>, message: String| {
            Err(RequestError {
                id,
                refusal: Refusal::new(ErrorCode::InvalidRequest, truncate_message(message)),
            })
        };
        // Serde would also read a struct from an array, but a request must be an object.
        if !line.trim_start().starts_with('{') {
            return bad(
                None,
                format!("the line is not a JSON object: it begins with `{}`", quote_excerpt(line)),
            );
        }
        let envelope: RequestEnvelope<'_> = match serde_json::from_str(line) {
            Ok(envelope) => envelope,
            Err(e) => return bad(None, format!("the line is not a JSON object with a `method`: {e}")),
        };
        let id = match envelope.id.map(|raw| RequestId::from_json(raw.get())) {
            Some(Err(why)) => return bad(None, why),
            Some(Ok(id)) => Some(id),
            None => None,
        };
        let Some(name) = envelope.method else {
            return bad(id, "`method` is missing: write {\"method\":\"…\",\"params\":{…}}".to_owned());
        };
        let Ok(name) = serde_json::from_str::<String>(name.get()) else {
            return bad(id, "`method` is not a string".to_owned());
        };
        match Method::read(&name, envelope.params) {
            Ok(method) => Ok(ClientRequest { id, method }),
            Err(ParamsError(why)) => bad(id, why),
        }
    }

    /// Returns the line with its newline. Omits empty params, as older pods expect.
    pub fn to_line(&self) -> String {
        let mut line =
            serde_json::to_string(&self.method).expect("writing plain data to memory does not fail");
        line.pop();
        // Only the params of the method itself can precede the last brace.
        if let Some(short) = line.strip_suffix(",\"params\":{}") {
            line.truncate(short.len());
        }
        if let Some(id) = &self.id {
            line.push_str(",\"id\":");
            line.push_str(id.as_json());
        }
        line.push_str("}\n");
        line
    }
}

/// `null` counts as absent for all three fields.
#[derive(Deserialize)]
struct RequestEnvelope<'a> {
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

/// An invalid method name or invalid params.
#[derive(Debug)]
pub(crate) struct ParamsError(String);

impl ParamsError {
    pub(crate) fn new(why: impl Into<String>) -> ParamsError {
        ParamsError(why.into())
    }

    pub(crate) fn for_field(name: &str, why: impl fmt::Display) -> ParamsError {
        ParamsError(format!("params.{name}: {why}"))
    }

    pub(crate) fn unknown_method(name: &str) -> ParamsError {
        ParamsError(format!("`method`: `{}` is not one of {}", quote_excerpt(name), Method::NAMES.join(", ")))
    }
}

/// Returns the beginning of a client's text for an error message.
pub(crate) fn quote_excerpt(text: &str) -> String {
    text.chars().take(QUOTE_CHARS).collect()
}

/// Truncates a message that contains a long excerpt.
fn truncate_message(mut message: String) -> String {
    if message.len() > REFUSAL_BYTES {
        message.truncate(message.floor_char_boundary(REFUSAL_BYTES));
        message.push('…');
    }
    message
}

/// Parses params; absent, `null` and `{}` are equivalent. Errors name the field.
pub(crate) fn parse_params<T: for<'de> Deserialize<'de>>(
    params: Option<&RawValue>,
) -> Result<T, ParamsError> {
    struct ParamsVisitor<'a, T>(&'a mut String, std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for ParamsVisitor<'_, T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(TrackedMembers { map, current: self.0 }))
        }
    }
    let text = params.map_or("{}", RawValue::get);
    let mut at = String::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_map(ParamsVisitor(&mut at, std::marker::PhantomData));
    read.map_err(|e| {
        let why = strip_position(&e.to_string());
        let at = if at.is_empty() { find_bad_field::<T>(text) } else { Some(at) };
        match at {
            Some(name) => ParamsError::for_field(&quote_excerpt(&name), why),
            None => ParamsError(format!("params: {why}")),
        }
    })
}

/// Finds the field that causes an error in a tagged shape, whose members are parsed after all of them have
/// been read: the field without which the error differs. The error about a missing field names it already.
fn find_bad_field<T: for<'de> Deserialize<'de>>(text: &str) -> Option<String> {
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
    // The tag affects every error, so it is the cause only if no other field is.
    members.keys().filter(|name| *name != "kind").find(matters).cloned()
}

/// Removes serde_json's position, which counts from the start of the params instead of the line.
fn strip_position(message: &str) -> String {
    message.rfind(" at line ").and_then(|at| message.get(..at)).unwrap_or(message).to_owned()
}

/// The members of an object. Remembers the name of the current one.
struct TrackedMembers<'a, A> {
    map: A,
    current: &'a mut String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for TrackedMembers<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.current.clear();
        let Some(name) = self.map.next_key::<std::borrow::Cow<'de, str>>()? else {
            return Ok(None);
        };
        self.current.push_str(&name);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
