//! Entries: the durable facts of a session, one kind each, as named in `spec/01-log.md`.
//!
//! Here: the envelope and the closed list of kinds. Elsewhere: serialization (`line`), spilling to blobs
//! (`spill`), the facts folded from them (`facts`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::action::{Action, Class, ExecutedScript, Outcome, PolicyVerdict, Preview, Scope};
use crate::budget::{Budget, PodSpend, Spend};
use crate::compat::LoggedBackend;
use crate::facts::SessionFacts;
use crate::ids::{AskId, CallId, Millis, PodName, QueueId, RunId, SessionId};
use crate::item::{InputSegment, Item, SystemItem};
use crate::job::JobFiring;
use crate::line::ChainHash;
use crate::string_enum::words;
use crate::text::{Large, Text};

/// One durable fact, one line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub seq: u64,
    pub ts: Millis,
    /// Only inside a run.
    pub run: Option<RunId>,
    /// More entries of the same step follow.
    pub more: bool,
    pub kind: Kind,
    /// The hash chain up to and including this line.
    pub h: ChainHash,
}

/// A position in a session. A reconnecting client sends both fields, because after a power cut the number of
/// an unsynced entry is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Position {
    pub seq: u64,
    pub h: ChainHash,
}

/// An unsealed entry with its durability.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub seq: u64,
    pub ts: Millis,
    pub run: Option<RunId>,
    pub kind: Kind,
    pub durability: Durability,
}

/// When an entry is synced. Barriers: immediately, before anything depends on them; lazy ones: with the next
/// barrier or after 200 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    Lazy,
    Barrier,
}

words! {
    /// The kind of an actor.
    pub enum ActorKind { Person = "person", Pod = "pod", Job = "job", Hook = "hook", Minke = "minke" }
}

/// The author of an action or message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Actor {
    pub actor: ActorKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

impl Actor {
    pub fn from_person(surface: &str) -> Actor {
        Actor { actor: ActorKind::Person, session: None, surface: Some(surface.to_owned()) }
    }

    pub fn from_minke() -> Actor {
        Actor { actor: ActorKind::Minke, session: None, surface: None }
    }

    /// The mandate of a session.
    pub fn from_job(session: SessionId) -> Actor {
        Actor { actor: ActorKind::Job, session: Some(session), surface: None }
    }

    pub fn from_pod(session: SessionId) -> Actor {
        Actor { actor: ActorKind::Pod, session: Some(session), surface: None }
    }
}

/// Generates the enum of kinds, its deserializer (which dispatches on `kind` without buffering) and the
/// names.
macro_rules! kinds {
    ($($(#[$meta:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// The data of an entry by kind.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "kind")]
        pub enum Kind {
            $($(#[$meta])* #[serde(rename = $name)] $variant($variant),)+
            /// A kind of a later version: kept, ignored by the fold. Contains the whole line.
            #[serde(untagged)]
            Unknown(UnknownEntry),
        }

        impl Kind {
            /// Every kind this version knows.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The kind's name, as it is written.
            pub fn name(&self) -> &str {
                match self {
                    $(Kind::$variant(_) => $name,)+
                    Kind::Unknown(unknown) => &unknown.kind,
                }
            }

            /// Deserializes the fields of the kind from the whole object (ignores the envelope's fields).
            pub(crate) fn read(name: &str, object: &str) -> Result<Kind, serde_json::Error> {
                match name {
                    $($name => serde_json::from_str::<$variant>(object).map(Kind::$variant),)+
                    other => {
                        let fields: serde_json::Map<String, Value> = serde_json::from_str(object)?;
                        // With two members of this name, a reader could see another kind than a writer of the
                        // same entry.
                        if fields.get("kind").and_then(Value::as_str) != Some(other) {
                            return Err(serde::de::Error::custom("the line has two members `kind`"));
                        }
                        Ok(Kind::Unknown(UnknownEntry { kind: other.to_owned(), fields }))
                    }
                }
            }
        }

        $(impl From<$variant> for Kind {
            fn from(kind: $variant) -> Kind {
                Kind::$variant(kind)
            }
        })+
    };
}

kinds! {
    SessionStart = "session_start",
    Opened = "opened",
    SegmentStart = "segment_start",
    Carry = "carry",
    Invoke = "invoke",
    UserInput = "user_input",
    QueuedInput = "queued_input",
    Dequeued = "dequeued",
    Inbox = "inbox",
    SystemEntry = "system_item",
    Pruned = "pruned",
    LlmCall = "llm_call",
    AssistantItem = "assistant_item",
    LlmUsage = "llm_usage",
    LlmEnd = "llm_end",
    ToolDispatch = "tool_dispatch",
    ToolResult = "tool_result",
    TurnEnd = "turn_end",
    RunCompleted = "run_completed",
    RunErrored = "run_errored",
    Ask = "ask",
    Answer = "answer",
    Grant = "grant",
    Child = "child",
    ChildEnd = "child_end",
    ChildSpent = "child_spent",
    Outbox = "outbox",
    OutboxAck = "outbox_ack",
    StateChange = "state",
    Progress = "progress",
    Goal = "goal",
    Task = "task",
    ReadTo = "read_to",
    Snapshot = "snapshot",
    Checkpoint = "checkpoint",
    Rewound = "rewound",
    ConfigChanged = "config_changed",
    Renamed = "renamed",
    Archived = "archived",
    Unarchived = "unarchived",
    Alert = "alert",
    Extension = "extension",
}

/// An entry of a kind unknown to this version: the original object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownEntry {
    #[serde(skip)]
    pub kind: String,
    #[serde(flatten)]
    pub fields: serde_json::Map<String, Value>,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        crate::line::parse_entry(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = Vec::new();
        crate::line::write_entry(self, &mut line);
        let text = String::from_utf8(line).map_err(serde::ser::Error::custom)?;
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Entry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Entry".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let kind = generator.subschema_for::<Kind>();
        let run = generator.subschema_for::<RunId>();
        let h = generator.subschema_for::<ChainHash>();
        schemars::json_schema!({
            "allOf": [
                {
                    "type": "object",
                    "properties": {
                        "seq": { "type": "integer", "minimum": 0 },
                        "ts": { "type": "integer", "minimum": 0 },
                        "run": run,
                        "more": { "type": "boolean" },
                        "h": h,
                    },
                    "required": ["seq", "ts", "kind", "h"],
                },
                kind,
            ],
        })
    }
}

/// The state of a git working tree when the session started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GitState {
    pub sha: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_url: Option<String>,
}

/// The parent pod's session and the call that spawned this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ParentCall {
    pub session: SessionId,
    pub call_id: CallId,
}

/// A clone of the workspace that a child works in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloneOrigin {
    /// The directory of the clone.
    pub path: String,
    /// Its own branch.
    pub branch: String,
}

/// The origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkOrigin {
    pub session: SessionId,
    pub seq: u64,
    pub h: ChainHash,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Structs of the kinds. Every optional field is left out when it is absent.
macro_rules! entry_structs {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* })+
    };
}

entry_structs! {
    /// seq 0 only: identity, configuration, lineage; opens epoch 0.
    pub struct SessionStart {
        pub session: SessionId,
        pub format: u32,
        pub version: String,
        pub name: PodName,
        pub created_by: Actor,
        pub cwd: String,
        pub workspace: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub git: Option<GitState>,
        /// The resolved configuration; `manifest` reads it.
        pub manifest: Value,
        pub scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mandate: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub metadata: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent: Option<ParentCall>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<ForkOrigin>,
    }

    /// First entry of every later holder of the lease.
    pub struct Opened {
        pub epoch: u64,
        pub pid: u32,
        pub boot_id: String,
        pub host: String,
        pub version: String,
        #[serde(rename = "as")]
        pub holder: Holder,
        /// The sandbox backend for commands of this process, as probed.
        #[serde(flatten)]
        pub sandbox: LoggedBackend,
        /// The pod's own directories in this process, in addition to its scope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub own: Option<Scope>,
    }

    /// Resets the context to `history`.
    pub struct SegmentStart {
        pub segment: u64,
        pub reason: SegmentReason,
        pub system_prompt: Text,
        pub tools: Large<Vec<ToolSpec>>,
        pub config: Value,
        pub history: History,
        pub carry: Large<Box<SessionFacts>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compacted_to_seq: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tokens: Option<BeforeAfter>,
    }

    /// Repeats the current facts inside a segment.
    pub struct Carry {
        pub segment: u64,
        /// seq of its `segment_start`.
        pub start: u64,
        pub history: History,
        pub carry: Large<Box<SessionFacts>>,
    }

    /// A run opens.
    pub struct Invoke {
        pub trigger: Trigger,
        pub by: Actor,
        pub attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub continues: Option<RunId>,
    }

    /// A user message.
    pub struct UserInput {
        pub segments: Vec<InputSegment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub op_id: Option<String>,
        pub from: Actor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queued: Option<QueueId>,
    }

    /// A queued input, or steering that is not in the context yet.
    pub struct QueuedInput {
        pub id: QueueId,
        pub segments: Vec<InputSegment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub op_id: Option<String>,
        pub from: Actor,
        pub mode: QueueMode,
        /// The references of the input, as read when it was accepted. An input queued without a pod has none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attached: Vec<SystemItem>,
    }

    pub struct Dequeued {
        pub id: QueueId,
        pub why: DequeueReason,
    }

    /// A message has arrived; duplicates are dropped by `(from, from_seq)`.
    pub struct Inbox {
        pub from: Actor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from_seq: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub event: Option<PodEvent>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<Text>,
        pub wake: bool,
    }

    /// The typed cause and the exact text for the model; messages named here are no longer pending.
    pub struct SystemEntry {
        pub item: SystemItem,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<u64>,
    }

    /// Tool results up to this entry show only their summary.
    pub struct Pruned {
        pub to_seq: u64,
        pub saved: u64,
    }

    /// A request is about to be sent; without its `llm_end` the reservation counts as spent.
    pub struct LlmCall {
        pub call: u64,
        pub turn: u64,
        pub purpose: Purpose,
        pub route: Route,
        pub request_hash: String,
        pub builder: u32,
        pub reserved: Reserved,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub continues: Option<Continues>,
    }

    /// A complete block of the reply joins the history, in stream order.
    pub struct AssistantItem {
        pub call: u64,
        pub item: Item,
    }

    pub struct LlmUsage {
        pub call: u64,
        pub input: u64,
        pub output: u64,
        #[serde(default)]
        pub cache_read: u64,
        #[serde(default)]
        pub cache_write: u64,
        /// `null` = unknown, never 0.
        #[serde(default)]
        pub cost_usd: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cache_drop: Option<String>,
    }

    pub struct LlmEnd {
        pub call: u64,
        pub outcome: LlmOutcome,
        pub attempts: u32,
        /// The recording of the response with all attempts, and the length of that blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stream_blob: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stream_bytes: Option<u64>,
    }

    /// Written before the tool starts.
    pub struct ToolDispatch {
        pub call_id: CallId,
        pub tool: String,
        pub class: Class,
        pub action: Action,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub preview: Option<Preview>,
        pub verdict: PolicyVerdict,
        /// The client that made this call; absent for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
        /// The rewritten arguments, if they differ from the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub arguments: Option<Text>,
        /// The pod executes the call itself and may have to wait for the result (calls about other pods).
        #[serde(default, skip_serializing_if = "is_false")]
        pub own: bool,
    }

    /// At most one for each call; with `by` of a client it is not part of the history.
    pub struct ToolResult {
        pub item: Item,
        pub outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub verdict: Option<PolicyVerdict>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub notes: Vec<u64>,
    }

    pub struct TurnEnd {
        pub turn: u64,
        pub result: TurnResult,
        pub stop_reason: String,
    }

    pub struct RunCompleted {
        pub result: RunResult,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    pub struct RunErrored {
        pub code: ErrorCode,
        pub message: String,
        pub retryable: bool,
        /// The delay that the provider requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry_after_ms: Option<u64>,
    }

    /// A durable question.
    pub struct Ask {
        pub id: AskId,
        pub ask: AskKind,
        pub subject: AskSubject,
        pub options: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Millis>,
    }

    pub struct Answer {
        pub id: AskId,
        pub decision: Decision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
        pub by: Actor,
    }

    /// A stored approval; a pod uses only those in its own log.
    pub struct Grant {
        pub rule: String,
        pub reach: String,
        pub by: Actor,
        /// The scripts shown to the user: the grant covers them with this content only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub scripts: Vec<ExecutedScript>,
    }

    /// A child starts and holds a loan, or another pod's child is adopted.
    pub struct Child {
        pub session: SessionId,
        pub name: PodName,
        pub call_id: CallId,
        pub scope: Scope,
        /// The total spending limit of it and its descendants until this process of it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget: Option<Budget>,
        /// If adopted: the pod that had lent its scope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adopted_from: Option<SessionId>,
        /// If adopted: the pods between it and this pod, nearest to it first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub line: Vec<SessionId>,
        /// Its own clone of the workspace, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clone: Option<CloneOrigin>,
    }

    pub struct ChildEnd {
        pub session: SessionId,
        pub name: PodName,
        pub outcome: ChildOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit: Option<i32>,
        /// The spending of it and its descendants in this process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub spent: Option<Spend>,
    }

    /// The spending of descendants, read from their logs. The newest value of each counts, so the order of
    /// reads by several parents does not matter.
    pub struct ChildSpent {
        pub paid: Vec<PodSpend>,
    }

    /// A report to the parent, identified by the `seq` of this entry.
    pub struct Outbox {
        pub to: SessionId,
        pub event: PodEvent,
    }

    /// The report with this number was delivered. Serialized as `outbox_seq`, because `seq` is the line's own
    /// number.
    pub struct OutboxAck {
        #[serde(rename = "outbox_seq")]
        pub seq: u64,
    }

    /// The state of a run or job that no other entry shows.
    pub struct StateChange {
        pub state: StateWord,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on: Option<WaitingOn>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub until: Option<Millis>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
        /// Another job is created from this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub firing: Option<JobFiring>,
    }

    pub struct Progress {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub percent: Option<f64>,
        pub note: String,
    }

    pub struct Goal {
        pub change: GoalChange,
        pub text: String,
        pub used: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub evidence: Option<String>,
    }

    pub struct Task {
        pub id: u64,
        pub subject: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        pub status: TaskStatus,
    }

    /// The position to which this pod has read a child's output. Serialized as `to_seq`, because `seq` is the
    /// line's own number.
    pub struct ReadTo {
        pub session: SessionId,
        #[serde(rename = "to_seq")]
        pub seq: u64,
    }

    /// File state for undo.
    pub struct Snapshot {
        /// The call whose file it is; absent for changes in the write scope since the previous snapshot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub call_id: Option<CallId>,
        /// The run before or after which it was captured, if that is not the run of the entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub of_run: Option<RunId>,
        pub when: SnapshotWhen,
        pub files: Large<Vec<SnapshotFile>>,
    }

    /// A named checkpoint of an API client.
    pub struct Checkpoint {
        pub id: String,
        pub state: Value,
    }

    /// Later entries leave the context, but stay in the log.
    pub struct Rewound {
        pub to_seq: u64,
    }

    pub struct ConfigChanged {
        pub key: String,
        pub value: Value,
        pub by: Actor,
    }

    pub struct Renamed {
        pub name: PodName,
        pub by: Actor,
    }

    pub struct Archived {
        pub by: Actor,
    }

    pub struct Unarchived {
        pub by: Actor,
    }

    /// A message for the user, not for the model.
    pub struct Alert {
        pub level: AlertLevel,
        pub source: AlertSource,
        pub message: String,
    }

    /// Ignored by the fold.
    pub struct Extension {
        pub domain: String,
        pub payload: Value,
    }

    /// The definition of an offered tool for the model.
    pub struct ToolSpec {
        pub name: String,
        pub description: String,
        pub schema: Value,
    }

    pub struct BeforeAfter {
        pub before: u64,
        pub after: u64,
    }

    /// The model and its connection.
    pub struct Route {
        pub provider: String,
        pub model: String,
        pub scheme: String,
    }

    pub struct Reserved {
        pub input: u64,
        pub output: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub usd: Option<f64>,
    }

    /// The same turn continues: broken stream, fallback, compaction.
    pub struct Continues {
        pub call: u64,
        pub attempt: u32,
        pub reason: String,
    }

    #[derive(Default)]
    pub struct AskSubject {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub call_id: Option<CallId>,
        /// Binds the answer to this call: tool, final arguments, cwd, and the preview's hash before.
        pub digest: String,
        /// The exact question, command or diff, for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub text: Option<String>,
        /// The tool that would be called, and its directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub action: Option<Action>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub diff: Option<String>,
        /// The reason of the ask: the rule, its layer, the sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub verdict: Option<PolicyVerdict>,
        /// The exact rule that `approved_rule` would write; absent if it would have no effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub always: Option<String>,
    }

    pub struct SnapshotFile {
        pub path: String,
        pub mode: u32,
        /// Empty if the file did not exist.
        pub hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub blob: Option<String>,
        /// The offset of the content, if several files share the blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<u64>,
        /// The length of the content, if several files share the blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub bytes: Option<u64>,
    }
}

/// `[Item]`, or the context after an entry, or a blob that contains the items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum History {
    SameAs { same_as: u64 },
    Blob(crate::text::BlobRef),
    Here(Vec<Item>),
}

/// An event that a child reports to its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PodEvent {
    TurnEnded {
        pod_name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake: Option<bool>,
    },
    Errored {
        pod_name: String,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake: Option<bool>,
    },
    ShutDown {
        pod_name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<ChildOutcome>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake: Option<bool>,
    },
    Asked {
        pod_name: String,
        ask: Value,
        socket: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake: Option<bool>,
    },
    ScopeSubDelegated {
        parent_pod: String,
        sub_pod: String,
        sub_socket: String,
        scope: Vec<crate::action::ScopeRule>,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

impl PodEvent {
    /// Whether the event wakes the parent's agent and is shown to it. Bookkeeping events are not.
    pub fn wakes_parent(&self) -> bool {
        match self {
            PodEvent::TurnEnded { wake, .. } | PodEvent::Errored { wake, .. } => wake.unwrap_or(true),
            PodEvent::ShutDown { wake, outcome, .. } => {
                outcome != &Some(ChildOutcome::Slept) && wake.unwrap_or(true)
            }
            PodEvent::Asked { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => false,
        }
    }

    /// Bookkeeping events never enter the agent's context.
    pub fn is_bookkeeping(&self) -> bool {
        match self {
            PodEvent::TurnEnded { .. } | PodEvent::Errored { .. } => false,
            PodEvent::ShutDown { outcome, .. } => outcome == &Some(ChildOutcome::Slept),
            PodEvent::Asked { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => true,
        }
    }
}

words! {
    /// The purpose of the lease.
    pub enum Holder { Pod = "pod", Visit = "visit" }
}
words! {
    /// Why a segment started.
    pub enum SegmentReason {
        Initial = "initial",
        Compaction = "compaction",
        Rewind = "rewind",
        Config = "config",
        Import = "import",
        Fork = "fork",
    }
}
words! {
    /// What opened a run.
    pub enum Trigger {
        UserSend = "user_send",
        Notify = "notify",
        PodEvent = "pod_event",
        Resume = "resume",
        Job = "job",
        Wakeup = "wakeup",
    }
}
words! {
    /// Whether a queued input opens a run or joins the open one.
    pub enum QueueMode { Queue = "queue", Steer = "steer" }
}
words! {
    pub enum DequeueReason { Run = "run", Steered = "steered", Removed = "removed" }
}
words! {
    pub enum Purpose { Turn = "turn", Compaction = "compaction", Title = "title" }
}
words! {
    pub enum LlmOutcome { Done = "done", Broken = "broken", Failed = "failed", Cancelled = "cancelled" }
}
words! {
    pub enum TurnResult { Finished = "finished", Paused = "paused", Cancelled = "cancelled", Error = "error" }
}
words! {
    /// How a run without a failure ended.
    pub enum RunResult {
        Finished = "finished",
        Paused = "paused",
        LimitReached = "limit_reached",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
        Interrupted = "interrupted",
    }
}
words! {
    /// The reason of a refusal or of a failed run.
    pub enum ErrorCode {
        AlreadyRunning = "already_running",
        NotRunning = "not_running",
        NotPaused = "not_paused",
        InvalidRequest = "invalid_request",
        NotFound = "not_found",
        Conflict = "conflict",
        Denied = "denied",
        TooMany = "too_many",
        ProviderError = "provider_error",
        Refused = "refused",
        ToolError = "tool_error",
        BudgetExceeded = "budget_exceeded",
        StorageFailed = "storage_failed",
        Internal = "internal",
    }
}
words! {
    pub enum AskKind { Approval = "approval", Question = "question", Elicitation = "elicitation" }
}
words! {
    /// The answer to an ask.
    pub enum Decision {
        Approved = "approved",
        ApprovedForSession = "approved_for_session",
        ApprovedRule = "approved_rule",
        Answered = "answered",
        Denied = "denied",
        Abort = "abort",
    }
}

impl Decision {
    /// Whether the call may run.
    pub fn is_approval(&self) -> bool {
        matches!(
            self,
            Decision::Approved | Decision::ApprovedForSession | Decision::ApprovedRule | Decision::Answered
        )
    }
}

words! {
    pub enum ChildOutcome {
        FailedToStart = "failed_to_start",
        Slept = "slept",
        Stopped = "stopped",
        Crashed = "crashed",
        /// It was returned to the pod from which it was adopted, which is running again.
        Returned = "returned",
    }
}
words! {
    pub enum StateWord {
        Paused = "paused",
        Queued = "queued",
        Waiting = "waiting",
        Working = "working",
        Abandoned = "abandoned",
        Stopping = "stopping",
    }
}
words! {
    pub enum WaitingOn { Ask = "ask", Child = "child", Time = "time" }
}
words! {
    pub enum GoalChange { Set = "set", Advance = "advance", Done = "done", Clear = "clear" }
}
words! {
    pub enum TaskStatus {
        Pending = "pending",
        InProgress = "in_progress",
        Completed = "completed",
        Deleted = "deleted",
    }
}
words! {
    pub enum SnapshotWhen { Before = "before", After = "after" }
}
words! {
    pub enum AlertLevel { Warn = "warn", Error = "error" }
}
words! {
    pub enum AlertSource {
        Pod = "pod",
        Worker = "worker",
        Compactor = "compactor",
        AgentsMd = "agents_md",
        Policy = "policy",
        Storage = "storage",
    }
}

impl Kind {
    /// When an entry of this kind must be synced. A `tool_result` of a pure call may be lazy; only the pod
    /// knows that, so here it is a barrier.
    pub fn durability(&self) -> Durability {
        match self {
            Kind::SessionStart(_)
            | Kind::Opened(_)
            | Kind::UserInput(_)
            | Kind::QueuedInput(_)
            | Kind::Dequeued(_)
            | Kind::Inbox(_)
            | Kind::LlmCall(_)
            | Kind::ToolResult(_)
            | Kind::RunCompleted(_)
            | Kind::RunErrored(_)
            | Kind::Ask(_)
            | Kind::Answer(_)
            | Kind::Grant(_)
            | Kind::Child(_)
            | Kind::ChildEnd(_)
            | Kind::ChildSpent(_)
            | Kind::Outbox(_)
            | Kind::Checkpoint(_)
            | Kind::Rewound(_)
            | Kind::ConfigChanged(_)
            | Kind::Renamed(_)
            | Kind::Archived(_)
            | Kind::Unarchived(_) => Durability::Barrier,
            Kind::ToolDispatch(dispatch) if dispatch.class != Class::Pure => Durability::Barrier,
            Kind::ToolDispatch(_)
            | Kind::SegmentStart(_)
            | Kind::Carry(_)
            | Kind::Invoke(_)
            | Kind::SystemEntry(_)
            | Kind::Pruned(_)
            | Kind::AssistantItem(_)
            | Kind::LlmUsage(_)
            | Kind::LlmEnd(_)
            | Kind::TurnEnd(_)
            | Kind::OutboxAck(_)
            | Kind::StateChange(_)
            | Kind::Progress(_)
            | Kind::Goal(_)
            | Kind::Task(_)
            | Kind::ReadTo(_)
            | Kind::Snapshot(_)
            | Kind::Alert(_)
            | Kind::Extension(_)
            | Kind::Unknown(_) => Durability::Lazy,
        }
    }
}
