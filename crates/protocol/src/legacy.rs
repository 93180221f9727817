//! Older forms with their own shapes: items with the tag `type`, in the answer to `get_history`.
//!
//! Other older forms are parsed with their successors: `run.input` as a string (`method`), `notification`,
//! and a `tool_result` without summary (`event`).

use minke_record::Item;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An item in the older form of `history`, with the tag `type` instead of `kind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryItem(pub Item);

impl Serialize for HistoryItem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(&self.0).map_err(serde::ser::Error::custom)?;
        rename_tag(&mut value, "kind", "type");
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HistoryItem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        rename_tag(&mut value, "type", "kind");
        serde_json::from_value(value).map(HistoryItem).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HistoryItem {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HistoryItem".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": { "type": { "type": "string" } },
            "required": ["type"],
        })
    }
}

/// Renames the tag of an item and of its content parts, and preserves the order of members.
fn rename_tag(item: &mut Value, from: &str, to: &str) {
    let Value::Object(members) = item else { return };
    *members = std::mem::take(members)
        .into_iter()
        .map(|(name, mut value)| {
            if name == "content"
                && let Value::Array(parts) = &mut value
            {
                parts.iter_mut().for_each(|part| rename_tag(part, from, to));
            }
            (if name == from { to.to_owned() } else { name }, value)
        })
        .collect();
}
