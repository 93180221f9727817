//! Items as they may travel: what only one provider can read, and what nobody can, stays behind.

use minke_record::limits::{SUMMARY_BYTES, TEXT_BYTES};
use minke_record::{Blob, CallId, Content, ImageBlob, Item, Role, Text, hex};
use sha2::{Digest, Sha256};

use crate::bounds::NAME_BYTES;
use crate::tally::Tally;
use crate::{Blobs, Said};

/// What a tool said that said nothing.
pub(crate) const NOTHING: &str = "(no output)";
/// What stands for an image that did not come along.
const NO_IMAGE: &str = "[image left out]";

/// The item without what cannot travel, or nothing if nothing of it can. The same again gives the same.
pub(crate) fn plain(item: Item, blobs: &Blobs, tally: &mut Tally) -> Option<Item> {
    match item {
        Item::Message { role, content } => message(role, content, blobs, tally),
        Item::Reasoning { text, summary, signature, encrypted, .. } => {
            if signature.is_some() || encrypted.is_some() {
                tally.count("signature or encrypted form of reasoning, which only its provider can read");
            }
            let text = here(text, blobs, tally);
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
            call_id: call_name(&call_id.0),
            name: name_of(&name, "tool"),
            arguments: here(arguments, blobs, tally).into(),
        }),
        Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
            let content = content.map(|text| here(text, blobs, tally)).filter(|text| !text.is_empty());
            let summary = cut(&summary, SUMMARY_BYTES);
            let summary = if summary.is_empty() { NOTHING.to_owned() } else { summary };
            let all = images.len();
            let images: Vec<ImageBlob> =
                images.into_iter().filter(|image| blobs.contains_key(&image.blob)).collect();
            tally.add("image whose bytes are missing", (all - images.len()) as u64);
            Some(Item::ToolResult {
                call_id: call_name(&call_id.0),
                summary,
                content: content.map(Text::from),
                is_error,
                blob: None,
                images,
            })
        }
        Item::Unknown => {
            tally.count("item of a later version");
            None
        }
    }
}

fn message(role: Role, content: Vec<Content>, blobs: &Blobs, tally: &mut Tally) -> Option<Item> {
    let role = match role {
        Role::User | Role::Assistant => role,
        _ => Role::System,
    };
    let mut parts = Vec::with_capacity(content.len());
    for part in content {
        match part {
            Content::Text { text } => parts.push(Content::Text { text: here(text, blobs, tally).into() }),
            Content::Refusal { text } => {
                parts.push(Content::Refusal { text: here(text, blobs, tally).into() })
            }
            Content::Image { blob, media_type } if role == Role::User && blobs.contains_key(&blob) => {
                parts.push(Content::Image { blob, media_type });
            }
            Content::Image { .. } => {
                tally.count("image whose bytes are missing");
                parts.push(Content::Text { text: NO_IMAGE.into() });
            }
            Content::Unknown => tally.count("part of a message of a later version"),
        }
    }
    parts.retain(|part| match part {
        Content::Text { text } | Content::Refusal { text } => !text.is_empty(),
        Content::Image { .. } | Content::Unknown => true,
    });
    (!parts.is_empty()).then_some(Item::Message { role, content: parts })
}

/// A text, fetched from its blob if it lies in one.
fn here(text: Text, blobs: &Blobs, tally: &mut Tally) -> String {
    match text {
        Text::Here(text) => text,
        Text::Blob(name) => match blobs.get(&name.blob).and_then(|bytes| std::str::from_utf8(bytes).ok()) {
            Some(text) => text.to_owned(),
            None => {
                tally.count("text whose blob is missing");
                Text::Blob(name).show().into_owned()
            }
        },
    }
}

/// Moves texts that are too long for the log to blobs, which must be there before it.
pub fn spill(said: &mut [Said]) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for said in said {
        said.item.texts_mut(&mut |text| {
            if let Text::Here(here) = text
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

/// A name as it may stand in a log and on a screen.
fn name_of(text: &str, otherwise: &str) -> String {
    word(text, NAME_BYTES).unwrap_or_else(|| otherwise.to_owned())
}

/// A call's id; a long one keeps its beginning and is told apart by a hash. The same again gives the same.
pub(crate) fn call_name(text: &str) -> CallId {
    const MOST: usize = NAME_BYTES - 16;
    let name = word(text, usize::MAX).unwrap_or_else(|| "call".to_owned());
    if name.len() <= MOST {
        return CallId(name);
    }
    let digest = hex(&Sha256::digest(&name));
    CallId(format!("{}_{}", cut(&name, MOST - 32).trim(), digest.get(..12).unwrap_or_default()))
}

/// One line of bounded length without control characters, or nothing.
pub(crate) fn word(text: &str, most: usize) -> Option<String> {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(most).collect();
    let word = cut(clean.trim(), most).trim().to_owned();
    (!word.is_empty()).then_some(word)
}

/// The beginning of a text, so many bytes at most.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= most).last();
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}
