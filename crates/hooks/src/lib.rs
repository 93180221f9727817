//! Hooks: the user's own programs, asked before events and notified after them.
//!
//! Here: reading `hooks.toml` (`LoadedHooks`), asking at the points where a hook may steer
//! (`HookSet::ask_hooks`), notifying from the log (`HookSet::start_observers`). Elsewhere: the points and the
//! effect of a verdict (`pod`), wiring (`driver`), whether a workspace's file is read (`trust`).
//!
//! Invariants: see `load`, `steer`, `observers`.

mod context;
mod cursor;
mod event;
mod hook;
mod hook_parser;
mod http;
mod job_events;
mod load;
mod mapper;
mod observer;
mod observers;
mod payload;
mod question;
mod sink;
mod steer;
mod suggest;
mod verdict;

pub use context::{HookContext, RedactFn};
pub use event::HookEvent;
pub use hook::{Hook, HookCondition, HookHandler, HookLayer};
pub use job_events::notified_hooks;
pub use load::{LoadedHooks, MAX_FILE_BYTES, MAX_HOOKS};
pub use mapper::FramesFn;
pub use observers::{AlertFn, HookLag, LAG_ALERT_ENTRIES, ObserverConfig, Observers, PageFn};
pub use question::{PendingToolCall, SteeringRequest};
pub use steer::{HookAnswer, HookReport, HookSet, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, SteerResult};
pub use verdict::{HookDecision, MAX_CONTEXT_CHARS, MAX_ENV_BYTES, MAX_REASON_CHARS, MAX_VALUE_BYTES};
