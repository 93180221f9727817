//! Values in the texts of a script: `{{cwd}}`, `{{prompt}}`, `{{result}}`, `{{ask}}`, `{{env.NAME}}`.
//!
//! Names are checked when the script is parsed; values are filled in when a turn plays.

use std::path::Path;

use minke_model::Prompt;
use minke_record::{Item, Role};
use serde_json::Value;

use super::select_turn::item_text;

/// The values of the names while one turn plays.
pub(crate) struct TemplateValues<'a> {
    pub(crate) prompt: &'a Prompt,
    pub(crate) cwd: &'a Path,
}

/// Returns an error for an unknown name in a text.
pub(crate) fn check_names(text: &str) -> Result<(), String> {
    for name in template_names(text) {
        if !matches!(name, "cwd" | "prompt" | "result" | "ask") && !name.starts_with("env.") {
            return Err(format!(
                "`{{{{{name}}}}}` is unknown: use {{{{cwd}}}}, {{{{prompt}}}}, {{{{result}}}}, {{{{ask}}}} or {{{{env.NAME}}}}"
            ));
        }
    }
    Ok(())
}

pub(crate) fn check_json_names(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check_names(text),
        Value::Array(values) => values.iter().try_for_each(check_json_names),
        Value::Object(fields) if fields.keys().any(|key| key.starts_with("$__toml")) => {
            Err("JSON has no dates: write it as a text".to_owned())
        }
        Value::Object(fields) => fields.values().try_for_each(check_json_names),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn template_names(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}").map(|(name, _)| name.trim()))
}

impl TemplateValues<'_> {
    /// Replaces the names in a text. Returns an error for a value that does not exist.
    pub(crate) fn fill_text(&self, text: &str) -> Result<String, String> {
        if !text.contains("{{") {
            return Ok(text.to_owned());
        }
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.split_once("}}") {
                Some((name, rest)) => {
                    filled.push_str(&self.lookup_value(name.trim())?);
                    filled.push_str(rest);
                }
                None => {
                    filled.push_str("{{");
                    filled.push_str(part);
                }
            }
        }
        Ok(filled)
    }

    pub(crate) fn fill_json(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill_text(text)?),
            Value::Array(values) => {
                Value::Array(values.iter().map(|v| self.fill_json(v)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, v)| Ok((key.clone(), self.fill_json(v)?)))
                    .collect::<Result<_, String>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn lookup_value(&self, name: &str) -> Result<String, String> {
        let newest = |wanted: fn(&Item) -> bool, what: &str| {
            let found = self.prompt.items.iter().rev().find(|item| wanted(item));
            found
                .map(|item| item_text(item))
                .ok_or_else(|| format!("`{{{{{name}}}}}`: there is no {what} yet"))
        };
        match name {
            "cwd" => Ok(self.cwd.display().to_string()),
            "prompt" => newest(|item| matches!(item, Item::Message { role: Role::User, .. }), "user message"),
            "result" => newest(|item| matches!(item, Item::ToolResult { .. }), "tool result"),
            "ask" => {
                let said = newest(|item| matches!(item, Item::ToolResult { .. }), "tool result")?;
                let id = said.rsplit_once("(ask ").and_then(|(_, rest)| rest.split_once(')'));
                id.map(|(id, _)| id.to_owned())
                    .ok_or_else(|| format!("`{{{{ask}}}}`: no question in `{said}`"))
            }
            _ => {
                let variable = name.strip_prefix("env.").unwrap_or(name);
                std::env::var(variable).map_err(|e| format!("`{{{{{name}}}}}`: {e}"))
            }
        }
    }
}
