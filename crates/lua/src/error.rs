//! Errors of profiles and their lines.
//!
//! Here: the error type and its construction from errors of the machine.

use std::rc::Rc;

use mlua::{Error, Lua};

use crate::limits::ExceededLimit;
use crate::modules::ChunkTable;

/// The longest kept message. A profile can raise an error of any size.
const MAX_MESSAGE_CHARS: usize = 600;
/// How many stack levels to search for a line.
const MAX_STACK_LEVELS: usize = 64;

/// Why a profile does not produce a recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct LuaError {
    /// The name of the source.
    pub file: String,
    pub line: Option<u32>,
    pub message: String,
}

impl LuaError {
    /// Creates an error at the current position of the script.
    pub(crate) fn at_current_line(lua: &Lua, chunks: &ChunkTable, message: impl Into<String>) -> Error {
        let (file, line) = current_place(lua, chunks);
        Error::external(LuaError { file, line, message: message.into() })
    }
}

/// Returns the current file and line of the script.
pub(crate) fn current_place(lua: &Lua, chunks: &ChunkTable) -> (String, Option<u32>) {
    let found = (0..MAX_STACK_LEVELS).find_map(|level| {
        lua.inspect_stack(level, |at| {
            let chunk = at.source().short_src.as_deref().and_then(|name| parse_chunk_number(name)?.0.into());
            chunk.zip(at.current_line())
        })
        .flatten()
    });
    match found {
        Some((chunk, line)) => (chunks.chunk_file(chunk), u32::try_from(line).ok()),
        None => (chunks.chunk_file(0), None),
    }
}

/// Converts an error of the machine into one for users.
pub(crate) fn from_machine_error(error: &Error, chunks: &Rc<ChunkTable>) -> LuaError {
    match error {
        Error::CallbackError { traceback, cause } => {
            let mut told = from_machine_error(cause, chunks);
            if told.line.is_none()
                && let Some((chunk, line)) = find_first_place(traceback)
            {
                (told.file, told.line) = (chunks.chunk_file(chunk), Some(line));
            }
            told
        }
        Error::ExternalError(cause) => match (cause.downcast_ref(), cause.downcast_ref::<ExceededLimit>()) {
            (Some(known), _) => LuaError::clone(known),
            (None, Some(stop)) => from_unplaced_message(stop.to_string(), chunks),
            (None, None) => from_unplaced_message(cause.to_string(), chunks),
        },
        Error::MemoryError(_) => from_unplaced_message(ExceededLimit::Memory.to_string(), chunks),
        Error::RuntimeError(raw) | Error::SyntaxError { message: raw, .. } => {
            from_runtime_message(raw, chunks)
        }
        other => from_runtime_message(&other.to_string(), chunks),
    }
}

fn from_unplaced_message(message: String, chunks: &ChunkTable) -> LuaError {
    LuaError { file: chunks.chunk_file(0), line: None, message }
}

/// Parses `#1:7: message`, optionally followed by a traceback.
fn from_runtime_message(raw: &str, chunks: &ChunkTable) -> LuaError {
    let (message, traceback) = raw.split_once("\nstack traceback:").unwrap_or((raw, ""));
    let (message, at) = match parse_leading_place(message) {
        Some((chunk, line, rest)) => (rest, Some((chunk, line))),
        None => (message, find_first_place(traceback)),
    };
    let (file, line) = match at {
        Some((chunk, line)) => (chunks.chunk_file(chunk), Some(line)),
        None => (chunks.chunk_file(0), None),
    };
    LuaError { file, line, message: truncate_message(message) }
}

fn truncate_message(message: &str) -> String {
    // The machine prints such an object with its address, which differs every time.
    let object = ["table", "function", "userdata", "thread"]
        .into_iter()
        .find(|kind| message.strip_prefix(kind).is_some_and(|rest| rest.starts_with(": 0x")));
    if let Some(kind) = object {
        return format!("an error was raised that is not text but a {kind}");
    }
    let mut text: String = message.chars().take(MAX_MESSAGE_CHARS).flat_map(escape_control).collect();
    if message.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        text.push('…');
    }
    // `error()` raises nil.
    if text.trim().is_empty() || text == "nil" {
        "an error was raised without a message".to_owned()
    } else {
        text
    }
}

/// Escapes control characters, so that a profile cannot control the terminal.
fn escape_control(c: char) -> impl Iterator<Item = char> {
    let control = c.is_control() && c != '\n' && c != '\t';
    let escaped = control.then(|| c.escape_debug());
    escaped.into_iter().flatten().chain((!control).then_some(c))
}

/// Parses `#1` of `#1:7: …`, the name of a chunk, and returns the rest.
fn parse_chunk_number(name: &str) -> Option<(usize, &str)> {
    let rest = name.strip_prefix('#')?;
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

fn parse_leading_place(text: &str) -> Option<(usize, u32, &str)> {
    let (chunk, rest) = parse_chunk_number(text)?;
    let (line, rest) = rest.strip_prefix(':')?.split_once(':')?;
    Some((chunk, line.parse().ok()?, rest.trim_start()))
}

fn find_first_place(traceback: &str) -> Option<(usize, u32)> {
    traceback.lines().find_map(|line| {
        let at = line.trim_start();
        let (chunk, rest) =
            at.strip_prefix("[string \"").map_or_else(|| parse_chunk_number(at), parse_chunk_number)?;
        let rest = rest.trim_start_matches("\"]").strip_prefix(':')?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some((chunk, digits.parse().ok()?))
    })
}
