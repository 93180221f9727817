//! Watching a pod until it is gone: its process and everything that it started.
//!
//! Elsewhere: what becomes of its row (`table`), which is done before a watch ends.
//! Invariant: a watch ends only when the scope is back (`a_watch_ends_when_the_scope_is_back`).

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use minke_record::{PodName, SessionId};

use crate::error::{RegistryError, at};
use crate::files::ask_lock;
use crate::graves::fences_live;
use crate::runtime::Runtime;

/// How often a watch looks: soon after it began, then less and less.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Somebody's wish to know when a pod has ended.
#[derive(Debug)]
pub struct Watch {
    runtime: Runtime,
    name: PodName,
    session: SessionId,
}

impl Runtime {
    /// Watches the pod of a session. One that has no row is gone already.
    pub fn watch(&self, name: &PodName, session: SessionId) -> Watch {
        Watch { runtime: self.clone(), name: name.clone(), session }
    }
}

impl Watch {
    /// Waits until the pod and all that it started are gone and its row with them; at most as long as `patience` says.
    /// Says whether it is. Blocks, so it belongs on a thread of its own.
    pub fn wait(&self, patience: Option<Duration>) -> Result<bool, RegistryError> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut pause = FIRST_PAUSE;
        loop {
            // The table is asked only once the locks say that it is worth it.
            if self.is_free()? && self.runtime.table()?.row(self.session).is_none() {
                return Ok(true);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether nobody holds the lease and no fence lives. Whoever has the name by now is told apart by the table.
    fn is_free(&self) -> Result<bool, RegistryError> {
        let dir = self.runtime.pod_dir(&self.name);
        let path = dir.join("lease");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(at("open", path)(e)),
        };
        match ask_lock(|| file.try_lock_shared()) {
            Ok(()) => Ok(!fences_live(&dir)?),
            Err(TryLockError::WouldBlock) => {
                // Another pod may have the name meanwhile.
                let row = crate::lease::Row::read(&path);
                Ok(matches!(row, Ok(Some(row)) if row.session != self.session))
            }
            Err(TryLockError::Error(e)) => Err(at("lock", path)(e)),
        }
    }
}
