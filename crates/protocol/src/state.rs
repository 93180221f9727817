//! The state of a pod on the wire: status, greeting and in-flight data.

use minke_record::{CallId, Millis, PodName, SessionId, Text, WaitingOn, words};
use serde::{Deserialize, Serialize};

use crate::limits::IN_FLIGHT_BYTES;

words! {
    /// The state of the pod for simple clients.
    pub enum Status { Idle = "idle", Running = "running", Paused = "paused" }
}

words! {
    /// The activity of a running pod.
    pub enum Activity {
        Model = "model",
        Tool = "tool",
        Ask = "ask",
        Child = "child",
        Time = "time",
        Hook = "hook",
        Compacting = "compacting",
        Stopping = "stopping",
    }
}

words! {
    /// The stream of a command.
    pub enum OutputStream {
        Stdout = "stdout",
        Stderr = "stderr",
        /// Both streams in order of arrival.
        Both = "both",
    }
}

/// The pod only waits for asks, children or a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitState {
    pub on: WaitingOn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}

/// Describes the pod to a client. Older pods may omit everything but the name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Greeting {
    pub pod_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default)]
    pub cwd: String,
    /// Catalog id of the provider.
    #[serde(default)]
    pub provider: String,
    #[serde(default)]
    pub scheme: String,
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub scope_summary: String,
    /// The sandbox backend of commands: `namespaces`, `bubblewrap`, `landlock`, `seatbelt`, `none` or `off`.
    #[serde(default, alias = "fence", deserialize_with = "minke_record::compat::deserialize_backend")]
    pub sandbox: String,
    /// The offered tools, sorted.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub context_window: u64,
    #[serde(default)]
    pub context_tokens: u64,
    #[serde(default)]
    pub posture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PodName>,
    /// Restrictions: untrusted workspace, weaker sandbox, missing key.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// All open items, so that a client that joins in the middle of a turn shows the same as the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InFlight {
    #[serde(default)]
    pub blocks: Vec<StreamingBlock>,
    #[serde(default)]
    pub commands: Vec<OpenCommand>,
}

impl InFlight {
    /// Truncates long texts to their end, so that the result fits a frame together with entries.
    pub fn fit_frame(&self) -> std::borrow::Cow<'_, InFlight> {
        let fits = |of: &InFlight| {
            let written = serde_json::to_string(of).expect("writing plain data to memory does not fail");
            written.len() <= IN_FLIGHT_BYTES
        };
        let mut fitted = std::borrow::Cow::Borrowed(self);
        let mut kept = IN_FLIGHT_BYTES;
        while !fits(&fitted) && kept > 0 {
            kept /= 2;
            let mut shorter = self.clone();
            shorter.for_each_text(|text| truncate_start(text, kept));
            fitted = std::borrow::Cow::Owned(shorter);
        }
        fitted
    }

    fn for_each_text(&mut self, mut visit: impl FnMut(&mut String)) {
        for block in &mut self.blocks {
            match block {
                StreamingBlock::Text { text } | StreamingBlock::Thinking { text } => visit(text),
                StreamingBlock::ToolCall { arguments, .. } => visit(arguments),
                StreamingBlock::Unknown => {}
            }
        }
        for command in &mut self.commands {
            command.output.iter_mut().for_each(|piece| visit(&mut piece.text));
        }
    }
}

/// Keeps the last `kept` bytes and tells how many are omitted.
fn truncate_start(text: &mut String, kept: usize) {
    if text.len() <= kept {
        return;
    }
    let at = text.ceil_char_boundary(text.len() - kept);
    text.replace_range(..at, &format!("[{at} bytes omitted] "));
}

/// A streaming block of the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StreamingBlock {
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    /// `arguments` is the JSON text received so far.
    ToolCall {
        id: CallId,
        name: String,
        arguments: String,
    },
    /// A block of a newer version.
    #[serde(other)]
    Unknown,
}

/// A running command with its last output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenCommand {
    pub command_id: String,
    pub call_id: CallId,
    pub command: Text,
    pub cwd: String,
    #[serde(default)]
    pub output: Vec<CommandOutput>,
}

/// A piece of a command's output. `start` and `end` are byte offsets in its stream, for joining pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandOutput {
    pub stream: OutputStream,
    pub start: u64,
    pub end: u64,
    pub text: String,
}
