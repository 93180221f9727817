//! Valid requests of each scheme, broken in one way: a validator that accepts one of them is not strict.

use minke_llm::WireScheme;
use serde_json::{Value, json};

/// A change to a request, with its name.
pub(crate) type RequestBreak = (&'static str, fn(&mut Value));

pub(crate) fn request_breaks(scheme: WireScheme) -> &'static [RequestBreak] {
    match scheme {
        WireScheme::Anthropic => ANTHROPIC_BREAKS,
        WireScheme::OpenaiResponses => RESPONSES_BREAKS,
        WireScheme::OpenaiChat => CHAT_BREAKS,
        WireScheme::Gemini => GEMINI_BREAKS,
        WireScheme::Scripted => &[],
    }
}

/// Returns the first object, at any depth, whose field `key` is `is`.
fn find_object<'v>(value: &'v mut Value, key: &str, is: &str) -> &'v mut Value {
    fn search_value<'v>(value: &'v mut Value, key: &str, is: &str) -> Option<&'v mut Value> {
        if value.get(key).and_then(Value::as_str) == Some(is) {
            return Some(value);
        }
        match value {
            Value::Object(map) => map.values_mut().find_map(|inner| search_value(inner, key, is)),
            Value::Array(list) => list.iter_mut().find_map(|inner| search_value(inner, key, is)),
            _ => None,
        }
    }
    search_value(value, key, is).unwrap_or_else(|| panic!("no {key}: {is}"))
}

/// Returns the first object with the field.
fn find_with_field<'v>(value: &'v mut Value, key: &str) -> &'v mut Value {
    fn search_value<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
        if value.get(key).is_some() {
            return Some(value);
        }
        match value {
            Value::Object(map) => map.values_mut().find_map(|inner| search_value(inner, key)),
            Value::Array(list) => list.iter_mut().find_map(|inner| search_value(inner, key)),
            _ => None,
        }
    }
    search_value(value, key).unwrap_or_else(|| panic!("no {key}"))
}

fn list_at<'v>(value: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    value[key].as_array_mut().unwrap()
}

fn remove_field(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key).unwrap();
}

/// Removes the first element of a list whose field has that value.
fn remove_first_element(list: &mut Vec<Value>, key: &str, is: &str) {
    let at = list.iter().position(|one| one[key] == is).unwrap();
    list.remove(at);
}

/// Returns the first result that is a list.
fn find_list_result(request: &mut Value) -> &mut Value {
    let messages = request["messages"].as_array_mut().unwrap();
    let mut blocks = messages.iter_mut().flat_map(|message| list_at(message, "content"));
    blocks.find(|block| block["type"] == "tool_result" && block["content"].is_array()).unwrap()
}

/// Returns the first output that is a list.
fn find_list_output(request: &mut Value) -> &mut Vec<Value> {
    list_at(request, "input").iter_mut().find_map(|item| item["output"].as_array_mut()).unwrap()
}

const ANTHROPIC_BREAKS: &[RequestBreak] = &[
    ("no max_tokens", |r| remove_field(r, "max_tokens")),
    ("no output at all", |r| r["max_tokens"] = json!(0)),
    ("an unknown field", |r| r["store"] = json!(false)),
    ("budget not below the output", |r| r["thinking"]["budget_tokens"] = r["max_tokens"].clone()),
    ("budget too small", |r| r["thinking"]["budget_tokens"] = json!(1000)),
    ("empty system", |r| r["system"][0]["text"] = json!("")),
    ("two tools of one name", |r| r["tools"][1]["name"] = r["tools"][0]["name"].clone()),
    ("a tool without schema", |r| remove_field(&mut r["tools"][0], "input_schema")),
    ("no tools", |r| remove_field(r, "tools")),
    ("assistant first", |r| drop(list_at(r, "messages").remove(0))),
    ("assistant last", |r| drop(list_at(r, "messages").pop())),
    ("user twice", |r| {
        let last = list_at(r, "messages").last().unwrap().clone();
        list_at(r, "messages").push(last);
    }),
    ("an empty text", |r| find_object(r, "type", "text")["text"] = json!(" ")),
    ("an empty message", |r| r["messages"][0]["content"] = json!([])),
    ("a thought without signature", |r| remove_field(find_object(r, "type", "thinking"), "signature")),
    ("a thought with an empty signature", |r| find_object(r, "type", "thinking")["signature"] = json!("")),
    ("a redacted thought without data", |r| {
        remove_field(find_object(r, "type", "redacted_thinking"), "data")
    }),
    ("a mark on a thought", |r| {
        find_object(r, "type", "thinking")["cache_control"] = json!({"type": "ephemeral"})
    }),
    ("five marks", |r| {
        for tool in list_at(r, "tools") {
            tool["cache_control"] = json!({"type": "ephemeral"});
        }
    }),
    ("input is not an object", |r| find_object(r, "type", "tool_use")["input"] = json!("ls")),
    ("an id with a dot", |r| find_object(r, "type", "tool_use")["id"] = json!("a.b")),
    ("a result without a call", |r| find_object(r, "type", "tool_result")["tool_use_id"] = json!("else")),
    ("a call without result", |r| {
        remove_first_element(list_at(&mut r["messages"][2], "content"), "type", "tool_result")
    }),
    ("a result after a text", |r| list_at(&mut r["messages"][2], "content").reverse()),
    ("a result of the assistant", |r| {
        let result = r["messages"][2]["content"][0].clone();
        list_at(&mut r["messages"][1], "content").push(result);
    }),
    ("a text after a call", |r| {
        let text = json!({"type": "text", "text": "So."});
        list_at(&mut r["messages"][1], "content").push(text);
    }),
    ("ends with a thought", |r| list_at(&mut r["messages"][1], "content").reverse()),
    ("an image of no type", |r| find_object(r, "type", "image")["source"]["media_type"] = json!("image/bmp")),
    ("an image that is not base64", |r| find_object(r, "type", "image")["source"]["data"] = json!("??")),
    ("an unknown effort", |r| r["output_config"] = json!({"effort": "enormous"})),
    ("an image in the result of a failure", |r| find_list_result(r)["is_error"] = json!(true)),
    ("a result that is an empty list", |r| find_list_result(r)["content"] = json!([])),
    ("a result with a blank text", |r| list_at(find_list_result(r), "content")[0]["text"] = json!("\n")),
    ("a document in a result", |r| list_at(find_list_result(r), "content")[0]["type"] = json!("document")),
];

const RESPONSES_BREAKS: &[RequestBreak] = &[
    ("no model", |r| remove_field(r, "model")),
    ("an unknown field", |r| r["messages"] = json!([])),
    ("stored, but encrypted", |r| r["store"] = json!(true)),
    ("encrypted, but not asked for", |r| remove_field(r, "include")),
    ("too little output", |r| r["max_output_tokens"] = json!(8)),
    ("an unknown effort", |r| r["reasoning"]["effort"] = json!("enormous")),
    ("a tool inside `function`", |r| r["tools"][0] = json!({"type": "function", "function": {"name": "x"}})),
    ("two tools of one name", |r| r["tools"][1]["name"] = r["tools"][0]["name"].clone()),
    ("no tools", |r| remove_field(r, "tools")),
    ("reasoning without summary", |r| remove_field(find_object(r, "type", "reasoning"), "summary")),
    ("reasoning with nothing in it", |r| {
        remove_field(find_object(r, "type", "reasoning"), "encrypted_content")
    }),
    ("reasoning without a following item", |r| {
        let reasoning = find_object(r, "type", "reasoning").clone();
        let items = list_at(r, "input");
        items.insert(items.len() - 1, reasoning);
    }),
    ("arguments as an object", |r| find_object(r, "type", "function_call")["arguments"] = json!({})),
    ("arguments that are cut", |r| find_object(r, "type", "function_call")["arguments"] = json!("{\"a\":")),
    ("an output without a call", |r| {
        find_object(r, "type", "function_call_output")["call_id"] = json!("else")
    }),
    ("a call without output", |r| remove_first_element(list_at(r, "input"), "type", "function_call_output")),
    ("a text after a call", |r| {
        let said = find_object(r, "role", "assistant").clone();
        let at = list_at(r, "input").iter().position(|item| item["type"] == "function_call").unwrap();
        list_at(r, "input").insert(at + 1, said);
    }),
    ("an output twice", |r| {
        let output = find_object(r, "type", "function_call_output").clone();
        list_at(r, "input").push(output);
    }),
    ("an id used twice", |r| {
        let (call, output) = (
            find_object(r, "type", "function_call").clone(),
            find_object(r, "type", "function_call_output").clone(),
        );
        list_at(r, "input").extend([call, output]);
    }),
    ("user text as output", |r| find_object(r, "type", "input_text")["type"] = json!("output_text")),
    ("an empty text", |r| find_object(r, "type", "input_text")["text"] = json!("")),
    ("an image of the assistant", |r| {
        find_object(r, "role", "assistant")["content"][0] = json!({"type": "input_image"})
    }),
    ("an image elsewhere", |r| find_object(r, "type", "input_image")["image_url"] = json!("http://a/b.png")),
    ("an output that is an empty list", |r| find_list_output(r).clear()),
    ("an output with an empty text", |r| find_list_output(r)[0]["text"] = json!(" ")),
    ("an output as the model's own text", |r| find_list_output(r)[0]["type"] = json!("output_text")),
    ("an external image in an output", |r| find_list_output(r)[1]["image_url"] = json!("http://a/b.png")),
    ("the model last", |r| {
        let said = find_object(r, "role", "assistant").clone();
        list_at(r, "input").push(said);
    }),
];

const CHAT_BREAKS: &[RequestBreak] = &[
    ("no messages", |r| r["messages"] = json!([])),
    ("an unknown field", |r| r["system"] = json!("x")),
    ("options without a stream", |r| r["stream"] = json!(false)),
    ("an unknown effort", |r| r["reasoning_effort"] = json!("enormous")),
    ("a tool without `function`", |r| remove_field(&mut r["tools"][0], "function")),
    ("no tools", |r| remove_field(r, "tools")),
    ("an unknown role", |r| r["messages"][0]["role"] = json!("model")),
    ("a system message in mid-history", |r| {
        list_at(r, "messages").insert(2, json!({"role": "system", "content": "x"}))
    }),
    ("assistant first", |r| drop(list_at(r, "messages").remove(1))),
    ("assistant last", |r| drop(list_at(r, "messages").pop())),
    ("user twice", |r| {
        let last = list_at(r, "messages").last().unwrap().clone();
        list_at(r, "messages").push(last);
    }),
    ("neither text nor calls", |r| {
        let message = find_with_field(r, "tool_calls");
        message["content"] = Value::Null;
        remove_field(message, "tool_calls");
    }),
    ("an empty list of calls", |r| find_with_field(r, "tool_calls")["tool_calls"] = json!([])),
    ("arguments as an object", |r| {
        find_with_field(r, "tool_calls")["tool_calls"][0]["function"]["arguments"] = json!({})
    }),
    ("arguments that are cut", |r| {
        find_with_field(r, "tool_calls")["tool_calls"][0]["function"]["arguments"] = json!("{")
    }),
    ("a call without type", |r| remove_field(&mut find_with_field(r, "tool_calls")["tool_calls"][0], "type")),
    ("an id that is too long", |r| {
        find_with_field(r, "tool_calls")["tool_calls"][0]["id"] = json!("x".repeat(41))
    }),
    ("a result without a call", |r| find_object(r, "role", "tool")["tool_call_id"] = json!("else")),
    ("a call without result", |r| remove_first_element(list_at(r, "messages"), "role", "tool")),
    ("a message before the results", |r| {
        let at = list_at(r, "messages").iter().position(|m| m["role"] == "tool").unwrap();
        list_at(r, "messages").insert(at, json!({"role": "user", "content": "x"}));
    }),
    ("an empty text", |r| list_at(r, "messages").last_mut().unwrap()["content"] = json!(" ")),
    ("an image elsewhere", |r| {
        find_object(r, "type", "image_url")["image_url"]["url"] = json!("http://a/b.png")
    }),
    ("an image in the message of a tool", |r| {
        let image = find_object(r, "type", "image_url").clone();
        find_object(r, "role", "tool")["content"] = json!([image]);
    }),
    ("reasoning that is not a text", |r| {
        find_with_field(r, "reasoning_content")["reasoning_content"] = json!([])
    }),
];

const GEMINI_BREAKS: &[RequestBreak] = &[
    ("no contents", |r| r["contents"] = json!([])),
    ("an unknown field", |r| r["model"] = json!("gem")),
    ("an empty instruction", |r| r["systemInstruction"]["parts"][0]["text"] = json!("")),
    ("a budget and a level", |r| r["generationConfig"]["thinkingConfig"]["thinkingBudget"] = json!(5)),
    ("an unknown level", |r| r["generationConfig"]["thinkingConfig"]["thinkingLevel"] = json!("ENORMOUS")),
    ("no tools", |r| remove_field(r, "tools")),
    ("an unknown role", |r| r["contents"][0]["role"] = json!("assistant")),
    ("model first", |r| drop(list_at(r, "contents").remove(0))),
    ("model last", |r| drop(list_at(r, "contents").pop())),
    ("user twice", |r| {
        let last = list_at(r, "contents").last().unwrap().clone();
        list_at(r, "contents").push(last);
    }),
    ("an empty text", |r| r["contents"][0]["parts"][0]["text"] = json!("")),
    ("no parts", |r| r["contents"][0]["parts"] = json!([])),
    ("two kinds in one part", |r| find_with_field(r, "functionResponse")["text"] = json!("x")),
    ("args as a text", |r| find_with_field(r, "functionCall")["functionCall"]["args"] = json!("{}")),
    ("a response as a text", |r| {
        find_with_field(r, "functionResponse")["functionResponse"]["response"] = json!("x")
    }),
    ("a response by the call's id", |r| {
        let response = &mut find_with_field(r, "functionResponse")["functionResponse"];
        response["name"] = response["id"].clone();
    }),
    ("responses in another order", |r| {
        let content = r["contents"].as_array_mut().unwrap();
        let answers = content.iter_mut().find(|c| c["parts"][0].get("functionResponse").is_some()).unwrap();
        list_at(answers, "parts").swap(0, 1);
    }),
    ("a call without response", |r| {
        let content = r["contents"].as_array_mut().unwrap();
        let answers = content.iter_mut().find(|c| c["parts"][0].get("functionResponse").is_some()).unwrap();
        list_at(answers, "parts").remove(0);
    }),
    ("a first call without signature", |r| {
        let contents = r["contents"].as_array_mut().unwrap();
        for part in contents.iter_mut().flat_map(|c| c["parts"].as_array_mut().unwrap()) {
            if part.get("functionCall").is_some() {
                part.as_object_mut().unwrap().remove("thoughtSignature");
            }
        }
    }),
    ("a signature of the user", |r| r["contents"][0]["parts"][0]["thoughtSignature"] = json!("c2ln")),
    ("an invalid signature", |r| find_with_field(r, "thoughtSignature")["thoughtSignature"] = json!("a b")),
    ("an unsigned thought", |r| remove_field(find_with_field(r, "thought"), "thoughtSignature")),
    ("an image between responses", |r| {
        let image = find_with_field(r, "inlineData").clone();
        let contents = r["contents"].as_array_mut().unwrap();
        let answers = contents.iter_mut().find(|c| c["parts"][1].get("functionResponse").is_some()).unwrap();
        list_at(answers, "parts").insert(1, image);
    }),
    ("an image inside a response", |r| {
        let image = find_with_field(r, "inlineData").clone();
        find_with_field(r, "functionResponse")["functionResponse"]["parts"] = json!([image]);
    }),
    ("an image of no type", |r| {
        find_with_field(r, "inlineData")["inlineData"]["mimeType"] = json!("image/gif")
    }),
];
