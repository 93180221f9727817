//! What Gemini's answers look like on the wire: the fields that we read.
//!
//! Only what stands in an event is here; what it means is in `mod`.

use std::borrow::Cow;
use std::fmt;

use minke_model::TokenUsage;
use serde::Deserialize;
use serde::de::{Deserialize as De, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::add_bounded;
use super::super::loose::{Count, Loose, Object};

/// One event of a stream, one element of an array, or a whole body.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    pub(super) usage_metadata: Object<Usage>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<Feedback<'a>>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) block_reason_message: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<Part<'a>>>,
}

/// A part of a reply. It is of one kind; which one is told by the name of a field.
#[derive(Debug, Default)]
pub(super) struct Part<'a> {
    pub(super) text: Loose<'a>,
    pub(super) thought: bool,
    pub(super) signature: Loose<'a>,
    pub(super) call: Option<FunctionCall<'a>>,
    /// A field that names a kind that we do not know, and the text in it.
    pub(super) unknown: Option<(String, String)>,
}

/// Fields that say something about a part without being its kind.
const ASIDE: [&str; 5] = ["videoMetadata", "mediaResolution", "partMetadata", "thoughtSummary", "role"];

impl<'de: 'a, 'a> De<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a content")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'de>, A::Error> {
        let mut part = Part::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "text" => part.text = map.next_value()?,
                "thought" => part.thought = map.next_value::<Value>()? == Value::Bool(true),
                "thoughtSignature" => part.signature = map.next_value()?,
                "functionCall" => part.call = map.next_value()?,
                _ => {
                    let value: Value = map.next_value()?;
                    if !value.is_null() && !ASIDE.contains(&key.as_ref()) && part.unknown.is_none() {
                        let kind = key.chars().take(100).collect();
                        part.unknown = Some((kind, inner_text(&value)));
                    }
                }
            }
        }
        Ok(part)
    }
}

/// What a person can read in a part of an unknown kind.
fn inner_text(value: &Value) -> String {
    let text = ["text", "code", "output"].iter().find_map(|key| value.get(*key).and_then(Value::as_str));
    let mut kept = String::new();
    add_bounded(&mut kept, text.unwrap_or_default());
    kept
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Loose<'a>,
    #[serde(borrow)]
    pub(super) name: Loose<'a>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    pub(super) partial_args: Option<Vec<PartialArg>>,
    /// More of this call follows.
    pub(super) will_continue: Option<bool>,
}

/// A value, or a piece of one, and where in the arguments it stands.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    pub(super) json_path: String,
    pub(super) string_value: Option<String>,
    pub(super) number_value: Option<Value>,
    pub(super) bool_value: Option<bool>,
    /// Given as the name of the only value of an enumeration, or as plain `null`.
    #[serde(deserialize_with = "present")]
    pub(super) null_value: bool,
    /// More of the same value follows.
    pub(super) will_continue: Option<bool>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// JSON without the blanks between its tokens: the server's layout is nothing that the model wrote.
pub(super) fn compact(raw: &RawValue) -> String {
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
pub(super) struct Usage {
    prompt_token_count: Count,
    tool_use_prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
}

impl Usage {
    /// In our terms: cached tokens apart, thoughts in the output. Nothing if it counts nothing.
    pub(super) fn tokens(&self) -> Option<TokenUsage> {
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
        assert_eq!(compact(&raw), r#"{"a b":[1,12345678901234567890123],"c":"x \" , y \\","d":{}}"#);
    }

    #[test]
    fn usage_is_counted_as_elsewhere() {
        let json = r#"{"promptTokenCount":100,"toolUsePromptTokenCount":7,"cachedContentTokenCount":60,
            "candidatesTokenCount":5,"thoughtsTokenCount":21,"totalTokenCount":133}"#;
        let usage = serde_json::from_str::<Usage>(json).unwrap().tokens().unwrap();
        assert_eq!((usage.input, usage.output, usage.cache_read), (47, 26, 60));
        assert!(serde_json::from_str::<Usage>(r#"{"trafficType":"ON_DEMAND"}"#).unwrap().tokens().is_none());
    }
}
