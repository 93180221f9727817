//! Facts: everything folded that outlives a segment. A carry writes them down again, so opening needs no older entry.
//!
//! Here: the shapes. Elsewhere: how entries change them (`pod::apply`).
//! Invariant: `fold` from the last carry equals `fold` of everything, which holds because the fold keeps these facts
//! in this very struct.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::{Action, Class, Preview, Scope, Script};
use crate::budget::{Budget, Paid, Spent};
use crate::entry::{
    Actor, AskKind, AskSubject, ChildOutcome, CloneOf, Decision, ErrorCode, ForkedFrom, GoalChange, Parent,
    PodEvent, QueueMode, Reserved, RunResult, TaskStatus, Trigger,
};
use crate::ids::{AskId, CallId, Millis, PodName, QueueId, RunId, SessionId};
use crate::item::{InputSegment, SystemItem};
use crate::job::JobFacts;
use crate::text::Text;

macro_rules! fact_structs {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* })+
    };
}

/// Everything folded that outlives a segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Facts {
    /// From `session_start`; absent only in a log that has none.
    pub about: Option<About>,
    pub name: Option<PodName>,
    pub archived: bool,
    pub epoch: u64,
    /// A visit or the creator has left work (an input, an answer) that no pod has seen yet.
    pub woken: bool,
    /// The lease is held for a visit, not by a pod.
    pub visiting: bool,
    pub run: Option<OpenRun>,
    /// The last run that ended.
    pub last: Option<EndedRun>,
    pub calls: Vec<OpenCall>,
    pub asks: Vec<OpenAsk>,
    /// The questions that were answered last, oldest first: who answers one again is told that it is too late.
    pub answered: VecDeque<AnsweredAsk>,
    pub queue: VecDeque<Queued>,
    /// The queue waits for the next `run` or `resume`.
    pub held: bool,
    pub notes: VecDeque<Note>,
    pub children: Vec<OpenChild>,
    pub outbox: VecDeque<Report>,
    /// The newest `from_seq` of each sender.
    pub heard: BTreeMap<SessionId, u64>,
    pub grants: Vec<Granted>,
    pub usage: Usage,
    /// How many requests this session has made; the number of the next one.
    pub llm_calls: u64,
    /// How many of them have ended, whichever way.
    pub llm_ended: u64,
    /// Bytes of recordings that the log names.
    pub recorded: u64,
    /// A request without its end: the reservation counts as spent.
    pub open_llm: Option<OpenLlm>,
    /// What requests had reserved whose use nobody knows: the process died, or the stream broke first.
    pub unended: Spent,
    /// How many requests this session has made itself, a fork without its parent's.
    pub requests: u64,
    /// What `set{budget}` has set; over what manifest and mandate say.
    pub budget: Option<Budget>,
    /// What everybody below has spent, as far as it was read, and how many were spawned: the sum of `paid`.
    pub children_spent: Spent,
    /// The newest reading of what each pod below has spent itself.
    pub paid: BTreeMap<SessionId, Paid>,
    pub tasks: Vec<TaskFact>,
    /// The highest number that a task has had: numbers are not used again.
    pub task_ids: u64,
    /// Requests since a task was last changed, or the model last reminded of them.
    pub since_task: u64,
    pub goal: Option<GoalFact>,
    /// Only with a mandate that names an objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFacts>,
    pub read_to: BTreeMap<SessionId, u64>,
    /// Instructions of subtrees that the model has been told and still sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructed: Vec<Instructed>,
    pub op_ids: VecDeque<OpDone>,
    /// Changes of the configuration since the session began, by key.
    pub config: BTreeMap<String, Value>,
    /// When the pod last resumed by itself, newest last, at most three.
    pub resumes: VecDeque<Millis>,
    pub segment: u64,
    pub pruned_to: Option<u64>,
    pub last_ts: Millis,
}

fact_structs! {
    /// A file of instructions that was told.
    pub struct Instructed {
        pub path: String,
        /// How much of it was told.
        pub bytes: u64,
    }

    /// Who this session is. Never changes, except for the name (`Facts::name`).
    pub struct About {
        pub session: SessionId,
        pub created: Millis,
        pub created_by: Actor,
        pub cwd: String,
        pub workspace: String,
        pub manifest: Value,
        pub scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mandate: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent: Option<Parent>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<ForkedFrom>,
    }

    pub struct OpenRun {
        pub id: RunId,
        pub trigger: Trigger,
        pub by: Actor,
        pub attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub continues: Option<RunId>,
        /// The turn that is going on, or the next one: counts requests of this run, continuations apart.
        pub turn: u64,
        /// How often the reply of this turn was continued after its stream broke.
        #[serde(default)]
        pub continued: u32,
        /// A turn has begun and not ended.
        #[serde(default)]
        pub in_turn: bool,
        /// Length of the context when the input came: where a rollback goes back to. Absent without an input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input_at: Option<u64>,
        /// The write scope was captured, so that what commands of this run change can be undone.
        #[serde(default)]
        pub captured: bool,
        /// The model has said something in this run.
        #[serde(default)]
        pub produced: bool,
        /// The run waits for this time before it asks the model again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waits_until: Option<Millis>,
        /// Notes drained in this run; a rollback makes them notes again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub drained: Vec<Note>,
        /// Steering drained in this run; a rollback puts it back into the queue.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steered: Vec<Queued>,
    }

    pub struct EndedRun {
        pub id: RunId,
        pub trigger: Trigger,
        pub by: Actor,
        pub attempt: u32,
        pub turn: u64,
        pub result: EndResult,
        /// A paused or interrupted run was given up.
        #[serde(default)]
        pub abandoned: bool,
        /// It was interrupted while it waited for this time; then it goes on by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waits_until: Option<Millis>,
    }

    /// A call that has no result yet.
    pub struct OpenCall {
        pub call_id: CallId,
        pub tool: String,
        pub arguments: Text,
        pub stage: CallStage,
        /// A client made this call: it belongs to no run and its result is not history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
    }

    pub struct Dispatched {
        pub class: Class,
        pub action: Action,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub preview: Option<Preview>,
        /// When.
        #[serde(default)]
        pub at: Millis,
        /// The mind carries it out itself.
        #[serde(default)]
        pub own: bool,
    }

    /// A question without an answer.
    pub struct OpenAsk {
        pub id: AskId,
        pub ask: AskKind,
        pub subject: AskSubject,
        pub options: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Millis>,
    }

    /// A question that has its answer.
    pub struct AnsweredAsk {
        pub id: AskId,
        pub decision: Decision,
    }

    pub struct Queued {
        pub id: QueueId,
        pub segments: Vec<InputSegment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub op_id: Option<String>,
        pub from: Actor,
        pub mode: QueueMode,
        /// What it refers to, as it was read when it was accepted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attached: Vec<SystemItem>,
    }

    /// A notification or a report on its way into the context.
    pub struct Note {
        pub seq: u64,
        pub from: Actor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub event: Option<PodEvent>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<Text>,
        pub wake: bool,
    }

    /// A child that this pod remembers: its name stays taken as long.
    pub struct OpenChild {
        pub session: SessionId,
        pub name: PodName,
        pub call_id: CallId,
        pub scope: Scope,
        /// What it and everything below it may have spent in all when this life of it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget: Option<Budget>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adopted_from: Option<SessionId>,
        /// Who is between it and this pod, nearest to it first, if it was adopted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub line: Vec<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clone: Option<CloneOf>,
        /// Its process is known to have been ready in this life of it.
        #[serde(default)]
        pub ready: bool,
        /// How this life of it ended; while it is absent the loan is out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ended: Option<HowEnded>,
        /// It has lived before this life of it.
        #[serde(default)]
        pub lived: bool,
        /// What it and everything below it had spent when this life of it began.
        #[serde(default)]
        pub before: Spent,
        /// What it has asked and, as far as is known, not been answered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub asks: Vec<OpenAsk>,
        /// The newest report of it that a WaitPods may return, by the `seq` of its `inbox` entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reported: Option<u64>,
    }

    pub struct HowEnded {
        pub outcome: ChildOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit: Option<i32>,
    }

    pub struct Report {
        pub seq: u64,
        pub to: SessionId,
        pub event: PodEvent,
    }

    pub struct Granted {
        /// `call DIGEST`, or a rule as one line of TOML.
        pub rule: String,
        pub reach: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub scripts: Vec<Script>,
    }

    pub struct OpenLlm {
        pub call: u64,
        pub reserved: Reserved,
        /// What it used is known and counted.
        #[serde(default)]
        pub counted: bool,
    }

    pub struct TaskFact {
        pub id: u64,
        pub subject: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        pub status: TaskStatus,
    }

    pub struct GoalFact {
        pub change: GoalChange,
        pub text: String,
        pub used: u32,
    }

    /// An operation that was accepted: the same `op_id` again gets the same answer.
    pub struct OpDone {
        pub op_id: String,
        pub gave: OpGave,
    }
}

/// How the last run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndResult {
    Completed(RunResult),
    Errored(ErrorCode),
}

/// How far an open call has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallStage {
    /// The model wishes it; not judged, or to be judged again.
    Wished,
    Asked(AskId),
    Answered {
        digest: String,
        decision: Decision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The rule that is to be appended to the person's policy, if that was the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The scripts that the question showed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scripts: Vec<Script>,
    },
    Dispatched(Box<Dispatched>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OpGave {
    Run(RunId),
    Queued(QueueId),
}

/// Tokens and money of a session. `cost_usd` is the known part; `unknown_cost` counts calls without a price.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cost_usd: f64,
    pub unknown_cost: u64,
    pub calls: u64,
}

impl OpenChild {
    /// One of which no more is known than who it is and what it holds.
    pub fn new(session: SessionId, name: PodName, call_id: CallId, scope: Scope) -> OpenChild {
        OpenChild {
            session,
            name,
            call_id,
            scope,
            budget: None,
            adopted_from: None,
            line: Vec::new(),
            clone: None,
            ready: false,
            ended: None,
            lived: true,
            before: Spent::default(),
            asks: Vec::new(),
            reported: None,
        }
    }
}
