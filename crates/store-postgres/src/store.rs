//! The store: the file store over tables, and what PostgreSQL can say with one query.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, SessionId};
use minke_session::{Disk, FileStore, Fork, Holder, OpenLog, Reader, Stamp, Store, StoreError, Writer};

use crate::disk::TableDisk;
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
        self.files.open(id)
    }

    fn lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        self.files.lease(id)
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
        self.files.stamp(id)
    }

    fn holder(&self, id: SessionId) -> Result<Option<Holder>, StoreError> {
        self.files.holder(id)
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
