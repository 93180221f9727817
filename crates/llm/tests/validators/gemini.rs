//! Validates requests of `generateContent` in `v1beta`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    Validation, json_bool, json_text, nonblank_text, nonempty_list, number_at_least, one_of_words,
    required_object, validate_base64, validate_call_id, validate_schema, validate_tool_name,
};

pub(crate) fn validate_request(request: &Value, call_signatures: bool) -> Validation {
    let optional = ["systemInstruction", "tools", "generationConfig"];
    let body = required_object(request, "request", &["contents"], &optional)?;
    if let Some(instruction) = body.get("systemInstruction") {
        let instruction = required_object(instruction, "systemInstruction", &["parts"], &["role"])?;
        for part in nonempty_list(&instruction["parts"], "systemInstruction")? {
            let part = required_object(part, "systemInstruction", &["text"], &[])?;
            nonblank_text(&part["text"], "systemInstruction")?;
        }
    }
    if let Some(config) = body.get("generationConfig") {
        let config =
            required_object(config, "generationConfig", &[], &["maxOutputTokens", "thinkingConfig"])?;
        config.get("maxOutputTokens").map(|n| number_at_least(n, "maxOutputTokens", 1)).transpose()?;
        config.get("thinkingConfig").map(validate_thinking).transpose()?;
    }
    let declared = validate_tools(body.get("tools"))?;
    validate_contents(nonempty_list(&body["contents"], "contents")?, call_signatures, !declared.is_empty())
}

fn validate_thinking(value: &Value) -> Validation {
    let optional = ["includeThoughts", "thinkingBudget", "thinkingLevel"];
    let config = required_object(value, "thinkingConfig", &[], &optional)?;
    config.get("includeThoughts").map(|f| json_bool(f, "includeThoughts")).transpose()?;
    config.get("thinkingBudget").map(|n| number_at_least(n, "thinkingBudget", 0)).transpose()?;
    let levels = ["MINIMAL", "LOW", "MEDIUM", "HIGH"];
    config.get("thinkingLevel").map(|l| one_of_words(l, "thinkingLevel", &levels)).transpose()?;
    if config.contains_key("thinkingBudget") && config.contains_key("thinkingLevel") {
        return Err("thinkingConfig: a budget and a level".to_owned());
    }
    Ok(())
}

fn validate_tools(value: Option<&Value>) -> Validation<HashSet<String>> {
    let mut names = HashSet::new();
    let Some(value) = value else { return Ok(names) };
    for tool in nonempty_list(value, "tools")? {
        let tool = required_object(tool, "tools", &["functionDeclarations"], &[])?;
        for (i, function) in nonempty_list(&tool["functionDeclarations"], "tools")?.iter().enumerate() {
            let at = format!("functionDeclarations[{i}]");
            let function =
                required_object(function, &at, &["name", "description", "parametersJsonSchema"], &[])?;
            json_text(&function["description"], &at)?;
            validate_schema(&function["parametersJsonSchema"], &at)?;
            if !names.insert(validate_tool_name(&function["name"], &at)?.to_owned()) {
                return Err(format!("{at}: a second one of that name"));
            }
        }
    }
    Ok(names)
}

/// The name and id of a call that waits for its response.
type OpenGeminiCall = (String, String);

fn validate_contents(contents: &[Value], call_signatures: bool, has_tools: bool) -> Validation {
    let mut seen = HashSet::new();
    let mut open: Vec<OpenGeminiCall> = Vec::new();
    for (i, content) in contents.iter().enumerate() {
        let at = format!("contents[{i}]");
        let content = required_object(content, &at, &["role", "parts"], &[])?;
        let role = one_of_words(&content["role"], &at, &["user", "model"])?;
        if (role == "user") != i.is_multiple_of(2) {
            return Err(format!("{at}: `{role}` is not next"));
        }
        let parts = nonempty_list(&content["parts"], &at)?;
        if role == "user" {
            validate_user(parts, &at, std::mem::take(&mut open))?;
        } else {
            open = validate_model(parts, &at, call_signatures)?;
            if let Some((_, id)) = open.iter().find(|(_, id)| !seen.insert(id.clone())) {
                return Err(format!("{at}: `{id}` was used before"));
            }
            if !open.is_empty() && !has_tools {
                return Err(format!("{at}: calls, but the request has no tools"));
            }
        }
    }
    if contents.len().is_multiple_of(2) { Err("the last content is the model's".to_owned()) } else { Ok(()) }
}

fn validate_user(parts: &[Value], at: &str, open: Vec<OpenGeminiCall>) -> Validation {
    let mut open = open.into_iter();
    let mut said = false;
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}.parts[{i}]");
        let part = part.as_object().ok_or_else(|| format!("{at}: not an object"))?;
        if let Some(response) = only_field(part, "functionResponse") {
            let response = required_object(response, &at, &["name", "response"], &["id"])?;
            let name = validate_tool_name(&response["name"], &at)?;
            if !response["response"].is_object() {
                return Err(format!("{at}.response: not an object"));
            }
            let due = open.next().ok_or_else(|| format!("{at}: more responses than calls"))?;
            if due.0 != name || response.get("id").is_some_and(|id| id.as_str() != Some(&due.1)) {
                return Err(format!("{at}: `{name}`, but the call was {due:?}"));
            }
            if said {
                return Err(format!("{at}: a response after other parts"));
            }
            continue;
        }
        said = true;
        match (only_field(part, "text"), only_field(part, "inlineData")) {
            (Some(value), _) => nonblank_text(value, &at).map(drop)?,
            (_, Some(data)) => {
                let data = required_object(data, &at, &["mimeType", "data"], &[])?;
                let types = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
                one_of_words(&data["mimeType"], &at, &types)?;
                validate_base64(&data["data"], &at, 20_971_520)?;
            }
            _ => return Err(format!("{at}: not one kind of part of a user")),
        }
    }
    match open.next() {
        Some(due) => Err(format!("{at}: no response for {due:?}")),
        None => Ok(()),
    }
}

fn only_field<'v>(part: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    part.get(key).filter(|_| part.len() == 1)
}

fn validate_model(parts: &[Value], at: &str, call_signatures: bool) -> Validation<Vec<OpenGeminiCall>> {
    let mut calls = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}.parts[{i}]");
        let map = part.as_object().ok_or_else(|| format!("{at}: not an object"))?;
        let signature = map.get("thoughtSignature").map(|s| validate_signature(s, &at)).transpose()?;
        if let Some(call) = map.get("functionCall") {
            required_object(part, &at, &["functionCall"], &["thoughtSignature"])?;
            let call = required_object(call, &at, &["name", "args"], &["id"])?;
            let name = validate_tool_name(&call["name"], &at)?;
            if !call["args"].is_object() {
                return Err(format!("{at}.args: not an object"));
            }
            let id = call.get("id").map(|id| validate_call_id(id, &at, 64)).transpose()?;
            if call_signatures && calls.is_empty() && signature.is_none() {
                return Err(format!("{at}: the first call has no thought signature"));
            }
            calls.push((name.to_owned(), id.unwrap_or_default().to_owned()));
            continue;
        }
        let map = required_object(part, &at, &["text"], &["thought", "thoughtSignature"])?;
        if let Some(thought) = map.get("thought") {
            json_bool(thought, &at)?;
            if signature.is_none() {
                return Err(format!("{at}: a thought without a signature"));
            }
        }
        if signature.is_none() || map.contains_key("thought") {
            nonblank_text(&map["text"], &at)?;
        } else {
            json_text(&map["text"], &at)?;
        }
    }
    Ok(calls)
}

fn validate_signature(value: &Value, at: &str) -> Validation {
    let text = nonblank_text(value, at)?;
    let fits = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b));
    if fits { Ok(()) } else { Err(format!("{at}: `{text}` is not a signature")) }
}
