//! The scope lease: proof that a pod lives and holds its name.
//!
//! Here: the row in the lease file and what its holder may do. Elsewhere: taking one (`runtime`).
//! Invariant: the lease file is rewritten in place, never renamed, and unlinked only under `scope.lock` before it is
//! unlocked; else two processes could hold one name (`one_name_has_one_holder_under_a_race`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minke_record::{Millis, PodName, Scope, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::{RegistryError, at};
use crate::files::{make_dir, open_lock, read_small, replace};
use crate::grant::Grant;
use crate::look::Reclaimed;
use crate::runtime::Runtime;
use crate::status::PodStatus;
use crate::table::{Loan, Table};

/// A row is a few hundred bytes; a longer file is not one.
pub(crate) const ROW_BYTES: u64 = 64 * 1024;

/// A live pod, as its lease file describes it. Process and boot are there for people; nothing is decided by them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub name: PodName,
    pub session: SessionId,
    pub socket: PathBuf,
    pub pid: u32,
    /// Of the process, in clock ticks since boot; 0 where the system does not say.
    pub start_time: u64,
    /// Empty where the system does not say.
    pub boot_id: String,
    /// The pod that has lent its scope: the one that spawned it or, since that is gone, the nearest above it that lived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The pod that spawned it; stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<SessionId>,
    /// All that were above it when it was spawned, the lender first; stays. By it a pod that comes back finds those that
    /// others have taken over meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<SessionId>,
    /// When this life of it began; for people.
    #[serde(default)]
    pub since: Millis,
    /// Which life of its session this is.
    #[serde(default)]
    pub epoch: u64,
    /// How many pods are above it.
    #[serde(default)]
    pub depth: u32,
    #[serde(default)]
    pub scope: Scope,
    /// What of its scope was nobody's before: its clone.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub apart: Scope,
    /// The directories of its scope as they were when it got them: a path alone could lead elsewhere by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// What it has lent, with all that it could write there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<Loan>,
    /// SHA-256 of the one-use ticket, as long as nobody has come with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_hash: Option<String>,
    /// Until then a row with a ticket counts as alive, lease or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// It has given up its write scope until its next run.
    #[serde(default)]
    pub yielded: bool,
}

impl Row {
    /// The row of a pod in this process, without a scope. The registry fills in the socket, and for whoever comes with a
    /// ticket all that was lent.
    pub fn here(name: PodName, session: SessionId, parent: Option<SessionId>) -> Row {
        let (start_time, boot_id) = process_identity();
        Row {
            pid: std::process::id(),
            start_time,
            boot_id,
            parent,
            lender: parent,
            ancestors: parent.into_iter().collect(),
            ..Row::nowhere(name, session)
        }
    }

    /// A row that no process has yet.
    pub(crate) fn nowhere(name: PodName, session: SessionId) -> Row {
        Row {
            name,
            session,
            socket: PathBuf::new(),
            pid: 0,
            start_time: 0,
            boot_id: String::new(),
            parent: None,
            lender: None,
            ancestors: Vec::new(),
            since: 0,
            epoch: 0,
            depth: 0,
            scope: Scope::default(),
            apart: Scope::default(),
            grants: Vec::new(),
            loans: Vec::new(),
            ticket_hash: None,
            deadline: None,
            yielded: false,
        }
    }

    /// Whether the very process of this row is there. Asked only where the lease itself was removed: a process is no proof
    /// of a life, but it is reason enough not to give away what it may write.
    pub(crate) fn is_running(&self) -> bool {
        let (_, boot_id) = process_identity();
        let known = self.start_time != 0 && !boot_id.is_empty() && boot_id == self.boot_id;
        known && start_time(&self.pid.to_string()) == Some(self.start_time)
    }

    pub(crate) fn read(path: &Path) -> io::Result<Option<Row>> {
        match read_small(path, ROW_BYTES)? {
            None => Ok(None),
            Some(bytes) if bytes.is_empty() => Ok(None),
            Some(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("not a row: {e}"))),
        }
    }
}

fn is_nothing(scope: &Scope) -> bool {
    *scope == Scope::default()
}

/// When this process began and which boot this is, where `/proc` says so.
fn process_identity() -> (u64, String) {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    (start_time("self").unwrap_or(0), boot_id.trim().to_owned())
}

fn start_time(process: &str) -> Option<u64> {
    // Field 22, counted after the name in parentheses, which may itself hold spaces and parentheses.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The file that every fence of a pod locks and notes its placeholders in.
pub(crate) const FENCES: &str = "fences";

/// What lies in a pod's directory for its commands and file tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnDirs {
    /// `/tmp` of its commands.
    pub tmp: PathBuf,
    /// What was too long for a result; nobody but the pod writes there.
    pub output: PathBuf,
    /// Locked by every fence as long as something lives in it.
    pub fences: PathBuf,
    /// Where its commands find the network, if they may.
    pub proxy: PathBuf,
}

/// The right to a name, held until `release` or the end of the process. Dropping it without `release` is what a
/// kill does: the name is free, the directory stays until somebody looks.
#[derive(Debug)]
pub struct ScopeLease {
    pub(crate) file: File,
    pub(crate) row: Row,
    pub(crate) runtime: Runtime,
    /// What a dead pod of the same name had left.
    pub(crate) reclaimed: Option<Reclaimed>,
}

impl ScopeLease {
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// What a dead pod of the same name had left behind, if anything.
    pub fn reclaimed(&self) -> Option<&Reclaimed> {
        self.reclaimed.as_ref()
    }

    /// The pod's own directory, `pods/<name>`.
    pub fn dir(&self) -> PathBuf {
        self.runtime.pod_dir(&self.row.name)
    }

    pub fn socket(&self) -> &Path {
        &self.row.socket
    }

    /// Says that the pod still works: touches the lease.
    pub fn beat(&self) -> Result<(), RegistryError> {
        self.file.set_modified(SystemTime::now()).map_err(at("touch", self.dir().join("lease")))
    }

    /// Puts a new `status.json` in place.
    pub fn write_status(&self, status: &PodStatus) -> Result<(), RegistryError> {
        let path = self.dir().join("status.json");
        let bytes = serde_json::to_vec(status).expect("a status is plain data");
        replace(&path, &bytes).map_err(at("write", path))
    }

    /// Puts `manifest.toml` in place.
    pub fn write_manifest(&self, text: &str) -> Result<(), RegistryError> {
        let path = self.dir().join("manifest.toml");
        replace(&path, text.as_bytes()).map_err(at("write", path))
    }

    /// Makes the directories that belong to the pod's own commands and file tools.
    pub fn make_own_dirs(&self) -> Result<OwnDirs, RegistryError> {
        let dir = self.dir();
        let own = OwnDirs {
            tmp: dir.join("tmp"),
            output: dir.join("output"),
            fences: dir.join(FENCES),
            proxy: dir.join("proxy.sock"),
        };
        for path in [&own.tmp, &own.output] {
            make_dir(path).map_err(at("make", path))?;
        }
        open_lock(&own.fences).map_err(at("make", &own.fences))?;
        Ok(own)
    }

    /// What the pod may do now: without writing where it has lent, and nowhere after `give_scope`.
    pub fn effective(&self) -> Result<Scope, RegistryError> {
        Ok(self.current()?.effective())
    }

    /// What the pod has lent, and to whom.
    pub fn loans(&self) -> Result<Vec<Loan>, RegistryError> {
        Ok(self.current()?.loans)
    }

    /// Gives up writing until `take_scope`. If this fails, the pod does well to write nothing either until `effective`
    /// says that it may.
    pub fn give_scope(&self) -> Result<(), RegistryError> {
        self.runtime.give_scope(self.row.session)
    }

    /// Takes back what was given up; refused if somebody has it now.
    pub fn take_scope(&self) -> Result<(), RegistryError> {
        self.runtime.take_scope(self.row.session)
    }

    /// The pod's row. What it has lent to the dead is its own again, so whoever has lent something has them looked for.
    fn current(&self) -> Result<Row, RegistryError> {
        let row = |table: &Table| table.row(self.row.session).cloned();
        if let Some(row) = self.runtime.lying()?.as_ref().and_then(row).filter(|row| row.loans.is_empty()) {
            return Ok(row);
        }
        let lost = || RegistryError::LeaseLost { path: self.dir() };
        row(&self.runtime.open()?.table).ok_or_else(lost)
    }
}
