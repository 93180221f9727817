//! Bash: runs a shell line in the pod's sandbox and shows its exit status and output.
//!
//! Class once. A non-zero exit status is a result; the model interprets it.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{CommandOutcome, CommandSpec, Commands, MAX_COMMAND_BYTES};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::output_retention::OutputRetention;
use super::{
    GRACE_PERIOD, command_error, count_noun, describe_exit, file_note, format_duration, frame_output,
    loss_note, parse_seconds, run_with_commands, set_id_note, summary_line,
};
use crate::arguments::{parse_arguments, tool_output};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum number of commands of a line, and of characters of each, that an approval request shows.
const MAX_SHOWN_COMMANDS: usize = 32;
const MAX_COMMAND_CHARS: usize = 200;

/// The prefix of the ids that the pod gives to the calls of its model; calls of clients never have it.
const POD_CALL_PREFIX: &str = "call_";

pub(super) struct BashTool {
    pub(super) commands: Option<Arc<Commands>>,
    pub(super) retention: Arc<OutputRetention>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashArguments {
    command: String,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    tty: Option<bool>,
    #[serde(default)]
    #[expect(dead_code, reason = "clients show it to the user from the arguments of the call")]
    description: Option<String>,
}

/// The checked arguments of a call.
struct BashRequest {
    command: String,
    timeout: Option<Duration>,
    background: bool,
    tty: bool,
}

impl BashRequest {
    fn from_arguments(arguments: &str) -> Result<BashRequest, ToolError> {
        let BashArguments { command, timeout, background, tty, .. } = parse_arguments("Bash", arguments)?;
        let background = background.unwrap_or(false);
        let timeout = timeout.map(parse_timeout).transpose()?;
        let invalid = |what: String| Err(ToolError::InvalidArguments(what));
        if command.trim().is_empty() {
            return invalid("`command` is empty: give a shell line".to_owned());
        }
        if command.contains('\0') {
            return invalid(
                "`command` contains a NUL, which is not allowed in a shell line: remove it".to_owned(),
            );
        }
        if command.len() > MAX_COMMAND_BYTES {
            return invalid(format!(
                "`command` has {} bytes, at most {MAX_COMMAND_BYTES} are allowed: write it to a file and run that",
                command.len()
            ));
        }
        let timeout = if background { timeout } else { Some(timeout.unwrap_or(DEFAULT_TIMEOUT)) };
        Ok(BashRequest { command, timeout, background, tty: tty.unwrap_or(false) })
    }
}

fn parse_timeout(seconds_given: f64) -> Result<Duration, ToolError> {
    let timeout = parse_seconds("timeout", seconds_given, MAX_TIMEOUT)?;
    if timeout.is_zero() {
        return Err(ToolError::InvalidArguments(
            "`timeout` is 0: give a positive number of seconds".to_owned(),
        ));
    }
    Ok(timeout)
}

impl Tool for BashTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Bash".into(),
            description: "Runs a shell line in the working directory, inside a sandbox. Each call is a new shell: \
                `cd` and variables do not last. Input is empty. Shows both outputs in order; of a long one the end, \
                and the file with all of it. When the shell exits, processes it left behind are killed: run servers \
                and watchers with background: true, which returns an id for BashOutput, BashInput and KillBash. Use \
                Read, Grep, Glob and Edit rather than cat, grep, find and sed."
                .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "description": "The shell line or script." },
                    "timeout": {
                        "type": "number",
                        "description": format!(
                            "Seconds until it is killed. Default {}, at most {}; in the background none.",
                            DEFAULT_TIMEOUT.as_secs(), MAX_TIMEOUT.as_secs(),
                        ),
                    },
                    "background": { "type": "boolean", "description": "Do not wait for its end." },
                    "description": { "type": "string", "description": "Its purpose, in a few words." },
                    "tty": { "type": "boolean", "description": "Run it in a terminal, for programs that need one." },
                },
                "required": ["command"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &ToolContext) -> Result<Action, ToolError> {
        let command = BashRequest::from_arguments(arguments)?.command;
        let commands = shown_commands(&command);
        Ok(Action { command: Some(command), commands, side_effects: true, ..Action::default() })
    }

    fn timeout(&self, arguments: &str) -> Duration {
        let timeout = BashRequest::from_arguments(arguments).ok().and_then(|request| request.timeout);
        timeout.unwrap_or(DEFAULT_TIMEOUT) + GRACE_PERIOD
    }

    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture {
        let (call, room) = (call.clone(), Arc::clone(&self.retention));
        run_with_commands(
            "Bash",
            self.commands.as_ref(),
            BashRequest::from_arguments(arguments),
            |commands, request| run_command(commands, request, call, room),
        )
    }
}

/// Returns the commands that a line would run, for the approval request. Policy parses the line itself.
fn shown_commands(line: &str) -> Vec<String> {
    let mut all = minke_policy::shell::parse_shell_line(line).command_texts();
    let more = all.len().saturating_sub(MAX_SHOWN_COMMANDS);
    if more > 0 {
        all.truncate(MAX_SHOWN_COMMANDS - 1);
        all.push(format!("… and {} more", more + 1));
    }
    let cut = |one: String| match one.char_indices().nth(MAX_COMMAND_CHARS) {
        None => one,
        Some(_) => one.chars().take(MAX_COMMAND_CHARS - 1).chain(['…']).collect(),
    };
    all.into_iter().map(cut).collect()
}

async fn run_command(
    commands: Arc<Commands>,
    request: BashRequest,
    call: ToolInvocation,
    room: Arc<OutputRetention>,
) -> Result<ToolOutput, ToolError> {
    let BashRequest { command, timeout, background, tty } = request;
    let line = summary_line(&command);
    let (cwd, news, env) = (call.context.cwd.clone(), call.events, (*call.env).clone());
    // The id of the call names the output file. Only ids that the pod generated are safe file names.
    let named = !background && call.id.0.starts_with(POD_CALL_PREFIX) && !call.id.0.contains(['/', '\0']);
    let id = if named { call.id.0 } else { commands.new_id() };
    let order = CommandSpec { id, command, cwd, timeout, tty, env };
    let room_note = room.make_room(&commands).await;
    if background {
        let id = order.id.clone();
        commands.start_background(order, &news).await.map_err(command_error)?;
        let content = format!(
            "It runs in the background as `{id}`. BashOutput shows its output and exit status, BashInput sends it \
             input, KillBash kills it.{}",
            room_note.map(|made| format!("\n[{made}]")).unwrap_or_default()
        );
        return Ok(tool_output(format!("{line} (running as {id})"), Some(content)));
    }
    let finished = commands.run_command(order, &news).await.map_err(command_error)?;
    let after = timeout.unwrap_or(finished.elapsed);
    let outcome = if finished.timed_out {
        format!("timed out after {}", format_duration(after))
    } else {
        describe_exit(finished.exit)
    };
    if let Some(file) = &finished.file {
        room.note_file(file);
    }
    let mut result = tool_output(format!("{line} ({outcome})"), result_content(&finished, room_note));
    result.full_output = finished.file;
    if finished.timed_out { Err(ToolError::TimedOut { after, output: result }) } else { Ok(result) }
}

/// Returns the output of the command; if it is only the end, a first line tells so and names the file with
/// all of it.
fn result_content(finished: &CommandOutcome, room: Option<String>) -> Option<String> {
    let CommandOutcome { tail, lines, bytes, file, spill_error, set_id_refused, notes, .. } = finished;
    let cut = (tail.len() as u64 != *bytes).then(|| {
        format!("{} and {}; this is the end", count_noun(*lines, "line"), count_noun(*bytes, "byte"))
    });
    let held = file.as_deref().map(|file| file_note(*bytes, file, spill_error.is_some()));
    let others = [loss_note(spill_error.as_ref()), set_id_note(*set_id_refused), room]
        .into_iter()
        .flatten()
        .chain(notes.iter().cloned());
    frame_output(cut, held, others, tail)
}
