//! Watching one run to its end, over the socket of the pod that makes it.
//!
//! Here: which entries are this run's, signals, questions nobody answers. Elsewhere: what is printed of it (`json`,
//! `transcript`).
//! Invariant: each entry is told once and in order, whether it came in the snapshot or live
//! (`exec_json_prints_only_documented_objects`).

use minke_client::Connection;
use minke_protocol::{
    Answer, Detail, Event, Frame, Id, Method, Place, Refusal, ReplyData, Snapshot, Status, StatusReply,
};
use minke_record::{
    AskId, Decision, DequeueReason, Entry, ErrorCode, Item, Kind, QueueId, Role, RunId, RunResult, SessionId,
    Text, Trigger,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exec::OnAsk;
use crate::exec::json::{self, Lines};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::transcript::{Asides, Transcript};

/// Which run is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that an input of ours opens.
    Input { op_id: String },
    /// The one that a `resume` of ours opens.
    Resumed,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    Completed {
        result: RunResult,
        reason: Option<String>,
    },
    Errored {
        code: ErrorCode,
        message: String,
    },
    /// The pod was gone before the run had ended.
    PodGone,
    /// Nobody may answer, and an answer is needed.
    Unanswered {
        text: String,
    },
    /// The person would not wait for the orderly end.
    Left,
    /// Nobody reads stdout any more.
    Unread,
}

/// What was seen of the run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) run: Option<RunId>,
    pub(crate) turns: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Tokens that came from or went into a cache; not among `input_tokens`.
    cached_tokens: u64,
    cost_usd: f64,
    /// Requests whose price is unknown.
    unpriced: u64,
    /// The last message of the model, in its parts.
    pub(crate) last_message: Option<Vec<Text>>,
    next_seq: u64,
    /// Why the budget lets nothing begin, in the pod's words.
    broke: Option<String>,
}

pub(crate) struct Watch<'a> {
    pub(crate) connection: Connection,
    pub(crate) screen: &'a Screen,
    pub(crate) session: SessionId,
    pub(crate) which: Which,
    pub(crate) on_ask: OnAsk,
    /// Asks the pod's process to end as a signal does: its run stays resumable.
    pub(crate) terminate: &'a dyn Fn() -> std::io::Result<()>,
}

impl Watch<'_> {
    /// Watches until the run has ended. The connection is given back for what comes after.
    pub(crate) async fn until_end(self) -> Result<(Ending, Seen, Connection), Failure> {
        let no_signals = |e| Failure::new(Exit::Failed, "cannot listen for signals").why(e);
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(no_signals)?,
            terminate: signal(SignalKind::terminate()).map_err(no_signals)?,
        };
        let voice = if self.screen.json {
            Voice::Json(Box::default(), *self.screen)
        } else {
            Voice::Text(Transcript::new(*self.screen, Asides::Apart))
        };
        let mut watching = Watching {
            watch: self,
            seen: Seen::default(),
            voice,
            cancelled: 0,
            look: None,
            still_at: None,
            queued: None,
            unread: None,
        };
        let ending = watching.run(signals).await;
        let Watching { watch, seen, .. } = watching;
        match ending {
            Ok(ending) => Ok((ending, seen, watch.connection)),
            Err(failure) if failure.is_unread() => Ok((Ending::Unread, seen, watch.connection)),
            Err(failure) => Err(failure),
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

struct Watching<'a> {
    watch: Watch<'a>,
    seen: Seen,
    voice: Voice,
    cancelled: u32,
    /// The `status` that was asked for and is not answered yet.
    look: Option<Id>,
    /// It stood still at this entry.
    still_at: Option<u64>,
    /// Our input, as it waits in the queue.
    queued: Option<QueueId>,
    /// Why an input could not be read.
    unread: Option<String>,
}

enum Voice {
    Json(Box<Lines>, Screen),
    Text(Transcript),
}

impl Watching<'_> {
    async fn run(&mut self, mut signals: Signals) -> Result<Ending, Failure> {
        if let Voice::Json(_, screen) = &self.voice {
            screen.object(&json::thread_started(self.watch.session))?;
        }
        loop {
            let ending = tokio::select! {
                frame = self.watch.connection.next() => match frame? {
                    Some(frame) => self.frame(frame).await?,
                    None => Some(Ending::PodGone),
                },
                _ = signals.interrupt.recv() => self.interrupted().await?,
                _ = signals.terminate.recv() => self.terminated()?,
            };
            if let Some(ending) = ending {
                self.voice.end_line()?;
                return Ok(ending);
            }
        }
    }

    /// The first Ctrl-C cancels the run, the second one does not wait for it.
    async fn interrupted(&mut self) -> Result<Option<Ending>, Failure> {
        self.cancelled += 1;
        if self.cancelled > 1 {
            return Ok(Some(Ending::Left));
        }
        self.watch.screen.note("cancelling (once more to leave at once)");
        let detail = Detail { detail: Some("Ctrl-C".to_owned()) };
        self.watch.connection.send(Method::Cancel(detail)).await?;
        Ok(None)
    }

    /// SIGTERM is somebody shutting the machine down rather than a person: the run is left resumable.
    fn terminated(&mut self) -> Result<Option<Ending>, Failure> {
        self.watch.screen.note("stopping; the run can be resumed");
        (self.watch.terminate)().map_err(|e| Failure::new(Exit::Failed, "cannot signal the pod").why(e))?;
        Ok(None)
    }

    async fn frame(&mut self, frame: Frame) -> Result<Option<Ending>, Failure> {
        match &frame.event {
            Event::Snapshot(snapshot) => self.snapshot(snapshot).await,
            Event::Entry(event) => self.entry(&event.entry).await,
            Event::InFlight(in_flight) if self.seen.run.is_some() => {
                self.voice.in_flight(in_flight)?;
                Ok(None)
            }
            Event::Status(status) => {
                self.stands_still(&status.status).await?;
                Ok(None)
            }
            Event::Reply(reply) => match reply {
                minke_protocol::ReplyData::Refused(refusal) => self.refused(refusal),
                minke_protocol::ReplyData::Ok(_) => {
                    self.looked(&frame.place, reply)?;
                    Ok(None)
                }
            },
            // Not even the run's end could be written: no entry will say it.
            Event::Error(refusal) if matches!(frame.place, Place::Live { .. }) && self.is_ours(&frame) => {
                let (code, message) = (refusal.code.clone(), refusal.message.clone());
                Ok(Some(Ending::Errored { code, message }))
            }
            event => {
                if self.is_ours(&frame) {
                    self.voice.live(event)?;
                }
                Ok(None)
            }
        }
    }

    fn is_ours(&self, frame: &Frame) -> bool {
        frame.run.is_some() && frame.run == self.seen.run
    }

    async fn snapshot(&mut self, snapshot: &Snapshot) -> Result<Option<Ending>, Failure> {
        // First: a short run may be over by now.
        for notice in &snapshot.greeting.notices {
            self.watch.screen.note(notice);
        }
        for entry in &snapshot.entries {
            if let Some(ending) = self.entry(entry).await? {
                return Ok(Some(ending));
            }
        }
        if self.seen.run.is_some() {
            self.voice.in_flight(&snapshot.in_flight)?;
        }
        // The news of it was live, and over before we came.
        if let Some(Kind::StateChange(waits)) = snapshot.entries.last().map(|entry| &entry.kind)
            && waits.on == Some(minke_record::WaitingOn::Time)
        {
            let why = waits.reason.as_deref().unwrap_or("the log does not say why");
            self.watch.screen.note(&format!("· waits before the next attempt, because: {why}"));
        }
        if matches!(self.watch.which, Which::Input { .. }) {
            self.stands_still(&snapshot.status).await?;
        }
        Ok(None)
    }

    /// A pod stands still for a moment between two runs too, and what waits before our input runs first. Its own word
    /// decides.
    async fn stands_still(&mut self, status: &Status) -> Result<(), Failure> {
        let waits = self.seen.run.is_none() && matches!(self.watch.which, Which::Input { .. });
        if waits && matches!(status, Status::Idle | Status::Paused) {
            self.look = Some(self.watch.connection.send(Method::Status).await?);
        }
        Ok(())
    }

    fn looked(&mut self, place: &Place, reply: &ReplyData) -> Result<(), Failure> {
        let Some(look) = &self.look else { return Ok(()) };
        if !matches!(place, Place::One { id: Some(id) } if id == look) {
            return Ok(());
        }
        self.look = None;
        match reply.result::<StatusReply>() {
            Ok(Ok(now)) => {
                let stopped = matches!(now.status, Status::Idle | Status::Paused) && now.activity.is_none();
                self.still_at = stopped.then_some(now.head.seq);
                self.check_begun()
            }
            Ok(Err(refusal)) => Err(refusal.clone().into()),
            Err(e) => Err(Failure::new(Exit::Failed, "the pod's answer to `status` cannot be read").why(e)),
        }
    }

    /// A pod that stands still and has not begun what it was given will not begin it by itself. Its word may overtake
    /// entries that wait for the disk, so everything up to there must have been seen.
    fn check_begun(&self) -> Result<(), Failure> {
        let all_seen = self.still_at.is_some_and(|head| self.seen.next_seq > head);
        if self.seen.run.is_none() && all_seen {
            if let Some(why) = &self.seen.broke {
                let hint = format!("the input waits in the queue of s_{}; grant more", self.watch.session);
                let limit = Failure::new(Exit::Limit, "the run has reached a limit");
                return Err(limit.code(RunResult::LimitReached).why(why).hint(hint));
            }
            return Err(Failure::new(
                Exit::Failed,
                "the pod took the input and does not begin a run with it",
            )
            .why("the warnings above say why, or its log does")
            .hint(format!("`minke log show s_{}`; the input waits in the queue", self.watch.session)));
        }
        Ok(())
    }

    /// Only a cancel that came too late, or a resume of what is not paused, is refused here.
    fn refused(&self, refusal: &Refusal) -> Result<Option<Ending>, Failure> {
        if self.cancelled > 0 && refusal.code == ErrorCode::NotRunning {
            return Ok(None);
        }
        Err(refusal.clone().into())
    }

    async fn entry(&mut self, entry: &Entry) -> Result<Option<Ending>, Failure> {
        if entry.seq < self.seen.next_seq {
            return Ok(None);
        }
        self.seen.next_seq = entry.seq + 1;
        self.recognise(entry);
        if let Kind::Alert(alert) = &entry.kind
            && minke_pod::is_spent(&alert.message)
        {
            self.seen.broke = Some(alert.message.clone());
        }
        self.turned_away(entry)?;
        let ours = entry.run.is_some() && entry.run == self.seen.run;
        if !ours && !matches!(entry.kind, Kind::Alert(_)) {
            self.check_begun()?;
            return Ok(None);
        }
        self.seen.count(entry);
        self.voice.entry(entry)?;
        match &entry.kind {
            Kind::RunCompleted(end) => {
                Ok(Some(Ending::Completed { result: end.result.clone(), reason: end.reason.clone() }))
            }
            Kind::RunErrored(end) => {
                Ok(Some(Ending::Errored { code: end.code.clone(), message: end.message.clone() }))
            }
            Kind::Ask(ask) => self.asked(ask.id, ask.subject.text.as_deref()).await,
            _ => Ok(None),
        }
    }

    /// Our input was taken out of the queue before a run began with it: a hook did not let it through, or somebody
    /// changed their mind.
    fn turned_away(&mut self, entry: &Entry) -> Result<(), Failure> {
        match (&self.watch.which, &entry.kind) {
            (Which::Input { op_id }, Kind::QueuedInput(input)) if input.op_id.as_ref() == Some(op_id) => {
                self.queued = Some(input.id);
                Ok(())
            }
            (_, Kind::Alert(alert)) if alert.message.starts_with(minke_pod::UNREAD) => {
                self.unread = alert.message.strip_prefix(minke_pod::UNREAD).map(ToOwned::to_owned);
                Ok(())
            }
            (_, Kind::Dequeued(gone))
                if Some(gone.id) == self.queued
                    && gone.why == DequeueReason::Removed
                    && self.unread.is_some() =>
            {
                Err(Failure::usage("no run began: what the input refers to cannot be read")
                    .code("invalid_request")
                    .why(self.unread.take().unwrap_or_default())
                    .hint("`--literal` takes the text as it is"))
            }
            (_, Kind::Dequeued(gone))
                if Some(gone.id) == self.queued && gone.why == DequeueReason::Removed =>
            {
                Err(Failure::new(Exit::Refused, "the input was not let through, and no run began with it")
                    .why("the warnings above say why, or its log does")
                    .hint(format!(
                        "`minke log show s_{}`; `minke hooks list` names your hooks",
                        self.watch.session
                    )))
            }
            _ => Ok(()),
        }
    }

    /// Finds out which run is ours.
    fn recognise(&mut self, entry: &Entry) {
        if self.seen.run.is_some() {
            return;
        }
        let ours = match (&self.watch.which, &entry.kind) {
            (Which::Input { op_id }, Kind::UserInput(input)) => input.op_id.as_ref() == Some(op_id),
            (Which::Resumed, Kind::Invoke(invoke)) => invoke.trigger == Trigger::Resume,
            _ => false,
        };
        if ours {
            self.seen.run = entry.run;
        }
    }

    async fn asked(&mut self, ask: AskId, text: Option<&str>) -> Result<Option<Ending>, Failure> {
        match self.watch.on_ask {
            OnAsk::Wait => {
                if self.watch.screen.json {
                    self.watch
                        .screen
                        .note(&format!("waits for an answer: `minke answer {ask} approved` or `denied`"));
                }
                Ok(None)
            }
            OnAsk::Fail => Ok(Some(Ending::Unanswered { text: text.unwrap_or("(no text)").to_owned() })),
            OnAsk::Deny => {
                let note = Some("nobody is there to answer (--on-ask deny)".to_owned());
                let answer = Answer { ask, decision: Decision::Denied, note };
                self.watch.connection.send(Method::Answer(answer)).await?;
                Ok(None)
            }
        }
    }
}

impl Seen {
    /// What the run has cost, as far as prices are known; nothing is said of what was free.
    pub(crate) fn cost(&self) -> String {
        let cached = match self.cached_tokens {
            0 => String::new(),
            tokens => format!(", {tokens} cached"),
        };
        let known = match self.cost_usd {
            cost if cost > 0.0 => format!(" · ${cost:.4}"),
            _ => String::new(),
        };
        match (self.unpriced, known.is_empty()) {
            (0, _) => format!("{cached}{known}"),
            (_, true) => format!("{cached} · cost unknown"),
            (_, false) => format!("{cached}{known} and more at an unknown price"),
        }
    }

    fn count(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::TurnEnd(_) => self.turns += 1,
            Kind::LlmUsage(usage) => {
                self.input_tokens += usage.input;
                self.output_tokens += usage.output;
                self.cached_tokens += usage.cache_read + usage.cache_write;
                match usage.cost_usd {
                    Some(cost) => self.cost_usd += cost,
                    None => self.unpriced += 1,
                }
            }
            Kind::AssistantItem(assistant) => {
                if let Item::Message { role: Role::Assistant, content } = &assistant.item {
                    let texts = content.iter().filter_map(|part| match part {
                        minke_record::Content::Text { text } => Some(text.clone()),
                        _ => None,
                    });
                    self.last_message = Some(texts.collect());
                }
            }
            _ => {}
        }
    }
}

impl Voice {
    /// What comes next begins a line of its own, also when the words broke off in the middle of one.
    fn end_line(&mut self) -> Result<(), Failure> {
        match self {
            Voice::Json(..) => Ok(()),
            Voice::Text(transcript) => transcript.end_line(),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        match self {
            Voice::Json(lines, screen) => say(screen, lines.entry(entry)),
            Voice::Text(transcript) => transcript.entry(entry),
        }
    }

    fn live(&mut self, event: &Event) -> Result<(), Failure> {
        match self {
            Voice::Json(lines, screen) => say(screen, lines.live(event)),
            Voice::Text(transcript) => transcript.live(event),
        }
    }

    fn in_flight(&mut self, in_flight: &minke_protocol::InFlight) -> Result<(), Failure> {
        match self {
            Voice::Json(lines, screen) => say(screen, lines.in_flight(in_flight)),
            Voice::Text(transcript) => transcript.in_flight(in_flight),
        }
    }
}

fn say(screen: &Screen, objects: Vec<serde_json::Value>) -> Result<(), Failure> {
    objects.iter().try_for_each(|object| screen.object(object))
}
