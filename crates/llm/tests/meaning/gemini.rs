//! Reads requests of `generateContent`, in camel and in snake case.

use minke_model::Reasoning;
use serde_json::{Map, Value};

use super::{Image, Piece, Read, Reader, Who, list, map, string};

pub(super) fn read(reader: &mut Reader, request: &Value) -> Read {
    let body = map(request, "request")?;
    let system = either(body, "systemInstruction", "system_instruction").unwrap_or(&Value::Null);
    for part in system["parts"].as_array().map(Vec::as_slice).unwrap_or_default() {
        reader.meaning.system.push(string(&part["text"]));
    }
    for tool in body.get("tools").map(|tools| list(tools, "tools")).transpose()?.unwrap_or_default() {
        let functions = either(map(tool, "tool")?, "functionDeclarations", "function_declarations");
        match functions.and_then(Value::as_array) {
            Some(functions) => functions.iter().for_each(|function| declaration(reader, function)),
            None => {
                let names: Vec<_> = map(tool, "tool")?.keys().cloned().collect();
                reader.meaning.ignored.insert(format!("tools: the provider's own {names:?}"));
            }
        }
    }
    if let Some(config) = body.get("generationConfig") {
        reader.meaning.max_output = config["maxOutputTokens"].as_u64();
        thinking(reader, &config["thinkingConfig"]);
        reader.rest(
            map(config, "generationConfig")?,
            "generationConfig.",
            &["maxOutputTokens", "thinkingConfig"],
        );
    }
    for content in list(&request["contents"], "contents")? {
        let who = if map(content, "content")?["role"] == "model" { Who::Assistant } else { Who::User };
        reader.turn(who);
        for one in list(&content["parts"], "parts")? {
            part(reader, who, map(one, "part")?)?;
        }
    }
    let read = ["systemInstruction", "system_instruction", "tools", "generationConfig", "contents"];
    reader.rest(body, "", &read);
    Ok(())
}

fn thinking(reader: &mut Reader, config: &Value) {
    reader.meaning.dialect.thoughts = !config.is_null();
    if let Some(level) = config["thinkingLevel"].as_str() {
        reader.meaning.dialect.level = true;
        let word = Value::from(level.to_lowercase());
        reader.meaning.reasoning = serde_json::from_value(word).ok().map(Reasoning::Effort);
    } else {
        reader.meaning.reasoning = config["thinkingBudget"].as_u64().map(Reasoning::Budget);
    }
}

fn declaration(reader: &mut Reader, function: &Value) {
    let written = ["parametersJsonSchema", "parameters_json_schema", "parameters"];
    let schema = written.iter().find_map(|key| function.get(*key)).cloned().unwrap_or_default();
    reader.tool(&function["name"], function.get("description"), &lowered(&schema));
}

/// The older dialect writes types in capital letters.
fn lowered(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if key == "type" => (key.clone(), Value::from(text.to_lowercase())),
                other => (key.clone(), lowered(other)),
            })
            .collect(),
        Value::Array(list) => list.iter().map(lowered).collect(),
        other => other.clone(),
    }
}

fn either<'v>(part: &'v Map<String, Value>, camel: &str, snake: &str) -> Option<&'v Value> {
    part.get(camel).or_else(|| part.get(snake))
}

fn part(reader: &mut Reader, who: Who, part: &Map<String, Value>) -> Read {
    let signature = either(part, "thoughtSignature", "thought_signature").map(string);
    let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
    if let Some(call) = either(part, "functionCall", "function_call") {
        reader.turn(who);
        if signature.is_some() {
            reader.thought(thought(signature, None));
        }
        let args = call.get("args").filter(|args| !args.is_null()).cloned();
        let args = args.unwrap_or_else(|| Value::Object(Map::new()));
        reader.call(&string(&call["id"]), &string(&call["name"]), args);
    } else if let Some(response) = either(part, "functionResponse", "function_response") {
        if response.get("parts").is_some() {
            return Err("images inside a result; ours stand beside it".to_owned());
        }
        let (text, error) = result_text(map(&response["response"], "response")?);
        let id = response["id"].as_str();
        reader.result(id, response["name"].as_str(), text, error)?;
    } else if let Some(data) = either(part, "inlineData", "inline_data") {
        let media_type =
            either(map(data, "inlineData")?, "mimeType", "mime_type").map(string).unwrap_or_default();
        reader.image(who, Image { media_type, base64: string(&data["data"]) });
    } else if let Some(text) = part.get("text").map(string) {
        if !is_thought {
            reader.turn(who).push(Piece::Text(text));
        }
        if signature.is_some() {
            reader.thought(thought(signature, Some(OWN_PART)));
        } else if is_thought {
            reader.meaning.ignored.insert("a thought without signature".to_owned());
        }
    } else {
        let keys: Vec<_> = part.keys().cloned().collect();
        return Err(format!("a part {keys:?}, which our history does not have"));
    }
    Ok(())
}

/// How the decoder marks a signature that belongs to no call, so that it goes back in a part of its own.
const OWN_PART: &str = "part";

/// A signature. What a signed thought says is not compared: the signature holds it.
fn thought(signature: Option<String>, mark: Option<&str>) -> Piece {
    // Bytes may be written in either alphabet of base64.
    let signature = signature.map(|text| text.replace('-', "+").replace('_', "/"));
    let encrypted = mark.map(str::to_owned);
    Piece::Thought { text: String::new(), summary: Vec::new(), signature, encrypted }
}

/// Any object may be a response. One with a single text is that text, another one its JSON.
fn result_text(response: &Map<String, Value>) -> (String, bool) {
    match response.iter().next() {
        Some((key, Value::String(text))) if response.len() == 1 => (text.clone(), key == "error"),
        _ => (Value::Object(response.clone()).to_string(), false),
    }
}
