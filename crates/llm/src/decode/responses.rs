//! The responses API of OpenAI, as its own service and others speak it.
//!
//! Here: what its events and bodies mean. Elsewhere: the output items and what of them has been passed on (`output`),
//! bytes and framing (`frame`), what errors mean (`classify`).
//! Invariant: what a reply says is passed on once, whether it comes in pieces, in `done` events, only in the last
//! event, or in all of them (tests below).

use std::borrow::Cow;

use minke_model::{ModelEvent, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::loose::{Count, Object};
use super::output::{Output, Part, Place};
use super::wire::odd;
use super::{BLOCKS, Decode, Frame, cut, other_stop, parse, parse_body, stop_detail, too_many};
use crate::classify;
use crate::problem::{Problem, Reason};
use crate::settings::Scheme;

#[derive(Debug)]
pub(crate) struct ResponsesDecode {
    output: Output,
    unknown: u64,
}

#[derive(Deserialize)]
struct Event<'a> {
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

/// A response: the last event's, or the whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    status: Option<String>,
    output: Option<Vec<Value>>,
    usage: Object<Usage>,
    error: Option<Value>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Usage {
    input_tokens: Count,
    output_tokens: Count,
    input_tokens_details: Object<InputDetails>,
    cost: Option<Value>,
    cost_in_usd_ticks: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

impl ResponsesDecode {
    pub(crate) fn new() -> ResponsesDecode {
        ResponsesDecode { output: Output::new(), unknown: 0 }
    }

    /// The response is over: what it holds and has not been passed on, then the end.
    fn response_ended(&mut self, response: &Response, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let stop = match response.status.as_deref().unwrap_or("completed") {
            "completed" => None,
            "incomplete" => Some(incomplete(response)),
            "failed" => return Err(failed(response.error.as_ref().unwrap_or(&Value::Null))),
            "cancelled" => {
                return Err(Problem::new(Reason::Server, "the provider cancelled the response"));
            }
            other => return Err(cut(&format!("the response is `{}`", super::preview(other)))),
        };
        let whole = stop.is_none();
        self.output.settle(response.output.as_deref().unwrap_or_default(), whole, out);
        let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        let stop =
            stop.unwrap_or(if self.output.calls() { StopReason::ToolUse } else { StopReason::EndTurn });
        if let Some(usage) = &response.usage.0 {
            out.push(ModelEvent::Usage(usage.tokens()));
        }
        if stop.is_refusal() {
            out.extend(stop_detail([reason]));
        }
        out.push(ModelEvent::Done { stop });
        Ok(())
    }

    fn event(
        &mut self,
        kind: &str,
        event: Event<'_>,
        frame: Frame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), Problem> {
        let place = Place { index: event.output_index, id: event.item_id.as_deref() };
        let content = event.content_index.unwrap_or(0);
        let summary = event.summary_index.unwrap_or(0);
        let piece = event.delta.as_deref().unwrap_or_default();
        let output = &mut self.output;
        match kind {
            "response.output_text.delta" => output.piece(place, Part::Text(content), piece, out),
            "response.refusal.delta" => output.piece(place, Part::Refusal(content), piece, out),
            "response.reasoning_text.delta" => output.piece(place, Part::Raw(content), piece, out),
            "response.reasoning_summary_text.delta" => {
                output.piece(place, Part::Summary(summary), piece, out)
            }
            "response.function_call_arguments.delta" => output.piece(place, Part::Arguments, piece, out),
            "response.output_text.done" => output.whole(place, Part::Text(content), event.text, out),
            "response.refusal.done" => output.whole(place, Part::Refusal(content), event.refusal, out),
            "response.reasoning_text.done" => output.whole(place, Part::Raw(content), event.text, out),
            "response.reasoning_summary_text.done" => {
                output.whole(place, Part::Summary(summary), event.text, out);
            }
            "response.function_call_arguments.done" => {
                output.whole(place, Part::Arguments, event.arguments, out);
            }
            "response.content_part.done" => {
                let part: Value = raw(frame, event.part)?;
                if part.get("type").and_then(Value::as_str) == Some("reasoning_text") {
                    let text = part.get("text").and_then(Value::as_str).map(str::to_owned);
                    output.whole(place, Part::Raw(content), text, out);
                } else {
                    output.part_done(place, content, &part, out);
                }
            }
            "response.output_item.added" => output.added(place, &raw(frame, event.item)?, out),
            "response.output_item.done" => output.done(place, &raw(frame, event.item)?, true, out),
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let mut response: Response = raw(frame, event.response)?;
                // The event's own name says how it ended, if the response does not, or still has the word that it had
                // when it began.
                if !response.status.as_deref().is_some_and(|status| ENDS.contains(&status)) {
                    response.status = Some(kind.trim_start_matches("response.").to_owned());
                }
                self.response_ended(&response, out)?;
            }
            "error" => return Err(failed(&parse(frame)?)),
            _ if SILENT.contains(&kind) => {}
            _ if event.error.is_some() => return Err(failed(&parse(frame)?)),
            _ => self.unknown += 1,
        }
        if self.output.len() > BLOCKS { Err(too_many()) } else { Ok(()) }
    }
}

impl Decode for ResponsesDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if frame.data == "[DONE]" {
            return Ok(()); // habit of the other API; the end has been said or is missing
        }
        match parse::<Event<'_>>(frame) {
            Ok(event) => {
                let kind = event.kind.clone();
                let kind = if kind.is_empty() { frame.name } else { &*kind };
                self.event(kind, event, frame, out)
            }
            Err(problem) => {
                self.unknown += 1;
                odd(frame, problem, &READ, Scheme::OpenaiResponses)
            }
        }
    }

    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let response: Response = parse_body(body)?;
        if response.output.is_none() {
            return Err(failed(&parse_body(body)?));
        }
        self.response_ended(&response, out)
    }

    fn end(&mut self, _out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        Err(cut("no response.completed came"))
    }

    fn unknown(&self) -> u64 {
        self.unknown + self.output.unknown()
    }
}

/// How a response may have ended.
const ENDS: [&str; 4] = ["completed", "incomplete", "failed", "cancelled"];

/// Events that say nothing that others do not say.
const SILENT: [&str; 10] = [
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

/// Events whose shape matters.
const READ: [&str; 17] = [
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

/// xAI gives prices in ticks.
const TICKS_PER_USD: f64 = 1e10;

impl Usage {
    fn tokens(&self) -> TokenUsage {
        let details = self.input_tokens_details.0.as_ref();
        let cache_read = details.and_then(|details| details.cached_tokens.0).unwrap_or(0);
        let cache_write = details.and_then(|details| details.cache_write_tokens.0).unwrap_or(0);
        TokenUsage {
            // Theirs is all that went in; ours is what was not in the cache.
            input: self.input_tokens.0.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
            output: self.output_tokens.0.unwrap_or(0),
            cache_read,
            cache_write,
            cost_usd: self.cost(),
        }
    }

    fn cost(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a price; the last digits of 2^53 ticks are no money")]
        let ticks = self.cost_in_usd_ticks.0.map(|ticks| ticks as f64 / TICKS_PER_USD);
        self.cost.as_ref().and_then(Value::as_f64).or(ticks).filter(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

fn raw<'a, T: Deserialize<'a> + Default>(frame: Frame<'a>, part: Option<&'a RawValue>) -> Result<T, Problem> {
    match part {
        Some(part) => parse(Frame { name: frame.name, data: part.get() }),
        None => Ok(T::default()),
    }
}

fn incomplete(response: &Response) -> StopReason {
    let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
    match reason.unwrap_or("incomplete") {
        "max_output_tokens" | "max_tokens" => StopReason::MaxTokens,
        other => other_stop(other),
    }
}

/// The error is in a field of its own, or the event is the error.
fn failed(body: &Value) -> Problem {
    if body.get("error").is_some_and(|error| !error.is_null()) {
        return classify::from_error_json(Scheme::OpenaiResponses, None, body);
    }
    let wrapped = serde_json::json!({ "error": body });
    classify::from_error_json(Scheme::OpenaiResponses, None, &wrapped)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Told, tell, tell_body};
    use super::*;

    fn told(events: &[&str]) -> Told {
        tell(Box::new(ResponsesDecode::new()), events)
    }

    const PIECE: &str = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"a","delta":"hel"}"#;
    const TEXT: &str = r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"item_id":"b","text":"hello"}"#;
    const PART: &str = r#"{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{"type":"output_text","text":"hello"}}"#;
    const ITEM: &str = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"c","content":[{"type":"output_text","text":"hello"}]}}"#;
    const END: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","id":"d","content":[{"type":"output_text","text":"hello"}]}]}}"#;
    const EMPTY: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#;

    /// Every choice of the events that say the same text says it once.
    #[test]
    fn a_text_is_said_once_wherever_it_stands() {
        let all = [PIECE, TEXT, PART, ITEM];
        for chosen in 0..16_u32 {
            let some: Vec<&str> =
                (0..).zip(all).filter(|(bit, _)| chosen & (1 << bit) != 0).map(|(_, event)| event).collect();
            let with_end: Vec<&str> = some.iter().copied().chain([END]).collect();
            assert_eq!(told(&with_end).texts(), ["hello"], "{with_end:#?}");
            if chosen > 1 {
                let with_empty: Vec<&str> = some.iter().copied().chain([EMPTY]).collect();
                assert_eq!(told(&with_empty).texts(), ["hello"], "{with_empty:#?}");
            }
        }
    }

    /// What has been shown cannot be taken back; a whole that does not begin with it says nothing more.
    #[test]
    fn what_was_said_in_other_words_stays() {
        let other = PIECE.replace("hel", "hexe");
        assert_eq!(told(&[&other, TEXT, PART, ITEM, EMPTY]).texts(), ["hexe"]);
    }

    /// Places that do not fit and ids that change: the text decides.
    #[test]
    fn a_response_without_some_of_its_items_repeats_nothing() {
        let far =
            [PIECE, TEXT, PART, ITEM].map(|event| event.replace("\"output_index\":0", "\"output_index\":3"));
        let far: Vec<&str> = far.iter().map(String::as_str).chain([END]).collect();
        assert_eq!(told(&far).texts(), ["hello"]);
    }

    const CALL: &str = r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f","call_id":"c1","name":"Read","arguments":""}}"#;
    const ARGS: &str =
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":"}"#;
    const ARGS_DONE: &str =
        r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"a\":1}"}"#;
    const CALL_DONE: &str = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"g","call_id":"c1","name":"Read","arguments":"{\"a\":1}"}}"#;

    #[test]
    fn arguments_are_said_once_wherever_they_stand() {
        for events in [
            vec![CALL, ARGS, ARGS_DONE, CALL_DONE, EMPTY],
            vec![CALL, CALL_DONE, EMPTY],
            vec![ARGS, CALL_DONE, EMPTY],
            vec![CALL_DONE, EMPTY],
            vec![CALL, ARGS_DONE, EMPTY],
        ] {
            let told = told(&events);
            assert_eq!(told.calls(), [("c1", "Read", r#"{"a":1}"#)], "{events:#?}");
            assert_eq!(told.stop(), Some(&StopReason::ToolUse));
        }
    }

    #[test]
    fn a_call_without_arguments_has_none_and_a_cut_one_is_not_whole() {
        assert_eq!(told(&[CALL, EMPTY]).calls(), [("c1", "Read", "{}")]);
        let cut = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#;
        let told = told(&[CALL, cut]);
        assert_eq!(told.calls(), [("c1", "Read", "")]);
        assert_eq!(told.stop(), Some(&StopReason::MaxTokens));
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
        let told_pieces = told(&[&summary(0, "one"), &summary(1, "two"), raw, done, EMPTY]);
        assert_eq!(told_pieces.thinking(), ["one\n\ntwo"]);
        assert_eq!(told(&[raw, done, EMPTY]).thinking(), ["secret"]);
        let end = told_pieces.ends();
        assert_eq!(end.first().map(|end| end.encrypted.as_deref()), Some(Some("E")));
        assert_eq!(end.first().map(|end| end.summary.clone()), Some(vec!["one".into(), "two".into()]));
        // Reasoning of which nothing is known is no block.
        let nothing = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[]}}"#;
        assert!(told(&[nothing, ITEM, EMPTY]).thinking().is_empty());
    }

    #[test]
    fn a_refusal_is_a_refusal() {
        let piece = r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"I can"}"#;
        let done =
            r#"{"type":"response.refusal.done","output_index":0,"content_index":0,"refusal":"I cannot"}"#;
        let told = told(&[piece, done, EMPTY]);
        assert_eq!(told.of(|kind| *kind == minke_model::BlockKind::Refusal), ["I cannot"]);
    }

    #[test]
    fn a_response_that_did_not_end_well_is_a_problem() {
        let reason = |events: &[&str]| told(events).result.map_err(|problem| problem.reason);
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"insufficient_quota","message":"no money"},"output":[]}}"#;
        assert_eq!(reason(&[ITEM, failed]), Err(Reason::NoCredit));
        assert_eq!(reason(&[ITEM]), Err(Reason::Cut));
        assert_eq!(reason(&[ITEM, "[DONE]"]), Err(Reason::Cut));
        let error = r#"{"type":"error","code":"server_error","message":"it broke","param":null}"#;
        assert_eq!(reason(&[ITEM, error]), Err(Reason::Server));
        let queued = tell_body(Box::new(ResponsesDecode::new()), r#"{"status":"queued","output":[]}"#);
        assert_eq!(queued.result.map_err(|problem| problem.reason), Err(Reason::Cut));
        let filtered =
            r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#;
        assert_eq!(told(&[filtered]).stop(), Some(&StopReason::ContentFilter));
        let detail = ModelEvent::StopDetail { text: "content_filter".to_owned() };
        assert!(told(&[filtered]).events.contains(&detail));
    }

    #[test]
    fn tokens_are_those_that_were_not_cached() {
        let usage = r#"{"input_tokens":100,"output_tokens":20,"input_tokens_details":{"cached_tokens":60},"cost_in_usd_ticks":5000000000}"#;
        let end = format!(r#"{{"type":"response.completed","response":{{"output":[],"usage":{usage}}}}}"#);
        let tokens =
            TokenUsage { input: 40, output: 20, cache_read: 60, cache_write: 0, cost_usd: Some(0.5) };
        assert!(told(&[&end]).events.contains(&ModelEvent::Usage(tokens)));
    }

    /// Servers that give every item the same place, or none, or other ids each time.
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
            // Only announced: what was announced counts.
            vec![call("added", "", "x"), call("added", "", "y")],
        ] {
            let events: Vec<&str> = events.iter().map(String::as_str).chain([EMPTY]).collect();
            let told = told(&events);
            let mut calls: Vec<(String, String)> =
                told.calls().into_iter().map(|call| (call.0, call.2)).collect();
            calls.sort();
            let wanted = ["x", "y"].map(|id| (format!("c_{id}"), format!(r#"{{"id":"{id}"}}"#)));
            assert_eq!(calls, wanted, "{events:#?}");
        }
        let bare = r#"{"type":"response.output_text.delta","delta":"hi"}"#;
        assert_eq!(told(&[bare, bare, EMPTY]).texts(), ["hihi"]);
    }

    /// A gateway that puts reasoning and message at one place, and gives the pieces of one item different ids.
    #[test]
    fn reasoning_and_text_at_one_place_do_not_mix() {
        let announced = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}"#;
        let thought = |id: u32, text: &str| {
            format!(
                r#"{{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"r{id}","delta":"{text}"}}"#
            )
        };
        let end = r#"{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"other","content":[{"type":"output_text","text":"hm, well"}]},{"type":"message","id":"another","content":[{"type":"output_text","text":"hello"}]}]}}"#;
        let told = told(&[announced, &thought(1, "hm"), &thought(2, ", well"), PIECE, end]);
        assert_eq!((told.thinking(), told.texts()), (vec!["hm, well".to_owned()], vec!["hello".to_owned()]));
    }

    #[test]
    fn two_calls_with_one_id_stay_two() {
        let call = r#"{"type":"function_call","call_id":"c","name":"Read","arguments":"{}"}"#;
        let done = |index: u32| {
            format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{call}}}"#)
        };
        let end = format!(r#"{{"type":"response.completed","response":{{"output":[{call},{call}]}}}}"#);
        let told = told(&[&done(0), &done(1), &end]);
        let ids: Vec<String> = told.calls().into_iter().map(|call| call.0).collect();
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
        let told = told(&[&done, &item, EMPTY]);
        let named = ModelEvent::Unknown { kind: "hologram".into(), text: "shiny".into() };
        assert_eq!(told.events.iter().filter(|event| **event == named).count(), 1);
        assert_eq!(told.unknown, 1);
    }

    #[test]
    fn errors_have_many_shapes() {
        for error in [
            r#"{"error":{"message":"it broke","code":"server_error"}}"#,
            r#"{"type":"error","error":{"message":"it broke"},"item":7,"delta":{}}"#,
            r#"{"type":"error","message":"it broke"}"#,
        ] {
            let problem = told(&[ITEM, error]).result.expect_err(error);
            assert_eq!(problem.reason, Reason::Server, "{error}");
            assert!(problem.text.contains("it broke"), "{}", problem.text);
        }
        let late = r#"{"type":"response.completed","response":{"status":"in_progress","output":[]}}"#;
        assert_eq!(told(&[ITEM, late]).stop(), Some(&StopReason::EndTurn));
    }
}
