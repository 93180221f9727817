//! The server side of the gemini format: parses requests and encodes replies and errors.
//!
//! As in the real API, a thought is not signed itself: the signature is on the first call of the reply or,
//! without one, on an empty text at its end. Models of the third generation sign every first call and require
//! the signature. Invariant: `decode::gemini` reads these replies (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, ModelError, ModelErrorKind, StopReason};
use serde_json::{Map, Value, json};

use crate::encoder::{ReplyEncoder, ReplyInfo, WireEvent};
use crate::request::{
    ParsedRequest, RequestHistory, RequestOptions, required_list, required_text, required_texts,
};
use crate::signature::{check_signature, sign_thought};
use minke_llm::WireScheme;

/// The documented signatures for calls of other models.
const SIGNATURE_PLACEHOLDERS: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];
/// Prefix of the models that reject a first call without a signature.
const STRICT_MODEL_PREFIX: &str = "gemini-3";
/// The signed content of a reply without calls.
const END_OF_REPLY: &str = "";

pub(crate) fn parse_request(body: &Value, model: &str) -> Result<ParsedRequest, String> {
    let contents = required_list(body, "contents", "")?;
    let mut history = RequestHistory::default();
    for (at, content) in contents.iter().enumerate() {
        let location = format!("contents[{at}].");
        let role = content.get("role").and_then(Value::as_str).unwrap_or("user");
        let mut is_first_call = true;
        for (number, part) in required_list(content, "parts", &location)?.iter().enumerate() {
            let place = format!("{location}parts[{number}].");
            match role {
                "user" => parse_user_part(part, &place, &mut history)?,
                "model" => {
                    let reading = ModelPartParser { model, place: &place, is_first_call };
                    is_first_call &= part.get("functionCall").is_none();
                    reading.parse_part(part, &mut history)?;
                }
                other => return Err(format!("{place}role: `{other}` is not `user` or `model`")),
            }
        }
    }
    let system =
        required_texts(body.pointer("/systemInstruction/parts"), "systemInstruction.parts")?.join("\n");
    let options = RequestOptions::default();
    Ok(ParsedRequest { model: model.to_owned(), system, history, message_count: contents.len(), options })
}

fn parse_user_part(part: &Value, location: &str, history: &mut RequestHistory) -> Result<(), String> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        history.push_user(text);
    } else if let Some(response) = part.get("functionResponse") {
        let name = required_text(response, "name", &format!("{location}functionResponse."))?;
        let given = response.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = given.or_else(|| history.find_open_call(name)).ok_or_else(|| {
            format!(
                "{location}functionResponse: `{name}` was not called: count of responses and calls must be equal"
            )
        })?;
        let answer = response.get("response").and_then(Value::as_object);
        let answer =
            answer.ok_or_else(|| format!("{location}functionResponse.response: an object is required"))?;
        history.push_result(&id, response_text(answer), answer.contains_key("error"));
    } else if let Some(data) = part.get("inlineData") {
        let place = format!("{location}inlineData.");
        let media_type = required_text(data, "mimeType", &place)?;
        // Other media types are accepted and ignored.
        if media_type.starts_with("image/") {
            history.push_image(media_type, required_text(data, "data", &place)?, &place)?;
        }
    } else if part.get("fileData").is_none() {
        return Err(format!("{location}data: a text, a functionResponse or data is required"));
    }
    Ok(())
}

/// Returns the text of a response, or the response as JSON.
fn response_text(answer: &Map<String, Value>) -> String {
    let known = ["output", "error", "result"].iter().find_map(|key| answer.get(*key)?.as_str());
    known.map_or_else(|| Value::Object(answer.clone()).to_string(), str::to_owned)
}

/// Parses one part of a model message.
struct ModelPartParser<'a> {
    model: &'a str,
    place: &'a str,
    is_first_call: bool,
}

impl ModelPartParser<'_> {
    fn parse_part(&self, part: &Value, history: &mut RequestHistory) -> Result<(), String> {
        let location = self.place;
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        if let Some(call) = part.get("functionCall") {
            self.parse_call(call, signature, history)
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            if let Some(signature) = signature {
                self.check_signature(END_OF_REPLY, signature)?;
                history.push_thought("");
            }
            if part.get("thought") == Some(&Value::Bool(true)) {
                if signature.is_none() {
                    history.push_thought(text);
                }
            } else if !text.is_empty() {
                history.push_assistant(text);
            }
            Ok(())
        } else {
            Err(format!("{location}data: a text or a functionCall is required"))
        }
    }

    fn parse_call(
        &self,
        call: &Value,
        signature: Option<&str>,
        history: &mut RequestHistory,
    ) -> Result<(), String> {
        let name = required_text(call, "name", &format!("{}functionCall.", self.place))?;
        let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
        match signature {
            Some(placeholder) if SIGNATURE_PLACEHOLDERS.contains(&placeholder) => {}
            Some(signature) => {
                self.check_signature(&signed_content(name, &args), signature)?;
                history.push_thought("");
            }
            None if self.is_first_call && self.model.starts_with(STRICT_MODEL_PREFIX) => {
                return Err(format!(
                    "Function call is missing a thought_signature in functionCall parts: {}functionCall, \
                     function `{name}`",
                    self.place
                ));
            }
            None => {}
        }
        let given = call.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = given.unwrap_or_else(|| format!("{name}_{}", history.items.len()));
        history.push_call(&id, name, args.to_string());
        Ok(())
    }

    fn check_signature(&self, thought: &str, signature: &str) -> Result<(), String> {
        check_signature(WireScheme::Gemini, self.model, thought, signature).map_err(|problem| {
            format!("{}thoughtSignature: Corrupted thought signature: {problem}", self.place)
        })
    }
}

/// Returns the signed content of a call, independent of the order of its arguments.
fn signed_content(name: &str, args: &Value) -> String {
    format!("{name}{}", sort_keys(args))
}

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(key, value)| (key.clone(), sort_keys(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(sort_keys).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the body of an error.
pub(crate) fn error_body(status: u16, failure: &ModelError) -> Value {
    let word = match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        504 => "DEADLINE_EXCEEDED",
        501.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    let message = match failure.kind {
        ModelErrorKind::ContextTooLong => {
            format!("The input token count exceeds the maximum number of tokens allowed. {}", failure.message)
        }
        ModelErrorKind::Refused => format!("The request was flagged: {}", failure.message),
        ModelErrorKind::Interrupted | ModelErrorKind::Transient | ModelErrorKind::Permanent => {
            failure.message.clone()
        }
    };
    let mut error = json!({ "code": status, "message": message, "status": word });
    if let (Some(wait), Some(fields)) = (failure.retry_after_ms, error.as_object_mut()) {
        let delay = format!("{}.{:03}s", wait / 1_000, wait % 1_000);
        let info = json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay });
        fields.insert("details".to_owned(), json!([info]));
    }
    json!({ "error": error })
}

pub(crate) fn models_body(model: &str) -> Value {
    let methods = ["generateContent", "streamGenerateContent"];
    json!({ "models": [{
        "name": format!("models/{model}"), "displayName": model, "supportedGenerationMethods": methods,
    }] })
}

/// Encodes a reply.
pub(crate) struct GeminiEncoder {
    reply: ReplyInfo,
    open_blocks: HashMap<u32, GeminiBlock>,
    /// Whether a signature must still be sent.
    needs_signature: bool,
    call_count: u32,
    malformed_call: Option<String>,
}

#[derive(Debug)]
enum GeminiBlock {
    Text,
    Thinking,
    /// Calls are sent in one piece.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl GeminiEncoder {
    pub(crate) fn new(reply: ReplyInfo) -> GeminiEncoder {
        let needs_signature = false;
        GeminiEncoder {
            reply,
            open_blocks: HashMap::new(),
            needs_signature,
            call_count: 0,
            malformed_call: None,
        }
    }

    fn chunk_event(&self, part: Option<Value>, finish: Option<(&str, Option<&str>)>) -> WireEvent {
        let content = match part {
            Some(part) => json!({ "parts": [part], "role": "model" }),
            None => json!({}),
        };
        let mut candidate = json!({ "content": content });
        if let (Some((reason, message)), Some(fields)) = (finish, candidate.as_object_mut()) {
            fields.insert("finishReason".to_owned(), reason.into());
            message.and_then(|message| fields.insert("finishMessage".to_owned(), message.into()));
        }
        candidate["index"] = 0.into();
        let data = json!({
            "candidates": [candidate],
            "usageMetadata": self.usage_body(finish.is_some()),
            "modelVersion": self.reply.model,
            "responseId": self.reply.id,
        });
        WireEvent { name: "", data: data.to_string() }
    }

    /// Sent in every chunk; complete in the last one.
    fn usage_body(&self, complete: bool) -> Value {
        let voice = &self.reply;
        let mut usage =
            json!({ "promptTokenCount": voice.total_input(), "totalTokenCount": voice.total_input() });
        if let (true, Some(fields)) = (complete, usage.as_object_mut()) {
            fields.insert(
                "candidatesTokenCount".to_owned(),
                (voice.usage.output - voice.thinking_tokens).into(),
            );
            fields.insert("totalTokenCount".to_owned(), (voice.total_input() + voice.usage.output).into());
            if voice.thinking_tokens > 0 {
                fields.insert("thoughtsTokenCount".to_owned(), voice.thinking_tokens.into());
            }
            if voice.usage.cache_read > 0 {
                fields.insert("cachedContentTokenCount".to_owned(), voice.usage.cache_read.into());
            }
        }
        usage
    }

    fn push_call_event(&mut self, id: &str, name: &str, arguments: &str, out: &mut Vec<WireEvent>) {
        let Some(args) = serde_json::from_str(arguments).ok().filter(Value::is_object) else {
            // This format cannot represent such arguments; the real model ends the reply in this way.
            self.malformed_call = Some(format!("Malformed function call: {name}({arguments})"));
            return;
        };
        let signs = self.needs_signature
            || (self.call_count == 0 && self.reply.model.starts_with(STRICT_MODEL_PREFIX));
        let signature =
            signs.then(|| sign_thought(WireScheme::Gemini, &self.reply.model, &signed_content(name, &args)));
        let mut part = json!({ "functionCall": { "name": name, "args": args, "id": id } });
        if let (Some(signature), Some(fields)) = (signature, part.as_object_mut()) {
            fields.insert("thoughtSignature".to_owned(), signature.into());
        }
        self.needs_signature = false;
        self.call_count += 1;
        out.push(self.chunk_event(Some(part), None));
    }
}

impl ReplyEncoder for GeminiEncoder {
    fn encode_begin(&mut self, _: &mut Vec<WireEvent>) {}

    fn encode_start(&mut self, index: u32, kind: &BlockKind, _: &mut Vec<WireEvent>) {
        let part = match kind {
            BlockKind::Text | BlockKind::Refusal => GeminiBlock::Text,
            BlockKind::Thinking => GeminiBlock::Thinking,
            BlockKind::ToolCall { id, name } => {
                GeminiBlock::Call { id: id.clone(), name: name.clone(), arguments: String::new() }
            }
        };
        self.open_blocks.insert(index, part);
    }

    fn encode_delta(&mut self, index: u32, text: &str, out: &mut Vec<WireEvent>) {
        let part = match self.open_blocks.get_mut(&index) {
            Some(GeminiBlock::Call { arguments, .. }) => {
                arguments.push_str(text);
                return;
            }
            Some(GeminiBlock::Thinking) => json!({ "text": text, "thought": true }),
            Some(GeminiBlock::Text) | None => json!({ "text": text }),
        };
        out.push(self.chunk_event(Some(part), None));
    }

    fn encode_stop(&mut self, index: u32, out: &mut Vec<WireEvent>) {
        match self.open_blocks.remove(&index) {
            Some(GeminiBlock::Thinking) => self.needs_signature = true,
            Some(GeminiBlock::Call { id, name, arguments }) => {
                self.push_call_event(&id, &name, &arguments, out)
            }
            Some(GeminiBlock::Text) | None => {}
        }
    }

    fn encode_done(&mut self, stop: &StopReason, out: &mut Vec<WireEvent>) {
        if let Some(message) = &self.malformed_call {
            out.push(self.chunk_event(None, Some(("MALFORMED_FUNCTION_CALL", Some(message)))));
            return;
        }
        let reason = match stop {
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "STOP".to_owned(),
            StopReason::MaxTokens => "MAX_TOKENS".to_owned(),
            StopReason::Refusal | StopReason::ContentFilter => "SAFETY".to_owned(),
            StopReason::Other(word) => word.to_uppercase(),
        };
        let mut part = json!({ "text": "" });
        if let (true, Some(fields)) = (self.needs_signature, part.as_object_mut()) {
            let signature = sign_thought(WireScheme::Gemini, &self.reply.model, END_OF_REPLY);
            fields.insert("thoughtSignature".to_owned(), signature.into());
        }
        out.push(self.chunk_event(Some(part), Some((&reason, None))));
    }

    fn encode_error(&mut self, failure: &ModelError, out: &mut Vec<WireEvent>) {
        let data = error_body(failure.status.unwrap_or(503), failure).to_string();
        out.push(WireEvent { name: "", data });
    }
}
