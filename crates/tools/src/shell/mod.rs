//! The shell: commands that a model runs, waits for, looks at, talks to and kills.
//!
//! Here: Bash (`bash`), BashOutput (`output`), BashInput (`input`), KillBash (`kill`), and what they share: the words for
//! how a command ended and for output that was cut, and a bound for all files of output (`room`). Elsewhere: running, hearing and killing (`exec`).
//! Without commands (a replay has none) the tools say what they are and prepare; they do not run.

mod bash;
mod input;
mod kill;
mod output;
mod room;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{CommandError, Commands, FILE_BYTES};
use minke_exec::fence::Exit;
use minke_tool::{Running, Tool, ToolError, ToolOutput};

/// How much of a command a summary repeats.
const LINE_CHARS: usize = 80;
/// Seconds that a call may take beyond what it was asked to wait: for the fence, for killing, for the last words.
const GRACE: Duration = Duration::from_secs(15);

/// The tools of the shell, sorted by name.
pub fn shell_tools(commands: Option<Arc<Commands>>) -> Vec<Arc<dyn Tool>> {
    let room = Arc::new(room::Room::default());
    vec![
        Arc::new(bash::Bash { commands: commands.clone(), room: Arc::clone(&room) }),
        Arc::new(input::BashInput { commands: commands.clone() }),
        Arc::new(output::BashOutput { commands: commands.clone(), room }),
        Arc::new(kill::KillBash { commands }),
    ]
}

/// Runs a call on checked arguments, where there are commands.
fn with_commands<A, F>(
    tool: &'static str,
    commands: Option<&Arc<Commands>>,
    checked: Result<A, ToolError>,
    run: impl FnOnce(Arc<Commands>, A) -> F,
) -> Running
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    match (checked, commands) {
        (Err(error), _) => Box::pin(std::future::ready(Err(error))),
        (Ok(_), None) => Box::pin(std::future::ready(Err(ToolError::Internal(format!(
            "{tool} was called where no command can run: this is a defect of Minke"
        ))))),
        (Ok(arguments), Some(commands)) => Box::pin(run(Arc::clone(commands), arguments)),
    }
}

fn explain(error: CommandError) -> ToolError {
    let text = error.to_string();
    match error {
        CommandError::BadOrder(_) | CommandError::Unknown { .. } => ToolError::Invalid(text),
        CommandError::Defect(_) | CommandError::Taken { .. } => ToolError::Internal(text),
        CommandError::Fence(_)
        | CommandError::Io { .. }
        | CommandError::TooMany { .. }
        | CommandError::Ended { .. }
        | CommandError::Closed { .. }
        | CommandError::Full { .. } => ToolError::Failed(text),
    }
}

/// The id of a background command, as Bash gave it.
fn checked_id(id: String) -> Result<String, ToolError> {
    if id.trim().is_empty() {
        let what = "`id` is empty: give the id that Bash answered when it started the command";
        return Err(ToolError::Invalid(what.to_owned()));
    }
    Ok(id)
}

/// A number of seconds within bounds.
fn seconds(key: &str, given: f64, most: Duration) -> Result<Duration, ToolError> {
    let span = Duration::try_from_secs_f64(given).ok().filter(|span| *span <= most);
    span.ok_or_else(|| {
        // A number is shown as it was meant, not with three hundred digits.
        let shown = if given.abs() < 1e15 { given.to_string() } else { format!("{given:e}") };
        ToolError::Invalid(format!(
            "`{key}` is {shown}: give seconds, at most {}{}",
            most.as_secs(),
            if given >= 1_000.0 { " (not milliseconds)" } else { "" }
        ))
    })
}

/// `$` and the first line of a command.
fn first_line(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or_default().trim_end();
    let shown: String = line.chars().take(LINE_CHARS).collect();
    let more = if shown.len() < command.trim().len() { "…" } else { "" };
    format!("$ {shown}{more}")
}

fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => match signal_name(signal) {
            Some(name) => format!("ended by {name}"),
            None => format!("ended by signal {signal}"),
        },
    }
}

/// The names of signals that end a command often enough for a model to know them.
fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    names.into_iter().find(|(number, _)| *number == signal).map(|(_, name)| name)
}

/// How much of an output of so many bytes a file holds, and where it is. The path is whole, however long it is: it is
/// there to be read from.
fn held(bytes: u64, file: &Path, unkept: bool) -> String {
    let file = file.display();
    if unkept {
        // What went wrong is said of itself.
        return format!("what could be kept of it is in {file}");
    }
    match bytes.saturating_sub(FILE_BYTES) {
        0 => format!("all of it is in {file}"),
        dropped => format!(
            "its first {} MiB are in {file}, and the {} after them were dropped",
            FILE_BYTES / (1024 * 1024),
            counted(dropped, "byte")
        ),
    }
}

/// Output for a model: in front of it, what it lacks and where that is.
fn framed(
    cut: Option<String>,
    held: Option<String>,
    others: impl Iterator<Item = String>,
    text: &str,
) -> Option<String> {
    let mut notes: Vec<String> = cut.into_iter().collect();
    if !notes.is_empty() {
        notes.extend(held);
    }
    notes.extend(others);
    match (notes.is_empty(), text.is_empty()) {
        (true, true) => None,
        (true, false) => Some(text.to_owned()),
        (false, _) => Some(format!("[{}]\n{text}", notes.join("; "))),
    }
}

fn lost(unkept: Option<&String>) -> Option<String> {
    unkept.map(|why| format!("some of it may be lost: {why}"))
}

/// What the kernel refused the command, which itself saw only "Operation not permitted".
fn refused(set_id_refused: bool) -> Option<String> {
    let words = "the sandbox refuses set-user-id and set-group-id files and directories: the command tried to make one";
    set_id_refused.then(|| words.to_owned())
}

fn counted(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// `1.2 s`, `3 min 20 s`.
fn spoken(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}
