//! Blocks: the pieces of a conversation, in reading order.
//!
//! This module defines their shapes. Texts are raw; the frontend must sanitize them before showing them.

use minke_record::{
    AlertLevel, Ask, AskId, CallId, ChildOutcome, Decision, Millis, Outcome, PodName, SessionId,
};

/// Identifies a block by the entry that began it and its index within that entry. The id does not depend on
/// how the log was read, so that rendered blocks can be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Blocks of a streaming reply use the lowest number that the next entry can have.
    pub seq: u64,
    pub part: u32,
    /// The block has no log entry yet.
    pub live: bool,
}

/// One piece of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub id: BlockId,
    /// Grows with every change of the block, so that caches can detect outdated lines.
    pub version: u64,
    pub ts: Millis,
    pub body: BlockBody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BlockBody {
    /// Input from the user, another pod or a job.
    Input(InputBlock),
    /// Text of the model, in Markdown.
    Reply(StreamedText),
    Thinking(StreamedText),
    CallCard(Box<CallCard>),
    Ask(Box<AskCard>),
    Child(Box<ChildCard>),
    NoticeLine(NoticeLine),
    /// A run ended without being completed.
    RunEnd(RunEndNotice),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputBlock {
    /// `you`, the name of a pod, or `job`.
    pub sender: String,
    pub text: String,
    /// Labels of attached files, pastes, images and skills.
    pub attachments: Vec<String>,
    pub state: InputState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    Delivered,
    /// The input steered an active run.
    Steered,
    /// A rewind removed the input from the context; it is shown dimmed.
    Rewound,
}

/// Text that may still be streaming.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamedText {
    pub text: String,
    /// More text will follow.
    pub open: bool,
    /// Number of bytes that are only in the blob.
    pub omitted_bytes: u64,
    /// Name of that blob. A client that fetches it passes the first bytes to
    /// [`Conversation::set_text_start`].
    pub blob: Option<String>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCard {
    pub id: CallId,
    pub tool: String,
    /// One line of summary: the command, the path or the pattern. Empty until it is known.
    pub subject: String,
    /// The full command, if the tool runs one.
    pub command: Option<String>,
    /// The arguments as the model wrote them, as far as they have arrived.
    pub arguments: String,
    pub state: CallState,
    /// Unified diff of the file change.
    pub diff: Option<String>,
    /// Path of the changed file.
    pub path: Option<String>,
    /// Output of the tool.
    pub output: TextTail,
    pub exit: Option<i32>,
    /// First line of the result, or the reason of a refusal. Empty until the call has ended.
    pub summary: String,
    /// The command is still running although the call has ended.
    pub in_background: bool,
    /// Backend of the sandbox in which the command runs.
    pub sandbox: Option<String>,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    /// The caller, if it is not the model.
    pub caller: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState {
    /// The model is still writing the call.
    Streaming,
    /// The call awaits the policy decision, or its turn.
    Pending,
    AwaitingAnswer(AskId),
    Running,
    RunEndNotice(Outcome),
}

/// The last bytes of a text that may be long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextTail {
    /// At most [`TextTail::BYTES`].
    pub text: String,
    /// Number of omitted bytes before `text`.
    pub omitted_bytes: u64,
    /// The blob with the full text, if there is one.
    pub blob: Option<String>,
}

impl TextTail {
    pub const BYTES: usize = 64 * 1024;
}

/// A durable question.
#[derive(Debug, Clone, PartialEq)]
pub struct AskCard {
    pub ask: Ask,
    /// The child pod that asks, if it is a child's ask.
    pub pod: Option<PodName>,
    /// Socket of the child that takes the answer, if known.
    pub socket: Option<String>,
    pub answer: Option<AskResponse>,
    /// The ask needs no answer anymore: it is answered, or its child continued.
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskResponse {
    pub decision: Decision,
    pub note: Option<String>,
    pub answered_by: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChildCard {
    pub session: SessionId,
    pub name: PodName,
    pub scope: String,
    /// The child's state and its last report.
    pub status_text: String,
    pub outcome: Option<ChildOutcome>,
}

/// A one-line notice between other blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeLine {
    pub kind: NoticeKind,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    Alert(AlertLevel),
    /// The session continued in a new segment.
    Compaction,
    /// A change of the configuration, name, posture, grants or archive state.
    SettingChange,
    /// The pod was restarted.
    Reopened,
    Rewound,
    /// A note from a client or a hook to the agent.
    ClientNote,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEndNotice {
    /// `paused`, `limit_reached`, `cancelled`, `rolled_back`, `interrupted` or `error`.
    pub result: String,
    pub reason: String,
    /// The user can resume the run.
    pub resumable: bool,
}
