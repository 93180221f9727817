//! One observer: reads the log, delivers in order, retries, and stores its position.
//!
//! Elsewhere: all observers (`observers`), the event of each entry (`mapper`), writing lines (`sink`,
//! `http`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use minke_exec::command::HookExit;
use minke_exec::sandbox::ProcessExit;
use minke_record::{Entry, Millis};
use tokio::sync::watch;

use crate::context::HookContext;
use crate::cursor::{CursorFile, CursorPosition, CursorState};
use crate::event::HookEvent;
use crate::hook::{Hook, HookHandler};
use crate::http::HttpClients;
use crate::job_events::JobTracker;
use crate::mapper::{EventMapper, ObservedEvent};
use crate::observers::{ObserverConfig, ObserverProgress};
use crate::payload::build_payload;
use crate::sink;
use crate::steer::{self, MAX_ANSWER_BYTES};

/// Entries before the cursor that are read again, to know the calls that they started.
const REREAD_ENTRIES: u64 = 256;
/// The delay between attempts: doubled each time, up to the maximum.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The maximum size of one write to a file or socket.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// The task of one observer.
pub(crate) struct HookObserver {
    pub(crate) hook: Arc<Hook>,
    pub(crate) context: HookContext,
    pub(crate) http_clients: HttpClients,
    pub(crate) config: ObserverConfig,
    pub(crate) cursor: CursorFile,
    pub(crate) head: watch::Receiver<Option<u64>>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) progress: Arc<ObserverProgress>,
    /// The mandate names it: it also gets the job's ends and pauses from before this process.
    pub(crate) is_named: bool,
    /// The first entry for all other events.
    pub(crate) first_seq: u64,
}

/// A line for an entry.
struct ObserverLine {
    position: CursorPosition,
    text: Vec<u8>,
}

/// The reason why delivery stops in this process.
enum ObserverEnd {
    /// The pod is stopping.
    PodStopping,
    /// Delivery is impossible.
    Impossible,
}

/// The reason for a failed delivery.
pub(crate) enum HookDeliveryError {
    /// A retry may succeed.
    Retryable(String),
    /// A retry cannot succeed: reported, and the event is skipped.
    Skipped(String),
    /// No hook of this kind works in this process.
    Unsupported(String),
}

impl HookObserver {
    pub(crate) async fn run_observer(mut self) {
        let mut mapper = EventMapper::new(Arc::clone(&self.config.frames));
        let mut next = self.resume_position(&mut mapper).await;
        loop {
            self.progress.next_seq.store(next, Ordering::Relaxed);
            self.report_caught_up(next);
            let head = match self.wait_for_entries(next).await {
                Ok(head) => head,
                Err(_) => return,
            };
            let entries = match self.read_page(next).await {
                Ok(entries) => entries,
                Err(_) => return,
            };
            let mut entries: Vec<Entry> = entries.into_iter().filter(|entry| entry.seq <= head).collect();
            entries.retain(|entry| entry.seq >= next);
            let Some(last) = entries.last().map(position_of) else {
                // The driver has reported the entry as written, so it will be readable.
                if self.wait_backoff(INITIAL_BACKOFF).await.is_err() {
                    return;
                }
                continue;
            };
            let lines: Vec<ObserverLine> =
                entries.iter().flat_map(|entry| self.entry_lines(&mut mapper, entry)).collect();
            if self.deliver_lines(lines).await.is_err() {
                return;
            }
            self.save_cursor(last).await;
            next = last.seq + 1;
        }
    }

    /// The entry to continue at; reads earlier entries to know the calls that they started.
    async fn resume_position(&mut self, mapper: &mut EventMapper) -> u64 {
        let cursor = self.cursor.clone();
        let found = run_blocking(move || cursor.load_state()).await.unwrap_or(CursorState::Absent);
        if matches!(found, CursorState::Absent) {
            self.first_seq = self.config.from;
        }
        let mut next = match &found {
            CursorState::Absent if self.is_named => 0,
            CursorState::Absent => self.config.from,
            CursorState::Position(at) => at.seq + 1,
            CursorState::Unreadable(why) => {
                self.send_alert(format!(
                    "could not read its cursor ({why}), so all events are delivered again"
                ));
                0
            }
        };
        // The state of a job is only known from its start.
        let wants_jobs = self.is_named || matches!(self.hook.event, HookEvent::Job | HookEvent::Lifecycle);
        let mut from = if wants_jobs && next > 0 && self.is_job_session().await {
            0
        } else {
            next.saturating_sub(REREAD_ENTRIES)
        };
        while from < next {
            let Ok(entries) = self.read_page(from).await else { return next };
            let Some(last) = entries.last().map(|entry| entry.seq) else { break };
            for entry in entries.iter().filter(|entry| entry.seq < next) {
                if let CursorState::Position(at) = &found
                    && at.seq == entry.seq
                    && at.h != entry.h
                {
                    self.send_alert(
                        "its cursor belongs to a different log, so all events are delivered".to_owned(),
                    );
                    next = 0;
                    break;
                }
                mapper.map_entry(entry);
            }
            from = last + 1;
        }
        next
    }

    async fn is_job_session(&mut self) -> bool {
        let first = self.read_page(0).await.unwrap_or_default();
        first.first().is_some_and(|entry| JobTracker::from_entry(entry).is_some())
    }

    /// Waits for entries from `next` on; returns the last one available.
    async fn wait_for_entries(&mut self, next: u64) -> Result<u64, ObserverEnd> {
        loop {
            if let Some(head) = *self.head.borrow_and_update()
                && head >= next
            {
                return Ok(head);
            }
            if *self.stopping.borrow_and_update() {
                return Err(ObserverEnd::PodStopping);
            }
            tokio::select! {
                changed = self.head.changed() => changed.map_err(|_| ObserverEnd::PodStopping)?,
                changed = self.stopping.changed() => changed.map_err(|_| ObserverEnd::PodStopping)?,
            }
        }
    }

    async fn read_page(&mut self, from: u64) -> Result<Vec<Entry>, ObserverEnd> {
        let mut pause = INITIAL_BACKOFF;
        loop {
            let page = Arc::clone(&self.config.page);
            let read = run_blocking(move || page(from)).await;
            match read.unwrap_or_else(|| Err("reading it stopped unexpectedly".to_owned())) {
                Ok(entries) => return Ok(entries),
                Err(why) => self.report_failure(format!("could not read the log: {why}")),
            }
            self.wait_backoff(pause).await?;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    fn entry_lines(&self, mapper: &mut EventMapper, entry: &Entry) -> Vec<ObserverLine> {
        let own = |happened: &ObservedEvent| {
            happened.event == self.hook.event
                && !self.hook.is_steering()
                && !self.hook.when.named_jobs_only
                && entry.seq >= self.first_seq
                && self.hook.when.is_match(happened.tool.as_deref(), &happened.paths, &self.context.cwd)
        };
        let fits = |happened: &ObservedEvent| (self.is_named && happened.job_ends) || own(happened);
        let all = mapper.map_entry(entry).into_iter().filter(fits);
        all.map(|happened| ObserverLine {
            position: position_of(entry),
            text: self.format_line(entry.ts, happened),
        })
        .collect()
    }

    fn format_line(&self, ts: Millis, happened: ObservedEvent) -> Vec<u8> {
        let mut line = build_payload(&self.context, ts, happened.fields).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Delivers lines in order, and retries as long as that may help.
    async fn deliver_lines(&mut self, lines: Vec<ObserverLine>) -> Result<(), ObserverEnd> {
        let mut rest = lines.as_slice();
        let mut pause = INITIAL_BACKOFF;
        while !rest.is_empty() {
            let count = self.batch_len(rest);
            let (bite, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let text: Vec<u8> = bite.iter().flat_map(|line| line.text.iter().copied()).collect();
            match deliver_to(&self.hook, &self.context, &self.http_clients, text).await {
                Ok(()) => {
                    if self.progress.set_last_error(None) {
                        self.send_alert("receives events again".to_owned());
                    }
                }
                Err(HookDeliveryError::Skipped(why)) => self.report_failure(why),
                Err(HookDeliveryError::Unsupported(why)) => {
                    self.report_failure(why);
                    return Err(ObserverEnd::Impossible);
                }
                Err(HookDeliveryError::Retryable(why)) => {
                    self.report_failure(why);
                    self.wait_backoff(pause).await?;
                    pause = (pause * 2).min(MAX_BACKOFF);
                    continue;
                }
            }
            pause = INITIAL_BACKOFF;
            rest = others;
            // The next line belongs to another entry: a kill from here on repeats no line of this entry.
            if let Some(last) = bite.last()
                && rest.first().is_some_and(|next| next.position.seq != last.position.seq)
            {
                self.progress.next_seq.store(last.position.seq + 1, Ordering::Relaxed);
                self.save_cursor(last.position).await;
            }
        }
        Ok(())
    }

    /// The number of lines in the next write.
    fn batch_len(&self, lines: &[ObserverLine]) -> usize {
        if matches!(self.hook.handler, HookHandler::Command(_) | HookHandler::Http(_)) {
            return 1;
        }
        let mut bytes = 0;
        let fits = |line: &&ObserverLine| {
            bytes += line.text.len();
            bytes <= MAX_BATCH_BYTES
        };
        lines.iter().take_while(fits).count().max(1)
    }

    async fn save_cursor(&self, at: CursorPosition) {
        let cursor = self.cursor.clone();
        if let Some(Err(why)) = run_blocking(move || cursor.save_position(at)).await {
            self.report_failure(format!("could not store its cursor: {why}"));
        }
    }

    /// Waits before the next attempt; fails if the pod is stopping.
    async fn wait_backoff(&mut self, pause: Duration) -> Result<(), ObserverEnd> {
        if *self.stopping.borrow() {
            return Err(ObserverEnd::PodStopping);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            _ = self.stopping.wait_for(|ending| *ending) => Err(ObserverEnd::PodStopping),
        }
    }

    fn report_caught_up(&self, next: u64) {
        let behind = self.head.borrow().is_some_and(|head| head >= next);
        if !behind && self.progress.is_lag_reported.swap(false, Ordering::Relaxed) {
            self.send_alert("has caught up".to_owned());
        }
    }

    /// Reports a failure once, until a delivery succeeds.
    fn report_failure(&self, why: String) {
        if self.progress.set_last_error(Some(why.clone())) {
            self.send_alert(why);
        }
    }

    fn send_alert(&self, what: String) {
        let what = crate::payload::redact_text(&what, &self.context);
        (self.config.alert)(format!("hook {}: {what}", self.hook.name));
    }
}

/// Delivers lines to a hook.
pub(crate) async fn deliver_to(
    hook: &Hook,
    context: &HookContext,
    web: &HttpClients,
    text: Vec<u8>,
) -> Result<(), HookDeliveryError> {
    match &hook.handler {
        HookHandler::Command(line) => run_command(hook, context, line, &text).await,
        HookHandler::Http(url) => {
            web.post_body(url, text, hook.timeout, MAX_ANSWER_BYTES).await.map(|_| ()).map_err(|no| {
                if no.is_retryable {
                    HookDeliveryError::Retryable(no.why)
                } else {
                    HookDeliveryError::Skipped(format!("{}; this event is skipped", no.why))
                }
            })
        }
        HookHandler::File(path) => {
            let path = path.clone();
            let appended = run_blocking(move || sink::append_lines(&path, &text)).await;
            appended
                .unwrap_or_else(|| Err("writing stopped unexpectedly".to_owned()))
                .map_err(HookDeliveryError::Retryable)
        }
        HookHandler::Socket(path) => {
            sink::send_lines(path, &text, hook.timeout).await.map_err(HookDeliveryError::Retryable)
        }
        HookHandler::Invalid(why) => Err(HookDeliveryError::Unsupported(why.clone())),
    }
}

/// Runs a command; any exit counts as delivered.
async fn run_command(
    hook: &Hook,
    context: &HookContext,
    line: &str,
    text: &[u8],
) -> Result<(), HookDeliveryError> {
    if context.commands.is_none() {
        return Err(HookDeliveryError::Unsupported(steer::NO_SANDBOX.to_owned()));
    }
    match steer::run_command(hook, context, line, text, MAX_ANSWER_BYTES).await {
        Ok(end) if end.exit == HookExit::Exited(ProcessExit::Code(0)) => Ok(()),
        Ok(end) => Err(HookDeliveryError::Skipped(steer::describe_failure(hook, &end, MAX_ANSWER_BYTES))),
        Err(why) => Err(HookDeliveryError::Retryable(why)),
    }
}

fn position_of(entry: &Entry) -> CursorPosition {
    CursorPosition { seq: entry.seq, h: entry.h }
}

/// Runs blocking work off the event loop; `None` if it panicked.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
