//! BashOutput: what a background command has said since the last look, and how it ended.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{Commands, Piece, Status};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::room::Room;
use super::{
    GRACE, checked_id, counted, exit_words, explain, first_line, framed, held, lost, refused, seconds,
    spoken, with_commands,
};
use crate::arguments::{output, parse};

const WAIT_MOST: Duration = Duration::from_secs(300);

pub(super) struct BashOutput {
    pub(super) commands: Option<Arc<Commands>>,
    pub(super) room: Arc<Room>,
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
        let room = Arc::clone(&self.room);
        with_commands("BashOutput", self.commands.as_ref(), Checked::parse(arguments), |commands, checked| {
            run(commands, checked, room)
        })
    }
}

async fn run(
    commands: Arc<Commands>,
    Checked { id, wait }: Checked,
    room: Arc<Room>,
) -> Result<ToolOutput, ToolError> {
    if !wait.is_zero() {
        commands.wait(&id, wait).await.map_err(explain)?;
    }
    let piece = commands.output(&id, None).await.map_err(explain)?;
    if let Some(file) = &piece.file {
        room.learn(file);
    }
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
    let Piece { skipped, text, file, bytes, unkept, set_id_refused, notes, .. } = piece;
    let cut = (*skipped > 0).then(|| format!("{} before this were left out", counted(*skipped, "new byte")));
    let held = file.as_deref().map(|file| held(*bytes, file, unkept.is_some()));
    let others =
        [lost(unkept.as_ref()), refused(*set_id_refused)].into_iter().flatten().chain(notes.iter().cloned());
    framed(cut, held, others, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_exec::command::FILE_BYTES;

    #[test]
    fn what_was_dropped_beyond_the_file_is_said() {
        let mut piece = Piece {
            notes: Vec::new(),
            command: "yes".to_owned(),
            status: Status::Running,
            elapsed: Duration::ZERO,
            start: FILE_BYTES - 2,
            end: FILE_BYTES,
            text: "y\n".to_owned(),
            skipped: 10,
            bytes: FILE_BYTES,
            file: Some("/o/x.txt".into()),
            unkept: None,
            set_id_refused: false,
        };
        let said = |piece: &Piece| content(piece).unwrap_or_default();
        assert_eq!(said(&piece), "[10 new bytes before this were left out; all of it is in /o/x.txt]\ny\n");
        piece.bytes += 7;
        assert_eq!(
            said(&piece),
            "[10 new bytes before this were left out; its first 64 MiB are in /o/x.txt, and the 7 bytes after them \
             were dropped]\ny\n"
        );
        piece.unkept = Some("writing failed".to_owned());
        let words = said(&piece);
        assert!(
            words.contains("what could be kept of it is in /o/x.txt; some of it may be lost: writing failed")
        );
        assert!(!words.contains("all of it"), "{words}");
    }
}
