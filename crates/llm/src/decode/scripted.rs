//! The wire format of `scripted`: one JSON object per line, one line per block with its whole text.
//!
//! Here: the lines, their writer (`ScriptedLine`, for the recordings of `scripted`) and their decoder. The
//! format is never sent over a network. It exists so that a scripted reply is recorded and decoded like every
//! other reply.
//!
//! ```text
//! {"thinking":"Look first."}
//! {"text":"I will read it."}
//! {"call":{"id":"call_0_1_1","name":"Read","arguments":"{}"}}
//! {"usage":{"input":812,"output":31,…}}
//! {"stop":"tool_use"}
//! ```
//!
//! A block that was open when the stream was cut has `"open":true`.
//! Invariant: decoding returns the played events (`what_was_said_is_what_is_read`).

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde::{Deserialize, Serialize};

use super::blocks::OpenBlocks;
use super::{SchemeDecoder, StreamFrame, cut_off_error, parse_event};
use crate::error::ProviderError;

/// One line of a recording.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScriptedLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<ScriptedCallLine>,
    /// A block of an unknown kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<UnknownBlockLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<TokenUsage>,
    /// Why the reply was refused or filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop: Option<String>,
    /// Whether the block has no end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) open: bool,
}

/// A complete call.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScriptedCallLine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UnknownBlockLine {
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl ScriptedLine {
    /// Creates the line of a new block; `append_text` adds its text.
    pub(crate) fn from_block_kind(kind: &BlockKind) -> ScriptedLine {
        let mut line = ScriptedLine { open: true, ..ScriptedLine::default() };
        match kind {
            BlockKind::Thinking => line.thinking = Some(String::new()),
            BlockKind::Text | BlockKind::Refusal => line.text = Some(String::new()),
            BlockKind::ToolCall { id, name } => {
                line.call =
                    Some(ScriptedCallLine { id: id.clone(), name: name.clone(), arguments: String::new() });
            }
        }
        line
    }

    pub(crate) fn append_text(&mut self, piece: &str) {
        let text = match (&mut self.thinking, &mut self.text, &mut self.call) {
            (Some(text), _, _) | (_, Some(text), _) => text,
            (_, _, Some(call)) => &mut call.arguments,
            (None, None, None) => return,
        };
        text.push_str(piece);
    }

    pub(crate) fn write_line(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("plain data with string keys is JSON");
        out.push(b'\n');
    }
}

/// Decodes the lines.
#[derive(Debug)]
pub(crate) struct ScriptedDecoder {
    blocks: OpenBlocks<u64>,
    line_count: u64,
    unknown_count: u64,
}

impl ScriptedDecoder {
    pub(crate) fn new() -> ScriptedDecoder {
        ScriptedDecoder { blocks: OpenBlocks::new(), line_count: 0, unknown_count: 0 }
    }

    fn emit_block(&mut self, kind: BlockKind, text: String, open: bool, out: &mut Vec<ModelEvent>) {
        let key = self.line_count;
        self.blocks.start_block(key, kind, out);
        self.blocks.push_delta(&key, text, out);
        if !open {
            self.blocks.stop_block(&key, out);
        }
    }
}

impl SchemeDecoder for ScriptedDecoder {
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let line: ScriptedLine = parse_event(frame)?;
        self.line_count += 1;
        match line {
            ScriptedLine { thinking: Some(text), open, .. } => {
                self.emit_block(BlockKind::Thinking, text, open, out)
            }
            ScriptedLine { text: Some(text), open, .. } => self.emit_block(BlockKind::Text, text, open, out),
            ScriptedLine { call: Some(ScriptedCallLine { id, name, arguments }), open, .. } => {
                self.emit_block(BlockKind::ToolCall { id, name }, arguments, open, out);
            }
            ScriptedLine { unknown: Some(UnknownBlockLine { kind, text }), .. } => {
                out.push(ModelEvent::Unknown { kind, text })
            }
            ScriptedLine { usage: Some(usage), .. } => out.push(ModelEvent::Usage(usage)),
            ScriptedLine { stop_detail: Some(text), .. } => out.push(ModelEvent::StopDetail { text }),
            ScriptedLine { stop: Some(stop), .. } => {
                self.blocks.close_all(out);
                out.push(ModelEvent::Done { stop: StopReason::from(stop.as_str()) });
            }
            _ => self.unknown_count += 1,
        }
        Ok(())
    }

    fn decode_body(&mut self, _: &str, _: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        Err(cut_off_error("a scripted reply consists of lines"))
    }

    fn decode_end(&mut self, _: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        Err(cut_off_error("the script ended without a stop"))
    }

    fn unknown_count(&self) -> u64 {
        self.unknown_count
    }
}
