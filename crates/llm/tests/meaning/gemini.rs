//! Parses requests of `generateContent`, in camel case and snake case.

use minke_model::Reasoning;
use serde_json::{Map, Value};

use super::{
    MeaningImage, MeaningReader, ReadResult, Speaker, TurnPiece, json_list, json_object, json_string,
};

pub(super) fn read_request(reader: &mut MeaningReader, request: &Value) -> ReadResult {
    let body = json_object(request, "request")?;
    let system =
        field_in_either_case(body, "systemInstruction", "system_instruction").unwrap_or(&Value::Null);
    for part in system["parts"].as_array().map(Vec::as_slice).unwrap_or_default() {
        reader.meaning.system.push(json_string(&part["text"]));
    }
    for tool in body.get("tools").map(|tools| json_list(tools, "tools")).transpose()?.unwrap_or_default() {
        let functions =
            field_in_either_case(json_object(tool, "tool")?, "functionDeclarations", "function_declarations");
        match functions.and_then(Value::as_array) {
            Some(functions) => functions.iter().for_each(|function| read_declaration(reader, function)),
            None => {
                let names: Vec<_> = json_object(tool, "tool")?.keys().cloned().collect();
                reader.meaning.ignored_fields.insert(format!("tools: the provider's own {names:?}"));
            }
        }
    }
    if let Some(config) = body.get("generationConfig") {
        reader.meaning.max_output = config["maxOutputTokens"].as_u64();
        read_thinking(reader, &config["thinkingConfig"]);
        reader.record_ignored(
            json_object(config, "generationConfig")?,
            "generationConfig.",
            &["maxOutputTokens", "thinkingConfig"],
        );
    }
    for content in json_list(&request["contents"], "contents")? {
        let speaker = if json_object(content, "content")?["role"] == "model" {
            Speaker::Assistant
        } else {
            Speaker::User
        };
        reader.open_turn(speaker);
        for one in json_list(&content["parts"], "parts")? {
            read_part(reader, speaker, json_object(one, "part")?)?;
        }
    }
    let read = ["systemInstruction", "system_instruction", "tools", "generationConfig", "contents"];
    reader.record_ignored(body, "", &read);
    Ok(())
}

fn read_thinking(reader: &mut MeaningReader, config: &Value) {
    reader.meaning.dialect.has_thoughts = !config.is_null();
    if let Some(level) = config["thinkingLevel"].as_str() {
        reader.meaning.dialect.has_level = true;
        let word = Value::from(level.to_lowercase());
        reader.meaning.reasoning = serde_json::from_value(word).ok().map(Reasoning::Effort);
    } else {
        reader.meaning.reasoning = config["thinkingBudget"].as_u64().map(Reasoning::Budget);
    }
}

fn read_declaration(reader: &mut MeaningReader, function: &Value) {
    let written = ["parametersJsonSchema", "parameters_json_schema", "parameters"];
    let schema = written.iter().find_map(|key| function.get(*key)).cloned().unwrap_or_default();
    reader.add_tool(&function["name"], function.get("description"), &lowercase_types(&schema));
}

/// Lowercases types: the older dialect writes them in capitals.
fn lowercase_types(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if key == "type" => (key.clone(), Value::from(text.to_lowercase())),
                other => (key.clone(), lowercase_types(other)),
            })
            .collect(),
        Value::Array(list) => list.iter().map(lowercase_types).collect(),
        other => other.clone(),
    }
}

fn field_in_either_case<'v>(part: &'v Map<String, Value>, camel: &str, snake: &str) -> Option<&'v Value> {
    part.get(camel).or_else(|| part.get(snake))
}

fn read_part(reader: &mut MeaningReader, speaker: Speaker, part: &Map<String, Value>) -> ReadResult {
    let signature = field_in_either_case(part, "thoughtSignature", "thought_signature").map(json_string);
    let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
    if let Some(call) = field_in_either_case(part, "functionCall", "function_call") {
        reader.open_turn(speaker);
        if signature.is_some() {
            reader.add_thought(signed_thought(signature, None));
        }
        let args = call.get("args").filter(|args| !args.is_null()).cloned();
        let args = args.unwrap_or_else(|| Value::Object(Map::new()));
        reader.add_call(&json_string(&call["id"]), &json_string(&call["name"]), args);
    } else if let Some(response) = field_in_either_case(part, "functionResponse", "function_response") {
        if response.get("parts").is_some() {
            return Err("images inside a result; ours are next to it".to_owned());
        }
        let (text, error) = response_text(json_object(&response["response"], "response")?);
        let id = response["id"].as_str();
        reader.add_result(id, response["name"].as_str(), text, error)?;
    } else if let Some(data) = field_in_either_case(part, "inlineData", "inline_data") {
        let media_type = field_in_either_case(json_object(data, "inlineData")?, "mimeType", "mime_type")
            .map(json_string)
            .unwrap_or_default();
        reader.add_image(speaker, MeaningImage { media_type, base64: json_string(&data["data"]) });
    } else if let Some(text) = part.get("text").map(json_string) {
        if !is_thought {
            reader.open_turn(speaker).push(TurnPiece::Text(text));
        }
        if signature.is_some() {
            reader.add_thought(signed_thought(signature, Some(OWN_PART_MARK)));
        } else if is_thought {
            reader.meaning.ignored_fields.insert("a thought without signature".to_owned());
        }
    } else {
        let keys: Vec<_> = part.keys().cloned().collect();
        return Err(format!("a part {keys:?}, which our history does not have"));
    }
    Ok(())
}

/// The decoder's mark for a signature that belongs to no call, which is sent back in a separate part.
const OWN_PART_MARK: &str = "part";

/// Creates a signed thought. Its text is not compared, because the signature covers it.
fn signed_thought(signature: Option<String>, mark: Option<&str>) -> TurnPiece {
    // The signature may use either base64 alphabet.
    let signature = signature.map(|text| text.replace('-', "+").replace('_', "/"));
    let encrypted = mark.map(str::to_owned);
    TurnPiece::Thought { text: String::new(), summary: Vec::new(), signature, encrypted }
}

/// Any object may be a response. A single text field is the text; any other object is its JSON.
fn response_text(response: &Map<String, Value>) -> (String, bool) {
    match response.iter().next() {
        Some((key, Value::String(text))) if response.len() == 1 => (text.clone(), key == "error"),
        _ => (Value::Object(response.clone()).to_string(), false),
    }
}
