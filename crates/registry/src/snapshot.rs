//! Snapshots of the live pods: all of them, or the pod of one session or name.
//!
//! The table is read without `scope.lock`: it is replaced atomically, so a reader sees one generation. A snapshot then
//! checks the lease of each pod with two system calls and wakes no process. Only if this shows a dead pod or a
//! directory without a row, it checks everything under the lock and removes the dead pods.
//! Invariants: a listed pod holds a kernel lock at this moment (`a_killed_pod_is_not_shown_and_its_name_is_free`); a
//! snapshot removes dead pods (`whoever_looks_buries_the_dead`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minke_policy::find_write_overlap;
use minke_record::{PodName, Scope, SessionId};

use crate::error::{RegistryError, io_error};
use crate::files::{read_small, retry_lock};
use crate::lease::ScopeRow;
use crate::liveness::{Liveness, PodDir};
use crate::runtime_dir::{RuntimeDir, now_millis};
use crate::status::PodStatus;
use crate::table::{ScopeTable, scopes_may_overlap};
use crate::table_files::TableFiles;
use crate::table_store::{TableFile, TableStorage};

/// A pod that holds its lease but has had no heartbeat for this long is shown as stuck.
const STUCK_TIMEOUT: Duration = Duration::from_secs(60);
/// `status.json` has a few hundred bytes.
const MAX_STATUS_BYTES: u64 = 64 * 1024;
/// A pod that holds its lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LivePod {
    pub row: ScopeRow,
    /// Absent while the pod starts.
    pub status: Option<PodStatus>,
    pub beat_age: Duration,
}

impl LivePod {
    pub fn is_stuck(&self) -> bool {
        self.beat_age >= STUCK_TIMEOUT
    }

    /// Returns the state that `minke ps` shows.
    pub fn state_label(&self) -> &str {
        match &self.status {
            _ if self.is_stuck() => "stuck",
            Some(status) => &status.state,
            None => "starting",
        }
    }
}

/// A removed directory of a dead pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimedPod {
    pub name: String,
    pub session: Option<SessionId>,
    /// The path of the kept end of its stderr, if it wrote any.
    pub stderr: Option<PathBuf>,
    /// Why its row could not be read or its stderr could not be saved.
    pub problem: Option<String>,
}

/// The result of a survey of the runtime directory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegistrySnapshot {
    /// Sorted by name.
    pub live: Vec<LivePod>,
    pub reclaimed: Vec<ReclaimedPod>,
    /// Read errors, as text.
    pub problems: Vec<String>,
}

impl RegistrySnapshot {
    pub fn find_by_name(&self, name: &PodName) -> Option<&LivePod> {
        self.live.iter().find(|live| live.row.name == *name)
    }

    pub fn find_by_session(&self, session: SessionId) -> Option<&LivePod> {
        self.live.iter().find(|live| live.row.session == session)
    }
}

impl RuntimeDir {
    /// Returns the live pods, and removes the remains of dead ones.
    pub fn take_snapshot(&self) -> Result<RegistrySnapshot, RegistryError> {
        match self.quick_snapshot()? {
            Some(live) => Ok(RegistrySnapshot { live, ..RegistrySnapshot::default() }),
            None => self.full_snapshot(),
        }
    }

    /// Returns the live pod of a session.
    pub fn live_pod_of_session(&self, session: SessionId) -> Result<Option<LivePod>, RegistryError> {
        self.find_live_pod(|table| table.find_row(session), |snapshot| snapshot.find_by_session(session))
    }

    /// Returns the live pod with a name.
    pub fn live_pod_named(&self, name: &PodName) -> Result<Option<LivePod>, RegistryError> {
        self.find_live_pod(|table| table.find_by_name(name), |look| look.find_by_name(name))
    }

    /// Returns whether a process holds the name for this session. Checks one lease only, so it can be called often.
    pub fn is_live(&self, name: &PodName, session: SessionId) -> Result<bool, RegistryError> {
        let dir = self.pod_dir(name);
        if lease_holder(&dir)?.is_none() {
            return Ok(false);
        }
        // An unreadable row is being written; another pod may have taken the name.
        let row = ScopeRow::read_lease(&dir.join("lease"));
        Ok(!matches!(row, Ok(Some(row)) if row.session != session))
    }

    /// Returns the first live pod, by name, that could write in the given scope, and the path; ignores exempt rows.
    pub fn conflicting_writer(
        &self,
        wanted: &Scope,
        is_exempt: impl Fn(&ScopeRow) -> bool,
    ) -> Result<Option<(LivePod, String)>, RegistryError> {
        let within = |row: &ScopeRow| {
            if is_exempt(row) || !scopes_may_overlap(wanted, &row.scope) {
                return None;
            }
            find_write_overlap(wanted, &row.effective_scope()).map(|overlap| overlap.path)
        };
        if let Some(table) = self.unverified_table()? {
            let Some((row, path)) = table.pods.iter().find_map(|row| Some((row, within(row)?))) else {
                return Ok(None);
            };
            if let Some(live) = self.live_pod_of_row(row)? {
                return Ok(Some((live, path)));
            }
        }
        let snapshot = self.full_snapshot()?;
        Ok(snapshot.live.into_iter().find_map(|live| within(&live.row).map(|path| (live, path))))
    }

    /// Returns the scope table without dead pods.
    pub fn read_table(&self) -> Result<ScopeTable, RegistryError> {
        if let Some(table) = self.unverified_table()?
            && self.all_rows_are_held(&table)?
        {
            return Ok(table);
        }
        Ok(self.open_table()?.table)
    }

    /// Returns the first of these sessions that has a live pod.
    pub fn first_live_ancestor(&self, of: &[SessionId]) -> Result<Option<ScopeRow>, RegistryError> {
        if let Some(table) = self.unverified_table()? {
            match table.first_live_row(of) {
                None => return Ok(None),
                Some(row) if lease_holder(&self.pod_dir(&row.name))?.is_some() => {
                    return Ok(Some(row.clone()));
                }
                Some(_) => {}
            }
        }
        Ok(self.open_table()?.table.first_live_row(of).cloned())
    }

    /// Returns the unverified table, including dead pods; `None` if it is damaged or being replaced.
    pub(crate) fn unverified_table(&self) -> Result<Option<ScopeTable>, RegistryError> {
        Ok(match (TableFiles { root: &self.root }).read_current()? {
            TableFile::Valid(table) => Some(table),
            TableFile::Missing | TableFile::Damaged(_) => None,
        })
    }

    /// Returns all live pods, if all rows belong to live pods and all directories to rows.
    fn quick_snapshot(&self) -> Result<Option<Vec<LivePod>>, RegistryError> {
        let Some(table) = self.unverified_table()? else { return Ok(None) };
        let mut all = Vec::with_capacity(table.pods.len());
        for row in &table.pods {
            match self.live_pod_of_row(row)? {
                Some(live) => all.push(live),
                None => return Ok(None),
            }
        }
        all.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(self.has_only_listed_dirs(&table)?.then_some(all))
    }

    fn find_live_pod(
        &self,
        of: impl Fn(&ScopeTable) -> Option<&ScopeRow>,
        among: impl Fn(&RegistrySnapshot) -> Option<&LivePod>,
    ) -> Result<Option<LivePod>, RegistryError> {
        if let Some(table) = self.unverified_table()? {
            let Some(row) = of(&table) else { return Ok(None) };
            match self.live_pod_of_row(row)? {
                Some(live) => return Ok(Some(live)),
                // Its ticket is unused and has not expired.
                None if row.ticket_hash.is_some() && row.deadline.is_some_and(|at| now_millis() < at) => {
                    return Ok(None);
                }
                None => {}
            }
        }
        Ok(among(&self.full_snapshot()?).cloned())
    }

    /// Returns the pod of a row, if it holds its lease and can be read.
    fn live_pod_of_row(&self, row: &ScopeRow) -> Result<Option<LivePod>, RegistryError> {
        let dir = self.pod_dir(&row.name);
        let Some(lease) = lease_holder(&dir)? else { return Ok(None) };
        let beat = lease.metadata().and_then(|conflict| conflict.modified());
        let beat = beat.map_err(io_error("look at", dir.join("lease")))?;
        let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
        let Ok(status) = read_status(&dir.join("status.json")) else { return Ok(None) };
        // Another pod may have taken the name since the table was read.
        let other = status.as_ref().is_some_and(|status| status.session != row.session);
        Ok((!other).then(|| LivePod { row: row.clone(), status, beat_age }))
    }

    /// Returns whether every row belongs to a pod that holds its lease, and every directory to a row.
    fn all_rows_are_held(&self, table: &ScopeTable) -> Result<bool, RegistryError> {
        for row in &table.pods {
            if lease_holder(&self.pod_dir(&row.name))?.is_none() {
                return Ok(false);
            }
        }
        self.has_only_listed_dirs(table)
    }

    /// Returns whether every pod directory belongs to a row.
    pub(crate) fn has_only_listed_dirs(&self, table: &ScopeTable) -> Result<bool, RegistryError> {
        let names: HashSet<&OsStr> = table.pods.iter().map(|row| OsStr::new(row.name.as_str())).collect();
        let pods = self.root.join("pods");
        let entries = match fs::read_dir(&pods) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names.is_empty()),
            Err(e) => return Err(io_error("read", pods)(e)),
        };
        for entry in entries {
            if !names.contains(&*entry.map_err(io_error("read", &pods))?.file_name()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks every pod directory under the lock and removes those of dead pods.
    fn full_snapshot(&self) -> Result<RegistrySnapshot, RegistryError> {
        let pods = self.root.join("pods");
        let mut snapshot = RegistrySnapshot::default();
        if !pods.try_exists().map_err(io_error("look at", &pods))? {
            return Ok(snapshot);
        }
        let open = self.open_table_even_damaged()?;
        snapshot.reclaimed = open.reclaimed;
        snapshot.problems = open.problems;
        snapshot.problems.extend(open.damage.map(|e| e.to_string()));
        let rows = crate::table_store::rows_by_name(&open.table);
        for lease in open.pod_dirs.into_iter().filter(|lease| lease.liveness == Liveness::Alive) {
            let named = lease.pod_name().and_then(|name| rows.get(name)).copied();
            match live_pod_of_dir(&lease, named, &mut snapshot.problems) {
                Ok(conflict) => snapshot.live.push(conflict),
                Err(e) => snapshot.problems.push(e.to_string()),
            }
        }
        snapshot.live.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(snapshot)
    }
}

/// Returns the lease in a pod's directory, if its process holds it.
fn lease_holder(dir: &Path) -> Result<Option<File>, RegistryError> {
    let path = dir.join("lease");
    let lease = match File::open(&path) {
        Ok(lease) => lease,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io_error("open", path)(e)),
    };
    match retry_lock(|| lease.try_lock_shared()) {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(lease)),
        Err(TryLockError::Error(e)) => Err(io_error("lock", path)(e)),
    }
}

fn live_pod_of_dir(
    lease: &PodDir,
    named: Option<&ScopeRow>,
    problems: &mut Vec<String>,
) -> Result<LivePod, RegistryError> {
    let path = lease.dir.join("lease");
    let Some(row) = named.or(lease.row.as_ref()).cloned() else {
        let why = lease.damage.clone().unwrap_or_else(|| "the lease is held but has no row".to_owned());
        return Err(io_error("read", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
    };
    let beat =
        fs::metadata(&path).and_then(|conflict| conflict.modified()).map_err(io_error("look at", path))?;
    let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
    let status = read_status(&lease.dir.join("status.json")).unwrap_or_else(|e| {
        problems.push(e.to_string());
        None
    });
    Ok(LivePod { row, status, beat_age })
}

fn read_status(path: &Path) -> Result<Option<PodStatus>, RegistryError> {
    let Some(bytes) = read_small(path, MAX_STATUS_BYTES).map_err(io_error("read", path))? else {
        return Ok(None);
    };
    let status =
        serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(io_error("understand", path))?;
    Ok(Some(status))
}
