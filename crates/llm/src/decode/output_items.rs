//! One output item: its kind, and how much of each part has been emitted.
//!
//! Elsewhere: all items of a response and their emission (`response_output`).

use serde_json::Value;

use super::wire_event::text_field;

/// A part of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemPart {
    Text(u64),
    Refusal(u64),
    /// A summary of the reasoning; several form one block.
    Summary(u64),
    /// The reasoning itself, if the model shows it.
    Raw(u64),
    Arguments,
    /// A part of an unknown kind.
    Unknown(u64),
}

#[derive(Debug)]
pub(super) struct OutputItem {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    /// The id on the wire. The public id may differ, because it is unique.
    pub(super) call_id: Option<String>,
    pub(super) kind: OutputItemKind,
    /// Arguments in the announcement, which count if no others arrive.
    pub(super) initial_arguments: Option<String>,
    pub(super) parts: Vec<(ItemPart, EmittedText)>,
    pub(super) is_announced: bool,
    pub(super) is_finished: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutputItemKind {
    Message,
    Reasoning,
    Call,
    Unknown(String),
}

impl OutputItemKind {
    pub(super) fn from_item(item: &Value) -> OutputItemKind {
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => OutputItemKind::Message,
            "reasoning" => OutputItemKind::Reasoning,
            "function_call" => OutputItemKind::Call,
            other => OutputItemKind::Unknown(other.to_owned()),
        }
    }
}

/// The length and hash (FNV-1a, 64 bits) of the emitted part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EmittedText {
    bytes: usize,
    hash: u64,
}

impl EmittedText {
    pub(super) const EMPTY: EmittedText = EmittedText { bytes: 0, hash: 0xcbf2_9ce4_8422_2325 };

    pub(super) fn append(&mut self, piece: &str) {
        self.bytes += piece.len();
        for byte in piece.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the rest of `whole` if it starts with the emitted text.
    pub(super) fn remaining(self, whole: &str) -> Option<&str> {
        let (begun, rest) = whole.split_at_checked(self.bytes)?;
        let mut emitted = EmittedText::EMPTY;
        emitted.append(begun);
        (emitted == self).then_some(rest)
    }
}

/// Returns the arguments of a call: a text by the published format, sometimes an object. Empty ones are
/// `None`.
pub(super) fn call_arguments(item: &Value) -> Option<String> {
    match item.get("arguments")? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Object(fields) if !fields.is_empty() => Some(Value::Object(fields.clone()).to_string()),
        _ => None,
    }
}

impl OutputItem {
    /// Returns whether the emitted content equals that of `item` or is a prefix of it.
    pub(super) fn is_prefix_of(&self, item: &Value) -> bool {
        let texts = |field: &str| item.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (content, summary) = (texts("content"), texts("summary"));
        !self.parts.is_empty()
            && self.parts.iter().all(|(part, emitted)| {
                let (list, index, field) = match part {
                    ItemPart::Text(index) | ItemPart::Raw(index) => (&content, *index, "text"),
                    ItemPart::Refusal(index) => (&content, *index, "refusal"),
                    ItemPart::Summary(index) => (&summary, *index, "text"),
                    ItemPart::Arguments | ItemPart::Unknown(_) => return false,
                };
                let whole = usize::try_from(index).ok().and_then(|index| list.get(index));
                whole
                    .and_then(|part| text_field(part, field))
                    .is_some_and(|whole| emitted.remaining(whole).is_some())
            })
    }
}

impl ItemPart {
    /// Returns which block of its item this part belongs to.
    pub(super) fn block_key(self) -> u64 {
        match self {
            ItemPart::Text(index) | ItemPart::Refusal(index) | ItemPart::Unknown(index) => index,
            ItemPart::Summary(_) | ItemPart::Raw(_) | ItemPart::Arguments => 0,
        }
    }

    pub(super) fn item_kind(self) -> OutputItemKind {
        match self {
            ItemPart::Text(_) | ItemPart::Refusal(_) | ItemPart::Unknown(_) => OutputItemKind::Message,
            ItemPart::Summary(_) | ItemPart::Raw(_) => OutputItemKind::Reasoning,
            ItemPart::Arguments => OutputItemKind::Call,
        }
    }
}
