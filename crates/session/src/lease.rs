//! The session lease: a kernel lock on one file, and in the file who took it.
//!
//! Promise: one process holds a session, and a dead holder's lease is free at once
//! (`a_second_writer_is_told_who_holds_the_session`, `a_killed_writer_leaves_its_lease_free`).

use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile, OpenHow};
use crate::layout;
use crate::lines::read_exactly;
use crate::store::Holder;

/// Larger than any holder's words.
const HOLDER_BYTES: usize = 4 * 1024;
/// Somebody who only looks whether the lease is held takes it for a moment, and so does a process between fork and
/// exec: whoever wants it asks this often before he believes that it is held.
const ATTEMPTS: u32 = 8;

/// Takes the lease in a session's directory. `None` if somebody holds it or the directory was moved away meanwhile.
pub(crate) fn take(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
    let path = dir.join(layout::LEASE);
    let lease = disk.open(&path, OpenHow::Write)?;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            disk.breathe();
        }
        if lease.try_lock()? {
            return Ok(disk.is_at(&*lease, &path)?.then_some(lease));
        }
    }
    Ok(None)
}

/// Takes over a lease that was locked by another process and handed on. `None` if it is not this session's, or not
/// locked by whoever handed it on.
pub(crate) fn adopt(
    disk: &dyn Disk,
    dir: &Path,
    lease: Box<dyn DiskFile>,
) -> io::Result<Option<Box<dyn DiskFile>>> {
    // The lock belongs to the open file, which we share with the giver: locking it again succeeds at once.
    let ours = disk.is_at(&*lease, &dir.join(layout::LEASE))? && lease.try_lock()?;
    Ok(ours.then_some(lease))
}

/// Writes down who holds the lease.
pub(crate) fn sign(lease: &dyn DiskFile, holder: &Holder) -> io::Result<()> {
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    let written = lease.write_at(&text, 0)?;
    if written < text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    lease.truncate(text.len() as u64)
}

/// Who holds the lease now. Free if nobody does, or if there is no lease.
pub(crate) fn holder(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Holder>> {
    let path = dir.join(layout::LEASE);
    let lease = match disk.open(&path, OpenHow::Read) {
        Ok(lease) => lease,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if lease.try_lock()? {
        return Ok(None);
    }
    let text = read_exactly(&*lease, 0, HOLDER_BYTES)?;
    // Between taking the lease and signing it, it holds what the one before wrote, or nothing that can be read: then
    // the answer is that somebody holds it.
    let mut holder: Holder = serde_json::from_slice(&text).unwrap_or_default();
    holder.since = disk.meta(&path)?.and_then(|meta| meta.modified);
    Ok(Some(holder))
}
