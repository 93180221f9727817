//! `scope`: the paths that a pod may read and write.
//!
//! Elsewhere: evaluation of the rules (`policy::scope`), canonical paths (`sources`, `registry`), the
//! effective scope of a session (`cli::create`; for a child its loan).

use minke_record::{Permission, ScopeRule};
use serde_json::{Value, json};

use crate::form::{Field, Form, ListForm, Refused, TextForm, typed};
use crate::key::section;

section! {
    /// The paths that a pod may read and write.
    ScopeSection at "scope" {
        /// Readable or writable paths; without a rule the workspace is writable.
        allow: Vec<ScopeRule> = Vec::new(), ListForm<ScopeForm>, Concatenate, Nothing, true;
        /// Denied paths: a denied `read` removes all access, a denied `write` leaves read access.
        deny: Vec<ScopeRule> = Vec::new(), ListForm<ScopeForm>, Concatenate, Add, true;
    }
    besides {}
}

impl ScopeSection {
    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

impl Field for Vec<ScopeRule> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// One rule.
pub(crate) struct ScopeForm;

impl ScopeForm {
    const KEYS: [&'static str; 3] = ["target", "permission", "recursive"];
}

impl Form for ScopeForm {
    fn word() -> String {
        "a rule such as { target = \"../notes\", permission = \"read\" }".to_owned()
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "target": TextForm::schema(),
                "permission": { "enum": ["read", "write"] },
                "recursive": { "type": "boolean", "default": true },
            },
            "required": ["target", "permission"],
            "additionalProperties": false,
        })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let members = value.as_object().ok_or(None)?;
        if let Some(other) = members.keys().find(|key| !ScopeForm::KEYS.contains(&key.as_str())) {
            let keys = ScopeForm::KEYS.join(", ");
            return Err(Some(format!("it has `{}`: a rule has {keys}", other.escape_debug())));
        }
        TextForm::read(members.get("target").unwrap_or(&Value::Null))?;
        let read = typed::<ScopeRule>(value)?;
        let rule: ScopeRule = serde_json::from_value(read.clone()).map_err(|e| Some(e.to_string()))?;
        match rule.permission {
            Permission::Read | Permission::Write => Ok(read),
            Permission::Other(word) => {
                Err(Some(format!("its permission is `{word}`: expected `read` or `write`")))
            }
        }
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(Value::String(target)) = value.get_mut("target") else { return Ok(()) };
        each(target)
    }
}
