//! Refreshes the index: reads every changed log from where the index ends.
//!
//! Each user of the index refreshes it, one at a time. A log that contains the indexed position is read from there; one
//! with another hash at that position (after a power cut, or with a copied index) is read whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use minke_record::{Position, SessionId};
use minke_session::{LogStamp, SessionStore, StoreError};
use minke_thread::SessionSummary;
use rusqlite::{Row, Transaction, params};

use crate::IndexError;
use crate::database::Index;
use crate::log_reader::{IndexUpdate, IndexedMessage, LogUpdate, ReadTask};

/// The number of sessions in one transaction, which limits how long other processes wait.
const WRITE_BATCH: usize = 256;
/// The number of concurrent readers, and the minimum number of logs for each.
const READER_THREADS: usize = 4;
const TASKS_PER_READER: usize = 16;

/// The result of a refresh.
#[derive(Debug, Default)]
pub struct RefreshReport {
    /// The number of sessions.
    pub sessions: usize,
    /// The number of logs read, whole or in part.
    pub read: usize,
    /// The number of removed sessions.
    pub removed: usize,
    /// Unreadable sessions; the good prefix of a damaged log is still indexed.
    pub failures: Vec<ReadFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFailure {
    pub session: SessionId,
    pub error: String,
}

impl RefreshReport {
    fn add_failure(&mut self, session: SessionId, reason: String) {
        self.failures.push(ReadFailure { session, error: reason });
    }
}

const KNOWN_COLUMNS: &str = "select id, seq, h, file, bytes, modified";

/// The indexed position and stamp of a session.
struct IndexedSession {
    at: Position,
    stamp: LogStamp,
}

/// Parses a row of `KNOWN_COLUMNS`; `None` if it is invalid.
fn parse_row(row: &Row<'_>) -> rusqlite::Result<Option<(SessionId, IndexedSession)>> {
    let (id, h): (String, String) = (row.get(0)?, row.get(2)?);
    let seq = row.get::<_, i64>(1)?.cast_unsigned();
    let stamp = LogStamp {
        file: row.get(3)?,
        bytes: row.get::<_, i64>(4)?.cast_unsigned(),
        modified: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
    };
    let (Ok(session), Ok(h)) = (id.parse(), serde_json::from_value(h.into())) else { return Ok(None) };
    Ok(Some((session, IndexedSession { at: Position { seq, h }, stamp })))
}

/// Returns the stamp of a log.
type StampFn<'a> = dyn Fn(SessionId) -> Result<LogStamp, StoreError> + 'a;

impl Index {
    /// Reads the new parts of all sessions of a store.
    pub fn refresh(&mut self, store: &dyn SessionStore) -> Result<RefreshReport, IndexError> {
        let _lock = self.write_lock()?;
        let indexed = self.indexed_sessions()?;
        let stamps = store.all_stamps()?;
        let sessions: BTreeSet<SessionId> = match &stamps {
            Some(stamps) => stamps.keys().copied().collect(),
            None => store.list_sessions()?.into_iter().collect(),
        };
        let stamp_of = |session| match stamps.as_ref().and_then(|stamps| stamps.get(&session)) {
            Some(stamp) => Ok(*stamp),
            None => store.log_stamp(session),
        };
        let mut done = self.read_changed(store, &stamp_of, &sessions, &indexed)?;
        done.removed = self.remove_sessions(indexed.keys().filter(|session| !sessions.contains(session)))?;
        Ok(done)
    }

    /// The same for these sessions; reads no others.
    pub fn refresh_sessions(
        &mut self,
        store: &dyn SessionStore,
        sessions: &[SessionId],
    ) -> Result<RefreshReport, IndexError> {
        let _lock = self.write_lock()?;
        let mut indexed = BTreeMap::new();
        for session in sessions {
            indexed.extend(self.indexed_session(*session)?.map(|one| (*session, one)));
        }
        self.read_changed(
            store,
            &|session| store.log_stamp(session),
            &sessions.iter().copied().collect(),
            &indexed,
        )
    }

    fn indexed_sessions(&self) -> Result<BTreeMap<SessionId, IndexedSession>, IndexError> {
        let failed = self.error_for("read");
        let mut rows =
            self.connection.prepare_cached(&format!("{KNOWN_COLUMNS} from session")).map_err(&failed)?;
        let indexed = rows.query_map([], parse_row).map_err(&failed)?;
        // An invalid row is replaced.
        indexed.filter_map(|row| row.map_err(&failed).transpose()).collect()
    }

    fn indexed_session(&self, session: SessionId) -> Result<Option<IndexedSession>, IndexError> {
        let failed = self.error_for("read");
        let mut rows = self
            .connection
            .prepare_cached(&format!("{KNOWN_COLUMNS} from session where id = ?1"))
            .map_err(&failed)?;
        let mut indexed = rows.query_map([session.to_string()], parse_row).map_err(&failed)?;
        let row = indexed.next().transpose().map_err(&failed)?;
        Ok(row.flatten().map(|(_, known)| known))
    }

    /// Reads the changed ones of the sessions concurrently, and stores the results.
    fn read_changed(
        &mut self,
        store: &dyn SessionStore,
        stamp_of: &StampFn<'_>,
        sessions: &BTreeSet<SessionId>,
        indexed: &BTreeMap<SessionId, IndexedSession>,
    ) -> Result<RefreshReport, IndexError> {
        let mut done = RefreshReport { sessions: sessions.len(), ..RefreshReport::default() };
        let mut tasks = Vec::new();
        for session in sessions {
            match self.read_task(stamp_of, *session, indexed.get(session)) {
                Ok(task) => tasks.extend(task),
                Err(IndexError::Store(StoreError::NotFound { .. })) => {}
                Err(IndexError::Store(reason)) => done.add_failure(*session, reason.to_string()),
                Err(other) => return Err(other),
            }
        }
        let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READER_THREADS);
        let readers = readers.min(tasks.len() / TASKS_PER_READER);
        if readers == 0 {
            let read = tasks.into_iter().map(|task| (task.session, task.read_log(store)));
            self.write_in_batches(read, &mut done)?;
            return Ok(done);
        }
        let tasks = Mutex::new(tasks.into_iter());
        std::thread::scope(|scope| {
            // Bounded, so that fast readers wait for the writer.
            let (results, read) = sync_channel(WRITE_BATCH);
            for _ in 0..readers {
                let (tasks, found) = (&tasks, results.clone());
                scope.spawn(move || {
                    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some(task) = next() {
                        // The receiver is gone because writing failed.
                        if found.send((task.session, task.read_log(store))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(results);
            self.write_in_batches(read.into_iter(), &mut done)
        })?;
        Ok(done)
    }

    /// Returns how to read a session, if its stamp has changed.
    fn read_task(
        &self,
        stamp_of: &StampFn<'_>,
        session: SessionId,
        indexed: Option<&IndexedSession>,
    ) -> Result<Option<ReadTask>, IndexError> {
        let stamp = stamp_of(session)?;
        if indexed.is_some_and(|known| known.stamp == stamp && stamp.modified.is_some()) {
            return Ok(None);
        }
        // Logs only grow: a changed log that is not longer is read whole, since its old part may be damaged.
        let has_grown = indexed.is_some_and(|known| {
            (known.stamp.file, known.stamp.bytes) < (stamp.file, stamp.bytes) || stamp.modified.is_none()
        });
        let kept = if indexed.is_some() { self.stored_summary(session)? } else { None };
        let known = indexed.map(|known| known.at).zip(kept);
        Ok(Some(ReadTask { session, stamp, indexed: known, has_grown }))
    }

    /// Stores the results in batches.
    fn write_in_batches(
        &mut self,
        read: impl Iterator<Item = (SessionId, Result<LogUpdate, StoreError>)>,
        done: &mut RefreshReport,
    ) -> Result<(), IndexError> {
        let mut updates = Vec::new();
        for (session, results) in read {
            match results {
                Ok(LogUpdate::Changed(update)) => updates.push(*update),
                Ok(LogUpdate::Unreadable(reason)) => done.add_failure(session, reason),
                Err(StoreError::NotFound { .. }) => {}
                Err(why) => done.add_failure(session, why.to_string()),
            }
            if updates.len() >= WRITE_BATCH {
                done.read += updates.len();
                self.write_updates(std::mem::take(&mut updates))?;
            }
        }
        done.read += updates.len();
        self.write_updates(updates)
    }

    pub(crate) fn stored_summary(&self, session: SessionId) -> Result<Option<SessionSummary>, IndexError> {
        let failed = self.error_for("read");
        let mut rows = self
            .connection
            .prepare_cached("select summary, sum from session where id = ?1")
            .map_err(&failed)?;
        let mut results = rows.query([session.to_string()]).map_err(&failed)?;
        let Some(row) = results.next().map_err(&failed)? else { return Ok(None) };
        let (text, sum) =
            (row.get::<_, String>(0).map_err(&failed)?, row.get::<_, String>(1).map_err(&failed)?);
        self.parse_summary(&text, &sum).map(Some)
    }

    /// Parses a stored summary. A wrong checksum means that the file is damaged.
    pub(crate) fn parse_summary(&self, text: &str, sum: &str) -> Result<SessionSummary, IndexError> {
        let damaged = |reason: String| IndexError::DamagedFile { path: self.path.clone(), why: reason };
        if crate::checksum(text) != sum {
            return Err(damaged("the checksum of a row does not match".to_owned()));
        }
        serde_json::from_str(text).map_err(|why| damaged(why.to_string()))
    }

    fn write_updates(&mut self, updates: Vec<IndexUpdate>) -> Result<(), IndexError> {
        if updates.is_empty() {
            return Ok(());
        }
        let failed = self.error_for("change");
        let change = self.begin_transaction()?;
        // Texts last: other statements in between make the full-text index write its buffer.
        for update in &updates {
            insert_session(&change, update).map_err(&failed)?;
        }
        let mut message = Vec::new();
        for update in &updates {
            message.extend(insert_messages(&change, update).map_err(&failed)?);
        }
        for (n, said) in message {
            let words = change.prepare_cached("insert into said_words (rowid, text) values (?1, ?2)");
            words.and_then(|mut words| words.execute(params![n, said])).map_err(&failed)?;
        }
        change.commit().map_err(&failed)
    }

    fn remove_sessions<'s>(
        &mut self,
        removed_ids: impl Iterator<Item = &'s SessionId>,
    ) -> Result<usize, IndexError> {
        let gone: Vec<String> = removed_ids.map(ToString::to_string).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let failed = self.error_for("change");
        let change = self.begin_transaction()?;
        for session in &gone {
            change.execute("delete from said where session = ?1", [session]).map_err(&failed)?;
            change.execute("delete from session where id = ?1", [session]).map_err(&failed)?;
        }
        change.commit().map_err(&failed)?;
        Ok(gone.len())
    }
}

/// Inserts the messages of a session. Returns them with their row numbers.
fn insert_messages<'u>(
    change: &Transaction<'_>,
    update: &'u IndexUpdate,
) -> rusqlite::Result<Vec<(i64, &'u str)>> {
    let id = update.session.to_string();
    let mut say =
        change.prepare_cached("insert into said (session, seq, role, text) values (?1, ?2, ?3, ?4)")?;
    let mut put = |message: &'u IndexedMessage| {
        let n = say.insert(params![id, message.seq.cast_signed(), message.role, message.text])?;
        Ok((n, message.text.as_str()))
    };
    update.messages.iter().map(&mut put).collect()
}

/// Inserts the row of a session, without its messages.
fn insert_session(change: &Transaction<'_>, update: &IndexUpdate) -> rusqlite::Result<()> {
    let id = update.session.to_string();
    if update.replaces_all {
        change.prepare_cached("delete from said where session = ?1")?.execute([&id])?;
    }
    let summary = serde_json::to_string(&update.summary)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    let mut row = change.prepare_cached(
        "insert or replace into session (id, seq, h, file, bytes, modified, updated, cwd, archived, job, summary, sum)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    row.execute(params![
        id,
        update.at.seq.cast_signed(),
        update.at.h.to_string(),
        update.stamp.file,
        update.stamp.bytes.cast_signed(),
        update.stamp.modified.map(u64::cast_signed),
        update.summary.updated.cast_signed(),
        update.summary.cwd,
        update.summary.archived.is_some(),
        // A job with a next firing counts as open.
        update.summary.job.as_ref().map(|job| if job.needs_successor() {
            "ending"
        } else {
            job.state.state_name()
        }),
        summary,
        crate::checksum(&summary),
    ])?;
    Ok(())
}
