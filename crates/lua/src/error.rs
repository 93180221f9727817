//! What went wrong in a profile, and on which line.
//!
//! Here: the error and how it is found in what the machine says. Elsewhere: raising it (everywhere in this crate).

use std::rc::Rc;

use mlua::{Error, Lua};

use crate::meter::Stop;
use crate::modules::Chunks;

/// The most of a message that is kept: a profile can raise an error of any size.
const MESSAGE_CHARS: usize = 600;
/// How far up the stack a line is looked for.
const LEVELS: usize = 64;

/// Why a text gives no recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct LuaError {
    /// As its source is called.
    pub file: String,
    pub line: Option<u32>,
    pub message: String,
}

impl LuaError {
    /// An error at the place where the script is now.
    pub(crate) fn here(lua: &Lua, chunks: &Chunks, message: impl Into<String>) -> Error {
        let (file, line) = place(lua, chunks);
        Error::external(LuaError { file, line, message: message.into() })
    }
}

/// The file and the line that the script has come to.
pub(crate) fn place(lua: &Lua, chunks: &Chunks) -> (String, Option<u32>) {
    let found = (0..LEVELS).find_map(|level| {
        lua.inspect_stack(level, |at| {
            let chunk = at.source().short_src.as_deref().and_then(|name| chunk_number(name)?.0.into());
            chunk.zip(at.current_line())
        })
        .flatten()
    });
    match found {
        Some((chunk, line)) => (chunks.file(chunk), u32::try_from(line).ok()),
        None => (chunks.file(0), None),
    }
}

/// What the machine says, as people read it.
pub(crate) fn told(error: &Error, chunks: &Rc<Chunks>) -> LuaError {
    match error {
        Error::CallbackError { traceback, cause } => {
            let mut told = told(cause, chunks);
            if told.line.is_none()
                && let Some((chunk, line)) = first_place(traceback)
            {
                (told.file, told.line) = (chunks.file(chunk), Some(line));
            }
            told
        }
        Error::ExternalError(cause) => match (cause.downcast_ref(), cause.downcast_ref::<Stop>()) {
            (Some(known), _) => LuaError::clone(known),
            (None, Some(stop)) => without_place(stop.to_string(), chunks),
            (None, None) => without_place(cause.to_string(), chunks),
        },
        Error::MemoryError(_) => without_place(Stop::Memory.to_string(), chunks),
        Error::RuntimeError(said) | Error::SyntaxError { message: said, .. } => spoken(said, chunks),
        other => spoken(&other.to_string(), chunks),
    }
}

fn without_place(message: String, chunks: &Chunks) -> LuaError {
    LuaError { file: chunks.file(0), line: None, message }
}

/// `#1:7: what happened`, perhaps with a traceback below.
fn spoken(said: &str, chunks: &Chunks) -> LuaError {
    let (message, traceback) = said.split_once("\nstack traceback:").unwrap_or((said, ""));
    let (message, at) = match leading_place(message) {
        Some((chunk, line, rest)) => (rest, Some((chunk, line))),
        None => (message, first_place(traceback)),
    };
    let (file, line) = match at {
        Some((chunk, line)) => (chunks.file(chunk), Some(line)),
        None => (chunks.file(0), None),
    };
    LuaError { file, line, message: bounded(message) }
}

fn bounded(message: &str) -> String {
    // An object without words is told with its address, which is never the same.
    let object = ["table", "function", "userdata", "thread"]
        .into_iter()
        .find(|kind| message.strip_prefix(kind).is_some_and(|rest| rest.starts_with(": 0x")));
    if let Some(kind) = object {
        return format!("an error was raised that is no text but a {kind}");
    }
    let mut text: String = message.chars().take(MESSAGE_CHARS).flat_map(shown).collect();
    if message.chars().nth(MESSAGE_CHARS).is_some() {
        text.push('…');
    }
    // `error()` raises nil.
    if text.trim().is_empty() || text == "nil" {
        "an error was raised without any words".to_owned()
    } else {
        text
    }
}

/// Terminals are not steered by a profile.
fn shown(c: char) -> impl Iterator<Item = char> {
    let control = c.is_control() && c != '\n' && c != '\t';
    let escaped = control.then(|| c.escape_debug());
    escaped.into_iter().flatten().chain((!control).then_some(c))
}

/// `#1` of `#1:7: …`, as chunks are named towards the machine, with what follows.
fn chunk_number(name: &str) -> Option<(usize, &str)> {
    let rest = name.strip_prefix('#')?;
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

fn leading_place(text: &str) -> Option<(usize, u32, &str)> {
    let (chunk, rest) = chunk_number(text)?;
    let (line, rest) = rest.strip_prefix(':')?.split_once(':')?;
    Some((chunk, line.parse().ok()?, rest.trim_start()))
}

fn first_place(traceback: &str) -> Option<(usize, u32)> {
    traceback.lines().find_map(|line| {
        let at = line.trim_start();
        let (chunk, rest) = at.strip_prefix("[string \"").map_or_else(|| chunk_number(at), chunk_number)?;
        let rest = rest.trim_start_matches("\"]").strip_prefix(':')?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some((chunk, digits.parse().ok()?))
    })
}
