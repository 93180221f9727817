//! The list of blocks: first those with a log entry in log order, then live ones.
//!
//! Maintains the order, the versions, the lowest changed index and the stored size. Elsewhere: the contents
//! of blocks (`apply`, `live_events`).
//! Invariant: settled blocks are sorted by id and precede live ones (`the_list_stays_in_order`).

use std::collections::BTreeMap;

use minke_record::Millis;

use crate::block::{Block, BlockBody, BlockId};

#[derive(Debug, Clone, Default)]
pub(crate) struct BlockStore {
    blocks: Vec<Block>,
    /// Number of settled blocks.
    settled_count: usize,
    pub(crate) version: u64,
    /// The lowest changed index.
    changed: Option<usize>,
    text_bytes: usize,
    /// Blocks that a later entry has changed, with the newest such entry.
    last_changes: BTreeMap<BlockId, u64>,
    /// Makes the ids of live blocks unique.
    live_counter: u32,
}

impl BlockStore {
    pub(crate) fn all_blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(crate) fn settled_blocks(&self) -> &[Block] {
        self.blocks.get(..self.settled_count).unwrap_or_default()
    }

    pub(crate) fn live_blocks(&self) -> &[Block] {
        self.blocks.get(self.settled_count..).unwrap_or_default()
    }

    /// Returns the stored bytes of text.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the lowest changed index since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<usize> {
        self.changed.take()
    }

    /// Marks all blocks as changed.
    pub(crate) fn mark_all_changed(&mut self) {
        self.changed = Some(0);
    }

    fn mark_changed(&mut self, at: usize) {
        self.changed = Some(self.changed.map_or(at, |was| was.min(at)));
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Inserts a settled block at its position, or replaces the block with the same id.
    pub(crate) fn put_block(&mut self, id: BlockId, ts: Millis, body: BlockBody) {
        let version = self.next_version();
        self.insert_settled(Block { id, version, ts, body });
    }

    /// Inserts a settled block unchanged.
    pub(crate) fn insert_settled(&mut self, block: Block) {
        self.text_bytes += body_bytes(&block.body);
        match self.settled_blocks().binary_search_by_key(&block.id, |known| known.id) {
            Ok(at) => {
                if let Some(known) = self.blocks.get_mut(at) {
                    self.text_bytes = self.text_bytes.saturating_sub(body_bytes(&known.body));
                    *known = block;
                }
                self.mark_changed(at);
            }
            Err(at) => {
                self.blocks.insert(at, block);
                self.settled_count += 1;
                self.mark_changed(at);
            }
        }
    }

    fn find_index(&self, id: BlockId) -> Option<usize> {
        match self.settled_blocks().binary_search_by_key(&id, |known| known.id) {
            Ok(at) => Some(at),
            Err(_) => self
                .live_blocks()
                .iter()
                .position(|block| block.id == id)
                .map(|at| at.saturating_add(self.settled_count)),
        }
    }

    pub(crate) fn body(&self, id: BlockId) -> Option<&BlockBody> {
        self.find_index(id).and_then(|at| self.blocks.get(at)).map(|block| &block.body)
    }

    /// Changes a block. Returns whether it exists.
    pub(crate) fn change_block(&mut self, id: BlockId, change: impl FnOnce(&mut BlockBody)) -> bool {
        let Some(at) = self.find_index(id) else { return false };
        let version = self.next_version();
        let Some(block) = self.blocks.get_mut(at) else { return false };
        let before = body_bytes(&block.body);
        change(&mut block.body);
        block.version = version;
        self.text_bytes = self.text_bytes.saturating_sub(before).saturating_add(body_bytes(&block.body));
        self.mark_changed(at);
        true
    }

    /// Changes a block because of a later entry.
    pub(crate) fn change_block_by(
        &mut self,
        id: BlockId,
        seq: u64,
        change: impl FnOnce(&mut BlockBody),
    ) -> bool {
        let there = self.change_block(id, change);
        if there {
            self.last_changes.insert(id, seq);
        }
        there
    }

    /// Opens a live block at the end.
    pub(crate) fn open_live(&mut self, next_seq: u64, ts: Millis, body: BlockBody) -> BlockId {
        let id = BlockId { seq: next_seq, part: self.live_counter, live: true };
        self.live_counter = self.live_counter.wrapping_add(1);
        let version = self.next_version();
        self.text_bytes += body_bytes(&body);
        self.blocks.push(Block { id, version, ts, body });
        self.mark_changed(self.blocks.len() - 1);
        id
    }

    /// Removes a live block, because its entry has arrived or will never arrive.
    pub(crate) fn close_live(&mut self, id: BlockId) -> Option<Block> {
        let at = self.find_index(id).filter(|at| *at >= self.settled_count)?;
        let block = self.blocks.remove(at);
        self.text_bytes = self.text_bytes.saturating_sub(body_bytes(&block.body));
        self.mark_changed(at);
        Some(block)
    }

    /// Removes all live blocks.
    pub(crate) fn close_all_live(&mut self) -> Vec<Block> {
        let live: Vec<Block> = self.blocks.drain(self.settled_count..).collect();
        if !live.is_empty() {
            self.text_bytes =
                self.text_bytes.saturating_sub(live.iter().map(|block| body_bytes(&block.body)).sum());
            self.mark_changed(self.settled_count);
        }
        live
    }

    /// Puts a live block back at the end.
    pub(crate) fn reopen_live(&mut self, mut block: Block) {
        block.version = self.next_version();
        self.text_bytes += body_bytes(&block.body);
        self.blocks.push(block);
        self.mark_changed(self.blocks.len() - 1);
    }

    /// Visits every settled block from an entry on, and keeps, changes or removes it.
    pub(crate) fn retain_blocks(
        &mut self,
        from_seq: u64,
        mut decide: impl FnMut(&mut Block) -> RetainAction,
    ) -> Vec<Block> {
        let first = self.settled_blocks().partition_point(|block| block.id.seq < from_seq);
        let rest = self.blocks.split_off(first);
        let (mut settled, mut gone) = (first, Vec::new());
        let last = self.settled_count;
        for (at, mut block) in (first..).zip(rest) {
            let before = body_bytes(&block.body);
            match if at < last { decide(&mut block) } else { RetainAction::Keep } {
                RetainAction::Remove => {
                    self.text_bytes = self.text_bytes.saturating_sub(before);
                    self.last_changes.remove(&block.id);
                    self.mark_changed(settled);
                    gone.push(block);
                    continue;
                }
                RetainAction::KeepChanged => {
                    block.version = self.next_version();
                    self.text_bytes =
                        self.text_bytes.saturating_sub(before).saturating_add(body_bytes(&block.body));
                    self.mark_changed(self.blocks.len());
                }
                RetainAction::Keep => {}
            }
            settled += usize::from(at < last);
            self.blocks.push(block);
        }
        self.settled_count = settled;
        gone
    }

    /// Drops the `count` oldest settled blocks. Returns those that an entry after the cut has changed,
    /// because a reader that loads them again does not read that entry.
    pub(crate) fn drop_oldest(&mut self, count: usize) -> (u64, Vec<Block>) {
        let count = count.min(self.settled_count.saturating_sub(1));
        let cut = self.blocks.get(count).map_or(0, |block| block.id.seq);
        // Never cut between two blocks of one entry.
        let count = self.settled_blocks().partition_point(|block| block.id.seq < cut);
        let old: Vec<Block> = self.blocks.drain(..count).collect();
        self.settled_count -= count;
        self.text_bytes =
            self.text_bytes.saturating_sub(old.iter().map(|block| body_bytes(&block.body)).sum());
        self.changed = Some(0);
        let mut late = Vec::new();
        for block in old {
            if self.last_changes.remove(&block.id).is_some_and(|seq| seq >= cut) {
                late.push(block);
            }
        }
        (cut, late)
    }

    /// Prepends older settled blocks.
    pub(crate) fn prepend_blocks(&mut self, older: BlockStore) {
        let BlockStore { mut blocks, settled_count, version, text_bytes, last_changes, .. } = older;
        blocks.truncate(settled_count);
        self.settled_count += blocks.len();
        blocks.append(&mut self.blocks);
        self.blocks = blocks;
        self.version = self.version.max(version);
        self.text_bytes = self.text_bytes.saturating_add(text_bytes);
        self.last_changes.extend(last_changes);
        self.changed = Some(0);
    }
}

/// What to do with a visited block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetainAction {
    Keep,
    KeepChanged,
    Remove,
}

/// Returns the size of a block: its texts and a fixed overhead.
pub(crate) fn body_bytes(body: &BlockBody) -> usize {
    const BODY_OVERHEAD: usize = 256;
    BODY_OVERHEAD
        + match body {
            BlockBody::Input(said) => {
                said.text.len() + said.attachments.iter().map(String::len).sum::<usize>()
            }
            BlockBody::Reply(words) | BlockBody::Thinking(words) => words.text.len(),
            BlockBody::CallCard(call) => {
                call.subject.len()
                    + call.command.as_ref().map_or(0, String::len)
                    + call.arguments.len()
                    + call.diff.as_ref().map_or(0, String::len)
                    + call.output.text.len()
                    + call.summary.len()
            }
            BlockBody::Ask(card) => {
                let subject = &card.ask.subject;
                subject.text.as_ref().map_or(0, String::len)
                    + subject.diff.as_ref().map_or(0, String::len)
                    + subject
                        .action
                        .as_ref()
                        .and_then(|action| action.command.as_ref())
                        .map_or(0, String::len)
            }
            BlockBody::Child(card) => card.status_text.len() + card.scope.len(),
            BlockBody::NoticeLine(notice) => notice.text.len(),
            BlockBody::RunEnd(ended) => ended.reason.len(),
        }
}
