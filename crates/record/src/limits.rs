//! Limits of the log, each with its reason. Limits of the wire are in `protocol`, those of a pod in
//! `manifest`.

/// The maximum length of a log line, newline included: an entry always fits a wire frame (4 MiB), escaped
/// once more.
pub const LINE_BYTES: usize = 2 * 1024 * 1024;
/// Longer texts go to a blob: they would slow down every client and reader.
pub const TEXT_BYTES: usize = 256 * 1024;
/// Longer lists (history, tools, carry, files) go to a blob.
pub const LIST_BYTES: usize = 1024 * 1024;
/// The size at which a new log file starts, so that no single file becomes unwieldy.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// A carry is written at least this often, so that opening never reads more entries than this.
pub const CARRY_EVERY: u64 = 10_000;
/// The size of the ballast file, which is removed when the disk is full, so that the end of a run can be
/// written.
pub const BALLAST_BYTES: u64 = 64 * 1024;
/// The number of remembered `op_id`s: a sender that retries after more operations than this starts a second
/// run.
pub const REMEMBERED_OP_IDS: usize = 1_024;
/// The maximum delay of lazy syncs.
pub const LAZY_SYNC_MS: u64 = 200;
/// The maximum size of an API client's checkpoint.
pub const CHECKPOINT_BYTES: usize = 256 * 1024;
/// The maximum length of a tool summary, which always stays in the context.
pub const SUMMARY_BYTES: usize = 200;
/// The maximum length of an alert: it is read by a person, on one screen.
pub const ALERT_BYTES: usize = 4 * 1024;
/// The maximum length of an `op_id`: 1,024 of them are stored.
pub const OP_ID_BYTES: usize = 256;
/// The number of remembered answered asks: a second answer after more asks than this finds no ask.
pub const REMEMBERED_ANSWERS: usize = 256;
/// The maximum number of grants of a session: each is checked before an ask.
pub const MAX_GRANTS: usize = 256;
/// The maximum length of a grant's rule.
pub const GRANT_BYTES: usize = 4 * 1024;
/// The shown part of a command, a diff or arguments in an ask; the action contains the whole command.
pub const ASK_BYTES: usize = 64 * 1024;
