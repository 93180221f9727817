//! Shell lines: finds the commands that a line would run, with a full parser.
//!
//! This module has the types and the entry point. Submodules: the grammar (`parse`, `simple`, `compound`,
//! `redirect`, `word`, `expand`, `brace`), the effects of commands (`effects`, `builtin`, `wrapper`,
//! `launch`, `code`, `git`), environment variables that change the meaning of names (`env_vars`), possible
//! values of unknown words (`shape`, `output_shape`), and a second parse with tree-sitter (`tree_check`). A
//! line whose commands cannot be determined is uncertain, and no rule allows an uncertain line. The test
//! `shell_bash` checks these invariants with a real bash: a certain line runs only the listed commands, with
//! exactly their known words.

mod commands;
mod cursor;
mod display;
mod effects;
mod findings;
mod output_shape;
mod parse;
mod shape;
mod tree_check;
mod words;

use std::fmt;

pub use commands::scripts::{ScriptFiles, find_scripts};
pub(crate) use shape::ShapeAtom;
pub use shape::WordShape;
pub use words::env_vars::{is_dangerous_variable, is_harmless_variable};

/// The maximum length of a line; a longer one is uncertain.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// The maximum number of commands of a line; with more the line is uncertain.
pub const MAX_COMMANDS: usize = 256;
/// The maximum depth of nested shells (`sh -c`, `eval`, wrappers); a deeper line is uncertain.
pub const MAX_SHELL_DEPTH: usize = 8;
/// The maximum depth of nested substitutions, groups and parentheses; a deeper line is uncertain.
pub const MAX_NESTING: usize = 32;

/// The commands and files of a shell line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellLine {
    /// Every command that the line would run, including nested ones, in textual order. A wrapper and its
    /// command are two commands.
    pub commands: Vec<ShellCommand>,
    /// The files that the shell itself would open, of all commands.
    pub redirects: Vec<ShellRedirect>,
    /// The directories that the line changes into, as far as they are known, relative to its start.
    pub directories: Vec<String>,
    /// Why the commands of the line cannot be determined; then no rule allows it.
    pub uncertain_reason: Option<String>,
    /// A shell could not parse the line, or the line does not display as it is. Then it needs approval, even
    /// where an uncertain line would run in its sandbox.
    pub is_malformed: bool,
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// The command and its arguments as the shell would pass them, without leading assignments.
    pub words: Vec<ShellWord>,
    /// Assignments before the command or passed by `env`, and the arguments of `export NAME=value` and
    /// similar.
    pub assignments: Vec<(String, ShellWord)>,
    /// The enclosing constructs, outermost first: `sudo`, `sh -c`, `$( )` …
    pub enclosing: Vec<String>,
    /// Why the words do not determine the effect (inline code, a dangerous variable, a redefined name …).
    /// Then a rule for the first words does not allow the command.
    pub opaque_reason: Option<String>,
}

/// A word, as far as it is known before the line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellWord {
    /// The exact word.
    Known(String),
    /// A word that depends on a variable, a substitution or a glob: its source text and its possible values.
    /// It may become no word or several words.
    Unknown { raw: String, shape: WordShape },
}

/// A file that the shell opens for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellRedirect {
    pub target: ShellWord,
    pub writes: bool,
}

impl ShellWord {
    /// Creates a word that can become anything.
    pub fn any_value(raw: impl Into<String>) -> ShellWord {
        ShellWord::Unknown { raw: raw.into(), shape: WordShape::any_text() }
    }

    /// Returns the word if it is known.
    pub fn as_known(&self) -> Option<&str> {
        match self {
            ShellWord::Known(word) => Some(word),
            ShellWord::Unknown { .. } => None,
        }
    }
}

impl ShellCommand {
    /// Returns the name of the program without its directory, if it is known.
    pub fn program_name(&self) -> Option<&str> {
        self.words.first().and_then(ShellWord::as_known).map(base_name)
    }

    /// Formats the command for users: `sudo › FOO=1 rm -rf 'a b'`. Unknown words appear as in the source.
    pub fn display_text(&self) -> String {
        self.to_string()
    }
}

impl ShellLine {
    /// Formats each command of the line for users.
    pub fn command_texts(&self) -> Vec<String> {
        self.commands.iter().map(ShellCommand::display_text).collect()
    }
}

impl fmt::Display for ShellCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outer in &self.enclosing {
            write!(f, "{} › ", display::escape_invisible(outer))?;
        }
        let declares =
            self.words.first().and_then(ShellWord::as_known).is_some_and(commands::builtin::is_declaration);
        let mut gap = "";
        for (name, value) in self.assignments.iter().filter(|_| !declares) {
            write!(f, "{gap}{}={value}", display::escape_invisible(name))?;
            gap = " ";
        }
        for (at, word) in self.words.iter().enumerate() {
            match word {
                // A first word that contains `=` was quoted, so it is not an assignment.
                ShellWord::Known(name) if at == 0 && name.contains('=') => {
                    write!(f, "{gap}{}", display::force_quotes(name))?;
                }
                word => write!(f, "{gap}{word}")?,
            }
            gap = " ";
        }
        Ok(())
    }
}

impl fmt::Display for ShellWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShellWord::Known(word) => f.write_str(&display::quote_word(word)),
            ShellWord::Unknown { raw, .. } => f.write_str(&display::escape_invisible(raw)),
        }
    }
}

/// Returns the text after the last `/`.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses a shell line.
pub fn parse_shell_line(line: &str) -> ShellLine {
    let mut findings = findings::ShellFindings::default();
    if let Some(reason) = display::display_problem(line) {
        findings.mark_malformed(reason);
    }
    if line.len() > MAX_LINE_BYTES {
        let reason = format!("the line has {} bytes; at most {MAX_LINE_BYTES} are read", line.len());
        findings.mark_malformed(reason);
        return findings.finish();
    }
    parse::parse_into(line, &mut findings);
    if findings.line.uncertain_reason.is_none()
        && let Err(reason) = tree_check::check_agreement(line, &findings.command_starts)
    {
        findings.mark_malformed(reason);
    }
    findings.finish()
}
