//! Shell lines: which commands a line would really run, read with a real grammar.
//!
//! Here: the words of it and `read`. Elsewhere in this directory: the grammar (`parse`, `simple`, `compound`,
//! `redirect`, `word`, `expand`, `brace`), what a command does with its words (`runs`, `builtin`, `wrapper`, `launch`,
//! `code`, `git`), environments that change what a name
//! means (`environment`), what a word that is not known can become (`shape`, `listing`), the second reading by tree-sitter (`tree`). What a line hides is brought to light; what cannot
//! be known makes the line unsure, and an unsure line is never allowed by a rule. Invariants, kept by `shell_bash`
//! against a real bash: a sure line runs nothing that is not listed, and its known words are what bash hands over.

mod arithmetic;
mod brace;
mod builtin;
mod code;
mod compound;
mod environment;
mod expand;
mod found;
mod git;
mod launch;
mod listing;
mod look;
mod parse;
mod redirect;
mod runs;
mod scripts;
mod shape;
mod simple;
mod tree;
mod word;
mod wrapper;

use std::fmt;

pub use environment::{harmless_name, poisons};
pub use scripts::{Scripts, scripts};
pub(crate) use shape::Atom;
pub use shape::Shape;

/// The longest line that is read; a longer one is unsure.
pub const LINE_BYTES: usize = 64 * 1024;
/// How many commands a line may run; with more it is unsure.
pub const COMMANDS: usize = 256;
/// How deep one shell may stand in another (`sh -c`, `eval`, wrappers); deeper it is unsure.
pub const DEPTH: usize = 8;
/// How deep substitutions, groups and parentheses may stand in each other; deeper it is unsure.
pub const NESTING: usize = 32;

/// What a shell line would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Every command that it would run, nested ones too, in the order in which they stand. A wrapper and what it wraps
    /// are two commands.
    pub commands: Vec<Command>,
    /// Files that the shell itself would open, of all commands.
    pub redirects: Vec<Redirect>,
    /// Directories into which the line changes, as far as they are known, from where it begins.
    pub directories: Vec<String>,
    /// Why it cannot be said what the line would run; then nothing allows it.
    pub unsure: Option<String>,
    /// It is no line that a shell could read to its end, or none that shows itself as it is: then a person is asked,
    /// also where an unsure line would run in its fence.
    pub broken: bool,
}

/// One command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The command and its arguments, as the shell would hand them over, without leading assignments.
    pub words: Vec<Word>,
    /// `NAME=value` before it, or handed over by `env`; also the words of `export NAME=value` and its like.
    pub assignments: Vec<(String, Word)>,
    /// What it stands inside of, outermost first: `sudo`, `sh -c`, `$( )` …
    pub inside: Vec<String>,
    /// Why its words do not say what it does (inline code, a poisoned environment, a shadowed name …); then a rule for
    /// its first words does not vouch for it.
    pub opaque: Option<String>,
}

/// A word as far as it can be known before the line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly this.
    Known(String),
    /// Depends on a variable, a substitution, a glob …: as it is written, and what it can become. May become no word, or
    /// several.
    Unknown { raw: String, shape: Shape },
}

/// A file that the shell opens for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub target: Word,
    pub writes: bool,
}

impl Word {
    /// A word that can become anything.
    pub fn unknown(raw: impl Into<String>) -> Word {
        Word::Unknown { raw: raw.into(), shape: Shape::anything() }
    }

    /// The word, if it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Word::Known(word) => Some(word),
            Word::Unknown { .. } => None,
        }
    }
}

impl Command {
    /// The name of the program, without the directories before it, if it is known.
    pub fn name(&self) -> Option<&str> {
        self.words.first().and_then(Word::known).map(base_name)
    }

    /// For people: `sudo › FOO=1 rm -rf 'a b'`. Unknown words stand as they are written.
    pub fn shown(&self) -> String {
        self.to_string()
    }
}

impl Line {
    /// For people: each command that would run on a line of its own.
    pub fn shown(&self) -> Vec<String> {
        self.commands.iter().map(Command::shown).collect()
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outer in &self.inside {
            write!(f, "{} › ", look::visible(outer))?;
        }
        let declares = self.words.first().and_then(Word::known).is_some_and(builtin::declares);
        let mut gap = "";
        for (name, value) in self.assignments.iter().filter(|_| !declares) {
            write!(f, "{gap}{}={value}", look::visible(name))?;
            gap = " ";
        }
        for (at, word) in self.words.iter().enumerate() {
            match word {
                // A name with `=` in it is none that assigns: it was quoted.
                Word::Known(name) if at == 0 && name.contains('=') => {
                    write!(f, "{gap}{}", look::in_quotes(name))?;
                }
                word => write!(f, "{gap}{word}")?,
            }
            gap = " ";
        }
        Ok(())
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Known(word) => f.write_str(&look::quoted(word)),
            Word::Unknown { raw, .. } => f.write_str(&look::visible(raw)),
        }
    }
}

/// What stands behind the last `/`.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Reads a shell line.
pub fn read(line: &str) -> Line {
    let mut found = found::Found::default();
    if let Some(reason) = look::unreadable(line) {
        found.broken(reason);
    }
    if line.len() > LINE_BYTES {
        let reason = format!("the line has {} bytes; at most {LINE_BYTES} are read", line.len());
        found.broken(reason);
        return found.finish();
    }
    parse::read_into(line, &mut found);
    if found.line.unsure.is_none()
        && let Err(reason) = tree::agrees(line, &found.starts)
    {
        found.broken(reason);
    }
    found.finish()
}
