//! The decoder on small streams that nobody recorded.

use minke_model::TokenUsage;

use super::super::testing::{Told, tell, tell_body};
use super::*;
use crate::problem::Reason;

const START: &str = r#"{"type":"message_start","message":{"id":"m1","usage":{"input_tokens":9}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn told(events: &[&str]) -> Told {
    let events: Vec<&str> = std::iter::once(START).chain(events.iter().copied()).collect();
    tell(Box::new(AnthropicDecode::new()), &events)
}

fn block(index: u32, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn piece(index: u32, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn end(index: u32) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn why(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":3}}}}"#
    )
}

const CALL: &str = r#"{"type":"tool_use","id":"t1","name":"Read","input":{}}"#;

#[test]
fn a_call_without_arguments_has_none_and_a_cut_one_is_not_whole() {
    let told_with = |reason: &str| told(&[&block(0, CALL), &end(0), &why(reason), STOP]);
    assert_eq!(told_with("tool_use").calls(), [("t1", "Read", "{}")]);
    assert_eq!(told_with("max_tokens").calls(), [("t1", "Read", "")]);
    // Another block follows, so the call was finished.
    let text = r#"{"type":"text","text":"and"}"#;
    let more = told(&[&block(0, CALL), &end(0), &block(1, text), &end(1), &why("max_tokens"), STOP]);
    assert_eq!(more.calls(), [("t1", "Read", "{}")]);
}

#[test]
fn arguments_that_come_with_the_start_count_if_no_pieces_follow() {
    let given = r#"{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}"#;
    let whole = told(&[&block(0, given), &end(0), &why("tool_use"), STOP]);
    assert_eq!(whole.calls(), [("t1", "Read", r#"{"path":"a"}"#)]);
    let json = r#"{"type":"input_json_delta","partial_json":"{\"path\":\"b\"}"}"#;
    let pieces = told(&[&block(0, given), &piece(0, json), &end(0), &why("tool_use"), STOP]);
    assert_eq!(pieces.calls(), [("t1", "Read", r#"{"path":"b"}"#)]);
}

#[test]
fn a_message_inside_a_message_leaves_no_call_that_could_run() {
    let second = START.replace("m1", "m2");
    let other = CALL.replace("t1", "t2");
    let half = r#"{"type":"input_json_delta","partial_json":"{}"}"#;
    for pieces in [vec![], vec![piece(0, half)]] {
        let mut events = vec![block(0, CALL)];
        events.extend(pieces);
        events.extend([second.clone(), block(0, &other), end(0), why("tool_use"), STOP.to_owned()]);
        let told = told(&events.iter().map(String::as_str).collect::<Vec<_>>());
        let calls = told.calls();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(serde_json::from_str::<Value>(&calls[0].2).is_err(), "{calls:?}");
        assert_eq!(calls[1], ("t2", "Read", "{}"));
    }
    // Said twice, it is one message.
    let twice = told(&[&block(0, CALL), START, &end(0), &why("tool_use"), STOP]);
    assert_eq!(twice.calls(), [("t1", "Read", "{}")]);
}

#[test]
fn blocks_without_an_index_and_without_a_start_are_read() {
    let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#;
    assert_eq!(told(&[text, text, &why("end_turn"), STOP]).texts(), ["hihi"]);
    let start = r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#;
    let stop = r#"{"type":"content_block_stop"}"#;
    let two = told(&[start, text, stop, start, text, stop, &why("end_turn"), STOP]);
    assert_eq!(two.texts(), ["hi", "hi"]);
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
        assert_eq!(told(&[&why(word), STOP]).stop(), Some(&stop), "{word}");
    }
    let nothing = told(&[STOP]);
    assert_eq!(nothing.result.map_err(|problem| problem.reason), Err(Reason::Cut));
    assert_eq!(told(&[&block(0, CALL), &end(0), STOP]).stop(), Some(&StopReason::ToolUse));
    // The other API's end is none, but it does no harm.
    assert!(told(&[&block(0, CALL), "[DONE]"]).result.is_err());
    // Everything has been said but the last word.
    assert_eq!(told(&[&block(0, CALL), &end(0), &why("tool_use")]).stop(), Some(&StopReason::ToolUse));
    assert!(told(&[&block(0, CALL), &why("tool_use")]).result.is_err());
}

#[test]
fn a_refusal_says_what_the_provider_said() {
    let details = |stop: &str, details: &str| {
        let event = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_details":{details}}}}}"#
        );
        let told = told(&[&event, STOP]);
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
    let block_start = block(0, r#"{"type":"compaction","content":null}"#);
    let delta = piece(0, r#"{"type":"compaction_delta","content":"what was said"}"#);
    let told = told(&[&block_start, &delta, &end(0), &why("end_turn"), STOP]);
    assert!(
        told.events
            .contains(&ModelEvent::Unknown { kind: "compaction".into(), text: "what was said".into() })
    );
    assert_eq!(told.unknown, 1);
}

#[test]
fn a_broken_event_is_named_and_shown() {
    let told = told(&[r#"{"type":"content_block_delta","index":0,"delta":"#]);
    let problem = told.result.expect_err("broken");
    assert_eq!(problem.reason, Reason::Malformed);
    assert!(problem.text.contains("content_block_delta"), "{}", problem.text);
}

#[test]
fn a_whole_body_is_read_like_a_stream() {
    let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"hi"},
        {"type":"tool_use","id":"t","name":"Read","input":{}}],
        "stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":4}}"#;
    let told = tell_body(Box::new(AnthropicDecode::new()), body);
    assert_eq!(told.texts(), ["hi"]);
    assert_eq!(told.calls(), [("t", "Read", "{}")]);
    let tokens = TokenUsage { input: 7, output: 2, cache_read: 4, ..TokenUsage::default() };
    assert!(told.events.contains(&ModelEvent::Usage(tokens)));
    let error = tell_body(
        Box::new(AnthropicDecode::new()),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    );
    assert_eq!(error.result.map_err(|problem| problem.reason), Err(Reason::Overloaded));
}

#[test]
fn errors_have_many_shapes() {
    for error in [
        r#"{"type":"error","error":{"type":"api_error","message":"it broke"}}"#,
        r#"{"error":{"message":"it broke"},"index":"x"}"#,
        r#"{"error":{"message":"it broke"}}"#,
    ] {
        let problem = told(&[error]).result.expect_err(error);
        assert_eq!(problem.reason, Reason::Server, "{error}");
        assert!(problem.text.contains("it broke"), "{}", problem.text);
    }
    let mut out = Vec::new();
    let frame = Frame { name: "error", data: "upstream went away" };
    let problem = AnthropicDecode::new().frame(frame, &mut out).expect_err("an error");
    assert!(problem.text.contains("upstream went away"), "{}", problem.text);
}

#[test]
fn blocks_that_never_end_are_bounded() {
    let mut decode = AnthropicDecode::new();
    let mut out = Vec::new();
    let found = (0..=u32::try_from(BLOCKS).expect("small")).find_map(|index| {
        let data = block(index, r#"{"type":"new"}"#);
        decode.frame(Frame { name: "", data: &data }, &mut out).err()
    });
    assert_eq!(found.map(|problem| problem.reason), Some(Reason::TooLarge));
}
