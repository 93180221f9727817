//! Steps that are written while no pod lives: a new session, a visit, a fork.
//!
//! They are made with the same `note` and the same fold as a pod's own steps, so a session is right from its first
//! entry on whoever wrote it.

use minke_record::{
    Actor, AlertLevel, AlertSource, Archived, AskId, Blob, CallStage, Checkpoint, ConfigChanged, Decision,
    Draft, ErrorCode, FORMAT, ForkedFrom, Git, Goal, GoalChange, History, Holder, Ids, Inbox, InputSegment,
    Item, Millis, OpenChild, Opened, Outcome, Parent, PodName, QueueId, QueueMode, QueuedInput, Renamed,
    Scope, SegmentReason, SessionId, SessionStart, Text, Unarchived,
};
use minke_thread::Wish;
use serde_json::Value;

use crate::asks::{Answering, may_answer};
use crate::calls::Settled;
use crate::firing::{Fire, has_schedule};
use crate::pod::{Making, Pod};
use crate::run::Beginning;
use crate::state::State;
use crate::step::{Refusal, Step};
use crate::tree::KinKnown;

/// The moment at which a step outside a pod is made.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now: Millis,
    pub seed: u64,
}

impl Moment {
    fn making(self, state: &State) -> Making {
        let now = self.now.max(state.facts.last_ts);
        Making { now, ids: Ids::new(self.now, self.seed), step: Step::default() }
    }
}

/// Entries to write whole, and the blobs that must be there before them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Written {
    pub blobs: Vec<Blob>,
    pub entries: Vec<Draft>,
}

impl From<Making> for Written {
    fn from(m: Making) -> Written {
        Written { blobs: m.step.blobs, entries: m.step.entries }
    }
}

/// What a creator knows of a new session.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub session: SessionId,
    pub version: String,
    pub name: PodName,
    pub created_by: Actor,
    pub cwd: String,
    pub workspace: String,
    pub git: Option<Git>,
    pub manifest: Value,
    pub scope: Scope,
    pub mandate: Option<Value>,
    pub metadata: Option<Value>,
    pub parent: Option<Parent>,
    /// The conversation so far, if it comes from elsewhere.
    pub history: Vec<Item>,
    /// The first task, as queued input: the pod takes it up when it boots.
    pub task: Option<Task>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub segments: Vec<InputSegment>,
    pub op_id: Option<String>,
    pub from: Actor,
}

/// The first step of a new session.
pub fn new_session(at: Moment, new: NewSession) -> Written {
    let mut pod = Pod::new(State::default());
    let mut m = at.making(&pod.state);
    // What a schedule makes has the input; the job with the schedule never runs.
    let scheduled = has_schedule(new.mandate.as_ref());
    let task = new.task.filter(|_| !scheduled);
    let history = new.history;
    pod.note(
        &mut m,
        SessionStart {
            session: new.session,
            format: FORMAT,
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
        },
    );
    if !history.is_empty() {
        pod.begin_segment(&mut m, imported(history));
    }
    pod.begin_schedule(&mut m);
    if let Some(task) = task {
        let id = QueueId(m.ids.next_uuid());
        let Task { segments, op_id, from } = task;
        pod.note(
            &mut m,
            QueuedInput { id, segments, op_id, from, mode: QueueMode::Queue, attached: Vec::new() },
        );
    }
    m.into()
}

/// A history from elsewhere. Prompt and tools are the pod's own: it begins a segment with them before its first request.
fn imported(items: Vec<Item>) -> Beginning {
    Beginning {
        reason: SegmentReason::Import,
        system_prompt: Text::default(),
        tools: Vec::new(),
        config: Value::Null,
        history: History::Here(items),
    }
}

/// Who visits.
#[derive(Debug, Clone, PartialEq)]
pub struct Visitor {
    pub pid: u32,
    pub boot_id: String,
    pub host: String,
    pub version: String,
    pub by: Actor,
}

/// What a visitor changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Visit {
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
    /// What the pod above knows of everybody below this one.
    Kin(KinKnown),
    /// Another model, by its reference.
    Model(String),
    /// What the thread is to go on for; `None` clears it.
    Goal(Option<String>),
    /// A conversation that was had elsewhere, for a session that has none yet.
    Import(Vec<Item>),
    /// Gives a paused or interrupted run up.
    Abandon {
        reason: String,
    },
    /// Somebody wants a job paused or cancelled on which no pod lives; one with a schedule resumed, too.
    Job {
        wish: Wish,
        detail: Option<String>,
    },
    /// Another job comes from this one.
    Fire(Fire),
}

/// `opened{as: visit}` and the change, in one step.
pub fn visit(state: &State, at: Moment, visitor: Visitor, visit: Visit) -> Result<Written, Refusal> {
    let mut pod = Pod::new(state.clone());
    let mut m = at.making(state);
    pod.note(
        &mut m,
        Opened {
            epoch: state.facts.epoch.saturating_add(1),
            pid: visitor.pid,
            boot_id: visitor.boot_id,
            host: visitor.host,
            version: visitor.version,
            holder: Holder::Visit,
            fence: None,
            own: None,
        },
    );
    let by = visitor.by;
    match visit {
        Visit::Queue { op_id: Some(op_id), .. } if state.op(&op_id).is_some() => {
            return Ok(Written::default());
        }
        Visit::Queue { segments, op_id } => {
            let limit = state.manifest.pod.limits.queue;
            if state.facts.queue.len() as u64 >= limit {
                return Err(Refusal::new(ErrorCode::TooMany, format!("{limit} inputs wait already")));
            }
            let id = QueueId(m.ids.next_uuid());
            pod.note(
                &mut m,
                QueuedInput { id, segments, op_id, from: by, mode: QueueMode::Queue, attached: Vec::new() },
            );
        }
        Visit::Notify { message, wake } => {
            let message = Some(message.into());
            pod.note(&mut m, Inbox { from: by, from_seq: None, event: None, message, wake });
        }
        Visit::Answer { ask, decision, note } => {
            let answering = Answering { ask, decision, note, by };
            may_answer(state, m.now, &answering)?;
            let waits = state.facts.calls.iter().any(|call| call.stage == CallStage::Asked(ask));
            if !waits {
                let message = format!("the client's call that question {ask} was about is gone");
                return Err(Refusal::new(ErrorCode::NotFound, message));
            }
            pod.answer_in_visit(&mut m, answering);
        }
        Visit::Model(reference) => {
            for (key, value) in state.model_changes(&reference) {
                pod.note(&mut m, ConfigChanged { key, value, by: by.clone() });
            }
        }
        Visit::Rename(name) => {
            pod.note(&mut m, Renamed { name, by });
        }
        Visit::Archive(true) => {
            pod.note(&mut m, Archived { by });
        }
        Visit::Archive(false) => {
            pod.note(&mut m, Unarchived { by });
        }
        Visit::Checkpoint { id, state } => {
            pod.note(&mut m, Checkpoint { id, state });
        }
        Visit::Kin(KinKnown { paid, children }) => {
            let opened = m.step.entries.len();
            pod.note_spending(&mut m, &paid);
            for child in children {
                let same = |known: &&OpenChild| {
                    known.ended.is_none() && known.budget == child.budget && known.line == child.line
                };
                if state.child(child.session).filter(same).is_none() {
                    pod.note(&mut m, child);
                }
            }
            if m.step.entries.len() == opened {
                return Ok(Written::default());
            }
        }
        Visit::Config { key, value } => {
            if key == crate::budget::KEY {
                pod.may_set_budget(&value, &by)?;
            }
            pod.note(&mut m, ConfigChanged { key, value, by });
        }
        Visit::Goal(goal) => {
            let change = if goal.is_some() { GoalChange::Set } else { GoalChange::Clear };
            pod.note(&mut m, Goal { change, text: goal.unwrap_or_default(), used: 0, evidence: None });
        }
        Visit::Import(items) => {
            if state.segment.is_some() || !state.context.is_empty() || !state.facts.queue.is_empty() {
                let message = "the thread has a conversation already: history goes only into an empty one";
                return Err(Refusal::new(ErrorCode::Conflict, message));
            }
            pod.begin_segment(&mut m, imported(items));
        }
        Visit::Abandon { reason } => {
            if state.facts.run.is_some() {
                pod.end_interrupted(&mut m, "the process ended");
            }
            if pod.state.resumable().is_none() {
                return Err(Refusal::new(ErrorCode::NotRunning, "no run is paused or interrupted"));
            }
            pod.give_up(&mut m, &reason, &by);
        }
        Visit::Job { wish, detail } => {
            let opened = m.step.entries.len();
            pod.wish_in_visit(&mut m, wish, detail, &by)?;
            if m.step.entries.len() == opened {
                return Ok(Written::default());
            }
        }
        Visit::Fire(fire) => {
            let opened = m.step.entries.len();
            pod.fire(&mut m, fire);
            if m.step.entries.len() == opened {
                return Ok(Written::default());
            }
        }
    }
    Ok(m.into())
}

/// A fork: which session, from where.
#[derive(Debug, Clone, PartialEq)]
pub struct Forking {
    pub session: SessionId,
    pub name: PodName,
    pub created_by: Actor,
    pub version: String,
    pub from: ForkedFrom,
    /// Where it works, if not where the parent does.
    pub cwd: Option<String>,
    /// Of a job that is begun again.
    pub mandate: Option<Value>,
    /// Why that job is not begun by itself.
    pub rests: Option<String>,
}

/// The first step of a fork, from the parent's state at the entry it is forked from. Context, tasks, goal and
/// configuration come along; open calls are closed as `cancelled`; everything else stays with the parent.
pub fn fork(parent: &State, at: Moment, forking: Forking) -> Result<Written, Refusal> {
    let Some(about) = parent.facts.about.clone() else {
        return Err(Refusal::new(ErrorCode::Internal, "the parent's log has no session_start"));
    };
    let same_as = forking.from.seq;
    let mut pod = Pod::new(State { next_seq: 0, ..parent.clone() });
    let mut m = at.making(parent);
    pod.note(
        &mut m,
        SessionStart {
            session: forking.session,
            format: FORMAT,
            version: forking.version,
            name: forking.name,
            created_by: forking.created_by,
            cwd: forking.cwd.unwrap_or(about.cwd),
            workspace: about.workspace,
            git: None,
            manifest: about.manifest,
            scope: about.scope,
            mandate: forking.mandate.clone(),
            metadata: None,
            parent: None,
            from: Some(forking.from),
        },
    );
    if let Some(segment) = parent.segment.clone() {
        pod.begin_segment(
            &mut m,
            Beginning {
                reason: SegmentReason::Fork,
                system_prompt: segment.system_prompt,
                tools: segment.tools.as_ref().clone(),
                config: segment.config,
                history: History::SameAs { same_as },
            },
        );
    }
    let open: Vec<_> = pod.state.facts.calls.iter().map(|call| call.call_id.clone()).collect();
    for call_id in open {
        debug_assert!(!matches!(pod.state.call(&call_id).map(|c| &c.stage), Some(CallStage::Asked(_))));
        let settled =
            Settled::error(Outcome::Cancelled, "the session was forked here; it did not run in this one");
        pod.settle_call(&mut m, &call_id, settled);
    }
    pod.begin_schedule(&mut m);
    let scheduled = has_schedule(forking.mandate.as_ref());
    let objective = forking.mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
    if let Some(objective) = objective.filter(|_| !scheduled) {
        let (id, from) = (QueueId(m.ids.next_uuid()), Actor::job(forking.session));
        let segments = vec![InputSegment::Text { content: objective.into() }];
        let (op_id, mode, attached) = (None, QueueMode::Queue, Vec::new());
        pod.note(&mut m, QueuedInput { id, segments, op_id, from, mode, attached });
    }
    if let Some(why) = forking.rests {
        pod.alert(&mut m, AlertLevel::Error, AlertSource::Pod, why.clone());
        pod.rest_at(&mut m, why);
    }
    Ok(m.into())
}
