//! What a log amounts to, entry by entry: kept in an index, gone on with when more was written.
//!
//! Invariant: `apply` is total, and what it takes from a log does not depend on where it was interrupted
//! (`a_kept_summary_goes_on_as_if_it_had_read_everything`).

use std::collections::BTreeMap;

use minke_record::{
    Actor, AskId, CallId, EndResult, Entry, ErrorCode, ForkedFrom, Git, History, JobFacts, Kind, LlmUsage,
    Millis, Parent, PodName, Route, RunId, RunResult, SegmentReason, SessionId, SessionStart, StateWord,
    Trigger, Usage, WaitingOn,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::preview::{NEW, preview, preview_of};
use crate::work;

/// Open calls and questions that are kept apart; more of them are only counted as one that runs.
const OPEN_KEPT: usize = 256;

/// Everything a list, a search and a scheduler want to know of one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The last entry that it has read; absent before the first.
    pub seq: Option<u64>,
    pub session: Option<SessionId>,
    pub name: Option<PodName>,
    pub created: Millis,
    pub updated: Millis,
    pub created_by: Option<Actor>,
    pub cwd: String,
    pub workspace: String,
    pub git: Option<Git>,
    /// The program that made it.
    pub version: String,
    pub parent: Option<Parent>,
    pub from: Option<ForkedFrom>,
    pub mandate: Option<Value>,
    /// Its history came from elsewhere.
    pub imported: bool,
    pub archived: Option<Millis>,
    pub preview: String,
    /// The newest route that was asked, or what the manifest says before the first request.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub posture: Option<String>,
    /// The tier of the fence of its last life.
    pub fence: Option<String>,
    pub sandbox: Option<String>,
    /// Why only the good beginning of its log could be read; nobody goes on with it by himself.
    pub damaged: Option<String>,
    pub run: Option<OpenRun>,
    pub last: Option<Ended>,
    pub usage: Usage,
    pub latest: Option<Latest>,
    /// Inputs that wait.
    pub queued: u64,
    /// Only of a session that is a job.
    pub job: Option<JobFacts>,
    asks: BTreeMap<AskId, String>,
    calls: BTreeMap<CallId, bool>,
    asking_model: bool,
}

/// A run that goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenRun {
    pub id: RunId,
    pub trigger: Trigger,
    pub attempt: u32,
    pub since: Millis,
    /// It waits for this time before it asks the model again.
    pub until: Option<Millis>,
}

/// The last run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub id: RunId,
    pub result: EndResult,
    pub message: Option<String>,
    pub retryable: bool,
    pub at: Millis,
    /// A paused or interrupted one was given up.
    pub abandoned: bool,
    pub until: Option<Millis>,
}

/// The last input or answer, for the checkpoint that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    pub seq: u64,
    pub run: Option<RunId>,
    /// `user` or `assistant`.
    pub role: String,
    pub at: Millis,
}

/// What a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    pub on: WaitingOn,
    pub until: Option<Millis>,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            seq: None,
            session: None,
            name: None,
            created: 0,
            updated: 0,
            created_by: None,
            cwd: String::new(),
            workspace: String::new(),
            git: None,
            version: String::new(),
            parent: None,
            from: None,
            mandate: None,
            imported: false,
            archived: None,
            preview: NEW.to_owned(),
            model: None,
            provider: None,
            posture: None,
            fence: None,
            sandbox: None,
            damaged: None,
            run: None,
            last: None,
            usage: Usage::default(),
            latest: None,
            queued: 0,
            job: None,
            asks: BTreeMap::new(),
            calls: BTreeMap::new(),
            asking_model: false,
        }
    }
}

impl Summary {
    pub fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Summary {
        let mut summary = Summary::default();
        for entry in entries {
            summary.apply(entry);
        }
        summary
    }

    /// Reads one more entry. One that was read before changes nothing.
    pub fn apply(&mut self, entry: &Entry) {
        if self.seq.is_some_and(|seq| entry.seq <= seq) {
            return;
        }
        self.seq = Some(entry.seq);
        if is_life(&entry.kind) {
            self.updated = self.updated.max(entry.ts);
        }
        if let Some(job) = &mut self.job {
            work::apply(job, entry);
        }
        match &entry.kind {
            Kind::SessionStart(start) => self.begin(start, entry.ts),
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Import => {
                self.imported = true;
                if let History::Here(items) = &segment.history
                    && let Some(line) = items.iter().rev().find_map(preview_of)
                {
                    self.preview = line;
                }
            }
            // A fork goes on as its parent was changed to be.
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Fork => {
                let changed = segment.carry.here().map(|facts| &facts.config);
                changed.into_iter().flatten().for_each(|(key, value)| self.configure(key, value));
            }
            Kind::Opened(opened) if opened.fence.is_some() => self.fence.clone_from(&opened.fence),
            Kind::Renamed(renamed) => self.name = Some(renamed.name.clone()),
            Kind::Archived(_) => self.archived = Some(entry.ts),
            Kind::Unarchived(_) => self.archived = None,
            Kind::ConfigChanged(change) => self.configure(&change.key, &change.value),
            Kind::QueuedInput(_) => self.queued = self.queued.saturating_add(1),
            Kind::Dequeued(_) => self.queued = self.queued.saturating_sub(1),
            Kind::UserInput(input) => {
                if let Some(line) = preview(&input.segments) {
                    self.preview = line;
                }
                self.heard(entry, "user");
            }
            Kind::LlmCall(call) => {
                self.asking_model = true;
                self.stop_waiting();
                self.routed(&call.route);
            }
            Kind::AssistantItem(_) => self.heard(entry, "assistant"),
            Kind::LlmUsage(usage) => self.spend(usage),
            Kind::LlmEnd(_) => self.asking_model = false,
            _ => self.apply_run(entry),
        }
    }

    /// Whether nothing was said in it yet, so that what was said before it became a fork is shown.
    pub fn is_untold(&self) -> bool {
        self.preview == NEW && self.from.is_some()
    }

    fn apply_run(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::Invoke(invoke) => {
                let Some(id) = entry.run else { return };
                let (trigger, attempt, since) = (invoke.trigger.clone(), invoke.attempt, entry.ts);
                self.run = Some(OpenRun { id, trigger, attempt, since, until: None });
            }
            Kind::RunCompleted(end) => {
                self.end(entry, EndResult::Completed(end.result.clone()), end.reason.clone(), false);
            }
            Kind::RunErrored(end) => {
                self.end(
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
                StateWord::Working => self.stop_waiting(),
                StateWord::Abandoned => {
                    if let Some(last) = &mut self.last {
                        (last.abandoned, last.until) = (true, None);
                    }
                }
                _ => {}
            },
            Kind::ToolDispatch(call) if self.calls.len() < OPEN_KEPT => {
                self.calls.insert(call.call_id.clone(), call.own);
            }
            Kind::ToolResult(result) => {
                if let minke_record::Item::ToolResult { call_id, .. } = &result.item {
                    self.calls.remove(call_id);
                }
            }
            Kind::Ask(ask) if self.asks.len() < OPEN_KEPT => {
                self.asks.insert(ask.id, ask.ask.as_str().to_owned());
            }
            Kind::Answer(answer) => drop(self.asks.remove(&answer.id)),
            _ => {}
        }
    }

    fn begin(&mut self, start: &SessionStart, at: Millis) {
        self.session = Some(start.session);
        self.name = Some(start.name.clone());
        (self.created, self.updated) = (at, at);
        self.created_by = Some(start.created_by.clone());
        self.cwd.clone_from(&start.cwd);
        self.workspace.clone_from(&start.workspace);
        self.git.clone_from(&start.git);
        self.version.clone_from(&start.version);
        self.parent.clone_from(&start.parent);
        self.from.clone_from(&start.from);
        self.mandate.clone_from(&start.mandate);
        self.job = work::of(start.mandate.as_ref(), 0, at);
        let word = |pointer: &str| start.manifest.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        self.posture = word("/permissions/posture");
        self.sandbox = word("/sandbox/mode");
        self.chosen(word("/model/ref").as_deref());
    }

    fn configure(&mut self, key: &str, value: &Value) {
        let word = value.as_str();
        match key {
            "permissions.posture" => self.posture = word.map(str::to_owned),
            "sandbox.mode" => self.sandbox = word.map(str::to_owned),
            "model.ref" => self.chosen(word),
            _ => {}
        }
    }

    /// `provider/model`, before anything was asked there.
    fn chosen(&mut self, reference: Option<&str>) {
        let Some((provider, model)) = reference.and_then(|reference| reference.split_once('/')) else {
            return;
        };
        (self.provider, self.model) = (Some(provider.to_owned()), Some(model.to_owned()));
    }

    fn routed(&mut self, route: &Route) {
        (self.provider, self.model) = (Some(route.provider.clone()), Some(route.model.clone()));
    }

    fn heard(&mut self, entry: &Entry, role: &str) {
        self.latest = Some(Latest { seq: entry.seq, run: entry.run, role: role.to_owned(), at: entry.ts });
    }

    fn spend(&mut self, usage: &LlmUsage) {
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

    fn end(&mut self, entry: &Entry, result: EndResult, message: Option<String>, retryable: bool) {
        let Some(run) = self.run.take() else { return };
        // Only an interrupted one goes on with what it was doing.
        let goes_on = result == EndResult::Completed(RunResult::Interrupted);
        let until = run.until.filter(|_| goes_on);
        self.asking_model = false;
        self.calls.retain(|_, own| goes_on && *own);
        self.last =
            Some(Ended { id: run.id, result, message, retryable, at: entry.ts, abandoned: false, until });
    }

    fn stop_waiting(&mut self) {
        if let Some(run) = &mut self.run {
            run.until = None;
        }
    }

    /// What the thread waits for, if it has nothing else to do: a run that is open, or one that was interrupted.
    pub fn waits(&self) -> Option<Waits> {
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
        Some(Waits { on, until })
    }

    /// Questions nobody has answered.
    pub fn open_asks(&self) -> usize {
        self.asks.len()
    }

    /// What the last run came to, in a word of the log.
    pub fn last_result(&self) -> Option<&str> {
        self.last.as_ref().map(|last| match &last.result {
            EndResult::Completed(result) => result.as_str(),
            EndResult::Errored(code) => code_word(code),
        })
    }
}

impl Ended {
    pub fn is_interrupted(&self) -> bool {
        self.result == EndResult::Completed(RunResult::Interrupted)
    }

    pub fn is_paused(&self) -> bool {
        self.result == EndResult::Completed(RunResult::Paused)
    }
}

fn code_word(code: &ErrorCode) -> &str {
    code.as_str()
}

/// Whether an entry is something that happened in the thread, rather than the process coming and going.
fn is_life(kind: &Kind) -> bool {
    !matches!(kind, Kind::Opened(_) | Kind::Carry(_) | Kind::OutboxAck(_) | Kind::ReadTo(_) | Kind::Alert(_))
}
