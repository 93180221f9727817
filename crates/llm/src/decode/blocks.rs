//! The open blocks of a reply and their public indices.
//!
//! Providers identify blocks in different ways (an index with any start, an item id, or not at all), so each
//! decoder has its own key type `K`. Public indices start at 0 in order of the block starts. Invariant: every
//! `BlockStart` has exactly one `BlockStop` after `close_all`.

use minke_model::{BlockEnd, BlockKind, ModelEvent};

/// The open blocks of one reply.
#[derive(Debug)]
pub(crate) struct OpenBlocks<K> {
    next_index: u32,
    /// In order of their start; rarely more than a few.
    entries: Vec<(K, OpenBlock)>,
}

#[derive(Debug)]
struct OpenBlock {
    index: u32,
    kind: BlockKind,
    end: BlockEnd,
}

impl<K: PartialEq> OpenBlocks<K> {
    pub(crate) fn new() -> OpenBlocks<K> {
        OpenBlocks { next_index: 0, entries: Vec::new() }
    }

    pub(crate) fn is_open(&self, key: &K) -> bool {
        self.entries.iter().any(|(open, _)| open == key)
    }

    pub(crate) fn block_kind(&self, key: &K) -> Option<&BlockKind> {
        self.entries.iter().find(|(open, _)| open == key).map(|(_, open)| &open.kind)
    }

    /// Returns the number of started blocks.
    pub(crate) fn started_count(&self) -> u32 {
        self.next_index
    }

    /// Starts a block. Closes an open one with the same key first.
    pub(crate) fn start_block(&mut self, key: K, kind: BlockKind, out: &mut Vec<ModelEvent>) {
        self.stop_block(&key, out);
        let index = self.next_index;
        self.next_index += 1;
        out.push(ModelEvent::BlockStart { index, kind: kind.clone() });
        self.entries.push((key, OpenBlock { index, kind, end: BlockEnd::default() }));
    }

    /// Appends a piece to an open block and returns whether there is one. Empty pieces are not passed on.
    pub(crate) fn push_delta(&mut self, key: &K, text: impl Into<String>, out: &mut Vec<ModelEvent>) -> bool {
        let Some((_, open)) = self.entries.iter().find(|(open, _)| open == key) else { return false };
        let text = text.into();
        if !text.is_empty() {
            out.push(ModelEvent::Delta { index: open.index, text });
        }
        true
    }

    /// Returns the signature, encrypted content and summary of an open block.
    pub(crate) fn block_end_mut(&mut self, key: &K) -> Option<&mut BlockEnd> {
        self.entries.iter_mut().find(|(open, _)| open == key).map(|(_, open)| &mut open.end)
    }

    /// Ends a block and returns whether it was open.
    pub(crate) fn stop_block(&mut self, key: &K, out: &mut Vec<ModelEvent>) -> bool {
        let Some(at) = self.entries.iter().position(|(open, _)| open == key) else { return false };
        let (_, open) = self.entries.remove(at);
        out.push(ModelEvent::BlockStop { index: open.index, end: open.end });
        true
    }

    /// Ends all open blocks in order of their start.
    pub(crate) fn close_all(&mut self, out: &mut Vec<ModelEvent>) {
        for (_, open) in self.entries.drain(..) {
            out.push(ModelEvent::BlockStop { index: open.index, end: open.end });
        }
    }
}
