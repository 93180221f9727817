//! Benchmarks of the wire formats: the decoding speed of each scheme, and the time to build a request of
//! 2,000 items. One core, no network.
//!
//! Every number is the median of the printed samples; a missed goal is printed as missed. The floor of
//! decoding is parsing the same events as JSON and discarding the result.

#![expect(clippy::print_stdout, reason = "the measurements are the output")]

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use minke_llm::{ModelCapability, ModelSettings, ProviderQuirks, ReplyDecoder, WireScheme, build_request};
use minke_model::{ModelEvent, Prompt};
use minke_record::{CallId, Item, Role, Route, ToolSpec};
use serde_json::{Value, json};

const SAMPLES: usize = 15;
/// Events in one body.
const EVENTS: usize = 20_000;
/// Bytes that a socket returns at once.
const CHUNK_BYTES: usize = 16 * 1024;
const ITEMS: usize = 2_000;
const SCHEMES: [(WireScheme, &str); 4] = [
    (WireScheme::Anthropic, "anthropic"),
    (WireScheme::OpenaiResponses, "openai_responses"),
    (WireScheme::OpenaiChat, "openai_chat"),
    (WireScheme::Gemini, "gemini"),
];

fn main() {
    // Measures all schemes, or only the one named on the command line.
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| word.as_ref().is_none_or(|word| word == name);
    for (scheme, name) in SCHEMES.into_iter().filter(|(_, name)| wanted(name)) {
        bench_decode(scheme, name);
    }
    for (scheme, name) in SCHEMES.into_iter().filter(|(_, name)| wanted(name)) {
        bench_request(scheme, name);
    }
}

fn bench_decode(scheme: WireScheme, name: &str) {
    let body = stream_body(scheme);
    let megabytes = body.len() as f64 / 1e6;
    let (mut rates, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let (mut decoder, mut events, mut deltas) = (ReplyDecoder::new(scheme), Vec::new(), 0);
        for chunk in body.chunks(CHUNK_BYTES) {
            decoder.push_bytes(chunk, &mut events).expect("the body is good");
            deltas += events.drain(..).filter(|event| matches!(event, ModelEvent::Delta { .. })).count();
        }
        decoder.finish(&mut events).expect("the body is whole");
        rates.push(megabytes / start.elapsed().as_secs_f64());
        assert_eq!(deltas, EVENTS, "{name}: unexpected number of deltas");
        floors.push(megabytes / seconds_to_read(&body));
    }
    let rate = median_seconds(&mut rates);
    report_goal(&format!("decode {name}, MB/s of one core"), rate, rate >= 150.0, ">= 150", &rates);
    println!(
        "  floor: {:.0} MB/s, the same events parsed as JSON and discarded",
        median_seconds(&mut floors)
    );
}

/// Seconds for the minimum work of a reader of these events.
fn seconds_to_read(body: &[u8]) -> f64 {
    let start = Instant::now();
    for line in body.split(|byte| *byte == b'\n') {
        if let Some(data) = line.strip_prefix(b"data: ")
            && data.starts_with(b"{")
        {
            black_box(serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("the body is good"));
        }
    }
    start.elapsed().as_secs_f64()
}

/// A long reply in the framing of the provider.
fn stream_body(scheme: WireScheme) -> Vec<u8> {
    let mut out = Vec::new();
    let mut say = |event: Option<&str>, data: Value| {
        if let Some(event) = event {
            writeln!(out, "event: {event}").expect("memory takes it");
        }
        write!(out, "data: {data}\n\n").expect("memory takes it");
    };
    let words = |n: usize| format!("some words, {n} of them ");
    match scheme {
        WireScheme::Anthropic => {
            say(
                Some("message_start"),
                json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            );
            say(
                Some("content_block_start"),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            for n in 0..EVENTS {
                say(
                    Some("content_block_delta"),
                    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words(n)}}),
                );
            }
            say(Some("content_block_stop"), json!({"type": "content_block_stop", "index": 0}));
            say(
                Some("message_delta"),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 99}}),
            );
            say(Some("message_stop"), json!({"type": "message_stop"}));
        }
        WireScheme::OpenaiResponses => {
            say(
                Some("response.created"),
                json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}),
            );
            say(
                Some("response.output_item.added"),
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "i", "type": "message", "role": "assistant", "content": []}}),
            );
            say(
                Some("response.content_part.added"),
                json!({"type": "response.content_part.added", "item_id": "i", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
            );
            let mut whole = String::new();
            for n in 0..EVENTS {
                whole.push_str(&words(n));
                say(
                    Some("response.output_text.delta"),
                    json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": words(n), "sequence_number": n}),
                );
            }
            say(
                Some("response.output_text.done"),
                json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": whole}),
            );
            let item = json!({"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": whole}]});
            say(
                Some("response.output_item.done"),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            );
            say(
                Some("response.completed"),
                json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item], "usage": {"input_tokens": 9, "output_tokens": 99}}}),
            );
        }
        WireScheme::OpenaiChat => {
            for n in 0..EVENTS {
                say(
                    None,
                    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"content": words(n)}, "finish_reason": null}]}),
                );
            }
            say(
                None,
                json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 99}}),
            );
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
        WireScheme::Gemini => {
            for n in 0..EVENTS {
                let stop = if n + 1 == EVENTS { json!("STOP") } else { Value::Null };
                say(
                    None,
                    json!({"candidates": [{"content": {"parts": [{"text": words(n)}], "role": "model"}, "finishReason": stop, "index": 0}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": n, "totalTokenCount": 9 + n}, "modelVersion": "m"}),
                );
            }
        }
        WireScheme::Scripted => {}
    }
    out
}

fn bench_request(scheme: WireScheme, name: &str) {
    let prompt = long_conversation(name);
    let settings = ModelSettings {
        scheme,
        provider: "bench".into(),
        model_id: "bench".into(),
        max_output: Some(32_000),
        capability: ModelCapability::default(),
        quirks: ProviderQuirks::default(),
    };
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let wire = build_request(&prompt, &settings).expect("the conversation is good");
        times.push(start.elapsed().as_secs_f64() * 1e3);
        bytes = wire.body.len();
    }
    let time = median_seconds(&mut times);
    report_goal(&format!("build a request of 2,000 items, {name}, ms"), time, time <= 5.0, "<= 5", &times);
    println!("  {:.2} MB; copying as many bytes takes {:.2} ms", bytes as f64 / 1e6, seconds_to_copy(bytes));
}

fn seconds_to_copy(bytes: usize) -> f64 {
    let source = vec![b'x'; bytes];
    let start = Instant::now();
    black_box(source.clone());
    start.elapsed().as_secs_f64() * 1e3
}

/// A long conversation: questions, thinking, calls and results of a kilobyte each.
fn long_conversation(scheme: &str) -> Prompt {
    let route = Route { provider: "bench".into(), model: "bench".into(), scheme: scheme.into() };
    let mut items = vec![Arc::new(Item::user_message("Look at everything."))];
    for n in 0.. {
        if items.len() + 4 > ITEMS {
            break;
        }
        let call_id = CallId(format!("call_{n}_0"));
        items.push(Arc::new(Item::assistant_message(format!("Next I look at file {n}."))));
        items.push(Arc::new(Item::ToolCall {
            call_id: call_id.clone(),
            name: "Read".into(),
            arguments: format!(r#"{{"file_path":"src/file_{n}.rs"}}"#).into(),
        }));
        items.push(Arc::new(Item::ToolResult {
            call_id,
            summary: format!("file {n}"),
            content: Some("let answer = \"forty-two\"; // and so on\n".repeat(25).into()),
            is_error: false,
            blob: None,
            images: Vec::new(),
        }));
        if n % 10 == 9 {
            items.push(Arc::new(Item::message(Role::System, "[Notification] the build is green")));
        }
    }
    Prompt {
        system: "You are measured.".into(),
        tools: Arc::new(vec![ToolSpec {
            name: "Read".into(),
            description: "Reads a file.".into(),
            schema: json!({"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}),
        }]),
        ..Prompt::new(route, items)
    }
}

fn median_seconds(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn report_goal(name: &str, seen: f64, held: bool, goal: &str, samples: &[f64]) {
    println!(
        "{name}: {seen:.2} (median of {}), goal {goal}: {}",
        samples.len(),
        if held { "held" } else { "MISSED" }
    );
    if let Some(path) = std::env::var_os("MINKE_BENCH_SAMPLES") {
        let line = json!({ "name": name, "goal": goal, "samples": samples });
        let mut file =
            std::fs::File::options().create(true).append(true).open(path).expect("the file of samples");
        writeln!(file, "{line}").expect("room on the disk");
    }
}
