//! Older pages: entries that stand before those that were read first.
//!
//! A page is folded by itself and put before what is held. Entries about something in it (the result of a call, the
//! answer to a question, a rewind) were taken for loose when they came; they are taken again behind the page, and what
//! they made for want of it is made anew. So a page costs what it holds, and nothing is read twice.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{CallId, Entry, Item};

use crate::block::{AskCard, Block, BlockId, Body, Call, CallState};
use crate::conversation::{Conversation, Fold};
use crate::facts::CARRIED;
use crate::store::Sifted;

/// What became of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepended {
    /// So many blocks stand before those that were there.
    Taken { blocks: usize },
    /// It does not end just before what is held: nothing was changed.
    DoesNotFit,
    /// As much is held as may be: nothing was changed. What is older is for `minke log show`.
    Full,
}

impl Conversation {
    /// Takes a page of older entries, in their order; it must end just before [`Conversation::older`].
    pub fn prepend(&mut self, page: &[Entry]) -> Prepended {
        let Some(first) = self.first else { return Prepended::DoesNotFit };
        if page.last().is_none_or(|last| last.seq.saturating_add(1) != first) {
            return Prepended::DoesNotFit;
        }
        let before = self.older_page(page);
        if self.has_no_room_for(&before) {
            return Prepended::Full;
        }
        let was = self.blocks.all().len();
        self.join(before, first);
        Prepended::Taken { blocks: self.blocks.all().len().saturating_sub(was) }
    }

    /// Whether this is a fork whose beginning is held, and nobody has told yet what was said before it: that stands in
    /// another log.
    pub fn forked(&self) -> bool {
        self.fold.forked.is_some()
    }

    /// Takes what was said before the fork, in its order. Where as much is held as may be, nothing is changed.
    pub fn before(&mut self, items: &[Item]) -> Prepended {
        let Some(start) = self.fold.forked.take() else { return Prepended::DoesNotFit };
        let mut before = Conversation::new();
        before.blocks.version = self.blocks.version;
        before.fold.cwd.clone_from(&self.fold.cwd);
        before.imported(items, &start);
        if self.has_no_room_for(&before) {
            return Prepended::Full;
        }
        let blocks = before.blocks.all().len();
        self.blocks.put_before(before.blocks);
        Prepended::Taken { blocks }
    }

    fn has_no_room_for(&self, before: &Conversation) -> bool {
        self.blocks.bytes().saturating_add(before.blocks.bytes()) > Conversation::BYTES
            || self.blocks.all().len().saturating_add(before.blocks.all().len()) > Conversation::BLOCKS
    }

    /// The page folded by itself, and behind it what was loose here.
    fn older_page(&self, page: &[Entry]) -> Conversation {
        let mut before = Conversation::new();
        before.blocks.version = self.blocks.version;
        before.fold.cwd.clone_from(&self.fold.cwd);
        before.standing.greeting.clone_from(&self.standing.greeting);
        // Who is a child may stand in a page that is older still.
        before.standing.children.clone_from(&self.standing.children);
        page.iter().for_each(|entry| before.entry(entry));
        for block in &self.late {
            if before.blocks.body(block.id).is_none() {
                continue;
            }
            match &block.body {
                Body::Call(call) if matches!(call.state, CallState::Ended(_)) => {
                    before.fold.calls.remove(&call.id);
                }
                Body::Ask(card) if card.closed => {
                    before.fold.asks.remove(&card.ask.id);
                }
                _ => {}
            }
            before.blocks.put(block.id, block.ts, block.body.clone());
        }
        for entry in &self.fold.loose {
            before.take(entry);
        }
        before
    }

    fn join(&mut self, mut before: Conversation, first: u64) {
        let loose_at = std::mem::take(&mut self.fold.loose_at);
        let replaced = self.take_out(&loose_at, &before);
        let anew = before.blocks.sift(first, |_| Sifted::Gone);
        for block in anew.into_iter().filter(|block| loose_at.contains(&block.id.seq)) {
            self.blocks.place(block);
        }
        if self.fold.ran {
            before.last_run_is_over(first);
        }
        let Conversation { blocks, fold, first: oldest, .. } = before;
        self.late.retain(|block| blocks.body(block.id).is_none());
        self.blocks.put_before(blocks);
        self.first = oldest;
        self.take_over(fold, &loose_at, first);
        replaced.hand_over(self);
    }

    /// A page is over before what follows it began.
    fn last_run_is_over(&mut self, first: u64) {
        let Some(ended) = self.fold.ended.take().filter(|id| id.seq < first) else { return };
        self.blocks.change(ended, |body| {
            if let Body::Ended(ended) = body {
                ended.resumable = false;
            }
        });
    }

    /// What a page leaves open is open here, unless it is known better.
    fn take_over(&mut self, older: Fold, loose_at: &BTreeSet<u64>, first: u64) {
        let fold = &mut self.fold;
        fold.calls.retain(|_, id| !loose_at.contains(&id.seq));
        for (call, id) in older.calls {
            fold.calls.entry(call).or_insert(id);
        }
        fold.behind.retain(|_, id| !loose_at.contains(&id.seq));
        fold.behind.extend(older.behind.into_iter().filter(|(_, id)| id.seq >= first));
        for (ask, id) in older.asks.into_iter().filter(|(_, id)| id.seq < first) {
            if fold.asks.insert(ask, id).is_none() && !self.standing.asks.contains(&ask) {
                self.standing.asks.insert(0, ask);
            }
        }
        for (session, id) in older.children {
            fold.children.entry(session).or_insert(id);
        }
        fold.left.extend(older.left);
        fold.forked = older.forked.or(fold.forked.take());
        fold.loose = older.loose;
        fold.loose_bytes = older.loose_bytes;
        // What was made here with all that it needs is not made anew because a page knows less.
        fold.loose_at = older.loose_at;
        fold.loose_at.retain(|seq| *seq < first || loose_at.contains(seq));
        match (&mut fold.run, older.run) {
            (Some(run), Some(older)) if run.id == older.id => {
                run.inputs.splice(..0, older.inputs);
                run.begun_before = older.begun_before;
            }
            (run @ None, Some(older)) if !fold.ran => *run = Some(older),
            _ => {}
        }
        if !fold.ran {
            (fold.ended, fold.ran) = (older.ended, older.ran);
            fold.run_known |= older.run_known;
        }
    }

    /// Takes out what was made for want of the page.
    fn take_out(&mut self, loose_at: &BTreeSet<u64>, before: &Conversation) -> Replaced {
        let mut replaced = Replaced::default();
        let known: BTreeMap<_, BlockId> = before
            .blocks
            .settled()
            .iter()
            .filter_map(|block| match &block.body {
                Body::Ask(card) => Some((card.ask.id, block.id)),
                _ => None,
            })
            .collect();
        let gone: Vec<Block> = self.blocks.sift(0, |block| {
            let again = matches!(&block.body, Body::Ask(card) if known.contains_key(&card.ask.id));
            let loose = loose_at.contains(&block.id.seq) && !block.id.live;
            if loose || (again && block.id.part >= CARRIED) { Sifted::Gone } else { Sifted::Same }
        });
        for block in gone {
            match block.body {
                Body::Call(call) => {
                    replaced.calls.insert(call.id.clone(), call);
                }
                Body::Ask(card) if block.id.part >= CARRIED => {
                    if let Some(id) = known.get(&card.ask.id) {
                        if let Some(open) = self.fold.asks.get_mut(&card.ask.id) {
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

/// What stood in for blocks of the page and knew something of its own.
#[derive(Default)]
struct Replaced {
    calls: BTreeMap<CallId, Box<Call>>,
    asks: Vec<(BlockId, Box<AskCard>)>,
}

impl Replaced {
    fn hand_over(self, to: &mut Conversation) {
        for (call, running) in self.calls {
            let Some(id) = to.fold.calls.get(&call).copied() else { continue };
            to.blocks.change(id, |body| {
                if let Body::Call(call) = body
                    && call.output.text.is_empty()
                    && !matches!(call.state, CallState::Ended(_))
                {
                    call.output = running.output;
                }
            });
        }
        for (id, card) in self.asks {
            to.blocks.change(id, |body| {
                if let Body::Ask(known) = body {
                    known.answer = known.answer.take().or(card.answer);
                    known.closed |= card.closed;
                }
            });
        }
    }
}
