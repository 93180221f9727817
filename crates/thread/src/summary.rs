//! Session summary, folded entry by entry: stored in an index and continued with new entries.
//!
//! Invariant: `apply_entry` is total, and its result does not depend on where the fold was interrupted
//! (`a_kept_summary_goes_on_as_if_it_had_read_everything`).

use std::collections::BTreeMap;

use minke_record::{
    Actor, AskId, CallId, EndResult, Entry, ErrorCode, ForkOrigin, GitState, History, JobFacts, Kind,
    LlmUsage, Millis, ParentCall, PodName, Route, RunId, RunResult, SegmentReason, SessionId, SessionStart,
    SessionUsage, StateWord, Trigger, WaitingOn,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job_fold;
use crate::preview::{NEW_CONVERSATION, preview_input, preview_item};

/// Maximum number of tracked open calls and asks; more count as one running call.
const MAX_OPEN_ITEMS: usize = 256;

/// The facts of one session for lists, search and the job scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The last applied entry; absent before the first.
    pub seq: Option<u64>,
    pub session: Option<SessionId>,
    pub name: Option<PodName>,
    pub created: Millis,
    pub updated: Millis,
    #[serde(flatten)]
    pub origin: SessionOrigin,
    pub cwd: String,
    /// Its history was imported.
    pub imported: bool,
    pub archived: Option<Millis>,
    pub preview: String,
    /// The newest requested route, or the manifest's model before the first request.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub posture: Option<String>,
    /// The sandbox backend of its last process. An index of the release 0.1.0 has its letter in `fence`.
    #[serde(alias = "fence")]
    pub backend: Option<String>,
    pub sandbox: Option<String>,
    /// Why only a valid prefix of its log could be read. Such a session is not resumed automatically.
    pub damaged: Option<String>,
    pub run: Option<OpenRunSummary>,
    pub last: Option<LastRun>,
    pub usage: SessionUsage,
    pub latest: Option<LatestMessage>,
    /// Number of queued inputs.
    pub queued: u64,
    /// Only for a session that is a job.
    pub job: Option<JobFacts>,
    asks: BTreeMap<AskId, String>,
    calls: BTreeMap<CallId, bool>,
    asking_model: bool,
}

/// Who created a session, and from which state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionOrigin {
    pub created_by: Option<Actor>,
    pub workspace: String,
    pub git: Option<GitState>,
    /// The version of the program that created it.
    pub version: String,
    pub parent: Option<ParentCall>,
    pub from: Option<ForkOrigin>,
    pub mandate: Option<Value>,
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenRunSummary {
    pub id: RunId,
    pub trigger: Trigger,
    pub attempt: u32,
    pub since: Millis,
    /// The time it waits for before the next request.
    pub until: Option<Millis>,
}

/// The last run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRun {
    pub id: RunId,
    pub result: EndResult,
    pub message: Option<String>,
    pub retryable: bool,
    pub at: Millis,
    /// A paused or interrupted run was abandoned.
    pub abandoned: bool,
    pub until: Option<Millis>,
}

/// The last input or reply; clients use it as a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatestMessage {
    pub seq: u64,
    pub run: Option<RunId>,
    /// `user` or `assistant`.
    pub role: String,
    pub at: Millis,
}

/// The wait of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadWait {
    pub on: WaitingOn,
    pub until: Option<Millis>,
}

impl Default for SessionSummary {
    fn default() -> Self {
        SessionSummary {
            seq: None,
            session: None,
            name: None,
            created: 0,
            updated: 0,
            origin: SessionOrigin::default(),
            cwd: String::new(),
            imported: false,
            archived: None,
            preview: NEW_CONVERSATION.to_owned(),
            model: None,
            provider: None,
            posture: None,
            backend: None,
            sandbox: None,
            damaged: None,
            run: None,
            last: None,
            usage: SessionUsage::default(),
            latest: None,
            queued: 0,
            job: None,
            asks: BTreeMap::new(),
            calls: BTreeMap::new(),
            asking_model: false,
        }
    }
}

impl SessionSummary {
    pub fn from_entries<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> SessionSummary {
        let mut summary = SessionSummary::default();
        for entry in entries {
            summary.apply_entry(entry);
        }
        summary
    }

    /// Applies one more entry. An entry that was applied before changes nothing.
    pub fn apply_entry(&mut self, entry: &Entry) {
        if self.seq.is_some_and(|seq| entry.seq <= seq) {
            return;
        }
        self.seq = Some(entry.seq);
        if is_thread_activity(&entry.kind) {
            self.updated = self.updated.max(entry.ts);
        }
        if let Some(job) = &mut self.job {
            job_fold::apply_entry(job, entry);
        }
        match &entry.kind {
            Kind::SessionStart(start) => self.apply_session_start(start, entry.ts),
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Import => {
                self.imported = true;
                if let History::Here(items) = &segment.history
                    && let Some(line) = items.iter().rev().find_map(preview_item)
                {
                    self.preview = line;
                }
            }
            // A fork continues with the changed configuration of its parent.
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Fork => {
                let changed = segment.carry.inline().map(|facts| &facts.config);
                changed.into_iter().flatten().for_each(|(key, value)| self.apply_config(key, value));
            }
            Kind::Opened(opened) => {
                if let Some(backend) = opened.sandbox.name() {
                    self.backend = Some(backend.to_owned());
                }
            }
            Kind::Renamed(renamed) => self.name = Some(renamed.name.clone()),
            Kind::Archived(_) => self.archived = Some(entry.ts),
            Kind::Unarchived(_) => self.archived = None,
            Kind::ConfigChanged(change) => self.apply_config(&change.key, &change.value),
            Kind::QueuedInput(_) => self.queued = self.queued.saturating_add(1),
            Kind::Dequeued(_) => self.queued = self.queued.saturating_sub(1),
            Kind::UserInput(input) => {
                if let Some(line) = preview_input(&input.segments) {
                    self.preview = line;
                }
                self.set_latest_message(entry, "user");
            }
            Kind::LlmCall(call) => {
                self.asking_model = true;
                self.clear_run_wait();
                self.set_route(&call.route);
            }
            Kind::AssistantItem(_) => self.set_latest_message(entry, "assistant"),
            Kind::LlmUsage(usage) => self.add_usage(usage),
            Kind::LlmEnd(_) => self.asking_model = false,
            _ => self.apply_run_entry(entry),
        }
    }

    /// Returns whether a fork has no input of its own, so that its parent's preview is shown.
    pub fn shows_parent_preview(&self) -> bool {
        self.preview == NEW_CONVERSATION && self.origin.from.is_some()
    }

    fn apply_run_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::Invoke(invoke) => {
                let Some(id) = entry.run else { return };
                let (trigger, attempt, since) = (invoke.trigger.clone(), invoke.attempt, entry.ts);
                self.run = Some(OpenRunSummary { id, trigger, attempt, since, until: None });
            }
            Kind::RunCompleted(end) => {
                self.finish_run(entry, EndResult::Completed(end.result.clone()), end.reason.clone(), false);
            }
            Kind::RunErrored(end) => {
                self.finish_run(
                    entry,
                    EndResult::Errored(end.code.clone()),
                    Some(end.message.clone()),
                    end.retryable,
                );
            }
            Kind::StateChange(change) => match change.state {
                StateWord::Waiting if change.on == Some(WaitingOn::Time) => {
                    if let Some(run) = &mut self.run {
                        run.until = change.until;
                    }
                }
                StateWord::Working => self.clear_run_wait(),
                StateWord::Abandoned => {
                    if let Some(last) = &mut self.last {
                        (last.abandoned, last.until) = (true, None);
                    }
                }
                _ => {}
            },
            Kind::ToolDispatch(call) if self.calls.len() < MAX_OPEN_ITEMS => {
                self.calls.insert(call.call_id.clone(), call.own);
            }
            Kind::ToolResult(result) => {
                if let minke_record::Item::ToolResult { call_id, .. } = &result.item {
                    self.calls.remove(call_id);
                }
            }
            Kind::Ask(ask) if self.asks.len() < MAX_OPEN_ITEMS => {
                self.asks.insert(ask.id, ask.ask.as_str().to_owned());
            }
            Kind::Answer(answer) => drop(self.asks.remove(&answer.id)),
            _ => {}
        }
    }

    fn apply_session_start(&mut self, start: &SessionStart, at: Millis) {
        self.session = Some(start.session);
        self.name = Some(start.name.clone());
        (self.created, self.updated) = (at, at);
        self.origin.created_by = Some(start.created_by.clone());
        self.cwd.clone_from(&start.cwd);
        self.origin.workspace.clone_from(&start.workspace);
        self.origin.git.clone_from(&start.git);
        self.origin.version.clone_from(&start.version);
        self.origin.parent.clone_from(&start.parent);
        self.origin.from.clone_from(&start.from);
        self.origin.mandate.clone_from(&start.mandate);
        self.job = job_fold::job_from_mandate(start.mandate.as_ref(), 0, at);
        let word = |pointer: &str| start.manifest.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        self.posture = word("/permissions/posture");
        self.sandbox = word("/sandbox/mode");
        self.set_model_reference(word("/model/ref").as_deref());
    }

    fn apply_config(&mut self, key: &str, value: &Value) {
        let word = value.as_str();
        match key {
            "permissions.posture" => self.posture = word.map(str::to_owned),
            "sandbox.mode" => self.sandbox = word.map(str::to_owned),
            "model.ref" => self.set_model_reference(word),
            _ => {}
        }
    }

    /// Sets provider and model before the first request.
    fn set_model_reference(&mut self, reference: Option<&str>) {
        let Some((provider, model)) = reference.and_then(|reference| reference.split_once('/')) else {
            return;
        };
        (self.provider, self.model) = (Some(provider.to_owned()), Some(model.to_owned()));
    }

    fn set_route(&mut self, route: &Route) {
        (self.provider, self.model) = (Some(route.provider.clone()), Some(route.model.clone()));
    }

    fn set_latest_message(&mut self, entry: &Entry, role: &str) {
        self.latest =
            Some(LatestMessage { seq: entry.seq, run: entry.run, role: role.to_owned(), at: entry.ts });
    }

    fn add_usage(&mut self, usage: &LlmUsage) {
        let sum = &mut self.usage;
        sum.input = sum.input.saturating_add(usage.input);
        sum.output = sum.output.saturating_add(usage.output);
        sum.cache_read = sum.cache_read.saturating_add(usage.cache_read);
        sum.cache_write = sum.cache_write.saturating_add(usage.cache_write);
        match usage.cost_usd {
            Some(cost) => sum.cost_usd += cost,
            None => sum.unknown_cost = sum.unknown_cost.saturating_add(1),
        }
        sum.calls = sum.calls.saturating_add(1);
    }

    fn finish_run(&mut self, entry: &Entry, result: EndResult, message: Option<String>, retryable: bool) {
        let Some(run) = self.run.take() else { return };
        // Only an interrupted run continues with its open calls.
        let is_resumable = result == EndResult::Completed(RunResult::Interrupted);
        let until = run.until.filter(|_| is_resumable);
        self.asking_model = false;
        self.calls.retain(|_, own| is_resumable && *own);
        self.last =
            Some(LastRun { id: run.id, result, message, retryable, at: entry.ts, abandoned: false, until });
    }

    fn clear_run_wait(&mut self) {
        if let Some(run) = &mut self.run {
            run.until = None;
        }
    }

    /// Returns the wait of an open or interrupted run that does nothing else.
    pub fn thread_wait(&self) -> Option<ThreadWait> {
        let until = match (&self.run, &self.last) {
            (Some(run), _) => run.until,
            (None, Some(last)) if last.is_interrupted() && !last.abandoned => last.until,
            _ => return None,
        };
        if self.asking_model || self.calls.values().any(|own| !own) {
            return None;
        }
        let on = if !self.asks.is_empty() {
            WaitingOn::Ask
        } else if !self.calls.is_empty() {
            WaitingOn::Child
        } else {
            until.map(|_| WaitingOn::Time)?
        };
        Some(ThreadWait { on, until })
    }

    /// Returns the number of open asks.
    pub fn open_ask_count(&self) -> usize {
        self.asks.len()
    }

    /// Returns the result of the last run by its log name.
    pub fn last_result_name(&self) -> Option<&str> {
        self.last.as_ref().map(|last| match &last.result {
            EndResult::Completed(result) => result.as_str(),
            EndResult::Errored(code) => error_code_name(code),
        })
    }
}

impl LastRun {
    pub fn is_interrupted(&self) -> bool {
        self.result == EndResult::Completed(RunResult::Interrupted)
    }

    pub fn is_paused(&self) -> bool {
        self.result == EndResult::Completed(RunResult::Paused)
    }
}

fn error_code_name(code: &ErrorCode) -> &str {
    code.as_str()
}

/// Returns whether an entry is activity of the thread and not of the process.
fn is_thread_activity(kind: &Kind) -> bool {
    !matches!(kind, Kind::Opened(_) | Kind::Carry(_) | Kind::OutboxAck(_) | Kind::ReadTo(_) | Kind::Alert(_))
}
