//! BashOutput: what a background command has said since the last look, and how it ended.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{Commands, Piece, Status};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{
    GRACE, WHOLE, checked_id, counted, exit_words, explain, first_line, framed, seconds, spoken,
    with_commands,
};
use crate::arguments::{output, parse};

const WAIT_MOST: Duration = Duration::from_secs(300);

pub(super) struct BashOutput {
    pub(super) commands: Option<Arc<Commands>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    id: String,
    #[serde(default)]
    wait: Option<f64>,
}

/// Where to look, and how long to wait for something to see.
struct Checked {
    id: String,
    wait: Duration,
}

impl Checked {
    fn parse(arguments: &str) -> Result<Checked, ToolError> {
        let Arguments { id, wait } = parse("BashOutput", arguments)?;
        let wait = wait.map(|given| seconds("wait", given, WAIT_MOST)).transpose()?;
        Ok(Checked { id: checked_id(id)?, wait: wait.unwrap_or(Duration::ZERO) })
    }
}

impl Tool for BashOutput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "BashOutput".into(),
            description:
                "Shows what a background command has said since you last looked (of a lot, the end), and \
                whether it runs or how it ended. With `wait` it answers as soon as there is something new."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id that Bash answered." },
                    "wait": {
                        "type": "number",
                        "description": format!(
                            "Seconds to wait for new output or the end. Default 0, at most {}.", WAIT_MOST.as_secs(),
                        ),
                    },
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Pure
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        Checked::parse(arguments).map(|_| Action::default())
    }

    fn deadline(&self, arguments: &str) -> Duration {
        Checked::parse(arguments).map_or(Duration::ZERO, |checked| checked.wait) + GRACE
    }

    fn run(&self, arguments: &str, _call: &Call) -> Running {
        with_commands("BashOutput", self.commands.as_ref(), Checked::parse(arguments), run)
    }
}

async fn run(commands: Arc<Commands>, Checked { id, wait }: Checked) -> Result<ToolOutput, ToolError> {
    if !wait.is_zero() {
        commands.wait(&id, wait).await.map_err(explain)?;
    }
    let piece = commands.output(&id, None).await.map_err(explain)?;
    let status = match piece.status {
        Status::Running => format!("running for {}", spoken(piece.elapsed)),
        Status::Ended { timed_out: true, .. } => format!("timed out after {}", spoken(piece.elapsed)),
        Status::Ended { killed: true, .. } => format!("killed after {}", spoken(piece.elapsed)),
        Status::Ended { exit, .. } => format!("{} after {}", exit_words(exit), spoken(piece.elapsed)),
    };
    let mut shown = output(
        format!(
            "{} ({status}), {}",
            first_line(&piece.command),
            counted(piece.text.len() as u64, "new byte")
        ),
        content(&piece),
    );
    if piece.skipped > 0 {
        shown.rest = piece.file;
    }
    Ok(shown)
}

fn content(piece: &Piece) -> Option<String> {
    let Piece { skipped, text, file, unkept, .. } = piece;
    let cut = (*skipped > 0).then(|| format!("{} before this were left out", counted(*skipped, "new byte")));
    framed(cut, file.as_deref().map(|file| (WHOLE, file)), unkept.as_deref(), text)
}
