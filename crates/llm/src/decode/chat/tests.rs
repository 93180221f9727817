//! What dialects of chat completions say, and what becomes of it. All events here are written from the published
//! formats; recorded ones are in the conformance suite.

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, TokenUsage};

use super::super::Decoder;
use crate::problem::{Problem, Reason};
use crate::settings::Scheme;

/// A reply as its blocks, in the order of their ends.
#[derive(Debug, Default)]
struct Reply {
    blocks: Vec<(BlockKind, String, BlockEnd)>,
    unknown: Vec<String>,
    usage: Option<TokenUsage>,
    stop: Option<StopReason>,
    detail: Option<String>,
    problem: Option<Problem>,
    counted: u64,
}

impl Reply {
    fn texts(&self) -> Vec<&str> {
        self.blocks.iter().map(|(_, text, _)| text.as_str()).collect()
    }

    /// Name, id and arguments of each call.
    fn calls(&self) -> Vec<(&str, &str, &str)> {
        self.blocks
            .iter()
            .filter_map(|(kind, text, _)| match kind {
                BlockKind::ToolCall { id, name } => Some((name.as_str(), id.as_str(), text.as_str())),
                _ => None,
            })
            .collect()
    }

    fn reason(&self) -> Option<Reason> {
        self.problem.as_ref().map(|problem| problem.reason)
    }
}

fn read(bytes: &str) -> Reply {
    let mut decoder = Decoder::new(Scheme::OpenaiChat);
    let mut events = Vec::new();
    let result = decoder.push(bytes.as_bytes(), &mut events).and_then(|()| decoder.finish(&mut events));
    let mut reply = Reply { problem: result.err(), counted: decoder.unknown_events(), ..Reply::default() };
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
            ModelEvent::Tape(_) | ModelEvent::Recorded { .. } => panic!("not a decoder's"),
        }
    }
    assert!(open.is_empty() || reply.problem.is_some(), "{open:?}");
    assert_ne!(reply.stop.is_some(), reply.problem.is_some(), "{reply:?}");
    reply
}

/// A stream of these events, without its end.
fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A stream of choices with these deltas, then a finish reason and `[DONE]`.
fn stream(deltas: &[&str], finish: &str) -> Reply {
    let mut list: Vec<String> =
        deltas.iter().map(|delta| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#)).collect();
    list.push(format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#));
    list.push("[DONE]".to_owned());
    read(&events(&list.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// The same with pieces of calls.
fn calls(pieces: &[&str]) -> Reply {
    let deltas: Vec<String> = pieces.iter().map(|piece| format!(r#"{{"tool_calls":[{piece}]}}"#)).collect();
    stream(&deltas.iter().map(String::as_str).collect::<Vec<_>>(), "tool_calls")
}

#[test]
fn thinking_ends_when_text_begins_and_text_when_a_call_does() {
    let reply = stream(
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
    assert_eq!(reply.texts(), ["Hm.", "I will look.", "Done", "{}", "again"]);
    assert_eq!(reply.stop, Some(StopReason::ToolUse), "a reply with calls wants them to be made");
}

#[test]
fn content_may_be_a_list_of_parts() {
    let reply = stream(
        &[
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Let "},{"type":"text","text":"me"}]}]}"#,
            r#"{"content":[{"type":"text","text":"a"},"b",{"type":"hologram","text":"c"}]}"#,
            r#"{"content":null,"refusal":"No."}"#,
        ],
        "stop",
    );
    assert_eq!(reply.texts(), ["Let me", "ab", "No."]);
    assert_eq!(reply.blocks[2].0, BlockKind::Refusal);
    assert_eq!((reply.unknown, reply.counted), (vec!["hologram".to_owned()], 1));
}

#[test]
fn reasoning_details_are_kept_to_be_sent_back() {
    let reply = stream(
        &[
            r#"{"reasoning":"The","reasoning_details":[{"type":"reasoning.text","text":"The","index":0,"format":"f"}]}"#,
            r#"{"reasoning":" end","reasoning_details":[{"type":"reasoning.text","text":" end","index":0,"signature":null}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"sig"}]}"#,
            r#"{"content":"Hi"}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x","index":1},{"type":"reasoning.encrypted","data":"y","index":1}]}"#,
        ],
        "stop",
    );
    assert_eq!(reply.texts(), ["The end", "Hi", ""]);
    let encrypted: Vec<Option<&str>> =
        reply.blocks.iter().map(|(.., end)| end.encrypted.as_deref()).collect();
    let whole = r#"[{"type":"reasoning.text","text":"The end","index":0,"format":"f","signature":"sig"}]"#;
    let last = r#"[{"type":"reasoning.encrypted","data":"x","index":1},{"type":"reasoning.encrypted","data":"y","index":1}]"#;
    assert_eq!(encrypted, [Some(whole), None, Some(last)]);
}

#[test]
fn reasoning_details_are_shown_where_nothing_else_is() {
    let reply = stream(
        &[
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"Su","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"m","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":" and text","index":1}]}"#,
        ],
        "stop",
    );
    assert_eq!(reply.texts(), ["Sum and text"]);
    let whole = r#"[{"type":"reasoning.summary","summary":"Sum","index":0},{"type":"reasoning.text","text":" and text","index":1}]"#;
    assert_eq!(reply.blocks[0].2.encrypted.as_deref(), Some(whole));
}

#[test]
fn calls_that_are_interleaved_do_not_mix() {
    let reply = calls(&[
        r#"{"index":1,"id":"a","function":{"name":"Read","arguments":""}}"#,
        r#"{"index":2,"id":"b","function":{"name":"Grep","arguments":"{\"p\""}}"#,
        r#"{"index":1,"function":{"arguments":"{\"f\":"}}"#,
        r#"{"index":2,"function":{"arguments":":1}"}}"#,
        r#"{"index":1,"function":{"arguments":"2}"}}"#,
    ]);
    assert_eq!(reply.calls(), [("Read", "a", r#"{"f":2}"#), ("Grep", "b", r#"{"p":1}"#)]);
}

#[test]
fn calls_need_no_index() {
    let reply = calls(&[
        r#"{"id":"a","function":{"name":"Read","arguments":"{\"f\""}}"#,
        r#"{"function":{"arguments":":1}"}}"#,
        r#"{"id":"b","function":{"name":"Read","arguments":"{}"}}"#,
        r#"{"id":"a","function":{"arguments":" "}}"#,
    ]);
    assert_eq!(reply.calls(), [("Read", "a", "{\"f\":1} "), ("Read", "b", "{}")]);
}

#[test]
fn calls_may_all_have_the_same_index() {
    let with_ids = calls(&[
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":"{\"f\":1}"}}"#,
        r#"{"index":0,"id":"b","function":{"name":"Read","arguments":"{\"f\":2}"}}"#,
    ]);
    assert_eq!(with_ids.calls(), [("Read", "a", r#"{"f":1}"#), ("Read", "b", r#"{"f":2}"#)]);
    let without = calls(&[
        r#"{"index":0,"id":"","function":{"name":"Read","arguments":"{\"f\":1}"}}"#,
        r#"{"index":0,"id":"","function":{"name":"Read","arguments":"{\"f\":2}"}}"#,
        r#"{"index":0,"function":{"name":"Grep","arguments":"{}"}}"#,
    ]);
    let wanted =
        [("Read", "call_0", r#"{"f":1}"#), ("Read", "call_1", r#"{"f":2}"#), ("Grep", "call_2", "{}")];
    assert_eq!(without.calls(), wanted);
}

#[test]
fn calls_with_the_same_id_get_different_ones() {
    let reply = calls(&[
        r#"{"index":0,"id":"x","function":{"name":"A","arguments":"{}"}}"#,
        r#"{"index":1,"id":"x","function":{"name":"B","arguments":"{}"}}"#,
        r#"{"index":2,"id":"x_1","function":{"name":"C","arguments":"{}"}}"#,
    ]);
    let mut ids: Vec<&str> = reply.calls().iter().map(|call| call.1).collect();
    assert_eq!((ids.len(), ids[0]), (3, "x"));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn calls_may_repeat_name_and_id_with_every_piece() {
    let reply = calls(&[
        r#"{"index":0,"id":"a","type":"function","function":{"name":"Read","arguments":""}}"#,
        r#"{"index":0,"id":"a","type":"function","function":{"name":"Read","arguments":"{\"f\":"}}"#,
        r#"{"index":0,"function":{"name":"Read","arguments":"1}"}}"#,
    ]);
    assert_eq!(reply.calls(), [("Read", "a", r#"{"f":1}"#)]);
}

#[test]
fn calls_may_be_named_after_they_began() {
    let reply = calls(&[
        r#"{"index":0,"id":"a","function":{"arguments":"{\"f\""}}"#,
        r#"{"index":0,"function":{"name":"Read","arguments":":1}"}}"#,
    ]);
    assert_eq!(reply.calls(), [("Read", "a", r#"{"f":1}"#)]);
    let nameless = calls(&[r#"{"index":0,"id":"a","function":{"arguments":"{}"}}"#]);
    assert_eq!(nameless.reason(), Some(Reason::Malformed));
}

#[test]
fn arguments_may_be_an_object_or_nothing() {
    let reply = calls(&[
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":{"f":[1,"x"]}}}"#,
        r#"{"index":1,"id":"b","function":{"name":"Now","arguments":null}}"#,
    ]);
    assert_eq!(reply.calls(), [("Read", "a", r#"{"f":[1,"x"]}"#), ("Now", "b", "{}")]);
}

#[test]
fn the_older_form_of_a_call_is_read() {
    let reply = stream(
        &[
            r#"{"content":null,"function_call":{"name":"Read","arguments":""}}"#,
            r#"{"function_call":{"arguments":"{\"f\":"}}"#,
            r#"{"function_call":{"arguments":"1}"}}"#,
        ],
        "function_call",
    );
    assert_eq!(reply.calls(), [("Read", "call_0", r#"{"f":1}"#)]);
    assert_eq!(reply.stop, Some(StopReason::ToolUse));
}

#[test]
fn fields_that_are_there_but_empty_say_nothing() {
    let reply = stream(
        &[
            r#"{"content":"a","refusal":"","reasoning":"","function_call":{"name":"","arguments":""},"tool_calls":[{}],
                "audio":{"id":"","data":"","transcript":""},"images":[],"reasoning_details":[]}"#
                .replace('\n', " ")
                .as_str(),
        ],
        "stop",
    );
    assert_eq!((reply.texts(), &reply.stop), (vec!["a"], &Some(StopReason::EndTurn)));
    assert!(reply.unknown.is_empty());
    for nothing in ["null", "false", r#""""#, "{}"] {
        let event =
            format!(r#"{{"error":{nothing},"choices":[{{"delta":{{"content":"a"}},"error":{nothing}}}]}}"#);
        assert_eq!(read(&events(&[&event, "[DONE]"])).texts(), ["a"], "{nothing}");
    }
    let audio = stream(&[r#"{"audio":{"data":"AAAA"}}"#, r#"{"audio":{"data":"AAAA"}}"#], "stop");
    assert_eq!(audio.unknown, ["audio"], "told once");
}

#[test]
fn a_call_that_the_limit_cut_off_is_not_one_without_arguments() {
    let reply = stream(&[r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"Rm"}}]}"#], "length");
    assert_eq!(reply.calls(), [("Rm", "a", "")]);
    assert_eq!(reply.stop, Some(StopReason::MaxTokens));
}

#[test]
fn only_the_first_of_several_replies_is_read() {
    let reply = read(&events(&[
        r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"ours"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]));
    assert_eq!((reply.texts(), &reply.stop), (vec!["ours"], &Some(StopReason::EndTurn)));
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
        assert_eq!(stream(&[r#"{"content":"a"}"#], finish).stop, Some(stop), "{finish}");
    }
    for (finish, reason) in [("error", Reason::Server), ("insufficient_system_resource", Reason::Overloaded)]
    {
        assert_eq!(stream(&[r#"{"content":"a"}"#], finish).reason(), Some(reason), "{finish}");
    }
}

#[test]
fn a_filtered_reply_says_what_the_provider_said() {
    let filtered = r#"{"choices":[{"delta":{},"finish_reason":"content_filter","content_filter_results":{"hate":{"filtered":false},"violence":{"filtered":true,"severity":"high"},"jailbreak":{"filtered":true}}}]}"#;
    let reply = read(&events(&[filtered, "[DONE]"]));
    assert_eq!(reply.stop, Some(StopReason::ContentFilter));
    assert_eq!(reply.detail.as_deref(), Some("content_filter – violence, jailbreak"));
    let plain = stream(&[r#"{"content":"a"}"#], "content_filter: RECITATION");
    assert_eq!(plain.detail.as_deref(), Some("content_filter: RECITATION"));
    assert_eq!(stream(&[r#"{"content":"a"}"#], "stop").detail, None);
}

#[test]
fn a_stream_ends_with_done_or_with_a_finish_reason() {
    let said = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#;
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    assert_eq!(read(&events(&[said, "[DONE]"])).stop, Some(StopReason::EndTurn));
    assert_eq!(read(&events(&[said, finish])).stop, Some(StopReason::EndTurn));
    assert_eq!(read(&events(&[said])).reason(), Some(Reason::Cut));
    assert_eq!(read(&events(&["[DONE]"])).reason(), Some(Reason::Cut), "nothing is no answer");
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"A","arguments":"{"}}]}}]}"#;
    let rest = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}"#;
    assert_eq!(read(&events(&[call, rest, "[DONE]"])).stop, Some(StopReason::ToolUse));
    assert_eq!(read(&events(&[call, "[DONE]"])).reason(), Some(Reason::Cut));
}

#[test]
fn the_last_usage_counts_wherever_it_stands() {
    let reply = read(&events(&[
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
            Reason::Server,
        ),
        (r#"{"error":{"type":"overloaded_error","message":"busy"}}"#, Reason::Overloaded),
        (r#"{"error":"something broke"}"#, Reason::Server),
        (r#"{"object":"error","message":"maximum context length is 8","code":400}"#, Reason::TooLong),
        (r#"{"choices":[{"delta":{},"error":{"code":429,"message":"slow"}}]}"#, Reason::RateLimited),
    ] {
        let reply = read(&events(&[said, event]));
        assert_eq!(reply.reason(), Some(reason), "{event}");
        assert_eq!(reply.usage.map(|usage| usage.input), Some(3));
    }
    let named = read(&format!(
        "{}event: error\ndata: {{\"message\":\"slow down\",\"code\":429}}\n\n",
        events(&[said])
    ));
    assert_eq!(named.reason(), Some(Reason::RateLimited));
}

#[test]
fn what_is_not_known_is_counted_and_what_is_broken_is_shown() {
    let reply = read(&format!(
        "event: ping\ndata: ok\n\n{}",
        events(&[
            r#"{"choices":[{"delta":{"content":"a","aura":{}}}],"mood":1}"#,
            r#"{"weather":"fine"}"#,
            "[DONE]"
        ])
    ));
    assert_eq!((reply.texts(), reply.counted), (vec!["a"], 2));
    let broken = read(&events(&[r#"{"choices":[{"delta":{"content":"secretly"#]));
    assert!(broken.problem.as_ref().unwrap().text.contains("secretly"), "{broken:?}");
    assert!(matches!(broken.reason(), Some(Reason::Malformed)), "{broken:?}");
}

#[test]
fn a_whole_body_is_read_like_a_stream() {
    let body = r#"{"object":"chat.completion","choices":[{"index":0,"finish_reason":"tool_calls","message":{
        "role":"assistant","content":"Well","reasoning_content":"Hm","tool_calls":[
        {"id":"a","type":"function","function":{"name":"Read","arguments":"{}"}},
        {"id":"b","type":"function","function":{"name":"Grep","arguments":"{}"}}]}}],
        "usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    let reply = read(body);
    assert_eq!(reply.texts(), ["Hm", "Well", "{}", "{}"]);
    assert_eq!(reply.calls().len(), 2);
    assert_eq!((reply.stop, reply.usage.unwrap().input), (Some(StopReason::ToolUse), 4));
    let failed = read(r#"{"error":{"message":"This model's maximum context length is 8 tokens"}}"#);
    assert_eq!(failed.reason(), Some(Reason::TooLong));
    assert!(read(r#"{"choices":[]}"#).problem.is_some());
}
