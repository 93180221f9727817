//! JSON fragments written directly from borrowed texts, without building them in memory first.

use std::fmt::{self, Display};

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use minke_model::Prompt;
use minke_record::ToolSpec;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::images::PromptImage;
use super::turn_groups::CallResultPart;

/// Serializes any `Display` value as a JSON string.
pub(super) struct DisplayJson<T>(pub(super) T);

impl<T: Display> Serialize for DisplayJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A system message in the middle of the history, for providers without a role for it.
pub(super) struct ReminderText<'a>(pub(super) &'a str);

impl Display for ReminderText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<system-reminder>\n{}\n</system-reminder>", self.0)
    }
}

/// The text of a call result: the summary, the content, and a line for each omitted image.
pub(super) struct ToolResultText<'a> {
    pub(super) answer: &'a CallResultPart<'a>,
    /// Adds a prefix to the text of a failed call, for APIs without an error field.
    pub(super) needs_error_prefix: bool,
}

impl Display for ToolResultText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallResultPart { summary, content, is_error, image_notes, .. } = self.answer;
        let begin = if summary.is_empty() { content.unwrap_or_default() } else { summary };
        if self.needs_error_prefix && *is_error && !is_error_text(begin.trim_start()) {
            f.write_str("Error: ")?;
        }
        f.write_str(summary)?;
        if let Some(content) = content.filter(|text| !text.is_empty()) {
            if !summary.is_empty() {
                f.write_str("\n")?;
            }
            f.write_str(content)?;
        }
        let mut above = !summary.is_empty() || content.is_some_and(|text| !text.is_empty());
        for note in image_notes {
            f.write_str(if above { "\n" } else { "" })?;
            f.write_str(note)?;
            above = true;
        }
        Ok(())
    }
}

fn is_error_text(summary: &str) -> bool {
    summary.get(.."error".len()).is_some_and(|start| start.eq_ignore_ascii_case("error"))
}

/// The bytes of an image as base64.
pub(super) struct Base64Image<'a>(pub(super) &'a PromptImage<'a>);

impl Display for Base64Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(self.0.bytes, &BASE64_STANDARD).fmt(f)
    }
}

/// An image as a data URL.
pub(super) struct DataUrlImage<'a>(pub(super) &'a PromptImage<'a>);

impl Display for DataUrlImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.0.media_type, Base64Image(self.0))
    }
}

/// The arguments of a call, always a JSON object on the wire. Providers and local servers reject a history
/// with anything else, so invalid arguments are wrapped as a text in an object.
#[derive(Debug, Clone)]
pub(super) enum CallArguments<'a> {
    Object(&'a RawValue),
    Empty,
    Invalid(&'a str),
}

impl<'a> CallArguments<'a> {
    pub(super) fn new(text: &'a str) -> CallArguments<'a> {
        if text.trim().is_empty() {
            return CallArguments::Empty;
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) if raw.get().starts_with('{') && has_valid_surrogates(text) => CallArguments::Object(raw),
            Ok(_) | Err(_) => CallArguments::Invalid(text),
        }
    }
}

/// Returns whether the JSON contains no lone surrogates, which providers reject.
fn has_valid_surrogates(text: &str) -> bool {
    let has_surrogates = memchr::memmem::find_iter(text.as_bytes(), b"\\u")
        .any(|at| text.as_bytes().get(at + 2).is_some_and(|b| b.eq_ignore_ascii_case(&b'd')));
    !has_surrogates || serde_json::from_str::<serde_json::Value>(text).is_ok()
}

impl Serialize for CallArguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            CallArguments::Object(raw) => raw.serialize(serializer),
            CallArguments::Empty => serializer.serialize_map(Some(0))?.end(),
            CallArguments::Invalid(text) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("invalid_arguments", text)?;
                map.end()
            }
        }
    }
}

/// The arguments as a string of JSON.
pub(super) struct CallArgumentsText<'a>(pub(super) &'a CallArguments<'a>);

impl Serialize for CallArgumentsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            CallArguments::Object(raw) => serializer.serialize_str(raw.get()),
            CallArguments::Empty => serializer.serialize_str("{}"),
            CallArguments::Invalid(_) => {
                let text = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
                serializer.serialize_str(&text)
            }
        }
    }
}

/// Converts the tools of the prompt with `one`, in their order.
pub(super) fn map_tools<'a, T>(prompt: &'a Prompt, one: impl Fn(&'a ToolSpec) -> T) -> Vec<T> {
    prompt.tools.iter().map(one).collect()
}
