//! Runs other programs from the workspace root.
//!
//! Here: starting one, waiting, describing failures. Elsewhere: the commands (`commands`).

use std::process::{Command, Stdio};

use xtask::tree;

/// A Cargo command at the workspace root, with the Cargo binary that runs xtask.
pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(tree::workspace_root()).args(args);
    command
}

/// Runs a command with inherited input and output; a failure is an error that quotes the command.
pub(crate) fn run_command(command: &mut Command) -> Result<(), String> {
    let said = command_line(command);
    let status = command.status().map_err(|why| format!("could not run `{said}`: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{said}` ended with {status}")) }
}

/// Whether a command can be run and succeeds; discards its output.
pub(crate) fn is_available(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The command line of a command.
fn command_line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
