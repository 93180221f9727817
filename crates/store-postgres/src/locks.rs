//! Locks: a row that says who holds a session, and a kernel lock between the processes of one home.
//!
//! The row has an owner (a home), an expiry by the server's clock, and a fence that grows with every holder. The kernel
//! lock is on a local file, so that it can be handed to a pod that is started and is free at once when its holder dies:
//! then a process of the same home takes the row without waiting, while other homes wait until it expires.
//! Promise: whoever was overtaken writes nothing any more
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

use crate::link::{Link, durable};
use crate::names::Name;

/// The lock of whoever writes.
pub(crate) const LEASE: &str = "lease";
/// The lock of whoever looks at the forks of a session and acts on it.
pub(crate) const FORKS: &str = "forks";
/// Between two looks at a lock that is waited for, and how long it is waited for.
const LOOK: Duration = Duration::from_millis(10);
const WAIT: Duration = Duration::from_secs(60);
/// Longer than any name that is written into a lock file.
const NAME_BYTES: usize = 256;

/// The local file that stands for a session.
pub(crate) fn local(locks: &Path, session: &str, name: &'static str) -> PathBuf {
    let id = session.rsplit('/').next().unwrap_or(session);
    let id = id.strip_prefix(".new-").unwrap_or(id);
    if name == LEASE { locks.join(id) } else { locks.join(format!("{id}.{name}")) }
}

/// An open lock.
pub(crate) struct Lock {
    link: Arc<Link>,
    file: File,
    /// The session's row; `None` if what was handed on is no lease.
    pub(crate) session: Option<i64>,
    name: &'static str,
    /// Only looks whether somebody holds it.
    look: bool,
    fence: Mutex<Option<i64>>,
    /// The kernel lock was handed on: dropping this frees nothing.
    handed: AtomicBool,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("session", &self.session)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Lock {
    pub(crate) fn open(
        link: &Arc<Link>,
        locks: &Path,
        session: (i64, &Name),
        name: &'static str,
        look: bool,
    ) -> io::Result<Lock> {
        let path = local(locks, &session.1.session, name);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if file.metadata()?.len() == 0 {
            // What it stands for, for a process that is handed the descriptor alone.
            file.write_all_at(session.1.session.replace("/.new-", "/").as_bytes(), 0)?;
        }
        Ok(Lock::new(link, file, Some(session.0), name, look))
    }

    pub(crate) fn new(
        link: &Arc<Link>,
        file: File,
        session: Option<i64>,
        name: &'static str,
        look: bool,
    ) -> Lock {
        let (link, fence) = (Arc::clone(link), Mutex::new(None));
        Lock { link, file, session, name, look, fence, handed: AtomicBool::new(false) }
    }

    /// The session that a lock file which was handed on stands for.
    pub(crate) fn named(file: &File) -> io::Result<Option<String>> {
        let mut text = vec![0; NAME_BYTES];
        let read = file.read_at(&mut text, 0)?;
        text.truncate(read);
        Ok(String::from_utf8(text).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn fence(&self) -> Option<i64> {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> io::Result<i64> {
        self.session.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Whether nobody else has the row.
    fn is_free(&self) -> io::Result<bool> {
        let (session, name, owner) = (self.session()?, self.name, self.link.owner);
        self.link.ask(move |at| {
            let row = at.client.query_opt(
                "select 1 from minke.lease
                 where session = $1 and name = $2 and owner is not null and owner <> $3
                       and expires > clock_timestamp()",
                &[&session, &name, &owner],
            )?;
            Ok(row.is_none())
        })
    }

    /// Takes the row: on the server's disk before anybody writes under the new fence.
    fn take(&self) -> io::Result<bool> {
        let (session, name, owner) = (self.session()?, self.name, self.link.owner);
        let lease_ms = self.link.times.lease_ms();
        let since = Instant::now();
        let fence = self.link.ask(move |at| {
            let mut change = durable(at.client)?;
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
        self.link.held.took(session, self.name, fence, since);
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = Some(fence);
        Ok(true)
    }

    fn release(&self) {
        let (Some(session), Some(fence)) = (self.session, self.fence()) else { return };
        self.link.held.let_go(session, self.name, fence);
        if self.handed.load(Ordering::SeqCst) {
            return;
        }
        let (name, owner) = (self.name, self.link.owner);
        // If it cannot be said, the row expires; processes of this home do not wait for that.
        let released = self.link.change(move |at| {
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

impl Drop for Lock {
    fn drop(&mut self) {
        self.release();
    }
}

impl DiskFile for Lock {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The whole of what the holder says about himself.
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        let (session, name, owner) = (self.session()?, self.name, self.link.owner);
        let text = String::from_utf8(bytes.to_vec()).map_err(io::Error::other)?;
        let fence = self.fence().ok_or_else(|| io::Error::other("the lease is not held"))?;
        self.link.change(move |at| {
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
        let (session, name) = (self.session()?, self.name);
        let text: Option<String> = self.link.ask(move |at| {
            let row = at.client.query_opt(
                "select holder from minke.lease where session = $1 and name = $2",
                &[&session, &name],
            )?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })?;
        let text = text.unwrap_or_default();
        Ok(crate::names::copy(text.as_bytes(), offset, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.link.flush()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let free = if self.look { self.is_free() } else { self.take() };
        if !matches!(free, Ok(true)) {
            self.file.unlock()?;
        }
        free
    }

    fn lock(&self) -> io::Result<()> {
        let until = Instant::now() + WAIT;
        while !self.try_lock()? {
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "somebody holds the lock for too long"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        let copy = self.file.try_clone().map(OwnedFd::from)?;
        self.handed.store(true, Ordering::SeqCst);
        Ok(copy)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((self.session()?.cast_unsigned(), self.file.metadata()?.ino()))
    }
}
