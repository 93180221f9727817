//! Thread requests: one request with the tag `kind`, its fields, and the names that older clients use.
//!
//! Here: strict parsing. Elsewhere: the effect of each verb (`threads`, `thread_update`, `message`), the response
//! (`response`).
//! Invariant: an unknown field is refused by name, never ignored
//! (`what_is_not_asked_for_is_refused_by_name`).

use std::path::PathBuf;

use minke_policy::Posture;
use minke_protocol::RunMode;
use minke_record::SessionId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Every verb, in the order of the specification.
pub const REQUEST_KINDS: [&str; 17] = [
    "create",
    "start",
    "resume",
    "fork",
    "list",
    "read",
    "set_name",
    "archive",
    "unarchive",
    "delete",
    "message",
    "goal_set",
    "goal_get",
    "goal_clear",
    "checkpoint_save",
    "checkpoint_load",
    "checkpoint_list",
];

/// A thread as a request names it: with or without `s_`. A text that is not an id matches no thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    pub text: String,
    pub session: Option<SessionId>,
}

impl ThreadName {
    pub fn new(given: &str) -> ThreadName {
        let session = given.strip_prefix("s_").unwrap_or(given).parse().ok();
        ThreadName { text: given.to_owned(), session }
    }

    /// Returns the id as responses contain it.
    pub fn to_text(&self) -> String {
        self.session.map_or_else(|| self.text.clone(), |session| format!("s_{session}"))
    }
}

impl<'de> Deserialize<'de> for ThreadName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(ThreadName::new(&String::deserialize(deserializer)?))
    }
}

/// A posture, or its older name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalPolicy(pub Posture);

impl<'de> Deserialize<'de> for ApprovalPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(ApprovalPolicy(match word.as_str() {
            "unless_trusted" | "on_request" => Posture::Ask,
            "on_failure" => Posture::Auto,
            "never" => Posture::Deny,
            other => other.parse().map_err(|_| {
                serde::de::Error::custom(format!(
                    "`{}` is not an approval_policy: use plan, deny, ask, auto, full, or the older \
                     unless_trusted, on_request, on_failure, never",
                    quote_input(other)
                ))
            })?,
        }))
    }
}

/// The sandbox mode of commands. Requests cannot disable the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxAccess {
    ReadOnly,
    Scope,
}

impl SandboxAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxAccess::ReadOnly => "read_only",
            SandboxAccess::Scope => "scope",
        }
    }
}

impl<'de> Deserialize<'de> for SandboxAccess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        match word.as_str() {
            "read_only" | "read-only" => Ok(SandboxAccess::ReadOnly),
            "scope" | "workspace-write" => Ok(SandboxAccess::Scope),
            other => Err(serde::de::Error::custom(format!(
                "sandbox `{}` is not available here: use scope or read_only, or the older workspace-write and \
                 read-only; only the user can start a pod without a sandbox (`minke exec --unsandboxed`)",
                quote_input(other)
            ))),
        }
    }
}

/// `true`, which is also the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersistFlag;

impl<'de> Deserialize<'de> for PersistFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? {
            Ok(PersistFlag)
        } else {
            Err(serde::de::Error::custom("persist_extended_history: false is not supported; use `ephemeral`"))
        }
    }
}

macro_rules! shapes {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* })+
    };
}

shapes! {
    /// `create`, `start`.
    #[derive(Default)]
    pub struct New {
        #[serde(default)]
        pub model: Option<String>,
        #[serde(default)]
        pub model_provider: Option<String>,
        #[serde(default)]
        pub cwd: Option<PathBuf>,
        #[serde(default)]
        pub profile: Option<String>,
        #[serde(default)]
        pub name: Option<String>,
        #[serde(default)]
        pub metadata: Option<Value>,
        #[serde(default)]
        pub mandate: Option<Value>,
        #[serde(default)]
        pub ephemeral: bool,
        #[serde(default)]
        pub history: Option<Vec<Value>>,
        #[serde(default)]
        pub persist_extended_history: Option<PersistFlag>,
    }

    pub struct Resume {
        pub thread_id: ThreadName,
        #[serde(default)]
        pub history: Option<Vec<Value>>,
        #[serde(default)]
        pub model: Option<String>,
        #[serde(default)]
        pub model_provider: Option<String>,
        #[serde(default)]
        pub cwd: Option<PathBuf>,
        #[serde(default)]
        pub approval_policy: Option<ApprovalPolicy>,
        #[serde(default)]
        pub sandbox: Option<SandboxAccess>,
        #[serde(default)]
        pub persist_extended_history: Option<PersistFlag>,
    }

    pub struct Fork {
        pub thread_id: ThreadName,
        #[serde(default)]
        pub at_seq: Option<u64>,
        #[serde(default)]
        pub name: Option<String>,
        #[serde(default)]
        pub model: Option<String>,
        #[serde(default)]
        pub model_provider: Option<String>,
        #[serde(default)]
        pub cwd: Option<PathBuf>,
        #[serde(default)]
        pub approval_policy: Option<ApprovalPolicy>,
        #[serde(default)]
        pub sandbox: Option<SandboxAccess>,
        #[serde(default)]
        pub persist_extended_history: Option<PersistFlag>,
    }

    #[derive(Default)]
    pub struct List {
        #[serde(default)]
        pub include_archived: bool,
        #[serde(default)]
        pub limit: Option<usize>,
        #[serde(default)]
        pub cursor: Option<String>,
        #[serde(default)]
        pub cwd: Option<PathBuf>,
        #[serde(default)]
        pub status: Option<String>,
        #[serde(default)]
        pub query: Option<String>,
    }

    pub struct Read {
        pub thread_id: ThreadName,
        #[serde(default)]
        pub from_seq: Option<u64>,
        #[serde(default)]
        pub limit: Option<usize>,
    }

    pub struct SetName {
        pub thread_id: ThreadName,
        pub name: String,
    }

    /// Verbs that only name a thread.
    pub struct One {
        pub thread_id: ThreadName,
    }

    pub struct Message {
        pub thread_id: ThreadName,
        /// A text, or input segments.
        pub input: Value,
        #[serde(default)]
        pub mode: Option<RunMode>,
        #[serde(default)]
        pub op_id: Option<String>,
    }

    pub struct GoalSet {
        pub thread_id: ThreadName,
        pub objective: String,
        #[serde(default)]
        pub budget: Option<Value>,
    }

    pub struct CheckpointSave {
        pub thread_id: ThreadName,
        #[serde(default)]
        pub checkpoint_id: Option<String>,
        #[serde(default)]
        pub state: Value,
    }

    pub struct CheckpointLoad {
        pub thread_id: ThreadName,
        #[serde(default)]
        pub checkpoint_id: Option<String>,
    }
}

/// Settings in a request that differ from the stored ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestOverrides {
    pub model: Option<String>,
    pub model_provider: Option<String>,
    pub cwd: Option<PathBuf>,
    pub approval_policy: Option<ApprovalPolicy>,
    pub sandbox: Option<SandboxAccess>,
}

impl Resume {
    pub fn overrides(&self) -> RequestOverrides {
        RequestOverrides {
            model: self.model.clone(),
            model_provider: self.model_provider.clone(),
            cwd: self.cwd.clone(),
            approval_policy: self.approval_policy,
            sandbox: self.sandbox,
        }
    }
}

impl Fork {
    pub fn overrides(&self) -> RequestOverrides {
        RequestOverrides {
            model: self.model.clone(),
            model_provider: self.model_provider.clone(),
            cwd: self.cwd.clone(),
            approval_policy: self.approval_policy,
            sandbox: self.sandbox,
        }
    }
}

/// One request about threads.
#[derive(Debug, Clone, PartialEq)]
pub enum ThreadRequest {
    Create(Box<New>),
    Start(Box<New>),
    Resume(Box<Resume>),
    Fork(Box<Fork>),
    List(List),
    Read(Read),
    SetName(SetName),
    Archive(One),
    Unarchive(One),
    Delete(One),
    Message(Message),
    GoalSet(GoalSet),
    GoalGet(One),
    GoalClear(One),
    CheckpointSave(CheckpointSave),
    CheckpointLoad(CheckpointLoad),
    CheckpointList(One),
}

impl ThreadRequest {
    /// Parses a request with its `kind`.
    pub fn parse(params: Value) -> Result<ThreadRequest, ApiError> {
        let mut fields = params_object(params)?;
        let kind = match fields.remove("kind") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(ApiError::invalid("kind: must be a text")),
            None => {
                return Err(ApiError::invalid(format!(
                    "kind: is missing; use one of {}",
                    REQUEST_KINDS.join(", ")
                )));
            }
        };
        ThreadRequest::parse_kind(&kind, fields)
    }

    /// Parses the fields of a verb.
    pub fn parse_kind(kind: &str, fields: Map<String, Value>) -> Result<ThreadRequest, ApiError> {
        Ok(match kind {
            "create" => ThreadRequest::Create(parse_fields(kind, fields)?),
            "start" => ThreadRequest::Start(parse_fields(kind, fields)?),
            "resume" => ThreadRequest::Resume(parse_fields(kind, fields)?),
            "fork" => ThreadRequest::Fork(parse_fields(kind, fields)?),
            "list" => ThreadRequest::List(parse_fields(kind, fields)?),
            "read" => ThreadRequest::Read(parse_fields(kind, fields)?),
            "set_name" => ThreadRequest::SetName(parse_fields(kind, fields)?),
            "archive" => ThreadRequest::Archive(parse_fields(kind, fields)?),
            "unarchive" => ThreadRequest::Unarchive(parse_fields(kind, fields)?),
            "delete" => ThreadRequest::Delete(parse_fields(kind, fields)?),
            "message" => ThreadRequest::Message(parse_fields(kind, fields)?),
            "goal_set" => ThreadRequest::GoalSet(parse_fields(kind, fields)?),
            "goal_get" => ThreadRequest::GoalGet(parse_fields(kind, fields)?),
            "goal_clear" => ThreadRequest::GoalClear(parse_fields(kind, fields)?),
            "checkpoint_save" => ThreadRequest::CheckpointSave(parse_fields(kind, fields)?),
            "checkpoint_load" => ThreadRequest::CheckpointLoad(parse_fields(kind, fields)?),
            "checkpoint_list" => ThreadRequest::CheckpointList(parse_fields(kind, fields)?),
            other => {
                let known = REQUEST_KINDS.join(", ");
                return Err(ApiError::invalid(format!(
                    "kind: `{}` is unknown; use one of {known}",
                    quote_input(other)
                )));
            }
        })
    }
}

/// Returns the params of a method as an object; missing params are an empty object.
pub(crate) fn params_object(params: Value) -> Result<Map<String, Value>, ApiError> {
    match params {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err(ApiError::invalid("params: must be an object")),
    }
}

/// Parses the fields of a verb or method, and refuses others.
pub(crate) fn parse_fields<T: DeserializeOwned>(of: &str, fields: Map<String, Value>) -> Result<T, ApiError> {
    let read = |fields: &Map<String, Value>| T::deserialize(Value::Object(fields.clone()));
    let why = match read(&fields) {
        Ok(read) => return Ok(read),
        Err(why) => why.to_string(),
    };
    // The error concerns the field without which the error changes or disappears.
    let meant = fields.keys().find(|key| {
        let mut others = fields.clone();
        others.remove(*key);
        read(&others).map_or_else(|other| other.to_string() != why, |_| true)
    });
    let named = meant.filter(|_| !why.contains("unknown field")).map(|key| format!("{}: ", quote_input(key)));
    Err(ApiError::invalid(format!("{of}: {}{why}", named.unwrap_or_default())))
}

/// The same for the params of a method.
pub(crate) fn parse_params<T: DeserializeOwned>(of: &str, params: Value) -> Result<T, ApiError> {
    parse_fields(of, params_object(params)?)
}

/// Returns input text, truncated, for an error message.
pub(crate) fn quote_input(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

/// The maximum length of quoted input.
const MAX_QUOTED_CHARS: usize = 80;
