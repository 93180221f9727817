//! The gemini format, from the provider's side: requests read, replies told, errors worded.
//!
//! As in reality a thought itself is not signed: the signature stands on the first call of the reply or, without one,
//! on an empty text at its end. Models of the third generation sign every first call and want it back.
//! Invariant: what is told here is what `decode::gemini` reads (`tests/mock.rs`).

use std::collections::HashMap;

use minke_model::{BlockKind, Failure, FailureKind, StopReason};
use serde_json::{Map, Value, json};

use super::asked::{Asked, History, Wishes, list, text, texts};
use super::signature::{check, sign};
use super::voice::{Tell, Told, Voice};
use crate::settings::Scheme;

/// What may stand on a call that another model made: the documented ways to say so.
const PLACEHOLDERS: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];
/// Models whose name begins so refuse a first call without a signature.
const DEMANDING: &str = "gemini-3";
/// What the signature of a reply without calls is made over.
const AT_THE_END: &str = "";

pub(super) fn read(body: &Value, model: &str) -> Result<Asked, String> {
    let contents = list(body, "contents", "")?;
    let mut history = History::default();
    for (at, content) in contents.iter().enumerate() {
        let place = format!("contents[{at}].");
        let role = content.get("role").and_then(Value::as_str).unwrap_or("user");
        let mut first_call = true;
        for (number, part) in list(content, "parts", &place)?.iter().enumerate() {
            let place = format!("{place}parts[{number}].");
            match role {
                "user" => read_user(part, &place, &mut history)?,
                "model" => {
                    let reading = Reading { model, place: &place, first_call };
                    first_call &= part.get("functionCall").is_none();
                    reading.part(part, &mut history)?;
                }
                other => return Err(format!("{place}role: `{other}` is not `user` or `model`")),
            }
        }
    }
    let system = texts(body.pointer("/systemInstruction/parts"), "systemInstruction.parts")?.join("\n");
    let wishes = Wishes::default();
    Ok(Asked { model: model.to_owned(), system, history, messages: contents.len(), wishes })
}

fn read_user(part: &Value, place: &str, history: &mut History) -> Result<(), String> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        history.user(text);
    } else if let Some(response) = part.get("functionResponse") {
        let name = text(response, "name", &format!("{place}functionResponse."))?;
        let given = response.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = given.or_else(|| history.open_call(name)).ok_or_else(|| {
            format!(
                "{place}functionResponse: `{name}` was not called: count of responses and calls must be equal"
            )
        })?;
        let answer = response.get("response").and_then(Value::as_object);
        let answer =
            answer.ok_or_else(|| format!("{place}functionResponse.response: an object is required"))?;
        history.result(&id, answer_text(answer), answer.contains_key("error"));
    } else if let Some(data) = part.get("inlineData") {
        let place = format!("{place}inlineData.");
        let media_type = text(data, "mimeType", &place)?;
        // Other media are taken as well, and not looked at.
        if media_type.starts_with("image/") {
            history.image(media_type, text(data, "data", &place)?, &place)?;
        }
    } else if part.get("fileData").is_none() {
        return Err(format!("{place}data: a text, a functionResponse or data is required"));
    }
    Ok(())
}

/// The text of an answer that has one, else the answer as JSON.
fn answer_text(answer: &Map<String, Value>) -> String {
    let known = ["output", "error", "result"].iter().find_map(|key| answer.get(*key)?.as_str());
    known.map_or_else(|| Value::Object(answer.clone()).to_string(), str::to_owned)
}

/// One part of a model's content on its way back.
struct Reading<'a> {
    model: &'a str,
    place: &'a str,
    first_call: bool,
}

impl Reading<'_> {
    fn part(&self, part: &Value, history: &mut History) -> Result<(), String> {
        let place = self.place;
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        if let Some(call) = part.get("functionCall") {
            self.call(call, signature, history)
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            if let Some(signature) = signature {
                self.check(AT_THE_END, signature)?;
                history.thought("");
            }
            if part.get("thought") == Some(&Value::Bool(true)) {
                if signature.is_none() {
                    history.thought(text);
                }
            } else if !text.is_empty() {
                history.assistant(text);
            }
            Ok(())
        } else {
            Err(format!("{place}data: a text or a functionCall is required"))
        }
    }

    fn call(&self, call: &Value, signature: Option<&str>, history: &mut History) -> Result<(), String> {
        let name = text(call, "name", &format!("{}functionCall.", self.place))?;
        let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
        match signature {
            Some(placeholder) if PLACEHOLDERS.contains(&placeholder) => {}
            Some(signature) => {
                self.check(&over(name, &args), signature)?;
                history.thought("");
            }
            None if self.first_call && self.model.starts_with(DEMANDING) => {
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
        history.call(&id, name, args.to_string());
        Ok(())
    }

    fn check(&self, thought: &str, signature: &str) -> Result<(), String> {
        check(Scheme::Gemini, self.model, thought, signature).map_err(|problem| {
            format!("{}thoughtSignature: Corrupted thought signature: {problem}", self.place)
        })
    }
}

/// What the signature on a call is made over: the same for any order of its arguments.
fn over(name: &str, args: &Value) -> String {
    format!("{name}{}", sorted(args))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The body of an error.
pub(super) fn error(status: u16, failure: &Failure) -> Value {
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
        FailureKind::TooLong => {
            format!("The input token count exceeds the maximum number of tokens allowed. {}", failure.message)
        }
        FailureKind::Refused => format!("The request was flagged: {}", failure.message),
        FailureKind::Cut | FailureKind::Transient | FailureKind::Permanent => failure.message.clone(),
    };
    let mut error = json!({ "code": status, "message": message, "status": word });
    if let (Some(wait), Some(fields)) = (failure.retry_after_ms, error.as_object_mut()) {
        let delay = format!("{}.{:03}s", wait / 1_000, wait % 1_000);
        let info = json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay });
        fields.insert("details".to_owned(), json!([info]));
    }
    json!({ "error": error })
}

pub(super) fn models(model: &str) -> Value {
    let methods = ["generateContent", "streamGenerateContent"];
    json!({ "models": [{
        "name": format!("models/{model}"), "displayName": model, "supportedGenerationMethods": methods,
    }] })
}

/// Tells a reply.
pub(super) struct Teller {
    voice: Voice,
    open: HashMap<u32, Part>,
    /// A signature has yet to be put somewhere.
    owes: bool,
    calls: u32,
    malformed: Option<String>,
}

#[derive(Debug)]
enum Part {
    Text,
    Thinking,
    /// Calls come whole.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Teller {
    pub(super) fn new(voice: Voice) -> Teller {
        let owes = false;
        Teller { voice, open: HashMap::new(), owes, calls: 0, malformed: None }
    }

    fn chunk(&self, part: Option<Value>, finish: Option<(&str, Option<&str>)>) -> Told {
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
            "usageMetadata": self.usage(finish.is_some()),
            "modelVersion": self.voice.model,
            "responseId": self.voice.id,
        });
        Told { name: "", data: data.to_string() }
    }

    /// Counted anew in every chunk; the last one is complete.
    fn usage(&self, complete: bool) -> Value {
        let voice = &self.voice;
        let mut usage = json!({ "promptTokenCount": voice.input(), "totalTokenCount": voice.input() });
        if let (true, Some(fields)) = (complete, usage.as_object_mut()) {
            fields.insert("candidatesTokenCount".to_owned(), (voice.usage.output - voice.thought).into());
            fields.insert("totalTokenCount".to_owned(), (voice.input() + voice.usage.output).into());
            if voice.thought > 0 {
                fields.insert("thoughtsTokenCount".to_owned(), voice.thought.into());
            }
            if voice.usage.cache_read > 0 {
                fields.insert("cachedContentTokenCount".to_owned(), voice.usage.cache_read.into());
            }
        }
        usage
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str, out: &mut Vec<Told>) {
        let Some(args) = serde_json::from_str(arguments).ok().filter(Value::is_object) else {
            // This format has no place for such arguments: the real model ends so.
            self.malformed = Some(format!("Malformed function call: {name}({arguments})"));
            return;
        };
        let signs = self.owes || (self.calls == 0 && self.voice.model.starts_with(DEMANDING));
        let signature = signs.then(|| sign(Scheme::Gemini, &self.voice.model, &over(name, &args)));
        let mut part = json!({ "functionCall": { "name": name, "args": args, "id": id } });
        if let (Some(signature), Some(fields)) = (signature, part.as_object_mut()) {
            fields.insert("thoughtSignature".to_owned(), signature.into());
        }
        self.owes = false;
        self.calls += 1;
        out.push(self.chunk(Some(part), None));
    }
}

impl Tell for Teller {
    fn begin(&mut self, _: &mut Vec<Told>) {}

    fn start(&mut self, index: u32, kind: &BlockKind, _: &mut Vec<Told>) {
        let part = match kind {
            BlockKind::Text | BlockKind::Refusal => Part::Text,
            BlockKind::Thinking => Part::Thinking,
            BlockKind::ToolCall { id, name } => {
                Part::Call { id: id.clone(), name: name.clone(), arguments: String::new() }
            }
        };
        self.open.insert(index, part);
    }

    fn delta(&mut self, index: u32, text: &str, out: &mut Vec<Told>) {
        let part = match self.open.get_mut(&index) {
            Some(Part::Call { arguments, .. }) => {
                arguments.push_str(text);
                return;
            }
            Some(Part::Thinking) => json!({ "text": text, "thought": true }),
            Some(Part::Text) | None => json!({ "text": text }),
        };
        out.push(self.chunk(Some(part), None));
    }

    fn stop(&mut self, index: u32, out: &mut Vec<Told>) {
        match self.open.remove(&index) {
            Some(Part::Thinking) => self.owes = true,
            Some(Part::Call { id, name, arguments }) => self.call(&id, &name, &arguments, out),
            Some(Part::Text) | None => {}
        }
    }

    fn done(&mut self, stop: &StopReason, out: &mut Vec<Told>) {
        if let Some(message) = &self.malformed {
            out.push(self.chunk(None, Some(("MALFORMED_FUNCTION_CALL", Some(message)))));
            return;
        }
        let reason = match stop {
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "STOP".to_owned(),
            StopReason::MaxTokens => "MAX_TOKENS".to_owned(),
            StopReason::Refusal | StopReason::ContentFilter => "SAFETY".to_owned(),
            StopReason::Other(word) => word.to_uppercase(),
        };
        let mut part = json!({ "text": "" });
        if let (true, Some(fields)) = (self.owes, part.as_object_mut()) {
            let signature = sign(Scheme::Gemini, &self.voice.model, AT_THE_END);
            fields.insert("thoughtSignature".to_owned(), signature.into());
        }
        out.push(self.chunk(Some(part), Some((&reason, None))));
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<Told>) {
        let data = error(failure.status.unwrap_or(503), failure).to_string();
        out.push(Told { name: "", data });
    }
}
