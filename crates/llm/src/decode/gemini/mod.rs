//! Gemini: `streamGenerateContent`, as events, as an array, or as one body.
//!
//! Here: what the events mean. Its parts: the fields (`wire`), arguments that come in pieces (`partial`).
//! Signatures: history holds them with reasoning only, so one that came on a call is a thinking block without text just
//! before that call, and one that came on a text (or on anything else) is such a block just after it, marked
//! `OWN_PART`, because a call may follow that has none. The request builder puts them back.
//! The format has no last event: a reply is over when its bytes are, if there was a finish reason.
//! Invariant: what ends without one is `Cut`, and a call that was cut short never looks whole (tests below; over
//! recorded streams `tests/conformance.rs`).

mod partial;
mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde_json::Value;

use super::blocks::Blocks;
use super::loose::Loose;
use super::{Decode, Frame, cut, parse, parse_body, stop_detail};
use crate::classify;
use crate::problem::{Problem, Reason};
use crate::settings::Scheme;
use partial::Partial;
use wire::{Candidate, Chunk, FunctionCall, Part};

/// Calls of one reply; more are no reply but a fault.
const MOST_CALLS: usize = 1024;

/// What a signature that belongs to no call is marked with, where other schemes keep encrypted reasoning: it is sent
/// back in a part of its own.
pub(crate) const OWN_PART: &str = "part";

/// What the open blocks are keyed by. There is one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Text,
    Thinking,
    Call,
}

/// The decoder of one reply.
pub(crate) struct GeminiDecode {
    blocks: Blocks<Key>,
    /// The ids of all calls so far.
    ids: Vec<String>,
    /// The call of which more follows.
    partial: Option<Partial>,
    usage: Option<TokenUsage>,
    finish: Option<String>,
    /// What the provider says about a finish reason, or about a blocked prompt.
    said_why: Option<String>,
    unknown: u64,
}

impl GeminiDecode {
    pub(crate) fn new() -> GeminiDecode {
        GeminiDecode {
            blocks: Blocks::new(),
            ids: Vec::new(),
            partial: None,
            usage: None,
            finish: None,
            said_why: None,
            unknown: 0,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let blank = chunk.candidates.is_none()
            && chunk.usage_metadata.0.is_none()
            && chunk.prompt_feedback.is_none()
            && chunk.error.is_none();
        self.unknown += u64::from(blank);
        if let Some(usage) = chunk.usage_metadata.0.and_then(|usage| usage.tokens()) {
            self.usage = Some(usage);
        }
        if let Some(error) = chunk.error {
            return Err(self.failed(&error, out));
        }
        if let Some(feedback) = chunk.prompt_feedback
            && let Some(reason) = feedback.block_reason.text()
        {
            self.finish = Some("SAFETY".to_owned());
            let message =
                feedback.block_reason_message.text().map(|text| format!(": {text}")).unwrap_or_default();
            self.said_why = Some(format!("the prompt was blocked, {reason}{message}"));
        }
        // Only one reply is asked for; what a server gives beside it is not ours.
        let ours = |candidate: &Candidate<'_>| candidate.index.0.unwrap_or(0) == 0;
        for candidate in chunk.candidates.into_iter().flatten().filter(ours) {
            let parts = candidate.content.and_then(|content| content.parts);
            for part in parts.into_iter().flatten() {
                self.part(part, out)?;
            }
            if let Some(finish) =
                candidate.finish_reason.text().filter(|text| *text != "FINISH_REASON_UNSPECIFIED")
            {
                self.finish = Some(finish.to_owned());
                let message =
                    candidate.finish_message.text().map(|text| format!(": {text}")).unwrap_or_default();
                self.said_why.get_or_insert_with(|| format!("{finish}{message}"));
            }
        }
        Ok(())
    }

    fn part(&mut self, part: Part<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let signature = part.signature.text();
        if let Some(call) = part.call {
            if let Some(signature) = signature {
                self.close_said(out);
                self.signed(signature, None, out);
            }
            return self.call(call, out);
        }
        let text = part.text.text().unwrap_or_default();
        if part.thought {
            self.say(Key::Thinking, text, out);
            if let Some(signature) = signature {
                self.signed(signature, Some(OWN_PART), out);
            }
            return Ok(());
        }
        self.say(Key::Text, text, out);
        // A text may be empty and is a text all the same; what stands beside it is no kind.
        if let Some((kind, inner)) = part.unknown.filter(|_| part.text == Loose::Null) {
            self.unknown += 1;
            out.push(ModelEvent::Unknown { kind, text: inner });
        }
        if let Some(signature) = signature {
            self.close_said(out);
            self.signed(signature, Some(OWN_PART), out);
        }
        Ok(())
    }

    /// Ends the open thinking, or one that has no text, with a signature.
    fn signed(&mut self, signature: &str, mark: Option<&str>, out: &mut Vec<ModelEvent>) {
        if !self.blocks.is_open(&Key::Thinking) {
            self.close_said(out);
            self.blocks.start(Key::Thinking, BlockKind::Thinking, out);
        }
        if let Some(end) = self.blocks.end_mut(&Key::Thinking) {
            end.signature = Some(signature.to_owned());
            end.encrypted = mark.map(str::to_owned);
        }
        self.blocks.stop(&Key::Thinking, out);
    }

    fn say(&mut self, key: Key, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        if !self.blocks.is_open(&key) {
            self.close_said(out);
            let kind = if key == Key::Thinking { BlockKind::Thinking } else { BlockKind::Text };
            self.blocks.start(key, kind, out);
        }
        self.blocks.delta(&key, text, out);
    }

    /// Ends text and thinking; a call of which more follows stays open.
    fn close_said(&mut self, out: &mut Vec<ModelEvent>) {
        self.blocks.stop(&Key::Thinking, out);
        self.blocks.stop(&Key::Text, out);
    }

    fn call(&mut self, call: FunctionCall<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if let Some(name) = call.name.text() {
            // A call begins, so the one before it has ended, even if nobody said so.
            self.end_call(true, out);
            self.close_said(out);
            if self.ids.len() == MOST_CALLS {
                let text = format!("a reply with more than {MOST_CALLS} tool calls");
                return Err(Problem::new(Reason::TooLarge, text));
            }
            let id = self.id(call.id.text());
            self.ids.push(id.clone());
            self.blocks.start(Key::Call, BlockKind::ToolCall { id, name: name.to_owned() }, out);
            self.partial = Some(Partial::default());
        }
        let Some(partial) = &mut self.partial else {
            if call.args.is_some() || call.partial_args.is_some() {
                return Err(Problem::new(Reason::Malformed, "the reply has a tool call without a name"));
            }
            self.unknown += 1;
            return Ok(());
        };
        for piece in call.partial_args.into_iter().flatten() {
            partial.add(piece).map_err(|why| Problem::new(Reason::Malformed, why))?;
        }
        let continues = call.will_continue == Some(true);
        if let Some(args) = call.args {
            let text = wire::compact(args);
            self.blocks.delta(&Key::Call, text, out);
            self.blocks.stop(&Key::Call, out);
            self.partial = None;
        } else if !continues {
            self.end_call(true, out);
        }
        Ok(())
    }

    /// The provider's id, if it gave one that no other call has; else one of ours.
    fn id(&self, given: Option<&str>) -> String {
        let free = |id: &String| !self.ids.contains(id);
        let given = given.map(str::to_owned).filter(free);
        // There are fewer calls than candidates, so one is free.
        let mut ours = (self.ids.len()..=2 * self.ids.len()).map(|number| format!("call_{number}"));
        given.or_else(|| ours.find(free)).unwrap_or_default()
    }

    fn end_call(&mut self, complete: bool, out: &mut Vec<ModelEvent>) {
        if let Some(partial) = self.partial.take() {
            self.blocks.delta(&Key::Call, partial.text(complete), out);
            self.blocks.stop(&Key::Call, out);
        }
    }

    /// The problem behind an error; what the provider counted before it is told first.
    fn failed(&mut self, error: &Value, out: &mut Vec<ModelEvent>) -> Problem {
        self.tell_usage(out);
        classify::from_error_json(Scheme::Gemini, None, error)
    }

    fn tell_usage(&mut self, out: &mut Vec<ModelEvent>) {
        out.extend(self.usage.take().map(ModelEvent::Usage));
    }
}

fn stop_reason(finish: &str, called: bool) -> StopReason {
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

impl Decode for GeminiDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let data = frame.data.trim();
        // Some gateways end the stream as they end those of another scheme.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let named = !matches!(frame.name, "" | "message" | "error");
        match parse(frame) {
            Ok(chunk) => self.chunk(chunk, out),
            Err(_) if named => {
                self.unknown += 1;
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let chunk: Chunk<'_> = parse_body(body)?;
        if chunk.candidates.is_none() && chunk.prompt_feedback.is_none() {
            // An error that the status did not tell, in whatever form.
            let whole: Value = parse_body(body)?;
            return Err(self.failed(&whole, out));
        }
        self.chunk(chunk, out)?;
        self.end(out)
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        self.tell_usage(out);
        let Some(finish) = self.finish.take() else { return Err(cut("no finish reason came")) };
        // Some streams do not say that a call is over, but only one that ends well has said all of it.
        self.end_call(finish == "STOP", out);
        self.blocks.close_all(out);
        let called = !self.ids.is_empty();
        let stop = stop_reason(&finish, called);
        if stop.is_refusal() {
            out.extend(stop_detail([self.said_why.as_deref()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }
}

#[cfg(test)]
mod tests;
