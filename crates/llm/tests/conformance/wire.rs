//! A second reading of the recorded bodies, only for what the SDKs do not read: plain, and not the code under test.

use minke_llm::Scheme;
use minke_model::StopReason;
use serde_json::{Map, Value};

use super::fixture::Fixture;

/// The responses that the file holds one behind the other; usually one.
pub(crate) fn replies(fixture: &Fixture) -> Vec<Fixture> {
    let ends = ["\"type\":\"message_stop\"", "\"type\":\"response.completed\""];
    let mut bodies = vec![String::new()];
    for event in fixture.text().split_inclusive("\n\n") {
        if let Some(body) = bodies.last_mut() {
            body.push_str(event);
        }
        if fixture.is_sse() && ends.iter().any(|end| event.contains(end)) {
            bodies.push(String::new());
        }
    }
    // What follows the end and begins nothing is no reply: a `[DONE]`, an injected event, blank lines.
    bodies.retain(|body| !fixture.is_sse() || ends.iter().any(|end| body.contains(end)));
    let part = |body: String| Fixture { body: body.into_bytes(), ..fixture.clone() };
    bodies.into_iter().map(part).collect()
}

/// The encrypted reasoning as it came with each item.
pub(crate) fn encrypted_with_items(fixture: &Fixture) -> Vec<String> {
    let done = |event: &Value| event["type"] == "response.output_item.done";
    let events = fixture.payloads();
    let found = events
        .iter()
        .filter(|event| done(event))
        .filter_map(|event| event["item"]["encrypted_content"].as_str());
    found.map(str::to_owned).collect()
}

/// What was refused, where the responses API says it.
pub(crate) fn refusal(fixture: &Fixture) -> String {
    let events = fixture.payloads();
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

/// Tokens as Groq counts them.
pub(crate) fn groq_usage(fixture: &Fixture) -> Option<Value> {
    let of = |event: &Value| Some(event["x_groq"]["usage"].clone()).filter(Value::is_object);
    fixture.payloads().iter().rev().find_map(of)
}

/// How many different messages begin in the stream.
pub(crate) fn messages(fixture: &Fixture) -> usize {
    if fixture.scheme != Scheme::Anthropic {
        return 1;
    }
    let mut ids: Vec<Value> = Vec::new();
    for event in fixture.payloads() {
        if event["type"] == "message_start" && !ids.contains(&event["message"]["id"]) {
            ids.push(event["message"]["id"].clone());
        }
    }
    ids.len()
}

/// Calls that began and ended within one message.
pub(crate) fn finished_calls(fixture: &Fixture) -> usize {
    let mut open: Vec<Value> = Vec::new();
    let mut finished = 0;
    for event in fixture.payloads() {
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

/// Whether a stream without a stop reason still says that it is complete.
pub(crate) fn ends_in_order(fixture: &Fixture) -> bool {
    fixture.scheme == Scheme::OpenaiChat
        && (!fixture.is_sse() || fixture.text().lines().any(|line| line.replace(' ', "") == "data:[DONE]"))
}

/// A prompt that was not answered at all.
pub(crate) fn blocked(fixture: &Fixture) -> Option<StopReason> {
    let blocked = |event: &Value| event["promptFeedback"]["blockReason"].is_string();
    (fixture.scheme == Scheme::Gemini && fixture.payloads().iter().any(blocked))
        .then_some(StopReason::ContentFilter)
}

/// The reasoning itself, where the responses API shows it.
pub(crate) fn raw_reasoning(fixture: &Fixture) -> String {
    let texts = |item: &Value| -> String {
        let parts = item["content"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    let reasoning = |items: &Value| -> String {
        let items = items.as_array().cloned().unwrap_or_default();
        items.iter().filter(|item| item["type"] == "reasoning").map(texts).collect()
    };
    let events = fixture.payloads();
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

/// The texts of `reasoning_details` that have no plain `reasoning` beside them.
pub(crate) fn reasoning_details(fixture: &Fixture) -> String {
    let mut text = String::new();
    for event in fixture.payloads() {
        for said in [&event["choices"][0]["delta"], &event["choices"][0]["message"]] {
            let plain = ["reasoning", "reasoning_content"].iter().any(|field| said[field].is_string());
            for detail in said["reasoning_details"].as_array().into_iter().flatten().filter(|_| !plain) {
                text.push_str(detail["text"].as_str().or(detail["summary"].as_str()).unwrap_or_default());
            }
        }
    }
    text
}

fn function_calls(fixture: &Fixture) -> Vec<Value> {
    let mut calls = Vec::new();
    for event in fixture.payloads() {
        let parts = event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default();
        calls.extend(parts.into_iter().filter(|part| part["functionCall"].is_object()));
    }
    calls.iter().map(|part| part["functionCall"].clone()).collect()
}

/// Whether a call comes in pieces.
pub(crate) fn has_partial_args(fixture: &Fixture) -> bool {
    fixture.scheme == Scheme::Gemini
        && function_calls(fixture).iter().any(|call| call["willContinue"] == true)
}

/// The calls of such a stream, assembled: a piece with a name begins a call, the others fill it.
pub(crate) fn partial_args(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, Value)> = Vec::new();
    for piece in function_calls(fixture) {
        if let Some(name) = piece["name"].as_str() {
            let given = piece["args"].as_object().cloned().unwrap_or_default();
            calls.push((name.to_owned(), Value::Object(given)));
        }
        let Some((_, arguments)) = calls.last_mut() else { continue };
        for part in piece["partialArgs"].as_array().into_iter().flatten() {
            let place = place(arguments, part["jsonPath"].as_str().unwrap_or_default());
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

/// The place that `$.a[0].b` names, made where it is missing.
fn place<'v>(mut value: &'v mut Value, path: &str) -> &'v mut Value {
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
