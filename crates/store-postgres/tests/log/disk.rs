//! A disk in tables with the interface of the simulated disk: dying processes, power cuts of the server, damage behind
//! the processes' backs, and injected faults.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use minke_session::{Disk, DiskFile, FileMeta, OpenMode};
use postgres::{Client, NoTls};

use crate::world::{open_store, server};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    KillBefore,
    KillAfter,
    /// The same as before the transaction, which has no intermediate state.
    KillHalfway,
    Full,
    Io,
    /// Has no effect: the server stores whole steps only.
    Short,
}

impl DiskFault {
    pub(crate) const ALL: [DiskFault; 6] = [
        DiskFault::KillBefore,
        DiskFault::KillAfter,
        DiskFault::KillHalfway,
        DiskFault::Full,
        DiskFault::Io,
        DiskFault::Short,
    ];

    pub(crate) fn kills_process(self) -> bool {
        matches!(self, DiskFault::KillBefore | DiskFault::KillAfter | DiskFault::KillHalfway)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskOperation {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Lock,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultPlan {
    pub(crate) at: u64,
    pub(crate) fault: DiskFault,
    pub(crate) lasting: bool,
    pub(crate) only: Option<DiskOperation>,
}

impl FaultPlan {
    pub(crate) fn once(at: u64, fault: DiskFault) -> FaultPlan {
        FaultPlan { at, fault, lasting: false, only: None }
    }
}

thread_local! {
    /// Tests flip thousands of bits, so the connection is reused.
    static FLIPPER: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) };
}

type FileSlot = Mutex<Option<Box<dyn DiskFile>>>;

/// One process's view of the tables.
#[derive(Clone)]
pub(crate) struct SimDisk {
    world: Arc<Mutex<TableWorld>>,
    process: u64,
    /// Outside of the world's lock, so that other processes can work meanwhile.
    inner: Arc<Mutex<Option<crate::world::SharedDisk>>>,
    root: PathBuf,
    prefix: String,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk(process {})", self.process)
    }
}

struct TableWorld {
    home: Arc<tempfile::TempDir>,
    processes: u64,
    dead: HashSet<u64>,
    counted: u64,
    plan: Option<(u64, FaultPlan)>,
    open: HashMap<u64, Vec<Arc<FileSlot>>>,
    inners: HashMap<u64, Arc<Mutex<Option<crate::world::SharedDisk>>>>,
}

fn killed_error() -> io::Error {
    io::Error::other("this process was killed")
}

impl SimDisk {
    pub(crate) fn new() -> SimDisk {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("w{}.", WORLDS.fetch_add(1, Ordering::Relaxed));
        let world = TableWorld {
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

    fn enter(world: Arc<Mutex<TableWorld>>, prefix: String) -> SimDisk {
        let mut there = world.lock().unwrap();
        let process = there.processes;
        there.processes += 1;
        let store = open_store(&server().address(), there.home.path());
        let inner = Arc::new(Mutex::new(Some(store.disk())));
        there.inners.insert(process, Arc::clone(&inner));
        drop(there);
        SimDisk { world, process, inner, root: store.display_path(), prefix }
    }

    pub(crate) fn new_process(&self) -> SimDisk {
        SimDisk::enter(Arc::clone(&self.world), self.prefix.clone())
    }

    fn world(&self) -> MutexGuard<'_, TableWorld> {
        self.world.lock().unwrap()
    }

    pub(crate) fn kill(&self) {
        self.world().kill(self.process);
    }

    /// Unsynced data may be lost; the server decides which.
    pub(crate) fn cut_power(&self, _: Option<u64>) {
        let mut world = self.world();
        for process in 0..world.processes {
            world.kill(process);
        }
        server().restart();
    }

    pub(crate) fn set_fault_plan(&self, plan: Option<FaultPlan>) {
        let mut world = self.world();
        world.plan = plan.map(|plan| (self.process, plan));
        world.counted = 0;
    }

    pub(crate) fn planned_operations(&self) -> u64 {
        self.world().counted
    }

    #[expect(clippy::unused_self, reason = "every world is at the same server")]
    fn client(&self) -> Client {
        Client::connect(&server().address(), NoTls).unwrap()
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.world().home.path().join(path.strip_prefix("/").unwrap())
    }

    /// Maps `/sessions/…` and similar paths to this world; other paths are on the machine.
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

    /// Returns the names of a file in the tables.
    fn row(&self, path: &Path) -> Option<(String, String)> {
        let path = self.path(path);
        let parts: Vec<&str> =
            path.strip_prefix(&self.root).ok()?.iter().map(|part| part.to_str().unwrap()).collect();
        let [shelf, session, file @ ..] = parts.as_slice() else { return None };
        Some((format!("{shelf}/{session}"), file.join("/")))
    }

    pub(crate) fn file_content(&self, path: &Path) -> Option<Vec<u8>> {
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

    pub(crate) fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
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

    pub(crate) fn flip_bits(&self, path: &Path, at: usize, bits: u8) {
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

    fn doing<T>(&self, operation: DiskOperation, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let fault = self.world().next_fault(self.process, operation)?;
        match fault {
            None | Some(DiskFault::Short) => act(),
            Some(DiskFault::KillBefore | DiskFault::KillHalfway) => {
                self.kill();
                Err(killed_error())
            }
            Some(DiskFault::KillAfter) => {
                let done = act();
                self.kill();
                done
            }
            Some(DiskFault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(DiskFault::Io) => Err(io::Error::from_raw_os_error(5)),
        }
    }

    fn inner(&self) -> io::Result<crate::world::SharedDisk> {
        self.inner.lock().unwrap().clone().ok_or_else(killed_error)
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let slot = Arc::new(Mutex::new(Some(file)));
        let mut world = self.world();
        let open = world.open.entry(self.process).or_default();
        open.retain(|slot| Arc::strong_count(slot) > 1);
        open.push(Arc::clone(&slot));
        drop(world);
        Box::new(TableSimFile { disk: self.clone(), slot })
    }
}

impl TableWorld {
    /// The kernel frees its locks; the server is not notified.
    fn kill(&mut self, process: u64) {
        self.dead.insert(process);
        for slot in self.open.remove(&process).unwrap_or_default() {
            if let Some(file) = slot.lock().unwrap().take() {
                drop(file.duplicate_fd());
            }
        }
        if let Some(inner) = self.inners.remove(&process) {
            inner.lock().unwrap().take();
        }
    }

    fn next_fault(&mut self, process: u64, operation: DiskOperation) -> io::Result<Option<DiskFault>> {
        if self.dead.contains(&process) {
            return Err(killed_error());
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
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let file = self.doing(DiskOperation::Open, || self.inner()?.open(&self.path(path), how))?;
        Ok(self.wrap(file))
    }

    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.inner()?.adopt_fd(fd)?))
    }

    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.doing(DiskOperation::Read, || self.inner()?.is_file_at(file, &self.path(path)))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        self.doing(DiskOperation::Read, || self.inner()?.metadata(&self.path(path)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(DiskOperation::Directory, || self.inner()?.create_dir(&self.path(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(DiskOperation::Sync, || self.inner()?.sync_dir(&self.path(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.doing(DiskOperation::Directory, || self.inner()?.rename(&self.path(from), &self.path(to)))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.doing(DiskOperation::Directory, || self.inner()?.remove_file(&self.path(path)))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.doing(DiskOperation::Directory, || self.inner()?.remove_dir(&self.path(path)))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.doing(DiskOperation::Read, || self.inner()?.read_dir(&self.path(path)))
    }

    fn pause_briefly(&self) {}
}

struct TableSimFile {
    disk: SimDisk,
    slot: Arc<FileSlot>,
}

impl std::fmt::Debug for TableSimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile(process {})", self.disk.process)
    }
}

impl Drop for TableSimFile {
    fn drop(&mut self) {
        drop(self.slot.lock().unwrap().take());
    }
}

impl TableSimFile {
    fn with_file<T>(&self, act: impl FnOnce(&dyn DiskFile) -> io::Result<T>) -> io::Result<T> {
        act(&**self.slot.lock().unwrap().as_ref().ok_or_else(killed_error)?)
    }

    fn run_operation<T>(
        &self,
        operation: DiskOperation,
        act: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.doing(operation, || self.with_file(act))
    }
}

impl DiskFile for TableSimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.run_operation(DiskOperation::Write, |file| file.append(bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.run_operation(DiskOperation::Write, |file| file.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.run_operation(DiskOperation::Read, |file| file.read_at(bytes, offset))
    }

    fn size(&self) -> io::Result<u64> {
        self.run_operation(DiskOperation::Read, |file| file.size())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.run_operation(DiskOperation::Truncate, |file| file.truncate(bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run_operation(DiskOperation::Sync, |file| file.sync_data())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.run_operation(DiskOperation::Lock, |file| file.try_lock())
    }

    fn lock(&self) -> io::Result<()> {
        self.run_operation(DiskOperation::Lock, |file| file.lock())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        self.with_file(|file| file.duplicate_fd())
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        self.with_file(|file| file.file_identity())
    }
}
