//! The disk of the log, in tables: what `session` does with files is done with rows, each operation one transaction.
//!
//! So opening, replaying, verifying, repairing and forking are the same code for both stores, and their steps are already
//! in an order in which a crash between any two loses nothing. Here: which operation is which statement. Elsewhere: the
//! lines (`logfile`), the locks (`locks`), everything else (`content`).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use minke_record::limits::BALLAST_BYTES;
use minke_session::{Disk, DiskFile, Meta, OpenHow, RealDisk};

use crate::content::{Content, Draft, SMALL_BYTES};
use crate::link::{Link, Trouble};
use crate::locks::{self, FORKS, LEASE, Lock};
use crate::logfile::{LogFile, LogRow, Right};
use crate::names::{Name, Named, named};
use crate::settings::Settings;

/// Sessions in tables, as a disk.
pub(crate) struct TableDisk {
    pub(crate) link: Arc<Link>,
    pub(crate) root: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) label: String,
    drafts: Mutex<HashMap<Name, Draft>>,
}

impl std::fmt::Debug for TableDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableDisk({})", self.root.display())
    }
}

/// A row of `minke.file`.
struct Row {
    session: i64,
    key: i64,
    kind: String,
    bytes: i64,
    modified: Option<i64>,
    small: Option<Vec<u8>>,
}

/// What is there for a name: its session, and the file itself.
enum Found {
    NoSession,
    NoFile,
    File(Row),
}

impl TableDisk {
    pub(crate) fn new(settings: Settings) -> io::Result<TableDisk> {
        let link = Link::new(settings.config, settings.owner, settings.times)?;
        Ok(TableDisk {
            link,
            root: PathBuf::from(settings.place),
            locks: settings.locks,
            label: settings.label,
            drafts: Mutex::new(HashMap::new()),
        })
    }

    fn drafts(&self) -> MutexGuard<'_, HashMap<Name, Draft>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, path: &Path) -> io::Result<Named> {
        named(&self.root, path).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// What is salvaged goes where a person wants it.
    fn is_outside(&self, path: &Path) -> bool {
        !path.starts_with(&self.root)
    }

    /// The row of a session.
    pub(crate) fn session(&self, name: &str) -> io::Result<Option<i64>> {
        let name = name.to_owned();
        self.link.ask(move |at| {
            let row = at.client.query_opt("select key from minke.session where name = $1", &[&name])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })
    }

    fn find(&self, name: &Name) -> io::Result<Found> {
        let name = name.clone();
        self.link.ask(move |at| {
            let row = at.client.query_opt(
                "select s.key, f.key, f.kind, f.bytes, (extract(epoch from f.modified) * 1000)::bigint,
                        case when f.bytes <= $3 then f.content end
                 from minke.session s left join minke.file f on f.session = s.key and f.name = $2
                 where s.name = $1",
                &[&name.session, &name.file, &SMALL_BYTES],
            )?;
            let Some(row) = row else { return Ok(Found::NoSession) };
            let Some(key) = row.try_get(1)? else { return Ok(Found::NoFile) };
            Ok(Found::File(Row {
                session: row.try_get(0)?,
                key,
                kind: row.try_get(2)?,
                bytes: row.try_get(3)?,
                modified: row.try_get(4)?,
                small: row.try_get(5)?,
            }))
        })
    }

    /// Makes a file that must not be there, or, if it may, takes the one that is.
    fn make(&self, name: &Name, kind: &'static str, must_be_new: bool) -> io::Result<Row> {
        let wanted = name.clone();
        let (made, row) = self.link.change(move |at| {
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
            let row = Row {
                session: row.try_get(0)?,
                key: row.try_get(1)?,
                kind: row.try_get(2)?,
                bytes: row.try_get(3)?,
                modified: None,
                small: None,
            };
            // After a break in between, an empty file is the one that we made.
            Ok((made > 0 || (at.again && row.bytes == 0), row))
        })?;
        if must_be_new && !made { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(row) }
    }

    fn row(&self, name: &Name, kind: &'static str, how: OpenHow) -> io::Result<Row> {
        match how {
            OpenHow::AppendNew => self.make(name, kind, true),
            OpenHow::Write => self.make(name, kind, false),
            OpenHow::Read | OpenHow::Append | OpenHow::Directory => match self.find(name)? {
                Found::File(row) => Ok(row),
                Found::NoFile | Found::NoSession => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    fn log(&self, name: &Name, own: bool, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let row = self.row(name, "log", how)?;
        let right = match (own, how) {
            (false, _) => Right::Copying,
            (true, OpenHow::Read) => Right::Fence(None),
            (true, _) => Right::Fence(self.link.held.fence(row.session, LEASE)),
        };
        let log = LogRow { session: row.session, file: row.key, right };
        Ok(Box::new(LogFile::new(&self.link, log, row.bytes.cast_unsigned())))
    }

    fn lock(&self, name: &Name, which: &'static str, look: bool) -> io::Result<Box<dyn DiskFile>> {
        let session = self.session(&name.session)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Lock::open(&self.link, &self.locks, (session, name), which, look)?))
    }

    /// Gives a draft its name: the whole content at once.
    fn publish(&self, draft: &Draft, to: &Name) -> io::Result<()> {
        let (to, content) = (to.clone(), draft.bytes().clone());
        self.link.change(move |at| {
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

    /// A session gets another name.
    fn move_session(&self, from: &Name, to: &Name) -> io::Result<()> {
        let key = self.session(&from.session)?.ok_or(io::ErrorKind::NotFound)?;
        let name = to.session.clone();
        self.link.change(move |at| {
            at.client.execute("update minke.session set name = $2 where key = $1", &[&key, &name])?;
            Ok(())
        })?;
        let shelf = |name: &Name| name.session.split('/').next().map(str::to_owned);
        if shelf(from) != shelf(to) {
            // Whoever still waits for its locks finds that they are no longer at their place.
            for which in [LEASE, FORKS] {
                match std::fs::remove_file(locks::local(&self.locks, &from.session, which)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A file, or a directory with everything in it, gets another name in its session.
    fn move_file(&self, from: &Name, to: &Name) -> io::Result<()> {
        let (session, from, to) = (from.session.clone(), from.file.clone(), to.file.clone());
        self.link.change(move |at| {
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
                return if at.again { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) };
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
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        if self.is_outside(path) {
            return RealDisk.open(path, how);
        }
        match self.named(path)? {
            Named::Lease(name) => self.lock(&name, LEASE, how == OpenHow::Read),
            Named::Implied(name) if how == OpenHow::Directory && name.file == FORKS => {
                self.lock(&name, FORKS, false)
            }
            Named::Ballast(_) => Ok(Box::new(Draft::default())),
            Named::Draft(name) => {
                let mut drafts = self.drafts();
                if how == OpenHow::AppendNew && drafts.contains_key(&name) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Ok(Box::new(drafts.entry(name).or_default().clone()))
            }
            Named::OwnLog(name) => self.log(&name, true, how),
            Named::CopiedLog(name) => self.log(&name, false, how),
            Named::Other(name) => {
                let row = self.row(&name, "content", how)?;
                Ok(Box::new(Content {
                    link: Arc::clone(&self.link),
                    key: row.key,
                    bytes: Mutex::new(row.bytes.cast_unsigned()),
                    small: Mutex::new(row.small),
                }))
            }
            Named::Shelf(_) | Named::Session(_) | Named::Implied(_) => {
                Err(io::ErrorKind::IsADirectory.into())
            }
        }
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        // It came across an exec; it must not cross another one by accident.
        rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
        let file = File::from(fd);
        let session = match Lock::named(&file)? {
            Some(name) => self.session(&name)?,
            None => None,
        };
        Ok(Box::new(Lock::new(&self.link, file, session, LEASE, false)))
    }

    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        let (name, which) = match self.named(path)? {
            Named::Lease(name) => (name, LEASE),
            Named::Implied(name) if name.file == FORKS => (name, FORKS),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let Ok(ours) = file.identity() else { return Ok(false) };
        let there = match std::fs::metadata(locks::local(&self.locks, &name.session, which)) {
            Ok(there) => there.ino(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(self.session(&name.session)?.map(|key| (key.cast_unsigned(), there)) == Some(ours))
    }

    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        if self.is_outside(path) {
            return RealDisk.meta(path);
        }
        let directory = Some(Meta { bytes: 0, directory: true, modified: None });
        match self.named(path)? {
            Named::Shelf(_) | Named::Implied(_) => Ok(directory),
            Named::Ballast(_) => Ok(Some(Meta { bytes: BALLAST_BYTES, directory: false, modified: None })),
            Named::Session(name) => Ok(self.session(&name.session)?.and(directory)),
            Named::Draft(name) => Ok(self.drafts().get(&name).map(|draft| Meta {
                bytes: draft.bytes().len() as u64,
                directory: false,
                modified: None,
            })),
            Named::Lease(name) => self.link.ask(move |at| {
                let row = at.client.query_opt(
                    "select (extract(epoch from l.since) * 1000)::bigint
                     from minke.session s left join minke.lease l on l.session = s.key and l.name = 'lease'
                     where s.name = $1",
                    &[&name.session],
                )?;
                let Some(row) = row else { return Ok(None) };
                let since: Option<i64> = row.try_get(0)?;
                Ok(Some(Meta { bytes: 0, directory: false, modified: since.map(i64::cast_unsigned) }))
            }),
            Named::OwnLog(name) | Named::CopiedLog(name) | Named::Other(name) => match self.find(&name)? {
                Found::NoSession => Ok(None),
                Found::NoFile => self.link.ask(move |at| {
                    let row = at.client.query_one(
                        "select exists (select 1 from minke.session s join minke.file f on f.session = s.key
                         where s.name = $1 and starts_with(f.name, $2 || '/'))",
                        &[&name.session, &name.file],
                    )?;
                    Ok(directory.filter(|_| row.get(0)))
                }),
                Found::File(row) => Ok(Some(Meta {
                    bytes: row.bytes.cast_unsigned(),
                    directory: row.kind == "directory",
                    modified: row.modified.map(i64::cast_unsigned),
                })),
            },
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match self.named(path)? {
            Named::Shelf(_) | Named::Implied(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Named::Session(name) => {
                let label = self.label.clone();
                self.link.change(move |at| {
                    let made = at.client.execute(
                        "insert into minke.session (name, label) values ($1, $2) on conflict do nothing",
                        &[&name.session, &label],
                    )?;
                    if made == 0 && !at.again { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
                })
            }
            Named::Other(name) => self.make(&name, "directory", true).map(drop),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_outside(path) {
            return RealDisk.sync_dir(path);
        }
        self.link.flush()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.named(from)?, self.named(to)?) {
            (Named::Session(from), Named::Session(to)) => self.move_session(&from, &to),
            (Named::Draft(from), Named::Other(to)) => {
                let draft = self.drafts().get(&from).cloned().ok_or(io::ErrorKind::NotFound)?;
                self.publish(&draft, &to)?;
                self.drafts().remove(&from);
                Ok(())
            }
            (Named::Other(from), Named::Other(to)) if from.session == to.session => {
                self.move_file(&from, &to)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.is_outside(path) {
            return RealDisk.remove_file(path);
        }
        match self.named(path)? {
            Named::Lease(_) | Named::Ballast(_) => Ok(()),
            Named::Draft(name) => {
                self.drafts().remove(&name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            Named::OwnLog(name) | Named::CopiedLog(name) | Named::Other(name) => {
                self.link.change(move |at| {
                    let removed = at.client.execute(
                        "delete from minke.file f using minke.session s
                         where s.key = f.session and s.name = $1 and f.name = $2 and f.kind <> 'directory'",
                        &[&name.session, &name.file],
                    )?;
                    if removed == 0 && !at.again { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
                })
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match self.named(path)? {
            Named::Implied(_) => Ok(()),
            Named::Session(name) => self.link.change(move |at| {
                let removed = at.client.execute(
                    "delete from minke.session s where s.name = $1
                     and not exists (select 1 from minke.file f where f.session = s.key)",
                    &[&name.session],
                )?;
                if removed == 0 && !at.again { Err(not_empty()) } else { Ok(()) }
            }),
            Named::Other(name) => self.link.change(move |at| {
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
        let name = match self.named(path)? {
            Named::Shelf(shelf) => {
                return self.link.ask(move |at| {
                    let rows = at.client.query(
                        "select substr(name, length($1) + 2) from minke.session where starts_with(name, $1 || '/')",
                        &[&shelf],
                    )?;
                    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
                });
            }
            Named::Session(name) | Named::Implied(name) | Named::Other(name) => name,
            _ => return Err(io::ErrorKind::NotADirectory.into()),
        };
        self.link.ask(move |at| {
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
            let names: Result<Vec<Option<String>>, Trouble> =
                rows.iter().map(|row| Ok(row.try_get(0)?)).collect();
            Ok(names?.into_iter().flatten().filter(|name| !name.is_empty()).collect())
        })
    }

    fn breathe(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn not_empty() -> Trouble {
    Trouble::Refused(io::ErrorKind::DirectoryNotEmpty.into())
}
