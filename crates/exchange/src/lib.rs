//! Exchange: imports and exports conversations: session files of Claude Code, Codex and Minke, and Markdown.
//!
//! Here: parsing bytes (`read_file`), writing text (`write_file`), and counting omitted parts by name. No I/O: the
//! caller reads and writes the files. Elsewhere: the items of a thread (`host`), secrets in them (`cli`).
//! Invariant: no input makes it panic (`any_bytes_are_taken_or_refused`), any model accepts the result
//! (`every_call_has_one_result`), and importing an exported import gives the same result
//! (`what_is_given_is_taken_back`).

mod claude;
mod claude_tree;
mod claude_writer;
mod codex;
mod codex_writer;
mod conversation;
mod images;
mod limits;
mod lines;
mod markdown;
mod minke_format;
mod normalize;
mod omissions;
mod outputs;
mod own_member;
mod portable;
mod timestamp;

use std::collections::BTreeMap;

pub use conversation::{ConversationInfo, PortableConversation, TimedItem};
pub use limits::{MAX_FILE_BYTES, MAX_ITEMS, MAX_LINE_BYTES, MAX_TEXT_BYTES};
pub use lines::ImportError;
pub use markdown::to_markdown;
use normalize::normalize_raw;
pub use omissions::OmittedPart;
pub use portable::spill_texts;

use crate::lines::JsonLines;
use crate::omissions::OmissionCounts;

/// The format of a session file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Claude Code: `~/.claude/projects/<dir>/<uuid>.jsonl`.
    Claude,
    /// Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`.
    Codex,
    /// Minke's own format.
    Minke,
}

impl FileFormat {
    pub const ALL_FORMATS: [FileFormat; 3] = [FileFormat::Minke, FileFormat::Claude, FileFormat::Codex];

    /// Returns the format with this name.
    pub fn from_name(word: &str) -> Option<FileFormat> {
        FileFormat::ALL_FORMATS.into_iter().find(|format| format.as_str() == word)
    }

    /// Returns the program that writes these files.
    pub fn program(self) -> &'static str {
        match self {
            FileFormat::Claude => "Claude Code",
            FileFormat::Codex => "Codex",
            FileFormat::Minke => "Minke",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            FileFormat::Claude => "claude",
            FileFormat::Codex => "codex",
            FileFormat::Minke => "minke",
        }
    }
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedFile {
    pub format: FileFormat,
    pub conversation: PortableConversation,
    /// Omitted parts of the file, most frequent first.
    pub omissions: Vec<OmittedPart>,
}

/// Parses a session file. Without a format, detects it from the content.
pub fn read_file(bytes: &[u8], format: Option<FileFormat>) -> Result<ImportedFile, ImportError> {
    let mut tally = OmissionCounts::default();
    let lines = JsonLines::parse_lines(bytes, &mut tally)?;
    let found = lines.detect_format();
    let format = match (format, found) {
        (Some(wish), Some(found)) if wish != found => return Err(ImportError::WrongFormat { wish, found }),
        (_, Some(found)) => found,
        (_, None) => return Err(lines.unknown_format()),
    };
    let raw = match format {
        FileFormat::Claude => claude::read_claude(&lines, &mut tally),
        FileFormat::Codex => codex::read_codex(&lines, &mut tally),
        FileFormat::Minke => minke_format::read_minke(&lines, &mut tally),
    };
    let conversation = normalize_raw(raw, &mut tally);
    if conversation.items.is_empty() {
        return Err(ImportError::NoConversation { format, left: tally.to_parts() });
    }
    Ok(ImportedFile { format, conversation, omissions: tally.to_parts() })
}

/// Normalizes a conversation: every text is inline, every call has its result. Returns it with the omitted parts.
pub fn normalize_conversation(
    conversation: PortableConversation,
) -> (PortableConversation, Vec<OmittedPart>) {
    let mut tally = OmissionCounts::default();
    let normalized = normalize_raw(conversation, &mut tally);
    (normalized, tally.to_parts())
}

/// Writes a conversation as a session file. Returns it with the omitted parts.
pub fn write_file(conversation: &PortableConversation, format: FileFormat) -> (String, Vec<OmittedPart>) {
    let (whole, omitted) = normalize_conversation(conversation.clone());
    let text = match format {
        FileFormat::Claude => claude_writer::write_claude(&whole),
        FileFormat::Codex => codex_writer::write_codex(&whole),
        FileFormat::Minke => minke_format::write_minke(&whole),
    };
    (text, omitted)
}

/// Blobs by their content hash.
type BlobMap = BTreeMap<String, Vec<u8>>;
