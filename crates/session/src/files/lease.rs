//! The session lease: a kernel lock on a file that also names its holder.
//!
//! Guarantee: one process holds a session, and a dead holder's lease is free at once
//! (`a_second_writer_is_told_who_holds_the_session`, `a_killed_writer_leaves_its_lease_free`).

use std::io;
use std::path::Path;

use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;
use crate::log::lines::read_up_to;
use crate::store::LeaseHolder;

/// Larger than any holder record.
const MAX_HOLDER_BYTES: usize = 4 * 1024;
/// A process that only checks the lease takes it for a moment, and so does a process between fork and exec. So a failed
/// attempt is repeated this often before the lease counts as held.
const LOCK_ATTEMPTS: u32 = 8;

/// Takes the lease in a session's directory. Returns `None` if it is held or the directory was moved away meanwhile.
pub(crate) fn take_lease(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
    let path = dir.join(layout::LEASE_FILE);
    let lease = disk.open(&path, OpenMode::Write)?;
    for attempt in 0..LOCK_ATTEMPTS {
        if attempt > 0 {
            disk.pause_briefly();
        }
        if lease.try_lock()? {
            return Ok(disk.is_file_at(&*lease, &path)?.then_some(lease));
        }
    }
    Ok(None)
}

/// Adopts a lease that another process locked and passed on. Returns `None` if it belongs to another session or is not
/// locked.
pub(crate) fn adopt_lease(
    disk: &dyn Disk,
    dir: &Path,
    lease: Box<dyn DiskFile>,
) -> io::Result<Option<Box<dyn DiskFile>>> {
    // The lock belongs to the open file, which both processes share: locking it again succeeds at once.
    let ours = disk.is_file_at(&*lease, &dir.join(layout::LEASE_FILE))? && lease.try_lock()?;
    Ok(ours.then_some(lease))
}

/// Writes the holder into the lease.
pub(crate) fn write_holder(lease: &dyn DiskFile, holder: &LeaseHolder) -> io::Result<()> {
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    let written = lease.write_at(&text, 0)?;
    if written < text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    lease.truncate(text.len() as u64)
}

/// Returns the current holder; `None` if the lease is free or does not exist.
pub(crate) fn read_holder(disk: &dyn Disk, dir: &Path) -> io::Result<Option<LeaseHolder>> {
    let path = dir.join(layout::LEASE_FILE);
    let lease = match disk.open(&path, OpenMode::Read) {
        Ok(lease) => lease,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if lease.try_lock()? {
        return Ok(None);
    }
    let text = read_up_to(&*lease, 0, MAX_HOLDER_BYTES)?;
    // Before the new holder has signed, the lease contains the previous record or nothing readable. Then the holder is
    // unknown.
    let mut holder: LeaseHolder = serde_json::from_slice(&text).unwrap_or_default();
    holder.since = disk.metadata(&path)?.and_then(|meta| meta.modified);
    Ok(Some(holder))
}
