//! What can be asked about threads: one request with the tag `kind`, its fields, and the words that older clients use.
//!
//! Here: reading a request, strictly. Elsewhere: what each verb does (`threads`, `changes`, `message`), the answer
//! (`answer`).
//! Invariant: a field that is not a verb's own is refused by its name, never ignored
//! (`what_is_not_asked_for_is_refused_by_name`).

use std::path::PathBuf;

use minke_policy::Posture;
use minke_protocol::RunMode;
use minke_record::SessionId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::fault::Fault;

/// Every verb, in the order of the specification.
pub const KINDS: [&str; 17] = [
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

/// A thread as a request names it: with or without `s_`. What is no id names nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    pub given: String,
    pub session: Option<SessionId>,
}

impl ThreadName {
    pub fn new(given: &str) -> ThreadName {
        let session = given.strip_prefix("s_").unwrap_or(given).parse().ok();
        ThreadName { given: given.to_owned(), session }
    }

    /// As an answer writes it.
    pub fn written(&self) -> String {
        self.session.map_or_else(|| self.given.clone(), |session| format!("s_{session}"))
    }
}

impl<'de> Deserialize<'de> for ThreadName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(ThreadName::new(&String::deserialize(deserializer)?))
    }
}

/// A posture, or the older word for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Approval(pub Posture);

impl<'de> Deserialize<'de> for Approval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(Approval(match word.as_str() {
            "unless_trusted" | "on_request" => Posture::Ask,
            "on_failure" => Posture::Auto,
            "never" => Posture::Deny,
            other => other.parse().map_err(|_| {
                serde::de::Error::custom(format!(
                    "`{}` is no approval_policy: there are plan, deny, ask, auto, full, and the older \
                     unless_trusted, on_request, on_failure, never",
                    quoted(other)
                ))
            })?,
        }))
    }
}

/// How commands are fenced. A pod without a fence cannot be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    ReadOnly,
    Scope,
}

impl Sandbox {
    pub fn as_str(self) -> &'static str {
        match self {
            Sandbox::ReadOnly => "read_only",
            Sandbox::Scope => "scope",
        }
    }
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        match word.as_str() {
            "read_only" | "read-only" => Ok(Sandbox::ReadOnly),
            "scope" | "workspace-write" => Ok(Sandbox::Scope),
            other => Err(serde::de::Error::custom(format!(
                "`{}` cannot be asked for here: there are scope and read_only, and the older workspace-write and \
                 read-only; only a person starts a pod without a fence (`minke exec --unsandboxed`)",
                quoted(other)
            ))),
        }
    }
}

/// `true`, which is the default anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persist;

impl<'de> Deserialize<'de> for Persist {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? {
            Ok(Persist)
        } else {
            Err(serde::de::Error::custom("persist_extended_history: false is not taken; use `ephemeral`"))
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
        pub persist_extended_history: Option<Persist>,
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
        pub approval_policy: Option<Approval>,
        #[serde(default)]
        pub sandbox: Option<Sandbox>,
        #[serde(default)]
        pub persist_extended_history: Option<Persist>,
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
        pub approval_policy: Option<Approval>,
        #[serde(default)]
        pub sandbox: Option<Sandbox>,
        #[serde(default)]
        pub persist_extended_history: Option<Persist>,
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

    /// Verbs that need nothing but the thread.
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

/// What a request wants otherwise than it was stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Override {
    pub model: Option<String>,
    pub model_provider: Option<String>,
    pub cwd: Option<PathBuf>,
    pub approval_policy: Option<Approval>,
    pub sandbox: Option<Sandbox>,
}

impl Resume {
    pub fn over(&self) -> Override {
        Override {
            model: self.model.clone(),
            model_provider: self.model_provider.clone(),
            cwd: self.cwd.clone(),
            approval_policy: self.approval_policy,
            sandbox: self.sandbox,
        }
    }
}

impl Fork {
    pub fn over(&self) -> Override {
        Override {
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
    /// Reads a request with its `kind`.
    pub fn read(params: Value) -> Result<ThreadRequest, Fault> {
        let mut fields = object(params)?;
        let kind = match fields.remove("kind") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(Fault::invalid("kind: is no text")),
            None => {
                return Err(Fault::invalid(format!("kind: is missing; one of {}", KINDS.join(", "))));
            }
        };
        ThreadRequest::of(&kind, fields)
    }

    /// Reads the fields of a verb.
    pub fn of(kind: &str, fields: Map<String, Value>) -> Result<ThreadRequest, Fault> {
        Ok(match kind {
            "create" => ThreadRequest::Create(fields_of(kind, fields)?),
            "start" => ThreadRequest::Start(fields_of(kind, fields)?),
            "resume" => ThreadRequest::Resume(fields_of(kind, fields)?),
            "fork" => ThreadRequest::Fork(fields_of(kind, fields)?),
            "list" => ThreadRequest::List(fields_of(kind, fields)?),
            "read" => ThreadRequest::Read(fields_of(kind, fields)?),
            "set_name" => ThreadRequest::SetName(fields_of(kind, fields)?),
            "archive" => ThreadRequest::Archive(fields_of(kind, fields)?),
            "unarchive" => ThreadRequest::Unarchive(fields_of(kind, fields)?),
            "delete" => ThreadRequest::Delete(fields_of(kind, fields)?),
            "message" => ThreadRequest::Message(fields_of(kind, fields)?),
            "goal_set" => ThreadRequest::GoalSet(fields_of(kind, fields)?),
            "goal_get" => ThreadRequest::GoalGet(fields_of(kind, fields)?),
            "goal_clear" => ThreadRequest::GoalClear(fields_of(kind, fields)?),
            "checkpoint_save" => ThreadRequest::CheckpointSave(fields_of(kind, fields)?),
            "checkpoint_load" => ThreadRequest::CheckpointLoad(fields_of(kind, fields)?),
            "checkpoint_list" => ThreadRequest::CheckpointList(fields_of(kind, fields)?),
            other => {
                let known = KINDS.join(", ");
                return Err(Fault::invalid(format!("kind: `{}` is none of {known}", quoted(other))));
            }
        })
    }
}

/// The params of a method, which is always an object; absent ones are an empty one.
pub(crate) fn object(params: Value) -> Result<Map<String, Value>, Fault> {
    match params {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err(Fault::invalid("params: is no object")),
    }
}

/// The fields of a verb or method, and no others.
pub(crate) fn fields_of<T: DeserializeOwned>(of: &str, fields: Map<String, Value>) -> Result<T, Fault> {
    let read = |fields: &Map<String, Value>| T::deserialize(Value::Object(fields.clone()));
    let why = match read(&fields) {
        Ok(read) => return Ok(read),
        Err(why) => why.to_string(),
    };
    // The field without which something else is wrong, or nothing, is the one that is meant.
    let meant = fields.keys().find(|key| {
        let mut others = fields.clone();
        others.remove(*key);
        read(&others).map_or_else(|other| other.to_string() != why, |_| true)
    });
    let named = meant.filter(|_| !why.contains("unknown field")).map(|key| format!("{}: ", quoted(key)));
    Err(Fault::invalid(format!("{of}: {}{why}", named.unwrap_or_default())))
}

/// The same for params as they came.
pub(crate) fn params_of<T: DeserializeOwned>(of: &str, params: Value) -> Result<T, Fault> {
    fields_of(of, object(params)?)
}

/// What somebody typed, bounded, for saying it back.
pub(crate) fn quoted(text: &str) -> String {
    text.chars().take(QUOTED).collect()
}

/// How much of a wrong word is said back.
const QUOTED: usize = 80;
