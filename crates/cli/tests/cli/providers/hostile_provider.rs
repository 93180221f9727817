//! A provider that leaks keys: it puts the received key wherever a reply has room for one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What the server does with a key, selected by the name of the model.
pub(crate) const KEY_TRICKS: [&str; 14] = [
    "error-body",
    "error-escaped",
    "error-headers",
    "error-page",
    "text-whole",
    "loot",
    "text-split",
    "text-escaped",
    "arguments-split",
    "arguments-escaped",
    "odd-places",
    "malformed",
    "comments",
    "redirect",
];

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl ReceivedRequest {
    /// Returns the key, from the header of the wire format.
    pub(crate) fn sent_key(&self) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            match name.to_ascii_lowercase().as_str() {
                "x-api-key" | "x-goog-api-key" => Some(value),
                "authorization" => value.strip_prefix("Bearer "),
                _ => None,
            }
        })
    }

    fn wire_format(&self) -> WireFormat {
        match &self.path {
            path if path.contains("/messages") => WireFormat::Anthropic,
            path if path.contains("/responses") => WireFormat::Responses,
            path if path.contains("/chat/completions") => WireFormat::Chat,
            path if path.contains(":streamGenerateContent") => WireFormat::Gemini,
            path => panic!("a path without a wire format: {path}"),
        }
    }

    fn key_trick(&self) -> &'static str {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let model = body["model"].as_str().unwrap_or(&self.path);
        KEY_TRICKS.into_iter().find(|trick| model.contains(trick)).unwrap()
    }

    /// Returns true if the request contains a tool result.
    fn has_tool_result(&self) -> bool {
        ["\"tool_result\"", "\"function_call_output\"", "\"role\":\"tool\"", "\"functionResponse\""]
            .iter()
            .any(|mark| self.body.contains(mark))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireFormat {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A server on loopback, until the test ends.
pub(crate) struct HostileProvider {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

struct HostilePlan {
    redirect_target: SocketAddr,
    stolen_keys: String,
}

impl HostileProvider {
    /// `elsewhere` is the target of its redirects, `loot` are keys from another source.
    pub(crate) fn start_server(redirect_target: SocketAddr, stolen_keys: String) -> HostileProvider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let hostile_plan = Arc::new(HostilePlan { redirect_target, stolen_keys });
        std::thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                let (log, plan) = (Arc::clone(&log), Arc::clone(&hostile_plan));
                std::thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        let before = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.iter().filter(|one| one.body == request.body).count() - 1
                        };
                        // Ignore an error: the client has disconnected.
                        drop((&stream).write_all(&build_response(&request, &plan, before)));
                    }
                });
            }
        });
        HostileProvider { address, requests: seen }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers).ok()? == 0 {
            return None;
        }
    }
    let length = headers
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest { path, headers, body: String::from_utf8(body).unwrap() })
}

/// `before`: how often the same request came before.
fn build_response(request: &ReceivedRequest, hostile_plan: &HostilePlan, before: usize) -> Vec<u8> {
    let key = request.sent_key().unwrap_or("no key at all");
    let format = request.wire_format();
    let error =
        |text: &str| json!({ "error": { "type": "invalid_request_error", "message": text } }).to_string();
    let whole = format!("you sent {key}, did you not");
    match request.key_trick() {
        "error-body" => http_response("400 Bad Request", "", "application/json", &error(&whole)),
        "error-escaped" => {
            let body = error("MARK").replace("\"MARK\"", &unicode_escaped(&whole));
            http_response("400 Bad Request", "", "application/json", &body)
        }
        "error-headers" => {
            let headers =
                format!("x-request-id: {key}\r\nwww-authenticate: Bearer {key}\r\nretry-after: {key}\r\n");
            http_response(&format!("401 {key}"), &headers, key, &error("no"))
        }
        "error-page" => {
            http_response("403 Forbidden", "", "text/html", &format!("<html><b>{key}</b></html>"))
        }
        "redirect" => {
            let headers = format!("location: http://{}/v1/{key}?key={key}\r\n", hostile_plan.redirect_target);
            http_response("307 Temporary Redirect", &headers, "text/plain", key)
        }
        "comments" => {
            let noise = format!(
                ": {key}\n\nevent: {key}\ndata: {{\"type\":\"{key}\",\"x\":\"{key}\"}}\nid: {key}\n\n"
            );
            event_stream(&format!(
                "{noise}{}",
                build_reply(format, &[HostileBlock::Text(vec![json_literal("hello")])], None)
            ))
        }
        "malformed" if before > 0 => {
            event_stream(&build_reply(format, &[HostileBlock::Text(vec![json_literal("hello")])], None))
        }
        "malformed" => event_stream(&format!("data: {{\"type\": {key}\n\n")),
        "text-whole" => {
            event_stream(&build_reply(format, &[HostileBlock::Text(vec![json_literal(&whole)])], None))
        }
        "loot" => event_stream(&build_reply(
            format,
            &[HostileBlock::Text(vec![json_literal(&hostile_plan.stolen_keys)])],
            None,
        )),
        "text-split" => {
            let pieces = whole.chars().map(|c| json_literal(&c.to_string())).collect();
            event_stream(&build_reply(format, &[HostileBlock::Text(pieces)], None))
        }
        "text-escaped" => {
            event_stream(&build_reply(format, &[HostileBlock::Text(vec![unicode_escaped(&whole)])], None))
        }
        "arguments-split" | "arguments-escaped" | "odd-places" if request.has_tool_result() => {
            event_stream(&build_reply(format, &[HostileBlock::Text(vec![json_literal("done")])], None))
        }
        "arguments-split" => {
            let call = HostileCall {
                id: json_literal("call_1"),
                name: json_literal("Read"),
                json_value: json_literal(key),
            };
            event_stream(&build_reply(format, &[HostileBlock::ToolCall(call)], None))
        }
        "arguments-escaped" => {
            let call = HostileCall {
                id: json_literal("call_1"),
                name: json_literal("Read"),
                json_value: unicode_escaped(key),
            };
            event_stream(&build_reply(format, &[HostileBlock::ToolCall(call)], None))
        }
        "odd-places" => {
            let call = HostileCall {
                id: unicode_escaped(key),
                name: unicode_escaped(key),
                json_value: json_literal("x"),
            };
            event_stream(&build_reply(format, &[HostileBlock::ToolCall(call)], Some(&unicode_escaped(key))))
        }
        other => panic!("no such trick: {other}"),
    }
}

fn http_response(status: &str, headers: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn event_stream(body: &str) -> Vec<u8> {
    http_response("200 OK", "", "text/event-stream", body)
}

/// Returns a JSON string.
pub(crate) fn json_literal(text: &str) -> String {
    json!(text).to_string()
}

/// Returns the same string with escapes, so that a text search does not find it.
pub(crate) fn unicode_escaped(text: &str) -> String {
    let letters: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{letters}\"")
}

enum HostileBlock {
    /// Pieces, each as JSON.
    Text(Vec<String>),
    ToolCall(HostileCall),
}

/// Each as JSON.
struct HostileCall {
    id: String,
    name: String,
    json_value: String,
}

impl HostileCall {
    fn arguments_json(&self) -> String {
        format!(r#"{{"file_path":{}}}"#, self.json_value)
    }

    /// Returns the arguments in pieces of a few characters.
    fn argument_chunks(&self) -> Vec<String> {
        let letters: Vec<char> = self.arguments_json().chars().collect();
        letters.chunks(5).map(|piece| json_literal(&piece.iter().collect::<String>())).collect()
    }
}

/// Returns a whole reply in the wire format. `odd` is a free text field of the format: stop reason,
/// signature, or name of a model.
fn build_reply(format: WireFormat, blocks: &[HostileBlock], odd: Option<&str>) -> String {
    let calls = blocks.iter().any(|block| matches!(block, HostileBlock::ToolCall(_)));
    match format {
        WireFormat::Anthropic => {
            anthropic_reply(blocks, odd.unwrap_or(if calls { "\"tool_use\"" } else { "\"end_turn\"" }))
        }
        WireFormat::Responses => responses_reply(blocks, odd),
        WireFormat::Chat => {
            chat_reply(blocks, odd.unwrap_or(if calls { "\"tool_calls\"" } else { "\"stop\"" }))
        }
        WireFormat::Gemini => gemini_reply(blocks, odd.unwrap_or("\"STOP\"")),
    }
}

fn encode_events(list: Vec<(&str, String)>) -> String {
    list.into_iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect()
}

fn anthropic_reply(blocks: &[HostileBlock], stop: &str) -> String {
    let mut list = vec![(
        "message_start",
        format!(
            r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":{stop},"content":[],"stop_reason":null,"usage":{{"input_tokens":3,"output_tokens":1}}}}}}"#
        ),
    )];
    for (index, block) in blocks.iter().enumerate() {
        let (begin, kind, field, pieces) = match block {
            HostileBlock::Text(pieces) => {
                (r#"{"type":"text","text":""}"#.to_owned(), "text_delta", "text", pieces.clone())
            }
            HostileBlock::ToolCall(call) => (
                format!(r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#, call.id, call.name),
                "input_json_delta",
                "partial_json",
                call.argument_chunks(),
            ),
        };
        list.push((
            "content_block_start",
            format!(r#"{{"type":"content_block_start","index":{index},"content_block":{begin}}}"#),
        ));
        for piece in pieces {
            list.push((
                "content_block_delta",
                format!(
                    r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{field}":{piece}}}}}"#
                ),
            ));
        }
        list.push(("content_block_stop", format!(r#"{{"type":"content_block_stop","index":{index}}}"#)));
    }
    list.push((
        "message_delta",
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":{stop},"stop_sequence":null}},"usage":{{"output_tokens":5}}}}"#
        ),
    ));
    list.push(("message_stop", r#"{"type":"message_stop"}"#.to_owned()));
    encode_events(list)
}

fn responses_reply(blocks: &[HostileBlock], odd: Option<&str>) -> String {
    let odd = odd.unwrap_or("\"resp_1\"");
    let mut list = vec![(
        "response.created",
        format!(
            r#"{{"type":"response.created","response":{{"id":{odd},"model":{odd},"status":"in_progress"}}}}"#
        ),
    )];
    for (index, block) in blocks.iter().enumerate() {
        let item = |begun: bool| match block {
            HostileBlock::Text(pieces) => {
                let text: String = pieces.iter().map(|piece| piece.trim_matches('"')).collect();
                let content = if begun {
                    String::new()
                } else {
                    format!(r#"{{"type":"output_text","text":"{text}","annotations":[]}}"#)
                };
                format!(
                    r#"{{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{content}]}}"#
                )
            }
            HostileBlock::ToolCall(call) => {
                let arguments = if begun { "\"\"".to_owned() } else { json_literal(&call.arguments_json()) };
                format!(
                    r#"{{"type":"function_call","id":"fc_1","call_id":{},"name":{},"arguments":{arguments}}}"#,
                    call.id, call.name
                )
            }
        };
        let added = format!(
            r#"{{"type":"response.output_item.added","output_index":{index},"item":{}}}"#,
            item(true)
        );
        list.push(("response.output_item.added", added));
        let (kind, pieces) = match block {
            HostileBlock::Text(pieces) => ("response.output_text.delta", pieces.clone()),
            HostileBlock::ToolCall(call) => {
                ("response.function_call_arguments.delta", call.argument_chunks())
            }
        };
        for piece in pieces {
            let data = format!(
                r#"{{"type":"{kind}","item_id":"x","output_index":{index},"content_index":0,"delta":{piece}}}"#
            );
            list.push((kind, data));
        }
        let done = format!(
            r#"{{"type":"response.output_item.done","output_index":{index},"item":{}}}"#,
            item(false)
        );
        list.push(("response.output_item.done", done));
    }
    list.push((
        "response.completed",
        format!(
            r#"{{"type":"response.completed","response":{{"id":{odd},"status":"completed","output":[],"usage":{{"input_tokens":3,"output_tokens":5,"total_tokens":8}}}}}}"#
        ),
    ));
    encode_events(list)
}

fn chat_reply(blocks: &[HostileBlock], stop: &str) -> String {
    let chunk = |delta: String, finish: &str| {
        format!(
            "data: {{\"id\":\"c_1\",\"object\":\"chat.completion.chunk\",\"model\":{stop},\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let mut body = String::new();
    for block in blocks {
        match block {
            HostileBlock::Text(pieces) => {
                body.extend(pieces.iter().map(|piece| chunk(format!(r#"{{"content":{piece}}}"#), "null")));
            }
            HostileBlock::ToolCall(call) => {
                let begin = format!(
                    r#"{{"tool_calls":[{{"index":0,"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}}"#,
                    call.id, call.name
                );
                body.push_str(&chunk(begin, "null"));
                body.extend(call.argument_chunks().iter().map(|piece| {
                    chunk(
                        format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]}}"#),
                        "null",
                    )
                }));
            }
        }
    }
    body.push_str(&chunk("{}".to_owned(), stop));
    body.push_str("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8}}\n\n");
    body.push_str("data: [DONE]\n\n");
    body
}

fn gemini_reply(blocks: &[HostileBlock], stop: &str) -> String {
    let chunk = |part: String, rest: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{part}]}},\"index\":0{rest}}}],\"modelVersion\":{stop},\"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":5,\"totalTokenCount\":8}}}}\r\n\r\n"
        )
    };
    let mut body = String::new();
    for block in blocks {
        match block {
            HostileBlock::Text(pieces) => {
                body.extend(pieces.iter().map(|piece| chunk(format!(r#"{{"text":{piece}}}"#), "")));
            }
            HostileBlock::ToolCall(call) => {
                let part = format!(
                    r#"{{"functionCall":{{"name":{},"args":{}}},"thoughtSignature":{}}}"#,
                    call.name,
                    call.arguments_json(),
                    call.id
                );
                body.push_str(&chunk(part, ""));
            }
        }
    }
    body.push_str(&chunk(r#"{"text":""}"#.to_owned(), &format!(",\"finishReason\":{stop}")));
    body
}
