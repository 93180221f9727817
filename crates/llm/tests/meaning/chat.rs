//! Reads requests of chat completions.

use minke_model::Reasoning;
use serde_json::Value;

use super::{Image, Piece, Read, Reader, Who, list, map, parsed, string};

pub(super) fn read(reader: &mut Reader, request: &Value) -> Read {
    let body = map(request, "request")?;
    reader.meaning.model = string(&request["model"]);
    for field in ["max_tokens", "max_completion_tokens"] {
        if let Some(tokens) = request[field].as_u64() {
            reader.meaning.max_output = Some(tokens);
            reader.meaning.dialect.max_tokens_field = Some(field.to_owned());
        }
    }
    let effort = &request["reasoning_effort"];
    reader.meaning.reasoning = serde_json::from_value(effort.clone()).ok().map(Reasoning::Effort);
    for tool in body.get("tools").map(|tools| list(tools, "tools")).transpose()?.unwrap_or_default() {
        let function = map(&tool["function"], "function")?;
        reader.tool(&tool["function"]["name"], function.get("description"), &tool["function"]["parameters"]);
        reader.rest(function, "tools[].function.", &["name", "description", "parameters"]);
    }
    for one in list(&request["messages"], "messages")? {
        message(reader, one)?;
    }
    let read = ["model", "max_tokens", "max_completion_tokens", "reasoning_effort", "tools", "messages"];
    reader.rest(body, "", &read);
    Ok(())
}

fn message(reader: &mut Reader, message: &Value) -> Read {
    match message["role"].as_str() {
        Some(role @ ("system" | "developer")) if reader.meaning.turns.is_empty() => {
            reader.meaning.dialect.system_role = Some(role.to_owned());
            let text = texts(&message["content"])?;
            reader.meaning.system.push(text);
        }
        Some("user") => content(reader, Who::User, &message["content"])?,
        Some("assistant") => {
            reader.turn(Who::Assistant);
            thoughts(reader, message);
            content(reader, Who::Assistant, &message["content"])?;
            for call in message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
                let function = &call["function"];
                reader.call(&string(&call["id"]), &string(&function["name"]), parsed(&function["arguments"]));
            }
        }
        Some("tool") => {
            let text = texts(&message["content"])?;
            reader.result(message["tool_call_id"].as_str(), None, text, false)?;
        }
        other => return Err(format!("a message of {other:?} in mid-history")),
    }
    let read = [
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    ];
    reader.rest(map(message, "message")?, "messages[].", &read);
    Ok(())
}

fn thoughts(reader: &mut Reader, message: &Value) {
    let thought = |text: &str, encrypted| Piece::Thought {
        text: text.to_owned(),
        summary: Vec::new(),
        signature: None,
        encrypted,
    };
    if let Some(details) = message["reasoning_details"].as_array() {
        reader.meaning.dialect.reasoning_field = Some("reasoning_details".to_owned());
        let mut sorted = Value::Array(details.clone());
        sorted.sort_all_objects();
        reader.thought(thought("", Some(sorted.to_string())));
        return;
    }
    for field in ["reasoning_content", "reasoning"] {
        if let Some(text) = message[field].as_str() {
            reader.meaning.dialect.reasoning_field = Some(field.to_owned());
            reader.thought(thought(text, None));
        }
    }
}

fn content(reader: &mut Reader, who: Who, value: &Value) -> Read {
    reader.turn(who);
    match value {
        Value::Null => {}
        Value::String(text) => reader.turn(who).push(Piece::Text(text.clone())),
        parts => {
            for part in list(parts, "content")? {
                match part["type"].as_str() {
                    Some("text") => reader.turn(who).push(Piece::Text(string(&part["text"]))),
                    Some("image_url") => reader.image(who, image(&part["image_url"]["url"])?),
                    other => return Err(format!("a part {other:?}, which our history does not have")),
                }
            }
        }
    }
    Ok(())
}

/// The texts of a message that has nothing else.
fn texts(value: &Value) -> Read<String> {
    match value {
        Value::Array(parts) => {
            let text = |part: &Value| match part["type"].as_str() {
                Some("text") => Ok(string(&part["text"])),
                other => Err(format!("{other:?} inside a result; ours are texts")),
            };
            Ok(parts.iter().map(text).collect::<Read<Vec<_>>>()?.join("\n"))
        }
        other => Ok(string(other)),
    }
}

/// An image in an URL; one that lies elsewhere is not ours to send.
pub(super) fn image(url: &Value) -> Read<Image> {
    let parts =
        url.as_str().and_then(|url| url.strip_prefix("data:")).and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) = parts.ok_or("an image that is not in the request")?;
    Image::read(media_type, data)
}
