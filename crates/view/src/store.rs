//! The list of blocks: those with an entry behind them in the order of the log, then those that still come.
//!
//! Here: keeping that order, versions, what was touched since somebody last asked, how much is held. Elsewhere: what a
//! block says (`entries`, `live`).
//! Invariant: settled blocks are sorted by id and stand before live ones (`the_list_stays_in_order`).

use std::collections::BTreeMap;

use minke_record::Millis;

use crate::block::{Block, BlockId, Body};

#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    list: Vec<Block>,
    /// How many of them are settled.
    settled: usize,
    pub(crate) version: u64,
    /// The lowest place that was touched.
    changed: Option<usize>,
    bytes: usize,
    /// Blocks that an entry after their own has changed, and the newest such entry.
    touched: BTreeMap<BlockId, u64>,
    /// So that no two live blocks have one id.
    opened: u32,
}

impl Blocks {
    pub(crate) fn all(&self) -> &[Block] {
        &self.list
    }

    pub(crate) fn settled(&self) -> &[Block] {
        self.list.get(..self.settled).unwrap_or_default()
    }

    pub(crate) fn live(&self) -> &[Block] {
        self.list.get(self.settled..).unwrap_or_default()
    }

    /// Bytes of text that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The lowest place that was touched since this was last asked.
    pub(crate) fn take_changed(&mut self) -> Option<usize> {
        self.changed.take()
    }

    /// Nothing is as it was.
    pub(crate) fn all_changed(&mut self) {
        self.changed = Some(0);
    }

    fn mark(&mut self, at: usize) {
        self.changed = Some(self.changed.map_or(at, |was| was.min(at)));
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Puts a settled block in its place; one that has this id already is replaced.
    pub(crate) fn put(&mut self, id: BlockId, ts: Millis, body: Body) {
        let version = self.next_version();
        self.place(Block { id, version, ts, body });
    }

    /// Puts a settled block as it is.
    pub(crate) fn place(&mut self, block: Block) {
        self.bytes += size(&block.body);
        match self.settled().binary_search_by_key(&block.id, |known| known.id) {
            Ok(at) => {
                if let Some(known) = self.list.get_mut(at) {
                    self.bytes = self.bytes.saturating_sub(size(&known.body));
                    *known = block;
                }
                self.mark(at);
            }
            Err(at) => {
                self.list.insert(at, block);
                self.settled += 1;
                self.mark(at);
            }
        }
    }

    fn find(&self, id: BlockId) -> Option<usize> {
        match self.settled().binary_search_by_key(&id, |known| known.id) {
            Ok(at) => Some(at),
            Err(_) => {
                self.live().iter().position(|block| block.id == id).map(|at| at.saturating_add(self.settled))
            }
        }
    }

    pub(crate) fn body(&self, id: BlockId) -> Option<&Body> {
        self.find(id).and_then(|at| self.list.get(at)).map(|block| &block.body)
    }

    /// Changes a block. Gives whether it is there.
    pub(crate) fn change(&mut self, id: BlockId, change: impl FnOnce(&mut Body)) -> bool {
        let Some(at) = self.find(id) else { return false };
        let version = self.next_version();
        let Some(block) = self.list.get_mut(at) else { return false };
        let before = size(&block.body);
        change(&mut block.body);
        block.version = version;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(size(&block.body));
        self.mark(at);
        true
    }

    /// The same, because of an entry that is not the block's own.
    pub(crate) fn change_by(&mut self, id: BlockId, seq: u64, change: impl FnOnce(&mut Body)) -> bool {
        let there = self.change(id, change);
        if there {
            self.touched.insert(id, seq);
        }
        there
    }

    /// Begins a live block behind all others.
    pub(crate) fn open(&mut self, next_seq: u64, ts: Millis, body: Body) -> BlockId {
        let id = BlockId { seq: next_seq, part: self.opened, live: true };
        self.opened = self.opened.wrapping_add(1);
        let version = self.next_version();
        self.bytes += size(&body);
        self.list.push(Block { id, version, ts, body });
        self.mark(self.list.len() - 1);
        id
    }

    /// Takes a live block out: its entry has come, or it will not come to be.
    pub(crate) fn close(&mut self, id: BlockId) -> Option<Block> {
        let at = self.find(id).filter(|at| *at >= self.settled)?;
        let block = self.list.remove(at);
        self.bytes = self.bytes.saturating_sub(size(&block.body));
        self.mark(at);
        Some(block)
    }

    /// Takes all live blocks out.
    pub(crate) fn close_all(&mut self) -> Vec<Block> {
        let live: Vec<Block> = self.list.drain(self.settled..).collect();
        if !live.is_empty() {
            self.bytes = self.bytes.saturating_sub(live.iter().map(|block| size(&block.body)).sum());
            self.mark(self.settled);
        }
        live
    }

    /// Puts a live block back behind all others, changed or not.
    pub(crate) fn reopen(&mut self, mut block: Block) {
        block.version = self.next_version();
        self.bytes += size(&block.body);
        self.list.push(block);
        self.mark(self.list.len() - 1);
    }

    /// Looks at every settled block from an entry on: changes it or takes it out.
    pub(crate) fn sift(&mut self, from_seq: u64, mut keep: impl FnMut(&mut Block) -> Sifted) -> Vec<Block> {
        let first = self.settled().partition_point(|block| block.id.seq < from_seq);
        let rest = self.list.split_off(first);
        let (mut settled, mut gone) = (first, Vec::new());
        let last = self.settled;
        for (at, mut block) in (first..).zip(rest) {
            let before = size(&block.body);
            match if at < last { keep(&mut block) } else { Sifted::Same } {
                Sifted::Gone => {
                    self.bytes = self.bytes.saturating_sub(before);
                    self.touched.remove(&block.id);
                    self.mark(settled);
                    gone.push(block);
                    continue;
                }
                Sifted::Changed => {
                    block.version = self.next_version();
                    self.bytes = self.bytes.saturating_sub(before).saturating_add(size(&block.body));
                    self.mark(self.list.len());
                }
                Sifted::Same => {}
            }
            settled += usize::from(at < last);
            self.list.push(block);
        }
        self.settled = settled;
        gone
    }

    /// Gives up the oldest settled blocks, `count` of them: those that a later entry than the cut has changed are
    /// given back, because whoever reads their own entries again does not read that one.
    pub(crate) fn give_up(&mut self, count: usize) -> (u64, Vec<Block>) {
        let count = count.min(self.settled.saturating_sub(1));
        let cut = self.list.get(count).map_or(0, |block| block.id.seq);
        // Never between two blocks of one entry.
        let count = self.settled().partition_point(|block| block.id.seq < cut);
        let old: Vec<Block> = self.list.drain(..count).collect();
        self.settled -= count;
        self.bytes = self.bytes.saturating_sub(old.iter().map(|block| size(&block.body)).sum());
        self.changed = Some(0);
        let mut late = Vec::new();
        for block in old {
            if self.touched.remove(&block.id).is_some_and(|seq| seq >= cut) {
                late.push(block);
            }
        }
        (cut, late)
    }

    /// Puts older settled blocks before all others.
    pub(crate) fn put_before(&mut self, older: Blocks) {
        let Blocks { mut list, settled, version, bytes, touched, .. } = older;
        list.truncate(settled);
        self.settled += list.len();
        list.append(&mut self.list);
        self.list = list;
        self.version = self.version.max(version);
        self.bytes = self.bytes.saturating_add(bytes);
        self.touched.extend(touched);
        self.changed = Some(0);
    }
}

/// What becomes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sifted {
    Same,
    Changed,
    Gone,
}

/// What a block counts for: its texts, and something for the rest.
pub(crate) fn size(body: &Body) -> usize {
    const REST: usize = 256;
    REST + match body {
        Body::Said(said) => said.text.len() + said.chips.iter().map(String::len).sum::<usize>(),
        Body::Reply(words) | Body::Thinking(words) => words.text.len(),
        Body::Call(call) => {
            call.about.len()
                + call.command.as_ref().map_or(0, String::len)
                + call.arguments.len()
                + call.diff.as_ref().map_or(0, String::len)
                + call.output.text.len()
                + call.summary.len()
        }
        Body::Ask(card) => {
            let subject = &card.ask.subject;
            subject.text.as_ref().map_or(0, String::len)
                + subject.diff.as_ref().map_or(0, String::len)
                + subject.action.as_ref().and_then(|action| action.command.as_ref()).map_or(0, String::len)
        }
        Body::Child(card) => card.told.len() + card.scope.len(),
        Body::Notice(notice) => notice.text.len(),
        Body::Ended(ended) => ended.reason.len(),
    }
}
