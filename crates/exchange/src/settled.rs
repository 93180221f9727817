//! A conversation that can be sent to any model: bounded, and with exactly one result for each call.
//!
//! Invariant: `every_call_has_one_result`; the same again gives the same.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{CallId, Content, Item, Role, Text};

use crate::bounds::{BYTES, ITEMS};
use crate::outputs::result;
use crate::plain::{call_name, plain};
use crate::tally::Tally;
use crate::{Conversation, Said};

/// What a model is told of a call whose result is not there.
const INTERRUPTED: &str = "interrupted; it may or may not have taken effect";

pub(crate) fn settled(raw: Conversation, tally: &mut Tally) -> Conversation {
    let Conversation { about, said, mut blobs } = raw;
    let said: Vec<Said> = said
        .into_iter()
        .filter_map(|Said { item, at }| plain(item, &blobs, tally).map(|item| Said { item, at }))
        .collect();
    let said = paired(newest(said, tally), tally);
    let named = images_of(&said);
    blobs.retain(|name, _| named.contains(name));
    Conversation { about, said, blobs }
}

/// The newest items that are not too many. Each call counts twice: it may need a result.
fn newest(mut said: Vec<Said>, tally: &mut Tally) -> Vec<Said> {
    let answered: BTreeSet<&CallId> = said.iter().filter_map(|said| result_of(&said.item)).collect();
    let (mut items, mut bytes) = (0usize, 0u64);
    let kept = said
        .iter()
        .rev()
        .take_while(|said| {
            let open = matches!(&said.item, Item::ToolCall { call_id, .. } if !answered.contains(call_id));
            items += if open { 2 } else { 1 };
            bytes = bytes.saturating_add(weight(&said.item));
            items <= ITEMS && bytes <= BYTES
        })
        .count();
    let old = said.len() - kept;
    tally.add("item before the newest, since there are too many", old as u64);
    said.split_off(old)
}

fn weight(item: &Item) -> u64 {
    let mut bytes = 64;
    item.clone().texts_mut(&mut |text| bytes += text.bytes());
    bytes
}

fn result_of(item: &Item) -> Option<&CallId> {
    match item {
        Item::ToolResult { call_id, .. } => Some(call_id),
        Item::Message { .. } | Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => None,
    }
}

/// Calls and results, one for one. An id that comes again after its result gets a number.
#[derive(Default)]
struct Pairs {
    open: BTreeMap<CallId, CallId>,
    used: BTreeSet<CallId>,
    /// Calls for which no result will come, and since when they are open.
    missing: Vec<(CallId, Option<u64>)>,
}

fn paired(said: Vec<Said>, tally: &mut Tally) -> Vec<Said> {
    let mut to_come: BTreeMap<CallId, usize> = BTreeMap::new();
    for call in said.iter().filter_map(|said| result_of(&said.item)) {
        *to_come.entry(call.clone()).or_default() += 1;
    }
    let mut pairs = Pairs::default();
    let mut out = Vec::with_capacity(said.len());
    for Said { item, at } in said {
        match item {
            Item::ToolCall { call_id, .. } if pairs.open.contains_key(&call_id) => {
                tally.count("call that stands there twice");
            }
            Item::ToolCall { call_id, name, arguments } => {
                let id = pairs.fresh(&call_id);
                if to_come.get(&call_id).is_some_and(|left| *left > 0) {
                    pairs.open.insert(call_id, id.clone());
                } else {
                    pairs.missing.push((id.clone(), at));
                }
                out.push(Said { item: Item::ToolCall { call_id: id, name, arguments }, at });
            }
            Item::ToolResult { call_id, summary, content, is_error, blob, images } => {
                if let Some(left) = to_come.get_mut(&call_id) {
                    *left -= 1;
                }
                match pairs.open.remove(&call_id) {
                    Some(call_id) => {
                        let item = Item::ToolResult { call_id, summary, content, is_error, blob, images };
                        out.push(Said { item, at });
                    }
                    None => tally.count("result without a call"),
                }
            }
            item @ Item::Message { .. } => {
                if !matches!(&item, Item::Message { role: Role::Assistant, .. }) {
                    pairs.close(&mut out, tally);
                }
                out.push(Said { item, at });
            }
            item @ Item::Reasoning { .. } => out.push(Said { item, at }),
            Item::Unknown => {}
        }
    }
    pairs.close(&mut out, tally);
    out
}

impl Pairs {
    /// The id, numbered if another call had it.
    fn fresh(&mut self, wish: &CallId) -> CallId {
        let numbered = |number: u32| call_name(&format!("{wish}-{number}"));
        let candidates = std::iter::once(wish.clone()).chain((2..u32::MAX).map(numbered));
        let id = candidates.into_iter().find(|id| !self.used.contains(id)).unwrap_or_else(|| wish.clone());
        self.used.insert(id.clone());
        id
    }

    /// Ends the calls for which no result will come.
    fn close(&mut self, out: &mut Vec<Said>, tally: &mut Tally) {
        for (call, at) in self.missing.drain(..) {
            tally.count("call without a result, which was added");
            out.push(Said { item: result(&call.0, INTERRUPTED.to_owned(), true, Vec::new()), at });
        }
    }
}

fn images_of(said: &[Said]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for said in said {
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

/// The text of a message, its parts one after the other.
pub(crate) fn words(content: &[Content]) -> String {
    let text = |part: &Content| match part {
        Content::Text { text } | Content::Refusal { text } => text.here().map(str::to_owned),
        Content::Image { media_type, .. } => Some(format!("[{media_type}]")),
        Content::Unknown => None,
    };
    content.iter().filter_map(text).collect::<Vec<String>>().join("\n\n")
}

/// The text that is here, which it is in a settled conversation.
pub(crate) fn here(text: &Text) -> &str {
    text.here().unwrap_or_default()
}
