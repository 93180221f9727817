//! What is waited for: what a reply or an answer that comes back is for, and a note that is being typed.

use minke_protocol::RunMode;
use minke_record::{AskId, Decision, InputSegment, SessionId};
use minke_view::{Answered, BlockId};

use super::gather::Gathering;
use crate::composer::Draft;

/// What a reply or an answer is for.
#[derive(Debug, Clone)]
pub(super) enum Pending {
    /// An input that a pod has not confirmed.
    Said {
        input: Vec<InputSegment>,
        mode: RunMode,
        op_id: String,
    },
    Dequeue,
    Rewind,
    RewindTargets,
    Fork,
    Older,
    /// The beginning of a long text.
    Text(BlockId),
    Status,
    /// A page of the whole log.
    Gather(Box<Gathering>),
    Completions {
        sigil: char,
        rest: String,
    },
    /// What was said to a question. `there`: at the child's own socket, of which this session's log does not tell.
    Answer {
        ask: AskId,
        answer: Answered,
        there: bool,
    },
    /// Whatever comes of it is told in a word.
    Told(&'static str),
    Pods,
    Threads {
        words: String,
    },
    Models,
    FirstRun,
    Before,
    Asks,
    Look(SessionId),
    Local,
    /// A text to be shown.
    Shown,
    /// An input for a pod that is not attached.
    Message {
        session: SessionId,
        name: String,
        input: Vec<InputSegment>,
    },
    /// The answer to a question of any pod.
    Answered {
        ask: AskId,
        answer: Answered,
    },
    /// After it the list is asked for again.
    Changed,
}

/// A note that is typed for a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Noting {
    pub(super) ask: AskId,
    pub(super) decision: Decision,
    /// What was being typed before.
    pub(super) kept: Draft,
}
