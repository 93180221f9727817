//! One log: open, read, append, sync, replay.

pub(crate) mod head;
pub(crate) mod lines;
pub(crate) mod open;
pub(crate) mod reader;
pub(crate) mod replay;
pub(crate) mod syncer;
pub(crate) mod tail;
pub(crate) mod unsynced;
pub(crate) mod walk;
pub(crate) mod writer;
