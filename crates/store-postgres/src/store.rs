//! The store: the file store over tables, and what PostgreSQL can say with one query.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, SessionId};
use minke_session::{
    Disk, FileStore, Fork, Holder, OpenLog, Reader, Stamp, Standing, Store, StoreError, Writer,
};

use crate::disk::TableDisk;
use crate::locks::{self, LEASE};
use crate::queries::{self, Row, Whose};
use crate::settings::Settings;

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
    /// Connects when it is first used.
    pub fn new(settings: Settings) -> io::Result<PostgresStore> {
        let disk = Arc::new(TableDisk::new(settings)?);
        let root = disk.root.join("sessions");
        Ok(PostgresStore { files: FileStore::new(Arc::clone(&disk) as Arc<dyn Disk>, root), disk })
    }

    /// The same as files, for those who mend them.
    pub fn files(&self) -> &FileStore {
        &self.files
    }

    /// The disk that it is made of.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk) as Arc<dyn Disk>
    }

    /// Whom to tell when a lease that this process holds is another's, or may be: whoever holds it must do nothing more.
    pub fn on_loss(&self, lost: impl Fn(&str) + Send + Sync + 'static) {
        self.disk.link.held.on_loss(Arc::new(lost));
    }

    /// Where the sessions are, as errors say it.
    pub fn place(&self) -> PathBuf {
        self.disk.root.clone()
    }
}

impl PostgresStore {
    fn io<T>(&self, what: &'static str, done: io::Result<T>) -> Result<T, StoreError> {
        done.map_err(|source| StoreError::Io { what, path: self.files.sessions().to_owned(), source })
    }

    fn row(&self, id: SessionId) -> Result<Row, StoreError> {
        let row = self.io("look for a session in", queries::rows(&self.disk.link, &[id]))?.remove(&id);
        row.ok_or_else(|| StoreError::NotFound { id, place: self.files.sessions().to_owned() })
    }

    /// Whether a process of this home has the kernel lock.
    fn is_locked(&self, id: SessionId) -> Result<bool, StoreError> {
        let path = locks::local(&self.disk.locks, &queries::name(id), LEASE);
        let look = || match std::fs::File::open(&path) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(e)) => Err(e),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        look().map_err(|source| StoreError::Io { what: "read the lease", path: path.clone(), source })
    }

    /// Says it when the holder is not of this home: then waiting for a socket is of no use.
    fn elsewhere<T>(&self, id: SessionId, done: Result<T, StoreError>) -> Result<T, StoreError> {
        match done {
            Err(StoreError::Held { id: held, who }) => match self.row(id)?.held {
                Some(Whose::Other) => Err(StoreError::HeldElsewhere { id, who }),
                _ => Err(StoreError::Held { id: held, who }),
            },
            other => other,
        }
    }
}

impl Store for PostgresStore {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        self.files.create(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenLog, StoreError> {
        self.elsewhere(id, self.files.open(id))
    }

    /// Whoever asks for the lease alone starts a pod with it.
    fn lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        self.may_start(id)?;
        self.elsewhere(id, self.files.lease(id))
    }

    fn may_start(&self, id: SessionId) -> Result<(), StoreError> {
        let (label, here) = (self.row(id)?.label, self.disk.label.clone());
        if label == here { Ok(()) } else { Err(StoreError::WorkspaceElsewhere { id, label, here }) }
    }

    fn adopt(&self, id: SessionId, lease: OwnedFd) -> Result<OpenLog, StoreError> {
        self.files.adopt(id, lease)
    }

    fn reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        self.files.reader(id)
    }

    fn list(&self) -> Result<Vec<SessionId>, StoreError> {
        self.files.list()
    }

    fn stamp(&self, id: SessionId) -> Result<Stamp, StoreError> {
        let found = self.io("look at", queries::stamps(&self.disk.link, Some(id)))?;
        match found.get(&id) {
            Some(stamp) => Ok(*stamp),
            // Not there, or not as it should be: the long way says what is wrong.
            None => self.files.stamp(id),
        }
    }

    fn stamps(&self) -> Result<Option<BTreeMap<SessionId, Stamp>>, StoreError> {
        self.io("list", queries::stamps(&self.disk.link, None)).map(Some)
    }

    fn standing(&self, ids: &[SessionId]) -> Result<Vec<Standing>, StoreError> {
        let rows = self.io("look at", queries::rows(&self.disk.link, ids))?;
        ids.iter()
            .map(|id| {
                let Some(row) = rows.get(id) else { return Ok(Standing::Gone) };
                if row.label != self.disk.label || row.held == Some(Whose::Other) {
                    return Ok(Standing::Elsewhere);
                }
                let held = row.held == Some(Whose::Ours) && self.is_locked(*id)?;
                Ok(if held { Standing::Held } else { Standing::Free })
            })
            .collect()
    }

    fn claim(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        self.io("claim sessions in", queries::claim(&self.disk.link, &self.disk.label, ids))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn holder(&self, id: SessionId) -> Result<Option<Holder>, StoreError> {
        let row = self.row(id)?;
        let held = match row.held {
            None => false,
            Some(Whose::Other) => true,
            Some(Whose::Ours) => self.is_locked(id)?,
        };
        // Between taking the lease and signing it, nobody can say who it is.
        Ok(held.then(|| Holder { since: row.since, ..serde_json::from_str(&row.holder).unwrap_or_default() }))
    }

    fn fork(&self, fork: Fork<'_>) -> Result<Box<dyn Writer>, StoreError> {
        self.files.fork(fork)
    }

    fn detach(&self, id: SessionId) -> Result<(), StoreError> {
        self.files.detach(id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        self.files.delete(id)
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        self.files.put_blob(id, content)
    }

    fn keep_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        self.files.keep_recording(id, recording)
    }
}
