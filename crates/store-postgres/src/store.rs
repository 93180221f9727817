//! The store: the file store on tables, with single queries where PostgreSQL allows it.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, SessionId};
use minke_session::{
    Disk, FileStore, ForkSpec, LeaseHolder, LogStamp, OpenSession, Reader, SessionAvailability, SessionStore,
    StoreError, Writer,
};

use crate::disk::TableDisk;
use crate::locks::{self, LEASE_LOCK};
use crate::queries::{self, LeaseOwner, LeaseRow};
use crate::settings::PostgresSettings;

/// Sessions in PostgreSQL.
#[derive(Clone)]
pub struct PostgresStore {
    files: FileStore,
    disk: Arc<TableDisk>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresStore({})", self.disk.root.display())
    }
}

impl PostgresStore {
    /// Creates the store. Connects at the first use.
    pub fn new(settings: PostgresSettings) -> io::Result<PostgresStore> {
        let disk = Arc::new(TableDisk::new(settings)?);
        let root = disk.root.join("sessions");
        Ok(PostgresStore { files: FileStore::new(Arc::clone(&disk) as Arc<dyn Disk>, root), disk })
    }

    /// Returns the file store, for repairs.
    pub fn files(&self) -> &FileStore {
        &self.files
    }

    /// Returns the disk of the store.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk) as Arc<dyn Disk>
    }

    /// Sets the function that is called when a lease of this process belongs, or may belong, to another one. The
    /// process must then stop writing.
    pub fn on_loss(&self, lost: impl Fn(&str) + Send + Sync + 'static) {
        self.disk.link.held_leases.on_loss(Arc::new(lost));
    }

    /// Returns the location of the sessions, for error messages.
    pub fn display_path(&self) -> PathBuf {
        self.disk.root.clone()
    }
}

impl PostgresStore {
    fn io_result<T>(&self, action: &'static str, done: io::Result<T>) -> Result<T, StoreError> {
        done.map_err(|source| StoreError::Io {
            what: action,
            path: self.files.sessions_dir().to_owned(),
            source,
        })
    }

    fn lease_row(&self, id: SessionId) -> Result<LeaseRow, StoreError> {
        let row =
            self.io_result("look for a session in", queries::lease_rows(&self.disk.link, &[id]))?.remove(&id);
        row.ok_or_else(|| StoreError::NotFound { id, place: self.files.sessions_dir().to_owned() })
    }

    /// Returns whether a process of this home has the kernel lock.
    fn is_kernel_locked(&self, id: SessionId) -> Result<bool, StoreError> {
        let path = locks::local_lock_path(&self.disk.locks, &queries::session_name(id), LEASE_LOCK);
        let try_kernel_lock = || match std::fs::File::open(&path) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(e)) => Err(e),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        try_kernel_lock().map_err(|source| StoreError::Io {
            what: "read the lease",
            path: path.clone(),
            source,
        })
    }

    /// Marks an error if the holder belongs to another home: then waiting for its socket is useless.
    fn with_holder_home<T>(&self, id: SessionId, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match done {
            Err(StoreError::Held { id: is_held, who }) => match self.lease_row(id)?.owner {
                Some(LeaseOwner::OtherHome) => Err(StoreError::HeldByOtherHome { id, who }),
                _ => Err(StoreError::Held { id: is_held, who }),
            },
            other => other,
        }
    }
}

impl SessionStore for PostgresStore {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        self.files.create(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenSession, StoreError> {
        self.with_holder_home(id, self.files.open(id))
    }

    /// Takes the lease for starting a pod.
    fn take_lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        self.check_startable(id)?;
        self.with_holder_home(id, self.files.take_lease(id))
    }

    fn check_startable(&self, id: SessionId) -> Result<(), StoreError> {
        let (label, here) = (self.lease_row(id)?.label, self.disk.label.clone());
        if label == here { Ok(()) } else { Err(StoreError::WorkspaceOnOtherHost { id, label, here }) }
    }

    fn open_with_lease(&self, id: SessionId, lease: OwnedFd) -> Result<OpenSession, StoreError> {
        self.files.open_with_lease(id, lease)
    }

    fn open_reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        self.files.open_reader(id)
    }

    fn list_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        self.files.list_sessions()
    }

    fn log_stamp(&self, id: SessionId) -> Result<LogStamp, StoreError> {
        let found = self.io_result("look at", queries::log_stamps(&self.disk.link, Some(id)))?;
        match found.get(&id) {
            Some(stamp) => Ok(*stamp),
            // Missing or damaged: the file store determines the error.
            None => self.files.log_stamp(id),
        }
    }

    fn all_stamps(&self) -> Result<Option<BTreeMap<SessionId, LogStamp>>, StoreError> {
        self.io_result("list", queries::log_stamps(&self.disk.link, None)).map(Some)
    }

    fn availability(&self, ids: &[SessionId]) -> Result<Vec<SessionAvailability>, StoreError> {
        let rows = self.io_result("look at", queries::lease_rows(&self.disk.link, ids))?;
        ids.iter()
            .map(|id| {
                let Some(row) = rows.get(id) else { return Ok(SessionAvailability::Gone) };
                if row.label != self.disk.label || row.owner == Some(LeaseOwner::OtherHome) {
                    return Ok(SessionAvailability::Elsewhere);
                }
                let is_held = row.owner == Some(LeaseOwner::ThisHome) && self.is_kernel_locked(*id)?;
                Ok(if is_held { SessionAvailability::Held } else { SessionAvailability::Free })
            })
            .collect()
    }

    fn claim_sessions(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        self.io_result("claim sessions in", queries::claim_sessions(&self.disk.link, &self.disk.label, ids))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn lease_holder(&self, id: SessionId) -> Result<Option<LeaseHolder>, StoreError> {
        let row = self.lease_row(id)?;
        let is_held = match row.owner {
            None => false,
            Some(LeaseOwner::OtherHome) => true,
            Some(LeaseOwner::ThisHome) => self.is_kernel_locked(id)?,
        };
        // A holder that has not signed the lease yet is unknown.
        Ok(is_held.then(|| LeaseHolder {
            since: row.since,
            ..serde_json::from_str(&row.holder).unwrap_or_default()
        }))
    }

    fn fork(&self, fork: ForkSpec<'_>) -> Result<Box<dyn Writer>, StoreError> {
        self.files.fork(fork)
    }

    fn detach_fork(&self, id: SessionId) -> Result<(), StoreError> {
        self.files.detach_fork(id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.files.delete(id)
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        self.files.put_blob(id, content)
    }

    fn store_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        self.files.store_recording(id, recording)
    }
}
