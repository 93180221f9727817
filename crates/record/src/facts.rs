//! Facts: the folded state that outlives a segment. A carry repeats it, so opening needs no older entry.
//!
//! Here: the types. Elsewhere: applying entries (`pod::apply`).
//! Invariant: `fold` from the last carry equals `fold` of everything, because the fold stores its state in
//! this very struct.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::{Action, Class, ExecutedScript, Preview, Scope};
use crate::budget::{Budget, PodSpend, Spend};
use crate::entry::{
    Actor, AskKind, AskSubject, ChildOutcome, CloneOrigin, Decision, ErrorCode, ForkOrigin, GoalChange,
    ParentCall, PodEvent, QueueMode, Reserved, RunResult, TaskStatus, Trigger,
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

/// The folded state that outlives a segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionFacts {
    /// From `session_start`; absent only in a log without one.
    pub about: Option<About>,
    pub name: Option<PodName>,
    pub archived: bool,
    pub epoch: u64,
    /// An offline edit or the creator has left work (an input, an answer) for the next pod.
    pub woken: bool,
    /// The lease is held for an offline edit, not by a pod.
    pub visiting: bool,
    pub run: Option<OpenRun>,
    /// The last run that ended.
    pub last: Option<EndedRun>,
    pub calls: Vec<OpenCall>,
    pub asks: Vec<OpenAsk>,
    /// The last answered asks, oldest first: a second answer is refused as too late.
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
    pub usage: SessionUsage,
    /// How many requests this session has made; the number of the next one.
    pub llm_calls: u64,
    /// The number of finished requests.
    pub llm_ended: u64,
    /// Bytes of recordings that the log names.
    pub recorded: u64,
    /// A request without its end: the reservation counts as spent.
    pub open_llm: Option<OpenLlm>,
    /// The reservations of requests with unknown usage: the process died, or the stream broke first.
    pub unended: Spend,
    /// The number of requests of this session; a fork does not count its parent's.
    pub requests: u64,
    /// The budget set by `set{budget}`; overrides manifest and mandate.
    pub budget: Option<Budget>,
    /// The known spending of all descendants, and the number of spawns: the sum of `paid`.
    pub children_spent: Spend,
    /// The newest spending of each descendant.
    pub paid: BTreeMap<SessionId, PodSpend>,
    pub tasks: Vec<TaskFact>,
    /// The highest task id so far: ids are not reused.
    pub task_ids: u64,
    /// Requests since the last change of a task or reminder of the model.
    pub since_task: u64,
    pub goal: Option<GoalFact>,
    /// Only with a mandate that names an objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFacts>,
    pub read_to: BTreeMap<SessionId, u64>,
    /// Nested instructions that the model has received and still sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructed: Vec<Instructed>,
    pub op_ids: VecDeque<OpDone>,
    /// Configuration changes since the session started, by key.
    pub config: BTreeMap<String, Value>,
    /// The times of automatic resumes, newest last, at most three.
    pub resumes: VecDeque<Millis>,
    pub segment: u64,
    pub pruned_to: Option<u64>,
    pub last_ts: Millis,
}

fact_structs! {
    /// An instruction file that the model has received.
    pub struct Instructed {
        pub path: String,
        /// The length of the received part.
        pub bytes: u64,
    }

    /// The identity of this session. Constant, except for the name (`Facts::name`).
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
        pub parent: Option<ParentCall>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<ForkOrigin>,
    }

    pub struct OpenRun {
        pub id: RunId,
        pub trigger: Trigger,
        pub by: Actor,
        pub attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub continues: Option<RunId>,
        /// The current or next turn: counts requests of this run without continuations.
        pub turn: u64,
        /// How often the reply of this turn was continued after a broken stream.
        #[serde(default)]
        pub continued: u32,
        /// A turn has started and not ended.
        #[serde(default)]
        pub in_turn: bool,
        /// Length of the context before the input: the target of a rollback. Absent without an input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input_at: Option<u64>,
        /// The write scope was captured, so that changes by commands of this run can be undone.
        #[serde(default)]
        pub captured: bool,
        /// The model has produced output in this run.
        #[serde(default)]
        pub produced: bool,
        /// The run waits until this time before the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waits_until: Option<Millis>,
        /// Inbox messages used in this run; a rollback makes them pending again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub drained: Vec<Note>,
        /// Steering used in this run; a rollback returns it to the queue.
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
        /// A paused or interrupted run was abandoned.
        #[serde(default)]
        pub abandoned: bool,
        /// It was interrupted while waiting for this time; it then resumes automatically.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waits_until: Option<Millis>,
    }

    /// A call without a result.
    pub struct OpenCall {
        pub call_id: CallId,
        pub tool: String,
        pub arguments: Text,
        pub stage: CallStage,
        /// The client that made this call: it belongs to no run and its result is not history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
    }

    pub struct Dispatched {
        pub class: Class,
        pub action: Action,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub preview: Option<Preview>,
        /// The time of the dispatch.
        #[serde(default)]
        pub at: Millis,
        /// The pod executes it itself.
        #[serde(default)]
        pub own: bool,
    }

    /// An ask without an answer.
    pub struct OpenAsk {
        pub id: AskId,
        pub ask: AskKind,
        pub subject: AskSubject,
        pub options: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Millis>,
    }

    /// An answered ask.
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
        /// The references of the input, as read when it was accepted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attached: Vec<SystemItem>,
    }

    /// A notification or report that is not in the context yet.
    pub struct Note {
        pub seq: u64,
        pub from: Actor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub event: Option<PodEvent>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<Text>,
        pub wake: bool,
    }

    /// A known child; its name stays reserved.
    pub struct OpenChild {
        pub session: SessionId,
        pub name: PodName,
        pub call_id: CallId,
        pub scope: Scope,
        /// The total spending limit of it and its descendants until this process of it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget: Option<Budget>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adopted_from: Option<SessionId>,
        /// If adopted: the pods between it and this pod, nearest to it first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub line: Vec<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clone: Option<CloneOrigin>,
        /// Its current process has reported `ready`.
        #[serde(default)]
        pub ready: bool,
        /// How its current process ended; while absent, the loan is active.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ended: Option<HowEnded>,
        /// It had an earlier process.
        #[serde(default)]
        pub lived: bool,
        /// The spending of it and its descendants when its current process started.
        #[serde(default)]
        pub before: Spend,
        /// Its open asks, as far as known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub asks: Vec<OpenAsk>,
        /// Its newest report that WaitPods may return, by the `seq` of its `inbox` entry.
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
        pub scripts: Vec<ExecutedScript>,
    }

    pub struct OpenLlm {
        pub call: u64,
        pub reserved: Reserved,
        /// Its usage is known and counted.
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

    /// A completed operation: a repeated `op_id` gets the same reply.
    pub struct OpDone {
        pub op_id: String,
        pub gave: OpOutcome,
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

/// The progress of an open call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallStage {
    /// Requested by the model; not judged, or to be judged again.
    Wished,
    Asked(AskId),
    Answered {
        digest: String,
        decision: Decision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The rule to append to the user's policy, if that was the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The scripts shown in the ask.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scripts: Vec<ExecutedScript>,
    },
    Dispatched(Box<Dispatched>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OpOutcome {
    Run(RunId),
    Queued(QueueId),
}

/// Tokens and money of a session. `cost_usd` is the known part; `unknown_cost` counts calls without a price.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cost_usd: f64,
    pub unknown_cost: u64,
    pub calls: u64,
}

impl OpenChild {
    /// A child of which only the identity and the scope are known.
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
            before: Spend::default(),
            asks: Vec::new(),
            reported: None,
        }
    }
}
