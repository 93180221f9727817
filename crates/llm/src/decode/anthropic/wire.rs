//! What the messages API looks like on the wire: the fields that we read.
//!
//! Only what stands in an event or a body is here; what it means is in `mod`.

use std::borrow::Cow;

use minke_model::{StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::loose::{Count, Object};
use super::super::other_stop;

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(super) kind: Cow<'a, str>,
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Object<Usage>,
}

#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) partial_json: Option<String>,
    pub(super) content: Option<Value>,
    pub(super) stop_reason: Option<String>,
    #[serde(default)]
    pub(super) stop_details: Object<StopDetails>,
}

/// Why the model refused, where the provider says it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StopDetails {
    pub(super) category: Value,
    pub(super) explanation: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) input_tokens: Count,
    pub(super) output_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
}

/// A message: the first event's, or the whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Message {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) id: Option<String>,
    pub(super) content: Option<Content>,
    pub(super) stop_reason: Option<String>,
    pub(super) stop_details: Object<StopDetails>,
    pub(super) usage: Object<Usage>,
}

/// What a whole message says: blocks, or a text without them.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Blocks(Vec<Value>),
    Text(String),
}

/// Events whose shape we know.
pub(super) const KNOWN: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

impl Usage {
    /// What is said later counts, as far as it is said.
    pub(super) fn merge(&mut self, new: &Usage) {
        for (count, new) in [
            (&mut self.input_tokens, new.input_tokens),
            (&mut self.output_tokens, new.output_tokens),
            (&mut self.cache_read_input_tokens, new.cache_read_input_tokens),
            (&mut self.cache_creation_input_tokens, new.cache_creation_input_tokens),
        ] {
            count.0 = new.0.or(count.0);
        }
    }

    pub(super) fn tokens(&self) -> TokenUsage {
        TokenUsage {
            input: self.input_tokens.0.unwrap_or(0),
            output: self.output_tokens.0.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.0.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.0.unwrap_or(0),
            cost_usd: None,
        }
    }
}

pub(super) fn given_input(input: &Value) -> Option<String> {
    match input {
        Value::Null => None,
        Value::Object(fields) if fields.is_empty() => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

pub(super) fn stop_reason(word: &str) -> StopReason {
    match word {
        "pause_turn" => StopReason::Other("pause".into()),
        "model_context_window_exceeded" => StopReason::MaxTokens,
        other => other_stop(other),
    }
}
