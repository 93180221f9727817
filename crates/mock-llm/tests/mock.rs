//! A script over loopback HTTP. Our decoders read the replies of each format, which are compared with
//! the script inside a pod. Requests that the providers reject are rejected too.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use minke_llm::{ProviderErrorKind, ReplyDecoder, ScriptedModel, WireScheme};
use minke_mock_llm::{LoggedRequest, MockOptions, WriteSplit, bind_server};
use minke_model::{BlockEnd, BlockKind, Model, ModelEvent, Prompt, StopReason, TokenUsage};
use minke_record::{Item, Route};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const SCHEMES: [WireScheme; 4] =
    [WireScheme::Anthropic, WireScheme::OpenaiResponses, WireScheme::OpenaiChat, WireScheme::Gemini];
/// A key that must not appear anywhere.
const KEY: &str = "sk-planted-0123456789";

/// A running mock and its log.
struct RunningMock {
    addr: SocketAddr,
    request_log: mpsc::Receiver<LoggedRequest>,
    task: JoinHandle<std::io::Result<()>>,
    client: reqwest::Client,
}

impl Drop for RunningMock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response.
struct MockReply {
    status: u16,
    headers: BTreeMap<String, String>,
    pieces: Vec<Vec<u8>>,
    /// Whether the connection closed before the end of the body.
    is_broken: bool,
}

impl MockReply {
    fn body_bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn body_json(&self) -> Value {
        serde_json::from_slice(&self.body_bytes()).unwrap_or_else(|e| panic!("{e}: {}", self.body_text()))
    }

    fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body_bytes()).into_owned()
    }
}

fn parse_script(text: &str) -> ScriptedModel {
    ScriptedModel::parse_script("talk.toml", text, Path::new("/somewhere")).unwrap_or_else(|e| panic!("{e}"))
}

async fn start_mock(text: &str, options: MockOptions) -> RunningMock {
    let mock = bind_server(parse_script(text), options).await.unwrap();
    let (sender, record) = mpsc::channel(1_000);
    let addr = mock.local_addr();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    RunningMock { addr, request_log: record, task: tokio::spawn(mock.run(sender)), client }
}

impl RunningMock {
    async fn send_talk(&self, scheme: WireScheme, talk: &TestTalk) -> MockReply {
        let request = self.request_builder(scheme).body(request_body(scheme, talk).to_string());
        self.send_request(request).await
    }

    fn request_builder(&self, scheme: WireScheme) -> reqwest::RequestBuilder {
        let (path, key) = match scheme {
            WireScheme::Anthropic => ("v1/messages", "x-api-key"),
            WireScheme::OpenaiResponses => ("v1/responses", "authorization"),
            WireScheme::OpenaiChat => ("v1/chat/completions", "authorization"),
            WireScheme::Gemini => ("v1beta/models/m:streamGenerateContent?alt=sse", "x-goog-api-key"),
            WireScheme::Scripted => unreachable!("not a wire format"),
        };
        let value = if key == "authorization" { format!("Bearer {KEY}") } else { KEY.to_owned() };
        let url = format!("http://{}/{path}", self.addr);
        self.client.post(url).header(key, value).header("anthropic-version", "2023-06-01")
    }

    async fn send_request(&self, request: reqwest::RequestBuilder) -> MockReply {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text =
            |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers =
            response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let mut got = MockReply { status, headers, pieces: Vec::new(), is_broken: false };
        let mut body = response.bytes_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => got.pieces.push(piece.to_vec()),
                Err(_) => got.is_broken = true,
            }
        }
        got
    }
}

/// A conversation, independent of the format.
#[derive(Default, Clone)]
struct TestTalk(Vec<TalkPart>);

#[derive(Clone)]
enum TalkPart {
    User(&'static str),
    Assistant(&'static str),
    /// The thought, and its signature or encrypted form.
    Thought(String, String),
    /// Id, name, arguments, and the signature of gemini.
    Call(&'static str, &'static str, Value, Option<String>),
    Result(&'static str, &'static str),
}

fn hello_talk() -> TestTalk {
    TestTalk(vec![TalkPart::User("hello")])
}

/// Returns the request in one format.
fn request_body(scheme: WireScheme, talk: &TestTalk) -> Value {
    let parts: Vec<Value> = talk.0.iter().map(|said| request_part(scheme, said)).collect();
    match scheme {
        WireScheme::Anthropic => {
            json!({ "model": "m", "max_tokens": 100, "stream": true, "system": "be brief", "messages": parts })
        }
        WireScheme::OpenaiResponses => json!({
            "model": "m", "stream": true, "store": false, "instructions": "be brief", "input": parts,
            "include": ["reasoning.encrypted_content"],
        }),
        WireScheme::OpenaiChat => {
            let mut messages = vec![json!({ "role": "system", "content": "be brief" })];
            messages.extend(parts);
            let options = json!({ "include_usage": true });
            json!({ "model": "m", "stream": true, "stream_options": options, "messages": messages })
        }
        WireScheme::Gemini => {
            json!({ "systemInstruction": { "parts": [{ "text": "be brief" }] }, "contents": parts })
        }
        WireScheme::Scripted => unreachable!("not a wire format"),
    }
}

/// Returns a separate message for each part, which all formats accept.
fn request_part(scheme: WireScheme, said: &TalkPart) -> Value {
    let anthropic = |role: &str, block: Value| json!({ "role": role, "content": [block] });
    let gemini = |role: &str, part: Value| json!({ "role": role, "parts": [part] });
    match (scheme, said) {
        (WireScheme::Anthropic, TalkPart::User(text)) => {
            anthropic("user", json!({ "type": "text", "text": text }))
        }
        (WireScheme::Anthropic, TalkPart::Assistant(text)) => {
            anthropic("assistant", json!({ "type": "text", "text": text }))
        }
        (WireScheme::Anthropic, TalkPart::Thought(text, signature)) => {
            anthropic("assistant", json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        (WireScheme::Anthropic, TalkPart::Call(id, name, input, _)) => {
            anthropic("assistant", json!({ "type": "tool_use", "id": id, "name": name, "input": input }))
        }
        (WireScheme::Anthropic, TalkPart::Result(id, text)) => {
            anthropic("user", json!({ "type": "tool_result", "tool_use_id": id, "content": text }))
        }
        (WireScheme::OpenaiResponses, TalkPart::User(text)) => json!({ "role": "user", "content": text }),
        (WireScheme::OpenaiResponses, TalkPart::Assistant(text)) => {
            let content = json!([{ "type": "output_text", "text": text }]);
            json!({ "type": "message", "role": "assistant", "content": content })
        }
        (WireScheme::OpenaiResponses, TalkPart::Thought(text, encrypted)) => {
            let summary = json!([{ "type": "summary_text", "text": text }]);
            json!({ "type": "reasoning", "summary": summary, "encrypted_content": encrypted })
        }
        (WireScheme::OpenaiResponses, TalkPart::Call(id, name, args, _)) => {
            json!({ "type": "function_call", "call_id": id, "name": name, "arguments": args.to_string() })
        }
        (WireScheme::OpenaiResponses, TalkPart::Result(id, text)) => {
            json!({ "type": "function_call_output", "call_id": id, "output": text })
        }
        (WireScheme::OpenaiChat, TalkPart::User(text)) => json!({ "role": "user", "content": text }),
        (WireScheme::OpenaiChat, TalkPart::Assistant(text)) => {
            json!({ "role": "assistant", "content": text })
        }
        (WireScheme::OpenaiChat, TalkPart::Thought(text, _)) => {
            json!({ "role": "assistant", "reasoning_content": text, "content": null })
        }
        (WireScheme::OpenaiChat, TalkPart::Call(id, name, args, _)) => {
            let function = json!({ "name": name, "arguments": args.to_string() });
            let call = json!({ "id": id, "type": "function", "function": function });
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        }
        (WireScheme::OpenaiChat, TalkPart::Result(id, text)) => {
            json!({ "role": "tool", "tool_call_id": id, "content": text })
        }
        (WireScheme::Gemini, TalkPart::User(text)) => gemini("user", json!({ "text": text })),
        (WireScheme::Gemini, TalkPart::Assistant(text)) => gemini("model", json!({ "text": text })),
        (WireScheme::Gemini, TalkPart::Thought(text, signature)) => {
            gemini("model", json!({ "text": text, "thoughtSignature": signature }))
        }
        (WireScheme::Gemini, TalkPart::Call(id, name, args, signature)) => {
            let mut part = json!({ "functionCall": { "id": id, "name": name, "args": args } });
            if let Some(signature) = signature {
                part["thoughtSignature"] = signature.as_str().into();
            }
            gemini("model", part)
        }
        (WireScheme::Gemini, TalkPart::Result(_, text)) => {
            // By name alone, as in the first version of the format.
            gemini("user", json!({ "functionResponse": { "name": "Read", "response": { "output": text } } }))
        }
        (WireScheme::Scripted, _) => unreachable!("not a wire format"),
    }
}

/// A decoded reply: the content of each block and the end.
#[derive(Debug, Default, Clone, PartialEq)]
struct DecodedReply {
    blocks: Vec<DecodedBlock>,
    usage: TokenUsage,
    stop: Option<StopReason>,
}

#[derive(Debug, Clone, PartialEq)]
struct DecodedBlock {
    kind: BlockKind,
    text: String,
    end: BlockEnd,
}

impl DecodedReply {
    fn from_events(events: Vec<ModelEvent>) -> DecodedReply {
        let mut heard = DecodedReply::default();
        let mut open: BTreeMap<u32, DecodedBlock> = BTreeMap::new();
        // Keyed by index: interleaved calls may end in any order.
        let mut whole = BTreeMap::new();
        for event in events {
            match event {
                ModelEvent::BlockStart { index, kind } => {
                    let (text, end) = (String::new(), BlockEnd::default());
                    assert!(
                        open.insert(index, DecodedBlock { kind, text, end }).is_none(),
                        "block {index} twice"
                    );
                }
                ModelEvent::Delta { index, text } => open.get_mut(&index).unwrap().text.push_str(&text),
                ModelEvent::BlockStop { index, end } => {
                    let block = open.remove(&index).unwrap();
                    whole.insert(index, DecodedBlock { end, ..block });
                }
                ModelEvent::Usage(usage) => heard.usage = usage,
                ModelEvent::Done { stop } => heard.stop = Some(stop),
                ModelEvent::RecordingPart(_) | ModelEvent::StopDetail { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        heard.blocks = whole.into_values().collect();
        heard
    }

    /// Removes wire-only data: signatures, and the blocks without text that carry them.
    fn without_wire_data(&self) -> DecodedReply {
        let mut heard = self.clone();
        heard.usage.cost_usd = None;
        heard.blocks.retain(|block| !(block.kind == BlockKind::Thinking && block.text.is_empty()));
        for block in &mut heard.blocks {
            block.end = BlockEnd::default();
            if let BlockKind::ToolCall { .. } = block.kind {
                block.text = serde_json::from_str::<Value>(&block.text).unwrap().to_string();
            }
        }
        heard
    }
}

fn decode_reply(scheme: WireScheme, pieces: &[Vec<u8>]) -> DecodedReply {
    let mut decoder = ReplyDecoder::new(scheme);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push_bytes(piece, &mut events).unwrap_or_else(|e| panic!("{scheme:?}: {e:?}"));
    }
    decoder.finish(&mut events).unwrap_or_else(|e| panic!("{scheme:?}: {e:?}"));
    assert_eq!(decoder.unknown_events(), 0, "{scheme:?}");
    DecodedReply::from_events(events)
}

/// Plays the script as inside a pod.
async fn play_script(text: &str, items: Vec<Item>) -> DecodedReply {
    let route = Route { provider: "scripted".into(), model: "m".into(), scheme: "scripted".into() };
    let items = items.into_iter().map(Arc::new).collect();
    let prompt = Prompt { system: "be brief".into(), ..Prompt::new(route, items) };
    let events: Vec<_> = parse_script(text).stream_reply(Arc::new(prompt)).collect().await;
    DecodedReply::from_events(events.into_iter().map(|event| event.unwrap()).collect())
}

const FULL_SCRIPT: &str = r#"
    chunk = 7
    [[turn]]
    thinking = "Überlegen: what is in both files? 🐋"
    text = "I will read „both“ of them."
    usage = { input = 812, output = 310, cache_read = 400 }
    [[turn.call]]
    tool = "Read"
    id = "call_a"
    args = { file_path = "a.txt", nested = { list = [1, 2.5, "ü"], none = {} } }
    [[turn.call]]
    tool = "Read"
    id = "call_b"
    args = {}
    [[turn]]
    text = "They say: {{result}}"
"#;

#[tokio::test]
async fn every_format_tells_what_the_script_says() {
    for scheme in SCHEMES {
        let served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
        let got = served.send_talk(scheme, &hello_talk()).await;
        assert_eq!(got.status, 200, "{}", got.body_text());
        let heard = decode_reply(scheme, &got.pieces);
        assert_eq!(
            heard.without_wire_data(),
            play_script(FULL_SCRIPT, vec![Item::user_message("hello")]).await.without_wire_data(),
            "{scheme:?}"
        );
        assert_eq!(heard.stop, Some(StopReason::ToolUse));
        let signed: Vec<_> = heard.blocks.iter().filter(|block| is_signed_block(block)).collect();
        let wanted = usize::from(scheme != WireScheme::OpenaiChat);
        assert_eq!(signed.len(), wanted, "{scheme:?}: {:?}", heard.blocks);
    }
}

#[tokio::test]
async fn woven_calls_are_told_apart() {
    for scheme in SCHEMES {
        let woven = start_mock(FULL_SCRIPT, MockOptions { interleave: true, ..MockOptions::default() })
            .await
            .send_talk(scheme, &hello_talk())
            .await;
        let plain =
            start_mock(FULL_SCRIPT, MockOptions::default()).await.send_talk(scheme, &hello_talk()).await;
        assert_eq!(
            decode_reply(scheme, &woven.pieces).without_wire_data(),
            decode_reply(scheme, &plain.pieces).without_wire_data(),
            "{scheme:?}"
        );
        // gemini sends calls in one piece.
        assert_eq!(
            without_timestamps(&woven.body_text()) == without_timestamps(&plain.body_text()),
            scheme == WireScheme::Gemini,
            "{scheme:?}"
        );
    }
}

fn is_signed_block(block: &DecodedBlock) -> bool {
    let marks = [&block.end.signature, &block.end.encrypted];
    marks.iter().any(|mark| mark.as_deref().is_some_and(|mark| mark.starts_with("sig:")))
}

#[tokio::test]
async fn stop_reasons_survive_where_the_format_has_them() {
    let cases = [
        ("end_turn", [StopReason::EndTurn, StopReason::EndTurn, StopReason::EndTurn, StopReason::EndTurn]),
        (
            "max_tokens",
            [StopReason::MaxTokens, StopReason::MaxTokens, StopReason::MaxTokens, StopReason::MaxTokens],
        ),
        (
            "content_filter",
            // anthropic uses one stop reason for both.
            [
                StopReason::Refusal,
                StopReason::ContentFilter,
                StopReason::ContentFilter,
                StopReason::ContentFilter,
            ],
        ),
    ];
    for (word, wanted) in cases {
        let served =
            start_mock(&format!("[[turn]]\ntext = 'some'\nstop = '{word}'"), MockOptions::default()).await;
        for (scheme, wanted) in SCHEMES.into_iter().zip(wanted) {
            let heard = decode_reply(scheme, &served.send_talk(scheme, &hello_talk()).await.pieces);
            assert_eq!(heard.stop, Some(wanted), "{scheme:?} {word}");
        }
    }
}

#[tokio::test]
async fn a_refusal_is_told_as_the_format_tells_it() {
    let served = start_mock("[[turn]]\ntext = 'I will not.'\nstop = 'refusal'", MockOptions::default()).await;
    for scheme in SCHEMES {
        let heard = decode_reply(scheme, &served.send_talk(scheme, &hello_talk()).await.pieces);
        assert_eq!(heard.blocks[0].text, "I will not.", "{scheme:?}");
        let refused = matches!(heard.stop, Some(StopReason::Refusal | StopReason::ContentFilter))
            || heard.blocks[0].kind == BlockKind::Refusal;
        assert!(refused, "{scheme:?}: {heard:?}");
    }
}

#[tokio::test]
async fn any_split_carries_the_same_bytes() {
    let text = FULL_SCRIPT.replace("chunk = 7", "");
    for scheme in SCHEMES {
        let plain = start_mock(&text, MockOptions::default()).await.send_talk(scheme, &hello_talk()).await;
        for write_split in [WriteSplit::Bytes(1), WriteSplit::Random(7)] {
            let got = start_mock(&text, MockOptions { write_split, ..MockOptions::default() })
                .await
                .send_talk(scheme, &hello_talk())
                .await;
            assert_eq!(
                without_timestamps(&got.body_text()),
                without_timestamps(&plain.body_text()),
                "{scheme:?} {write_split:?}"
            );
            assert_eq!(
                decode_reply(scheme, &got.pieces),
                decode_reply(scheme, &plain.pieces),
                "{scheme:?} {write_split:?}"
            );
            if write_split == WriteSplit::Bytes(1) {
                assert!(got.pieces.iter().all(|piece| piece.len() == 1), "{scheme:?}");
            }
        }
    }
}

/// Removes the creation time.
fn without_timestamps(text: &str) -> String {
    text.split(',').filter(|field| !field.contains("\"created")).collect()
}

#[tokio::test]
async fn line_ends_comments_and_compression_change_nothing() {
    for scheme in SCHEMES {
        let plain = decode_reply(
            scheme,
            &start_mock(FULL_SCRIPT, MockOptions::default())
                .await
                .send_talk(scheme, &hello_talk())
                .await
                .pieces,
        );
        let options = MockOptions {
            use_crlf: true,
            with_comments: true,
            write_split: WriteSplit::Random(3),
            ..MockOptions::default()
        };
        let got = start_mock(FULL_SCRIPT, options).await.send_talk(scheme, &hello_talk()).await;
        assert!(
            got.body_text().contains("data: ") && got.body_text().contains("}\r\n\r\n"),
            "{}",
            got.body_text()
        );
        assert!(got.body_text().contains(": keep-alive"), "{}", got.body_text());
        assert_eq!(decode_reply(scheme, &got.pieces), plain, "{scheme:?}");

        let options = MockOptions { gzip: true, ..MockOptions::default() };
        let served = start_mock(FULL_SCRIPT, options).await;
        let packed = served.send_talk(scheme, &hello_talk()).await;
        assert_eq!(decode_reply(scheme, &packed.pieces), plain, "{scheme:?}");
        let record = { served }.request_log.try_recv().unwrap();
        assert!(record.headers["accept-encoding"].contains("gzip"), "{record:?}");
    }
}

#[tokio::test]
async fn gemini_without_events_is_one_array() {
    let served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
    let url = format!("http://{}/v1beta/models/m:streamGenerateContent", served.addr);
    let request = served.client.post(url).header("x-goog-api-key", KEY);
    let got =
        served.send_request(request.body(request_body(WireScheme::Gemini, &hello_talk()).to_string())).await;
    assert!(got.body_json().is_array());
    assert_eq!(decode_reply(WireScheme::Gemini, &got.pieces).stop, Some(StopReason::ToolUse));
}

/// Runs the first turn and returns the conversation with its thoughts and calls.
async fn run_first_turn(served: &RunningMock, scheme: WireScheme) -> TestTalk {
    let heard = decode_reply(scheme, &served.send_talk(scheme, &hello_talk()).await.pieces);
    let mut talk = hello_talk();
    let mut waiting = None;
    for block in heard.blocks {
        let mark = block.end.signature.or(block.end.encrypted);
        match block.kind {
            // gemini signs the call.
            BlockKind::Thinking if scheme == WireScheme::Gemini => waiting = mark.or(waiting),
            BlockKind::Thinking => talk.0.push(TalkPart::Thought(block.text, mark.unwrap_or_default())),
            BlockKind::ToolCall { id, .. } => {
                let id = if id == "call_a" { "call_a" } else { "call_b" };
                let args = serde_json::from_str(&block.text).unwrap();
                talk.0.push(TalkPart::Call(id, "Read", args, waiting.take()));
            }
            BlockKind::Text | BlockKind::Refusal => {}
        }
    }
    talk.0.push(TalkPart::Result("call_a", "one"));
    talk.0.push(TalkPart::Result("call_b", "two"));
    talk
}

#[tokio::test]
async fn reasoning_that_comes_back_is_checked() {
    for scheme in SCHEMES {
        let mut served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
        let talk = run_first_turn(&served, scheme).await;
        let got = served.send_talk(scheme, &talk).await;
        assert_eq!(got.status, 200, "{scheme:?}: {}", got.body_text());
        assert_eq!(decode_reply(scheme, &got.pieces).blocks[0].text, "They say: two", "{scheme:?}");
        let record = [served.request_log.recv().await.unwrap(), served.request_log.recv().await.unwrap()];
        assert_eq!(record.each_ref().map(|seen| seen.turn), [Some(1), Some(2)]);
        assert_eq!(record[1].reasoning, 1, "{scheme:?}");

        if scheme == WireScheme::OpenaiChat {
            continue;
        }
        for spoil in [spoil_text, spoil_signature] {
            let got = served.send_talk(scheme, &spoil(&talk)).await;
            assert_eq!(got.status, 400, "{scheme:?}: {}", got.body_text());
            assert!(got.body_text().to_lowercase().contains("signature"), "{scheme:?}: {}", got.body_text());
        }
    }
}

fn spoil_text(talk: &TestTalk) -> TestTalk {
    let mut talk = talk.clone();
    for said in &mut talk.0 {
        match said {
            TalkPart::Thought(text, _) => text.push('!'),
            TalkPart::Call(_, _, args, Some(_)) => *args = json!({ "file_path": "other.txt" }),
            _ => {}
        }
    }
    talk
}

fn spoil_signature(talk: &TestTalk) -> TestTalk {
    let mut talk = talk.clone();
    for said in &mut talk.0 {
        match said {
            TalkPart::Thought(_, mark) | TalkPart::Call(_, _, _, Some(mark)) => {
                *mark = "EtABCkYIforeign".into()
            }
            _ => {}
        }
    }
    talk
}

#[tokio::test]
async fn a_demanding_gemini_wants_its_signatures_back() {
    let served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
    let mut talk = hello_talk();
    talk.0.push(TalkPart::Call("call_a", "Read", json!({}), None));
    talk.0.push(TalkPart::Result("call_a", "one"));
    let url = format!("http://{}/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", served.addr);
    let post = |talk: &TestTalk| {
        let request = served.client.post(&url).header("x-goog-api-key", KEY);
        served.send_request(request.body(request_body(WireScheme::Gemini, talk).to_string()))
    };
    let got = post(&talk).await;
    assert_eq!(got.status, 400);
    assert!(got.body_text().contains("missing a thought_signature"), "{}", got.body_text());
    talk.0[1] = TalkPart::Call("call_a", "Read", json!({}), Some("skip_thought_signature_validator".into()));
    assert_eq!(post(&talk).await.status, 200);
}

#[tokio::test]
async fn errors_come_in_the_shape_of_the_format_and_are_counted() {
    let text = "
        [[turn]]
        error = { status = 429, message = 'slow down', retry_after_s = 3, times = 2 }
        [[turn]]
        text = 'fine'";
    for scheme in SCHEMES {
        let mut served = start_mock(text, MockOptions::default()).await;
        for attempt in 0..2 {
            let got = served.send_talk(scheme, &hello_talk()).await;
            assert_eq!((got.status, got.headers["retry-after"].as_str()), (429, "3"), "{scheme:?} {attempt}");
            let (kind, word) = match scheme {
                WireScheme::Anthropic => ("/error/type", "rate_limit_error"),
                WireScheme::Gemini => ("/error/status", "RESOURCE_EXHAUSTED"),
                _ => ("/error/code", "rate_limit_exceeded"),
            };
            assert_eq!(got.body_json().pointer(kind), Some(&json!(word)), "{scheme:?}");
            assert_eq!(got.body_json().pointer("/error/message"), Some(&json!("slow down")), "{scheme:?}");
            let record = served.request_log.recv().await.unwrap();
            assert_eq!((record.status, record.attempt, record.turn), (429, attempt, Some(1)));
        }
        let heard = decode_reply(scheme, &served.send_talk(scheme, &hello_talk()).await.pieces);
        assert_eq!(heard.blocks[0].text, "fine", "{scheme:?}");
    }
}

#[tokio::test]
async fn an_error_after_the_first_word_comes_in_the_stream() {
    let text = "[[turn]]\nsteps = [{ text = 'Half a' }, { error = { status = 529, message = 'busy' } }]";
    for scheme in SCHEMES {
        let got = start_mock(text, MockOptions::default()).await.send_talk(scheme, &hello_talk()).await;
        assert_eq!((got.status, got.is_broken), (200, false));
        let mut decoder = ReplyDecoder::new(scheme);
        let mut events = Vec::new();
        let problem = decoder.push_bytes(&got.body_bytes(), &mut events).unwrap_err();
        assert!(problem.text.contains("busy"), "{scheme:?}: {problem:?}");
        assert!(
            matches!(problem.kind, ProviderErrorKind::Overloaded | ProviderErrorKind::Server),
            "{scheme:?}: {problem:?} is retried"
        );
        assert!(
            events.iter().any(|event| matches!(event, ModelEvent::Delta { text, .. } if text == "Half a"))
        );
    }
}

#[tokio::test]
async fn a_cut_breaks_the_connection_after_what_was_said() {
    let text = "[[turn]]\ntext = 'This stream is lost'\ncut_after = 4\n[[turn]]\ntext = 'again'";
    for scheme in SCHEMES {
        for cut_in_event in [false, true] {
            let served = start_mock(text, MockOptions { cut_in_event, ..MockOptions::default() }).await;
            let got = served.send_talk(scheme, &hello_talk()).await;
            assert!(got.is_broken, "{scheme:?}");
            assert_eq!(
                got.body_text().ends_with("\n\n") || got.body_text().ends_with("\r\n\r\n"),
                !cut_in_event
            );
            assert!(cut_in_event || got.body_text().contains("\"This\""), "{scheme:?}: {}", got.body_text());
            let mut decoder = ReplyDecoder::new(scheme);
            let mut events = Vec::new();
            let pushed =
                decoder.push_bytes(&got.body_bytes(), &mut events).and_then(|()| decoder.finish(&mut events));
            assert_eq!(pushed.unwrap_err().kind, ProviderErrorKind::Interrupted, "{scheme:?}");
            // A request without any reply is repeated and gets the next turn.
            let heard = decode_reply(scheme, &served.send_talk(scheme, &hello_talk()).await.pieces);
            assert_eq!(heard.blocks[0].text, "again");
        }
    }
}

#[tokio::test]
async fn a_bad_request_is_refused_in_the_shape_of_its_format() {
    let mut open = hello_talk();
    open.0.push(TalkPart::Call("call_a", "Read", json!({}), None));
    let mut prefilled = hello_talk();
    prefilled.0.push(TalkPart::Assistant("He"));
    let mut orphan = hello_talk();
    orphan.0.push(TalkPart::Result("call_x", "one"));
    for scheme in SCHEMES {
        let served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
        let refused = async |body: String, wanted: &str| {
            let got = served.send_request(served.request_builder(scheme).body(body)).await;
            assert_eq!(got.status, 400, "{scheme:?}: {}", got.body_text());
            let message =
                got.body_json().pointer("/error/message").and_then(Value::as_str).unwrap().to_owned();
            assert!(message.contains(wanted), "{scheme:?}: {message}");
        };
        refused("{ no json".into(), "not JSON").await;
        refused(request_body(scheme, &open).to_string(), "has no result").await;
        refused(request_body(scheme, &prefilled).to_string(), "ends with the assistant").await;
        let wanted = if scheme == WireScheme::Gemini { "was not called" } else { "belongs to no open call" };
        refused(request_body(scheme, &orphan).to_string(), wanted).await;
        refused(request_body(scheme, &TestTalk::default()).to_string(), "no message").await;
        if scheme != WireScheme::Gemini {
            let mut unstreamed = request_body(scheme, &hello_talk());
            unstreamed["stream"] = false.into();
            refused(unstreamed.to_string(), "stream").await;
        }
        let url = served.request_builder(scheme).build().unwrap().url().clone();
        let got = served
            .send_request(served.client.post(url).body(request_body(scheme, &hello_talk()).to_string()))
            .await;
        assert_eq!(got.status, 401, "{scheme:?}: {}", got.body_text());
    }
}

#[tokio::test]
async fn a_key_is_seen_and_not_shown() {
    for scheme in SCHEMES {
        let mut served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
        let got = served.send_talk(scheme, &hello_talk()).await;
        let record = served.request_log.recv().await.unwrap();
        assert!(record.key);
        assert_eq!((record.scheme, record.messages > 0, record.status), (Some(scheme), true, 200));
        assert_eq!((record.model.as_deref(), record.stream), (Some("m"), true));
        let line = serde_json::to_string(&record).unwrap();
        assert!(!line.contains(KEY) && !got.body_text().contains(KEY), "{line}");
        assert!(line.contains("[hidden]"), "{line}");
    }
    let mut served = start_mock(FULL_SCRIPT, MockOptions::default()).await;
    let url = format!("http://{}/v1beta/models/m:streamGenerateContent?alt=sse&key={KEY}", served.addr);
    let request = served.client.post(url).header("x-goog-api-key", KEY);
    let got =
        served.send_request(request.body(request_body(WireScheme::Gemini, &hello_talk()).to_string())).await;
    assert_eq!(got.status, 400);
    assert!(!serde_json::to_string(&served.request_log.recv().await.unwrap()).unwrap().contains(KEY));
}

#[tokio::test]
async fn paths_work_with_and_without_a_version_and_models_are_listed() {
    let served = start_mock(
        "loop = true\n[[turn]]\ntext = 'hi'",
        MockOptions { allow_keyless: true, ..MockOptions::default() },
    )
    .await;
    let base = format!("http://{}", served.addr);
    for path in ["/chat/completions", "/v1/chat/completions", "/proxy/x/v1/chat/completions"] {
        let request = served.client.post(format!("{base}{path}"));
        let got = served
            .send_request(request.body(request_body(WireScheme::OpenaiChat, &hello_talk()).to_string()))
            .await;
        assert_eq!(got.status, 200, "{path}");
    }
    let shapes = [
        ("/v1/models", ("x-none", "1"), "/data/0/object"),
        ("/v1/models", ("anthropic-version", "2023-06-01"), "/data/0/type"),
        ("/v1beta/models", ("x-none", "1"), "/models/0/name"),
    ];
    for (path, header, field) in shapes {
        let got =
            served.send_request(served.client.get(format!("{base}{path}")).header(header.0, header.1)).await;
        assert!(got.body_json().pointer(field).is_some(), "{path}: {}", got.body_text());
    }
    let lost = served.send_request(served.client.get(format!("{base}/v1/embeddings"))).await;
    assert_eq!(lost.status, 404);
    assert!(lost.body_text().contains("is not served"), "{}", lost.body_text());
}

#[tokio::test]
async fn a_script_that_runs_out_says_so() {
    for scheme in SCHEMES {
        let served = start_mock("[[turn]]\ntext = 'only this'", MockOptions::default()).await;
        let mut talk = hello_talk();
        talk.0.extend([TalkPart::Assistant("only this"), TalkPart::User("more")]);
        let got = served.send_talk(scheme, &talk).await;
        assert_eq!(got.status, 400, "{scheme:?}");
        assert!(got.body_text().contains("no turn left after 1 replies"), "{}", got.body_text());
    }
}

#[tokio::test]
async fn gemini_has_no_place_for_arguments_that_are_no_object() {
    let text = "[[turn]]\n[[turn.call]]\ntool = 'Read'\nraw = '[1'";
    let got =
        start_mock(text, MockOptions::default()).await.send_talk(WireScheme::Gemini, &hello_talk()).await;
    assert!(got.body_text().contains("MALFORMED_FUNCTION_CALL"), "{}", got.body_text());
}

/// Collects every location in a value as a JSON pointer.
fn json_pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| json_pointers(value, &format!("{at}/{key}"), out))
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(number, value)| json_pointers(value, &format!("{at}/{number}"), out));
        }
        _ => {}
    }
}

#[tokio::test]
async fn no_request_brings_it_down() {
    for scheme in SCHEMES {
        let served = start_mock(&format!("loop = true\n{FULL_SCRIPT}"), MockOptions::default()).await;
        let whole = request_body(scheme, &run_first_turn(&served, scheme).await);
        let mut all = Vec::new();
        json_pointers(&whole, "", &mut all);
        let mut refused = 0;
        for place in &all {
            for value in [Value::Null, json!(-1), json!(""), json!([]), json!([[{}]]), json!({ "type": 7 })] {
                let mut spoilt = whole.clone();
                *spoilt.pointer_mut(place).unwrap() = value.clone();
                // After a panic the server would not answer, and this would fail.
                let got = served.send_request(served.request_builder(scheme).body(spoilt.to_string())).await;
                assert!(matches!(got.status, 200 | 400), "{scheme:?} {place} = {value}: {}", got.status);
                if got.status == 400 {
                    refused += 1;
                    assert!(got.body_json().pointer("/error/message").is_some(), "{}", got.body_text());
                }
            }
        }
        assert!(refused > all.len(), "{scheme:?}: only {refused} of {} were refused", all.len() * 6);
    }
}
