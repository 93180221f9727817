//! Parses requests of chat completions.

use minke_model::Reasoning;
use serde_json::Value;

use super::{
    MeaningImage, MeaningReader, ReadResult, Speaker, TurnPiece, json_list, json_object, json_string,
    parse_or_keep,
};

pub(super) fn read_request(reader: &mut MeaningReader, request: &Value) -> ReadResult {
    let body = json_object(request, "request")?;
    reader.meaning.model = json_string(&request["model"]);
    for field in ["max_tokens", "max_completion_tokens"] {
        if let Some(tokens) = request[field].as_u64() {
            reader.meaning.max_output = Some(tokens);
            reader.meaning.dialect.max_tokens_field = Some(field.to_owned());
        }
    }
    let effort = &request["reasoning_effort"];
    reader.meaning.reasoning = serde_json::from_value(effort.clone()).ok().map(Reasoning::Effort);
    for tool in body.get("tools").map(|tools| json_list(tools, "tools")).transpose()?.unwrap_or_default() {
        let function = json_object(&tool["function"], "function")?;
        reader.add_tool(
            &tool["function"]["name"],
            function.get("description"),
            &tool["function"]["parameters"],
        );
        reader.record_ignored(function, "tools[].function.", &["name", "description", "parameters"]);
    }
    for one in json_list(&request["messages"], "messages")? {
        read_message(reader, one)?;
    }
    let read = ["model", "max_tokens", "max_completion_tokens", "reasoning_effort", "tools", "messages"];
    reader.record_ignored(body, "", &read);
    Ok(())
}

fn read_message(reader: &mut MeaningReader, message: &Value) -> ReadResult {
    match message["role"].as_str() {
        Some(role @ ("system" | "developer")) if reader.meaning.turns.is_empty() => {
            reader.meaning.dialect.system_role = Some(role.to_owned());
            let text = read_texts(&message["content"])?;
            reader.meaning.system.push(text);
        }
        Some("user") => read_content(reader, Speaker::User, &message["content"])?,
        Some("assistant") => {
            reader.open_turn(Speaker::Assistant);
            read_thoughts(reader, message);
            read_content(reader, Speaker::Assistant, &message["content"])?;
            for call in message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
                let function = &call["function"];
                reader.add_call(
                    &json_string(&call["id"]),
                    &json_string(&function["name"]),
                    parse_or_keep(&function["arguments"]),
                );
            }
        }
        Some("tool") => {
            let text = read_texts(&message["content"])?;
            reader.add_result(message["tool_call_id"].as_str(), None, text, false)?;
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
    reader.record_ignored(json_object(message, "message")?, "messages[].", &read);
    Ok(())
}

fn read_thoughts(reader: &mut MeaningReader, message: &Value) {
    let thought = |text: &str, encrypted| TurnPiece::Thought {
        text: text.to_owned(),
        summary: Vec::new(),
        signature: None,
        encrypted,
    };
    if let Some(details) = message["reasoning_details"].as_array() {
        reader.meaning.dialect.reasoning_field = Some("reasoning_details".to_owned());
        let mut sorted = Value::Array(details.clone());
        sorted.sort_all_objects();
        reader.add_thought(thought("", Some(sorted.to_string())));
        return;
    }
    for field in ["reasoning_content", "reasoning"] {
        if let Some(text) = message[field].as_str() {
            reader.meaning.dialect.reasoning_field = Some(field.to_owned());
            reader.add_thought(thought(text, None));
        }
    }
}

fn read_content(reader: &mut MeaningReader, speaker: Speaker, value: &Value) -> ReadResult {
    reader.open_turn(speaker);
    match value {
        Value::Null => {}
        Value::String(text) => reader.open_turn(speaker).push(TurnPiece::Text(text.clone())),
        parts => {
            for part in json_list(parts, "content")? {
                match part["type"].as_str() {
                    Some("text") => {
                        reader.open_turn(speaker).push(TurnPiece::Text(json_string(&part["text"])))
                    }
                    Some("image_url") => reader.add_image(speaker, read_image(&part["image_url"]["url"])?),
                    other => return Err(format!("a part {other:?}, which our history does not have")),
                }
            }
        }
    }
    Ok(())
}

/// Returns the text of a message without other content.
fn read_texts(value: &Value) -> ReadResult<String> {
    match value {
        Value::Array(parts) => {
            let text = |part: &Value| match part["type"].as_str() {
                Some("text") => Ok(json_string(&part["text"])),
                other => Err(format!("{other:?} inside a result; ours are texts")),
            };
            Ok(parts.iter().map(text).collect::<ReadResult<Vec<_>>>()?.join("\n"))
        }
        other => Ok(json_string(other)),
    }
}

/// Parses a data URL. Our requests contain no external images.
pub(super) fn read_image(url: &Value) -> ReadResult<MeaningImage> {
    let parts =
        url.as_str().and_then(|url| url.strip_prefix("data:")).and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) = parts.ok_or("an image that is not in the request")?;
    MeaningImage::parse_image(media_type, data)
}
