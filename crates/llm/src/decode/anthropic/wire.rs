//! The wire types of the Messages API, with the fields that are read.
//!
//! Their meaning is in `mod`.

use std::borrow::Cow;

use minke_model::{StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::lenient::{LenientCount, LenientObject};
use super::super::other_stop_reason;

#[derive(Deserialize)]
pub(super) struct AnthropicEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(super) kind: Cow<'a, str>,
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<AnthropicDelta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: LenientObject<AnthropicUsage>,
}

#[derive(Deserialize)]
pub(super) struct AnthropicDelta<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) partial_json: Option<String>,
    pub(super) content: Option<Value>,
    pub(super) stop_reason: Option<String>,
    #[serde(default)]
    pub(super) stop_details: LenientObject<StopDetails>,
}

/// Why the model refused, if the provider gives a reason.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StopDetails {
    pub(super) category: Value,
    pub(super) explanation: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AnthropicUsage {
    pub(super) input_tokens: LenientCount,
    pub(super) output_tokens: LenientCount,
    pub(super) cache_read_input_tokens: LenientCount,
    pub(super) cache_creation_input_tokens: LenientCount,
}

/// A message: that of the first event, or a whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct AnthropicReply {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) id: Option<String>,
    pub(super) content: Option<MessageContent>,
    pub(super) stop_reason: Option<String>,
    pub(super) stop_details: LenientObject<StopDetails>,
    pub(super) usage: LenientObject<AnthropicUsage>,
}

/// The content of a whole message: blocks, or a text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum MessageContent {
    Blocks(Vec<Value>),
    Text(String),
}

/// Events with a known structure.
pub(super) const KNOWN_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

impl AnthropicUsage {
    /// Overwrites values with later ones, as far as they are present.
    pub(super) fn merge(&mut self, new: &AnthropicUsage) {
        for (count, new) in [
            (&mut self.input_tokens, new.input_tokens),
            (&mut self.output_tokens, new.output_tokens),
            (&mut self.cache_read_input_tokens, new.cache_read_input_tokens),
            (&mut self.cache_creation_input_tokens, new.cache_creation_input_tokens),
        ] {
            count.0 = new.0.or(count.0);
        }
    }

    pub(super) fn to_token_usage(&self) -> TokenUsage {
        TokenUsage {
            input: self.input_tokens.0.unwrap_or(0),
            output: self.output_tokens.0.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.0.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.0.unwrap_or(0),
            cost_usd: None,
        }
    }
}

pub(super) fn arguments_of(input: &Value) -> Option<String> {
    match input {
        Value::Null => None,
        Value::Object(fields) if fields.is_empty() => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

pub(super) fn parse_stop_reason(word: &str) -> StopReason {
    match word {
        "pause_turn" => StopReason::Other("pause".into()),
        "model_context_window_exceeded" => StopReason::MaxTokens,
        other => other_stop_reason(other),
    }
}
