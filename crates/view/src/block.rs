//! Blocks: the pieces that a conversation is made of, in the order in which a person reads them.
//!
//! Here: their shapes. Texts are as they came: whoever shows them makes them harmless first.

use minke_record::{
    AlertLevel, Ask, AskId, CallId, ChildOutcome, Decision, Millis, Outcome, PodName, SessionId,
};

/// Which block: the entry that began it, and which of that entry's blocks. It stays the same however the log was
/// read, so what was drawn of a block can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Blocks of a reply that is still coming have the number that the next entry will have at the least.
    pub seq: u64,
    pub part: u32,
    /// No entry stands behind it yet.
    pub live: bool,
}

/// One piece of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub id: BlockId,
    /// Grows with every change of the block: what was drawn from an earlier one is out of date.
    pub version: u64,
    pub ts: Millis,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// A person, another pod or a job speaks to the agent.
    Said(Said),
    /// The model's words, in Markdown.
    Reply(Words),
    Thinking(Words),
    Call(Box<Call>),
    Ask(Box<AskCard>),
    Child(Box<ChildCard>),
    Notice(Notice),
    /// A run has ended otherwise than by being finished.
    Ended(Ended),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// `you`, a pod's name, `job`.
    pub who: String,
    pub text: String,
    /// Files, pastes, pictures and skills that came with it, in words.
    pub chips: Vec<String>,
    pub state: Saying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saying {
    Said,
    /// It came into a run that was under way.
    Steered,
    /// It came back out of the context (rewind): shown dimmed.
    Left,
}

/// Text that streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    pub text: String,
    /// More is to come.
    pub open: bool,
    /// How much stands in a blob and is not here.
    pub left_out: u64,
    /// The name of that blob; `Conversation::beginning` takes the first piece of it, if somebody fetches it.
    pub blob: Option<String>,
}

/// A call of a tool: one line that opens.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: CallId,
    pub tool: String,
    /// What it is about, in one line: the command, the path, the pattern. Empty until that is known.
    pub about: String,
    /// The whole command, if it runs one.
    pub command: Option<String>,
    /// The arguments as the model wrote them, as far as they have come.
    pub arguments: String,
    pub state: CallState,
    /// What it changes, as a unified diff.
    pub diff: Option<String>,
    /// The file that the diff is of.
    pub path: Option<String>,
    /// What it says while it runs, or has said.
    pub output: Tail,
    pub exit: Option<i32>,
    /// What came of it, in one line: the first line of a result, the reason of a refusal. Empty until it has ended.
    pub summary: String,
    /// The command goes on after the call has ended.
    pub behind: bool,
    /// The tier of the fence it runs in.
    pub fence: Option<String>,
    pub began: Option<Millis>,
    pub ended: Option<Millis>,
    /// Somebody other than the model made the call.
    pub by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState {
    /// The model is still writing it.
    Written,
    /// Between the model's word and its start: judged, or waiting for its turn.
    Waiting,
    Asked(AskId),
    Running,
    Ended(Outcome),
}

/// The end of a text that may be long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tail {
    /// At most [`Tail::BYTES`].
    pub text: String,
    /// Bytes before it.
    pub left_out: u64,
    /// The blob that holds all of it, if there is one.
    pub blob: Option<String>,
}

impl Tail {
    pub const BYTES: usize = 64 * 1024;
}

/// A question that is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct AskCard {
    pub ask: Ask,
    /// Whose question it is, if it is a child's.
    pub pod: Option<PodName>,
    /// Where a child's question is answered, if that is known.
    pub socket: Option<String>,
    pub answer: Option<Answered>,
    /// It needs no answer any more: it has one, or it is a child's that has gone on.
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub decision: Decision,
    pub note: Option<String>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChildCard {
    pub session: SessionId,
    pub name: PodName,
    pub scope: String,
    /// Its state in a word, and what it last told.
    pub told: String,
    pub ended: Option<ChildOutcome>,
}

/// A line in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub kind: NoticeKind,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    Alert(AlertLevel),
    /// The session went on in a new segment.
    Compaction,
    /// Configuration, name, posture, grant, archived.
    Change,
    /// The pod was started again.
    Opened,
    Rewound,
    /// What a client or a hook told the agent.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `paused`, `limit_reached`, `cancelled`, `rolled_back`, `interrupted`, `error`.
    pub result: String,
    pub reason: String,
    /// The person can go on with it.
    pub resumable: bool,
}
