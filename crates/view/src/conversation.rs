//! The conversation: entries and live events in, blocks and a standing out.
//!
//! Here: the door. What an entry does is in `entries` and what it names, what live news do in `live`, older pages in
//! `older`, the standing that a carry tells in `facts`.
//!
//! **Memory.** At most [`Conversation::BLOCKS`] blocks and [`Conversation::BYTES`] bytes of text are held. What grows at
//! the end pushes out the oldest quarter; [`Conversation::older`] then says from where it is to be read again. Of a
//! command's output the last [`crate::Tail::BYTES`] are held, of arguments the first 16 KiB, and a text that lies in a
//! blob is held by its beginning, if somebody gives it ([`Conversation::beginning`]).
//!
//! **Rewinding.** What a rewind took out of the context is taken out of the conversation: replies, thinking, calls,
//! answered questions and ends of runs that stood after it. Inputs stay and are marked [`crate::Saying::Left`], so that
//! one can see what was tried; children, alerts and changes of the configuration stay too, because a rewind undoes none
//! of them. A run that was rolled back only marks its inputs.
//!
//! Invariant: what was seen live and what is read from the log give the same blocks
//! (`live_and_replay_give_the_same_blocks`), and reading in pages the same as reading at once
//! (`pages_give_the_same_blocks_as_the_whole`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minke_protocol::{AlertEvent, Event, Frame, Greeting, Place, Snapshot};
use minke_record::{AskId, CallId, Entry, Millis, Position, QueueId, RunId, SessionId};

use crate::block::{Answered, Block, BlockId, Body, Notice, NoticeKind, Words};
use crate::standing::Standing;
use crate::store::{Blocks, size};
use crate::tell;

/// A session as a person reads it.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub(crate) blocks: Blocks,
    pub(crate) standing: Standing,
    pub(crate) fold: Fold,
    /// The last entry that was taken.
    head: Option<Position>,
    /// The oldest entry whose blocks are held.
    pub(crate) first: Option<u64>,
    /// Alerts that came before there was a conversation.
    early: VecDeque<AlertEvent>,
    /// Blocks that were given up after an entry changed them that is still held.
    pub(crate) late: VecDeque<Block>,
}

/// What later entries must find again. Everything in it goes when it is settled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    pub(crate) cwd: String,
    /// Calls without a result.
    pub(crate) calls: BTreeMap<CallId, BlockId>,
    /// Calls whose command goes on behind them.
    pub(crate) behind: BTreeMap<CallId, BlockId>,
    /// Calls that a rewind took out before they had a result.
    pub(crate) left: BTreeSet<CallId>,
    pub(crate) asks: BTreeMap<AskId, BlockId>,
    /// The newest card of each child.
    pub(crate) children: BTreeMap<SessionId, BlockId>,
    pub(crate) run: Option<Running>,
    /// The last run's end, if it was not finished.
    pub(crate) ended: Option<BlockId>,
    /// A run has begun or ended among the entries that were taken.
    pub(crate) ran: bool,
    /// Whether a run goes on is known from these entries.
    pub(crate) run_known: bool,
    /// What was spent is known from the beginning on.
    pub(crate) counted: bool,
    /// The input that was just taken out of the queue to steer.
    pub(crate) steered: Option<QueueId>,
    /// Requests under way, and whether what they say is part of the conversation.
    pub(crate) requests: BTreeMap<u64, bool>,
    /// The queue waits for the next run.
    pub(crate) held: bool,
    pub(crate) spent: f64,
    pub(crate) unpriced: u64,
    /// What each pod below has spent, in dollars.
    pub(crate) paid: BTreeMap<SessionId, f64>,
    /// How far the output of running commands was heard: by call and stream.
    pub(crate) heard: BTreeMap<CallId, BTreeMap<String, u64>>,
    /// Entries about something that stands in an older page: they are taken again when that page comes.
    pub(crate) loose: VecDeque<Entry>,
    pub(crate) loose_bytes: u64,
    /// The numbers of those that made a block, for want of the one they belong to.
    pub(crate) loose_at: BTreeSet<u64>,
    /// The first entry of a fork, until somebody has told what was said before it.
    pub(crate) forked: Option<Box<Entry>>,
}

/// The run that goes on.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) id: RunId,
    pub(crate) inputs: Vec<BlockId>,
    /// Its beginning stands in an older page.
    pub(crate) begun_before: bool,
}

impl Conversation {
    /// Blocks that are held at most.
    pub const BLOCKS: usize = 60_000;
    /// Bytes of their texts, about.
    pub const BYTES: usize = 64 * 1024 * 1024;

    pub fn new() -> Conversation {
        Conversation::default()
    }

    /// Takes whatever a pod sent. Replies and refusals are the asker's and change nothing here. `now` is the moment at
    /// which it came.
    pub fn frame(&mut self, frame: &Frame, now: Millis) {
        match (&frame.event, &frame.place) {
            (Event::Snapshot(snapshot), _) => self.snapshot(snapshot, now),
            (Event::Entry(event), _) => self.entry(&event.entry),
            // Made from the entry that follows.
            (_, Place::Logged { .. }) => {}
            (event, Place::Live { .. } | Place::One { .. }) => self.live(event, now),
        }
    }

    /// Takes an entry; one that was taken already changes nothing.
    pub fn entry(&mut self, entry: &Entry) {
        if self.head.is_some_and(|head| entry.seq <= head.seq) {
            return;
        }
        self.head = Some(Position { seq: entry.seq, h: entry.h });
        self.first.get_or_insert(entry.seq);
        self.take(entry);
        self.stay_bounded();
    }

    /// The blocks in the order in which they are read.
    pub fn blocks(&self) -> &[Block] {
        self.blocks.all()
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The last entry that was taken: what `since` of the next `hello` names.
    pub fn position(&self) -> Option<Position> {
        self.head
    }

    /// The lowest place in `blocks()` whose block is another than when this was last asked, or that has become free:
    /// everything from there on is to be looked at again (blocks whose id and version are the same have not changed).
    /// None if nothing has changed.
    pub fn changed(&mut self) -> Option<usize> {
        self.blocks.take_changed()
    }

    /// The oldest entry that is held, if there are older ones: a page that ends just before it can be given to
    /// [`Conversation::prepend`].
    pub fn older(&self) -> Option<u64> {
        self.first.filter(|first| *first > 0)
    }

    /// The beginning of a text that lies in a blob. What does not fit the block any more changes nothing.
    pub fn beginning(&mut self, id: BlockId, text: &str) {
        /// More of a text is for those who read the blob themselves.
        const BEGINNING_BYTES: usize = 64 * 1024;
        let (text, _) = text.split_at(text.floor_char_boundary(BEGINNING_BYTES));
        let fits = match self.blocks.body(id) {
            Some(Body::Reply(words) | Body::Thinking(words)) => {
                words.blob.is_some() && words.text.is_empty() && words.left_out >= text.len() as u64
            }
            _ => false,
        };
        if fits {
            self.blocks.change(id, |body| {
                if let Body::Reply(words) | Body::Thinking(words) = body {
                    words.left_out = words.left_out.saturating_sub(text.len() as u64);
                    text.clone_into(&mut words.text);
                }
            });
        }
    }

    /// A child's question was answered at the child itself, of which this log says nothing.
    pub fn answered_there(&mut self, ask: AskId, answer: Answered) {
        if let Some(id) = self.fold.asks.remove(&ask) {
            self.blocks.change(id, |body| {
                if let Body::Ask(card) = body {
                    card.answer = Some(answer);
                    card.closed = true;
                }
            });
        }
        self.count_asks();
    }

    fn snapshot(&mut self, snapshot: &Snapshot, now: Millis) {
        let goes_on = match snapshot.entries.first() {
            Some(entry) => self.head.is_some_and(|head| entry.seq == head.seq.saturating_add(1)),
            None => self.head == Some(snapshot.head),
        };
        if !goes_on {
            self.begin_again();
        }
        self.greet(&snapshot.greeting);
        for entry in &snapshot.entries {
            self.entry(entry);
        }
        self.first.get_or_insert(snapshot.head.seq.saturating_add(1));
        self.head.get_or_insert(snapshot.head);
        // Who greets knows what counts now; entries know what counted when they were written.
        self.standing.model.clone_from(&snapshot.greeting.model);
        self.standing.posture.clone_from(&snapshot.greeting.posture);
        self.standing.gone = false;
        self.standing.status = Some(snapshot.status.clone());
        self.standing.activity.clone_from(&snapshot.activity);
        self.standing.detail = None;
        self.standing.waiting.clone_from(&snapshot.waiting);
        self.in_flight(&snapshot.in_flight, now);
        for alert in std::mem::take(&mut self.early) {
            self.alert(&alert);
        }
    }

    /// Another log, or another end of this one: nothing that is held is true.
    fn begin_again(&mut self) {
        let (version, early) = (self.blocks.version, std::mem::take(&mut self.early));
        *self = Conversation::new();
        // What was drawn of a block of the same id is out of date.
        self.blocks.version = version;
        self.early = early;
        self.blocks.all_changed();
    }

    fn greet(&mut self, greeting: &Greeting) {
        self.fold.cwd.clone_from(&greeting.cwd);
        self.standing.name.clone_from(&greeting.pod_name);
        self.standing.model.clone_from(&greeting.model);
        self.standing.posture.clone_from(&greeting.posture);
        self.standing.tokens.window = greeting.context_window;
        if self.standing.tokens.context == 0 {
            self.standing.tokens.context = greeting.context_tokens;
        }
        self.standing.greeting = Some(greeting.clone());
    }

    /// An alert that stands in no log. It keeps its place.
    pub(crate) fn alert(&mut self, alert: &AlertEvent) {
        /// Alerts in one place: a pod keeps no more of them itself.
        const ALERTS: u32 = 512;
        /// So that they stand behind what the entry before them made.
        const ALERT_PARTS: u32 = 1 << 29;
        let Some(head) = self.head else {
            self.early.push_back(alert.clone());
            while self.early.len() > ALERTS as usize {
                self.early.pop_front();
            }
            return;
        };
        let last = self.blocks.settled().last().map(|block| block.id);
        let last = last.filter(|id| id.live && id.seq == head.seq).map(|id| id.part.saturating_add(1));
        // Where too many come without an entry between them, the newest takes the place of the one before it.
        let part = last.unwrap_or(ALERT_PARTS).min(ALERT_PARTS + ALERTS - 1);
        let text = tell::beginning(&alert.message, tell::NOTICE_BYTES);
        let body = Body::Notice(Notice { kind: NoticeKind::Alert(alert.level.clone()), text });
        self.blocks.put(BlockId { seq: head.seq, part, live: true }, alert.timestamp_ms, body);
        self.stay_bounded();
    }

    /// The number that the next entry will have.
    pub(crate) fn next_seq(&self) -> u64 {
        self.head.map_or(0, |head| head.seq.saturating_add(1))
    }

    /// The name of the pod above, if it is known.
    pub(crate) fn parent(&self) -> Option<&str> {
        self.standing.greeting.as_ref()?.parent.as_ref().map(minke_record::PodName::as_str)
    }

    fn stay_bounded(&mut self) {
        /// Blocks that were given up and would be read again without their end.
        const LATE: usize = 1_024;
        const LATE_BYTES: usize = 8 * 1024 * 1024;
        if self.blocks.all().len() <= Conversation::BLOCKS && self.blocks.bytes() <= Conversation::BYTES {
            return;
        }
        let (first, late) = self.blocks.give_up(self.blocks.settled().len() / 4);
        self.first = Some(first);
        self.late.extend(late);
        let mut bytes: usize = self.late.iter().map(|block| size(&block.body)).sum();
        while self.late.len() > LATE || bytes > LATE_BYTES {
            let Some(oldest) = self.late.pop_front() else { break };
            bytes -= size(&oldest.body);
        }
        // Whatever is about them from now on is about an older page.
        let fold = &mut self.fold;
        fold.calls.retain(|_, id| id.live || id.seq >= first);
        fold.behind.retain(|_, id| id.seq >= first);
        fold.asks.retain(|_, id| id.seq >= first);
        fold.children.retain(|_, id| id.seq >= first);
        fold.ended = fold.ended.filter(|id| id.seq >= first);
        fold.loose_at.retain(|seq| *seq >= first);
        fold.forked = fold.forked.take().filter(|entry| entry.seq >= first);
        if let Some(run) = &mut fold.run {
            let all = run.inputs.len();
            run.inputs.retain(|id| id.seq >= first);
            run.begun_before |= run.inputs.len() < all;
        }
    }
}

impl Words {
    pub(crate) fn whole(text: &minke_record::Text) -> Words {
        let (text, left_out, blob) = tell::held(text);
        Words { text: text.to_owned(), open: false, left_out, blob }
    }
}
