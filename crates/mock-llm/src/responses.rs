//! The server side of the openai_responses format: parses requests and encodes replies.
//!
//! Thinking is sent as a reasoning item with a summary. Its encrypted form, if requested, is a signature of
//! that summary. Errors are those of `chat`. Invariant: `decode::responses` reads these replies
//! (`tests/mock.rs`).

use minke_model::{BlockKind, ModelError, StopReason};
use serde_json::{Value, json};

use crate::chat;
use crate::encoder::{ReplyEncoder, ReplyInfo, WireEvent};
use crate::request::{
    ParsedRequest, RequestHistory, RequestOptions, required_list, required_text, required_texts,
};
use crate::signature::{check_signature, sign_thought};
use minke_llm::WireScheme;

/// The `include` value for reasoning that can be sent back.
const INCLUDE_ENCRYPTED: &str = "reasoning.encrypted_content";

pub(crate) fn parse_request(body: &Value) -> Result<ParsedRequest, String> {
    let model = required_text(body, "model", "")?.to_owned();
    let mut history = RequestHistory::default();
    let mut message_count = 1;
    if let Some(input) = body.get("input").and_then(Value::as_str) {
        history.push_user(input);
    } else {
        let input = required_list(body, "input", "")?;
        message_count = input.len();
        for (at, item) in input.iter().enumerate() {
            parse_item(item, &format!("input[{at}]."), &model, &mut history)?;
        }
    }
    let system = body.get("instructions").and_then(Value::as_str).unwrap_or_default().to_owned();
    let include = body.get("include").and_then(Value::as_array);
    let wants_encrypted = include.is_some_and(|include| include.iter().any(|what| what == INCLUDE_ENCRYPTED));
    let options = RequestOptions { wants_encrypted, ..RequestOptions::default() };
    Ok(ParsedRequest { model, system, history, message_count, options })
}

fn parse_item(item: &Value, location: &str, model: &str, history: &mut RequestHistory) -> Result<(), String> {
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => parse_message(item, location, history)?,
        "function_call" => {
            let (id, name) =
                (required_text(item, "call_id", location)?, required_text(item, "name", location)?);
            history.push_call(id, name, required_text(item, "arguments", location)?.to_owned());
        }
        "function_call_output" => {
            let output = required_texts(item.get("output"), &format!("{location}output"))?.join("\n");
            parse_images(item.get("output"), &format!("{location}output"), history)?;
            history.push_result(required_text(item, "call_id", location)?, output, false);
        }
        "reasoning" => {
            if item.get("summary").and_then(Value::as_array).is_none() {
                return Err(format!("{location}summary: a list is required"));
            }
            let thought = required_texts(item.get("summary"), &format!("{location}summary"))?.concat();
            let given = required_text(item, "encrypted_content", location)?;
            check_signature(WireScheme::OpenaiResponses, model, &thought, given).map_err(|problem| {
                format!("{location}encrypted_content: The encrypted content could not be verified: {problem}")
            })?;
            history.push_thought(&thought);
        }
        other => return Err(format!("{location}type: `{other}` is unknown")),
    }
    Ok(())
}

fn parse_images(parts: Option<&Value>, place: &str, history: &mut RequestHistory) -> Result<(), String> {
    let parts = parts.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let images = parts.iter().filter(|part| part.get("type").is_some_and(|kind| kind == "input_image"));
    for image in images.filter(|image| image.get("file_id").is_none()) {
        history.push_image_url(required_text(image, "image_url", &format!("{place}."))?, place)?;
    }
    Ok(())
}

fn parse_message(item: &Value, location: &str, history: &mut RequestHistory) -> Result<(), String> {
    let mut said = required_texts(item.get("content"), &format!("{location}content"))?;
    if let Some(Value::Array(parts)) = item.get("content") {
        let refused = |part: &Value| part.get("refusal").and_then(Value::as_str).map(str::to_owned);
        said.extend(parts.iter().filter_map(refused));
    }
    parse_images(item.get("content"), &format!("{location}content"), history)?;
    match required_text(item, "role", location)? {
        "user" => said.iter().for_each(|text| history.push_user(text)),
        "assistant" => said.iter().for_each(|text| history.push_assistant(text)),
        "system" | "developer" => said.iter().for_each(|text| history.push_notice(text)),
        other => return Err(format!("{location}role: `{other}` is unknown")),
    }
    Ok(())
}

/// Encodes a reply.
pub(crate) struct ResponsesEncoder {
    reply: ReplyInfo,
    sequence_number: u64,
    open_items: Vec<(u32, OpenItem)>,
    /// Finished items, which the last event repeats.
    finished_items: Vec<Value>,
    started_count: u32,
}

/// An open item.
#[derive(Debug, Clone)]
struct OpenItem {
    /// Its index in the output.
    output_index: u32,
    id: String,
    kind: BlockKind,
    text: String,
}

impl ResponsesEncoder {
    pub(crate) fn new(reply: ReplyInfo) -> ResponsesEncoder {
        ResponsesEncoder {
            reply,
            sequence_number: 0,
            open_items: Vec::new(),
            finished_items: Vec::new(),
            started_count: 0,
        }
    }

    /// Emits one event; all have a type and a number.
    fn emit_event(&mut self, name: &'static str, mut fields: Value, out: &mut Vec<WireEvent>) {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("type".to_owned(), name.into());
            fields.insert("sequence_number".to_owned(), self.sequence_number.into());
        }
        self.sequence_number += 1;
        out.push(WireEvent { name, data: fields.to_string() });
    }

    fn response_body(&self, status: &str, more: Value) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.reply.id),
            "object": "response",
            "created_at": self.reply.created_s,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.reply.model,
            "output": self.finished_items,
            "store": false,
            "usage": null,
        });
        if let (Some(fields), Value::Object(more)) = (response.as_object_mut(), more) {
            fields.extend(more);
        }
        json!({ "response": response })
    }

    /// Returns a content part. The text of a reply that ends in a refusal is a refusal part.
    fn part_body(&self, kind: &BlockKind, told: &str) -> Value {
        let refuses = self.reply.stop_reason == Some(StopReason::Refusal) || *kind == BlockKind::Refusal;
        if refuses {
            json!({ "type": "refusal", "refusal": told })
        } else {
            json!({ "type": "output_text", "annotations": [], "text": told })
        }
    }

    /// Returns an item for `output_item` events; `whole` means that it is finished.
    fn item_body(&self, open: &OpenItem, whole: bool) -> Value {
        let status = if whole { "completed" } else { "in_progress" };
        let told = open.text.as_str();
        match &open.kind {
            BlockKind::Text | BlockKind::Refusal => {
                let content = if whole { json!([self.part_body(&open.kind, told)]) } else { json!([]) };
                json!({ "id": open.id, "type": "message", "status": status, "role": "assistant", "content": content })
            }
            BlockKind::ToolCall { id, name } => json!({
                "id": open.id, "type": "function_call", "status": status,
                "call_id": id, "name": name, "arguments": told,
            }),
            BlockKind::Thinking => {
                let summary =
                    if whole { json!([{ "type": "summary_text", "text": told }]) } else { json!([]) };
                let mut item = json!({ "id": open.id, "type": "reasoning", "summary": summary });
                if let (true, Some(fields)) =
                    (whole && self.reply.options.wants_encrypted, item.as_object_mut())
                {
                    let signature = sign_thought(WireScheme::OpenaiResponses, &self.reply.model, told);
                    fields.insert("encrypted_content".to_owned(), signature.into());
                }
                item
            }
        }
    }
}

impl ReplyEncoder for ResponsesEncoder {
    fn encode_begin(&mut self, out: &mut Vec<WireEvent>) {
        let response = self.response_body("in_progress", json!({}));
        self.emit_event("response.created", response.clone(), out);
        self.emit_event("response.in_progress", response, out);
    }

    fn encode_start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<WireEvent>) {
        let output_index = self.started_count;
        self.started_count += 1;
        let prefix = match kind {
            BlockKind::Text | BlockKind::Refusal => "msg",
            BlockKind::Thinking => "rs",
            BlockKind::ToolCall { .. } => "fc",
        };
        let id = format!("{prefix}_{}_{output_index}", self.reply.id);
        let open = OpenItem { output_index, id, kind: kind.clone(), text: String::new() };
        let item = self.item_body(&open, false);
        self.emit_event(
            "response.output_item.added",
            json!({ "output_index": output_index, "item": item }),
            out,
        );
        let location = json!({ "item_id": open.id, "output_index": output_index });
        match kind {
            BlockKind::Text | BlockKind::Refusal => {
                let part = self.part_body(kind, "");
                let fields = merge_objects(location, json!({ "content_index": 0, "part": part }));
                self.emit_event("response.content_part.added", fields, out);
            }
            BlockKind::Thinking => {
                let part = json!({ "type": "summary_text", "text": "" });
                let fields = merge_objects(location, json!({ "summary_index": 0, "part": part }));
                self.emit_event("response.reasoning_summary_part.added", fields, out);
            }
            BlockKind::ToolCall { .. } => {}
        }
        self.open_items.push((index, open));
    }

    fn encode_delta(&mut self, index: u32, text: &str, out: &mut Vec<WireEvent>) {
        let refuses = self.reply.stop_reason == Some(StopReason::Refusal);
        let Some((_, open)) = self.open_items.iter_mut().find(|(open, _)| *open == index) else { return };
        open.text.push_str(text);
        let location = json!({ "item_id": open.id, "output_index": open.output_index });
        let (name, more) = match open.kind {
            BlockKind::Text if !refuses => ("response.output_text.delta", json!({ "content_index": 0 })),
            BlockKind::Text | BlockKind::Refusal => ("response.refusal.delta", json!({ "content_index": 0 })),
            BlockKind::Thinking => ("response.reasoning_summary_text.delta", json!({ "summary_index": 0 })),
            BlockKind::ToolCall { .. } => ("response.function_call_arguments.delta", json!({})),
        };
        let fields = merge_objects(merge_objects(location, more), json!({ "delta": text }));
        self.emit_event(name, fields, out);
    }

    fn encode_stop(&mut self, index: u32, out: &mut Vec<WireEvent>) {
        let Some(at) = self.open_items.iter().position(|(open, _)| *open == index) else { return };
        let (_, open) = self.open_items.remove(at);
        let location = json!({ "item_id": open.id, "output_index": open.output_index });
        let told = &open.text;
        match &open.kind {
            BlockKind::Text | BlockKind::Refusal => {
                let part = self.part_body(&open.kind, told);
                let (name, fields) = match part.get("refusal") {
                    Some(_) => ("response.refusal.done", json!({ "content_index": 0, "refusal": told })),
                    None => ("response.output_text.done", json!({ "content_index": 0, "text": told })),
                };
                self.emit_event(name, merge_objects(location.clone(), fields), out);
                let fields = merge_objects(location, json!({ "content_index": 0, "part": part }));
                self.emit_event("response.content_part.done", fields, out);
            }
            BlockKind::Thinking => {
                let fields = merge_objects(location.clone(), json!({ "summary_index": 0, "text": told }));
                self.emit_event("response.reasoning_summary_text.done", fields, out);
                let part = json!({ "type": "summary_text", "text": told });
                let fields = merge_objects(location, json!({ "summary_index": 0, "part": part }));
                self.emit_event("response.reasoning_summary_part.done", fields, out);
            }
            BlockKind::ToolCall { name, .. } => {
                let fields = merge_objects(location, json!({ "name": name, "arguments": told }));
                self.emit_event("response.function_call_arguments.done", fields, out);
            }
        }
        let item = self.item_body(&open, true);
        self.finished_items.push(item.clone());
        self.emit_event(
            "response.output_item.done",
            json!({ "output_index": open.output_index, "item": item }),
            out,
        );
    }

    fn encode_done(&mut self, stop: &StopReason, out: &mut Vec<WireEvent>) {
        let voice = &self.reply;
        let usage = json!({
            "input_tokens": voice.total_input(),
            "input_tokens_details": { "cached_tokens": voice.usage.cache_read },
            "output_tokens": voice.usage.output,
            "output_tokens_details": { "reasoning_tokens": voice.thinking_tokens },
            "total_tokens": voice.total_input() + voice.usage.output,
        });
        let reason = match stop {
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence | StopReason::Refusal => {
                None
            }
            StopReason::MaxTokens => Some("max_output_tokens"),
            StopReason::ContentFilter => Some("content_filter"),
            StopReason::Other(word) => Some(word.as_str()),
        };
        let (name, response) = match reason {
            None => ("response.completed", self.response_body("completed", json!({ "usage": usage }))),
            Some(reason) => {
                let more = json!({ "usage": usage, "incomplete_details": { "reason": reason } });
                ("response.incomplete", self.response_body("incomplete", more))
            }
        };
        self.emit_event(name, response, out);
    }

    fn encode_error(&mut self, failure: &ModelError, out: &mut Vec<WireEvent>) {
        let body = chat::error_body(failure.status.unwrap_or(503), failure);
        let code = body.pointer("/error/code").cloned().unwrap_or_default();
        self.emit_event("error", json!({ "code": code, "message": failure.message, "param": null }), out);
    }
}

/// Merges the fields of two objects.
fn merge_objects(mut fields: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
    fields
}
