//! The current status of a session: its state, cost, tasks and queue.

use minke_protocol::{Activity, Greeting, McpStatus, Status, WaitState};
use minke_record::{AskId, ChildOutcome, Millis, PodName, QueueId, SessionId, TaskStatus};

/// Status of a session apart from its blocks: status line, tasks, queue, children.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionStatus {
    pub greeting: Option<Greeting>,
    pub status: Option<Status>,
    pub activity: Option<Activity>,
    /// The activity as a text for people: `Bash cargo test`.
    pub detail: Option<String>,
    pub waiting: Option<WaitState>,
    /// The current name, which may differ from the greeting.
    pub name: String,
    pub model: String,
    pub posture: String,
    pub tokens: TokenTotals,
    /// In micro-dollars. `None` if a price is unknown.
    pub cost_micros: Option<u64>,
    pub tasks: Vec<TaskRow>,
    pub queue: Vec<QueueRow>,
    /// Open asks, oldest first.
    pub asks: Vec<AskId>,
    pub children: Vec<ChildRow>,
    /// A pending retry of a model request.
    pub retry: Option<RetryStatus>,
    pub compacting: bool,
    pub goal: Option<String>,
    /// Progress of a job, as text.
    pub progress: Option<String>,
    /// Known cost of all descendants in micro-dollars.
    pub children_cost_micros: u64,
    pub archived: bool,
    /// MCP servers in use and their status.
    pub servers: Vec<McpServerRow>,
    /// The pod has announced that it stops; no more events follow.
    pub has_stopped: bool,
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerRow {
    pub name: String,
    pub status: McpStatus,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenTotals {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    /// Tokens of the context window that the last request used.
    pub context_tokens: u64,
    pub context_window: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    pub id: u64,
    pub subject: String,
    pub status: TaskStatus,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    pub id: QueueId,
    pub text: String,
    pub attachments: Vec<String>,
    /// The input steers the active run.
    pub steer: bool,
    /// The input waits until a user resumes the queue.
    pub is_held: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRow {
    pub session: SessionId,
    pub name: PodName,
    pub status_text: String,
    pub outcome: Option<ChildOutcome>,
    pub asks: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryStatus {
    pub failed_attempt: u32,
    pub max_attempts: u32,
    /// Waiting time. Frontends count down from `received_at`.
    pub wait_ms: u64,
    pub received_at: Millis,
    pub error: String,
}
