//! Bringing the index up to date: every log that looks different is read on from where it was left.
//!
//! Whoever needs the index does it, one at a time. A log that goes on where the summary ended is read from there; one that
//! has another hash at that place (a power cut, an index from elsewhere) is read whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use minke_record::{Entry, Item, Kind, Position, Role, SessionId};
use minke_session::{ScanEnd, Sealed, Stamp, Store, StoreError};
use minke_thread::Summary;
use rusqlite::{Transaction, params};

use crate::IndexError;
use crate::open::Index;

/// Sessions that are written in one go: others wait no longer than for these.
const BATCH: usize = 256;
/// What is kept of one message for searching.
const SAID_BYTES: usize = 64 * 1024;

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

/// What the index holds of a session.
struct Known {
    at: Position,
    stamp: Stamp,
}

/// What a log has to say.
enum Found {
    /// Nothing that is not known.
    Same,
    New(Box<Update>),
    /// Nothing in it can be read, because of this.
    Nothing(String),
}

/// What a session comes to now.
struct Update {
    session: SessionId,
    summary: Summary,
    at: Position,
    stamp: Stamp,
    said: Vec<Said>,
    /// What was kept of it is to be forgotten first.
    anew: bool,
}

struct Said {
    seq: u64,
    role: &'static str,
    text: String,
}

impl Index {
    /// Reads what is new in all sessions of a store.
    pub fn refresh(&mut self, store: &dyn Store) -> Result<Refreshed, IndexError> {
        let _lock = self.writing()?;
        let known = self.known()?;
        let sessions: BTreeSet<SessionId> = store.list()?.into_iter().collect();
        let mut done = Refreshed { sessions: sessions.len(), ..Refreshed::default() };
        let mut updates = Vec::new();
        for session in &sessions {
            match self.update(store, *session, known.get(session)) {
                Ok(Found::Same) => {}
                Ok(Found::New(update)) => updates.push(*update),
                Ok(Found::Nothing(why)) => done.unread.push(Unread { session: *session, why }),
                Err(IndexError::Store(StoreError::NotFound { .. })) => {}
                Err(IndexError::Store(why)) => {
                    done.unread.push(Unread { session: *session, why: why.to_string() })
                }
                Err(other) => return Err(other),
            }
            if updates.len() >= BATCH {
                done.read += updates.len();
                self.write(std::mem::take(&mut updates))?;
            }
        }
        done.read += updates.len();
        self.write(updates)?;
        done.removed = self.remove(known.keys().filter(|session| !sessions.contains(session)))?;
        Ok(done)
    }

    fn known(&self) -> Result<BTreeMap<SessionId, Known>, IndexError> {
        let failed = self.failed("read");
        let mut rows = self
            .connection
            .prepare("select id, seq, h, file, bytes, modified from session")
            .map_err(&failed)?;
        let known = rows.query_map([], |row| {
            let (id, h): (String, String) = (row.get(0)?, row.get(2)?);
            let stamp = Stamp {
                file: row.get(3)?,
                bytes: row.get::<_, i64>(4)?.cast_unsigned(),
                modified: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
            };
            Ok((id, h, row.get::<_, i64>(1)?.cast_unsigned(), stamp))
        });
        let mut found = BTreeMap::new();
        for row in known.map_err(&failed)? {
            let (id, h, seq, stamp) = row.map_err(&failed)?;
            // A row that says nothing sensible is read anew.
            if let (Ok(session), Ok(h)) = (id.parse(), serde_json::from_value(h.into())) {
                found.insert(session, Known { at: Position { seq, h }, stamp });
            }
        }
        Ok(found)
    }

    /// What is new in a session, if anything is.
    fn update(
        &self,
        store: &dyn Store,
        session: SessionId,
        known: Option<&Known>,
    ) -> Result<Found, IndexError> {
        // Before it is read: what is written meanwhile is found the next time.
        let stamp = store.stamp(session)?;
        if known.is_some_and(|known| known.stamp == stamp && stamp.modified.is_some()) {
            return Ok(Found::Same);
        }
        let reader = store.reader(session)?;
        let mut summary = Summary::default();
        let mut anew = true;
        if let Some(known) = known
            && reader.position(known.at.seq)? == Some(known.at)
            && let Some(kept) = self.summary(session)?
        {
            (summary, anew) = (kept, false);
        }
        let from = summary.seq.map_or(0, |seq| seq + 1);
        let (mut said, mut at) = (Vec::new(), known.filter(|_| !anew).map(|known| known.at));
        let end = reader.scan(from, &mut |sealed: Sealed| {
            summary.apply(&sealed.entry);
            at = Some(Position { seq: sealed.entry.seq, h: sealed.entry.h });
            said.extend(words(&sealed.entry));
            ControlFlow::Continue(())
        })?;
        Ok(match (at, end) {
            (Some(at), _) => Found::New(Box::new(Update { session, summary, at, stamp, said, anew })),
            (None, ScanEnd::Damaged(damage)) => Found::Nothing(damage.to_string()),
            (None, _) => Found::Nothing("its log has no whole entry".to_owned()),
        })
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
        for update in &updates {
            put(&change, update).map_err(&failed)?;
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

fn put(change: &Transaction<'_>, update: &Update) -> rusqlite::Result<()> {
    let id = update.session.to_string();
    if update.anew {
        change.prepare_cached("delete from said where session = ?1")?.execute([&id])?;
    }
    let mut say =
        change.prepare_cached("insert into said (session, seq, role, text) values (?1, ?2, ?3, ?4)")?;
    for said in &update.said {
        say.execute(params![id, said.seq.cast_signed(), said.role, said.text])?;
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
        update.summary.job.as_ref().map(|job| job.state.name()),
        summary,
        crate::sum_of(&summary),
    ])?;
    Ok(())
}

/// What an entry says that somebody may look for.
fn words(entry: &Entry) -> Option<Said> {
    let (role, text) = match &entry.kind {
        Kind::UserInput(input) => {
            let parts = input.segments.iter().filter_map(|segment| text_of(&segment.flatten()));
            ("user", parts.collect::<Vec<String>>().join(" "))
        }
        Kind::AssistantItem(said) => match &said.item {
            Item::Message { role: Role::Assistant, content } => {
                ("assistant", content.iter().filter_map(text_of).collect::<Vec<String>>().join(" "))
            }
            _ => return None,
        },
        _ => return None,
    };
    (!text.trim().is_empty()).then_some(Said { seq: entry.seq, role, text })
}

fn text_of(content: &minke_record::Content) -> Option<String> {
    let minke_record::Content::Text { text } = content else { return None };
    let text = text.here()?;
    let end =
        text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= SAID_BYTES).last();
    text.get(..end.unwrap_or(0)).map(str::to_owned)
}
