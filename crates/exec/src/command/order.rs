//! What a command is told, what it comes to, and why there may be none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::fence::{Exit, FenceError};

/// The longest shell line: the kernel takes no argument of 128 KiB or more.
pub const COMMAND_BYTES: usize = 120 * 1024;
/// The longest id; it becomes a file's name.
const ID_BYTES: usize = 64;

/// Hides what nobody is to see in a stream of bytes. It may hold bytes back until it knows.
pub trait Veil: Send {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8>;
    /// Nothing more comes: what was held back.
    fn end(&mut self) -> Vec<u8>;
}

/// One command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOrder {
    /// Names it in news, in the table and on disk: letters, digits, `-` and `_`. `Commands::new_id` makes one.
    pub id: String,
    /// A shell line.
    pub command: String,
    pub cwd: PathBuf,
    /// After this time its tree is killed; without one it runs until it ends, is killed, or the pod dies.
    pub timeout: Option<Duration>,
    /// It gets a terminal instead of a pipe.
    pub tty: bool,
    /// Variables of this command only, over those of the fence.
    pub env: BTreeMap<String, String>,
}

impl RunOrder {
    /// Whether it can be tried at all.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.id.is_empty() || self.id.len() > ID_BYTES || !self.id.chars().all(plain) {
            return Err(CommandError::BadOrder(format!(
                "`{}` is no id of a command: use letters, digits, `-` and `_`, at most {ID_BYTES}",
                self.id.escape_debug().take(ID_BYTES).collect::<String>()
            )));
        }
        for (name, value) in &self.env {
            // A value may be a secret: only the name is told.
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(CommandError::BadOrder(format!(
                    "the variable `{}` cannot be set: its name is empty or holds `=`, or there is a NUL in it",
                    name.escape_debug().take(ID_BYTES).collect::<String>()
                )));
            }
        }
        check_line(&self.command)
    }
}

/// Whether a shell line can be given to a shell at all.
pub(super) fn check_line(command: &str) -> Result<(), CommandError> {
    if command.trim().is_empty() {
        return Err(CommandError::BadOrder("the command is empty: give a shell line".to_owned()));
    }
    if command.contains('\0') {
        let what = "the command holds a NUL, which no shell line can: write it as $'\\0' or leave it out";
        return Err(CommandError::BadOrder(what.to_owned()));
    }
    if command.len() > COMMAND_BYTES {
        return Err(CommandError::BadOrder(format!(
            "the command has {} bytes and may have {COMMAND_BYTES}: write it to a file and run that",
            command.len()
        )));
    }
    Ok(())
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub exit: Exit,
    pub timed_out: bool,
    /// All of its output if it fits, else the end: at most `INLINE_LINES` lines and `INLINE_BYTES` bytes.
    pub tail: String,
    /// Of the whole output.
    pub lines: u64,
    pub bytes: u64,
    /// Bytes that the file should hold and does not: those beyond `FILE_BYTES`, or all after it failed.
    pub dropped: u64,
    /// Where the whole output stands, if it does not fit.
    pub file: Option<PathBuf>,
    /// What went wrong in hearing or keeping the output, if anything did.
    pub unkept: Option<String>,
    /// The kernel refused it a call that would have made a set-user-id or set-group-id file.
    pub set_id_refused: bool,
    /// New repositories, and what was moved aside in repositories because it would run code.
    pub notes: Vec<String>,
    pub took: Duration,
}

/// Whether a background command runs, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Running,
    Ended { exit: Exit, timed_out: bool, killed: bool },
}

/// A piece of a background command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub command: String,
    pub status: Status,
    /// Since it was started, or as long as it took.
    pub elapsed: Duration,
    /// Offsets of `text` in what the command has said so far.
    pub start: u64,
    pub end: u64,
    pub text: String,
    /// Bytes between the place that was asked for and `start`: too long for one look, or not kept.
    pub skipped: u64,
    /// All that it has said so far.
    pub bytes: u64,
    pub file: Option<PathBuf>,
    /// What went wrong in hearing or keeping the output, if anything did.
    pub unkept: Option<String>,
    /// The kernel refused it a call that would have made a set-user-id or set-group-id file.
    pub set_id_refused: bool,
    /// As in `Finished`, once the command has ended.
    pub notes: Vec<String>,
}

/// Why a command was not run, told, heard or ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The order does not say something that can be done.
    #[error("{0}")]
    BadOrder(String),
    #[error("the command was not started: {0}")]
    Fence(#[from] FenceError),
    #[error("cannot {what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("{most} commands run in the background already ({running}): wait for one or kill one first")]
    TooMany { most: usize, running: String },
    #[error("there is no background command `{id}`: {known}")]
    Unknown { id: String, known: String },
    #[error("`{id}` is taken by another command: give it another id")]
    Taken { id: String },
    #[error("the command `{id}` has ended: it takes no input")]
    Ended { id: String },
    #[error("the input of the command `{id}` is closed: it reads no more")]
    Closed { id: String },
    #[error(
        "the command `{id}` took {taken} of {given} bytes and reads no more at the moment: look at its output, and send \
         the rest when it reads on"
    )]
    Full { id: String, taken: usize, given: usize },
    /// We were wrong about our own code.
    #[error("a part of Minke that runs commands stopped unexpectedly ({0}): this is a defect of Minke")]
    Defect(String),
}
