//! Methods: all requests of a client to a pod.
//!
//! Defines their shapes and validation. Elsewhere: parsing a line (`request`), the effect of a method
//! (`pod`).

use minke_record::limits::{CHECKPOINT_BYTES, OP_ID_BYTES};
use minke_record::{
    AskId, CallId, Decision, InputSegment, PodEvent, PodName, Position, QueueId, RunId, SessionId,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::choice::{CompletionKind, RunMode, ShutdownMode, Subscribe, Until};
use crate::limits::{BLOB_CHUNK_BYTES, MAX_PAGE_ENTRIES, MAX_WAIT_MS};
use crate::request::{ParamsError, parse_params};

/// Generates the enum of methods, their names and the parser.
macro_rules! methods {
    ($($(#[$meta:meta])* $variant:ident $(($params:ty))? = $name:literal),+ $(,)?) => {
        /// A request of a client to a pod.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "method", content = "params")]
        pub enum Method {
            $($(#[$meta])* #[serde(rename = $name)] $variant $(($params))?,)+
        }

        impl Method {
            /// All methods, in the order of the specification.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name of the method on the wire.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Method::$variant { .. } => $name,)+
                }
            }

            /// Parses the params of a method. Methods without params accept and ignore any object.
            pub(crate) fn read(name: &str, params: Option<&RawValue>) -> Result<Method, ParamsError> {
                let method = match name {
                    $($name => {
                        let _ = params;
                        Method::$variant $((parse_params::<$params>(params)?))?
                    })+
                    other => return Err(ParamsError::unknown_method(other)),
                };
                method.validate()
            }
        }
    };
}

methods! {
    Hello(Hello) = "hello",
    Run(Run) = "run",
    Dequeue(Dequeue) = "dequeue",
    Notify(Notify) = "notify",
    PodEvent(Report) = "pod_event",
    Resume(Detail) = "resume",
    Pause(Detail) = "pause",
    Cancel(Detail) = "cancel",
    Answer(Answer) = "answer",
    Compact(Compact) = "compact",
    RewindTargets = "rewind_targets",
    Rewind(Rewind) = "rewind",
    Undo(Undo) = "undo",
    Fork(Fork) = "fork",
    CallTool(CallTool) = "call_tool",
    Checkpoint(Checkpoint) = "checkpoint",
    Set(Box<Set>) = "set",
    Yield = "yield",
    RestartMcp(RestartMcp) = "restart_mcp",
    Status = "status",
    Read(Read) = "read",
    ReadBlob(ReadBlob) = "read_blob",
    Wait(Wait) = "wait",
    ListCompletions(ListCompletions) = "list_completions",
    ListPods = "list_pods",
    RestorePod(RestorePod) = "restore_pod",
    Shutdown(Shutdown) = "shutdown",
    /// Older form: answered with a `history` event.
    GetHistory = "get_history",
}

macro_rules! params {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $for_field:ident : $ty:ty),* $(,)? })+) => {
        $(#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $for_field: $ty),* })+
    };
}

params! {
    /// The optional first line of a client.
    pub struct Hello {
        #[serde(default = "protocol")]
        pub protocol: u32,
        #[serde(default)]
        pub subscribe: Subscribe,
        /// The last entry that the client has; it gets only later ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub since: Option<Position>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub client: Option<ClientInfo>,
    }

    pub struct ClientInfo {
        #[serde(default)]
        pub name: String,
        #[serde(default)]
        pub version: String,
        /// The session of a pod that connects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
    }

    /// Sends an input.
    pub struct Run {
        #[serde(deserialize_with = "input_or_text")]
        #[cfg_attr(feature = "schema", schemars(with = "InputOrText"))]
        pub input: Vec<InputSegment>,
        #[serde(default)]
        pub mode: RunMode,
        /// A repeated `op_id` returns the first result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub op_id: Option<String>,
    }

    /// Removes a waiting input from the queue.
    pub struct Dequeue {
        pub id: QueueId,
    }

    /// Sends a note to the agent.
    pub struct Notify {
        pub message: String,
        #[serde(default = "yes")]
        pub auto_run: bool,
    }

    /// Sent by a child; acknowledged after it is logged. Older children send neither `from` nor `from_seq`.
    #[cfg_attr(feature = "schema", schemars(rename = "ReportParams"))]
    pub struct Report {
        #[serde(flatten)]
        pub event: PodEvent,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from_seq: Option<u64>,
    }

    /// Params of `resume`, `pause` and `cancel`: the logged reason.
    #[derive(Default)]
    pub struct Detail {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
    }

    #[cfg_attr(feature = "schema", schemars(rename = "AnswerParams"))]
    pub struct Answer {
        pub ask: AskId,
        pub decision: Decision,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    #[derive(Default)]
    pub struct Compact {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub instructions: Option<String>,
    }

    pub struct Rewind {
        pub to_seq: u64,
        pub expected_head: Position,
    }

    /// Restores files, of the last run by default.
    #[derive(Default)]
    pub struct Undo {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub run: Option<RunId>,
    }

    #[derive(Default)]
    pub struct Fork {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at_seq: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<PodName>,
    }

    /// Makes one call for a client under the same policy. `arguments` is an object or its JSON text.
    pub struct CallTool {
        pub name: String,
        pub arguments: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub call_id: Option<CallId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
    }

    #[cfg_attr(feature = "schema", schemars(rename = "CheckpointParams"))]
    pub struct Checkpoint {
        pub id: String,
        pub state: Value,
    }

    /// Changes settings; the change is logged.
    #[derive(Default)]
    pub struct Set {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<PodName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub posture: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub grant: Option<SetGrant>,
        /// `null` clears the goal, absent keeps it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "null_or_text")]
        pub goal: Option<Option<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub progress: Option<SetProgress>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub archived: Option<bool>,
    }

    pub struct SetGrant {
        pub rule: String,
        pub reach: String,
    }

    pub struct SetProgress {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub percent: Option<f64>,
        pub note: String,
    }

    pub struct RestartMcp {
        pub server: String,
    }

    /// Reads a page of entries.
    pub struct Read {
        pub from_seq: u64,
        #[serde(default = "page_entries")]
        pub limit: usize,
        /// Only entries of these kinds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kinds: Option<Vec<String>>,
    }

    /// Reads a piece of a blob of this session.
    pub struct ReadBlob {
        pub blob: String,
        #[serde(default)]
        pub offset: u64,
        #[serde(default = "blob_piece")]
        pub limit: usize,
    }

    pub struct Wait {
        pub until: Until,
        pub timeout_ms: u64,
    }

    pub struct ListCompletions {
        pub kind: CompletionKind,
        #[serde(default)]
        pub prefix: String,
    }

    /// Restarts a descendant pod. The session distinguishes it from earlier pods with the same name, and is
    /// required for a pod that this pod has not spawned itself.
    pub struct RestorePod {
        pub name: PodName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
    }

    #[derive(Default)]
    pub struct Shutdown {
        #[serde(default)]
        pub mode: ShutdownMode,
    }
}

impl Hello {
    /// Returns the hello of a client that does not know `hello`.
    pub fn legacy_client() -> Hello {
        Hello { protocol: crate::PROTOCOL, subscribe: Subscribe::Full, since: None, client: None }
    }
}

impl Run {
    pub fn from_text(text: &str) -> Run {
        Run { input: vec![InputSegment::from_text(text)], mode: RunMode::Reject, op_id: None }
    }
}

impl CallTool {
    /// Returns the arguments as JSON text, from either form.
    pub fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

impl Method {
    /// Checks values that the shapes do not restrict. Reduces oversized page requests, because the reply
    /// tells where the next page begins.
    fn validate(mut self) -> Result<Method, ParamsError> {
        match &mut self {
            Method::Run(run) => {
                if run.op_id.as_ref().is_some_and(|id| id.len() > OP_ID_BYTES) {
                    return Err(ParamsError::for_field(
                        "op_id",
                        format!("is longer than {OP_ID_BYTES} bytes"),
                    ));
                }
            }
            Method::Answer(answer) => {
                if let Decision::Other(word) = &answer.decision {
                    let known: Vec<&str> = Decision::KNOWN.iter().map(Decision::as_str).collect();
                    let why = format!(
                        "`{}` is not one of {}",
                        crate::request::quote_excerpt(word),
                        known.join(", ")
                    );
                    return Err(ParamsError::for_field("decision", why));
                }
            }
            Method::Checkpoint(checkpoint) => {
                let bytes = checkpoint.state.to_string().len();
                if bytes > CHECKPOINT_BYTES {
                    let why = format!("has {bytes} bytes; the limit is {CHECKPOINT_BYTES}");
                    return Err(ParamsError::for_field("state", why));
                }
            }
            Method::Set(set) => {
                if **set == Set::default() {
                    return Err(ParamsError::new(
                        "params: set at least one value, for example `model` or `name`",
                    ));
                }
            }
            Method::Read(read) => read.limit = read.limit.clamp(1, MAX_PAGE_ENTRIES),
            Method::ReadBlob(read) => read.limit = read.limit.clamp(1, BLOB_CHUNK_BYTES),
            Method::Wait(wait) => wait.timeout_ms = wait.timeout_ms.min(MAX_WAIT_MS),
            Method::Hello(_)
            | Method::Dequeue(_)
            | Method::Notify(_)
            | Method::PodEvent(_)
            | Method::Resume(_)
            | Method::Pause(_)
            | Method::Cancel(_)
            | Method::Compact(_)
            | Method::RewindTargets
            | Method::Rewind(_)
            | Method::Undo(_)
            | Method::Fork(_)
            | Method::CallTool(_)
            | Method::Yield
            | Method::RestartMcp(_)
            | Method::Status
            | Method::ListCompletions(_)
            | Method::ListPods
            | Method::RestorePod(_)
            | Method::Shutdown(_)
            | Method::GetHistory => {}
        }
        Ok(self)
    }
}

fn protocol() -> u32 {
    crate::PROTOCOL
}

fn yes() -> bool {
    true
}

fn page_entries() -> usize {
    MAX_PAGE_ENTRIES
}

fn blob_piece() -> usize {
    BLOB_CHUNK_BYTES
}

/// The schema of `input`: input segments, or one string in the older form.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape is used")]
enum InputOrText {
    Text(String),
    Segments(Vec<InputSegment>),
}

fn input_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<InputSegment>, D::Error> {
    struct InputVisitor;
    impl<'de> serde::de::Visitor<'de> for InputVisitor {
        type Value = Vec<InputSegment>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of input segments or a string")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![InputSegment::from_text(text)])
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))
        }
    }
    deserializer.deserialize_any(InputVisitor)
}

/// Distinguishes an absent field (the default) from `null`.
fn null_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}
