//! Undo: captures the write scope before a run's first call with side effects, and restores it on request.
//!
//! Here: capturing (`capture`, `walk`, `ignores`, `worker_pool`, `pack`), comparing (`state`), restoring
//! (`restore`). Elsewhere: the times of captures (`pod`), blobs (`session`), file access (`files`).
//!
//! Captured: regular files, symbolic links and directories that may be written, with their permissions. Not
//! captured: ignored paths (`.gitignore`, `.ignore`, `.git/info/exclude`, inside the grant), `.git` itself
//! (use git to undo a commit), protected names, owners, attributes and times. Changes of files that are too
//! large to store are reported, but not undone.

mod capture;
mod ignores;
mod pack;
mod restore;
mod state;
mod walk;
mod worker_pool;

pub use capture::{CaptureError, CaptureLimits, CaptureReport, ScopeCapture};
pub use restore::{RestoreAction, RestoreReport, RestoredPath, SkippedPath, restore_changes};
pub use state::{CapturedKind, PathChange, PathState, apply_files, diff_trees};
