//! Chat completions: OpenAI's older format, and the dialects of everybody who speaks it.
//!
//! Here: what the events mean. Its parts: the fields (`wire`), which call a piece belongs to (`calls`), reasoning that
//! is to be sent back (`details`).
//! The format has no ends of blocks: text and thinking end when something else begins, calls at the end of the reply,
//! because the pieces of parallel calls may be interleaved. A reply ends with `[DONE]`, or with the bytes if there was a
//! finish reason before.
//! Invariant: what ends without either is `Cut`, and a call that the provider cut short never looks whole (tests below;
//! over recorded streams `tests/conformance.rs`).

mod calls;
mod details;
mod wire;

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde_json::Value;

use super::blocks::Blocks;
use super::loose::Loose;
use super::{Decode, Frame, add_bounded, cut, parse, parse_body, stop_detail};
use crate::classify;
use crate::problem::{Problem, Reason};
use crate::settings::Scheme;
use calls::{Calls, Label};
use details::Details;
use wire::{Choice, Chunk, Delta, Part, Piece};

/// Calls of one reply; more are no reply but a fault.
const MOST_CALLS: usize = 1024;

/// What the open blocks are keyed by. There is one text and one thinking at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Text,
    Thinking,
    Refusal,
    Call(usize),
}

/// The decoder of one reply.
pub(crate) struct ChatDecode {
    blocks: Blocks<Key>,
    calls: Calls,
    details: Details,
    usage: Option<TokenUsage>,
    finish: Option<String>,
    /// The categories for which a filter stopped the reply, where the provider names them.
    filtered: Option<String>,
    /// Kinds of output that we do not know and have told of.
    told: Vec<&'static str>,
    unknown: u64,
}

impl ChatDecode {
    pub(crate) fn new() -> ChatDecode {
        ChatDecode {
            blocks: Blocks::new(),
            calls: Calls::default(),
            details: Details::default(),
            usage: None,
            finish: None,
            filtered: None,
            told: Vec::new(),
            unknown: 0,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let groq = chunk.x_groq.0.unwrap_or_default();
        if let Some(usage) = chunk.usage.0.or(groq.usage.0) {
            self.usage = Some(usage.tokens());
        }
        // Only one reply is asked for; what a server gives beside it is not ours.
        let ours = |choice: &Choice<'_>| choice.index.0.unwrap_or(0) == 0;
        for choice in chunk.choices.into_iter().flatten().filter(ours) {
            let fresh = self.blocks.begun() == 0;
            // Some give the whole message so far beside each piece of it.
            if let Some(delta) =
                choice.delta.or_else(|| choice.message.filter(|_| fresh).map(|message| *message))
            {
                self.delta(delta, out)?;
            }
            if let Some(finish) = choice.finish_reason.text() {
                self.finish = Some(finish.to_owned());
            }
            if let Some(results) = &choice.content_filter_results {
                self.filtered = wire::filtered(results).or(self.filtered.take());
            }
            if let Some(error) = wire::meant(choice.error) {
                return Err(self.failed(&error, out));
            }
        }
        match wire::meant(chunk.error).or(wire::meant(groq.error)) {
            Some(error) => Err(self.failed(&error, out)),
            None => Ok(()),
        }
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        self.reasoning(&delta, out);
        match &delta.content {
            Loose::Null => {}
            Loose::Text(text) => self.say(Key::Text, text, out),
            Loose::Other(content) => self.content(content, out),
        }
        if let Some(refusal) = delta.refusal.text() {
            self.say(Key::Refusal, refusal, out);
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            self.call(piece, out)?;
        }
        if let Some(function) = delta.function_call {
            self.call(Piece { function: Some(*function), ..Piece::default() }, out)?;
        }
        if delta.audio.is_some_and(|audio| wire::says(&audio, "data") || wire::says(&audio, "transcript")) {
            self.unknown_output("audio", out);
        }
        if delta.images.is_some_and(|images| images.as_array().is_some_and(|list| !list.is_empty())) {
            self.unknown_output("images", out);
        }
        Ok(())
    }

    /// Thinking comes as a text, as details that are to be sent back, or as both, which then say the same.
    fn reasoning(&mut self, delta: &Delta<'_>, out: &mut Vec<ModelEvent>) {
        let plain = delta.reasoning_content.text().or_else(|| delta.reasoning.text());
        if let Some(text) = plain {
            self.say(Key::Thinking, text, out);
        }
        let Loose::Other(details) = &delta.reasoning_details else { return };
        let Value::Array(details) = &**details else { return };
        for detail in details {
            match details::readable(detail).filter(|_| plain.is_none()) {
                Some(text) => self.say(Key::Thinking, text, out),
                None => self.open(Key::Thinking, out),
            }
            self.details.add(detail);
        }
    }

    fn content(&mut self, content: &Value, out: &mut Vec<ModelEvent>) {
        for part in wire::parts(content) {
            match part {
                Part::Text(text) => self.say(Key::Text, &text, out),
                Part::Thinking(text) => self.say(Key::Thinking, &text, out),
                Part::Refusal(text) => self.say(Key::Refusal, text, out),
                Part::Unknown { kind, text } => {
                    self.unknown += 1;
                    let mut kept = String::new();
                    add_bounded(&mut kept, text);
                    let kind = kind.chars().take(100).collect();
                    out.push(ModelEvent::Unknown { kind, text: kept });
                }
            }
        }
    }

    fn unknown_output(&mut self, kind: &'static str, out: &mut Vec<ModelEvent>) {
        if !self.told.contains(&kind) {
            self.told.push(kind);
            self.unknown += 1;
            out.push(ModelEvent::Unknown { kind: kind.to_owned(), text: String::new() });
        }
    }

    fn say(&mut self, key: Key, text: &str, out: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.open(key, out);
            self.blocks.delta(&key, text, out);
        }
    }

    /// Begins a text, a thinking or a refusal if it is not open, and ends the others.
    fn open(&mut self, key: Key, out: &mut Vec<ModelEvent>) {
        if self.blocks.is_open(&key) {
            return;
        }
        self.close_said(out);
        let kind = match key {
            Key::Text | Key::Call(_) => BlockKind::Text,
            Key::Thinking => BlockKind::Thinking,
            Key::Refusal => BlockKind::Refusal,
        };
        self.blocks.start(key, kind, out);
    }

    /// Ends what is said; calls stay open.
    fn close_said(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(end) = self.blocks.end_mut(&Key::Thinking) {
            end.encrypted = self.details.take();
        }
        for key in [Key::Thinking, Key::Text, Key::Refusal] {
            self.blocks.stop(&key, out);
        }
    }

    fn call(&mut self, piece: Piece<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let Some(function) = piece.function else {
            let known = matches!(piece.kind.text(), None | Some("function"));
            if !known {
                self.unknown_output("tool call", out);
            }
            return Ok(());
        };
        let arguments = function.arguments.into_text();
        let label = Label {
            index: piece.index.0,
            id: piece.id.text(),
            name: function.name.text(),
            brings: !arguments.trim().is_empty(),
        };
        if label.id.is_none() && label.name.is_none() && arguments.is_empty() {
            return Ok(()); // some servers write every field there is, also of calls that nobody makes
        }
        let at = self.calls.place(label);
        if self.calls.len() > MOST_CALLS {
            return Err(Problem::new(
                Reason::TooLarge,
                format!("a reply with more than {MOST_CALLS} tool calls"),
            ));
        }
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        call.arguments.push(&arguments);
        if call.name.is_empty() {
            call.early.push_str(&arguments);
            return Ok(());
        }
        let early = std::mem::take(&mut call.early);
        let key = Key::Call(at);
        if !self.blocks.is_open(&key) {
            self.close_said(out);
            let name = self.calls.get_mut(at).map(|call| call.name.clone()).unwrap_or_default();
            let id = self.calls.identify(at);
            self.blocks.start(key, BlockKind::ToolCall { id, name }, out);
            self.blocks.delta(&key, early, out);
        }
        self.blocks.delta(&key, arguments, out);
        Ok(())
    }

    /// The problem behind an error; what the provider counted before it is told first.
    fn failed(&mut self, error: &Value, out: &mut Vec<ModelEvent>) -> Problem {
        self.tell_usage(out);
        classify::from_error_json(Scheme::OpenaiChat, None, error)
    }

    fn tell_usage(&mut self, out: &mut Vec<ModelEvent>) {
        out.extend(self.usage.take().map(ModelEvent::Usage));
    }

    /// The provider has said its last word.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        self.tell_usage(out);
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(Problem::new(Reason::Malformed, "the reply has a tool call without a name"));
        }
        let said = self.finish.clone();
        let stop = match self.finish.take() {
            Some(finish) => self.stop_reason(&finish)?,
            None if self
                .calls
                .iter()
                .any(|call| !call.arguments.is_empty() && !call.arguments.is_whole()) =>
            {
                return Err(cut("in the middle of a call's arguments"));
            }
            None if self.blocks.begun() == 0 => return Err(cut("it says nothing and has no finish reason")),
            None if self.calls.is_empty() => StopReason::EndTurn,
            None => StopReason::ToolUse,
        };
        if stop != StopReason::MaxTokens {
            // No arguments are none; those that the limit cut off are not.
            for (at, call) in self.calls.iter().enumerate() {
                if call.arguments.is_empty() {
                    self.blocks.delta(&Key::Call(at), "{}", out);
                }
            }
        }
        if let Some(end) = self.blocks.end_mut(&Key::Thinking) {
            end.encrypted = self.details.take();
        }
        self.blocks.close_all(out);
        if stop.is_refusal() {
            out.extend(stop_detail([said.as_deref(), self.filtered.as_deref()]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn stop_reason(&self, finish: &str) -> Result<StopReason, Problem> {
        let failed = |reason| {
            Err(Problem::new(
                reason,
                format!("the provider ended the reply with `{}`", super::preview(finish)),
            ))
        };
        Ok(match finish {
            // A forced call ends with `stop` by the published format.
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
            "error" | "network_error" => return failed(Reason::Server),
            "insufficient_system_resource" => return failed(Reason::Overloaded),
            other => StopReason::Other(other.chars().take(100).collect::<String>().to_lowercase()),
        })
    }
}

impl Decode for ChatDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let data = frame.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.finish(out);
        }
        let named = !matches!(frame.name, "" | "message" | "error");
        let chunk: Chunk<'_> = match parse(frame) {
            Ok(chunk) => chunk,
            Err(_) if named => {
                self.unknown += 1;
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        let error = frame.name == "error" || chunk.object.text() == Some("error");
        if error && chunk.error.is_none() {
            let whole: Value = parse(frame)?;
            return Err(self.failed(&whole, out));
        }
        if chunk.choices.is_none() && chunk.usage.0.is_none() && chunk.error.is_none() {
            self.unknown += 1;
        }
        self.chunk(chunk, out)
    }

    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let chunk: Chunk<'_> = parse_body(body)?;
        if chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            // An error that the status did not tell, in whatever form.
            let whole: Value = parse_body(body)?;
            return Err(self.failed(&whole, out));
        }
        self.chunk(chunk, out)?;
        self.finish(out)
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if self.finish.is_some() {
            return self.finish(out);
        }
        self.tell_usage(out);
        Err(cut("neither a finish reason nor `[DONE]` came"))
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }
}

#[cfg(test)]
mod tests;
