//! Exchange: conversations in files that travel. Claude Code's and Codex's session files, our own, and Markdown for people.
//!
//! Here: bytes become items (`take`), items become text (`give`), and what did not come along is counted by name. No files:
//! whoever calls has read them and writes them. Elsewhere: which items a thread has (`host`), secrets in them (`cli`).
//! Invariant: no bytes make it panic (`any_bytes_are_taken_or_refused`), what it takes can be sent to any model
//! (`every_call_has_one_result`), and what was taken, given and taken again is the same
//! (`what_is_given_is_taken_back`).

mod bounds;
mod claude;
mod claude_tree;
mod claude_written;
mod codex;
mod codex_written;
mod conversation;
mod images;
mod lines;
mod markdown;
mod moment;
mod outputs;
mod own;
mod plain;
mod settled;
mod tally;
mod written;

use std::collections::BTreeMap;

pub use bounds::{BYTES, FILE_BYTES, ITEMS, LINE_BYTES};
pub use conversation::{About, Conversation, Said};
pub use lines::Refused;
pub use markdown::markdown;
pub use plain::spill;
use settled::settled;
pub use tally::Left;

use crate::lines::Lines;
use crate::tally::Tally;

/// In which form a conversation lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Claude Code: `~/.claude/projects/<dir>/<uuid>.jsonl`.
    Claude,
    /// Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`.
    Codex,
    /// Our own.
    Minke,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Minke, Format::Claude, Format::Codex];

    /// The format that a word names.
    pub fn of(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// The program whose files these are.
    pub fn program(self) -> &'static str {
        match self {
            Format::Claude => "Claude Code",
            Format::Codex => "Codex",
            Format::Minke => "Minke",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Format::Claude => "claude",
            Format::Codex => "codex",
            Format::Minke => "minke",
        }
    }
}

/// What was taken from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    pub format: Format,
    pub conversation: Conversation,
    /// What stood in the file and did not come along, most frequent first.
    pub left: Vec<Left>,
}

/// Reads a session file. Without a format it is told by what the file holds.
pub fn take(bytes: &[u8], format: Option<Format>) -> Result<Taken, Refused> {
    let mut tally = Tally::default();
    let lines = Lines::read(bytes, &mut tally)?;
    let found = lines.format();
    let format = match (format, found) {
        (Some(wish), Some(found)) if wish != found => return Err(Refused::Other { wish, found }),
        (_, Some(found)) => found,
        (_, None) => return Err(lines.strange()),
    };
    let raw = match format {
        Format::Claude => claude::read(&lines, &mut tally),
        Format::Codex => codex::read(&lines, &mut tally),
        Format::Minke => own::read(&lines, &mut tally),
    };
    let conversation = settled(raw, &mut tally);
    if conversation.said.is_empty() {
        return Err(Refused::Empty { format, left: tally.left() });
    }
    Ok(Taken { format, conversation, left: tally.left() })
}

/// The conversation as it may travel, and what stays behind: every text is in its place, every call has its result.
pub fn settle(conversation: Conversation) -> (Conversation, Vec<Left>) {
    let mut tally = Tally::default();
    let whole = settled(conversation, &mut tally);
    (whole, tally.left())
}

/// Writes a conversation as a session file, and says what could not be written.
pub fn give(conversation: &Conversation, format: Format) -> (String, Vec<Left>) {
    let (whole, left) = settle(conversation.clone());
    let text = match format {
        Format::Claude => claude_written::write(&whole),
        Format::Codex => codex_written::write(&whole),
        Format::Minke => own::write(&whole),
    };
    (text, left)
}

/// Bytes by the name that their content gives them.
type Blobs = BTreeMap<String, Vec<u8>>;
