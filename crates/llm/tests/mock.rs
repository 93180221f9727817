//! `mock`: a script over loopback HTTP. What it tells in each format is read with our own decoders and compared with
//! what the script says inside a pod; what it refuses is refused as the providers refuse it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use minke_llm::mock::{Options, Seen, Split, serve};
use minke_llm::{Decoder, Reason, Scheme, Scripted};
use minke_model::{BlockEnd, BlockKind, Model, ModelEvent, Prompt, StopReason, TokenUsage};
use minke_record::{Item, Route};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const SCHEMES: [Scheme; 4] = [Scheme::Anthropic, Scheme::OpenaiResponses, Scheme::OpenaiChat, Scheme::Gemini];
/// A key that must never be seen again.
const KEY: &str = "sk-planted-0123456789";

/// A mock that answers, and what it logged.
struct Served {
    addr: SocketAddr,
    seen: mpsc::Receiver<Seen>,
    task: JoinHandle<std::io::Result<()>>,
    client: reqwest::Client,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What came back.
struct Got {
    status: u16,
    headers: BTreeMap<String, String>,
    pieces: Vec<Vec<u8>>,
    /// The connection broke before the body was whole.
    broke: bool,
}

impl Got {
    fn bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

fn script(text: &str) -> Scripted {
    Scripted::parse("talk.toml", text, Path::new("/somewhere")).unwrap_or_else(|e| panic!("{e}"))
}

async fn served(text: &str, options: Options) -> Served {
    let mock = serve(script(text), options).await.unwrap();
    let (sender, seen) = mpsc::channel(1_000);
    let addr = mock.addr();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Served { addr, seen, task: tokio::spawn(mock.run(sender)), client }
}

impl Served {
    async fn ask(&self, scheme: Scheme, talk: &Talk) -> Got {
        let request = self.request(scheme).body(body(scheme, talk).to_string());
        self.send(request).await
    }

    fn request(&self, scheme: Scheme) -> reqwest::RequestBuilder {
        let (path, key) = match scheme {
            Scheme::Anthropic => ("v1/messages", "x-api-key"),
            Scheme::OpenaiResponses => ("v1/responses", "authorization"),
            Scheme::OpenaiChat => ("v1/chat/completions", "authorization"),
            Scheme::Gemini => ("v1beta/models/m:streamGenerateContent?alt=sse", "x-goog-api-key"),
            Scheme::Scripted => unreachable!("not a wire format"),
        };
        let value = if key == "authorization" { format!("Bearer {KEY}") } else { KEY.to_owned() };
        let url = format!("http://{}/{path}", self.addr);
        self.client.post(url).header(key, value).header("anthropic-version", "2023-06-01")
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Got {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text =
            |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers =
            response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let mut got = Got { status, headers, pieces: Vec::new(), broke: false };
        let mut body = response.bytes_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => got.pieces.push(piece.to_vec()),
                Err(_) => got.broke = true,
            }
        }
        got
    }
}

/// A conversation, to be written in any format.
#[derive(Default, Clone)]
struct Talk(Vec<Said>);

#[derive(Clone)]
enum Said {
    User(&'static str),
    Assistant(&'static str),
    /// What was thought, and the signature or encrypted form.
    Thought(String, String),
    /// Id, name, arguments, and the signature that gemini puts on it.
    Call(&'static str, &'static str, Value, Option<String>),
    Result(&'static str, &'static str),
}

fn hello() -> Talk {
    Talk(vec![Said::User("hello")])
}

/// The request in one format.
fn body(scheme: Scheme, talk: &Talk) -> Value {
    let parts: Vec<Value> = talk.0.iter().map(|said| part(scheme, said)).collect();
    match scheme {
        Scheme::Anthropic => {
            json!({ "model": "m", "max_tokens": 100, "stream": true, "system": "be brief", "messages": parts })
        }
        Scheme::OpenaiResponses => json!({
            "model": "m", "stream": true, "store": false, "instructions": "be brief", "input": parts,
            "include": ["reasoning.encrypted_content"],
        }),
        Scheme::OpenaiChat => {
            let mut messages = vec![json!({ "role": "system", "content": "be brief" })];
            messages.extend(parts);
            let options = json!({ "include_usage": true });
            json!({ "model": "m", "stream": true, "stream_options": options, "messages": messages })
        }
        Scheme::Gemini => {
            json!({ "systemInstruction": { "parts": [{ "text": "be brief" }] }, "contents": parts })
        }
        Scheme::Scripted => unreachable!("not a wire format"),
    }
}

/// One message of its own for everything that was said: formats take that, whatever clients usually do.
fn part(scheme: Scheme, said: &Said) -> Value {
    let anthropic = |role: &str, block: Value| json!({ "role": role, "content": [block] });
    let gemini = |role: &str, part: Value| json!({ "role": role, "parts": [part] });
    match (scheme, said) {
        (Scheme::Anthropic, Said::User(text)) => anthropic("user", json!({ "type": "text", "text": text })),
        (Scheme::Anthropic, Said::Assistant(text)) => {
            anthropic("assistant", json!({ "type": "text", "text": text }))
        }
        (Scheme::Anthropic, Said::Thought(text, signature)) => {
            anthropic("assistant", json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        (Scheme::Anthropic, Said::Call(id, name, input, _)) => {
            anthropic("assistant", json!({ "type": "tool_use", "id": id, "name": name, "input": input }))
        }
        (Scheme::Anthropic, Said::Result(id, text)) => {
            anthropic("user", json!({ "type": "tool_result", "tool_use_id": id, "content": text }))
        }
        (Scheme::OpenaiResponses, Said::User(text)) => json!({ "role": "user", "content": text }),
        (Scheme::OpenaiResponses, Said::Assistant(text)) => {
            let content = json!([{ "type": "output_text", "text": text }]);
            json!({ "type": "message", "role": "assistant", "content": content })
        }
        (Scheme::OpenaiResponses, Said::Thought(text, encrypted)) => {
            let summary = json!([{ "type": "summary_text", "text": text }]);
            json!({ "type": "reasoning", "summary": summary, "encrypted_content": encrypted })
        }
        (Scheme::OpenaiResponses, Said::Call(id, name, args, _)) => {
            json!({ "type": "function_call", "call_id": id, "name": name, "arguments": args.to_string() })
        }
        (Scheme::OpenaiResponses, Said::Result(id, text)) => {
            json!({ "type": "function_call_output", "call_id": id, "output": text })
        }
        (Scheme::OpenaiChat, Said::User(text)) => json!({ "role": "user", "content": text }),
        (Scheme::OpenaiChat, Said::Assistant(text)) => json!({ "role": "assistant", "content": text }),
        (Scheme::OpenaiChat, Said::Thought(text, _)) => {
            json!({ "role": "assistant", "reasoning_content": text, "content": null })
        }
        (Scheme::OpenaiChat, Said::Call(id, name, args, _)) => {
            let function = json!({ "name": name, "arguments": args.to_string() });
            let call = json!({ "id": id, "type": "function", "function": function });
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        }
        (Scheme::OpenaiChat, Said::Result(id, text)) => {
            json!({ "role": "tool", "tool_call_id": id, "content": text })
        }
        (Scheme::Gemini, Said::User(text)) => gemini("user", json!({ "text": text })),
        (Scheme::Gemini, Said::Assistant(text)) => gemini("model", json!({ "text": text })),
        (Scheme::Gemini, Said::Thought(text, signature)) => {
            gemini("model", json!({ "text": text, "thoughtSignature": signature }))
        }
        (Scheme::Gemini, Said::Call(id, name, args, signature)) => {
            let mut part = json!({ "functionCall": { "id": id, "name": name, "args": args } });
            if let Some(signature) = signature {
                part["thoughtSignature"] = signature.as_str().into();
            }
            gemini("model", part)
        }
        (Scheme::Gemini, Said::Result(_, text)) => {
            // By the name alone, as the format was first.
            gemini("user", json!({ "functionResponse": { "name": "Read", "response": { "output": text } } }))
        }
        (Scheme::Scripted, _) => unreachable!("not a wire format"),
    }
}

/// A reply without its chunking: what each block said, and how it ended.
#[derive(Debug, Default, Clone, PartialEq)]
struct Heard {
    blocks: Vec<Block>,
    usage: TokenUsage,
    stop: Option<StopReason>,
}

#[derive(Debug, Clone, PartialEq)]
struct Block {
    kind: BlockKind,
    text: String,
    end: BlockEnd,
}

impl Heard {
    fn of(events: Vec<ModelEvent>) -> Heard {
        let mut heard = Heard::default();
        let mut open: BTreeMap<u32, Block> = BTreeMap::new();
        // By index: calls that are told at the same time may end in any order.
        let mut whole = BTreeMap::new();
        for event in events {
            match event {
                ModelEvent::BlockStart { index, kind } => {
                    let (text, end) = (String::new(), BlockEnd::default());
                    assert!(open.insert(index, Block { kind, text, end }).is_none(), "block {index} twice");
                }
                ModelEvent::Delta { index, text } => open.get_mut(&index).unwrap().text.push_str(&text),
                ModelEvent::BlockStop { index, end } => {
                    let block = open.remove(&index).unwrap();
                    whole.insert(index, Block { end, ..block });
                }
                ModelEvent::Usage(usage) => heard.usage = usage,
                ModelEvent::Done { stop } => heard.stop = Some(stop),
                ModelEvent::Tape(_) | ModelEvent::StopDetail { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        heard.blocks = whole.into_values().collect();
        heard
    }

    /// Without what only the wire has: signatures, and the blocks without text that carry them.
    fn said(&self) -> Heard {
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

fn decoded(scheme: Scheme, pieces: &[Vec<u8>]) -> Heard {
    let mut decoder = Decoder::new(scheme);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events).unwrap_or_else(|e| panic!("{scheme:?}: {e:?}"));
    }
    decoder.finish(&mut events).unwrap_or_else(|e| panic!("{scheme:?}: {e:?}"));
    assert_eq!(decoder.unknown_events(), 0, "{scheme:?}");
    Heard::of(events)
}

/// What the script says inside a pod.
async fn played(text: &str, items: Vec<Item>) -> Heard {
    let route = Route { provider: "scripted".into(), model: "m".into(), scheme: "scripted".into() };
    let items = items.into_iter().map(Arc::new).collect();
    let prompt = Prompt { system: "be brief".into(), ..Prompt::new(route, items) };
    let events: Vec<_> = script(text).ask(Arc::new(prompt)).collect().await;
    Heard::of(events.into_iter().map(|event| event.unwrap()).collect())
}

const WHOLE: &str = r#"
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
        let served = served(WHOLE, Options::default()).await;
        let got = served.ask(scheme, &hello()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let heard = decoded(scheme, &got.pieces);
        assert_eq!(heard.said(), played(WHOLE, vec![Item::user("hello")]).await.said(), "{scheme:?}");
        assert_eq!(heard.stop, Some(StopReason::ToolUse));
        let signed: Vec<_> = heard.blocks.iter().filter(|block| is_signed(block)).collect();
        let wanted = usize::from(scheme != Scheme::OpenaiChat);
        assert_eq!(signed.len(), wanted, "{scheme:?}: {:?}", heard.blocks);
    }
}

#[tokio::test]
async fn woven_calls_are_told_apart() {
    for scheme in SCHEMES {
        let woven =
            served(WHOLE, Options { weave: true, ..Options::default() }).await.ask(scheme, &hello()).await;
        let plain = served(WHOLE, Options::default()).await.ask(scheme, &hello()).await;
        assert_eq!(
            decoded(scheme, &woven.pieces).said(),
            decoded(scheme, &plain.pieces).said(),
            "{scheme:?}"
        );
        // gemini tells calls whole.
        assert_eq!(
            timeless(&woven.text()) == timeless(&plain.text()),
            scheme == Scheme::Gemini,
            "{scheme:?}"
        );
    }
}

fn is_signed(block: &Block) -> bool {
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
            // anthropic has one word for both.
            [
                StopReason::Refusal,
                StopReason::ContentFilter,
                StopReason::ContentFilter,
                StopReason::ContentFilter,
            ],
        ),
    ];
    for (word, wanted) in cases {
        let served = served(&format!("[[turn]]\ntext = 'some'\nstop = '{word}'"), Options::default()).await;
        for (scheme, wanted) in SCHEMES.into_iter().zip(wanted) {
            let heard = decoded(scheme, &served.ask(scheme, &hello()).await.pieces);
            assert_eq!(heard.stop, Some(wanted), "{scheme:?} {word}");
        }
    }
}

#[tokio::test]
async fn a_refusal_is_told_as_the_format_tells_it() {
    let served = served("[[turn]]\ntext = 'I will not.'\nstop = 'refusal'", Options::default()).await;
    for scheme in SCHEMES {
        let heard = decoded(scheme, &served.ask(scheme, &hello()).await.pieces);
        assert_eq!(heard.blocks[0].text, "I will not.", "{scheme:?}");
        let refused = matches!(heard.stop, Some(StopReason::Refusal | StopReason::ContentFilter))
            || heard.blocks[0].kind == BlockKind::Refusal;
        assert!(refused, "{scheme:?}: {heard:?}");
    }
}

#[tokio::test]
async fn any_split_carries_the_same_bytes() {
    let text = WHOLE.replace("chunk = 7", "");
    for scheme in SCHEMES {
        let plain = served(&text, Options::default()).await.ask(scheme, &hello()).await;
        for split in [Split::Bytes(1), Split::Random(7)] {
            let got =
                served(&text, Options { split, ..Options::default() }).await.ask(scheme, &hello()).await;
            assert_eq!(timeless(&got.text()), timeless(&plain.text()), "{scheme:?} {split:?}");
            assert_eq!(decoded(scheme, &got.pieces), decoded(scheme, &plain.pieces), "{scheme:?} {split:?}");
            if split == Split::Bytes(1) {
                assert!(got.pieces.iter().all(|piece| piece.len() == 1), "{scheme:?}");
            }
        }
    }
}

/// Without the second in which it was made.
fn timeless(text: &str) -> String {
    text.split(',').filter(|field| !field.contains("\"created")).collect()
}

#[tokio::test]
async fn line_ends_comments_and_compression_change_nothing() {
    for scheme in SCHEMES {
        let plain =
            decoded(scheme, &served(WHOLE, Options::default()).await.ask(scheme, &hello()).await.pieces);
        let options = Options { crlf: true, comments: true, split: Split::Random(3), ..Options::default() };
        let got = served(WHOLE, options).await.ask(scheme, &hello()).await;
        assert!(got.text().contains("data: ") && got.text().contains("}\r\n\r\n"), "{}", got.text());
        assert!(got.text().contains(": keep-alive"), "{}", got.text());
        assert_eq!(decoded(scheme, &got.pieces), plain, "{scheme:?}");

        let options = Options { gzip: true, ..Options::default() };
        let served = served(WHOLE, options).await;
        let packed = served.ask(scheme, &hello()).await;
        assert_eq!(decoded(scheme, &packed.pieces), plain, "{scheme:?}");
        let seen = { served }.seen.try_recv().unwrap();
        assert!(seen.headers["accept-encoding"].contains("gzip"), "{seen:?}");
    }
}

#[tokio::test]
async fn gemini_without_events_is_one_array() {
    let served = served(WHOLE, Options::default()).await;
    let url = format!("http://{}/v1beta/models/m:streamGenerateContent", served.addr);
    let request = served.client.post(url).header("x-goog-api-key", KEY);
    let got = served.send(request.body(body(Scheme::Gemini, &hello()).to_string())).await;
    assert!(got.json().is_array());
    assert_eq!(decoded(Scheme::Gemini, &got.pieces).stop, Some(StopReason::ToolUse));
}

/// Runs the first turn and gives the conversation with what was thought and called in it.
async fn first_turn(served: &Served, scheme: Scheme) -> Talk {
    let heard = decoded(scheme, &served.ask(scheme, &hello()).await.pieces);
    let mut talk = hello();
    let mut waiting = None;
    for block in heard.blocks {
        let mark = block.end.signature.or(block.end.encrypted);
        match block.kind {
            // What gemini signs is the call.
            BlockKind::Thinking if scheme == Scheme::Gemini => waiting = mark.or(waiting),
            BlockKind::Thinking => talk.0.push(Said::Thought(block.text, mark.unwrap_or_default())),
            BlockKind::ToolCall { id, .. } => {
                let id = if id == "call_a" { "call_a" } else { "call_b" };
                let args = serde_json::from_str(&block.text).unwrap();
                talk.0.push(Said::Call(id, "Read", args, waiting.take()));
            }
            BlockKind::Text | BlockKind::Refusal => {}
        }
    }
    talk.0.push(Said::Result("call_a", "one"));
    talk.0.push(Said::Result("call_b", "two"));
    talk
}

#[tokio::test]
async fn reasoning_that_comes_back_is_checked() {
    for scheme in SCHEMES {
        let mut served = served(WHOLE, Options::default()).await;
        let talk = first_turn(&served, scheme).await;
        let got = served.ask(scheme, &talk).await;
        assert_eq!(got.status, 200, "{scheme:?}: {}", got.text());
        assert_eq!(decoded(scheme, &got.pieces).blocks[0].text, "They say: two", "{scheme:?}");
        let seen = [served.seen.recv().await.unwrap(), served.seen.recv().await.unwrap()];
        assert_eq!(seen.each_ref().map(|seen| seen.turn), [Some(1), Some(2)]);
        assert_eq!(seen[1].reasoning, 1, "{scheme:?}");

        if scheme == Scheme::OpenaiChat {
            continue;
        }
        for spoil in [spoil_text, spoil_signature] {
            let got = served.ask(scheme, &spoil(&talk)).await;
            assert_eq!(got.status, 400, "{scheme:?}: {}", got.text());
            assert!(got.text().to_lowercase().contains("signature"), "{scheme:?}: {}", got.text());
        }
    }
}

fn spoil_text(talk: &Talk) -> Talk {
    let mut talk = talk.clone();
    for said in &mut talk.0 {
        match said {
            Said::Thought(text, _) => text.push('!'),
            Said::Call(_, _, args, Some(_)) => *args = json!({ "file_path": "other.txt" }),
            _ => {}
        }
    }
    talk
}

fn spoil_signature(talk: &Talk) -> Talk {
    let mut talk = talk.clone();
    for said in &mut talk.0 {
        match said {
            Said::Thought(_, mark) | Said::Call(_, _, _, Some(mark)) => *mark = "EtABCkYIforeign".into(),
            _ => {}
        }
    }
    talk
}

#[tokio::test]
async fn a_demanding_gemini_wants_its_signatures_back() {
    let served = served(WHOLE, Options::default()).await;
    let mut talk = hello();
    talk.0.push(Said::Call("call_a", "Read", json!({}), None));
    talk.0.push(Said::Result("call_a", "one"));
    let url = format!("http://{}/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", served.addr);
    let post = |talk: &Talk| {
        let request = served.client.post(&url).header("x-goog-api-key", KEY);
        served.send(request.body(body(Scheme::Gemini, talk).to_string()))
    };
    let got = post(&talk).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("missing a thought_signature"), "{}", got.text());
    talk.0[1] = Said::Call("call_a", "Read", json!({}), Some("skip_thought_signature_validator".into()));
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
        let mut served = served(text, Options::default()).await;
        for attempt in 0..2 {
            let got = served.ask(scheme, &hello()).await;
            assert_eq!((got.status, got.headers["retry-after"].as_str()), (429, "3"), "{scheme:?} {attempt}");
            let (kind, word) = match scheme {
                Scheme::Anthropic => ("/error/type", "rate_limit_error"),
                Scheme::Gemini => ("/error/status", "RESOURCE_EXHAUSTED"),
                _ => ("/error/code", "rate_limit_exceeded"),
            };
            assert_eq!(got.json().pointer(kind), Some(&json!(word)), "{scheme:?}");
            assert_eq!(got.json().pointer("/error/message"), Some(&json!("slow down")), "{scheme:?}");
            let seen = served.seen.recv().await.unwrap();
            assert_eq!((seen.status, seen.attempt, seen.turn), (429, attempt, Some(1)));
        }
        let heard = decoded(scheme, &served.ask(scheme, &hello()).await.pieces);
        assert_eq!(heard.blocks[0].text, "fine", "{scheme:?}");
    }
}

#[tokio::test]
async fn an_error_after_the_first_word_comes_in_the_stream() {
    let text = "[[turn]]\nsteps = [{ text = 'Half a' }, { error = { status = 529, message = 'busy' } }]";
    for scheme in SCHEMES {
        let got = served(text, Options::default()).await.ask(scheme, &hello()).await;
        assert_eq!((got.status, got.broke), (200, false));
        let mut decoder = Decoder::new(scheme);
        let mut events = Vec::new();
        let problem = decoder.push(&got.bytes(), &mut events).unwrap_err();
        assert!(problem.text.contains("busy"), "{scheme:?}: {problem:?}");
        assert!(
            matches!(problem.reason, Reason::Overloaded | Reason::Server),
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
            let served = served(text, Options { cut_in_event, ..Options::default() }).await;
            let got = served.ask(scheme, &hello()).await;
            assert!(got.broke, "{scheme:?}");
            assert_eq!(got.text().ends_with("\n\n") || got.text().ends_with("\r\n\r\n"), !cut_in_event);
            assert!(cut_in_event || got.text().contains("\"This\""), "{scheme:?}: {}", got.text());
            let mut decoder = Decoder::new(scheme);
            let mut events = Vec::new();
            let pushed = decoder.push(&got.bytes(), &mut events).and_then(|()| decoder.finish(&mut events));
            assert_eq!(pushed.unwrap_err().reason, Reason::Cut, "{scheme:?}");
            // What left nothing behind is asked again, and gets the next turn.
            let heard = decoded(scheme, &served.ask(scheme, &hello()).await.pieces);
            assert_eq!(heard.blocks[0].text, "again");
        }
    }
}

#[tokio::test]
async fn a_bad_request_is_refused_in_the_shape_of_its_format() {
    let mut open = hello();
    open.0.push(Said::Call("call_a", "Read", json!({}), None));
    let mut prefilled = hello();
    prefilled.0.push(Said::Assistant("He"));
    let mut orphan = hello();
    orphan.0.push(Said::Result("call_x", "one"));
    for scheme in SCHEMES {
        let served = served(WHOLE, Options::default()).await;
        let refused = async |body: String, wanted: &str| {
            let got = served.send(served.request(scheme).body(body)).await;
            assert_eq!(got.status, 400, "{scheme:?}: {}", got.text());
            let message = got.json().pointer("/error/message").and_then(Value::as_str).unwrap().to_owned();
            assert!(message.contains(wanted), "{scheme:?}: {message}");
        };
        refused("{ no json".into(), "not JSON").await;
        refused(body(scheme, &open).to_string(), "has no result").await;
        refused(body(scheme, &prefilled).to_string(), "ends with the assistant").await;
        let wanted = if scheme == Scheme::Gemini { "was not called" } else { "answers no open call" };
        refused(body(scheme, &orphan).to_string(), wanted).await;
        refused(body(scheme, &Talk::default()).to_string(), "no message").await;
        if scheme != Scheme::Gemini {
            let mut unstreamed = body(scheme, &hello());
            unstreamed["stream"] = false.into();
            refused(unstreamed.to_string(), "stream").await;
        }
        let url = served.request(scheme).build().unwrap().url().clone();
        let got = served.send(served.client.post(url).body(body(scheme, &hello()).to_string())).await;
        assert_eq!(got.status, 401, "{scheme:?}: {}", got.text());
    }
}

#[tokio::test]
async fn a_key_is_seen_and_not_shown() {
    for scheme in SCHEMES {
        let mut served = served(WHOLE, Options::default()).await;
        let got = served.ask(scheme, &hello()).await;
        let seen = served.seen.recv().await.unwrap();
        assert!(seen.key);
        assert_eq!((seen.scheme, seen.messages > 0, seen.status), (Some(scheme), true, 200));
        assert_eq!((seen.model.as_deref(), seen.stream), (Some("m"), true));
        let line = serde_json::to_string(&seen).unwrap();
        assert!(!line.contains(KEY) && !got.text().contains(KEY), "{line}");
        assert!(line.contains("[hidden]"), "{line}");
    }
    let mut served = served(WHOLE, Options::default()).await;
    let url = format!("http://{}/v1beta/models/m:streamGenerateContent?alt=sse&key={KEY}", served.addr);
    let request = served.client.post(url).header("x-goog-api-key", KEY);
    let got = served.send(request.body(body(Scheme::Gemini, &hello()).to_string())).await;
    assert_eq!(got.status, 400);
    assert!(!serde_json::to_string(&served.seen.recv().await.unwrap()).unwrap().contains(KEY));
}

#[tokio::test]
async fn paths_work_with_and_without_a_version_and_models_are_listed() {
    let served =
        served("loop = true\n[[turn]]\ntext = 'hi'", Options { keyless: true, ..Options::default() }).await;
    let base = format!("http://{}", served.addr);
    for path in ["/chat/completions", "/v1/chat/completions", "/proxy/x/v1/chat/completions"] {
        let request = served.client.post(format!("{base}{path}"));
        let got = served.send(request.body(body(Scheme::OpenaiChat, &hello()).to_string())).await;
        assert_eq!(got.status, 200, "{path}");
    }
    let shapes = [
        ("/v1/models", ("x-none", "1"), "/data/0/object"),
        ("/v1/models", ("anthropic-version", "2023-06-01"), "/data/0/type"),
        ("/v1beta/models", ("x-none", "1"), "/models/0/name"),
    ];
    for (path, header, field) in shapes {
        let got = served.send(served.client.get(format!("{base}{path}")).header(header.0, header.1)).await;
        assert!(got.json().pointer(field).is_some(), "{path}: {}", got.text());
    }
    let lost = served.send(served.client.get(format!("{base}/v1/embeddings"))).await;
    assert_eq!(lost.status, 404);
    assert!(lost.text().contains("is not served"), "{}", lost.text());
}

#[tokio::test]
async fn a_script_that_runs_out_says_so() {
    for scheme in SCHEMES {
        let served = served("[[turn]]\ntext = 'only this'", Options::default()).await;
        let mut talk = hello();
        talk.0.extend([Said::Assistant("only this"), Said::User("more")]);
        let got = served.ask(scheme, &talk).await;
        assert_eq!(got.status, 400, "{scheme:?}");
        assert!(got.text().contains("no turn left after 1 replies"), "{}", got.text());
    }
}

#[tokio::test]
async fn gemini_has_no_place_for_arguments_that_are_no_object() {
    let text = "[[turn]]\n[[turn.call]]\ntool = 'Read'\nraw = '[1'";
    let got = served(text, Options::default()).await.ask(Scheme::Gemini, &hello()).await;
    assert!(got.text().contains("MALFORMED_FUNCTION_CALL"), "{}", got.text());
}

/// Every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), out))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(number, value)| places(value, &format!("{at}/{number}"), out));
        }
        _ => {}
    }
}

#[tokio::test]
async fn no_request_brings_it_down() {
    for scheme in SCHEMES {
        let served = served(&format!("loop = true\n{WHOLE}"), Options::default()).await;
        let whole = body(scheme, &first_turn(&served, scheme).await);
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        let mut refused = 0;
        for place in &all {
            for value in [Value::Null, json!(-1), json!(""), json!([]), json!([[{}]]), json!({ "type": 7 })] {
                let mut spoilt = whole.clone();
                *spoilt.pointer_mut(place).unwrap() = value.clone();
                // A server that panics answers nothing, and this fails.
                let got = served.send(served.request(scheme).body(spoilt.to_string())).await;
                assert!(matches!(got.status, 200 | 400), "{scheme:?} {place} = {value}: {}", got.status);
                if got.status == 400 {
                    refused += 1;
                    assert!(got.json().pointer("/error/message").is_some(), "{}", got.text());
                }
            }
        }
        assert!(refused > all.len(), "{scheme:?}: only {refused} of {} were refused", all.len() * 6);
    }
}
