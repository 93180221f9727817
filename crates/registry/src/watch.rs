//! Waits for the end of a pod: of its process and all processes that it started.
//!
//! Elsewhere: the removal of its row (`table`), which happens before the wait ends.
//! Invariant: the wait ends only after the scope has returned (`a_watch_ends_when_the_scope_is_back`).

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use minke_record::{PodName, SessionId};

use crate::error::{RegistryError, io_error};
use crate::files::retry_lock;
use crate::liveness::has_live_sandbox;
use crate::runtime_dir::RuntimeDir;

/// The poll interval. It grows.
const MIN_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// Waits for the end of one pod.
#[derive(Debug)]
pub struct PodWatch {
    runtime: RuntimeDir,
    name: PodName,
    session: SessionId,
}

impl RuntimeDir {
    /// Creates a watch for the pod of a session. A pod without a row has already ended.
    pub fn watch_pod(&self, name: &PodName, session: SessionId) -> PodWatch {
        PodWatch { runtime: self.clone(), name: name.clone(), session }
    }
}

impl PodWatch {
    /// Waits until the pod, all its processes and its row are gone, at most for `patience`. Returns whether they are.
    /// Blocks, so call it on a thread of its own.
    pub fn wait_until_gone(&self, timeout: Option<Duration>) -> Result<bool, RegistryError> {
        let until = timeout.map(|patience| Instant::now() + patience);
        let mut pause = MIN_PAUSE;
        loop {
            // The table is read only once the lease is free.
            if self.is_free()? && self.runtime.read_table()?.find_row(self.session).is_none() {
                return Ok(true);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Returns whether the lease is free and no sandbox is live. The table tells whether another pod has the name by
    /// now.
    fn is_free(&self) -> Result<bool, RegistryError> {
        let dir = self.runtime.pod_dir(&self.name);
        let path = dir.join("lease");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(io_error("open", path)(e)),
        };
        match retry_lock(|| file.try_lock_shared()) {
            Ok(()) => Ok(!has_live_sandbox(&dir)?),
            Err(TryLockError::WouldBlock) => {
                // Another pod may have taken the name.
                let row = crate::lease::ScopeRow::read_lease(&path);
                Ok(matches!(row, Ok(Some(row)) if row.session != self.session))
            }
            Err(TryLockError::Error(e)) => Err(io_error("lock", path)(e)),
        }
    }
}
