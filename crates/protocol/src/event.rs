//! Events: all messages of a pod to its clients.
//!
//! Defines their shapes. Elsewhere: the events of an entry (`entry_events`), their encoding (`frame`).
//! Readers ignore unknown events, fields and values; therefore every enumeration has `Other`.

use minke_record::{
    Actor, AlertLevel, AlertSource, Ask, AskId, Budget, CallId, ChildOutcome, Decision, Entry, ErrorCode,
    InputSegment, LlmOutcome, Millis, Outcome, PodName, Position, Purpose, Route, RunId, Scope, SessionId,
    Spend, SystemItem, Text, Trigger, TurnResult, words,
};
use serde::{Deserialize, Serialize};

use crate::choice::CompletionKind;
use crate::frame::ReplyData;
use crate::legacy::HistoryItem;
use crate::state::{Activity, CommandOutput, Greeting, InFlight, Status, WaitState};

/// Generates the enum of events, their names and the parser.
macro_rules! events {
    ($($(#[$meta:meta])* $variant:ident $(($data:ty))? = $name:literal),+ $(,)?) => {
        /// A message of a pod to its clients.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "event", content = "data")]
        pub enum Event {
            $($(#[$meta])* #[serde(rename = $name)] $variant $(($data))?,)+
            /// Name of an event of a newer version, to be ignored.
            #[serde(untagged)]
            #[cfg_attr(feature = "schema", schemars(skip))]
            Unknown(String),
        }

        impl Event {
            /// All events of this version, in the order of the specification.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name of the event on the wire.
            pub fn name(&self) -> &str {
                match self {
                    $(Event::$variant { .. } => $name,)+
                    Event::Unknown(name) => name,
                }
            }

            /// Parses the data of an event; `{}` if it has none.
            pub(crate) fn read(name: &str, data: &str) -> Result<Event, serde_json::Error> {
                Ok(match name {
                    $($name => Event::$variant $((serde_json::from_str::<$data>(data)?))?,)+
                    // The former name of `alert`.
                    "notification" => Event::Alert(serde_json::from_str(data)?),
                    other => Event::Unknown(other.to_owned()),
                }
                .fill_defaults())
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
    /// Sent at the start of the block even if no text follows.
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
    /// The last event, never dropped.
    Shutdown = "shutdown",
}

impl Event {
    /// Sets fields that older pods omit and newer readers need.
    fn fill_defaults(mut self) -> Event {
        if let Event::ToolResult(result) = &mut self
            && result.summary.is_empty()
        {
            let output = result.output.as_ref().and_then(Text::inline).unwrap_or_default();
            result.summary = output.lines().next().unwrap_or_default().to_owned();
        }
        self
    }
}

macro_rules! data {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $for_field:ident : $ty:ty),* $(,)? })+) => {
        $(#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $for_field: $ty),* })+
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

    /// Limits that a client must respect.
    pub struct Limits {
        pub frame_bytes: usize,
        pub page_entries: usize,
        pub blob_piece_bytes: usize,
    }

    /// The state of the pod at the time of the subscription.
    #[cfg_attr(feature = "schema", schemars(rename = "SnapshotEvent"))]
    pub struct Snapshot {
        pub entries: Vec<Entry>,
        pub greeting: Greeting,
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<WaitState>,
        pub head: Position,
        #[serde(default)]
        pub in_flight: InFlight,
        /// `read` returns older entries.
        #[serde(default)]
        pub older: bool,
    }

    /// The client was too slow. The following events continue from the log at this entry.
    pub struct Lag {
        pub from_seq: u64,
    }

    /// Why a method was refused, or why a run failed.
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

    /// An input that a rewind can return to.
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

    /// Data of `entry` and `segment_rotated`: the typed entry as in the log.
    pub struct EntryEvent {
        pub entry: Box<Entry>,
    }

    pub struct StatusEvent {
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        /// The activity as a text for people: `Bash cargo test`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<WaitState>,
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

    /// Every accepted run ends with exactly one of these events.
    pub struct RunEnd {
        pub result: RunEndResult,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Set with `result: error`.
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

    /// The stream broke off, and a new request continues the reply.
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
        /// HTTP status of the provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<u16>,
        pub error: String,
    }

    pub struct LlmCallEnd {
        pub llm_call: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<LlmOutcome>,
    }

    /// A piece of a streaming block.
    pub struct Delta {
        pub text: String,
    }

    /// A complete block. A very long one is only named by its blob.
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

    /// `arguments` is the JSON text that the model wrote.
    pub struct ToolCallDone {
        pub id: CallId,
        pub name: String,
        pub arguments: Text,
    }

    /// `null` means unknown, never 0.
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

    /// An update of a running command.
    pub struct CommandEvent {
        pub command_id: String,
        pub call_id: CallId,
        /// Absent only in updates of a newer version.
        #[serde(flatten)]
        #[cfg_attr(feature = "schema", schemars(with = "CommandUpdate"))]
        pub news: Option<CommandUpdate>,
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
        /// The client that made the call.
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
        pub spent: Option<Spend>,
    }

    pub struct CompactStart {
        #[serde(default)]
        pub reason: String,
    }

    pub struct CompactFailed {
        pub error: String,
    }

    /// Context tokens before and after, if counted.
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

    /// A message for the user, not for the model.
    pub struct AlertEvent {
        pub level: AlertLevel,
        pub source: AlertSource,
        pub message: String,
        #[serde(default)]
        pub timestamp_ms: Millis,
    }
}

/// An update of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommandUpdate {
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
    /// The result of a run: the results of a successful run, and `error`.
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
        use crate::limits::{BLOB_CHUNK_BYTES, MAX_FRAME_BYTES, MAX_PAGE_ENTRIES};
        Limits {
            frame_bytes: MAX_FRAME_BYTES,
            page_entries: MAX_PAGE_ENTRIES,
            blob_piece_bytes: BLOB_CHUNK_BYTES,
        }
    }
}

impl ServerHello {
    /// Returns the hello of this version.
    pub fn new(server: &str) -> ServerHello {
        ServerHello { protocol: crate::PROTOCOL, server: server.to_owned(), limits: Limits::default() }
    }
}
