//! Tests of the decoder with small written streams.

use minke_model::TokenUsage;

use super::super::test_support::{DecodedEvents, run_body_decoder, run_decoder};
use super::*;
use crate::error::ProviderErrorKind;

const MESSAGE_START: &str = r#"{"type":"message_start","message":{"id":"m1","usage":{"input_tokens":9}}}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

fn decode_events(events: &[&str]) -> DecodedEvents {
    let events: Vec<&str> = std::iter::once(MESSAGE_START).chain(events.iter().copied()).collect();
    run_decoder(Box::new(AnthropicDecoder::new()), &events)
}

fn start_event(index: u32, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta_event(index: u32, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn stop_event(index: u32) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn message_delta(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":3}}}}"#
    )
}

const CALL_BLOCK: &str = r#"{"type":"tool_use","id":"t1","name":"Read","input":{}}"#;

#[test]
fn a_call_without_arguments_has_none_and_a_cut_one_is_not_whole() {
    let told_with = |reason: &str| {
        decode_events(&[&start_event(0, CALL_BLOCK), &stop_event(0), &message_delta(reason), MESSAGE_STOP])
    };
    assert_eq!(told_with("tool_use").call_blocks(), [("t1", "Read", "{}")]);
    assert_eq!(told_with("max_tokens").call_blocks(), [("t1", "Read", "")]);
    // Another block follows, so the call was finished.
    let text = r#"{"type":"text","text":"and"}"#;
    let more = decode_events(&[
        &start_event(0, CALL_BLOCK),
        &stop_event(0),
        &start_event(1, text),
        &stop_event(1),
        &message_delta("max_tokens"),
        MESSAGE_STOP,
    ]);
    assert_eq!(more.call_blocks(), [("t1", "Read", "{}")]);
}

#[test]
fn arguments_that_come_with_the_start_count_if_no_pieces_follow() {
    let given = r#"{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}"#;
    let whole =
        decode_events(&[&start_event(0, given), &stop_event(0), &message_delta("tool_use"), MESSAGE_STOP]);
    assert_eq!(whole.call_blocks(), [("t1", "Read", r#"{"path":"a"}"#)]);
    let json = r#"{"type":"input_json_delta","partial_json":"{\"path\":\"b\"}"}"#;
    let pieces = decode_events(&[
        &start_event(0, given),
        &delta_event(0, json),
        &stop_event(0),
        &message_delta("tool_use"),
        MESSAGE_STOP,
    ]);
    assert_eq!(pieces.call_blocks(), [("t1", "Read", r#"{"path":"b"}"#)]);
}

#[test]
fn a_message_inside_a_message_leaves_no_call_that_could_run() {
    let second = MESSAGE_START.replace("m1", "m2");
    let other = CALL_BLOCK.replace("t1", "t2");
    let half = r#"{"type":"input_json_delta","partial_json":"{}"}"#;
    for pieces in [vec![], vec![delta_event(0, half)]] {
        let mut events = vec![start_event(0, CALL_BLOCK)];
        events.extend(pieces);
        events.extend([
            second.clone(),
            start_event(0, &other),
            stop_event(0),
            message_delta("tool_use"),
            MESSAGE_STOP.to_owned(),
        ]);
        let told = decode_events(&events.iter().map(String::as_str).collect::<Vec<_>>());
        let calls = told.call_blocks();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(serde_json::from_str::<Value>(&calls[0].2).is_err(), "{calls:?}");
        assert_eq!(calls[1], ("t2", "Read", "{}"));
    }
    // A repeated start is one message.
    let twice = decode_events(&[
        &start_event(0, CALL_BLOCK),
        MESSAGE_START,
        &stop_event(0),
        &message_delta("tool_use"),
        MESSAGE_STOP,
    ]);
    assert_eq!(twice.call_blocks(), [("t1", "Read", "{}")]);
}

#[test]
fn blocks_without_an_index_and_without_a_start_are_read() {
    let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#;
    assert_eq!(
        decode_events(&[text, text, &message_delta("end_turn"), MESSAGE_STOP]).text_blocks(),
        ["hihi"]
    );
    let start = r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#;
    let stop = r#"{"type":"content_block_stop"}"#;
    let two =
        decode_events(&[start, text, stop, start, text, stop, &message_delta("end_turn"), MESSAGE_STOP]);
    assert_eq!(two.text_blocks(), ["hi", "hi"]);
}

#[test]
fn reasons_to_stop() {
    for (word, stop) in [
        ("end_turn", StopReason::EndTurn),
        ("stop_sequence", StopReason::StopSequence),
        ("refusal", StopReason::Refusal),
        ("pause_turn", StopReason::Other("pause".into())),
        ("model_context_window_exceeded", StopReason::MaxTokens),
        ("something_new", StopReason::Other("something_new".into())),
    ] {
        assert_eq!(decode_events(&[&message_delta(word), MESSAGE_STOP]).stop_reason(), Some(&stop), "{word}");
    }
    let nothing = decode_events(&[MESSAGE_STOP]);
    assert_eq!(nothing.result.map_err(|problem| problem.kind), Err(ProviderErrorKind::Interrupted));
    assert_eq!(
        decode_events(&[&start_event(0, CALL_BLOCK), &stop_event(0), MESSAGE_STOP]).stop_reason(),
        Some(&StopReason::ToolUse)
    );
    // The end marker of the other API is not an end, but it is harmless.
    assert!(decode_events(&[&start_event(0, CALL_BLOCK), "[DONE]"]).result.is_err());
    // Only the last event is missing.
    assert_eq!(
        decode_events(&[&start_event(0, CALL_BLOCK), &stop_event(0), &message_delta("tool_use")])
            .stop_reason(),
        Some(&StopReason::ToolUse)
    );
    assert!(decode_events(&[&start_event(0, CALL_BLOCK), &message_delta("tool_use")]).result.is_err());
}

#[test]
fn a_refusal_says_what_the_provider_said() {
    let details = |stop: &str, details: &str| {
        let event = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_details":{details}}}}}"#
        );
        let told = decode_events(&[&event, MESSAGE_STOP]);
        told.events.into_iter().find_map(|event| match event {
            ModelEvent::StopDetail { text } => Some(text),
            _ => None,
        })
    };
    let both = r#"{"type":"refusal","category":"cyber","explanation":"no exploits"}"#;
    assert_eq!(details("refusal", both).as_deref(), Some("cyber – no exploits"));
    assert_eq!(details("refusal", r#"{"category":null,"explanation":"no"}"#).as_deref(), Some("no"));
    for odd in ["null", "7", r#""text""#, "{}", r#"{"category":{"a":1}}"#] {
        assert_eq!(details("refusal", odd), None, "{odd}");
    }
    assert_eq!(details("end_turn", both), None);
}

#[test]
fn unknown_blocks_are_named_with_their_text() {
    let block_start = start_event(0, r#"{"type":"compaction","content":null}"#);
    let delta = delta_event(0, r#"{"type":"compaction_delta","content":"what was said"}"#);
    let told =
        decode_events(&[&block_start, &delta, &stop_event(0), &message_delta("end_turn"), MESSAGE_STOP]);
    assert!(
        told.events
            .contains(&ModelEvent::Unknown { kind: "compaction".into(), text: "what was said".into() })
    );
    assert_eq!(told.unknown_count, 1);
}

#[test]
fn a_broken_event_is_named_and_shown() {
    let told = decode_events(&[r#"{"type":"content_block_delta","index":0,"delta":"#]);
    let problem = told.result.expect_err("broken");
    assert_eq!(problem.kind, ProviderErrorKind::Malformed);
    assert!(problem.text.contains("content_block_delta"), "{}", problem.text);
}

#[test]
fn a_whole_body_is_read_like_a_stream() {
    let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"hi"},
        {"type":"tool_use","id":"t","name":"Read","input":{}}],
        "stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":4}}"#;
    let told = run_body_decoder(Box::new(AnthropicDecoder::new()), body);
    assert_eq!(told.text_blocks(), ["hi"]);
    assert_eq!(told.call_blocks(), [("t", "Read", "{}")]);
    let tokens = TokenUsage { input: 7, output: 2, cache_read: 4, ..TokenUsage::default() };
    assert!(told.events.contains(&ModelEvent::Usage(tokens)));
    let error = run_body_decoder(
        Box::new(AnthropicDecoder::new()),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    );
    assert_eq!(error.result.map_err(|problem| problem.kind), Err(ProviderErrorKind::Overloaded));
}

#[test]
fn errors_have_many_shapes() {
    for error in [
        r#"{"type":"error","error":{"type":"api_error","message":"it broke"}}"#,
        r#"{"error":{"message":"it broke"},"index":"x"}"#,
        r#"{"error":{"message":"it broke"}}"#,
    ] {
        let problem = decode_events(&[error]).result.expect_err(error);
        assert_eq!(problem.kind, ProviderErrorKind::Server, "{error}");
        assert!(problem.text.contains("it broke"), "{}", problem.text);
    }
    let mut out = Vec::new();
    let frame = StreamFrame { name: "error", data: "upstream went away" };
    let problem = AnthropicDecoder::new().decode_frame(frame, &mut out).expect_err("an error");
    assert!(problem.text.contains("upstream went away"), "{}", problem.text);
}

#[test]
fn blocks_that_never_end_are_bounded() {
    let mut decode = AnthropicDecoder::new();
    let mut out = Vec::new();
    let found = (0..=u32::try_from(MAX_BLOCKS).expect("small")).find_map(|index| {
        let data = start_event(index, r#"{"type":"new"}"#);
        decode.decode_frame(StreamFrame { name: "", data: &data }, &mut out).err()
    });
    assert_eq!(found.map(|problem| problem.kind), Some(ProviderErrorKind::TooLarge));
}
