//! The id that a client assigns to a method. Pods return it unchanged.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::ID_BYTES;

/// The `id` of a method: the JSON text of a string or a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Creates an id from a string.
    pub fn new(text: &str) -> RequestId {
        RequestId(serde_json::Value::from(text).to_string().into())
    }

    /// Creates an id from a number.
    pub fn from_number(number: u64) -> RequestId {
        RequestId(number.to_string().into())
    }

    /// Returns the JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Parses the JSON text of an id. `Err` contains the reason.
    pub(crate) fn from_json(json: &str) -> Result<RequestId, String> {
        if json.len() > ID_BYTES {
            return Err(format!("`id` has {} bytes; use at most {ID_BYTES}", json.len()));
        }
        match json.as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9') => Ok(RequestId(json.into())),
            _ => Err("`id` is neither a string nor a number".to_owned()),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        RequestId::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RequestId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Id".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number"] })
    }
}
