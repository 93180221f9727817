//! The scope table and its files: read, compared with who really lives, changed whole.
//!
//! Here: the order in which the files are read and written, and what is made of them when one is damaged or a change was
//! cut. Everything happens under `scope.lock`. Elsewhere: what a change may be (`table`), the files themselves (`shelf`),
//! the directories of pods (`graves`, `runtime`).
//! Invariants: what was damaged is never free (`nothing_damaged_is_ever_free`); a change that fails or is killed at any
//! file operation has happened wholly or not at all (`no_interleaving_breaks_a_law`,
//! `a_change_that_is_cut_anywhere_leaves_one_table`).

use std::collections::HashMap;
use std::ffi::OsStr;

use minke_record::{Millis, SessionId};

use crate::error::RegistryError;
use crate::graves::{Found, Life};
use crate::lease::Row;
use crate::table::Table;

/// Where the table and the rows lie.
pub(crate) trait Shelf {
    fn current(&self) -> Result<Page, RegistryError>;
    fn previous(&self) -> Result<Page, RegistryError>;
    /// Rewrites a row in its pod's lease, in place. Does nothing if there is no lease.
    fn write_lease(&mut self, row: &Row) -> Result<(), RegistryError>;
    /// Puts a table beside the current one, on the disk.
    fn write_next(&mut self, table: &Table) -> Result<(), RegistryError>;
    /// Makes the current table the previous one. Says whether there was one.
    fn retire(&mut self) -> Result<bool, RegistryError>;
    /// Makes the table that lies ready the current one.
    fn promote(&mut self) -> Result<(), RegistryError>;
    /// Makes the previous table the current one again or, if there was none, removes the current one.
    fn restore(&mut self, had: bool) -> Result<(), RegistryError>;
    /// Whether a table lies ready that did not become the current one: a change is under way or was cut.
    fn has_next(&self) -> Result<bool, RegistryError>;
    /// Removes such a table.
    fn discard_next(&mut self) -> Result<(), RegistryError>;
}

/// One generation of the table, as it was found.
pub(crate) enum Page {
    Whole(Table),
    Missing,
    /// With the reason, in words for a person.
    Damaged(String),
}

/// The table as the files have it, and what is wrong with them.
pub(crate) struct Read {
    pub(crate) table: Table,
    /// It was put together from other sources than the current page, or completed.
    pub(crate) mended: bool,
    pub(crate) problems: Vec<String>,
}

/// The table as the last change left it, the dead included; `None` if the leases have to be looked at first, because the
/// page is not whole or a change of it was cut.
///
/// A change that this table allows is allowed without its dead rows too: they only stand in the way. So whoever is
/// granted something need not look at every pod's lease, and whoever is refused does (`catch_up`).
pub(crate) fn at_once(shelf: &impl Shelf) -> Result<Option<Table>, RegistryError> {
    if shelf.has_next()? {
        return Ok(None);
    }
    Ok(match shelf.current()? {
        Page::Whole(table) => Some(table),
        Page::Missing | Page::Damaged(_) => None,
    })
}

/// Reads the table and takes the dead out of it, on disk too.
pub(crate) fn catch_up(shelf: &mut impl Shelf, leases: &[Found], now: Millis) -> Result<Read, RegistryError> {
    let mut read = read(shelf, leases)?;
    repair(shelf, leases, &read.table)?;
    let next = read.table.reclaim(&dead(&read.table, leases, now));
    if read.mended || next != read.table {
        read.table = write(shelf, &read.table, next)?;
    } else if shelf.has_next()? {
        // The leases are in line with the table again.
        shelf.discard_next()?;
    }
    Ok(read)
}

/// Rows by the names of their pods.
pub(crate) fn by_name(table: &Table) -> HashMap<&OsStr, &Row> {
    table.pods.iter().map(|row| (OsStr::new(row.name.as_str()), row)).collect()
}

/// The table, with every live pod in it.
fn read(shelf: &impl Shelf, leases: &[Found]) -> Result<Read, RegistryError> {
    let mut problems = Vec::new();
    let mut whole = |page| match page {
        Page::Whole(table) => Some(table),
        Page::Missing => None,
        Page::Damaged(why) => {
            problems.push(why);
            None
        }
    };
    let (mut table, mut mended) = match whole(shelf.current()?) {
        Some(table) => (table, false),
        None => {
            let previous = whole(shelf.previous()?);
            let known = previous.is_some() || leases.iter().any(|lease| lease.row.is_some());
            (recall(previous.unwrap_or_default(), leases), known)
        }
    };
    mended |= complete(&mut table, leases)?;
    if mended {
        // Only now that all are in it: a lender that is not there has no loans.
        table.settle();
    }
    Ok(Read { table, mended, problems })
}

/// Brings leases in line with the table. One that a change rewrote which then was cut would else be taken for the truth
/// should the table be lost one day.
fn repair(shelf: &mut impl Shelf, leases: &[Found], table: &Table) -> Result<(), RegistryError> {
    let rows = by_name(table);
    for lease in leases.iter().filter(|lease| lease.has_lease) {
        let known = lease.name().and_then(|name| rows.get(name));
        if let Some(row) = known.filter(|row| lease.row.as_ref() != Some(**row)) {
            shelf.write_lease(row)?;
        }
    }
    Ok(())
}

/// The table from the generation before the lost one and the pods' own leases. What one of the two does not know or does
/// not give up counts as held, and a ticket that one of them has no more counts as used.
fn recall(mut table: Table, leases: &[Found]) -> Table {
    let rows = || leases.iter().filter_map(|lease| lease.row.as_ref());
    let owns: HashMap<SessionId, &Row> = rows().map(|row| (row.session, row)).collect();
    for row in &mut table.pods {
        let Some(own) = owns.get(&row.session).copied() else { continue };
        let used = own.ticket_hash.is_none() || row.ticket_hash.is_none();
        let yielded = own.yielded && row.yielded;
        *row = Row { yielded, ..own.clone() };
        if used {
            row.ticket_hash = None;
            row.deadline = None;
        }
    }
    for row in rows().filter(|row| row.ticket_hash.is_some()) {
        if table.row(row.session).is_none() && table.named(&row.name).is_none() {
            table.pods.push(row.clone());
        }
    }
    table
}

/// Adds the rows of live pods that the table has not, which only damage can bring about. Says whether there were any.
fn complete(table: &mut Table, leases: &[Found]) -> Result<bool, RegistryError> {
    let mut missing: Vec<&Row> = Vec::new();
    let known = by_name(table);
    for lease in leases.iter().filter(|lease| lease.life != Life::Gone) {
        let known = lease.name().and_then(|name| known.get(name));
        match (&lease.row, known) {
            (Some(row), Some(known)) if row.session == known.session => {}
            (None, Some(_)) => {}
            (Some(row), _) => missing.push(row),
            (None, None) if lease.life == Life::Held => {
                let why = lease.damage.clone().unwrap_or_else(|| "the row is empty".to_owned());
                return Err(RegistryError::TableDamaged { path: lease.dir.clone(), why });
            }
            // A claim that died before it had a row has started nothing either.
            (None, None) => {}
        }
    }
    for row in &missing {
        table.pods.retain(|other| other.name != row.name && other.session != row.session);
        table.pods.push((*row).clone());
    }
    Ok(!missing.is_empty())
}

/// Puts the next table in the place of `old`: first beside it, so that a cut is seen, then the rows in the leases, then the
/// page. If that fails, all are as they were. Gives the table that is true now.
pub(crate) fn write(shelf: &mut impl Shelf, old: &Table, mut next: Table) -> Result<Table, RegistryError> {
    next.generation = old.generation.saturating_add(1);
    let before: HashMap<SessionId, &Row> = old.pods.iter().map(|row| (row.session, row)).collect();
    let changed: Vec<&Row> =
        next.pods.iter().filter(|row| before.get(&row.session).copied() != Some(*row)).collect();
    if let Err(e) = shelf.write_next(&next) {
        // What is there of it stays in nobody's way: the next change writes it anew.
        drop(shelf.discard_next());
        return Err(e);
    }
    let written = changed.iter().try_for_each(|row| shelf.write_lease(row)).and_then(|()| turn(shelf));
    if let Err(e) = written {
        let put_back = changed.iter().filter_map(|row| before.get(&row.session));
        // The page decides as long as it can be read; a lease that stays ahead of it matters only if that is lost. As
        // long as one may, the table that lies ready stays, and whoever comes next looks at the leases.
        if put_back.map(|row| shelf.write_lease(row)).filter(Result::is_err).count() == 0 {
            drop(shelf.discard_next());
        }
        return Err(e);
    }
    Ok(next)
}

fn turn(shelf: &mut impl Shelf) -> Result<(), RegistryError> {
    let had = shelf.retire()?;
    shelf.promote().inspect_err(|_| {
        // If this fails too, the previous page is read, and the change has not happened.
        drop(shelf.restore(had));
    })
}

/// The rows that are dead: no process, nothing left of what it started, no ticket that could still be used.
fn dead(table: &Table, leases: &[Found], now: Millis) -> Vec<SessionId> {
    let dirs: HashMap<&OsStr, &Found> =
        leases.iter().filter_map(|lease| Some((lease.name()?, lease))).collect();
    let is_dead = |row: &&Row| {
        if row.ticket_hash.is_some() && row.deadline.is_some_and(|at| now < at) {
            return false;
        }
        match dirs.get(OsStr::new(row.name.as_str())).copied() {
            Some(Found { life: Life::Held | Life::Dying, .. }) => false,
            Some(Found { has_lease: true, .. }) => true,
            // Somebody removed the lease. The pod may live, and then it holds what it held.
            Some(_) | None => !row.is_running(),
        }
    };
    table.pods.iter().filter(is_dead).map(|row| row.session).collect()
}
