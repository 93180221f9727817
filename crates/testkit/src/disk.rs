//! A virtual disk: files and directories in memory, with what a power cut would leave of them, and faults on demand.
//!
//! Here: `SimDisk`, one process's view of a disk that several may share. A process can be killed (its locks are free,
//! what it wrote stays) and the power can be cut (what was not synced may be gone or torn). Elsewhere: the preload
//! shim, which does the same to the real binary.
//! Promise: one seed, one outcome; nothing here looks at a clock or at chance.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_session::{Disk, DiskFile, Meta, OpenHow};

/// What goes wrong at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the operation.
    KillBefore,
    /// The process dies after it.
    KillAfter,
    /// The process dies in the middle of it: of a write, half is done.
    KillHalfway,
    /// `ENOSPC`, nothing is done.
    Full,
    /// `EIO`, nothing is done.
    Io,
    /// A write takes half of its bytes and says so; other operations go well.
    Short,
}

impl Fault {
    pub const ALL: [Fault; 6] =
        [Fault::KillBefore, Fault::KillAfter, Fault::KillHalfway, Fault::Full, Fault::Io, Fault::Short];

    pub fn kills(self) -> bool {
        matches!(self, Fault::KillBefore | Fault::KillAfter | Fault::KillHalfway)
    }
}

/// What kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Lock,
    Directory,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The number of the operation of the process, from 0; with `only`, among those.
    pub at: u64,
    pub fault: Fault,
    /// Every later operation fails too, until the plan is taken back.
    pub lasting: bool,
    pub only: Option<Operation>,
}

impl Plan {
    pub fn once(at: u64, fault: Fault) -> Plan {
        Plan { at, fault, lasting: false, only: None }
    }
}

/// One process's view of a virtual disk.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
    process: u64,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk(process {})", self.process)
    }
}

struct World {
    nodes: HashMap<u64, Node>,
    next: u64,
    processes: u64,
    dead: HashSet<u64>,
    operations: u64,
    counted: u64,
    /// Which process it strikes.
    plan: Option<(u64, Plan)>,
    capacity: Option<u64>,
    now: u64,
}

const ROOT: u64 = 0;

enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Default)]
struct FileNode {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// Everything before is the same in both, or so the kernel believes.
    same: usize,
    modified: u64,
    lock: Option<(u64, u64)>,
}

#[derive(Default)]
struct DirNode {
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    lock: Option<(u64, u64)>,
}

/// How an operation is to go.
enum Fate {
    Well,
    /// Only half of it, then this.
    Half(Option<io::Error>),
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk and the first process on it.
    pub fn new() -> SimDisk {
        let root = Node::Dir(DirNode::default());
        let world = World {
            nodes: HashMap::from([(ROOT, root)]),
            next: 1,
            processes: 1,
            dead: HashSet::new(),
            operations: 0,
            counted: 0,
            plan: None,
            capacity: None,
            now: 1_780_000_000_000,
        };
        SimDisk { world: Arc::new(Mutex::new(world)), process: 0 }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process on the same disk.
    #[must_use]
    pub fn process(&self) -> SimDisk {
        let mut world = self.world();
        let process = world.processes;
        world.processes += 1;
        SimDisk { world: self.world.clone(), process }
    }

    /// Ends this process: its locks are free, and everything it still tries fails.
    pub fn kill(&self) {
        self.world().kill(self.process);
    }

    pub fn is_dead(&self) -> bool {
        self.world().dead.contains(&self.process)
    }

    /// Ends every process and loses what was not synced. With a seed, of each file some of its unsynced bytes stay,
    /// torn anywhere, and of each directory either the old or the new names; without one, nothing unsynced stays.
    pub fn cut_power(&self, seed: Option<u64>) {
        let mut world = self.world();
        for process in 0..world.processes {
            world.kill(process);
        }
        let mut chance = seed.map(Chance);
        let mut ids: Vec<u64> = world.nodes.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            match world.nodes.get_mut(&id) {
                Some(Node::File(file)) => file.cut(chance.as_mut()),
                Some(Node::Dir(dir)) => dir.cut(chance.as_mut()),
                None => {}
            }
        }
    }

    /// Lets an operation of this process go wrong; `None` takes every plan back. Counting begins anew.
    pub fn plan(&self, plan: Option<Plan>) {
        let mut world = self.world();
        world.plan = plan.map(|plan| (self.process, plan));
        world.counted = 0;
    }

    /// Operations of the planned process since the plan was made, of the planned kind.
    pub fn counted(&self) -> u64 {
        self.world().counted
    }

    /// All operations so far.
    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// How many bytes fit on the disk.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world().capacity = bytes;
    }

    pub fn used(&self) -> u64 {
        self.world().used()
    }

    /// The content of a file, as a process sees it.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        match world.nodes.get(&world.find(path)?)? {
            Node::File(file) => Some(file.data.clone()),
            Node::Dir(_) => None,
        }
    }

    /// Changes a file behind everybody's back, durably: a bad sector, a careless person.
    pub fn put(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut world = self.world();
        let id = match world.find(path) {
            Some(id) => id,
            None => world.add(path, Node::File(FileNode::default()))?,
        };
        if let Some(Node::File(file)) = world.nodes.get_mut(&id) {
            file.data = content.to_vec();
            file.durable = content.to_vec();
            file.same = content.len();
        }
        Ok(())
    }

    /// Flips bits of one byte of a file, durably.
    pub fn flip(&self, path: &Path, at: usize, bits: u8) {
        let mut world = self.world();
        let id = world.find(path);
        if let Some(Node::File(file)) = id.and_then(|id| world.nodes.get_mut(&id)) {
            for content in [&mut file.data, &mut file.durable] {
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= bits;
                }
            }
        }
    }

    fn meet(&self, operation: Operation) -> io::Result<Fate> {
        self.world().meet(self.process, operation)
    }
}

impl World {
    fn kill(&mut self, process: u64) {
        self.dead.insert(process);
        for node in self.nodes.values_mut() {
            let lock = node.lock();
            if lock.is_some_and(|(owner, _)| owner == process) {
                *lock = None;
            }
        }
    }

    /// Counts an operation and says how it goes.
    fn meet(&mut self, process: u64, operation: Operation) -> io::Result<Fate> {
        if self.dead.contains(&process) {
            return Err(io::Error::other("this process was killed"));
        }
        self.operations += 1;
        let Some((_, plan)) = self.plan.filter(|(struck, _)| *struck == process) else {
            return Ok(Fate::Well);
        };
        if plan.only.is_some_and(|only| only != operation) {
            return Ok(Fate::Well);
        }
        let now = self.counted;
        self.counted += 1;
        if now != plan.at && !(plan.lasting && now > plan.at) {
            return Ok(Fate::Well);
        }
        let killed = || io::Error::other("this process was killed");
        match plan.fault {
            Fault::KillBefore => {
                self.kill(process);
                Err(killed())
            }
            Fault::KillAfter => {
                self.kill(process);
                Ok(Fate::Well)
            }
            Fault::KillHalfway => {
                self.kill(process);
                Ok(Fate::Half(Some(killed())))
            }
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
            Fault::Io => Err(io::Error::from_raw_os_error(5)),
            Fault::Short => Ok(Fate::Half(None)),
        }
    }

    fn used(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| if let Node::File(file) = node { file.data.len() as u64 } else { 0 })
            .sum()
    }

    fn names(path: &Path) -> Vec<String> {
        path.components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect()
    }

    fn find(&self, path: &Path) -> Option<u64> {
        let mut at = ROOT;
        for name in World::names(path) {
            let Some(Node::Dir(dir)) = self.nodes.get(&at) else { return None };
            at = *dir.names.get(&name)?;
        }
        Some(at)
    }

    fn dir(&mut self, path: &Path) -> io::Result<&mut DirNode> {
        let id = self.find(path).ok_or(io::ErrorKind::NotFound)?;
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory that a path lies in, and its name there.
    fn above(&mut self, path: &Path) -> io::Result<(&mut DirNode, String)> {
        let name = World::names(path).pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok((self.dir(&parent)?, name))
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<u64> {
        let id = self.next;
        let (dir, name) = self.above(path)?;
        if dir.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        dir.names.insert(name, id);
        self.nodes.insert(id, node);
        self.next += 1;
        Ok(id)
    }

    /// Writes as much as fits; says how much.
    fn write(&mut self, id: u64, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        let free = self.capacity.map(|capacity| capacity.saturating_sub(self.used()));
        self.now += 1;
        let now = self.now;
        let Some(Node::File(file)) = self.nodes.get_mut(&id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let at = match offset {
            Some(offset) => usize::try_from(offset).map_err(io::Error::other)?,
            None => file.data.len(),
        };
        let grows = (at + bytes.len()).saturating_sub(file.data.len());
        let lacking =
            free.map_or(0, |free| grows.saturating_sub(usize::try_from(free).unwrap_or(usize::MAX)));
        let fits = bytes.len().saturating_sub(lacking);
        if fits == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if file.data.len() < at {
            file.data.resize(at, 0);
        }
        let over = fits.min(file.data.len() - at);
        file.data[at..at + over].copy_from_slice(&bytes[..over]);
        file.data.extend_from_slice(&bytes[over..fits]);
        file.same = file.same.min(at);
        file.modified = now;
        Ok(fits)
    }
}

impl Node {
    fn lock(&mut self) -> &mut Option<(u64, u64)> {
        match self {
            Node::File(file) => &mut file.lock,
            Node::Dir(dir) => &mut dir.lock,
        }
    }
}

impl FileNode {
    fn sync(&mut self) {
        // Shorter than what counts as clean only after a failed sync: those bytes are gone, whatever later syncs say.
        self.durable.resize(self.same, 0);
        self.durable.extend_from_slice(&self.data[self.same..]);
        self.same = self.data.len();
    }

    /// As kernels do it: the error is told once, the pages count as clean, and they never reached the disk.
    fn fail_to_sync(&mut self) {
        self.same = self.data.len();
    }

    fn cut(&mut self, chance: Option<&mut Chance>) {
        let mut left = std::mem::take(&mut self.durable);
        if let Some(chance) = chance
            && self.data.len() > self.same
        {
            let more = chance.up_to(self.data.len() - self.same);
            left.resize(self.same, 0);
            left.extend_from_slice(&self.data[self.same..self.same + more]);
        }
        self.data.clone_from(&left);
        self.durable = left;
        self.same = self.data.len();
        self.lock = None;
    }
}

impl DirNode {
    fn cut(&mut self, chance: Option<&mut Chance>) {
        let new = chance.is_some_and(|chance| chance.up_to(1) == 1);
        if new {
            self.durable.clone_from(&self.names);
        } else {
            self.names.clone_from(&self.durable);
        }
        self.lock = None;
    }
}

/// Reproducible chance (SplitMix64).
struct Chance(u64);

impl Chance {
    /// From 0 up to and including a bound.
    fn up_to(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (bound as u64 + 1)).unwrap_or(0)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        self.meet(Operation::Open)?;
        let mut world = self.world();
        let id = match (world.find(path), how) {
            (Some(_), OpenHow::AppendNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, OpenHow::AppendNew | OpenHow::Write) => {
                world.now += 1;
                let file = FileNode { modified: world.now, ..FileNode::default() };
                world.add(path, Node::File(file))?
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let directory = matches!(world.nodes.get(&id), Some(Node::Dir(_)));
        if directory != (how == OpenHow::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let handle = world.next;
        world.next += 1;
        Ok(Box::new(SimFile { disk: self.clone(), node: id, handle }))
    }

    fn adopt(&self, _: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.meet(Operation::Read)?;
        let (_, node) = file.identity()?;
        Ok(self.world().find(path) == Some(node))
    }

    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        self.meet(Operation::Read)?;
        let world = self.world();
        Ok(world.find(path).and_then(|id| world.nodes.get(&id)).map(|node| match node {
            Node::File(file) => {
                Meta { bytes: file.data.len() as u64, directory: false, modified: Some(file.modified) }
            }
            Node::Dir(_) => Meta { bytes: 0, directory: true, modified: None },
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.meet(Operation::Directory)?;
        self.world().add(path, Node::Dir(DirNode::default())).map(drop)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.meet(Operation::Sync)?;
        let mut world = self.world();
        let dir = world.dir(path)?;
        dir.durable.clone_from(&dir.names);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meet(Operation::Directory)?;
        let mut world = self.world();
        let id = world.find(from).ok_or(io::ErrorKind::NotFound)?;
        if let Some(there) = world.find(to)
            && matches!(world.nodes.get(&there), Some(Node::Dir(dir)) if !dir.names.is_empty())
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (dir, name) = world.above(to)?;
        dir.names.insert(name, id);
        let (dir, name) = world.above(from)?;
        dir.names.remove(&name);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.meet(Operation::Directory)?;
        let mut world = self.world();
        let id = world.find(path).ok_or(io::ErrorKind::NotFound)?;
        if matches!(world.nodes.get(&id), Some(Node::Dir(_))) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (dir, name) = world.above(path)?;
        dir.names.remove(&name);
        // Its space is free at once; a handle that is still open reads nothing any more, which nobody here does.
        if let Some(Node::File(file)) = world.nodes.get_mut(&id) {
            file.data.clear();
            file.same = 0;
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.meet(Operation::Directory)?;
        let mut world = self.world();
        if !world.dir(path)?.names.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (dir, name) = world.above(path)?;
        dir.names.remove(&name);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.meet(Operation::Read)?;
        Ok(self.world().dir(path)?.names.keys().cloned().collect())
    }

    fn breathe(&self) {}
}

struct SimFile {
    disk: SimDisk,
    node: u64,
    handle: u64,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile({} of process {})", self.node, self.disk.process)
    }
}

impl SimFile {
    fn write(&self, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        match self.disk.meet(Operation::Write)? {
            Fate::Well => self.disk.world().write(self.node, bytes, offset),
            Fate::Half(then) => {
                let half = &bytes[..bytes.len() / 2];
                let written = self.disk.world().write(self.node, half, offset)?;
                then.map_or(Ok(written), Err)
            }
        }
    }

    fn file<T>(&self, act: impl FnOnce(&mut FileNode) -> T) -> io::Result<T> {
        match self.disk.world().nodes.get_mut(&self.node) {
            Some(Node::File(file)) => Ok(act(file)),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl DiskFile for SimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes, None)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write(bytes, Some(offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.meet(Operation::Read)?;
        self.file(|file| {
            let from = usize::try_from(offset).map_or(file.data.len(), |offset| offset.min(file.data.len()));
            let count = bytes.len().min(file.data.len() - from);
            bytes[..count].copy_from_slice(&file.data[from..from + count]);
            count
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.meet(Operation::Read)?;
        self.file(|file| file.data.len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.meet(Operation::Truncate)?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        self.file(|file| {
            file.data.resize(length, 0);
            file.same = file.same.min(length);
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Err(error) = self.disk.meet(Operation::Sync) {
            if !self.disk.is_dead() {
                self.file(FileNode::fail_to_sync)?;
            }
            return Err(error);
        }
        self.file(FileNode::sync)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.meet(Operation::Lock)?;
        let mut world = self.disk.world();
        let lock = world.nodes.get_mut(&self.node).ok_or(io::ErrorKind::NotFound)?.lock();
        let ours = (self.disk.process, self.handle);
        if lock.is_some_and(|holder| holder != ours) {
            return Ok(false);
        }
        *lock = Some(ours);
        Ok(true)
    }

    fn lock(&self) -> io::Result<()> {
        if self.try_lock()? {
            return Ok(());
        }
        // Everything here happens one after another, so waiting would be for ever.
        Err(io::ErrorKind::Deadlock.into())
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.node))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let ours = (self.disk.process, self.handle);
        if let Some(node) = self.disk.world().nodes.get_mut(&self.node) {
            let lock = node.lock();
            if *lock == Some(ours) {
                *lock = None;
            }
        }
    }
}
