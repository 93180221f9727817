//! The bounds of the log, each with its reason. The wire's bounds are in `protocol`, a pod's in `manifest`.

/// One line of the log, newline included: an entry always fits a frame of the wire (4 MiB), escaped once more.
pub const LINE_BYTES: usize = 2 * 1024 * 1024;
/// A text longer than this goes to a blob: it would make every client and every reader pay for it.
pub const TEXT_BYTES: usize = 256 * 1024;
/// A list (history, tools, carry, files) longer than this goes to a blob.
pub const LIST_BYTES: usize = 1024 * 1024;
/// At this size the next log file begins, so that no single file becomes unwieldy.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// A carry is written at least this often, so that opening never needs more than this many entries.
pub const CARRY_EVERY: u64 = 10_000;
/// What is given up when the disk is full, so that the end of a run can still be written.
pub const BALLAST_BYTES: u64 = 64 * 1024;
/// How many `op_id`s are remembered: a sender that retries later than this many operations gets a second run.
pub const OP_IDS: usize = 1_024;
/// Lazy entries reach the disk after this time at the latest.
pub const LAZY_SYNC_MS: u64 = 200;
/// A checkpoint's state of an API client.
pub const CHECKPOINT_BYTES: usize = 256 * 1024;
/// The summary of a tool result always stays in the context, so it is short.
pub const SUMMARY_BYTES: usize = 200;
/// The longest message of an alert: it is for a person, on one screen.
pub const ALERT_BYTES: usize = 4 * 1024;
/// The longest `op_id` of a client: it is kept 1,024 times.
pub const OP_ID_BYTES: usize = 256;
/// How many answered questions are remembered: a second answer later than this finds no question at all.
pub const ANSWERED: usize = 256;
/// How many grants a session holds: each is looked at before a person is asked.
pub const GRANTS: usize = 256;
/// The longest rule of a grant.
pub const GRANT_BYTES: usize = 4 * 1024;
/// What a question shows of a command, a diff or arguments; the action holds the whole command.
pub const ASK_BYTES: usize = 64 * 1024;
