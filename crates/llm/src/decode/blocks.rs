//! Blocks: what is open in a reply, and the indices that the rest of the program sees.
//!
//! Providers key blocks by whatever they like (an index that may begin anywhere, an item id, nothing at all); each
//! decoder has its own key `K`. Ours are numbered from 0 in the order in which they begin.
//! Invariant: every `BlockStart` that went out has exactly one `BlockStop` when `close_all` has been called.

use minke_model::{BlockEnd, BlockKind, ModelEvent};

/// The open blocks of one reply.
#[derive(Debug)]
pub(crate) struct Blocks<K> {
    next: u32,
    /// In the order in which they began; there are seldom more than a few.
    open: Vec<(K, Open)>,
}

#[derive(Debug)]
struct Open {
    index: u32,
    kind: BlockKind,
    end: BlockEnd,
}

impl<K: PartialEq> Blocks<K> {
    pub(crate) fn new() -> Blocks<K> {
        Blocks { next: 0, open: Vec::new() }
    }

    pub(crate) fn is_open(&self, key: &K) -> bool {
        self.open.iter().any(|(open, _)| open == key)
    }

    pub(crate) fn kind(&self, key: &K) -> Option<&BlockKind> {
        self.open.iter().find(|(open, _)| open == key).map(|(_, open)| &open.kind)
    }

    /// How many blocks have begun so far.
    pub(crate) fn begun(&self) -> u32 {
        self.next
    }

    /// Begins a block. One that is open under the same key is closed first.
    pub(crate) fn start(&mut self, key: K, kind: BlockKind, out: &mut Vec<ModelEvent>) {
        self.stop(&key, out);
        let index = self.next;
        self.next += 1;
        out.push(ModelEvent::BlockStart { index, kind: kind.clone() });
        self.open.push((key, Open { index, kind, end: BlockEnd::default() }));
    }

    /// A piece of an open block. Gives whether there is one; empty pieces are not passed on.
    pub(crate) fn delta(&mut self, key: &K, text: impl Into<String>, out: &mut Vec<ModelEvent>) -> bool {
        let Some((_, open)) = self.open.iter().find(|(open, _)| open == key) else { return false };
        let text = text.into();
        if !text.is_empty() {
            out.push(ModelEvent::Delta { index: open.index, text });
        }
        true
    }

    /// What is known of an open block beside its text: signature, encrypted content, summary.
    pub(crate) fn end_mut(&mut self, key: &K) -> Option<&mut BlockEnd> {
        self.open.iter_mut().find(|(open, _)| open == key).map(|(_, open)| &mut open.end)
    }

    /// Ends a block. Gives whether it was open.
    pub(crate) fn stop(&mut self, key: &K, out: &mut Vec<ModelEvent>) -> bool {
        let Some(at) = self.open.iter().position(|(open, _)| open == key) else { return false };
        let (_, open) = self.open.remove(at);
        out.push(ModelEvent::BlockStop { index: open.index, end: open.end });
        true
    }

    /// Ends all that is open, in the order in which it began.
    pub(crate) fn close_all(&mut self, out: &mut Vec<ModelEvent>) {
        for (_, open) in self.open.drain(..) {
            out.push(ModelEvent::BlockStop { index: open.index, end: open.end });
        }
    }
}
