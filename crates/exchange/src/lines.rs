//! Parses the lines of a file as JSON objects, detects the format, and defines import errors.

use serde_json::{Map, Value};

use crate::FileFormat;
use crate::limits::{MAX_FILE_BYTES, MAX_LINE_BYTES};
use crate::omissions::{OmissionCounts, OmittedPart};
use crate::own_member::OWN_LINE_TYPE;
use crate::portable::clean_line;

pub(crate) type JsonObject = Map<String, Value>;

/// Why an import failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportError {
    /// The file exceeds the size limit.
    TooLarge { bytes: u64 },
    /// The file has no known format; a description of its content.
    UnknownFormat { found: String },
    /// The file has another format than specified.
    WrongFormat { wish: FileFormat, found: FileFormat },
    /// The file is the log of a Minke session, which does not contain its blobs.
    SessionLog,
    /// The file contains no conversation; its other content.
    NoConversation { format: FileFormat, left: Vec<OmittedPart> },
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImportError::TooLarge { bytes } => {
                write!(f, "it has {bytes} bytes; the limit is {MAX_FILE_BYTES}")
            }
            ImportError::UnknownFormat { found: description } => {
                write!(f, "it is not a session file of Claude Code, Codex or Minke: {description}")
            }
            ImportError::WrongFormat { wish, found } => {
                write!(f, "it has the format `{}`, not `{}`", found.as_str(), wish.as_str())
            }
            ImportError::SessionLog => {
                f.write_str("it is the log of a session, which does not contain its blobs")
            }
            ImportError::NoConversation { left, .. } => {
                f.write_str("it contains no conversation")?;
                for (at, left) in left.iter().take(5).enumerate() {
                    write!(f, "{} {} × {}", if at == 0 { ", only" } else { "," }, left.count, left.what)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ImportError {}

/// The objects of a file, in order.
pub(crate) struct JsonLines {
    pub(crate) objects: Vec<JsonObject>,
    /// The number of non-empty lines.
    line_count: usize,
}

impl JsonLines {
    pub(crate) fn parse_lines(bytes: &[u8], tally: &mut OmissionCounts) -> Result<JsonLines, ImportError> {
        let length = bytes.len() as u64;
        if length > MAX_FILE_BYTES {
            return Err(ImportError::TooLarge { bytes: length });
        }
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let mut lines = JsonLines { objects: Vec::new(), line_count: 0 };
        let mut torn = false;
        for line in bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
        {
            lines.line_count += 1;
            if std::mem::take(&mut torn) {
                tally.count_one("line that is not a JSON object");
            }
            if line.len() > MAX_LINE_BYTES {
                tally.count_one("line that is too long");
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(Value::Object(object)) => lines.objects.push(object),
                // The program that wrote the last line may have died meanwhile.
                _ => torn = true,
            }
        }
        if torn {
            tally.count_one("torn last line");
        }
        if lines.objects.iter().take(1).any(|first| first.contains_key("seq") && first.contains_key("h")) {
            return Err(ImportError::SessionLog);
        }
        Ok(lines)
    }

    /// Detects the format from the first unambiguous line.
    pub(crate) fn detect_format(&self) -> Option<FileFormat> {
        self.objects.iter().find_map(format_of_line)
    }

    pub(crate) fn unknown_format(&self) -> ImportError {
        let description = match (self.line_count, self.objects.first()) {
            (0, _) => "it is empty".to_owned(),
            (all, None) => format!("none of its {all} lines is a JSON object"),
            (all, Some(first)) => {
                let names: Vec<String> =
                    first.keys().take(8).map(|name| clean_line(name, 40).unwrap_or_default()).collect();
                let objects = self.objects.len();
                format!("{objects} of its {all} lines are JSON objects, the first with {}", names.join(", "))
            }
        };
        ImportError::UnknownFormat { found: description }
    }
}

const CODEX_LINES: [&str; 5] = ["session_meta", "response_item", "event_msg", "turn_context", "compacted"];
const CODEX_ITEMS: [&str; 7] = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "custom_tool_call",
    "custom_tool_call_output",
];
const CLAUDE_LINES: [&str; 5] = ["user", "assistant", "system", "attachment", "progress"];

fn format_of_line(object: &JsonObject) -> Option<FileFormat> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let has = |name: &str| object.contains_key(name);
    if text("minke") == Some("thread") {
        return Some(FileFormat::Minke);
    }
    match text("type") {
        Some(kind) if has("payload") && CODEX_LINES.contains(&kind) => Some(FileFormat::Codex),
        Some(kind) if CLAUDE_LINES.contains(&kind) && text("uuid").is_some() => Some(FileFormat::Claude),
        Some("summary") if has("leafUuid") => Some(FileFormat::Claude),
        Some(OWN_LINE_TYPE) if has("parentUuid") => Some(FileFormat::Claude),
        Some(kind) if CODEX_ITEMS.contains(&kind) => Some(FileFormat::Codex),
        // The header of an older file.
        None if text("id").is_some() && text("timestamp").is_some() && !has("uuid") => {
            Some(FileFormat::Codex)
        }
        _ => None,
    }
}
