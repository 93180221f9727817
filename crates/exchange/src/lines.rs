//! The lines of a file, each a JSON object; which format they are; why a file is refused.

use serde_json::{Map, Value};

use crate::Format;
use crate::bounds::{FILE_BYTES, LINE_BYTES};
use crate::plain::word;
use crate::tally::{Left, Tally};
use crate::written::OWN_LINE;

pub(crate) type Object = Map<String, Value>;

/// Why nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The file is larger than what is read.
    TooLarge { bytes: u64 },
    /// It is none of the formats; what was found instead.
    Strange { found: String },
    /// It is another one than was said.
    Other { wish: Format, found: Format },
    /// It is the log of a session of ours, whose blobs are not in it.
    Log,
    /// It holds no conversation; what it holds instead.
    Empty { format: Format, left: Vec<Left> },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::TooLarge { bytes } => {
                write!(f, "it has {bytes} bytes; at most {FILE_BYTES} are read")
            }
            Refused::Strange { found } => {
                write!(f, "it is no session file of Claude Code, Codex or Minke: {found}")
            }
            Refused::Other { wish, found } => {
                write!(f, "it is of the format `{}`, not `{}`", found.as_str(), wish.as_str())
            }
            Refused::Log => f.write_str("it is the log of a session, without the blobs that it names"),
            Refused::Empty { left, .. } => {
                f.write_str("there is no conversation in it")?;
                for (at, left) in left.iter().take(5).enumerate() {
                    write!(f, "{} {} × {}", if at == 0 { ", only" } else { "," }, left.count, left.what)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Refused {}

/// The objects of a file in their order.
pub(crate) struct Lines {
    pub(crate) objects: Vec<Object>,
    /// Lines that are not empty.
    all: usize,
}

impl Lines {
    pub(crate) fn read(bytes: &[u8], tally: &mut Tally) -> Result<Lines, Refused> {
        let length = bytes.len() as u64;
        if length > FILE_BYTES {
            return Err(Refused::TooLarge { bytes: length });
        }
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let mut lines = Lines { objects: Vec::new(), all: 0 };
        let mut torn = false;
        for line in bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
        {
            lines.all += 1;
            if std::mem::take(&mut torn) {
                tally.count("line that is no JSON object");
            }
            if line.len() > LINE_BYTES {
                tally.count("line that is too long");
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(Value::Object(object)) => lines.objects.push(object),
                // Whoever wrote the last one may have died over it.
                _ => torn = true,
            }
        }
        if torn {
            tally.count("torn last line");
        }
        if lines.objects.iter().take(1).any(|first| first.contains_key("seq") && first.contains_key("h")) {
            return Err(Refused::Log);
        }
        Ok(lines)
    }

    /// The first line that can only be of one format says which it is.
    pub(crate) fn format(&self) -> Option<Format> {
        self.objects.iter().find_map(of)
    }

    pub(crate) fn strange(&self) -> Refused {
        let found = match (self.all, self.objects.first()) {
            (0, _) => "it is empty".to_owned(),
            (all, None) => format!("none of its {all} lines is a JSON object"),
            (all, Some(first)) => {
                let names: Vec<String> =
                    first.keys().take(8).map(|name| word(name, 40).unwrap_or_default()).collect();
                let objects = self.objects.len();
                format!("{objects} of its {all} lines are JSON objects, the first with {}", names.join(", "))
            }
        };
        Refused::Strange { found }
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

fn of(object: &Object) -> Option<Format> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let has = |name: &str| object.contains_key(name);
    if text("minke") == Some("thread") {
        return Some(Format::Minke);
    }
    match text("type") {
        Some(kind) if has("payload") && CODEX_LINES.contains(&kind) => Some(Format::Codex),
        Some(kind) if CLAUDE_LINES.contains(&kind) && text("uuid").is_some() => Some(Format::Claude),
        Some("summary") if has("leafUuid") => Some(Format::Claude),
        Some(OWN_LINE) if has("parentUuid") => Some(Format::Claude),
        Some(kind) if CODEX_ITEMS.contains(&kind) => Some(Format::Codex),
        // The header of an older file.
        None if text("id").is_some() && text("timestamp").is_some() && !has("uuid") => Some(Format::Codex),
        _ => None,
    }
}
