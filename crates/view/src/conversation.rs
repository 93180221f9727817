//! The conversation: turns entries and live events into blocks and a session status.
//!
//! Module `apply` handles entries, `live_events` handles live events, `pages` prepends older pages, and
//! `carry` restores the status from a carry entry.
//!
//! **Memory.** The conversation stores at most [`Conversation::MAX_BLOCKS`] blocks and
//! [`Conversation::MAX_BYTES`] bytes of text. Beyond that it drops the oldest quarter;
//! [`Conversation::older_seq`] tells from where to read it again. It stores the last
//! [`crate::TextTail::BYTES`] of a command's output, the first 16 KiB of arguments, and of a text in a blob
//! only the first bytes that a client supplies ([`Conversation::set_text_start`]).
//!
//! **Rewinding.** A rewind removes later replies, thinking, calls, answered asks and run ends from the
//! conversation. Inputs remain and are marked [`crate::InputState::Rewound`], so that the user can see
//! earlier attempts. Children, alerts and configuration changes remain too, because a rewind does not undo
//! them. A rolled-back run only marks its inputs.
//!
//! Invariants: live events and the log produce the same blocks (`live_and_replay_give_the_same_blocks`), and
//! so do reading in pages and reading at once (`pages_give_the_same_blocks_as_the_whole`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minke_protocol::{AlertEvent, Event, EventPosition, Frame, Greeting, Snapshot, StatusReply};
use minke_record::{AlertLevel, AskId, CallId, Entry, Millis, Position, QueueId, RunId, SessionId};

use crate::block::{AskResponse, Block, BlockBody, BlockId, NoticeKind, NoticeLine, StreamedText};
use crate::block_store::{BlockStore, body_bytes};
use crate::format;
use crate::status::{ChildRow, SessionStatus};

/// A session as the user reads it.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub(crate) state: ConversationState,
    /// The last applied entry.
    head: Option<Position>,
    /// The oldest entry whose blocks are stored.
    pub(crate) first_seq: Option<u64>,
    /// Alerts that arrived before the first entry.
    early_alerts: VecDeque<AlertEvent>,
    /// Dropped blocks that were changed by an entry which is still stored.
    pub(crate) late_blocks: VecDeque<Block>,
}

/// The fold of the stored entries: blocks, status, and open items. Each kind of entry changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConversationState {
    pub(crate) blocks: BlockStore,
    pub(crate) status: SessionStatus,
    pub(crate) fold: FoldState,
}

/// State that later entries need. Each item is removed when it is settled.
#[derive(Debug, Clone, Default)]
pub(crate) struct FoldState {
    pub(crate) cwd: String,
    /// Calls without a result.
    pub(crate) calls: BTreeMap<CallId, BlockId>,
    /// Ended calls whose command is still running.
    pub(crate) background: BTreeMap<CallId, BlockId>,
    /// Calls that a rewind removed before they had a result.
    pub(crate) rewound: BTreeSet<CallId>,
    pub(crate) asks: BTreeMap<AskId, BlockId>,
    /// The newest card of each child.
    pub(crate) children: BTreeMap<SessionId, BlockId>,
    pub(crate) run: Option<ActiveRun>,
    /// The end of the last run, if it was not completed.
    pub(crate) last_end: Option<BlockId>,
    /// An applied entry has started or ended a run.
    pub(crate) saw_run: bool,
    /// The entries tell whether a run is active.
    pub(crate) is_run_known: bool,
    /// The cost is known from the first entry on.
    pub(crate) is_cost_complete: bool,
    /// The input that was just taken out of the queue for steering.
    pub(crate) steering: Option<QueueId>,
    /// Open model requests, and whether their replies are part of the conversation.
    pub(crate) open_requests: BTreeMap<u64, bool>,
    /// The queue waits for the next run.
    pub(crate) queue_held: bool,
    pub(crate) spent_usd: f64,
    pub(crate) unpriced: u64,
    /// Cost of each descendant in dollars.
    pub(crate) children_cost: BTreeMap<SessionId, f64>,
    /// Received output offset of each running command, by call and stream.
    pub(crate) output_offsets: BTreeMap<CallId, BTreeMap<String, u64>>,
    /// Entries about items in an older page. They are applied again when that page arrives.
    pub(crate) unmatched: VecDeque<Entry>,
    pub(crate) unmatched_bytes: u64,
    /// Numbers of the entries that created a block because their own item is in an older page.
    pub(crate) unmatched_seqs: BTreeSet<u64>,
    /// First entry of a fork, until the history before the fork is prepended.
    pub(crate) fork_entry: Option<Box<Entry>>,
}

/// The active run.
#[derive(Debug, Clone)]
pub(crate) struct ActiveRun {
    pub(crate) id: RunId,
    pub(crate) inputs: Vec<BlockId>,
    /// The run started in an older page.
    pub(crate) started_before: bool,
}

impl Conversation {
    /// Limit for stored blocks.
    pub const MAX_BLOCKS: usize = 60_000;
    /// Approximate limit for the texts of the blocks.
    pub const MAX_BYTES: usize = 64 * 1024 * 1024;

    pub fn new() -> Conversation {
        Conversation::default()
    }

    /// Applies a frame from a pod. Replies and refusals belong to the caller and are ignored. `now` is the
    /// time of arrival.
    pub fn apply_frame(&mut self, frame: &Frame, now: Millis) {
        match (&frame.event, &frame.position) {
            (Event::Snapshot(snapshot), _) => self.apply_snapshot(snapshot, now),
            (Event::Entry(event), _) => self.apply_entry(&event.entry),
            // The entry follows in a frame of its own.
            (_, EventPosition::Logged { .. }) => {}
            (event, EventPosition::Live { .. } | EventPosition::Direct { .. }) => self.apply_live(event, now),
        }
    }

    /// Applies an entry. An entry that was applied before is ignored.
    pub fn apply_entry(&mut self, entry: &Entry) {
        if self.head.is_some_and(|head| entry.seq <= head.seq) {
            return;
        }
        self.head = Some(Position { seq: entry.seq, h: entry.h });
        self.first_seq.get_or_insert(entry.seq);
        self.state.apply_kind(entry);
        self.drop_oldest();
    }

    /// Returns the blocks in reading order.
    pub fn blocks(&self) -> &[Block] {
        self.state.blocks.all_blocks()
    }

    pub fn status(&self) -> &SessionStatus {
        &self.state.status
    }

    /// Returns the position of the last applied entry, for `since` of the next `hello`.
    pub fn position(&self) -> Option<Position> {
        self.head
    }

    /// Returns the lowest index in `blocks()` that has changed or become free since the last call. The caller
    /// must check everything from there on; blocks with the same id and version are unchanged. Returns `None`
    /// if nothing has changed.
    pub fn take_changed(&mut self) -> Option<usize> {
        self.state.blocks.take_changed()
    }

    /// Returns the oldest stored entry if older ones exist. A page that ends just before it can be passed to
    /// [`Conversation::prepend_page`].
    pub fn older_seq(&self) -> Option<u64> {
        self.first_seq.filter(|first| *first > 0)
    }

    /// Sets the first bytes of a text that is stored in a blob. Ignored if the block has changed meanwhile.
    pub fn set_text_start(&mut self, id: BlockId, text: &str) {
        /// Limit for the stored start of a text. Readers can fetch the rest from the blob.
        const START_BYTES: usize = 64 * 1024;
        let text = minke_text::cut_to_bytes(text, START_BYTES);
        let fits = match self.state.blocks.body(id) {
            Some(BlockBody::Reply(words) | BlockBody::Thinking(words)) => {
                words.blob.is_some() && words.text.is_empty() && words.omitted_bytes >= text.len() as u64
            }
            _ => false,
        };
        if fits {
            self.state.blocks.change_block(id, |body| {
                if let BlockBody::Reply(words) | BlockBody::Thinking(words) = body {
                    words.omitted_bytes = words.omitted_bytes.saturating_sub(text.len() as u64);
                    text.clone_into(&mut words.text);
                }
            });
        }
    }

    /// Records that a child's ask was answered at the child, which this log does not contain.
    pub fn set_child_answer(&mut self, ask: AskId, answer: AskResponse) {
        if let Some(id) = self.state.fold.asks.remove(&ask) {
            self.state.blocks.change_block(id, |body| {
                if let BlockBody::Ask(card) = body {
                    card.answer = Some(answer);
                    card.closed = true;
                }
            });
        }
        self.state.update_open_asks();
    }

    fn apply_snapshot(&mut self, snapshot: &Snapshot, now: Millis) {
        let goes_on = match snapshot.entries.first() {
            Some(entry) => self.head.is_some_and(|head| entry.seq == head.seq.saturating_add(1)),
            None => self.head == Some(snapshot.head),
        };
        if !goes_on {
            self.reset_log();
        }
        self.apply_greeting(&snapshot.greeting);
        for entry in &snapshot.entries {
            self.apply_entry(entry);
        }
        self.first_seq.get_or_insert(snapshot.head.seq.saturating_add(1));
        self.head.get_or_insert(snapshot.head);
        // The greeting has the current values; entries have those of the time at which they were written.
        self.state.status.model.clone_from(&snapshot.greeting.model);
        self.state.status.posture.clone_from(&snapshot.greeting.posture);
        self.state.status.has_stopped = false;
        self.state.status.status = Some(snapshot.status.clone());
        self.state.status.activity.clone_from(&snapshot.activity);
        self.state.status.detail = None;
        self.state.status.waiting.clone_from(&snapshot.waiting);
        self.apply_in_flight(&snapshot.in_flight, now);
        for alert in std::mem::take(&mut self.early_alerts) {
            self.add_alert(&alert);
        }
    }

    /// Drops everything, because the client reads another log or another end of it.
    fn reset_log(&mut self) {
        let (version, early) = (self.state.blocks.version, std::mem::take(&mut self.early_alerts));
        *self = Conversation::new();
        // Invalidates lines that were rendered from a block with the same id.
        self.state.blocks.version = version;
        self.early_alerts = early;
        self.state.blocks.mark_all_changed();
    }

    fn apply_greeting(&mut self, greeting: &Greeting) {
        self.state.fold.cwd.clone_from(&greeting.cwd);
        self.state.status.name.clone_from(&greeting.pod_name);
        self.state.status.model.clone_from(&greeting.model);
        self.state.status.posture.clone_from(&greeting.posture);
        self.state.status.tokens.context_window = greeting.context_window;
        if self.state.status.tokens.context_tokens == 0 {
            self.state.status.tokens.context_tokens = greeting.context_tokens;
        }
        self.state.status.greeting = Some(greeting.clone());
    }

    /// Adds an alert that is not in the log. It keeps its position.
    pub(crate) fn add_alert(&mut self, alert: &AlertEvent) {
        /// Limit for alerts at one position. A pod keeps no more either.
        const MAX_ALERTS: u32 = 512;
        /// Sorts alerts behind the blocks of the preceding entry.
        const FIRST_ALERT_PART: u32 = 1 << 29;
        let Some(head) = self.head else {
            self.early_alerts.push_back(alert.clone());
            while self.early_alerts.len() > MAX_ALERTS as usize {
                self.early_alerts.pop_front();
            }
            return;
        };
        let last = self.state.blocks.settled_blocks().last().map(|block| block.id);
        let last = last.filter(|id| id.live && id.seq == head.seq).map(|id| id.part.saturating_add(1));
        // With too many alerts between two entries, the newest replaces its predecessor.
        let part = last.unwrap_or(FIRST_ALERT_PART).min(FIRST_ALERT_PART + MAX_ALERTS - 1);
        let text = format::truncate_text(&alert.message, format::MAX_NOTICE_BYTES);
        let body = BlockBody::NoticeLine(NoticeLine { kind: NoticeKind::Alert(alert.level.clone()), text });
        self.state.blocks.put_block(BlockId { seq: head.seq, part, live: true }, alert.timestamp_ms, body);
        self.drop_oldest();
    }

    /// Returns the number of the next entry.
    pub(crate) fn next_seq(&self) -> u64 {
        self.head.map_or(0, |head| head.seq.saturating_add(1))
    }

    fn drop_oldest(&mut self) {
        /// Limit for blocks that were dropped and would be read again without their end.
        const MAX_LATE_BLOCKS: usize = 1_024;
        const MAX_LATE_BYTES: usize = 8 * 1024 * 1024;
        if self.state.blocks.all_blocks().len() <= Conversation::MAX_BLOCKS
            && self.state.blocks.text_bytes() <= Conversation::MAX_BYTES
        {
            return;
        }
        let (first, late) = self.state.blocks.drop_oldest(self.state.blocks.settled_blocks().len() / 4);
        self.first_seq = Some(first);
        self.late_blocks.extend(late);
        let mut bytes: usize = self.late_blocks.iter().map(|block| body_bytes(&block.body)).sum();
        while self.late_blocks.len() > MAX_LATE_BLOCKS || bytes > MAX_LATE_BYTES {
            let Some(oldest) = self.late_blocks.pop_front() else { break };
            bytes -= body_bytes(&oldest.body);
        }
        // Later entries about these items refer to an older page.
        let fold = &mut self.state.fold;
        fold.calls.retain(|_, id| id.live || id.seq >= first);
        fold.background.retain(|_, id| id.seq >= first);
        fold.asks.retain(|_, id| id.seq >= first);
        fold.children.retain(|_, id| id.seq >= first);
        fold.last_end = fold.last_end.filter(|id| id.seq >= first);
        fold.unmatched_seqs.retain(|seq| *seq >= first);
        fold.fork_entry = fold.fork_entry.take().filter(|entry| entry.seq >= first);
        if let Some(run) = &mut fold.run {
            let all = run.inputs.len();
            run.inputs.retain(|id| id.seq >= first);
            run.started_before |= run.inputs.len() < all;
        }
    }

    /// Adds a warning of the conversation itself.
    pub(crate) fn add_warning(&mut self, message: &str, now: minke_record::Millis) {
        self.add_alert(&minke_protocol::AlertEvent {
            level: AlertLevel::Warn,
            source: minke_record::AlertSource::Pod,
            message: message.to_owned(),
            timestamp_ms: now,
        });
    }

    /// Returns whether the entries begin after the last facts, so that the earlier cost is unknown. This
    /// happens when a pod greets with the end of a long segment. The pod's `status` then tells the cost.
    pub fn is_partial(&self) -> bool {
        self.position().is_some() && !self.state.fold.is_cost_complete
    }

    /// Applies a pod's status. Returns false and changes nothing if the status belongs to another position.
    pub fn apply_pod_status(&mut self, status: &StatusReply) -> bool {
        if self.position() != Some(status.head) {
            return false;
        }
        self.state.fold.is_cost_complete = true;
        self.state.set_usage(&status.usage);
        for row in &status.children {
            if !self.state.status.children.iter().any(|known| known.session == row.session) {
                let (status_text, outcome) = ("running".to_owned(), None);
                let child =
                    ChildRow { session: row.session, name: row.name.clone(), status_text, outcome, asks: 0 };
                self.state.status.children.push(child);
            }
        }
        true
    }
}

impl StreamedText {
    pub(crate) fn complete_text(text: &minke_record::Text) -> StreamedText {
        let (text, omitted_bytes, blob) = format::stored_text(text);
        StreamedText { text: text.to_owned(), open: false, omitted_bytes, blob }
    }
}
