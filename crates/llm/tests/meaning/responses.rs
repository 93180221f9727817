//! Parses requests of the Responses API.

use minke_model::Reasoning;
use serde_json::{Value, json};

use super::{
    MeaningImage, MeaningReader, ReadResult, Speaker, TurnPiece, json_list, json_object, json_string,
    parse_or_keep,
};

pub(super) fn read_request(reader: &mut MeaningReader, request: &Value) -> ReadResult {
    let body = json_object(request, "request")?;
    reader.meaning.model = json_string(&request["model"]);
    reader.meaning.max_output = request["max_output_tokens"].as_u64();
    reader.meaning.dialect.cache_key = request["prompt_cache_key"].as_str().map(str::to_owned);
    if let Some(text) = body.get("instructions").and_then(Value::as_str) {
        reader.meaning.system.push(text.to_owned());
    }
    for tool in body.get("tools").map(|tools| json_list(tools, "tools")).transpose()?.unwrap_or_default() {
        if tool["type"] == "function" {
            reader.add_tool(&tool["name"], tool.get("description"), &tool["parameters"]);
            reader.record_ignored(
                json_object(tool, "tool")?,
                "tools[].",
                &["type", "name", "description", "parameters"],
            );
        } else {
            reader.meaning.ignored_fields.insert(format!("tools: the provider's own {}", tool["type"]));
        }
    }
    let effort = &request["reasoning"]["effort"];
    reader.meaning.reasoning = serde_json::from_value(effort.clone()).ok().map(Reasoning::Effort);
    reader.meaning.dialect.has_thoughts = !request["reasoning"]["summary"].is_null();
    match &request["input"] {
        Value::String(text) => reader.open_turn(Speaker::User).push(TurnPiece::Text(text.clone())),
        input => {
            for one in json_list(input, "input")? {
                read_item(reader, one)?;
            }
        }
    }
    let include = &request["include"];
    let asks = |what: &Value| what == "reasoning.encrypted_content";
    reader.meaning.dialect.has_encrypted |= include.as_array().is_some_and(|list| list.iter().any(asks));
    let read = [
        "model",
        "max_output_tokens",
        "prompt_cache_key",
        "instructions",
        "tools",
        "reasoning",
        "input",
        "include",
    ];
    reader.record_ignored(body, "", &read);
    Ok(())
}

fn read_item(reader: &mut MeaningReader, item: &Value) -> ReadResult {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    match kind {
        "message" => read_message(reader, item)?,
        "reasoning" => {
            let summary = json_list(&item["summary"], "summary")?
                .iter()
                .map(|part| json_string(&part["text"]))
                .collect();
            let text = item["content"].as_array().map_or(String::new(), |parts| {
                parts.iter().map(|part| json_string(&part["text"])).collect::<Vec<_>>().join("\n")
            });
            let encrypted =
                item["encrypted_content"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            reader.meaning.dialect.has_encrypted |= encrypted.is_some();
            reader.meaning.dialect.reasoning_field = Some("reasoning".to_owned());
            reader.add_thought(TurnPiece::Thought { text, summary, signature: None, encrypted });
        }
        "function_call" => {
            reader.add_call(
                &json_string(&item["call_id"]),
                &json_string(&item["name"]),
                parse_or_keep(&item["arguments"]),
            );
        }
        "function_call_output" => {
            let (text, images) = match &item["output"] {
                Value::Array(parts) => read_output(parts)?,
                other => (json_string(other), Vec::new()),
            };
            reader.add_result(item["call_id"].as_str(), None, text, false)?;
            reader.add_result_images(images);
        }
        other => return Err(format!("an item `{other}`, which our history does not have")),
    }
    let read =
        ["type", "role", "content", "summary", "encrypted_content", "call_id", "name", "arguments", "output"];
    reader.record_ignored(json_object(item, "item")?, "input[].", &read);
    Ok(())
}

fn read_output(parts: &[Value]) -> ReadResult<(String, Vec<MeaningImage>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("input_text" | "output_text") => texts.push(json_string(&part["text"])),
            Some("input_image") => images.push(super::chat::read_image(&part["image_url"])?),
            other => return Err(format!("{other:?} inside a result; ours are texts and images")),
        }
    }
    Ok((texts.join("\n"), images))
}

fn read_message(reader: &mut MeaningReader, item: &Value) -> ReadResult {
    let role = item["role"].as_str().unwrap_or_default();
    let speaker = match role {
        "system" | "developer" if reader.meaning.turns.is_empty() => None,
        "assistant" => Some(Speaker::Assistant),
        "user" => Some(Speaker::User),
        _ => return Err(format!("a message of `{role}` in mid-history")),
    };
    let whole = [json!({"type": "input_text", "text": item["content"]})];
    let parts = if item["content"].is_string() { &whole } else { json_list(&item["content"], "content")? };
    for part in parts {
        match (part["type"].as_str(), speaker) {
            (Some("input_text" | "output_text"), None) => {
                reader.meaning.system.push(json_string(&part["text"]))
            }
            (Some("input_text" | "output_text"), Some(who)) => {
                reader.open_turn(who).push(TurnPiece::Text(json_string(&part["text"])));
            }
            (Some("input_image"), Some(who)) => {
                reader.add_image(who, super::chat::read_image(&part["image_url"])?)
            }
            (other, _) => return Err(format!("a part {other:?}, which our history does not have")),
        }
    }
    if let Some(who) = speaker {
        reader.open_turn(who);
    }
    Ok(())
}
