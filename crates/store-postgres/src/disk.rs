//! The disk interface on tables: each file operation of `session` is one transaction.
//!
//! So both stores share the code for opening, replaying, verifying, repairing and forking, whose steps are ordered such
//! that a crash between any two loses nothing. Here: the statement for each operation. Elsewhere: log lines
//! (`log_file`), locks (`locks`), other files (`row_file`).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use minke_record::limits::BALLAST_BYTES;
use minke_session::{Disk, DiskFile, FileMeta, OpenMode, RealDisk};

use crate::locks::{self, FORKS_LOCK, LEASE_LOCK, RowLock};
use crate::log_file::{LogRow, TableLogFile, WriteRight};
use crate::path_names::{FileName, RowTarget, parse_path};
use crate::row_file::{DraftFile, MAX_INLINE_BYTES, RowFile};
use crate::server_link::{LinkError, ServerLink};
use crate::settings::PostgresSettings;

/// A disk that stores sessions in tables.
pub(crate) struct TableDisk {
    pub(crate) link: Arc<ServerLink>,
    pub(crate) root: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) label: String,
    drafts: Mutex<HashMap<FileName, DraftFile>>,
}

impl std::fmt::Debug for TableDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableDisk({})", self.root.display())
    }
}

/// A row of `minke.file`.
struct FileRow {
    session: i64,
    key: i64,
    kind: String,
    bytes: i64,
    modified: Option<i64>,
    inline_content: Option<Vec<u8>>,
}

/// The result of a lookup: whether the session and the file exist.
enum FileLookup {
    NoSession,
    NoFile,
    File(FileRow),
}

impl TableDisk {
    pub(crate) fn new(settings: PostgresSettings) -> io::Result<TableDisk> {
        let link = ServerLink::new(settings.config, settings.owner, settings.times)?;
        Ok(TableDisk {
            link,
            root: PathBuf::from(settings.display_address),
            locks: settings.locks,
            label: settings.label,
            drafts: Mutex::new(HashMap::new()),
        })
    }

    fn lock_drafts(&self) -> MutexGuard<'_, HashMap<FileName, DraftFile>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse_path(&self, path: &Path) -> io::Result<RowTarget> {
        parse_path(&self.root, path).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns whether the path is a real file: salvaged entries go to a path of the user's choice.
    fn is_outside_root(&self, path: &Path) -> bool {
        !path.starts_with(&self.root)
    }

    /// Returns the row of a session.
    pub(crate) fn session_row(&self, name: &str) -> io::Result<Option<i64>> {
        let name = name.to_owned();
        self.link.run_work(move |at| {
            let row = at.client.query_opt("select key from minke.session where name = $1", &[&name])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })
    }

    fn find_file(&self, name: &FileName) -> io::Result<FileLookup> {
        let name = name.clone();
        self.link.run_work(move |at| {
            let row = at.client.query_opt(
                "select s.key, f.key, f.kind, f.bytes, (extract(epoch from f.modified) * 1000)::bigint,
                        case when f.bytes <= $3 then f.content end
                 from minke.session s left join minke.file f on f.session = s.key and f.name = $2
                 where s.name = $1",
                &[&name.session, &name.file, &MAX_INLINE_BYTES],
            )?;
            let Some(row) = row else { return Ok(FileLookup::NoSession) };
            let Some(key) = row.try_get(1)? else { return Ok(FileLookup::NoFile) };
            Ok(FileLookup::File(FileRow {
                session: row.try_get(0)?,
                key,
                kind: row.try_get(2)?,
                bytes: row.try_get(3)?,
                modified: row.try_get(4)?,
                inline_content: row.try_get(5)?,
            }))
        })
    }

    /// Creates a file, or, unless it must be new, opens the existing one.
    fn create_file(&self, name: &FileName, kind: &'static str, must_be_new: bool) -> io::Result<FileRow> {
        let wanted = name.clone();
        let (inserted, row) = self.link.run_change(move |at| {
            let made = at.client.execute(
                "insert into minke.file (session, name, kind)
                 select key, $2, $3 from minke.session where name = $1 on conflict (session, name) do nothing",
                &[&wanted.session, &wanted.file, &kind],
            )?;
            let row = at.client.query_opt(
                "select s.key, f.key, f.kind, f.bytes from minke.session s join minke.file f on f.session = s.key
                 where s.name = $1 and f.name = $2",
                &[&wanted.session, &wanted.file],
            )?;
            let row = row.ok_or(io::ErrorKind::NotFound)?;
            let row = FileRow {
                session: row.try_get(0)?,
                key: row.try_get(1)?,
                kind: row.try_get(2)?,
                bytes: row.try_get(3)?,
                modified: None,
                inline_content: None,
            };
            // After a lost connection, an empty file is the one created by the earlier attempt.
            Ok((made > 0 || (at.is_retry && row.bytes == 0), row))
        })?;
        if must_be_new && !inserted { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(row) }
    }

    fn open_row(&self, name: &FileName, kind: &'static str, mode: OpenMode) -> io::Result<FileRow> {
        match mode {
            OpenMode::AppendNew => self.create_file(name, kind, true),
            OpenMode::Write => self.create_file(name, kind, false),
            OpenMode::Read | OpenMode::Append | OpenMode::Directory => match self.find_file(name)? {
                FileLookup::File(row) => Ok(row),
                FileLookup::NoFile | FileLookup::NoSession => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    fn open_log(&self, name: &FileName, own: bool, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let row = self.open_row(name, "log", mode)?;
        let write_right = match (own, mode) {
            (false, _) => WriteRight::Copying,
            (true, OpenMode::Read) => WriteRight::Lease(None),
            (true, _) => WriteRight::Lease(self.link.held_leases.fencing_token(row.session, LEASE_LOCK)),
        };
        let log = LogRow { session: row.session, file: row.key, write_right };
        Ok(Box::new(TableLogFile::new(&self.link, log, row.bytes.cast_unsigned())))
    }

    fn open_lock(
        &self,
        name: &FileName,
        lock_name: &'static str,
        only_check: bool,
    ) -> io::Result<Box<dyn DiskFile>> {
        let session = self.session_row(&name.session)?.ok_or(io::ErrorKind::NotFound)?;
        let file = RowLock::open_file(&self.locks, &name.session, lock_name)?;
        Ok(Box::new(RowLock::new(&self.link, file, Some(session), lock_name, only_check)))
    }

    /// Renames a draft, which stores its whole content at once.
    fn publish_draft(&self, draft: &DraftFile, to: &FileName) -> io::Result<()> {
        let (to, content) = (to.clone(), draft.lock_bytes().clone());
        self.link.run_change(move |at| {
            let put = at.client.execute(
                "insert into minke.file (session, name, kind, bytes, content)
                 select key, $2, 'content', length($3::bytea), $3 from minke.session where name = $1
                 on conflict (session, name) do update
                 set content = excluded.content, bytes = excluded.bytes, modified = clock_timestamp()",
                &[&to.session, &to.file, &content],
            )?;
            if put == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
        })
    }

    /// Renames a session.
    fn move_session(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let key = self.session_row(&from.session)?.ok_or(io::ErrorKind::NotFound)?;
        let name = to.session.clone();
        self.link.run_change(move |at| {
            at.client.execute("update minke.session set name = $2 where key = $1", &[&key, &name])?;
            Ok(())
        })?;
        let parent_dir = |name: &FileName| name.session.split('/').next().map(str::to_owned);
        if parent_dir(from) != parent_dir(to) {
            // A process that still waits for the locks finds that they have moved.
            for lock_name in [LEASE_LOCK, FORKS_LOCK] {
                match std::fs::remove_file(locks::local_lock_path(&self.locks, &from.session, lock_name)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Renames a file, or a directory with its content, within its session.
    fn move_file(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let (session, from, to) = (from.session.clone(), from.file.clone(), to.file.clone());
        self.link.run_change(move |at| {
            let mut change = at.client.transaction()?;
            let key: i64 = change
                .query_opt("select key from minke.session where name = $1", &[&session])?
                .ok_or(io::ErrorKind::NotFound)?
                .try_get(0)?;
            let is_from = "(name = $2 or starts_with(name, $2 || '/'))";
            let there = change.query_one(
                &format!("select exists (select 1 from minke.file where session = $1 and {is_from})"),
                &[&key, &from],
            )?;
            if !there.try_get::<_, bool>(0)? {
                return if at.is_retry { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) };
            }
            change.execute(
                "delete from minke.file where session = $1 and name = $2 and kind <> 'directory'",
                &[&key, &to],
            )?;
            change.execute(
                &format!(
                    "update minke.file set name = $3 || substr(name, length($2) + 1)
                     where session = $1 and {is_from}"
                ),
                &[&key, &from, &to],
            )?;
            Ok(change.commit()?)
        })
    }
}

impl Disk for TableDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        if self.is_outside_root(path) {
            return RealDisk.open(path, mode);
        }
        match self.parse_path(path)? {
            RowTarget::Lease(name) => self.open_lock(&name, LEASE_LOCK, mode == OpenMode::Read),
            RowTarget::Implied(name) if mode == OpenMode::Directory && name.file == FORKS_LOCK => {
                self.open_lock(&name, FORKS_LOCK, false)
            }
            RowTarget::Ballast(_) => Ok(Box::new(DraftFile::default())),
            RowTarget::Draft(name) => {
                let mut drafts = self.lock_drafts();
                if mode == OpenMode::AppendNew && drafts.contains_key(&name) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Ok(Box::new(drafts.entry(name).or_default().clone()))
            }
            RowTarget::OwnLog(name) => self.open_log(&name, true, mode),
            RowTarget::CopiedLog(name) => self.open_log(&name, false, mode),
            RowTarget::Other(name) => {
                let row = self.open_row(&name, "content", mode)?;
                Ok(Box::new(RowFile {
                    link: Arc::clone(&self.link),
                    key: row.key,
                    known_bytes: Mutex::new(row.bytes.cast_unsigned()),
                    inline_content: Mutex::new(row.inline_content),
                }))
            }
            RowTarget::SessionsDir(_) | RowTarget::Session(_) | RowTarget::Implied(_) => {
                Err(io::ErrorKind::IsADirectory.into())
            }
        }
    }

    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        // It was inherited through an exec and must not be inherited through another one.
        rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
        let file = File::from(fd);
        let session = match RowLock::read_lock_name(&file)? {
            Some(name) => self.session_row(&name)?,
            None => None,
        };
        Ok(Box::new(RowLock::new(&self.link, file, session, LEASE_LOCK, false)))
    }

    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let (name, lock_name) = match self.parse_path(path)? {
            RowTarget::Lease(name) => (name, LEASE_LOCK),
            RowTarget::Implied(name) if name.file == FORKS_LOCK => (name, FORKS_LOCK),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let Ok(ours) = file.file_identity() else { return Ok(false) };
        let there = match std::fs::metadata(locks::local_lock_path(&self.locks, &name.session, lock_name)) {
            Ok(there) => there.ino(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(self.session_row(&name.session)?.map(|key| (key.cast_unsigned(), there)) == Some(ours))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        if self.is_outside_root(path) {
            return RealDisk.metadata(path);
        }
        let directory = Some(FileMeta { bytes: 0, is_dir: true, modified: None });
        match self.parse_path(path)? {
            RowTarget::SessionsDir(_) | RowTarget::Implied(_) => Ok(directory),
            RowTarget::Ballast(_) => {
                Ok(Some(FileMeta { bytes: BALLAST_BYTES, is_dir: false, modified: None }))
            }
            RowTarget::Session(name) => Ok(self.session_row(&name.session)?.and(directory)),
            RowTarget::Draft(name) => Ok(self.lock_drafts().get(&name).map(|draft| FileMeta {
                bytes: draft.lock_bytes().len() as u64,
                is_dir: false,
                modified: None,
            })),
            RowTarget::Lease(name) => self.link.run_work(move |at| {
                let row = at.client.query_opt(
                    "select (extract(epoch from l.since) * 1000)::bigint
                     from minke.session s left join minke.lease l on l.session = s.key and l.name = 'lease'
                     where s.name = $1",
                    &[&name.session],
                )?;
                let Some(row) = row else { return Ok(None) };
                let since: Option<i64> = row.try_get(0)?;
                Ok(Some(FileMeta { bytes: 0, is_dir: false, modified: since.map(i64::cast_unsigned) }))
            }),
            RowTarget::OwnLog(name) | RowTarget::CopiedLog(name) | RowTarget::Other(name) => {
                match self.find_file(&name)? {
                    FileLookup::NoSession => Ok(None),
                    FileLookup::NoFile => self.link.run_work(move |at| {
                        let row = at.client.query_one(
                        "select exists (select 1 from minke.session s join minke.file f on f.session = s.key
                         where s.name = $1 and starts_with(f.name, $2 || '/'))",
                        &[&name.session, &name.file],
                    )?;
                        Ok(directory.filter(|_| row.get(0)))
                    }),
                    FileLookup::File(row) => Ok(Some(FileMeta {
                        bytes: row.bytes.cast_unsigned(),
                        is_dir: row.kind == "directory",
                        modified: row.modified.map(i64::cast_unsigned),
                    })),
                }
            }
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match self.parse_path(path)? {
            RowTarget::SessionsDir(_) | RowTarget::Implied(_) => Err(io::ErrorKind::AlreadyExists.into()),
            RowTarget::Session(name) => {
                let label = self.label.clone();
                self.link.run_change(move |at| {
                    let inserted = at.client.execute(
                        "insert into minke.session (name, label) values ($1, $2) on conflict do nothing",
                        &[&name.session, &label],
                    )?;
                    if inserted == 0 && !at.is_retry {
                        Err(io::ErrorKind::AlreadyExists.into())
                    } else {
                        Ok(())
                    }
                })
            }
            RowTarget::Other(name) => self.create_file(&name, "directory", true).map(drop),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_outside_root(path) {
            return RealDisk.sync_dir(path);
        }
        self.link.flush_commits()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.parse_path(from)?, self.parse_path(to)?) {
            (RowTarget::Session(from), RowTarget::Session(to)) => self.move_session(&from, &to),
            (RowTarget::Draft(from), RowTarget::Other(to)) => {
                let draft = self.lock_drafts().get(&from).cloned().ok_or(io::ErrorKind::NotFound)?;
                self.publish_draft(&draft, &to)?;
                self.lock_drafts().remove(&from);
                Ok(())
            }
            (RowTarget::Other(from), RowTarget::Other(to)) if from.session == to.session => {
                self.move_file(&from, &to)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.is_outside_root(path) {
            return RealDisk.remove_file(path);
        }
        match self.parse_path(path)? {
            RowTarget::Lease(_) | RowTarget::Ballast(_) => Ok(()),
            RowTarget::Draft(name) => {
                self.lock_drafts().remove(&name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            RowTarget::OwnLog(name) | RowTarget::CopiedLog(name) | RowTarget::Other(name) => {
                self.link.run_change(move |at| {
                    let removed = at.client.execute(
                        "delete from minke.file f using minke.session s
                         where s.key = f.session and s.name = $1 and f.name = $2 and f.kind <> 'directory'",
                        &[&name.session, &name.file],
                    )?;
                    if removed == 0 && !at.is_retry { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
                })
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match self.parse_path(path)? {
            RowTarget::Implied(_) => Ok(()),
            RowTarget::Session(name) => self.link.run_change(move |at| {
                let removed = at.client.execute(
                    "delete from minke.session s where s.name = $1
                     and not exists (select 1 from minke.file f where f.session = s.key)",
                    &[&name.session],
                )?;
                if removed == 0 && !at.is_retry { Err(not_empty_error()) } else { Ok(()) }
            }),
            RowTarget::Other(name) => self.link.run_change(move |at| {
                at.client.execute(
                    "delete from minke.file f using minke.session s
                     where s.key = f.session and s.name = $1 and f.name = $2 and f.kind = 'directory'",
                    &[&name.session, &name.file],
                )?;
                Ok(())
            }),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let name = match self.parse_path(path)? {
            RowTarget::SessionsDir(parent_dir) => {
                return self.link.run_work(move |at| {
                    let rows = at.client.query(
                        "select substr(name, length($1) + 2) from minke.session where starts_with(name, $1 || '/')",
                        &[&parent_dir],
                    )?;
                    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
                });
            }
            RowTarget::Session(name) | RowTarget::Implied(name) | RowTarget::Other(name) => name,
            _ => return Err(io::ErrorKind::NotADirectory.into()),
        };
        self.link.run_work(move |at| {
            let rows = at.client.query(
                "select distinct split_part(substr(f.name, length($2) + 1), '/', 1)
                 from minke.session s left join minke.file f on f.session = s.key and starts_with(f.name, $2)
                 where s.name = $1",
                &[
                    &name.session,
                    &if name.file.is_empty() { String::new() } else { format!("{}/", name.file) },
                ],
            )?;
            if rows.is_empty() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let names: Result<Vec<Option<String>>, LinkError> =
                rows.iter().map(|row| Ok(row.try_get(0)?)).collect();
            Ok(names?.into_iter().flatten().filter(|name| !name.is_empty()).collect())
        })
    }

    fn pause_briefly(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn not_empty_error() -> LinkError {
    LinkError::Refused(io::ErrorKind::DirectoryNotEmpty.into())
}
