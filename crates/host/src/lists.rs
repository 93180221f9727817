//! Lists and searches of threads, from the index as the logs are now.
//!
//! Invariant: pages follow each other without a gap, whatever is filtered out between them
//! (`pages_of_a_filtered_list_leave_nobody_out`).

use std::path::Path;

use minke_client::Home;
use minke_index::{Hit, Index, IndexError, Only, Opened, Place, Query, Refreshed};
use minke_record::{EndResult, RunResult, SessionId};
use minke_thread::{Summary, Thread, ThreadStatus};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::look::thread;
use crate::request::{List, quoted};

const FILE: &str = "index.sqlite";
/// How many there are if nobody says, and at most.
const LIMIT: usize = 50;
const LIMIT_MOST: usize = 500;
/// Pages of the index that are looked through for one page of an answer.
const PAGES: usize = 1_000;

/// What a list can be narrowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Status(ThreadStatus),
    /// Older words: the last result, and the flag.
    Completed,
    Failed,
    Archived,
}

/// What was found in the index, and what had to be said about it.
pub struct Found<T> {
    pub value: T,
    pub notices: Vec<String>,
}

impl Engine {
    pub(crate) async fn list(&self, list: List) -> Result<Answer, Fault> {
        let home = self.home.clone();
        off(move || listed(&home, &list)).await
    }

    /// Messages in which all these words stand.
    pub async fn search(&self, words: String, limit: usize) -> Result<Found<Vec<Hit>>, Fault> {
        let home = self.home.clone();
        off(move || from_index(&home, |index| index.search(&words, limit))).await
    }
}

fn listed(home: &Home, list: &List) -> Result<Answer, Fault> {
    let wanted = list.status.as_deref().map(wanted).transpose()?;
    let limit = list.limit.unwrap_or(LIMIT);
    if limit == 0 || limit > LIMIT_MOST {
        return Err(Fault::invalid(format!("limit: is {limit}; there are pages of 1 to {LIMIT_MOST}")));
    }
    let after = list.cursor.as_deref().map(Place::read).transpose()?;
    let cwd = list
        .cwd
        .as_ref()
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()).to_string_lossy().into_owned());
    let only = match (wanted, list.include_archived) {
        (Some(Wanted::Archived), _) => Only::Archived,
        (_, true) => Only::All,
        (_, false) => Only::Unarchived,
    };
    let query = Query { only, cwd, limit: LIMIT_MOST, after };
    let mut page = Filled { threads: Vec::new(), next: None, limit, notices: Vec::new() };
    match &list.query {
        Some(words) => page.searched(home, words, &query, wanted)?,
        None => page.listed(home, query, wanted)?,
    }
    Ok(page.answer())
}

/// A page that is being filled.
struct Filled {
    threads: Vec<Thread>,
    /// Where the next one begins: behind the last thread of this one.
    next: Option<Place>,
    limit: usize,
    notices: Vec<String>,
}

impl Filled {
    fn listed(&mut self, home: &Home, mut query: Query, wanted: Option<Wanted>) -> Result<(), Fault> {
        for _ in 0..PAGES {
            let found = from_index(home, |index| index.list(&query))?;
            self.told(found.notices);
            for summary in &found.value.summaries {
                if self.take(home, summary, wanted)? {
                    return Ok(());
                }
            }
            query.after = found.value.next;
            if query.after.is_none() {
                self.next = None;
                return Ok(());
            }
        }
        // Nothing was found in very many: whoever wants to look on can.
        self.next = query.after;
        Ok(())
    }

    /// Threads in which somebody said these words.
    fn searched(
        &mut self,
        home: &Home,
        words: &str,
        query: &Query,
        wanted: Option<Wanted>,
    ) -> Result<(), Fault> {
        let found = from_index(home, |index| {
            let mut summaries: Vec<Summary> = Vec::new();
            for hit in index.search(words, minke_index::MATCHES)? {
                let known = summaries.iter().any(|summary| summary.session == Some(hit.session));
                if !known && let Some(summary) = index.one(hit.session)? {
                    summaries.push(summary);
                }
            }
            Ok(summaries)
        })?;
        self.told(found.notices);
        let mut summaries = found.value;
        summaries.sort_by_key(|summary| std::cmp::Reverse(place(summary).map(|at| (at.updated, at.session))));
        for summary in &summaries {
            let at = place(summary).map(|at| (at.updated, at.session));
            let later = query.after.is_none_or(|after| at < Some((after.updated, after.session)));
            let kept = match query.only {
                Only::Unarchived => summary.archived.is_none(),
                Only::Archived => summary.archived.is_some(),
                Only::All => true,
            };
            let here = query.cwd.as_ref().is_none_or(|cwd| *cwd == summary.cwd);
            if later && kept && here && self.take(home, summary, wanted)? {
                return Ok(());
            }
        }
        self.next = None;
        Ok(())
    }

    /// Takes a thread that fits; whether the page was full already.
    fn take(&mut self, home: &Home, summary: &Summary, wanted: Option<Wanted>) -> Result<bool, Fault> {
        let Some(thread) = thread(home, summary)? else { return Ok(false) };
        if wanted.is_some_and(|wanted| !wanted.fits(summary, &thread)) {
            return Ok(false);
        }
        if self.threads.len() >= self.limit {
            return Ok(true);
        }
        self.threads.push(thread);
        self.next = place(summary);
        Ok(false)
    }

    fn told(&mut self, notices: Vec<String>) {
        for notice in notices {
            if !self.notices.contains(&notice) {
                self.notices.push(notice);
            }
        }
    }

    fn answer(self) -> Answer {
        let mut data = Map::new();
        if let Some(next) = self.next {
            data.insert("next_cursor".to_owned(), json!(next.written()));
        }
        if !self.notices.is_empty() {
            data.insert("notices".to_owned(), json!(self.notices));
        }
        Answer {
            thread_id: "list".to_owned(),
            status: "ok",
            threads: self.threads,
            data: Value::Object(data),
            ..Answer::default()
        }
    }
}

fn place(summary: &Summary) -> Option<Place> {
    summary.session.map(|session| Place { updated: summary.updated, session })
}

fn wanted(word: &str) -> Result<Wanted, Fault> {
    Ok(match word {
        "running" => Wanted::Status(ThreadStatus::Running),
        "waiting" => Wanted::Status(ThreadStatus::Waiting),
        "paused" => Wanted::Status(ThreadStatus::Paused),
        "interrupted" => Wanted::Status(ThreadStatus::Interrupted),
        "idle" => Wanted::Status(ThreadStatus::Idle),
        "completed" => Wanted::Completed,
        "failed" => Wanted::Failed,
        "archived" => Wanted::Archived,
        other => {
            return Err(Fault::invalid(format!(
                "status: `{}` is none of running, waiting, paused, interrupted, idle, and the older completed, failed, \
                 archived",
                quoted(other)
            )));
        }
    })
}

impl Wanted {
    fn fits(self, summary: &Summary, thread: &Thread) -> bool {
        let last = summary.last.as_ref().map(|last| &last.result);
        match self {
            Wanted::Status(status) => thread.status == status,
            Wanted::Completed => last == Some(&EndResult::Completed(RunResult::Finished)),
            Wanted::Failed => matches!(last, Some(EndResult::Errored(_))),
            Wanted::Archived => thread.archived,
        }
    }
}

/// What the index says when it knows everything that the logs say.
pub(crate) fn from_index<T>(
    home: &Home,
    read: impl Fn(&Index) -> Result<T, IndexError>,
) -> Result<Found<T>, Fault> {
    looked_up(home, &|path| Index::fresh(path, home.store.as_ref()), read)
}

/// What it says of these sessions, when it knows what their logs say; others may have gone on since.
pub(crate) fn some_from_index(home: &Home, sessions: &[SessionId]) -> Result<Found<Vec<Summary>>, Fault> {
    looked_up(home, &|path| Index::fresh_of(path, home.store.as_ref(), sessions), |index| {
        let found = sessions.iter().filter_map(|session| index.one(*session).transpose());
        found.collect()
    })
}

type Fresh = Result<(Opened, Refreshed), IndexError>;

fn looked_up<T>(
    home: &Home,
    fresh: &dyn Fn(&Path) -> Fresh,
    read: impl Fn(&Index) -> Result<T, IndexError>,
) -> Result<Found<T>, Fault> {
    let path = home.paths.data.join(FILE);
    let fresh = || -> Result<(Index, Vec<String>), IndexError> {
        let (opened, refreshed) = fresh(&path)?;
        let aside = opened.set_aside.map(|aside| {
            format!("the index was damaged and was made anew; the old one is {}", aside.display())
        });
        let unread = refreshed.unread.iter().map(|one| format!("s_{} is left out: {}", one.session, one.why));
        Ok((opened.index, aside.into_iter().chain(unread).collect()))
    };
    let (index, notices) = fresh()?;
    match read(&index) {
        Err(IndexError::Damaged { .. }) => {
            drop(index);
            Index::anew(&path)?;
            let (index, notices) = fresh()?;
            Ok(Found { value: read(&index)?, notices })
        }
        other => Ok(Found { value: other?, notices }),
    }
}
