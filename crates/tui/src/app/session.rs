//! An attached session: its conversation, the scroll position and the connection.

use std::collections::BTreeSet;

use minke_protocol::{Frame, Status};
use minke_record::{AskId, AskKind, Millis, SessionId};
use minke_view::{AskCard, Block, BlockBody, BlockId, Conversation, SessionStatus};

use super::views::conversation::{ConversationPane, PaneContent};
use crate::paint::Theme;

/// Number of crashes within the time window after which the pod is not restarted.
const MAX_REJOINS: usize = 3;
const REJOIN_WINDOW_MS: Millis = 60_000;
/// Limit for blocks that the user has opened.
const MAX_TOGGLED: usize = 1_000;
/// Entries of one older page.
pub(super) const PAGE_ENTRIES: u64 = 500;

/// The state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Joined,
    /// The pod has ended or was stopped.
    Stopped,
    /// The pod has crashed and is being restarted.
    Restarting,
    /// The pod has crashed too often.
    Failed,
}

pub(super) struct AttachedSession {
    pub(super) session: SessionId,
    pub(super) name: String,
    pub(super) conversation: Conversation,
    pub(super) pane: ConversationPane,
    pub(super) connection: ConnectionState,
    /// The newest ask that was shown.
    pub(super) newest_seen_ask: Option<AskId>,
    /// The session has not been shown yet.
    pub(super) is_fresh: bool,
    /// An older page is being loaded.
    pub(super) is_reading_page: bool,
    /// Entries per page; reduced if a page does not fit a frame.
    pub(super) page_size: u64,
    /// The memory limit is reached; no older pages are loaded.
    pub(super) is_full: bool,
    /// The history before the fork was requested.
    pub(super) requested_fork_history: bool,
    /// The status was requested.
    pub(super) requested_status: bool,
    /// Requested texts that have not arrived.
    pub(super) requested_texts: BTreeSet<BlockId>,
    toggled: BTreeSet<BlockId>,
    deaths: Vec<Millis>,
}

impl AttachedSession {
    pub(super) fn new(session: SessionId, name: String) -> AttachedSession {
        AttachedSession {
            session,
            name,
            conversation: Conversation::new(),
            pane: ConversationPane::default(),
            connection: ConnectionState::Joined,
            newest_seen_ask: None,
            is_fresh: true,
            is_reading_page: false,
            page_size: PAGE_ENTRIES,
            is_full: false,
            requested_fork_history: false,
            requested_status: false,
            requested_texts: BTreeSet::new(),
            toggled: BTreeSet::new(),
            deaths: Vec::new(),
        }
    }

    pub(super) fn session_status(&self) -> &SessionStatus {
        self.conversation.status()
    }

    pub(super) fn session_blocks(&self) -> &[Block] {
        self.conversation.blocks()
    }

    pub(super) fn is_joined(&self) -> bool {
        self.connection == ConnectionState::Joined
    }

    pub(super) fn apply_frame(&mut self, frame: &Frame, now: Millis) {
        self.conversation.apply_frame(frame, now);
    }

    pub(super) fn pod_status(&self) -> Option<&Status> {
        self.session_status().status.as_ref()
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_joined() && self.pod_status() == Some(&Status::Running)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_joined() && self.pod_status() == Some(&Status::Paused)
    }

    pub(super) fn is_animated(&self) -> bool {
        self.is_running()
            || self.connection == ConnectionState::Restarting
            || self.session_status().retry.is_some()
    }

    /// Records a disconnect. Returns whether to restart the pod.
    pub(super) fn record_disconnect(&mut self, now: Millis) -> bool {
        if self.session_status().has_stopped {
            self.connection = ConnectionState::Stopped;
            return false;
        }
        self.deaths.retain(|at| at + REJOIN_WINDOW_MS > now);
        self.deaths.push(now);
        let again = self.deaths.len() <= MAX_REJOINS;
        self.connection = if again { ConnectionState::Restarting } else { ConnectionState::Failed };
        again
    }

    fn open_ask_cards(&self) -> impl DoubleEndedIterator<Item = &AskCard> {
        self.session_blocks().iter().filter_map(|block| match &block.body {
            BlockBody::Ask(card) if card.answer.is_none() && !card.closed => Some(&**card),
            _ => None,
        })
    }

    pub(super) fn newest_ask(&self) -> Option<AskId> {
        self.open_ask_cards().next_back().map(|card| card.ask.id)
    }

    pub(super) fn oldest_ask(&self) -> Option<AskId> {
        self.open_ask_cards().next().map(|card| card.ask.id)
    }

    pub(super) fn open_ask_count(&self) -> usize {
        self.open_ask_cards().count()
    }

    pub(super) fn is_ask_open(&self, ask: AskId) -> bool {
        self.ask_card(ask).is_some()
    }

    /// Returns an open ask.
    pub(super) fn ask_card(&self, ask: AskId) -> Option<&AskCard> {
        self.open_ask_cards().find(|card| card.ask.id == ask)
    }

    /// Returns whether the answer is a text.
    pub(super) fn needs_text_answer(&self, ask: AskId) -> bool {
        self.ask_card(ask).is_some_and(|card| card.ask.ask != AskKind::Approval)
    }

    pub(super) fn ask_block(&self, ask: AskId) -> Option<BlockId> {
        let is_it = |block: &&Block| matches!(&block.body, BlockBody::Ask(card) if card.ask.id == ask);
        self.session_blocks().iter().rfind(is_it).map(|block| block.id)
    }

    pub(super) fn has_block(&self, target: BlockId) -> bool {
        self.session_blocks().iter().any(|block| block.id == target)
    }

    pub(super) fn find_block(&self, wanted: BlockId) -> Option<&Block> {
        self.session_blocks().iter().find(|block| block.id == wanted)
    }

    /// Returns the block before or after; without one, the last.
    pub(super) fn neighbour_block(&self, of: Option<BlockId>, forward: bool) -> Option<BlockId> {
        let blocks = self.session_blocks();
        let Some(at) = of.and_then(|of| blocks.iter().position(|block| block.id == of)) else {
            return blocks.last().map(|block| block.id);
        };
        let next = if forward { at.checked_add(1) } else { at.checked_sub(1) };
        next.and_then(|next| blocks.get(next)).map(|block| block.id)
    }

    pub(super) fn toggle_block(&mut self, block: BlockId) {
        if !self.toggled.remove(&block) {
            if self.toggled.len() >= MAX_TOGGLED {
                self.toggled.clear();
            }
            self.toggled.insert(block);
        }
    }

    /// Calls a function with the pane and the display settings of blocks.
    pub(super) fn with_pane<T>(
        &mut self,
        theme: &Theme,
        work: impl FnOnce(&mut ConversationPane, &PaneContent<'_>) -> T,
    ) -> T {
        let toggled = &self.toggled;
        let open = |block: &Block| is_open_by_default(block) != toggled.contains(&block.id);
        let visible = PaneContent { blocks: self.conversation.blocks(), theme, open: &open };
        work(&mut self.pane, &visible)
    }
}

/// Returns whether a block is open by default; open asks are.
fn is_open_by_default(block: &Block) -> bool {
    matches!(&block.body, BlockBody::Ask(card) if card.answer.is_none() && !card.closed)
}
