//! The `minke` binary. One file per subcommand; each reads its environment from `CliContext` and prints
//! through `CliOutput`.

mod commands;
mod completions;
mod context;
mod engine_client;
mod error;
mod help;
mod output;
mod process;
mod render;
mod scope_conflict;
mod tui_backend;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use context::CliContext;
use error::{CliError, ExitKind};
use output::{CliOutput, GlobalOptions};

/// Run coding agents as pods: one agent, one process, one append-only log
#[derive(Debug, Parser)]
#[command(name = "minke", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    common: GlobalOptions,
    /// Command to run (default: open the terminal UI in this directory)
    #[command(subcommand)]
    command: Option<commands::Command>,
}

fn main() -> ExitCode {
    // Before anything else: the sandbox helper is this binary, executed under another name.
    if std::env::args_os().next().is_some_and(|name| minke_exec::sandbox::is_helper(&name)) {
        return minke_exec::sandbox::helper_main();
    }
    process::umask::make_files_private();
    if let Err(failure) = process::hardening::protect_memory() {
        CliOutput::without_context(&GlobalOptions::default()).print_error(&failure);
        return failure.exit.into();
    }
    let minke = match parse_arguments() {
        Ok(minke) => minke,
        Err(error) => return report_usage_error(&error),
    };
    if let Some(failure) = process::store::reexec_with_store(&minke.common) {
        CliOutput::without_context(&minke.common).print_error(&failure);
        return failure.exit.into();
    }
    let context = match CliContext::from_process() {
        Ok(around) => around,
        Err(failure) => {
            CliOutput::without_context(&minke.common).print_error(&failure);
            return failure.exit.into();
        }
    };
    let output = CliOutput::new(&minke.common, &context);
    process::panic::install_hook(&context);
    let done = match minke.command {
        Some(command) => commands::run_command(command, &context, &output),
        None => run_default(&context, &output),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            output.print_error(&failure);
            failure.exit.into()
        }
    }
}

fn parse_arguments() -> Result<Cli, clap::Error> {
    let mut command = help::group_commands(Cli::command(), commands::GROUP_OF_COMMAND);
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Runs `minke` without a command.
fn run_default(context: &CliContext, output: &CliOutput) -> Result<ExitCode, CliError> {
    commands::wakes_host(context, output)?;
    commands::wait_for(tui_backend::run_default(context, output)).map(ExitCode::from)
}

/// Prints help and versions to stdout; everything else is a usage error. With `--json`, the error is printed
/// as an object.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Ignore an error: the reader has closed the pipe.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    let json = std::env::args_os().any(|word| word == "--json");
    if json {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        let failure = CliError::usage(message).with_hint(format!("`{} --help`", Cli::command().get_name()));
        CliOutput::without_context(&GlobalOptions { json, ..GlobalOptions::default() }).print_error(&failure);
    } else {
        let text = error.render().to_string();
        // The message repeats the arguments. Only text without control characters keeps clap's colours.
        drop(if output::sanitize_text(&text) == text { error.print() } else { output::write_prompt(&text) });
    }
    ExitKind::Usage.into()
}
