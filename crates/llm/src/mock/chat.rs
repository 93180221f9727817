//! The openai_chat format, from the provider's side: requests read, replies told, errors worded.
//!
//! Thinking is told in `reasoning_content`, as most servers of this format do; it has no signature.
//! Invariant: what is told here is what `decode::chat` reads (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, Failure, FailureKind, StopReason};
use serde_json::{Value, json};

use super::asked::{Asked, History, Wishes, list, text, texts};
use super::voice::{Tell, Told, Voice};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let model = text(body, "model", "")?.to_owned();
    let messages = list(body, "messages", "")?;
    let mut history = History::default();
    let mut system = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}.");
        let content = texts(message.get("content"), &format!("{place}content"))?;
        match text(message, "role", &place)? {
            "system" | "developer" if history.items.is_empty() => system.extend(content),
            "system" | "developer" => content.iter().for_each(|text| history.notice(text)),
            "user" => {
                read_images(message, &place, &mut history)?;
                content.iter().for_each(|text| history.user(text));
            }
            "assistant" => read_assistant(message, &content, &place, &mut history)?,
            "tool" => {
                if images(message).next().is_some() {
                    return Err(format!("{place}content: a message with the role `tool` takes no images"));
                }
                history.result(text(message, "tool_call_id", &place)?, content.join("\n"), false);
            }
            other => return Err(format!("{place}role: `{other}` is unknown")),
        }
    }
    let wishes = Wishes {
        usage: body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)),
        ..Wishes::default()
    };
    Ok(Asked { model, system: system.join("\n"), history, messages: messages.len(), wishes })
}

/// The images among the parts of a message.
fn images(message: &Value) -> impl Iterator<Item = &Value> {
    let parts = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| part.get("type").is_some_and(|kind| kind == "image_url"))
}

fn read_images(message: &Value, place: &str, history: &mut History) -> Result<(), String> {
    for image in images(message) {
        let url = image.pointer("/image_url/url").and_then(Value::as_str);
        let place = format!("{place}content.image_url.url");
        history.image_url(url.ok_or_else(|| format!("{place}: a text is required"))?, &place)?;
    }
    Ok(())
}

fn read_assistant(
    message: &Value,
    content: &[String],
    place: &str,
    history: &mut History,
) -> Result<(), String> {
    if let Some(thought) = message.get("reasoning_content").and_then(Value::as_str) {
        history.thought(thought);
    }
    let refusal = message.get("refusal").and_then(Value::as_str);
    content.iter().map(String::as_str).chain(refusal).for_each(|text| history.assistant(text));
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[][..],
        Some(_) => list(message, "tool_calls", place)?,
    };
    for (number, call) in calls.iter().enumerate() {
        let place = format!("{place}tool_calls.{number}.");
        let function = call.get("function").unwrap_or(&Value::Null);
        let name = text(function, "name", &format!("{place}function."))?;
        let arguments = text(function, "arguments", &format!("{place}function."))?;
        history.call(text(call, "id", &place)?, name, arguments.to_owned());
    }
    Ok(())
}

/// The body of an error; `openai_responses` has the same.
pub(super) fn error(status: u16, failure: &Failure) -> Value {
    let (kind, code) = match (failure.kind, status) {
        (FailureKind::TooLong, _) => ("invalid_request_error", Some("context_length_exceeded")),
        (FailureKind::Refused, _) => ("invalid_request_error", Some("content_policy_violation")),
        (_, 401) => ("invalid_request_error", Some("invalid_api_key")),
        (_, 403) => ("invalid_request_error", Some("unsupported_country_region_territory")),
        (_, 404) => ("invalid_request_error", Some("model_not_found")),
        (_, 429) => ("requests", Some("rate_limit_exceeded")),
        (_, 500..) => ("server_error", Some("server_error")),
        _ => ("invalid_request_error", None),
    };
    json!({ "error": { "message": failure.message, "type": kind, "param": null, "code": code } })
}

pub(super) fn models(model: &str) -> Value {
    json!({ "object": "list", "data": [{ "id": model, "object": "model", "created": 0, "owned_by": "mock" }] })
}

/// Tells a reply.
pub(super) struct Teller {
    voice: Voice,
    open: HashMap<u32, Part>,
    calls: u32,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Text,
    Thinking,
    /// Its place among the calls of the reply.
    Call(u32),
}

impl Teller {
    pub(super) fn new(voice: Voice) -> Teller {
        Teller { voice, open: HashMap::new(), calls: 0 }
    }

    fn chunk(&self, choices: &Value, usage: &Value) -> Told {
        let mut data = json!({
            "id": format!("chatcmpl-{}", self.voice.id),
            "object": "chat.completion.chunk",
            "created": self.voice.created,
            "model": self.voice.model,
            "choices": choices,
        });
        // Without the wish the field is not there at all.
        if let (true, Some(fields)) = (self.voice.wishes.usage, data.as_object_mut()) {
            fields.insert("usage".to_owned(), usage.clone());
        }
        Told { name: "", data: data.to_string() }
    }

    fn said(&self, delta: &Value, finish: Option<&str>) -> Told {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.chunk(&json!([choice]), &Value::Null)
    }

    fn refuses(&self) -> bool {
        self.voice.stop == Some(StopReason::Refusal)
    }

    fn piece(&self, index: u32, text: &str) -> Told {
        let delta = match self.open.get(&index).copied().unwrap_or(Part::Text) {
            Part::Text if self.refuses() => json!({ "refusal": text }),
            Part::Text => json!({ "content": text }),
            Part::Thinking => json!({ "reasoning_content": text }),
            Part::Call(place) => {
                json!({ "tool_calls": [{ "index": place, "function": { "arguments": text } }] })
            }
        };
        self.said(&delta, None)
    }
}

impl Tell for Teller {
    fn begin(&mut self, out: &mut Vec<Told>) {
        out.push(self.said(&json!({ "role": "assistant", "content": "", "refusal": null }), None));
    }

    fn start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<Told>) {
        let part = match kind {
            BlockKind::Text | BlockKind::Refusal => Part::Text,
            BlockKind::Thinking => Part::Thinking,
            BlockKind::ToolCall { id, name } => {
                let place = self.calls;
                self.calls += 1;
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": place, "id": id, "type": "function", "function": function });
                out.push(self.said(&json!({ "tool_calls": [call] }), None));
                Part::Call(place)
            }
        };
        self.open.insert(index, part);
    }

    fn delta(&mut self, index: u32, text: &str, out: &mut Vec<Told>) {
        out.push(self.piece(index, text));
    }

    /// Nothing on the wire says that a block is over.
    fn stop(&mut self, _: u32, _: &mut Vec<Told>) {}

    fn done(&mut self, stop: &StopReason, out: &mut Vec<Told>) {
        let reason = match stop {
            StopReason::ToolUse => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::ContentFilter => "content_filter",
            StopReason::EndTurn | StopReason::StopSequence | StopReason::Refusal => "stop",
            StopReason::Other(word) => word,
        };
        out.push(self.said(&json!({}), Some(reason)));
        if self.voice.wishes.usage {
            let voice = &self.voice;
            let usage = json!({
                "prompt_tokens": voice.input(),
                "completion_tokens": voice.usage.output,
                "total_tokens": voice.input() + voice.usage.output,
                "prompt_tokens_details": { "cached_tokens": voice.usage.cache_read },
                "completion_tokens_details": { "reasoning_tokens": voice.thought },
            });
            out.push(self.chunk(&json!([]), &usage));
        }
        out.push(Told { name: "", data: "[DONE]".to_owned() });
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<Told>) {
        let data = error(failure.status.unwrap_or(503), failure).to_string();
        out.push(Told { name: "", data });
    }
}
