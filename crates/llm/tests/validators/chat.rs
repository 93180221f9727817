//! Validates chat completions: the rules of OpenAI and of the strictest compatible server.

use std::collections::HashSet;

use minke_llm::ProviderQuirks;
use serde_json::Value;

use super::{
    Validation, json_bool, json_text, nonblank_text, nonempty_list, number_at_least, one_of_words,
    required_object, validate_arguments, validate_call_id, validate_data_url, validate_schema,
    validate_tool_name,
};

pub(crate) fn validate_request(request: &Value, quirks: &ProviderQuirks) -> Validation {
    let optional = [
        "stream",
        "stream_options",
        quirks.max_tokens_field.as_str(),
        "reasoning_effort",
        "tools",
        "parallel_tool_calls",
    ];
    let body = required_object(request, "request", &["model", "messages"], &optional)?;
    nonblank_text(&body["model"], "model")?;
    let streams = body.get("stream").map(|stream| json_bool(stream, "stream")).transpose()?.unwrap_or(false);
    if let Some(options) = body.get("stream_options") {
        let options = required_object(options, "stream_options", &["include_usage"], &[])?;
        json_bool(&options["include_usage"], "stream_options")?;
        if !streams {
            return Err("stream_options: without stream".to_owned());
        }
    }
    body.get(&quirks.max_tokens_field).map(|tokens| number_at_least(tokens, "max tokens", 1)).transpose()?;
    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh"];
    body.get("reasoning_effort")
        .map(|effort| one_of_words(effort, "reasoning_effort", &efforts))
        .transpose()?;
    let has_tools = validate_tools(body.get("tools"))?;
    if let Some(parallel) = body.get("parallel_tool_calls") {
        json_bool(parallel, "parallel_tool_calls")?;
        if !has_tools {
            return Err("parallel_tool_calls: without tools".to_owned());
        }
    }
    validate_conversation(nonempty_list(&body["messages"], "messages")?, quirks, has_tools)
}

fn validate_tools(value: Option<&Value>) -> Validation<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut names = HashSet::new();
    for (i, tool) in nonempty_list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = required_object(tool, &at, &["type", "function"], &[])?;
        one_of_words(&tool["type"], &at, &["function"])?;
        let function = required_object(&tool["function"], &at, &["name", "parameters"], &["description"])?;
        if !names.insert(validate_tool_name(&function["name"], &at)?) {
            return Err(format!("{at}: a second one of that name"));
        }
        function.get("description").map(|d| json_text(d, &at)).transpose()?;
        validate_schema(&function["parameters"], &at)?;
    }
    Ok(true)
}

fn validate_conversation(messages: &[Value], quirks: &ProviderQuirks, has_tools: bool) -> Validation {
    let mut seen = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    let mut began = false;
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let role = json_text(&message["role"], &at)?;
        if role != "tool" && !open.is_empty() {
            return Err(format!("{at}: {} calls wait for their results", open.len()));
        }
        match role {
            "system" | "developer" => {
                let message = required_object(message, &at, &["role", "content"], &[])?;
                nonblank_text(&message["content"], &at)?;
                if i > 0 && quirks.notice_role == "user" {
                    return Err(format!("{at}: a system message in mid-history"));
                }
            }
            "user" => validate_user(message, &at)?,
            "assistant" => {
                open = validate_assistant(message, &at, quirks)?;
                if !open.is_empty() && !has_tools {
                    return Err(format!("{at}: calls, but the request has no tools"));
                }
                if let Some(id) = open.iter().find(|id| !seen.insert((*id).clone())) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
            }
            "tool" => {
                let message = required_object(message, &at, &["role", "tool_call_id", "content"], &[])?;
                json_text(&message["content"], &at)?;
                let id = json_text(&message["tool_call_id"], &at)?;
                let place = open.iter().position(|call| call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is not an open call"))?);
            }
            other => return Err(format!("{at}: `{other}` is not a role")),
        }
        if matches!(role, "user" | "assistant") && role == before {
            return Err(format!("{at}: `{role}` twice in a row"));
        }
        if role == "assistant" && !began {
            return Err(format!("{at}: the assistant message is first"));
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

fn validate_user(message: &Value, at: &str) -> Validation {
    let message = required_object(message, at, &["role", "content"], &[])?;
    if message["content"].is_string() {
        return nonblank_text(&message["content"], at).map(drop);
    }
    for (i, part) in nonempty_list(&message["content"], at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match part["type"].as_str() {
            Some("text") => {
                let part = required_object(part, &at, &["type", "text"], &[])?;
                nonblank_text(&part["text"], &at)?;
            }
            Some("image_url") => {
                let part = required_object(part, &at, &["type", "image_url"], &[])?;
                let image = required_object(&part["image_url"], &at, &["url"], &["detail"])?;
                validate_data_url(&image["url"], &at)?;
            }
            other => return Err(format!("{at}: {other:?} in a user message")),
        }
    }
    Ok(())
}

fn validate_assistant(message: &Value, at: &str, quirks: &ProviderQuirks) -> Validation<Vec<String>> {
    let optional = ["content", "tool_calls", quirks.reasoning_field.as_str()];
    let message = required_object(message, at, &["role"], &optional)?;
    match message.get("content") {
        None | Some(Value::Null) if message.contains_key("tool_calls") => {}
        Some(content @ Value::String(_)) => nonblank_text(content, at).map(drop)?,
        _ => return Err(format!("{at}: neither a text nor calls")),
    }
    if let Some(reasoning) = message.get(&quirks.reasoning_field) {
        if quirks.reasoning_field == "reasoning_details" {
            if !nonempty_list(reasoning, at)?.iter().all(Value::is_object) {
                return Err(format!("{at}: reasoning_details are objects"));
            }
        } else {
            json_text(reasoning, at)?;
        }
    }
    let Some(calls) = message.get("tool_calls") else { return Ok(Vec::new()) };
    let mut ids = Vec::new();
    for (i, call) in nonempty_list(calls, at)?.iter().enumerate() {
        let at = format!("{at}.tool_calls[{i}]");
        let call = required_object(call, &at, &["id", "type", "function"], &[])?;
        one_of_words(&call["type"], &at, &["function"])?;
        let id = validate_call_id(&call["id"], &at, 40)?;
        if let Some(count) = quirks.call_id_chars
            && (id.len() != count as usize || !id.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            return Err(format!("{at}: `{id}` is not {count} letters and digits"));
        }
        let function = required_object(&call["function"], &at, &["name", "arguments"], &[])?;
        validate_tool_name(&function["name"], &at)?;
        validate_arguments(&function["arguments"], &at)?;
        ids.push(id.to_owned());
    }
    Ok(ids)
}
