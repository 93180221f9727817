//! The shell tools: run commands, read their output, send them input, and kill them.
//!
//! Submodules: Bash (`bash`), BashOutput (`bash_output`), BashInput (`input`), KillBash (`kill`), and the
//! limit for all output files (`output_retention`). This module formats exit statuses and shortened output.
//! `exec` runs and kills the commands. Without commands, as in a replay, the tools describe themselves and
//! prepare calls, but do not run them.

mod bash;
mod bash_output;
mod input;
mod kill;
mod output_retention;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_exec::command::{CommandError, Commands, MAX_FILE_BYTES};
use minke_exec::sandbox::ProcessExit;
use minke_tool::{Tool, ToolError, ToolFuture, ToolOutput};

/// The maximum part of a command in a summary.
const SUMMARY_CHARS: usize = 80;
/// The time that a call may take in addition to its timeout: to set up the sandbox, to kill, and to read the
/// last output.
const GRACE_PERIOD: Duration = Duration::from_secs(15);

/// Creates the shell tools, sorted by name.
pub fn shell_tools(commands: Option<Arc<Commands>>) -> Vec<Arc<dyn Tool>> {
    let retention = Arc::new(output_retention::OutputRetention::default());
    vec![
        Arc::new(bash::BashTool { commands: commands.clone(), retention: Arc::clone(&retention) }),
        Arc::new(input::BashInputTool { commands: commands.clone() }),
        Arc::new(bash_output::BashOutputTool { commands: commands.clone(), retention }),
        Arc::new(kill::KillBashTool { commands }),
    ]
}

/// Runs a call with checked arguments, if commands are available.
fn run_with_commands<A, F>(
    tool: &'static str,
    commands: Option<&Arc<Commands>>,
    checked: Result<A, ToolError>,
    run: impl FnOnce(Arc<Commands>, A) -> F,
) -> ToolFuture
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    match (checked, commands) {
        (Err(error), _) => Box::pin(std::future::ready(Err(error))),
        (Ok(_), None) => Box::pin(std::future::ready(Err(ToolError::Internal(format!(
            "{tool} was called where no command can run: this is a bug in Minke"
        ))))),
        (Ok(arguments), Some(commands)) => Box::pin(run(Arc::clone(commands), arguments)),
    }
}

fn command_error(error: CommandError) -> ToolError {
    let text = error.to_string();
    match error {
        CommandError::InvalidCommand(_) | CommandError::UnknownId { .. } => ToolError::InvalidArguments(text),
        CommandError::Internal(_) | CommandError::DuplicateId { .. } => ToolError::Internal(text),
        CommandError::Sandbox(_)
        | CommandError::Io { .. }
        | CommandError::TooMany { .. }
        | CommandError::Ended { .. }
        | CommandError::InputClosed { .. }
        | CommandError::InputFull { .. } => ToolError::ExecutionFailed(text),
    }
}

/// Checks the id of a background command.
fn check_id(id: String) -> Result<String, ToolError> {
    if id.trim().is_empty() {
        let what = "`id` is empty: give the id that Bash returned when it started the command";
        return Err(ToolError::InvalidArguments(what.to_owned()));
    }
    Ok(id)
}

/// Parses a number of seconds with a maximum.
fn parse_seconds(key: &str, value: f64, most: Duration) -> Result<Duration, ToolError> {
    let span = Duration::try_from_secs_f64(value).ok().filter(|span| *span <= most);
    span.ok_or_else(|| {
        // Show a huge number in scientific notation.
        let shown = if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") };
        ToolError::InvalidArguments(format!(
            "`{key}` is {shown}: give seconds, at most {}{}",
            most.as_secs(),
            if value >= 1_000.0 { " (not milliseconds)" } else { "" }
        ))
    })
}

/// Returns `$` and the first line of a command.
fn summary_line(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or_default().trim_end();
    let shown: String = line.chars().take(SUMMARY_CHARS).collect();
    let more = if shown.len() < command.trim().len() { "…" } else { "" };
    format!("$ {shown}{more}")
}

fn describe_exit(exit: ProcessExit) -> String {
    match exit {
        ProcessExit::Code(code) => format!("exit {code}"),
        ProcessExit::Signal(signal) => match signal_name(signal) {
            Some(name) => format!("ended by {name}"),
            None => format!("ended by signal {signal}"),
        },
    }
}

/// Returns the name of a common signal.
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

/// Tells how much of an output a file contains, and its path. The path is never shortened, because the model
/// reads the file with it.
fn file_note(bytes: u64, file: &Path, unkept: bool) -> String {
    let file = file.display();
    if unkept {
        // A separate note tells the error.
        return format!("the part of it that could be stored is in {file}");
    }
    match bytes.saturating_sub(MAX_FILE_BYTES) {
        0 => format!("all of it is in {file}"),
        dropped => format!(
            "its first {} MiB are in {file}, and the {} after them were dropped",
            MAX_FILE_BYTES / (1024 * 1024),
            count_noun(dropped, "byte")
        ),
    }
}

/// Returns the output for the model, after a note about omitted parts and their file.
fn frame_output(
    cut: Option<String>,
    file_note: Option<String>,
    others: impl Iterator<Item = String>,
    text: &str,
) -> Option<String> {
    let mut notes: Vec<String> = cut.into_iter().collect();
    if !notes.is_empty() {
        notes.extend(file_note);
    }
    notes.extend(others);
    match (notes.is_empty(), text.is_empty()) {
        (true, true) => None,
        (true, false) => Some(text.to_owned()),
        (false, _) => Some(format!("[{}]\n{text}", notes.join("; "))),
    }
}

fn loss_note(unkept: Option<&String>) -> Option<String> {
    unkept.map(|why| format!("some of it may be lost: {why}"))
}

/// Returns a note about what the kernel rejected; the command itself saw only "Operation not permitted".
fn set_id_note(set_id_refused: bool) -> Option<String> {
    let words = "the sandbox refuses set-user-id and set-group-id files and directories: the command tried to make one";
    set_id_refused.then(|| words.to_owned())
}

fn count_noun(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Formats `1.2 s`, `3 min 20 s`.
fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}
