//! The screen: stdout for what was asked for, stderr for everything else; nothing untrusted can move a cursor.
//!
//! Invariant: text of models, tools and files cannot emit escape sequences on a terminal
//! (`control_characters_are_made_visible`), and a closed pipe is an ordinary end (`a_closed_pipe_is_no_error`).

use std::borrow::Cow;
use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};

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
    stderr_terminal: bool,
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
            stderr_terminal: around.stderr_terminal,
        }
    }

    /// Whether colours are wanted.
    pub(crate) fn has_color(&self) -> bool {
        self.color
    }

    /// Before the surroundings are known: no colour, nothing trusted.
    pub(crate) fn plain(common: &Common) -> Screen {
        let (json, quiet) = (common.json, common.quiet);
        Screen { json, quiet, color: false, stdout_terminal: true, stderr_terminal: true }
    }

    /// What was asked for. On a terminal, control characters are made visible; in a pipe it is given as it is.
    pub(crate) fn out(&self, text: &str) -> Result<(), Failure> {
        let text = if self.stdout_terminal { clean(text) } else { Cow::Borrowed(text) };
        self.raw(text.as_bytes())
    }

    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.out(text)?;
        self.raw(b"\n")
    }

    /// One object on a line.
    pub(crate) fn object(&self, value: &Value) -> Result<(), Failure> {
        let mut text = value.to_string();
        text.push('\n');
        // JSON escapes control characters below U+0020 itself; the terminal's other ones are cleaned by `out`.
        self.out(&text)
    }

    fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
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
        let text = if self.stderr_terminal { clean(text) } else { Cow::Borrowed(text) };
        let line = if self.color { format!("{color}{text}\u{1b}[0m\n") } else { format!("{text}\n") };
        // If stderr is gone there is nobody left to be told.
        drop(io::stderr().write_all(line.as_bytes()));
    }

    /// An error, as text or as an object, on stderr: stdout holds nothing but results.
    pub(crate) fn fail(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        let text = if self.json { format!("{}\n", failure.json()) } else { failure.text() };
        drop(io::stderr().write_all(text.as_bytes()));
    }
}

/// Text with its control characters made visible, newlines and tabs apart. Marks that reorder text are among them:
/// they make a command look like another one.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hostile) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if hostile(c) { visible(c) } else { c }).collect())
}

fn hostile(c: char) -> bool {
    let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    (c.is_control() && c != '\n' && c != '\t') || reorders
}

fn visible(c: char) -> char {
    match u32::from(c) {
        // Unicode has a picture for each of the old ones.
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_made_visible() {
        assert_eq!(clean("a\n\tb é 漢"), "a\n\tb é 漢");
        assert_eq!(clean("\u{1b}]0;x\u{7}\r\u{7f}\u{9b}31m"), "␛]0;x␇␍␡\u{fffd}31m");
        assert_eq!(clean("rm \u{202e}fdp.exe"), "rm \u{fffd}fdp.exe");
    }
}
