//! Parses requests of the Messages API.

use minke_model::{Effort, Reasoning};
use serde_json::Value;

use super::{
    MeaningImage, MeaningReader, ReadResult, Speaker, TurnPiece, json_list, json_object, json_string,
};

pub(super) fn read_request(reader: &mut MeaningReader, request: &Value) -> ReadResult {
    let body = json_object(request, "request")?;
    reader.meaning.model = json_string(&request["model"]);
    reader.meaning.max_output = request["max_tokens"].as_u64();
    match body.get("system") {
        Some(Value::String(text)) => reader.meaning.system.push(text.clone()),
        Some(blocks) => {
            for block in json_list(blocks, "system")? {
                reader.meaning.system.push(json_string(&block["text"]));
            }
        }
        None => {}
    }
    for tool in body.get("tools").map(|tools| json_list(tools, "tools")).transpose()?.unwrap_or_default() {
        match tool.get("input_schema") {
            Some(schema) => reader.add_tool(&tool["name"], tool.get("description"), schema),
            None => {
                reader.meaning.ignored_fields.insert(format!("tools: the provider's own {}", tool["type"]));
            }
        }
        reader.record_ignored(
            json_object(tool, "tool")?,
            "tools[].",
            &["name", "description", "input_schema", "type", "cache_control"],
        );
    }
    read_thinking(reader, request);
    for message in json_list(&request["messages"], "messages")? {
        let speaker = if json_object(message, "message")?["role"] == "assistant" {
            Speaker::Assistant
        } else {
            Speaker::User
        };
        reader.open_turn(speaker);
        match &message["content"] {
            Value::String(text) => reader.open_turn(speaker).push(TurnPiece::Text(text.clone())),
            blocks => {
                for one in json_list(blocks, "content")? {
                    read_block(reader, speaker, one)?;
                }
            }
        }
    }
    let read = ["model", "max_tokens", "system", "tools", "thinking", "output_config", "messages"];
    reader.record_ignored(body, "", &read);
    Ok(())
}

fn read_thinking(reader: &mut MeaningReader, request: &Value) {
    let effort = &request["output_config"]["effort"];
    reader.meaning.reasoning = match request["thinking"]["type"].as_str() {
        Some("enabled") => request["thinking"]["budget_tokens"].as_u64().map(Reasoning::Budget),
        Some("adaptive") => {
            reader.meaning.dialect.is_adaptive = true;
            // The documented default.
            let word = effort.as_str().unwrap_or("high");
            let word = if word == "max" { "xhigh" } else { word };
            serde_json::from_value(Value::from(word)).ok().map(Reasoning::Effort)
        }
        Some("disabled") => Some(Reasoning::Effort(Effort::None)),
        _ => {
            if !effort.is_null() {
                reader.meaning.ignored_fields.insert("output_config.effort without thinking".to_owned());
            }
            None
        }
    };
    if !request["thinking"]["display"].is_null() {
        reader.meaning.ignored_fields.insert("thinking.display".to_owned());
    }
}

fn read_block(reader: &mut MeaningReader, speaker: Speaker, block: &Value) -> ReadResult {
    let kind = block["type"].as_str().unwrap_or_default();
    match kind {
        "text" => reader.open_turn(speaker).push(TurnPiece::Text(json_string(&block["text"]))),
        "thinking" => match block["signature"].as_str().filter(|signature| !signature.is_empty()) {
            Some(signature) => reader.add_thought(TurnPiece::Thought {
                text: json_string(&block["thinking"]),
                summary: Vec::new(),
                signature: Some(signature.to_owned()),
                encrypted: None,
            }),
            None => {
                reader.meaning.ignored_fields.insert("thinking without signature".to_owned());
            }
        },
        "redacted_thinking" => reader.add_thought(TurnPiece::Thought {
            text: String::new(),
            summary: Vec::new(),
            signature: None,
            encrypted: Some(json_string(&block["data"])),
        }),
        "tool_use" => {
            reader.add_call(&json_string(&block["id"]), &json_string(&block["name"]), block["input"].clone())
        }
        "tool_result" => {
            let (text, images) = match &block["content"] {
                Value::Array(parts) => read_result(parts)?,
                other => (json_string(other), Vec::new()),
            };
            let error = block["is_error"].as_bool().unwrap_or(false);
            reader.add_result(block["tool_use_id"].as_str(), None, text, error)?;
            reader.add_result_images(images);
        }
        "image" => reader.add_image(speaker, read_image(block)?),
        other => return Err(format!("a block `{other}`, which our history does not have")),
    }
    let read = [
        "type",
        "text",
        "thinking",
        "signature",
        "data",
        "id",
        "name",
        "input",
        "content",
        "is_error",
        "tool_use_id",
        "source",
        "cache_control",
    ];
    reader.record_ignored(json_object(block, "block")?, "content[].", &read);
    Ok(())
}

/// Returns the texts of a result as one, and its images.
fn read_result(parts: &[Value]) -> ReadResult<(String, Vec<MeaningImage>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("text") => texts.push(json_string(&part["text"])),
            Some("image") => images.push(read_image(part)?),
            other => return Err(format!("{other:?} inside a result; ours are texts and images")),
        }
    }
    Ok((texts.join("\n"), images))
}

fn read_image(block: &Value) -> ReadResult<MeaningImage> {
    let source = &block["source"];
    if source["type"] != "base64" {
        return Err("an image that is not in the request".to_owned());
    }
    MeaningImage::parse_image(&json_string(&source["media_type"]), &json_string(&source["data"]))
}
