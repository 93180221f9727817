//! BashInput: gives a background command something to read.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{Commands, INPUT_BYTES};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{GRACE, checked_id, counted, explain, with_commands};
use crate::arguments::{output, parse};

pub(super) struct BashInput {
    pub(super) commands: Option<Arc<Commands>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    id: String,
    text: String,
    #[serde(default)]
    end: Option<bool>,
}

/// An input that can be tried.
struct Checked {
    id: String,
    text: String,
    end: bool,
}

impl Checked {
    fn parse(arguments: &str) -> Result<Checked, ToolError> {
        let Arguments { id, text, end } = parse("BashInput", arguments)?;
        let id = checked_id(id)?;
        let end = end.unwrap_or(false);
        if text.is_empty() && !end {
            let what = "`text` is empty and `end` is not set: give something to read, with its line break";
            return Err(ToolError::Invalid(what.to_owned()));
        }
        if text.len() > INPUT_BYTES {
            return Err(ToolError::Invalid(format!(
                "`text` has {} bytes and may have {INPUT_BYTES}: send it in parts, or write a file",
                text.len()
            )));
        }
        Ok(Checked { id, text, end })
    }
}

impl Tool for BashInput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "BashInput".into(),
            description:
                "Sends text to the input of a background command, as if typed: end a line with a line break. \
                In a terminal (tty: true) control characters work too, such as \\u0003 for Ctrl-C."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id that Bash answered." },
                    "text": { "type": "string", "description": "What it is to read." },
                    "end": { "type": "boolean", "description": "Then end its input." },
                },
                "required": ["id", "text"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        Checked::parse(arguments).map(|_| Action { side_effects: true, ..Action::default() })
    }

    fn deadline(&self, _arguments: &str) -> Duration {
        GRACE
    }

    fn run(&self, arguments: &str, _call: &Call) -> Running {
        with_commands("BashInput", self.commands.as_ref(), Checked::parse(arguments), run)
    }
}

async fn run(commands: Arc<Commands>, Checked { id, text, end }: Checked) -> Result<ToolOutput, ToolError> {
    if !text.is_empty() {
        commands.input(&id, text.as_bytes()).await.map_err(explain)?;
    }
    if end {
        commands.end_input(&id).await.map_err(explain)?;
    }
    let ended = if end { ", then its end" } else { "" };
    Ok(output(format!("{id} got {}{ended}", counted(text.len() as u64, "byte")), None))
}
