//! Pieces of JSON that are written straight from borrowed texts: nothing is put together in memory first.

use std::fmt::{self, Display};

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use minke_model::Prompt;
use minke_record::ToolSpec;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::pictures::Picture;
use super::turns::Answer;

/// Anything that can be shown, as a JSON string.
pub(super) struct Shown<T>(pub(super) T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A system item in mid-history, for providers that know no such role there.
pub(super) struct Reminder<'a>(pub(super) &'a str);

impl Display for Reminder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<system-reminder>\n{}\n</system-reminder>", self.0)
    }
}

/// What came of a call: the summary, then the content on the next line, then a line for each image that is not shown.
pub(super) struct ResultText<'a> {
    pub(super) answer: &'a Answer<'a>,
    /// Where the API has no field for it, the text itself says that the call failed.
    pub(super) says_error: bool,
}

impl Display for ResultText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { summary, content, is_error, notes, .. } = self.answer;
        let begin = if summary.is_empty() { content.unwrap_or_default() } else { summary };
        if self.says_error && *is_error && !says_error(begin.trim_start()) {
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
        for note in notes {
            f.write_str(if above { "\n" } else { "" })?;
            f.write_str(note)?;
            above = true;
        }
        Ok(())
    }
}

fn says_error(summary: &str) -> bool {
    summary.get(.."error".len()).is_some_and(|start| start.eq_ignore_ascii_case("error"))
}

/// An image's bytes as base64.
pub(super) struct Base64<'a>(pub(super) &'a Picture<'a>);

impl Display for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(self.0.bytes, &BASE64_STANDARD).fmt(f)
    }
}

/// An image as an URL that holds it.
pub(super) struct DataUrl<'a>(pub(super) &'a Picture<'a>);

impl Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.0.media_type, Base64(self.0))
    }
}

/// What a call was given, always a JSON object on the wire. Providers and local servers alike refuse a request whose
/// history has anything else, so what a model wrote and is not one stands in an object as a text.
#[derive(Debug, Clone)]
pub(super) enum Arguments<'a> {
    Object(&'a RawValue),
    Empty,
    Invalid(&'a str),
}

impl<'a> Arguments<'a> {
    pub(super) fn new(text: &'a str) -> Arguments<'a> {
        if text.trim().is_empty() {
            return Arguments::Empty;
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) if raw.get().starts_with('{') && whole_characters(text) => Arguments::Object(raw),
            Ok(_) | Err(_) => Arguments::Invalid(text),
        }
    }
}

/// Halves of surrogate pairs pass as JSON, but not as text; providers refuse them.
fn whole_characters(text: &str) -> bool {
    let has_surrogates = memchr::memmem::find_iter(text.as_bytes(), b"\\u")
        .any(|at| text.as_bytes().get(at + 2).is_some_and(|b| b.eq_ignore_ascii_case(&b'd')));
    !has_surrogates || serde_json::from_str::<serde_json::Value>(text).is_ok()
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Arguments::Object(raw) => raw.serialize(serializer),
            Arguments::Empty => serializer.serialize_map(Some(0))?.end(),
            Arguments::Invalid(text) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("invalid_arguments", text)?;
                map.end()
            }
        }
    }
}

/// The same as a text that holds JSON.
pub(super) struct ArgumentsText<'a>(pub(super) &'a Arguments<'a>);

impl Serialize for ArgumentsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Arguments::Object(raw) => serializer.serialize_str(raw.get()),
            Arguments::Empty => serializer.serialize_str("{}"),
            Arguments::Invalid(_) => {
                let text = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
                serializer.serialize_str(&text)
            }
        }
    }
}

/// The tools of a request, in the order in which the prompt has them, each written by `one`.
pub(super) fn tools<'a, T>(prompt: &'a Prompt, one: impl Fn(&'a ToolSpec) -> T) -> Vec<T> {
    prompt.tools.iter().map(one).collect()
}
