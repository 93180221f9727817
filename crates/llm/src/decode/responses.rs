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

use super::output::{Output, Part, Place};
use super::wire::{Kind, count};
use super::{Decode, Frame, cut, parse, parse_body};
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
}

/// A response: the last event's, or the whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    status: Option<String>,
    output: Option<Vec<Value>>,
    usage: Option<Usage>,
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
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    cost: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
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
        let stop =
            stop.unwrap_or(if self.output.calls() { StopReason::ToolUse } else { StopReason::EndTurn });
        if let Some(usage) = &response.usage {
            out.push(ModelEvent::Usage(usage.tokens()));
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
                output.part_done(place, content, &part, out);
            }
            "response.output_item.added" => output.added(place, &raw(frame, event.item)?, out),
            "response.output_item.done" => output.done(place, &raw(frame, event.item)?, true, out),
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let mut response: Response = raw(frame, event.response)?;
                // The event's own name says how it ended, if the response does not.
                response.status.get_or_insert_with(|| kind.trim_start_matches("response.").to_owned());
                self.response_ended(&response, out)?;
            }
            "error" => return Err(failed(&parse(frame)?)),
            _ if SILENT.contains(&kind) => {}
            _ => self.unknown += 1,
        }
        Ok(())
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
                // An event that we do not know may have any shape.
                let Kind { kind } = parse(frame)?;
                let kind = if kind.is_empty() { frame.name } else { &*kind };
                if kind == "error" {
                    return Err(failed(&parse(frame)?));
                }
                if READ.contains(&kind) {
                    return Err(problem);
                }
                self.unknown += 1;
                Ok(())
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

impl Usage {
    fn tokens(&self) -> TokenUsage {
        let details = self.input_tokens_details.as_ref();
        let cache_read = details.and_then(|d| d.cached_tokens).unwrap_or(0);
        let cache_write = details.and_then(|d| d.cache_write_tokens).unwrap_or(0);
        TokenUsage {
            // Theirs is all that went in; ours is what was not in the cache.
            input: self.input_tokens.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
            output: self.output_tokens.unwrap_or(0),
            cache_read,
            cache_write,
            cost_usd: self.cost,
        }
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
        other => StopReason::from(other),
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
