//! The wire of `scripted`: one JSON object a line, one line a block with its whole text.
//!
//! Here: the words of that wire, who writes it (`Line`, for `scripted`'s recordings) and who reads it. No network has
//! ever seen it; it exists so that a scripted reply is recorded and decoded on the path that every other reply takes.
//!
//! ```text
//! {"thinking":"Look first."}
//! {"text":"I will read it."}
//! {"call":{"id":"call_0_1_1","name":"Read","arguments":"{}"}}
//! {"usage":{"input":812,"output":31,…}}
//! {"stop":"tool_use"}
//! ```
//!
//! A block that had begun when the stream was cut has `"open":true` beside it.
//! Invariant: what was played is what is read (`what_was_said_is_what_is_read`).

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::{Decode, Frame, cut, parse};
use crate::problem::Problem;

/// One line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<Call>,
    /// A block of a kind that this program does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<Unknown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<TokenUsage>,
    /// Why the reply was refused or filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop: Option<String>,
    /// The block has no end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) open: bool,
}

/// A call, whole.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Unknown {
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Line {
    /// The line of a block that begins; its text comes with `grow`.
    pub(crate) fn block(kind: &BlockKind) -> Line {
        let mut line = Line { open: true, ..Line::default() };
        match kind {
            BlockKind::Thinking => line.thinking = Some(String::new()),
            BlockKind::Text | BlockKind::Refusal => line.text = Some(String::new()),
            BlockKind::ToolCall { id, name } => {
                line.call = Some(Call { id: id.clone(), name: name.clone(), arguments: String::new() });
            }
        }
        line
    }

    pub(crate) fn grow(&mut self, piece: &str) {
        let text = match (&mut self.thinking, &mut self.text, &mut self.call) {
            (Some(text), _, _) | (_, Some(text), _) => text,
            (_, _, Some(call)) => &mut call.arguments,
            (None, None, None) => return,
        };
        text.push_str(piece);
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("plain data with string keys is JSON");
        out.push(b'\n');
    }
}

/// Reads the lines back.
#[derive(Debug)]
pub(crate) struct ScriptedDecode {
    blocks: Blocks<u64>,
    lines: u64,
    unknown: u64,
}

impl ScriptedDecode {
    pub(crate) fn new() -> ScriptedDecode {
        ScriptedDecode { blocks: Blocks::new(), lines: 0, unknown: 0 }
    }

    fn block(&mut self, kind: BlockKind, text: String, open: bool, out: &mut Vec<ModelEvent>) {
        let key = self.lines;
        self.blocks.start(key, kind, out);
        self.blocks.delta(&key, text, out);
        if !open {
            self.blocks.stop(&key, out);
        }
    }
}

impl Decode for ScriptedDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let line: Line = parse(frame)?;
        self.lines += 1;
        match line {
            Line { thinking: Some(text), open, .. } => self.block(BlockKind::Thinking, text, open, out),
            Line { text: Some(text), open, .. } => self.block(BlockKind::Text, text, open, out),
            Line { call: Some(Call { id, name, arguments }), open, .. } => {
                self.block(BlockKind::ToolCall { id, name }, arguments, open, out);
            }
            Line { unknown: Some(Unknown { kind, text }), .. } => {
                out.push(ModelEvent::Unknown { kind, text })
            }
            Line { usage: Some(usage), .. } => out.push(ModelEvent::Usage(usage)),
            Line { stop_detail: Some(text), .. } => out.push(ModelEvent::StopDetail { text }),
            Line { stop: Some(stop), .. } => {
                self.blocks.close_all(out);
                out.push(ModelEvent::Done { stop: StopReason::from(stop.as_str()) });
            }
            _ => self.unknown += 1,
        }
        Ok(())
    }

    fn body(&mut self, _: &str, _: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        Err(cut("a script's reply is lines"))
    }

    fn end(&mut self, _: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        Err(cut("the script ended without a stop"))
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }
}
