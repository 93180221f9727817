//! One output item: of what kind it is, and how much of each of its parts has been said.
//!
//! Elsewhere: all items of a response, and saying them (`output`).

use serde_json::Value;

use super::wire::text_field;

/// A part of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Text(u64),
    Refusal(u64),
    /// A summary of the reasoning; several make one block.
    Summary(u64),
    /// The reasoning itself, where a model shows it.
    Raw(u64),
    Arguments,
    /// A part of a kind that we do not know.
    Unknown(u64),
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    /// As it is on the wire; ours may differ, because ours are unique.
    pub(super) call_id: Option<String>,
    pub(super) kind: ItemKind,
    /// Arguments that came with the announcement; they count if no others come.
    pub(super) given: Option<String>,
    pub(super) parts: Vec<(Part, Said)>,
    pub(super) announced: bool,
    pub(super) finished: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    Unknown(String),
}

impl ItemKind {
    pub(super) fn of(item: &Value) -> ItemKind {
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Call,
            other => ItemKind::Unknown(other.to_owned()),
        }
    }
}

/// What has been said of a text, without the text: its length and its hash (FNV-1a, 64 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    bytes: usize,
    hash: u64,
}

impl Said {
    pub(super) const NOTHING: Said = Said { bytes: 0, hash: 0xcbf2_9ce4_8422_2325 };

    pub(super) fn add(&mut self, piece: &str) {
        self.bytes += piece.len();
        for byte in piece.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// What is left of `whole`, if what was said is its beginning.
    pub(super) fn rest(self, whole: &str) -> Option<&str> {
        let (begun, rest) = whole.split_at_checked(self.bytes)?;
        let mut said = Said::NOTHING;
        said.add(begun);
        (said == self).then_some(rest)
    }
}

/// The arguments of a call: a text by the published format, sometimes an object. Empty ones are none.
pub(super) fn arguments(item: &Value) -> Option<String> {
    match item.get("arguments")? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Object(fields) if !fields.is_empty() => Some(Value::Object(fields.clone()).to_string()),
        _ => None,
    }
}

impl Item {
    /// Whether what was said of this item is what `item` says, or its beginning.
    pub(super) fn begins(&self, item: &Value) -> bool {
        let texts = |field: &str| item.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (content, summary) = (texts("content"), texts("summary"));
        !self.parts.is_empty()
            && self.parts.iter().all(|(part, said)| {
                let (list, index, field) = match part {
                    Part::Text(index) | Part::Raw(index) => (&content, *index, "text"),
                    Part::Refusal(index) => (&content, *index, "refusal"),
                    Part::Summary(index) => (&summary, *index, "text"),
                    Part::Arguments | Part::Unknown(_) => return false,
                };
                let whole = usize::try_from(index).ok().and_then(|index| list.get(index));
                whole.and_then(|part| text_field(part, field)).is_some_and(|whole| said.rest(whole).is_some())
            })
    }
}

impl Part {
    /// Which part of its item's blocks this belongs to.
    pub(super) fn block(self) -> u64 {
        match self {
            Part::Text(index) | Part::Refusal(index) | Part::Unknown(index) => index,
            Part::Summary(_) | Part::Raw(_) | Part::Arguments => 0,
        }
    }

    pub(super) fn owner(self) -> ItemKind {
        match self {
            Part::Text(_) | Part::Refusal(_) | Part::Unknown(_) => ItemKind::Message,
            Part::Summary(_) | Part::Raw(_) => ItemKind::Reasoning,
            Part::Arguments => ItemKind::Call,
        }
    }
}
