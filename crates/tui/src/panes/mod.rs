//! The panes over the conversation.
//!
//! Each pane is a small state that its owner changes and that draws itself into an area. Rows are plain
//! values; panes know no terminal, socket or key. All text is sanitized with `paint::Clean`.

mod asks;
mod context;
mod diff;
mod format;
mod help;
mod list_frame;
mod pods;
mod selection;
mod settings;
mod tasks;
mod threads;

pub use asks::{AskRow, AsksPane};
pub use context::ContextPane;
pub use diff::DiffPane;
pub use help::{HelpPane, HelpRow};
pub use pods::PodsPane;
pub use selection::RowSelection;
pub use settings::{SettingRow, SettingsPane};
pub use tasks::TasksPane;
pub use threads::{ThreadRow, ThreadsPane};
