//! Bounds of a look, each with its reason. Beyond one of them a thing is named, left alone and never used.

use std::time::Duration;

/// One file. Hooks, rules and scripts are far smaller.
pub const FILE_BYTES: u64 = 1024 * 1024;
/// Files of one item: a skill with its scripts and references.
pub(crate) const ITEM_FILES: usize = 256;
/// Bytes of one item.
pub(crate) const ITEM_BYTES: u64 = 8 * 1024 * 1024;
/// Directories below each other in one item.
pub(crate) const DEPTH: usize = 8;
/// Names in one directory. More are not even listed, so that the order they come in decides nothing.
pub(crate) const ENTRIES: usize = 1024;
/// Items, files and bytes of one look together.
pub(crate) const ITEMS: usize = 256;
pub(crate) const FILES: usize = 2048;
pub(crate) const BYTES: u64 = 32 * 1024 * 1024;
/// A start must not wait longer, however slow the disk is. A single read that hangs is not cut short.
pub const LOOK_TIME: Duration = Duration::from_millis(1_500);
/// Things that are named as left alone; the rest is counted.
pub(crate) const NAMED: usize = 64;
/// What one item would run: lines that a person is shown, and characters of one.
pub(crate) const LINES: usize = 20;
pub(crate) const LINE_CHARS: usize = 200;
/// Names in a one-line notice.
pub(crate) const NOTICE_NAMES: usize = 4;
/// What was agreed to: the file, and the workspaces in it.
pub(crate) const STORE_BYTES: u64 = 16 * 1024 * 1024;
pub(crate) const WORKSPACES: usize = 4096;
