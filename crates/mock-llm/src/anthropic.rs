//! The server side of the anthropic format: parses requests and encodes replies and errors.
//!
//! Invariant: `decode::anthropic` reads these replies (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, ModelError, ModelErrorKind, StopReason};
use serde_json::{Value, json};

use crate::encoder::{ReplyEncoder, ReplyInfo, WireEvent};
use crate::request::{
    ParsedRequest, RequestHistory, RequestOptions, required_list, required_text, required_texts,
};
use crate::signature::{check_signature, sign_thought};
use minke_llm::WireScheme;

pub(crate) fn parse_request(body: &Value) -> Result<ParsedRequest, String> {
    let model = required_text(body, "model", "")?.to_owned();
    if body.get("max_tokens").and_then(Value::as_u64).is_none_or(|most| most == 0) {
        return Err("max_tokens: a number above 0 is required".to_owned());
    }
    let messages = required_list(body, "messages", "")?;
    let mut history = RequestHistory::default();
    for (at, message) in messages.iter().enumerate() {
        let location = format!("messages.{at}.");
        let role = required_text(message, "role", &location)?;
        let whole = [message.get("content").cloned().unwrap_or_default()];
        let (blocks, plain) = match message.get("content") {
            Some(Value::Array(blocks)) => (blocks.as_slice(), false),
            Some(Value::String(_)) => (whole.as_slice(), true),
            _ => return Err(format!("{location}content: a text or a list of blocks is required")),
        };
        for (number, block) in blocks.iter().enumerate() {
            let place = format!("{location}content.{number}.");
            match role {
                _ if plain => push_message(role, block.as_str().unwrap_or_default(), &mut history),
                "user" => parse_user_block(block, &place, &mut history)?,
                "assistant" => parse_assistant_block(block, &place, &model, &mut history)?,
                other => return Err(format!("{place}role: `{other}` is not `user` or `assistant`")),
            }
        }
    }
    let system = required_texts(body.get("system"), "system")?.join("\n");
    Ok(ParsedRequest {
        model,
        system,
        history,
        message_count: messages.len(),
        options: RequestOptions::default(),
    })
}

fn push_message(role: &str, text: &str, history: &mut RequestHistory) {
    if role == "assistant" { history.push_assistant(text) } else { history.push_user(text) }
}

fn parse_user_block(block: &Value, location: &str, history: &mut RequestHistory) -> Result<(), String> {
    match required_text(block, "type", location)? {
        "text" => match required_text(block, "text", location)? {
            "" => return Err(format!("{location}text: text content blocks must be non-empty")),
            text => history.push_user(text),
        },
        "tool_result" => {
            let id = required_text(block, "tool_use_id", location)?;
            let said = required_texts(block.get("content"), &format!("{location}content"))?.join("\n");
            let failed = block.get("is_error") == Some(&Value::Bool(true));
            parse_result_block(block, failed, location, history)?;
            history.push_result(id, said, failed);
        }
        "image" => parse_image(block, location, history)?,
        "document" => {}
        other => return Err(format!("{location}type: `{other}` is not allowed in a user message")),
    }
    Ok(())
}

/// Parses the other content of a result.
fn parse_result_block(
    block: &Value,
    failed: bool,
    place: &str,
    history: &mut RequestHistory,
) -> Result<(), String> {
    let blocks = block.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, given) in blocks.iter().enumerate() {
        let location = format!("{place}content.{number}.");
        match required_text(given, "type", &location)? {
            "text" => {}
            _ if failed => {
                return Err(format!(
                    "{location}type: all content must be type \"text\" if \"is_error\" is true"
                ));
            }
            "image" => parse_image(given, &location, history)?,
            "document" | "search_result" => {}
            other => return Err(format!("{location}type: `{other}` is not allowed in a result")),
        }
    }
    Ok(())
}

fn parse_image(block: &Value, place: &str, history: &mut RequestHistory) -> Result<(), String> {
    let (source, place) = (block.get("source").unwrap_or(&Value::Null), format!("{place}source."));
    match required_text(source, "type", &place)? {
        "base64" => history.push_image(
            required_text(source, "media_type", &place)?,
            required_text(source, "data", &place)?,
            &place,
        ),
        "url" => history.push_image_url(required_text(source, "url", &place)?, &place),
        other => Err(format!("{place}type: `{other}` is not `base64` or `url`")),
    }
}

fn parse_assistant_block(
    block: &Value,
    location: &str,
    model: &str,
    history: &mut RequestHistory,
) -> Result<(), String> {
    match required_text(block, "type", location)? {
        "text" => match required_text(block, "text", location)? {
            "" => return Err(format!("{location}text: text content blocks must be non-empty")),
            text => history.push_assistant(text),
        },
        "tool_use" => {
            let input = block.get("input").filter(|input| input.is_object());
            let input = input.ok_or_else(|| format!("{location}input: an object is required"))?;
            history.push_call(
                required_text(block, "id", location)?,
                required_text(block, "name", location)?,
                input.to_string(),
            );
        }
        "thinking" => {
            let thought = required_text(block, "thinking", location)?;
            check_signature(
                WireScheme::Anthropic,
                model,
                thought,
                required_text(block, "signature", location)?,
            )
            .map_err(|problem| {
                format!("{location}signature: Invalid `signature` in `thinking` block: {problem}")
            })?;
            history.push_thought(thought);
        }
        "redacted_thinking" => {
            return Err(format!(
                "{location}data: Invalid `data` in `redacted_thinking` block: the mock makes none"
            ));
        }
        other => return Err(format!("{location}type: `{other}` is not allowed in an assistant message")),
    }
    Ok(())
}

/// Returns the body of an error.
pub(crate) fn error_body(status: u16, failure: &ModelError) -> Value {
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
        ModelErrorKind::ContextTooLong => format!("prompt is too long: {}", failure.message),
        ModelErrorKind::Refused => format!("the request was flagged: {}", failure.message),
        ModelErrorKind::Interrupted | ModelErrorKind::Transient | ModelErrorKind::Permanent => {
            failure.message.clone()
        }
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

pub(crate) fn models_body(model: &str) -> Value {
    let model =
        json!({ "type": "model", "id": model, "display_name": model, "created_at": "2026-01-01T00:00:00Z" });
    json!({ "data": [model], "has_more": false, "first_id": null, "last_id": null })
}

/// Encodes a reply.
pub(crate) struct AnthropicEncoder {
    reply: ReplyInfo,
    /// The open blocks, with the thinking text to be signed.
    open_blocks: HashMap<u32, Option<String>>,
    calls: Vec<u32>,
    has_pinged: bool,
}

impl AnthropicEncoder {
    pub(crate) fn new(reply: ReplyInfo) -> AnthropicEncoder {
        AnthropicEncoder { reply, open_blocks: HashMap::new(), calls: Vec::new(), has_pinged: false }
    }
}

impl ReplyEncoder for AnthropicEncoder {
    fn encode_begin(&mut self, out: &mut Vec<WireEvent>) {
        let usage = &self.reply.usage;
        let message = json!({
            "id": format!("msg_{}", self.reply.id),
            "type": "message",
            "role": "assistant",
            "model": self.reply.model,
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
        out.push(wire_event("message_start", &json!({ "type": "message_start", "message": message })));
    }

    fn encode_start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<WireEvent>) {
        let block = match kind {
            BlockKind::Text | BlockKind::Refusal => json!({ "type": "text", "text": "" }),
            BlockKind::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            BlockKind::ToolCall { id, name } => {
                self.calls.push(index);
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
            }
        };
        let thinks = matches!(kind, BlockKind::Thinking).then(String::new);
        self.open_blocks.insert(index, thinks);
        let data = json!({ "type": "content_block_start", "index": index, "content_block": block });
        out.push(wire_event("content_block_start", &data));
        if !self.has_pinged {
            self.has_pinged = true;
            out.push(wire_event("ping", &json!({ "type": "ping" })));
        }
    }

    fn encode_delta(&mut self, index: u32, text: &str, out: &mut Vec<WireEvent>) {
        let delta = match self.open_blocks.get_mut(&index) {
            Some(Some(thought)) => {
                thought.push_str(text);
                json!({ "type": "thinking_delta", "thinking": text })
            }
            _ if self.calls.contains(&index) => json!({ "type": "input_json_delta", "partial_json": text }),
            _ => json!({ "type": "text_delta", "text": text }),
        };
        push_delta_event(index, &delta, out);
    }

    fn encode_stop(&mut self, index: u32, out: &mut Vec<WireEvent>) {
        if let Some(Some(thought)) = self.open_blocks.remove(&index) {
            let signature = sign_thought(WireScheme::Anthropic, &self.reply.model, &thought);
            push_delta_event(index, &json!({ "type": "signature_delta", "signature": signature }), out);
        }
        out.push(wire_event("content_block_stop", &json!({ "type": "content_block_stop", "index": index })));
    }

    fn encode_done(&mut self, stop: &StopReason, out: &mut Vec<WireEvent>) {
        let reason = match stop {
            StopReason::ContentFilter => "refusal",
            StopReason::Other(word) if word == "pause" => "pause_turn",
            other => other.as_str(),
        };
        let usage = json!({ "output_tokens": self.reply.usage.output });
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        out.push(wire_event(
            "message_delta",
            &json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        ));
        out.push(wire_event("message_stop", &json!({ "type": "message_stop" })));
    }

    fn encode_error(&mut self, failure: &ModelError, out: &mut Vec<WireEvent>) {
        out.push(wire_event("error", &error_body(failure.status.unwrap_or(529), failure)));
    }
}

fn push_delta_event(index: u32, delta: &Value, out: &mut Vec<WireEvent>) {
    let data = json!({ "type": "content_block_delta", "index": index, "delta": delta });
    out.push(wire_event("content_block_delta", &data));
}

fn wire_event(name: &'static str, data: &Value) -> WireEvent {
    WireEvent { name, data: data.to_string() }
}
