//! `minke thread`: conversations of this user, living or not: listed, searched, looked at, named, put away.
//!
//! Elsewhere: what a session amounts to (`thread`), the file that lists and searches read (`index`), live pods (`ps`).
//! Invariant: what is listed is what the logs say, whatever became of the index
//! (`lists_and_searches_follow_the_logs`).

use clap::{Args, Subcommand, ValueEnum};
use minke_client::{Delivery, Home, deliver, find, visit};
use minke_index::{Index, IndexError, Only, Place, Query};
use minke_pod::Visit;
use minke_protocol::{Method, Set};
use minke_record::{Actor, PodName, SessionId};
use minke_session::StoreError;
use minke_thread::{Summary, Thread, ThreadStatus};
use serde_json::{Value, json};

use crate::around::{Surroundings, introduction, now, seed};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::visit::step;

/// How many are shown if nobody says.
const LIMIT: usize = 50;
/// Pages that are looked through for threads of one status.
const PAGES: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum Threads {
    /// Threads, the one that was last changed first
    List(List),
    /// One thread
    Show(Named),
    /// Messages in which all these words stand
    Search(Search),
    /// Give a thread another name
    Name(Rename),
    /// Put a thread away: lists leave it out
    Archive(Named),
    /// Take a thread out again
    Unarchive(Named),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only archived ones
    #[arg(long, conflicts_with = "all")]
    archived: bool,
    /// Archived ones, too
    #[arg(long, short)]
    all: bool,
    /// Only those that work here
    #[arg(long)]
    here: bool,
    /// Only those that are doing this
    #[arg(long)]
    status: Option<StatusWord>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = LIMIT)]
    limit: usize,
    /// Go on where a page ended (`next_cursor`)
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusWord {
    Running,
    Waiting,
    Paused,
    Interrupted,
    Idle,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// Its new name
    to: PodName,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Words; the last one may be unfinished
    #[arg(required = true)]
    words: Vec<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = LIMIT)]
    limit: usize,
}

pub(crate) async fn run(threads: Threads, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    match threads {
        Threads::List(wanted) => list(&wanted, &home, around, screen),
        Threads::Show(named) => show(&named.name, &home, screen),
        Threads::Search(wanted) => search(&wanted, &home, screen),
        Threads::Name(rename) => {
            let set = Set { name: Some(rename.to.clone()), ..Set::default() };
            let to = format!("is called {} now", rename.to);
            change(&home, &rename.name, (set, Visit::Rename(rename.to)), &to, screen).await
        }
        Threads::Archive(named) => archive(&home, &named.name, true, screen).await,
        Threads::Unarchive(named) => archive(&home, &named.name, false, screen).await,
    }
}

/// `minke index rebuild`
#[derive(Debug, Subcommand)]
pub(crate) enum Indexes {
    /// Make the index of all sessions anew from their logs
    Rebuild,
}

pub(crate) fn rebuild(_: &Indexes, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let begun = std::time::Instant::now();
    let mut index = Index::anew(&home.paths.data.join(FILE))?.index;
    let done = index.refresh(home.store.as_ref())?;
    for unread in &done.unread {
        screen.warn(&format!("s_{} is left out: {}", unread.session, unread.why));
    }
    if screen.json {
        screen
            .object(&json!({ "sessions": done.sessions, "read": done.read, "unread": done.unread.len() }))?;
    } else {
        screen.note(&format!("{} sessions read in {} ms", done.read, begun.elapsed().as_millis()));
    }
    Ok(Exit::Done)
}

const FILE: &str = "index.sqlite";

/// The index as the logs are now, with what had to be said about it.
fn fresh(home: &Home, screen: &Screen) -> Result<Index, Failure> {
    let (opened, refreshed) = Index::fresh(&home.paths.data.join(FILE), home.store.as_ref())?;
    if let Some(aside) = opened.set_aside {
        screen.warn(&format!("the index was damaged and was made anew; the old one is {}", aside.display()));
    }
    for unread in refreshed.unread {
        screen.warn(&format!("s_{} is left out: {}", unread.session, unread.why));
    }
    Ok(opened.index)
}

/// Reads from the index; what turns out to be damaged only then is made anew, once.
fn from_index<T>(
    home: &Home,
    screen: &Screen,
    read: impl Fn(&Index) -> Result<T, IndexError>,
) -> Result<T, Failure> {
    match read(&fresh(home, screen)?) {
        Err(IndexError::Damaged { .. }) => {
            Index::anew(&home.paths.data.join(FILE))?;
            Ok(read(&fresh(home, screen)?)?)
        }
        other => Ok(other?),
    }
}

/// A thread, with whether somebody holds it now.
fn thread(home: &Home, summary: &Summary) -> Result<Option<Thread>, Failure> {
    let Some(session) = summary.session else { return Ok(None) };
    let held = match home.store.holder(session) {
        Ok(holder) => holder.is_some(),
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let path = home.paths.sessions().join(session.to_string());
    Ok(summary.thread(held, Some(path.to_string_lossy().into_owned())))
}

fn list(list: &List, home: &Home, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let only = match (list.archived, list.all) {
        (true, _) => Only::Archived,
        (_, true) => Only::All,
        _ => Only::Unarchived,
    };
    let after = list.cursor.as_deref().map(Place::read).transpose()?;
    let cwd = list.here.then(|| around.cwd.to_string_lossy().into_owned());
    let mut query = Query { only, cwd, limit: list.limit.max(1), after };
    let (mut threads, mut next) = (Vec::new(), None);
    // A status is not in the index: whether somebody lives is only known now.
    for _ in 0..PAGES {
        let page = from_index(home, screen, |index| index.list(&query))?;
        for summary in &page.summaries {
            if let Some(thread) = thread(home, summary)?
                && list.status.is_none_or(|status| status.is(thread.status))
                && threads.len() < list.limit.max(1)
            {
                threads.push(thread);
            }
        }
        next = page.next;
        query.after = page.next;
        if threads.len() >= list.limit.max(1) || next.is_none() {
            break;
        }
    }
    if screen.json {
        let next = next.map(|place| place.written());
        screen.object(&json!({ "threads": threads, "next_cursor": next }))?;
        return Ok(Exit::Done);
    }
    if threads.is_empty() {
        screen.note("no thread is like that; `minke exec \"…\"` begins one");
    }
    for thread in &threads {
        screen.line(&line(thread))?;
    }
    if let Some(next) = next {
        screen.note(&format!("more: `--cursor {}`", next.written()));
    }
    Ok(Exit::Done)
}

/// `idle         5m  tale            fix the parser`
fn line(thread: &Thread) -> String {
    let seconds = (now() / 1_000).saturating_sub(thread.updated_at);
    let age = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    let away = if thread.archived { " (archived)" } else { "" };
    let name = thread.name.as_deref().unwrap_or(&thread.id);
    format!("{:<11} {age:>5}  {name:<20} {}{away}", word(thread.status), thread.preview)
}

fn word(status: ThreadStatus) -> &'static str {
    match status {
        ThreadStatus::Running => "running",
        ThreadStatus::Waiting => "waiting",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Interrupted => "interrupted",
        ThreadStatus::Idle => "idle",
    }
}

impl StatusWord {
    fn is(self, status: ThreadStatus) -> bool {
        matches!(
            (self, status),
            (StatusWord::Running, ThreadStatus::Running)
                | (StatusWord::Waiting, ThreadStatus::Waiting)
                | (StatusWord::Paused, ThreadStatus::Paused)
                | (StatusWord::Interrupted, ThreadStatus::Interrupted)
                | (StatusWord::Idle, ThreadStatus::Idle)
        )
    }
}

fn show(name: &str, home: &Home, screen: &Screen) -> Result<Exit, Failure> {
    let session = find(home, name)?.session;
    let summary = from_index(home, screen, |index| index.one(session))?;
    let thread = match &summary {
        Some(summary) => thread(home, summary)?,
        None => None,
    };
    let Some(thread) = thread else {
        return Err(Failure::new(Exit::Failed, format!("nothing can be read of session s_{session}"))
            .code("not_found")
            .hint(format!("`minke log verify s_{session}` says what is wrong")));
    };
    let value = serde_json::to_value(&thread)
        .map_err(|e| Failure::new(Exit::Failed, "a thread cannot be written as JSON").why(e))?;
    if screen.json {
        screen.object(&value)?;
        return Ok(Exit::Done);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        screen.line(&format!("{key:<15} {shown}"))?;
    }
    Ok(Exit::Done)
}

fn search(search: &Search, home: &Home, screen: &Screen) -> Result<Exit, Failure> {
    let words = search.words.join(" ");
    let hits = from_index(home, screen, |index| index.search(&words, search.limit))?;
    if screen.json {
        let hits = hits.iter().map(|hit| {
            json!({ "thread_id": format!("s_{}", hit.session), "seq": hit.seq, "role": hit.role, "snippet": hit.snippet })
        });
        screen.object(&json!({ "hits": hits.collect::<Vec<Value>>() }))?;
        return Ok(Exit::Done);
    }
    if hits.is_empty() {
        screen.note("nobody said that");
    }
    for hit in &hits {
        screen.line(&format!(
            "{}  {:<9} {}",
            short(hit.session),
            hit.role,
            hit.snippet.replace('\n', " ")
        ))?;
    }
    Ok(Exit::Done)
}

fn short(session: SessionId) -> String {
    format!("s_{session}")
}

async fn archive(home: &Home, name: &str, away: bool, screen: &Screen) -> Result<Exit, Failure> {
    let set = Set { archived: Some(away), ..Set::default() };
    let word = if away { "is archived" } else { "is out again" };
    change(home, name, (set, Visit::Archive(away)), word, screen).await
}

/// Tells a live pod, or writes it where nobody lives, waking nobody.
async fn change(
    home: &Home,
    name: &str,
    (set, left): (Set, Visit),
    word: &str,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let found = find(home, name)?;
    let mut written = false;
    if found.live.is_none() {
        let step = step(left, Actor::person("cli"), seed());
        match visit(home, found.session, &*step) {
            Ok(()) => written = true,
            // A pod has come to life meanwhile: it is told.
            Err(minke_client::DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    if !written {
        let method = Method::Set(Box::new(set));
        deliver(home, Delivery { session: found.session, method, client: introduction(), visit: None })
            .await?;
    }
    if screen.json {
        screen.object(&json!({ "thread_id": format!("s_{}", found.session), "status": "ok" }))?;
    } else {
        screen.note(&format!("{name} {word}"));
    }
    Ok(Exit::Done)
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        match error {
            IndexError::Store(error) => error.into(),
            IndexError::BadCursor { .. } => Failure::usage(error),
            IndexError::Database { .. } | IndexError::Damaged { .. } | IndexError::File { .. } => {
                Failure::new(Exit::Storage, error)
                    .code("storage_failed")
                    .hint("the logs are not touched by this; `minke index rebuild` makes the index anew")
            }
        }
    }
}
