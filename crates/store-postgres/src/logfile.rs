//! A file of the log: one row for each line, appended under the newest fence or not at all.
//!
//! A step is one transaction. It is not on the server's disk when it is committed, but when it is synced; what a crash of
//! the server takes back is known here until then, and is written again under the same fence.
//! Promise: no entry is accepted under an old fence (`an_overtaken_writer_writes_nothing`), and nothing that was synced is
//! lost (`a_server_that_dies_again_and_again_loses_nothing_that_was_synced`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_record::line;
use minke_session::DiskFile;
use postgres::Transaction;

use crate::link::{Link, Trouble, durable};
use crate::locks::LEASE;
use crate::names::copy;

/// What is read at once.
const CHUNK_BYTES: u64 = 256 * 1024;
/// More than this is synced before more is written.
const PENDING_BYTES: usize = 16 * 1024 * 1024;

/// Which rows, and whose right to write them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRow {
    pub(crate) session: i64,
    pub(crate) file: i64,
    pub(crate) right: Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// The lease of the session, held with this fence when the file was opened; `None`: it was not held.
    Fence(Option<i64>),
    /// A copy that nobody else knows yet.
    Copying,
}

/// An open file of the log.
pub(crate) struct LogFile {
    link: Arc<Link>,
    row: LogRow,
    state: Mutex<State>,
}

struct State {
    /// How long it is, as far as we wrote it.
    bytes: u64,
    /// What was written and not synced: where, and what.
    pending: VecDeque<(u64, Arc<Vec<u8>>)>,
    pending_bytes: usize,
    /// A stretch that was read: where it begins.
    seen: (u64, Vec<u8>),
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFile").field("row", &self.row).finish_non_exhaustive()
    }
}

/// The lines of some bytes as they are kept: where each begins, its number, itself.
struct Rows {
    at: Vec<i64>,
    seq: Vec<Option<i64>>,
    line: Vec<Vec<u8>>,
}

impl Rows {
    fn of(bytes: &[u8], offset: u64) -> Rows {
        let mut rows = Rows { at: Vec::new(), seq: Vec::new(), line: Vec::new() };
        let mut at = offset;
        for text in bytes.split_inclusive(|byte| *byte == b'\n') {
            rows.at.push(at.cast_signed());
            rows.seq.push(line::glance(text).map(|(envelope, _)| envelope.seq.cast_signed()));
            rows.line.push(text.to_vec());
            at += text.len() as u64;
        }
        rows
    }
}

impl LogFile {
    pub(crate) fn new(link: &Arc<Link>, row: LogRow, bytes: u64) -> LogFile {
        let state = State { bytes, pending: VecDeque::new(), pending_bytes: 0, seen: (0, Vec::new()) };
        LogFile { link: Arc::clone(link), row, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fence(&self) -> io::Result<Option<i64>> {
        match self.row.right {
            Right::Copying => Ok(None),
            Right::Fence(Some(fence)) => Ok(Some(fence)),
            Right::Fence(None) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the log is written only by whoever holds the session's lease",
            )),
        }
    }

    /// Says to everybody in this process that the session is no longer ours.
    fn noticed<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            if error.kind() == io::ErrorKind::StaleNetworkFileHandle {
                self.link.held.lose(self.row.session, LEASE, &error.to_string());
            }
        })
    }

    /// One statement, which is one transaction: where the fence is the newest and the log ends where we believe.
    fn write(&self, bytes: &Arc<Vec<u8>>, at: u64, pending: Pending) -> io::Result<()> {
        let fence = self.fence()?;
        let (row, owner, bytes) = (self.row, self.link.owner, Arc::clone(bytes));
        self.link.change(move |attempt| {
            if attempt.again {
                // It may stand already, or what came before may be gone.
                let mut change = attempt.client.transaction()?;
                check(&mut change, row, fence, owner)?;
                bring(&mut change, row, &pending, at, Some(&bytes))?;
                return Ok(change.commit()?);
            }
            let rows = Rows::of(&bytes, at);
            let grown = bytes.len() as i64;
            let written = attempt.client.execute(
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
                &[&row.file, &at.cast_signed(), &grown, &rows.at, &fence, &row.session, &owner, &rows.seq, &rows.line],
            )?;
            if written as usize == rows.at.len() {
                return Ok(());
            }
            let mut change = attempt.client.transaction()?;
            check(&mut change, row, fence, owner)?;
            bring(&mut change, row, &pending, at, Some(&bytes))?;
            Ok(change.commit()?)
        })
    }

    fn fetch(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = self.row.file;
        let to = offset.saturating_add((bytes as u64).max(CHUNK_BYTES)).cast_signed().max(0);
        let from = offset.cast_signed();
        if from < 0 {
            return Ok(Vec::new());
        }
        self.link.ask(move |attempt| {
            let rows = attempt.client.query(
                "select at, line from minke.entry
                 where file = $1 and at < $3
                   and at >= coalesce((select max(at) from minke.entry where file = $1 and at <= $2), 0)
                 order by at",
                &[&file, &from, &to],
            )?;
            let mut found = Vec::new();
            for row in &rows {
                let (at, line): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
                let skip = usize::try_from(from - at).unwrap_or(0);
                found.extend_from_slice(line.get(skip..).unwrap_or_default());
            }
            Ok(found)
        })
    }
}

/// What can be written again.
type Pending = Vec<(u64, Arc<Vec<u8>>)>;

/// Holds the lease's row until the end of the transaction, if it is still ours.
fn check(
    change: &mut Transaction<'_>,
    row: LogRow,
    fence: Option<i64>,
    owner: uuid::Uuid,
) -> Result<(), Trouble> {
    let Some(fence) = fence else { return Ok(()) };
    let found = change.query_opt(
        "select fence, owner from minke.lease where session = $1 and name = 'lease' for no key update",
        &[&row.session],
    )?;
    let found = found.map(|found| Ok::<_, Trouble>((found.try_get(0)?, found.try_get(1)?))).transpose()?;
    if found == Some((fence, Some(owner))) {
        return Ok(());
    }
    let now = found.map_or("it is gone".to_owned(), |(newer, _): (i64, Option<uuid::Uuid>)| {
        format!("the fence is {newer}")
    });
    let why = format!("this writer, with fence {fence}, was overtaken by another one: {now}");
    Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, why).into())
}

/// Makes the file end at a byte: cuts off what is too much, writes again what a crash took; then appends.
fn bring(
    change: &mut Transaction<'_>,
    row: LogRow,
    pending: &Pending,
    to: u64,
    then: Option<&Arc<Vec<u8>>>,
) -> Result<(), Trouble> {
    let gone = || Trouble::Refused(io::Error::new(io::ErrorKind::NotFound, "the log is gone"));
    let found = change.query_opt("select bytes from minke.file where key = $1 for update", &[&row.file])?;
    let mut there = found.ok_or_else(gone)?.try_get::<_, i64>(0)?.cast_unsigned();
    if there > to {
        change.execute(
            "delete from minke.entry where file = $1 and at >= $2",
            &[&row.file, &to.cast_signed()],
        )?;
        // A line that goes beyond it: only a torn log has one there.
        change.execute(
            "update minke.entry set line = substring(line from 1 for ($2 - at)::integer)
             where file = $1 and at < $2 and at + length(line) > $2",
            &[&row.file, &to.cast_signed()],
        )?;
        there = to;
    }
    for (at, bytes) in pending.iter().filter(|(at, _)| *at < to) {
        if *at == there {
            insert(change, row, bytes, *at)?;
            there += bytes.len() as u64;
        }
    }
    if there != to {
        let why = format!("the log ends at byte {there}, and what this process knows begins at {to}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
    }
    if let Some(bytes) = then {
        insert(change, row, bytes, there)?;
        there += bytes.len() as u64;
    }
    change.execute(
        "update minke.file set bytes = $2, modified = clock_timestamp() where key = $1",
        &[&row.file, &there.cast_signed()],
    )?;
    Ok(())
}

fn insert(change: &mut Transaction<'_>, row: LogRow, bytes: &[u8], at: u64) -> Result<(), Trouble> {
    let rows = Rows::of(bytes, at);
    let fence = match row.right {
        Right::Fence(fence) => fence,
        Right::Copying => None,
    };
    change.execute(
        "insert into minke.entry (file, at, seq, fence, line)
         select $1, new.at, new.seq, $5, new.line
         from unnest($2::bigint[], $3::bigint[], $4::bytea[]) as new(at, seq, line)",
        &[&row.file, &rows.at, &rows.seq, &rows.line, &fence],
    )?;
    Ok(())
}

impl DiskFile for LogFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.state().pending_bytes + bytes.len() > PENDING_BYTES {
            self.sync_data()?;
        }
        let (at, pending) = {
            let state = self.state();
            (state.bytes, state.pending.iter().cloned().collect())
        };
        let bytes = Arc::new(bytes.to_vec());
        self.noticed(self.write(&bytes, at, pending))?;
        let mut state = self.state();
        state.bytes = at + bytes.len() as u64;
        state.pending_bytes += bytes.len();
        state.pending.push_back((at, Arc::clone(&bytes)));
        Ok(bytes.len())
    }

    /// The same bytes in the same place are left alone; others are written, and what stood after them is gone.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.fetch(offset, bytes.len())?.starts_with(bytes) {
            return Ok(bytes.len());
        }
        let fence = self.fence()?;
        let (row, owner, bytes) = (self.row, self.link.owner, Arc::new(bytes.to_vec()));
        let count = bytes.len();
        let written = self.link.change(move |attempt| {
            let mut change = attempt.client.transaction()?;
            check(&mut change, row, fence, owner)?;
            bring(&mut change, row, &Vec::new(), offset, Some(&bytes))?;
            Ok(change.commit()?)
        });
        self.noticed(written)?;
        let mut state = self.state();
        state.bytes = offset + count as u64;
        state.seen = (0, Vec::new());
        Ok(count)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        {
            let state = self.state();
            let (from, seen) = &state.seen;
            if let Some(skip) = offset.checked_sub(*from).filter(|skip| *skip < seen.len() as u64) {
                return Ok(copy(seen, skip, bytes));
            }
        }
        let found = self.fetch(offset, bytes.len())?;
        let count = copy(&found, 0, bytes);
        self.state().seen = (offset, found);
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        let file = self.row.file;
        self.link.ask(move |attempt| {
            let row = attempt.client.query_opt("select bytes from minke.file where key = $1", &[&file])?;
            let row = row.ok_or(io::ErrorKind::NotFound)?;
            Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let fence = self.fence()?;
        let (row, owner) = (self.row, self.link.owner);
        let pending: Pending = self.state().pending.iter().cloned().collect();
        let cut = self.link.change(move |attempt| {
            let mut change = attempt.client.transaction()?;
            check(&mut change, row, fence, owner)?;
            bring(&mut change, row, &pending, bytes, None)?;
            Ok(change.commit()?)
        });
        self.noticed(cut)?;
        let mut state = self.state();
        state.bytes = bytes;
        state.pending.retain(|(at, _)| *at < bytes);
        state.pending_bytes = state.pending.iter().map(|(_, bytes)| bytes.len()).sum();
        state.seen = (0, Vec::new());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let (to, pending): (u64, Pending) = {
            let state = self.state();
            (state.bytes, state.pending.iter().cloned().collect())
        };
        let count = pending.len();
        let Ok(fence) = self.fence() else {
            // Somebody who only reads.
            self.link.unflushed.store(true, std::sync::atomic::Ordering::SeqCst);
            return self.link.flush();
        };
        let (row, owner) = (self.row, self.link.owner);
        let synced = self.link.ask(move |attempt| {
            let mut change = durable(attempt.client)?;
            check(&mut change, row, fence, owner)?;
            let same = change.execute(
                "update minke.file set synced = bytes where key = $1 and bytes >= $2",
                &[&row.file, &to.cast_signed()],
            )?;
            if same == 0 {
                bring(&mut change, row, &pending, to, None)?;
            }
            Ok(change.commit()?)
        });
        self.noticed(synced)?;
        let mut state = self.state();
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

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((1, self.row.file.cast_unsigned()))
    }
}
