//! A provider that gives keys away: it puts the key that it was sent wherever a provider's answer has room for one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What the server does with a key; the name of the model says which.
pub(crate) const TRICKS: [&str; 14] = [
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

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Request {
    /// The key, in whichever header the wire format has it.
    pub(crate) fn key(&self) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            match name.to_ascii_lowercase().as_str() {
                "x-api-key" | "x-goog-api-key" => Some(value),
                "authorization" => value.strip_prefix("Bearer "),
                _ => None,
            }
        })
    }

    fn scheme(&self) -> Scheme {
        match &self.path {
            path if path.contains("/messages") => Scheme::Anthropic,
            path if path.contains("/responses") => Scheme::Responses,
            path if path.contains("/chat/completions") => Scheme::Chat,
            path if path.contains(":streamGenerateContent") => Scheme::Gemini,
            path => panic!("an address that no wire format has: {path}"),
        }
    }

    fn trick(&self) -> &'static str {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let model = body["model"].as_str().unwrap_or(&self.path);
        TRICKS.into_iter().find(|trick| model.contains(trick)).unwrap()
    }

    /// Whether the model is told what a tool gave.
    fn has_result(&self) -> bool {
        ["\"tool_result\"", "\"function_call_output\"", "\"role\":\"tool\"", "\"functionResponse\""]
            .iter()
            .any(|mark| self.body.contains(mark))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A server on loopback, until the test ends.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

struct Plan {
    elsewhere: SocketAddr,
    loot: String,
}

impl Hostile {
    /// `elsewhere` is where it would like the client to go, `loot` are keys that it has from elsewhere.
    pub(crate) fn start(elsewhere: SocketAddr, loot: String) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let plan = Arc::new(Plan { elsewhere, loot });
        std::thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                let (log, plan) = (Arc::clone(&log), Arc::clone(&plan));
                std::thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        let before = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.iter().filter(|one| one.body == request.body).count() - 1
                        };
                        // A client that has gone has seen enough.
                        drop((&stream).write_all(&answer(&request, &plan, before)));
                    }
                });
            }
        });
        Hostile { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
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
    Some(Request { path, headers, body: String::from_utf8(body).unwrap() })
}

/// `before`: how often the same was asked before.
fn answer(request: &Request, plan: &Plan, before: usize) -> Vec<u8> {
    let key = request.key().unwrap_or("no key at all");
    let scheme = request.scheme();
    let error =
        |text: &str| json!({ "error": { "type": "invalid_request_error", "message": text } }).to_string();
    let whole = format!("you sent {key}, did you not");
    match request.trick() {
        "error-body" => http("400 Bad Request", "", "application/json", &error(&whole)),
        "error-escaped" => {
            let body = error("MARK").replace("\"MARK\"", &escaped(&whole));
            http("400 Bad Request", "", "application/json", &body)
        }
        "error-headers" => {
            let headers =
                format!("x-request-id: {key}\r\nwww-authenticate: Bearer {key}\r\nretry-after: {key}\r\n");
            http(&format!("401 {key}"), &headers, key, &error("no"))
        }
        "error-page" => http("403 Forbidden", "", "text/html", &format!("<html><b>{key}</b></html>")),
        "redirect" => {
            let headers = format!("location: http://{}/v1/{key}?key={key}\r\n", plan.elsewhere);
            http("307 Temporary Redirect", &headers, "text/plain", key)
        }
        "comments" => {
            let noise = format!(
                ": {key}\n\nevent: {key}\ndata: {{\"type\":\"{key}\",\"x\":\"{key}\"}}\nid: {key}\n\n"
            );
            stream(&format!("{noise}{}", reply(scheme, &[Block::Text(vec![literal("hello")])], None)))
        }
        "malformed" if before > 0 => stream(&reply(scheme, &[Block::Text(vec![literal("hello")])], None)),
        "malformed" => stream(&format!("data: {{\"type\": {key}\n\n")),
        "text-whole" => stream(&reply(scheme, &[Block::Text(vec![literal(&whole)])], None)),
        "loot" => stream(&reply(scheme, &[Block::Text(vec![literal(&plan.loot)])], None)),
        "text-split" => {
            let pieces = whole.chars().map(|c| literal(&c.to_string())).collect();
            stream(&reply(scheme, &[Block::Text(pieces)], None))
        }
        "text-escaped" => stream(&reply(scheme, &[Block::Text(vec![escaped(&whole)])], None)),
        "arguments-split" | "arguments-escaped" | "odd-places" if request.has_result() => {
            stream(&reply(scheme, &[Block::Text(vec![literal("done")])], None))
        }
        "arguments-split" => {
            let call = Call { id: literal("call_1"), name: literal("Read"), value: literal(key) };
            stream(&reply(scheme, &[Block::Call(call)], None))
        }
        "arguments-escaped" => {
            let call = Call { id: literal("call_1"), name: literal("Read"), value: escaped(key) };
            stream(&reply(scheme, &[Block::Call(call)], None))
        }
        "odd-places" => {
            let call = Call { id: escaped(key), name: escaped(key), value: literal("x") };
            stream(&reply(scheme, &[Block::Call(call)], Some(&escaped(key))))
        }
        other => panic!("no such trick: {other}"),
    }
}

fn http(status: &str, headers: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn stream(body: &str) -> Vec<u8> {
    http("200 OK", "", "text/event-stream", body)
}

/// A JSON string.
pub(crate) fn literal(text: &str) -> String {
    json!(text).to_string()
}

/// The same string, written so that nobody finds it by looking for it.
pub(crate) fn escaped(text: &str) -> String {
    let letters: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{letters}\"")
}

enum Block {
    /// Pieces, each as JSON writes it.
    Text(Vec<String>),
    Call(Call),
}

/// Each as JSON writes it.
struct Call {
    id: String,
    name: String,
    value: String,
}

impl Call {
    fn arguments(&self) -> String {
        format!(r#"{{"file_path":{}}}"#, self.value)
    }

    /// The arguments in pieces of a few letters.
    fn pieces(&self) -> Vec<String> {
        let letters: Vec<char> = self.arguments().chars().collect();
        letters.chunks(5).map(|piece| literal(&piece.iter().collect::<String>())).collect()
    }
}

/// A whole reply as the wire format has it. `odd` stands where a format has a word of its own choice: the reason for
/// stopping, a signature, a name of a model.
fn reply(scheme: Scheme, blocks: &[Block], odd: Option<&str>) -> String {
    let calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
    match scheme {
        Scheme::Anthropic => {
            anthropic(blocks, odd.unwrap_or(if calls { "\"tool_use\"" } else { "\"end_turn\"" }))
        }
        Scheme::Responses => responses(blocks, odd),
        Scheme::Chat => chat(blocks, odd.unwrap_or(if calls { "\"tool_calls\"" } else { "\"stop\"" })),
        Scheme::Gemini => gemini(blocks, odd.unwrap_or("\"STOP\"")),
    }
}

fn events(list: Vec<(&str, String)>) -> String {
    list.into_iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect()
}

fn anthropic(blocks: &[Block], stop: &str) -> String {
    let mut list = vec![(
        "message_start",
        format!(
            r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":{stop},"content":[],"stop_reason":null,"usage":{{"input_tokens":3,"output_tokens":1}}}}}}"#
        ),
    )];
    for (index, block) in blocks.iter().enumerate() {
        let (begin, kind, field, pieces) = match block {
            Block::Text(pieces) => {
                (r#"{"type":"text","text":""}"#.to_owned(), "text_delta", "text", pieces.clone())
            }
            Block::Call(call) => (
                format!(r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#, call.id, call.name),
                "input_json_delta",
                "partial_json",
                call.pieces(),
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
    events(list)
}

fn responses(blocks: &[Block], odd: Option<&str>) -> String {
    let odd = odd.unwrap_or("\"resp_1\"");
    let mut list = vec![(
        "response.created",
        format!(
            r#"{{"type":"response.created","response":{{"id":{odd},"model":{odd},"status":"in_progress"}}}}"#
        ),
    )];
    for (index, block) in blocks.iter().enumerate() {
        let item = |begun: bool| match block {
            Block::Text(pieces) => {
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
            Block::Call(call) => {
                let arguments = if begun { "\"\"".to_owned() } else { literal(&call.arguments()) };
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
            Block::Text(pieces) => ("response.output_text.delta", pieces.clone()),
            Block::Call(call) => ("response.function_call_arguments.delta", call.pieces()),
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
    events(list)
}

fn chat(blocks: &[Block], stop: &str) -> String {
    let chunk = |delta: String, finish: &str| {
        format!(
            "data: {{\"id\":\"c_1\",\"object\":\"chat.completion.chunk\",\"model\":{stop},\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let mut body = String::new();
    for block in blocks {
        match block {
            Block::Text(pieces) => {
                body.extend(pieces.iter().map(|piece| chunk(format!(r#"{{"content":{piece}}}"#), "null")));
            }
            Block::Call(call) => {
                let begin = format!(
                    r#"{{"tool_calls":[{{"index":0,"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}}"#,
                    call.id, call.name
                );
                body.push_str(&chunk(begin, "null"));
                body.extend(call.pieces().iter().map(|piece| {
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

fn gemini(blocks: &[Block], stop: &str) -> String {
    let chunk = |part: String, rest: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{part}]}},\"index\":0{rest}}}],\"modelVersion\":{stop},\"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":5,\"totalTokenCount\":8}}}}\r\n\r\n"
        )
    };
    let mut body = String::new();
    for block in blocks {
        match block {
            Block::Text(pieces) => {
                body.extend(pieces.iter().map(|piece| chunk(format!(r#"{{"text":{piece}}}"#), "")));
            }
            Block::Call(call) => {
                let part = format!(
                    r#"{{"functionCall":{{"name":{},"args":{}}},"thoughtSignature":{}}}"#,
                    call.name,
                    call.arguments(),
                    call.id
                );
                body.push_str(&chunk(part, ""));
            }
        }
    }
    body.push_str(&chunk(r#"{"text":""}"#.to_owned(), &format!(",\"finishReason\":{stop}")));
    body
}
