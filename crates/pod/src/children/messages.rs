//! Commands to the driver about other pods, and the events that come back.
//!
//! Elsewhere: their handling (`children`, `outbox`, `budget`) and execution (`driver::children`).

use minke_record::{
    Actor, AskId, Budget, CallId, Child, ChildOutcome, CloneOrigin, Decision, ErrorCode, InputSegment,
    OpenChild, ParentCall, PodEvent, PodName, PodSpend, Scope, SendMode, SessionId,
};
use serde_json::Value;

use crate::input::CallEnd;
use crate::session::offline::{InitialTask, NewSession};

/// A command to the driver about other pods. The result comes back as `InputKind::Child`.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildCommand {
    /// Create a child: loan, session, process, in this order, each with its undo. `child` and `tool_dispatch`
    /// are on disk. Comes back as `Spawned` or `SpawnFailed`.
    Spawn(Box<SpawnRequest>),
    /// Restart a child: this pod lends its recorded scope again. `child` is on disk. Comes back as `Spawned` or
    /// `SpawnFailed`, like a spawn.
    Restore {
        child: SessionId,
        name: PodName,
        scope: Scope,
        /// Its total spending limit when it ends again.
        budget: Option<Budget>,
        /// Facts about its descendants. They are written into its log before it starts, so that it counts
        /// correctly from its first request.
        descendants: Box<DescendantState>,
        /// The input that it is started for, if any.
        message: Option<OutgoingMessage>,
        call_id: Option<CallId>,
    },
    /// Send an input to a running child. Comes back as `CallFinished`.
    Send {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        message: OutgoingMessage,
    },
    /// Read a child's output since an entry, from its log. Comes back as `Read`.
    Read {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        since: u64,
        max_bytes: u64,
        detail: bool,
    },
    /// Stop a child: `shutdown`, then TERM, then KILL; wait until its lease is free and its sandboxes are
    /// gone. Comes back as `Ended` (unless `after_run`) and `CallFinished`.
    Stop {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        after_run: bool,
    },
    /// List the children. Comes back as `CallFinished`.
    List {
        call_id: CallId,
        children: Vec<OpenChild>,
        tree: bool,
    },
    /// Answer a child's ask. Comes back as `CallFinished`.
    Answer {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        ask: AskId,
        decision: Decision,
    },
    /// Check a child of an earlier process and watch it until it ends. Comes back as `Spawned` (it runs),
    /// `SpawnFailed` (it never started; undone) or `Ended`.
    Watch {
        child: SessionId,
        name: PodName,
    },
    /// Read unreceived reports newer than `since` from a child's log. Each comes back as
    /// `InputKind::Command(PodEvent)`, like a report that the child sends itself.
    ReadReports {
        child: SessionId,
        since: u64,
    },
    /// Read the spending of an ended child and its descendants, because it may have run while this pod did
    /// not. Comes back as `Spending`.
    ReadSpending {
        child: SessionId,
    },
    /// Send a report to the parent until it is acknowledged. Comes back as `ReportAcked`.
    Report {
        seq: u64,
        to: SessionId,
        event: PodEvent,
    },
    /// Release the write scope until the next run (`yield`), or acquire it again. Comes back as `Scope`.
    ReleaseScope,
    AcquireScope,
}

/// A child to be created, with the contents of its first step.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnRequest {
    pub call_id: CallId,
    /// This pod's session: the child's parent.
    pub parent: SessionId,
    pub session: SessionId,
    pub name: PodName,
    /// Its scope in addition to its own `tmp` and `output`: the request with this pod's denies.
    pub scope: Scope,
    pub task: String,
    pub cwd: String,
    pub workspace: String,
    /// The registered profile; absent if it inherits.
    pub profile: Option<String>,
    /// Replaces the profile's instruction.
    pub instruction: Option<String>,
    /// The manifest if it inherits, with its own instruction; the upper limit for a profile.
    pub manifest: Value,
    pub budget: Option<Budget>,
    /// `permissions` of its mandate: at most this pod's.
    pub permissions: Value,
    /// Work in a clone of the repository.
    pub clone: bool,
    /// The number of its ancestors.
    pub depth: u64,
}

impl SpawnRequest {
    /// Returns the mandate, which limits the child regardless of its manifest.
    pub fn child_mandate(&self) -> Value {
        let mut mandate = serde_json::json!({ "depth": self.depth, "permissions": self.permissions });
        if let (Some(budget), Some(members)) = (&self.budget, mandate.as_object_mut()) {
            let budget = serde_json::to_value(budget).expect("a budget is plain data");
            members.insert("budget".to_owned(), budget);
        }
        mandate
    }

    /// Returns the child's session. It contains the task as a queued input, so no message can be lost. The
    /// driver sets directory and scope of a clone.
    pub fn new_child_session(&self, version: &str) -> NewSession {
        let from = Actor::from_pod(self.parent);
        NewSession {
            session: self.session,
            version: version.to_owned(),
            name: self.name.clone(),
            created_by: from.clone(),
            cwd: self.cwd.clone(),
            workspace: self.workspace.clone(),
            git: None,
            manifest: self.manifest.clone(),
            scope: self.scope.clone(),
            mandate: Some(self.child_mandate()),
            metadata: None,
            parent: Some(ParentCall { session: self.parent, call_id: self.call_id.clone() }),
            history: Vec::new(),
            task: Some(InitialTask {
                segments: vec![InputSegment::Text { content: self.task.clone().into() }],
                op_id: Some(self.call_id.0.clone()),
                from,
            }),
        }
    }
}

/// The facts about its descendants that a restarted child needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DescendantState {
    pub paid: Vec<PodSpend>,
    /// Running children that it gets back, as its own log will have them.
    pub children: Vec<Child>,
}

/// An input for another pod.
#[derive(Debug, Clone, PartialEq)]
pub struct OutgoingMessage {
    pub message: String,
    pub mode: SendMode,
    /// Makes it idempotent.
    pub op_id: String,
}

/// The result of a command, or an event about another pod.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildEvent {
    /// A child runs: it has reported `ready`.
    Spawned {
        child: SessionId,
        socket: String,
        clone: Option<CloneOrigin>,
        /// How the message sent with it was accepted (`started`, `queued at 2`).
        delivery: Option<String>,
    },
    /// A child failed to start; its parts are undone.
    SpawnFailed { child: SessionId, code: ErrorCode, message: String },
    /// A child has ended: its lease is free, its sandboxes are gone, its loan is back. `paid` has the
    /// spending of it and its descendants, by their logs. With `Returned` it runs, and the table assigns it
    /// to another pod.
    Ended { child: SessionId, outcome: ChildOutcome, exit: Option<i32>, paid: Vec<PodSpend> },
    /// A descendant is now this pod's child, by the scope table: `known` has the facts of the logs, the
    /// granted budget and the sessions in between.
    Adopted { known: Box<OpenChild>, paid: Vec<PodSpend> },
    /// Spending of descendants, by their logs.
    Spending { paid: Vec<PodSpend> },
    /// A call has ended.
    CallFinished { call_id: CallId, ended: CallEnd },
    /// The output of a child up to `to_seq` (exclusive).
    Read { call_id: CallId, child: SessionId, to_seq: u64, ended: CallEnd },
    /// The parent has received a report.
    ReportAcked { seq: u64 },
    /// The parent has a socket: waiting reports can be sent.
    ParentAvailable,
    /// The write scope was released or acquired, or could not be acquired because another pod holds it.
    Scope { released: bool, problem: Option<String> },
}
