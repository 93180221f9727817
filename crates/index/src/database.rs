//! The index file: opens, creates, or replaces it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_record::SessionId;
use minke_session::SessionStore;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::{IndexError, RefreshReport};

/// The layout version: a file with another one is rebuilt from the logs.
const LAYOUT_VERSION: i32 = 5;
/// How long to wait for another writing process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The page cache in SQLite's unit, KiB: it holds the merged texts of ten thousand sessions.
const CACHE_KIB: &str = "-32768";
/// The buffer size of the full-text index before it writes, in bytes.
const FTS_BUFFER_BYTES: i64 = 16 << 20;
/// The maximum number of kept damaged files.
const MAX_DAMAGED_FILES: u32 = 3;

const CREATE_TABLES: &str = "
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

/// An opened index, and the changes made to open it.
#[derive(Debug)]
pub struct OpenedIndex {
    pub index: Index,
    /// The new path of a damaged file.
    pub damaged_file: Option<PathBuf>,
}

impl Index {
    /// Opens or creates the file. Moves a damaged file aside, and recreates one with another layout.
    pub fn open(path: &Path) -> Result<OpenedIndex, IndexError> {
        if let Ok(index) = Index::try_open(path) {
            return Ok(OpenedIndex { index, damaged_file: None });
        }
        // Only one process creates or moves the file; those that waited find a valid one.
        let _lock = lock_file(path)?;
        match Index::try_open(path) {
            Ok(index) => Ok(OpenedIndex { index, damaged_file: None }),
            Err(IndexError::DamagedFile { .. }) => {
                let aside = move_damaged_aside(path)?;
                Ok(OpenedIndex { index: Index::try_open(path)?, damaged_file: Some(aside) })
            }
            Err(other) => Err(other),
        }
    }

    /// Opens an index that is up to date with all logs. If it proves damaged meanwhile, moves it aside too.
    pub fn open_refreshed(
        path: &Path,
        store: &dyn SessionStore,
    ) -> Result<(OpenedIndex, RefreshReport), IndexError> {
        Index::open_and_refresh(path, |index| index.refresh(store))
    }

    /// The same for these sessions only: data of others may be stale.
    pub fn open_refreshed_for(
        path: &Path,
        store: &dyn SessionStore,
        sessions: &[SessionId],
    ) -> Result<(OpenedIndex, RefreshReport), IndexError> {
        Index::open_and_refresh(path, |index| index.refresh_sessions(store, sessions))
    }

    fn open_and_refresh(
        path: &Path,
        refresh: impl Fn(&mut Index) -> Result<RefreshReport, IndexError>,
    ) -> Result<(OpenedIndex, RefreshReport), IndexError> {
        let mut opened = Index::open(path)?;
        match refresh(&mut opened.index) {
            Ok(refreshed) => Ok((opened, refreshed)),
            Err(IndexError::DamagedFile { .. }) => {
                drop(opened);
                let mut opened = Index::recreate(path)?;
                let refreshed = refresh(&mut opened.index)?;
                Ok((opened, refreshed))
            }
            Err(other) => Err(other),
        }
    }

    /// Moves the file aside in any case, and creates an empty one.
    pub fn recreate(path: &Path) -> Result<OpenedIndex, IndexError> {
        let _lock = lock_file(path)?;
        let aside = if path.exists() { Some(move_damaged_aside(path)?) } else { None };
        Ok(OpenedIndex { index: Index::try_open(path)?, damaged_file: aside })
    }

    fn try_open(path: &Path) -> Result<Index, IndexError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let failed = |action| move |sqlite_error| index_error(action, path, &sqlite_error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open"))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed("open"))?;
        for (name, value) in [
            ("journal_mode", "wal"),
            ("synchronous", "normal"),
            ("temp_store", "memory"),
            ("cache_size", CACHE_KIB),
        ] {
            connection.pragma_update(None, name, value).map_err(failed("open"))?;
        }
        let layout = layout_version(&connection).map_err(failed("read"))?;
        if layout != LAYOUT_VERSION {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let change = change.map_err(failed("change"))?;
            // Another process may have created them.
            if self::layout_version(&change).map_err(failed("read"))? != LAYOUT_VERSION {
                create_tables(&change).map_err(failed("create the tables of"))?;
            }
            change.commit().map_err(failed("change"))?;
        }
        for table in ["session", "said", "said_words"] {
            let count_query = format!("select count(*) from (select 1 from {table} limit 1)");
            connection.query_row(&count_query, [], |row| row.get::<_, i64>(0)).map_err(failed("read"))?;
        }
        Ok(Index { connection, path: path.to_owned() })
    }

    /// Removes all data, so that the next `refresh` reads every log.
    pub fn clear_all(&mut self) -> Result<(), IndexError> {
        let path = self.path.clone();
        let change = self.begin_transaction()?;
        create_tables(&change).map_err(|sqlite_error| index_error("empty", &path, &sqlite_error))?;
        change.commit().map_err(|why| index_error("empty", &path, &why))
    }

    pub(crate) fn begin_transaction(&mut self) -> Result<Transaction<'_>, IndexError> {
        let path = self.path.clone();
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        change.map_err(|sqlite_error| index_error("change", &path, &sqlite_error))
    }

    pub(crate) fn error_for(&self, action: &'static str) -> impl Fn(rusqlite::Error) -> IndexError + use<> {
        let path = self.path.clone();
        move |why| index_error(action, &path, &why)
    }

    /// Takes the lock for updating the index.
    pub(crate) fn write_lock(&self) -> Result<File, IndexError> {
        lock_file(&self.path)
    }
}

fn layout_version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Drops existing tables and creates the new ones.
fn create_tables(change: &Transaction<'_>) -> rusqlite::Result<()> {
    for drop in ["trigger if exists said_new", "trigger if exists said_gone", "table if exists said_words"] {
        change.execute_batch(&format!("drop {drop}"))?;
    }
    change.execute_batch("drop table if exists said; drop table if exists session;")?;
    change.execute_batch(CREATE_TABLES)?;
    change
        .execute("insert into said_words (said_words, rank) values ('hashsize', ?1)", [FTS_BUFFER_BYTES])?;
    change.pragma_update(None, "user_version", LAYOUT_VERSION)
}

fn lock_file(path: &Path) -> Result<File, IndexError> {
    let path = path.with_extension("lock");
    let failed = |action| {
        let path = path.clone();
        move |source| IndexError::File { what: action, path, source }
    };
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path).map_err(failed("open"))?;
    file.lock().map_err(failed("lock"))?;
    Ok(file)
}

/// Moves the file and its companion files aside.
fn move_damaged_aside(path: &Path) -> Result<PathBuf, IndexError> {
    let backup_path = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=MAX_DAMAGED_FILES).map(backup_path).find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| backup_path(MAX_DAMAGED_FILES));
    std::fs::rename(path, &aside).map_err(|source| IndexError::File {
        what: "move aside",
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

/// Converts an error. Distinguishes damage of the file, which can then be rebuilt.
fn index_error(action: &'static str, path: &Path, sqlite_error: &rusqlite::Error) -> IndexError {
    let damaged = match sqlite_error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // Missing tables of the layout; values of a wrong type.
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
    let (path, why) = (path.to_owned(), sqlite_error.to_string());
    if damaged {
        IndexError::DamagedFile { path, why }
    } else {
        IndexError::Database { what: action, path, why }
    }
}
