//! The file store: sessions as directories on a disk.
//!
//! Here: creating, finding and removing sessions. Elsewhere: opening one for writing (`open`), forks (`fork`), reading
//! (`reader`).
//! Guarantee: a session exists with its whole first step, synced, or not at all
//! (`a_fault_at_every_disk_operation_loses_nothing_written`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::limits::FILE_BYTES;
use minke_record::{Blob, BlobRef, ChainHash, Draft, SessionId};

use crate::error::StoreError;
use crate::files::blobs;
use crate::files::disk::{Disk, OpenMode};
use crate::files::layout;
use crate::files::lease;
use crate::fork;
use crate::log::open;
use crate::log::reader::LogReader;
use crate::log::replay::{LogDir, StoreHome, session_dir};
use crate::log::syncer::{SharedLogFile, SyncState};
use crate::log::writer::{LogWriter, LogWriterState, make_ballast};
use crate::store::{ForkSpec, LeaseHolder, LogStamp, OpenSession, Reader, SessionStore, Writer};

/// Sessions as directories on a disk.
#[derive(Debug, Clone)]
pub struct FileStore {
    pub(crate) home: StoreHome,
    pub(crate) trash_dir: PathBuf,
    pub(crate) holder: LeaseHolder,
    pub(crate) sync: bool,
    pub(crate) file_bytes: u64,
}

impl FileStore {
    /// Keeps sessions in this directory; moves deleted ones to `trash` next to it.
    pub fn new(disk: Arc<dyn Disk>, sessions: PathBuf) -> FileStore {
        let trash_dir = sessions.parent().unwrap_or(Path::new("")).join(layout::TRASH_DIR);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = LeaseHolder { pid: Some(std::process::id()), host: Some(host), since: None, name: None };
        FileStore {
            home: StoreHome { disk, sessions },
            trash_dir,
            holder,
            sync: true,
            file_bytes: FILE_BYTES,
        }
    }

    /// For ephemeral sessions, which are never synced.
    #[must_use]
    pub fn without_sync(mut self) -> FileStore {
        self.sync = false;
        self
    }

    /// Starts the next log file at this size instead of 64 MiB.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> FileStore {
        self.file_bytes = bytes;
        self
    }

    /// Signs leases as another process than this one, for simulated processes.
    #[must_use]
    pub fn with_holder(mut self, holder: LeaseHolder) -> FileStore {
        self.holder = holder;
        self
    }

    /// Returns the directory of all sessions.
    pub fn sessions_dir(&self) -> &Path {
        &self.home.sessions
    }

    /// Returns a session's directory, for display. Only this crate knows its content.
    pub fn session_dir(&self, id: SessionId) -> PathBuf {
        session_dir(&self.home.sessions, id)
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.home.disk
    }

    pub(crate) fn log_dir(&self, id: SessionId) -> LogDir {
        LogDir { home: self.home.clone(), id, dir: self.session_dir(id), limit: None }
    }

    /// Returns the log of an existing session.
    pub(crate) fn existing_log(&self, id: SessionId) -> Result<LogDir, StoreError> {
        let log = self.log_dir(id);
        match log.io_result("look for", self.disk().metadata(&log.dir))? {
            Some(meta) if meta.is_dir => Ok(log),
            _ => Err(StoreError::NotFound { id, place: self.home.sessions.clone() }),
        }
    }

    pub(crate) fn held_error(&self, id: SessionId) -> Result<StoreError, StoreError> {
        let log = self.log_dir(id);
        let holder_info = log.io_result("read the lease of", lease::read_holder(self.disk(), &log.dir))?;
        Ok(StoreError::Held { id, who: holder_info.unwrap_or_default() })
    }

    /// Permanently removes a session whose lease is free and that no fork needs.
    pub(crate) fn purge_session(&self, id: SessionId) -> Result<(), StoreError> {
        fork::purge_session(self, id)
    }

    /// Creates a session under a temporary name, then renames it to its id.
    pub(crate) fn create_named_later(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        let home = self.log_dir(id);
        home.io_result("create", create_dirs(self.disk(), &self.home.sessions, self.sync))?;
        if home.io_result("look for", self.disk().metadata(&home.dir))?.is_some() {
            return Err(StoreError::Exists { id });
        }
        let new = LogDir {
            dir: self.home.sessions.join(format!("{}{id}", layout::UNFINISHED_PREFIX)),
            ..home.clone()
        };
        let made = self.create_in(&new, step, blobs).and_then(|mut writer| {
            new.io_result("rename", self.disk().rename(&new.dir, &home.dir))?;
            writer.log = home.clone();
            writer.shared.lock_state().path = layout::log_file_path(&home.dir, 0);
            Ok(writer)
        });
        match made {
            Ok(writer) => {
                if self.sync
                    && let Err(error) = self.disk().sync_dir(&self.home.sessions)
                {
                    // The rename is undone, since a power cut could remove the session again.
                    return match self.disk().rename(&home.dir, &new.dir) {
                        Ok(()) => Err(self.discard_unfinished(&new, home.io_result("sync", Err(error)))),
                        Err(_) => home.io_result("sync", Err(error)),
                    };
                }
                Ok(Box::new(writer))
            }
            Err(error) => Err(self.discard_unfinished(&new, Err(error))),
        }
    }

    /// Removes the remains of sessions whose creation was interrupted. Their ids were never returned, since that
    /// happens after the rename. A session with a held lease, or without a lease file, may still be in creation and
    /// stays.
    pub fn remove_unfinished(&self) -> Result<usize, StoreError> {
        let disk = self.disk();
        let at = |source| StoreError::Io { what: "list", path: self.home.sessions.clone(), source };
        let names = match disk.read_dir(&self.home.sessions) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(at)?,
        };
        let mut removed = 0;
        for name in names {
            let Some(id) = name.strip_prefix(layout::UNFINISHED_PREFIX).and_then(layout::parse_session_id)
            else {
                continue;
            };
            let new = LogDir { dir: self.home.sessions.join(&name), ..self.log_dir(id) };
            if new.io_result("look into", disk.metadata(&new.dir.join(layout::LEASE_FILE)))?.is_none() {
                continue;
            }
            if let Some(_lease) = new.io_result("take the lease of", lease::take_lease(disk, &new.dir))? {
                new.io_result("remove", remove_dir_tree(disk, &new.dir, 3))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes a session whose creation failed. If that fails, the directory keeps a name that is not a session id.
    fn discard_unfinished(&self, new: &LogDir, failed: Result<(), StoreError>) -> StoreError {
        match (remove_dir_tree(self.disk(), &new.dir, 3), failed) {
            (_, Err(error)) => error,
            (_, Ok(())) => StoreError::NotFound { id: new.id, place: new.dir.clone() },
        }
    }

    fn create_in(&self, new: &LogDir, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<LogWriter, StoreError> {
        let disk = self.disk();
        if new.io_result("look for", disk.metadata(&new.dir))?.is_some() {
            // A process died while it created this session; a live one would hold the lease.
            match new.io_result("take the lease of", lease::take_lease(disk, &new.dir))? {
                Some(_) => new.io_result("remove", remove_dir_tree(disk, &new.dir, 3))?,
                None => return Err(StoreError::Exists { id: new.id }),
            }
        }
        new.io_result("make", disk.create_dir(&new.dir))?;
        let lease = new.io_result("take the lease of", lease::take_lease(disk, &new.dir))?;
        let lease = lease.ok_or(StoreError::Exists { id: new.id })?;
        new.io_result("sign the lease of", lease::write_holder(&*lease, &self.holder))?;
        let path = layout::log_file_path(&new.dir, 0);
        let file = new.io_result("create the log in", disk.open(&path, OpenMode::AppendNew))?;
        let state = SyncState::new(Arc::from(file), path, 0, None, ChainHash::ZERO);
        let mut writer = LogWriter {
            log: new.clone(),
            shared: Arc::new(SharedLogFile::new(self.home.disk.clone(), self.sync, state)),
            lease,
            holder: self.holder.clone(),
            file: 0,
            file_bytes: self.file_bytes,
            sync: self.sync,
            last_ts: 0,
            segment: None,
            pending_head: None,
            state: LogWriterState::Ready,
        };
        let append = |source| StoreError::Append { id: new.id, source };
        writer.append(step, blobs).map_err(append)?;
        new.io_result("create the ballast in", make_ballast(disk, new))?;
        if self.sync {
            writer.syncer().sync().map_err(|e| append(crate::AppendError::Sync(e)))?;
            new.io_result("sync", disk.sync_dir(&new.dir))?;
        }
        Ok(writer)
    }
}

impl SessionStore for FileStore {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        self.create_named_later(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenSession, StoreError> {
        let log = self.existing_log(id)?;
        log.log_files()?;
        match log.io_result("take the lease of", lease::take_lease(self.disk(), &log.dir))? {
            Some(lease) => open::open_log(self, log, lease),
            None => Err(self.held_error(id)?),
        }
    }

    fn take_lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        let log = self.existing_log(id)?;
        match log.io_result("take the lease of", lease::take_lease(self.disk(), &log.dir))? {
            Some(lease) => log.io_result("duplicate the lease of", lease.duplicate_fd()),
            None => Err(self.held_error(id)?),
        }
    }

    fn open_with_lease(&self, id: SessionId, lease: OwnedFd) -> Result<OpenSession, StoreError> {
        let log = self.existing_log(id)?;
        let lease = log.io_result("take over the lease of", self.disk().adopt_fd(lease))?;
        match log.io_result("take over the lease of", lease::adopt_lease(self.disk(), &log.dir, lease))? {
            Some(lease) => open::open_log(self, log, lease),
            None => Err(StoreError::WrongLease { id }),
        }
    }

    fn open_reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        let log = self.existing_log(id)?;
        log.log_files()?;
        Ok(Box::new(LogReader::new(log)))
    }

    fn list_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let names = match self.disk().read_dir(&self.home.sessions) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|source| StoreError::Io {
                what: "list",
                path: self.home.sessions.clone(),
                source,
            })?,
        };
        let mut ids: Vec<SessionId> =
            names.iter().filter_map(|name| layout::parse_session_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn log_stamp(&self, id: SessionId) -> Result<LogStamp, StoreError> {
        let log = self.existing_log(id)?;
        let files = log.log_files()?;
        let path = log.dir.join(layout::log_file_name(files.last));
        match log.io_result("look at", self.disk().metadata(&path))? {
            Some(meta) => Ok(LogStamp { file: files.last, bytes: meta.bytes, modified: meta.modified }),
            None => Err(StoreError::NotFound { id, place: self.home.sessions.clone() }),
        }
    }

    fn lease_holder(&self, id: SessionId) -> Result<Option<LeaseHolder>, StoreError> {
        let log = self.existing_log(id)?;
        log.io_result("read the lease of", lease::read_holder(self.disk(), &log.dir))
    }

    fn session_path(&self, id: SessionId) -> Option<PathBuf> {
        Some(self.session_dir(id))
    }

    fn fork(&self, fork: ForkSpec<'_>) -> Result<Box<dyn Writer>, StoreError> {
        fork::fork_session(self, fork)
    }

    fn detach_fork(&self, id: SessionId) -> Result<(), StoreError> {
        fork::detach_fork(self, id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        fork::delete_session(self, id)
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        let log = self.existing_log(id)?;
        let blob = Blob::new(content);
        log.io_result("write a blob in", blobs::store_blob(self.disk(), &log.dir, &blob, self.sync))?;
        Ok(blob.name)
    }

    fn store_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        let log = self.existing_log(id)?;
        log.io_result("write a recording in", blobs::store_blob(self.disk(), &log.dir, recording, false))
    }
}

/// Creates a directory and its parents, and syncs each into its parent.
pub(crate) fn create_dirs(disk: &dyn Disk, path: &Path, sync: bool) -> io::Result<()> {
    if path.as_os_str().is_empty() || disk.metadata(path)?.is_some() {
        return Ok(());
    }
    let above = path.parent().unwrap_or(Path::new(""));
    create_dirs(disk, above, sync)?;
    match disk.create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if sync && !above.as_os_str().is_empty() { disk.sync_dir(above) } else { Ok(()) }
}

/// Removes a directory and its content, down to the maximum depth of an unfinished session.
pub(crate) fn remove_dir_tree(disk: &dyn Disk, path: &Path, depth: u32) -> io::Result<()> {
    for name in disk.read_dir(path)? {
        let inner = path.join(name);
        let directory = disk.metadata(&inner)?.is_some_and(|meta| meta.is_dir);
        if directory && depth > 0 {
            remove_dir_tree(disk, &inner, depth - 1)?;
        } else {
            disk.remove_file(&inner)?;
        }
    }
    disk.remove_dir(path)
}
