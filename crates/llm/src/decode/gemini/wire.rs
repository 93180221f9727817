//! The wire types of Gemini, with the fields that are read.
//!
//! Their meaning is in `mod`.

use std::borrow::Cow;
use std::fmt;

use minke_model::TokenUsage;
use serde::Deserialize;
use serde::de::{Deserialize as De, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::append_limited;
use super::super::lenient::{LenientCount, LenientObject, LenientText};

/// One event of a stream, one element of an array, or a whole body.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiChunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<GeminiCandidate<'a>>>,
    pub(super) usage_metadata: LenientObject<GeminiUsage>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: LenientText<'a>,
    #[serde(borrow)]
    pub(super) block_reason_message: LenientText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiCandidate<'a> {
    pub(super) index: LenientCount,
    #[serde(borrow)]
    pub(super) content: Option<CandidateContent<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: LenientText<'a>,
    #[serde(borrow)]
    pub(super) finish_message: LenientText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidateContent<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<CandidatePart<'a>>>,
}

/// A part of a reply. The name of one of its fields determines its kind.
#[derive(Debug, Default)]
pub(super) struct CandidatePart<'a> {
    pub(super) text: LenientText<'a>,
    pub(super) thought: bool,
    pub(super) signature: LenientText<'a>,
    pub(super) call: Option<GeminiFunctionCall<'a>>,
    /// The field name and text of an unknown kind.
    pub(super) unknown: Option<(String, String)>,
}

/// Fields of a part that do not determine its kind.
const NEUTRAL_FIELDS: [&str; 5] =
    ["videoMetadata", "mediaResolution", "partMetadata", "thoughtSummary", "role"];

impl<'de: 'a, 'a> De<'de> for CandidatePart<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = CandidatePart<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a content")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CandidatePart<'de>, A::Error> {
        let mut part = CandidatePart::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "text" => part.text = map.next_value()?,
                "thought" => part.thought = map.next_value::<Value>()? == Value::Bool(true),
                "thoughtSignature" => part.signature = map.next_value()?,
                "functionCall" => part.call = map.next_value()?,
                _ => {
                    let value: Value = map.next_value()?;
                    if !value.is_null() && !NEUTRAL_FIELDS.contains(&key.as_ref()) && part.unknown.is_none() {
                        let kind = key.chars().take(100).collect();
                        part.unknown = Some((kind, readable_text(&value)));
                    }
                }
            }
        }
        Ok(part)
    }
}

/// Returns the readable text in a part of an unknown kind.
fn readable_text(value: &Value) -> String {
    let text = ["text", "code", "output"].iter().find_map(|key| value.get(*key).and_then(Value::as_str));
    let mut kept = String::new();
    append_limited(&mut kept, text.unwrap_or_default());
    kept
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiFunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: LenientText<'a>,
    #[serde(borrow)]
    pub(super) name: LenientText<'a>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    pub(super) partial_args: Option<Vec<PartialArg>>,
    /// More pieces of this call follow.
    pub(super) will_continue: Option<bool>,
}

/// A value or a piece of one, with its path in the arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    pub(super) json_path: String,
    pub(super) string_value: Option<String>,
    pub(super) number_value: Option<Value>,
    pub(super) bool_value: Option<bool>,
    /// Written as the name of the only enum value, or as `null`.
    #[serde(deserialize_with = "deserialize_present")]
    pub(super) null_value: bool,
    /// More pieces of the same value follow.
    pub(super) will_continue: Option<bool>,
}

fn deserialize_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Removes white space between the tokens: the layout comes from the server, not from the model.
pub(super) fn compact_json(raw: &RawValue) -> String {
    let mut text = String::with_capacity(raw.get().len());
    let (mut in_string, mut escaped) = (false, false);
    for c in raw.get().chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        text.push(c);
    }
    text
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiUsage {
    prompt_token_count: LenientCount,
    tool_use_prompt_token_count: LenientCount,
    cached_content_token_count: LenientCount,
    candidates_token_count: LenientCount,
    thoughts_token_count: LenientCount,
}

impl GeminiUsage {
    /// Converts to `TokenUsage`: cached tokens separate, thoughts as part of the output. Returns `None` if
    /// nothing is counted.
    pub(super) fn to_token_usage(&self) -> Option<TokenUsage> {
        let counts = [
            self.prompt_token_count,
            self.tool_use_prompt_token_count,
            self.cached_content_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
        ];
        counts.iter().any(|count| count.0.is_some()).then(|| {
            let [prompt, tools, cached, said, thought] = counts.map(|count| count.0.unwrap_or(0));
            TokenUsage {
                input: prompt.saturating_add(tools).saturating_sub(cached),
                output: said.saturating_add(thought),
                cache_read: cached,
                cache_write: 0,
                cost_usd: None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_left_out_and_texts_are_not() {
        let raw = r#"{ "a b" : [ 1 , 12345678901234567890123 ],  "c" : "x \" , y \\" , "d" : { } }"#;
        let raw: Box<RawValue> = serde_json::from_str(raw).unwrap();
        assert_eq!(compact_json(&raw), r#"{"a b":[1,12345678901234567890123],"c":"x \" , y \\","d":{}}"#);
    }

    #[test]
    fn usage_is_counted_as_elsewhere() {
        let json = r#"{"promptTokenCount":100,"toolUsePromptTokenCount":7,"cachedContentTokenCount":60,
            "candidatesTokenCount":5,"thoughtsTokenCount":21,"totalTokenCount":133}"#;
        let usage = serde_json::from_str::<GeminiUsage>(json).unwrap().to_token_usage().unwrap();
        assert_eq!((usage.input, usage.output, usage.cache_read), (47, 26, 60));
        assert!(
            serde_json::from_str::<GeminiUsage>(r#"{"trafficType":"ON_DEMAND"}"#)
                .unwrap()
                .to_token_usage()
                .is_none()
        );
    }
}
