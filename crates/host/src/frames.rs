//! Frames: the messages to API clients about a thread, in order.
//!
//! Here: their form and positions in the stream. `frames::fold` derives them from entries and `live_frames` from live
//! events; `subscribe` and the transports send them. No other module creates frames.
//! Invariant: the same log gives the same frames, whether it is read or followed live
//! (`what_is_read_is_what_was_heard`, in the tests of the binary), and golden files record their JSON
//! (`every_frame_is_written_as_it_was`).

mod fold;
mod job;
pub(crate) mod live;
pub(crate) mod subscribe;

use std::fmt;
use std::str::FromStr;

use minke_protocol::api::ApiFrame;
use minke_record::{CallId, ChainHash, ErrorCode, Millis, Position, SessionId};
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use fold::FrameFold;

/// One frame: its position, thread, time and content.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub position: FramePosition,
    pub thread: SessionId,
    pub ts: Millis,
    pub content: FrameContent,
}

/// The position of a frame in its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePosition {
    /// Derived from an entry; only such a frame can be a resume point.
    AtEntry(FrameId),
    /// Live: after that entry and before the next.
    AfterEntry(u64),
}

/// The id of a frame that was derived from an entry, `<seq>.<n>.<h>`: the entry's position and the frame's index in it.
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
        let bad = || {
            "expected `<seq>.<n>.<h>`, the id of a frame, or `<seq>.<h>`, a position in the log".to_owned()
        };
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        // A position in the log comes after every frame of its entry.
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
        let h: ChainHash = serde_json::from_value(Value::from(h)).map_err(|_| bad())?;
        let seq = seq.parse().map_err(|_| bad())?;
        Ok(FrameId { position: Position { seq, h }, n: n.parse().map_err(|_| bad())? })
    }
}

/// The content of a frame. The frames about calls are defined in `protocol`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FrameContent {
    Call(ApiFrame),
    Thread(ThreadFrame),
}

/// A part of the model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputChannel {
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
        channel: OutputChannel,
        /// It replaces the text shown so far for the open block on this channel.
        #[serde(skip_serializing_if = "is_false")]
        whole: bool,
        /// The blob with the text, if it is too long for a line of the log.
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
        /// Null if a signal ended it or if it is unknown.
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
        update: McpServerUpdate,
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
        goal: ThreadGoal,
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

/// A question of the model to the user.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UserInput {
    pub request_id: String,
    pub question: String,
    pub options: Vec<String>,
}

/// The goal of a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadGoal {
    pub objective: String,
    /// `active` or `done`.
    pub status: &'static str,
    /// How many runs have continued it.
    pub used: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// The state of a starting MCP server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpServerUpdate {
    pub server_name: String,
    pub status: McpServerStatus,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServerStatus {
    Starting,
    Ready,
    Failed { error: String },
    Cancelled,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Frame {
    /// Returns the id by which a reconnecting client names the last frame that it received.
    pub fn frame_id(&self) -> Option<FrameId> {
        match self.position {
            FramePosition::AtEntry(id) => Some(id),
            FramePosition::AfterEntry(_) => None,
        }
    }

    /// Returns the name of the frame's event.
    pub fn event_name(&self) -> String {
        let written = serde_json::to_value(&self.content).unwrap_or_default();
        written.get("event").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns the object including its id, for transports without a separate field for it.
    pub fn to_json_with_id(&self) -> Value {
        let mut object = serde_json::to_value(self).unwrap_or_default();
        if let (Some(id), Some(members)) = (self.frame_id(), object.as_object_mut()) {
            members.insert("id".to_owned(), id.to_string().into());
        }
        object
    }

    /// Returns an error frame, which ends the stream or reports a failed request.
    pub fn error_frame(
        thread: SessionId,
        after: u64,
        ts: Millis,
        code: ErrorCode,
        message: impl Into<String>,
    ) -> Frame {
        let content = ThreadFrame::Error { response_id: None, code, message: message.into() };
        Frame {
            position: FramePosition::AfterEntry(after),
            thread,
            ts,
            content: FrameContent::Thread(content),
        }
    }
}

impl Serialize for Frame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct SerializedFrame<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            seq: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            after_seq: Option<u64>,
            thread_id: String,
            ts: Millis,
            #[serde(flatten)]
            told: &'a FrameContent,
        }
        let (seq, after_seq) = match self.position {
            FramePosition::AtEntry(id) => (Some(id.position.seq), None),
            FramePosition::AfterEntry(seq) => (None, Some(seq)),
        };
        let thread_id = format!("s_{}", self.thread);
        SerializedFrame { seq, after_seq, thread_id, ts: self.ts, told: &self.content }.serialize(serializer)
    }
}

impl From<ThreadFrame> for FrameContent {
    fn from(frame: ThreadFrame) -> FrameContent {
        FrameContent::Thread(frame)
    }
}
