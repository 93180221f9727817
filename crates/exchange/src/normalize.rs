//! Normalizes a conversation so that any model accepts it: limited, and with exactly one result for each call.
//!
//! Invariant: `every_call_has_one_result`; idempotent.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{CallId, Content, Item, Role, Text};

use crate::limits::{MAX_ITEMS, MAX_TEXT_BYTES};
use crate::omissions::OmissionCounts;
use crate::outputs::result_item;
use crate::portable::{clean_call_id, portable_item};
use crate::{PortableConversation, TimedItem};

/// The result text for a call without a result.
const INTERRUPTED: &str = "interrupted; it may or may not have taken effect";

pub(crate) fn normalize_raw(
    raw: PortableConversation,
    omissions: &mut OmissionCounts,
) -> PortableConversation {
    let PortableConversation { info, items: timed_items, mut blobs } = raw;
    let said: Vec<TimedItem> = timed_items
        .into_iter()
        .filter_map(|TimedItem { item, at }| {
            portable_item(item, &blobs, omissions).map(|item| TimedItem { item, at })
        })
        .collect();
    let items = pair_calls(keep_newest(said, omissions), omissions);
    let named = image_names(&items);
    blobs.retain(|name, _| named.contains(name));
    PortableConversation { info, items, blobs }
}

/// Keeps the newest items within the limit. Each call counts twice: it may need a result.
fn keep_newest(mut timed_items: Vec<TimedItem>, omissions: &mut OmissionCounts) -> Vec<TimedItem> {
    let answered: BTreeSet<&CallId> = timed_items.iter().filter_map(|said| result_of(&said.item)).collect();
    let (mut items, mut bytes) = (0usize, 0u64);
    let kept_items = timed_items
        .iter()
        .rev()
        .take_while(|said| {
            let open = matches!(&said.item, Item::ToolCall { call_id, .. } if !answered.contains(call_id));
            items += if open { 2 } else { 1 };
            bytes = bytes.saturating_add(item_weight(&said.item));
            items <= MAX_ITEMS && bytes <= MAX_TEXT_BYTES
        })
        .count();
    let old = timed_items.len() - kept_items;
    omissions.add_count("older item beyond the limit", old as u64);
    timed_items.split_off(old)
}

fn item_weight(item: &Item) -> u64 {
    let mut bytes = 64;
    item.clone().visit_texts_mut(&mut |text| bytes += text.byte_len());
    bytes
}

fn result_of(item: &Item) -> Option<&CallId> {
    match item {
        Item::ToolResult { call_id, .. } => Some(call_id),
        Item::Message { .. } | Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => None,
    }
}

/// Pairs calls and results. An id that is reused after its result gets a number.
#[derive(Default)]
struct CallPairs {
    open: BTreeMap<CallId, CallId>,
    used: BTreeSet<CallId>,
    /// Calls without a result, and their times.
    missing: Vec<(CallId, Option<u64>)>,
}

fn pair_calls(timed_items: Vec<TimedItem>, omissions: &mut OmissionCounts) -> Vec<TimedItem> {
    let mut to_come: BTreeMap<CallId, usize> = BTreeMap::new();
    for call in timed_items.iter().filter_map(|said| result_of(&said.item)) {
        *to_come.entry(call.clone()).or_default() += 1;
    }
    let mut pairs = CallPairs::default();
    let mut out = Vec::with_capacity(timed_items.len());
    for TimedItem { item, at } in timed_items {
        match item {
            Item::ToolCall { call_id, .. } if pairs.open.contains_key(&call_id) => {
                omissions.count_one("duplicate call");
            }
            Item::ToolCall { call_id, name, arguments } => {
                let id = pairs.unused_id(&call_id);
                if to_come.get(&call_id).is_some_and(|left| *left > 0) {
                    pairs.open.insert(call_id, id.clone());
                } else {
                    pairs.missing.push((id.clone(), at));
                }
                out.push(TimedItem { item: Item::ToolCall { call_id: id, name, arguments }, at });
            }
            Item::ToolResult { call_id, summary, content, is_error, blob, images } => {
                if let Some(left) = to_come.get_mut(&call_id) {
                    *left -= 1;
                }
                match pairs.open.remove(&call_id) {
                    Some(call_id) => {
                        let item = Item::ToolResult { call_id, summary, content, is_error, blob, images };
                        out.push(TimedItem { item, at });
                    }
                    None => omissions.count_one("result without a call"),
                }
            }
            item @ Item::Message { .. } => {
                if !matches!(&item, Item::Message { role: Role::Assistant, .. }) {
                    pairs.close_open_calls(&mut out, omissions);
                }
                out.push(TimedItem { item, at });
            }
            item @ Item::Reasoning { .. } => out.push(TimedItem { item, at }),
            Item::Unknown => {}
        }
    }
    pairs.close_open_calls(&mut out, omissions);
    out
}

impl CallPairs {
    /// Returns the id, numbered if another call had it.
    fn unused_id(&mut self, wish: &CallId) -> CallId {
        let numbered = |number: u32| clean_call_id(&format!("{wish}-{number}"));
        let candidates = std::iter::once(wish.clone()).chain((2..u32::MAX).map(numbered));
        let id = candidates.into_iter().find(|id| !self.used.contains(id)).unwrap_or_else(|| wish.clone());
        self.used.insert(id.clone());
        id
    }

    /// Adds results to the calls without one.
    fn close_open_calls(&mut self, out: &mut Vec<TimedItem>, omissions: &mut OmissionCounts) {
        for (call, at) in self.missing.drain(..) {
            omissions.count_one("call without a result, which was added");
            out.push(TimedItem { item: result_item(&call.0, INTERRUPTED.to_owned(), true, Vec::new()), at });
        }
    }
}

fn image_names(timed_items: &[TimedItem]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for said in timed_items {
        match &said.item {
            Item::Message { content, .. } => names.extend(content.iter().filter_map(|part| match part {
                Content::Image { blob, .. } => Some(blob.clone()),
                Content::Text { .. } | Content::Refusal { .. } | Content::Unknown => None,
            })),
            Item::ToolResult { images, .. } => names.extend(images.iter().map(|image| image.blob.clone())),
            Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => {}
        }
    }
    names
}

/// Returns the text of a message, its parts concatenated.
pub(crate) fn message_text(content: &[Content]) -> String {
    let text = |part: &Content| match part {
        Content::Text { text } | Content::Refusal { text } => text.inline().map(str::to_owned),
        Content::Image { media_type, .. } => Some(format!("[{media_type}]")),
        Content::Unknown => None,
    };
    content.iter().filter_map(text).collect::<Vec<String>>().join("\n\n")
}

/// Returns the inline text; in a normalized conversation every text is inline.
pub(crate) fn inline_text(text: &Text) -> &str {
    text.inline().unwrap_or_default()
}
