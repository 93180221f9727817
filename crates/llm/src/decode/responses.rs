//! Decoder of the Responses API of OpenAI, which other providers offer too.
//!
//! Here: the meaning of its events and bodies. Elsewhere: the output items and their emission
//! (`response_output`), bytes and framing (`framing`), the meaning of errors (`classify`). Invariant: content
//! is emitted once, whether it arrives in pieces, in `done` events, only in the last event, or in all of them
//! (tests below).

use std::borrow::Cow;

use minke_model::{ModelEvent, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::lenient::{LenientCount, LenientObject};
use super::response_output::{EventPosition, ItemPart, ResponseOutput};
use super::wire_event::handle_unreadable;
use super::{
    MAX_BLOCKS, SchemeDecoder, StreamFrame, cut_off_error, other_stop_reason, parse_body, parse_event,
    stop_detail, too_many_blocks,
};
use crate::classify;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;

#[derive(Debug)]
pub(crate) struct ResponsesDecoder {
    output: ResponseOutput,
    unknown_count: u64,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    output_index: Option<u64>,
    content_index: Option<u64>,
    summary_index: Option<u64>,
    item_id: Option<String>,
    delta: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
    arguments: Option<String>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A response: that of the last event, or a whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseBody {
    status: Option<String>,
    output: Option<Vec<Value>>,
    usage: LenientObject<ResponsesUsage>,
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponsesUsage {
    input_tokens: LenientCount,
    output_tokens: LenientCount,
    input_tokens_details: LenientObject<InputTokenDetails>,
    cost: Option<Value>,
    cost_in_usd_ticks: LenientCount,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InputTokenDetails {
    cached_tokens: LenientCount,
    cache_write_tokens: LenientCount,
}

impl ResponsesDecoder {
    pub(crate) fn new() -> ResponsesDecoder {
        ResponsesDecoder { output: ResponseOutput::new(), unknown_count: 0 }
    }

    /// Handles the end of the response: emits the remaining content, then the end.
    fn finish_response(
        &mut self,
        response: &ResponseBody,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let stop = match response.status.as_deref().unwrap_or("completed") {
            "completed" => None,
            "incomplete" => Some(incomplete_stop_reason(response)),
            "failed" => return Err(error_from_body(response.error.as_ref().unwrap_or(&Value::Null))),
            "cancelled" => {
                return Err(ProviderError::new(
                    ProviderErrorKind::Server,
                    "the provider cancelled the response",
                ));
            }
            other => return Err(cut_off_error(&format!("the response is `{}`", super::preview_text(other)))),
        };
        let whole = stop.is_none();
        self.output.finish_items(response.output.as_deref().unwrap_or_default(), whole, out);
        let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        let stop =
            stop.unwrap_or(if self.output.has_calls() { StopReason::ToolUse } else { StopReason::EndTurn });
        if let Some(usage) = &response.usage.0 {
            out.push(ModelEvent::Usage(usage.to_token_usage()));
        }
        if stop.is_refusal() {
            out.extend(stop_detail([reason]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn handle_event(
        &mut self,
        kind: &str,
        event: ResponsesEvent<'_>,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let position = EventPosition { index: event.output_index, id: event.item_id.as_deref() };
        let content = event.content_index.unwrap_or(0);
        let summary = event.summary_index.unwrap_or(0);
        let piece = event.delta.as_deref().unwrap_or_default();
        let output = &mut self.output;
        match kind {
            "response.output_text.delta" => output.push_piece(position, ItemPart::Text(content), piece, out),
            "response.refusal.delta" => output.push_piece(position, ItemPart::Refusal(content), piece, out),
            "response.reasoning_text.delta" => {
                output.push_piece(position, ItemPart::Raw(content), piece, out)
            }
            "response.reasoning_summary_text.delta" => {
                output.push_piece(position, ItemPart::Summary(summary), piece, out)
            }
            "response.function_call_arguments.delta" => {
                output.push_piece(position, ItemPart::Arguments, piece, out)
            }
            "response.output_text.done" => {
                output.push_whole_part(position, ItemPart::Text(content), event.text, out)
            }
            "response.refusal.done" => {
                output.push_whole_part(position, ItemPart::Refusal(content), event.refusal, out)
            }
            "response.reasoning_text.done" => {
                output.push_whole_part(position, ItemPart::Raw(content), event.text, out)
            }
            "response.reasoning_summary_text.done" => {
                output.push_whole_part(position, ItemPart::Summary(summary), event.text, out);
            }
            "response.function_call_arguments.done" => {
                output.push_whole_part(position, ItemPart::Arguments, event.arguments, out);
            }
            "response.content_part.done" => {
                let part: Value = parse_part(frame, event.part)?;
                if part.get("type").and_then(Value::as_str) == Some("reasoning_text") {
                    let text = part.get("text").and_then(Value::as_str).map(str::to_owned);
                    output.push_whole_part(position, ItemPart::Raw(content), text, out);
                } else {
                    output.finish_content_part(position, content, &part, out);
                }
            }
            "response.output_item.added" => output.add_item(position, &parse_part(frame, event.item)?, out),
            "response.output_item.done" => {
                output.finish_announced_item(position, &parse_part(frame, event.item)?, true, out)
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let mut response: ResponseBody = parse_part(frame, event.response)?;
                // The name of the event determines the end if the response has no status or still has its
                // initial one.
                if !response.status.as_deref().is_some_and(|status| FINAL_STATUSES.contains(&status)) {
                    response.status = Some(kind.trim_start_matches("response.").to_owned());
                }
                self.finish_response(&response, out)?;
            }
            "error" => return Err(error_from_body(&parse_event(frame)?)),
            _ if IGNORED_EVENTS.contains(&kind) => {}
            _ if event.error.is_some() => return Err(error_from_body(&parse_event(frame)?)),
            _ => self.unknown_count += 1,
        }
        if self.output.item_count() > MAX_BLOCKS { Err(too_many_blocks()) } else { Ok(()) }
    }
}

impl SchemeDecoder for ResponsesDecoder {
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        if frame.data == "[DONE]" {
            return Ok(()); // end marker of the other API
        }
        match parse_event::<ResponsesEvent<'_>>(frame) {
            Ok(event) => {
                let kind = event.kind.clone();
                let kind = if kind.is_empty() { frame.name } else { &*kind };
                self.handle_event(kind, event, frame, out)
            }
            Err(problem) => {
                self.unknown_count += 1;
                handle_unreadable(frame, problem, &PARSED_EVENTS, WireScheme::OpenaiResponses)
            }
        }
    }

    fn decode_body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let response: ResponseBody = parse_body(body)?;
        if response.output.is_none() {
            return Err(error_from_body(&parse_body(body)?));
        }
        self.finish_response(&response, out)
    }

    fn decode_end(&mut self, _out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        Err(cut_off_error("missing response.completed"))
    }

    fn unknown_count(&self) -> u64 {
        self.unknown_count + self.output.count_unknown()
    }
}

/// The final states of a response.
const FINAL_STATUSES: [&str; 4] = ["completed", "incomplete", "failed", "cancelled"];

/// Events without additional content.
const IGNORED_EVENTS: [&str; 10] = [
    "response.created",
    "response.in_progress",
    "response.queued",
    "response.content_part.added",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.output_text.annotation.added",
    "ping",
    "keepalive",
    "response.keepalive",
];

/// Events that are parsed.
const PARSED_EVENTS: [&str; 17] = [
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta",
    "response.function_call_arguments.delta",
    "response.output_text.done",
    "response.refusal.done",
    "response.reasoning_text.done",
    "response.reasoning_summary_text.done",
    "response.function_call_arguments.done",
    "response.content_part.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
];

/// xAI reports prices in ticks.
const TICKS_PER_USD: f64 = 1e10;

impl ResponsesUsage {
    fn to_token_usage(&self) -> TokenUsage {
        let details = self.input_tokens_details.0.as_ref();
        let cache_read = details.and_then(|details| details.cached_tokens.0).unwrap_or(0);
        let cache_write = details.and_then(|details| details.cache_write_tokens.0).unwrap_or(0);
        TokenUsage {
            // Their count is the total input; ours excludes cached tokens.
            input: self.input_tokens.0.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
            output: self.output_tokens.0.unwrap_or(0),
            cache_read,
            cache_write,
            cost_usd: self.cost_usd(),
        }
    }

    fn cost_usd(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a price; the error above 2^53 ticks is negligible")]
        let ticks = self.cost_in_usd_ticks.0.map(|ticks| ticks as f64 / TICKS_PER_USD);
        self.cost.as_ref().and_then(Value::as_f64).or(ticks).filter(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

fn parse_part<'a, T: Deserialize<'a> + Default>(
    frame: StreamFrame<'a>,
    part: Option<&'a RawValue>,
) -> Result<T, ProviderError> {
    match part {
        Some(part) => parse_event(StreamFrame { name: frame.name, data: part.get() }),
        None => Ok(T::default()),
    }
}

fn incomplete_stop_reason(response: &ResponseBody) -> StopReason {
    let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
    match reason.unwrap_or("incomplete") {
        "max_output_tokens" | "max_tokens" => StopReason::MaxTokens,
        other => other_stop_reason(other),
    }
}

/// Returns the error in its own field, or the event itself.
fn error_from_body(body: &Value) -> ProviderError {
    if body.get("error").is_some_and(|error| !error.is_null()) {
        return classify::classify_error_json(WireScheme::OpenaiResponses, None, body);
    }
    let wrapped = serde_json::json!({ "error": body });
    classify::classify_error_json(WireScheme::OpenaiResponses, None, &wrapped)
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{DecodedEvents, run_body_decoder, run_decoder};
    use super::*;

    fn decode_events(events: &[&str]) -> DecodedEvents {
        run_decoder(Box::new(ResponsesDecoder::new()), events)
    }

    const TEXT_DELTA: &str = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"a","delta":"hel"}"#;
    const TEXT_DONE: &str = r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"item_id":"b","text":"hello"}"#;
    const CONTENT_PART_DONE: &str = r#"{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{"type":"output_text","text":"hello"}}"#;
    const ITEM_DONE: &str = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"c","content":[{"type":"output_text","text":"hello"}]}}"#;
    const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","id":"d","content":[{"type":"output_text","text":"hello"}]}]}}"#;
    const COMPLETED_EMPTY: &str =
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#;

    /// Any selection of the events with the same text emits it once.
    #[test]
    fn a_text_is_said_once_wherever_it_stands() {
        let all = [TEXT_DELTA, TEXT_DONE, CONTENT_PART_DONE, ITEM_DONE];
        for chosen in 0..16_u32 {
            let some: Vec<&str> =
                (0..).zip(all).filter(|(bit, _)| chosen & (1 << bit) != 0).map(|(_, event)| event).collect();
            let with_end: Vec<&str> = some.iter().copied().chain([COMPLETED]).collect();
            assert_eq!(decode_events(&with_end).text_blocks(), ["hello"], "{with_end:#?}");
            if chosen > 1 {
                let with_empty: Vec<&str> = some.iter().copied().chain([COMPLETED_EMPTY]).collect();
                assert_eq!(decode_events(&with_empty).text_blocks(), ["hello"], "{with_empty:#?}");
            }
        }
    }

    /// Emitted text cannot be retracted; a complete text with another beginning adds nothing.
    #[test]
    fn what_was_said_in_other_words_stays() {
        let other = TEXT_DELTA.replace("hel", "hexe");
        assert_eq!(
            decode_events(&[&other, TEXT_DONE, CONTENT_PART_DONE, ITEM_DONE, COMPLETED_EMPTY]).text_blocks(),
            ["hexe"]
        );
    }

    /// With wrong positions and changing ids, the text decides.
    #[test]
    fn a_response_without_some_of_its_items_repeats_nothing() {
        let far = [TEXT_DELTA, TEXT_DONE, CONTENT_PART_DONE, ITEM_DONE]
            .map(|event| event.replace("\"output_index\":0", "\"output_index\":3"));
        let far: Vec<&str> = far.iter().map(String::as_str).chain([COMPLETED]).collect();
        assert_eq!(decode_events(&far).text_blocks(), ["hello"]);
    }

    const CALL_ADDED: &str = r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f","call_id":"c1","name":"Read","arguments":""}}"#;
    const ARGUMENTS_DELTA: &str =
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":"}"#;
    const ARGUMENTS_DONE: &str =
        r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"a\":1}"}"#;
    const CALL_DONE: &str = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"g","call_id":"c1","name":"Read","arguments":"{\"a\":1}"}}"#;

    #[test]
    fn arguments_are_said_once_wherever_they_stand() {
        for events in [
            vec![CALL_ADDED, ARGUMENTS_DELTA, ARGUMENTS_DONE, CALL_DONE, COMPLETED_EMPTY],
            vec![CALL_ADDED, CALL_DONE, COMPLETED_EMPTY],
            vec![ARGUMENTS_DELTA, CALL_DONE, COMPLETED_EMPTY],
            vec![CALL_DONE, COMPLETED_EMPTY],
            vec![CALL_ADDED, ARGUMENTS_DONE, COMPLETED_EMPTY],
        ] {
            let told = decode_events(&events);
            assert_eq!(told.call_blocks(), [("c1", "Read", r#"{"a":1}"#)], "{events:#?}");
            assert_eq!(told.stop_reason(), Some(&StopReason::ToolUse));
        }
    }

    #[test]
    fn a_call_without_arguments_has_none_and_a_cut_one_is_not_whole() {
        assert_eq!(decode_events(&[CALL_ADDED, COMPLETED_EMPTY]).call_blocks(), [("c1", "Read", "{}")]);
        let cut = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#;
        let told = decode_events(&[CALL_ADDED, cut]);
        assert_eq!(told.call_blocks(), [("c1", "Read", "")]);
        assert_eq!(told.stop_reason(), Some(&StopReason::MaxTokens));
    }

    #[test]
    fn reasoning_is_shown_once_and_kept_for_the_next_request() {
        let summary = |index: u32, text: &str| {
            format!(
                r#"{{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":{index},"delta":"{text}"}}"#
            )
        };
        let raw =
            r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"secret"}"#;
        let done = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","encrypted_content":"E","summary":[{"type":"summary_text","text":"one"},{"type":"summary_text","text":"two"}],"content":[{"type":"reasoning_text","text":"secret"}]}}"#;
        let told_pieces =
            decode_events(&[&summary(0, "one"), &summary(1, "two"), raw, done, COMPLETED_EMPTY]);
        assert_eq!(told_pieces.thinking_blocks(), ["one\n\ntwo"]);
        assert_eq!(decode_events(&[raw, done, COMPLETED_EMPTY]).thinking_blocks(), ["secret"]);
        let end = told_pieces.block_ends();
        assert_eq!(end.first().map(|end| end.encrypted.as_deref()), Some(Some("E")));
        assert_eq!(end.first().map(|end| end.summary.clone()), Some(vec!["one".into(), "two".into()]));
        // Empty reasoning is not a block.
        let nothing = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[]}}"#;
        assert!(decode_events(&[nothing, ITEM_DONE, COMPLETED_EMPTY]).thinking_blocks().is_empty());
    }

    #[test]
    fn a_refusal_is_a_refusal() {
        let piece = r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"I can"}"#;
        let done =
            r#"{"type":"response.refusal.done","output_index":0,"content_index":0,"refusal":"I cannot"}"#;
        let told = decode_events(&[piece, done, COMPLETED_EMPTY]);
        assert_eq!(told.block_texts(|kind| *kind == minke_model::BlockKind::Refusal), ["I cannot"]);
    }

    #[test]
    fn a_response_that_did_not_end_well_is_a_problem() {
        let reason = |events: &[&str]| decode_events(events).result.map_err(|problem| problem.kind);
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"insufficient_quota","message":"no money"},"output":[]}}"#;
        assert_eq!(reason(&[ITEM_DONE, failed]), Err(ProviderErrorKind::NoCredit));
        assert_eq!(reason(&[ITEM_DONE]), Err(ProviderErrorKind::Interrupted));
        assert_eq!(reason(&[ITEM_DONE, "[DONE]"]), Err(ProviderErrorKind::Interrupted));
        let error = r#"{"type":"error","code":"server_error","message":"it broke","param":null}"#;
        assert_eq!(reason(&[ITEM_DONE, error]), Err(ProviderErrorKind::Server));
        let queued =
            run_body_decoder(Box::new(ResponsesDecoder::new()), r#"{"status":"queued","output":[]}"#);
        assert_eq!(queued.result.map_err(|problem| problem.kind), Err(ProviderErrorKind::Interrupted));
        let filtered =
            r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#;
        assert_eq!(decode_events(&[filtered]).stop_reason(), Some(&StopReason::ContentFilter));
        let detail = ModelEvent::StopDetail { text: "content_filter".to_owned() };
        assert!(decode_events(&[filtered]).events.contains(&detail));
    }

    #[test]
    fn tokens_are_those_that_were_not_cached() {
        let usage = r#"{"input_tokens":100,"output_tokens":20,"input_tokens_details":{"cached_tokens":60},"cost_in_usd_ticks":5000000000}"#;
        let end = format!(r#"{{"type":"response.completed","response":{{"output":[],"usage":{usage}}}}}"#);
        let tokens =
            TokenUsage { input: 40, output: 20, cache_read: 60, cache_write: 0, cost_usd: Some(0.5) };
        assert!(decode_events(&[&end]).events.contains(&ModelEvent::Usage(tokens)));
    }

    /// Servers that use the same position, no position or changing ids for all items.
    #[test]
    fn items_are_told_apart_whatever_names_them() {
        let call = |event: &str, index: &str, id: &str| {
            format!(
                r#"{{"type":"response.output_item.{event}",{index}"item":{{"type":"function_call","id":"{id}","call_id":"c_{id}","name":"Read","arguments":"{{\"id\":\"{id}\"}}"}}}}"#
            )
        };
        let zero = r#""output_index":0,"#;
        for events in [
            vec![
                call("added", zero, "x"),
                call("done", zero, "x"),
                call("added", zero, "y"),
                call("done", zero, "y"),
            ],
            vec![
                call("added", zero, "x"),
                call("added", zero, "y"),
                call("done", zero, "x"),
                call("done", zero, "y"),
            ],
            vec![call("done", zero, "x"), call("done", zero, "y")],
            vec![
                call("added", "", "x"),
                call("added", "", "y"),
                call("done", "", "y"),
                call("done", "", "x"),
            ],
            // The item was only announced, so the announcement counts.
            vec![call("added", "", "x"), call("added", "", "y")],
        ] {
            let events: Vec<&str> = events.iter().map(String::as_str).chain([COMPLETED_EMPTY]).collect();
            let told = decode_events(&events);
            let mut calls: Vec<(String, String)> =
                told.call_blocks().into_iter().map(|call| (call.0, call.2)).collect();
            calls.sort();
            let wanted = ["x", "y"].map(|id| (format!("c_{id}"), format!(r#"{{"id":"{id}"}}"#)));
            assert_eq!(calls, wanted, "{events:#?}");
        }
        let bare = r#"{"type":"response.output_text.delta","delta":"hi"}"#;
        assert_eq!(decode_events(&[bare, bare, COMPLETED_EMPTY]).text_blocks(), ["hihi"]);
    }

    /// A gateway that uses one position for reasoning and message, and different ids for the pieces of an
    /// item.
    #[test]
    fn reasoning_and_text_at_one_place_do_not_mix() {
        let announced = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}"#;
        let thought = |id: u32, text: &str| {
            format!(
                r#"{{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"r{id}","delta":"{text}"}}"#
            )
        };
        let end = r#"{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"other","content":[{"type":"output_text","text":"hm, well"}]},{"type":"message","id":"another","content":[{"type":"output_text","text":"hello"}]}]}}"#;
        let told = decode_events(&[announced, &thought(1, "hm"), &thought(2, ", well"), TEXT_DELTA, end]);
        assert_eq!(
            (told.thinking_blocks(), told.text_blocks()),
            (vec!["hm, well".to_owned()], vec!["hello".to_owned()])
        );
    }

    #[test]
    fn two_calls_with_one_id_stay_two() {
        let call = r#"{"type":"function_call","call_id":"c","name":"Read","arguments":"{}"}"#;
        let done = |index: u32| {
            format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{call}}}"#)
        };
        let end = format!(r#"{{"type":"response.completed","response":{{"output":[{call},{call}]}}}}"#);
        let told = decode_events(&[&done(0), &done(1), &end]);
        let ids: Vec<String> = told.call_blocks().into_iter().map(|call| call.0).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn parts_of_other_kinds_are_named_once() {
        let part = r#"{"type":"hologram","text":"shiny"}"#;
        let done = format!(
            r#"{{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{part}}}"#
        );
        let item = format!(
            r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"message","content":[{part}]}}}}"#
        );
        let told = decode_events(&[&done, &item, COMPLETED_EMPTY]);
        let named = ModelEvent::Unknown { kind: "hologram".into(), text: "shiny".into() };
        assert_eq!(told.events.iter().filter(|event| **event == named).count(), 1);
        assert_eq!(told.unknown_count, 1);
    }

    #[test]
    fn errors_have_many_shapes() {
        for error in [
            r#"{"error":{"message":"it broke","code":"server_error"}}"#,
            r#"{"type":"error","error":{"message":"it broke"},"item":7,"delta":{}}"#,
            r#"{"type":"error","message":"it broke"}"#,
        ] {
            let problem = decode_events(&[ITEM_DONE, error]).result.expect_err(error);
            assert_eq!(problem.kind, ProviderErrorKind::Server, "{error}");
            assert!(problem.text.contains("it broke"), "{}", problem.text);
        }
        let late = r#"{"type":"response.completed","response":{"status":"in_progress","output":[]}}"#;
        assert_eq!(decode_events(&[ITEM_DONE, late]).stop_reason(), Some(&StopReason::EndTurn));
    }
}
