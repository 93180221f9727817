//! Panes: the views beside the conversation, as pictures of plain state.
//!
//! Each is a small state that whoever owns the keys moves (`up`, `down`, `typed` …) and that draws itself into a part of
//! the screen. Rows come from outside as plain values. Nothing here knows a terminal, a socket or a key.
//! Every text goes through `paint::Clean`, like everywhere.

mod asks;
mod context;
mod diff;
mod help;
mod pick;
mod pods;
mod settings;
mod sheet;
mod tasks;
mod threads;
mod told;

pub use asks::{AskRow, Asks};
pub use context::ContextPane;
pub use diff::DiffPane;
pub use help::{Help, HelpRow};
pub use pick::Pick;
pub use pods::Pods;
pub use settings::{Setting, Settings};
pub use tasks::Tasks;
pub use threads::{ThreadRow, Threads};
