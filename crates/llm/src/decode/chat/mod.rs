//! Decoder of chat completions: the older format of OpenAI and the dialects of other providers.
//!
//! Here: the meaning of the events. Its parts: the fields (`wire`), assignment of call pieces (`calls`),
//! reasoning to be sent back (`details`). The format has no block ends: text and thinking end when another
//! block starts, calls at the end of the reply, because pieces of parallel calls may be interleaved. A reply
//! ends with `[DONE]`, or with the last byte if there was a finish reason. Invariant: a stream that ends
//! without either is `Interrupted`, and a truncated call never looks complete (tests below; over recorded
//! streams `tests/conformance.rs`).

mod calls;
mod details;
mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde_json::Value;

use super::blocks::OpenBlocks;
use super::lenient::LenientText;
use super::{
    SchemeDecoder, StreamFrame, append_limited, cut_off_error, parse_body, parse_event, stop_detail,
};
use crate::classify;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;
use calls::{CallLabel, PartialCalls};
use details::ReasoningDetails;
use wire::{ChatCallDelta, ChatChoice, ChatChunk, ChatDelta, ContentPart};

/// The most calls in one reply. More are an error of the provider.
const MAX_CALLS: usize = 1024;

/// The keys of open blocks. There is at most one text and one thinking block at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChatBlockKey {
    Text,
    Thinking,
    Refusal,
    Call(usize),
}

/// The decoder of one reply.
pub(crate) struct ChatDecoder {
    blocks: OpenBlocks<ChatBlockKey>,
    calls: PartialCalls,
    details: ReasoningDetails,
    usage: Option<TokenUsage>,
    finish_reason: Option<String>,
    /// The filter categories that stopped the reply, if the provider names them.
    filter_categories: Option<String>,
    /// Unknown kinds of output that have been reported.
    reported_kinds: Vec<&'static str>,
    unknown_count: u64,
}

impl ChatDecoder {
    pub(crate) fn new() -> ChatDecoder {
        ChatDecoder {
            blocks: OpenBlocks::new(),
            calls: PartialCalls::default(),
            details: ReasoningDetails::default(),
            usage: None,
            finish_reason: None,
            filter_categories: None,
            reported_kinds: Vec::new(),
            unknown_count: 0,
        }
    }

    fn push_chunk(&mut self, chunk: ChatChunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let groq = chunk.x_groq.0.unwrap_or_default();
        if let Some(usage) = chunk.usage.0.or(groq.usage.0) {
            self.usage = Some(usage.to_token_usage());
        }
        // The request asks for one reply, so other choices are ignored.
        let ours = |choice: &ChatChoice<'_>| choice.index.0.unwrap_or(0) == 0;
        for choice in chunk.choices.into_iter().flatten().filter(ours) {
            let fresh = self.blocks.started_count() == 0;
            // Some servers send the whole message so far with each piece.
            if let Some(delta) =
                choice.delta.or_else(|| choice.message.filter(|_| fresh).map(|message| *message))
            {
                self.push_delta(delta, out)?;
            }
            if let Some(finish) = choice.finish_reason.as_text() {
                self.finish_reason = Some(finish.to_owned());
            }
            if let Some(results) = &choice.content_filter_results {
                self.filter_categories = wire::filter_categories(results).or(self.filter_categories.take());
            }
            if let Some(error) = wire::real_error(choice.error) {
                return Err(self.error_after_usage(&error, out));
            }
        }
        match wire::real_error(chunk.error).or(wire::real_error(groq.error)) {
            Some(error) => Err(self.error_after_usage(&error, out)),
            None => Ok(()),
        }
    }

    fn push_delta(&mut self, delta: ChatDelta<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        self.push_reasoning(&delta, out);
        match &delta.content {
            LenientText::Null => {}
            LenientText::Text(text) => self.push_text(ChatBlockKey::Text, text, out),
            LenientText::Other(content) => self.push_content(content, out),
        }
        if let Some(refusal) = delta.refusal.as_text() {
            self.push_text(ChatBlockKey::Refusal, refusal, out);
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            self.push_call(piece, out)?;
        }
        if let Some(function) = delta.function_call {
            self.push_call(ChatCallDelta { function: Some(*function), ..ChatCallDelta::default() }, out)?;
        }
        if delta
            .audio
            .is_some_and(|audio| wire::has_text(&audio, "data") || wire::has_text(&audio, "transcript"))
        {
            self.report_unknown("audio", out);
        }
        if delta.images.is_some_and(|images| images.as_array().is_some_and(|list| !list.is_empty())) {
            self.report_unknown("images", out);
        }
        Ok(())
    }

    /// Thinking arrives as text, as details to be sent back, or as both with the same content.
    fn push_reasoning(&mut self, delta: &ChatDelta<'_>, out: &mut Vec<ModelEvent>) {
        let plain = delta.reasoning_content.as_text().or_else(|| delta.reasoning.as_text());
        if let Some(text) = plain {
            self.push_text(ChatBlockKey::Thinking, text, out);
        }
        let LenientText::Other(details) = &delta.reasoning_details else { return };
        let Value::Array(details) = &**details else { return };
        for detail in details {
            match details::readable_text(detail).filter(|_| plain.is_none()) {
                Some(text) => self.push_text(ChatBlockKey::Thinking, text, out),
                None => self.open_block(ChatBlockKey::Thinking, out),
            }
            self.details.push_detail(detail);
        }
    }

    fn push_content(&mut self, content: &Value, out: &mut Vec<ModelEvent>) {
        for part in wire::content_parts(content) {
            match part {
                ContentPart::Text(text) => self.push_text(ChatBlockKey::Text, &text, out),
                ContentPart::Thinking(text) => self.push_text(ChatBlockKey::Thinking, &text, out),
                ContentPart::Refusal(text) => self.push_text(ChatBlockKey::Refusal, text, out),
                ContentPart::Unknown { kind, text } => {
                    self.unknown_count += 1;
                    let mut kept = String::new();
                    append_limited(&mut kept, text);
                    let kind = kind.chars().take(100).collect();
                    out.push(ModelEvent::Unknown { kind, text: kept });
                }
            }
        }
    }

    fn report_unknown(&mut self, kind: &'static str, out: &mut Vec<ModelEvent>) {
        if !self.reported_kinds.contains(&kind) {
            self.reported_kinds.push(kind);
            self.unknown_count += 1;
            out.push(ModelEvent::Unknown { kind: kind.to_owned(), text: String::new() });
        }
    }

    fn push_text(&mut self, key: ChatBlockKey, text: &str, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.open_block(key, out);
            self.blocks.push_delta(&key, text, out);
        }
    }

    /// Starts a text, thinking or refusal block unless it is open, and ends the others.
    fn open_block(&mut self, key: ChatBlockKey, out: &mut Vec<ModelEvent>) {
        if self.blocks.is_open(&key) {
            return;
        }
        self.close_text_blocks(out);
        let kind = match key {
            ChatBlockKey::Text | ChatBlockKey::Call(_) => BlockKind::Text,
            ChatBlockKey::Thinking => BlockKind::Thinking,
            ChatBlockKey::Refusal => BlockKind::Refusal,
        };
        self.blocks.start_block(key, kind, out);
    }

    /// Ends text blocks; calls stay open.
    fn close_text_blocks(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(end) = self.blocks.block_end_mut(&ChatBlockKey::Thinking) {
            end.encrypted = self.details.take_json();
        }
        for key in [ChatBlockKey::Thinking, ChatBlockKey::Text, ChatBlockKey::Refusal] {
            self.blocks.stop_block(&key, out);
        }
    }

    fn push_call(
        &mut self,
        piece: ChatCallDelta<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let Some(function) = piece.function else {
            let known = matches!(piece.kind.as_text(), None | Some("function"));
            if !known {
                self.report_unknown("tool call", out);
            }
            return Ok(());
        };
        let arguments = function.arguments.into_text();
        let label = CallLabel {
            index: piece.index.0,
            id: piece.id.as_text(),
            name: function.name.as_text(),
            has_arguments: !arguments.trim().is_empty(),
        };
        if label.id.is_none() && label.name.is_none() && arguments.is_empty() {
            return Ok(()); // some servers send empty fields of calls that do not exist
        }
        let at = self.calls.find_or_start(label);
        if self.calls.len() > MAX_CALLS {
            return Err(ProviderError::new(
                ProviderErrorKind::TooLarge,
                format!("a reply with more than {MAX_CALLS} tool calls"),
            ));
        }
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        call.arguments.push(&arguments);
        if call.name.is_empty() {
            call.early_arguments.push_str(&arguments);
            return Ok(());
        }
        let early = std::mem::take(&mut call.early_arguments);
        let key = ChatBlockKey::Call(at);
        if !self.blocks.is_open(&key) {
            self.close_text_blocks(out);
            let name = self.calls.get_mut(at).map(|call| call.name.clone()).unwrap_or_default();
            let id = self.calls.assign_id(at);
            self.blocks.start_block(key, BlockKind::ToolCall { id, name }, out);
            self.blocks.push_delta(&key, early, out);
        }
        self.blocks.push_delta(&key, arguments, out);
        Ok(())
    }

    /// Returns the error after emitting the usage counted so far.
    fn error_after_usage(&mut self, error: &Value, out: &mut Vec<ModelEvent>) -> ProviderError {
        self.emit_usage(out);
        classify::classify_error_json(WireScheme::OpenaiChat, None, error)
    }

    fn emit_usage(&mut self, out: &mut Vec<ModelEvent>) {
        out.extend(self.usage.take().map(ModelEvent::Usage));
    }

    /// Handles the end of the reply.
    fn finish_reply(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        self.emit_usage(out);
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(ProviderError::new(
                ProviderErrorKind::Malformed,
                "the reply has a tool call without a name",
            ));
        }
        let said = self.finish_reason.clone();
        let stop = match self.finish_reason.take() {
            Some(finish) => self.parse_stop_reason(&finish)?,
            None if self
                .calls
                .iter()
                .any(|call| !call.arguments.is_empty() && !call.arguments.is_complete()) =>
            {
                return Err(cut_off_error("in the middle of a call's arguments"));
            }
            None if self.blocks.started_count() == 0 => {
                return Err(cut_off_error("no content and no finish reason"));
            }
            None if self.calls.is_empty() => StopReason::EndTurn,
            None => StopReason::ToolUse,
        };
        if stop != StopReason::MaxTokens {
            // A call without arguments is complete; one that the limit truncated is not.
            for (at, call) in self.calls.iter().enumerate() {
                if call.arguments.is_empty() {
                    self.blocks.push_delta(&ChatBlockKey::Call(at), "{}", out);
                }
            }
        }
        if let Some(end) = self.blocks.block_end_mut(&ChatBlockKey::Thinking) {
            end.encrypted = self.details.take_json();
        }
        self.blocks.close_all(out);
        if stop.is_refusal() {
            out.extend(stop_detail([said.as_deref(), self.filter_categories.as_deref()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn parse_stop_reason(&self, finish: &str) -> Result<StopReason, ProviderError> {
        let failed = |reason| {
            Err(ProviderError::new(
                reason,
                format!("the provider ended the reply with `{}`", super::preview_text(finish)),
            ))
        };
        Ok(match finish {
            // By the published format, a forced call ends with `stop`.
            "stop" | "eos" | "eos_token" | "end_turn" if !self.calls.is_empty() => StopReason::ToolUse,
            "stop" | "eos" | "eos_token" | "end_turn" => StopReason::EndTurn,
            "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
            "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
                StopReason::MaxTokens
            }
            "stop_sequence" => StopReason::StopSequence,
            "refusal" => StopReason::Refusal,
            "sensitive" | "safety" | "recitation" => StopReason::ContentFilter,
            other if other.starts_with("content_filter") => StopReason::ContentFilter,
            "error" | "network_error" => return failed(ProviderErrorKind::Server),
            "insufficient_system_resource" => return failed(ProviderErrorKind::Overloaded),
            other => StopReason::Other(other.chars().take(100).collect::<String>().to_lowercase()),
        })
    }
}

impl SchemeDecoder for ChatDecoder {
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let data = frame.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.finish_reply(out);
        }
        let named = !matches!(frame.name, "" | "message" | "error");
        let chunk: ChatChunk<'_> = match parse_event(frame) {
            Ok(chunk) => chunk,
            Err(_) if named => {
                self.unknown_count += 1;
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        let error = frame.name == "error" || chunk.object.as_text() == Some("error");
        if error && chunk.error.is_none() {
            let whole: Value = parse_event(frame)?;
            return Err(self.error_after_usage(&whole, out));
        }
        if chunk.choices.is_none() && chunk.usage.0.is_none() && chunk.error.is_none() {
            self.unknown_count += 1;
        }
        self.push_chunk(chunk, out)
    }

    fn decode_body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let chunk: ChatChunk<'_> = parse_body(body)?;
        if chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            // An error that the status did not indicate, in any form.
            let whole: Value = parse_body(body)?;
            return Err(self.error_after_usage(&whole, out));
        }
        self.push_chunk(chunk, out)?;
        self.finish_reply(out)
    }

    fn decode_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        if self.finish_reason.is_some() {
            return self.finish_reply(out);
        }
        self.emit_usage(out);
        Err(cut_off_error("missing finish reason and `[DONE]`"))
    }

    fn unknown_count(&self) -> u64 {
        self.unknown_count
    }
}

#[cfg(test)]
mod tests;
