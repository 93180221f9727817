//! Events: everything a pod tells its clients, a closed list.
//!
//! Here: their shapes. Elsewhere: which entry each one is made from (`logged`), their written form (`frame`).
//! Readers ignore events, fields and words that they do not know; that is why every list of words has `Other`.

use minke_record::{
    Actor, AlertLevel, AlertSource, Ask, AskId, Budget, CallId, ChildOutcome, Decision, Entry, ErrorCode,
    InputSegment, LlmOutcome, Millis, Outcome, PodName, Position, Purpose, Route, RunId, Scope, SessionId,
    Spent, SystemItem, Text, Trigger, TurnResult, words,
};
use serde::{Deserialize, Serialize};

use crate::choice::CompletionKind;
use crate::frame::ReplyData;
use crate::older::HistoryItem;
use crate::state::{Activity, CommandOutput, Greeting, InFlight, Status, Waiting};

/// Generates the enum of events, its names and its reader.
macro_rules! events {
    ($($(#[$meta:meta])* $variant:ident $(($data:ty))? = $name:literal),+ $(,)?) => {
        /// What a pod tells its clients.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "event", content = "data")]
        pub enum Event {
            $($(#[$meta])* #[serde(rename = $name)] $variant $(($data))?,)+
            /// An event of a later version: its name. To be ignored.
            #[serde(untagged)]
            #[cfg_attr(feature = "schema", schemars(skip))]
            Unknown(String),
        }

        impl Event {
            /// Every event this version knows, in the order of the specification.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The event's name, as it is written.
            pub fn name(&self) -> &str {
                match self {
                    $(Event::$variant { .. } => $name,)+
                    Event::Unknown(name) => name,
                }
            }

            /// Reads the data of a named event, `{}` if it has none.
            pub(crate) fn read(name: &str, data: &str) -> Result<Event, serde_json::Error> {
                Ok(match name {
                    $($name => Event::$variant $((serde_json::from_str::<$data>(data)?))?,)+
                    // The older name of it.
                    "notification" => Event::Alert(serde_json::from_str(data)?),
                    other => Event::Unknown(other.to_owned()),
                }
                .completed())
            }
        }
    };
}

events! {
    Hello(ServerHello) = "hello",
    Snapshot(Box<Snapshot>) = "snapshot",
    InFlight(InFlight) = "in_flight",
    Lag(Lag) = "lag",
    Reply(ReplyData) = "reply",
    Error(Refusal) = "error",
    Completions(Completions) = "completions",
    RewindTargets(RewindTargets) = "rewind_targets",
    History(History) = "history",
    Entry(EntryEvent) = "entry",
    Status(StatusEvent) = "status",
    InvokeStart(InvokeStart) = "invoke_start",
    UserMessage(UserMessage) = "user_message",
    SystemItem(SystemItemEvent) = "system_item",
    TurnStart(TurnStart) = "turn_start",
    TurnEnd(TurnEnd) = "turn_end",
    RunEnd(RunEnd) = "run_end",
    SegmentRotated(EntryEvent) = "segment_rotated",
    LlmCallStart(LlmCallStart) = "llm_call_start",
    LlmContinuation(LlmContinuation) = "llm_continuation",
    LlmRetry(LlmRetry) = "llm_retry",
    LlmCallEnd(LlmCallEnd) = "llm_call_end",
    TextDelta(Delta) = "text_delta",
    TextDone(Done) = "text_done",
    /// Sent at the block's start even if no text follows.
    ThinkingStart = "thinking_start",
    ThinkingDelta(Delta) = "thinking_delta",
    ThinkingDone(Done) = "thinking_done",
    ToolCallStart(ToolCallStart) = "tool_call_start",
    ToolCallArgsDelta(ToolCallArgsDelta) = "tool_call_args_delta",
    ToolCallDone(ToolCallDone) = "tool_call_done",
    Usage(UsageEvent) = "usage",
    Command(CommandEvent) = "command",
    ToolResult(ToolResult) = "tool_result",
    Ask(AskEvent) = "ask",
    Answered(Answered) = "answered",
    ChildStarted(ChildStarted) = "child_started",
    ChildEnded(ChildEnded) = "child_ended",
    CompactStart(CompactStart) = "compact_start",
    CompactFailed(CompactFailed) = "compact_failed",
    CompactDone(CompactDone) = "compact_done",
    MemoryWorker(MemoryWorker) = "memory_worker",
    McpServer(McpServer) = "mcp_server",
    Alert(AlertEvent) = "alert",
    /// The last one, never dropped.
    Shutdown = "shutdown",
}

impl Event {
    /// What older pods leave out and newer readers rely on.
    fn completed(mut self) -> Event {
        if let Event::ToolResult(result) = &mut self
            && result.summary.is_empty()
        {
            let output = result.output.as_ref().and_then(Text::here).unwrap_or_default();
            result.summary = output.lines().next().unwrap_or_default().to_owned();
        }
        self
    }
}

macro_rules! data {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? })+) => {
        $(#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* })+
    };
}

data! {
    /// The answer to `hello`.
    pub struct ServerHello {
        pub protocol: u32,
        #[serde(default)]
        pub server: String,
        #[serde(default)]
        pub limits: Limits,
    }

    /// What a client must know before it sends or asks for much.
    pub struct Limits {
        pub frame_bytes: usize,
        pub page_entries: usize,
        pub blob_piece_bytes: usize,
    }

    /// Where the pod stands, taken together with the subscription.
    #[cfg_attr(feature = "schema", schemars(rename = "SnapshotEvent"))]
    pub struct Snapshot {
        pub entries: Vec<Entry>,
        pub greeting: Greeting,
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<Waiting>,
        pub head: Position,
        #[serde(default)]
        pub in_flight: InFlight,
        /// Older entries are to be had with `read`.
        #[serde(default)]
        pub older: bool,
    }

    /// The client fell behind: what follows continues from the log at this entry.
    pub struct Lag {
        pub from_seq: u64,
    }

    /// Why something was refused, or why a run failed.
    pub struct Refusal {
        pub code: ErrorCode,
        pub message: String,
    }

    pub struct Completions {
        pub kind: CompletionKind,
        pub entries: Vec<Completion>,
    }

    pub struct Completion {
        pub value: String,
        #[serde(default)]
        pub is_dir: bool,
    }

    pub struct RewindTargets {
        pub head: Position,
        pub targets: Vec<RewindTarget>,
    }

    /// An input that a rewind can go back to.
    pub struct RewindTarget {
        pub seq: u64,
        pub ts: Millis,
        pub turn: u64,
        pub preview: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub warning: Option<String>,
    }

    /// The answer to `get_history`, an older form.
    #[cfg_attr(feature = "schema", schemars(rename = "HistoryEvent"))]
    pub struct History {
        pub items: Vec<HistoryItem>,
        pub greeting: Greeting,
    }

    /// Data of `entry` and `segment_rotated`: the typed entry, as it stands in the log.
    pub struct EntryEvent {
        pub entry: Box<Entry>,
    }

    pub struct StatusEvent {
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        /// The activity for people: `Bash cargo test`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<Waiting>,
    }

    pub struct InvokeStart {
        pub kind: Trigger,
    }

    pub struct UserMessage {
        pub segments: Vec<InputSegment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub run: Option<RunId>,
    }

    pub struct SystemItemEvent {
        pub item: SystemItem,
    }

    pub struct TurnStart {
        pub turn: u64,
    }

    #[cfg_attr(feature = "schema", schemars(rename = "TurnEndEvent"))]
    pub struct TurnEnd {
        pub turn: u64,
        pub result: TurnResult,
    }

    /// Every accepted run ends with exactly one of these.
    pub struct RunEnd {
        pub result: RunEndResult,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// With `result: error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<Refusal>,
    }

    pub struct LlmCallStart {
        pub llm_call: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub route: Option<Route>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub purpose: Option<Purpose>,
    }

    /// The stream broke after it had begun, and the reply goes on in a new request.
    pub struct LlmContinuation {
        pub llm_call: u64,
        pub attempt: u32,
        pub max_attempts: u32,
        pub reason: String,
    }

    pub struct LlmRetry {
        pub llm_call: u64,
        /// Counted from 1.
        pub failed_attempt: u32,
        pub max_attempts: u32,
        pub wait_ms: u64,
        /// The provider's HTTP status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<u16>,
        pub error: String,
    }

    pub struct LlmCallEnd {
        pub llm_call: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<LlmOutcome>,
    }

    /// A piece of a block, as it streams.
    pub struct Delta {
        pub text: String,
    }

    /// A whole block; a very long one is the name of a blob.
    pub struct Done {
        pub text: Text,
    }

    pub struct ToolCallStart {
        pub id: CallId,
        pub name: String,
    }

    pub struct ToolCallArgsDelta {
        pub id: CallId,
        pub json: String,
    }

    /// `arguments` is the JSON text as the model wrote it.
    pub struct ToolCallDone {
        pub id: CallId,
        pub name: String,
        pub arguments: Text,
    }

    /// `null` = unknown, never 0.
    pub struct UsageEvent {
        #[serde(default)]
        pub input_tokens: Option<u64>,
        #[serde(default)]
        pub output_tokens: Option<u64>,
        #[serde(default)]
        pub cache_read_input_tokens: Option<u64>,
        #[serde(default)]
        pub cache_write_input_tokens: Option<u64>,
        #[serde(default)]
        pub cost_usd: Option<f64>,
    }

    /// News of a command that a call runs.
    pub struct CommandEvent {
        pub command_id: String,
        pub call_id: CallId,
        /// Absent only in news of a later version.
        #[serde(flatten)]
        #[cfg_attr(feature = "schema", schemars(with = "CommandNews"))]
        pub news: Option<CommandNews>,
    }

    #[cfg_attr(feature = "schema", schemars(rename = "ToolResultEvent"))]
    pub struct ToolResult {
        pub id: CallId,
        #[serde(default)]
        pub summary: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output: Option<Text>,
        #[serde(default)]
        pub is_error: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<Outcome>,
        /// A client made this call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
    }

    pub struct AskEvent {
        pub ask: Box<Ask>,
    }

    pub struct Answered {
        pub ask: AskId,
        pub decision: Decision,
        pub by: Actor,
    }

    pub struct ChildStarted {
        pub session: SessionId,
        pub name: PodName,
        pub call_id: CallId,
        pub scope: Scope,
        #[serde(default)]
        pub budget: Option<Budget>,
    }

    pub struct ChildEnded {
        pub session: SessionId,
        pub name: PodName,
        pub outcome: ChildOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit: Option<i32>,
        #[serde(default)]
        pub spent: Option<Spent>,
    }

    pub struct CompactStart {
        #[serde(default)]
        pub reason: String,
    }

    pub struct CompactFailed {
        pub error: String,
    }

    /// Tokens of the context before and after, if they were counted.
    pub struct CompactDone {
        #[serde(default)]
        pub segment: u64,
        #[serde(default)]
        pub before: Option<u64>,
        #[serde(default)]
        pub after: Option<u64>,
    }

    pub struct MemoryWorker {
        pub worker: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        pub status: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    pub struct McpServer {
        pub server: String,
        pub status: McpStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
    }

    /// For the person, not the model.
    pub struct AlertEvent {
        pub level: AlertLevel,
        pub source: AlertSource,
        pub message: String,
        #[serde(default)]
        pub timestamp_ms: Millis,
    }
}

/// What happened to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommandNews {
    Started {
        command: Text,
        cwd: String,
    },
    Output(CommandOutput),
    Ended {
        status: CommandStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
}

words! {
    pub enum CommandStatus {
        Completed = "completed",
        Failed = "failed",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
    }
}

words! {
    pub enum McpStatus { Starting = "starting", Ready = "ready", Failed = "failed", Cancelled = "cancelled" }
}

words! {
    /// How a run ended: the results of a run that did not fail, and `error`.
    pub enum RunEndResult {
        Finished = "finished",
        Paused = "paused",
        LimitReached = "limit_reached",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
        Interrupted = "interrupted",
        Error = "error",
    }
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

impl Default for Limits {
    fn default() -> Limits {
        use crate::limits::{BLOB_PIECE_BYTES, FRAME_BYTES, PAGE_ENTRIES};
        Limits { frame_bytes: FRAME_BYTES, page_entries: PAGE_ENTRIES, blob_piece_bytes: BLOB_PIECE_BYTES }
    }
}

impl ServerHello {
    /// The answer of this version.
    pub fn new(server: &str) -> ServerHello {
        ServerHello { protocol: crate::PROTOCOL, server: server.to_owned(), limits: Limits::default() }
    }
}
