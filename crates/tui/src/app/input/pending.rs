//! Outstanding requests and their purpose, and the note for an ask.

use minke_protocol::RunMode;
use minke_record::{AskId, Decision, InputSegment, SessionId};
use minke_view::{AskResponse, BlockId};

use super::super::load_log::LogLoad;
use crate::composer::ComposerDraft;

/// The purpose of an outstanding request.
#[derive(Debug, Clone)]
pub(in crate::app) enum PendingReply {
    /// An input that the pod has not confirmed.
    Input {
        input: Vec<InputSegment>,
        mode: RunMode,
        op_id: String,
    },
    Dequeue,
    Rewind,
    RewindTargets,
    Fork,
    OlderPage,
    /// The first bytes of a long text.
    Text(BlockId),
    Status,
    /// A page of the whole log.
    LogPage(Box<LogLoad>),
    Completions {
        sigil: char,
        rest: String,
    },
    /// An answer to an ask. `at_child`: sent to the child's own socket, so that the log of this session does
    /// not contain it.
    Answer {
        ask: AskId,
        answer: AskResponse,
        at_child: bool,
    },
    /// The outcome is shown as this message.
    Confirmation(&'static str),
    Pods,
    Threads {
        words: String,
    },
    Models,
    FirstRun,
    ForkHistory,
    Asks,
    Preview(SessionId),
    LocalModels,
    /// A text to display.
    TextView,
    /// An input for a pod that is not attached.
    Message {
        session: SessionId,
        name: String,
        input: Vec<InputSegment>,
    },
    /// An answer to an ask of any pod.
    InboxAnswer {
        ask: AskId,
        answer: AskResponse,
    },
    /// A change after which the list is requested again.
    ListChange,
}

/// A note that the user types for an ask.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) struct NotePrompt {
    pub(in crate::app) ask: AskId,
    pub(in crate::app) decision: Decision,
    /// The previous draft.
    pub(in crate::app) saved_draft: ComposerDraft,
}
