//! Bash: runs a shell line in the pod's fence and shows how it ended and what it said.
//!
//! Class once. A non-zero exit is a result: what it means is for the model to say.

use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{COMMAND_BYTES, Commands, Finished, RunOrder};
use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::room::Room;
use super::{
    GRACE, counted, exit_words, explain, first_line, framed, held, lost, refused, seconds, spoken,
    with_commands,
};
use crate::arguments::{output, parse};

const TIMEOUT: Duration = Duration::from_secs(120);
const TIMEOUT_MOST: Duration = Duration::from_secs(600);

/// How many commands of a line, and how much of each, a person is shown.
const SHOWN_MOST: usize = 32;
const SHOWN_CHARS: usize = 200;

/// How the pod names the calls of its model; a client's call cannot be named so.
const POD_NAMED: &str = "call_";

pub(super) struct Bash {
    pub(super) commands: Option<Arc<Commands>>,
    pub(super) room: Arc<Room>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    tty: Option<bool>,
    #[serde(default)]
    #[expect(dead_code, reason = "for people: clients show it from the arguments of the call")]
    description: Option<String>,
}

/// A command that can be tried.
struct Checked {
    command: String,
    timeout: Option<Duration>,
    background: bool,
    tty: bool,
}

impl Checked {
    fn parse(arguments: &str) -> Result<Checked, ToolError> {
        let Arguments { command, timeout, background, tty, .. } = parse("Bash", arguments)?;
        let background = background.unwrap_or(false);
        let timeout = timeout.map(timeout_of).transpose()?;
        let invalid = |what: String| Err(ToolError::Invalid(what));
        if command.trim().is_empty() {
            return invalid("`command` is empty: give a shell line".to_owned());
        }
        if command.contains('\0') {
            return invalid("`command` holds a NUL, which no shell line can: leave it out".to_owned());
        }
        if command.len() > COMMAND_BYTES {
            return invalid(format!(
                "`command` has {} bytes and may have {COMMAND_BYTES}: write it to a file and run that",
                command.len()
            ));
        }
        let timeout = if background { timeout } else { Some(timeout.unwrap_or(TIMEOUT)) };
        Ok(Checked { command, timeout, background, tty: tty.unwrap_or(false) })
    }
}

fn timeout_of(given: f64) -> Result<Duration, ToolError> {
    let timeout = seconds("timeout", given, TIMEOUT_MOST)?;
    if timeout.is_zero() {
        return Err(ToolError::Invalid("`timeout` is 0: give seconds, more than none".to_owned()));
    }
    Ok(timeout)
}

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Bash".into(),
            description: "Runs a shell line in the working directory, inside a sandbox. Each call is a new shell: \
                `cd` and variables do not last. Input is empty. Shows both outputs in order; of a long one the end, \
                and the file that holds all. When the shell exits, processes it left behind are killed: run servers \
                and watchers with background: true, which answers an id for BashOutput, BashInput and KillBash. Use \
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
                            TIMEOUT.as_secs(), TIMEOUT_MOST.as_secs(),
                        ),
                    },
                    "background": { "type": "boolean", "description": "Do not wait for its end." },
                    "description": { "type": "string", "description": "What it is for, in a few words." },
                    "tty": { "type": "boolean", "description": "Give it a terminal, for programs that ask for one." },
                },
                "required": ["command"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _place: &Place) -> Result<Action, ToolError> {
        let command = Checked::parse(arguments)?.command;
        let commands = shown(&command);
        Ok(Action { command: Some(command), commands, side_effects: true, ..Action::default() })
    }

    fn deadline(&self, arguments: &str) -> Duration {
        let timeout = Checked::parse(arguments).ok().and_then(|checked| checked.timeout);
        timeout.unwrap_or(TIMEOUT) + GRACE
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        let (call, room) = (call.clone(), Arc::clone(&self.room));
        with_commands("Bash", self.commands.as_ref(), Checked::parse(arguments), |commands, checked| {
            run(commands, checked, call, room)
        })
    }
}

/// The commands that a line would run, for a person who is asked. What is cut says so: policy reads the line itself.
fn shown(line: &str) -> Vec<String> {
    let mut all = minke_policy::shell::read(line).shown();
    let more = all.len().saturating_sub(SHOWN_MOST);
    if more > 0 {
        all.truncate(SHOWN_MOST - 1);
        all.push(format!("… and {} more", more + 1));
    }
    let cut = |one: String| match one.char_indices().nth(SHOWN_CHARS) {
        None => one,
        Some(_) => one.chars().take(SHOWN_CHARS - 1).chain(['…']).collect(),
    };
    all.into_iter().map(cut).collect()
}

async fn run(
    commands: Arc<Commands>,
    checked: Checked,
    call: Call,
    room: Arc<Room>,
) -> Result<ToolOutput, ToolError> {
    let Checked { command, timeout, background, tty } = checked;
    let line = first_line(&command);
    let (cwd, news, env) = (call.place.cwd.clone(), call.news, (*call.env).clone());
    // What is kept of its output is found again by the call's name. Only names that the pod gave are names of files.
    let named = !background && call.id.0.starts_with(POD_NAMED) && !call.id.0.contains(['/', '\0']);
    let id = if named { call.id.0 } else { commands.new_id() };
    let order = RunOrder { id, command, cwd, timeout, tty, env };
    let made = room.make(&commands).await;
    if background {
        let id = order.id.clone();
        commands.start(order, &news).await.map_err(explain)?;
        let content = format!(
            "It runs in the background as `{id}`. BashOutput shows what it says and how it ended, BashInput gives it \
             input, KillBash ends it.{}",
            made.map(|made| format!("\n[{made}]")).unwrap_or_default()
        );
        return Ok(output(format!("{line} (running as {id})"), Some(content)));
    }
    let finished = commands.run(order, &news).await.map_err(explain)?;
    let after = timeout.unwrap_or(finished.took);
    let how = if finished.timed_out {
        format!("timed out after {}", spoken(after))
    } else {
        exit_words(finished.exit)
    };
    if let Some(file) = &finished.file {
        room.learn(file);
    }
    let mut said = output(format!("{line} ({how})"), content(&finished, made));
    said.rest = finished.file;
    if finished.timed_out { Err(ToolError::TimedOut { after, said }) } else { Ok(said) }
}

/// What the command said; if it is only the end of it, a first line says so and where the whole is.
fn content(finished: &Finished, room: Option<String>) -> Option<String> {
    let Finished { tail, lines, bytes, file, unkept, set_id_refused, notes, .. } = finished;
    let cut = (tail.len() as u64 != *bytes)
        .then(|| format!("{} and {}; this is the end", counted(*lines, "line"), counted(*bytes, "byte")));
    let held = file.as_deref().map(|file| held(*bytes, file, unkept.is_some()));
    let others = [lost(unkept.as_ref()), refused(*set_id_refused), room]
        .into_iter()
        .flatten()
        .chain(notes.iter().cloned());
    framed(cut, held, others, tail)
}
