//! Internal calls: calls that the pod executes itself, because they only change its own log, or because only
//! the pod knows their targets (`Pods`: its children).

use serde::{Deserialize, Serialize};

use crate::action::ScopeRule;
use crate::budget::Budget;
use crate::entry::{Decision, TaskStatus};
use crate::ids::{AskId, PodName};

/// An internal call.
#[derive(Debug, Clone, PartialEq)]
pub enum InternalCall {
    TaskCreate {
        subject: String,
        description: Option<String>,
    },
    /// Absent fields stay unchanged.
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
    /// A durable question to the user; without options the answer is free text.
    AskUser {
        question: String,
        options: Vec<String>,
    },
    /// A call about other pods.
    Pods(Box<PodToolCall>),
}

/// A call about the pod's descendants.
#[derive(Debug, Clone, PartialEq)]
pub enum PodToolCall {
    Spawn(SpawnPod),
    Send {
        name: PodName,
        message: String,
        mode: SendMode,
    },
    Read {
        name: PodName,
        /// The first entry of the child's log to read; absent: continue after the previous read.
        since: Option<u64>,
        max_bytes: u64,
        /// Includes calls and results in short form.
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
        /// Includes grandchildren.
        tree: bool,
    },
    Answer {
        name: PodName,
        ask: AskId,
        decision: Decision,
    },
}

/// The validated parameters of a spawn.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnPod {
    pub name: PodName,
    pub task: String,
    /// Read rules are shared, write rules are loans; absolute and canonical.
    pub scope: Vec<ScopeRule>,
    /// A selector, trimmed; `None` = the default.
    pub profile: Option<String>,
    /// Replaces only the instruction.
    pub instruction: Option<String>,
    pub cwd: Option<String>,
    pub budget: Option<Budget>,
    /// Creates the child's own clone of the workspace.
    pub clone: bool,
    /// The call ends with the child's first run.
    pub wait: bool,
}

/// How a message is handled while a run is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendMode {
    #[default]
    Queue,
    Steer,
    Interrupt,
    Reject,
}

/// The condition of WaitPods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// One of them has finished its run.
    Any,
    All,
    /// One of them has an open ask.
    Ask,
}
