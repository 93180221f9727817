//! A whole conversation, for whoever takes it elsewhere: every item with its moment, and the blobs that items name.
//!
//! Elsewhere: the newest part of it as API clients get it (`look`), the files that it is written to (`exchange`, `cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use minke_record::{Content, ErrorCode, Item, Millis, SessionId, Text};
use minke_session::{Reader, ScanEnd, Sealed};
use minke_thread::Thread;

use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::look::{Glance, LINEAGE, story};
use crate::request::{Override, ThreadName};
use crate::story::rows;

/// The most that is fetched from blobs for one conversation: it is all held in memory.
const BLOB_BYTES: u64 = 512 * 1024 * 1024;
/// The largest blob that is fetched.
const ONE_BLOB_BYTES: usize = 32 * 1024 * 1024;
/// The most items of what was said before a fork.
const BEFORE: usize = 2_000;

/// Everything that was said in a thread and those that it was forked from; what was rewound or rolled back is not in it.
pub struct Whole {
    pub thread: Thread,
    pub items: Vec<(Item, Millis)>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// What could not be read, for the person.
    pub trouble: Vec<String>,
}

impl Engine {
    /// Reads a thread's conversation from its beginning.
    pub async fn conversation(&self, name: &str) -> Result<Whole, Fault> {
        let (engine, name) = (self.clone(), ThreadName::new(name));
        off(move || {
            let session = engine.session(&name, &Override::default())?;
            let thread = Glance::of(&engine.home, session)?.thread(&engine.home)?;
            let own = engine.home.store.reader(session)?;
            let (mut items, mut trouble) = (Vec::new(), Vec::new());
            for reader in lineage(&*own)?.iter().chain(std::iter::once(&own)) {
                said(&**reader, &mut items, &mut trouble)?;
            }
            let blobs = blobs(&items, &*own, &mut trouble);
            Ok(Whole { thread, items, blobs, trouble })
        })
        .await
    }

    /// The newest part of what was said before a session was forked, oldest first. Of a session that is no fork: nothing.
    pub async fn before(&self, session: SessionId) -> Result<Vec<Item>, Fault> {
        let engine = self.clone();
        off(move || {
            let own = engine.home.store.reader(session)?;
            let (mut items, mut trouble) = (Vec::new(), Vec::new());
            for reader in lineage(&*own)? {
                said(&*reader, &mut items, &mut trouble)?;
                items.drain(..items.len().saturating_sub(BEFORE));
            }
            match trouble.is_empty() {
                true => Ok(items.into_iter().map(|(item, _)| item).collect()),
                false => Err(Fault::new(ErrorCode::StorageFailed, trouble.join("; "))),
            }
        })
        .await
    }
}

/// The logs that one goes on from, the oldest first.
fn lineage(own: &dyn Reader) -> Result<Vec<Box<dyn Reader>>, Fault> {
    let (mut before, mut parent) = (Vec::new(), own.parent()?);
    while let Some(reader) = parent {
        if before.len() >= LINEAGE {
            let message = format!("the thread is a fork of a fork, more than {LINEAGE} times over");
            return Err(Fault::new(ErrorCode::Conflict, message));
        }
        parent = reader.parent()?;
        before.push(reader);
    }
    before.reverse();
    Ok(before)
}

/// The items of one log's own conversation.
fn said(
    reader: &dyn Reader,
    items: &mut Vec<(Item, Millis)>,
    trouble: &mut Vec<String>,
) -> Result<(), Fault> {
    let shown: BTreeSet<u64> = story(reader)?.newest(usize::MAX).into_iter().collect();
    let end = reader.scan(0, &mut |sealed: Sealed| {
        if shown.contains(&sealed.entry.seq) {
            let at = sealed.entry.ts;
            items.extend(rows(&sealed.entry, None).into_iter().map(|row| (row.item, at)));
        }
        ControlFlow::Continue(())
    })?;
    if let ScanEnd::Damaged(damage) = end {
        trouble.push(damage.to_string());
    }
    Ok(())
}

/// What the items name. A blob that is gone is named: the conversation is still worth having.
fn blobs(
    items: &[(Item, Millis)],
    reader: &dyn Reader,
    trouble: &mut Vec<String>,
) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut bytes) = (BTreeMap::new(), 0u64);
    for name in items.iter().flat_map(|(item, _)| named(item)) {
        if found.contains_key(&name) {
            continue;
        }
        match reader.blob(&name, 0, ONE_BLOB_BYTES) {
            Ok(content) if bytes + content.len() as u64 <= BLOB_BYTES => {
                bytes += content.len() as u64;
                found.insert(name, content);
            }
            Ok(_) => trouble.push(format!("blob {name} is left out: together they are too large")),
            Err(e) => trouble.push(format!("blob {name} cannot be read: {e}")),
        }
    }
    found
}

fn named(item: &Item) -> Vec<String> {
    let mut names = Vec::new();
    item.clone().texts_mut(&mut |text| {
        if let Text::Blob(name) = text {
            names.push(name.blob.clone());
        }
    });
    match item {
        Item::Message { content, .. } => names.extend(content.iter().filter_map(|part| match part {
            Content::Image { blob, .. } => Some(blob.clone()),
            Content::Text { .. } | Content::Refusal { .. } | Content::Unknown => None,
        })),
        Item::ToolResult { images, .. } => names.extend(images.iter().map(|image| image.blob.clone())),
        Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => {}
    }
    names
}
