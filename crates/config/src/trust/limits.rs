//! Limits of a scan. A file beyond a limit is reported and never used.

use std::time::Duration;

/// One file. Hooks, rules and scripts are far smaller.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Files of one item: a skill with its scripts and references.
pub(crate) const MAX_ITEM_FILES: usize = 256;
/// Bytes of one item.
pub(crate) const MAX_ITEM_BYTES: u64 = 8 * 1024 * 1024;
/// Nested directories in one item.
pub(crate) const MAX_DEPTH: usize = 8;
/// Names in one directory. A larger directory is not listed at all, so that the listing order has no effect.
pub(crate) const MAX_DIR_ENTRIES: usize = 1024;
/// Items, files and bytes of one scan.
pub(crate) const MAX_ITEMS: usize = 256;
pub(crate) const MAX_FILES: usize = 2048;
pub(crate) const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Longest scan, so that a slow disk does not delay the start further. A single hanging read is not
/// interrupted.
pub const SCAN_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Listed ignored paths; the others are only counted.
pub(crate) const MAX_IGNORED_NAMES: usize = 64;
/// Listed commands of one item, and characters per command.
pub(crate) const MAX_COMMAND_LINES: usize = 20;
pub(crate) const MAX_LINE_CHARS: usize = 200;
/// Names in a one-line notice.
pub(crate) const MAX_NOTICE_NAMES: usize = 4;
/// The trust store: bytes of the file, and workspaces in it.
pub(crate) const MAX_STORE_BYTES: u64 = 16 * 1024 * 1024;
pub(crate) const MAX_WORKSPACES: usize = 4096;
