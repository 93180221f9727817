//! A client's own name for a method: echoed as it came, never understood.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::ID_BYTES;

/// The `id` of a method: the JSON text of a string or a number, as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// An id from a plain text.
    pub fn new(text: &str) -> Id {
        Id(serde_json::Value::from(text).to_string().into())
    }

    /// An id from a number, which is what a client that counts needs.
    pub fn number(number: u64) -> Id {
        Id(number.to_string().into())
    }

    /// The JSON text, as it came.
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Reads an id from its JSON text. `Err` says why it is none.
    pub(crate) fn from_json(json: &str) -> Result<Id, String> {
        if json.len() > ID_BYTES {
            return Err(format!("`id` has {} bytes; use at most {ID_BYTES}", json.len()));
        }
        match json.as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9') => Ok(Id(json.into())),
            _ => Err("`id` is neither a string nor a number".to_owned()),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Id::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Id {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Id".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number"] })
    }
}
