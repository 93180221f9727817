//! The comparison with `.expected.json`, the result of the vendor's SDK for the same bytes.
//!
//! Everything is compared: text, thinking, signatures, redacted and encrypted reasoning, refusals, calls with
//! ids, names and arguments as JSON, the stop reason, the tokens, errors, and blocks of other kinds. Stop
//! reasons and tokens are mapped by the tables below, which are those of `docs/reference/providers.md`. Where
//! an SDK reads less than the wire contains, or something else, an `SdkException` defines the comparison. An
//! exception depends on the wire and the result of the SDK, never on the name of a file, and every use is
//! counted and printed.

use std::collections::BTreeMap;

use minke_llm::classify::{RetryDelay, classify_response};
use minke_llm::{ProviderError, ProviderErrorKind, WireScheme};
use minke_model::{StopReason, TokenUsage};
use serde_json::Value;

use super::fixture::RecordedResponse;
use super::reply::{DecodedStream, GatheredReply, decode_chunks, gather_reply};
use super::wire_facts;

/// Cases in which the result of the SDK is not authoritative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SdkException {
    /// The wire has no stop reason and the SDK returns null. A normal end (`[DONE]`, a whole body) is
    /// `end_turn`, or `tool_use` with calls. Anything else is an error, because a stream without its end is
    /// incomplete.
    NoStopOnWire,
    /// The SDK discards the events before an error, so there is nothing to compare.
    PartsBeforeError,
    /// The provider sends calls without ids; ours are generated and unique.
    MadeUpIds,
    /// The SDK concatenates fields that the server repeats in every piece of a call, or two calls with the
    /// same index. We have the single values.
    StrungTogether,
    /// The SDK does not assemble `partialArgs`; this test assembles the arguments from the wire.
    PartialArgs,
    /// A second message starts inside the first, and the SDK mixes their blocks by index. Text, thinking and
    /// calls must be present; a call that the second message cut off must be incomplete.
    MixedMessages,
    /// The SDK reads only summaries; the reasoning itself (`reasoning_text`) is compared with the wire.
    RawReasoning,
    /// The SDK does not know `reasoning_details`; their texts are compared with the wire.
    ReasoningDetails,
    /// The provider counts reasoning separately from the output: the total includes it, or it exceeds the
    /// output. Our output includes it.
    ReasoningBesideOutput,
    /// The response repeats the encrypted reasoning, encrypted again; we keep the one of its item.
    EncryptedAgain,
    /// The file contains several consecutive responses, which no server sends. Each is decoded alone: the
    /// content of the SDK must equal that of one of them, its stop reason and tokens those of the last.
    SeveralReplies,
    /// The SDK's result has no field for a refusal; it is compared with the wire.
    RefusalUnread,
    /// The SDK does not know where this provider sends its tokens (`x_groq`); they are compared with the
    /// wire.
    UsageElsewhere,
    /// The SDK drops unknown blocks; we report them. They must be on the wire.
    UnknownToSdk,
    /// The length limit cut the reply inside a call without arguments so far, which differs from a call with
    /// empty arguments.
    CutBareCall,
}

/// How often each exception was used.
pub(crate) type ExceptionCounts = BTreeMap<SdkException, usize>;

/// Returns all differences between our result and that of the SDK.
pub(crate) fn compare_reply(
    fixture: &RecordedResponse,
    decoded: &DecodedStream,
    reply: &GatheredReply,
    used: &mut ExceptionCounts,
) -> Vec<String> {
    let parts = wire_facts::split_replies(fixture);
    if parts.len() > 1 {
        *used.entry(SdkException::SeveralReplies).or_default() += 1;
        return compare_parts(&parts, used);
    }
    let mut check = ReplyComparison { fixture, reply, used, differences: Vec::new() };
    let expected = &fixture.expected;
    if expected["error"].is_object() {
        check.compare_error(decoded);
    } else {
        check.compare_content();
        check.compare_calls();
        check.compare_stop(decoded);
        check.compare_usage();
        check.compare_unknown();
    }
    check.differences
}

fn compare_parts(parts: &[RecordedResponse], used: &mut ExceptionCounts) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut content_found = false;
    for (at, part) in parts.iter().enumerate() {
        let decoded = decode_chunks(part.scheme, [part.body.as_slice()]);
        let reply = match gather_reply(&decoded) {
            Ok(reply) if decoded.result.is_ok() => reply,
            other => {
                wrong.push(format!("reply {at}: {other:?}, {:?}", decoded.result));
                continue;
            }
        };
        let mut check = ReplyComparison { fixture: part, reply: &reply, used, differences: Vec::new() };
        check.compare_content();
        check.compare_calls();
        check.compare_unknown();
        content_found |= check.differences.is_empty();
        if at + 1 == parts.len() {
            check.differences.clear();
            check.compare_stop(&decoded);
            check.compare_usage();
            wrong.append(&mut check.differences);
        }
    }
    if !content_found {
        wrong.push("none of the replies has the content that the SDK read".to_owned());
    }
    wrong
}

struct ReplyComparison<'a> {
    fixture: &'a RecordedResponse,
    reply: &'a GatheredReply,
    used: &'a mut ExceptionCounts,
    differences: Vec<String>,
}

impl ReplyComparison<'_> {
    fn use_exception(&mut self, rule: SdkException) {
        *self.used.entry(rule).or_default() += 1;
    }

    fn check_equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, actual: T, sdk: T) {
        if actual != sdk {
            self.differences.push(format!("{what}: ours {actual:?}, expected {sdk:?}"));
        }
    }

    fn check_holds(&mut self, what: &str, holds: bool) {
        if !holds {
            self.differences.push(what.to_owned());
        }
    }

    fn expected_text(&self, field: &str) -> &str {
        self.fixture.expected[field].as_str().unwrap_or_default()
    }

    fn expected_texts(&self, field: &str) -> Vec<String> {
        let list = self.fixture.expected[field].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }

    /// Returns whether the stream was cut off. Then only finished blocks are compared.
    fn compare_interrupted(&self) -> bool {
        self.reply.stop.is_none()
    }

    fn compare_content(&mut self) {
        let reply = self.reply;
        let text = self.expected_text("text").to_owned();
        if !(self.compare_interrupted() && text.is_empty()) {
            self.check_equal("text", reply.answer_text(), text);
        }
        if self.fixture.expected.get("refusal").is_some() {
            self.check_equal("refusal", reply.refusal_text(), self.expected_text("refusal").to_owned());
        } else if !reply.refusal_text().is_empty() {
            self.use_exception(SdkException::RefusalUnread);
            self.check_equal("refusal", reply.refusal_text(), wire_facts::refusal_text(self.fixture));
        }
        self.compare_thinking();
        let signatures = self.expected_texts("signatures");
        let actual: Vec<String> = match self.fixture.scheme {
            // Encrypted reasoning is the signature of this scheme.
            WireScheme::OpenaiResponses => reply.encrypted().into_iter().map(str::to_owned).collect(),
            _ => reply.signatures().into_iter().map(str::to_owned).collect(),
        };
        let with_items = wire_facts::encrypted_with_items(self.fixture);
        if actual != signatures && actual.len() == signatures.len() && actual == with_items {
            self.use_exception(SdkException::EncryptedAgain);
        } else if wire_facts::count_messages(self.fixture) > 1 {
            self.use_exception(SdkException::MixedMessages);
            self.check_holds("all signatures", signatures.iter().all(|signature| actual.contains(signature)));
        } else {
            self.check_equal("signatures", actual, signatures);
        }
        if self.fixture.scheme == WireScheme::Anthropic {
            let redacted = self.expected_texts("redacted");
            self.check_equal(
                "redacted",
                reply.encrypted().into_iter().map(str::to_owned).collect(),
                redacted,
            );
        }
        if self.fixture.scheme == WireScheme::OpenaiChat {
            // The data to be sent back is the array of the wire.
            for kept in reply.encrypted() {
                let list = serde_json::from_str::<Vec<Value>>(kept).is_ok_and(|list| !list.is_empty());
                self.check_holds("reasoning_details is a list", list);
            }
        }
    }

    fn compare_thinking(&mut self) {
        let sdk = self.expected_text("thinking").to_owned();
        let actual = self.reply.thinking_text();
        if self.compare_interrupted() && sdk.is_empty() {
            return;
        }
        match self.fixture.scheme {
            WireScheme::OpenaiResponses => {
                self.check_equal("summary", self.reply.summary_text(), sdk.clone());
                let raw = wire_facts::reasoning_text(self.fixture);
                if raw.is_empty() {
                    self.check_holds(
                        "summaries are shown",
                        sdk.is_empty() != actual.contains(first_line(&sdk)),
                    );
                } else {
                    self.use_exception(SdkException::RawReasoning);
                    self.check_equal("reasoning", actual, raw);
                }
            }
            WireScheme::OpenaiChat
                if sdk.is_empty() && !wire_facts::details_text(self.fixture).is_empty() =>
            {
                self.use_exception(SdkException::ReasoningDetails);
                self.check_equal("reasoning_details", actual, wire_facts::details_text(self.fixture));
            }
            _ => self.check_equal("thinking", actual, sdk),
        }
    }

    fn compare_calls(&mut self) {
        let ours = self.reply.call_blocks();
        let theirs = self.fixture.expected["tool_calls"].as_array().cloned().unwrap_or_default();
        if wire_facts::has_partial_args(self.fixture) {
            self.use_exception(SdkException::PartialArgs);
            let assembled = wire_facts::partial_args(self.fixture);
            let actual: Vec<(String, Value)> = ours
                .iter()
                .map(|(_, name, arguments)| ((*name).to_owned(), arguments_json(arguments)))
                .collect();
            return self.check_equal("assembled calls", actual, assembled);
        }
        if self.compare_interrupted() && theirs.is_empty() {
            return;
        }
        let mut rest = ours.as_slice();
        for call in &theirs {
            rest = self.compare_call(call, rest);
        }
        self.check_holds(&format!("no further calls: {rest:?}"), rest.is_empty());
    }

    /// Compares one call of the SDK with ours and returns our remaining calls.
    fn compare_call<'c>(
        &mut self,
        call: &Value,
        actual: &'c [(&'c str, &'c str, &'c str)],
    ) -> &'c [(&'c str, &'c str, &'c str)] {
        let Some(((id, name, arguments), rest)) = actual.split_first() else {
            self.differences.push(format!("a call is missing: {call}"));
            return actual;
        };
        let (their_id, their_name) = (call["id"].as_str(), call["name"].as_str().unwrap_or_default());
        if *name != their_name {
            return self.compare_joined_call(call, actual);
        }
        match their_id {
            Some(their_id) => self.check_equal("call id", *id, their_id),
            None => self.use_exception(SdkException::MadeUpIds),
        }
        if wire_facts::count_messages(self.fixture) > 1 {
            return rest; // arguments: see `mixed`
        }
        if arguments.is_empty() && self.reply.stop == Some(StopReason::MaxTokens) && rest.is_empty() {
            self.use_exception(SdkException::CutBareCall);
            return rest;
        }
        self.check_equal(
            &format!("arguments of {name}"),
            arguments_json(arguments),
            call["arguments"].clone(),
        );
        rest
    }

    fn compare_joined_call<'c>(
        &mut self,
        call: &Value,
        actual: &'c [(&'c str, &'c str, &'c str)],
    ) -> &'c [(&'c str, &'c str, &'c str)] {
        let (id, name) = (call["id"].as_str().unwrap_or_default(), call["name"].as_str().unwrap_or_default());
        for count in 1..=actual.len() {
            let (these, rest) = actual.split_at(count);
            let whole = |of: fn(&(&str, &str, &str)) -> String| these.iter().map(of).collect::<String>();
            let (ids, names) = (whole(|call| call.0.to_owned()), whole(|call| call.1.to_owned()));
            let times = if names.is_empty() { 0 } else { name.len() / names.len() };
            if times > 0 && names.repeat(times) == name && ids.repeat(times) == id {
                self.use_exception(SdkException::StrungTogether);
                self.check_holds(
                    "whole arguments",
                    these.iter().all(|call| arguments_json(call.2) != Value::Null),
                );
                return rest;
            }
        }
        self.differences.push(format!("calls: ours {actual:?}, expected {call}"));
        actual
    }

    fn compare_stop(&mut self, decoded: &DecodedStream) {
        let sdk = self.fixture.expected["stop"].as_str().unwrap_or_default();
        let calls = !self.reply.call_blocks().is_empty();
        let ended = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        let expected = if let Some(stop) = wire_facts::blocked_reason(self.fixture) {
            stop
        } else if sdk.is_empty() {
            self.use_exception(SdkException::NoStopOnWire);
            if !wire_facts::has_orderly_end(self.fixture) {
                let reason = decoded.result.as_ref().err().map(|problem| problem.kind);
                return self.check_equal(
                    "a stream without its end",
                    reason,
                    Some(ProviderErrorKind::Interrupted),
                );
            }
            ended
        } else {
            expected_stop_reason(self.fixture, sdk, ended)
        };
        self.check_equal("stop", self.reply.stop.clone(), Some(expected));
    }

    fn compare_usage(&mut self) {
        let theirs = &self.fixture.expected["usage"];
        if self.compare_interrupted() {
            return; // counted at the end of a stream, which is missing
        }
        let elsewhere = wire_facts::groq_usage(self.fixture).filter(|_| theirs.is_null());
        if elsewhere.is_some() {
            self.use_exception(SdkException::UsageElsewhere);
        }
        let sdk = elsewhere.as_ref().unwrap_or(theirs);
        let expected = match self.fixture.scheme {
            _ if sdk.is_null() => TokenUsage::default(),
            WireScheme::Anthropic => anthropic_usage(sdk),
            WireScheme::OpenaiResponses => responses_usage(sdk),
            WireScheme::OpenaiChat => {
                if is_reasoning_beside_output(sdk) {
                    self.use_exception(SdkException::ReasoningBesideOutput);
                }
                chat_usage(sdk)
            }
            WireScheme::Gemini => gemini_usage(sdk),
            WireScheme::Scripted => return,
        };
        self.check_equal("usage", self.reply.usage.clone().unwrap_or_default(), expected);
    }

    fn compare_unknown(&mut self) {
        if self.compare_interrupted() {
            return;
        }
        let plain = |kind: &str| kind.replace('_', "").to_lowercase();
        let sdk: Vec<String> = self.expected_texts("other_blocks").iter().map(|kind| plain(kind)).collect();
        let actual: Vec<String> = self.reply.unknown.iter().map(|(kind, _)| plain(kind)).collect();
        let (known, dropped): (Vec<String>, Vec<String>) =
            actual.into_iter().partition(|kind| sdk.contains(kind));
        if !dropped.is_empty() {
            self.use_exception(SdkException::UnknownToSdk);
            let wire = plain(self.fixture.body_text());
            let there = dropped.iter().all(|kind| wire.contains(&format!("\"{kind}\"")));
            self.check_holds(&format!("other blocks that are on the wire: {dropped:?}"), there);
        }
        self.check_equal("other blocks", known, sdk);
        if wire_facts::count_messages(self.fixture) > 1 {
            let whole =
                self.reply.call_blocks().iter().filter(|call| arguments_json(call.2) != Value::Null).count();
            self.check_equal("whole calls", whole, wire_facts::count_finished_calls(self.fixture));
        }
    }

    fn compare_error(&mut self, decoded: &DecodedStream) {
        let error = &self.fixture.expected["error"];
        let problem = if self.fixture.status >= 400 {
            self.check_holds("an error body is an error", decoded.result.is_err());
            let found = classify_response(
                self.fixture.scheme,
                self.fixture.status,
                RetryDelay::default(),
                &self.fixture.body,
            );
            self.check_equal("status", found.status, Some(self.fixture.status));
            found
        } else {
            let Err(problem) = &decoded.result else {
                return self.differences.push(format!("no error, but the wire has one: {error}"));
            };
            self.check_parts_before_error();
            problem.clone()
        };
        let allowed = expected_kinds(self.fixture.status, &error["body"]);
        self.check_holds(
            &format!("reason: ours {:?}, expected one of {allowed:?}", problem.kind),
            allowed.contains(&problem.kind),
        );
        self.check_message(&problem, &error["body"]);
    }

    fn check_parts_before_error(&mut self) {
        let partial = [self.expected_text("partial_text"), self.expected_text("text")].concat();
        if partial.is_empty() {
            self.use_exception(SdkException::PartsBeforeError);
        } else {
            self.check_equal("text before the error", self.reply.answer_text(), partial);
        }
        self.check_holds("no stop", self.reply.stop.is_none());
    }

    /// Checks that our error contains the shown part of the provider's message.
    fn check_message(&mut self, problem: &ProviderError, body: &Value) {
        let message = body["error"]["message"].as_str().or(body["message"].as_str());
        let shown: String = match message {
            Some(message) => message.split_whitespace().take(6).collect::<Vec<_>>().join(" "),
            None => return self.check_holds("the error has a text", !problem.text.is_empty()),
        };
        let actual = problem.text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.check_holds(&format!("`{actual}` says `{shown}`"), actual.contains(&shown));
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("\u{0}")
}

/// Parses arguments as JSON; invalid ones are null.
fn arguments_json(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or(Value::Null)
}

/// The table of stop reasons. `ended` is the one for a normal end: `tool_use` with calls, else `end_turn`.
fn expected_stop_reason(fixture: &RecordedResponse, word: &str, ended: StopReason) -> StopReason {
    match (fixture.scheme, word) {
        (WireScheme::Anthropic, "pause_turn") => StopReason::Other("pause".into()),
        (WireScheme::Anthropic, "model_context_window_exceeded") => StopReason::MaxTokens,
        (WireScheme::Anthropic, other) => StopReason::from(other),
        (WireScheme::OpenaiChat, "stop") => ended,
        (WireScheme::OpenaiChat, "length") => StopReason::MaxTokens,
        (WireScheme::OpenaiChat, "tool_calls" | "function_call") => StopReason::ToolUse,
        (WireScheme::OpenaiResponses, "completed") => ended,
        (WireScheme::OpenaiResponses, "incomplete") => {
            match fixture.expected["incomplete"]["reason"].as_str() {
                Some("max_output_tokens") => StopReason::MaxTokens,
                other => StopReason::from(other.unwrap_or("incomplete")),
            }
        }
        (WireScheme::Gemini, "STOP") => ended,
        (WireScheme::Gemini, "MAX_TOKENS") => StopReason::MaxTokens,
        (
            WireScheme::Gemini,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION",
        ) => StopReason::ContentFilter,
        (_, other) => StopReason::from(other.to_lowercase().as_str()),
    }
}

fn json_number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Input without cached tokens, output with reasoning, as in all schemes.
fn anthropic_usage(usage: &Value) -> TokenUsage {
    TokenUsage {
        input: json_number(&usage["input_tokens"]),
        output: json_number(&usage["output_tokens"]),
        cache_read: json_number(&usage["cache_read_input_tokens"]),
        cache_write: json_number(&usage["cache_creation_input_tokens"]),
        cost_usd: None,
    }
}

fn responses_usage(usage: &Value) -> TokenUsage {
    let details = &usage["input_tokens_details"];
    let (read, written) =
        (json_number(&details["cached_tokens"]), json_number(&details["cache_write_tokens"]));
    TokenUsage {
        input: json_number(&usage["input_tokens"]).saturating_sub(read).saturating_sub(written),
        output: json_number(&usage["output_tokens"]),
        cache_read: read,
        cache_write: written,
        cost_usd: cost_usd(usage),
    }
}

/// Returns the cost in dollars, from dollars or from ticks of 10^-10 dollars.
fn cost_usd(usage: &Value) -> Option<f64> {
    usage["cost"].as_f64().or_else(|| usage["cost_in_usd_ticks"].as_f64().map(|ticks| ticks / 1e10))
}

fn is_reasoning_beside_output(usage: &Value) -> bool {
    let reasoning = json_number(&usage["completion_tokens_details"]["reasoning_tokens"]);
    let sum = json_number(&usage["prompt_tokens"]) + json_number(&usage["completion_tokens"]);
    let total = json_number(&usage["total_tokens"]) == sum + reasoning;
    reasoning > 0 && (total || reasoning > json_number(&usage["completion_tokens"]))
}

fn chat_usage(usage: &Value) -> TokenUsage {
    let details = &usage["prompt_tokens_details"];
    let first =
        |values: [&Value; 3]| values.into_iter().map(json_number).find(|count| *count > 0).unwrap_or(0);
    let read = first([&details["cached_tokens"], &usage["prompt_cache_hit_tokens"], &usage["cached_tokens"]]);
    let written =
        first([&details["cache_write_tokens"], &usage["cache_creation_input_tokens"], &Value::Null]);
    let beside = if is_reasoning_beside_output(usage) {
        json_number(&usage["completion_tokens_details"]["reasoning_tokens"])
    } else {
        0
    };
    TokenUsage {
        input: json_number(&usage["prompt_tokens"]).saturating_sub(read).saturating_sub(written),
        output: json_number(&usage["completion_tokens"]) + beside,
        cache_read: read,
        cache_write: written,
        cost_usd: cost_usd(usage),
    }
}

fn gemini_usage(usage: &Value) -> TokenUsage {
    let read = json_number(&usage["cached_content_token_count"]);
    let input =
        json_number(&usage["prompt_token_count"]) + json_number(&usage["tool_use_prompt_token_count"]);
    TokenUsage {
        input: input.saturating_sub(read),
        output: json_number(&usage["candidates_token_count"]) + json_number(&usage["thoughts_token_count"]),
        cache_read: read,
        cache_write: 0,
        cost_usd: None,
    }
}

/// Returns the possible kinds of an error: by its status or the corresponding code, narrowed by documented
/// words.
fn expected_kinds(status: u16, body: &Value) -> Vec<ProviderErrorKind> {
    use ProviderErrorKind::*;
    let said = body.to_string().to_lowercase();
    let words: [(&str, &[ProviderErrorKind]); 16] = [
        ("context_length_exceeded", &[ContextTooLong]),
        ("request_too_large", &[ContextTooLong]),
        ("insufficient_quota", &[NoCredit]),
        ("billing_error", &[NoCredit]),
        ("overloaded_error", &[Overloaded]),
        ("rate_limit_error", &[RateLimited]),
        ("rate_limit_exceeded", &[RateLimited]),
        ("authentication_error", &[InvalidKey]),
        ("invalid_api_key", &[InvalidKey]),
        ("permission_error", &[Forbidden, NoCredit]),
        ("model_not_found", &[UnknownModel]),
        ("not_found_error", &[UnknownModel, BadRequest]),
        ("timeout_error", &[Timeout]),
        ("unavailable", &[Overloaded, Server]),
        ("resource_exhausted", &[RateLimited, NoCredit]),
        ("server_error", &[Server, Overloaded]),
    ];
    let word = words.iter().find(|(word, _)| said.contains(&format!("\"{word}\"")));
    if let Some((_, reasons)) = word {
        return reasons.to_vec();
    }
    let inside = body["error"]["code"].as_u64().or(body["code"].as_u64());
    match if status >= 400 { Some(u64::from(status)) } else { inside } {
        Some(401) => vec![InvalidKey, NoKey],
        Some(402) => vec![NoCredit],
        Some(403) => vec![Forbidden, InvalidKey, NoCredit, Refused],
        Some(404) => vec![UnknownModel, BadRequest],
        Some(400 | 422) => vec![BadRequest, ContextTooLong, UnknownModel, InvalidKey, NoCredit, Refused],
        Some(408) => vec![Timeout],
        Some(413) => vec![ContextTooLong],
        Some(429) => vec![RateLimited, NoCredit, Overloaded, ContextTooLong],
        Some(503 | 529) => vec![Overloaded, Server],
        Some(504 | 524) => vec![Timeout, Server],
        Some(409 | 425 | 500..) => vec![Server, Overloaded],
        Some(_) => vec![BadRequest, Refused],
        // Nothing identifies the error. The request was accepted, so it is an error of the provider.
        None => vec![Server, Overloaded],
    }
}
