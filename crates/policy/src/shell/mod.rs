//! Shell lines: which commands a line would really run, read with a real grammar.
//!
//! Here: the words of it. What a line hides (chains, substitutions, wrappers, `eval`, `sh -c`, here-documents …) is
//! brought to light; what cannot be known makes the line unsure, and an unsure line is never allowed by a rule.

/// The longest line that is read; a longer one is unsure.
pub const LINE_BYTES: usize = 64 * 1024;
/// How many commands a line may run; with more it is unsure.
pub const COMMANDS: usize = 256;
/// How deep one shell may stand in another (`sh -c`, `eval`, substitutions); deeper it is unsure.
pub const DEPTH: usize = 8;

/// What a shell line would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Every command that it would run, nested ones too, in the order in which they stand. A wrapper and what it wraps
    /// are two commands.
    pub commands: Vec<Command>,
    /// Files that the shell itself would open, of all commands.
    pub redirects: Vec<Redirect>,
    /// Why it cannot be said what the line would run; then nothing allows it.
    pub unsure: Option<String>,
}

/// One command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The command and its arguments, as the shell would hand them over, without leading assignments.
    pub words: Vec<Word>,
    /// `NAME=value` before it: names only matter to those who look for poisoned environments.
    pub assignments: Vec<(String, Word)>,
    /// What it stands inside of, outermost first: `sudo`, `sh -c`, `$( )` …
    pub inside: Vec<String>,
}

/// A word as far as it can be known before the line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly this.
    Known(String),
    /// Depends on a variable, a substitution, a glob …; as it is written.
    Unknown(String),
}

/// A file that the shell opens for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub target: Word,
    pub writes: bool,
}

/// Reads a shell line.
pub fn read(_line: &str) -> Line {
    Line { unsure: Some("shell lines are not read yet".to_owned()), ..Line::default() }
}
