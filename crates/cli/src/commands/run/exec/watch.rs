//! Watches one run to its end, over the socket of its pod.
//!
//! Here: selecting the entries of this run, signals, unanswered asks. Elsewhere: printing (`json`,
//! `transcript`).
//! Invariant: each entry is printed once and in order, from the snapshot or live
//! (`exec_json_prints_only_documented_objects`).

use minke_client::Connection;
use minke_protocol::{
    Answer, Detail, Event, EventPosition, Frame, Method, Refusal, ReplyData, RequestId, Snapshot, Status,
    StatusReply,
};
use minke_record::{
    AskId, Decision, DequeueReason, Entry, ErrorCode, Item, Kind, QueueId, Role, RunId, RunResult, SessionId,
    Text, Trigger,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::run::exec::OnAsk;
use crate::commands::run::exec::json::{self, RunJsonFold};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::transcript::{AsideTarget, Transcript};

/// The run to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchTarget {
    /// The run that starts with our input.
    Input { op_id: String },
    /// The run that starts with our `resume`.
    Resumed,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunEnding {
    Completed {
        result: RunResult,
        reason: Option<String>,
    },
    Errored {
        code: ErrorCode,
        message: String,
    },
    /// The pod ended before the run did.
    PodGone,
    /// The run needs an answer, and asks are not answered.
    Unanswered {
        text: String,
    },
    /// The user did not wait for the orderly end.
    UserLeft,
    /// Stdout was closed.
    StdoutClosed,
}

/// Statistics and last message of the run.
#[derive(Debug, Default)]
pub(crate) struct RunStats {
    pub(crate) run: Option<RunId>,
    pub(crate) turns: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Cached tokens, read or written; not part of `input_tokens`.
    cached_tokens: u64,
    cost_usd: f64,
    /// Requests whose price is unknown.
    unpriced: u64,
    /// Parts of the model's last message.
    pub(crate) last_message: Option<Vec<Text>>,
    next_seq: u64,
    /// The pod's message that the budget allows no new run.
    budget_alert: Option<String>,
}

pub(crate) struct RunWatch<'a> {
    pub(crate) connection: Connection,
    pub(crate) output: &'a CliOutput,
    pub(crate) session: SessionId,
    pub(crate) target: WatchTarget,
    pub(crate) on_ask: OnAsk,
    /// Sends SIGTERM to the pod's process; its run stays resumable.
    pub(crate) terminate: &'a dyn Fn() -> std::io::Result<()>,
}

impl RunWatch<'_> {
    /// Watches until the run has ended. Returns the connection for further use.
    pub(crate) async fn watch_to_end(self) -> Result<(RunEnding, RunStats, Connection), CliError> {
        let no_signals = |e| CliError::new(ExitKind::Failed, "could not listen for signals").with_reason(e);
        let signals = RunSignals {
            interrupt: signal(SignalKind::interrupt()).map_err(no_signals)?,
            terminate: signal(SignalKind::terminate()).map_err(no_signals)?,
        };
        let printer = if self.output.json {
            RunPrinter::Json(Box::default(), *self.output)
        } else {
            RunPrinter::Text(Transcript::new(*self.output, AsideTarget::Stderr))
        };
        let mut state = WatchState {
            watch: self,
            stats: RunStats::default(),
            printer,
            interrupts: 0,
            status_request: None,
            idle_at: None,
            queued_input: None,
            unreadable_reason: None,
        };
        let ending = state.run_loop(signals).await;
        let WatchState { watch: run_watch, stats, .. } = state;
        match ending {
            Ok(ending) => Ok((ending, stats, run_watch.connection)),
            Err(failure) if failure.is_stdout_closed() => {
                Ok((RunEnding::StdoutClosed, stats, run_watch.connection))
            }
            Err(failure) => Err(failure),
        }
    }
}

struct RunSignals {
    interrupt: Signal,
    terminate: Signal,
}

struct WatchState<'a> {
    watch: RunWatch<'a>,
    stats: RunStats,
    printer: RunPrinter,
    interrupts: u32,
    /// A `status` request without a reply yet.
    status_request: Option<RequestId>,
    /// The pod was idle at this entry.
    idle_at: Option<u64>,
    /// Id of our input in the queue.
    queued_input: Option<QueueId>,
    /// Why the input could not be read.
    unreadable_reason: Option<String>,
}

enum RunPrinter {
    Json(Box<RunJsonFold>, CliOutput),
    Text(Transcript),
}

impl WatchState<'_> {
    async fn run_loop(&mut self, mut signals: RunSignals) -> Result<RunEnding, CliError> {
        if let RunPrinter::Json(_, output) = &self.printer {
            output.print_json(&json::thread_started(self.watch.session))?;
        }
        loop {
            let ending = tokio::select! {
                frame = self.watch.connection.next_frame() => match frame? {
                    Some(frame) => self.handle_frame(frame).await?,
                    None => Some(RunEnding::PodGone),
                },
                _ = signals.interrupt.recv() => self.handle_interrupt().await?,
                _ = signals.terminate.recv() => self.handle_terminate()?,
            };
            if let Some(ending) = ending {
                self.printer.finish_line()?;
                return Ok(ending);
            }
        }
    }

    /// The first Ctrl-C cancels the run, the second one leaves at once.
    async fn handle_interrupt(&mut self) -> Result<Option<RunEnding>, CliError> {
        self.interrupts += 1;
        if self.interrupts > 1 {
            return Ok(Some(RunEnding::UserLeft));
        }
        self.watch.output.print_note("cancelling (press Ctrl-C again to leave at once)");
        let detail = Detail { detail: Some("Ctrl-C".to_owned()) };
        self.watch.connection.send(Method::Cancel(detail)).await?;
        Ok(None)
    }

    /// SIGTERM usually comes from a shutdown of the machine, not from the user: the run stays resumable.
    fn handle_terminate(&mut self) -> Result<Option<RunEnding>, CliError> {
        self.watch.output.print_note("stopping; the run can be resumed");
        (self.watch.terminate)()
            .map_err(|e| CliError::new(ExitKind::Failed, "could not signal the pod").with_reason(e))?;
        Ok(None)
    }

    async fn handle_frame(&mut self, frame: Frame) -> Result<Option<RunEnding>, CliError> {
        match &frame.event {
            Event::Snapshot(snapshot) => self.handle_snapshot(snapshot).await,
            Event::Entry(event) => self.handle_entry(&event.entry).await,
            Event::InFlight(in_flight) if self.stats.run.is_some() => {
                self.printer.print_in_flight(in_flight)?;
                Ok(None)
            }
            Event::Status(status) => {
                self.query_if_idle(&status.status).await?;
                Ok(None)
            }
            Event::Reply(reply) => match reply {
                minke_protocol::ReplyData::Refused(refusal) => self.handle_refusal(refusal),
                minke_protocol::ReplyData::Ok(_) => {
                    self.handle_status_reply(&frame.position, reply)?;
                    Ok(None)
                }
            },
            // The end of the run could not be written, so no entry will report it.
            Event::Error(refusal)
                if matches!(frame.position, EventPosition::Live { .. }) && self.is_our_run(&frame) =>
            {
                let (code, message) = (refusal.code.clone(), refusal.message.clone());
                Ok(Some(RunEnding::Errored { code, message }))
            }
            event => {
                if self.is_our_run(&frame) {
                    self.printer.print_live(event)?;
                }
                Ok(None)
            }
        }
    }

    fn is_our_run(&self, frame: &Frame) -> bool {
        frame.run.is_some() && frame.run == self.stats.run
    }

    async fn handle_snapshot(&mut self, snapshot: &Snapshot) -> Result<Option<RunEnding>, CliError> {
        // Before the entries, because a short run may have ended by now.
        for notice in &snapshot.greeting.notices {
            self.watch.output.print_note(notice);
        }
        for entry in &snapshot.entries {
            if let Some(ending) = self.handle_entry(entry).await? {
                return Ok(Some(ending));
            }
        }
        if self.stats.run.is_some() {
            self.printer.print_in_flight(&snapshot.in_flight)?;
        }
        // The live event about the wait was sent before this connection.
        if let Some(Kind::StateChange(waits)) = snapshot.entries.last().map(|entry| &entry.kind)
            && waits.on == Some(minke_record::WaitingOn::Time)
        {
            let why = waits.reason.as_deref().unwrap_or("the log does not say why");
            self.watch.output.print_note(&format!("· waits before the next attempt: {why}"));
        }
        if matches!(self.watch.target, WatchTarget::Input { .. }) {
            self.query_if_idle(&snapshot.status).await?;
        }
        Ok(None)
    }

    /// A pod is also idle between two runs, and queued inputs run before ours. Only its `status` reply
    /// decides.
    async fn query_if_idle(&mut self, status: &Status) -> Result<(), CliError> {
        let waits = self.stats.run.is_none() && matches!(self.watch.target, WatchTarget::Input { .. });
        if waits && matches!(status, Status::Idle | Status::Paused) {
            self.status_request = Some(self.watch.connection.send(Method::Status).await?);
        }
        Ok(())
    }

    fn handle_status_reply(&mut self, place: &EventPosition, reply: &ReplyData) -> Result<(), CliError> {
        let Some(status_request) = &self.status_request else { return Ok(()) };
        if !matches!(place, EventPosition::Direct { id: Some(id) } if id == status_request) {
            return Ok(());
        }
        self.status_request = None;
        match reply.parse_result::<StatusReply>() {
            Ok(Ok(now)) => {
                let stopped = matches!(now.status, Status::Idle | Status::Paused) && now.activity.is_none();
                self.idle_at = stopped.then_some(now.head.seq);
                self.check_started()
            }
            Ok(Err(refusal)) => Err(refusal.clone().into()),
            Err(e) => {
                Err(CliError::new(ExitKind::Failed, "could not read the pod's reply to `status`")
                    .with_reason(e))
            }
        }
    }

    /// An idle pod that has not started our input never will. Its status reply may overtake entries that wait
    /// for the disk, so this first waits until all entries up to the reported head have arrived.
    fn check_started(&self) -> Result<(), CliError> {
        let all_seen = self.idle_at.is_some_and(|head| self.stats.next_seq > head);
        if self.stats.run.is_none() && all_seen {
            if let Some(why) = &self.stats.budget_alert {
                let hint = format!(
                    "the input stays in the queue of s_{}; grant a larger budget",
                    self.watch.session
                );
                let limit = CliError::new(ExitKind::Limit, "the run has reached a limit");
                return Err(limit.with_code(RunResult::LimitReached).with_reason(why).with_hint(hint));
            }
            return Err(CliError::new(
                ExitKind::Failed,
                "the pod accepted the input but does not start a run with it",
            )
            .with_reason("see the warnings above, or its log")
            .with_hint(format!("`minke log show s_{}`; the input stays in the queue", self.watch.session)));
        }
        Ok(())
    }

    /// The only refusals here: a cancel that came too late, or a resume of a run that is not paused.
    fn handle_refusal(&self, refusal: &Refusal) -> Result<Option<RunEnding>, CliError> {
        if self.interrupts > 0 && refusal.code == ErrorCode::NotRunning {
            return Ok(None);
        }
        Err(refusal.clone().into())
    }

    async fn handle_entry(&mut self, entry: &Entry) -> Result<Option<RunEnding>, CliError> {
        if entry.seq < self.stats.next_seq {
            return Ok(None);
        }
        self.stats.next_seq = entry.seq + 1;
        self.detect_run(entry);
        if let Kind::Alert(alert) = &entry.kind
            && minke_pod::is_budget_spent(&alert.message)
        {
            self.stats.budget_alert = Some(alert.message.clone());
        }
        self.check_input_rejected(entry)?;
        let ours = entry.run.is_some() && entry.run == self.stats.run;
        if !ours && !matches!(entry.kind, Kind::Alert(_)) {
            self.check_started()?;
            return Ok(None);
        }
        self.stats.count_entry(entry);
        self.printer.print_entry(entry)?;
        match &entry.kind {
            Kind::RunCompleted(end) => {
                Ok(Some(RunEnding::Completed { result: end.result.clone(), reason: end.reason.clone() }))
            }
            Kind::RunErrored(end) => {
                Ok(Some(RunEnding::Errored { code: end.code.clone(), message: end.message.clone() }))
            }
            Kind::Ask(ask) => self.handle_ask(ask.id, ask.subject.text.as_deref()).await,
            _ => Ok(None),
        }
    }

    /// Returns an error if our input was removed from the queue before a run started with it, by a hook or by
    /// a user.
    fn check_input_rejected(&mut self, entry: &Entry) -> Result<(), CliError> {
        match (&self.watch.target, &entry.kind) {
            (WatchTarget::Input { op_id }, Kind::QueuedInput(input))
                if input.op_id.as_ref() == Some(op_id) =>
            {
                self.queued_input = Some(input.id);
                Ok(())
            }
            (_, Kind::Alert(alert)) if alert.message.starts_with(minke_pod::UNREAD_PREFIX) => {
                self.unreadable_reason =
                    alert.message.strip_prefix(minke_pod::UNREAD_PREFIX).map(ToOwned::to_owned);
                Ok(())
            }
            (_, Kind::Dequeued(dequeued))
                if Some(dequeued.id) == self.queued_input
                    && dequeued.why == DequeueReason::Removed
                    && self.unreadable_reason.is_some() =>
            {
                Err(CliError::usage("no run started: the input refers to something that cannot be read")
                    .with_code("invalid_request")
                    .with_reason(self.unreadable_reason.take().unwrap_or_default())
                    .with_hint("`--literal` takes the text without references"))
            }
            (_, Kind::Dequeued(dequeued))
                if Some(dequeued.id) == self.queued_input && dequeued.why == DequeueReason::Removed =>
            {
                Err(CliError::new(ExitKind::Refused, "the input was rejected, and no run started with it")
                    .with_reason("see the warnings above, or its log")
                    .with_hint(format!(
                        "`minke log show s_{}`; `minke hooks list` names your hooks",
                        self.watch.session
                    )))
            }
            _ => Ok(()),
        }
    }

    /// Detects the first entry of our run.
    fn detect_run(&mut self, entry: &Entry) {
        if self.stats.run.is_some() {
            return;
        }
        let ours = match (&self.watch.target, &entry.kind) {
            (WatchTarget::Input { op_id }, Kind::UserInput(input)) => input.op_id.as_ref() == Some(op_id),
            (WatchTarget::Resumed, Kind::Invoke(invoke)) => invoke.trigger == Trigger::Resume,
            _ => false,
        };
        if ours {
            self.stats.run = entry.run;
        }
    }

    async fn handle_ask(&mut self, ask: AskId, text: Option<&str>) -> Result<Option<RunEnding>, CliError> {
        match self.watch.on_ask {
            OnAsk::Wait => {
                if self.watch.output.json {
                    self.watch.output.print_note(&format!(
                        "waits for an answer: `minke answer {ask} approved` or `denied`"
                    ));
                }
                Ok(None)
            }
            OnAsk::Fail => Ok(Some(RunEnding::Unanswered { text: text.unwrap_or("(no text)").to_owned() })),
            OnAsk::Deny => {
                let note = Some("no user is available to answer (--on-ask deny)".to_owned());
                let answer = Answer { ask, decision: Decision::Denied, note };
                self.watch.connection.send(Method::Answer(answer)).await?;
                Ok(None)
            }
        }
    }
}

impl RunStats {
    /// Formats the cost of the run, as far as prices are known; empty if it was free.
    pub(crate) fn cost_summary(&self) -> String {
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

    fn count_entry(&mut self, entry: &Entry) {
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

impl RunPrinter {
    /// Ends an unfinished line, so that the next output starts on a new one.
    fn finish_line(&mut self) -> Result<(), CliError> {
        match self {
            RunPrinter::Json(..) => Ok(()),
            RunPrinter::Text(transcript) => transcript.finish_line(),
        }
    }

    fn print_entry(&mut self, entry: &Entry) -> Result<(), CliError> {
        match self {
            RunPrinter::Json(lines, output) => print_objects(output, lines.entry_objects(entry)),
            RunPrinter::Text(transcript) => transcript.print_entry(entry),
        }
    }

    fn print_live(&mut self, event: &Event) -> Result<(), CliError> {
        match self {
            RunPrinter::Json(lines, output) => print_objects(output, lines.event_objects(event)),
            RunPrinter::Text(transcript) => transcript.print_event(event),
        }
    }

    fn print_in_flight(&mut self, in_flight: &minke_protocol::InFlight) -> Result<(), CliError> {
        match self {
            RunPrinter::Json(lines, output) => print_objects(output, lines.in_flight_objects(in_flight)),
            RunPrinter::Text(transcript) => transcript.print_in_flight(in_flight),
        }
    }
}

fn print_objects(screen: &CliOutput, objects: Vec<serde_json::Value>) -> Result<(), CliError> {
    objects.iter().try_for_each(|object| screen.print_json(object))
}
