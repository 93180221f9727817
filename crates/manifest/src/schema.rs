//! The JSON Schema of `config.toml`, made from the table of keys.

use serde_json::{Map, Value, json};

use crate::names;
use crate::resolve::default_of;

/// What a `config.toml` may hold.
pub fn schema() -> Value {
    let mut root = section();
    for key in names::keys() {
        let mut schema = (key.schema)();
        schema["description"] = key.sentence().into();
        if let Some(default) = default_of(key) {
            schema["default"] = default;
        }
        let mut here = &mut root;
        let (tables, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        for table in tables.split('.') {
            here = here["properties"]
                .as_object_mut()
                .expect("a section has properties")
                .entry(table)
                .or_insert_with(section);
        }
        here["properties"][name] = schema;
    }
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "config.toml of Minke",
    });
    let Value::Object(mut whole) = head else { return root };
    whole.extend(root.as_object().cloned().unwrap_or_default());
    Value::Object(whole)
}

fn section() -> Value {
    json!({ "type": "object", "properties": Map::new(), "additionalProperties": false })
}
