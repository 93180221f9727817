//! Older pages: entries before those that were read first.
//!
//! A page is folded separately and prepended. Entries about items in it (results of calls, answers, rewinds)
//! were stored as unmatched when they arrived. They are applied again after the page, and blocks that they
//! created without it are rebuilt. So the cost of a page depends only on its size, and nothing is read twice.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{CallId, Entry, Item};

use crate::block::{AskCard, Block, BlockBody, BlockId, CallCard, CallState};
use crate::block_store::RetainAction;
use crate::carry::FIRST_CARRY_PART;
use crate::conversation::{Conversation, ConversationState, FoldState};

/// Result of prepending a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrependResult {
    /// `blocks` blocks were prepended.
    Prepended { blocks: usize },
    /// The page does not end just before the oldest stored entry. Nothing was changed.
    DoesNotFit,
    /// The memory limit is reached. Nothing was changed. `minke log show` prints older entries.
    Full,
}

impl Conversation {
    /// Prepends a page of older entries in log order. It must end just before [`Conversation::older_seq`].
    pub fn prepend_page(&mut self, page: &[Entry]) -> PrependResult {
        let Some(first) = self.first_seq else { return PrependResult::DoesNotFit };
        if page.last().is_none_or(|last| last.seq.saturating_add(1) != first) {
            return PrependResult::DoesNotFit;
        }
        let before = self.fold_page(page);
        if self.is_over_limit(&before) {
            return PrependResult::Full;
        }
        let was = self.state.blocks.all_blocks().len();
        self.prepend_conversation(before, first);
        PrependResult::Prepended { blocks: self.state.blocks.all_blocks().len().saturating_sub(was) }
    }

    /// Returns whether this is a fork whose first entry is stored, while the history before the fork, which
    /// is in another log, is missing.
    pub fn needs_fork_history(&self) -> bool {
        self.state.fold.fork_entry.is_some()
    }

    /// Prepends the history before the fork. Changes nothing if the memory limit is reached.
    pub fn prepend_fork_history(&mut self, items: &[Item]) -> PrependResult {
        let Some(start) = self.state.fold.fork_entry.take() else { return PrependResult::DoesNotFit };
        let mut before = Conversation::new();
        before.state.blocks.version = self.state.blocks.version;
        before.state.fold.cwd.clone_from(&self.state.fold.cwd);
        before.state.add_imported(items, &start);
        if self.is_over_limit(&before) {
            return PrependResult::Full;
        }
        let blocks = before.state.blocks.all_blocks().len();
        self.state.blocks.prepend_blocks(before.state.blocks);
        PrependResult::Prepended { blocks }
    }

    fn is_over_limit(&self, before: &Conversation) -> bool {
        self.state.blocks.text_bytes().saturating_add(before.state.blocks.text_bytes())
            > Conversation::MAX_BYTES
            || self.state.blocks.all_blocks().len().saturating_add(before.state.blocks.all_blocks().len())
                > Conversation::MAX_BLOCKS
    }

    /// Folds the page separately, followed by the unmatched entries.
    fn fold_page(&self, page: &[Entry]) -> Conversation {
        let mut before = Conversation::new();
        before.state.blocks.version = self.state.blocks.version;
        before.state.fold.cwd.clone_from(&self.state.fold.cwd);
        before.state.status.greeting.clone_from(&self.state.status.greeting);
        // An even older page may have introduced the children.
        before.state.status.children.clone_from(&self.state.status.children);
        page.iter().for_each(|entry| before.apply_entry(entry));
        for block in &self.late_blocks {
            if before.state.blocks.body(block.id).is_none() {
                continue;
            }
            match &block.body {
                BlockBody::CallCard(call) if matches!(call.state, CallState::RunEndNotice(_)) => {
                    before.state.fold.calls.remove(&call.id);
                }
                BlockBody::Ask(card) if card.closed => {
                    before.state.fold.asks.remove(&card.ask.id);
                }
                _ => {}
            }
            before.state.blocks.put_block(block.id, block.ts, block.body.clone());
        }
        for entry in &self.state.fold.unmatched {
            before.state.apply_kind(entry);
        }
        before
    }

    fn prepend_conversation(&mut self, mut before: Conversation, first: u64) {
        let loose_at = std::mem::take(&mut self.state.fold.unmatched_seqs);
        let replaced = self.remove_unmatched(&loose_at, &before);
        let anew = before.state.blocks.retain_blocks(first, |_| RetainAction::Remove);
        for block in anew.into_iter().filter(|block| loose_at.contains(&block.id.seq)) {
            self.state.blocks.insert_settled(block);
        }
        if self.state.fold.saw_run {
            before.close_last_run(first);
        }
        let Conversation { state: ConversationState { blocks, fold, .. }, first_seq: oldest, .. } = before;
        self.late_blocks.retain(|block| blocks.body(block.id).is_none());
        self.state.blocks.prepend_blocks(blocks);
        self.first_seq = oldest;
        self.merge_fold(fold, &loose_at, first);
        replaced.apply_to(self);
    }

    /// Closes the last run of a page, because later entries began after it.
    fn close_last_run(&mut self, first: u64) {
        let Some(ended) = self.state.fold.last_end.take().filter(|id| id.seq < first) else { return };
        self.state.blocks.change_block(ended, |body| {
            if let BlockBody::RunEnd(ended) = body {
                ended.resumable = false;
            }
        });
    }

    /// Takes over the open items of a page, unless a later entry is known.
    fn merge_fold(&mut self, older: FoldState, loose_at: &BTreeSet<u64>, first: u64) {
        let fold = &mut self.state.fold;
        fold.calls.retain(|_, id| !loose_at.contains(&id.seq));
        for (call, id) in older.calls {
            fold.calls.entry(call).or_insert(id);
        }
        fold.background.retain(|_, id| !loose_at.contains(&id.seq));
        fold.background.extend(older.background.into_iter().filter(|(_, id)| id.seq >= first));
        for (ask, id) in older.asks.into_iter().filter(|(_, id)| id.seq < first) {
            if fold.asks.insert(ask, id).is_none() && !self.state.status.asks.contains(&ask) {
                self.state.status.asks.insert(0, ask);
            }
        }
        for (session, id) in older.children {
            fold.children.entry(session).or_insert(id);
        }
        fold.rewound.extend(older.rewound);
        fold.fork_entry = older.fork_entry.or(fold.fork_entry.take());
        fold.unmatched = older.unmatched;
        fold.unmatched_bytes = older.unmatched_bytes;
        // Blocks with complete information are not rebuilt from a page that knows less.
        fold.unmatched_seqs = older.unmatched_seqs;
        fold.unmatched_seqs.retain(|seq| *seq < first || loose_at.contains(seq));
        match (&mut fold.run, older.run) {
            (Some(run), Some(older)) if run.id == older.id => {
                run.inputs.splice(..0, older.inputs);
                run.started_before = older.started_before;
            }
            (run @ None, Some(older)) if !fold.saw_run => *run = Some(older),
            _ => {}
        }
        if !fold.saw_run {
            (fold.last_end, fold.saw_run) = (older.last_end, older.saw_run);
            fold.is_run_known |= older.is_run_known;
        }
    }

    /// Removes blocks that were created without the page.
    fn remove_unmatched(&mut self, loose_at: &BTreeSet<u64>, before: &Conversation) -> ReplacedBlocks {
        let mut replaced = ReplacedBlocks::default();
        let known: BTreeMap<_, BlockId> = before
            .state
            .blocks
            .settled_blocks()
            .iter()
            .filter_map(|block| match &block.body {
                BlockBody::Ask(card) => Some((card.ask.id, block.id)),
                _ => None,
            })
            .collect();
        let gone: Vec<Block> = self.state.blocks.retain_blocks(0, |block| {
            let again = matches!(&block.body, BlockBody::Ask(card) if known.contains_key(&card.ask.id));
            let loose = loose_at.contains(&block.id.seq) && !block.id.live;
            if loose || (again && block.id.part >= FIRST_CARRY_PART) {
                RetainAction::Remove
            } else {
                RetainAction::Keep
            }
        });
        for block in gone {
            match block.body {
                BlockBody::CallCard(call) => {
                    replaced.calls.insert(call.id.clone(), call);
                }
                BlockBody::Ask(card) if block.id.part >= FIRST_CARRY_PART => {
                    if let Some(id) = known.get(&card.ask.id) {
                        if let Some(open) = self.state.fold.asks.get_mut(&card.ask.id) {
                            *open = *id;
                        }
                        replaced.asks.push((*id, card));
                    }
                }
                _ => {}
            }
        }
        replaced
    }
}

/// State of blocks that replaced blocks of the page.
#[derive(Default)]
struct ReplacedBlocks {
    calls: BTreeMap<CallId, Box<CallCard>>,
    asks: Vec<(BlockId, Box<AskCard>)>,
}

impl ReplacedBlocks {
    fn apply_to(self, to: &mut Conversation) {
        for (call, running) in self.calls {
            let Some(id) = to.state.fold.calls.get(&call).copied() else { continue };
            to.state.blocks.change_block(id, |body| {
                if let BlockBody::CallCard(call) = body
                    && call.output.text.is_empty()
                    && !matches!(call.state, CallState::RunEndNotice(_))
                {
                    call.output = running.output;
                }
            });
        }
        for (id, card) in self.asks {
            to.state.blocks.change_block(id, |body| {
                if let BlockBody::Ask(known) = body {
                    known.answer = known.answer.take().or(card.answer);
                    known.closed |= card.closed;
                }
            });
        }
    }
}
