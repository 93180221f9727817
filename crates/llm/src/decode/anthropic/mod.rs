//! Decoder of the Messages API of Anthropic, which other providers offer too.
//!
//! Here: the meaning of its events and bodies. Elsewhere: bytes and framing (`framing`), the meaning of
//! errors (`classify`). Invariant: the arguments of a call are exactly those of the model; `{}` appears only
//! for a finished call without arguments, never for a truncated one (`tests`).

mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocks::OpenBlocks;
use super::wire_event::{CallIdSet, collect_readable, handle_unreadable, text_field};
use super::{
    MAX_BLOCKS, SchemeDecoder, StreamFrame, append_limited, cut_off_error, parse_body, parse_event,
    stop_detail, too_many_blocks,
};
use crate::classify;
use crate::error::ProviderError;
use crate::settings::WireScheme;
use wire::{
    AnthropicDelta, AnthropicEvent, AnthropicReply, AnthropicUsage, KNOWN_EVENTS, MessageContent,
    StopDetails, arguments_of, parse_stop_reason,
};

/// Appended to the arguments of a call that was open when the message restarted, so that they are not valid
/// JSON.
const CUT_OFF_MARK: &str = " [cut off: the provider began its message anew]";

/// The first key for blocks without an index on the wire.
const FIRST_OWN_KEY: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct AnthropicDecoder {
    blocks: OpenBlocks<u64>,
    /// State of the open blocks that `blocks` does not have, and blocks that are not passed on.
    open_blocks: Vec<(u64, BlockState)>,
    /// The last started block, which owns events without an index.
    latest_key: u64,
    /// A finished call without arguments. The following events show whether it has none or was truncated.
    bare_call: Option<u64>,
    message_id: Option<String>,
    call_ids: CallIdSet,
    usage: AnthropicUsage,
    stop: Option<StopReason>,
    /// Why the model refused, if the provider gives a reason.
    stop_details: Option<Box<StopDetails>>,
    unknown_count: u64,
}

#[derive(Debug)]
enum BlockState {
    Plain,
    /// `given` contains the arguments of the start event, which count if no pieces follow.
    Call {
        initial_arguments: Option<String>,
        has_pieces: bool,
    },
    Unknown {
        kind: String,
        text: String,
    },
}

impl AnthropicDecoder {
    pub(crate) fn new() -> AnthropicDecoder {
        AnthropicDecoder {
            blocks: OpenBlocks::new(),
            open_blocks: Vec::new(),
            latest_key: 0,
            bare_call: None,
            message_id: None,
            call_ids: CallIdSet::default(),
            usage: AnthropicUsage::default(),
            stop: None,
            stop_details: None,
            unknown_count: 0,
        }
    }

    fn start_message(&mut self, message: AnthropicReply, out: &mut Vec<ModelEvent>) {
        let again = self.message_id.is_some();
        if again && (message.id.is_none() || message.id == self.message_id) {
            return; // repeated
        }
        if again {
            self.restart_message(out);
        }
        self.message_id = Some(message.id.unwrap_or_default());
        if message.usage.0.is_some() {
            // Count the usage now, so that a truncated reply is counted too.
            self.merge_usage(message.usage.0);
            out.push(ModelEvent::Usage(self.usage.to_token_usage()));
        }
    }

    /// Handles a second message start: some gateways retry in mid-stream. Open blocks end, and an unfinished
    /// call ends so that it cannot run.
    fn restart_message(&mut self, out: &mut Vec<ModelEvent>) {
        self.end_bare_call(true, out);
        for (key, extra) in std::mem::take(&mut self.open_blocks) {
            match extra {
                BlockState::Plain => {}
                BlockState::Call { .. } => {
                    self.blocks.push_delta(&key, CUT_OFF_MARK, out);
                }
                BlockState::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            }
            self.blocks.stop_block(&key, out);
        }
        self.stop = None;
    }

    fn start_block(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<ModelEvent>) {
        let key = index
            .unwrap_or_else(|| FIRST_OWN_KEY + u64::from(self.blocks.started_count()) + self.unknown_count);
        self.end_block(key, out);
        self.latest_key = key;
        let extra = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                self.blocks.start_block(key, BlockKind::Text, out);
                self.blocks.push_delta(&key, text_field(block, "text").unwrap_or_default(), out);
                BlockState::Plain
            }
            "thinking" => {
                self.blocks.start_block(key, BlockKind::Thinking, out);
                self.blocks.push_delta(&key, text_field(block, "thinking").unwrap_or_default(), out);
                self.set_signature(key, text_field(block, "signature"));
                BlockState::Plain
            }
            "redacted_thinking" => {
                self.blocks.start_block(key, BlockKind::Thinking, out);
                if let Some(end) = self.blocks.block_end_mut(&key) {
                    end.encrypted = text_field(block, "data").map(str::to_owned);
                }
                BlockState::Plain
            }
            "tool_use" => {
                let id = self.call_ids.unique_id(text_field(block, "id"));
                let name = text_field(block, "name").unwrap_or_default().to_owned();
                self.blocks.start_block(key, BlockKind::ToolCall { id, name }, out);
                BlockState::Call {
                    initial_arguments: block.get("input").and_then(arguments_of),
                    has_pieces: false,
                }
            }
            kind => {
                self.unknown_count += 1;
                let mut text = String::new();
                collect_readable(block, &mut text);
                BlockState::Unknown { kind: kind.to_owned(), text }
            }
        };
        self.open_blocks.push((key, extra));
    }

    fn set_signature(&mut self, key: u64, signature: Option<&str>) {
        if let Some((end, signature)) = self.blocks.block_end_mut(&key).zip(signature) {
            end.signature = Some(signature.to_owned());
        }
    }

    fn push_delta(&mut self, index: Option<u64>, delta: AnthropicDelta<'_>, out: &mut Vec<ModelEvent>) {
        let key = index.unwrap_or(self.latest_key);
        let at = self.open_blocks.iter().position(|(open, _)| *open == key);
        if let Some((_, BlockState::Unknown { text, .. })) = at.and_then(|at| self.open_blocks.get_mut(at)) {
            for piece in [&delta.text, &delta.thinking, &delta.partial_json].into_iter().flatten() {
                append_limited(text, piece);
            }
            if let Some(content) = &delta.content {
                collect_readable(content, text);
            }
            return;
        }
        let kind = match &*delta.kind {
            "text_delta" => BlockKind::Text,
            "thinking_delta" => BlockKind::Thinking,
            "signature_delta" => return self.set_signature(key, delta.signature.as_deref()),
            "input_json_delta" => {
                return self.push_arguments(at, delta.partial_json.unwrap_or_default(), out);
            }
            "citations_delta" => return, // the source of a text that is sent separately
            _ => {
                self.unknown_count += 1;
                return;
            }
        };
        if at.is_none() {
            // The server does not announce its blocks.
            self.blocks.start_block(key, kind.clone(), out);
            self.latest_key = key;
            self.open_blocks.push((key, BlockState::Plain));
        }
        if self.blocks.block_kind(&key) == Some(&kind) {
            self.blocks.push_delta(&key, delta.text.or(delta.thinking).unwrap_or_default(), out);
        } else {
            self.unknown_count += 1;
        }
    }

    fn push_arguments(&mut self, at: Option<usize>, piece: String, out: &mut Vec<ModelEvent>) {
        match at.and_then(|at| self.open_blocks.get_mut(at)) {
            Some((key, BlockState::Call { has_pieces, .. })) => {
                *has_pieces |= !piece.is_empty();
                self.blocks.push_delta(key, piece, out);
            }
            _ => self.unknown_count += 1,
        }
    }

    fn end_block(&mut self, key: u64, out: &mut Vec<ModelEvent>) {
        let Some(at) = self.open_blocks.iter().position(|(open, _)| *open == key) else { return };
        let (_, extra) = self.open_blocks.remove(at);
        match extra {
            BlockState::Call { initial_arguments: None, has_pieces: false } => {
                self.bare_call = Some(key);
                return;
            }
            BlockState::Call { initial_arguments: Some(input), has_pieces: false } => {
                self.blocks.push_delta(&key, input, out);
            }
            BlockState::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            BlockState::Plain | BlockState::Call { .. } => {}
        }
        self.blocks.stop_block(&key, out);
    }

    /// Ends a call without arguments. They are `{}` if the call is finished, and empty if the reply was
    /// truncated.
    fn end_bare_call(&mut self, finished: bool, out: &mut Vec<ModelEvent>) {
        if let Some(key) = self.bare_call.take() {
            self.blocks.push_delta(&key, if finished { "{}" } else { "" }, out);
            self.blocks.stop_block(&key, out);
        }
    }

    fn merge_usage(&mut self, usage: Option<Box<AnthropicUsage>>) {
        if let Some(usage) = usage {
            self.usage.merge(&usage);
        }
    }

    /// The message ended normally.
    fn end_message(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let stop = match self.stop.take() {
            Some(stop) => stop,
            // Some servers omit the reason at the end. An empty reply is still an error.
            None if self.call_ids.has_calls() => StopReason::ToolUse,
            None if self.blocks.started_count() > 0 => StopReason::EndTurn,
            None => return Err(cut_off_error("a message without content and without a stop reason")),
        };
        let finished = stop != StopReason::MaxTokens;
        self.end_bare_call(finished, out);
        while let Some((key, _)) = self.open_blocks.first() {
            let key = *key;
            self.end_block(key, out);
            self.end_bare_call(finished, out);
        }
        out.push(ModelEvent::Usage(self.usage.to_token_usage()));
        if let Some(details) = self.stop_details.take().filter(|_| stop.is_refusal()) {
            out.extend(stop_detail([details.category.as_str(), details.explanation.as_str()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }
}

impl SchemeDecoder for AnthropicDecoder {
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        if frame.data == "[DONE]" {
            return Ok(()); // end marker of another API
        }
        let event: AnthropicEvent<'_> = match parse_event(frame) {
            Ok(event) => event,
            Err(problem) => {
                self.unknown_count += 1;
                return handle_unreadable(frame, problem, &KNOWN_EVENTS, WireScheme::Anthropic);
            }
        };
        let kind = if event.kind.is_empty() { frame.name } else { &*event.kind };
        match kind {
            "content_block_delta" => {
                self.end_bare_call(true, out);
                if let Some(delta) = event.delta {
                    self.push_delta(event.index, delta, out);
                }
            }
            "content_block_start" => {
                let block = parse_part(frame, event.content_block)?;
                self.end_bare_call(true, out);
                self.start_block(event.index, &block, out);
            }
            "content_block_stop" => {
                self.end_bare_call(true, out);
                self.end_block(event.index.unwrap_or(self.latest_key), out);
            }
            "message_start" => {
                let message = parse_part(frame, event.message)?;
                self.start_message(message, out);
            }
            "message_delta" => {
                self.merge_usage(event.usage.0);
                let (reason, details) = match event.delta {
                    Some(delta) => (delta.stop_reason, delta.stop_details.0),
                    None => (None, None),
                };
                self.stop_details = details.or(self.stop_details.take());
                self.stop = reason.as_deref().map(parse_stop_reason).or(self.stop.take());
            }
            "message_stop" => self.end_message(out)?,
            "ping" => {}
            "error" => return Err(error_from_body(&parse_event(frame)?)),
            _ if event.error.is_some() => return Err(error_from_body(&parse_event(frame)?)),
            _ => self.unknown_count += 1,
        }
        if self.open_blocks.len() > MAX_BLOCKS { Err(too_many_blocks()) } else { Ok(()) }
    }

    fn decode_body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let message: AnthropicReply = parse_body(body)?;
        let blocks = match message.content {
            Some(MessageContent::Blocks(blocks)) if message.kind.as_deref() != Some("error") => blocks,
            Some(MessageContent::Text(text)) => vec![json!({ "type": "text", "text": text })],
            _ => return Err(error_from_body(&parse_body(body)?)),
        };
        self.merge_usage(message.usage.0);
        self.stop = message.stop_reason.as_deref().map(parse_stop_reason);
        self.stop_details = message.stop_details.0;
        for (index, block) in (0..).zip(&blocks) {
            self.end_bare_call(true, out);
            self.start_block(Some(index), block, out);
            self.end_block(index, out);
        }
        self.end_message(out)
    }

    fn decode_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        // Only `message_stop` is missing if the reason is known and no block is open.
        if self.stop.is_some() && self.open_blocks.is_empty() {
            return self.end_message(out);
        }
        Err(cut_off_error("missing message_stop"))
    }

    fn unknown_count(&self) -> u64 {
        self.unknown_count
    }
}

/// Parses a part of an event, only for the events that contain it.
fn parse_part<'a, T: Deserialize<'a> + Default>(
    frame: StreamFrame<'a>,
    part: Option<&'a RawValue>,
) -> Result<T, ProviderError> {
    match part {
        Some(part) => parse_event(StreamFrame { name: frame.name, data: part.get() }),
        None => Ok(T::default()),
    }
}

fn error_from_body(body: &Value) -> ProviderError {
    classify::classify_error_json(WireScheme::Anthropic, None, body)
}

#[cfg(test)]
mod tests;
