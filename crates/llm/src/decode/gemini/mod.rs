//! Decoder of Gemini: `streamGenerateContent`, as events, as an array, or as one body.
//!
//! Here: the meaning of the events. Its parts: the fields (`wire`), arguments in pieces (`partial_args`).
//! Signatures: the history stores them only with reasoning. A signature of a call becomes a thinking block
//! without text before the call. A signature of a text or another part becomes such a block after it, marked
//! `OWN_PART_MARK`, because a call without a signature may follow. The request builder restores them. The
//! format has no last event: a reply ends with its bytes if there was a finish reason. Invariant: a stream
//! without one is `Interrupted`, and a truncated call never looks complete (tests below; over recorded
//! streams `tests/conformance.rs`).

mod partial_args;
mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde_json::Value;

use super::blocks::OpenBlocks;
use super::lenient::LenientText;
use super::{SchemeDecoder, StreamFrame, cut_off_error, parse_body, parse_event, stop_detail};
use crate::classify;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;
use crate::wire_marks::OWN_PART_MARK;
use partial_args::PartialArguments;
use wire::{CandidatePart, GeminiCandidate, GeminiChunk, GeminiFunctionCall};

/// The most calls in one reply. More are an error of the provider.
const MAX_CALLS: usize = 1024;

/// The keys of open blocks. There is at most one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GeminiBlockKey {
    Text,
    Thinking,
    Call,
}

/// The decoder of one reply.
pub(crate) struct GeminiDecoder {
    blocks: OpenBlocks<GeminiBlockKey>,
    /// The ids of all calls so far.
    call_ids: Vec<String>,
    /// The incomplete call.
    partial_call: Option<PartialArguments>,
    usage: Option<TokenUsage>,
    finish_reason: Option<String>,
    /// The provider's message about a finish reason or a blocked prompt.
    stop_message: Option<String>,
    unknown_count: u64,
}

impl GeminiDecoder {
    pub(crate) fn new() -> GeminiDecoder {
        GeminiDecoder {
            blocks: OpenBlocks::new(),
            call_ids: Vec::new(),
            partial_call: None,
            usage: None,
            finish_reason: None,
            stop_message: None,
            unknown_count: 0,
        }
    }

    fn push_chunk(&mut self, chunk: GeminiChunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let blank = chunk.candidates.is_none()
            && chunk.usage_metadata.0.is_none()
            && chunk.prompt_feedback.is_none()
            && chunk.error.is_none();
        self.unknown_count += u64::from(blank);
        if let Some(usage) = chunk.usage_metadata.0.and_then(|usage| usage.to_token_usage()) {
            self.usage = Some(usage);
        }
        if let Some(error) = chunk.error {
            return Err(self.error_after_usage(&error, out));
        }
        if let Some(feedback) = chunk.prompt_feedback
            && let Some(reason) = feedback.block_reason.as_text()
        {
            self.finish_reason = Some("SAFETY".to_owned());
            let message =
                feedback.block_reason_message.as_text().map(|text| format!(": {text}")).unwrap_or_default();
            self.stop_message = Some(format!("the prompt was blocked, {reason}{message}"));
        }
        // The request asks for one reply, so other candidates are ignored.
        let ours = |candidate: &GeminiCandidate<'_>| candidate.index.0.unwrap_or(0) == 0;
        for candidate in chunk.candidates.into_iter().flatten().filter(ours) {
            let parts = candidate.content.and_then(|content| content.parts);
            for part in parts.into_iter().flatten() {
                self.push_part(part, out)?;
            }
            if let Some(finish) =
                candidate.finish_reason.as_text().filter(|text| *text != "FINISH_REASON_UNSPECIFIED")
            {
                self.finish_reason = Some(finish.to_owned());
                let message =
                    candidate.finish_message.as_text().map(|text| format!(": {text}")).unwrap_or_default();
                self.stop_message.get_or_insert_with(|| format!("{finish}{message}"));
            }
        }
        Ok(())
    }

    fn push_part(&mut self, part: CandidatePart<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let signature = part.signature.as_text();
        if let Some(call) = part.call {
            if let Some(signature) = signature {
                self.close_text_blocks(out);
                self.end_signed_thought(signature, None, out);
            }
            return self.push_call(call, out);
        }
        let text = part.text.as_text().unwrap_or_default();
        if part.thought {
            self.push_text(GeminiBlockKey::Thinking, text, out);
            if let Some(signature) = signature {
                self.end_signed_thought(signature, Some(OWN_PART_MARK), out);
            }
            return Ok(());
        }
        self.push_text(GeminiBlockKey::Text, text, out);
        // A part with an empty text is a text part, and its other fields are not its kind.
        if let Some((kind, inner)) = part.unknown.filter(|_| part.text == LenientText::Null) {
            self.unknown_count += 1;
            out.push(ModelEvent::Unknown { kind, text: inner });
        }
        if let Some(signature) = signature {
            self.close_text_blocks(out);
            self.end_signed_thought(signature, Some(OWN_PART_MARK), out);
        }
        Ok(())
    }

    /// Ends the open thinking block, or an empty new one, with a signature.
    fn end_signed_thought(&mut self, signature: &str, mark: Option<&str>, out: &mut Vec<ModelEvent>) {
        if !self.blocks.is_open(&GeminiBlockKey::Thinking) {
            self.close_text_blocks(out);
            self.blocks.start_block(GeminiBlockKey::Thinking, BlockKind::Thinking, out);
        }
        if let Some(end) = self.blocks.block_end_mut(&GeminiBlockKey::Thinking) {
            end.signature = Some(signature.to_owned());
            end.encrypted = mark.map(str::to_owned);
        }
        self.blocks.stop_block(&GeminiBlockKey::Thinking, out);
    }

    fn push_text(&mut self, key: GeminiBlockKey, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        if !self.blocks.is_open(&key) {
            self.close_text_blocks(out);
            let kind = if key == GeminiBlockKey::Thinking { BlockKind::Thinking } else { BlockKind::Text };
            self.blocks.start_block(key, kind, out);
        }
        self.blocks.push_delta(&key, text, out);
    }

    /// Ends text and thinking; an incomplete call stays open.
    fn close_text_blocks(&mut self, out: &mut Vec<ModelEvent>) {
        self.blocks.stop_block(&GeminiBlockKey::Thinking, out);
        self.blocks.stop_block(&GeminiBlockKey::Text, out);
    }

    fn push_call(
        &mut self,
        call: GeminiFunctionCall<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        if let Some(name) = call.name.as_text() {
            // A new call ends the previous one, even without an explicit end.
            self.end_call(true, out);
            self.close_text_blocks(out);
            if self.call_ids.len() == MAX_CALLS {
                let text = format!("a reply with more than {MAX_CALLS} tool calls");
                return Err(ProviderError::new(ProviderErrorKind::TooLarge, text));
            }
            let id = self.unique_id(call.id.as_text());
            self.call_ids.push(id.clone());
            self.blocks.start_block(
                GeminiBlockKey::Call,
                BlockKind::ToolCall { id, name: name.to_owned() },
                out,
            );
            self.partial_call = Some(PartialArguments::default());
        }
        let Some(partial) = &mut self.partial_call else {
            if call.args.is_some() || call.partial_args.is_some() {
                return Err(ProviderError::new(
                    ProviderErrorKind::Malformed,
                    "the reply has a tool call without a name",
                ));
            }
            self.unknown_count += 1;
            return Ok(());
        };
        for piece in call.partial_args.into_iter().flatten() {
            partial
                .apply_piece(piece)
                .map_err(|why| ProviderError::new(ProviderErrorKind::Malformed, why))?;
        }
        let continues = call.will_continue == Some(true);
        if let Some(args) = call.args {
            let text = wire::compact_json(args);
            self.blocks.push_delta(&GeminiBlockKey::Call, text, out);
            self.blocks.stop_block(&GeminiBlockKey::Call, out);
            self.partial_call = None;
        } else if !continues {
            self.end_call(true, out);
        }
        Ok(())
    }

    /// Returns the provider's id if it is unique, else a generated one.
    fn unique_id(&self, given: Option<&str>) -> String {
        let free = |id: &String| !self.call_ids.contains(id);
        let given = given.map(str::to_owned).filter(free);
        // There are fewer calls than candidates, so one is free.
        let mut ours = (self.call_ids.len()..=2 * self.call_ids.len()).map(|number| format!("call_{number}"));
        given.or_else(|| ours.find(free)).unwrap_or_default()
    }

    fn end_call(&mut self, complete: bool, out: &mut Vec<ModelEvent>) {
        if let Some(partial) = self.partial_call.take() {
            self.blocks.push_delta(&GeminiBlockKey::Call, partial.into_json(complete), out);
            self.blocks.stop_block(&GeminiBlockKey::Call, out);
        }
    }

    /// Returns the error after emitting the usage counted so far.
    fn error_after_usage(&mut self, error: &Value, out: &mut Vec<ModelEvent>) -> ProviderError {
        self.emit_usage(out);
        classify::classify_error_json(WireScheme::Gemini, None, error)
    }

    fn emit_usage(&mut self, out: &mut Vec<ModelEvent>) {
        out.extend(self.usage.take().map(ModelEvent::Usage));
    }
}

fn parse_stop_reason(finish: &str, called: bool) -> StopReason {
    match finish {
        "STOP" if called => StopReason::ToolUse,
        "STOP" => StopReason::EndTurn,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::ContentFilter,
        other => StopReason::Other(other.chars().take(100).collect::<String>().to_lowercase()),
    }
}

impl SchemeDecoder for GeminiDecoder {
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let data = frame.data.trim();
        // Some gateways use the end marker of another scheme.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let named = !matches!(frame.name, "" | "message" | "error");
        match parse_event(frame) {
            Ok(chunk) => self.push_chunk(chunk, out),
            Err(_) if named => {
                self.unknown_count += 1;
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    fn decode_body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let chunk: GeminiChunk<'_> = parse_body(body)?;
        if chunk.candidates.is_none() && chunk.prompt_feedback.is_none() {
            // An error that the status did not indicate, in any form.
            let whole: Value = parse_body(body)?;
            return Err(self.error_after_usage(&whole, out));
        }
        self.push_chunk(chunk, out)?;
        self.decode_end(out)
    }

    fn decode_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        self.emit_usage(out);
        let Some(finish) = self.finish_reason.take() else {
            return Err(cut_off_error("missing finish reason"));
        };
        // Some streams do not mark the end of a call, but a normal end implies that it is complete.
        self.end_call(finish == "STOP", out);
        self.blocks.close_all(out);
        let called = !self.call_ids.is_empty();
        let stop = parse_stop_reason(&finish, called);
        if stop.is_refusal() {
            out.extend(stop_detail([self.stop_message.as_deref()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn unknown_count(&self) -> u64 {
        self.unknown_count
    }
}

#[cfg(test)]
mod tests;
