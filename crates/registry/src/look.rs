//! Looking who lives: everybody, or the pod of one session or name.
//!
//! The table is read as it lies there, without `scope.lock`: it is replaced whole, so whoever reads it sees one generation.
//! Each of its pods is then asked for by its lease, which is two calls to the kernel, and no process is woken. Only where
//! that shows somebody dead, or something that no row explains, everything is looked at under the lock and cleared away.
//! Invariants: who is shown holds a kernel lock at this moment (`a_killed_pod_is_not_shown_and_its_name_is_free`); whoever
//! looks buries the dead (`whoever_looks_buries_the_dead`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minke_policy::overlaps_write;
use minke_record::{PodName, Scope, SessionId};

use crate::error::{RegistryError, at};
use crate::files::{ask_lock, read_small};
use crate::graves::{Found, Life};
use crate::lease::Row;
use crate::ledger::{Page, Shelf};
use crate::runtime::{Runtime, now};
use crate::shelf::Files;
use crate::status::PodStatus;
use crate::table::{Table, may_touch};

/// A pod that holds its lease and has not beaten for this long shows as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// `status.json` is a few hundred bytes.
const STATUS_BYTES: u64 = 64 * 1024;
/// A pod that holds its lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub row: Row,
    /// Absent while the pod starts.
    pub status: Option<PodStatus>,
    pub beat_age: Duration,
}

impl Live {
    pub fn stuck(&self) -> bool {
        self.beat_age >= STUCK_AFTER
    }

    /// The word that `minke ps` shows.
    pub fn state(&self) -> &str {
        match &self.status {
            _ if self.stuck() => "stuck",
            Some(status) => &status.state,
            None => "starting",
        }
    }
}

/// A dead pod's directory that was cleared away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimed {
    pub name: String,
    pub session: Option<SessionId>,
    /// Where the end of its stderr is kept, if it had said anything.
    pub stderr: Option<PathBuf>,
    /// Why its row could not be read or its stderr not be kept.
    pub problem: Option<String>,
}

/// What a look at the runtime directory found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// By name.
    pub live: Vec<Live>,
    pub reclaimed: Vec<Reclaimed>,
    /// What could not be read, in words for a person.
    pub problems: Vec<String>,
}

impl Look {
    pub fn by_name(&self, name: &PodName) -> Option<&Live> {
        self.live.iter().find(|live| live.row.name == *name)
    }

    pub fn by_session(&self, session: SessionId) -> Option<&Live> {
        self.live.iter().find(|live| live.row.session == session)
    }
}

impl Runtime {
    /// Who lives. What the dead left is cleared away by whoever looks.
    pub fn look(&self) -> Result<Look, RegistryError> {
        match self.glance()? {
            Some(live) => Ok(Look { live, ..Look::default() }),
            None => self.look_closely(),
        }
    }

    /// The pod that lives on a session.
    pub fn live_on(&self, session: SessionId) -> Result<Option<Live>, RegistryError> {
        self.one(|table| table.row(session), |look| look.by_session(session))
    }

    /// The pod that has a name.
    pub fn live_named(&self, name: &PodName) -> Result<Option<Live>, RegistryError> {
        self.one(|table| table.named(name), |look| look.by_name(name))
    }

    /// Whether a process holds the name for this session. Asks for one lease and nothing else, so it can be asked often.
    pub fn lives(&self, name: &PodName, session: SessionId) -> Result<bool, RegistryError> {
        let dir = self.pod_dir(name);
        if holder(&dir)?.is_none() {
            return Ok(false);
        }
        // A row that cannot be read was being written; another pod may have got the name.
        let row = Row::read(&dir.join("lease"));
        Ok(!matches!(row, Ok(Some(row)) if row.session != session))
    }

    /// The first live pod, by name, that could write where a scope could, and where; those that are spared do not count.
    pub fn writer_within(
        &self,
        wanted: &Scope,
        spared: impl Fn(&Row) -> bool,
    ) -> Result<Option<(Live, String)>, RegistryError> {
        let within = |row: &Row| {
            if spared(row) || !may_touch(wanted, &row.scope) {
                return None;
            }
            overlaps_write(wanted, &row.effective()).map(|overlap| overlap.path)
        };
        if let Some(table) = self.lying()? {
            let Some((row, path)) = table.pods.iter().find_map(|row| Some((row, within(row)?))) else {
                return Ok(None);
            };
            if let Some(live) = self.seen(row)? {
                return Ok(Some((live, path)));
            }
        }
        let look = self.look_closely()?;
        Ok(look.live.into_iter().find_map(|live| within(&live.row).map(|path| (live, path))))
    }

    /// The scope table, without the dead.
    pub fn table(&self) -> Result<Table, RegistryError> {
        if let Some(table) = self.lying()?
            && self.all_hold(&table)?
        {
            return Ok(table);
        }
        Ok(self.open()?.table)
    }

    /// The first of these sessions that has a live pod.
    pub fn ancestor(&self, of: &[SessionId]) -> Result<Option<Row>, RegistryError> {
        if let Some(table) = self.lying()? {
            match table.first_living(of) {
                None => return Ok(None),
                Some(row) if holder(&self.pod_dir(&row.name))?.is_some() => return Ok(Some(row.clone())),
                Some(_) => {}
            }
        }
        Ok(self.open()?.table.first_living(of).cloned())
    }

    /// The table as it lies there, the dead included; `None` if it is not whole or its files are being exchanged.
    pub(crate) fn lying(&self) -> Result<Option<Table>, RegistryError> {
        Ok(match (Files { root: &self.root }).current()? {
            Page::Whole(table) => Some(table),
            Page::Missing | Page::Damaged(_) => None,
        })
    }

    /// Everybody, if all rows are of live pods and all directories belong to rows.
    fn glance(&self) -> Result<Option<Vec<Live>>, RegistryError> {
        let Some(table) = self.lying()? else { return Ok(None) };
        let mut all = Vec::with_capacity(table.pods.len());
        for row in &table.pods {
            match self.seen(row)? {
                Some(live) => all.push(live),
                None => return Ok(None),
            }
        }
        all.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(self.has_no_others(&table)?.then_some(all))
    }

    fn one(
        &self,
        of: impl Fn(&Table) -> Option<&Row>,
        among: impl Fn(&Look) -> Option<&Live>,
    ) -> Result<Option<Live>, RegistryError> {
        if let Some(table) = self.lying()? {
            let Some(row) = of(&table) else { return Ok(None) };
            match self.seen(row)? {
                Some(live) => return Ok(Some(live)),
                // Nobody has come with its ticket yet, and somebody still may.
                None if row.ticket_hash.is_some() && row.deadline.is_some_and(|at| now() < at) => {
                    return Ok(None);
                }
                None => {}
            }
        }
        Ok(among(&self.look_closely()?).cloned())
    }

    /// The pod of a row, if it holds its lease and can be read.
    fn seen(&self, row: &Row) -> Result<Option<Live>, RegistryError> {
        let dir = self.pod_dir(&row.name);
        let Some(lease) = holder(&dir)? else { return Ok(None) };
        let beat = lease.metadata().and_then(|found| found.modified());
        let beat = beat.map_err(at("look at", dir.join("lease")))?;
        let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
        let Ok(status) = read_status(&dir.join("status.json")) else { return Ok(None) };
        // Another pod may have got the name since the table was read.
        let other = status.as_ref().is_some_and(|status| status.session != row.session);
        Ok((!other).then(|| Live { row: row.clone(), status, beat_age }))
    }

    /// Whether every row is of a pod that holds its lease, and every directory belongs to one.
    fn all_hold(&self, table: &Table) -> Result<bool, RegistryError> {
        for row in &table.pods {
            if holder(&self.pod_dir(&row.name))?.is_none() {
                return Ok(false);
            }
        }
        self.has_no_others(table)
    }

    /// Whether every pod's directory belongs to a row.
    pub(crate) fn has_no_others(&self, table: &Table) -> Result<bool, RegistryError> {
        let names: HashSet<&OsStr> = table.pods.iter().map(|row| OsStr::new(row.name.as_str())).collect();
        let pods = self.root.join("pods");
        let entries = match fs::read_dir(&pods) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names.is_empty()),
            Err(e) => return Err(at("read", pods)(e)),
        };
        for entry in entries {
            if !names.contains(&*entry.map_err(at("read", &pods))?.file_name()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks at every pod's directory under the lock and clears away what is dead.
    fn look_closely(&self) -> Result<Look, RegistryError> {
        let pods = self.root.join("pods");
        let mut look = Look::default();
        if !pods.try_exists().map_err(at("look at", &pods))? {
            return Ok(look);
        }
        let open = self.open_any()?;
        look.reclaimed = open.reclaimed;
        look.problems = open.problems;
        look.problems.extend(open.damage.map(|e| e.to_string()));
        let rows = crate::ledger::by_name(&open.table);
        for lease in open.leases.into_iter().filter(|lease| lease.life == Life::Held) {
            let named = lease.name().and_then(|name| rows.get(name)).copied();
            match live(&lease, named, &mut look.problems) {
                Ok(found) => look.live.push(found),
                Err(e) => look.problems.push(e.to_string()),
            }
        }
        look.live.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(look)
    }
}

/// The lease in a pod's directory, if its process holds it.
fn holder(dir: &Path) -> Result<Option<File>, RegistryError> {
    let path = dir.join("lease");
    let lease = match File::open(&path) {
        Ok(lease) => lease,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at("open", path)(e)),
    };
    match ask_lock(|| lease.try_lock_shared()) {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(lease)),
        Err(TryLockError::Error(e)) => Err(at("lock", path)(e)),
    }
}

fn live(lease: &Found, named: Option<&Row>, problems: &mut Vec<String>) -> Result<Live, RegistryError> {
    let path = lease.dir.join("lease");
    let Some(row) = named.or(lease.row.as_ref()).cloned() else {
        let why = lease.damage.clone().unwrap_or_else(|| "held, but has no row".to_owned());
        return Err(at("read", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
    };
    let beat = fs::metadata(&path).and_then(|found| found.modified()).map_err(at("look at", path))?;
    let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
    let status = read_status(&lease.dir.join("status.json")).unwrap_or_else(|e| {
        problems.push(e.to_string());
        None
    });
    Ok(Live { row, status, beat_age })
}

fn read_status(path: &Path) -> Result<Option<PodStatus>, RegistryError> {
    let Some(bytes) = read_small(path, STATUS_BYTES).map_err(at("read", path))? else {
        return Ok(None);
    };
    let status = serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(at("understand", path))?;
    Ok(Some(status))
}
