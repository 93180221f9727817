//! Replies: the `result` of each accepted method.
//!
//! Methods without a type here (`pause`, `notify`, `set` …) answer with `Nothing`.

use minke_record::{
    AskId, CallId, Entry, InputSegment, PodName, Position, QueueId, RunId, SessionId, SessionUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::McpServer;
use crate::frame::ReplyData;
use crate::limits::{MAX_FRAME_BYTES, MAX_PAGE_ENTRIES};
use crate::state::{Activity, Status, WaitState};

/// Reply to `run`: the opened run, or the id of the waiting input (in the queue, or as steering).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RunReply {
    Run { run: RunId },
    Queued { queued: QueueId },
}

macro_rules! replies {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $for_field:ident : $ty:ty),* $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fmeta])* pub $for_field: $ty),* })+
    };
}

replies! {
    /// An empty result.
    #[derive(Default)]
    pub struct Nothing {}

    /// Reply to `resume`: the resumed run.
    pub struct ResumeReply {
        pub run: RunId,
    }

    /// Reply to `dequeue`: the removed input.
    pub struct DequeueReply {
        pub segments: Vec<InputSegment>,
    }

    /// Reply to `rewind`: the input for the composer.
    pub struct RewindReply {
        pub input: Vec<InputSegment>,
    }

    /// Reply to `fork`.
    pub struct ForkReply {
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<PodName>,
    }

    /// Reply to `call_tool` and `undo`: the call whose `tool_result` follows.
    pub struct CallReply {
        pub call_id: CallId,
    }

    /// Reply to `status`.
    pub struct StatusReply {
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<WaitState>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub run: Option<RunId>,
        #[serde(default)]
        pub usage: SessionUsage,
        pub head: Position,
        #[serde(default)]
        pub children: Vec<ChildRow>,
        #[serde(default)]
        pub asks: Vec<AskId>,
        #[serde(default)]
        pub queue: QueueState,
        #[serde(default)]
        pub mcp_servers: Vec<McpServer>,
    }

    pub struct ChildRow {
        pub session: SessionId,
        pub name: PodName,
    }

    #[derive(Default)]
    pub struct QueueState {
        pub length: usize,
        /// Waits for the next `run` or `resume`.
        #[serde(default)]
        pub held: bool,
    }

    /// Reply to `read`: a page of entries, at most one frame.
    pub struct ReadReply {
        pub entries: Vec<Entry>,
        /// Start of the next page, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_seq: Option<u64>,
    }

    /// Reply to `read_blob`: a piece in base64.
    pub struct ReadBlobReply {
        pub data: String,
        pub offset: u64,
        /// Length of the whole blob.
        pub bytes: u64,
        /// Start of the next piece, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_offset: Option<u64>,
    }

    /// Reply to `wait`: whether the condition holds, or the time has run out.
    pub struct WaitReply {
        pub holds: bool,
        pub status: Status,
        pub head: Position,
    }

    /// Reply to `list_pods`: the pods that this pod can see.
    pub struct ListPodsReply {
        pub pods: Vec<PodRow>,
    }

    pub struct PodRow {
        pub name: PodName,
        pub session: SessionId,
        /// Whether a process runs the pod.
        pub live: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub socket: Option<String>,
    }

    /// Reply to `restore_pod`.
    pub struct RestorePodReply {
        pub name: PodName,
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub socket: Option<String>,
    }
}

/// Builds a page from lines of the log without encoding the entries again.
#[derive(Debug, Clone)]
pub struct EntryPage {
    json: String,
    entries: usize,
    limit: usize,
}

impl EntryPage {
    /// Size of the frame around the entries: envelope, id, `next_seq`.
    const ENVELOPE_BYTES: usize = 1_024;

    /// Creates an empty page for at most `limit` entries.
    pub fn new(limit: usize) -> EntryPage {
        EntryPage { json: "{\"entries\":[".to_owned(), entries: 0, limit: limit.min(MAX_PAGE_ENTRIES) }
    }

    /// Adds a line without its newline. Returns `false` if the page is full and the line was not added.
    pub fn push(&mut self, line: &str) -> bool {
        let full = self.json.len() + line.len() + Self::ENVELOPE_BYTES > MAX_FRAME_BYTES;
        if self.entries >= self.limit || full {
            return false;
        }
        if self.entries > 0 {
            self.json.push(',');
        }
        self.json.push_str(line);
        self.entries += 1;
        true
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the reply to `read`. `next_seq` is the first entry that was not visited.
    pub fn into_reply(mut self, next_seq: Option<u64>) -> ReplyData {
        self.json.push(']');
        if let Some(seq) = next_seq {
            self.json.push_str(&format!(",\"next_seq\":{seq}"));
        }
        self.json.push('}');
        ReplyData::Ok(RawValue::from_string(self.json).expect("lines of the log are JSON"))
    }
}
