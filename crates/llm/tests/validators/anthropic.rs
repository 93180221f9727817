//! The Messages API.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, base64, flag, list, number, object, one_of, schema, text, tool_name, words};

const MOST_MARKS: usize = 4;

pub(crate) fn validate(request: &Value) -> Verdict {
    let optional = ["stream", "system", "tools", "tool_choice", "thinking", "output_config"];
    let body = object(request, "request", &["model", "max_tokens", "messages"], &optional)?;
    words(&body["model"], "model")?;
    let max_tokens = number(&body["max_tokens"], "max_tokens", 1)?;
    body.get("stream").map(|stream| flag(stream, "stream")).transpose()?;
    let mut marks = 0;
    for (i, block) in body
        .get("system")
        .map(|system| list(system, "system"))
        .transpose()?
        .iter()
        .flat_map(|s| s.iter())
        .enumerate()
    {
        text_block(block, &format!("system[{i}]"), &mut marks)?;
    }
    let tools = tools(body.get("tools"), &mut marks)?;
    if let Some(choice) = body.get("tool_choice") {
        let choice = object(choice, "tool_choice", &["type"], &["disable_parallel_tool_use"])?;
        one_of(&choice["type"], "tool_choice.type", &["auto", "none"])?;
        if tools.is_empty() {
            return Err("tool_choice: without tools".to_owned());
        }
    }
    let manual = thinking(body.get("thinking"), max_tokens)?;
    if let Some(config) = body.get("output_config") {
        let config = object(config, "output_config", &["effort"], &[])?;
        one_of(&config["effort"], "output_config.effort", &["low", "medium", "high", "max"])?;
    }
    let messages = list(&body["messages"], "messages")?;
    conversation(messages, &mut marks, !tools.is_empty())?;
    if marks > MOST_MARKS {
        return Err(format!("{marks} cache marks"));
    }
    if manual { loop_begins_with_thought(messages) } else { Ok(()) }
}

fn tools(value: Option<&Value>, marks: &mut usize) -> Verdict<HashSet<String>> {
    let mut names = HashSet::new();
    let Some(value) = value else { return Ok(names) };
    for (i, tool) in list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = object(tool, &at, &["name", "input_schema"], &["description", "cache_control"])?;
        let name = tool_name(&tool["name"], &at)?;
        if !names.insert(name.to_owned()) {
            return Err(format!("{at}: a second `{name}`"));
        }
        tool.get("description").map(|d| text(d, &at)).transpose()?;
        schema(&tool["input_schema"], &format!("{at}.input_schema"))?;
        mark(tool.get("cache_control"), &at, marks)?;
    }
    Ok(names)
}

/// Gives whether thinking is on and bounded by us.
fn thinking(value: Option<&Value>, max_tokens: u64) -> Verdict<bool> {
    let Some(value) = value else { return Ok(false) };
    match value["type"].as_str() {
        Some("enabled") => {
            let thinking = object(value, "thinking", &["type", "budget_tokens"], &["display"])?;
            if number(&thinking["budget_tokens"], "thinking.budget_tokens", 1_024)? >= max_tokens {
                return Err("thinking.budget_tokens: not less than max_tokens".to_owned());
            }
            Ok(true)
        }
        Some("adaptive") => object(value, "thinking", &["type"], &["display"]).map(|_| false),
        Some("disabled") => object(value, "thinking", &["type"], &[]).map(|_| false),
        _ => Err("thinking.type: unknown".to_owned()),
    }
}

fn conversation(messages: &[Value], marks: &mut usize, has_tools: bool) -> Verdict {
    let mut seen = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let message = object(message, &at, &["role", "content"], &[])?;
        let role = one_of(&message["role"], &at, &["user", "assistant"])?;
        if (role == "user") != i.is_multiple_of(2) {
            return Err(format!("{at}: `{role}` is not next"));
        }
        let content = list(&message["content"], &at)?;
        if role == "user" {
            open = user(content, &at, marks, open)?;
        } else {
            open = assistant(content, &at, marks, &mut seen)?;
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

fn user(content: &[Value], at: &str, marks: &mut usize, mut open: Vec<String>) -> Verdict<Vec<String>> {
    let mut said = false;
    for (i, block) in content.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match block["type"].as_str() {
            Some("text") => text_block(block, &at, marks)?,
            Some("image") => image(block, &at, marks)?,
            Some("tool_result") => {
                if said {
                    return Err(format!("{at}: a result after other content"));
                }
                let optional = ["content", "is_error", "cache_control"];
                let result = object(block, &at, &["type", "tool_use_id"], &optional)?;
                let id = text(&result["tool_use_id"], &at)?;
                let place = open.iter().position(|call| call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is no open call"))?);
                let failed = result.get("is_error").map(|e| flag(e, &at)).transpose()?;
                result.get("content").map(|c| given(c, &at, failed == Some(true))).transpose()?;
                mark(result.get("cache_control"), &at, marks)?;
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

/// What a call gave: a text, or blocks of texts and images; nothing but texts if it failed.
fn given(content: &Value, at: &str, failed: bool) -> Verdict {
    if content.is_string() {
        return words(content, at).map(drop);
    }
    for (i, block) in list(content, at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        if block.get("cache_control").is_some() {
            return Err(format!("{at}: a mark inside a result, not on it"));
        }
        match block["type"].as_str() {
            Some("text") => text_block(block, &at, &mut 0)?,
            Some("image") if failed => return Err(format!("{at}: an image in the result of a failure")),
            Some("image") => image(block, &at, &mut 0)?,
            other => return Err(format!("{at}: {other:?} in a result")),
        }
    }
    Ok(())
}

fn assistant(
    content: &[Value],
    at: &str,
    marks: &mut usize,
    seen: &mut HashSet<String>,
) -> Verdict<Vec<String>> {
    let mut calls = Vec::new();
    for (i, block) in content.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        if !calls.is_empty() && block["type"] != "tool_use" {
            return Err(format!("{at}: after a call; its result would not follow it"));
        }
        match block["type"].as_str() {
            Some("text") => text_block(block, &at, marks)?,
            Some("thinking") => {
                let block = object(block, &at, &["type", "thinking", "signature"], &[])?;
                text(&block["thinking"], &at)?;
                words(&block["signature"], &format!("{at}.signature"))?;
            }
            Some("redacted_thinking") => {
                let block = object(block, &at, &["type", "data"], &[])?;
                words(&block["data"], &at)?;
            }
            Some("tool_use") => {
                let block = object(block, &at, &["type", "id", "name", "input"], &["cache_control"])?;
                let id = tool_name(&block["id"], &at)?;
                tool_name(&block["name"], &at)?;
                if !block["input"].is_object() {
                    return Err(format!("{at}.input: not an object"));
                }
                if !seen.insert(id.to_owned()) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
                mark(block.get("cache_control"), &at, marks)?;
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

fn text_block(block: &Value, at: &str, marks: &mut usize) -> Verdict {
    let block = object(block, at, &["type", "text"], &["cache_control"])?;
    one_of(&block["type"], at, &["text"])?;
    words(&block["text"], at)?;
    mark(block.get("cache_control"), at, marks)
}

fn image(block: &Value, at: &str, marks: &mut usize) -> Verdict {
    let block = object(block, at, &["type", "source"], &["cache_control"])?;
    let source = object(&block["source"], at, &["type", "media_type", "data"], &[])?;
    one_of(&source["type"], at, &["base64"])?;
    one_of(&source["media_type"], at, &["image/png", "image/jpeg", "image/gif", "image/webp"])?;
    base64(&source["data"], at, 5_242_880)?;
    mark(block.get("cache_control"), at, marks)
}

fn mark(value: Option<&Value>, at: &str, marks: &mut usize) -> Verdict {
    let Some(value) = value else { return Ok(()) };
    *marks += 1;
    let mark = object(value, at, &["type"], &["ttl"])?;
    one_of(&mark["type"], at, &["ephemeral"]).map(drop)
}

/// With thinking on, the tool loop that is still open must show the thought with which it began.
fn loop_begins_with_thought(messages: &[Value]) -> Verdict {
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
