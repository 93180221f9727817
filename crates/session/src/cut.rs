//! The tail of a log that never happened: moved aside at an opening, so that nothing is ever thrown away.
//!
//! Promise: its bytes are in a `cut-<offset>` file, synced, before the log is cut
//! (`a_log_torn_at_every_byte_opens_with_its_good_prefix`).

use std::io;
use std::path::{Path, PathBuf};

use crate::blobs::write_all;
use crate::disk::{Disk, DiskFile, OpenHow};
use crate::layout;
use crate::lines::read_exactly;

/// What is copied at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// How many tails may have been cut at the same offset.
const SAME_OFFSET: u32 = 1_000;

/// Bytes after the last whole step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) log: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Copies the tail to a file of its own, then cuts it off. Says where it is now.
pub(crate) fn move_aside(disk: &dyn Disk, tail: &Tail, sync: bool) -> io::Result<PathBuf> {
    let log = disk.open(&tail.log, OpenHow::Append)?;
    let path = keep(disk, tail, &*log, sync)?;
    log.truncate(tail.offset)?;
    if sync {
        log.sync_data()?;
    }
    Ok(path)
}

fn keep(disk: &dyn Disk, tail: &Tail, log: &dyn DiskFile, sync: bool) -> io::Result<PathBuf> {
    for attempt in 0..SAME_OFFSET {
        let path = cut_path(&tail.dir, tail.offset, attempt);
        if disk.meta(&path)?.is_some() {
            if holds(disk, &path, tail, log)? {
                if sync {
                    disk.open(&path, OpenHow::Append)?.sync_data()?;
                    disk.sync_dir(&tail.dir)?;
                }
                return Ok(path);
            }
            continue;
        }
        let file = disk.open(&path, OpenHow::AppendNew)?;
        let copied = copy(tail, log, &*file).and_then(|()| {
            if sync {
                file.sync_data()?;
                disk.sync_dir(&tail.dir)?;
            }
            Ok(())
        });
        drop(file);
        if let Err(error) = copied {
            // Half a copy is of no use, and a full disk needs the space; what cannot be removed stays as what it is.
            return match disk.remove_file(&path) {
                Ok(()) | Err(_) => Err(error),
            };
        }
        return Ok(path);
    }
    Err(io::Error::other(format!("{SAME_OFFSET} tails were already cut at byte {}", tail.offset)))
}

fn cut_path(dir: &Path, offset: u64, attempt: u32) -> PathBuf {
    let name = if attempt == 0 {
        format!("{}{offset}", layout::CUT)
    } else {
        format!("{}{offset}.{attempt}", layout::CUT)
    };
    dir.join(name)
}

fn copy(tail: &Tail, log: &dyn DiskFile, to: &dyn DiskFile) -> io::Result<()> {
    let mut at = 0;
    while at < tail.bytes {
        let chunk = read_exactly(log, tail.offset + at, chunk_len(tail.bytes - at))?;
        if chunk.is_empty() {
            break;
        }
        write_all(to, &chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Whether a file already holds this tail: the process died between copying and cutting.
fn holds(disk: &dyn Disk, path: &Path, tail: &Tail, log: &dyn DiskFile) -> io::Result<bool> {
    let file = disk.open(path, OpenHow::Read)?;
    if file.size()? != tail.bytes {
        return Ok(false);
    }
    let mut at = 0;
    while at < tail.bytes {
        let chunk = chunk_len(tail.bytes - at);
        if read_exactly(&*file, at, chunk)? != read_exactly(log, tail.offset + at, chunk)? {
            return Ok(false);
        }
        at += chunk as u64;
    }
    Ok(true)
}

fn chunk_len(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))
}
