//! A whole conversation for export: every item with its time, and the blobs that the items name.
//!
//! Elsewhere: its newest part for API clients (`thread_log`), the files of an export (`exchange`, `cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use minke_record::{Content, ErrorCode, Item, Millis, SessionId, Text};
use minke_session::{Reader, ScanEnd, SealedEntry};
use minke_thread::ThreadObject;

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::request::{RequestOverrides, ThreadName};
use crate::threads::fold::history_rows;
use crate::threads::log::{MAX_LINEAGE, ThreadLog, fold_log};

/// The maximum total size of the fetched blobs. All of them are in memory.
const TOTAL_BLOB_BYTES: u64 = 512 * 1024 * 1024;
/// The maximum size of one fetched blob.
const ONE_BLOB_BYTES: usize = 32 * 1024 * 1024;
/// The maximum number of items from before a fork.
const MAX_ITEMS_BEFORE_FORK: usize = 2_000;

/// The conversation of a thread and its ancestors, without rewound and rolled back parts.
pub struct FullConversation {
    pub thread: ThreadObject,
    pub items: Vec<(Item, Millis)>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Warnings about unreadable parts, for the user.
    pub warnings: Vec<String>,
}

impl Engine {
    /// Reads a thread's conversation from its beginning.
    pub async fn read_conversation(&self, name: &str) -> Result<FullConversation, ApiError> {
        let (engine, name) = (self.clone(), ThreadName::new(name));
        run_blocking(move || {
            let session = engine.resolve_session(&name, &RequestOverrides::default())?;
            let thread = ThreadLog::read_session(&engine.home, session)?.thread_object(&engine.home)?;
            let own = engine.home.store.open_reader(session)?;
            let (mut items, mut warnings) = (Vec::new(), Vec::new());
            for reader in ancestor_readers(&*own)?.iter().chain(std::iter::once(&own)) {
                collect_items(&**reader, &mut items, &mut warnings)?;
            }
            let blobs = fetch_blobs(&items, &*own, &mut warnings);
            Ok(FullConversation { thread, items, blobs, warnings })
        })
        .await
    }

    /// Returns the newest items from before a session was forked, oldest first. Empty for a session that is not a fork.
    pub async fn items_before_fork(&self, session: SessionId) -> Result<Vec<Item>, ApiError> {
        let engine = self.clone();
        run_blocking(move || {
            let own = engine.home.store.open_reader(session)?;
            let (mut items, mut warnings) = (Vec::new(), Vec::new());
            for reader in ancestor_readers(&*own)? {
                collect_items(&*reader, &mut items, &mut warnings)?;
                items.drain(..items.len().saturating_sub(MAX_ITEMS_BEFORE_FORK));
            }
            match warnings.is_empty() {
                true => Ok(items.into_iter().map(|(item, _)| item).collect()),
                false => Err(ApiError::new(ErrorCode::StorageFailed, warnings.join("; "))),
            }
        })
        .await
    }
}

/// Returns the logs of a fork's ancestors, oldest first.
fn ancestor_readers(own: &dyn Reader) -> Result<Vec<Box<dyn Reader>>, ApiError> {
    let (mut before, mut parent) = (Vec::new(), own.parent_reader()?);
    while let Some(reader) = parent {
        if before.len() >= MAX_LINEAGE {
            let message = format!("the thread has more than {MAX_LINEAGE} levels of forks");
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        parent = reader.parent_reader()?;
        before.push(reader);
    }
    before.reverse();
    Ok(before)
}

/// Collects the items of one log's own conversation.
fn collect_items(
    reader: &dyn Reader,
    items: &mut Vec<(Item, Millis)>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let visible: BTreeSet<u64> = fold_log(reader)?.newest_entries(usize::MAX).into_iter().collect();
    let end = reader.scan_entries(0, &mut |sealed: SealedEntry| {
        if visible.contains(&sealed.entry.seq) {
            let at = sealed.entry.ts;
            items.extend(history_rows(&sealed.entry, None).into_iter().map(|row| (row.item, at)));
        }
        ControlFlow::Continue(())
    })?;
    if let ScanEnd::Damaged(damage) = end {
        warnings.push(damage.to_string());
    }
    Ok(())
}

/// Fetches the blobs that the items name. Warns about a missing blob instead of failing.
fn fetch_blobs(
    items: &[(Item, Millis)],
    reader: &dyn Reader,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, Vec<u8>> {
    let (mut blobs_by_name, mut bytes) = (BTreeMap::new(), 0u64);
    for name in items.iter().flat_map(|(item, _)| blob_names(item)) {
        if blobs_by_name.contains_key(&name) {
            continue;
        }
        match reader.read_blob(&name, 0, ONE_BLOB_BYTES) {
            Ok(content) if bytes + content.len() as u64 <= TOTAL_BLOB_BYTES => {
                bytes += content.len() as u64;
                blobs_by_name.insert(name, content);
            }
            Ok(_) => warnings.push(format!("blob {name} is omitted: the blobs are too large together")),
            Err(e) => warnings.push(format!("could not read blob {name}: {e}")),
        }
    }
    blobs_by_name
}

fn blob_names(item: &Item) -> Vec<String> {
    let mut names = Vec::new();
    item.clone().visit_texts_mut(&mut |text| {
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
