//! The tree: what is wanted of hands that reach other pods, and what they come back with.
//!
//! Here: the words. Elsewhere: what a pod makes of them (`children`, `outbox`, `budget`), the hand (`driver::children`).

use minke_record::{
    Actor, AskId, Budget, CallId, Child, ChildOutcome, CloneOf, Decision, ErrorCode, InputSegment, OpenChild,
    Paid, Parent, PodEvent, PodName, Scope, SendMode, SessionId,
};
use serde_json::Value;

use crate::birth::{NewSession, Task};
use crate::input::CallEnd;

/// Something for the hand that reaches other pods. What comes of it comes back as `What::Tree`.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeOrder {
    /// Make a child: loan, session, process, in this order, each with its undo. `child` and `tool_dispatch` are on disk.
    /// Comes back as `Spawned` or `NotSpawned`.
    Spawn(Box<Spawning>),
    /// Start a child that has lived before: its recorded scope is lent anew. `child` is on disk. Comes back as
    /// `Spawned` or `NotSpawned`, like a spawn.
    Restore {
        child: SessionId,
        name: PodName,
        scope: Scope,
        /// What it may have spent in all when this life of it ends.
        budget: Option<Budget>,
        /// Written into its log before it lives: what is known of everybody below it, so that it counts right from its
        /// first request on.
        kin: Box<KinKnown>,
        /// What it is started for; without one it only lives again.
        send: Option<Sending>,
        call_id: Option<CallId>,
    },
    /// Give a child that lives an input. Comes back as `Told`.
    Send {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        send: Sending,
    },
    /// Read what a child said since an entry, from its log. Comes back as `Read`.
    Read {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        since: u64,
        max_bytes: u64,
        detail: bool,
    },
    /// End a child: `shutdown`, then TERM, then KILL, and wait until its lease is free and its fences are gone.
    /// Comes back as `Ended` (unless `after_run`) and `Told`.
    Stop {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        after_run: bool,
    },
    /// Say what the children do. Comes back as `Told`.
    List {
        call_id: CallId,
        children: Vec<OpenChild>,
        tree: bool,
    },
    /// Answer a child's question. Comes back as `Told`.
    Answer {
        call_id: CallId,
        child: SessionId,
        name: PodName,
        ask: AskId,
        decision: Decision,
    },
    /// A child of an earlier life: look how far it came, and tell when it ends. Comes back as `Spawned` (it lives),
    /// `NotSpawned` (it never began; undone) or `Ended`.
    Watch {
        child: SessionId,
        name: PodName,
    },
    /// Read the reports that a child has in its log and that this pod has not heard, newer than `since`. Each comes
    /// back as `What::Order(PodEvent)`, like one that the child sent itself.
    ReadReports {
        child: SessionId,
        since: u64,
    },
    /// Read what a child that lives no more and everybody below it has spent: it may have been woken while this pod was
    /// away. Comes back as `Spending`.
    ReadSpending {
        child: SessionId,
    },
    /// Send a report upward until it is acknowledged. Comes back as `Acked`.
    Report {
        seq: u64,
        to: SessionId,
        event: PodEvent,
    },
    /// This pod gives up its write scope until its next run (`yield`), or takes it back. Comes back as `Scope`.
    GiveScope,
    TakeScope,
}

/// A child that is to be made, with everything that its first step holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Spawning {
    pub call_id: CallId,
    /// This pod's own session: the child's parent.
    pub parent: SessionId,
    pub session: SessionId,
    pub name: PodName,
    /// All that it gets, beside its own `tmp` and `output`: the request, with this pod's denies.
    pub scope: Scope,
    pub task: String,
    pub cwd: String,
    pub workspace: String,
    /// The registered profile that it is made from; absent if it inherits.
    pub profile: Option<String>,
    /// In place of the profile's instruction.
    pub instruction: Option<String>,
    /// What it is declared to be if it inherits, with its own instruction; what a profile is held to.
    pub manifest: Value,
    pub budget: Option<Budget>,
    /// `permissions` of its mandate: at most what this pod may.
    pub permissions: Value,
    /// Work in its own clone.
    pub clone: bool,
    /// How many pods are above it.
    pub depth: u64,
}

impl Spawning {
    /// What binds the child whatever its manifest says.
    pub fn mandate(&self) -> Value {
        let mut mandate = serde_json::json!({ "depth": self.depth, "permissions": self.permissions });
        if let (Some(budget), Some(members)) = (&self.budget, mandate.as_object_mut()) {
            let budget = serde_json::to_value(budget).expect("a budget is plain data");
            members.insert("budget".to_owned(), budget);
        }
        mandate
    }

    /// The child's session as its creator writes it: the task is queued in it, so there is no delivery that could be
    /// lost. A clone's place and scope are put in by whoever made it.
    pub fn new_session(&self, version: &str) -> NewSession {
        let from = Actor::pod(self.parent);
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
            mandate: Some(self.mandate()),
            metadata: None,
            parent: Some(Parent { session: self.parent, call_id: self.call_id.clone() }),
            history: Vec::new(),
            task: Some(Task {
                segments: vec![InputSegment::Text { content: self.task.clone().into() }],
                op_id: Some(self.call_id.0.clone()),
                from,
            }),
        }
    }
}

/// What a child that is woken has to know of those below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KinKnown {
    pub paid: Vec<Paid>,
    /// Those that live and are its own again when it is back, as its own log will have them.
    pub children: Vec<Child>,
}

/// An input for another pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    pub message: String,
    pub mode: SendMode,
    /// Makes it once.
    pub op_id: String,
}

/// What has come of an order, or has happened to another pod.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeNews {
    /// A child lives: it has said `ready`.
    Spawned {
        child: SessionId,
        socket: String,
        clone: Option<CloneOf>,
        /// What was sent with it was taken: how (`started`, `queued at 2`).
        sent: Option<String>,
    },
    /// A child does not live, and everything that was done for it is undone.
    NotSpawned { child: SessionId, code: ErrorCode, message: String },
    /// A child lives no more: its lease is free, its fences are gone, its loan is back. `paid` has what it and everybody
    /// below it has spent, by their logs. With `Returned` it lives, and the table says that it is another pod's.
    Ended { child: SessionId, outcome: ChildOutcome, exit: Option<i32>, paid: Vec<Paid> },
    /// A pod below is this pod's child now, as the scope table says: `known` as the logs have it, with the budget that
    /// it was granted and whoever is between the two.
    Adopted { known: Box<OpenChild>, paid: Vec<Paid> },
    /// What pods below have spent, by their logs.
    Spending { paid: Vec<Paid> },
    /// A call has ended.
    Told { call_id: CallId, ended: CallEnd },
    /// What a child said, up to `to_seq` (not included).
    Read { call_id: CallId, child: SessionId, to_seq: u64, ended: CallEnd },
    /// A report has arrived.
    Acked { seq: u64 },
    /// The parent has a socket again, or for the first time: what waits in the outbox may go.
    ParentThere,
    /// The write scope was given up or taken back, or could not be taken back since somebody holds it.
    Scope { given: bool, problem: Option<String> },
}
