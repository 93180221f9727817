//! Tests with dialects of chat completions. All events are written from the published formats; recorded ones
//! are in the conformance suite.

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};

use super::super::ReplyDecoder;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;

/// The blocks of a reply in order of their ends.
#[derive(Debug, Default)]
struct ChatReply {
    blocks: Vec<(BlockKind, String, BlockEnd)>,
    unknown: Vec<String>,
    usage: Option<TokenUsage>,
    stop: Option<StopReason>,
    detail: Option<String>,
    error: Option<ProviderError>,
    unknown_count: u64,
}

impl ChatReply {
    fn text_blocks(&self) -> Vec<&str> {
        self.blocks.iter().map(|(_, text, _)| text.as_str()).collect()
    }

    /// Returns name, id and arguments of each call.
    fn call_blocks(&self) -> Vec<(&str, &str, &str)> {
        self.blocks
            .iter()
            .filter_map(|(kind, text, _)| match kind {
                BlockKind::ToolCall { id, name } => Some((name.as_str(), id.as_str(), text.as_str())),
                _ => None,
            })
            .collect()
    }

    fn error_kind(&self) -> Option<ProviderErrorKind> {
        self.error.as_ref().map(|problem| problem.kind)
    }
}

fn decode_text(bytes: &str) -> ChatReply {
    let mut decoder = ReplyDecoder::new(WireScheme::OpenaiChat);
    let mut events = Vec::new();
    let result = decoder.push_bytes(bytes.as_bytes(), &mut events).and_then(|()| decoder.finish(&mut events));
    let mut reply =
        ChatReply { error: result.err(), unknown_count: decoder.unknown_events(), ..ChatReply::default() };
    let mut open: Vec<(u32, BlockKind, String)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::BlockStart { index, kind } => open.push((index, kind, String::new())),
            ModelEvent::Delta { index, text } => {
                let block = open.iter_mut().find(|(open, ..)| *open == index).expect("an open block");
                block.2.push_str(&text);
            }
            ModelEvent::BlockStop { index, end } => {
                let at = open.iter().position(|(open, ..)| *open == index).expect("an open block");
                let (_, kind, text) = open.remove(at);
                reply.blocks.push((kind, text, end));
            }
            ModelEvent::Unknown { kind, .. } => reply.unknown.push(kind),
            ModelEvent::Usage(usage) => reply.usage = Some(usage),
            ModelEvent::Done { stop } => reply.stop = Some(stop),
            ModelEvent::StopDetail { text } => reply.detail = Some(text),
            ModelEvent::RecordingPart(_) | ModelEvent::Recording { .. } => panic!("not a decoder's"),
        }
    }
    assert!(open.is_empty() || reply.error.is_some(), "{open:?}");
    assert_ne!(reply.stop.is_some(), reply.error.is_some(), "{reply:?}");
    reply
}

/// A stream of these events without its end.
fn event_stream(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Decodes choices with these deltas, then a finish reason and `[DONE]`.
fn decode_stream(deltas: &[&str], finish: &str) -> ChatReply {
    let mut list: Vec<String> =
        deltas.iter().map(|delta| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#)).collect();
    list.push(format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#));
    list.push("[DONE]".to_owned());
    decode_text(&event_stream(&list.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Decodes a stream with pieces of calls.
fn decode_calls(pieces: &[&str]) -> ChatReply {
    let deltas: Vec<String> = pieces.iter().map(|piece| format!(r#"{{"tool_calls":[{piece}]}}"#)).collect();
    decode_stream(&deltas.iter().map(String::as_str).collect::<Vec<_>>(), "tool_calls")
}

#[test]
fn thinking_ends_when_text_begins_and_text_when_a_call_does() {
    let reply = decode_stream(
        &[
            r#"{"role":"assistant","content":""}"#,
            r#"{"reasoning_content":"Hm"}"#,
            r#"{"reasoning_content":"."}"#,
            r#"{"content":"I will "}"#,
            r#"{"content":"look."}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"Read","arguments":"{}"}}]}"#,
            r#"{"content":"Done"}"#,
            r#"{"reasoning":"again"}"#,
        ],
        "stop",
    );
    assert_eq!(reply.text_blocks(), ["Hm.", "I will look.", "Done", "{}", "again"]);
    assert_eq!(reply.stop, Some(StopReason::ToolUse), "a reply with calls stops for tool use");
}

#[test]
fn content_may_be_a_list_of_parts() {
    let reply = decode_stream(
        &[
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Let "},{"type":"text","text":"me"}]}]}"#,
            r#"{"content":[{"type":"text","text":"a"},"b",{"type":"hologram","text":"c"}]}"#,
            r#"{"content":null,"refusal":"No."}"#,
        ],
        "stop",
    );
    assert_eq!(reply.text_blocks(), ["Let me", "ab", "No."]);
    assert_eq!(reply.blocks[2].0, BlockKind::Refusal);
    assert_eq!((reply.unknown, reply.unknown_count), (vec!["hologram".to_owned()], 1));
}

#[test]
fn reasoning_details_are_kept_to_be_sent_back() {
    let reply = decode_stream(
        &[
            r#"{"reasoning":"The","reasoning_details":[{"type":"reasoning.text","text":"The","index":0,"format":"f"}]}"#,
            r#"{"reasoning":" end","reasoning_details":[{"type":"reasoning.text","text":" end","index":0,"signature":null}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"sig"}]}"#,
            r#"{"content":"Hi"}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x","index":1},{"type":"reasoning.encrypted","data":"y","index":1}]}"#,
        ],
        "stop",
    );
    assert_eq!(reply.text_blocks(), ["The end", "Hi", ""]);
    let encrypted: Vec<Option<&str>> =
        reply.blocks.iter().map(|(.., end)| end.encrypted.as_deref()).collect();
    let whole = r#"[{"type":"reasoning.text","text":"The end","index":0,"format":"f","signature":"sig"}]"#;
    let last = r#"[{"type":"reasoning.encrypted","data":"x","index":1},{"type":"reasoning.encrypted","data":"y","index":1}]"#;
    assert_eq!(encrypted, [Some(whole), None, Some(last)]);
}

#[test]
fn reasoning_details_are_shown_where_nothing_else_is() {
    let reply = decode_stream(
        &[
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"Su","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"m","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":" and text","index":1}]}"#,
        ],
        "stop",
    );
    assert_eq!(reply.text_blocks(), ["Sum and text"]);
    let whole = r#"[{"type":"reasoning.summary","summary":"Sum","index":0},{"type":"reasoning.text","text":" and text","index":1}]"#;
    assert_eq!(reply.blocks[0].2.encrypted.as_deref(), Some(whole));
}

#[test]
fn calls_that_are_interleaved_do_not_mix() {
    let reply = decode_calls(&[
        r#"{"index":1,"id":"a","function":{"name":"Read","arguments":""}}"#,
        r#"{"index":2,"id":"b","function":{"name":"Grep","arguments":"{\"p\""}}"#,
        r#"{"index":1,"function":{"arguments":"{\"f\":"}}"#,
        r#"{"index":2,"function":{"arguments":":1}"}}"#,
        r#"{"index":1,"function":{"arguments":"2}"}}"#,
    ]);
    assert_eq!(reply.call_blocks(), [("Read", "a", r#"{"f":2}"#), ("Grep", "b", r#"{"p":1}"#)]);
}

#[test]
fn calls_need_no_index() {
    let reply = decode_calls(&[
        r#"{"id":"a","function":{"name":"Read","arguments":"{\"f\""}}"#,
        r#"{"function":{"arguments":":1}"}}"#,
        r#"{"id":"b","function":{"name":"Read","arguments":"{}"}}"#,
        r#"{"id":"a","function":{"arguments":" "}}"#,
    ]);
    assert_eq!(reply.call_blocks(), [("Read", "a", "{\"f\":1} "), ("Read", "b", "{}")]);
}

#[test]
fn calls_may_all_have_the_same_index() {
    let with_ids = decode_calls(&[
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":"{\"f\":1}"}}"#,
        r#"{"index":0,"id":"b","function":{"name":"Read","arguments":"{\"f\":2}"}}"#,
    ]);
    assert_eq!(with_ids.call_blocks(), [("Read", "a", r#"{"f":1}"#), ("Read", "b", r#"{"f":2}"#)]);
    let without = decode_calls(&[
        r#"{"index":0,"id":"","function":{"name":"Read","arguments":"{\"f\":1}"}}"#,
        r#"{"index":0,"id":"","function":{"name":"Read","arguments":"{\"f\":2}"}}"#,
        r#"{"index":0,"function":{"name":"Grep","arguments":"{}"}}"#,
    ]);
    let wanted =
        [("Read", "call_0", r#"{"f":1}"#), ("Read", "call_1", r#"{"f":2}"#), ("Grep", "call_2", "{}")];
    assert_eq!(without.call_blocks(), wanted);
}

#[test]
fn calls_with_the_same_id_get_different_ones() {
    let reply = decode_calls(&[
        r#"{"index":0,"id":"x","function":{"name":"A","arguments":"{}"}}"#,
        r#"{"index":1,"id":"x","function":{"name":"B","arguments":"{}"}}"#,
        r#"{"index":2,"id":"x_1","function":{"name":"C","arguments":"{}"}}"#,
    ]);
    let mut ids: Vec<&str> = reply.call_blocks().iter().map(|call| call.1).collect();
    assert_eq!((ids.len(), ids[0]), (3, "x"));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn calls_may_repeat_name_and_id_with_every_piece() {
    let reply = decode_calls(&[
        r#"{"index":0,"id":"a","type":"function","function":{"name":"Read","arguments":""}}"#,
        r#"{"index":0,"id":"a","type":"function","function":{"name":"Read","arguments":"{\"f\":"}}"#,
        r#"{"index":0,"function":{"name":"Read","arguments":"1}"}}"#,
    ]);
    assert_eq!(reply.call_blocks(), [("Read", "a", r#"{"f":1}"#)]);
}

#[test]
fn calls_may_be_named_after_they_began() {
    let reply = decode_calls(&[
        r#"{"index":0,"id":"a","function":{"arguments":"{\"f\""}}"#,
        r#"{"index":0,"function":{"name":"Read","arguments":":1}"}}"#,
    ]);
    assert_eq!(reply.call_blocks(), [("Read", "a", r#"{"f":1}"#)]);
    let nameless = decode_calls(&[r#"{"index":0,"id":"a","function":{"arguments":"{}"}}"#]);
    assert_eq!(nameless.error_kind(), Some(ProviderErrorKind::Malformed));
}

#[test]
fn arguments_may_be_an_object_or_nothing() {
    let reply = decode_calls(&[
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":{"f":[1,"x"]}}}"#,
        r#"{"index":1,"id":"b","function":{"name":"Now","arguments":null}}"#,
    ]);
    assert_eq!(reply.call_blocks(), [("Read", "a", r#"{"f":[1,"x"]}"#), ("Now", "b", "{}")]);
}

#[test]
fn the_older_form_of_a_call_is_read() {
    let reply = decode_stream(
        &[
            r#"{"content":null,"function_call":{"name":"Read","arguments":""}}"#,
            r#"{"function_call":{"arguments":"{\"f\":"}}"#,
            r#"{"function_call":{"arguments":"1}"}}"#,
        ],
        "function_call",
    );
    assert_eq!(reply.call_blocks(), [("Read", "call_0", r#"{"f":1}"#)]);
    assert_eq!(reply.stop, Some(StopReason::ToolUse));
}

#[test]
fn fields_that_are_there_but_empty_say_nothing() {
    let reply = decode_stream(
        &[
            r#"{"content":"a","refusal":"","reasoning":"","function_call":{"name":"","arguments":""},"tool_calls":[{}],
                "audio":{"id":"","data":"","transcript":""},"images":[],"reasoning_details":[]}"#
                .replace('\n', " ")
                .as_str(),
        ],
        "stop",
    );
    assert_eq!((reply.text_blocks(), &reply.stop), (vec!["a"], &Some(StopReason::EndTurn)));
    assert!(reply.unknown.is_empty());
    for nothing in ["null", "false", r#""""#, "{}"] {
        let event =
            format!(r#"{{"error":{nothing},"choices":[{{"delta":{{"content":"a"}},"error":{nothing}}}]}}"#);
        assert_eq!(decode_text(&event_stream(&[&event, "[DONE]"])).text_blocks(), ["a"], "{nothing}");
    }
    let audio = decode_stream(&[r#"{"audio":{"data":"AAAA"}}"#, r#"{"audio":{"data":"AAAA"}}"#], "stop");
    assert_eq!(audio.unknown, ["audio"], "told once");
}

#[test]
fn a_call_that_the_limit_cut_off_is_not_one_without_arguments() {
    let reply =
        decode_stream(&[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"Rm"}}]}"#], "length");
    assert_eq!(reply.call_blocks(), [("Rm", "a", "")]);
    assert_eq!(reply.stop, Some(StopReason::MaxTokens));
}

#[test]
fn only_the_first_of_several_replies_is_read() {
    let reply = decode_text(&event_stream(&[
        r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"ours"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]));
    assert_eq!((reply.text_blocks(), &reply.stop), (vec!["ours"], &Some(StopReason::EndTurn)));
}

#[test]
fn finish_reasons_are_told_apart() {
    for (finish, stop) in [
        ("stop", StopReason::EndTurn),
        ("length", StopReason::MaxTokens),
        ("tool_calls", StopReason::ToolUse),
        ("content_filter", StopReason::ContentFilter),
        ("content_filter: RECITATION", StopReason::ContentFilter),
        ("Odd", StopReason::Other("odd".to_owned())),
    ] {
        assert_eq!(decode_stream(&[r#"{"content":"a"}"#], finish).stop, Some(stop), "{finish}");
    }
    for (finish, reason) in [
        ("error", ProviderErrorKind::Server),
        ("insufficient_system_resource", ProviderErrorKind::Overloaded),
    ] {
        assert_eq!(decode_stream(&[r#"{"content":"a"}"#], finish).error_kind(), Some(reason), "{finish}");
    }
}

#[test]
fn a_filtered_reply_says_what_the_provider_said() {
    let filtered = r#"{"choices":[{"delta":{},"finish_reason":"content_filter","content_filter_results":{"hate":{"filtered":false},"violence":{"filtered":true,"severity":"high"},"jailbreak":{"filtered":true}}}]}"#;
    let reply = decode_text(&event_stream(&[filtered, "[DONE]"]));
    assert_eq!(reply.stop, Some(StopReason::ContentFilter));
    assert_eq!(reply.detail.as_deref(), Some("content_filter – violence, jailbreak"));
    let plain = decode_stream(&[r#"{"content":"a"}"#], "content_filter: RECITATION");
    assert_eq!(plain.detail.as_deref(), Some("content_filter: RECITATION"));
    assert_eq!(decode_stream(&[r#"{"content":"a"}"#], "stop").detail, None);
}

#[test]
fn a_stream_ends_with_done_or_with_a_finish_reason() {
    let said = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#;
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    assert_eq!(decode_text(&event_stream(&[said, "[DONE]"])).stop, Some(StopReason::EndTurn));
    assert_eq!(decode_text(&event_stream(&[said, finish])).stop, Some(StopReason::EndTurn));
    assert_eq!(decode_text(&event_stream(&[said])).error_kind(), Some(ProviderErrorKind::Interrupted));
    assert_eq!(
        decode_text(&event_stream(&["[DONE]"])).error_kind(),
        Some(ProviderErrorKind::Interrupted),
        "an empty reply is an error"
    );
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"A","arguments":"{"}}]}}]}"#;
    let rest = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}"#;
    assert_eq!(decode_text(&event_stream(&[call, rest, "[DONE]"])).stop, Some(StopReason::ToolUse));
    assert_eq!(
        decode_text(&event_stream(&[call, "[DONE]"])).error_kind(),
        Some(ProviderErrorKind::Interrupted)
    );
}

#[test]
fn the_last_usage_counts_wherever_it_stands() {
    let reply = decode_text(&event_stream(&[
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":7,"completion_tokens":2}}}"#,
        "[DONE]",
    ]));
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.output), (7, 2));
}

#[test]
fn an_error_in_the_stream_is_sorted_and_keeps_what_was_said() {
    let said = r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3}}"#;
    for (event, reason) in [
        (
            r#"{"error":{"code":502,"message":"bad"},"choices":[{"delta":{},"finish_reason":"error"}]}"#,
            ProviderErrorKind::Server,
        ),
        (r#"{"error":{"type":"overloaded_error","message":"busy"}}"#, ProviderErrorKind::Overloaded),
        (r#"{"error":"something broke"}"#, ProviderErrorKind::Server),
        (
            r#"{"object":"error","message":"maximum context length is 8","code":400}"#,
            ProviderErrorKind::ContextTooLong,
        ),
        (
            r#"{"choices":[{"delta":{},"error":{"code":429,"message":"slow"}}]}"#,
            ProviderErrorKind::RateLimited,
        ),
    ] {
        let reply = decode_text(&event_stream(&[said, event]));
        assert_eq!(reply.error_kind(), Some(reason), "{event}");
        assert_eq!(reply.usage.map(|usage| usage.input), Some(3));
    }
    let named = decode_text(&format!(
        "{}event: error\ndata: {{\"message\":\"slow down\",\"code\":429}}\n\n",
        event_stream(&[said])
    ));
    assert_eq!(named.error_kind(), Some(ProviderErrorKind::RateLimited));
}

#[test]
fn what_is_not_known_is_counted_and_what_is_broken_is_shown() {
    let reply = decode_text(&format!(
        "event: ping\ndata: ok\n\n{}",
        event_stream(&[
            r#"{"choices":[{"delta":{"content":"a","aura":{}}}],"mood":1}"#,
            r#"{"weather":"fine"}"#,
            "[DONE]"
        ])
    ));
    assert_eq!((reply.text_blocks(), reply.unknown_count), (vec!["a"], 2));
    let broken = decode_text(&event_stream(&[r#"{"choices":[{"delta":{"content":"secretly"#]));
    assert!(broken.error.as_ref().unwrap().text.contains("secretly"), "{broken:?}");
    assert!(matches!(broken.error_kind(), Some(ProviderErrorKind::Malformed)), "{broken:?}");
}

#[test]
fn a_whole_body_is_read_like_a_stream() {
    let body = r#"{"object":"chat.completion","choices":[{"index":0,"finish_reason":"tool_calls","message":{
        "role":"assistant","content":"Well","reasoning_content":"Hm","tool_calls":[
        {"id":"a","type":"function","function":{"name":"Read","arguments":"{}"}},
        {"id":"b","type":"function","function":{"name":"Grep","arguments":"{}"}}]}}],
        "usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    let reply = decode_text(body);
    assert_eq!(reply.text_blocks(), ["Hm", "Well", "{}", "{}"]);
    assert_eq!(reply.call_blocks().len(), 2);
    assert_eq!((reply.stop, reply.usage.unwrap().input), (Some(StopReason::ToolUse), 4));
    let failed = decode_text(r#"{"error":{"message":"This model's maximum context length is 8 tokens"}}"#);
    assert_eq!(failed.error_kind(), Some(ProviderErrorKind::ContextTooLong));
    assert!(decode_text(r#"{"choices":[]}"#).error.is_some());
}
