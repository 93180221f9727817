//! Reads requests of the Responses API.

use minke_model::Reasoning;
use serde_json::{Value, json};

use super::{Image, Piece, Read, Reader, Who, list, map, parsed, string};

pub(super) fn read(reader: &mut Reader, request: &Value) -> Read {
    let body = map(request, "request")?;
    reader.meaning.model = string(&request["model"]);
    reader.meaning.max_output = request["max_output_tokens"].as_u64();
    reader.meaning.dialect.cache_key = request["prompt_cache_key"].as_str().map(str::to_owned);
    if let Some(text) = body.get("instructions").and_then(Value::as_str) {
        reader.meaning.system.push(text.to_owned());
    }
    for tool in body.get("tools").map(|tools| list(tools, "tools")).transpose()?.unwrap_or_default() {
        if tool["type"] == "function" {
            reader.tool(&tool["name"], tool.get("description"), &tool["parameters"]);
            reader.rest(map(tool, "tool")?, "tools[].", &["type", "name", "description", "parameters"]);
        } else {
            reader.meaning.ignored.insert(format!("tools: the provider's own {}", tool["type"]));
        }
    }
    let effort = &request["reasoning"]["effort"];
    reader.meaning.reasoning = serde_json::from_value(effort.clone()).ok().map(Reasoning::Effort);
    reader.meaning.dialect.thoughts = !request["reasoning"]["summary"].is_null();
    match &request["input"] {
        Value::String(text) => reader.turn(Who::User).push(Piece::Text(text.clone())),
        input => {
            for one in list(input, "input")? {
                item(reader, one)?;
            }
        }
    }
    let include = &request["include"];
    let asks = |what: &Value| what == "reasoning.encrypted_content";
    reader.meaning.dialect.encrypted |= include.as_array().is_some_and(|list| list.iter().any(asks));
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
    reader.rest(body, "", &read);
    Ok(())
}

fn item(reader: &mut Reader, item: &Value) -> Read {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    match kind {
        "message" => message(reader, item)?,
        "reasoning" => {
            let summary =
                list(&item["summary"], "summary")?.iter().map(|part| string(&part["text"])).collect();
            let text = item["content"].as_array().map_or(String::new(), |parts| {
                parts.iter().map(|part| string(&part["text"])).collect::<Vec<_>>().join("\n")
            });
            let encrypted =
                item["encrypted_content"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            reader.meaning.dialect.encrypted |= encrypted.is_some();
            reader.meaning.dialect.reasoning_field = Some("reasoning".to_owned());
            reader.thought(Piece::Thought { text, summary, signature: None, encrypted });
        }
        "function_call" => {
            reader.call(&string(&item["call_id"]), &string(&item["name"]), parsed(&item["arguments"]));
        }
        "function_call_output" => {
            let (text, images) = match &item["output"] {
                Value::Array(parts) => output(parts)?,
                other => (string(other), Vec::new()),
            };
            reader.result(item["call_id"].as_str(), None, text, false)?;
            reader.showed(images);
        }
        other => return Err(format!("an item `{other}`, which our history does not have")),
    }
    let read =
        ["type", "role", "content", "summary", "encrypted_content", "call_id", "name", "arguments", "output"];
    reader.rest(map(item, "item")?, "input[].", &read);
    Ok(())
}

fn output(parts: &[Value]) -> Read<(String, Vec<Image>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("input_text" | "output_text") => texts.push(string(&part["text"])),
            Some("input_image") => images.push(super::chat::image(&part["image_url"])?),
            other => return Err(format!("{other:?} inside a result; ours are texts and images")),
        }
    }
    Ok((texts.join("\n"), images))
}

fn message(reader: &mut Reader, item: &Value) -> Read {
    let role = item["role"].as_str().unwrap_or_default();
    let who = match role {
        "system" | "developer" if reader.meaning.turns.is_empty() => None,
        "assistant" => Some(Who::Assistant),
        "user" => Some(Who::User),
        _ => return Err(format!("a message of `{role}` in mid-history")),
    };
    let whole = [json!({"type": "input_text", "text": item["content"]})];
    let parts = if item["content"].is_string() { &whole } else { list(&item["content"], "content")? };
    for part in parts {
        match (part["type"].as_str(), who) {
            (Some("input_text" | "output_text"), None) => reader.meaning.system.push(string(&part["text"])),
            (Some("input_text" | "output_text"), Some(who)) => {
                reader.turn(who).push(Piece::Text(string(&part["text"])));
            }
            (Some("input_image"), Some(who)) => reader.image(who, super::chat::image(&part["image_url"])?),
            (other, _) => return Err(format!("a part {other:?}, which our history does not have")),
        }
    }
    if let Some(who) = who {
        reader.turn(who);
    }
    Ok(())
}
