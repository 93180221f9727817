//! Output of the program: stdout for results, stderr for everything else. All text for users is printed here.
//!
//! Invariant: printed text of models, tools and files contains no control characters except newline and tab,
//! on a pipe and on a terminal (`every_command_prints_clean_text`,
//! `texts_for_people_leave_through_the_screen`), and a closed pipe is a normal end
//! (`a_closed_pipe_is_no_error`).
//! Elsewhere: the hostile characters (`sanitize`).

mod sanitize;

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};

pub(crate) use sanitize::{escape_json, sanitize_text};

/// Heading of the options that every command has, in `--help`.
const GLOBAL_HEADING: &str = "Global options";

/// Options of every command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GlobalOptions {
    /// Print the result as JSON
    #[arg(long, global = true, help_heading = GLOBAL_HEADING)]
    pub(crate) json: bool,
    /// Print only the result
    #[arg(long, short, global = true, help_heading = GLOBAL_HEADING)]
    pub(crate) quiet: bool,
    /// Colour the output; `auto` does on a terminal without NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = GLOBAL_HEADING)]
    pub(crate) color: ColorChoice,
    /// PostgreSQL address of sessions; MINKE_STORE hides it from `ps`
    #[arg(long, global = true, value_name = "ADDRESS", help_heading = GLOBAL_HEADING)]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    // On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Output settings of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CliOutput {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    color: bool,
    stdout_terminal: bool,
    /// Print text to a pipe or file byte for byte.
    raw: bool,
}

impl CliOutput {
    pub(crate) fn new(common: &GlobalOptions, context: &CliContext) -> CliOutput {
        let color = match common.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => context.stderr_terminal && !context.is_env_set("NO_COLOR"),
        };
        CliOutput {
            json: common.json,
            quiet: common.quiet,
            color,
            stdout_terminal: context.stdout_terminal,
            raw: false,
        }
    }

    /// Returns true if colours are enabled.
    pub(crate) fn has_color(&self) -> bool {
        self.color
    }

    /// Returns an output for errors before the environment is read: no colour, sanitized text.
    pub(crate) fn without_context(common: &GlobalOptions) -> CliOutput {
        let (json, quiet) = (common.json, common.quiet);
        CliOutput { json, quiet, color: false, stdout_terminal: true, raw: false }
    }

    /// Applies `--raw`. A terminal still gets sanitized text.
    pub(crate) fn with_raw(self, raw: bool) -> CliOutput {
        CliOutput { raw: raw && !self.stdout_terminal, ..self }
    }

    /// Prints a result for users.
    pub(crate) fn print_text(&self, text: &str) -> Result<(), CliError> {
        if self.raw {
            self.write_stdout(text.as_bytes())
        } else {
            self.write_stdout(sanitize_text(text).as_bytes())
        }
    }

    pub(crate) fn print_line(&self, text: &str) -> Result<(), CliError> {
        self.print_text(text)?;
        self.write_stdout(b"\n")
    }

    /// Prints one object on a line.
    pub(crate) fn print_json(&self, value: &Value) -> Result<(), CliError> {
        self.print_json_line(&value.to_string())
    }

    /// Prints serialized JSON with a newline.
    pub(crate) fn print_json_line(&self, json: &str) -> Result<(), CliError> {
        self.print_json_text(json)?;
        self.write_stdout(b"\n")
    }

    /// Prints serialized JSON. Escapes hostile characters in its strings, which keeps the values.
    pub(crate) fn print_json_text(&self, json: &str) -> Result<(), CliError> {
        self.write_stdout(escape_json(json).as_bytes())
    }

    /// Prints lines of JSON unchanged, for programs that compare bytes. A terminal gets them escaped.
    pub(crate) fn print_json_bytes(&self, json: &str) -> Result<(), CliError> {
        if self.stdout_terminal { self.print_json_text(json) } else { self.write_stdout(json.as_bytes()) }
    }

    fn write_stdout(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(CliError::stdout_closed()),
            Err(e) => Err(CliError::new(ExitKind::Storage, "could not write to stdout").with_reason(e)),
        }
    }

    /// Prints progress on stderr, unless `--quiet` is given.
    pub(crate) fn print_note(&self, text: &str) {
        if !self.quiet {
            self.write_stderr_line(text, "\u{1b}[2m");
        }
    }

    /// Prints a warning on stderr.
    pub(crate) fn print_warning(&self, text: &str) {
        self.write_stderr_line(&format!("warning: {text}"), "\u{1b}[33m");
    }

    fn write_stderr_line(&self, text: &str, color: &str) {
        let text = sanitize_text(text);
        let line = if self.color { format!("{color}{text}\u{1b}[0m\n") } else { format!("{text}\n") };
        // If stderr is closed, nothing can be reported.
        drop(io::stderr().write_all(line.as_bytes()));
    }

    /// Prints an error on stderr, as text or as an object.
    pub(crate) fn print_error(&self, failure: &CliError) {
        if failure.is_silent() {
            return;
        }
        let text = if self.json {
            format!("{}\n", escape_json(&failure.to_json().to_string()))
        } else {
            failure.to_text()
        };
        drop(io::stderr().write_all(text.as_bytes()));
    }
}

/// Writes a question to the terminal, without a newline.
pub(crate) fn write_prompt(question: &str) -> io::Result<()> {
    io::stderr().write_all(sanitize_text(question).as_bytes())
}
