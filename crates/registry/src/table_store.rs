//! The stored scope table: reads it, compares it with the live pods, and replaces it atomically.
//!
//! Here: the order in which the files are read and written, and the recovery from damage and interrupted changes. All
//! of this happens under `scope.lock`. Elsewhere: the rules of changes (`table`), the files (`table_files`), the pods'
//! directories (`liveness`, `runtime_dir`).
//! Invariants: a damaged scope never counts as free (`nothing_damaged_is_ever_free`); a change that fails or is killed
//! at any file operation has happened completely or not at all (`no_interleaving_breaks_a_law`,
//! `a_change_that_is_cut_anywhere_leaves_one_table`).

use std::collections::HashMap;
use std::ffi::OsStr;

use minke_record::{Millis, SessionId};

use crate::error::RegistryError;
use crate::lease::ScopeRow;
use crate::liveness::{Liveness, PodDir};
use crate::table::ScopeTable;

/// The storage of the table and of the rows.
pub(crate) trait TableStorage {
    fn read_current(&self) -> Result<TableFile, RegistryError>;
    fn read_previous(&self) -> Result<TableFile, RegistryError>;
    /// Rewrites a row in its pod's lease, in place. Does nothing if there is no lease.
    fn write_lease(&mut self, row: &ScopeRow) -> Result<(), RegistryError>;
    /// Writes the next table to disk, next to the current one.
    fn write_next(&mut self, table: &ScopeTable) -> Result<(), RegistryError>;
    /// Makes the current table the previous one. Returns whether there was one.
    fn current_to_previous(&mut self) -> Result<bool, RegistryError>;
    /// Makes the next table the current one.
    fn next_to_current(&mut self) -> Result<(), RegistryError>;
    /// Makes the previous table the current one again or, if there was none, removes the current one.
    fn restore_previous(&mut self, had: bool) -> Result<(), RegistryError>;
    /// Returns whether there is a next table: a change is in progress or was interrupted.
    fn has_next(&self) -> Result<bool, RegistryError>;
    /// Removes the next table.
    fn discard_next(&mut self) -> Result<(), RegistryError>;
}

/// One stored generation of the table.
pub(crate) enum TableFile {
    Valid(ScopeTable),
    Missing,
    /// With the reason as text.
    Damaged(String),
}

/// The table read from the files, and problems found in them.
pub(crate) struct RecoveredTable {
    pub(crate) table: ScopeTable,
    /// It was rebuilt from other sources than the current file, or completed.
    pub(crate) is_repaired: bool,
    pub(crate) problems: Vec<String>,
}

/// Returns the table as the last change left it, including dead pods; `None` if the leases must be checked first
/// because the file is damaged or a change was interrupted.
///
/// A change that this table allows is also allowed without its dead rows, which can only add conflicts. So an allowed
/// change needs no check of every pod's lease; a refused one does (`catch_up`).
pub(crate) fn read_quick(storage: &impl TableStorage) -> Result<Option<ScopeTable>, RegistryError> {
    if storage.has_next()? {
        return Ok(None);
    }
    Ok(match storage.read_current()? {
        TableFile::Valid(table) => Some(table),
        TableFile::Missing | TableFile::Damaged(_) => None,
    })
}

/// Reads the table and removes dead pods from it, on disk too.
pub(crate) fn read_and_prune(
    storage: &mut impl TableStorage,
    leases: &[PodDir],
    now: Millis,
) -> Result<RecoveredTable, RegistryError> {
    let mut read = read_table(storage, leases)?;
    repair_leases(storage, leases, &read.table)?;
    let next = read.table.without_pods(&dead_sessions(&read.table, leases, now));
    if read.is_repaired || next != read.table {
        read.table = write_table(storage, &read.table, next)?;
    } else if storage.has_next()? {
        // The leases match the table again.
        storage.discard_next()?;
    }
    Ok(read)
}

/// Indexes rows by pod name.
pub(crate) fn rows_by_name(table: &ScopeTable) -> HashMap<&OsStr, &ScopeRow> {
    table.pods.iter().map(|row| (OsStr::new(row.name.as_str()), row)).collect()
}

/// Returns the table with every live pod in it.
fn read_table(storage: &impl TableStorage, leases: &[PodDir]) -> Result<RecoveredTable, RegistryError> {
    let mut problems = Vec::new();
    let mut whole = |page| match page {
        TableFile::Valid(table) => Some(table),
        TableFile::Missing => None,
        TableFile::Damaged(why) => {
            problems.push(why);
            None
        }
    };
    let (mut table, mut is_repaired) = match whole(storage.read_current()?) {
        Some(table) => (table, false),
        None => {
            let previous = whole(storage.read_previous()?);
            let known_sessions = previous.is_some() || leases.iter().any(|lease| lease.row.is_some());
            (rebuild_table(previous.unwrap_or_default(), leases), known_sessions)
        }
    };
    is_repaired |= add_missing_rows(&mut table, leases)?;
    if is_repaired {
        // Only after all rows are present: a missing lender has no loans.
        table.rebuild_loans();
    }
    Ok(RecoveredTable { table, is_repaired, problems })
}

/// Makes the leases match the table. A lease from an interrupted change would be trusted if the table were lost later.
fn repair_leases(
    storage: &mut impl TableStorage,
    leases: &[PodDir],
    table: &ScopeTable,
) -> Result<(), RegistryError> {
    let rows = rows_by_name(table);
    for lease in leases.iter().filter(|lease| lease.has_lease) {
        let known_sessions = lease.pod_name().and_then(|name| rows.get(name));
        if let Some(row) = known_sessions.filter(|row| lease.row.as_ref() != Some(**row)) {
            storage.write_lease(row)?;
        }
    }
    Ok(())
}

/// Rebuilds the table from the previous generation and the pods' own leases. A scope counts as held unless both sources
/// release it, and a ticket counts as used if one source lacks it.
fn rebuild_table(mut table: ScopeTable, leases: &[PodDir]) -> ScopeTable {
    let rows = || leases.iter().filter_map(|lease| lease.row.as_ref());
    let owns: HashMap<SessionId, &ScopeRow> = rows().map(|row| (row.session, row)).collect();
    for row in &mut table.pods {
        let Some(own) = owns.get(&row.session).copied() else { continue };
        let used = own.ticket_hash.is_none() || row.ticket_hash.is_none();
        let yielded = own.yielded && row.yielded;
        *row = ScopeRow { yielded, ..own.clone() };
        if used {
            row.ticket_hash = None;
            row.deadline = None;
        }
    }
    for row in rows().filter(|row| row.ticket_hash.is_some()) {
        if table.find_row(row.session).is_none() && table.find_by_name(&row.name).is_none() {
            table.pods.push(row.clone());
        }
    }
    table
}

/// Adds missing rows of live pods, which only damage can cause. Returns whether there were any.
fn add_missing_rows(table: &mut ScopeTable, leases: &[PodDir]) -> Result<bool, RegistryError> {
    let mut missing: Vec<&ScopeRow> = Vec::new();
    let known_sessions = rows_by_name(table);
    for lease in leases.iter().filter(|lease| lease.liveness != Liveness::Gone) {
        let known = lease.pod_name().and_then(|name| known_sessions.get(name));
        match (&lease.row, known) {
            (Some(row), Some(known)) if row.session == known.session => {}
            (None, Some(_)) => {}
            (Some(row), _) => missing.push(row),
            (None, None) if lease.liveness == Liveness::Alive => {
                let why = lease.damage.clone().unwrap_or_else(|| "the row is empty".to_owned());
                return Err(RegistryError::TableDamaged { path: lease.dir.clone(), why });
            }
            // A process that died before it wrote its row has started nothing.
            (None, None) => {}
        }
    }
    for row in &missing {
        table.pods.retain(|other| other.name != row.name && other.session != row.session);
        table.pods.push((*row).clone());
    }
    Ok(!missing.is_empty())
}

/// Replaces the table `old`: first writes the next table, so that an interruption is visible, then the rows in the
/// leases, then the current table. On failure restores everything. Returns the table that is now valid.
pub(crate) fn write_table(
    storage: &mut impl TableStorage,
    old: &ScopeTable,
    mut next: ScopeTable,
) -> Result<ScopeTable, RegistryError> {
    next.generation = old.generation.saturating_add(1);
    let before: HashMap<SessionId, &ScopeRow> = old.pods.iter().map(|row| (row.session, row)).collect();
    let changed: Vec<&ScopeRow> =
        next.pods.iter().filter(|row| before.get(&row.session).copied() != Some(*row)).collect();
    if let Err(e) = storage.write_next(&next) {
        // An incomplete next table is harmless: the next change overwrites it.
        drop(storage.discard_next());
        return Err(e);
    }
    let written =
        changed.iter().try_for_each(|row| storage.write_lease(row)).and_then(|()| rotate_tables(storage));
    if let Err(e) = written {
        let put_back = changed.iter().filter_map(|row| before.get(&row.session));
        // The table decides while it can be read; a lease that is ahead of it matters only if the table is lost. While
        // a lease may be ahead, the next table stays, so that the next process checks the leases.
        if put_back.map(|row| storage.write_lease(row)).filter(Result::is_err).count() == 0 {
            drop(storage.discard_next());
        }
        return Err(e);
    }
    Ok(next)
}

fn rotate_tables(shelf: &mut impl TableStorage) -> Result<(), RegistryError> {
    let had = shelf.current_to_previous()?;
    shelf.next_to_current().inspect_err(|_| {
        // If this fails too, the previous table is read, and the change has not happened.
        drop(shelf.restore_previous(had));
    })
}

/// Returns the sessions of dead rows: no process, no remaining child process, no valid ticket.
fn dead_sessions(table: &ScopeTable, leases: &[PodDir], now: Millis) -> Vec<SessionId> {
    let dirs: HashMap<&OsStr, &PodDir> =
        leases.iter().filter_map(|lease| Some((lease.pod_name()?, lease))).collect();
    let is_dead = |row: &&ScopeRow| {
        if row.ticket_hash.is_some() && row.deadline.is_some_and(|at| now < at) {
            return false;
        }
        match dirs.get(OsStr::new(row.name.as_str())).copied() {
            Some(PodDir { liveness: Liveness::Alive | Liveness::Dying, .. }) => false,
            Some(PodDir { has_lease: true, .. }) => true,
            // The lease was removed. The pod may still be live and then keeps its scope.
            Some(_) | None => !row.is_running(),
        }
    };
    table.pods.iter().filter(is_dead).map(|row| row.session).collect()
}
