//! BashInput: sends input to a background command.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{Commands, MAX_INPUT_BYTES};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{GRACE_PERIOD, check_id, command_error, count_noun, run_with_commands};
use crate::arguments::{parse_arguments, tool_output};

pub(super) struct BashInputTool {
    pub(super) commands: Option<Arc<Commands>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashInputArguments {
    id: String,
    text: String,
    #[serde(default)]
    end: Option<bool>,
}

/// The checked arguments of a call.
struct BashInputRequest {
    id: String,
    text: String,
    end: bool,
}

impl BashInputRequest {
    fn from_arguments(arguments: &str) -> Result<BashInputRequest, ToolError> {
        let BashInputArguments { id, text, end } = parse_arguments("BashInput", arguments)?;
        let id = check_id(id)?;
        let end = end.unwrap_or(false);
        if text.is_empty() && !end {
            let message = "`text` is empty and `end` is not set: give an input, including its line break";
            return Err(ToolError::InvalidArguments(message.to_owned()));
        }
        if text.len() > MAX_INPUT_BYTES {
            return Err(ToolError::InvalidArguments(format!(
                "`text` has {} bytes, at most {MAX_INPUT_BYTES} are allowed: send it in parts, or write a file",
                text.len()
            )));
        }
        Ok(BashInputRequest { id, text, end })
    }
}

impl Tool for BashInputTool {
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
                    "id": { "type": "string", "description": "The id that Bash returned." },
                    "text": { "type": "string", "description": "The input." },
                    "end": { "type": "boolean", "description": "Close the input after the text." },
                },
                "required": ["id", "text"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        BashInputRequest::from_arguments(arguments)
            .map(|_| Action { side_effects: true, ..Action::default() })
    }

    fn timeout(&self, _arguments: &str) -> Duration {
        GRACE_PERIOD
    }

    fn execute(&self, arguments: &str, _call: &ToolInvocation) -> ToolFuture {
        run_with_commands(
            "BashInput",
            self.commands.as_ref(),
            BashInputRequest::from_arguments(arguments),
            send_input,
        )
    }
}

async fn send_input(
    commands: Arc<Commands>,
    BashInputRequest { id, text, end }: BashInputRequest,
) -> Result<ToolOutput, ToolError> {
    if !text.is_empty() {
        commands.write_input(&id, text.as_bytes()).await.map_err(command_error)?;
    }
    if end {
        commands.close_input(&id).await.map_err(command_error)?;
    }
    let ended = if end { ", then its end" } else { "" };
    Ok(tool_output(format!("{id} got {}{ended}", count_noun(text.len() as u64, "byte")), None))
}
