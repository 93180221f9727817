//! Undo: the write scope as it was, captured before a run's first command, and put back on demand.
//!
//! Here: capturing, comparing, restoring. Elsewhere: when it is done (`pod`), where contents are kept (`session`), how files
//! are reached (`files`).
