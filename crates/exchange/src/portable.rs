//! Converts items to a portable form: omits parts that only one provider, or no program, can read.

use minke_record::limits::{SUMMARY_BYTES, TEXT_BYTES};
use minke_record::{Blob, CallId, Content, ImageBlob, Item, Role, Text, to_hex};
use minke_text::cut_to_bytes;
use sha2::{Digest, Sha256};

use crate::limits::MAX_NAME_BYTES;
use crate::omissions::OmissionCounts;
use crate::{BlobMap, TimedItem};

/// The text of an empty tool result.
pub(crate) const NO_OUTPUT: &str = "(no output)";
/// The text that replaces an omitted image.
const OMITTED_IMAGE: &str = "[image left out]";

/// Returns the portable part of an item, if there is one. Idempotent.
pub(crate) fn portable_item(item: Item, blobs: &BlobMap, omissions: &mut OmissionCounts) -> Option<Item> {
    match item {
        Item::Message { role, content } => portable_message(role, content, blobs, omissions),
        Item::Reasoning { text, summary, signature, encrypted, .. } => {
            if signature.is_some() || encrypted.is_some() {
                omissions
                    .count_one("signature or encrypted form of reasoning, which only its provider can read");
            }
            let text = fetch_text(text, blobs, omissions);
            let summary: Vec<String> = summary.into_iter().filter(|text| !text.is_empty()).collect();
            let says = !text.is_empty() || !summary.is_empty();
            says.then(|| Item::Reasoning {
                text: text.into(),
                summary,
                signature: None,
                encrypted: None,
                by: None,
            })
        }
        Item::ToolCall { call_id, name, arguments } => Some(Item::ToolCall {
            call_id: clean_call_id(&call_id.0),
            name: clean_name(&name, "tool"),
            arguments: fetch_text(arguments, blobs, omissions).into(),
        }),
        Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
            let content =
                content.map(|text| fetch_text(text, blobs, omissions)).filter(|text| !text.is_empty());
            let summary = cut_to_bytes(&summary, SUMMARY_BYTES).to_owned();
            let summary = if summary.is_empty() { NO_OUTPUT.to_owned() } else { summary };
            let all = images.len();
            let images: Vec<ImageBlob> =
                images.into_iter().filter(|image| blobs.contains_key(&image.blob)).collect();
            omissions.add_count("image whose bytes are missing", (all - images.len()) as u64);
            Some(Item::ToolResult {
                call_id: clean_call_id(&call_id.0),
                summary,
                content: content.map(Text::from),
                is_error,
                blob: None,
                images,
            })
        }
        Item::Unknown => {
            omissions.count_one("item of a later version");
            None
        }
    }
}

fn portable_message(
    role: Role,
    content: Vec<Content>,
    blobs: &BlobMap,
    tally: &mut OmissionCounts,
) -> Option<Item> {
    let role = match role {
        Role::User | Role::Assistant => role,
        _ => Role::System,
    };
    let mut parts = Vec::with_capacity(content.len());
    for part in content {
        match part {
            Content::Text { text } => {
                parts.push(Content::Text { text: fetch_text(text, blobs, tally).into() })
            }
            Content::Refusal { text } => {
                parts.push(Content::Refusal { text: fetch_text(text, blobs, tally).into() })
            }
            Content::Image { blob, media_type } if role == Role::User && blobs.contains_key(&blob) => {
                parts.push(Content::Image { blob, media_type });
            }
            Content::Image { .. } => {
                tally.count_one("image whose bytes are missing");
                parts.push(Content::Text { text: OMITTED_IMAGE.into() });
            }
            Content::Unknown => tally.count_one("part of a message of a later version"),
        }
    }
    parts.retain(|part| match part {
        Content::Text { text } | Content::Refusal { text } => !text.is_empty(),
        Content::Image { .. } | Content::Unknown => true,
    });
    (!parts.is_empty()).then_some(Item::Message { role, content: parts })
}

/// Returns a text, fetched from its blob if necessary.
fn fetch_text(text: Text, blobs: &BlobMap, omissions: &mut OmissionCounts) -> String {
    match text {
        Text::Inline(text) => text,
        Text::Blob(name) => match blobs.get(&name.blob).and_then(|bytes| std::str::from_utf8(bytes).ok()) {
            Some(text) => text.to_owned(),
            None => {
                omissions.count_one("text whose blob is missing");
                Text::Blob(name).display_text().into_owned()
            }
        },
    }
}

/// Moves texts that are too long for the log to blobs, which must be written before the log.
pub fn spill_texts(timed_items: &mut [TimedItem]) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for said in timed_items {
        said.item.visit_texts_mut(&mut |text| {
            if let Text::Inline(here) = text
                && here.len() > TEXT_BYTES
            {
                let blob = Blob::new(std::mem::take(here).into_bytes());
                *text = Text::Blob(blob.name.clone());
                blobs.push(blob);
            }
        });
    }
    blobs
}

/// Returns a name without control characters, of limited length.
fn clean_name(text: &str, otherwise: &str) -> String {
    clean_line(text, MAX_NAME_BYTES).unwrap_or_else(|| otherwise.to_owned())
}

/// Returns a valid id of a call; a long one is truncated and made unique by a hash. Idempotent.
pub(crate) fn clean_call_id(text: &str) -> CallId {
    const MAX_PREFIX_BYTES: usize = MAX_NAME_BYTES - 16;
    let name = clean_line(text, usize::MAX).unwrap_or_else(|| "call".to_owned());
    if name.len() <= MAX_PREFIX_BYTES {
        return CallId(name);
    }
    let digest = to_hex(&Sha256::digest(&name));
    CallId(format!(
        "{}_{}",
        cut_to_bytes(&name, MAX_PREFIX_BYTES - 32).trim(),
        digest.get(..12).unwrap_or_default()
    ))
}

/// Returns one line of limited length without control characters, if any text is left.
pub(crate) fn clean_line(text: &str, max_bytes: usize) -> Option<String> {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(max_bytes).collect();
    let word = cut_to_bytes(clean.trim(), max_bytes).trim().to_owned();
    (!word.is_empty()).then_some(word)
}
