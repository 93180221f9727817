//! Chat completions: what OpenAI takes, and the strictest of the servers that speak like it.

use std::collections::HashSet;

use minke_llm::Quirks;
use serde_json::Value;

use super::{
    Verdict, arguments, call_id, data_url, flag, list, number, object, one_of, schema, text, tool_name, words,
};

pub(crate) fn validate(request: &Value, quirks: &Quirks) -> Verdict {
    let optional = [
        "stream",
        "stream_options",
        quirks.max_tokens_field.as_str(),
        "reasoning_effort",
        "tools",
        "parallel_tool_calls",
    ];
    let body = object(request, "request", &["model", "messages"], &optional)?;
    words(&body["model"], "model")?;
    let streams = body.get("stream").map(|stream| flag(stream, "stream")).transpose()?.unwrap_or(false);
    if let Some(options) = body.get("stream_options") {
        let options = object(options, "stream_options", &["include_usage"], &[])?;
        flag(&options["include_usage"], "stream_options")?;
        if !streams {
            return Err("stream_options: without stream".to_owned());
        }
    }
    body.get(&quirks.max_tokens_field).map(|tokens| number(tokens, "max tokens", 1)).transpose()?;
    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh"];
    body.get("reasoning_effort").map(|effort| one_of(effort, "reasoning_effort", &efforts)).transpose()?;
    let has_tools = tools(body.get("tools"))?;
    if let Some(parallel) = body.get("parallel_tool_calls") {
        flag(parallel, "parallel_tool_calls")?;
        if !has_tools {
            return Err("parallel_tool_calls: without tools".to_owned());
        }
    }
    conversation(list(&body["messages"], "messages")?, quirks, has_tools)
}

fn tools(value: Option<&Value>) -> Verdict<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut names = HashSet::new();
    for (i, tool) in list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = object(tool, &at, &["type", "function"], &[])?;
        one_of(&tool["type"], &at, &["function"])?;
        let function = object(&tool["function"], &at, &["name", "parameters"], &["description"])?;
        if !names.insert(tool_name(&function["name"], &at)?) {
            return Err(format!("{at}: a second one of that name"));
        }
        function.get("description").map(|d| text(d, &at)).transpose()?;
        schema(&function["parameters"], &at)?;
    }
    Ok(true)
}

fn conversation(messages: &[Value], quirks: &Quirks, has_tools: bool) -> Verdict {
    let mut seen = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    let mut began = false;
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let role = text(&message["role"], &at)?;
        if role != "tool" && !open.is_empty() {
            return Err(format!("{at}: {} calls wait for their results", open.len()));
        }
        match role {
            "system" | "developer" => {
                let message = object(message, &at, &["role", "content"], &[])?;
                words(&message["content"], &at)?;
                if i > 0 && quirks.notice_role == "user" {
                    return Err(format!("{at}: a system message in mid-history"));
                }
            }
            "user" => user(message, &at)?,
            "assistant" => {
                open = assistant(message, &at, quirks)?;
                if !open.is_empty() && !has_tools {
                    return Err(format!("{at}: calls, but the request has no tools"));
                }
                if let Some(id) = open.iter().find(|id| !seen.insert((*id).clone())) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
            }
            "tool" => {
                let message = object(message, &at, &["role", "tool_call_id", "content"], &[])?;
                text(&message["content"], &at)?;
                let id = text(&message["tool_call_id"], &at)?;
                let place = open.iter().position(|call| call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is no open call"))?);
            }
            other => return Err(format!("{at}: `{other}` is no role")),
        }
        if matches!(role, "user" | "assistant") && role == before {
            return Err(format!("{at}: `{role}` twice in a row"));
        }
        if role == "assistant" && !began {
            return Err(format!("{at}: the assistant speaks first"));
        }
        if quirks.reply_after_results && before == "tool" && !matches!(role, "tool" | "assistant") {
            return Err(format!("{at}: `{role}` directly after results"));
        }
        began |= role == "user";
        before = role;
    }
    if let Some(id) = open.first() {
        return Err(format!("no result for `{id}`"));
    }
    match before {
        "user" | "tool" => Ok(()),
        role if role == quirks.notice_role => Ok(()),
        other => Err(format!("the last message is of `{other}`")),
    }
}

fn user(message: &Value, at: &str) -> Verdict {
    let message = object(message, at, &["role", "content"], &[])?;
    if message["content"].is_string() {
        return words(&message["content"], at).map(drop);
    }
    for (i, part) in list(&message["content"], at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match part["type"].as_str() {
            Some("text") => {
                let part = object(part, &at, &["type", "text"], &[])?;
                words(&part["text"], &at)?;
            }
            Some("image_url") => {
                let part = object(part, &at, &["type", "image_url"], &[])?;
                let image = object(&part["image_url"], &at, &["url"], &["detail"])?;
                data_url(&image["url"], &at)?;
            }
            other => return Err(format!("{at}: {other:?} in a user message")),
        }
    }
    Ok(())
}

fn assistant(message: &Value, at: &str, quirks: &Quirks) -> Verdict<Vec<String>> {
    let optional = ["content", "tool_calls", quirks.reasoning_field.as_str()];
    let message = object(message, at, &["role"], &optional)?;
    match message.get("content") {
        None | Some(Value::Null) if message.contains_key("tool_calls") => {}
        Some(content @ Value::String(_)) => words(content, at).map(drop)?,
        _ => return Err(format!("{at}: neither a text nor calls")),
    }
    if let Some(reasoning) = message.get(&quirks.reasoning_field) {
        if quirks.reasoning_field == "reasoning_details" {
            if !list(reasoning, at)?.iter().all(Value::is_object) {
                return Err(format!("{at}: reasoning_details are objects"));
            }
        } else {
            text(reasoning, at)?;
        }
    }
    let Some(calls) = message.get("tool_calls") else { return Ok(Vec::new()) };
    let mut ids = Vec::new();
    for (i, call) in list(calls, at)?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{i}]");
        let call = object(call, &at, &["id", "type", "function"], &[])?;
        one_of(&call["type"], &at, &["function"])?;
        let id = call_id(&call["id"], &at, 40)?;
        if let Some(count) = quirks.call_id_chars
            && (id.len() != count as usize || !id.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            return Err(format!("{at}: `{id}` is not {count} letters and digits"));
        }
        let function = object(&call["function"], &at, &["name", "arguments"], &[])?;
        tool_name(&function["name"], &at)?;
        arguments(&function["arguments"], &at)?;
        ids.push(id.to_owned());
    }
    Ok(ids)
}
