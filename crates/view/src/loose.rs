//! Loose entries: those about something that stands in an older page. They wait until that page comes (`older`).
//!
//! Invariant: what waits is bounded, and nothing is lost when the bound is met
//! (`what_waits_for_an_older_page_is_bounded`).

use minke_record::{Entry, Item, Kind, Text};

use crate::block::{BlockId, Body};
use crate::conversation::Conversation;
use crate::facts::CARRIED;
use crate::reply::texts;
use crate::tell;

/// Entries that wait for an older page, and about how many bytes of them.
const LOOSE: usize = 4_096;
const LOOSE_BYTES: u64 = 16 * 1024 * 1024;

impl Conversation {
    /// Changes a block because of an entry.
    pub(crate) fn touch(&mut self, id: BlockId, entry: &Entry, change: impl FnOnce(&mut Body)) {
        // What a carry told of stands in an older page too.
        let loose = self.fold.loose.binary_search_by_key(&id.seq, |entry| entry.seq).is_ok();
        if loose || id.part >= CARRIED {
            self.keep_loose(entry);
        }
        self.blocks.change_by(id, entry.seq, change);
    }

    /// What the entry is about stands in an older page, or nowhere.
    pub(crate) fn keep_loose(&mut self, entry: &Entry) {
        if self.fold.loose.back().is_some_and(|last| last.seq == entry.seq) {
            return;
        }
        let fold = &mut self.fold;
        fold.loose.push_back(entry.clone());
        fold.loose_bytes = fold.loose_bytes.saturating_add(weight(entry));
        while fold.loose.len() > LOOSE || (fold.loose_bytes > LOOSE_BYTES && fold.loose.len() > 1) {
            // What it made for want of the older page stays as it is.
            let Some(oldest) = fold.loose.pop_front() else { break };
            fold.loose_bytes = fold.loose_bytes.saturating_sub(weight(&oldest));
            fold.loose_at.remove(&oldest.seq);
        }
    }

    /// The same of an entry whose own block may be another when the older page is there.
    pub(crate) fn made_loose(&mut self, entry: &Entry) {
        self.fold.loose_at.insert(entry.seq);
        self.keep_loose(entry);
    }
}

/// About how much an entry holds.
fn weight(entry: &Entry) -> u64 {
    const REST: u64 = 512;
    let item = |item: &Item| match item {
        Item::Message { content, .. } => texts(content).map(Text::bytes).fold(0, u64::saturating_add),
        Item::Reasoning { text, .. } => text.bytes(),
        Item::ToolCall { arguments, .. } => arguments.bytes(),
        Item::ToolResult { content, .. } => content.as_ref().map_or(0, Text::bytes),
        Item::Unknown => 0,
    };
    let bytes = match &entry.kind {
        Kind::AssistantItem(e) => item(&e.item),
        Kind::ToolResult(e) => item(&e.item),
        Kind::ToolDispatch(e) => {
            let diff = e.preview.as_ref().and_then(|preview| preview.diff.as_ref()).map_or(0, String::len);
            let command = e.action.command.as_ref().map_or(0, String::len);
            (diff + command) as u64 + e.arguments.as_ref().map_or(0, Text::bytes)
        }
        Kind::UserInput(e) => tell::said(&e.segments).0.len() as u64,
        Kind::Inbox(e) => e.message.as_ref().map_or(0, Text::bytes),
        // Of these none holds much.
        _ => 0,
    };
    bytes.saturating_add(REST)
}
