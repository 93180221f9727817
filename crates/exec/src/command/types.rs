//! Types of a command: specification, result, output chunk, errors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::sandbox::{ProcessExit, SandboxError};

/// The longest shell line: the kernel rejects arguments of 128 KiB or more.
pub const MAX_COMMAND_BYTES: usize = 120 * 1024;
/// The longest id; it becomes a file name.
const MAX_ID_BYTES: usize = 64;

/// Redacts secrets in a stream of bytes. It may hold bytes back until it can decide.
pub trait OutputFilter: Send {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8>;
    /// Returns the bytes that were held back, at the end of the stream.
    fn finish(&mut self) -> Vec<u8>;
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// Identifies the command in events, in the command table and on disk: letters, digits, `-` and `_`.
    /// `Commands::new_id` creates one.
    pub id: String,
    /// A shell line.
    pub command: String,
    pub cwd: PathBuf,
    /// After this time its process tree is killed. Without a timeout it runs until it ends, is killed, or the pod
    /// exits.
    pub timeout: Option<Duration>,
    /// Whether it gets a terminal instead of a pipe.
    pub tty: bool,
    /// Variables of this command only; they override those of the sandbox.
    pub env: BTreeMap<String, String>,
}

impl CommandSpec {
    /// Checks id, variables and shell line.
    pub(super) fn validate(&self) -> Result<(), CommandError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.id.is_empty() || self.id.len() > MAX_ID_BYTES || !self.id.chars().all(plain) {
            return Err(CommandError::InvalidCommand(format!(
                "`{}` is not a command id: use letters, digits, `-` and `_`, at most {MAX_ID_BYTES}",
                self.id.escape_debug().take(MAX_ID_BYTES).collect::<String>()
            )));
        }
        for (name, value) in &self.env {
            // A value may be a secret, so the error contains only the name.
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(CommandError::InvalidCommand(format!(
                    "the variable `{}` cannot be set: its name is empty or contains `=`, or it contains a NUL",
                    name.escape_debug().take(MAX_ID_BYTES).collect::<String>()
                )));
            }
        }
        check_shell_line(&self.command)
    }
}

/// Checks whether a shell can run this line.
pub(super) fn check_shell_line(command: &str) -> Result<(), CommandError> {
    if command.trim().is_empty() {
        return Err(CommandError::InvalidCommand("the command is empty: give a shell line".to_owned()));
    }
    if command.contains('\0') {
        let what = "the command contains a NUL, which a shell line cannot: write it as $'\\0' or remove it";
        return Err(CommandError::InvalidCommand(what.to_owned()));
    }
    if command.len() > MAX_COMMAND_BYTES {
        return Err(CommandError::InvalidCommand(format!(
            "the command has {} bytes, the limit is {MAX_COMMAND_BYTES}: write it to a file and run the file",
            command.len()
        )));
    }
    Ok(())
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    pub exit: ProcessExit,
    pub timed_out: bool,
    /// All of its output if it fits inline, else the end: at most `INLINE_LINES` lines and `INLINE_BYTES` bytes.
    pub tail: String,
    /// Counts of the complete output.
    pub lines: u64,
    pub bytes: u64,
    /// Bytes that are missing in the file: those beyond `MAX_FILE_BYTES`, or all after a write error.
    pub dropped: u64,
    /// The file with the complete output, if it does not fit inline.
    pub file: Option<PathBuf>,
    /// The error in reading or storing the output, if there was one.
    pub spill_error: Option<String>,
    /// Whether the kernel refused a call that would have created a set-user-ID or set-group-ID file.
    pub set_id_refused: bool,
    /// New repositories, and files that were quarantined because git would run code from them.
    pub notes: Vec<String>,
    pub elapsed: Duration,
}

/// The state of a background command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStatus {
    Running,
    Ended { exit: ProcessExit, timed_out: bool, killed: bool },
}

/// A chunk of a background command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    pub command: String,
    pub status: CommandStatus,
    /// Time since the start, or the total running time.
    pub elapsed: Duration,
    /// Offsets of `text` in the output.
    pub start: u64,
    pub end: u64,
    pub text: String,
    /// Bytes between the requested offset and `start`, because one read is limited or they were not kept.
    pub skipped: u64,
    /// The number of bytes that the command has written so far.
    pub bytes: u64,
    pub file: Option<PathBuf>,
    /// The error in reading or storing the output, if there was one.
    pub spill_error: Option<String>,
    /// Whether the kernel refused a call that would have created a set-user-ID or set-group-ID file.
    pub set_id_refused: bool,
    /// As in `CommandOutcome`, once the command has ended.
    pub notes: Vec<String>,
}

/// Why a command could not be run, read or ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The specification or the input is invalid.
    #[error("{0}")]
    InvalidCommand(String),
    #[error("could not start the command: {0}")]
    Sandbox(#[from] SandboxError),
    #[error("could not {what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("{most} commands already run in the background ({running}): wait for one or kill one first")]
    TooMany { most: usize, running: String },
    #[error("there is no background command `{id}`: {known}")]
    UnknownId { id: String, known: String },
    #[error("the id `{id}` is used by another command: choose another id")]
    DuplicateId { id: String },
    #[error("the command `{id}` has ended and reads no input")]
    Ended { id: String },
    #[error("the input of the command `{id}` is closed")]
    InputClosed { id: String },
    #[error(
        "the command `{id}` read {taken} of {given} bytes and has stopped reading: look at its output, and \
         send the rest when it reads again"
    )]
    InputFull { id: String, taken: usize, given: usize },
    /// An internal error.
    #[error("a part of Minke that runs commands stopped unexpectedly ({0}): this is a defect of Minke")]
    Internal(String),
}
