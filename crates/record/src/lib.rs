//! Record: what happened.
//!
//! The words of the log: ids, items, actions, entries, the facts that they fold into, and the written form of a line.
//! It is at the bottom because the log stores it, clients show it and the mind folds it; it stays small and additive.

mod action;
mod budget;
mod effort;
mod entry;
mod facts;
mod ids;
mod item;
mod job;
pub mod limits;
pub mod line;
mod own;
mod spill;
mod text;
mod words;

pub use action::{Action, Class, Judgement, Outcome, Permission, Preview, Scope, ScopeRule, Script, Verdict};
pub use budget::{Budget, Paid, Spent};
pub use effort::{Effort, Reasoning};
pub use entry::*;
pub use facts::{
    About, AnsweredAsk, CallStage, Dispatched, EndResult, EndedRun, Facts, GoalFact, Granted, HowEnded,
    Instructed, Note, OpDone, OpGave, OpenAsk, OpenCall, OpenChild, OpenLlm, OpenRun, Queued, Report,
    TaskFact, Usage,
};
pub use ids::{AskId, BadName, CallId, Ids, Millis, PodName, QueueId, RunId, SessionId};
pub use item::{
    Content, ImageBlob, ImageSource, InputSegment, Item, Role, SystemItem, SystemKind, flatten, unread,
};
pub use job::{Firing, JobFacts, JobItem, JobPhase, JobState, Makes, MakesWhen, Missed, Rejected};
pub use line::Chain;
pub use own::{Own, PodsCall, SendMode, SpawnPod, WaitUntil};
pub use spill::FetchError;
pub use text::{Blob, BlobRef, Large, Text, hex};

/// The format of the log that this version writes. A higher one is refused with the version named.
pub const FORMAT: u32 = 1;
