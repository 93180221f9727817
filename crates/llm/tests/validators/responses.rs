//! Validates requests of the Responses API with `store: false`.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    Validation, json_bool, json_text, nonblank_text, nonempty_list, number_at_least, one_of_words,
    required_object, validate_arguments, validate_call_id, validate_data_url, validate_schema,
    validate_tool_name,
};

pub(crate) fn validate_request(request: &Value) -> Validation {
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
    let body = required_object(request, "request", &["model", "input"], &optional)?;
    nonblank_text(&body["model"], "model")?;
    for key in ["stream", "store", "parallel_tool_calls"] {
        body.get(key).map(|value| json_bool(value, key)).transpose()?;
    }
    body.get("max_output_tokens").map(|value| number_at_least(value, "max_output_tokens", 16)).transpose()?;
    for key in ["prompt_cache_key", "instructions"] {
        body.get(key).map(|value| nonblank_text(value, key)).transpose()?;
    }
    let encrypted = match body.get("include") {
        Some(include) => {
            for (i, what) in nonempty_list(include, "include")?.iter().enumerate() {
                one_of_words(what, &format!("include[{i}]"), &["reasoning.encrypted_content"])?;
            }
            true
        }
        None => false,
    };
    if encrypted && body.get("store") != Some(&Value::Bool(false)) {
        return Err("store: encrypted reasoning is for requests that are not stored".to_owned());
    }
    if let Some(reasoning) = body.get("reasoning") {
        let reasoning = required_object(reasoning, "reasoning", &[], &["effort", "summary"])?;
        let efforts = ["none", "minimal", "low", "medium", "high", "xhigh"];
        reasoning
            .get("effort")
            .map(|effort| one_of_words(effort, "reasoning.effort", &efforts))
            .transpose()?;
        let summaries = ["auto", "concise", "detailed"];
        reasoning.get("summary").map(|s| one_of_words(s, "reasoning.summary", &summaries)).transpose()?;
    }
    let has_tools = validate_tools(body.get("tools"))?;
    if body.contains_key("parallel_tool_calls") && !has_tools {
        return Err("parallel_tool_calls: without tools".to_owned());
    }
    validate_input(nonempty_list(&body["input"], "input")?, encrypted, has_tools)
}

fn validate_tools(value: Option<&Value>) -> Validation<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut names = HashSet::new();
    for (i, tool) in nonempty_list(value, "tools")?.iter().enumerate() {
        let at = format!("tools[{i}]");
        let tool = required_object(tool, &at, &["type", "name", "parameters", "strict"], &["description"])?;
        one_of_words(&tool["type"], &at, &["function"])?;
        if !names.insert(validate_tool_name(&tool["name"], &at)?) {
            return Err(format!("{at}: a second one of that name"));
        }
        json_bool(&tool["strict"], &at)?;
        tool.get("description").map(|d| json_text(d, &at)).transpose()?;
        validate_schema(&tool["parameters"], &at)?;
    }
    Ok(true)
}

/// The role of an item.
#[derive(PartialEq)]
enum ItemRole {
    Other,
    Model,
    Thought,
    Output,
}

fn validate_input(items: &[Value], encrypted: bool, has_tools: bool) -> Validation {
    let mut seen = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut before = ItemRole::Other;
    for (i, item) in items.iter().enumerate() {
        let at = format!("input[{i}]");
        let waiting = open.len();
        let who = match item["type"].as_str() {
            Some("message") => validate_message(item, &at)?,
            Some("reasoning") => validate_reasoning(item, &at, encrypted)?,
            Some("function_call") => {
                let call = required_object(item, &at, &["type", "call_id", "name", "arguments"], &[])?;
                let id = validate_call_id(&call["call_id"], &at, 64)?;
                validate_tool_name(&call["name"], &at)?;
                validate_arguments(&call["arguments"], &at)?;
                if !seen.insert(id) {
                    return Err(format!("{at}: `{id}` was used before"));
                }
                if !has_tools {
                    return Err(format!("{at}: a call, but the request has no tools"));
                }
                open.push(id);
                ItemRole::Model
            }
            Some("function_call_output") => {
                let output = required_object(item, &at, &["type", "call_id", "output"], &[])?;
                validate_output(&output["output"], &format!("{at}.output"))?;
                let id = json_text(&output["call_id"], &at)?;
                let place = open.iter().position(|call| *call == id);
                open.remove(place.ok_or_else(|| format!("{at}: `{id}` is not an open call"))?);
                ItemRole::Output
            }
            other => return Err(format!("{at}: {other:?} is not an item type")),
        };
        if before == ItemRole::Thought && !matches!(who, ItemRole::Thought | ItemRole::Model) {
            return Err(format!("{at}: reasoning without its following item"));
        }
        // Some servers treat a text after a call as the end of the reply and miss the output of the call.
        let speaks = who == ItemRole::Other || item["role"] == "assistant";
        if waiting > 0 && (speaks || (before == ItemRole::Output && who != ItemRole::Output)) {
            return Err(format!("{at}: {waiting} calls wait for their results"));
        }
        before = who;
    }
    if let Some(id) = open.first() {
        return Err(format!("no result for `{id}`"));
    }
    if matches!(before, ItemRole::Other | ItemRole::Output) {
        Ok(())
    } else {
        Err("the last item is the model's".to_owned())
    }
}

fn validate_message(item: &Value, at: &str) -> Validation<ItemRole> {
    let message = required_object(item, at, &["type", "role", "content"], &[])?;
    let role = one_of_words(&message["role"], at, &["user", "developer", "assistant"])?;
    for (i, part) in nonempty_list(&message["content"], at)?.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        match (role, part["type"].as_str()) {
            ("user" | "developer", Some("input_text")) | ("assistant", Some("output_text")) => {
                let part = required_object(part, &at, &["type", "text"], &[])?;
                nonblank_text(&part["text"], &at)?;
            }
            ("user", Some("input_image")) => validate_image(part, &at)?,
            (role, other) => return Err(format!("{at}: {other:?} in a message of {role}")),
        }
    }
    Ok(if role == "assistant" { ItemRole::Model } else { ItemRole::Other })
}

fn validate_image(part: &Value, at: &str) -> Validation {
    let part = required_object(part, at, &["type", "image_url"], &["detail"])?;
    validate_data_url(&part["image_url"], at)?;
    part.get("detail").map(|d| one_of_words(d, at, &["auto", "low", "high"])).transpose()?;
    Ok(())
}

/// Validates the output of a call: a text, or a list of texts and images.
fn validate_output(output: &Value, at: &str) -> Validation {
    if output.is_string() {
        return Ok(());
    }
    for (i, part) in nonempty_list(output, at)?.iter().enumerate() {
        let at = format!("{at}[{i}]");
        match part["type"].as_str() {
            Some("input_text") => {
                let part = required_object(part, &at, &["type", "text"], &[])?;
                nonblank_text(&part["text"], &at)?;
            }
            Some("input_image") => validate_image(part, &at)?,
            other => return Err(format!("{at}: {other:?} in an output")),
        }
    }
    Ok(())
}

fn validate_reasoning(item: &Value, at: &str, encrypted: bool) -> Validation<ItemRole> {
    let item = required_object(item, at, &["type", "summary"], &["encrypted_content", "content"])?;
    let summary = item["summary"].as_array().ok_or_else(|| format!("{at}.summary: not a list"))?;
    for (i, part) in summary.iter().enumerate() {
        let at = format!("{at}.summary[{i}]");
        let part = required_object(part, &at, &["type", "text"], &[])?;
        one_of_words(&part["type"], &at, &["summary_text"])?;
        json_text(&part["text"], &at)?;
    }
    match (item.get("encrypted_content"), item.get("content")) {
        (Some(content), None) => {
            nonblank_text(content, &format!("{at}.encrypted_content"))?;
            if !encrypted {
                return Err(format!("{at}: encrypted, but `include` does not ask for it"));
            }
        }
        (None, Some(content)) => {
            for part in nonempty_list(content, at)? {
                let part = required_object(part, at, &["type", "text"], &[])?;
                one_of_words(&part["type"], at, &["reasoning_text"])?;
                nonblank_text(&part["text"], at)?;
            }
        }
        _ => return Err(format!("{at}: neither encrypted nor plain, or both")),
    }
    Ok(ItemRole::Thought)
}
