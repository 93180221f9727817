//! What chat completions look like on the wire: the fields that we read, in all the types in which they come.
//!
//! Only what stands in an event is here; what it means is in `mod`.

use std::borrow::Cow;

use minke_model::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use super::super::loose::{Count, Loose, Object};

/// One event of a stream, or a whole body.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    pub(super) usage: Object<Usage>,
    pub(super) x_groq: Object<Groq>,
    pub(super) error: Option<Box<Value>>,
    /// `error` in some servers' errors, whose fields then stand at the top.
    #[serde(borrow)]
    pub(super) object: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Groq {
    pub(super) usage: Object<Usage>,
    pub(super) error: Option<Box<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Box<Delta<'a>>>,
    #[serde(borrow)]
    pub(super) finish_reason: Loose<'a>,
    /// Azure: what its filter found, by category.
    pub(super) content_filter_results: Option<Box<Value>>,
    pub(super) error: Option<Box<Value>>,
}

/// A piece of the reply, or the whole of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Loose<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Loose<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Loose<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Loose<'a>,
    #[serde(borrow)]
    pub(super) refusal: Loose<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<Piece<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Box<Function<'a>>>,
    pub(super) audio: Option<Box<Value>>,
    pub(super) images: Option<Box<Value>>,
}

/// A piece of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) id: Loose<'a>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Loose<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Loose<'a>,
    #[serde(borrow)]
    pub(super) arguments: Loose<'a>,
}

/// An error that is one: some servers write the field always.
pub(super) fn meant(error: Option<Box<Value>>) -> Option<Box<Value>> {
    error.filter(|error| match &**error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    })
}

/// The categories that a filter acted on: `{"hate": {"filtered": true, …}, …}`.
pub(super) fn filtered(results: &Value) -> Option<String> {
    let acted = |result: &Value| result.get("filtered").and_then(Value::as_bool) == Some(true);
    let names =
        results.as_object()?.iter().filter(|(_, result)| acted(result)).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether a field holds a text that is not empty.
pub(super) fn says(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

/// A part of a content that is a list.
pub(super) enum Part<'a> {
    Text(Cow<'a, str>),
    Thinking(String),
    Refusal(&'a str),
    Unknown { kind: &'a str, text: &'a str },
}

/// The parts of a content that is not a plain text.
pub(super) fn parts(content: &Value) -> Vec<Part<'_>> {
    match content {
        Value::Array(list) => list.iter().map(part).collect(),
        other => vec![part(other)],
    }
}

fn part(value: &Value) -> Part<'_> {
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    match (value, field("type")) {
        (Value::String(text), _) => Part::Text(Cow::Borrowed(text)),
        (_, Some("text" | "output_text")) => Part::Text(Cow::Borrowed(field("text").unwrap_or_default())),
        (_, Some("refusal")) => Part::Refusal(field("refusal").unwrap_or_default()),
        (_, Some("thinking" | "reasoning")) => Part::Thinking(texts(value)),
        (_, kind) => {
            Part::Unknown { kind: kind.unwrap_or("content part"), text: field("text").unwrap_or_default() }
        }
    }
}

/// The text of a thinking part: a text, or a list of text parts.
fn texts(part: &Value) -> String {
    let inner = ["thinking", "reasoning", "text"].iter().find_map(|key| part.get(*key));
    match inner {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            list.iter().filter_map(|piece| piece.get("text").unwrap_or(piece).as_str()).collect()
        }
        _ => String::new(),
    }
}

/// Tokens as the provider counts them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    prompt_tokens: Count,
    completion_tokens: Count,
    total_tokens: Count,
    prompt_tokens_details: Object<PromptDetails>,
    completion_tokens_details: Object<CompletionDetails>,
    /// The cached ones, under the names of several providers.
    prompt_cache_hit_tokens: Count,
    cached_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    cost: Option<Box<Value>>,
    cost_in_usd_ticks: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
    cache_creation_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

/// xAI gives prices in ticks.
const TICKS_PER_USD: f64 = 1e10;

impl Usage {
    /// In our terms: cached tokens apart, reasoning in the output.
    pub(super) fn tokens(&self) -> TokenUsage {
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
            output: self.output(prompt),
            cache_read,
            cache_write,
            cost_usd: self.cost(),
        }
    }

    /// Reasoning is part of the completion by the published format. Some providers count it beside the completion; it
    /// shows, because it is more than the whole or because the total holds it once more.
    fn output(&self, prompt: u64) -> u64 {
        let completion = self.completion_tokens.0.unwrap_or(0);
        let details = self.completion_tokens_details.0.as_ref();
        let reasoning = details.and_then(|details| details.reasoning_tokens.0).unwrap_or(0);
        let with = completion.saturating_add(reasoning);
        let beside = reasoning > completion || self.total_tokens.0 == Some(prompt.saturating_add(with));
        if beside { with } else { completion }
    }

    fn cost(&self) -> Option<f64> {
        let cost = self
            .cost
            .as_ref()
            .and_then(|cost| cost.as_f64().or_else(|| cost.get("total_cost").and_then(Value::as_f64)));
        #[expect(clippy::cast_precision_loss, reason = "a price; the last digits of 2^53 ticks are no money")]
        let ticks = self.cost_in_usd_ticks.0.map(|ticks| ticks as f64 / TICKS_PER_USD);
        cost.or(ticks).filter(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(json: &str) -> TokenUsage {
        serde_json::from_str::<Usage>(json).unwrap().tokens()
    }

    #[test]
    fn usage_is_comparable_whoever_counts() {
        let usage = tokens(
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
            let usage = tokens(json);
            assert_eq!((usage.input, usage.cache_read), (36, 64), "{json}");
        }
        assert_eq!(tokens(r#"{"prompt_tokens":1,"cached_tokens":9}"#).input, 0);
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
            assert_eq!(tokens(json).output, output, "{json}");
        }
    }

    #[test]
    fn prices_come_in_three_ways() {
        assert_eq!(tokens(r#"{"cost":{"total_cost":0.006}}"#).cost_usd, Some(0.006));
        assert_eq!(tokens(r#"{"cost_in_usd_ticks":1487000}"#).cost_usd, Some(0.0001487));
        assert_eq!(tokens(r#"{"cost":null}"#).cost_usd, None);
        assert_eq!(tokens(r#"{"cost":"free"}"#).cost_usd, None);
    }
}
