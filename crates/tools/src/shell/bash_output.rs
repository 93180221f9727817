//! BashOutput: returns the new output of a background command, and its exit status.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{CommandStatus, Commands, OutputChunk};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::output_retention::OutputRetention;
use super::{
    GRACE_PERIOD, check_id, command_error, count_noun, describe_exit, file_note, format_duration,
    frame_output, loss_note, parse_seconds, run_with_commands, set_id_note, summary_line,
};
use crate::arguments::{parse_arguments, tool_output};

const MAX_WAIT: Duration = Duration::from_secs(300);

pub(super) struct BashOutputTool {
    pub(super) commands: Option<Arc<Commands>>,
    pub(super) retention: Arc<OutputRetention>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashOutputArguments {
    id: String,
    #[serde(default)]
    wait: Option<f64>,
}

/// The checked arguments of a call.
struct BashOutputRequest {
    id: String,
    wait: Duration,
}

impl BashOutputRequest {
    fn from_arguments(arguments: &str) -> Result<BashOutputRequest, ToolError> {
        let BashOutputArguments { id, wait } = parse_arguments("BashOutput", arguments)?;
        let wait = wait.map(|value| parse_seconds("wait", value, MAX_WAIT)).transpose()?;
        Ok(BashOutputRequest { id: check_id(id)?, wait: wait.unwrap_or(Duration::ZERO) })
    }
}

impl Tool for BashOutputTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "BashOutput".into(),
            description:
                "Shows the new output of a background command since your last call (of a long one the end), and \
                whether it is running or how it ended. With `wait` it returns as soon as there is new output."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "id": { "type": "string", "description": "The id that Bash returned." },
                    "wait": {
                        "type": "number",
                        "description": format!(
                            "Seconds to wait for new output or the end. Default 0, at most {}.", MAX_WAIT.as_secs(),
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

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        BashOutputRequest::from_arguments(arguments).map(|_| Action::default())
    }

    fn timeout(&self, arguments: &str) -> Duration {
        BashOutputRequest::from_arguments(arguments).map_or(Duration::ZERO, |request| request.wait)
            + GRACE_PERIOD
    }

    fn execute(&self, arguments: &str, _call: &ToolInvocation) -> ToolFuture {
        let retention = Arc::clone(&self.retention);
        run_with_commands(
            "BashOutput",
            self.commands.as_ref(),
            BashOutputRequest::from_arguments(arguments),
            |commands, request| read_output(commands, request, retention),
        )
    }
}

async fn read_output(
    commands: Arc<Commands>,
    BashOutputRequest { id, wait }: BashOutputRequest,
    room: Arc<OutputRetention>,
) -> Result<ToolOutput, ToolError> {
    if !wait.is_zero() {
        commands.wait_for_output(&id, wait).await.map_err(command_error)?;
    }
    let piece = commands.read_output(&id, None).await.map_err(command_error)?;
    if let Some(file) = &piece.file {
        room.note_file(file);
    }
    let status = match piece.status {
        CommandStatus::Running => format!("running for {}", format_duration(piece.elapsed)),
        CommandStatus::Ended { timed_out: true, .. } => {
            format!("timed out after {}", format_duration(piece.elapsed))
        }
        CommandStatus::Ended { killed: true, .. } => {
            format!("killed after {}", format_duration(piece.elapsed))
        }
        CommandStatus::Ended { exit, .. } => {
            format!("{} after {}", describe_exit(exit), format_duration(piece.elapsed))
        }
    };
    let mut result = tool_output(
        format!(
            "{} ({status}), {}",
            summary_line(&piece.command),
            count_noun(piece.text.len() as u64, "new byte")
        ),
        result_content(&piece),
    );
    if piece.skipped > 0 {
        result.full_output = piece.file;
    }
    Ok(result)
}

fn result_content(piece: &OutputChunk) -> Option<String> {
    let OutputChunk { skipped, text, file, bytes, spill_error, set_id_refused, notes, .. } = piece;
    let cut =
        (*skipped > 0).then(|| format!("{} before this were left out", count_noun(*skipped, "new byte")));
    let held = file.as_deref().map(|file| file_note(*bytes, file, spill_error.is_some()));
    let others = [loss_note(spill_error.as_ref()), set_id_note(*set_id_refused)]
        .into_iter()
        .flatten()
        .chain(notes.iter().cloned());
    frame_output(cut, held, others, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_exec::command::MAX_FILE_BYTES;

    #[test]
    fn what_was_dropped_beyond_the_file_is_said() {
        let mut piece = OutputChunk {
            notes: Vec::new(),
            command: "yes".to_owned(),
            status: CommandStatus::Running,
            elapsed: Duration::ZERO,
            start: MAX_FILE_BYTES - 2,
            end: MAX_FILE_BYTES,
            text: "y\n".to_owned(),
            skipped: 10,
            bytes: MAX_FILE_BYTES,
            file: Some("/o/x.txt".into()),
            spill_error: None,
            set_id_refused: false,
        };
        let said = |piece: &OutputChunk| result_content(piece).unwrap_or_default();
        assert_eq!(said(&piece), "[10 new bytes before this were left out; all of it is in /o/x.txt]\ny\n");
        piece.bytes += 7;
        assert_eq!(
            said(&piece),
            "[10 new bytes before this were left out; its first 64 MiB are in /o/x.txt, and the 7 bytes after them \
             were dropped]\ny\n"
        );
        piece.spill_error = Some("writing failed".to_owned());
        let words = said(&piece);
        assert!(words.contains(
            "the part of it that could be stored is in /o/x.txt; some of it may be lost: writing failed"
        ));
        assert!(!words.contains("all of it"), "{words}");
    }
}
