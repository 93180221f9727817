//! Tests with replies of Gemini. All events are written from the published format; recorded ones are in the
//! conformance suite.

use std::sync::Arc;

use minke_model::{BlockKind, ModelEvent, Prompt, StopReason};
use minke_record::{Item, Route, ToolSpec};

use super::super::ReplyDecoder;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::{ModelCapability, ModelSettings, ProviderQuirks, WireScheme};

/// A reply with one line per block: `T text`, `H thinking`, `H thinking#signature`, `C name(arguments)`. A
/// signature that belongs to no call has a `!`.
#[derive(Debug, Default)]
struct GeminiReply {
    lines: Vec<String>,
    ids: Vec<String>,
    unknown: Vec<(String, String)>,
    usage: Option<(u64, u64, u64)>,
    stop: Option<StopReason>,
    detail: Option<String>,
    error: Option<ProviderError>,
    unknown_count: u64,
}

fn decode_text(bytes: &str) -> GeminiReply {
    let mut decoder = ReplyDecoder::new(WireScheme::Gemini);
    let mut events = Vec::new();
    let result = decoder.push_bytes(bytes.as_bytes(), &mut events).and_then(|()| decoder.finish(&mut events));
    let mut reply = GeminiReply {
        error: result.err(),
        unknown_count: decoder.unknown_events(),
        ..GeminiReply::default()
    };
    let mut open: Vec<(u32, BlockKind, String)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::BlockStart { index, kind } => open.push((index, kind, String::new())),
            ModelEvent::Delta { index, text } => {
                open.iter_mut().find(|(open, ..)| *open == index).expect("an open block").2.push_str(&text);
            }
            ModelEvent::BlockStop { index, end } => {
                let at = open.iter().position(|(open, ..)| *open == index).expect("an open block");
                let (_, kind, text) = open.remove(at);
                let mark = if end.encrypted.as_deref() == Some(super::OWN_PART_MARK) { "!" } else { "" };
                let signature =
                    end.signature.map(|signature| format!("#{signature}{mark}")).unwrap_or_default();
                reply.lines.push(match kind {
                    BlockKind::Text => format!("T {text}{signature}"),
                    BlockKind::Thinking => format!("H {text}{signature}"),
                    BlockKind::Refusal => format!("R {text}"),
                    BlockKind::ToolCall { id, name } => {
                        reply.ids.push(id);
                        format!("C {name}({text}){signature}")
                    }
                });
            }
            ModelEvent::Unknown { kind, text } => reply.unknown.push((kind, text)),
            ModelEvent::Usage(usage) => reply.usage = Some((usage.input, usage.output, usage.cache_read)),
            ModelEvent::Done { stop } => reply.stop = Some(stop),
            ModelEvent::StopDetail { text } => reply.detail = Some(text),
            ModelEvent::RecordingPart(_) | ModelEvent::Recording { .. } => panic!("not a decoder's"),
        }
    }
    assert!(open.is_empty() || reply.error.is_some(), "{open:?}");
    assert_ne!(reply.stop.is_some(), reply.error.is_some(), "{reply:?}");
    reply
}

/// A stream with one event for each list of parts, and a last one with the finish reason.
fn decode_stream(parts: &[&str], finish: &str) -> GeminiReply {
    let mut text: String = parts
        .iter()
        .map(|parts| format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}}}}]}}\r\n\r\n"))
        .collect();
    text.push_str(&format!("data: {{\"candidates\":[{{\"finishReason\":\"{finish}\"}}]}}\r\n\r\n"));
    decode_text(&text)
}

#[test]
fn texts_and_thoughts_are_joined_until_the_other_begins() {
    let reply = decode_stream(
        &[
            r#"{"text":"a","thought":true}"#,
            r#"{"text":"b","thought":true},{"text":"c"}"#,
            r#"{"text":"d","thought":false}"#,
            r#"{"text":""}"#,
        ],
        "STOP",
    );
    assert_eq!(reply.lines, ["H ab", "T cd"]);
    assert_eq!(reply.stop, Some(StopReason::EndTurn));
}

#[test]
fn a_signature_stands_before_its_call_and_after_its_text() {
    let reply = decode_stream(
        &[
            r#"{"text":"hm","thought":true},{"functionCall":{"name":"f","args":{}},"thoughtSignature":"s1"}"#,
            r#"{"functionCall":{"name":"g","args":{}}}"#,
            r#"{"text":"one","thoughtSignature":"s2"},{"text":"two"},{"text":"","thoughtSignature":"s3"}"#,
            r#"{"text":"deep","thought":true,"thoughtSignature":"s4"},{"text":"er","thought":true}"#,
            r#"{"text":"","thought":true,"thoughtSignature":"s5"},{"thoughtSignature":"s6"}"#,
        ],
        "STOP",
    );
    let wanted = [
        "H hm",
        "H #s1",
        "C f({})",
        "C g({})",
        "T one",
        "H #s2!",
        "T two",
        "H #s3!",
        "H deep#s4!",
        "H er#s5!",
        "H #s6!",
    ];
    assert_eq!(reply.lines, wanted);
    assert_eq!(reply.stop, Some(StopReason::ToolUse));
}

#[test]
fn ids_are_unique_whoever_makes_them() {
    let reply = decode_stream(
        &[
            r#"{"functionCall":{"name":"f","args":{"a":1}}},{"functionCall":{"name":"f","args":{"a":2}}}"#,
            r#"{"functionCall":{"id":"x","name":"f"}},{"functionCall":{"id":"x","name":"f"}}"#,
            r#"{"functionCall":{"id":"call_5","name":"f"}},{"functionCall":{"name":"f"}}"#,
        ],
        "STOP",
    );
    assert_eq!(reply.lines[..2], ["C f({\"a\":1})", "C f({\"a\":2})"]);
    let mut ids = reply.ids.clone();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), reply.ids[2].as_str()), (6, "x"), "{:?}", reply.ids);
}

#[test]
fn arguments_may_come_in_pieces() {
    let reply = decode_stream(
        &[
            r#"{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"s"}"#,
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"Bos","willContinue":true}],"willContinue":true}}"#,
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"ton"},{"jsonPath":"$.n[1]","numberValue":2}],"willContinue":true}}"#,
            r#"{"functionCall":{}}"#,
            r#"{"functionCall":{"name":"f","willContinue":true}},{"functionCall":{"name":"g","partialArgs":[{"jsonPath":"$.b","boolValue":true}]}}"#,
        ],
        "STOP",
    );
    assert_eq!(reply.lines, ["H #s", r#"C f({"a":"Boston","n":[null,2]})"#, "C f({})", r#"C g({"b":true})"#]);
    assert_eq!(reply.ids.len(), 3);
}

#[test]
fn a_call_that_was_cut_short_never_looks_whole() {
    let parts = [
        r#"{"functionCall":{"name":"rm","willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.path","stringValue":"/","willContinue":true}],"willContinue":true}}"#,
    ];
    assert_eq!(decode_stream(&parts, "MAX_TOKENS").lines, [r#"C rm({"path":"/")"#]);
    assert_eq!(
        decode_stream(&parts, "STOP").lines,
        [r#"C rm({"path":"/"})"#],
        "some streams do not mark the end of a call"
    );
    let odd = decode_stream(&[r#"{"functionCall":{"args":{"a":1}}}"#], "STOP");
    assert_eq!(odd.error.unwrap().kind, ProviderErrorKind::Malformed);
}

#[test]
fn parts_of_other_kinds_are_told_and_counted() {
    let reply = decode_stream(
        &[
            r#"{"executableCode":{"language":"PYTHON","code":"print(1)"}},{"codeExecutionResult":{"output":"1"}}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"},"thoughtSignature":"s"}"#,
            r#"{"text":"a","videoMetadata":{"fps":1}},{"text":"","mood":{"text":"beside an empty text"}}"#,
        ],
        "STOP",
    );
    let told: Vec<(&str, &str)> =
        reply.unknown.iter().map(|(kind, text)| (kind.as_str(), text.as_str())).collect();
    assert_eq!(told, [("executableCode", "print(1)"), ("codeExecutionResult", "1"), ("inlineData", "")]);
    assert_eq!((reply.lines, reply.unknown_count), (vec!["H #s!".to_owned(), "T a".to_owned()], 3));
}

#[test]
fn finish_reasons_are_told_apart() {
    for (finish, stop) in [
        ("STOP", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", StopReason::ContentFilter),
        ("RECITATION", StopReason::ContentFilter),
        ("BLOCKLIST", StopReason::ContentFilter),
        ("PROHIBITED_CONTENT", StopReason::ContentFilter),
        ("SPII", StopReason::ContentFilter),
        ("MALFORMED_FUNCTION_CALL", StopReason::Other("malformed_function_call".to_owned())),
    ] {
        assert_eq!(decode_stream(&[r#"{"text":"a"}"#], finish).stop, Some(stop), "{finish}");
    }
    let blocked = decode_text(
        "data: {\"promptFeedback\":{\"blockReason\":\"OTHER\"},\"usageMetadata\":{\"promptTokenCount\":4}}\n\n",
    );
    assert_eq!((blocked.stop, blocked.lines.len()), (Some(StopReason::ContentFilter), 0));
    assert_eq!(blocked.detail.as_deref(), Some("the prompt was blocked, OTHER"));
}

#[test]
fn a_filtered_reply_says_what_the_provider_said() {
    let message = r#"{"candidates":[{"finishReason":"PROHIBITED_CONTENT","finishMessage":"not\nthis"}]}"#;
    let reply = decode_text(&format!("data: {message}\n\n"));
    assert_eq!(reply.stop, Some(StopReason::ContentFilter));
    assert_eq!(reply.detail.as_deref(), Some("PROHIBITED_CONTENT: not this"));
    let prompt = r#"{"promptFeedback":{"blockReason":"BLOCKLIST","blockReasonMessage":"a word"}}"#;
    let reply = decode_text(&format!("data: {prompt}\n\n"));
    assert_eq!(reply.detail.as_deref(), Some("the prompt was blocked, BLOCKLIST: a word"));
    let fine = decode_stream(&[r#"{"text":"a"}"#], "STOP");
    assert_eq!((fine.stop, fine.detail), (Some(StopReason::EndTurn), None));
}

#[test]
fn the_end_of_the_bytes_is_the_end_only_after_a_finish_reason() {
    let said =
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":3}}"#;
    let cut = decode_text(&format!("data: {said}\n\n"));
    assert_eq!((cut.error.unwrap().kind, cut.usage), (ProviderErrorKind::Interrupted, Some((3, 0, 0))));
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":5}}"#;
    let more = r#"{"usageMetadata":{"trafficType":"ON_DEMAND"}}"#;
    let whole = decode_text(&format!("data: {said}\n\ndata: {last}\n\ndata: {more}\n\n"));
    assert_eq!((whole.usage, whole.stop), (Some((5, 7, 4)), Some(StopReason::EndTurn)));
}

#[test]
fn arrays_and_bodies_say_the_same_as_streams() {
    let one =
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{ "a" : "x y" }}}]}}]}"#;
    let two = r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#;
    let array = decode_text(&format!("[{one}\r\n,\r\n{two}]"));
    let events = decode_text(&format!("data: {one}\n\ndata: {two}\n\n"));
    assert_eq!(array.lines, [r#"C f({"a":"x y"})"#, "T b"]);
    assert_eq!((array.lines, array.stop), (events.lines, events.stop));
    assert_eq!(decode_text(two).lines, ["T b"]);
}

#[test]
fn an_error_is_sorted_wherever_it_stands() {
    let error = r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#;
    let said = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#;
    for bytes in [format!("data: {said}\n\ndata: {error}\n\n"), format!("[{said},{error}]"), error.to_owned()]
    {
        assert_eq!(decode_text(&bytes).error.unwrap().kind, ProviderErrorKind::Overloaded, "{bytes}");
    }
    let broken = decode_text("data: {\"candidates\":[{\"content\":7}]}\n\n").error.unwrap();
    assert!(broken.kind == ProviderErrorKind::Malformed && broken.text.contains("candidates"), "{broken:?}");
}

/// Returns the parts of a reply in the next request.
fn next_request_parts(parts: &[&str]) -> serde_json::Value {
    let lines = decode_stream(parts, "STOP").lines;
    let by = Some("google/m".to_owned());
    let reasoning = |line: &str| {
        let (text, rest) = line.split_once('#').expect("a signature");
        let (signature, mark) =
            rest.split_once('!').map_or((rest, None), |(rest, _)| (rest, Some(super::OWN_PART_MARK)));
        Item::Reasoning {
            text: text.into(),
            summary: Vec::new(),
            signature: Some(signature.into()),
            encrypted: mark.map(Into::into),
            by: by.clone(),
        }
    };
    let call =
        |name: &str| Item::ToolCall { call_id: name.into(), name: name.to_owned(), arguments: "{}".into() };
    let mut items = vec![Item::user_message("hi")];
    items.extend(lines.iter().map(|line| match line.split_at(2) {
        ("T ", text) => Item::assistant_message(text),
        ("H ", rest) => reasoning(rest),
        (_, rest) => call(rest.trim_end_matches("({})")),
    }));
    let results: Vec<Item> = items
        .iter()
        .filter_map(|item| match item {
            Item::ToolCall { call_id, .. } => Some(Item::ToolResult {
                call_id: call_id.clone(),
                summary: "ok".into(),
                content: None,
                is_error: false,
                blob: None,
                images: Vec::new(),
            }),
            _ => None,
        })
        .collect();
    items.extend(results);
    let tool =
        ToolSpec { name: "f".into(), description: "f".into(), schema: serde_json::json!({"type": "object"}) };
    let route = Route { provider: "google".into(), model: "m".into(), scheme: "gemini".into() };
    let items = items.into_iter().map(Arc::new).collect();
    let prompt = Prompt { tools: Arc::new(vec![tool]), ..Prompt::new(route, items) };
    let settings = ModelSettings {
        scheme: WireScheme::Gemini,
        provider: "google".into(),
        model_id: "m".into(),
        max_output: None,
        capability: ModelCapability::default(),
        quirks: ProviderQuirks::default(),
    };
    let request = crate::build_request(&prompt, &settings).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    body["contents"][1]["parts"].clone()
}

#[test]
fn a_signature_goes_back_to_the_part_that_bore_it() {
    let call = r#"{"functionCall":{"name":"f","args":{}}}"#;
    let signed = r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"s"}"#;
    let kinds = |parts: &[&str]| {
        let parts = next_request_parts(parts);
        let told = |part: &serde_json::Value| {
            let kind = if part.get("functionCall").is_some() {
                "call"
            } else {
                part["text"].as_str().unwrap_or("?")
            };
            (kind.to_owned(), part["thoughtSignature"].as_str().map(str::to_owned))
        };
        parts.as_array().unwrap().iter().map(told).collect::<Vec<_>>()
    };
    let part = |kind: &str, signature: Option<&str>| (kind.to_owned(), signature.map(str::to_owned));
    assert_eq!(kinds(&[r#"{"text":"a"}"#, signed]), [part("a", None), part("call", Some("s"))]);
    let of_text = [part("a", None), part("", Some("s")), part("call", None)];
    assert_eq!(kinds(&[r#"{"text":"a","thoughtSignature":"s"}"#, call]), of_text, "not the call's");
    let both = [part("a", None), part("", Some("t")), part("call", Some("s"))];
    assert_eq!(kinds(&[r#"{"text":"a","thoughtSignature":"t"}"#, signed]), both);
}
