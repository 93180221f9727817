//! The file: opened, made, or set aside and made anew.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_record::SessionId;
use minke_session::Store;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::{IndexError, Refreshed};

/// Another number means another layout: the file is made anew from the logs.
const LAYOUT: i32 = 5;
/// How long one waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
/// Pages that are kept in memory, in KiB as SQLite takes it: what ten thousand sessions say is merged there.
const CACHE: &str = "-32768";
/// What the full-text part gathers in memory before it writes, in bytes.
const GATHERED: i64 = 16 << 20;
/// So many damaged files are kept beside it.
const KEPT_ASIDE: u32 = 3;

const TABLES: &str = "
create table session (
    id text primary key,
    seq integer not null,
    h text not null,
    file integer not null,
    bytes integer not null,
    modified integer,
    updated integer not null,
    cwd text not null,
    archived integer not null,
    job text,
    summary text not null,
    sum text not null
) without rowid;
create index session_updated on session (archived, updated desc, id desc);
create index session_job on session (job, updated desc) where job is not null;
create table said (
    n integer primary key,
    session text not null,
    seq integer not null,
    role text not null,
    text text not null
);
create index said_session on said (session);
create virtual table said_words using fts5 (
    text, content = 'said', content_rowid = 'n', tokenize = \"unicode61 remove_diacritics 2\"
);
create trigger said_gone after delete on said begin
    insert into said_words (said_words, rowid, text) values ('delete', old.n, old.text);
end;
";

/// The open index.
#[derive(Debug)]
pub struct Index {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

/// An index, and what was done to have one.
#[derive(Debug)]
pub struct Opened {
    pub index: Index,
    /// Where a damaged one lies now.
    pub set_aside: Option<PathBuf>,
}

impl Index {
    /// Opens the file, or makes it. One that is damaged is set aside; one of another layout is made anew.
    pub fn open(path: &Path) -> Result<Opened, IndexError> {
        if let Ok(index) = Index::try_open(path) {
            return Ok(Opened { index, set_aside: None });
        }
        // Only one makes it or sets it aside; whoever waited for that finds a good one.
        let _lock = lock(path)?;
        match Index::try_open(path) {
            Ok(index) => Ok(Opened { index, set_aside: None }),
            Err(IndexError::Damaged { .. }) => {
                let aside = set_aside(path)?;
                Ok(Opened { index: Index::try_open(path)?, set_aside: Some(aside) })
            }
            Err(other) => Err(other),
        }
    }

    /// An index that knows everything that the logs say now. One that turns out to be damaged on the way is set aside, too.
    pub fn fresh(path: &Path, store: &dyn Store) -> Result<(Opened, Refreshed), IndexError> {
        Index::after(path, |index| index.refresh(store))
    }

    /// The same for these sessions only: what it says of others may be old.
    pub fn fresh_of(
        path: &Path,
        store: &dyn Store,
        sessions: &[SessionId],
    ) -> Result<(Opened, Refreshed), IndexError> {
        Index::after(path, |index| index.refresh_of(store, sessions))
    }

    fn after(
        path: &Path,
        refresh: impl Fn(&mut Index) -> Result<Refreshed, IndexError>,
    ) -> Result<(Opened, Refreshed), IndexError> {
        let mut opened = Index::open(path)?;
        match refresh(&mut opened.index) {
            Ok(refreshed) => Ok((opened, refreshed)),
            Err(IndexError::Damaged { .. }) => {
                drop(opened);
                let mut opened = Index::anew(path)?;
                let refreshed = refresh(&mut opened.index)?;
                Ok((opened, refreshed))
            }
            Err(other) => Err(other),
        }
    }

    /// Sets the file aside, whatever it is like, and begins with an empty one.
    pub fn anew(path: &Path) -> Result<Opened, IndexError> {
        let _lock = lock(path)?;
        let aside = if path.exists() { Some(set_aside(path)?) } else { None };
        Ok(Opened { index: Index::try_open(path)?, set_aside: aside })
    }

    fn try_open(path: &Path) -> Result<Index, IndexError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let failed = |what| move |why| error(what, path, &why);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open"))?;
        connection.busy_timeout(BUSY).map_err(failed("open"))?;
        for (name, value) in [
            ("journal_mode", "wal"),
            ("synchronous", "normal"),
            ("temp_store", "memory"),
            ("cache_size", CACHE),
        ] {
            connection.pragma_update(None, name, value).map_err(failed("open"))?;
        }
        let layout = layout(&connection).map_err(failed("read"))?;
        if layout != LAYOUT {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let change = change.map_err(failed("change"))?;
            // Another process may have been here first.
            if self::layout(&change).map_err(failed("read"))? != LAYOUT {
                make(&change).map_err(failed("make the tables of"))?;
            }
            change.commit().map_err(failed("change"))?;
        }
        for table in ["session", "said", "said_words"] {
            let look = format!("select count(*) from (select 1 from {table} limit 1)");
            connection.query_row(&look, [], |row| row.get::<_, i64>(0)).map_err(failed("read"))?;
        }
        Ok(Index { connection, path: path.to_owned() })
    }

    /// Forgets everything, so that the next `refresh` reads every log.
    pub fn forget(&mut self) -> Result<(), IndexError> {
        let path = self.path.clone();
        let change = self.change()?;
        make(&change).map_err(|why| error("empty", &path, &why))?;
        change.commit().map_err(|why| error("empty", &path, &why))
    }

    pub(crate) fn change(&mut self) -> Result<Transaction<'_>, IndexError> {
        let path = self.path.clone();
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        change.map_err(|why| error("change", &path, &why))
    }

    pub(crate) fn failed(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> IndexError + use<> {
        let path = self.path.clone();
        move |why| error(what, &path, &why)
    }

    /// The lock of whoever brings it up to date.
    pub(crate) fn writing(&self) -> Result<File, IndexError> {
        lock(&self.path)
    }
}

fn layout(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Drops whatever is there and makes the tables.
fn make(change: &Transaction<'_>) -> rusqlite::Result<()> {
    for drop in ["trigger if exists said_new", "trigger if exists said_gone", "table if exists said_words"] {
        change.execute_batch(&format!("drop {drop}"))?;
    }
    change.execute_batch("drop table if exists said; drop table if exists session;")?;
    change.execute_batch(TABLES)?;
    change.execute("insert into said_words (said_words, rank) values ('hashsize', ?1)", [GATHERED])?;
    change.pragma_update(None, "user_version", LAYOUT)
}

fn lock(path: &Path) -> Result<File, IndexError> {
    let path = path.with_extension("lock");
    let failed = |what| {
        let path = path.clone();
        move |source| IndexError::File { what, path, source }
    };
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path).map_err(failed("open"))?;
    file.lock().map_err(failed("lock"))?;
    Ok(file)
}

/// Moves the file and what belongs to it out of the way.
fn set_aside(path: &Path) -> Result<PathBuf, IndexError> {
    let beside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=KEPT_ASIDE).map(beside).find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| beside(KEPT_ASIDE));
    std::fs::rename(path, &aside).map_err(|source| IndexError::File {
        what: "set aside",
        path: path.to_owned(),
        source,
    })?;
    for part in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(part);
        match std::fs::remove_file(&name) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(IndexError::File { what: "remove", path: name.into(), source });
            }
            _ => {}
        }
    }
    Ok(aside)
}

/// What is wrong with the file itself is told apart: then it can be made anew.
fn error(what: &'static str, path: &Path, why: &rusqlite::Error) -> IndexError {
    let damaged = match why {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // Tables that the layout promises and that are not there; values of another kind.
            ErrorCode::Unknown | ErrorCode::TypeMismatch => true,
            _ => false,
        },
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    };
    let (path, why) = (path.to_owned(), why.to_string());
    if damaged { IndexError::Damaged { path, why } } else { IndexError::Database { what, path, why } }
}
