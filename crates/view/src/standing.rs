//! Standing: where a session is right now, what it has cost, what waits in it.

use minke_protocol::{Activity, Greeting, McpStatus, Status, Waiting};
use minke_record::{AskId, ChildOutcome, Millis, PodName, QueueId, SessionId, TaskStatus};

/// Everything around the conversation: the status line, tasks, queue, children.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Standing {
    pub greeting: Option<Greeting>,
    pub status: Option<Status>,
    pub activity: Option<Activity>,
    /// The activity for people: `Bash cargo test`.
    pub detail: Option<String>,
    pub waiting: Option<Waiting>,
    /// The name now, which may have changed since the greeting.
    pub name: String,
    pub model: String,
    pub posture: String,
    pub tokens: Tokens,
    /// In micro-dollars; none if a price was not known.
    pub cost_micros: Option<u64>,
    pub tasks: Vec<TaskRow>,
    pub queue: Vec<Queued>,
    /// Open questions, oldest first.
    pub asks: Vec<AskId>,
    pub children: Vec<Child>,
    /// The provider is asked again.
    pub retry: Option<Retry>,
    pub compacting: bool,
    pub goal: Option<String>,
    /// What is done of a job, in words.
    pub progress: Option<String>,
    /// In micro-dollars: what the pods below have spent, as far as it was read.
    pub children_cost_micros: u64,
    pub archived: bool,
    /// Servers whose tools are used, and how they are.
    pub servers: Vec<Server>,
    /// The pod has said that it stops: nothing more comes.
    pub gone: bool,
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    pub status: McpStatus,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    /// What the last request filled of the window.
    pub context: u64,
    pub window: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    pub id: u64,
    pub subject: String,
    pub status: TaskStatus,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub id: QueueId,
    pub text: String,
    pub chips: Vec<String>,
    /// It steers the run that is under way.
    pub steer: bool,
    /// It waits until somebody resumes.
    pub held: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub session: SessionId,
    pub name: PodName,
    pub told: String,
    pub ended: Option<ChildOutcome>,
    pub asks: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub failed_attempt: u32,
    pub max_attempts: u32,
    /// How long it waits; who shows it counts down from when it was told.
    pub wait_ms: u64,
    pub told: Millis,
    pub error: String,
}
