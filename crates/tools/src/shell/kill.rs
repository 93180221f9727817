//! KillBash: kills a background command and all processes that it started.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{CommandStatus, Commands};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{GRACE_PERIOD, check_id, command_error, describe_exit, run_with_commands};
use crate::arguments::{parse_arguments, tool_output};

pub(super) struct KillBashTool {
    pub(super) commands: Option<Arc<Commands>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillBashArguments {
    id: String,
}

fn parse_id(arguments: &str) -> Result<String, ToolError> {
    let KillBashArguments { id } = parse_arguments("KillBash", arguments)?;
    check_id(id)
}

impl Tool for KillBashTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "KillBash".into(),
            description:
                "Kills a background command and every process that it started. Its output can still be read \
                with BashOutput."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id that Bash returned." },
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        parse_id(arguments).map(|_| Action { side_effects: true, ..Action::default() })
    }

    fn timeout(&self, _arguments: &str) -> Duration {
        GRACE_PERIOD
    }

    fn execute(&self, arguments: &str, _call: &ToolInvocation) -> ToolFuture {
        run_with_commands("KillBash", self.commands.as_ref(), parse_id(arguments), kill_command)
    }
}

async fn kill_command(commands: Arc<Commands>, id: String) -> Result<ToolOutput, ToolError> {
    let summary = match commands.kill_command(&id).await.map_err(command_error)? {
        CommandStatus::Ended { killed: true, .. } => format!("{id} was killed"),
        CommandStatus::Ended { timed_out: true, .. } => format!("{id} had timed out already"),
        CommandStatus::Ended { exit, .. } => format!("{id} had ended already ({})", describe_exit(exit)),
        // The pod is shutting down and kills the command too.
        CommandStatus::Running => format!("{id} is being killed"),
    };
    Ok(tool_output(summary, None))
}
