//! The messages API of Anthropic, as its own service and many others speak it.
//!
//! Here: what its events and bodies mean. Elsewhere: bytes and framing (`frame`), what errors mean (`classify`).
//! Invariant: a call's arguments are what the model wrote; `{}` stands only where it finished a call without writing
//! any, never where it was cut off (`tests`).

mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocks::Blocks;
use super::wire::{CallIds, odd, readable, text_field};
use super::{BLOCKS, Decode, Frame, add_bounded, cut, parse, parse_body, stop_detail, too_many};
use crate::classify;
use crate::problem::Problem;
use crate::settings::Scheme;
use wire::{Content, Delta, Event, KNOWN, Message, StopDetails, Usage, given_input, stop_reason};

/// Ends the arguments of a call that was open when the message began anew: they must not look whole.
const CUT_OFF: &str = " [cut off: the provider began its message anew]";

/// Keys of blocks whose index is not on the wire begin here.
const OWN_KEYS: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct AnthropicDecode {
    blocks: Blocks<u64>,
    /// What belongs to the open blocks beside what `blocks` knows, and the blocks that are not passed on.
    open: Vec<(u64, Extra)>,
    /// The block that began last: where an event without an index belongs.
    latest: u64,
    /// A call without arguments that has ended. Whether it is one without arguments or was cut shows in what follows.
    bare: Option<u64>,
    message: Option<String>,
    ids: CallIds,
    usage: Usage,
    stop: Option<StopReason>,
    /// Why the model refused, where the provider says it.
    details: Option<Box<StopDetails>>,
    unknown: u64,
}

#[derive(Debug)]
enum Extra {
    Plain,
    /// `given` came whole with the start; it counts if no pieces follow.
    Call {
        given: Option<String>,
        pieces: bool,
    },
    Unknown {
        kind: String,
        text: String,
    },
}

impl AnthropicDecode {
    pub(crate) fn new() -> AnthropicDecode {
        AnthropicDecode {
            blocks: Blocks::new(),
            open: Vec::new(),
            latest: 0,
            bare: None,
            message: None,
            ids: CallIds::default(),
            usage: Usage::default(),
            stop: None,
            details: None,
            unknown: 0,
        }
    }

    fn message_began(&mut self, message: Message, out: &mut Vec<ModelEvent>) {
        let again = self.message.is_some();
        if again && (message.id.is_none() || message.id == self.message) {
            return; // said twice
        }
        if again {
            self.begin_anew(out);
        }
        self.message = Some(message.id.unwrap_or_default());
        if message.usage.0.is_some() {
            // Known before the end, so that a reply that breaks off is counted too.
            self.count_usage(message.usage.0);
            out.push(ModelEvent::Usage(self.usage.tokens()));
        }
    }

    /// Another message begins where one was going on: some gateways ask again in mid-stream. What is open ends; a half
    /// call ends so that it cannot run.
    fn begin_anew(&mut self, out: &mut Vec<ModelEvent>) {
        self.end_bare(true, out);
        for (key, extra) in std::mem::take(&mut self.open) {
            match extra {
                Extra::Plain => {}
                Extra::Call { .. } => {
                    self.blocks.delta(&key, CUT_OFF, out);
                }
                Extra::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            }
            self.blocks.stop(&key, out);
        }
        self.stop = None;
    }

    fn block_began(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<ModelEvent>) {
        let key = index.unwrap_or_else(|| OWN_KEYS + u64::from(self.blocks.begun()) + self.unknown);
        self.block_ended(key, out);
        self.latest = key;
        let extra = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                self.blocks.start(key, BlockKind::Text, out);
                self.blocks.delta(&key, text_field(block, "text").unwrap_or_default(), out);
                Extra::Plain
            }
            "thinking" => {
                self.blocks.start(key, BlockKind::Thinking, out);
                self.blocks.delta(&key, text_field(block, "thinking").unwrap_or_default(), out);
                self.sign(key, text_field(block, "signature"));
                Extra::Plain
            }
            "redacted_thinking" => {
                self.blocks.start(key, BlockKind::Thinking, out);
                if let Some(end) = self.blocks.end_mut(&key) {
                    end.encrypted = text_field(block, "data").map(str::to_owned);
                }
                Extra::Plain
            }
            "tool_use" => {
                let id = self.ids.take(text_field(block, "id"));
                let name = text_field(block, "name").unwrap_or_default().to_owned();
                self.blocks.start(key, BlockKind::ToolCall { id, name }, out);
                Extra::Call { given: block.get("input").and_then(given_input), pieces: false }
            }
            kind => {
                self.unknown += 1;
                let mut text = String::new();
                readable(block, &mut text);
                Extra::Unknown { kind: kind.to_owned(), text }
            }
        };
        self.open.push((key, extra));
    }

    fn sign(&mut self, key: u64, signature: Option<&str>) {
        if let Some((end, signature)) = self.blocks.end_mut(&key).zip(signature) {
            end.signature = Some(signature.to_owned());
        }
    }

    fn piece(&mut self, index: Option<u64>, delta: Delta<'_>, out: &mut Vec<ModelEvent>) {
        let key = index.unwrap_or(self.latest);
        let at = self.open.iter().position(|(open, _)| *open == key);
        if let Some((_, Extra::Unknown { text, .. })) = at.and_then(|at| self.open.get_mut(at)) {
            for piece in [&delta.text, &delta.thinking, &delta.partial_json].into_iter().flatten() {
                add_bounded(text, piece);
            }
            if let Some(content) = &delta.content {
                readable(content, text);
            }
            return;
        }
        let kind = match &*delta.kind {
            "text_delta" => BlockKind::Text,
            "thinking_delta" => BlockKind::Thinking,
            "signature_delta" => return self.sign(key, delta.signature.as_deref()),
            "input_json_delta" => return self.arguments(at, delta.partial_json.unwrap_or_default(), out),
            "citations_delta" => return, // where a text came from; the text itself is elsewhere
            _ => {
                self.unknown += 1;
                return;
            }
        };
        if at.is_none() {
            // A server that does not announce its blocks.
            self.blocks.start(key, kind.clone(), out);
            self.latest = key;
            self.open.push((key, Extra::Plain));
        }
        if self.blocks.kind(&key) == Some(&kind) {
            self.blocks.delta(&key, delta.text.or(delta.thinking).unwrap_or_default(), out);
        } else {
            self.unknown += 1;
        }
    }

    fn arguments(&mut self, at: Option<usize>, piece: String, out: &mut Vec<ModelEvent>) {
        match at.and_then(|at| self.open.get_mut(at)) {
            Some((key, Extra::Call { pieces, .. })) => {
                *pieces |= !piece.is_empty();
                self.blocks.delta(key, piece, out);
            }
            _ => self.unknown += 1,
        }
    }

    fn block_ended(&mut self, key: u64, out: &mut Vec<ModelEvent>) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == key) else { return };
        let (_, extra) = self.open.remove(at);
        match extra {
            Extra::Call { given: None, pieces: false } => {
                self.bare = Some(key);
                return;
            }
            Extra::Call { given: Some(input), pieces: false } => {
                self.blocks.delta(&key, input, out);
            }
            Extra::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            Extra::Plain | Extra::Call { .. } => {}
        }
        self.blocks.stop(&key, out);
    }

    /// Ends a call without arguments: it has none (`{}`), or the reply was cut before they came.
    fn end_bare(&mut self, finished: bool, out: &mut Vec<ModelEvent>) {
        if let Some(key) = self.bare.take() {
            self.blocks.delta(&key, if finished { "{}" } else { "" }, out);
            self.blocks.stop(&key, out);
        }
    }

    fn count_usage(&mut self, usage: Option<Box<Usage>>) {
        if let Some(usage) = usage {
            self.usage.merge(&usage);
        }
    }

    /// The message is over in good order.
    fn message_ended(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let stop = match self.stop.take() {
            Some(stop) => stop,
            // An end without a reason: servers that forget it exist, but an answer of nothing is none.
            None if self.ids.any() => StopReason::ToolUse,
            None if self.blocks.begun() > 0 => StopReason::EndTurn,
            None => return Err(cut("a message without content and without a stop reason")),
        };
        let finished = stop != StopReason::MaxTokens;
        self.end_bare(finished, out);
        while let Some((key, _)) = self.open.first() {
            let key = *key;
            self.block_ended(key, out);
            self.end_bare(finished, out);
        }
        out.push(ModelEvent::Usage(self.usage.tokens()));
        if let Some(details) = self.details.take().filter(|_| stop.is_refusal()) {
            out.extend(stop_detail([details.category.as_str(), details.explanation.as_str()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }
}

impl Decode for AnthropicDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if frame.data == "[DONE]" {
            return Ok(()); // habit of another API; the end has been said or is missing
        }
        let event: Event<'_> = match parse(frame) {
            Ok(event) => event,
            Err(problem) => {
                self.unknown += 1;
                return odd(frame, problem, &KNOWN, Scheme::Anthropic);
            }
        };
        let kind = if event.kind.is_empty() { frame.name } else { &*event.kind };
        match kind {
            "content_block_delta" => {
                self.end_bare(true, out);
                if let Some(delta) = event.delta {
                    self.piece(event.index, delta, out);
                }
            }
            "content_block_start" => {
                let block = raw(frame, event.content_block)?;
                self.end_bare(true, out);
                self.block_began(event.index, &block, out);
            }
            "content_block_stop" => {
                self.end_bare(true, out);
                self.block_ended(event.index.unwrap_or(self.latest), out);
            }
            "message_start" => {
                let message = raw(frame, event.message)?;
                self.message_began(message, out);
            }
            "message_delta" => {
                self.count_usage(event.usage.0);
                let (reason, details) = match event.delta {
                    Some(delta) => (delta.stop_reason, delta.stop_details.0),
                    None => (None, None),
                };
                self.details = details.or(self.details.take());
                self.stop = reason.as_deref().map(stop_reason).or(self.stop.take());
            }
            "message_stop" => self.message_ended(out)?,
            "ping" => {}
            "error" => return Err(failed(&parse(frame)?)),
            _ if event.error.is_some() => return Err(failed(&parse(frame)?)),
            _ => self.unknown += 1,
        }
        if self.open.len() > BLOCKS { Err(too_many()) } else { Ok(()) }
    }

    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let message: Message = parse_body(body)?;
        let blocks = match message.content {
            Some(Content::Blocks(blocks)) if message.kind.as_deref() != Some("error") => blocks,
            Some(Content::Text(text)) => vec![json!({ "type": "text", "text": text })],
            _ => return Err(failed(&parse_body(body)?)),
        };
        self.count_usage(message.usage.0);
        self.stop = message.stop_reason.as_deref().map(stop_reason);
        self.details = message.stop_details.0;
        for (index, block) in (0..).zip(&blocks) {
            self.end_bare(true, out);
            self.block_began(Some(index), block, out);
            self.block_ended(index, out);
        }
        self.message_ended(out)
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        // All that matters has been said when the reason is known and no block is half; only `message_stop` is missing.
        if self.stop.is_some() && self.open.is_empty() {
            return self.message_ended(out);
        }
        Err(cut("no message_stop came"))
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// A part of an event, read only for the events that have it.
fn raw<'a, T: Deserialize<'a> + Default>(frame: Frame<'a>, part: Option<&'a RawValue>) -> Result<T, Problem> {
    match part {
        Some(part) => parse(Frame { name: frame.name, data: part.get() }),
        None => Ok(T::default()),
    }
}

fn failed(body: &Value) -> Problem {
    classify::from_error_json(Scheme::Anthropic, None, body)
}

#[cfg(test)]
mod tests;
