//! The anthropic format, from the provider's side: requests read, replies told, errors worded.
//!
//! Invariant: what is told here is what `decode::anthropic` reads (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, Failure, FailureKind, StopReason};
use serde_json::{Value, json};

use super::asked::{Asked, History, Wishes, list, text, texts};
use super::signature::{check, sign};
use super::voice::{Tell, Told, Voice};
use crate::settings::Scheme;

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let model = text(body, "model", "")?.to_owned();
    if body.get("max_tokens").and_then(Value::as_u64).is_none_or(|most| most == 0) {
        return Err("max_tokens: a number above 0 is required".to_owned());
    }
    let messages = list(body, "messages", "")?;
    let mut history = History::default();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}.");
        let role = text(message, "role", &place)?;
        let whole = [message.get("content").cloned().unwrap_or_default()];
        let (blocks, plain) = match message.get("content") {
            Some(Value::Array(blocks)) => (blocks.as_slice(), false),
            Some(Value::String(_)) => (whole.as_slice(), true),
            _ => return Err(format!("{place}content: a text or a list of blocks is required")),
        };
        for (number, block) in blocks.iter().enumerate() {
            let place = format!("{place}content.{number}.");
            match role {
                _ if plain => said(role, block.as_str().unwrap_or_default(), &mut history),
                "user" => read_user(block, &place, &mut history)?,
                "assistant" => read_assistant(block, &place, &model, &mut history)?,
                other => return Err(format!("{place}role: `{other}` is not `user` or `assistant`")),
            }
        }
    }
    let system = texts(body.get("system"), "system")?.join("\n");
    Ok(Asked { model, system, history, messages: messages.len(), wishes: Wishes::default() })
}

fn said(role: &str, text: &str, history: &mut History) {
    if role == "assistant" { history.assistant(text) } else { history.user(text) }
}

fn read_user(block: &Value, place: &str, history: &mut History) -> Result<(), String> {
    match text(block, "type", place)? {
        "text" => match text(block, "text", place)? {
            "" => return Err(format!("{place}text: text content blocks must be non-empty")),
            text => history.user(text),
        },
        "tool_result" => {
            let id = text(block, "tool_use_id", place)?;
            let said = texts(block.get("content"), &format!("{place}content"))?.join("\n");
            let failed = block.get("is_error") == Some(&Value::Bool(true));
            read_given(block, failed, place, history)?;
            history.result(id, said, failed);
        }
        "image" => read_image(block, place, history)?,
        "document" => {}
        other => return Err(format!("{place}type: `{other}` cannot stand in a user message")),
    }
    Ok(())
}

/// What stands in a result beside texts.
fn read_given(block: &Value, failed: bool, place: &str, history: &mut History) -> Result<(), String> {
    let blocks = block.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, given) in blocks.iter().enumerate() {
        let place = format!("{place}content.{number}.");
        match text(given, "type", &place)? {
            "text" => {}
            _ if failed => {
                return Err(format!(
                    "{place}type: all content must be type \"text\" if \"is_error\" is true"
                ));
            }
            "image" => read_image(given, &place, history)?,
            "document" | "search_result" => {}
            other => return Err(format!("{place}type: `{other}` cannot stand in a result")),
        }
    }
    Ok(())
}

fn read_image(block: &Value, place: &str, history: &mut History) -> Result<(), String> {
    let (source, place) = (block.get("source").unwrap_or(&Value::Null), format!("{place}source."));
    match text(source, "type", &place)? {
        "base64" => history.image(text(source, "media_type", &place)?, text(source, "data", &place)?, &place),
        "url" => history.image_url(text(source, "url", &place)?, &place),
        other => Err(format!("{place}type: `{other}` is not `base64` or `url`")),
    }
}

fn read_assistant(block: &Value, place: &str, model: &str, history: &mut History) -> Result<(), String> {
    match text(block, "type", place)? {
        "text" => match text(block, "text", place)? {
            "" => return Err(format!("{place}text: text content blocks must be non-empty")),
            text => history.assistant(text),
        },
        "tool_use" => {
            let input = block.get("input").filter(|input| input.is_object());
            let input = input.ok_or_else(|| format!("{place}input: an object is required"))?;
            history.call(text(block, "id", place)?, text(block, "name", place)?, input.to_string());
        }
        "thinking" => {
            let thought = text(block, "thinking", place)?;
            check(Scheme::Anthropic, model, thought, text(block, "signature", place)?).map_err(
                |problem| format!("{place}signature: Invalid `signature` in `thinking` block: {problem}"),
            )?;
            history.thought(thought);
        }
        "redacted_thinking" => {
            return Err(format!(
                "{place}data: Invalid `data` in `redacted_thinking` block: the mock makes none"
            ));
        }
        other => return Err(format!("{place}type: `{other}` cannot stand in an assistant message")),
    }
    Ok(())
}

/// The body of an error.
pub(super) fn error(status: u16, failure: &Failure) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let message = match failure.kind {
        FailureKind::TooLong => format!("prompt is too long: {}", failure.message),
        FailureKind::Refused => format!("the request was flagged: {}", failure.message),
        FailureKind::Cut | FailureKind::Transient | FailureKind::Permanent => failure.message.clone(),
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

pub(super) fn models(model: &str) -> Value {
    let model =
        json!({ "type": "model", "id": model, "display_name": model, "created_at": "2026-01-01T00:00:00Z" });
    json!({ "data": [model], "has_more": false, "first_id": null, "last_id": null })
}

/// Tells a reply.
pub(super) struct Teller {
    voice: Voice,
    /// What is open, and the thinking that will have to be signed.
    open: HashMap<u32, Option<String>>,
    calls: Vec<u32>,
    pinged: bool,
}

impl Teller {
    pub(super) fn new(voice: Voice) -> Teller {
        Teller { voice, open: HashMap::new(), calls: Vec::new(), pinged: false }
    }
}

impl Tell for Teller {
    fn begin(&mut self, out: &mut Vec<Told>) {
        let usage = &self.voice.usage;
        let message = json!({
            "id": format!("msg_{}", self.voice.id),
            "type": "message",
            "role": "assistant",
            "model": self.voice.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": {
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": usage.output.min(1),
            },
        });
        out.push(told("message_start", &json!({ "type": "message_start", "message": message })));
    }

    fn start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<Told>) {
        let block = match kind {
            BlockKind::Text | BlockKind::Refusal => json!({ "type": "text", "text": "" }),
            BlockKind::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            BlockKind::ToolCall { id, name } => {
                self.calls.push(index);
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
            }
        };
        let thinks = matches!(kind, BlockKind::Thinking).then(String::new);
        self.open.insert(index, thinks);
        let data = json!({ "type": "content_block_start", "index": index, "content_block": block });
        out.push(told("content_block_start", &data));
        if !self.pinged {
            self.pinged = true;
            out.push(told("ping", &json!({ "type": "ping" })));
        }
    }

    fn delta(&mut self, index: u32, text: &str, out: &mut Vec<Told>) {
        let delta = match self.open.get_mut(&index) {
            Some(Some(thought)) => {
                thought.push_str(text);
                json!({ "type": "thinking_delta", "thinking": text })
            }
            _ if self.calls.contains(&index) => json!({ "type": "input_json_delta", "partial_json": text }),
            _ => json!({ "type": "text_delta", "text": text }),
        };
        push_delta(index, &delta, out);
    }

    fn stop(&mut self, index: u32, out: &mut Vec<Told>) {
        if let Some(Some(thought)) = self.open.remove(&index) {
            let signature = sign(Scheme::Anthropic, &self.voice.model, &thought);
            push_delta(index, &json!({ "type": "signature_delta", "signature": signature }), out);
        }
        out.push(told("content_block_stop", &json!({ "type": "content_block_stop", "index": index })));
    }

    fn done(&mut self, stop: &StopReason, out: &mut Vec<Told>) {
        let reason = match stop {
            StopReason::ContentFilter => "refusal",
            StopReason::Other(word) if word == "pause" => "pause_turn",
            other => other.as_str(),
        };
        let usage = json!({ "output_tokens": self.voice.usage.output });
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        out.push(told("message_delta", &json!({ "type": "message_delta", "delta": delta, "usage": usage })));
        out.push(told("message_stop", &json!({ "type": "message_stop" })));
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<Told>) {
        out.push(told("error", &error(failure.status.unwrap_or(529), failure)));
    }
}

fn push_delta(index: u32, delta: &Value, out: &mut Vec<Told>) {
    let data = json!({ "type": "content_block_delta", "index": index, "delta": delta });
    out.push(told("content_block_delta", &data));
}

fn told(name: &'static str, data: &Value) -> Told {
    Told { name, data: data.to_string() }
}
