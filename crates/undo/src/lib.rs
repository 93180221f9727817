//! Undo: the write scope as it was, captured before a run's first call with side effects, and put back on demand.
//!
//! Here: capturing (`capture`, `walk`, `ignores`, `crew`, `pack`), comparing (`state`), restoring (`restore`). Elsewhere: when it is done
//! (`pod`), where contents are kept (`session`), how files are reached (`files`).
//!
//! What is captured: regular files, symbolic links and directories that may be written, with their permissions. What is
//! not: what ignore files leave out (`.gitignore`, `.ignore`, `.git/info/exclude`, inside the grant), `.git` itself (a
//! commit is taken back with git, not with us), protected names, owners, attributes and times. Files that are too large to
//! keep are watched: a change of one is named, not undone.

mod capture;
mod crew;
mod ignores;
mod pack;
mod restore;
mod state;
mod walk;

pub use capture::{Capture, CaptureError, Limits, Taken};
pub use restore::{Done, Left, Put, Restored, restore};
pub use state::{Change, Kind, State, apply, changes};
