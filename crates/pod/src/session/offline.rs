//! Steps written while no pod runs: a new session, an offline edit, a fork.
//!
//! They use the same `append_entry` and `apply` as a running pod, so every writer produces a valid session.

use minke_record::{
    Actor, AlertLevel, AlertSource, Archived, AskId, Blob, CallStage, Checkpoint, ConfigChanged, Decision,
    Draft, ErrorCode, ForkOrigin, GitState, Goal, GoalChange, History, Holder, Inbox, InputSegment, Item,
    LOG_FORMAT, LoggedBackend, Millis, OpenChild, Opened, Outcome, ParentCall, PodName, QueueId, QueueMode,
    QueuedInput, Renamed, Scope, SegmentReason, SessionId, SessionStart, Text, Unarchived,
};
use minke_thread::JobAction;
use serde_json::Value;

use crate::calls::CallResult;
use crate::calls::asks::{AskAnswer, check_answer};
use crate::children::messages::DescendantState;
use crate::engine::PodEngine;
use crate::job::schedule::{ScheduleEvent, has_schedule};
use crate::run::SegmentInit;
use crate::state::State;
use crate::step::CommandRefusal;
use crate::step_builder::StepBuilder;

/// Time and random seed of a step that is written without a pod.
#[derive(Debug, Clone, Copy)]
pub struct StepSeed {
    pub now: Millis,
    pub seed: u64,
}

impl StepSeed {
    fn step_builder(self, state: &mut State) -> StepBuilder<'_> {
        StepBuilder::new(state, self.now, self.seed)
    }
}

/// Entries to append in one write, and the blobs that must exist before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepDraft {
    pub blobs: Vec<Blob>,
    pub entries: Vec<Draft>,
}

impl From<StepBuilder<'_>> for StepDraft {
    fn from(step: StepBuilder<'_>) -> StepDraft {
        StepDraft { blobs: step.result.blobs, entries: step.result.entries }
    }
}

/// Inputs for a new session.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub session: SessionId,
    pub version: String,
    pub name: PodName,
    pub created_by: Actor,
    pub cwd: String,
    pub workspace: String,
    pub git: Option<GitState>,
    pub manifest: Value,
    pub scope: Scope,
    pub mandate: Option<Value>,
    pub metadata: Option<Value>,
    pub parent: Option<ParentCall>,
    /// The conversation so far, for an import.
    pub history: Vec<Item>,
    /// The first task, stored as a queued input that the pod starts at boot.
    pub task: Option<InitialTask>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct InitialTask {
    pub segments: Vec<InputSegment>,
    pub op_id: Option<String>,
    pub from: Actor,
}

/// Returns the first step of a new session.
pub fn new_session(at: StepSeed, new: NewSession) -> StepDraft {
    let mut state = State::default();
    let mut step = at.step_builder(&mut state);
    // The jobs that a schedule creates get the input. The scheduled job itself never runs.
    let scheduled = has_schedule(new.mandate.as_ref());
    let task = new.task.filter(|_| !scheduled);
    let history = new.history;
    step.append_entry(SessionStart {
        session: new.session,
        format: LOG_FORMAT,
        version: new.version,
        name: new.name,
        created_by: new.created_by,
        cwd: new.cwd,
        workspace: new.workspace,
        git: new.git,
        manifest: new.manifest,
        scope: new.scope,
        mandate: new.mandate,
        metadata: new.metadata,
        parent: new.parent,
        from: None,
    });
    if !history.is_empty() {
        step.start_segment(import_segment(history));
    }
    step.start_schedule();
    if let Some(task) = task {
        let id = QueueId(step.ids.next_uuid());
        let InitialTask { segments, op_id, from } = task;
        step.append_entry(QueuedInput {
            id,
            segments,
            op_id,
            from,
            mode: QueueMode::Queue,
            attached: Vec::new(),
        });
    }
    step.into()
}

/// Returns a segment for an imported history. The pod starts its own segment before its first request.
fn import_segment(items: Vec<Item>) -> SegmentInit {
    SegmentInit {
        reason: SegmentReason::Import,
        system_prompt: Text::default(),
        tools: Vec::new(),
        config: Value::Null,
        history: History::Here(items),
    }
}

/// The process that writes an offline edit.
#[derive(Debug, Clone, PartialEq)]
pub struct OfflineWriter {
    pub pid: u32,
    pub boot_id: String,
    pub host: String,
    pub version: String,
    pub by: Actor,
}

/// A change that is written while no pod runs.
#[derive(Debug, Clone, PartialEq)]
pub enum OfflineEdit {
    Queue {
        segments: Vec<InputSegment>,
        op_id: Option<String>,
    },
    Notify {
        message: String,
        wake: bool,
    },
    Answer {
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    },
    Rename(PodName),
    Archive(bool),
    Checkpoint {
        id: String,
        state: Value,
    },
    Config {
        key: String,
        value: Value,
    },
    /// Spending and children of all descendants, as the parent knows them.
    Descendants(DescendantState),
    /// A different model, by its reference.
    Model(String),
    /// Sets the goal of the thread; `None` clears it.
    Goal(Option<String>),
    /// Imports a conversation into a session that has none yet.
    Import(Vec<Item>),
    /// Abandons a paused or interrupted run.
    Abandon {
        reason: String,
    },
    /// Pauses or cancels a job without a running pod; resumes one that has a schedule.
    Job {
        action: JobAction,
        detail: Option<String>,
    },
    /// Records that the schedule of this job creates another job.
    Schedule(ScheduleEvent),
}

/// Returns a step with `opened{as: visit}` and the change.
pub fn apply_offline_edit(
    state: &State,
    at: StepSeed,
    writer: OfflineWriter,
    edit: OfflineEdit,
) -> Result<StepDraft, CommandRefusal> {
    let mut edited = state.clone();
    let mut step = at.step_builder(&mut edited);
    step.append_entry(Opened {
        epoch: state.facts.epoch.saturating_add(1),
        pid: writer.pid,
        boot_id: writer.boot_id,
        host: writer.host,
        version: writer.version,
        holder: Holder::Visit,
        sandbox: LoggedBackend::NONE,
        own: None,
    });
    let opened = step.result.entries.len();
    let mut offline = OfflineStep { state, engine: PodEngine::default(), step, by: writer.by };
    offline.append_edit(edit)?;
    // An edit that changes nothing is not written.
    if offline.step.result.entries.len() == opened {
        return Ok(StepDraft::default());
    }
    Ok(offline.step.into())
}

/// The step of an offline edit while it is built.
struct OfflineStep<'a> {
    /// The state before the step.
    state: &'a State,
    engine: PodEngine,
    step: StepBuilder<'a>,
    by: Actor,
}

impl OfflineStep<'_> {
    fn append_edit(&mut self, edit: OfflineEdit) -> Result<(), CommandRefusal> {
        let (step, by) = (&mut self.step, self.by.clone());
        match edit {
            OfflineEdit::Queue { segments, op_id } => return self.append_input(segments, op_id),
            OfflineEdit::Notify { message, wake } => {
                let message = Some(message.into());
                step.append_entry(Inbox { from: by, from_seq: None, event: None, message, wake });
            }
            OfflineEdit::Answer { ask, decision, note } => return self.answer_ask(ask, decision, note),
            OfflineEdit::Model(reference) => {
                for (key, value) in self.state.model_changes(&reference) {
                    step.append_entry(ConfigChanged { key, value, by: by.clone() });
                }
            }
            OfflineEdit::Rename(name) => {
                step.append_entry(Renamed { name, by });
            }
            OfflineEdit::Archive(true) => {
                step.append_entry(Archived { by });
            }
            OfflineEdit::Archive(false) => {
                step.append_entry(Unarchived { by });
            }
            OfflineEdit::Checkpoint { id, state } => {
                step.append_entry(Checkpoint { id, state });
            }
            OfflineEdit::Descendants(known) => self.append_descendants(known),
            OfflineEdit::Config { key, value } => {
                if key == crate::budget::BUDGET_KEY {
                    step.state.check_budget_change(&value, &by)?;
                }
                step.append_entry(ConfigChanged { key, value, by });
            }
            OfflineEdit::Goal(goal) => {
                let change = if goal.is_some() { GoalChange::Set } else { GoalChange::Clear };
                let text = goal.unwrap_or_default();
                step.append_entry(Goal { change, text, used: 0, evidence: None });
            }
            OfflineEdit::Import(items) => return self.import_history(items),
            OfflineEdit::Abandon { reason } => return self.abandon_run(&reason),
            OfflineEdit::Job { action, detail } => {
                self.engine.apply_job_action_offline(step, action, detail, &by)?
            }
            OfflineEdit::Schedule(event) => step.apply_schedule_event(event),
        }
        Ok(())
    }

    /// Queues an input, unless an earlier operation with the same id has queued it.
    fn append_input(
        &mut self,
        segments: Vec<InputSegment>,
        op_id: Option<String>,
    ) -> Result<(), CommandRefusal> {
        if op_id.as_ref().is_some_and(|op_id| self.state.op_result(op_id).is_some()) {
            return Ok(());
        }
        let limit = self.state.manifest.pod.limits.queue;
        if self.state.facts.queue.len() as u64 >= limit {
            return Err(CommandRefusal::new(
                ErrorCode::TooMany,
                format!("the queue is full: {limit} inputs (pod.limits.queue)"),
            ));
        }
        let id = QueueId(self.step.ids.next_uuid());
        let (from, mode) = (self.by.clone(), QueueMode::Queue);
        let input = QueuedInput { id, segments, op_id, from, mode, attached: Vec::new() };
        self.step.append_entry(input);
        Ok(())
    }

    fn answer_ask(
        &mut self,
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    ) -> Result<(), CommandRefusal> {
        let answer = AskAnswer { ask, decision, note, by: self.by.clone() };
        check_answer(self.state, self.step.now, &answer)?;
        if !self.state.facts.calls.iter().any(|call| call.stage == CallStage::Asked(ask)) {
            let message = format!("the client's call that question {ask} was about is gone");
            return Err(CommandRefusal::new(ErrorCode::NotFound, message));
        }
        self.engine.answer_ask_offline(&mut self.step, answer);
        Ok(())
    }

    fn append_descendants(&mut self, known: DescendantState) {
        self.step.append_spending(&known.paid);
        for child in known.children {
            let same = |known: &&OpenChild| {
                known.ended.is_none() && known.budget == child.budget && known.line == child.line
            };
            if self.state.child(child.session).filter(same).is_none() {
                self.step.append_entry(child);
            }
        }
    }

    fn import_history(&mut self, items: Vec<Item>) -> Result<(), CommandRefusal> {
        let state = self.state;
        if state.segment.is_some() || !state.context.is_empty() || !state.facts.queue.is_empty() {
            let message = "history can be imported only into a thread without a conversation";
            return Err(CommandRefusal::new(ErrorCode::Conflict, message));
        }
        self.step.start_segment(import_segment(items));
        Ok(())
    }

    fn abandon_run(&mut self, reason: &str) -> Result<(), CommandRefusal> {
        if self.state.facts.run.is_some() {
            self.engine.interrupt_open_run(&mut self.step, "the process ended");
        }
        if self.step.state.resumable_run().is_none() {
            return Err(CommandRefusal::new(ErrorCode::NotRunning, "no run is paused or interrupted"));
        }
        self.engine.work.abandon_run(&mut self.step, reason, &self.by);
        Ok(())
    }
}

/// The fork to create and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkRequest {
    pub session: SessionId,
    pub name: PodName,
    pub created_by: Actor,
    pub version: String,
    pub from: ForkOrigin,
    /// The working directory; the parent's if absent.
    pub cwd: Option<String>,
    /// Set if a job is retried.
    pub mandate: Option<Value>,
    /// Why the new job starts paused.
    pub pause_reason: Option<String>,
}

/// Returns the first step of a fork, from the parent's state at the fork point. The fork copies context,
/// tasks, goal and configuration and closes open calls as `cancelled`.
pub fn fork_session(parent: &State, at: StepSeed, request: ForkRequest) -> Result<StepDraft, CommandRefusal> {
    let Some(about) = parent.facts.about.clone() else {
        return Err(CommandRefusal::new(ErrorCode::Internal, "the parent's log has no session_start"));
    };
    let same_as = request.from.seq;
    let mut engine = PodEngine::default();
    let mut state = State { next_seq: 0, ..parent.clone() };
    let mut step = at.step_builder(&mut state);
    step.append_entry(SessionStart {
        session: request.session,
        format: LOG_FORMAT,
        version: request.version,
        name: request.name,
        created_by: request.created_by,
        cwd: request.cwd.unwrap_or(about.cwd),
        workspace: about.workspace,
        git: None,
        manifest: about.manifest,
        scope: about.scope,
        mandate: request.mandate.clone(),
        metadata: None,
        parent: None,
        from: Some(request.from),
    });
    if let Some(segment) = parent.segment.clone() {
        step.start_segment(SegmentInit {
            reason: SegmentReason::Fork,
            system_prompt: segment.system_prompt,
            tools: segment.tools.as_ref().clone(),
            config: segment.config,
            history: History::SameAs { same_as },
        });
    }
    let open: Vec<_> = step.state.facts.calls.iter().map(|call| call.call_id.clone()).collect();
    for call_id in open {
        debug_assert!(!matches!(step.state.open_call(&call_id).map(|c| &c.stage), Some(CallStage::Asked(_))));
        let result =
            CallResult::error(Outcome::Cancelled, "the session was forked here; it did not run in this one");
        engine.work.calls.settle_call(&mut step, &call_id, result);
    }
    step.start_schedule();
    let scheduled = has_schedule(request.mandate.as_ref());
    let objective = request.mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
    if let Some(objective) = objective.filter(|_| !scheduled) {
        let (id, from) = (QueueId(step.ids.next_uuid()), Actor::from_job(request.session));
        let segments = vec![InputSegment::Text { content: objective.into() }];
        let (op_id, mode, attached) = (None, QueueMode::Queue, Vec::new());
        step.append_entry(QueuedInput { id, segments, op_id, from, mode, attached });
    }
    if let Some(why) = request.pause_reason {
        step.append_alert(AlertLevel::Error, AlertSource::Pod, why.clone());
        step.pause_from_start(why);
    }
    Ok(step.into())
}
