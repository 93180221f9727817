//! The Responses API with `store: false`.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    Verdict, arguments, call_id, data_url, flag, list, number, object, one_of, schema, text, tool_name, words,
};

pub(crate) fn validate(request: &Value) -> Verdict {
    let optional = [
        "stream",
        "store",
        "include",
        "max_output_tokens",
        "reasoning",
        "prompt_cache_key",
        "instructions",
        "tools",
        "parallel_tool_calls",
    ];
    let body = object(request, "request", &["model", "input"], &optional)?;
    words(&body["model"], "model")?;
    for key in ["stream", "store", "parallel_tool_calls"] {
        body.get(key).map(|value| flag(value, key)).transpose()?;
    }
    body.get("max_output_tokens").map(|value| number(value, "max_output_tokens", 16)).transpose()?;
    for key in ["prompt_cache_key", "instructions"] {
        body.get(key).map(|value| words(value, key)).transpose()?;
    }
    let encrypted = match body.get("include") {
        Some(include) => {
            for (i, what) in list(include, "include")?.iter().enumerate() {
                one_of(what, &format!("include[{i}]"), &["reasoning.encrypted_content"])?;
            }
            true
        }
        None => false,
    };
    if encrypted && body.get("store") != Some(&Value::Bool(false)) {
        return Err("store: encrypted reasoning is for requests that are not stored".to_owned());
    }
    if let Some(reasoning) = body.get("reasoning") {
        let reasoning = object(reasoning, "reasoning", &[], &["effort", "summary"])?;
        let efforts = ["none", "minimal", "low", "medium", "high", "xhigh"];
        reasoning.get("effort").map(|effort| one_of(effort, "reasoning.effort", &efforts)).transpose()?;
        let summaries = ["auto", "concise", "detailed"];
        reasoning.get("summary").map(|s| one_of(s, "reasoning.summary", &summaries)).transpose()?;
    }
    let has_tools = tools(body.get("tools"))?;
    if body.contains_key("parallel_tool_calls") && !has_tools {
        return Err("parallel_tool_calls: without tools".to_owned());
    }
    input(list(&body["input"], "input")?, encrypted, has_tools)
}

fn tools(value: Option<&Value>) -> Verdict<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut names = HashSet::new();
    for (i, tool) in list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = object(tool, &at, &["type", "name", "parameters", "strict"], &["description"])?;
        one_of(&tool["type"], &at, &["function"])?;
        if !names.insert(tool_name(&tool["name"], &at)?) {
            return Err(format!("{at}: a second one of that name"));
        }
        flag(&tool["strict"], &at)?;
        tool.get("description").map(|d| text(d, &at)).transpose()?;
        schema(&tool["parameters"], &at)?;
    }
    Ok(true)
}

/// Who speaks with an item.
#[derive(PartialEq)]
enum Who {
    Other,
    Model,
    Thought,
    Output,
}

fn input(items: &[Value], encrypted: bool, has_tools: bool) -> Verdict {
    let mut seen = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut before = Who::Other;
    for (i, item) in items.iter().enumerate() {
        let at = format!("input[{i}]");
        let waiting = open.len();
        let who = match item["type"].as_str() {
            Some("message") => message(item, &at)?,
            Some("reasoning") => reasoning(item, &at, encrypted)?,
            Some("function_call") => {
                let call = object(item, &at, &["type", "call_id", "name", "arguments"], &[])?;
                let id = call_id(&call["call_id"], &at, 64)?;
                tool_name(&call["name"], &at)?;
                arguments(&call["arguments"], &at)?;
                if !seen.insert(id) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
                if !has_tools {
                    return Err(format!("{at}: a call, but the request has no tools"));
                }
                open.push(id);
                Who::Model
            }
            Some("function_call_output") => {
                let output = object(item, &at, &["type", "call_id", "output"], &[])?;
                given(&output["output"], &format!("{at}.output"))?;
                let id = text(&output["call_id"], &at)?;
                let place = open.iter().position(|call| *call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is no open call"))?);
                Who::Output
            }
            other => return Err(format!("{at}: {other:?} is no kind of item")),
        };
        if before == Who::Thought && !matches!(who, Who::Thought | Who::Model) {
            return Err(format!("{at}: reasoning without the item that it led to"));
        }
        // A text after a call ends the reply for some servers, and the call's output is missed.
        let speaks = who == Who::Other || item["role"] == "assistant";
        if waiting > 0 && (speaks || (before == Who::Output && who != Who::Output)) {
            return Err(format!("{at}: {waiting} calls wait for their results"));
        }
        before = who;
    }
    if let Some(id) = open.first() {
        return Err(format!("no result for `{id}`"));
    }
    if matches!(before, Who::Other | Who::Output) {
        Ok(())
    } else {
        Err("the last item is the model's".to_owned())
    }
}

fn message(item: &Value, at: &str) -> Verdict<Who> {
    let message = object(item, at, &["type", "role", "content"], &[])?;
    let role = one_of(&message["role"], at, &["user", "developer", "assistant"])?;
    for (i, part) in list(&message["content"], at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match (role, part["type"].as_str()) {
            ("user" | "developer", Some("input_text")) | ("assistant", Some("output_text")) => {
                let part = object(part, &at, &["type", "text"], &[])?;
                words(&part["text"], &at)?;
            }
            ("user", Some("input_image")) => image(part, &at)?,
            (role, other) => return Err(format!("{at}: {other:?} in a message of {role}")),
        }
    }
    Ok(if role == "assistant" { Who::Model } else { Who::Other })
}

fn image(part: &Value, at: &str) -> Verdict {
    let part = object(part, at, &["type", "image_url"], &["detail"])?;
    data_url(&part["image_url"], at)?;
    part.get("detail").map(|d| one_of(d, at, &["auto", "low", "high"])).transpose()?;
    Ok(())
}

/// What a call gave: a text, or a list of texts and images.
fn given(output: &Value, at: &str) -> Verdict {
    if output.is_string() {
        return Ok(());
    }
    for (i, part) in list(output, at)?.iter().enumerate() {
        let at = format!("{at}[{i}]");
        match part["type"].as_str() {
            Some("input_text") => {
                let part = object(part, &at, &["type", "text"], &[])?;
                words(&part["text"], &at)?;
            }
            Some("input_image") => image(part, &at)?,
            other => return Err(format!("{at}: {other:?} in an output")),
        }
    }
    Ok(())
}

fn reasoning(item: &Value, at: &str, encrypted: bool) -> Verdict<Who> {
    let item = object(item, at, &["type", "summary"], &["encrypted_content", "content"])?;
    let summary = item["summary"].as_array().ok_or_else(|| format!("{at}.summary: not a list"))?;
    for (i, part) in summary.iter().enumerate() {
        let at = format!("{at}.summary[{i}]");
        let part = object(part, &at, &["type", "text"], &[])?;
        one_of(&part["type"], &at, &["summary_text"])?;
        text(&part["text"], &at)?;
    }
    match (item.get("encrypted_content"), item.get("content")) {
        (Some(content), None) => {
            words(content, &format!("{at}.encrypted_content"))?;
            if !encrypted {
                return Err(format!("{at}: encrypted, but `include` does not ask for it"));
            }
        }
        (None, Some(content)) => {
            for part in list(content, at)? {
                let part = object(part, at, &["type", "text"], &[])?;
                one_of(&part["type"], at, &["reasoning_text"])?;
                words(&part["text"], at)?;
            }
        }
        _ => return Err(format!("{at}: neither encrypted nor open, or both")),
    }
    Ok(Who::Thought)
}
