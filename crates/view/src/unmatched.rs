//! Entries about items in an older page. They wait until that page arrives (`pages`).
//!
//! Invariant: their number is limited, and nothing is lost at the limit
//! (`what_waits_for_an_older_page_is_bounded`).

use minke_record::{Entry, Item, Kind, Text};

use crate::block::{BlockBody, BlockId};
use crate::carry::FIRST_CARRY_PART;
use crate::conversation::ConversationState;
use crate::format;
use crate::reply::message_texts;

/// Limits for entries that wait for an older page: their number and approximate bytes.
const MAX_UNMATCHED: usize = 4_096;
const MAX_UNMATCHED_BYTES: u64 = 16 * 1024 * 1024;

impl ConversationState {
    /// Changes a block because of an entry.
    pub(crate) fn change_or_keep(&mut self, id: BlockId, entry: &Entry, change: impl FnOnce(&mut BlockBody)) {
        // Items that a carry listed are in an older page too.
        let loose = self.fold.unmatched.binary_search_by_key(&id.seq, |entry| entry.seq).is_ok();
        if loose || id.part >= FIRST_CARRY_PART {
            self.keep_unmatched(entry);
        }
        self.blocks.change_block_by(id, entry.seq, change);
    }

    /// Stores an entry whose item is in an older page or missing.
    pub(crate) fn keep_unmatched(&mut self, entry: &Entry) {
        if self.fold.unmatched.back().is_some_and(|last| last.seq == entry.seq) {
            return;
        }
        let fold = &mut self.fold;
        fold.unmatched.push_back(entry.clone());
        fold.unmatched_bytes = fold.unmatched_bytes.saturating_add(entry_bytes(entry));
        while fold.unmatched.len() > MAX_UNMATCHED
            || (fold.unmatched_bytes > MAX_UNMATCHED_BYTES && fold.unmatched.len() > 1)
        {
            // The block that it created without the older page remains.
            let Some(oldest) = fold.unmatched.pop_front() else { break };
            fold.unmatched_bytes = fold.unmatched_bytes.saturating_sub(entry_bytes(&oldest));
            fold.unmatched_seqs.remove(&oldest.seq);
        }
    }

    /// Stores an entry whose own block may differ once the older page is known.
    pub(crate) fn mark_unmatched(&mut self, entry: &Entry) {
        self.fold.unmatched_seqs.insert(entry.seq);
        self.keep_unmatched(entry);
    }
}

/// Returns the approximate size of an entry.
fn entry_bytes(entry: &Entry) -> u64 {
    const ENTRY_OVERHEAD: u64 = 512;
    let item = |item: &Item| match item {
        Item::Message { content, .. } => {
            message_texts(content).map(Text::byte_len).fold(0, u64::saturating_add)
        }
        Item::Reasoning { text, .. } => text.byte_len(),
        Item::ToolCall { arguments, .. } => arguments.byte_len(),
        Item::ToolResult { content, .. } => content.as_ref().map_or(0, Text::byte_len),
        Item::Unknown => 0,
    };
    let bytes = match &entry.kind {
        Kind::AssistantItem(e) => item(&e.item),
        Kind::ToolResult(e) => item(&e.item),
        Kind::ToolDispatch(e) => {
            let diff = e.preview.as_ref().and_then(|preview| preview.diff.as_ref()).map_or(0, String::len);
            let command = e.action.command.as_ref().map_or(0, String::len);
            (diff + command) as u64 + e.arguments.as_ref().map_or(0, Text::byte_len)
        }
        Kind::UserInput(e) => format::input_text(&e.segments).0.len() as u64,
        Kind::Inbox(e) => e.message.as_ref().map_or(0, Text::byte_len),
        // The other kinds are small.
        _ => 0,
    };
    bytes.saturating_add(ENTRY_OVERHEAD)
}
