//! Record: the data model of the log: ids, items, actions, entries, the facts folded from them, and the line
//! format.
//!
//! It is the lowest crate because the log stores it, clients show it and the pod folds it; it stays small and
//! changes only by additions.

mod action;
mod budget;
pub mod compat;
mod effort;
mod entry;
mod facts;
mod ids;
mod internal_call;
mod item;
mod job;
pub mod limits;
pub mod line;
mod spill;
mod string_enum;
mod text;

pub use action::{
    Action, Class, ExecutedScript, Judgement, Outcome, Permission, PolicyVerdict, Preview, Scope, ScopeRule,
};
pub use budget::{Budget, PodSpend, Spend};
pub use compat::LoggedBackend;
pub use effort::{Effort, Reasoning};
pub use entry::*;
pub use facts::{
    About, AnsweredAsk, CallStage, Dispatched, EndResult, EndedRun, GoalFact, Granted, HowEnded, Instructed,
    Note, OpDone, OpOutcome, OpenAsk, OpenCall, OpenChild, OpenLlm, OpenRun, Queued, Report, SessionFacts,
    SessionUsage, TaskFact,
};
pub use ids::{AskId, CallId, IdGenerator, InvalidPodName, Millis, PodName, QueueId, RunId, SessionId};
pub use internal_call::{InternalCall, PodToolCall, SendMode, SpawnPod, WaitUntil};
pub use item::{
    Content, ImageBlob, ImageSource, InputSegment, Item, Role, SystemItem, SystemKind, flatten_input,
    has_unread_references,
};
pub use job::{
    JobFacts, JobFiring, JobItem, JobPhase, JobState, JobTrigger, MissedFirings, RejectedAttempt,
    TriggerCondition,
};
pub use line::ChainHash;
pub use spill::FetchError;
pub use text::{Blob, BlobRef, Large, Text, to_hex};

/// The log format that this version writes. A higher one is refused with an error that names the version.
pub const LOG_FORMAT: u32 = 1;
