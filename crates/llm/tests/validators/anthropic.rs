//! Validates requests of the Messages API.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    Validation, json_bool, json_text, nonblank_text, nonempty_list, number_at_least, one_of_words,
    required_object, validate_base64, validate_schema, validate_tool_name,
};

const MAX_CACHE_MARKS: usize = 4;

pub(crate) fn validate_request(request: &Value) -> Validation {
    let optional = ["stream", "system", "tools", "tool_choice", "thinking", "output_config"];
    let body = required_object(request, "request", &["model", "max_tokens", "messages"], &optional)?;
    nonblank_text(&body["model"], "model")?;
    let max_tokens = number_at_least(&body["max_tokens"], "max_tokens", 1)?;
    body.get("stream").map(|stream| json_bool(stream, "stream")).transpose()?;
    let mut marks = 0;
    for (i, block) in body
        .get("system")
        .map(|system| nonempty_list(system, "system"))
        .transpose()?
        .iter()
        .flat_map(|s| s.iter())
        .enumerate()
    {
        validate_text_block(block, &format!("system[{i}]"), &mut marks)?;
    }
    let tools = validate_tools(body.get("tools"), &mut marks)?;
    if let Some(choice) = body.get("tool_choice") {
        let choice = required_object(choice, "tool_choice", &["type"], &["disable_parallel_tool_use"])?;
        one_of_words(&choice["type"], "tool_choice.type", &["auto", "none"])?;
        if tools.is_empty() {
            return Err("tool_choice: without tools".to_owned());
        }
    }
    let manual = validate_thinking(body.get("thinking"), max_tokens)?;
    if let Some(config) = body.get("output_config") {
        let config = required_object(config, "output_config", &["effort"], &[])?;
        one_of_words(&config["effort"], "output_config.effort", &["low", "medium", "high", "max"])?;
    }
    let messages = nonempty_list(&body["messages"], "messages")?;
    validate_conversation(messages, &mut marks, !tools.is_empty())?;
    if marks > MAX_CACHE_MARKS {
        return Err(format!("{marks} cache marks"));
    }
    if manual { validate_tool_loop(messages) } else { Ok(()) }
}

fn validate_tools(value: Option<&Value>, marks: &mut usize) -> Validation<HashSet<String>> {
    let mut names = HashSet::new();
    let Some(value) = value else { return Ok(names) };
    for (i, tool) in nonempty_list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = required_object(tool, &at, &["name", "input_schema"], &["description", "cache_control"])?;
        let name = validate_tool_name(&tool["name"], &at)?;
        if !names.insert(name.to_owned()) {
            return Err(format!("{at}: a second `{name}`"));
        }
        tool.get("description").map(|d| json_text(d, &at)).transpose()?;
        validate_schema(&tool["input_schema"], &format!("{at}.input_schema"))?;
        validate_cache_mark(tool.get("cache_control"), &at, marks)?;
    }
    Ok(names)
}

/// Returns whether thinking is on with a fixed budget.
fn validate_thinking(value: Option<&Value>, max_tokens: u64) -> Validation<bool> {
    let Some(value) = value else { return Ok(false) };
    match value["type"].as_str() {
        Some("enabled") => {
            let thinking = required_object(value, "thinking", &["type", "budget_tokens"], &["display"])?;
            if number_at_least(&thinking["budget_tokens"], "thinking.budget_tokens", 1_024)? >= max_tokens {
                return Err("thinking.budget_tokens: not less than max_tokens".to_owned());
            }
            Ok(true)
        }
        Some("adaptive") => required_object(value, "thinking", &["type"], &["display"]).map(|_| false),
        Some("disabled") => required_object(value, "thinking", &["type"], &[]).map(|_| false),
        _ => Err("thinking.type: unknown".to_owned()),
    }
}

fn validate_conversation(messages: &[Value], marks: &mut usize, has_tools: bool) -> Validation {
    let mut seen = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let message = required_object(message, &at, &["role", "content"], &[])?;
        let role = one_of_words(&message["role"], &at, &["user", "assistant"])?;
        if (role == "user") != i.is_multiple_of(2) {
            return Err(format!("{at}: `{role}` is not next"));
        }
        let content = nonempty_list(&message["content"], &at)?;
        if role == "user" {
            open = validate_user(content, &at, marks, open)?;
        } else {
            open = validate_assistant(content, &at, marks, &mut seen)?;
            if !open.is_empty() && !has_tools {
                return Err(format!("{at}: calls, but the request has no tools"));
            }
        }
    }
    if messages.len().is_multiple_of(2) {
        Err("the last message is the assistant's".to_owned())
    } else {
        Ok(())
    }
}

fn validate_user(
    content: &[Value],
    at: &str,
    marks: &mut usize,
    mut open: Vec<String>,
) -> Validation<Vec<String>> {
    let mut said = false;
    for (i, block) in content.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match block["type"].as_str() {
            Some("text") => validate_text_block(block, &at, marks)?,
            Some("image") => validate_image(block, &at, marks)?,
            Some("tool_result") => {
                if said {
                    return Err(format!("{at}: a result after other content"));
                }
                let optional = ["content", "is_error", "cache_control"];
                let result = required_object(block, &at, &["type", "tool_use_id"], &optional)?;
                let id = json_text(&result["tool_use_id"], &at)?;
                let place = open.iter().position(|call| call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is not an open call"))?);
                let failed = result.get("is_error").map(|e| json_bool(e, &at)).transpose()?;
                result.get("content").map(|c| validate_result(c, &at, failed == Some(true))).transpose()?;
                validate_cache_mark(result.get("cache_control"), &at, marks)?;
                continue;
            }
            other => return Err(format!("{at}: {other:?} in a user message")),
        }
        said = true;
    }
    match open.first() {
        Some(id) => Err(format!("{at}: no result for `{id}`")),
        None => Ok(open),
    }
}

/// Validates the result of a call: a text, or blocks of texts and images; only texts if it failed.
fn validate_result(content: &Value, at: &str, failed: bool) -> Validation {
    if content.is_string() {
        return nonblank_text(content, at).map(drop);
    }
    for (i, block) in nonempty_list(content, at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        if block.get("cache_control").is_some() {
            return Err(format!("{at}: a cache mark inside a result instead of on it"));
        }
        match block["type"].as_str() {
            Some("text") => validate_text_block(block, &at, &mut 0)?,
            Some("image") if failed => return Err(format!("{at}: an image in the result of a failure")),
            Some("image") => validate_image(block, &at, &mut 0)?,
            other => return Err(format!("{at}: {other:?} in a result")),
        }
    }
    Ok(())
}

fn validate_assistant(
    content: &[Value],
    at: &str,
    marks: &mut usize,
    seen: &mut HashSet<String>,
) -> Validation<Vec<String>> {
    let mut calls = Vec::new();
    for (i, block) in content.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        if !calls.is_empty() && block["type"] != "tool_use" {
            return Err(format!("{at}: after a call; its result would not follow it"));
        }
        match block["type"].as_str() {
            Some("text") => validate_text_block(block, &at, marks)?,
            Some("thinking") => {
                let block = required_object(block, &at, &["type", "thinking", "signature"], &[])?;
                json_text(&block["thinking"], &at)?;
                nonblank_text(&block["signature"], &format!("{at}.signature"))?;
            }
            Some("redacted_thinking") => {
                let block = required_object(block, &at, &["type", "data"], &[])?;
                nonblank_text(&block["data"], &at)?;
            }
            Some("tool_use") => {
                let block =
                    required_object(block, &at, &["type", "id", "name", "input"], &["cache_control"])?;
                let id = validate_tool_name(&block["id"], &at)?;
                validate_tool_name(&block["name"], &at)?;
                if !block["input"].is_object() {
                    return Err(format!("{at}.input: not an object"));
                }
                if !seen.insert(id.to_owned()) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
                validate_cache_mark(block.get("cache_control"), &at, marks)?;
                calls.push(id.to_owned());
            }
            other => return Err(format!("{at}: {other:?} in an assistant message")),
        }
    }
    match content.last().and_then(|block| block["type"].as_str()) {
        Some("thinking" | "redacted_thinking") => Err(format!("{at}: ends with a thought")),
        _ => Ok(calls),
    }
}

fn validate_text_block(block: &Value, at: &str, marks: &mut usize) -> Validation {
    let block = required_object(block, at, &["type", "text"], &["cache_control"])?;
    one_of_words(&block["type"], at, &["text"])?;
    nonblank_text(&block["text"], at)?;
    validate_cache_mark(block.get("cache_control"), at, marks)
}

fn validate_image(block: &Value, at: &str, marks: &mut usize) -> Validation {
    let block = required_object(block, at, &["type", "source"], &["cache_control"])?;
    let source = required_object(&block["source"], at, &["type", "media_type", "data"], &[])?;
    one_of_words(&source["type"], at, &["base64"])?;
    one_of_words(&source["media_type"], at, &["image/png", "image/jpeg", "image/gif", "image/webp"])?;
    validate_base64(&source["data"], at, 5_242_880)?;
    validate_cache_mark(block.get("cache_control"), at, marks)
}

fn validate_cache_mark(value: Option<&Value>, at: &str, marks: &mut usize) -> Validation {
    let Some(value) = value else { return Ok(()) };
    *marks += 1;
    let mark = required_object(value, at, &["type"], &["ttl"])?;
    one_of_words(&mark["type"], at, &["ephemeral"]).map(drop)
}

/// With thinking on, the open tool loop must contain the thought at its start.
fn validate_tool_loop(messages: &[Value]) -> Validation {
    let has_results = |message: &Value| {
        message["content"].as_array().is_some_and(|c| c.iter().any(|block| block["type"] == "tool_result"))
    };
    let began = messages.iter().rposition(|m| m["role"] == "user" && !has_results(m)).map_or(0, |at| at + 1);
    let Some(first) = messages[began..].iter().find(|m| m["role"] == "assistant") else { return Ok(()) };
    match first["content"][0]["type"].as_str() {
        Some("thinking" | "redacted_thinking") => Ok(()),
        _ => Err("thinking is on, but the open tool loop does not begin with a thought".to_owned()),
    }
}
