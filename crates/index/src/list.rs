//! Lists of threads: newest first, a page at a time.

use minke_record::SessionId;
use minke_thread::Summary;
use rusqlite::params;

use crate::IndexError;
use crate::open::Index;

/// The longest page.
const PAGE: usize = 500;

/// Which threads are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pub only: Only,
    /// Those that work in this directory.
    pub cwd: Option<String>,
    pub limit: usize,
    /// After this one.
    pub after: Option<Place>,
}

/// Archived ones or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Only {
    #[default]
    Unarchived,
    Archived,
    All,
}

/// A place in the list: what comes later does not move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub updated: u64,
    pub session: SessionId,
}

/// A page.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub summaries: Vec<Summary>,
    /// Where the next page begins, if there is one.
    pub next: Option<Place>,
}

impl Place {
    /// As a client keeps it.
    pub fn written(&self) -> String {
        format!("{}.{}", self.updated, self.session)
    }

    pub fn read(cursor: &str) -> Result<Place, IndexError> {
        let parts = cursor.split_once('.').and_then(|(updated, session)| {
            Some(Place { updated: updated.parse().ok()?, session: session.parse().ok()? })
        });
        parts.ok_or_else(|| IndexError::BadCursor { cursor: cursor.chars().take(80).collect() })
    }
}

impl Index {
    /// A page of threads, the one that was last changed first.
    pub fn list(&self, query: &Query) -> Result<Listed, IndexError> {
        let failed = self.failed("read");
        let limit = query.limit.clamp(1, PAGE);
        let mut rows = self
            .connection
            .prepare_cached(
                "select summary, updated, id, sum from session
                 where (?1 is null or archived = ?1) and (?2 is null or cwd = ?2)
                   and (?3 is null or (updated, id) < (?3, ?4))
                 order by updated desc, id desc limit ?5",
            )
            .map_err(&failed)?;
        let archived = match query.only {
            Only::Unarchived => Some(false),
            Only::Archived => Some(true),
            Only::All => None,
        };
        let after = query.after.map(|place| (place.updated.cast_signed(), place.session.to_string()));
        let found = rows
            .query_map(
                params![
                    archived,
                    query.cwd,
                    after.as_ref().map(|(updated, _)| *updated),
                    after.as_ref().map(|(_, session)| session),
                    i64::try_from(limit + 1).unwrap_or(i64::MAX),
                ],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, i64>(1)?,
                        row.get::<_, String>(2)?,
                        row.get::<_, String>(3)?,
                    ))
                },
            )
            .map_err(&failed)?;
        let (mut summaries, mut next, mut last) = (Vec::new(), None, None);
        for row in found {
            let (text, updated, id, sum) = row.map_err(&failed)?;
            if summaries.len() == limit {
                next = last;
                break;
            }
            summaries.push(self.read_summary(&text, &sum)?);
            last = id.parse().ok().map(|session| Place { updated: updated.cast_unsigned(), session });
        }
        Ok(Listed { summaries, next })
    }

    /// Jobs, the one that was last changed first; only those that are not over, if that is wanted.
    pub fn jobs(&self, open: bool, limit: usize) -> Result<Vec<Summary>, IndexError> {
        let failed = self.failed("read");
        let over = "'completed', 'failed', 'cancelled'";
        let mut rows = self
            .connection
            .prepare_cached(&format!(
                "select summary, sum from session where job is not null and (not ?1 or job not in ({over}))
                 order by updated desc, id desc limit ?2"
            ))
            .map_err(&failed)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = rows
            .query_map(params![open, limit], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .map_err(&failed)?;
        let mut jobs = Vec::new();
        for row in found {
            let (text, sum) = row.map_err(&failed)?;
            jobs.push(self.read_summary(&text, &sum)?);
        }
        Ok(jobs)
    }

    /// How many jobs there are, over or not.
    pub fn count_jobs(&self) -> Result<u64, IndexError> {
        let count = "select count(*) from session where job is not null";
        let count: i64 =
            self.connection.query_row(count, [], |row| row.get(0)).map_err(self.failed("read"))?;
        Ok(count.cast_unsigned())
    }

    /// One thread, by its session.
    pub fn one(&self, session: SessionId) -> Result<Option<Summary>, IndexError> {
        self.summary(session)
    }
}
