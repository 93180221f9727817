//! What a pod is doing, in the wire's words: status, greeting, and what is in flight.

use minke_record::{CallId, Millis, PodName, SessionId, Text, WaitingOn, words};
use serde::{Deserialize, Serialize};

use crate::limits::IN_FLIGHT_BYTES;

words! {
    /// What the pod is doing, for those who know only three words.
    pub enum Status { Idle = "idle", Running = "running", Paused = "paused" }
}

words! {
    /// What a running pod is busy with.
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
    /// What a command writes to.
    pub enum OutputStream {
        Stdout = "stdout",
        Stderr = "stderr",
        /// Both in the order in which they came.
        Both = "both",
    }
}

/// Nothing is left to do but wait for asks, children or a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    pub on: WaitingOn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}

/// Who a client is talking to. Everything but the name may be missing in an older pod's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Greeting {
    pub pod_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default)]
    pub cwd: String,
    /// The catalog's id of the provider.
    #[serde(default)]
    pub provider: String,
    #[serde(default)]
    pub scheme: String,
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub scope_summary: String,
    #[serde(default)]
    pub fence: String,
    /// Exactly those offered, sorted.
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
    /// What is ignored or missing here: untrusted workspace, weaker fence, no key.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// What is open right now, so that a client that joins in the middle of a turn shows what the others show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InFlight {
    #[serde(default)]
    pub blocks: Vec<Block>,
    #[serde(default)]
    pub commands: Vec<OpenCommand>,
}

impl InFlight {
    /// The same, cut so that it fits a frame beside the entries: of texts that are too long the end stays.
    pub fn fitted(&self) -> std::borrow::Cow<'_, InFlight> {
        let fits = |of: &InFlight| {
            let written = serde_json::to_string(of).expect("writing plain data to memory does not fail");
            written.len() <= IN_FLIGHT_BYTES
        };
        let mut fitted = std::borrow::Cow::Borrowed(self);
        let mut kept = IN_FLIGHT_BYTES;
        while !fits(&fitted) && kept > 0 {
            kept /= 2;
            let mut shorter = self.clone();
            shorter.texts_mut(|text| keep_end(text, kept));
            fitted = std::borrow::Cow::Owned(shorter);
        }
        fitted
    }

    fn texts_mut(&mut self, mut visit: impl FnMut(&mut String)) {
        for block in &mut self.blocks {
            match block {
                Block::Text { text } | Block::Thinking { text } => visit(text),
                Block::ToolCall { arguments, .. } => visit(arguments),
                Block::Unknown => {}
            }
        }
        for command in &mut self.commands {
            command.output.iter_mut().for_each(|piece| visit(&mut piece.text));
        }
    }
}

/// Keeps the last `kept` bytes, and says what was left out.
fn keep_end(text: &mut String, kept: usize) {
    if text.len() <= kept {
        return;
    }
    let at = text.ceil_char_boundary(text.len() - kept);
    text.replace_range(..at, &format!("[{at} bytes left out] "));
}

/// A block of the reply that is still streaming.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    /// `arguments` is as much of the JSON text as has come.
    ToolCall {
        id: CallId,
        name: String,
        arguments: String,
    },
    /// A block of a later version.
    #[serde(other)]
    Unknown,
}

/// A command that runs, with its last output.
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

/// A piece of a command's output; `start` and `end` are byte offsets in its stream, so that pieces can be joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandOutput {
    pub stream: OutputStream,
    pub start: u64,
    pub end: u64,
    pub text: String,
}
