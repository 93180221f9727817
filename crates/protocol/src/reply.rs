//! Replies: what each method's `result` holds when it is accepted.
//!
//! Methods that are not named here (`pause`, `notify`, `set` …) answer with `Nothing`.

use minke_record::{AskId, CallId, Entry, InputSegment, PodName, Position, QueueId, RunId, SessionId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::McpServer;
use crate::frame::ReplyData;
use crate::limits::{FRAME_BYTES, PAGE_ENTRIES};
use crate::state::{Activity, Status, Waiting};

/// Of `run`: the run that it opened, or the id under which it waits (in the queue, or as steering).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RunReply {
    Run { run: RunId },
    Queued { queued: QueueId },
}

macro_rules! replies {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* })+
    };
}

replies! {
    /// The method was accepted and there is nothing to say.
    #[derive(Default)]
    pub struct Nothing {}

    /// Of `resume`: the run that goes on.
    pub struct ResumeReply {
        pub run: RunId,
    }

    /// Of `dequeue`: what was taken out.
    pub struct DequeueReply {
        pub segments: Vec<InputSegment>,
    }

    /// Of `rewind`: the input that came back to the composer.
    pub struct RewindReply {
        pub input: Vec<InputSegment>,
    }

    /// Of `fork`.
    pub struct ForkReply {
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<PodName>,
    }

    /// Of `call_tool` and `undo`: the call whose `tool_result` follows.
    pub struct CallReply {
        pub call_id: CallId,
    }

    /// Of `status`: small, for those who only look.
    pub struct StatusReply {
        pub status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub activity: Option<Activity>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detail: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub waiting: Option<Waiting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub run: Option<RunId>,
        #[serde(default)]
        pub usage: Usage,
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
        /// It waits for the next `run` or `resume`.
        #[serde(default)]
        pub held: bool,
    }

    /// Of `read`: a page of entries, at most one frame.
    pub struct ReadReply {
        pub entries: Vec<Entry>,
        /// Where the next page begins, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_seq: Option<u64>,
    }

    /// Of `read_blob`: a piece, base64.
    pub struct ReadBlobReply {
        pub data: String,
        pub offset: u64,
        /// Length of the whole blob.
        pub bytes: u64,
        /// Where the next piece begins, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_offset: Option<u64>,
    }

    /// Of `wait`: whether it holds now, or the time ran out first.
    pub struct WaitReply {
        pub holds: bool,
        pub status: Status,
        pub head: Position,
    }

    /// Of `list_pods`: the pod's own visible set.
    pub struct ListPodsReply {
        pub pods: Vec<PodRow>,
    }

    pub struct PodRow {
        pub name: PodName,
        pub session: SessionId,
        /// Whether a process holds it now.
        pub live: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub socket: Option<String>,
    }

    /// Of `restore_pod`.
    pub struct RestorePodReply {
        pub name: PodName,
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub socket: Option<String>,
    }
}

/// A page being filled with the log's own lines, so that nothing is written twice.
#[derive(Debug, Clone)]
pub struct Page {
    json: String,
    entries: usize,
    limit: usize,
}

impl Page {
    /// The frame's own words around the entries: envelope, id, `next_seq`.
    const ENVELOPE_BYTES: usize = 1_024;

    /// An empty page of at most `limit` entries.
    pub fn new(limit: usize) -> Page {
        Page { json: "{\"entries\":[".to_owned(), entries: 0, limit: limit.min(PAGE_ENTRIES) }
    }

    /// Adds a line, without its newline; `false` if the page is full and the line is not in it.
    pub fn push(&mut self, line: &str) -> bool {
        let full = self.json.len() + line.len() + Self::ENVELOPE_BYTES > FRAME_BYTES;
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

    /// The reply to `read`; `next_seq` is the first entry that was not looked at.
    pub fn reply(mut self, next_seq: Option<u64>) -> ReplyData {
        self.json.push(']');
        if let Some(seq) = next_seq {
            self.json.push_str(&format!(",\"next_seq\":{seq}"));
        }
        self.json.push('}');
        ReplyData::Ok(RawValue::from_string(self.json).expect("lines of the log are JSON"))
    }
}
