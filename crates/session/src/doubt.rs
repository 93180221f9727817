//! Doubt: a sync that failed for good leaves pages that look clean and may never have reached the disk.
//!
//! Whoever finds that out puts the file `unsynced` beside the log; the next writer writes the end of the log again, the
//! same bytes to the same place, so that its own sync covers them. The mark itself needs no sync: after a power cut the
//! log shows what the disk holds, and there is nothing left to doubt.
//! Promise: `what_was_not_synced_is_written_again_by_the_next_writer`.

use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile, OpenHow};
use crate::layout;
use crate::lines::read_exactly;
use crate::syncer::PENDING_BYTES;

/// What is written again at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// As much as can have been written since the last good sync: what is kept in memory, and one step beyond it.
const DOUBTFUL_BYTES: u64 = 2 * PENDING_BYTES as u64;

/// Says that the end of the log in this directory may not be on the disk.
pub(crate) fn mark(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.open(&dir.join(layout::UNSYNCED), OpenHow::Write).map(drop)
}

/// Whether an earlier writer could not sync.
pub(crate) fn is_marked(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.meta(&dir.join(layout::UNSYNCED))?.is_some())
}

/// Writes the end of the log, up to `good`, again in its place and syncs it; then there is no doubt any more.
pub(crate) fn settle(disk: &dyn Disk, log: &Path, good: u64) -> io::Result<()> {
    let file = disk.open(log, OpenHow::Write)?;
    let mut at = good.saturating_sub(DOUBTFUL_BYTES);
    while at < good {
        let bytes = usize::try_from(good - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let chunk = read_exactly(&*file, at, bytes)?;
        write_exactly(&*file, &chunk, at)?;
        at += bytes as u64;
    }
    file.sync_data()?;
    match log.parent() {
        Some(dir) => disk.remove_file(&dir.join(layout::UNSYNCED)),
        None => Ok(()),
    }
}

/// Writes all of it at one place.
pub(crate) fn write_exactly(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<()> {
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
