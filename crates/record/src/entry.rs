//! Entries: the durable facts of a session, one kind each, as `spec/01-log.md` names them.
//!
//! Here: the envelope and the closed list of kinds. Elsewhere: their written form (`line`), what is spilled to blobs
//! (`spill`), the facts that they fold into (`facts`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::action::{Action, Class, Outcome, Preview, Scope, Script, Verdict};
use crate::budget::{Budget, Paid, Spent};
use crate::facts::Facts;
use crate::ids::{AskId, CallId, Millis, PodName, QueueId, RunId, SessionId};
use crate::item::{InputSegment, Item, SystemItem};
use crate::job::Firing;
use crate::line::Chain;
use crate::text::{Large, Text};
use crate::words::words;

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
    /// The chain up to and including this line.
    pub h: Chain,
}

/// A place in a session. Whoever comes back gives both, because after a power cut the number of an entry that was
/// seen and not yet synced is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Position {
    pub seq: u64,
    pub h: Chain,
}

/// An entry before it is sealed, with how soon it must reach the disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub seq: u64,
    pub ts: Millis,
    pub run: Option<RunId>,
    pub kind: Kind,
    pub durability: Durability,
}

/// How soon an entry is synced. Barriers at once, before anything rests on them; lazy ones with the next barrier
/// or after 200 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    Lazy,
    Barrier,
}

words! {
    /// What kind of somebody.
    pub enum ActorKind { Person = "person", Pod = "pod", Job = "job", Hook = "hook", Minke = "minke" }
}

/// Who did or said something.
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
    pub fn person(surface: &str) -> Actor {
        Actor { actor: ActorKind::Person, session: None, surface: Some(surface.to_owned()) }
    }

    pub fn minke() -> Actor {
        Actor { actor: ActorKind::Minke, session: None, surface: None }
    }

    /// The mandate of a session.
    pub fn job(session: SessionId) -> Actor {
        Actor { actor: ActorKind::Job, session: Some(session), surface: None }
    }

    pub fn pod(session: SessionId) -> Actor {
        Actor { actor: ActorKind::Pod, session: Some(session), surface: None }
    }
}

/// Generates the enum of kinds, its reader (which dispatches on `kind` without buffering) and its names.
macro_rules! kinds {
    ($($(#[$meta:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "kind")]
        pub enum Kind {
            $($(#[$meta])* #[serde(rename = $name)] $variant($variant),)+
            /// A kind of a later version: kept, ignored by the fold. Its line holds everything.
            #[serde(untagged)]
            Unknown(Unknown),
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

            /// Reads the fields of the kind from the whole object (the envelope's fields are ignored).
            pub(crate) fn read(name: &str, object: &str) -> Result<Kind, serde_json::Error> {
                match name {
                    $($name => serde_json::from_str::<$variant>(object).map(Kind::$variant),)+
                    other => {
                        let fields: serde_json::Map<String, Value> = serde_json::from_str(object)?;
                        // Two members of this name would make it one kind when it is read and another when it is
                        // written again.
                        if fields.get("kind").and_then(Value::as_str) != Some(other) {
                            return Err(serde::de::Error::custom("the line has two members `kind`"));
                        }
                        Ok(Kind::Unknown(Unknown { kind: other.to_owned(), fields }))
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

/// An entry of a kind that this version does not know: the whole object as it came.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unknown {
    #[serde(skip)]
    pub kind: String,
    #[serde(flatten)]
    pub fields: serde_json::Map<String, Value>,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        crate::line::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = Vec::new();
        crate::line::write(self, &mut line);
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
        let h = generator.subschema_for::<Chain>();
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

/// Where a git working tree stood when the session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Git {
    pub sha: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_url: Option<String>,
}

/// The parent pod's session and the call that spawned this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parent {
    pub session: SessionId,
    pub call_id: CallId,
}

/// A clone of the workspace that a child works in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloneOf {
    /// Where it lies.
    pub path: String,
    /// Its own branch.
    pub branch: String,
}

/// Where a fork came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkedFrom {
    pub session: SessionId,
    pub seq: u64,
    pub h: Chain,
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
        pub git: Option<Git>,
        /// The resolved configuration; `manifest` reads it.
        pub manifest: Value,
        pub scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mandate: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub metadata: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent: Option<Parent>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<ForkedFrom>,
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
        /// The tier of the fence that this life's commands run in, as it was tried.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fence: Option<String>,
        /// The pod's own directories in this life, which it may touch beside its scope.
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
        pub carry: Large<Box<Facts>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compacted_to_seq: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tokens: Option<BeforeAfter>,
    }

    /// The same facts again inside a segment.
    pub struct Carry {
        pub segment: u64,
        /// seq of its `segment_start`.
        pub start: u64,
        pub history: History,
        pub carry: Large<Box<Facts>>,
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

    /// An accepted input that waits, or steering on its way into the context.
    pub struct QueuedInput {
        pub id: QueueId,
        pub segments: Vec<InputSegment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub op_id: Option<String>,
        pub from: Actor,
        pub mode: QueueMode,
        /// What it refers to, as it was read when the input was accepted. Whoever queues while no pod lives reads nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attached: Vec<SystemItem>,
    }

    pub struct Dequeued {
        pub id: QueueId,
        pub why: DequeueReason,
    }

    /// A note has come; duplicates are dropped by `(from, from_seq)`.
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

    /// Typed cause and the exact text the model gets; a note that is named here has been drained.
    pub struct SystemEntry {
        pub item: SystemItem,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<u64>,
    }

    /// Tool results up to there show only their summary.
    pub struct Pruned {
        pub to_seq: u64,
        pub saved: u64,
    }

    /// A request is about to be made; without its `llm_end` the reservation counts as spent.
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

    /// A block of the reply joins history when it is complete, in stream order.
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
        /// The recording of the response, all attempts; and how long that blob is.
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
        pub verdict: Verdict,
        /// A client made this call, not the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Actor>,
        /// If they are not the model's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub arguments: Option<Text>,
        /// The mind carries it out itself and may have to wait for what comes of it (calls about other pods).
        #[serde(default, skip_serializing_if = "is_false")]
        pub own: bool,
    }

    /// At most one per call; with `by` of a client's call it is not history.
    pub struct ToolResult {
        pub item: Item,
        pub outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub verdict: Option<Verdict>,
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
        /// How long the provider wants to be left alone.
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

    /// A remembered approval; a pod uses only those in its own log.
    pub struct Grant {
        pub rule: String,
        pub reach: String,
        pub by: Actor,
        /// The scripts that the person saw with it: it covers these with this content, and no others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub scripts: Vec<Script>,
    }

    /// A child that begins to live and to hold a loan, or one that was another pod's child and is this one's now.
    pub struct Child {
        pub session: SessionId,
        pub name: PodName,
        pub call_id: CallId,
        pub scope: Scope,
        /// What it and everything below it may have spent in all when this life of it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget: Option<Budget>,
        /// The pod that had lent it its scope, if it was adopted from there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adopted_from: Option<SessionId>,
        /// Who is between it and this pod, nearest to it first, if it was adopted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub line: Vec<SessionId>,
        /// Its own clone of the workspace, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clone: Option<CloneOf>,
    }

    pub struct ChildEnd {
        pub session: SessionId,
        pub name: PodName,
        pub outcome: ChildOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit: Option<i32>,
        /// In this life of it, by it and everything below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub spent: Option<Spent>,
    }

    /// What pods below this one have spent, read from their logs. The newest reading of each counts: so it does not
    /// matter who reads first when a pod had several parents one after the other.
    pub struct ChildSpent {
        pub paid: Vec<Paid>,
    }

    /// A report on its way to the parent, numbered by the `seq` of this entry.
    pub struct Outbox {
        pub to: SessionId,
        pub event: PodEvent,
    }

    /// The report of this number has arrived. Written `outbox_seq`: the line's own `seq` stands in the same object.
    pub struct OutboxAck {
        #[serde(rename = "outbox_seq")]
        pub seq: u64,
    }

    /// What a run or a job is doing when no other entry says so.
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
        /// Another job comes from this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub firing: Option<Firing>,
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

    /// How far this pod has read a child's output. Written `to_seq`: the line's own `seq` stands in the same object.
    pub struct ReadTo {
        pub session: SessionId,
        #[serde(rename = "to_seq")]
        pub seq: u64,
    }

    /// File state for undo.
    pub struct Snapshot {
        /// Of one call's file; absent if it is what changed in the write scope since the snapshot before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub call_id: Option<CallId>,
        /// The run that it was taken before or after, if that is not the one that the entry stands in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub of_run: Option<RunId>,
        pub when: SnapshotWhen,
        pub files: Large<Vec<SnapshotFile>>,
    }

    /// A named point of an API client.
    pub struct Checkpoint {
        pub id: String,
        pub state: Value,
    }

    /// Later entries leave the context, stay in the log.
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

    /// For the person, not the model.
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

    /// What a tool is to the model: exactly what is offered, sorted by name.
    pub struct ToolSpec {
        pub name: String,
        pub description: String,
        pub schema: Value,
    }

    pub struct BeforeAfter {
        pub before: u64,
        pub after: u64,
    }

    /// Which model, spoken to how.
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

    /// The same turn goes on: broken stream, fallback, compacted.
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
        /// The exact question, command or diff, for the person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub text: Option<String>,
        /// The tool that would be called, and where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub action: Option<Action>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub diff: Option<String>,
        /// Why it is asked: the rule, its layer, the fence it would run in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub verdict: Option<Verdict>,
        /// The exact rule that `approved_rule` would write; absent where it would change nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub always: Option<String>,
    }

    pub struct SnapshotFile {
        pub path: String,
        pub mode: u32,
        /// Empty if there was no such file.
        pub hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub blob: Option<String>,
        /// Where in the blob the content begins, if many files share one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<u64>,
        /// How long the content is, if many files share a blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub bytes: Option<u64>,
    }
}

/// `[Item]`, or the context as it was after an entry, or a blob that holds the items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum History {
    SameAs { same_as: u64 },
    Blob(crate::text::BlobRef),
    Here(Vec<Item>),
}

/// What a child tells its parent.
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
    /// Whether the parent's agent is to be woken, and told. Bookkeeping never is.
    pub fn wakes(&self) -> bool {
        match self {
            PodEvent::TurnEnded { wake, .. } | PodEvent::Errored { wake, .. } => wake.unwrap_or(true),
            PodEvent::ShutDown { wake, outcome, .. } => {
                outcome != &Some(ChildOutcome::Slept) && wake.unwrap_or(true)
            }
            PodEvent::Asked { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => false,
        }
    }

    /// Bookkeeping never enters the agent's context.
    pub fn bookkeeping(&self) -> bool {
        match self {
            PodEvent::TurnEnded { .. } | PodEvent::Errored { .. } => false,
            PodEvent::ShutDown { outcome, .. } => outcome == &Some(ChildOutcome::Slept),
            PodEvent::Asked { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => true,
        }
    }
}

words! {
    /// What the lease was taken for.
    pub enum Holder { Pod = "pod", Visit = "visit" }
}
words! {
    /// Why a segment began.
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
    /// Whether a waiting input opens a run or joins the one that goes on.
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
    /// How a run that did not fail ended.
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
    /// Why something was refused, or why a run failed.
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
    /// Whether the call that was asked about may go on.
    pub fn approves(&self) -> bool {
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
        /// It lives on as the child of the pod that it was adopted from, which is back.
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
    /// How soon an entry of this kind must be synced. A `tool_result` of a pure call may be lazy; only the pod
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
