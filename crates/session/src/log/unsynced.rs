//! Unsynced logs: after a failed sync, pages that look clean may never have reached the disk.
//!
//! A writer whose sync failed creates the file `unsynced` in the session directory. The next writer rewrites the end of
//! the log, the same bytes at the same offset, so that its own sync covers them. The mark itself needs no sync: after a
//! power cut a reader sees the bytes that are on the disk.
//! Guarantee: `what_was_not_synced_is_written_again_by_the_next_writer`.

use std::io;
use std::path::Path;

use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;
use crate::log::lines::read_up_to;
use crate::log::syncer::MAX_PENDING_BYTES;

/// The size of one rewrite.
const CHUNK_BYTES: usize = 256 * 1024;
/// The maximum that can have been written since the last successful sync: the pending bytes, and one more step.
const REWRITE_BYTES: u64 = 2 * MAX_PENDING_BYTES as u64;

/// Marks the end of the log in this directory as possibly not on the disk.
pub(crate) fn mark_unsynced(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.open(&dir.join(layout::UNSYNCED_MARK), OpenMode::Write).map(drop)
}

/// Returns whether an earlier writer could not sync.
pub(crate) fn is_marked_unsynced(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.metadata(&dir.join(layout::UNSYNCED_MARK))?.is_some())
}

/// Rewrites the end of the log, up to `good`, in place and syncs it; then removes the mark.
pub(crate) fn rewrite_end(disk: &dyn Disk, log: &Path, good: u64) -> io::Result<()> {
    let file = disk.open(log, OpenMode::Write)?;
    let mut at = good.saturating_sub(REWRITE_BYTES);
    while at < good {
        let bytes = usize::try_from(good - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let chunk = read_up_to(&*file, at, bytes)?;
        write_all_at(&*file, &chunk, at)?;
        at += bytes as u64;
    }
    file.sync_data()?;
    match log.parent() {
        Some(dir) => disk.remove_file(&dir.join(layout::UNSYNCED_MARK)),
        None => Ok(()),
    }
}

/// Writes all bytes at one offset.
pub(crate) fn write_all_at(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, at);
    while !rest.is_empty() {
        let written = file.write_at(rest, at)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
        rest = &rest[written..];
    }
    Ok(())
}
