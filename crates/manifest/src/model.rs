//! `model`: the model and its provider.
//!
//! Elsewhere: the meaning of the values, wire formats, capabilities and key sources (`llm`).

use serde_json::{Value, json};

use crate::form::{Form, ListForm, PositiveCount, Refused, TableForm, TextForm};
use crate::key::section;

section! {
    /// The model; absent values come from the catalog.
    ModelSection at "model" {
        /// `provider/model`, or `scripted:FILE`. Without a model every `run` is refused; the pod starts.
        reference = "ref": Option<String> = None, ModelReferenceForm, Override, Nothing, true;
        /// The wire format, if the catalog has none or a different one.
        scheme: Option<String> = None, TextForm, Override, Nothing, true;
        /// The URL of the provider, if it differs from the default.
        base_url: Option<String> = None, TextForm, Override, Nothing, true;
        /// The provider's name of the model.
        model_id: Option<String> = None, TextForm, Override, Nothing, true;
        /// `"none"`, or a table `api_key` that locates the key; never a key.
        auth: Option<Value> = None, AuthForm, Override, Nothing, true;
        /// Capabilities of the model that are not in the catalog.
        capability: Option<Value> = None, TableForm, Override, Nothing, true;
        /// Input tokens that the model accepts.
        context_window: Option<u64> = None, PositiveCount, Override, Nothing, true;
        /// Maximum number of output tokens.
        max_output: Option<u64> = None, PositiveCount, Override, Nothing, true;
        /// Models that are used in this order when the first one is unavailable.
        fallback: Vec<String> = Vec::new(), ListForm<ModelReferenceForm>, Override, Nothing, true;
    }
    besides {}
}

/// A model reference.
pub(crate) struct ModelReferenceForm;

impl ModelReferenceForm {
    /// Prefix of a script reference.
    const SCRIPT_PREFIX: &'static str = "scripted:";
}

impl Form for ModelReferenceForm {
    fn word() -> String {
        "a model as provider/model, or scripted:FILE".to_owned()
    }

    fn schema() -> Value {
        TextForm::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        TextForm::read(value)
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(file) = value.as_str().and_then(|text| text.strip_prefix(ModelReferenceForm::SCRIPT_PREFIX))
        else {
            return Ok(());
        };
        // A plain word may be the name of a built-in script.
        if !file.contains(['/', '.']) {
            return Ok(());
        }
        let mut file = file.to_owned();
        each(&mut file)?;
        *value = format!("{}{file}", ModelReferenceForm::SCRIPT_PREFIX).into();
        Ok(())
    }
}

/// The location of the API key.
pub(crate) struct AuthForm;

impl AuthForm {
    const NONE: &'static str = "none";
    const API_KEY: &'static str = "api_key";
    const FILE: &'static str = "file";
}

impl Form for AuthForm {
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
        json!({ "anyOf": [{ "enum": [AuthForm::NONE] }, table] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        match value {
            Value::String(word) if word == AuthForm::NONE => Ok(value.clone()),
            Value::Object(_) => Ok(value.clone()),
            _ => Err(None),
        }
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let file = value.get_mut(AuthForm::API_KEY).and_then(|key| key.get_mut(AuthForm::FILE));
        let Some(Value::String(file)) = file else { return Ok(()) };
        each(file)
    }
}
