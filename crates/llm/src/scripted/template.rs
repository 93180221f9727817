//! Values in a script's texts: `{{cwd}}`, `{{prompt}}`, `{{result}}`, `{{ask}}`, `{{env.NAME}}`.
//!
//! Names are checked when the script is read, values are filled when a turn plays.

use std::path::Path;

use minke_model::Prompt;
use minke_record::{Item, Role};
use serde_json::Value;

use super::choose::text_of;

/// What the names stand for while one turn plays.
pub(crate) struct Values<'a> {
    pub(crate) prompt: &'a Prompt,
    pub(crate) cwd: &'a Path,
}

/// Says which name in a text is unknown.
pub(crate) fn check(text: &str) -> Result<(), String> {
    for name in names(text) {
        if !matches!(name, "cwd" | "prompt" | "result" | "ask") && !name.starts_with("env.") {
            return Err(format!(
                "`{{{{{name}}}}}` stands for nothing: use {{{{cwd}}}}, {{{{prompt}}}}, {{{{result}}}}, {{{{ask}}}} or {{{{env.NAME}}}}"
            ));
        }
    }
    Ok(())
}

pub(crate) fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check(text),
        Value::Array(values) => values.iter().try_for_each(check_value),
        Value::Object(fields) if fields.keys().any(|key| key.starts_with("$__toml")) => {
            Err("a date has no form in JSON: write it as a text".to_owned())
        }
        Value::Object(fields) => fields.values().try_for_each(check_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}").map(|(name, _)| name.trim()))
}

impl Values<'_> {
    /// The text with its names replaced; an error names a value that is not there.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        if !text.contains("{{") {
            return Ok(text.to_owned());
        }
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.split_once("}}") {
                Some((name, rest)) => {
                    filled.push_str(&self.value(name.trim())?);
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

    pub(crate) fn fill_value(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(values) => {
                Value::Array(values.iter().map(|v| self.fill_value(v)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, v)| Ok((key.clone(), self.fill_value(v)?)))
                    .collect::<Result<_, String>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn value(&self, name: &str) -> Result<String, String> {
        let newest = |wanted: fn(&Item) -> bool, what: &str| {
            let found = self.prompt.items.iter().rev().find(|item| wanted(item));
            found.map(|item| text_of(item)).ok_or_else(|| format!("`{{{{{name}}}}}`: there is no {what} yet"))
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
