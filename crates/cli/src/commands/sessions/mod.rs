//! Stored sessions: list, search, export, fork, undo, replay, delete.

pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod index;
pub(crate) mod log;
pub(crate) mod replay;
pub(crate) mod thread;
pub(crate) mod thread_export;
pub(crate) mod thread_import;
pub(crate) mod thread_import_list;
pub(crate) mod thread_print;
pub(crate) mod undo;
