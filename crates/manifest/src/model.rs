//! `model`: which model is asked, and where.
//!
//! Here: the keys. Elsewhere: what they mean, and which words a wire format, a capability and a way to a key have (`llm`).

use serde_json::{Value, json};

use crate::form::{Form, List, Refused, Some1, Table, Text};
use crate::key::section;

section! {
    /// The model; what is absent comes from the catalog.
    ModelSection at "model" {
        /// `provider/model`, or `scripted:FILE`. Without any model a `run` is refused; the pod starts.
        reference = "ref": Option<String> = None, Reference, Override, Nothing, true;
        /// The wire format, if the catalog does not say or says another.
        scheme: Option<String> = None, Text, Override, Nothing, true;
        /// Where the provider is asked, if it is not its usual place.
        base_url: Option<String> = None, Text, Override, Nothing, true;
        /// The provider's own name of the model.
        model_id: Option<String> = None, Text, Override, Nothing, true;
        /// `"none"`, or a table `api_key` that says where the key is; never a key.
        auth: Option<Value> = None, Auth, Override, Nothing, true;
        /// What the model can do, where the catalog does not say.
        capability: Option<Value> = None, Table, Override, Nothing, true;
        /// Tokens that the model can read.
        context_window: Option<u64> = None, Some1, Override, Nothing, true;
        /// Tokens that it writes at most.
        max_output: Option<u64> = None, Some1, Override, Nothing, true;
        /// References of models that are asked in this order when the first one cannot be had any more.
        fallback: Vec<String> = Vec::new(), List<Reference>, Override, Nothing, true;
    }
    besides {}
}

/// A model by its reference.
pub(crate) struct Reference;

impl Reference {
    /// A script of the person's own follows.
    const SCRIPT: &'static str = "scripted:";
}

impl Form for Reference {
    fn word() -> String {
        "a model as provider/model, or scripted:FILE".to_owned()
    }

    fn schema() -> Value {
        Text::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        Text::read(value)
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(file) = value.as_str().and_then(|text| text.strip_prefix(Reference::SCRIPT)) else {
            return Ok(());
        };
        // A bare word may be the name of a built-in script.
        if !file.contains(['/', '.']) {
            return Ok(());
        }
        let mut file = file.to_owned();
        each(&mut file)?;
        *value = format!("{}{file}", Reference::SCRIPT).into();
        Ok(())
    }
}

/// Where the key is.
pub(crate) struct Auth;

impl Auth {
    const NONE: &'static str = "none";
    const API_KEY: &'static str = "api_key";
    const FILE: &'static str = "file";
}

impl Form for Auth {
    fn word() -> String {
        "\"none\", or a table { api_key = { env = …, file = … or keyring = … } }; never a key".to_owned()
    }

    fn schema() -> Value {
        let text = json!({ "type": "string" });
        let key = json!({
            "type": "object",
            "properties": { "env": text, "file": text, "keyring": text },
            "additionalProperties": false
        });
        let table =
            json!({ "type": "object", "properties": { "api_key": key }, "additionalProperties": false });
        json!({ "anyOf": [{ "enum": [Auth::NONE] }, table] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        match value {
            Value::String(word) if word == Auth::NONE => Ok(value.clone()),
            Value::Object(_) => Ok(value.clone()),
            _ => Err(None),
        }
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let file = value.get_mut(Auth::API_KEY).and_then(|key| key.get_mut(Auth::FILE));
        let Some(Value::String(file)) = file else { return Ok(()) };
        each(file)
    }
}
