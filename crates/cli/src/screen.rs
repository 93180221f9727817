//! The screen: stdout for results, stderr for everything else. Every text for people leaves the program here.
//!
//! Invariant: text of models, tools and files holds no control character but newline and tab when it is printed, on a
//! pipe as on a terminal (`every_command_prints_clean_text`, `texts_for_people_leave_through_the_screen`), and a closed
//! pipe is an ordinary end (`a_closed_pipe_is_no_error`).
//! Elsewhere: which characters are hostile (`clean`).

mod clean;

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};

pub(crate) use clean::{clean, escape_json};

/// Options that every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Common {
    /// Give the result as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but the result
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) color: ColorWish,
    /// Keep sessions in PostgreSQL instead of files: postgres://user@host/database. Better in the variable MINKE_STORE,
    /// which no list of processes shows
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWish {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// Where a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    color: bool,
    stdout_terminal: bool,
    /// Texts go to a pipe or a file byte for byte, as the user asked.
    raw: bool,
}

impl Screen {
    pub(crate) fn new(common: &Common, around: &Surroundings) -> Screen {
        let color = match common.color {
            ColorWish::Always => true,
            ColorWish::Never => false,
            ColorWish::Auto => around.stderr_terminal && !around.has("NO_COLOR"),
        };
        Screen {
            json: common.json,
            quiet: common.quiet,
            color,
            stdout_terminal: around.stdout_terminal,
            raw: false,
        }
    }

    /// Whether colours are wanted.
    pub(crate) fn has_color(&self) -> bool {
        self.color
    }

    /// Before the surroundings are known: no colour, nothing trusted.
    pub(crate) fn plain(common: &Common) -> Screen {
        let (json, quiet) = (common.json, common.quiet);
        Screen { json, quiet, color: false, stdout_terminal: true, raw: false }
    }

    /// The same screen for a command with `--raw`. A terminal gets clean text all the same.
    pub(crate) fn with_raw(self, raw: bool) -> Screen {
        Screen { raw: raw && !self.stdout_terminal, ..self }
    }

    /// A result for people.
    pub(crate) fn out(&self, text: &str) -> Result<(), Failure> {
        if self.raw { self.write(text.as_bytes()) } else { self.write(clean(text).as_bytes()) }
    }

    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.out(text)?;
        self.write(b"\n")
    }

    /// One object on a line.
    pub(crate) fn object(&self, value: &Value) -> Result<(), Failure> {
        self.json_line(&value.to_string())
    }

    /// JSON that is written already, with an end of line.
    pub(crate) fn json_line(&self, json: &str) -> Result<(), Failure> {
        self.json_text(json)?;
        self.write(b"\n")
    }

    /// JSON that is written already. Its values stay as they are; hostile characters in its strings are escaped.
    pub(crate) fn json_text(&self, json: &str) -> Result<(), Failure> {
        self.write(escape_json(json).as_bytes())
    }

    /// Lines of JSON for programs that compare bytes, for example with a checksum. A terminal gets them escaped.
    pub(crate) fn json_bytes(&self, json: &str) -> Result<(), Failure> {
        if self.stdout_terminal { self.json_text(json) } else { self.write(json.as_bytes()) }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unread()),
            Err(e) => Err(Failure::new(Exit::Storage, "cannot write to stdout").why(e)),
        }
    }

    /// Progress: a line on stderr, unless it is to be quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.tell(text, "\u{1b}[2m");
        }
    }

    /// A warning: a line on stderr, always.
    pub(crate) fn warn(&self, text: &str) {
        self.tell(&format!("warning: {text}"), "\u{1b}[33m");
    }

    fn tell(&self, text: &str, color: &str) {
        let text = clean(text);
        let line = if self.color { format!("{color}{text}\u{1b}[0m\n") } else { format!("{text}\n") };
        // If stderr is gone there is nobody left to be told.
        drop(io::stderr().write_all(line.as_bytes()));
    }

    /// An error, as text or as an object, on stderr: stdout holds nothing but results.
    pub(crate) fn fail(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        let text = if self.json {
            format!("{}\n", escape_json(&failure.json().to_string()))
        } else {
            failure.text()
        };
        drop(io::stderr().write_all(text.as_bytes()));
    }
}

/// A question to the person at the terminal, without an end of line.
pub(crate) fn ask(question: &str) -> io::Result<()> {
    io::stderr().write_all(clean(question).as_bytes())
}
