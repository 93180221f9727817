//! Release queue: holds everything that leaves the event loop until the entries it depends on are synced.
//!
//! Here: one queue of events, in which an item that waits for a sync holds back all later ones; and replies
//! and effects, which wait for their own step. Elsewhere: the event stream (`stream`), the sync (`log`).
//! Invariant: nothing is shown, acknowledged or performed before the entry it depends on is synced; lazy
//! entries and live events are shown when they are written
//! (`nothing_is_shown_acknowledged_or_done_before_it_is_synced`).

use std::collections::VecDeque;
use std::sync::Arc;

use minke_pod::Effect;
use minke_protocol::{Event, EventPosition, Frame, Refusal, ReplyData, encode_event};
use minke_record::{Kind, RunId};
use minke_registry::PodStatus;
use minke_session::SealedEntry;

use crate::clients::stream::{PodEventStream, StreamPiece};
use crate::clients::{ClientConnection, ClientJoin, ClientMessage, ClientRejoin, ReplyHandle};
use crate::log::SyncedLog;

/// An item of the event queue.
pub(crate) enum ReleaseItem {
    Entry(Box<SealedEntry>),
    /// A live event, the entry that it follows, and its run.
    Live {
        event: Event,
        after_seq: u64,
        run: Option<RunId>,
    },
    /// A change of state, which is written to `status.json` first.
    Status {
        event: Event,
        after_seq: u64,
        run: Option<RunId>,
        file: Box<PodStatus>,
    },
    /// A client joins here: its snapshot is consistent with this position.
    Join {
        client: Arc<ClientConnection>,
        join: Box<ClientJoin>,
    },
    Rejoin {
        client: Arc<ClientConnection>,
        rejoin: Box<ClientRejoin>,
    },
}

/// An item that depends on a whole step.
#[expect(clippy::large_enum_variant, reason = "a short queue that each sync empties; most of it are effects")]
pub(crate) enum AfterSync {
    Reply { reply_handle: ReplyHandle, result: Result<ReplyData, Refusal> },
    Effect(Effect),
}

pub(crate) struct ReleaseQueue {
    stream: Arc<PodEventStream>,
    items: VecDeque<(Option<u64>, ReleaseItem)>,
    after_sync: VecDeque<(u64, AfterSync)>,
    /// Alerts for later clients, each with its entry if it is logged.
    alerts: VecDeque<(Option<u64>, Arc<str>)>,
    alerts_kept: usize,
}

impl ReleaseQueue {
    pub(crate) fn new(stream: Arc<PodEventStream>, alerts_kept: usize) -> ReleaseQueue {
        let (items, after_sync, alerts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        ReleaseQueue { stream, items, after_sync, alerts, alerts_kept }
    }

    pub(crate) fn stream(&self) -> &Arc<PodEventStream> {
        &self.stream
    }

    /// Appends an item to the queue. With a `gate`, it waits until that entry is synced.
    pub(crate) fn push(&mut self, gate: Option<u64>, item: ReleaseItem) {
        self.items.push_back((gate, item));
    }

    /// Adds an item that waits for an entry.
    pub(crate) fn push_after(&mut self, gate: u64, what: AfterSync) {
        self.after_sync.push_back((gate, what));
    }

    /// Releases all items that are ready: events first, so that a reply never overtakes them. Returns the
    /// effects that may be performed now.
    pub(crate) fn release_ready(
        &mut self,
        log: &SyncedLog,
        write_status: &mut dyn FnMut(&PodStatus),
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some((gate, _)) = self.items.front() {
            if gate.is_some_and(|seq| !log.is_durable(seq)) {
                break;
            }
            let Some((_, item)) = self.items.pop_front() else { break };
            self.emit_item(item, write_status);
        }
        self.stream.wake_readers();
        while let Some((gate, _)) = self.after_sync.front() {
            if !log.is_durable(*gate) {
                break;
            }
            match self.after_sync.pop_front() {
                Some((_, AfterSync::Effect(effect))) => effects.push(effect),
                Some((_, AfterSync::Reply { reply_handle, result })) => self.reply_now(reply_handle, result),
                None => break,
            }
        }
        effects
    }

    /// Drops waiting effects that are no longer wanted: a call that is stopped before its start must never
    /// start.
    pub(crate) fn drop_effects(&mut self, unwanted: impl Fn(&Effect) -> bool) {
        self.after_sync.retain(|(_, after)| !matches!(after, AfterSync::Effect(effect) if unwanted(effect)));
    }

    /// Replies now, after everything released so far.
    pub(crate) fn reply_now(&self, reply_handle: ReplyHandle, result: Result<ReplyData, Refusal>) {
        match result {
            Ok(data) => reply_handle.accept_with(self.stream.position(), data),
            Err(refusal) => reply_handle.refuse_with(self.stream.position(), refusal),
        }
    }

    fn emit_item(&mut self, item: ReleaseItem, write_status: &mut dyn FnMut(&PodStatus)) {
        match item {
            ReleaseItem::Entry(sealed) => self.emit_entry(&sealed),
            ReleaseItem::Live { event, after_seq, run } => self.emit_live(&event, after_seq, run),
            ReleaseItem::Status { event, after_seq, run, file } => {
                write_status(&file);
                self.emit_live(&event, after_seq, run);
            }
            ReleaseItem::Join { client, mut join } => {
                let (ticket, at) = self.stream.subscribe();
                join.stream_position = Some((ticket, at));
                join.alerts = self.alerts.iter().cloned().collect();
                client.send(at, ClientMessage::Join(join));
            }
            ReleaseItem::Rejoin { client, rejoin } => {
                let at = self.stream.position();
                client.send(at, ClientMessage::Rejoin(rejoin, at));
            }
        }
    }

    fn emit_entry(&mut self, sealed: &SealedEntry) {
        let alert = matches!(sealed.entry.kind, Kind::Alert(_));
        if !alert && !self.stream.has_readers() {
            return;
        }
        let frames = minke_protocol::entry_frames(&sealed.entry, &sealed.line);
        if alert && let Some(line) = frames.first() {
            self.keep_alert(Some(sealed.entry.seq), Arc::clone(line));
        }
        let (events, seq) = (frames.len(), Some(sealed.entry.seq));
        let lines =
            if events == 1 { frames.into_iter().next().unwrap_or_default() } else { frames.concat().into() };
        if self.stream.has_readers() {
            self.stream.push_piece(StreamPiece { lines, events, seq });
        }
    }

    fn emit_live(&mut self, event: &Event, after_seq: u64, run: Option<RunId>) {
        let alert = matches!(event, Event::Alert(_));
        if !alert && !self.stream.has_readers() {
            return;
        }
        let line = encode_event(event, &EventPosition::Live { after_seq }, run);
        if alert {
            self.keep_alert(None, Arc::clone(&line));
        }
        if self.stream.has_readers() {
            self.stream.push_piece(StreamPiece { lines: line, events: 1, seq: None });
        }
    }

    /// Loads the alerts of earlier processes.
    pub(crate) fn restore_alerts(&mut self, replay: &[SealedEntry]) {
        for sealed in replay.iter().filter(|sealed| matches!(sealed.entry.kind, Kind::Alert(_))) {
            if let Some(line) = minke_protocol::entry_frames(&sealed.entry, &sealed.line).into_iter().next() {
                self.keep_alert(Some(sealed.entry.seq), line);
            }
        }
    }

    /// Stores an alert for later clients; drops the oldest beyond the limit.
    fn keep_alert(&mut self, seq: Option<u64>, line: Arc<str>) {
        self.alerts.push_back((seq, line));
        while self.alerts.len() > self.alerts_kept {
            self.alerts.pop_front();
        }
    }

    /// Sends the last line to every subscriber. Everything else has been released.
    pub(crate) fn send_farewell(&self, after_seq: u64) {
        self.stream.set_farewell(Frame::new_live(Event::Shutdown, after_seq, None).to_line());
    }
}
