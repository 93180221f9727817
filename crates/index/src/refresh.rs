//! Bringing the index up to date: every log that looks different is read on from where it was left.
//!
//! Whoever needs the index does it, one at a time. A log that goes on where the summary ended is read from there; one that
//! has another hash at that place (a power cut, an index from elsewhere) is read whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use minke_record::{Position, SessionId};
use minke_session::{Stamp, Store, StoreError};
use minke_thread::Summary;
use rusqlite::{Row, Transaction, params};

use crate::IndexError;
use crate::open::Index;
use crate::reading::{Found, Said, Task, Update};

/// Sessions that are written in one go: others wait no longer than for these.
const BATCH: usize = 256;
/// Logs that are read at once, and how many there are at least for each reader.
const READERS: usize = 4;
const TASKS_EACH: usize = 16;

/// What a refresh has done.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// Sessions there are.
    pub sessions: usize,
    /// Those whose logs were read, wholly or on from a place.
    pub read: usize,
    /// Those that are gone.
    pub removed: usize,
    /// Those that cannot be read; the good beginning of a damaged one is in the index all the same.
    pub unread: Vec<Unread>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    pub session: SessionId,
    pub why: String,
}

impl Refreshed {
    fn cannot(&mut self, session: SessionId, why: String) {
        self.unread.push(Unread { session, why });
    }
}

const KNOWN: &str = "select id, seq, h, file, bytes, modified";

/// What the index holds of a session.
struct Known {
    at: Position,
    stamp: Stamp,
}

/// A row of `KNOWN`, if it says something sensible.
fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<(SessionId, Known)>> {
    let (id, h): (String, String) = (row.get(0)?, row.get(2)?);
    let seq = row.get::<_, i64>(1)?.cast_unsigned();
    let stamp = Stamp {
        file: row.get(3)?,
        bytes: row.get::<_, i64>(4)?.cast_unsigned(),
        modified: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
    };
    let (Ok(session), Ok(h)) = (id.parse(), serde_json::from_value(h.into())) else { return Ok(None) };
    Ok(Some((session, Known { at: Position { seq, h }, stamp })))
}

/// How a log looks from outside.
type Look<'a> = dyn Fn(SessionId) -> Result<Stamp, StoreError> + 'a;

impl Index {
    /// Reads what is new in all sessions of a store.
    pub fn refresh(&mut self, store: &dyn Store) -> Result<Refreshed, IndexError> {
        let _lock = self.writing()?;
        let known = self.known()?;
        let stamps = store.stamps()?;
        let sessions: BTreeSet<SessionId> = match &stamps {
            Some(stamps) => stamps.keys().copied().collect(),
            None => store.list()?.into_iter().collect(),
        };
        let look = |session| match stamps.as_ref().and_then(|stamps| stamps.get(&session)) {
            Some(stamp) => Ok(*stamp),
            None => store.stamp(session),
        };
        let mut done = self.read(store, &look, &sessions, &known)?;
        done.removed = self.remove(known.keys().filter(|session| !sessions.contains(session)))?;
        Ok(done)
    }

    /// The same for these sessions; of others nothing is read.
    pub fn refresh_of(&mut self, store: &dyn Store, sessions: &[SessionId]) -> Result<Refreshed, IndexError> {
        let _lock = self.writing()?;
        let mut known = BTreeMap::new();
        for session in sessions {
            known.extend(self.known_of(*session)?.map(|one| (*session, one)));
        }
        self.read(store, &|session| store.stamp(session), &sessions.iter().copied().collect(), &known)
    }

    fn known(&self) -> Result<BTreeMap<SessionId, Known>, IndexError> {
        let failed = self.failed("read");
        let mut rows = self.connection.prepare_cached(&format!("{KNOWN} from session")).map_err(&failed)?;
        let known = rows.query_map([], row_of).map_err(&failed)?;
        // A row that says nothing sensible is read anew.
        known.filter_map(|row| row.map_err(&failed).transpose()).collect()
    }

    fn known_of(&self, session: SessionId) -> Result<Option<Known>, IndexError> {
        let failed = self.failed("read");
        let mut rows = self
            .connection
            .prepare_cached(&format!("{KNOWN} from session where id = ?1"))
            .map_err(&failed)?;
        let mut known = rows.query_map([session.to_string()], row_of).map_err(&failed)?;
        let row = known.next().transpose().map_err(&failed)?;
        Ok(row.flatten().map(|(_, known)| known))
    }

    /// Reads those of the sessions that look different, beside each other, and keeps what they say.
    fn read(
        &mut self,
        store: &dyn Store,
        look: &Look<'_>,
        sessions: &BTreeSet<SessionId>,
        known: &BTreeMap<SessionId, Known>,
    ) -> Result<Refreshed, IndexError> {
        let mut done = Refreshed { sessions: sessions.len(), ..Refreshed::default() };
        let mut tasks = Vec::new();
        for session in sessions {
            match self.task(look, *session, known.get(session)) {
                Ok(task) => tasks.extend(task),
                Err(IndexError::Store(StoreError::NotFound { .. })) => {}
                Err(IndexError::Store(why)) => done.cannot(*session, why.to_string()),
                Err(other) => return Err(other),
            }
        }
        let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READERS);
        let readers = readers.min(tasks.len() / TASKS_EACH);
        if readers == 0 {
            let read = tasks.into_iter().map(|task| (task.session, task.read(store)));
            self.keep(read, &mut done)?;
            return Ok(done);
        }
        let tasks = Mutex::new(tasks.into_iter());
        std::thread::scope(|scope| {
            // Bounded: a reader that is faster than what is written waits.
            let (found, read) = sync_channel(BATCH);
            for _ in 0..readers {
                let (tasks, found) = (&tasks, found.clone());
                scope.spawn(move || {
                    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some(task) = next() {
                        // Nobody hears it any more: what was read before could not be kept.
                        if found.send((task.session, task.read(store))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(found);
            self.keep(read.into_iter(), &mut done)
        })?;
        Ok(done)
    }

    /// What is to be read of a session, if it looks different.
    fn task(
        &self,
        look: &Look<'_>,
        session: SessionId,
        known: Option<&Known>,
    ) -> Result<Option<Task>, IndexError> {
        let stamp = look(session)?;
        if known.is_some_and(|known| known.stamp == stamp && stamp.modified.is_some()) {
            return Ok(None);
        }
        // A log only grows: one that was changed and did not is read whole, for what was read before may be damaged.
        let grown = known.is_some_and(|known| {
            (known.stamp.file, known.stamp.bytes) < (stamp.file, stamp.bytes) || stamp.modified.is_none()
        });
        let kept = if known.is_some() { self.summary(session)? } else { None };
        let known = known.map(|known| known.at).zip(kept);
        Ok(Some(Task { session, stamp, known, grown }))
    }

    /// Keeps what was read, some sessions at a time.
    fn keep(
        &mut self,
        read: impl Iterator<Item = (SessionId, Result<Found, StoreError>)>,
        done: &mut Refreshed,
    ) -> Result<(), IndexError> {
        let mut updates = Vec::new();
        for (session, found) in read {
            match found {
                Ok(Found::New(update)) => updates.push(*update),
                Ok(Found::Nothing(why)) => done.cannot(session, why),
                Err(StoreError::NotFound { .. }) => {}
                Err(why) => done.cannot(session, why.to_string()),
            }
            if updates.len() >= BATCH {
                done.read += updates.len();
                self.write(std::mem::take(&mut updates))?;
            }
        }
        done.read += updates.len();
        self.write(updates)
    }

    pub(crate) fn summary(&self, session: SessionId) -> Result<Option<Summary>, IndexError> {
        let failed = self.failed("read");
        let mut rows = self
            .connection
            .prepare_cached("select summary, sum from session where id = ?1")
            .map_err(&failed)?;
        let mut found = rows.query([session.to_string()]).map_err(&failed)?;
        let Some(row) = found.next().map_err(&failed)? else { return Ok(None) };
        let (text, sum) =
            (row.get::<_, String>(0).map_err(&failed)?, row.get::<_, String>(1).map_err(&failed)?);
        self.read_summary(&text, &sum).map(Some)
    }

    /// A summary as it was written, or the file is damaged.
    pub(crate) fn read_summary(&self, text: &str, sum: &str) -> Result<Summary, IndexError> {
        let damaged = |why: String| IndexError::Damaged { path: self.path.clone(), why };
        if crate::sum_of(text) != sum {
            return Err(damaged("a row is not what was written".to_owned()));
        }
        serde_json::from_str(text).map_err(|why| damaged(why.to_string()))
    }

    fn write(&mut self, updates: Vec<Update>) -> Result<(), IndexError> {
        if updates.is_empty() {
            return Ok(());
        }
        let failed = self.failed("change");
        let change = self.change()?;
        // Words last: whatever is put in between makes the full-text part write what it has gathered.
        for update in &updates {
            put(&change, update).map_err(&failed)?;
        }
        let mut said = Vec::new();
        for update in &updates {
            said.extend(say(&change, update).map_err(&failed)?);
        }
        for (n, said) in said {
            let words = change.prepare_cached("insert into said_words (rowid, text) values (?1, ?2)");
            words.and_then(|mut words| words.execute(params![n, said])).map_err(&failed)?;
        }
        change.commit().map_err(&failed)
    }

    fn remove<'s>(&mut self, gone: impl Iterator<Item = &'s SessionId>) -> Result<usize, IndexError> {
        let gone: Vec<String> = gone.map(ToString::to_string).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let failed = self.failed("change");
        let change = self.change()?;
        for session in &gone {
            change.execute("delete from said where session = ?1", [session]).map_err(&failed)?;
            change.execute("delete from session where id = ?1", [session]).map_err(&failed)?;
        }
        change.commit().map_err(&failed)?;
        Ok(gone.len())
    }
}

/// The messages of a session, each with the number that it has got.
fn say<'u>(change: &Transaction<'_>, update: &'u Update) -> rusqlite::Result<Vec<(i64, &'u str)>> {
    let id = update.session.to_string();
    let mut say =
        change.prepare_cached("insert into said (session, seq, role, text) values (?1, ?2, ?3, ?4)")?;
    let mut put = |said: &'u Said| {
        let n = say.insert(params![id, said.seq.cast_signed(), said.role, said.text])?;
        Ok((n, said.text.as_str()))
    };
    update.said.iter().map(&mut put).collect()
}

/// What a session comes to, without what was said in it.
fn put(change: &Transaction<'_>, update: &Update) -> rusqlite::Result<()> {
    let id = update.session.to_string();
    if update.anew {
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
        // One that owes another is not over for whoever looks for open ones.
        update.summary.job.as_ref().map(|job| if job.owes_another() { "ending" } else { job.state.name() }),
        summary,
        crate::sum_of(&summary),
    ])?;
    Ok(())
}
