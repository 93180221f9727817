//! The scope lease: proves that a pod is live and owns its name.
//!
//! Here: the row in the lease file and the operations of its holder. Elsewhere: acquiring a lease (`runtime_dir`).
//! Invariant: the lease file is rewritten in place, never renamed, and unlinked only under `scope.lock` before it is
//! unlocked. Otherwise two processes could hold one name (`one_name_has_one_holder_under_a_race`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minke_record::{Millis, PodName, Scope, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::{RegistryError, io_error};
use crate::files::{create_private_dir, open_lock, read_small, replace_file};
use crate::grant::PathGrant;
use crate::runtime_dir::RuntimeDir;
use crate::snapshot::ReclaimedPod;
use crate::status::PodStatus;
use crate::table::{ScopeLoan, ScopeTable};

/// A row has a few hundred bytes; a longer file is invalid.
pub(crate) const MAX_ROW_BYTES: u64 = 64 * 1024;

/// A pod as its lease file describes it. Process and boot are informative only; no decision depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeRow {
    pub name: PodName,
    pub session: SessionId,
    pub socket: PathBuf,
    pub pid: u32,
    /// The start time of the process in clock ticks since boot; 0 if unknown.
    pub start_time: u64,
    /// Empty if unknown.
    pub boot_id: String,
    /// The pod that lends its scope: the pod that spawned it, or its nearest live ancestor once that pod has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The pod that spawned it. Never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<SessionId>,
    /// All its ancestors when it was spawned, the lender first. Never changes. A pod that comes back finds by it the
    /// descendants that other pods have taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<SessionId>,
    /// When this process of the pod started. Informative.
    #[serde(default)]
    pub since: Millis,
    /// The epoch of its session: how many pods have worked on it.
    #[serde(default)]
    pub epoch: u64,
    /// The number of its ancestors.
    #[serde(default)]
    pub depth: u32,
    #[serde(default)]
    pub scope: Scope,
    /// The part of its scope that the lender did not own: its clone.
    #[serde(default, skip_serializing_if = "is_empty_scope")]
    pub apart: Scope,
    /// The directories of its scope when it got them. A path alone could lead elsewhere by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<PathGrant>,
    /// Its loans, with everything that it could write there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<ScopeLoan>,
    /// The SHA-256 of the one-use ticket, until a process uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_hash: Option<String>,
    /// The deadline until which a row with a ticket counts as alive, with or without a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// It has released its write scope until its next run.
    #[serde(default)]
    pub yielded: bool,
}

impl ScopeRow {
    /// Returns the row of a pod in this process, without a scope. The registry adds the socket, and the lent scope if
    /// the process has a ticket.
    pub fn for_this_process(name: PodName, session: SessionId, parent: Option<SessionId>) -> ScopeRow {
        let (start_time, boot_id) = process_identity();
        ScopeRow {
            pid: std::process::id(),
            start_time,
            boot_id,
            parent,
            lender: parent,
            ancestors: parent.into_iter().collect(),
            ..ScopeRow::without_process(name, session)
        }
    }

    /// Returns a row without a process.
    pub(crate) fn without_process(name: PodName, session: SessionId) -> ScopeRow {
        ScopeRow {
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

    /// Returns whether the process of this row still runs. Used only if the lease was removed: a process does not prove
    /// that the pod is live, but it suffices to keep its scope reserved.
    pub(crate) fn is_running(&self) -> bool {
        let (_, boot_id) = process_identity();
        let current = self.start_time != 0 && !boot_id.is_empty() && boot_id == self.boot_id;
        current && process_start_time(&self.pid.to_string()) == Some(self.start_time)
    }

    pub(crate) fn read_lease(path: &Path) -> io::Result<Option<ScopeRow>> {
        match read_small(path, MAX_ROW_BYTES)? {
            None => Ok(None),
            Some(bytes) if bytes.is_empty() => Ok(None),
            Some(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("not a row: {e}"))),
        }
    }
}

fn is_empty_scope(scope: &Scope) -> bool {
    *scope == Scope::default()
}

/// Maximum size of the files of `/proc` that are read.
const MAX_PROC_BYTES: u64 = 64 * 1024;

/// Returns when this process started and the id of this boot, if `/proc` is available.
fn process_identity() -> (u64, String) {
    let boot_id = read_proc(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    (process_start_time("self").unwrap_or(0), boot_id.trim().to_owned())
}

fn read_proc(path: &Path) -> Option<String> {
    String::from_utf8(read_small(path, MAX_PROC_BYTES).ok()??).ok()
}

fn process_start_time(process: &str) -> Option<u64> {
    // Field 22, counted after the name in parentheses, which may contain spaces and parentheses.
    let stat = read_proc(Path::new(&format!("/proc/{process}/stat")))?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The file that every sandbox of a pod locks, and in which it notes its placeholders. Processes of the
/// release 0.1.0 lock the same name.
pub(crate) const SANDBOX_LOCK_FILE: &str = "sandboxes";
/// The name of that file in an older Minke. It must not be left unused: without it an older process takes the scope of a
/// dead pod whose commands still run, and this one does the same to an older pod. Both names are therefore one file, so
/// that both versions see its lock, and this version also reads a file that has only the old name.
pub(crate) const OLD_SANDBOX_LOCK_FILE: &str = "fences";

/// The directories that a pod provides for its commands and file tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOwnDirs {
    /// `/tmp` of its commands.
    pub tmp: PathBuf,
    /// Output that was too long for a result. Only the pod writes there.
    pub output: PathBuf,
    /// Locked by every sandbox while a process runs in it.
    pub sandbox_lock: PathBuf,
    /// The network proxy of its commands, if they have network access.
    pub proxy: PathBuf,
}

/// The right to a name, held until `release` or the end of the process. Dropping it without `release` acts like a kill:
/// the name is free, and the directory stays until the next registry snapshot.
#[derive(Debug)]
pub struct ScopeLease {
    pub(crate) file: File,
    pub(crate) row: ScopeRow,
    pub(crate) runtime: RuntimeDir,
    /// The remains of a dead pod of the same name.
    pub(crate) reclaimed: Option<ReclaimedPod>,
}

impl ScopeLease {
    pub fn row(&self) -> &ScopeRow {
        &self.row
    }

    /// Returns the remains of a dead pod of the same name, if there were any.
    pub fn reclaimed(&self) -> Option<&ReclaimedPod> {
        self.reclaimed.as_ref()
    }

    /// Returns the pod's own directory, `pods/<name>`.
    pub fn pod_dir(&self) -> PathBuf {
        self.runtime.pod_dir(&self.row.name)
    }

    pub fn socket_path(&self) -> &Path {
        &self.row.socket
    }

    /// Touches the lease to report that the pod still works.
    pub fn touch_heartbeat(&self) -> Result<(), RegistryError> {
        self.file.set_modified(SystemTime::now()).map_err(io_error("touch", self.pod_dir().join("lease")))
    }

    /// Replaces `status.json`.
    pub fn write_status(&self, status: &PodStatus) -> Result<(), RegistryError> {
        let path = self.pod_dir().join("status.json");
        let bytes = serde_json::to_vec(status).expect("a status is always serializable");
        replace_file(&path, &bytes).map_err(io_error("write", path))
    }

    /// Replaces `manifest.toml`.
    pub fn write_manifest(&self, text: &str) -> Result<(), RegistryError> {
        let path = self.pod_dir().join("manifest.toml");
        replace_file(&path, text.as_bytes()).map_err(io_error("write", path))
    }

    /// Creates the directories for the pod's own commands and file tools.
    pub fn make_own_dirs(&self) -> Result<PodOwnDirs, RegistryError> {
        let dir = self.pod_dir();
        let own = PodOwnDirs {
            tmp: dir.join("tmp"),
            output: dir.join("output"),
            sandbox_lock: dir.join(SANDBOX_LOCK_FILE),
            proxy: dir.join("proxy.sock"),
        };
        for path in [&own.tmp, &own.output] {
            create_private_dir(path).map_err(io_error("make", path))?;
        }
        open_lock(&own.sandbox_lock).map_err(io_error("make", &own.sandbox_lock))?;
        let old_name = dir.join(OLD_SANDBOX_LOCK_FILE);
        match fs::hard_link(&own.sandbox_lock, &old_name) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(io_error("make", old_name)(e)),
            _ => Ok(own),
        }
    }

    /// Returns the pod's current scope: its own without write access to lent paths, and none after `give_scope`.
    pub fn effective_scope(&self) -> Result<Scope, RegistryError> {
        Ok(self.current_row()?.effective_scope())
    }

    /// Returns the pod's loans.
    pub fn current_loans(&self) -> Result<Vec<ScopeLoan>, RegistryError> {
        Ok(self.current_row()?.loans)
    }

    /// Releases write access until `take_scope`. If this fails, the pod should not write until its effective scope
    /// allows it.
    pub fn give_scope(&self) -> Result<(), RegistryError> {
        self.runtime.give_scope(self.row.session)
    }

    /// Takes write access back; refused if another pod has it now.
    pub fn take_scope(&self) -> Result<(), RegistryError> {
        self.runtime.take_scope(self.row.session)
    }

    /// Returns the pod's row. Loans to dead pods have returned, so a pod with loans checks its borrowers first.
    fn current_row(&self) -> Result<ScopeRow, RegistryError> {
        let row = |table: &ScopeTable| table.find_row(self.row.session).cloned();
        if let Some(row) =
            self.runtime.unverified_table()?.as_ref().and_then(row).filter(|row| row.loans.is_empty())
        {
            return Ok(row);
        }
        let lost = || RegistryError::LeaseLost { path: self.pod_dir() };
        row(&self.runtime.open_table()?.table).ok_or_else(lost)
    }
}
