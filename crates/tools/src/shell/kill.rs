//! KillBash: ends a background command with everything it started.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{Commands, Status};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{GRACE, checked_id, exit_words, explain, with_commands};
use crate::arguments::{output, parse};

pub(super) struct KillBash {
    pub(super) commands: Option<Arc<Commands>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    id: String,
}

fn checked(arguments: &str) -> Result<String, ToolError> {
    let Arguments { id } = parse("KillBash", arguments)?;
    checked_id(id)
}

impl Tool for KillBash {
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
                    "id": { "type": "string", "description": "The id that Bash answered." },
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        checked(arguments).map(|_| Action { side_effects: true, ..Action::default() })
    }

    fn deadline(&self, _arguments: &str) -> Duration {
        GRACE
    }

    fn run(&self, arguments: &str, _call: &Call) -> Running {
        with_commands("KillBash", self.commands.as_ref(), checked(arguments), run)
    }
}

async fn run(commands: Arc<Commands>, id: String) -> Result<ToolOutput, ToolError> {
    let said = match commands.kill(&id).await.map_err(explain)? {
        Status::Ended { killed: true, .. } => format!("{id} was killed"),
        Status::Ended { timed_out: true, .. } => format!("{id} had timed out already"),
        Status::Ended { exit, .. } => format!("{id} had ended already ({})", exit_words(exit)),
        // The pod is going down and took the command with it.
        Status::Running => format!("{id} is being killed"),
    };
    Ok(output(said, None))
}
