//! The server side of the openai_chat format: parses requests and encodes replies and errors.
//!
//! Thinking is sent in `reasoning_content`, as most servers of this format do, without a signature.
//! Invariant: `decode::chat` reads these replies (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, ModelError, ModelErrorKind, StopReason};
use serde_json::{Value, json};

use crate::encoder::{ReplyEncoder, ReplyInfo, WireEvent};
use crate::request::{
    ParsedRequest, RequestHistory, RequestOptions, required_list, required_text, required_texts,
};

pub(crate) fn parse_request(body: &Value) -> Result<ParsedRequest, String> {
    let model = required_text(body, "model", "")?.to_owned();
    let messages = required_list(body, "messages", "")?;
    let mut history = RequestHistory::default();
    let mut system = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let location = format!("messages.{at}.");
        let content = required_texts(message.get("content"), &format!("{location}content"))?;
        match required_text(message, "role", &location)? {
            "system" | "developer" if history.items.is_empty() => system.extend(content),
            "system" | "developer" => content.iter().for_each(|text| history.push_notice(text)),
            "user" => {
                parse_images(message, &location, &mut history)?;
                content.iter().for_each(|text| history.push_user(text));
            }
            "assistant" => parse_assistant(message, &content, &location, &mut history)?,
            "tool" => {
                if image_parts(message).next().is_some() {
                    return Err(format!(
                        "{location}content: a message with the role `tool` must not contain images"
                    ));
                }
                history.push_result(
                    required_text(message, "tool_call_id", &location)?,
                    content.join("\n"),
                    false,
                );
            }
            other => return Err(format!("{location}role: `{other}` is unknown")),
        }
    }
    let options = RequestOptions {
        wants_usage: body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)),
        ..RequestOptions::default()
    };
    Ok(ParsedRequest { model, system: system.join("\n"), history, message_count: messages.len(), options })
}

/// Returns the images among the parts of a message.
fn image_parts(message: &Value) -> impl Iterator<Item = &Value> {
    let parts = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| part.get("type").is_some_and(|kind| kind == "image_url"))
}

fn parse_images(message: &Value, location: &str, history: &mut RequestHistory) -> Result<(), String> {
    for image in image_parts(message) {
        let url = image.pointer("/image_url/url").and_then(Value::as_str);
        let place = format!("{location}content.image_url.url");
        history.push_image_url(url.ok_or_else(|| format!("{place}: a text is required"))?, &place)?;
    }
    Ok(())
}

fn parse_assistant(
    message: &Value,
    content: &[String],
    location: &str,
    history: &mut RequestHistory,
) -> Result<(), String> {
    if let Some(thought) = message.get("reasoning_content").and_then(Value::as_str) {
        history.push_thought(thought);
    }
    let refusal = message.get("refusal").and_then(Value::as_str);
    content.iter().map(String::as_str).chain(refusal).for_each(|text| history.push_assistant(text));
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[][..],
        Some(_) => required_list(message, "tool_calls", location)?,
    };
    for (number, call) in calls.iter().enumerate() {
        let place = format!("{location}tool_calls.{number}.");
        let function = call.get("function").unwrap_or(&Value::Null);
        let name = required_text(function, "name", &format!("{place}function."))?;
        let arguments = required_text(function, "arguments", &format!("{place}function."))?;
        history.push_call(required_text(call, "id", &place)?, name, arguments.to_owned());
    }
    Ok(())
}

/// Returns the body of an error; `openai_responses` uses the same.
pub(crate) fn error_body(status: u16, failure: &ModelError) -> Value {
    let (kind, code) = match (failure.kind, status) {
        (ModelErrorKind::ContextTooLong, _) => ("invalid_request_error", Some("context_length_exceeded")),
        (ModelErrorKind::Refused, _) => ("invalid_request_error", Some("content_policy_violation")),
        (_, 401) => ("invalid_request_error", Some("invalid_api_key")),
        (_, 403) => ("invalid_request_error", Some("unsupported_country_region_territory")),
        (_, 404) => ("invalid_request_error", Some("model_not_found")),
        (_, 429) => ("requests", Some("rate_limit_exceeded")),
        (_, 500..) => ("server_error", Some("server_error")),
        _ => ("invalid_request_error", None),
    };
    json!({ "error": { "message": failure.message, "type": kind, "param": null, "code": code } })
}

pub(crate) fn models_body(model: &str) -> Value {
    json!({ "object": "list", "data": [{ "id": model, "object": "model", "created": 0, "owned_by": "mock" }] })
}

/// Encodes a reply.
pub(crate) struct ChatEncoder {
    reply: ReplyInfo,
    open_blocks: HashMap<u32, ChatBlock>,
    call_count: u32,
}

#[derive(Debug, Clone, Copy)]
enum ChatBlock {
    Text,
    Thinking,
    /// Its index among the calls of the reply.
    Call(u32),
}

impl ChatEncoder {
    pub(crate) fn new(reply: ReplyInfo) -> ChatEncoder {
        ChatEncoder { reply, open_blocks: HashMap::new(), call_count: 0 }
    }

    fn chunk_event(&self, choices: &Value, usage: &Value) -> WireEvent {
        let mut data = json!({
            "id": format!("chatcmpl-{}", self.reply.id),
            "object": "chat.completion.chunk",
            "created": self.reply.created_s,
            "model": self.reply.model,
            "choices": choices,
        });
        // Without the option the field is absent.
        if let (true, Some(fields)) = (self.reply.options.wants_usage, data.as_object_mut()) {
            fields.insert("usage".to_owned(), usage.clone());
        }
        WireEvent { name: "", data: data.to_string() }
    }

    fn choice_event(&self, delta: &Value, finish: Option<&str>) -> WireEvent {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.chunk_event(&json!([choice]), &Value::Null)
    }

    fn ends_in_refusal(&self) -> bool {
        self.reply.stop_reason == Some(StopReason::Refusal)
    }

    fn delta_event(&self, index: u32, text: &str) -> WireEvent {
        let delta = match self.open_blocks.get(&index).copied().unwrap_or(ChatBlock::Text) {
            ChatBlock::Text if self.ends_in_refusal() => json!({ "refusal": text }),
            ChatBlock::Text => json!({ "content": text }),
            ChatBlock::Thinking => json!({ "reasoning_content": text }),
            ChatBlock::Call(location) => {
                json!({ "tool_calls": [{ "index": location, "function": { "arguments": text } }] })
            }
        };
        self.choice_event(&delta, None)
    }
}

impl ReplyEncoder for ChatEncoder {
    fn encode_begin(&mut self, out: &mut Vec<WireEvent>) {
        out.push(self.choice_event(&json!({ "role": "assistant", "content": "", "refusal": null }), None));
    }

    fn encode_start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<WireEvent>) {
        let part = match kind {
            BlockKind::Text | BlockKind::Refusal => ChatBlock::Text,
            BlockKind::Thinking => ChatBlock::Thinking,
            BlockKind::ToolCall { id, name } => {
                let location = self.call_count;
                self.call_count += 1;
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": location, "id": id, "type": "function", "function": function });
                out.push(self.choice_event(&json!({ "tool_calls": [call] }), None));
                ChatBlock::Call(location)
            }
        };
        self.open_blocks.insert(index, part);
    }

    fn encode_delta(&mut self, index: u32, text: &str, out: &mut Vec<WireEvent>) {
        out.push(self.delta_event(index, text));
    }

    /// The format has no block ends.
    fn encode_stop(&mut self, _: u32, _: &mut Vec<WireEvent>) {}

    fn encode_done(&mut self, stop: &StopReason, out: &mut Vec<WireEvent>) {
        let reason = match stop {
            StopReason::ToolUse => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::ContentFilter => "content_filter",
            StopReason::EndTurn | StopReason::StopSequence | StopReason::Refusal => "stop",
            StopReason::Other(word) => word,
        };
        out.push(self.choice_event(&json!({}), Some(reason)));
        if self.reply.options.wants_usage {
            let voice = &self.reply;
            let usage = json!({
                "prompt_tokens": voice.total_input(),
                "completion_tokens": voice.usage.output,
                "total_tokens": voice.total_input() + voice.usage.output,
                "prompt_tokens_details": { "cached_tokens": voice.usage.cache_read },
                "completion_tokens_details": { "reasoning_tokens": voice.thinking_tokens },
            });
            out.push(self.chunk_event(&json!([]), &usage));
        }
        out.push(WireEvent { name: "", data: "[DONE]".to_owned() });
    }

    fn encode_error(&mut self, failure: &ModelError, out: &mut Vec<WireEvent>) {
        let data = error_body(failure.status.unwrap_or(503), failure).to_string();
        out.push(WireEvent { name: "", data });
    }
}
