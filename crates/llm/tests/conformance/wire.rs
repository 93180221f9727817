//! A second parser of the recorded bodies, for data that the SDKs do not read. It shares no code with the
//! decoder.

use minke_llm::WireScheme;
use minke_model::StopReason;
use serde_json::{Map, Value};

use super::fixture::RecordedResponse;

/// Returns the consecutive responses in the file, usually one.
pub(crate) fn split_replies(fixture: &RecordedResponse) -> Vec<RecordedResponse> {
    let ends = ["\"type\":\"message_stop\"", "\"type\":\"response.completed\""];
    let mut bodies = vec![String::new()];
    for event in fixture.body_text().split_inclusive("\n\n") {
        if let Some(body) = bodies.last_mut() {
            body.push_str(event);
        }
        if fixture.is_sse() && ends.iter().any(|end| event.contains(end)) {
            bodies.push(String::new());
        }
    }
    // Data after the end that starts no reply: a `[DONE]`, an injected event, blank lines.
    bodies.retain(|body| !fixture.is_sse() || ends.iter().any(|end| body.contains(end)));
    let part = |body: String| RecordedResponse { body: body.into_bytes(), ..fixture.clone() };
    bodies.into_iter().map(part).collect()
}

/// Returns the encrypted reasoning of each item.
pub(crate) fn encrypted_with_items(fixture: &RecordedResponse) -> Vec<String> {
    let done = |event: &Value| event["type"] == "response.output_item.done";
    let events = fixture.event_payloads();
    let found = events
        .iter()
        .filter(|event| done(event))
        .filter_map(|event| event["item"]["encrypted_content"].as_str());
    found.map(str::to_owned).collect()
}

/// Returns the refusal of a Responses API reply.
pub(crate) fn refusal_text(fixture: &RecordedResponse) -> String {
    let events = fixture.event_payloads();
    let last = events.iter().rev().find_map(|event| {
        let output = if event["output"].is_array() { &event["output"] } else { &event["response"]["output"] };
        output.as_array().filter(|items| !items.is_empty())
    });
    let parts = last.into_iter().flatten().flat_map(|item| item["content"].as_array().into_iter().flatten());
    let whole: String = parts.filter_map(|part| part["refusal"].as_str()).collect();
    if !whole.is_empty() {
        return whole;
    }
    let done = events.iter().filter(|event| event["type"] == "response.refusal.done");
    done.filter_map(|event| event["refusal"].as_str()).collect()
}

/// Returns the usage as Groq sends it.
pub(crate) fn groq_usage(fixture: &RecordedResponse) -> Option<Value> {
    let of = |event: &Value| Some(event["x_groq"]["usage"].clone()).filter(Value::is_object);
    fixture.event_payloads().iter().rev().find_map(of)
}

/// Returns the number of different messages in the stream.
pub(crate) fn count_messages(fixture: &RecordedResponse) -> usize {
    if fixture.scheme != WireScheme::Anthropic {
        return 1;
    }
    let mut ids: Vec<Value> = Vec::new();
    for event in fixture.event_payloads() {
        if event["type"] == "message_start" && !ids.contains(&event["message"]["id"]) {
            ids.push(event["message"]["id"].clone());
        }
    }
    ids.len()
}

/// Returns the number of calls that start and end within one message.
pub(crate) fn count_finished_calls(fixture: &RecordedResponse) -> usize {
    let mut open: Vec<Value> = Vec::new();
    let mut finished = 0;
    for event in fixture.event_payloads() {
        match event["type"].as_str() {
            Some("message_start") => open.clear(),
            Some("content_block_start") if event["content_block"]["type"] == "tool_use" => {
                open.push(event["index"].clone());
            }
            Some("content_block_stop") => {
                finished += usize::from(open.contains(&event["index"]));
                open.retain(|index| *index != event["index"]);
            }
            _ => {}
        }
    }
    finished
}

/// Returns whether a stream without a stop reason is complete.
pub(crate) fn has_orderly_end(fixture: &RecordedResponse) -> bool {
    fixture.scheme == WireScheme::OpenaiChat
        && (!fixture.is_sse()
            || fixture.body_text().lines().any(|line| line.replace(' ', "") == "data:[DONE]"))
}

/// Returns the stop reason of a blocked prompt.
pub(crate) fn blocked_reason(fixture: &RecordedResponse) -> Option<StopReason> {
    let blocked = |event: &Value| event["promptFeedback"]["blockReason"].is_string();
    (fixture.scheme == WireScheme::Gemini && fixture.event_payloads().iter().any(blocked))
        .then_some(StopReason::ContentFilter)
}

/// Returns the reasoning itself, if the Responses API sends it.
pub(crate) fn reasoning_text(fixture: &RecordedResponse) -> String {
    let texts = |item: &Value| -> String {
        let parts = item["content"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    let reasoning = |items: &Value| -> String {
        let items = items.as_array().cloned().unwrap_or_default();
        items.iter().filter(|item| item["type"] == "reasoning").map(texts).collect()
    };
    let events = fixture.event_payloads();
    let last = events.iter().rev().find_map(|event| {
        let output = if event["output"].is_array() { &event["output"] } else { &event["response"]["output"] };
        output.as_array().is_some_and(|items| !items.is_empty()).then(|| reasoning(output))
    });
    let done = || {
        let done = events.iter().filter(|event| event["type"] == "response.reasoning_text.done");
        done.filter_map(|event| event["text"].as_str()).collect()
    };
    last.filter(|text| !text.is_empty()).unwrap_or_else(done)
}

/// Returns the texts of `reasoning_details` without a plain `reasoning`.
pub(crate) fn details_text(fixture: &RecordedResponse) -> String {
    let mut text = String::new();
    for event in fixture.event_payloads() {
        for said in [&event["choices"][0]["delta"], &event["choices"][0]["message"]] {
            let plain = ["reasoning", "reasoning_content"].iter().any(|field| said[field].is_string());
            for detail in said["reasoning_details"].as_array().into_iter().flatten().filter(|_| !plain) {
                text.push_str(detail["text"].as_str().or(detail["summary"].as_str()).unwrap_or_default());
            }
        }
    }
    text
}

fn function_calls(fixture: &RecordedResponse) -> Vec<Value> {
    let mut calls = Vec::new();
    for event in fixture.event_payloads() {
        let parts = event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default();
        calls.extend(parts.into_iter().filter(|part| part["functionCall"].is_object()));
    }
    calls.iter().map(|part| part["functionCall"].clone()).collect()
}

/// Returns whether a call arrives in pieces.
pub(crate) fn has_partial_args(fixture: &RecordedResponse) -> bool {
    fixture.scheme == WireScheme::Gemini
        && function_calls(fixture).iter().any(|call| call["willContinue"] == true)
}

/// Assembles the calls of such a stream: a piece with a name starts a call, the others fill it.
pub(crate) fn partial_args(fixture: &RecordedResponse) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, Value)> = Vec::new();
    for piece in function_calls(fixture) {
        if let Some(name) = piece["name"].as_str() {
            let given = piece["args"].as_object().cloned().unwrap_or_default();
            calls.push((name.to_owned(), Value::Object(given)));
        }
        let Some((_, arguments)) = calls.last_mut() else { continue };
        for part in piece["partialArgs"].as_array().into_iter().flatten() {
            let place = value_at_path(arguments, part["jsonPath"].as_str().unwrap_or_default());
            match part["stringValue"].as_str() {
                Some(more) => {
                    let before = place.as_str().unwrap_or_default().to_owned();
                    *place = Value::String(before + more);
                }
                None if !part["numberValue"].is_null() => *place = part["numberValue"].clone(),
                None if !part["boolValue"].is_null() => *place = part["boolValue"].clone(),
                None => *place = Value::Null,
            }
        }
    }
    calls
}

/// Returns the value at a path such as `$.a[0].b`, and creates it if it is missing.
fn value_at_path<'v>(mut value: &'v mut Value, path: &str) -> &'v mut Value {
    for step in path.trim_start_matches('$').replace('[', ".").split('.').filter(|step| !step.is_empty()) {
        value = match step.strip_suffix(']').map(|index| index.trim_matches(['\'', '"'])) {
            Some(index) if index.parse::<usize>().is_ok() => {
                let index: usize = index.parse().expect("checked");
                if !value.is_array() {
                    *value = Value::Array(Vec::new());
                }
                let list = value.as_array_mut().expect("just made");
                if list.len() <= index {
                    list.resize(index + 1, Value::Null);
                }
                &mut list[index]
            }
            name => {
                if !value.is_object() {
                    *value = Value::Object(Map::new());
                }
                let name = name.unwrap_or(step).to_owned();
                value.as_object_mut().expect("just made").entry(name).or_insert(Value::Null)
            }
        };
    }
    value
}
