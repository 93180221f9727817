//! Own calls: those that a pod's mind carries out itself, because they change nothing but its own log, or because only it
//! knows whom they are about (`Pods`: its children).

use serde::{Deserialize, Serialize};

use crate::action::ScopeRule;
use crate::budget::Budget;
use crate::entry::{Decision, TaskStatus};
use crate::ids::{AskId, PodName};

/// What a call asks of the pod itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Own {
    TaskCreate {
        subject: String,
        description: Option<String>,
    },
    /// What is absent stays as it is.
    TaskUpdate {
        id: u64,
        subject: Option<String>,
        description: Option<String>,
        status: Option<TaskStatus>,
    },
    TaskList,
    TaskGet {
        id: u64,
    },
    /// A durable question to a person; without options any words are an answer.
    AskUser {
        question: String,
        options: Vec<String>,
    },
    /// Something about other pods.
    Pods(Box<PodsCall>),
}

/// What a call wants of the pods below this one.
#[derive(Debug, Clone, PartialEq)]
pub enum PodsCall {
    Spawn(SpawnPod),
    Send {
        name: PodName,
        message: String,
        mode: SendMode,
    },
    Read {
        name: PodName,
        /// From this entry of the child's log on; where it was left off if absent.
        since: Option<u64>,
        max_bytes: u64,
        /// With calls and results, in short.
        detail: bool,
    },
    Wait {
        names: Vec<PodName>,
        until: WaitUntil,
        timeout_s: u64,
    },
    Stop {
        name: PodName,
        after_run: bool,
    },
    List {
        /// Grandchildren too.
        tree: bool,
    },
    Answer {
        name: PodName,
        ask: AskId,
        decision: Decision,
    },
}

/// A child that is to be: everything that the model said of it, checked for form.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnPod {
    pub name: PodName,
    pub task: String,
    /// Read rules are shared, write rules are lent; absolute and canonical.
    pub scope: Vec<ScopeRule>,
    /// A selector, trimmed; `None` = the default.
    pub profile: Option<String>,
    /// Replaces only the instruction.
    pub instruction: Option<String>,
    pub cwd: Option<String>,
    pub budget: Option<Budget>,
    /// Its own clone of the workspace.
    pub clone: bool,
    /// The call ends when the child's first run has.
    pub wait: bool,
}

/// What a message does when a run is open already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendMode {
    #[default]
    Queue,
    Steer,
    Interrupt,
    Reject,
}

/// What WaitPods waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// One of them has come to an end of its run.
    Any,
    All,
    /// One of them asks something.
    Ask,
}
