//! The body of a request: read whole within its bounds, as JSON in which every member stands once.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What a request may bring.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// How long a client may take to bring it.
pub(crate) const BODY_WAIT: Duration = Duration::from_secs(30);

/// Why there is no body.
pub(crate) enum NoBody {
    TooLarge,
    TooSlow,
    Broken,
}

pub(crate) async fn read(body: Body, patience: Duration) -> Result<Vec<u8>, NoBody> {
    let Ok(read) = tokio::time::timeout(patience, axum::body::to_bytes(body, BODY_BYTES)).await else {
        return Err(NoBody::TooSlow);
    };
    read.map(Into::into).map_err(|error| {
        let limit =
            std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("limit"));
        if limit { NoBody::TooLarge } else { NoBody::Broken }
    })
}

/// Reads JSON and refuses a member that stands twice: readers do not agree on which one counts.
pub fn strict_json(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
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
        while let Some(value) = seq.next_element_seed(Strict)? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(serde::de::Error::custom(format!("the member `{shown}` stands twice")));
            }
            let value = members.next_value_seed(Strict)?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}
