//! Lists and searches of threads, from an index that is up to date with the logs.
//!
//! Invariant: consecutive pages have no gaps, regardless of the filter
//! (`pages_of_a_filtered_list_leave_nobody_out`).

use std::path::Path;

use minke_client::UserHome;
use minke_index::{
    ArchivedFilter, Index, IndexError, ListCursor, OpenedIndex, RefreshReport, SearchHit, ThreadQuery,
};
use minke_record::{EndResult, RunResult, SessionId};
use minke_thread::{SessionSummary, ThreadObject, ThreadStatus};
use serde_json::{Map, Value, json};

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::request::{List, quote_input};
use crate::response::ThreadResponse;
use crate::threads::log::thread_object;

const INDEX_FILE: &str = "index.sqlite";
/// The default and the maximum page size.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;
/// The maximum number of index pages that are read for one page.
const MAX_INDEX_PAGES: usize = 1_000;

/// The filter of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListFilter {
    Status(ThreadStatus),
    /// Older names: the last result, and the archive flag.
    Completed,
    Failed,
    Archived,
}

/// The result of an index query, with notices about the index.
pub struct IndexAnswer<T> {
    pub value: T,
    pub notices: Vec<String>,
}

impl Engine {
    pub(crate) async fn list_threads(&self, list: List) -> Result<ThreadResponse, ApiError> {
        let home = self.home.clone();
        run_blocking(move || list_from_index(&home, &list)).await
    }

    /// Returns messages that contain all these words.
    pub async fn search_messages(
        &self,
        words: String,
        limit: usize,
    ) -> Result<IndexAnswer<Vec<SearchHit>>, ApiError> {
        let home = self.home.clone();
        run_blocking(move || query_index(&home, |index| index.search_messages(&words, limit))).await
    }
}

fn list_from_index(home: &UserHome, list: &List) -> Result<ThreadResponse, ApiError> {
    let filter = list.status.as_deref().map(parse_filter).transpose()?;
    let limit = list.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::invalid(format!("limit: is {limit}; it must be 1 to {MAX_LIMIT}")));
    }
    let after = list.cursor.as_deref().map(ListCursor::parse).transpose()?;
    let cwd = list
        .cwd
        .as_ref()
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()).to_string_lossy().into_owned());
    let archived = match (filter, list.include_archived) {
        (Some(ListFilter::Archived), _) => ArchivedFilter::Archived,
        (_, true) => ArchivedFilter::All,
        (_, false) => ArchivedFilter::Unarchived,
    };
    let query = ThreadQuery { archived, cwd, limit: MAX_LIMIT, after };
    let mut page = ListPage { threads: Vec::new(), next_cursor: None, limit, notices: Vec::new() };
    match &list.query {
        Some(words) => page.add_search_hits(home, words, &query, filter)?,
        None => page.add_listed(home, query, filter)?,
    }
    Ok(page.into_response())
}

/// A page under construction.
struct ListPage {
    threads: Vec<ThreadObject>,
    /// The start of the next page: after the last thread of this one.
    next_cursor: Option<ListCursor>,
    limit: usize,
    notices: Vec<String>,
}

impl ListPage {
    fn add_listed(
        &mut self,
        home: &UserHome,
        mut query: ThreadQuery,
        filter: Option<ListFilter>,
    ) -> Result<(), ApiError> {
        for _ in 0..MAX_INDEX_PAGES {
            let index_answer = query_index(home, |index| index.list_threads(&query))?;
            self.add_notices(index_answer.notices);
            for summary in &index_answer.value.summaries {
                if self.add_thread(home, summary, filter)? {
                    return Ok(());
                }
            }
            query.after = index_answer.value.next;
            if query.after.is_none() {
                self.next_cursor = None;
                return Ok(());
            }
        }
        // No match in very many threads: the client may request the next page.
        self.next_cursor = query.after;
        Ok(())
    }

    /// Adds threads whose messages contain these words.
    fn add_search_hits(
        &mut self,
        home: &UserHome,
        words: &str,
        query: &ThreadQuery,
        filter: Option<ListFilter>,
    ) -> Result<(), ApiError> {
        let index_answer = query_index(home, |index| {
            let mut summaries: Vec<SessionSummary> = Vec::new();
            for hit in index.search_messages(words, minke_index::MAX_MATCHES)? {
                let is_listed = summaries.iter().any(|summary| summary.session == Some(hit.session));
                if !is_listed && let Some(summary) = index.find_summary(hit.session)? {
                    summaries.push(summary);
                }
            }
            Ok(summaries)
        })?;
        self.add_notices(index_answer.notices);
        let mut summaries = index_answer.value;
        summaries.sort_by_key(|summary| {
            std::cmp::Reverse(list_cursor(summary).map(|at| (at.updated, at.session)))
        });
        for summary in &summaries {
            let at = list_cursor(summary).map(|at| (at.updated, at.session));
            let later = query.after.is_none_or(|after| at < Some((after.updated, after.session)));
            let fits_archived = match query.archived {
                ArchivedFilter::Unarchived => summary.archived.is_none(),
                ArchivedFilter::Archived => summary.archived.is_some(),
                ArchivedFilter::All => true,
            };
            let fits_cwd = query.cwd.as_ref().is_none_or(|cwd| *cwd == summary.cwd);
            if later && fits_archived && fits_cwd && self.add_thread(home, summary, filter)? {
                return Ok(());
            }
        }
        self.next_cursor = None;
        Ok(())
    }

    /// Adds a matching thread. Returns whether the page was already full.
    fn add_thread(
        &mut self,
        home: &UserHome,
        summary: &SessionSummary,
        filter: Option<ListFilter>,
    ) -> Result<bool, ApiError> {
        let Some(thread) = thread_object(home, summary)? else { return Ok(false) };
        if filter.is_some_and(|wanted| !wanted.matches_thread(summary, &thread)) {
            return Ok(false);
        }
        if self.threads.len() >= self.limit {
            return Ok(true);
        }
        self.threads.push(thread);
        self.next_cursor = list_cursor(summary);
        Ok(false)
    }

    fn add_notices(&mut self, notices: Vec<String>) {
        for notice in notices {
            if !self.notices.contains(&notice) {
                self.notices.push(notice);
            }
        }
    }

    fn into_response(self) -> ThreadResponse {
        let mut data = Map::new();
        if let Some(next) = self.next_cursor {
            data.insert("next_cursor".to_owned(), json!(next.to_text()));
        }
        if !self.notices.is_empty() {
            data.insert("notices".to_owned(), json!(self.notices));
        }
        ThreadResponse {
            thread_id: "list".to_owned(),
            status: "ok",
            threads: self.threads,
            data: Value::Object(data),
            ..ThreadResponse::default()
        }
    }
}

fn list_cursor(summary: &SessionSummary) -> Option<ListCursor> {
    summary.session.map(|session| ListCursor { updated: summary.updated, session })
}

fn parse_filter(word: &str) -> Result<ListFilter, ApiError> {
    Ok(match word {
        "running" => ListFilter::Status(ThreadStatus::Running),
        "waiting" => ListFilter::Status(ThreadStatus::Waiting),
        "paused" => ListFilter::Status(ThreadStatus::Paused),
        "interrupted" => ListFilter::Status(ThreadStatus::Interrupted),
        "idle" => ListFilter::Status(ThreadStatus::Idle),
        "completed" => ListFilter::Completed,
        "failed" => ListFilter::Failed,
        "archived" => ListFilter::Archived,
        other => {
            return Err(ApiError::invalid(format!(
                "status: `{}` is unknown; use running, waiting, paused, interrupted, idle, or the older completed, failed, \
                 archived",
                quote_input(other)
            )));
        }
    })
}

impl ListFilter {
    fn matches_thread(self, summary: &SessionSummary, thread: &ThreadObject) -> bool {
        let last = summary.last.as_ref().map(|last| &last.result);
        match self {
            ListFilter::Status(status) => thread.status == status,
            ListFilter::Completed => last == Some(&EndResult::Completed(RunResult::Finished)),
            ListFilter::Failed => matches!(last, Some(EndResult::Errored(_))),
            ListFilter::Archived => thread.archived,
        }
    }
}

/// Queries the index after updating it from all logs.
pub(crate) fn query_index<T>(
    home: &UserHome,
    read: impl Fn(&Index) -> Result<T, IndexError>,
) -> Result<IndexAnswer<T>, ApiError> {
    refresh_and_query(home, &|path| Index::open_refreshed(path, home.store.as_ref()), read)
}

/// Queries the index after updating it from the logs of these sessions; data of others may be stale.
pub(crate) fn query_summaries(
    home: &UserHome,
    sessions: &[SessionId],
) -> Result<IndexAnswer<Vec<SessionSummary>>, ApiError> {
    refresh_and_query(home, &|path| Index::open_refreshed_for(path, home.store.as_ref(), sessions), |index| {
        let index_answer = sessions.iter().filter_map(|session| index.find_summary(*session).transpose());
        index_answer.collect()
    })
}

type RefreshResult = Result<(OpenedIndex, RefreshReport), IndexError>;

fn refresh_and_query<T>(
    home: &UserHome,
    fresh: &dyn Fn(&Path) -> RefreshResult,
    read: impl Fn(&Index) -> Result<T, IndexError>,
) -> Result<IndexAnswer<T>, ApiError> {
    let path = home.paths.data.join(INDEX_FILE);
    let fresh = || -> Result<(Index, Vec<String>), IndexError> {
        let (opened, refreshed) = fresh(&path)?;
        let aside = opened.damaged_file.map(|aside| {
            format!("the index was damaged and was rebuilt; the old file is {}", aside.display())
        });
        let unread =
            refreshed.failures.iter().map(|one| format!("s_{} is omitted: {}", one.session, one.error));
        Ok((opened.index, aside.into_iter().chain(unread).collect()))
    };
    let (index, notices) = fresh()?;
    match read(&index) {
        Err(IndexError::DamagedFile { .. }) => {
            drop(index);
            Index::recreate(&path)?;
            let (index, notices) = fresh()?;
            Ok(IndexAnswer { value: read(&index)?, notices })
        }
        other => Ok(IndexAnswer { value: other?, notices }),
    }
}
