//! The scope table on disk: read, compared with who really lives, changed whole.
//!
//! Here: `scope.json` with the generation before it, the rows in the leases, and what is made of both when one is damaged.
//! Everything happens under `scope.lock`. Elsewhere: what a change may be (`table`), the directories of pods (`runtime`).
//! Invariants: what was damaged is never free (`nothing_damaged_is_ever_free`); a change that fails or is killed at any
//! file operation has happened wholly or not at all (`a_change_that_is_cut_anywhere_leaves_one_table`).

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use minke_record::{Millis, SessionId};
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::{RegistryError, at};
use crate::files::{PRIVATE_FILE, read_small};
use crate::graves::{Found, Life};
use crate::lease::Row;
use crate::table::Table;
use crate::ticket::digest;

/// A table of the most pods that a user may have is well below this.
const TABLE_BYTES: u64 = 32 * 1024 * 1024;

/// What lies in `scope.json`: the table, and the sum by which damage is known.
#[derive(Serialize, Deserialize)]
struct Page {
    sum: String,
    #[serde(flatten)]
    table: Table,
}

/// The table as the files have it, and what is wrong with them.
pub(crate) struct Read {
    pub(crate) table: Table,
    /// It was put together from other sources than `scope.json`, or completed.
    pub(crate) mended: bool,
    pub(crate) problems: Vec<String>,
}

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// The table, with every live pod in it.
pub(crate) fn read(root: &Path, leases: &[Found]) -> Result<Read, RegistryError> {
    let mut problems = Vec::new();
    let current = read_page(&root.join("scope.json"), &mut problems)?;
    let mut mended = false;
    let mut table = match current {
        Some(table) => table,
        None => {
            let previous = read_page(&root.join("scope.prev.json"), &mut problems)?;
            mended = previous.is_some() || leases.iter().any(|lease| lease.row.is_some());
            let mut table = recall(previous, leases);
            table.settle();
            table
        }
    };
    mended |= complete(&mut table, leases)?;
    Ok(Read { table, mended, problems })
}

/// One generation; none if it is missing or damaged. What cannot be read at all may be whole, so that is an error.
fn read_page(path: &Path, problems: &mut Vec<String>) -> Result<Option<Table>, RegistryError> {
    let Some(bytes) = read_small(path, TABLE_BYTES).map_err(at("read", path))? else { return Ok(None) };
    let page: Result<Page, _> = serde_json::from_slice(&bytes);
    let why = match page {
        Ok(page) if page.sum == sum(&page.table) => return Ok(Some(page.table)),
        Ok(_) => "its sum does not fit".to_owned(),
        Err(e) => e.to_string(),
    };
    problems.push(format!(
        "{} is damaged ({why}); the table was put together from what else is known",
        path.display()
    ));
    Ok(None)
}

fn sum(table: &Table) -> String {
    digest(&serde_json::to_vec(table).unwrap_or_default())
}

/// The table from the generation before the lost one and the pods' own leases. What one of them does not know or does not
/// give up counts as held.
fn recall(previous: Option<Table>, leases: &[Found]) -> Table {
    let mut table = previous.unwrap_or_default();
    for row in &mut table.pods {
        let lease =
            leases.iter().filter_map(|lease| lease.row.as_ref()).find(|own| own.session == row.session);
        if let Some(own) = lease {
            let used = own.ticket_hash.is_none() || row.ticket_hash.is_none();
            let yielded = own.yielded && row.yielded;
            *row = Row { yielded, ..own.clone() };
            if used {
                row.ticket_hash = None;
                row.deadline = None;
            }
        }
    }
    for row in leases.iter().filter_map(|lease| lease.row.as_ref()) {
        if table.row(row.session).is_none() && row.ticket_hash.is_some() && table.named(&row.name).is_none() {
            table.pods.push(row.clone());
        }
    }
    table
}

/// Adds the rows of live pods that the table has not, which only damage can bring about. Says whether there were any.
fn complete(table: &mut Table, leases: &[Found]) -> Result<bool, RegistryError> {
    let mut added = false;
    for lease in leases.iter().filter(|lease| lease.life != Life::Gone) {
        let known = table.pods.iter().find(|row| lease.dir.ends_with(row.name.as_str()));
        match (&lease.row, known) {
            (Some(row), Some(known)) if row.session == known.session => {}
            (None, Some(_)) => {}
            (Some(row), _) => {
                table.pods.retain(|other| other.name != row.name && other.session != row.session);
                table.pods.push(row.clone());
                added = true;
            }
            (None, None) if lease.life == Life::Held => {
                let why = lease.damage.clone().unwrap_or_else(|| "the row is empty".to_owned());
                return Err(RegistryError::TableDamaged { path: lease.dir.clone(), why });
            }
            // A claim that died before it had a row has started nothing either.
            (None, None) => {}
        }
    }
    if added {
        table.settle();
    }
    Ok(added)
}

/// Puts the next table in the place of `old`: first the rows in the leases, then the file. If that fails, both are as they
/// were.
pub(crate) fn write(root: &Path, old: &Table, next: &Table) -> Result<(), RegistryError> {
    let changed: Vec<&Row> = next.pods.iter().filter(|row| old.row(row.session) != Some(row)).collect();
    for (count, row) in changed.iter().enumerate() {
        if let Err(e) = write_lease(root, row) {
            undo_leases(root, old, &changed[..=count]);
            return Err(e);
        }
    }
    write_page(root, next).inspect_err(|_| undo_leases(root, old, &changed))
}

fn undo_leases(root: &Path, old: &Table, changed: &[&Row]) {
    for row in changed {
        if let Some(before) = old.row(row.session) {
            // The table decides as long as it can be read; a lease that stays ahead of it matters only if it is lost too.
            drop(write_lease(root, before));
        }
    }
}

/// Rewrites a row in its lease, in place: a rename would make a second lock. The time of the last beat stays.
fn write_lease(root: &Path, row: &Row) -> Result<(), RegistryError> {
    let path = root.join("pods").join(row.name.as_str()).join("lease");
    let write = || -> io::Result<()> {
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            // Somebody cleaned the directory of a live pod. The table still has it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let beat = file.metadata()?.modified()?;
        let bytes = serde_json::to_vec(row)?;
        disk::overwrite(&file, &bytes)?;
        file.set_modified(beat)
    };
    write().map_err(at("write", &path))
}

fn write_page(root: &Path, table: &Table) -> Result<(), RegistryError> {
    let (path, previous, temp) =
        (root.join("scope.json"), root.join("scope.prev.json"), root.join("scope.json.tmp"));
    let page = Page { sum: sum(table), table: table.clone() };
    let bytes = serde_json::to_vec(&page).map_err(io::Error::from).map_err(at("write", &path))?;
    disk::write_synced(&temp, &bytes, PRIVATE_FILE).map_err(at("write", &temp))?;
    let had = match disk::rename(&path, &previous) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(at("move", &path)(e)),
    };
    let placed = disk::rename(&temp, &path).map_err(at("replace", &path));
    placed.and_then(|()| disk::sync_dir(root).map_err(at("sync", root))).inspect_err(|_| {
        if had {
            // Without it the previous generation is read all the same, as long as nothing is in its way.
            drop(disk::rename(&previous, &path));
        } else {
            drop(std::fs::remove_file(&path));
        }
    })
}

/// The rows that are dead: no process, nothing left of what it started, no ticket that could still be used.
pub(crate) fn dead(table: &Table, leases: &[Found], now: Millis) -> Vec<SessionId> {
    let is_dead = |row: &&Row| {
        if row.ticket_hash.is_some() && row.deadline.is_some_and(|at| now < at) {
            return false;
        }
        match leases.iter().find(|lease| lease.dir.ends_with(row.name.as_str())) {
            Some(Found { life: Life::Held | Life::Dying, .. }) => false,
            Some(Found { lease: Some(_), .. }) => true,
            // Somebody removed the lease. The pod may live, and then it holds what it held.
            Some(_) | None => !row.is_running(),
        }
    };
    table.pods.iter().filter(is_dead).map(|row| row.session).collect()
}
