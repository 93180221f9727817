//! Lists of threads: newest first, in pages.

use minke_record::SessionId;
use minke_thread::SessionSummary;
use rusqlite::params;

use crate::IndexError;
use crate::database::Index;

/// The maximum page size.
const MAX_PAGE: usize = 500;

/// The filter and the page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadQuery {
    pub archived: ArchivedFilter,
    /// Only threads in this directory.
    pub cwd: Option<String>,
    pub limit: usize,
    /// Only threads after this cursor.
    pub after: Option<ListCursor>,
}

/// The filter by archive flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArchivedFilter {
    #[default]
    Unarchived,
    Archived,
    All,
}

/// A position in the list, which later changes do not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    pub updated: u64,
    pub session: SessionId,
}

/// A page.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadPage {
    pub summaries: Vec<SessionSummary>,
    /// The start of the next page, if there is one.
    pub next: Option<ListCursor>,
}

impl ListCursor {
    /// Returns the cursor as text for clients.
    pub fn to_text(&self) -> String {
        format!("{}.{}", self.updated, self.session)
    }

    pub fn parse(cursor: &str) -> Result<ListCursor, IndexError> {
        let parts = cursor.split_once('.').and_then(|(updated, session)| {
            Some(ListCursor { updated: updated.parse().ok()?, session: session.parse().ok()? })
        });
        parts.ok_or_else(|| IndexError::BadCursor { cursor: cursor.chars().take(80).collect() })
    }
}

impl Index {
    /// Returns a page of threads, last changed first.
    pub fn list_threads(&self, query: &ThreadQuery) -> Result<ThreadPage, IndexError> {
        let failed = self.error_for("read");
        let limit = query.limit.clamp(1, MAX_PAGE);
        let mut rows = self
            .connection
            .prepare_cached(
                "select summary, updated, id, sum from session
                 where (?1 is null or archived = ?1) and (?2 is null or cwd = ?2)
                   and (?3 is null or (updated, id) < (?3, ?4))
                 order by updated desc, id desc limit ?5",
            )
            .map_err(&failed)?;
        let archived = match query.archived {
            ArchivedFilter::Unarchived => Some(false),
            ArchivedFilter::Archived => Some(true),
            ArchivedFilter::All => None,
        };
        let after = query.after.map(|place| (place.updated.cast_signed(), place.session.to_string()));
        let summaries_found = rows
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
        for row in summaries_found {
            let (text, updated, id, sum) = row.map_err(&failed)?;
            if summaries.len() == limit {
                next = last;
                break;
            }
            summaries.push(self.parse_summary(&text, &sum)?);
            last = id.parse().ok().map(|session| ListCursor { updated: updated.cast_unsigned(), session });
        }
        Ok(ThreadPage { summaries, next })
    }

    /// Returns jobs, last changed first; with `open` only unfinished ones.
    pub fn list_jobs(&self, open: bool, limit: usize) -> Result<Vec<SessionSummary>, IndexError> {
        let failed = self.error_for("read");
        let over = "'completed', 'failed', 'cancelled'";
        let mut rows = self
            .connection
            .prepare_cached(&format!(
                "select summary, sum from session where job is not null and (not ?1 or job not in ({over}))
                 order by updated desc, id desc limit ?2"
            ))
            .map_err(&failed)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let summaries_found = rows
            .query_map(params![open, limit], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .map_err(&failed)?;
        let mut jobs = Vec::new();
        for row in summaries_found {
            let (text, sum) = row.map_err(&failed)?;
            jobs.push(self.parse_summary(&text, &sum)?);
        }
        Ok(jobs)
    }

    /// Returns the number of jobs, finished or not.
    pub fn count_jobs(&self) -> Result<u64, IndexError> {
        let count = "select count(*) from session where job is not null";
        let count: i64 =
            self.connection.query_row(count, [], |row| row.get(0)).map_err(self.error_for("read"))?;
        Ok(count.cast_unsigned())
    }

    /// Returns the summary of one session.
    pub fn find_summary(&self, session: SessionId) -> Result<Option<SessionSummary>, IndexError> {
        self.stored_summary(session)
    }
}
