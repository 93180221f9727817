//! Running other programs from the workspace root.
//!
//! Here: starting one, waiting, turning a bad end into words. Elsewhere: which ones (`commands`).

use std::process::{Command, Stdio};

use xtask::tree;

/// A Cargo command at the workspace root, by the Cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(tree::root()).args(args);
    command
}

/// Runs it with our own input and output; anything but success is an error that quotes the command.
pub(crate) fn must(command: &mut Command) -> Result<(), String> {
    let said = spoken(command);
    let status = command.status().map_err(|why| format!("cannot run `{said}`: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{said}` ended with {status}")) }
}

/// Whether a command runs at all and succeeds, its output thrown away.
pub(crate) fn is_there(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The command as one would type it.
fn spoken(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
