//! The files of the scope table: `scope.json`, `scope.prev.json`, and the rows in the pods' leases.
//!
//! Here: reading and writing each, and detecting damage. Elsewhere: their order (`table_store`).
//! Invariant: a table is read exactly as it was written or not at all (`nothing_damaged_is_ever_free`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{RegistryError, io_error};
use crate::files::{PRIVATE_FILE_MODE, read_small};
use crate::lease::ScopeRow;
use crate::table::ScopeTable;
use crate::table_store::{TableFile, TableStorage};
use crate::ticket::hash_parts;

/// A table with the maximum number of pods is well below this size.
const MAX_TABLE_BYTES: u64 = 32 * 1024 * 1024;

/// The content of `scope.json`: the checksum, then the members of the table.
#[derive(Deserialize)]
struct SummedTable {
    #[serde(rename = "sum")]
    _sum: String,
    generation: u64,
    pods: Vec<ScopeRow>,
}

/// The start of the file before and after the checksum. The rest is the table without its first brace, and the checksum
/// covers the table's own bytes. So a file is checked without serializing it again.
const SUM_PREFIX: &[u8] = b"{\"sum\":\"";
const SUM_SUFFIX: &[u8] = b"\",";
const SUM_BYTES: usize = 64;

/// The table files of the runtime directory.
pub(crate) struct TableFiles<'a> {
    pub(crate) root: &'a Path,
}

impl TableFiles<'_> {
    fn current_path(&self) -> PathBuf {
        self.root.join("scope.json")
    }

    fn previous_path(&self) -> PathBuf {
        self.root.join("scope.prev.json")
    }

    fn next_path(&self) -> PathBuf {
        self.root.join("scope.json.tmp")
    }
}

impl TableStorage for TableFiles<'_> {
    fn read_current(&self) -> Result<TableFile, RegistryError> {
        read_table_file(&self.current_path())
    }

    fn read_previous(&self) -> Result<TableFile, RegistryError> {
        read_table_file(&self.previous_path())
    }

    fn write_lease(&mut self, row: &ScopeRow) -> Result<(), RegistryError> {
        let path = self.root.join("pods").join(row.name.as_str()).join("lease");
        rewrite_lease(&path, row).map_err(io_error("write", &path))
    }

    fn write_next(&mut self, table: &ScopeTable) -> Result<(), RegistryError> {
        let path = self.next_path();
        write_synced(&path, table).map_err(io_error("write", &path))
    }

    fn current_to_previous(&mut self) -> Result<bool, RegistryError> {
        let path = self.current_path();
        match inject_fault("rename").and_then(|_| fs::rename(&path, self.previous_path())) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(io_error("move", path)(e)),
        }
    }

    fn next_to_current(&mut self) -> Result<(), RegistryError> {
        let path = self.current_path();
        let renamed = inject_fault("rename").and_then(|_| fs::rename(self.next_path(), &path));
        renamed.map_err(io_error("replace", &path))?;
        let synced = inject_fault("sync").and_then(|_| File::open(self.root)?.sync_all());
        synced.map_err(io_error("sync", self.root))
    }

    fn restore_previous(&mut self, had: bool) -> Result<(), RegistryError> {
        let path = self.current_path();
        let restored = if had { fs::rename(self.previous_path(), &path) } else { fs::remove_file(&path) };
        restored.map_err(io_error("restore", path))
    }

    fn has_next(&self) -> Result<bool, RegistryError> {
        let path = self.next_path();
        path.try_exists().map_err(io_error("look at", path))
    }

    fn discard_next(&mut self) -> Result<(), RegistryError> {
        let path = self.next_path();
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
            _ => Ok(()),
        }
    }
}

/// A file that cannot be read may be intact, so this is an error and not damage.
fn read_table_file(path: &Path) -> Result<TableFile, RegistryError> {
    let Some(bytes) = read_small(path, MAX_TABLE_BYTES).map_err(io_error("read", path))? else {
        return Ok(TableFile::Missing);
    };
    let why = match parse_table(&bytes) {
        Ok(table) => return Ok(TableFile::Valid(table)),
        Err(why) => why,
    };
    let path = path.display();
    Ok(TableFile::Damaged(format!("{path} is damaged ({why}); the table was rebuilt from other files")))
}

/// Parses the content of a table file.
fn parse_table(bytes: &[u8]) -> Result<ScopeTable, String> {
    let signed = bytes.strip_prefix(SUM_PREFIX).and_then(|rest| rest.split_at_checked(SUM_BYTES));
    let table = signed.and_then(|(sum, rest)| Some((sum, rest.strip_prefix(SUM_SUFFIX)?)));
    let Some((sum, table)) = table else { return Err("it does not begin with its checksum".to_owned()) };
    if hash_parts(&[b"{", table]).as_bytes() != sum {
        return Err("its checksum does not match".to_owned());
    }
    let SummedTable { generation, pods, .. } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    Ok(ScopeTable { generation, pods })
}

fn serialize_table(table: &ScopeTable) -> io::Result<Vec<u8>> {
    let table = serde_json::to_vec(table)?;
    let rest = table.get(1..).unwrap_or_default();
    Ok([SUM_PREFIX, hash_parts(&[&table]).as_bytes(), SUM_SUFFIX, rest].concat())
}

/// Creates a file and syncs it.
fn write_synced(path: &Path, table: &ScopeTable) -> io::Result<()> {
    let bytes = serialize_table(table)?;
    inject_fault("create")?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE_MODE).open(path)?;
    write_with_faults(&bytes, |part| file.write_all(part))?;
    inject_fault("sync")?;
    file.sync_all()
}

/// Writes in place: a rename would create a second lock. Keeps the time of the pod's last heartbeat.
fn rewrite_lease(path: &Path, row: &ScopeRow) -> io::Result<()> {
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        // The directory of a live pod was removed. The table still has its row.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let beat = file.metadata()?.modified()?;
    let bytes = serde_json::to_vec(row)?;
    write_with_faults(&bytes, |part| file.write_all_at(part, 0))?;
    inject_fault("truncate")?;
    file.set_len(bytes.len() as u64)?;
    file.set_modified(beat)
}

/// Writes all bytes, or as many as a test allows.
fn write_with_faults(bytes: &[u8], write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
    match inject_fault("write")? {
        None => write(bytes),
        Some(error) => {
            write(&bytes[..bytes.len() / 2])?;
            Err(error)
        }
    }
}

/// A point where a test can inject a failure: before an operation, or in the middle of a write, which then returns the
/// error. Does nothing outside of tests.
#[cfg(not(test))]
fn inject_fault(_operation: &'static str) -> io::Result<Option<io::Error>> {
    Ok(None)
}

#[cfg(test)]
use faults::inject_fault;

#[cfg(test)]
pub(crate) mod faults {
    //! Injects failures for the calling thread.

    use std::cell::Cell;
    use std::io;

    /// The effect on an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum FileFault {
        /// Fails with this error number before the operation.
        Error(i32),
        /// Writes one half, then reports no space. Other operations: no space.
        Short,
        /// Kills the process.
        Kill,
    }

    thread_local! {
        static PLAN: Cell<Option<(u32, FileFault)>> = const { Cell::new(None) };
    }

    /// Makes the operation that follows `after` others fail, once.
    pub(crate) fn plan_fault(after: u32, fault: FileFault) {
        PLAN.set(Some((after, fault)));
    }

    /// Clears the plan. Returns whether the failure happened.
    pub(crate) fn clear_plan() -> bool {
        PLAN.take().is_none()
    }

    pub(super) fn inject_fault(operation: &'static str) -> io::Result<Option<io::Error>> {
        let Some((after, fault)) = PLAN.get() else { return Ok(None) };
        if after > 0 {
            PLAN.set(Some((after - 1, fault)));
            return Ok(None);
        }
        PLAN.set(None);
        let full = || io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        match fault {
            FileFault::Error(number) => Err(io::Error::from_raw_os_error(number)),
            FileFault::Short if operation == "write" => Ok(Some(full())),
            FileFault::Short => Err(full()),
            FileFault::Kill => std::process::abort(),
        }
    }
}
