//! The terminal UI: a client of pod sockets without authoritative state. Closing or killing it stops no work.
//!
//! A state machine that is testable without a terminal (`app`, with `composer` and `keys`), and I/O around
//! it: the terminal (`terminal`), the main loop (`main_loop`), one connection (`pod_link`), files
//! (`storage`), the user's editor (`editor`). Elsewhere: the view of a session (`view`); sessions, pods and
//! models (implementations of `TuiBackend`).

mod app;
mod backend;
mod composer;
mod connect;
mod editor;
mod event;
mod keys;
mod main_loop;
pub mod paint;
pub mod panes;
mod pod_link;
mod run;
mod signals;
mod storage;
mod terminal;
mod wakeups;

pub use app::{App, AppEffect, AppMessage, AppSetup, LinkEvent};
pub use backend::{
    BackendError, BackendFuture, BackendRequest, BackendResponse, FirstRun, ModelLine, ScopeHolder,
    SkillLine, ThreadPreview, TuiBackend, WorkTarget,
};
pub use composer::{Attachment, ComposerDraft};
pub use event::{KeyPress, KeySymbol, TerminalEvent};
pub use keys::{Action, KeyBindings, KeyContext};
pub use run::{ExitReason, RunError, TuiOptions, run_tui};
pub use storage::TuiSettings;
