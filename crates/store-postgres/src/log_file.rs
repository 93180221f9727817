//! A log file in tables: one row for each line, appended only with the newest fencing token.
//!
//! A step is one transaction. Its commit is not durable until the sync; until then this process keeps the lines in
//! memory, and writes them again, with the same token, after a crash of the server.
//! Guarantee: no entry is accepted with an old token (`an_overtaken_writer_writes_nothing`), and no synced entry is
//! lost (`a_server_that_dies_again_and_again_loses_nothing_that_was_synced`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_record::line;
use minke_session::DiskFile;
use postgres::Transaction;

use crate::locks::LEASE_LOCK;
use crate::path_names::copy_at;
use crate::server_link::{LinkError, ServerLink, durable_transaction};

/// The size of one read.
const CHUNK_BYTES: u64 = 256 * 1024;
/// The maximum number of unsynced bytes.
const MAX_PENDING_BYTES: usize = 16 * 1024 * 1024;

/// The rows of a log file, and the right to write them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRow {
    pub(crate) session: i64,
    pub(crate) file: i64,
    pub(crate) write_right: WriteRight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteRight {
    /// The lease of the session with this token when the file was opened; `None` if it was not held.
    Lease(Option<i64>),
    /// A copy that no other process knows yet.
    Copying,
}

/// An open log file.
pub(crate) struct TableLogFile {
    link: Arc<ServerLink>,
    row: LogRow,
    state: Mutex<LogFileState>,
}

struct LogFileState {
    /// Its length, as far as this process wrote it.
    bytes: u64,
    /// The unsynced bytes and their offsets.
    pending: VecDeque<(u64, Arc<Vec<u8>>)>,
    pending_bytes: usize,
    /// Cached bytes and their offset.
    read_cache: (u64, Vec<u8>),
}

impl std::fmt::Debug for TableLogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFile").field("row", &self.row).finish_non_exhaustive()
    }
}

/// Lines in their stored form: their offsets, entry numbers and bytes.
struct LogRows {
    offsets: Vec<i64>,
    seqs: Vec<Option<i64>>,
    lines: Vec<Vec<u8>>,
}

impl LogRows {
    fn from_bytes(bytes: &[u8], offset: u64) -> LogRows {
        let mut rows = LogRows { offsets: Vec::new(), seqs: Vec::new(), lines: Vec::new() };
        let mut at = offset;
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            rows.offsets.push(at.cast_signed());
            rows.seqs.push(line::scan_envelope(text).map(|(envelope, _)| envelope.seq.cast_signed()));
            rows.lines.push(text.to_vec());
            at += text.len() as u64;
        }
        rows
    }
}

impl TableLogFile {
    pub(crate) fn new(link: &Arc<ServerLink>, row: LogRow, bytes: u64) -> TableLogFile {
        let state =
            LogFileState { bytes, pending: VecDeque::new(), pending_bytes: 0, read_cache: (0, Vec::new()) };
        TableLogFile { link: Arc::clone(link), row, state: Mutex::new(state) }
    }

    fn lock_state(&self) -> MutexGuard<'_, LogFileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fencing_token(&self) -> io::Result<Option<i64>> {
        match self.row.write_right {
            WriteRight::Copying => Ok(None),
            WriteRight::Lease(Some(fence)) => Ok(Some(fence)),
            WriteRight::Lease(None) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "only the holder of the session's lease can write the log",
            )),
        }
    }

    /// Reports a lost lease to all parts of this process.
    fn report_lost_lease<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            if error.kind() == io::ErrorKind::StaleNetworkFileHandle {
                self.link.held_leases.report_loss(self.row.session, LEASE_LOCK, &error.to_string());
            }
        })
    }

    /// Appends with one statement, if the token is the newest and the log has the expected length.
    fn write_rows(&self, bytes: &Arc<Vec<u8>>, at: u64, pending: PendingWrites) -> io::Result<()> {
        let fence = self.fencing_token()?;
        let (row, owner, bytes) = (self.row, self.link.owner, Arc::clone(bytes));
        self.link.run_change(move |attempt| {
            if attempt.is_retry {
                // The rows may already exist, or earlier ones may be lost.
                let mut change = attempt.client.transaction()?;
                check_lease(&mut change, row, fence, owner)?;
                restore_length(&mut change, row, &pending, at, Some(&bytes))?;
                return Ok(change.commit()?);
            }
            let rows = LogRows::from_bytes(&bytes, at);
            let grown = bytes.len() as i64;
            let affected = attempt.client.execute(
                "with held as (
                     select 1 from minke.lease
                     where $5::bigint is not null and session = $6 and name = 'lease' and fence = $5 and owner = $7
                     for no key update
                 ), grown as (
                     update minke.file set bytes = bytes + $3, modified = clock_timestamp()
                     where key = $1 and bytes = $2 and ($5::bigint is null or exists (select 1 from held))
                     returning key
                 )
                 insert into minke.entry (file, at, seq, fence, line)
                 select grown.key, new.at, new.seq, $5, new.line
                 from grown, unnest($4::bigint[], $8::bigint[], $9::bytea[]) as new(at, seq, line)",
                &[&row.file, &at.cast_signed(), &grown, &rows.offsets, &fence, &row.session, &owner, &rows.seqs, &rows.lines],
            )?;
            if affected as usize == rows.offsets.len() {
                return Ok(());
            }
            let mut change = attempt.client.transaction()?;
            check_lease(&mut change, row, fence, owner)?;
            restore_length(&mut change, row, &pending, at, Some(&bytes))?;
            Ok(change.commit()?)
        })
    }

    fn read_rows(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = self.row.file;
        let to = offset.saturating_add((bytes as u64).max(CHUNK_BYTES)).cast_signed().max(0);
        let from = offset.cast_signed();
        if from < 0 {
            return Ok(Vec::new());
        }
        self.link.run_work(move |attempt| {
            let rows = attempt.client.query(
                "select at, line from minke.entry
                 where file = $1 and at < $3
                   and at >= coalesce((select max(at) from minke.entry where file = $1 and at <= $2), 0)
                 order by at",
                &[&file, &from, &to],
            )?;
            let mut db_row = Vec::new();
            for row in &rows {
                let (at, line): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
                let skip = usize::try_from(from - at).unwrap_or(0);
                db_row.extend_from_slice(line.get(skip..).unwrap_or_default());
            }
            Ok(db_row)
        })
    }
}

/// Bytes that can be written again, with their offsets.
type PendingWrites = Vec<(u64, Arc<Vec<u8>>)>;

/// Locks the lease's row until the end of the transaction, if this process still owns it.
fn check_lease(
    change: &mut Transaction<'_>,
    row: LogRow,
    fence: Option<i64>,
    owner: uuid::Uuid,
) -> Result<(), LinkError> {
    let Some(fence) = fence else { return Ok(()) };
    let db_row = change.query_opt(
        "select fence, owner from minke.lease where session = $1 and name = 'lease' for no key update",
        &[&row.session],
    )?;
    let found = db_row.map(|found| Ok::<_, LinkError>((found.try_get(0)?, found.try_get(1)?))).transpose()?;
    if found == Some((fence, Some(owner))) {
        return Ok(());
    }
    let now = found.map_or("it is gone".to_owned(), |(newer, _): (i64, Option<uuid::Uuid>)| {
        format!("the current token is {newer}")
    });
    let reason = format!("this writer, with fencing token {fence}, was overtaken by another one: {now}");
    Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, reason).into())
}

/// Restores the file to a length: cuts off later bytes, writes lost ones again; then appends.
fn restore_length(
    change: &mut Transaction<'_>,
    row: LogRow,
    pending: &PendingWrites,
    to: u64,
    then: Option<&Arc<Vec<u8>>>,
) -> Result<(), LinkError> {
    let gone = || LinkError::Refused(io::Error::new(io::ErrorKind::NotFound, "the log is gone"));
    let db_row = change.query_opt("select bytes from minke.file where key = $1 for update", &[&row.file])?;
    let mut file_length = db_row.ok_or_else(gone)?.try_get::<_, i64>(0)?.cast_unsigned();
    if file_length > to {
        change.execute(
            "delete from minke.entry where file = $1 and at >= $2",
            &[&row.file, &to.cast_signed()],
        )?;
        // A line across the boundary exists only in a torn log.
        change.execute(
            "update minke.entry set line = substring(line from 1 for ($2 - at)::integer)
             where file = $1 and at < $2 and at + length(line) > $2",
            &[&row.file, &to.cast_signed()],
        )?;
        file_length = to;
    }
    for (at, bytes) in pending.iter().filter(|(at, _)| *at < to) {
        if *at == file_length {
            insert_rows(change, row, bytes, *at)?;
            file_length += bytes.len() as u64;
        }
    }
    if file_length != to {
        let reason = format!(
            "the log ends at byte {file_length}, but the unsynced bytes of this process begin at {to}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason).into());
    }
    if let Some(bytes) = then {
        insert_rows(change, row, bytes, file_length)?;
        file_length += bytes.len() as u64;
    }
    change.execute(
        "update minke.file set bytes = $2, modified = clock_timestamp() where key = $1",
        &[&row.file, &file_length.cast_signed()],
    )?;
    Ok(())
}

fn insert_rows(change: &mut Transaction<'_>, row: LogRow, bytes: &[u8], at: u64) -> Result<(), LinkError> {
    let rows = LogRows::from_bytes(bytes, at);
    let fence = match row.write_right {
        WriteRight::Lease(fence) => fence,
        WriteRight::Copying => None,
    };
    change.execute(
        "insert into minke.entry (file, at, seq, fence, line)
         select $1, new.at, new.seq, $5, new.line
         from unnest($2::bigint[], $3::bigint[], $4::bytea[]) as new(at, seq, line)",
        &[&row.file, &rows.offsets, &rows.seqs, &rows.lines, &fence],
    )?;
    Ok(())
}

impl DiskFile for TableLogFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.lock_state().pending_bytes + bytes.len() > MAX_PENDING_BYTES {
            self.sync_data()?;
        }
        let (at, pending) = {
            let state = self.lock_state();
            (state.bytes, state.pending.iter().cloned().collect())
        };
        let bytes = Arc::new(bytes.to_vec());
        self.report_lost_lease(self.write_rows(&bytes, at, pending))?;
        let mut state = self.lock_state();
        state.bytes = at + bytes.len() as u64;
        state.pending_bytes += bytes.len();
        state.pending.push_back((at, Arc::clone(&bytes)));
        Ok(bytes.len())
    }

    /// Skips bytes that are already stored at the offset; otherwise writes them and removes everything after them.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.read_rows(offset, bytes.len())?.starts_with(bytes) {
            return Ok(bytes.len());
        }
        let fence = self.fencing_token()?;
        let (row, owner, bytes) = (self.row, self.link.owner, Arc::new(bytes.to_vec()));
        let count = bytes.len();
        let affected = self.link.run_change(move |attempt| {
            let mut change = attempt.client.transaction()?;
            check_lease(&mut change, row, fence, owner)?;
            restore_length(&mut change, row, &Vec::new(), offset, Some(&bytes))?;
            Ok(change.commit()?)
        });
        self.report_lost_lease(affected)?;
        let mut state = self.lock_state();
        state.bytes = offset + count as u64;
        state.read_cache = (0, Vec::new());
        Ok(count)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        {
            let state = self.lock_state();
            let (from, seen) = &state.read_cache;
            if let Some(skip) = offset.checked_sub(*from).filter(|skip| *skip < seen.len() as u64) {
                return Ok(copy_at(seen, skip, bytes));
            }
        }
        let db_row = self.read_rows(offset, bytes.len())?;
        let count = copy_at(&db_row, 0, bytes);
        self.lock_state().read_cache = (offset, db_row);
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        let file = self.row.file;
        self.link.run_work(move |attempt| {
            let row = attempt.client.query_opt("select bytes from minke.file where key = $1", &[&file])?;
            let row = row.ok_or(io::ErrorKind::NotFound)?;
            Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let fence = self.fencing_token()?;
        let (row, owner) = (self.row, self.link.owner);
        let pending: PendingWrites = self.lock_state().pending.iter().cloned().collect();
        let cut = self.link.run_change(move |attempt| {
            let mut change = attempt.client.transaction()?;
            check_lease(&mut change, row, fence, owner)?;
            restore_length(&mut change, row, &pending, bytes, None)?;
            Ok(change.commit()?)
        });
        self.report_lost_lease(cut)?;
        let mut state = self.lock_state();
        state.bytes = bytes;
        state.pending.retain(|(at, _)| *at < bytes);
        state.pending_bytes = state.pending.iter().map(|(_, bytes)| bytes.len()).sum();
        state.read_cache = (0, Vec::new());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let (to, pending): (u64, PendingWrites) = {
            let state = self.lock_state();
            (state.bytes, state.pending.iter().cloned().collect())
        };
        let count = pending.len();
        let Ok(fence) = self.fencing_token() else {
            // The caller only reads.
            self.link.has_unflushed.store(true, std::sync::atomic::Ordering::SeqCst);
            return self.link.flush_commits();
        };
        let (row, owner) = (self.row, self.link.owner);
        let synced = self.link.run_work(move |attempt| {
            let mut change = durable_transaction(attempt.client)?;
            check_lease(&mut change, row, fence, owner)?;
            let same = change.execute(
                "update minke.file set synced = bytes where key = $1 and bytes >= $2",
                &[&row.file, &to.cast_signed()],
            )?;
            if same == 0 {
                restore_length(&mut change, row, &pending, to, None)?;
            }
            Ok(change.commit()?)
        });
        self.report_lost_lease(synced)?;
        let mut state = self.lock_state();
        let count = count.min(state.pending.len());
        let done: usize = state.pending.drain(..count).map(|(_, bytes)| bytes.len()).sum();
        state.pending_bytes = state.pending_bytes.saturating_sub(done);
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lock(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        Ok((1, self.row.file.cast_unsigned()))
    }
}
