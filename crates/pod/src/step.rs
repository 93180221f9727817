//! What a step gives: entries to write, news to show, replies and effects to carry out, in that order.
//!
//! The driver writes `blobs` and then `entries` (whole, in one write), shows `news` in order (entries that are
//! barriers, and everything behind them, when they are synced), and hands out `replies` and `effects` when the step's
//! last entry is synced, except effects for which `Effect::may_run_ahead` is true.

use std::sync::Arc;

use minke_model::Prompt;
use minke_record::{
    Action, AlertLevel, AlertSource, Blob, CallId, Class, Draft, ErrorCode, InputSegment, Millis, PodName,
    Preview, QueueId, RunId, SessionId, SnapshotWhen, Text, WaitingOn,
};

use crate::input::{HookPoint, HookQuestion, ReplyTo, Timer};
use crate::tree::TreeOrder;

/// What one input led to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Must be on disk, synced, before the entries are written.
    pub blobs: Vec<Blob>,
    /// Recordings that the entries name; written when it suits, since nothing depends on them.
    pub recordings: Vec<Arc<Blob>>,
    pub entries: Vec<Draft>,
    /// In the order in which clients see them.
    pub news: Vec<News>,
    pub replies: Vec<Reply>,
    pub effects: Vec<Effect>,
}

/// One thing that all clients see, in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// The entry with this index in `Step::entries`.
    Entry(usize),
    Live(Live),
}

/// News that is not in the log. Within a run it carries the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub run: Option<RunId>,
    pub what: LiveWhat,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LiveWhat {
    Status(Status),
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
    /// A request failed before the model said anything and is made again after the wait.
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
    /// The last one.
    Shutdown,
}

/// What the wire says of a pod's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    pub activity: Option<Activity>,
    /// For people: `Note NOTES.md`.
    pub detail: Option<String>,
    pub waiting: Option<Waiting>,
}

/// The five states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Idle,
    Running,
    Paused,
    Compacting,
    Stopping,
}

impl Phase {
    pub const ALL: [Phase; 5] =
        [Phase::Idle, Phase::Running, Phase::Paused, Phase::Compacting, Phase::Stopping];

    /// The state's name in lower case, as `status.json` and `minke ps` give it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Compacting => "compacting",
            Phase::Stopping => "stopping",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Model,
    Tool,
    Ask,
    Child,
    Time,
    /// Hooks are asked about an input.
    Hook,
    Compacting,
    Stopping,
}

impl Activity {
    pub fn name(self) -> &'static str {
        match self {
            Activity::Model => "model",
            Activity::Tool => "tool",
            Activity::Ask => "ask",
            Activity::Child => "child",
            Activity::Time => "time",
            Activity::Hook => "hook",
            Activity::Compacting => "compacting",
            Activity::Stopping => "stopping",
        }
    }
}

/// Nothing is left to do but wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub on: WaitingOn,
    pub until: Option<Millis>,
}

/// An answer to one asker. `to: None` is a refusal of an order that came without an id: it is still told to the
/// connection that sent it, as an `error` event.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub to: Option<ReplyTo>,
    pub result: Result<Given, Refusal>,
}

/// What an accepted order gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    Ok,
    Run(RunId),
    Queued(QueueId),
    /// The input that came back from the queue or by a rewind.
    Input(Vec<InputSegment>),
    Call(CallId),
    /// A pod lives again: where it can be reached.
    Restored {
        name: PodName,
        session: SessionId,
        socket: String,
    },
    /// Whether what was waited for holds, or only the time is over.
    Waited {
        reached: bool,
    },
}

/// Why an order was not accepted: for programs the code, for people the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// Something for a hand to do. What comes of it comes back as an input with the same id.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start a request; its stream comes back as `What::Model` and `What::ModelFailed`.
    AskModel {
        call: u64,
        prompt: Arc<Prompt>,
    },
    /// Drop a request; nothing more is heard of it.
    StopModel {
        call: u64,
    },
    /// `prepare` and `preview` a call; comes back as `What::Prepared`.
    Prepare {
        call_id: CallId,
        tool: String,
        arguments: Text,
    },
    /// Run a call; comes back as `What::CallEnded`.
    RunCall {
        call_id: CallId,
        tool: String,
        arguments: Text,
        class: Class,
        action: Action,
    },
    /// Stop a call and its whole process tree; nothing more is heard of it.
    StopCall {
        call_id: CallId,
    },
    /// Look at the file of a verifiable call; comes back as `What::FileChecked`.
    CheckFile {
        call_id: CallId,
        preview: Preview,
    },
    /// Capture what has changed in the write scope; comes back as `What::Captured`.
    Capture {
        run: RunId,
        when: SnapshotWhen,
    },
    /// Ask the hooks of a point; comes back as `What::HooksSaid`.
    AskHooks {
        point: HookPoint,
        question: Box<HookQuestion>,
    },
    /// Append a rule to the person's policy (one line of TOML); the changed rules come back as `What::Policy`.
    AddRule {
        rule: String,
    },
    /// Something about other pods; comes back as `What::Tree`.
    Tree(TreeOrder),
    SetTimer {
        timer: Timer,
        at: Millis,
    },
    ClearTimer {
        timer: Timer,
    },
    /// The pod is at its end: flush, say goodbye, let go.
    Exit,
}

impl Effect {
    /// Whether the effect may be carried out as soon as its step is written, before it is synced. Only what leaves
    /// no trace outside this pod's own log may.
    pub fn may_run_ahead(&self) -> bool {
        match self {
            Effect::AskModel { .. } | Effect::AddRule { .. } | Effect::Exit => false,
            Effect::RunCall { class, .. } => *class == Class::Pure,
            // Looking changes nothing; everything else reaches another pod or its files.
            Effect::Tree(order) => matches!(
                order,
                TreeOrder::Read { .. }
                    | TreeOrder::List { .. }
                    | TreeOrder::Watch { .. }
                    | TreeOrder::ReadReports { .. }
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

/// A block of the reply that has begun and not ended, for a client that joins in the middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenBlock {
    Text { text: String },
    Thinking { text: String },
    ToolCall { id: CallId, name: String, arguments: String },
}
