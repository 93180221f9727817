//! Locks: a row that names the holder of a session, and a kernel lock between the processes of one home.
//!
//! The row has an owner (a home), an expiry by the server's clock, and a fencing token that grows with every holder.
//! The kernel lock is on a local file, so that it can be passed to a new pod and is free at once when its holder dies:
//! then another process of the same home takes the row without waiting, while other homes wait until it expires.
//! Guarantee: a writer that lost its lease writes nothing more
//! (`an_overtaken_writer_writes_nothing`, `a_killed_writer_of_this_home_is_followed_at_once`).

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_session::DiskFile;

use crate::server_link::{ServerLink, durable_transaction};

/// The lock of the writer.
pub(crate) const LEASE_LOCK: &str = "lease";
/// The lock for reading the forks of a session and acting on them.
pub(crate) const FORKS_LOCK: &str = "forks";
/// The poll interval for a lock, and the timeout.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any name in a lock file.
const MAX_NAME_BYTES: usize = 256;

/// Returns the local lock file of a session.
pub(crate) fn local_lock_path(locks: &Path, session: &str, name: &'static str) -> PathBuf {
    let id = session.rsplit('/').next().unwrap_or(session);
    let id = id.strip_prefix(".new-").unwrap_or(id);
    if name == LEASE_LOCK { locks.join(id) } else { locks.join(format!("{id}.{name}")) }
}

/// An open lock.
pub(crate) struct RowLock {
    link: Arc<ServerLink>,
    file: File,
    /// The session's row; `None` if the inherited file is not a lease.
    pub(crate) session: Option<i64>,
    name: &'static str,
    /// Only checks whether the lock is held.
    only_checks: bool,
    token: Mutex<Option<i64>>,
    /// The kernel lock was passed on: dropping this does not release it.
    is_handed_on: AtomicBool,
}

impl std::fmt::Debug for RowLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("session", &self.session)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RowLock {
    /// Opens the local file of a lock and creates it if it is missing.
    pub(crate) fn open_file(locks: &Path, session: &str, name: &'static str) -> io::Result<File> {
        let path = local_lock_path(locks, session, name);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if file.metadata()?.len() == 0 {
            // The session's name, for a process that inherits only the descriptor.
            file.write_all_at(session.replace("/.new-", "/").as_bytes(), 0)?;
        }
        Ok(file)
    }

    pub(crate) fn new(
        link: &Arc<ServerLink>,
        file: File,
        session: Option<i64>,
        name: &'static str,
        only_checks: bool,
    ) -> RowLock {
        let (link, token) = (Arc::clone(link), Mutex::new(None));
        RowLock { link, file, session, name, only_checks, token, is_handed_on: AtomicBool::new(false) }
    }

    /// Reads the session's name from an inherited lock file.
    pub(crate) fn read_lock_name(file: &File) -> io::Result<Option<String>> {
        let mut text = vec![0; MAX_NAME_BYTES];
        let read = file.read_at(&mut text, 0)?;
        text.truncate(read);
        Ok(String::from_utf8(text).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn fencing_token(&self) -> Option<i64> {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_row(&self) -> io::Result<i64> {
        self.session.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Returns whether no other process has the row.
    fn is_row_free(&self) -> io::Result<bool> {
        let (session, name, owner) = (self.session_row()?, self.name, self.link.owner);
        self.link.run_work(move |at| {
            let row = at.client.query_opt(
                "select 1 from minke.lease
                 where session = $1 and name = $2 and owner is not null and owner <> $3
                       and expires > clock_timestamp()",
                &[&session, &name, &owner],
            )?;
            Ok(row.is_none())
        })
    }

    /// Takes the row. The commit is durable before any write with the new token.
    fn take_row(&self) -> io::Result<bool> {
        let (session, name, owner) = (self.session_row()?, self.name, self.link.owner);
        let lease_ms = self.link.times.lease_ms();
        let since = Instant::now();
        let fence = self.link.run_work(move |at| {
            let mut change = durable_transaction(at.client)?;
            let row = change.query_opt(
                "insert into minke.lease as l (session, name, fence, owner, since, expires)
                 select key, $2, 1, $3, clock_timestamp(), clock_timestamp() + $4 * interval '1 millisecond'
                 from minke.session where key = $1
                 on conflict (session, name) do update
                 set fence = l.fence + 1, owner = excluded.owner, since = excluded.since,
                     expires = excluded.expires, holder = ''
                 where l.owner is null or l.owner = excluded.owner or l.expires <= clock_timestamp()
                 returning fence",
                &[&session, &name, &owner, &lease_ms],
            )?;
            let fence = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
            change.commit()?;
            Ok(fence)
        })?;
        let Some(fence) = fence else { return Ok(false) };
        self.link.held_leases.add_lease(session, self.name, fence, since);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(fence);
        Ok(true)
    }

    fn release_row(&self) {
        let (Some(session), Some(fence)) = (self.session, self.fencing_token()) else { return };
        self.link.held_leases.forget_lease(session, self.name, fence);
        if self.is_handed_on.load(Ordering::SeqCst) {
            return;
        }
        let (name, owner) = (self.name, self.link.owner);
        // If this fails, the row expires; processes of this home do not wait for that.
        let released = self.link.run_change(move |at| {
            at.client.execute(
                "update minke.lease set owner = null, expires = null
                 where session = $1 and name = $2 and fence = $3 and owner = $4",
                &[&session, &name, &fence, &owner],
            )?;
            Ok(())
        });
        match released {
            Ok(()) | Err(_) => {}
        }
    }
}

impl Drop for RowLock {
    fn drop(&mut self) {
        self.release_row();
    }
}

impl DiskFile for RowLock {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Replaces the whole holder record.
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        let (session, name, owner) = (self.session_row()?, self.name, self.link.owner);
        let text = String::from_utf8(bytes.to_vec()).map_err(io::Error::other)?;
        let fence = self.fencing_token().ok_or_else(|| io::Error::other("the lease is not held"))?;
        self.link.run_change(move |at| {
            at.client.execute(
                "update minke.lease set holder = $5, since = clock_timestamp()
                 where session = $1 and name = $2 and fence = $3 and owner = $4",
                &[&session, &name, &fence, &owner, &text],
            )?;
            Ok(())
        })?;
        Ok(bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (session, name) = (self.session_row()?, self.name);
        let text: Option<String> = self.link.run_work(move |at| {
            let row = at.client.query_opt(
                "select holder from minke.lease where session = $1 and name = $2",
                &[&session, &name],
            )?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })?;
        let text = text.unwrap_or_default();
        Ok(crate::path_names::copy_at(text.as_bytes(), offset, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.link.flush_commits()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let free = if self.only_checks { self.is_row_free() } else { self.take_row() };
        if !matches!(free, Ok(true)) {
            self.file.unlock()?;
        }
        free
    }

    fn lock(&self) -> io::Result<()> {
        let until = Instant::now() + LOCK_TIMEOUT;
        while !self.try_lock()? {
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for the lock"));
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
        Ok(())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        let copy = self.file.try_clone().map(OwnedFd::from)?;
        self.is_handed_on.store(true, Ordering::SeqCst);
        Ok(copy)
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        Ok((self.session_row()?.cast_unsigned(), self.file.metadata()?.ino()))
    }
}
