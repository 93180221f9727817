//! The wire types of chat completions: the fields that are read, in all types that servers use.
//!
//! Their meaning is in `mod`.

use std::borrow::Cow;

use minke_model::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use super::super::lenient::{LenientCount, LenientObject, LenientText};

/// One event of a stream, or a whole body.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatChunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    pub(super) usage: LenientObject<ChatUsage>,
    pub(super) x_groq: LenientObject<GroqExtension>,
    pub(super) error: Option<Box<Value>>,
    /// `error` in the errors of some servers, which have the error fields at the top level.
    #[serde(borrow)]
    pub(super) object: LenientText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroqExtension {
    pub(super) usage: LenientObject<ChatUsage>,
    pub(super) error: Option<Box<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatChoice<'a> {
    pub(super) index: LenientCount,
    #[serde(borrow)]
    pub(super) delta: Option<ChatDelta<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Box<ChatDelta<'a>>>,
    #[serde(borrow)]
    pub(super) finish_reason: LenientText<'a>,
    /// Azure: the results of its filter by category.
    pub(super) content_filter_results: Option<Box<Value>>,
    pub(super) error: Option<Box<Value>>,
}

/// A piece of the reply, or the whole message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatDelta<'a> {
    #[serde(borrow)]
    pub(super) content: LenientText<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: LenientText<'a>,
    #[serde(borrow)]
    pub(super) reasoning: LenientText<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: LenientText<'a>,
    #[serde(borrow)]
    pub(super) refusal: LenientText<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ChatCallDelta<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Box<ChatFunctionDelta<'a>>>,
    pub(super) audio: Option<Box<Value>>,
    pub(super) images: Option<Box<Value>>,
}

/// A piece of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatCallDelta<'a> {
    pub(super) index: LenientCount,
    #[serde(borrow)]
    pub(super) id: LenientText<'a>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: LenientText<'a>,
    #[serde(borrow)]
    pub(super) function: Option<ChatFunctionDelta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatFunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: LenientText<'a>,
    #[serde(borrow)]
    pub(super) arguments: LenientText<'a>,
}

/// Returns the error unless it is empty: some servers always send the field.
pub(super) fn real_error(error: Option<Box<Value>>) -> Option<Box<Value>> {
    error.filter(|error| match &**error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    })
}

/// Returns the categories that a filter acted on: `{"hate": {"filtered": true, …}, …}`.
pub(super) fn filter_categories(results: &Value) -> Option<String> {
    let acted = |result: &Value| result.get("filtered").and_then(Value::as_bool) == Some(true);
    let names =
        results.as_object()?.iter().filter(|(_, result)| acted(result)).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns whether a field contains a non-empty text.
pub(super) fn has_text(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

/// A part of a content list.
pub(super) enum ContentPart<'a> {
    Text(Cow<'a, str>),
    Thinking(String),
    Refusal(&'a str),
    Unknown { kind: &'a str, text: &'a str },
}

/// Returns the parts of a content that is not a plain text.
pub(super) fn content_parts(content: &Value) -> Vec<ContentPart<'_>> {
    match content {
        Value::Array(list) => list.iter().map(content_part).collect(),
        other => vec![content_part(other)],
    }
}

fn content_part(value: &Value) -> ContentPart<'_> {
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    match (value, field("type")) {
        (Value::String(text), _) => ContentPart::Text(Cow::Borrowed(text)),
        (_, Some("text" | "output_text")) => {
            ContentPart::Text(Cow::Borrowed(field("text").unwrap_or_default()))
        }
        (_, Some("refusal")) => ContentPart::Refusal(field("refusal").unwrap_or_default()),
        (_, Some("thinking" | "reasoning")) => ContentPart::Thinking(thinking_text(value)),
        (_, kind) => ContentPart::Unknown {
            kind: kind.unwrap_or("content part"),
            text: field("text").unwrap_or_default(),
        },
    }
}

/// Returns the text of a thinking part: a text, or a list of text parts.
fn thinking_text(part: &Value) -> String {
    let inner = ["thinking", "reasoning", "text"].iter().find_map(|key| part.get(*key));
    match inner {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            list.iter().filter_map(|piece| piece.get("text").unwrap_or(piece).as_str()).collect()
        }
        _ => String::new(),
    }
}

/// The token counts of the provider.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatUsage {
    prompt_tokens: LenientCount,
    completion_tokens: LenientCount,
    total_tokens: LenientCount,
    prompt_tokens_details: LenientObject<PromptDetails>,
    completion_tokens_details: LenientObject<CompletionDetails>,
    /// Cached tokens, under the names of several providers.
    prompt_cache_hit_tokens: LenientCount,
    cached_tokens: LenientCount,
    cache_read_input_tokens: LenientCount,
    cache_creation_input_tokens: LenientCount,
    cost: Option<Box<Value>>,
    cost_in_usd_ticks: LenientCount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: LenientCount,
    cache_write_tokens: LenientCount,
    cache_creation_tokens: LenientCount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: LenientCount,
}

/// xAI reports prices in ticks.
const TICKS_PER_USD: f64 = 1e10;

impl ChatUsage {
    /// Converts to `TokenUsage`: cached tokens separate, reasoning as part of the output.
    pub(super) fn to_token_usage(&self) -> TokenUsage {
        let details = self.prompt_tokens_details.0.as_ref();
        let first = |counts: &[Option<u64>]| counts.iter().flatten().copied().next().unwrap_or(0);
        let cache_read = first(&[
            details.and_then(|details| details.cached_tokens.0),
            self.prompt_cache_hit_tokens.0,
            self.cached_tokens.0,
            self.cache_read_input_tokens.0,
        ]);
        let cache_write = first(&[
            details.and_then(|details| details.cache_write_tokens.0),
            details.and_then(|details| details.cache_creation_tokens.0),
            self.cache_creation_input_tokens.0,
        ]);
        let prompt = self.prompt_tokens.0.unwrap_or(0);
        TokenUsage {
            input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
            output: self.output_tokens(prompt),
            cache_read,
            cache_write,
            cost_usd: self.cost_usd(),
        }
    }

    /// Returns the output tokens. By the published format they include reasoning. Some providers count it
    /// separately, which shows if it exceeds the completion or the total includes it again.
    fn output_tokens(&self, prompt: u64) -> u64 {
        let completion = self.completion_tokens.0.unwrap_or(0);
        let details = self.completion_tokens_details.0.as_ref();
        let reasoning = details.and_then(|details| details.reasoning_tokens.0).unwrap_or(0);
        let with = completion.saturating_add(reasoning);
        let beside = reasoning > completion || self.total_tokens.0 == Some(prompt.saturating_add(with));
        if beside { with } else { completion }
    }

    fn cost_usd(&self) -> Option<f64> {
        let cost = self
            .cost
            .as_ref()
            .and_then(|cost| cost.as_f64().or_else(|| cost.get("total_cost").and_then(Value::as_f64)));
        #[expect(clippy::cast_precision_loss, reason = "a price; the error above 2^53 ticks is negligible")]
        let ticks = self.cost_in_usd_ticks.0.map(|ticks| ticks as f64 / TICKS_PER_USD);
        cost.or(ticks).filter(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_tokens(json: &str) -> TokenUsage {
        serde_json::from_str::<ChatUsage>(json).unwrap().to_token_usage()
    }

    #[test]
    fn usage_is_comparable_whoever_counts() {
        let usage = parse_tokens(
            r#"{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,"cost":0.5,
                "prompt_tokens_details":{"cached_tokens":64,"cache_write_tokens":16},
                "completion_tokens_details":{"reasoning_tokens":20}}"#,
        );
        let wanted =
            TokenUsage { input: 20, output: 30, cache_read: 64, cache_write: 16, cost_usd: Some(0.5) };
        assert_eq!(usage, wanted);
        let other_names = [
            r#"{"prompt_tokens":100,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}"#,
            r#"{"prompt_tokens":100,"cached_tokens":64}"#,
            r#"{"prompt_tokens":100,"prompt_tokens_details":null,"cache_read_input_tokens":64}"#,
        ];
        for json in other_names {
            let usage = parse_tokens(json);
            assert_eq!((usage.input, usage.cache_read), (36, 64), "{json}");
        }
        assert_eq!(parse_tokens(r#"{"prompt_tokens":1,"cached_tokens":9}"#).input, 0);
    }

    #[test]
    fn reasoning_is_counted_once() {
        for (json, output) in [
            (
                r#"{"prompt_tokens":5,"completion_tokens":30,"total_tokens":35,"completion_tokens_details":{"reasoning_tokens":30}}"#,
                30,
            ),
            (
                r#"{"prompt_tokens":361,"completion_tokens":26,"total_tokens":622,"completion_tokens_details":{"reasoning_tokens":235}}"#,
                261,
            ),
            (
                r#"{"prompt_tokens":61,"completion_tokens":18,"total_tokens":79,"completion_tokens_details":{"reasoning_tokens":137}}"#,
                155,
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":50,"total_tokens":80,"completion_tokens_details":{"reasoning_tokens":20}}"#,
                70,
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10,"completion_tokens_details":{"reasoning_tokens":0}}"#,
                0,
            ),
        ] {
            assert_eq!(parse_tokens(json).output, output, "{json}");
        }
    }

    #[test]
    fn prices_come_in_three_ways() {
        assert_eq!(parse_tokens(r#"{"cost":{"total_cost":0.006}}"#).cost_usd, Some(0.006));
        assert_eq!(parse_tokens(r#"{"cost_in_usd_ticks":1487000}"#).cost_usd, Some(0.0001487));
        assert_eq!(parse_tokens(r#"{"cost":null}"#).cost_usd, None);
        assert_eq!(parse_tokens(r#"{"cost":"free"}"#).cost_usd, None);
    }
}
