//! The file store: sessions as directories on a disk.
//!
//! Here: making, finding and removing sessions. Elsewhere: opening one to write (`open`), forks (`fork`), reading
//! (`reader`).
//! Promise: a session is there with its whole first step, synced, or not at all
//! (`a_fault_at_every_disk_operation_loses_nothing_written`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::limits::FILE_BYTES;
use minke_record::{Blob, BlobRef, Chain, Draft, SessionId};

use crate::blobs;
use crate::disk::{Disk, OpenHow};
use crate::error::StoreError;
use crate::fork;
use crate::layout;
use crate::lease;
use crate::open;
use crate::reader::LogReader;
use crate::replay::{Home, LogDir, session_dir};
use crate::store::{Fork, Holder, OpenLog, Reader, Stamp, Store, Writer};
use crate::syncer::{Shared, State};
use crate::writer::{LogWriter, WriterState, make_ballast};

/// Sessions as directories on a disk.
#[derive(Debug, Clone)]
pub struct FileStore {
    pub(crate) home: Home,
    pub(crate) trash: PathBuf,
    pub(crate) holder: Holder,
    pub(crate) sync: bool,
    pub(crate) file_bytes: u64,
}

impl FileStore {
    /// Sessions in this directory; deleted ones go to `trash` beside it.
    pub fn new(disk: Arc<dyn Disk>, sessions: PathBuf) -> FileStore {
        let trash = sessions.parent().unwrap_or(Path::new("")).join(layout::TRASH);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = Holder { pid: Some(std::process::id()), host: Some(host), since: None, name: None };
        FileStore { home: Home { disk, sessions }, trash, holder, sync: true, file_bytes: FILE_BYTES }
    }

    /// For ephemeral sessions, which are never synced.
    #[must_use]
    pub fn unsynced(mut self) -> FileStore {
        self.sync = false;
        self
    }

    /// Begins the next log file at this size instead of 64 MiB.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> FileStore {
        self.file_bytes = bytes;
        self
    }

    /// Signs leases as somebody else than this process: the processes of a simulation are not ours.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> FileStore {
        self.holder = holder;
        self
    }

    /// Where the sessions lie.
    pub fn sessions(&self) -> &Path {
        &self.home.sessions
    }

    /// A session's directory, for a person who wants to look. Only this crate knows what is in it.
    pub fn path(&self, id: SessionId) -> PathBuf {
        session_dir(&self.home.sessions, id)
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.home.disk
    }

    pub(crate) fn log(&self, id: SessionId) -> LogDir {
        LogDir { home: self.home.clone(), id, dir: self.path(id), limit: None }
    }

    /// The log of a session that is there.
    pub(crate) fn existing(&self, id: SessionId) -> Result<LogDir, StoreError> {
        let log = self.log(id);
        match log.io("look for", self.disk().meta(&log.dir))? {
            Some(meta) if meta.directory => Ok(log),
            _ => Err(StoreError::NotFound { id, place: self.home.sessions.clone() }),
        }
    }

    pub(crate) fn held(&self, id: SessionId) -> Result<StoreError, StoreError> {
        let log = self.log(id);
        let who = log.io("read the lease of", lease::holder(self.disk(), &log.dir))?;
        Ok(StoreError::Held { id, who: who.unwrap_or_default() })
    }

    /// Removes a session that nobody holds and no fork needs, without a trace.
    pub(crate) fn forget(&self, id: SessionId) -> Result<(), StoreError> {
        fork::forget(self, id)
    }

    /// Makes a session under a name of its own, then gives it its id with one rename.
    pub(crate) fn make(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        let home = self.log(id);
        home.io("make", make_dirs(self.disk(), &self.home.sessions, self.sync))?;
        if home.io("look for", self.disk().meta(&home.dir))?.is_some() {
            return Err(StoreError::Exists { id });
        }
        let new = LogDir { dir: self.home.sessions.join(format!("{}{id}", layout::NEW)), ..home.clone() };
        let made = self.make_in(&new, step, blobs).and_then(|mut writer| {
            new.io("rename", self.disk().rename(&new.dir, &home.dir))?;
            writer.log = home.clone();
            writer.shared.state().path = layout::log_path(&home.dir, 0);
            Ok(writer)
        });
        match made {
            Ok(writer) => {
                if self.sync
                    && let Err(error) = self.disk().sync_dir(&self.home.sessions)
                {
                    // Nobody may believe in a session that a power cut would take away again.
                    return match self.disk().rename(&home.dir, &new.dir) {
                        Ok(()) => Err(self.abandon(&new, home.io("sync", Err(error)))),
                        Err(_) => home.io("sync", Err(error)),
                    };
                }
                Ok(Box::new(writer))
            }
            Err(error) => Err(self.abandon(&new, Err(error))),
        }
    }

    /// Removes what was left of sessions whose making was cut short. Nobody was told of one: its id is given out after its
    /// rename. One whose lease is held is being made now, and so may one be that has no lease file yet.
    pub fn sweep_unmade(&self) -> Result<usize, StoreError> {
        let disk = self.disk();
        let at = |source| StoreError::Io { what: "list", path: self.home.sessions.clone(), source };
        let names = match disk.read_dir(&self.home.sessions) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(at)?,
        };
        let mut removed = 0;
        for name in names {
            let Some(id) = name.strip_prefix(layout::NEW).and_then(layout::session_id) else { continue };
            let new = LogDir { dir: self.home.sessions.join(&name), ..self.log(id) };
            if new.io("look into", disk.meta(&new.dir.join(layout::LEASE)))?.is_none() {
                continue;
            }
            if let Some(_lease) = new.io("take the lease of", lease::take(disk, &new.dir))? {
                new.io("remove", remove_dirs(disk, &new.dir, 3))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes a session that did not come to be. What cannot be removed has a name that is no session's.
    fn abandon(&self, new: &LogDir, failed: Result<(), StoreError>) -> StoreError {
        match (remove_dirs(self.disk(), &new.dir, 3), failed) {
            (_, Err(error)) => error,
            (_, Ok(())) => StoreError::NotFound { id: new.id, place: new.dir.clone() },
        }
    }

    fn make_in(&self, new: &LogDir, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<LogWriter, StoreError> {
        let disk = self.disk();
        if new.io("look for", disk.meta(&new.dir))?.is_some() {
            // Somebody died while making this very session; whoever still is at it holds its lease.
            match new.io("take the lease of", lease::take(disk, &new.dir))? {
                Some(_) => new.io("remove", remove_dirs(disk, &new.dir, 3))?,
                None => return Err(StoreError::Exists { id: new.id }),
            }
        }
        new.io("make", disk.create_dir(&new.dir))?;
        let lease = new.io("take the lease of", lease::take(disk, &new.dir))?;
        let lease = lease.ok_or(StoreError::Exists { id: new.id })?;
        new.io("sign the lease of", lease::sign(&*lease, &self.holder))?;
        let path = layout::log_path(&new.dir, 0);
        let file = new.io("make the log in", disk.open(&path, OpenHow::AppendNew))?;
        let state = State::new(Arc::from(file), path, 0, None, Chain::ZERO);
        let mut writer = LogWriter {
            log: new.clone(),
            shared: Arc::new(Shared::new(self.home.disk.clone(), self.sync, state)),
            lease,
            holder: self.holder.clone(),
            file: 0,
            file_bytes: self.file_bytes,
            sync: self.sync,
            last_ts: 0,
            segment: None,
            head_due: None,
            state: WriterState::Ready,
        };
        let append = |source| StoreError::Append { id: new.id, source };
        writer.append(step, blobs).map_err(append)?;
        new.io("make the ballast in", make_ballast(disk, new))?;
        if self.sync {
            writer.syncer().sync().map_err(|e| append(crate::AppendError::Sync(e)))?;
            new.io("sync", disk.sync_dir(&new.dir))?;
        }
        Ok(writer)
    }
}

impl Store for FileStore {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        self.make(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenLog, StoreError> {
        let log = self.existing(id)?;
        log.files()?;
        match log.io("take the lease of", lease::take(self.disk(), &log.dir))? {
            Some(lease) => open::open(self, log, lease),
            None => Err(self.held(id)?),
        }
    }

    fn lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        let log = self.existing(id)?;
        match log.io("take the lease of", lease::take(self.disk(), &log.dir))? {
            Some(lease) => log.io("hand on the lease of", lease.duplicate()),
            None => Err(self.held(id)?),
        }
    }

    fn adopt(&self, id: SessionId, lease: OwnedFd) -> Result<OpenLog, StoreError> {
        let log = self.existing(id)?;
        let lease = log.io("take over the lease of", self.disk().adopt(lease))?;
        match log.io("take over the lease of", lease::adopt(self.disk(), &log.dir, lease))? {
            Some(lease) => open::open(self, log, lease),
            None => Err(StoreError::NotTheLease { id }),
        }
    }

    fn reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        let log = self.existing(id)?;
        log.files()?;
        Ok(Box::new(LogReader::new(log)))
    }

    fn list(&self) -> Result<Vec<SessionId>, StoreError> {
        let names = match self.disk().read_dir(&self.home.sessions) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|source| StoreError::Io {
                what: "list",
                path: self.home.sessions.clone(),
                source,
            })?,
        };
        let mut ids: Vec<SessionId> = names.iter().filter_map(|name| layout::session_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn stamp(&self, id: SessionId) -> Result<Stamp, StoreError> {
        let log = self.existing(id)?;
        let files = log.files()?;
        let path = log.dir.join(layout::log_name(files.last));
        match log.io("look at", self.disk().meta(&path))? {
            Some(meta) => Ok(Stamp { file: files.last, bytes: meta.bytes, modified: meta.modified }),
            None => Err(StoreError::NotFound { id, place: self.home.sessions.clone() }),
        }
    }

    fn holder(&self, id: SessionId) -> Result<Option<Holder>, StoreError> {
        let log = self.existing(id)?;
        log.io("read the lease of", lease::holder(self.disk(), &log.dir))
    }

    fn lies_at(&self, id: SessionId) -> Option<PathBuf> {
        Some(self.path(id))
    }

    fn fork(&self, fork: Fork<'_>) -> Result<Box<dyn Writer>, StoreError> {
        fork::fork(self, fork)
    }

    fn detach(&self, id: SessionId) -> Result<(), StoreError> {
        fork::detach(self, id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        fork::delete(self, id)
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        let log = self.existing(id)?;
        let blob = Blob::new(content);
        log.io("write a blob in", blobs::put(self.disk(), &log.dir, &blob, self.sync))?;
        Ok(blob.name)
    }

    fn keep_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        let log = self.existing(id)?;
        log.io("write a recording in", blobs::put(self.disk(), &log.dir, recording, false))
    }
}

/// Makes a directory and those above it, each synced into the one that it lies in.
pub(crate) fn make_dirs(disk: &dyn Disk, path: &Path, sync: bool) -> io::Result<()> {
    if path.as_os_str().is_empty() || disk.meta(path)?.is_some() {
        return Ok(());
    }
    let above = path.parent().unwrap_or(Path::new(""));
    make_dirs(disk, above, sync)?;
    match disk.create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if sync && !above.as_os_str().is_empty() { disk.sync_dir(above) } else { Ok(()) }
}

/// Removes a directory and what is in it, down to a depth that no session of ours exceeds while it is being made.
pub(crate) fn remove_dirs(disk: &dyn Disk, path: &Path, depth: u32) -> io::Result<()> {
    for name in disk.read_dir(path)? {
        let inner = path.join(name);
        let directory = disk.meta(&inner)?.is_some_and(|meta| meta.directory);
        if directory && depth > 0 {
            remove_dirs(disk, &inner, depth - 1)?;
        } else {
            disk.remove_file(&inner)?;
        }
    }
    disk.remove_dir(path)
}
