//! The old names in entries of the release 0.1.0, so that they compare equal to the entries of this program.

use minke_record::compat::backend_name;
use serde_json::Value;

/// Renames the old fields of an entry: a `fence` with a letter is a `sandbox` with a name, and the layer
/// `fence` of a verdict is `sandbox`.
pub(crate) fn rename_old_fields(entry: &mut Value) {
    for path in ["", "/verdict", "/subject/verdict"] {
        let Some(Value::Object(fields)) = entry.pointer_mut(path) else { continue };
        if let Some(Value::String(letter)) = fields.remove("fence") {
            fields.insert("sandbox".to_owned(), Value::String(backend_name(&letter).to_owned()));
        }
        if let Some(Value::String(layer)) = fields.get_mut("layer")
            && layer == "fence"
        {
            *layer = "sandbox".to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_verdict_gets_the_new_names() {
        let mut ask = json!({ "kind": "ask", "subject": { "verdict": { "layer": "fence", "fence": "B" } } });
        rename_old_fields(&mut ask);
        let new =
            json!({ "kind": "ask", "subject": { "verdict": { "layer": "sandbox", "sandbox": "landlock" } } });
        assert_eq!(ask, new);
        let mut opened = json!({ "kind": "opened", "fence": "A" });
        rename_old_fields(&mut opened);
        assert_eq!(opened, json!({ "kind": "opened", "sandbox": "namespaces" }));
    }
}
