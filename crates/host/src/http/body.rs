//! Reads the body of a request: within its limits, and as JSON without duplicate members.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum size of a request body.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// How long a client may take to send it.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the body could not be read.
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    Broken,
}

pub(crate) async fn read_body(body: Body, timeout: Duration) -> Result<Vec<u8>, BodyError> {
    let Ok(read) = tokio::time::timeout(timeout, axum::body::to_bytes(body, BODY_BYTES)).await else {
        return Err(BodyError::TooSlow);
    };
    read.map(Into::into).map_err(|error| {
        let limit =
            std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("limit"));
        if limit { BodyError::TooLarge } else { BodyError::Broken }
    })
}

/// Parses JSON and refuses duplicate members: parsers disagree on which one counts.
pub fn parse_strict_json(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = StrictJson.deserialize(&mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(value)
}

struct StrictJson;

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(StrictJson)? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                let shown_name: String = name.chars().take(64).collect();
                return Err(serde::de::Error::custom(format!("duplicate member `{shown_name}`")));
            }
            let value = members.next_value_seed(StrictJson)?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}
