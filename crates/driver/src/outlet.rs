//! The outlet: everything that leaves the loop waits here until what it rests on is on the disk.
//!
//! Here: one queue of news, in which an item that waits for a sync holds back everything behind it; and replies and
//! effects, which wait for their own step. Elsewhere: the stream that the news enter (`stream`), the sync (`log`).
//! Invariant: nothing is shown, acknowledged or done before the entry that it rests on is synced; lazy entries and
//! live news are shown when they are written (`nothing_is_shown_acknowledged_or_done_before_it_is_synced`).

use std::collections::VecDeque;
use std::sync::Arc;

use minke_pod::Effect;
use minke_protocol::{Event, Frame, Place, Refusal, ReplyData, encode};
use minke_record::{Kind, RunId};
use minke_registry::PodStatus;
use minke_session::Sealed;

use crate::clients::{Asker, Client, ForOne, Join, Rejoin};
use crate::log::Log;
use crate::stream::{Piece, Stream};

/// Something that leaves in its place among the news.
pub(crate) enum Item {
    Entry(Box<Sealed>),
    /// A live event, the entry that it follows, and its run.
    Live {
        event: Event,
        after_seq: u64,
        run: Option<RunId>,
    },
    /// The same for a change of state, which `status.json` tells first.
    Status {
        event: Event,
        after_seq: u64,
        run: Option<RunId>,
        file: Box<PodStatus>,
    },
    /// A client joins here: what it is told of the pod is true at this very place.
    Join {
        client: Arc<Client>,
        join: Box<Join>,
    },
    Rejoin {
        client: Arc<Client>,
        rejoin: Box<Rejoin>,
    },
}

/// What rests on a whole step.
#[expect(clippy::large_enum_variant, reason = "a short queue that each sync empties; most of it are effects")]
pub(crate) enum After {
    Reply { asker: Asker, result: Result<ReplyData, Refusal> },
    Effect(Effect),
}

pub(crate) struct Outlet {
    stream: Arc<Stream>,
    news: VecDeque<(Option<u64>, Item)>,
    after: VecDeque<(u64, After)>,
    /// Alerts that later clients are told: with the entry, if it is logged.
    alerts: VecDeque<(Option<u64>, Arc<str>)>,
    alerts_kept: usize,
}

impl Outlet {
    pub(crate) fn new(stream: Arc<Stream>, alerts_kept: usize) -> Outlet {
        let (news, after, alerts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Outlet { stream, news, after, alerts, alerts_kept }
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Puts an item behind everything that waits. With a `gate`, it waits until that entry is synced.
    pub(crate) fn push(&mut self, gate: Option<u64>, item: Item) {
        self.news.push_back((gate, item));
    }

    /// Puts something behind the entry that it rests on.
    pub(crate) fn push_after(&mut self, gate: u64, what: After) {
        self.after.push_back((gate, what));
    }

    /// Lets everything leave whose time has come: the news first, so that a reply never overtakes them. Gives the
    /// effects that may be performed now.
    pub(crate) fn release(&mut self, log: &Log, write_status: &mut dyn FnMut(&PodStatus)) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some((gate, _)) = self.news.front() {
            if gate.is_some_and(|seq| !log.may_rest_on(seq)) {
                break;
            }
            let Some((_, item)) = self.news.pop_front() else { break };
            self.leave(item, write_status);
        }
        self.stream.flush();
        while let Some((gate, _)) = self.after.front() {
            if !log.may_rest_on(*gate) {
                break;
            }
            match self.after.pop_front() {
                Some((_, After::Effect(effect))) => effects.push(effect),
                Some((_, After::Reply { asker, result })) => self.answer(asker, result),
                None => break,
            }
        }
        effects
    }

    /// Forgets effects that wait and are not wanted any more: a call that is stopped before it was started must never
    /// start.
    pub(crate) fn forget(&mut self, unwanted: impl Fn(&Effect) -> bool) {
        self.after.retain(|(_, after)| !matches!(after, After::Effect(effect) if unwanted(effect)));
    }

    /// Answers somebody now, after everything that has left so far.
    pub(crate) fn answer(&self, asker: Asker, result: Result<ReplyData, Refusal>) {
        match result {
            Ok(data) => asker.accept(self.stream.here(), data),
            Err(refusal) => asker.refuse(self.stream.here(), refusal),
        }
    }

    fn leave(&mut self, item: Item, write_status: &mut dyn FnMut(&PodStatus)) {
        match item {
            Item::Entry(sealed) => self.show_entry(&sealed),
            Item::Live { event, after_seq, run } => self.show_live(&event, after_seq, run),
            Item::Status { event, after_seq, run, file } => {
                write_status(&file);
                self.show_live(&event, after_seq, run);
            }
            Item::Join { client, mut join } => {
                let (ticket, at) = self.stream.join();
                join.place = Some((ticket, at));
                join.alerts = self.alerts.iter().cloned().collect();
                client.send(at, ForOne::Join(join));
            }
            Item::Rejoin { client, rejoin } => {
                let at = self.stream.here();
                client.send(at, ForOne::Rejoin(rejoin, at));
            }
        }
    }

    fn show_entry(&mut self, sealed: &Sealed) {
        let alert = matches!(sealed.entry.kind, Kind::Alert(_));
        if !alert && !self.stream.is_read() {
            return;
        }
        let frames = minke_protocol::frames(&sealed.entry, &sealed.line);
        if alert && let Some(line) = frames.first() {
            self.keep_alert(Some(sealed.entry.seq), Arc::clone(line));
        }
        let (events, seq) = (frames.len(), Some(sealed.entry.seq));
        let lines =
            if events == 1 { frames.into_iter().next().unwrap_or_default() } else { frames.concat().into() };
        if self.stream.is_read() {
            self.stream.push(Piece { lines, events, seq });
        }
    }

    fn show_live(&mut self, event: &Event, after_seq: u64, run: Option<RunId>) {
        let alert = matches!(event, Event::Alert(_));
        if !alert && !self.stream.is_read() {
            return;
        }
        let line = encode(event, &Place::Live { after_seq }, run);
        if alert {
            self.keep_alert(None, Arc::clone(&line));
        }
        if self.stream.is_read() {
            self.stream.push(Piece { lines: line, events: 1, seq: None });
        }
    }

    /// Keeps the alerts of earlier lives.
    pub(crate) fn keep_alerts(&mut self, replay: &[Sealed]) {
        for sealed in replay.iter().filter(|sealed| matches!(sealed.entry.kind, Kind::Alert(_))) {
            if let Some(line) = minke_protocol::frames(&sealed.entry, &sealed.line).into_iter().next() {
                self.keep_alert(Some(sealed.entry.seq), line);
            }
        }
    }

    /// Keeps an alert for clients that come later; the oldest goes.
    fn keep_alert(&mut self, seq: Option<u64>, line: Arc<str>) {
        self.alerts.push_back((seq, line));
        while self.alerts.len() > self.alerts_kept {
            self.alerts.pop_front();
        }
    }

    /// The last line of every subscriber. Everything else has left.
    pub(crate) fn say_farewell(&self, after_seq: u64) {
        self.stream.say_farewell(Frame::live(Event::Shutdown, after_seq, None).line());
    }
}
