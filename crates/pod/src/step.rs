//! The result of a step: entries to write, events to show, replies and effects, in this order.
//!
//! The driver writes `blobs`, then `entries` in one write. It shows `events` in order; barrier entries and
//! everything after them wait for the sync. It sends `replies` and runs `effects` after the sync of the
//! step's last entry, except effects for which `Effect::may_run_before_sync` is true.

use std::sync::Arc;

use minke_model::Prompt;
use minke_record::{
    Action, AlertLevel, AlertSource, Blob, CallId, Class, Draft, ErrorCode, InputSegment, Millis, PodName,
    Preview, QueueId, RunId, SessionId, SnapshotWhen, Text, WaitingOn,
};

use crate::children::messages::ChildCommand;
use crate::input::{HookPoint, HookRequest, PodTimer, ReplyId};

/// The result of one input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Must be on disk and synced before the entries are written.
    pub blobs: Vec<Blob>,
    /// Recordings that the entries name. They may be written at any time.
    pub recordings: Vec<Arc<Blob>>,
    pub entries: Vec<Draft>,
    /// In the order for clients.
    pub events: Vec<StepEvent>,
    pub replies: Vec<CommandReply>,
    pub effects: Vec<Effect>,
}

/// An event for all clients.
#[derive(Debug, Clone, PartialEq)]
pub enum StepEvent {
    /// The entry with this index in `Step::entries`.
    Entry(usize),
    Live(LiveEvent),
}

/// An event that is not in the log, with the open run.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveEvent {
    pub run: Option<RunId>,
    pub kind: LiveEventKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LiveEventKind {
    Status(StatusReport),
    TextDelta {
        text: String,
    },
    ThinkingStart,
    ThinkingDelta {
        text: String,
    },
    ToolCallStart {
        id: CallId,
        name: String,
    },
    ToolCallArgs {
        id: CallId,
        json: String,
    },
    /// A request failed before any output and is retried after the wait.
    LlmRetry {
        call: u64,
        failed_attempt: u32,
        max_attempts: u32,
        wait_ms: u64,
        status: Option<u16>,
        error: String,
    },
    CompactStart {
        reason: String,
    },
    CompactFailed {
        error: String,
    },
    /// An alert that is not logged.
    Alert {
        level: AlertLevel,
        source: AlertSource,
        message: String,
    },
    /// The last event.
    Shutdown,
}

/// The pod's status on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    pub phase: PodPhase,
    pub activity: Option<PodActivity>,
    /// For people, for example `Note NOTES.md`.
    pub detail: Option<String>,
    pub waiting: Option<WaitStatus>,
}

/// The five phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    Idle,
    Running,
    Paused,
    Compacting,
    Stopping,
}

impl PodPhase {
    pub const ALL: [PodPhase; 5] =
        [PodPhase::Idle, PodPhase::Running, PodPhase::Paused, PodPhase::Compacting, PodPhase::Stopping];

    /// Returns the phase in lower case, as in `status.json` and `minke ps`.
    pub fn name(self) -> &'static str {
        match self {
            PodPhase::Idle => "idle",
            PodPhase::Running => "running",
            PodPhase::Paused => "paused",
            PodPhase::Compacting => "compacting",
            PodPhase::Stopping => "stopping",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodActivity {
    Model,
    Tool,
    Ask,
    Child,
    Time,
    /// Hooks are checking an input.
    Hook,
    Compacting,
    Stopping,
}

impl PodActivity {
    pub fn name(self) -> &'static str {
        match self {
            PodActivity::Model => "model",
            PodActivity::Tool => "tool",
            PodActivity::Ask => "ask",
            PodActivity::Child => "child",
            PodActivity::Time => "time",
            PodActivity::Hook => "hook",
            PodActivity::Compacting => "compacting",
            PodActivity::Stopping => "stopping",
        }
    }
}

/// The pod only waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitStatus {
    pub on: WaitingOn,
    pub until: Option<Millis>,
}

/// The reply to a command. `to: None` is a refusal of a command without an id; the driver sends it to the
/// client as an `error` event.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandReply {
    pub to: Option<ReplyId>,
    pub result: Result<ReplyBody, CommandRefusal>,
}

/// The result of an accepted command.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyBody {
    Ok,
    Run(RunId),
    Queued(QueueId),
    /// The input returned from the queue or by a rewind.
    Input(Vec<InputSegment>),
    Call(CallId),
    /// A pod runs again, at this socket.
    Restored {
        name: PodName,
        session: SessionId,
        socket: String,
    },
    /// Whether the condition holds; false after the timeout.
    Waited {
        reached: bool,
    },
}

/// Why a command was not accepted: a code for programs and a message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRefusal {
    pub code: ErrorCode,
    pub message: String,
}

impl CommandRefusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> CommandRefusal {
        CommandRefusal { code, message: message.into() }
    }
}

/// Work for the driver. The result comes back as an input with the same id.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a request; its stream comes back as `InputKind::Model` and `InputKind::ModelFailed`.
    AskModel {
        call: u64,
        prompt: Arc<Prompt>,
    },
    /// Drop a request; no further events arrive.
    StopModel {
        call: u64,
    },
    /// `prepare` and `preview` a call; comes back as `InputKind::Prepared`.
    Prepare {
        call_id: CallId,
        tool: String,
        arguments: Text,
    },
    /// Run a call; comes back as `InputKind::CallEnded`.
    RunCall {
        call_id: CallId,
        tool: String,
        arguments: Text,
        class: Class,
        action: Action,
        /// Whether the scripts of the command must still be those of `action`. The list may be empty: then no script
        /// may have appeared.
        checks_scripts: bool,
    },
    /// Stop a call and its process tree; no result arrives.
    StopCall {
        call_id: CallId,
    },
    /// Check the file of a verifiable call; comes back as `InputKind::FileChecked`.
    CheckFile {
        call_id: CallId,
        preview: Preview,
    },
    /// Capture the changes in the write scope; comes back as `InputKind::Captured`.
    Capture {
        run: RunId,
        when: SnapshotWhen,
    },
    /// Ask the hooks of a point; comes back as `InputKind::HookReply`.
    AskHooks {
        point: HookPoint,
        question: Box<HookRequest>,
    },
    /// Append a rule to the user's policy (one line of TOML); the changed rules come back as
    /// `InputKind::RulesChanged`.
    AddRule {
        rule: String,
    },
    /// A command about other pods; comes back as `InputKind::Child`.
    Child(ChildCommand),
    SetTimer {
        timer: PodTimer,
        at: Millis,
    },
    ClearTimer {
        timer: PodTimer,
    },
    /// Flush the log, release the leases and exit.
    Exit,
}

impl Effect {
    /// Returns whether the effect may run after the write and before the sync. Only effects without a trace
    /// outside this pod's log may.
    pub fn may_run_before_sync(&self) -> bool {
        match self {
            Effect::AskModel { .. } | Effect::AddRule { .. } | Effect::Exit => false,
            Effect::RunCall { class, .. } => *class == Class::Pure,
            // Reads change nothing; the other commands reach another pod or its files.
            Effect::Child(order) => matches!(
                order,
                ChildCommand::Read { .. }
                    | ChildCommand::List { .. }
                    | ChildCommand::Watch { .. }
                    | ChildCommand::ReadReports { .. }
            ),
            Effect::StopModel { .. }
            | Effect::Prepare { .. }
            | Effect::StopCall { .. }
            | Effect::CheckFile { .. }
            | Effect::Capture { .. }
            | Effect::AskHooks { .. }
            | Effect::SetTimer { .. }
            | Effect::ClearTimer { .. } => true,
        }
    }
}

/// A block of the reply that has begun and not ended, for clients that connect during the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenBlock {
    Text { text: String },
    Thinking { text: String },
    ToolCall { id: CallId, name: String, arguments: String },
}
