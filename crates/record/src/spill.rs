//! Moves data that is too large for a line into blobs; the line then contains the blob's name.
//!
//! Texts are spilled before an entry is folded: the fold keeps the name, and an adapter loads the content for
//! the model. Lists are spilled after the fold, which needs them, so a reader loads them before it folds
//! (`fetch_lists`).

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::entry::{History, Kind};
use crate::limits::{LINE_BYTES, LIST_BYTES, TEXT_BYTES};
use crate::text::{Blob, BlobRef, Large, Text};

/// Space for the envelope and the hash in addition to the kind.
const ENVELOPE_BYTES: usize = 1024;

impl Kind {
    /// Visits every text that may be long.
    pub fn visit_texts_mut(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        match self {
            Kind::SegmentStart(e) => visit(&mut e.system_prompt),
            Kind::UserInput(e) => e.segments.iter_mut().for_each(|s| s.visit_texts_mut(visit)),
            Kind::QueuedInput(e) => {
                e.segments.iter_mut().for_each(|s| s.visit_texts_mut(visit));
                e.attached.iter_mut().for_each(|item| visit(&mut item.body));
            }
            Kind::Inbox(e) => e.message.iter_mut().for_each(visit),
            Kind::SystemEntry(e) => visit(&mut e.item.body),
            Kind::AssistantItem(e) => e.item.visit_texts_mut(visit),
            Kind::ToolResult(e) => e.item.visit_texts_mut(visit),
            Kind::ToolDispatch(e) => e.arguments.iter_mut().for_each(visit),
            _ => {}
        }
    }

    /// Moves texts that are too long for a line into blobs: first those over the limit, then, while the line
    /// is still too long, shorter ones.
    pub fn spill_texts(&mut self) -> Vec<Blob> {
        let mut blobs = Vec::new();
        let mut limit = TEXT_BYTES;
        loop {
            let mut left = 0usize;
            self.visit_texts_mut(&mut |text| {
                if let Text::Inline(here) = text {
                    if here.len() > limit {
                        let blob = Blob::new(std::mem::take(here).into_bytes());
                        *text = Text::Blob(blob.name.clone());
                        blobs.push(blob);
                    } else {
                        left += here.len();
                    }
                }
            });
            // JSON escapes a byte to at most six; measure only if that could matter.
            let long =
                left > LINE_BYTES / 6 - ENVELOPE_BYTES && serialized_len(self) > LINE_BYTES - ENVELOPE_BYTES;
            if !long || limit < 64 {
                return blobs;
            }
            limit /= 4;
        }
    }

    /// Moves lists that are too large for a line into blobs.
    pub fn spill_lists(&mut self) -> Vec<Blob> {
        let mut blobs = Vec::new();
        match self {
            Kind::SegmentStart(e) => {
                spill_large(&mut e.tools, &mut blobs);
                spill_history(&mut e.history, &mut blobs);
                spill_large(&mut e.carry, &mut blobs);
            }
            Kind::Carry(e) => {
                spill_history(&mut e.history, &mut blobs);
                spill_large(&mut e.carry, &mut blobs);
            }
            Kind::Snapshot(e) => spill_large(&mut e.files, &mut blobs),
            _ => {}
        }
        blobs
    }

    /// Restores spilled lists with the content that `fetch` returns for a name. Texts remain spilled.
    pub fn fetch_lists<E>(
        &mut self,
        fetch: &mut dyn FnMut(&BlobRef) -> Result<Vec<u8>, E>,
    ) -> Result<(), FetchError<E>> {
        match self {
            Kind::SegmentStart(e) => {
                fetch_large(&mut e.tools, fetch)?;
                fetch_history(&mut e.history, fetch)?;
                fetch_large(&mut e.carry, fetch)
            }
            Kind::Carry(e) => {
                fetch_history(&mut e.history, fetch)?;
                fetch_large(&mut e.carry, fetch)
            }
            Kind::Snapshot(e) => fetch_large(&mut e.files, fetch),
            _ => Ok(()),
        }
    }

    /// Every blob that is part of this entry.
    pub fn blob_refs(&self) -> Vec<BlobRef> {
        let mut names = Vec::new();
        self.clone().visit_texts_mut(&mut |text| {
            if let Text::Blob(name) = text {
                names.push(name.clone());
            }
        });
        let history = match self {
            Kind::SegmentStart(e) => {
                if let Large::Blob(name) = &e.tools {
                    names.push(name.clone());
                }
                if let Large::Blob(name) = &e.carry {
                    names.push(name.clone());
                }
                Some(&e.history)
            }
            Kind::Carry(e) => {
                if let Large::Blob(name) = &e.carry {
                    names.push(name.clone());
                }
                Some(&e.history)
            }
            Kind::Snapshot(e) => {
                if let Large::Blob(name) = &e.files {
                    names.push(name.clone());
                }
                None
            }
            _ => None,
        };
        if let Some(History::Blob(name)) = history {
            names.push(name.clone());
        }
        names
    }
}

/// A spilled list could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchError<E> {
    /// The blob could not be read.
    Blob(E),
    /// The blob is not the original list.
    Content(String),
}

fn serialized_len<T: Serialize>(value: &T) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(0);
    serde_json::to_writer(&mut count, value).expect("writing plain data to memory does not fail");
    count.0
}

/// Moves a value that is too large into a blob. The limit is half of a line, so that two lists fit.
fn spill_value<T: Serialize>(value: &T) -> Option<Blob> {
    if serialized_len(value) <= LIST_BYTES / 2 {
        return None;
    }
    let content = serde_json::to_vec(value).expect("writing plain data to memory does not fail");
    Some(Blob::new(content))
}

fn spill_large<T: Serialize>(large: &mut Large<T>, blobs: &mut Vec<Blob>) {
    if let Large::Here(value) = large
        && let Some(blob) = spill_value(value)
    {
        *large = Large::Blob(blob.name.clone());
        blobs.push(blob);
    }
}

fn spill_history(history: &mut History, blobs: &mut Vec<Blob>) {
    if let History::Here(items) = history
        && let Some(blob) = spill_value(items)
    {
        *history = History::Blob(blob.name.clone());
        blobs.push(blob);
    }
}

fn parse_content<T: DeserializeOwned, E>(bytes: &[u8]) -> Result<T, FetchError<E>> {
    serde_json::from_slice(bytes).map_err(|e| FetchError::Content(e.to_string()))
}

fn fetch_large<T: DeserializeOwned, E>(
    large: &mut Large<T>,
    fetch: &mut dyn FnMut(&BlobRef) -> Result<Vec<u8>, E>,
) -> Result<(), FetchError<E>> {
    if let Large::Blob(name) = large {
        *large = Large::Here(parse_content(&fetch(name).map_err(FetchError::Blob)?)?);
    }
    Ok(())
}

fn fetch_history<E>(
    history: &mut History,
    fetch: &mut dyn FnMut(&BlobRef) -> Result<Vec<u8>, E>,
) -> Result<(), FetchError<E>> {
    if let History::Blob(name) = history {
        *history = History::Here(parse_content(&fetch(name).map_err(FetchError::Blob)?)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AssistantItem, Carry, Item, SessionFacts};

    #[test]
    fn a_long_text_goes_to_a_blob_and_the_line_fits() {
        let text = "\u{1}".repeat(TEXT_BYTES);
        let content = (0..3).map(|_| crate::Content::Text { text: text.clone().into() }).collect();
        let item = Item::Message { role: crate::Role::Assistant, content };
        let mut kind: Kind = AssistantItem { call: 0, item }.into();
        let blobs = kind.spill_texts();
        assert!(!blobs.is_empty());
        assert!(serialized_len(&kind) < LINE_BYTES);
        assert_eq!(kind.blob_refs().len(), blobs.len());
    }

    #[test]
    fn a_list_goes_to_a_blob_and_comes_back() {
        let items: Vec<Item> = (0..2_000).map(|i| Item::user_message("x".repeat(1_000 + i % 7))).collect();
        let whole: Kind = Carry {
            segment: 1,
            start: 2,
            history: History::Here(items),
            carry: Large::Here(Box::new(SessionFacts::default())),
        }
        .into();
        let mut kind = whole.clone();
        let blobs = kind.spill_lists();
        assert_eq!(blobs.len(), 1);
        assert!(matches!(&kind, Kind::Carry(c) if matches!(c.history, History::Blob(_))));
        kind.fetch_lists::<()>(&mut |name| {
            Ok(blobs.iter().find(|b| b.name == *name).unwrap().content.clone())
        })
        .unwrap();
        assert_eq!(kind, whole);
    }
}
