//! The JSON Schema of `config.toml`, generated from the table of keys.

use serde_json::{Map, Value, json};

use crate::key_names;
use crate::resolve::default_value;

/// Returns the schema.
pub fn config_schema() -> Value {
    let mut root = empty_section();
    for key in key_names::all_keys() {
        let mut schema = (key.schema)();
        schema["description"] = key.doc_sentence().into();
        if let Some(default) = default_value(key) {
            schema["default"] = default;
        }
        let mut here = &mut root;
        let (tables, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        for table in tables.split('.') {
            here = here["properties"]
                .as_object_mut()
                .expect("a section has properties")
                .entry(table)
                .or_insert_with(empty_section);
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

fn empty_section() -> Value {
    json!({ "type": "object", "properties": Map::new(), "additionalProperties": false })
}
