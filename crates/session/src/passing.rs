//! Two places for sessions: where they are kept, and where those lie that go with their pod.
//!
//! The second place is never synced and never listed, so no index knows of it. Elsewhere: where both are (`registry`), who
//! makes a session that passes (the binary), who sweeps (a pod at its end, and whoever makes the next).
//! Promise: a session that passes is gone when its pod is, with everybody below it; nothing that is kept is ever touched
//! (`what_passes_goes_with_its_pod_and_what_is_kept_stays`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, Holder as Life, Kind, SessionId};

use crate::error::StoreError;
use crate::file::FileStore;
use crate::store::{Fork, Holder, OpenLog, Reader, Sealed, Stamp, Standing, Store, Writer};

/// A store that looks in both places.
#[derive(Clone)]
pub struct TwoPlaces {
    kept: Arc<dyn Store>,
    passing: FileStore,
    /// Where new sessions are made.
    passes: bool,
}

impl std::fmt::Debug for TwoPlaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TwoPlaces").field("passing", &self.passing).finish_non_exhaustive()
    }
}

impl TwoPlaces {
    /// New sessions are kept.
    pub fn new(kept: impl Store + 'static, passing: FileStore) -> TwoPlaces {
        TwoPlaces::over(Arc::new(kept), passing)
    }

    /// The same where others know the first place, too.
    pub fn over(kept: Arc<dyn Store>, passing: FileStore) -> TwoPlaces {
        TwoPlaces { kept, passing: passing.unsynced(), passes: false }
    }

    /// The same for the pod of a session: what it makes lies where it lies itself.
    #[must_use]
    pub fn beside(mut self, session: SessionId) -> TwoPlaces {
        self.passes = self.passes(session);
        self
    }

    /// The same for whoever makes a session that passes.
    #[must_use]
    pub fn in_passing(mut self) -> TwoPlaces {
        self.passes = true;
        self
    }

    /// Whether a session is one that passes.
    pub fn passes(&self, id: SessionId) -> bool {
        self.passing.existing(id).is_ok()
    }

    /// Removes every session that passes, has had its pod and has nobody now, and those whose parent is gone.
    pub fn sweep(&self) -> Result<usize, StoreError> {
        let mut swept = 0;
        loop {
            let before = swept;
            for id in self.passing.list()? {
                if self.is_over(id) {
                    match self.passing.forget(id) {
                        Ok(()) => swept += 1,
                        // Somebody has come, or has swept before us.
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

    /// One that cannot be read is left to the next boot of the machine.
    fn is_over(&self, id: SessionId) -> bool {
        let held = self.passing.holder(id).map_or(true, |holder| holder.is_some());
        let Ok(reader) = self.passing.reader(id) else { return false };
        let (mut parent, mut lived) = (None, false);
        let read = reader.scan(0, &mut |sealed: Sealed| {
            match &sealed.entry.kind {
                Kind::SessionStart(start) => parent = start.parent.as_ref().map(|parent| parent.session),
                Kind::Opened(opened) => lived |= opened.holder == Life::Pod,
                _ => {}
            }
            if lived { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let over = match parent {
            Some(parent) => self.of(parent).stamp(parent).is_err(),
            None => lived,
        };
        read.is_ok() && !held && over
    }

    fn of(&self, id: SessionId) -> &dyn Store {
        if self.passes(id) { &self.passing } else { &*self.kept }
    }
}

impl Store for TwoPlaces {
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError> {
        let place: &dyn Store = if self.passes { &self.passing } else { &*self.kept };
        place.create(id, step, blobs)
    }

    fn open(&self, id: SessionId) -> Result<OpenLog, StoreError> {
        self.of(id).open(id)
    }

    fn lease(&self, id: SessionId) -> Result<OwnedFd, StoreError> {
        self.of(id).lease(id)
    }

    fn adopt(&self, id: SessionId, lease: OwnedFd) -> Result<OpenLog, StoreError> {
        self.of(id).adopt(id, lease)
    }

    fn reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError> {
        self.of(id).reader(id)
    }

    fn list(&self) -> Result<Vec<SessionId>, StoreError> {
        self.kept.list()
    }

    fn stamp(&self, id: SessionId) -> Result<Stamp, StoreError> {
        self.of(id).stamp(id)
    }

    fn stamps(&self) -> Result<Option<BTreeMap<SessionId, Stamp>>, StoreError> {
        self.kept.stamps()
    }

    fn standing(&self, ids: &[SessionId]) -> Result<Vec<Standing>, StoreError> {
        self.kept.standing(ids)
    }

    fn claim(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        self.kept.claim(ids)
    }

    fn may_start(&self, id: SessionId) -> Result<(), StoreError> {
        self.of(id).may_start(id)
    }

    fn is_shared(&self) -> bool {
        self.kept.is_shared()
    }

    fn lies_at(&self, id: SessionId) -> Option<PathBuf> {
        self.of(id).lies_at(id)
    }

    fn holder(&self, id: SessionId) -> Result<Option<Holder>, StoreError> {
        self.of(id).holder(id)
    }

    fn fork(&self, fork: Fork<'_>) -> Result<Box<dyn Writer>, StoreError> {
        self.of(fork.parent).fork(fork)
    }

    fn detach(&self, id: SessionId) -> Result<(), StoreError> {
        self.of(id).detach(id)
    }

    fn delete(&self, id: SessionId) -> Result<(), StoreError> {
        if self.passes(id) { self.passing.forget(id) } else { self.kept.delete(id) }
    }

    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError> {
        self.of(id).put_blob(id, content)
    }

    fn keep_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError> {
        self.of(id).keep_recording(id, recording)
    }
}
