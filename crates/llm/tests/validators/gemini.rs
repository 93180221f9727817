//! `generateContent`, as `v1beta` takes it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Verdict, base64, call_id, flag, list, number, object, one_of, schema, text, tool_name, words};

pub(crate) fn validate(request: &Value, call_signatures: bool) -> Verdict {
    let optional = ["systemInstruction", "tools", "generationConfig"];
    let body = object(request, "request", &["contents"], &optional)?;
    if let Some(instruction) = body.get("systemInstruction") {
        let instruction = object(instruction, "systemInstruction", &["parts"], &["role"])?;
        for part in list(&instruction["parts"], "systemInstruction")? {
            let part = object(part, "systemInstruction", &["text"], &[])?;
            words(&part["text"], "systemInstruction")?;
        }
    }
    if let Some(config) = body.get("generationConfig") {
        let config = object(config, "generationConfig", &[], &["maxOutputTokens", "thinkingConfig"])?;
        config.get("maxOutputTokens").map(|n| number(n, "maxOutputTokens", 1)).transpose()?;
        config.get("thinkingConfig").map(thinking).transpose()?;
    }
    let declared = tools(body.get("tools"))?;
    contents(list(&body["contents"], "contents")?, call_signatures, !declared.is_empty())
}

fn thinking(value: &Value) -> Verdict {
    let optional = ["includeThoughts", "thinkingBudget", "thinkingLevel"];
    let config = object(value, "thinkingConfig", &[], &optional)?;
    config.get("includeThoughts").map(|f| flag(f, "includeThoughts")).transpose()?;
    config.get("thinkingBudget").map(|n| number(n, "thinkingBudget", 0)).transpose()?;
    let levels = ["MINIMAL", "LOW", "MEDIUM", "HIGH"];
    config.get("thinkingLevel").map(|l| one_of(l, "thinkingLevel", &levels)).transpose()?;
    if config.contains_key("thinkingBudget") && config.contains_key("thinkingLevel") {
        return Err("thinkingConfig: a budget and a level".to_owned());
    }
    Ok(())
}

fn tools(value: Option<&Value>) -> Verdict<HashSet<String>> {
    let mut names = HashSet::new();
    let Some(value) = value else { return Ok(names) };
    for tool in list(value, "tools")? {
        let tool = object(tool, "tools", &["functionDeclarations"], &[])?;
        for (i, function) in list(&tool["functionDeclarations"], "tools")?.iter().enumerate() {
            let at = format!("functionDeclarations[{i}]");
            let function = object(function, &at, &["name", "description", "parametersJsonSchema"], &[])?;
            text(&function["description"], &at)?;
            schema(&function["parametersJsonSchema"], &at)?;
            if !names.insert(tool_name(&function["name"], &at)?.to_owned()) {
                return Err(format!("{at}: a second one of that name"));
            }
        }
    }
    Ok(names)
}

/// A call that waits for its response: name and id.
type Open = (String, String);

fn contents(contents: &[Value], call_signatures: bool, has_tools: bool) -> Verdict {
    let mut seen = HashSet::new();
    let mut open: Vec<Open> = Vec::new();
    for (i, content) in contents.iter().enumerate() {
        let at = format!("contents[{i}]");
        let content = object(content, &at, &["role", "parts"], &[])?;
        let role = one_of(&content["role"], &at, &["user", "model"])?;
        if (role == "user") != i.is_multiple_of(2) {
            return Err(format!("{at}: `{role}` is not next"));
        }
        let parts = list(&content["parts"], &at)?;
        if role == "user" {
            user(parts, &at, std::mem::take(&mut open))?;
        } else {
            open = model(parts, &at, call_signatures)?;
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

fn user(parts: &[Value], at: &str, open: Vec<Open>) -> Verdict {
    let mut open = open.into_iter();
    let mut said = false;
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}.parts[{i}]");
        let part = part.as_object().ok_or_else(|| format!("{at}: not an object"))?;
        if let Some(response) = only(part, "functionResponse") {
            let response = object(response, &at, &["name", "response"], &["id"])?;
            let name = tool_name(&response["name"], &at)?;
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
        match (only(part, "text"), only(part, "inlineData")) {
            (Some(value), _) => words(value, &at).map(drop)?,
            (_, Some(data)) => {
                let data = object(data, &at, &["mimeType", "data"], &[])?;
                let types = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
                one_of(&data["mimeType"], &at, &types)?;
                base64(&data["data"], &at, 20_971_520)?;
            }
            _ => return Err(format!("{at}: not one kind of part of a user")),
        }
    }
    match open.next() {
        Some(due) => Err(format!("{at}: no response for {due:?}")),
        None => Ok(()),
    }
}

fn only<'v>(part: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    part.get(key).filter(|_| part.len() == 1)
}

fn model(parts: &[Value], at: &str, call_signatures: bool) -> Verdict<Vec<Open>> {
    let mut calls = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}.parts[{i}]");
        let map = part.as_object().ok_or_else(|| format!("{at}: not an object"))?;
        let signature = map.get("thoughtSignature").map(|s| is_signature(s, &at)).transpose()?;
        if let Some(call) = map.get("functionCall") {
            object(part, &at, &["functionCall"], &["thoughtSignature"])?;
            let call = object(call, &at, &["name", "args"], &["id"])?;
            let name = tool_name(&call["name"], &at)?;
            if !call["args"].is_object() {
                return Err(format!("{at}.args: not an object"));
            }
            let id = call.get("id").map(|id| call_id(id, &at, 64)).transpose()?;
            if call_signatures && calls.is_empty() && signature.is_none() {
                return Err(format!("{at}: the first call has no thought signature"));
            }
            calls.push((name.to_owned(), id.unwrap_or_default().to_owned()));
            continue;
        }
        let map = object(part, &at, &["text"], &["thought", "thoughtSignature"])?;
        if let Some(thought) = map.get("thought") {
            flag(thought, &at)?;
            if signature.is_none() {
                return Err(format!("{at}: a thought without a signature"));
            }
        }
        if signature.is_none() || map.contains_key("thought") {
            words(&map["text"], &at)?;
        } else {
            text(&map["text"], &at)?;
        }
    }
    Ok(calls)
}

fn is_signature(value: &Value, at: &str) -> Verdict {
    let text = words(value, at)?;
    let fits = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b));
    if fits { Ok(()) } else { Err(format!("{at}: `{text}` is no signature")) }
}
