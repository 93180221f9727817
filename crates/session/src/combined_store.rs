//! A store that combines permanent sessions with ephemeral ones, which end with their pods.
//!
//! Ephemeral sessions are never synced and never listed, so no index contains them. Elsewhere: both directories
//! (`registry`), creating ephemeral sessions (the binary), removing them (a pod at its end, and the creator of the next
//! one).
//! Guarantee: an ephemeral session and its descendants are gone when its pod is; a permanent session is never touched
//! (`what_passes_goes_with_its_pod_and_what_is_kept_stays`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, Holder as Life, Kind, SessionId};

use crate::error::StoreError;
use crate::files::file_store::FileStore;
use crate::store::{
    ForkSpec, LeaseHolder, LogStamp, OpenSession, Reader, SealedEntry, SessionAvailability, SessionStore,
    Writer,
};

/// A store that searches both parts.
#[derive(Clone)]
pub struct CombinedStore {
    permanent: Arc<dyn SessionStore>,
    ephemeral: FileStore,
    /// Whether new sessions are ephemeral.
    creates_ephemeral: bool,
}

impl std::fmt::Debug for CombinedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TwoPlaces").field("passing", &self.ephemeral).finish_non_exhaustive()
    }
}

impl CombinedStore {
    /// Creates new sessions in the permanent store.
    pub fn new(permanent_store: impl SessionStore + 'static, passing: FileStore) -> CombinedStore {
        CombinedStore::with_permanent(Arc::new(permanent_store), passing)
    }

    /// The same with a shared permanent store.
    pub fn with_permanent(permanent: Arc<dyn SessionStore>, passing: FileStore) -> CombinedStore {
        CombinedStore { permanent, ephemeral: passing.without_sync(), creates_ephemeral: false }
    }

    /// Creates new sessions in the part that contains this session, for its pod.
    #[must_use]
    pub fn for_pod_of(mut self, session: SessionId) -> CombinedStore {
        self.creates_ephemeral = self.is_ephemeral(session);
        self
    }

    /// Creates new sessions as ephemeral ones.
    #[must_use]
    pub fn creating_ephemeral(mut self) -> CombinedStore {
        self.creates_ephemeral = true;
        self
    }

    /// Returns whether a session is ephemeral.
    pub fn is_ephemeral(&self, id: SessionId) -> bool {
        self.ephemeral.existing_log(id).is_ok()
    }

    /// Removes every ephemeral session that has had a pod and whose lease is free, and those without a parent.
    pub fn sweep_ephemeral(&self) -> Result<usize, StoreError> {
        let mut swept = 0;
        loop {
            let before = swept;
            for id in self.ephemeral.list_sessions()? {
                if self.is_finished(id) {
                    match self.ephemeral.purge_session(id) {
                        Ok(()) => swept += 1,
                        // Another process has opened or removed it.
                        Err(
                            StoreError::Held { .. }
                            | StoreError::NotFound { .. }
                            | StoreError::HasForks { .. },
                        ) => {}
                        Err(other) => return Err(other),
                    }
                }
            }
            if swept == before {
                return Ok(swept);
            }
        }
    }

    /// Returns whether a session can be removed. An unreadable one stays until the next boot.
    fn is_finished(&self, id: SessionId) -> bool {
        let is_held = self.ephemeral.lease_holder(id).map_or(true, |holder| holder.is_some());
        let Ok(reader) = self.ephemeral.open_reader(id) else { return false };
        let (mut parent, mut lived) = (None, false);
        let read = reader.scan_entries(0, &mut |sealed: SealedEntry| {
            match &sealed.entry.kind {
                Kind::SessionStart(start) => parent = start.parent.as_ref().map(|parent| parent.session),
                Kind::Opened(opened) => lived |= opened.holder == Life::Pod,
                _ => {}
            }
            if lived { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let over = match parent {
            Some(parent) => self.store_of(parent).log_stamp(parent).is_err(),
            None => lived,
        };
        read.is_ok() && !is_held && over
    }

    fn store_of(&self, id: SessionId) -> &dyn SessionStore {
        if self.is_ephemeral(id) { &self.ephemeral } else { &*self.permanent }
    }
}

impl SessionStore for CombinedStore {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        let place: &dyn SessionStore =
            if self.creates_ephemeral { &self.ephemeral } else { &*self.permanent };
        place.create(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenSession, StoreError> {
        self.store_of(id).open(id)
    }

    fn take_lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        self.store_of(id).take_lease(id)
    }

    fn open_with_lease(&self, id: SessionId, lease: OwnedFd) -> Result<OpenSession, StoreError> {
        self.store_of(id).open_with_lease(id, lease)
    }

    fn open_reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        self.store_of(id).open_reader(id)
    }

    fn list_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        self.permanent.list_sessions()
    }

    fn log_stamp(&self, id: SessionId) -> Result<LogStamp, StoreError> {
        self.store_of(id).log_stamp(id)
    }

    fn all_stamps(&self) -> Result<Option<BTreeMap<SessionId, LogStamp>>, StoreError> {
        self.permanent.all_stamps()
    }

    fn availability(&self, ids: &[SessionId]) -> Result<Vec<SessionAvailability>, StoreError> {
        self.permanent.availability(ids)
    }

    fn claim_sessions(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        self.permanent.claim_sessions(ids)
    }

    fn check_startable(&self, id: SessionId) -> Result<(), StoreError> {
        self.store_of(id).check_startable(id)
    }

    fn is_shared(&self) -> bool {
        self.permanent.is_shared()
    }

    fn session_path(&self, id: SessionId) -> Option<PathBuf> {
        self.store_of(id).session_path(id)
    }

    fn lease_holder(&self, id: SessionId) -> Result<Option<LeaseHolder>, StoreError> {
        self.store_of(id).lease_holder(id)
    }

    fn fork(&self, fork: ForkSpec<'_>) -> Result<Box<dyn Writer>, StoreError> {
        self.store_of(fork.parent).fork(fork)
    }

    fn detach_fork(&self, id: SessionId) -> Result<(), StoreError> {
        self.store_of(id).detach_fork(id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        if self.is_ephemeral(id) { self.ephemeral.purge_session(id) } else { self.permanent.delete(id) }
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        self.store_of(id).put_blob(id, content)
    }

    fn store_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        self.store_of(id).store_recording(id, recording)
    }
}
