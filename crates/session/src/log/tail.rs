//! The tail of a log: bytes after its last whole step. Opening the log moves them aside and never deletes them.
//!
//! Guarantee: the bytes are synced in a `cut-<offset>` file before the log is truncated
//! (`a_log_torn_at_every_byte_opens_with_its_good_prefix`).

use std::io;
use std::path::{Path, PathBuf};

use crate::files::blobs::write_all;
use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;
use crate::log::lines::read_up_to;

/// The size of one copy.
const CHUNK_BYTES: usize = 256 * 1024;
/// The maximum number of tails cut at the same offset.
const MAX_CUTS_PER_OFFSET: u32 = 1_000;

/// The bytes after the last whole step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogTail {
    pub(crate) log: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Copies the tail to a separate file, then truncates the log. Returns the new path.
pub(crate) fn move_tail_aside(disk: &dyn Disk, tail: &LogTail, sync: bool) -> io::Result<PathBuf> {
    let log = disk.open(&tail.log, OpenMode::Append)?;
    let path = copy_tail(disk, tail, &*log, sync)?;
    log.truncate(tail.offset)?;
    if sync {
        log.sync_data()?;
    }
    Ok(path)
}

fn copy_tail(disk: &dyn Disk, tail: &LogTail, log: &dyn DiskFile, sync: bool) -> io::Result<PathBuf> {
    for attempt in 0..MAX_CUTS_PER_OFFSET {
        let path = cut_path(&tail.dir, tail.offset, attempt);
        if disk.metadata(&path)?.is_some() {
            if contains_tail(disk, &path, tail, log)? {
                if sync {
                    disk.open(&path, OpenMode::Append)?.sync_data()?;
                    disk.sync_dir(&tail.dir)?;
                }
                return Ok(path);
            }
            continue;
        }
        let file = disk.open(&path, OpenMode::AppendNew)?;
        let copied = copy_bytes(tail, log, &*file).and_then(|()| {
            if sync {
                file.sync_data()?;
                disk.sync_dir(&tail.dir)?;
            }
            Ok(())
        });
        drop(file);
        if let Err(error) = copied {
            // A partial copy is useless, and a full disk needs the space. If it cannot be removed, it stays.
            return match disk.remove_file(&path) {
                Ok(()) | Err(_) => Err(error),
            };
        }
        return Ok(path);
    }
    Err(io::Error::other(format!("{MAX_CUTS_PER_OFFSET} tails were already cut at byte {}", tail.offset)))
}

fn cut_path(dir: &Path, offset: u64, attempt: u32) -> PathBuf {
    let name = if attempt == 0 {
        format!("{}{offset}", layout::CUT_PREFIX)
    } else {
        format!("{}{offset}.{attempt}", layout::CUT_PREFIX)
    };
    dir.join(name)
}

fn copy_bytes(tail: &LogTail, log: &dyn DiskFile, to: &dyn DiskFile) -> io::Result<()> {
    let mut at = 0;
    while at < tail.bytes {
        let chunk = read_up_to(log, tail.offset + at, chunk_length(tail.bytes - at))?;
        if chunk.is_empty() {
            break;
        }
        write_all(to, &chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Returns whether a file already contains this tail: a process died between copying and truncating.
fn contains_tail(disk: &dyn Disk, path: &Path, tail: &LogTail, log: &dyn DiskFile) -> io::Result<bool> {
    let file = disk.open(path, OpenMode::Read)?;
    if file.size()? != tail.bytes {
        return Ok(false);
    }
    let mut at = 0;
    while at < tail.bytes {
        let chunk = chunk_length(tail.bytes - at);
        if read_up_to(&*file, at, chunk)? != read_up_to(log, tail.offset + at, chunk)? {
            return Ok(false);
        }
        at += chunk as u64;
    }
    Ok(true)
}

fn chunk_length(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))
}
