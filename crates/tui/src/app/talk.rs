//! A session that is attached: its conversation, where one looks at it, and how the connection is.

use std::collections::BTreeSet;

use minke_protocol::{Frame, Status};
use minke_record::{AskId, AskKind, Millis, SessionId};
use minke_view::{AskCard, Block, BlockId, Body, Conversation, Standing};

use super::pane::{Pane, Shown};
use crate::paint::Theme;

/// Deaths of a pod within this time that are answered by starting it again.
const REJOINS: usize = 3;
const REJOINS_MS: Millis = 60_000;
/// How many blocks are opened by hand at once.
const OPENED: usize = 1_000;
/// Entries that one look further back brings.
pub(super) const PAGE: u64 = 500;

/// How it stands with the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wire {
    Joined,
    /// The pod has ended by itself or was stopped.
    Stopped,
    /// It was killed, or died; it is being started again.
    Again,
    /// It died too often.
    Dead,
}

pub(super) struct Talk {
    pub(super) session: SessionId,
    pub(super) name: String,
    pub(super) conversation: Conversation,
    pub(super) pane: Pane,
    pub(super) wire: Wire,
    /// The newest question that was seen.
    pub(super) asked: Option<AskId>,
    /// Nothing of it was seen yet.
    pub(super) fresh: bool,
    /// An older page is under way.
    pub(super) reading: bool,
    /// How many entries the next one is asked for: fewer, when so many did not fit a frame.
    pub(super) page: u64,
    /// No older page is taken any more: as much is held as may be.
    pub(super) full: bool,
    /// It was asked for what was said before the fork, and there is no answer yet.
    pub(super) asked_before: bool,
    /// It was asked for its status.
    pub(super) asked_status: bool,
    /// Texts that were asked for and have not come.
    pub(super) asked_texts: BTreeSet<BlockId>,
    toggled: BTreeSet<BlockId>,
    deaths: Vec<Millis>,
}

impl Talk {
    pub(super) fn new(session: SessionId, name: String) -> Talk {
        Talk {
            session,
            name,
            conversation: Conversation::new(),
            pane: Pane::default(),
            wire: Wire::Joined,
            asked: None,
            fresh: true,
            reading: false,
            page: PAGE,
            full: false,
            asked_before: false,
            asked_status: false,
            asked_texts: BTreeSet::new(),
            toggled: BTreeSet::new(),
            deaths: Vec::new(),
        }
    }

    pub(super) fn standing(&self) -> &Standing {
        self.conversation.standing()
    }

    pub(super) fn blocks(&self) -> &[Block] {
        self.conversation.blocks()
    }

    pub(super) fn is_joined(&self) -> bool {
        self.wire == Wire::Joined
    }

    pub(super) fn frame(&mut self, frame: &Frame, now: Millis) {
        self.conversation.frame(frame, now);
    }

    pub(super) fn status(&self) -> Option<&Status> {
        self.standing().status.as_ref()
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_joined() && self.status() == Some(&Status::Running)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_joined() && self.status() == Some(&Status::Paused)
    }

    pub(super) fn moves(&self) -> bool {
        self.is_running() || self.wire == Wire::Again || self.standing().retry.is_some()
    }

    /// The connection has ended. Says whether the pod is to be started again.
    pub(super) fn lost(&mut self, now: Millis) -> bool {
        if self.standing().gone {
            self.wire = Wire::Stopped;
            return false;
        }
        self.deaths.retain(|at| at + REJOINS_MS > now);
        self.deaths.push(now);
        let again = self.deaths.len() <= REJOINS;
        self.wire = if again { Wire::Again } else { Wire::Dead };
        again
    }

    fn asks(&self) -> impl DoubleEndedIterator<Item = &AskCard> {
        self.blocks().iter().filter_map(|block| match &block.body {
            Body::Ask(card) if card.answer.is_none() && !card.closed => Some(&**card),
            _ => None,
        })
    }

    pub(super) fn newest_ask(&self) -> Option<AskId> {
        self.asks().next_back().map(|card| card.ask.id)
    }

    pub(super) fn oldest_ask(&self) -> Option<AskId> {
        self.asks().next().map(|card| card.ask.id)
    }

    pub(super) fn open_asks(&self) -> usize {
        self.asks().count()
    }

    pub(super) fn is_open(&self, ask: AskId) -> bool {
        self.card(ask).is_some()
    }

    /// A question that is open.
    pub(super) fn card(&self, ask: AskId) -> Option<&AskCard> {
        self.asks().find(|card| card.ask.id == ask)
    }

    /// Whether an answer to it is a text.
    pub(super) fn wants_text(&self, ask: AskId) -> bool {
        self.card(ask).is_some_and(|card| card.ask.ask != AskKind::Approval)
    }

    pub(super) fn block_of(&self, ask: AskId) -> Option<BlockId> {
        let is_it = |block: &&Block| matches!(&block.body, Body::Ask(card) if card.ask.id == ask);
        self.blocks().iter().rfind(is_it).map(|block| block.id)
    }

    pub(super) fn has(&self, wanted: BlockId) -> bool {
        self.blocks().iter().any(|block| block.id == wanted)
    }

    pub(super) fn find(&self, wanted: BlockId) -> Option<&Block> {
        self.blocks().iter().find(|block| block.id == wanted)
    }

    /// The block before or after; without one, the last.
    pub(super) fn beside(&self, of: Option<BlockId>, forward: bool) -> Option<BlockId> {
        let blocks = self.blocks();
        let Some(at) = of.and_then(|of| blocks.iter().position(|block| block.id == of)) else {
            return blocks.last().map(|block| block.id);
        };
        let next = if forward { at.checked_add(1) } else { at.checked_sub(1) };
        next.and_then(|next| blocks.get(next)).map(|block| block.id)
    }

    pub(super) fn toggle(&mut self, block: BlockId) {
        if !self.toggled.remove(&block) {
            if self.toggled.len() >= OPENED {
                self.toggled.clear();
            }
            self.toggled.insert(block);
        }
    }

    /// What is done with the pane needs to know how blocks look.
    pub(super) fn with_pane<T>(&mut self, theme: &Theme, work: impl FnOnce(&mut Pane, &Shown<'_>) -> T) -> T {
        let toggled = &self.toggled;
        let open = |block: &Block| opens_by_itself(block) != toggled.contains(&block.id);
        let shown = Shown { blocks: self.conversation.blocks(), theme, open: &open };
        work(&mut self.pane, &shown)
    }
}

/// Questions that wait for an answer show everything.
fn opens_by_itself(block: &Block) -> bool {
    matches!(&block.body, Body::Ask(card) if card.answer.is_none() && !card.closed)
}
