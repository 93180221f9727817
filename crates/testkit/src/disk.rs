//! A simulated disk: files and directories in memory, power cuts and faults.
//!
//! `SimDisk` is one process's view of a disk that several processes can share. A process can be killed (its
//! locks are released, its writes stay), and the power can be cut (unsynced data may be lost or torn).
//! Elsewhere: the preload shim, which does the same to the real binary.
//! Invariant: deterministic per seed; it uses neither clock nor other randomness.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_session::{Disk, DiskFile, FileMeta, OpenMode};

/// A fault of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The process dies before the operation.
    KillBefore,
    /// The process dies after it.
    KillAfter,
    /// The process dies during the operation; of a write, half is done.
    KillHalfway,
    /// `ENOSPC` without any effect.
    Full,
    /// `EIO` without any effect.
    Io,
    /// A write accepts half of its bytes; other operations succeed.
    Short,
}

impl DiskFault {
    pub const ALL: [DiskFault; 6] = [
        DiskFault::KillBefore,
        DiskFault::KillAfter,
        DiskFault::KillHalfway,
        DiskFault::Full,
        DiskFault::Io,
        DiskFault::Short,
    ];

    pub fn kills_process(self) -> bool {
        matches!(self, DiskFault::KillBefore | DiskFault::KillAfter | DiskFault::KillHalfway)
    }
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOperation {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Lock,
    Directory,
}

/// When a fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// The number of the process's operation, from 0; with `only`, among operations of that kind.
    pub at: u64,
    pub fault: DiskFault,
    /// Every later operation fails too, until the plan is removed.
    pub lasting: bool,
    pub only: Option<DiskOperation>,
}

impl FaultPlan {
    pub fn once(at: u64, fault: DiskFault) -> FaultPlan {
        FaultPlan { at, fault, lasting: false, only: None }
    }
}

/// One process's view of a simulated disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
    process: u64,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk(process {})", self.process)
    }
}

struct DiskState {
    nodes: HashMap<u64, DiskNode>,
    next: u64,
    processes: u64,
    dead: HashSet<u64>,
    operations: u64,
    counted: u64,
    /// The affected process and its plan.
    plan: Option<(u64, FaultPlan)>,
    capacity: Option<u64>,
    now: u64,
}

const ROOT: u64 = 0;

enum DiskNode {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Default)]
struct FileNode {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// The prefix that is equal in both, according to the kernel.
    clean_bytes: usize,
    modified: u64,
    lock: Option<(u64, u64)>,
}

#[derive(Default)]
struct DirNode {
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    lock: Option<(u64, u64)>,
}

/// The outcome of an operation.
enum OperationFate {
    Complete,
    /// Half of it is done, then this error.
    Partial(Option<io::Error>),
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// Returns an empty disk with its first process.
    pub fn new() -> SimDisk {
        let root = DiskNode::Dir(DirNode::default());
        let state = DiskState {
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
        SimDisk { state: Arc::new(Mutex::new(state)), process: 0 }
    }

    fn lock_state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns another process's view of the same disk.
    #[must_use]
    pub fn new_process(&self) -> SimDisk {
        let mut state = self.lock_state();
        let process = state.processes;
        state.processes += 1;
        SimDisk { state: self.state.clone(), process }
    }

    /// Kills this process: its locks are released, and its later operations fail.
    pub fn kill(&self) {
        self.lock_state().kill(self.process);
    }

    pub fn is_dead(&self) -> bool {
        self.lock_state().dead.contains(&self.process)
    }

    /// Kills every process and drops unsynced data. With a seed, a random part of each file's unsynced bytes
    /// stays, and each directory keeps its old or new names; without a seed, no unsynced data stays.
    pub fn cut_power(&self, seed: Option<u64>) {
        let mut state = self.lock_state();
        for process in 0..state.processes {
            state.kill(process);
        }
        let mut random = seed.map(SplitMix64);
        let mut ids: Vec<u64> = state.nodes.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            match state.nodes.get_mut(&id) {
                Some(DiskNode::File(file)) => file.cut_power(random.as_mut()),
                Some(DiskNode::Dir(dir)) => dir.cut_power(random.as_mut()),
                None => {}
            }
        }
    }

    /// Sets the fault of this process; `None` removes it. Restarts the counter.
    pub fn set_fault_plan(&self, plan: Option<FaultPlan>) {
        let mut state = self.lock_state();
        state.plan = plan.map(|plan| (self.process, plan));
        state.counted = 0;
    }

    /// Returns the number of operations of the planned process and kind since the plan was set.
    pub fn planned_operations(&self) -> u64 {
        self.lock_state().counted
    }

    /// Returns the number of all operations.
    pub fn all_operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// Sets the capacity of the disk.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock_state().capacity = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.lock_state().used_bytes()
    }

    /// Returns the content of a file as a process reads it.
    pub fn file_content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.lock_state();
        match state.nodes.get(&state.find_node(path)?)? {
            DiskNode::File(file) => Some(file.data.clone()),
            DiskNode::Dir(_) => None,
        }
    }

    /// Overwrites a file durably, like a bad sector or another program.
    pub fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.lock_state();
        let id = match state.find_node(path) {
            Some(id) => id,
            None => state.add_node(path, DiskNode::File(FileNode::default()))?,
        };
        if let Some(DiskNode::File(file)) = state.nodes.get_mut(&id) {
            file.data = content.to_vec();
            file.durable = content.to_vec();
            file.clean_bytes = content.len();
        }
        Ok(())
    }

    /// Flips bits of one byte of a file durably.
    pub fn flip_bits(&self, path: &Path, at: usize, bits: u8) {
        let mut state = self.lock_state();
        let id = state.find_node(path);
        if let Some(DiskNode::File(file)) = id.and_then(|id| state.nodes.get_mut(&id)) {
            for content in [&mut file.data, &mut file.durable] {
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= bits;
                }
            }
        }
    }

    fn begin_operation(&self, operation: DiskOperation) -> io::Result<OperationFate> {
        self.lock_state().begin_operation(self.process, operation)
    }
}

impl DiskState {
    fn kill(&mut self, process: u64) {
        self.dead.insert(process);
        for node in self.nodes.values_mut() {
            let lock = node.lock_mut();
            if lock.is_some_and(|(owner, _)| owner == process) {
                *lock = None;
            }
        }
    }

    /// Counts an operation and returns its outcome.
    fn begin_operation(&mut self, process: u64, operation: DiskOperation) -> io::Result<OperationFate> {
        if self.dead.contains(&process) {
            return Err(io::Error::other("this process was killed"));
        }
        self.operations += 1;
        let Some((_, plan)) = self.plan.filter(|(struck, _)| *struck == process) else {
            return Ok(OperationFate::Complete);
        };
        if plan.only.is_some_and(|only| only != operation) {
            return Ok(OperationFate::Complete);
        }
        let now = self.counted;
        self.counted += 1;
        if now != plan.at && !(plan.lasting && now > plan.at) {
            return Ok(OperationFate::Complete);
        }
        let killed = || io::Error::other("this process was killed");
        match plan.fault {
            DiskFault::KillBefore => {
                self.kill(process);
                Err(killed())
            }
            DiskFault::KillAfter => {
                self.kill(process);
                Ok(OperationFate::Complete)
            }
            DiskFault::KillHalfway => {
                self.kill(process);
                Ok(OperationFate::Partial(Some(killed())))
            }
            DiskFault::Full => Err(io::ErrorKind::StorageFull.into()),
            DiskFault::Io => Err(io::Error::from_raw_os_error(5)),
            DiskFault::Short => Ok(OperationFate::Partial(None)),
        }
    }

    fn used_bytes(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| if let DiskNode::File(file) = node { file.data.len() as u64 } else { 0 })
            .sum()
    }

    fn path_names(path: &Path) -> Vec<String> {
        path.components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect()
    }

    fn find_node(&self, path: &Path) -> Option<u64> {
        let mut at = ROOT;
        for name in DiskState::path_names(path) {
            let Some(DiskNode::Dir(dir)) = self.nodes.get(&at) else { return None };
            at = *dir.names.get(&name)?;
        }
        Some(at)
    }

    fn directory_mut(&mut self, path: &Path) -> io::Result<&mut DirNode> {
        let id = self.find_node(path).ok_or(io::ErrorKind::NotFound)?;
        match self.nodes.get_mut(&id) {
            Some(DiskNode::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns the parent directory of a path, and the name in it.
    fn parent_dir(&mut self, path: &Path) -> io::Result<(&mut DirNode, String)> {
        let name = DiskState::path_names(path).pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok((self.directory_mut(&parent)?, name))
    }

    fn add_node(&mut self, path: &Path, node: DiskNode) -> io::Result<u64> {
        let id = self.next;
        let (dir, name) = self.parent_dir(path)?;
        if dir.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        dir.names.insert(name, id);
        self.nodes.insert(id, node);
        self.next += 1;
        Ok(id)
    }

    /// Writes the bytes that fit and returns their number.
    fn write_bytes(&mut self, id: u64, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        let free = self.capacity.map(|capacity| capacity.saturating_sub(self.used_bytes()));
        self.now += 1;
        let now = self.now;
        let Some(DiskNode::File(file)) = self.nodes.get_mut(&id) else {
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
        file.clean_bytes = file.clean_bytes.min(at);
        file.modified = now;
        Ok(fits)
    }
}

impl DiskNode {
    fn lock_mut(&mut self) -> &mut Option<(u64, u64)> {
        match self {
            DiskNode::File(file) => &mut file.lock,
            DiskNode::Dir(dir) => &mut dir.lock,
        }
    }
}

impl FileNode {
    fn sync_durable(&mut self) {
        // After a failed sync the clean prefix can be longer than the durable data; those bytes are lost
        // despite later syncs.
        self.durable.resize(self.clean_bytes, 0);
        self.durable.extend_from_slice(&self.data[self.clean_bytes..]);
        self.clean_bytes = self.data.len();
    }

    /// Fails like a kernel: the error is reported once, the pages count as clean and never reach the disk.
    fn fail_sync(&mut self) {
        self.clean_bytes = self.data.len();
    }

    fn cut_power(&mut self, random: Option<&mut SplitMix64>) {
        let mut left = std::mem::take(&mut self.durable);
        if let Some(chance) = random
            && self.data.len() > self.clean_bytes
        {
            let more = chance.up_to(self.data.len() - self.clean_bytes);
            left.resize(self.clean_bytes, 0);
            left.extend_from_slice(&self.data[self.clean_bytes..self.clean_bytes + more]);
        }
        self.data.clone_from(&left);
        self.durable = left;
        self.clean_bytes = self.data.len();
        self.lock = None;
    }
}

impl DirNode {
    fn cut_power(&mut self, random: Option<&mut SplitMix64>) {
        let new = random.is_some_and(|chance| chance.up_to(1) == 1);
        if new {
            self.durable.clone_from(&self.names);
        } else {
            self.names.clone_from(&self.durable);
        }
        self.lock = None;
    }
}

/// A deterministic random generator (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a number from 0 to `bound` inclusive.
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
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        self.begin_operation(DiskOperation::Open)?;
        let mut state = self.lock_state();
        let id = match (state.find_node(path), how) {
            (Some(_), OpenMode::AppendNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, OpenMode::AppendNew | OpenMode::Write) => {
                state.now += 1;
                let file = FileNode { modified: state.now, ..FileNode::default() };
                state.add_node(path, DiskNode::File(file))?
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let directory = matches!(state.nodes.get(&id), Some(DiskNode::Dir(_)));
        if directory != (how == OpenMode::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let handle = state.next;
        state.next += 1;
        Ok(Box::new(SimFile { disk: self.clone(), node: id, handle }))
    }

    fn adopt_fd(&self, _: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        self.begin_operation(DiskOperation::Read)?;
        let (_, node) = file.file_identity()?;
        Ok(self.lock_state().find_node(path) == Some(node))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        self.begin_operation(DiskOperation::Read)?;
        let state = self.lock_state();
        Ok(state.find_node(path).and_then(|id| state.nodes.get(&id)).map(|node| match node {
            DiskNode::File(file) => {
                FileMeta { bytes: file.data.len() as u64, is_dir: false, modified: Some(file.modified) }
            }
            DiskNode::Dir(_) => FileMeta { bytes: 0, is_dir: true, modified: None },
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.begin_operation(DiskOperation::Directory)?;
        self.lock_state().add_node(path, DiskNode::Dir(DirNode::default())).map(drop)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.begin_operation(DiskOperation::Sync)?;
        let mut state = self.lock_state();
        let dir = state.directory_mut(path)?;
        dir.durable.clone_from(&dir.names);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin_operation(DiskOperation::Directory)?;
        let mut state = self.lock_state();
        let id = state.find_node(from).ok_or(io::ErrorKind::NotFound)?;
        if let Some(there) = state.find_node(to)
            && matches!(state.nodes.get(&there), Some(DiskNode::Dir(dir)) if !dir.names.is_empty())
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (dir, name) = state.parent_dir(to)?;
        dir.names.insert(name, id);
        let (dir, name) = state.parent_dir(from)?;
        dir.names.remove(&name);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.begin_operation(DiskOperation::Directory)?;
        let mut world = self.lock_state();
        let id = world.find_node(path).ok_or(io::ErrorKind::NotFound)?;
        if matches!(world.nodes.get(&id), Some(DiskNode::Dir(_))) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (dir, name) = world.parent_dir(path)?;
        dir.names.remove(&name);
        // The space is free immediately; open handles then read nothing, which no caller does.
        if let Some(DiskNode::File(file)) = world.nodes.get_mut(&id) {
            file.data.clear();
            file.clean_bytes = 0;
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.begin_operation(DiskOperation::Directory)?;
        let mut state = self.lock_state();
        if !state.directory_mut(path)?.names.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (dir, name) = state.parent_dir(path)?;
        dir.names.remove(&name);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.begin_operation(DiskOperation::Read)?;
        Ok(self.lock_state().directory_mut(path)?.names.keys().cloned().collect())
    }

    fn pause_briefly(&self) {}
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
    fn write_bytes(&self, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        match self.disk.begin_operation(DiskOperation::Write)? {
            OperationFate::Complete => self.disk.lock_state().write_bytes(self.node, bytes, offset),
            OperationFate::Partial(then) => {
                let half = &bytes[..bytes.len() / 2];
                let written = self.disk.lock_state().write_bytes(self.node, half, offset)?;
                then.map_or(Ok(written), Err)
            }
        }
    }

    fn with_file<T>(&self, act: impl FnOnce(&mut FileNode) -> T) -> io::Result<T> {
        match self.disk.lock_state().nodes.get_mut(&self.node) {
            Some(DiskNode::File(file)) => Ok(act(file)),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl DiskFile for SimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(bytes, None)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write_bytes(bytes, Some(offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.begin_operation(DiskOperation::Read)?;
        self.with_file(|file| {
            let from = usize::try_from(offset).map_or(file.data.len(), |offset| offset.min(file.data.len()));
            let count = bytes.len().min(file.data.len() - from);
            bytes[..count].copy_from_slice(&file.data[from..from + count]);
            count
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.begin_operation(DiskOperation::Read)?;
        self.with_file(|file| file.data.len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.begin_operation(DiskOperation::Truncate)?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        self.with_file(|file| {
            file.data.resize(length, 0);
            file.clean_bytes = file.clean_bytes.min(length);
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Err(error) = self.disk.begin_operation(DiskOperation::Sync) {
            if !self.disk.is_dead() {
                self.with_file(FileNode::fail_sync)?;
            }
            return Err(error);
        }
        self.with_file(FileNode::sync_durable)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.begin_operation(DiskOperation::Lock)?;
        let mut state = self.disk.lock_state();
        let lock = state.nodes.get_mut(&self.node).ok_or(io::ErrorKind::NotFound)?.lock_mut();
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
        // Everything runs sequentially, so waiting would never end.
        Err(io::ErrorKind::Deadlock.into())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.node))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let ours = (self.disk.process, self.handle);
        if let Some(node) = self.disk.lock_state().nodes.get_mut(&self.node) {
            let lock = node.lock_mut();
            if *lock == Some(ours) {
                *lock = None;
            }
        }
    }
}
