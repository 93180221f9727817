//! The files of the scope table: `scope.json`, `scope.prev.json`, and the rows in the pods' leases.
//!
//! Here: how each is read and written, and how damage is known. Elsewhere: in which order (`ledger`).
//! Invariant: a table is read as it was written or not at all (`nothing_damaged_is_ever_free`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{RegistryError, at};
use crate::files::{PRIVATE_FILE, read_small};
use crate::lease::Row;
use crate::ledger::{Page, Shelf};
use crate::table::Table;
use crate::ticket::digest;

/// A table of the most pods that a user may have is well below this.
const TABLE_BYTES: u64 = 32 * 1024 * 1024;

/// What lies in `scope.json`: the sum by which damage is known, then the members of the table.
#[derive(Deserialize)]
struct Signed {
    #[serde(rename = "sum")]
    _sum: String,
    generation: u64,
    pods: Vec<Row>,
}

/// How the file begins, before the sum and behind it. What follows is the table without its first brace, and the sum is
/// that of the table's own bytes: so a page is checked as it lies there and need not be written once more for that.
const BEFORE_SUM: &[u8] = b"{\"sum\":\"";
const AFTER_SUM: &[u8] = b"\",";
const SUM_BYTES: usize = 64;

/// The runtime directory's files.
pub(crate) struct Files<'a> {
    pub(crate) root: &'a Path,
}

impl Files<'_> {
    fn page(&self) -> PathBuf {
        self.root.join("scope.json")
    }

    fn previous_page(&self) -> PathBuf {
        self.root.join("scope.prev.json")
    }

    fn next_page(&self) -> PathBuf {
        self.root.join("scope.json.tmp")
    }
}

impl Shelf for Files<'_> {
    fn current(&self) -> Result<Page, RegistryError> {
        read_page(&self.page())
    }

    fn previous(&self) -> Result<Page, RegistryError> {
        read_page(&self.previous_page())
    }

    fn write_lease(&mut self, row: &Row) -> Result<(), RegistryError> {
        let path = self.root.join("pods").join(row.name.as_str()).join("lease");
        rewrite(&path, row).map_err(at("write", &path))
    }

    fn write_next(&mut self, table: &Table) -> Result<(), RegistryError> {
        let path = self.next_page();
        write_synced(&path, table).map_err(at("write", &path))
    }

    fn retire(&mut self) -> Result<bool, RegistryError> {
        let path = self.page();
        match cut("rename").and_then(|_| fs::rename(&path, self.previous_page())) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(at("move", path)(e)),
        }
    }

    fn promote(&mut self) -> Result<(), RegistryError> {
        let path = self.page();
        let renamed = cut("rename").and_then(|_| fs::rename(self.next_page(), &path));
        renamed.map_err(at("replace", &path))?;
        let synced = cut("sync").and_then(|_| File::open(self.root)?.sync_all());
        synced.map_err(at("sync", self.root))
    }

    fn restore(&mut self, had: bool) -> Result<(), RegistryError> {
        let path = self.page();
        let restored = if had { fs::rename(self.previous_page(), &path) } else { fs::remove_file(&path) };
        restored.map_err(at("restore", path))
    }

    fn has_next(&self) -> Result<bool, RegistryError> {
        let path = self.next_page();
        path.try_exists().map_err(at("look at", path))
    }

    fn discard_next(&mut self) -> Result<(), RegistryError> {
        let path = self.next_page();
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(e)),
            _ => Ok(()),
        }
    }
}

/// What cannot be read at all may be whole, so that is an error and not damage.
fn read_page(path: &Path) -> Result<Page, RegistryError> {
    let Some(bytes) = read_small(path, TABLE_BYTES).map_err(at("read", path))? else {
        return Ok(Page::Missing);
    };
    let why = match table_of(&bytes) {
        Ok(table) => return Ok(Page::Whole(table)),
        Err(why) => why,
    };
    let path = path.display();
    Ok(Page::Damaged(format!(
        "{path} is damaged ({why}); the table was put together from what else is known"
    )))
}

/// The table of a page, or why it is not what was written.
fn table_of(bytes: &[u8]) -> Result<Table, String> {
    let signed = bytes.strip_prefix(BEFORE_SUM).and_then(|rest| rest.split_at_checked(SUM_BYTES));
    let table = signed.and_then(|(sum, rest)| Some((sum, rest.strip_prefix(AFTER_SUM)?)));
    let Some((sum, table)) = table else { return Err("it does not begin with its sum".to_owned()) };
    if digest(&[b"{", table]).as_bytes() != sum {
        return Err("its sum does not fit".to_owned());
    }
    let Signed { generation, pods, .. } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    Ok(Table { generation, pods })
}

fn page_of(table: &Table) -> io::Result<Vec<u8>> {
    let table = serde_json::to_vec(table)?;
    let rest = table.get(1..).unwrap_or_default();
    Ok([BEFORE_SUM, digest(&[&table]).as_bytes(), AFTER_SUM, rest].concat())
}

/// A new file that is on the disk when this returns.
fn write_synced(path: &Path, table: &Table) -> io::Result<()> {
    let bytes = page_of(table)?;
    cut("create")?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(path)?;
    write_cut(&bytes, |part| file.write_all(part))?;
    cut("sync")?;
    file.sync_all()
}

/// In place: a rename would make a second lock. The time of the pod's last beat stays.
fn rewrite(path: &Path, row: &Row) -> io::Result<()> {
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        // Somebody cleaned the directory of a live pod. The table still has it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let beat = file.metadata()?.modified()?;
    let bytes = serde_json::to_vec(row)?;
    write_cut(&bytes, |part| file.write_all_at(part, 0))?;
    cut("truncate")?;
    file.set_len(bytes.len() as u64)?;
    file.set_modified(beat)
}

/// Writes all, or as much as a test lets through.
fn write_cut(bytes: &[u8], write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
    match cut("write")? {
        None => write(bytes),
        Some(error) => {
            write(&bytes[..bytes.len() / 2])?;
            Err(error)
        }
    }
}

/// A place where a test can cut a change: before the operation, or in the middle of a write (the error then is what it
/// gives back). Outside tests nothing is cut.
#[cfg(not(test))]
fn cut(_operation: &'static str) -> io::Result<Option<io::Error>> {
    Ok(None)
}

#[cfg(test)]
use faults::cut;

#[cfg(test)]
pub(crate) mod faults {
    //! Faults on demand, for the thread that asks for them.

    use std::cell::Cell;
    use std::io;

    /// What happens at an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// The error with this number, before anything is done.
        Error(i32),
        /// Half of a write, then no space. At other operations: no space.
        Short,
        /// The process ends.
        Kill,
    }

    thread_local! {
        static PLAN: Cell<Option<(u32, Fault)>> = const { Cell::new(None) };
    }

    /// Lets the operation that comes after `after` others fail, once.
    pub(crate) fn plan(after: u32, fault: Fault) {
        PLAN.set(Some((after, fault)));
    }

    /// Forgets the plan. Says whether it was carried out.
    pub(crate) fn unplan() -> bool {
        PLAN.take().is_none()
    }

    pub(super) fn cut(operation: &'static str) -> io::Result<Option<io::Error>> {
        let Some((after, fault)) = PLAN.get() else { return Ok(None) };
        if after > 0 {
            PLAN.set(Some((after - 1, fault)));
            return Ok(None);
        }
        PLAN.set(None);
        let full = || io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        match fault {
            Fault::Error(number) => Err(io::Error::from_raw_os_error(number)),
            Fault::Short if operation == "write" => Ok(Some(full())),
            Fault::Short => Err(full()),
            Fault::Kill => std::process::abort(),
        }
    }
}
