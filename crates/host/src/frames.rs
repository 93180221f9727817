//! Frames: what API clients are told of a thread, in its order.
//!
//! Here: their shapes and names of places in the stream. What an entry makes of them is in `frames::fold`, what a live
//! event makes of them in `live`; sending them is `watch` and whoever serves it. Nobody else makes one.
//! Invariant: the same log gives the same frames, whether it is read or heard
//! (`what_is_read_is_what_was_heard`, in the tests of the binary), and their JSON does not change unnoticed
//! (`every_frame_is_written_as_it_was`).

mod fold;
mod job;

use std::fmt;
use std::str::FromStr;

use minke_protocol::api::ApiFrame;
use minke_record::{CallId, Chain, ErrorCode, Millis, Position, SessionId};
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use fold::Frames;

/// One frame: where it stands, whose it is, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub place: Place,
    pub thread: SessionId,
    pub ts: Millis,
    pub told: Told,
}

/// Where a frame stands in its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Made from an entry; only such a frame can be gone on from.
    At(FrameId),
    /// Live: after that entry and before the next.
    After(u64),
}

/// The name of a frame that was made from an entry, `<seq>.<n>.<h>`: its entry's place and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameId {
    pub position: Position,
    pub n: u32,
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.position.seq, self.n, self.position.h)
    }
}

impl FromStr for FrameId {
    type Err = String;

    fn from_str(text: &str) -> Result<FrameId, String> {
        let bad =
            || "it is `<seq>.<n>.<h>`, the id of a frame, or `<seq>.<h>`, a place in the log".to_owned();
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        // A place in the log comes after every frame of its entry.
        let every = u32::MAX.to_string();
        let (seq, n, h) = match parts.as_slice() {
            [seq, n, h] => (*seq, *n, *h),
            [seq, h] => (*seq, every.as_str(), *h),
            _ => return Err(bad()),
        };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(seq) || !digits(n) {
            return Err(bad());
        }
        let h: Chain = serde_json::from_value(Value::from(h)).map_err(|_| bad())?;
        let seq = seq.parse().map_err(|_| bad())?;
        Ok(FrameId { position: Position { seq, h }, n: n.parse().map_err(|_| bad())? })
    }
}

/// What a frame says. Those about calls are `protocol`'s.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Told {
    Call(ApiFrame),
    Thread(ThreadFrame),
}

/// A part of what the model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Text,
    Reasoning,
}

/// Frames about a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ThreadFrame {
    ResponseStart {
        response_id: String,
    },
    ResponseDelta {
        response_id: String,
        delta: String,
        channel: Channel,
        /// It takes the place of what was shown of the block that is open on this channel.
        #[serde(skip_serializing_if = "is_false")]
        whole: bool,
        /// Where the text lies, if it is too long for a line of the log.
        #[serde(skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    ResponseEnd {
        response_id: String,
    },
    TurnStarted {
        turn_id: String,
    },
    TurnComplete {
        turn_id: String,
    },
    TurnAborted {
        turn_id: String,
        reason: String,
    },
    ExecCommandBegin {
        call_id: CallId,
        command: String,
        cwd: String,
    },
    ExecCommandOutputDelta {
        call_id: CallId,
        command: String,
        delta: String,
        #[serde(skip_serializing_if = "is_false")]
        whole: bool,
    },
    ExecCommandEnd {
        call_id: CallId,
        command: String,
        /// Null if a signal ended it, or if nobody knows.
        exit_code: Option<i32>,
    },
    PatchApplyBegin {
        call_id: CallId,
        path: String,
    },
    PatchApplyEnd {
        call_id: CallId,
        path: String,
        ok: bool,
    },
    McpToolCallBegin {
        server_name: String,
        tool_name: String,
    },
    McpToolCallEnd {
        server_name: String,
        tool_name: String,
        ok: bool,
    },
    McpStartupUpdate {
        update: McpUpdate,
    },
    UserInputRequest {
        request: UserInput,
    },
    ElicitationRequest {
        server_name: String,
        request_id: String,
        prompt: String,
    },
    ThreadGoalUpdated {
        goal: Goal,
    },
    ThreadGoalCleared,
    JobUpdated {
        job_id: String,
        item: Value,
    },
    Error {
        #[serde(skip_serializing_if = "Option::is_none")]
        response_id: Option<String>,
        code: ErrorCode,
        message: String,
    },
}

/// A question of the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UserInput {
    pub request_id: String,
    pub question: String,
    pub options: Vec<String>,
}

/// What a thread is to reach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    pub objective: String,
    /// `active` or `done`.
    pub status: &'static str,
    /// How often it was gone on with.
    pub used: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// What became of an MCP server that starts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpUpdate {
    pub server_name: String,
    pub status: McpStatus,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpStatus {
    Starting,
    Ready,
    Failed { error: String },
    Cancelled,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Frame {
    /// The name by which a client that comes back says what it has seen.
    pub fn id(&self) -> Option<FrameId> {
        match self.place {
            Place::At(id) => Some(id),
            Place::After(_) => None,
        }
    }

    /// The frame's event, as it is written.
    pub fn name(&self) -> String {
        let written = serde_json::to_value(&self.told).unwrap_or_default();
        written.get("event").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The object, with its id beside the rest: for doors that have no other place for it.
    pub fn with_id(&self) -> Value {
        let mut object = serde_json::to_value(self).unwrap_or_default();
        if let (Some(id), Some(members)) = (self.id(), object.as_object_mut()) {
            members.insert("id".to_owned(), id.to_string().into());
        }
        object
    }

    /// Why nothing more comes, or not what was asked for.
    pub fn refusal(
        (thread, after): (SessionId, u64),
        ts: Millis,
        code: ErrorCode,
        message: impl Into<String>,
    ) -> Frame {
        let told = ThreadFrame::Error { response_id: None, code, message: message.into() };
        Frame { place: Place::After(after), thread, ts, told: Told::Thread(told) }
    }
}

impl Serialize for Frame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            seq: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            after_seq: Option<u64>,
            thread_id: String,
            ts: Millis,
            #[serde(flatten)]
            told: &'a Told,
        }
        let (seq, after_seq) = match self.place {
            Place::At(id) => (Some(id.position.seq), None),
            Place::After(seq) => (None, Some(seq)),
        };
        let thread_id = format!("s_{}", self.thread);
        Written { seq, after_seq, thread_id, ts: self.ts, told: &self.told }.serialize(serializer)
    }
}

impl From<ThreadFrame> for Told {
    fn from(frame: ThreadFrame) -> Told {
        Told::Thread(frame)
    }
}
