//! The openai_responses format, from the provider's side: requests read, replies told.
//!
//! Thinking is told as a reasoning item with a summary; its encrypted form, if asked for, is a signature over that
//! summary. Errors are worded as in `chat`.
//! Invariant: what is told here is what `decode::responses` reads (`tests/mock.rs`).

use minke_model::{BlockKind, Failure, StopReason};
use serde_json::{Value, json};

use super::asked::{Asked, History, Wishes, list, text, texts};
use super::chat;
use super::signature::{check, sign};
use super::voice::{Tell, Told, Voice};
use crate::settings::Scheme;

/// What a client includes to get reasoning that it can send back.
const ENCRYPTED: &str = "reasoning.encrypted_content";

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let model = text(body, "model", "")?.to_owned();
    let mut history = History::default();
    let mut messages = 1;
    if let Some(input) = body.get("input").and_then(Value::as_str) {
        history.user(input);
    } else {
        let input = list(body, "input", "")?;
        messages = input.len();
        for (at, item) in input.iter().enumerate() {
            read_item(item, &format!("input[{at}]."), &model, &mut history)?;
        }
    }
    let system = body.get("instructions").and_then(Value::as_str).unwrap_or_default().to_owned();
    let include = body.get("include").and_then(Value::as_array);
    let encrypted = include.is_some_and(|include| include.iter().any(|what| what == ENCRYPTED));
    let wishes = Wishes { encrypted, ..Wishes::default() };
    Ok(Asked { model, system, history, messages, wishes })
}

fn read_item(item: &Value, place: &str, model: &str, history: &mut History) -> Result<(), String> {
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => read_message(item, place, history)?,
        "function_call" => {
            let (id, name) = (text(item, "call_id", place)?, text(item, "name", place)?);
            history.call(id, name, text(item, "arguments", place)?.to_owned());
        }
        "function_call_output" => {
            let output = texts(item.get("output"), &format!("{place}output"))?.join("\n");
            read_images(item.get("output"), &format!("{place}output"), history)?;
            history.result(text(item, "call_id", place)?, output, false);
        }
        "reasoning" => {
            if item.get("summary").and_then(Value::as_array).is_none() {
                return Err(format!("{place}summary: a list is required"));
            }
            let thought = texts(item.get("summary"), &format!("{place}summary"))?.concat();
            let given = text(item, "encrypted_content", place)?;
            check(Scheme::OpenaiResponses, model, &thought, given).map_err(|problem| {
                format!("{place}encrypted_content: The encrypted content could not be verified: {problem}")
            })?;
            history.thought(&thought);
        }
        other => return Err(format!("{place}type: `{other}` is unknown")),
    }
    Ok(())
}

fn read_images(parts: Option<&Value>, place: &str, history: &mut History) -> Result<(), String> {
    let parts = parts.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let images = parts.iter().filter(|part| part.get("type").is_some_and(|kind| kind == "input_image"));
    for image in images.filter(|image| image.get("file_id").is_none()) {
        history.image_url(text(image, "image_url", &format!("{place}."))?, place)?;
    }
    Ok(())
}

fn read_message(item: &Value, place: &str, history: &mut History) -> Result<(), String> {
    let mut said = texts(item.get("content"), &format!("{place}content"))?;
    if let Some(Value::Array(parts)) = item.get("content") {
        let refused = |part: &Value| part.get("refusal").and_then(Value::as_str).map(str::to_owned);
        said.extend(parts.iter().filter_map(refused));
    }
    read_images(item.get("content"), &format!("{place}content"), history)?;
    match text(item, "role", place)? {
        "user" => said.iter().for_each(|text| history.user(text)),
        "assistant" => said.iter().for_each(|text| history.assistant(text)),
        "system" | "developer" => said.iter().for_each(|text| history.notice(text)),
        other => return Err(format!("{place}role: `{other}` is unknown")),
    }
    Ok(())
}

/// Tells a reply.
pub(super) struct Teller {
    voice: Voice,
    number: u64,
    open: Vec<(u32, Open)>,
    /// Finished items, as the last event repeats them.
    output: Vec<Value>,
    begun: u32,
}

/// An item that is being told.
#[derive(Debug, Clone)]
struct Open {
    /// Its place in the output.
    at: u32,
    id: String,
    kind: BlockKind,
    told: String,
}

impl Teller {
    pub(super) fn new(voice: Voice) -> Teller {
        Teller { voice, number: 0, open: Vec::new(), output: Vec::new(), begun: 0 }
    }

    /// One event; all of them have a type and a number.
    fn tell(&mut self, name: &'static str, mut fields: Value, out: &mut Vec<Told>) {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("type".to_owned(), name.into());
            fields.insert("sequence_number".to_owned(), self.number.into());
        }
        self.number += 1;
        out.push(Told { name, data: fields.to_string() });
    }

    fn response(&self, status: &str, more: Value) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.voice.id),
            "object": "response",
            "created_at": self.voice.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.voice.model,
            "output": self.output,
            "store": false,
            "usage": null,
        });
        if let (Some(fields), Value::Object(more)) = (response.as_object_mut(), more) {
            fields.extend(more);
        }
        json!({ "response": response })
    }

    /// A text of a reply that ends in a refusal is the refusal.
    fn part(&self, kind: &BlockKind, told: &str) -> Value {
        let refuses = self.voice.stop == Some(StopReason::Refusal) || *kind == BlockKind::Refusal;
        if refuses {
            json!({ "type": "refusal", "refusal": told })
        } else {
            json!({ "type": "output_text", "annotations": [], "text": told })
        }
    }

    /// An item as it stands in `output_item` events; `whole` = it is finished.
    fn item(&self, open: &Open, whole: bool) -> Value {
        let status = if whole { "completed" } else { "in_progress" };
        let told = open.told.as_str();
        match &open.kind {
            BlockKind::Text | BlockKind::Refusal => {
                let content = if whole { json!([self.part(&open.kind, told)]) } else { json!([]) };
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
                if let (true, Some(fields)) = (whole && self.voice.wishes.encrypted, item.as_object_mut()) {
                    let signature = sign(Scheme::OpenaiResponses, &self.voice.model, told);
                    fields.insert("encrypted_content".to_owned(), signature.into());
                }
                item
            }
        }
    }
}

impl Tell for Teller {
    fn begin(&mut self, out: &mut Vec<Told>) {
        let response = self.response("in_progress", json!({}));
        self.tell("response.created", response.clone(), out);
        self.tell("response.in_progress", response, out);
    }

    fn start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<Told>) {
        let at = self.begun;
        self.begun += 1;
        let prefix = match kind {
            BlockKind::Text | BlockKind::Refusal => "msg",
            BlockKind::Thinking => "rs",
            BlockKind::ToolCall { .. } => "fc",
        };
        let id = format!("{prefix}_{}_{at}", self.voice.id);
        let open = Open { at, id, kind: kind.clone(), told: String::new() };
        let item = self.item(&open, false);
        self.tell("response.output_item.added", json!({ "output_index": at, "item": item }), out);
        let place = json!({ "item_id": open.id, "output_index": at });
        match kind {
            BlockKind::Text | BlockKind::Refusal => {
                let part = self.part(kind, "");
                let fields = with(place, json!({ "content_index": 0, "part": part }));
                self.tell("response.content_part.added", fields, out);
            }
            BlockKind::Thinking => {
                let part = json!({ "type": "summary_text", "text": "" });
                let fields = with(place, json!({ "summary_index": 0, "part": part }));
                self.tell("response.reasoning_summary_part.added", fields, out);
            }
            BlockKind::ToolCall { .. } => {}
        }
        self.open.push((index, open));
    }

    fn delta(&mut self, index: u32, text: &str, out: &mut Vec<Told>) {
        let refuses = self.voice.stop == Some(StopReason::Refusal);
        let Some((_, open)) = self.open.iter_mut().find(|(open, _)| *open == index) else { return };
        open.told.push_str(text);
        let place = json!({ "item_id": open.id, "output_index": open.at });
        let (name, more) = match open.kind {
            BlockKind::Text if !refuses => ("response.output_text.delta", json!({ "content_index": 0 })),
            BlockKind::Text | BlockKind::Refusal => ("response.refusal.delta", json!({ "content_index": 0 })),
            BlockKind::Thinking => ("response.reasoning_summary_text.delta", json!({ "summary_index": 0 })),
            BlockKind::ToolCall { .. } => ("response.function_call_arguments.delta", json!({})),
        };
        let fields = with(with(place, more), json!({ "delta": text }));
        self.tell(name, fields, out);
    }

    fn stop(&mut self, index: u32, out: &mut Vec<Told>) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == index) else { return };
        let (_, open) = self.open.remove(at);
        let place = json!({ "item_id": open.id, "output_index": open.at });
        let told = &open.told;
        match &open.kind {
            BlockKind::Text | BlockKind::Refusal => {
                let part = self.part(&open.kind, told);
                let (name, fields) = match part.get("refusal") {
                    Some(_) => ("response.refusal.done", json!({ "content_index": 0, "refusal": told })),
                    None => ("response.output_text.done", json!({ "content_index": 0, "text": told })),
                };
                self.tell(name, with(place.clone(), fields), out);
                let fields = with(place, json!({ "content_index": 0, "part": part }));
                self.tell("response.content_part.done", fields, out);
            }
            BlockKind::Thinking => {
                let fields = with(place.clone(), json!({ "summary_index": 0, "text": told }));
                self.tell("response.reasoning_summary_text.done", fields, out);
                let part = json!({ "type": "summary_text", "text": told });
                let fields = with(place, json!({ "summary_index": 0, "part": part }));
                self.tell("response.reasoning_summary_part.done", fields, out);
            }
            BlockKind::ToolCall { name, .. } => {
                let fields = with(place, json!({ "name": name, "arguments": told }));
                self.tell("response.function_call_arguments.done", fields, out);
            }
        }
        let item = self.item(&open, true);
        self.output.push(item.clone());
        self.tell("response.output_item.done", json!({ "output_index": open.at, "item": item }), out);
    }

    fn done(&mut self, stop: &StopReason, out: &mut Vec<Told>) {
        let voice = &self.voice;
        let usage = json!({
            "input_tokens": voice.input(),
            "input_tokens_details": { "cached_tokens": voice.usage.cache_read },
            "output_tokens": voice.usage.output,
            "output_tokens_details": { "reasoning_tokens": voice.thought },
            "total_tokens": voice.input() + voice.usage.output,
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
            None => ("response.completed", self.response("completed", json!({ "usage": usage }))),
            Some(reason) => {
                let more = json!({ "usage": usage, "incomplete_details": { "reason": reason } });
                ("response.incomplete", self.response("incomplete", more))
            }
        };
        self.tell(name, response, out);
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<Told>) {
        let body = chat::error(failure.status.unwrap_or(503), failure);
        let code = body.pointer("/error/code").cloned().unwrap_or_default();
        self.tell("error", json!({ "code": code, "message": failure.message, "param": null }), out);
    }
}

/// The fields of two objects in one.
fn with(mut fields: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
    fields
}
