//! A world in tables with the same handles as the virtual disk: processes that die, a server that loses its power,
//! damage behind everybody's back, faults on demand.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use minke_session::{Disk, DiskFile, Meta, OpenHow};
use postgres::{Client, NoTls};

use crate::world::{server, store_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    KillBefore,
    KillAfter,
    /// A transaction has no half: the same as before it.
    KillHalfway,
    Full,
    Io,
    /// The server takes a whole step or nothing of it: nothing is short.
    Short,
}

impl Fault {
    pub(crate) const ALL: [Fault; 6] =
        [Fault::KillBefore, Fault::KillAfter, Fault::KillHalfway, Fault::Full, Fault::Io, Fault::Short];

    pub(crate) fn kills(self) -> bool {
        matches!(self, Fault::KillBefore | Fault::KillAfter | Fault::KillHalfway)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Lock,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) at: u64,
    pub(crate) fault: Fault,
    pub(crate) lasting: bool,
    pub(crate) only: Option<Operation>,
}

impl Plan {
    pub(crate) fn once(at: u64, fault: Fault) -> Plan {
        Plan { at, fault, lasting: false, only: None }
    }
}

thread_local! {
    /// Flipping is done by the thousand.
    static FLIPPER: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) };
}

type Slot = Mutex<Option<Box<dyn DiskFile>>>;

/// One process's view of the tables.
#[derive(Clone)]
pub(crate) struct SimDisk {
    world: Arc<Mutex<World>>,
    process: u64,
    /// Without the world's lock: others work meanwhile.
    inner: Arc<Mutex<Option<crate::world::Disk>>>,
    root: PathBuf,
    prefix: String,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk(process {})", self.process)
    }
}

struct World {
    home: Arc<tempfile::TempDir>,
    processes: u64,
    dead: HashSet<u64>,
    counted: u64,
    plan: Option<(u64, Plan)>,
    open: HashMap<u64, Vec<Arc<Slot>>>,
    inners: HashMap<u64, Arc<Mutex<Option<crate::world::Disk>>>>,
}

fn killed() -> io::Error {
    io::Error::other("this process was killed")
}

impl SimDisk {
    pub(crate) fn new() -> SimDisk {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("w{}.", WORLDS.fetch_add(1, Ordering::Relaxed));
        let world = World {
            home: Arc::new(tempfile::tempdir().unwrap()),
            processes: 0,
            dead: HashSet::new(),
            counted: 0,
            plan: None,
            open: HashMap::new(),
            inners: HashMap::new(),
        };
        SimDisk::enter(Arc::new(Mutex::new(world)), prefix)
    }

    fn enter(world: Arc<Mutex<World>>, prefix: String) -> SimDisk {
        let mut there = world.lock().unwrap();
        let process = there.processes;
        there.processes += 1;
        let store = store_at(&server().address(), there.home.path());
        let inner = Arc::new(Mutex::new(Some(store.disk())));
        there.inners.insert(process, Arc::clone(&inner));
        drop(there);
        SimDisk { world, process, inner, root: store.place(), prefix }
    }

    pub(crate) fn process(&self) -> SimDisk {
        SimDisk::enter(Arc::clone(&self.world), self.prefix.clone())
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn kill(&self) {
        self.world().kill(self.process);
    }

    /// What was not synced may be gone; which of it, the server decides.
    pub(crate) fn cut_power(&self, _: Option<u64>) {
        let mut world = self.world();
        for process in 0..world.processes {
            world.kill(process);
        }
        server().restart();
    }

    pub(crate) fn plan(&self, plan: Option<Plan>) {
        let mut world = self.world();
        world.plan = plan.map(|plan| (self.process, plan));
        world.counted = 0;
    }

    pub(crate) fn counted(&self) -> u64 {
        self.world().counted
    }

    #[expect(clippy::unused_self, reason = "every world is at the same server")]
    fn client(&self) -> Client {
        Client::connect(&server().address(), NoTls).unwrap()
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.world().home.path().join(path.strip_prefix("/").unwrap())
    }

    /// `/sessions/…` and the like are this world's; everything else is on the machine.
    fn path(&self, path: &Path) -> PathBuf {
        for (shelf, name) in [
            ("/sessions", "sessions"),
            ("/trash", "trash"),
            ("/run/passing", "passing"),
            ("/run/trash", "gone"),
        ] {
            if let Ok(rest) = path.strip_prefix(shelf) {
                return self.root.join(format!("{}{name}", self.prefix)).join(rest);
            }
        }
        self.outside(path)
    }

    /// The names of a file in the tables.
    fn row(&self, path: &Path) -> Option<(String, String)> {
        let path = self.path(path);
        let parts: Vec<&str> =
            path.strip_prefix(&self.root).ok()?.iter().map(|part| part.to_str().unwrap()).collect();
        let [shelf, session, file @ ..] = parts.as_slice() else { return None };
        Some((format!("{shelf}/{session}"), file.join("/")))
    }

    pub(crate) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let Some((session, file)) = self.row(path) else {
            return std::fs::read(self.outside(path)).ok();
        };
        let row = self
            .client()
            .query_opt(
                "select f.kind, coalesce(f.content, ''::bytea),
                        coalesce((select string_agg(line, ''::bytea order by at) from minke.entry where file = f.key), ''::bytea)
                 from minke.file f join minke.session s on s.key = f.session where s.name = $1 and f.name = $2",
                &[&session, &file],
            )
            .unwrap()?;
        Some(if row.get::<_, &str>(0) == "log" { row.get(2) } else { row.get(1) })
    }

    pub(crate) fn put(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (session, file) = self.row(path).unwrap();
        let log = file.starts_with("log.");
        let mut client = self.client();
        let mut change = client.transaction().unwrap();
        let key: i64 = change
            .query_one(
                "insert into minke.file (session, name, kind) select key, $2, $3 from minke.session where name = $1
                 on conflict (session, name) do update set modified = clock_timestamp() returning key",
                &[&session, &file, &if log { "log" } else { "content" }],
            )
            .unwrap()
            .get(0);
        change.execute("delete from minke.entry where file = $1", &[&key]).unwrap();
        let bytes = i64::try_from(content.len()).unwrap();
        let kept = (!log).then_some(content);
        change
            .execute("update minke.file set bytes = $2, content = $3 where key = $1", &[&key, &bytes, &kept])
            .unwrap();
        let mut at = 0i64;
        for line in content.split_inclusive(|byte| *byte == b'\n').filter(|_| log) {
            change
                .execute("insert into minke.entry (file, at, line) values ($1, $2, $3)", &[&key, &at, &line])
                .unwrap();
            at += i64::try_from(line.len()).unwrap();
        }
        change.commit().unwrap();
        Ok(())
    }

    pub(crate) fn flip(&self, path: &Path, at: usize, bits: u8) {
        let (session, file) = self.row(path).unwrap();
        let (at, bits) = (i64::try_from(at).unwrap(), i32::from(bits));
        let flipped = FLIPPER.with_borrow_mut(|client| {
            client.get_or_insert_with(|| self.client()).execute(
                "update minke.entry e set line = set_byte(e.line, ($3 - e.at)::integer,
                                                       get_byte(e.line, ($3 - e.at)::integer) # $4)
                 from minke.file f, minke.session s
                 where f.key = e.file and s.key = f.session and s.name = $1 and f.name = $2
                   and e.at <= $3 and e.at + length(e.line) > $3",
                &[&session, &file, &at, &bits],
            )
        });
        assert_eq!(flipped.unwrap(), 1);
    }

    fn doing<T>(&self, operation: Operation, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let fault = self.world().meet(self.process, operation)?;
        match fault {
            None | Some(Fault::Short) => act(),
            Some(Fault::KillBefore | Fault::KillHalfway) => {
                self.kill();
                Err(killed())
            }
            Some(Fault::KillAfter) => {
                let done = act();
                self.kill();
                done
            }
            Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Io) => Err(io::Error::from_raw_os_error(5)),
        }
    }

    fn inner(&self) -> io::Result<crate::world::Disk> {
        self.inner.lock().unwrap().clone().ok_or_else(killed)
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let slot = Arc::new(Mutex::new(Some(file)));
        let mut world = self.world();
        let open = world.open.entry(self.process).or_default();
        open.retain(|slot| Arc::strong_count(slot) > 1);
        open.push(Arc::clone(&slot));
        drop(world);
        Box::new(SimFile { disk: self.clone(), slot })
    }
}

impl World {
    /// The kernel frees its locks; nobody tells the server.
    fn kill(&mut self, process: u64) {
        self.dead.insert(process);
        for slot in self.open.remove(&process).unwrap_or_default() {
            if let Some(file) = slot.lock().unwrap().take() {
                drop(file.duplicate());
            }
        }
        if let Some(inner) = self.inners.remove(&process) {
            inner.lock().unwrap().take();
        }
    }

    fn meet(&mut self, process: u64, operation: Operation) -> io::Result<Option<Fault>> {
        if self.dead.contains(&process) {
            return Err(killed());
        }
        let Some((_, plan)) = self.plan.filter(|(struck, _)| *struck == process) else { return Ok(None) };
        if plan.only.is_some_and(|only| only != operation) {
            return Ok(None);
        }
        let now = self.counted;
        self.counted += 1;
        Ok((now == plan.at || (plan.lasting && now > plan.at)).then_some(plan.fault))
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let file = self.doing(Operation::Open, || self.inner()?.open(&self.path(path), how))?;
        Ok(self.wrap(file))
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.inner()?.adopt(fd)?))
    }

    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.doing(Operation::Read, || self.inner()?.is_at(file, &self.path(path)))
    }

    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        self.doing(Operation::Read, || self.inner()?.meta(&self.path(path)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(Operation::Directory, || self.inner()?.create_dir(&self.path(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(Operation::Sync, || self.inner()?.sync_dir(&self.path(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.doing(Operation::Directory, || self.inner()?.rename(&self.path(from), &self.path(to)))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.doing(Operation::Directory, || self.inner()?.remove_file(&self.path(path)))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(Operation::Directory, || self.inner()?.remove_dir(&self.path(path)))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.doing(Operation::Read, || self.inner()?.read_dir(&self.path(path)))
    }

    fn breathe(&self) {}
}

struct SimFile {
    disk: SimDisk,
    slot: Arc<Slot>,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile(process {})", self.disk.process)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        drop(self.slot.lock().unwrap().take());
    }
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&dyn DiskFile) -> io::Result<T>) -> io::Result<T> {
        act(&**self.slot.lock().unwrap().as_ref().ok_or_else(killed)?)
    }

    fn doing<T>(
        &self,
        operation: Operation,
        act: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.doing(operation, || self.with(act))
    }
}

impl DiskFile for SimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.doing(Operation::Write, |file| file.append(bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.doing(Operation::Write, |file| file.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.doing(Operation::Read, |file| file.read_at(bytes, offset))
    }

    fn size(&self) -> io::Result<u64> {
        self.doing(Operation::Read, |file| file.size())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.doing(Operation::Truncate, |file| file.truncate(bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.doing(Operation::Sync, |file| file.sync_data())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.doing(Operation::Lock, |file| file.try_lock())
    }

    fn lock(&self) -> io::Result<()> {
        self.doing(Operation::Lock, |file| file.lock())
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.with(|file| file.duplicate())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.with(|file| file.identity())
    }
}
