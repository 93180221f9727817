//! The comparison with `.expected.json`: what the vendor's own SDK read from the same bytes.
//!
//! Everything is compared: text, thinking, signatures, redacted and encrypted reasoning, refusals, calls with ids, names
//! and arguments as JSON, the stop reason, the tokens, errors, and blocks of other kinds. Stop reasons and tokens go
//! through the tables below, which are those of `docs/reference/providers.md`. Where an SDK reads less or other than what is on
//! the wire, one of the `Rule`s says what is compared instead; a rule looks at the wire and at the SDK's result, never
//! at the name of a file, and every use is counted and printed.

use std::collections::BTreeMap;

use minke_llm::classify::{RetryHint, from_response};
use minke_llm::{Problem, Reason, Scheme};
use minke_model::{StopReason, TokenUsage};
use serde_json::Value;

use super::fixture::Fixture;
use super::reply::{Decoded, Reply, decode, gather};
use super::wire;

/// Where the SDK's result is not the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// The wire has no stop reason, the SDK says null. An orderly end (`[DONE]`, a whole body) is `end_turn`, or
    /// `tool_use` with calls; anything else is a problem, because a stream without its end is not an answer.
    NoStopOnWire,
    /// The SDK throws away what came before an error; there is nothing to compare it with.
    PartsBeforeError,
    /// The provider gives calls no ids; ours are made up, and unique.
    MadeUpIds,
    /// The SDK strings together fields that the server repeats in every piece of a call, or two calls that share an
    /// index. Ours are the single ones.
    StrungTogether,
    /// The SDK does not assemble `partialArgs`; the arguments are assembled here from the wire.
    PartialArgs,
    /// A second message begins inside the first, and the SDK mixes their blocks by index. Text, thinking and calls must
    /// be there; a call that the second message cut off must not be whole.
    MixedMessages,
    /// The SDK reads summaries; the reasoning itself (`reasoning_text`) is compared with the wire.
    RawReasoning,
    /// The SDK does not know `reasoning_details`; their texts are compared with the wire.
    ReasoningDetails,
    /// The provider counts reasoning beside the output: its total shows it, or there is more of it than of the output.
    /// Ours counts it in.
    ReasoningBesideOutput,
    /// The response names the encrypted reasoning again, encrypted anew; ours is the one that came with its item.
    EncryptedAgain,
    /// The file holds several responses one behind the other, which no server sends as one. Each is read by itself: the
    /// SDK's content must be that of one of them, its stop reason and tokens those of the last.
    SeveralReplies,
    /// The SDK's result has no place for a refusal; it is compared with the wire.
    RefusalUnread,
    /// The SDK does not know where this provider counts its tokens (`x_groq`); they are compared with the wire.
    UsageElsewhere,
    /// The SDK drops blocks that it does not know; we name them. They must be on the wire.
    UnknownToSdk,
    /// The reply was cut by its length inside a call that had no arguments yet: not a call with empty arguments.
    CutBareCall,
}

/// How often each rule was used.
pub(crate) type Used = BTreeMap<Rule, usize>;

/// All differences between what we read and what the SDK read.
pub(crate) fn compare(fixture: &Fixture, decoded: &Decoded, reply: &Reply, used: &mut Used) -> Vec<String> {
    let parts = wire::replies(fixture);
    if parts.len() > 1 {
        *used.entry(Rule::SeveralReplies).or_default() += 1;
        return compare_parts(&parts, used);
    }
    let mut check = Check { fixture, reply, used, wrong: Vec::new() };
    let expected = &fixture.expected;
    if expected["error"].is_object() {
        check.error(decoded);
    } else {
        check.content();
        check.calls();
        check.stop(decoded);
        check.usage();
        check.others();
    }
    check.wrong
}

fn compare_parts(parts: &[Fixture], used: &mut Used) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut content_found = false;
    for (at, part) in parts.iter().enumerate() {
        let decoded = decode(part.scheme, [part.body.as_slice()]);
        let reply = match gather(&decoded) {
            Ok(reply) if decoded.result.is_ok() => reply,
            other => {
                wrong.push(format!("reply {at}: {other:?}, {:?}", decoded.result));
                continue;
            }
        };
        let mut check = Check { fixture: part, reply: &reply, used, wrong: Vec::new() };
        check.content();
        check.calls();
        check.others();
        content_found |= check.wrong.is_empty();
        if at + 1 == parts.len() {
            check.wrong.clear();
            check.stop(&decoded);
            check.usage();
            wrong.append(&mut check.wrong);
        }
    }
    if !content_found {
        wrong.push("none of the replies says what the SDK read".to_owned());
    }
    wrong
}

struct Check<'a> {
    fixture: &'a Fixture,
    reply: &'a Reply,
    used: &'a mut Used,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn rule(&mut self, rule: Rule) {
        *self.used.entry(rule).or_default() += 1;
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: T, theirs: T) {
        if ours != theirs {
            self.wrong.push(format!("{what}: ours {ours:?}, expected {theirs:?}"));
        }
    }

    fn expect(&mut self, what: &str, holds: bool) {
        if !holds {
            self.wrong.push(what.to_owned());
        }
    }

    fn expected(&self, field: &str) -> &str {
        self.fixture.expected[field].as_str().unwrap_or_default()
    }

    fn expected_texts(&self, field: &str) -> Vec<String> {
        let list = self.fixture.expected[field].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }

    /// A stream that broke off: what has an end must be right, the rest is open.
    fn broken_off(&self) -> bool {
        self.reply.stop.is_none()
    }

    fn content(&mut self) {
        let reply = self.reply;
        let text = self.expected("text").to_owned();
        if !(self.broken_off() && text.is_empty()) {
            self.same("text", reply.text(), text);
        }
        if self.fixture.expected.get("refusal").is_some() {
            self.same("refusal", reply.refusal(), self.expected("refusal").to_owned());
        } else if !reply.refusal().is_empty() {
            self.rule(Rule::RefusalUnread);
            self.same("refusal", reply.refusal(), wire::refusal(self.fixture));
        }
        self.thinking();
        let signatures = self.expected_texts("signatures");
        let ours: Vec<String> = match self.fixture.scheme {
            // Encrypted reasoning is what this scheme has for a signature.
            Scheme::OpenaiResponses => reply.encrypted().into_iter().map(str::to_owned).collect(),
            _ => reply.signatures().into_iter().map(str::to_owned).collect(),
        };
        let with_items = wire::encrypted_with_items(self.fixture);
        if ours != signatures && ours.len() == signatures.len() && ours == with_items {
            self.rule(Rule::EncryptedAgain);
        } else if wire::messages(self.fixture) > 1 {
            self.rule(Rule::MixedMessages);
            self.expect("all signatures", signatures.iter().all(|signature| ours.contains(signature)));
        } else {
            self.same("signatures", ours, signatures);
        }
        if self.fixture.scheme == Scheme::Anthropic {
            let redacted = self.expected_texts("redacted");
            self.same("redacted", reply.encrypted().into_iter().map(str::to_owned).collect(), redacted);
        }
        if self.fixture.scheme == Scheme::OpenaiChat {
            // What is kept to be sent back is the array of the wire.
            for kept in reply.encrypted() {
                let list = serde_json::from_str::<Vec<Value>>(kept).is_ok_and(|list| !list.is_empty());
                self.expect("reasoning_details is a list", list);
            }
        }
    }

    fn thinking(&mut self) {
        let theirs = self.expected("thinking").to_owned();
        let ours = self.reply.thinking();
        if self.broken_off() && theirs.is_empty() {
            return;
        }
        match self.fixture.scheme {
            Scheme::OpenaiResponses => {
                self.same("summary", self.reply.summary(), theirs.clone());
                let raw = wire::raw_reasoning(self.fixture);
                if raw.is_empty() {
                    self.expect(
                        "summaries are shown",
                        theirs.is_empty() != ours.contains(first_line(&theirs)),
                    );
                } else {
                    self.rule(Rule::RawReasoning);
                    self.same("reasoning", ours, raw);
                }
            }
            Scheme::OpenaiChat if theirs.is_empty() && !wire::reasoning_details(self.fixture).is_empty() => {
                self.rule(Rule::ReasoningDetails);
                self.same("reasoning_details", ours, wire::reasoning_details(self.fixture));
            }
            _ => self.same("thinking", ours, theirs),
        }
    }

    fn calls(&mut self) {
        let ours = self.reply.calls();
        let theirs = self.fixture.expected["tool_calls"].as_array().cloned().unwrap_or_default();
        if wire::has_partial_args(self.fixture) {
            self.rule(Rule::PartialArgs);
            let assembled = wire::partial_args(self.fixture);
            let ours: Vec<(String, Value)> =
                ours.iter().map(|(_, name, arguments)| ((*name).to_owned(), json(arguments))).collect();
            return self.same("assembled calls", ours, assembled);
        }
        if self.broken_off() && theirs.is_empty() {
            return;
        }
        let mut rest = ours.as_slice();
        for call in &theirs {
            rest = self.call(call, rest);
        }
        self.expect(&format!("no further calls: {rest:?}"), rest.is_empty());
    }

    /// One call of the SDK against ours; gives those of ours that are left.
    fn call<'c>(
        &mut self,
        call: &Value,
        ours: &'c [(&'c str, &'c str, &'c str)],
    ) -> &'c [(&'c str, &'c str, &'c str)] {
        let Some(((id, name, arguments), rest)) = ours.split_first() else {
            self.wrong.push(format!("a call is missing: {call}"));
            return ours;
        };
        let (their_id, their_name) = (call["id"].as_str(), call["name"].as_str().unwrap_or_default());
        if *name != their_name {
            return self.strung_together(call, ours);
        }
        match their_id {
            Some(their_id) => self.same("call id", *id, their_id),
            None => self.rule(Rule::MadeUpIds),
        }
        if wire::messages(self.fixture) > 1 {
            return rest; // arguments: see `mixed`
        }
        if arguments.is_empty() && self.reply.stop == Some(StopReason::MaxTokens) && rest.is_empty() {
            self.rule(Rule::CutBareCall);
            return rest;
        }
        self.same(&format!("arguments of {name}"), json(arguments), call["arguments"].clone());
        rest
    }

    fn strung_together<'c>(
        &mut self,
        call: &Value,
        ours: &'c [(&'c str, &'c str, &'c str)],
    ) -> &'c [(&'c str, &'c str, &'c str)] {
        let (id, name) = (call["id"].as_str().unwrap_or_default(), call["name"].as_str().unwrap_or_default());
        for count in 1..=ours.len() {
            let (these, rest) = ours.split_at(count);
            let whole = |of: fn(&(&str, &str, &str)) -> String| these.iter().map(of).collect::<String>();
            let (ids, names) = (whole(|call| call.0.to_owned()), whole(|call| call.1.to_owned()));
            let times = if names.is_empty() { 0 } else { name.len() / names.len() };
            if times > 0 && names.repeat(times) == name && ids.repeat(times) == id {
                self.rule(Rule::StrungTogether);
                self.expect("whole arguments", these.iter().all(|call| json(call.2) != Value::Null));
                return rest;
            }
        }
        self.wrong.push(format!("calls: ours {ours:?}, expected {call}"));
        ours
    }

    fn stop(&mut self, decoded: &Decoded) {
        let theirs = self.fixture.expected["stop"].as_str().unwrap_or_default();
        let calls = !self.reply.calls().is_empty();
        let ended = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        let expected = if let Some(stop) = wire::blocked(self.fixture) {
            stop
        } else if theirs.is_empty() {
            self.rule(Rule::NoStopOnWire);
            if !wire::ends_in_order(self.fixture) {
                let reason = decoded.result.as_ref().err().map(|problem| problem.reason);
                return self.same("a stream without its end", reason, Some(Reason::Cut));
            }
            ended
        } else {
            stop_reason(self.fixture, theirs, ended)
        };
        self.same("stop", self.reply.stop.clone(), Some(expected));
    }

    fn usage(&mut self) {
        let theirs = &self.fixture.expected["usage"];
        if self.broken_off() {
            return; // counted at the end of a stream, which did not come
        }
        let elsewhere = wire::groq_usage(self.fixture).filter(|_| theirs.is_null());
        if elsewhere.is_some() {
            self.rule(Rule::UsageElsewhere);
        }
        let theirs = elsewhere.as_ref().unwrap_or(theirs);
        let expected = match self.fixture.scheme {
            _ if theirs.is_null() => TokenUsage::default(),
            Scheme::Anthropic => anthropic_usage(theirs),
            Scheme::OpenaiResponses => responses_usage(theirs),
            Scheme::OpenaiChat => {
                if beside_output(theirs) {
                    self.rule(Rule::ReasoningBesideOutput);
                }
                chat_usage(theirs)
            }
            Scheme::Gemini => gemini_usage(theirs),
            Scheme::Scripted => return,
        };
        self.same("usage", self.reply.usage.clone().unwrap_or_default(), expected);
    }

    fn others(&mut self) {
        if self.broken_off() {
            return;
        }
        let plain = |kind: &str| kind.replace('_', "").to_lowercase();
        let theirs: Vec<String> =
            self.expected_texts("other_blocks").iter().map(|kind| plain(kind)).collect();
        let ours: Vec<String> = self.reply.unknown.iter().map(|(kind, _)| plain(kind)).collect();
        let (known, dropped): (Vec<String>, Vec<String>) =
            ours.into_iter().partition(|kind| theirs.contains(kind));
        if !dropped.is_empty() {
            self.rule(Rule::UnknownToSdk);
            let wire = plain(self.fixture.text());
            let there = dropped.iter().all(|kind| wire.contains(&format!("\"{kind}\"")));
            self.expect(&format!("other blocks that are on the wire: {dropped:?}"), there);
        }
        self.same("other blocks", known, theirs);
        if wire::messages(self.fixture) > 1 {
            let whole = self.reply.calls().iter().filter(|call| json(call.2) != Value::Null).count();
            self.same("whole calls", whole, wire::finished_calls(self.fixture));
        }
    }

    fn error(&mut self, decoded: &Decoded) {
        let error = &self.fixture.expected["error"];
        let problem = if self.fixture.status >= 400 {
            self.expect("an error body is no answer", decoded.result.is_err());
            let found = from_response(
                self.fixture.scheme,
                self.fixture.status,
                RetryHint::default(),
                &self.fixture.body,
            );
            self.same("status", found.status, Some(self.fixture.status));
            found
        } else {
            let Err(problem) = &decoded.result else {
                return self.wrong.push(format!("no problem, but the wire has one: {error}"));
            };
            self.parts_before_error();
            problem.clone()
        };
        let allowed = reasons(self.fixture.status, &error["body"]);
        self.expect(
            &format!("reason: ours {:?}, expected one of {allowed:?}", problem.reason),
            allowed.contains(&problem.reason),
        );
        self.says(&problem, &error["body"]);
    }

    fn parts_before_error(&mut self) {
        let partial = [self.expected("partial_text"), self.expected("text")].concat();
        if partial.is_empty() {
            self.rule(Rule::PartsBeforeError);
        } else {
            self.same("text before the error", self.reply.text(), partial);
        }
        self.expect("no stop", self.reply.stop.is_none());
    }

    /// The provider's own words are in ours, as far as they are shown.
    fn says(&mut self, problem: &Problem, body: &Value) {
        let message = body["error"]["message"].as_str().or(body["message"].as_str());
        let shown: String = match message {
            Some(message) => message.split_whitespace().take(6).collect::<Vec<_>>().join(" "),
            None => return self.expect("something is said", !problem.text.is_empty()),
        };
        let ours = problem.text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.expect(&format!("`{ours}` says `{shown}`"), ours.contains(&shown));
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("\u{0}")
}

/// Arguments as JSON; what is none is null.
fn json(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or(Value::Null)
}

/// The table of stop reasons. `ended` is an orderly end: `tool_use` with calls, else `end_turn`.
fn stop_reason(fixture: &Fixture, word: &str, ended: StopReason) -> StopReason {
    match (fixture.scheme, word) {
        (Scheme::Anthropic, "pause_turn") => StopReason::Other("pause".into()),
        (Scheme::Anthropic, "model_context_window_exceeded") => StopReason::MaxTokens,
        (Scheme::Anthropic, other) => StopReason::from(other),
        (Scheme::OpenaiChat, "stop") => ended,
        (Scheme::OpenaiChat, "length") => StopReason::MaxTokens,
        (Scheme::OpenaiChat, "tool_calls" | "function_call") => StopReason::ToolUse,
        (Scheme::OpenaiResponses, "completed") => ended,
        (Scheme::OpenaiResponses, "incomplete") => match fixture.expected["incomplete"]["reason"].as_str() {
            Some("max_output_tokens") => StopReason::MaxTokens,
            other => StopReason::from(other.unwrap_or("incomplete")),
        },
        (Scheme::Gemini, "STOP") => ended,
        (Scheme::Gemini, "MAX_TOKENS") => StopReason::MaxTokens,
        (
            Scheme::Gemini,
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

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Input without what came from the cache or went into it; output with reasoning: the same in all schemes.
fn anthropic_usage(usage: &Value) -> TokenUsage {
    TokenUsage {
        input: number(&usage["input_tokens"]),
        output: number(&usage["output_tokens"]),
        cache_read: number(&usage["cache_read_input_tokens"]),
        cache_write: number(&usage["cache_creation_input_tokens"]),
        cost_usd: None,
    }
}

fn responses_usage(usage: &Value) -> TokenUsage {
    let details = &usage["input_tokens_details"];
    let (read, written) = (number(&details["cached_tokens"]), number(&details["cache_write_tokens"]));
    TokenUsage {
        input: number(&usage["input_tokens"]).saturating_sub(read).saturating_sub(written),
        output: number(&usage["output_tokens"]),
        cache_read: read,
        cache_write: written,
        cost_usd: cost(usage),
    }
}

/// In dollars, or in ticks of which a dollar has 10^10.
fn cost(usage: &Value) -> Option<f64> {
    usage["cost"].as_f64().or_else(|| usage["cost_in_usd_ticks"].as_f64().map(|ticks| ticks / 1e10))
}

fn beside_output(usage: &Value) -> bool {
    let reasoning = number(&usage["completion_tokens_details"]["reasoning_tokens"]);
    let sum = number(&usage["prompt_tokens"]) + number(&usage["completion_tokens"]);
    let total = number(&usage["total_tokens"]) == sum + reasoning;
    reasoning > 0 && (total || reasoning > number(&usage["completion_tokens"]))
}

fn chat_usage(usage: &Value) -> TokenUsage {
    let details = &usage["prompt_tokens_details"];
    let first = |values: [&Value; 3]| values.into_iter().map(number).find(|count| *count > 0).unwrap_or(0);
    let read = first([&details["cached_tokens"], &usage["prompt_cache_hit_tokens"], &usage["cached_tokens"]]);
    let written =
        first([&details["cache_write_tokens"], &usage["cache_creation_input_tokens"], &Value::Null]);
    let beside = if beside_output(usage) {
        number(&usage["completion_tokens_details"]["reasoning_tokens"])
    } else {
        0
    };
    TokenUsage {
        input: number(&usage["prompt_tokens"]).saturating_sub(read).saturating_sub(written),
        output: number(&usage["completion_tokens"]) + beside,
        cache_read: read,
        cache_write: written,
        cost_usd: cost(usage),
    }
}

fn gemini_usage(usage: &Value) -> TokenUsage {
    let read = number(&usage["cached_content_token_count"]);
    let input = number(&usage["prompt_token_count"]) + number(&usage["tool_use_prompt_token_count"]);
    TokenUsage {
        input: input.saturating_sub(read),
        output: number(&usage["candidates_token_count"]) + number(&usage["thoughts_token_count"]),
        cache_read: read,
        cache_write: 0,
        cost_usd: None,
    }
}

/// Which reasons an error may have: its status, or the code that stands for one, narrowed by words that are documented.
fn reasons(status: u16, body: &Value) -> Vec<Reason> {
    use Reason::*;
    let said = body.to_string().to_lowercase();
    let words: [(&str, &[Reason]); 16] = [
        ("context_length_exceeded", &[TooLong]),
        ("request_too_large", &[TooLong]),
        ("insufficient_quota", &[NoCredit]),
        ("billing_error", &[NoCredit]),
        ("overloaded_error", &[Overloaded]),
        ("rate_limit_error", &[RateLimited]),
        ("rate_limit_exceeded", &[RateLimited]),
        ("authentication_error", &[WrongKey]),
        ("invalid_api_key", &[WrongKey]),
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
        Some(401) => vec![WrongKey, NoKey],
        Some(402) => vec![NoCredit],
        Some(403) => vec![Forbidden, WrongKey, NoCredit, Refused],
        Some(404) => vec![UnknownModel, BadRequest],
        Some(400 | 422) => vec![BadRequest, TooLong, UnknownModel, WrongKey, NoCredit, Refused],
        Some(408) => vec![Timeout],
        Some(413) => vec![TooLong],
        Some(429) => vec![RateLimited, NoCredit, Overloaded, TooLong],
        Some(503 | 529) => vec![Overloaded, Server],
        Some(504 | 524) => vec![Timeout, Server],
        Some(409 | 425 | 500..) => vec![Server, Overloaded],
        Some(_) => vec![BadRequest, Refused],
        // Nothing says what it is; the request had been accepted, so it is the provider's own failure.
        None => vec![Server, Overloaded],
    }
}
