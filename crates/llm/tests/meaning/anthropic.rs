//! Reads requests of the Messages API.

use minke_model::{Effort, Reasoning};
use serde_json::Value;

use super::{Image, Piece, Read, Reader, Who, list, map, string};

pub(super) fn read(reader: &mut Reader, request: &Value) -> Read {
    let body = map(request, "request")?;
    reader.meaning.model = string(&request["model"]);
    reader.meaning.max_output = request["max_tokens"].as_u64();
    match body.get("system") {
        Some(Value::String(text)) => reader.meaning.system.push(text.clone()),
        Some(blocks) => {
            for block in list(blocks, "system")? {
                reader.meaning.system.push(string(&block["text"]));
            }
        }
        None => {}
    }
    for tool in body.get("tools").map(|tools| list(tools, "tools")).transpose()?.unwrap_or_default() {
        match tool.get("input_schema") {
            Some(schema) => reader.tool(&tool["name"], tool.get("description"), schema),
            None => {
                reader.meaning.ignored.insert(format!("tools: the provider's own {}", tool["type"]));
            }
        }
        reader.rest(
            map(tool, "tool")?,
            "tools[].",
            &["name", "description", "input_schema", "type", "cache_control"],
        );
    }
    thinking(reader, request);
    for message in list(&request["messages"], "messages")? {
        let who = if map(message, "message")?["role"] == "assistant" { Who::Assistant } else { Who::User };
        reader.turn(who);
        match &message["content"] {
            Value::String(text) => reader.turn(who).push(Piece::Text(text.clone())),
            blocks => {
                for one in list(blocks, "content")? {
                    block(reader, who, one)?;
                }
            }
        }
    }
    let read = ["model", "max_tokens", "system", "tools", "thinking", "output_config", "messages"];
    reader.rest(body, "", &read);
    Ok(())
}

fn thinking(reader: &mut Reader, request: &Value) {
    let effort = &request["output_config"]["effort"];
    reader.meaning.reasoning = match request["thinking"]["type"].as_str() {
        Some("enabled") => request["thinking"]["budget_tokens"].as_u64().map(Reasoning::Budget),
        Some("adaptive") => {
            reader.meaning.dialect.adaptive = true;
            // What the API documents for a request that names none.
            let word = effort.as_str().unwrap_or("high");
            let word = if word == "max" { "xhigh" } else { word };
            serde_json::from_value(Value::from(word)).ok().map(Reasoning::Effort)
        }
        Some("disabled") => Some(Reasoning::Effort(Effort::None)),
        _ => {
            if !effort.is_null() {
                reader.meaning.ignored.insert("output_config.effort without thinking".to_owned());
            }
            None
        }
    };
    if !request["thinking"]["display"].is_null() {
        reader.meaning.ignored.insert("thinking.display".to_owned());
    }
}

fn block(reader: &mut Reader, who: Who, block: &Value) -> Read {
    let kind = block["type"].as_str().unwrap_or_default();
    match kind {
        "text" => reader.turn(who).push(Piece::Text(string(&block["text"]))),
        "thinking" => match block["signature"].as_str().filter(|signature| !signature.is_empty()) {
            Some(signature) => reader.thought(Piece::Thought {
                text: string(&block["thinking"]),
                summary: Vec::new(),
                signature: Some(signature.to_owned()),
                encrypted: None,
            }),
            None => {
                reader.meaning.ignored.insert("thinking without signature".to_owned());
            }
        },
        "redacted_thinking" => reader.thought(Piece::Thought {
            text: String::new(),
            summary: Vec::new(),
            signature: None,
            encrypted: Some(string(&block["data"])),
        }),
        "tool_use" => reader.call(&string(&block["id"]), &string(&block["name"]), block["input"].clone()),
        "tool_result" => {
            let (text, images) = match &block["content"] {
                Value::Array(parts) => given(parts)?,
                other => (string(other), Vec::new()),
            };
            let error = block["is_error"].as_bool().unwrap_or(false);
            reader.result(block["tool_use_id"].as_str(), None, text, error)?;
            reader.showed(images);
        }
        "image" => reader.image(who, image(block)?),
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
    reader.rest(map(block, "block")?, "content[].", &read);
    Ok(())
}

/// The texts of a result as one, and its images.
fn given(parts: &[Value]) -> Read<(String, Vec<Image>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("text") => texts.push(string(&part["text"])),
            Some("image") => images.push(image(part)?),
            other => return Err(format!("{other:?} inside a result; ours are texts and images")),
        }
    }
    Ok((texts.join("\n"), images))
}

fn image(block: &Value) -> Read<Image> {
    let source = &block["source"];
    if source["type"] != "base64" {
        return Err("an image that is not in the request".to_owned());
    }
    Image::read(&string(&source["media_type"]), &string(&source["data"]))
}
