//! Walks a tree with several threads and visits every regular file that ignore rules, filters and scope
//! permit.
//!
//! This module opens directories one by one below the grants of the scope, lists them by descriptor, and
//! distributes the work. `ignore_rules` has the rules, `glob` and `grep` visit the files. No path is resolved
//! twice and no link is followed, so a concurrently swapped directory has no effect; a file is opened by its
//! name relative to an open directory.
//! Invariants: nothing outside the scope is listed or opened, even if directories and links are swapped
//! concurrently (`a_swapped_directory_shows_nothing_outside`); a cancelled search ends soon
//! (`a_dropped_search_ends_soon`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ignore::overrides::Override;
use ignore::types::Types;
use minke_files::ScopedFiles;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::ignore_rules::{IgnoreReader, IgnoreRules, IgnoreVerdict};

/// The maximum number of threads; more only wait for the disk and for each other.
const MAX_THREADS: usize = 12;
/// The number of files per task: large enough to amortize the queue, small enough to keep all threads busy.
const FILES_PER_TASK: usize = 32;
/// The maximum number of queued tasks; beyond it a thread visits the files itself, so that a huge directory
/// is never completely in memory.
const MAX_QUEUED_TASKS: usize = 256;
/// The number of directory entries per batch.
const ENTRIES_PER_BATCH: usize = 1_024;

/// Tells a search to stop.
#[derive(Clone, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Selects the visited entries.
pub(super) struct WalkFilter {
    /// Globs with the highest precedence: they override ignore rules.
    pub(super) globs: Override,
    pub(super) types: Types,
    pub(super) ignores: bool,
    pub(super) hidden: bool,
    /// The names of the directories that all matches are below, from the root; empty if there are none.
    pub(super) literal_directories: Vec<OsString>,
}

/// A tree to walk.
pub(super) struct TreeWalk {
    pub(super) files: Arc<ScopedFiles>,
    /// The real path of the root, without symbolic links.
    pub(super) root: PathBuf,
    pub(super) filter: WalkFilter,
    pub(super) stop: StopFlag,
}

/// Visits each file. Each thread has its own visitor.
pub(super) trait FileVisitor: Send {
    fn visit_file(&mut self, found: &WalkedFile<'_>);
}

/// The result of a walk.
pub(super) struct WalkOutcome<V> {
    /// The visitors, one per thread.
    pub(super) visitors: Vec<V>,
    /// The number of directories that could not be listed.
    pub(super) unreadable: u64,
    /// The number of ignore files that could not be used.
    pub(super) unused_ignores: u64,
}

/// An open directory.
pub(super) struct OpenFolder {
    descriptor: OwnedFd,
    path: PathBuf,
    /// The path relative to the root of the walk.
    pub(super) relative_path: PathBuf,
}

/// A regular file of the walk.
#[derive(Clone, Copy)]
pub(super) struct WalkedFile<'a> {
    pub(super) folder: &'a OpenFolder,
    pub(super) name: &'a OsStr,
}

impl WalkedFile<'_> {
    /// Returns the path relative to the root of the walk.
    pub(super) fn relative_path(&self) -> PathBuf {
        self.folder.relative_path.join(self.name)
    }

    /// Opens the file for reading, if it is still a regular file. Never blocks.
    pub(super) fn open_file(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder.descriptor, self.name, flags, Mode::empty())?;
        check_regular(&rustix::fs::fstat(&file)?)?;
        Ok(File::from(file))
    }

    /// Returns the metadata, if it is still a regular file.
    pub(super) fn file_stat(&self) -> io::Result<Stat> {
        let found = rustix::fs::statat(&self.folder.descriptor, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        check_regular(&found)?;
        Ok(found)
    }
}

fn check_regular(found: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::other("it is no longer a regular file")),
    }
}

impl TreeWalk {
    /// Visits every file, unordered. Calls `visitor` once per thread.
    pub(super) fn visit_all<V: FileVisitor>(&self, visitor: impl Fn() -> V + Sync) -> WalkOutcome<V> {
        let reader = IgnoreReader::new(self.files.clone());
        let rules =
            if self.filter.ignores { reader.rules_above(&self.root) } else { Arc::new(IgnoreRules::empty()) };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let root = WalkTask::Folder { relative_path: PathBuf::new(), rules };
        let pool = WalkPool {
            tree: self,
            reader,
            queue: Mutex::new(WalkQueue { tasks: vec![root], busy_threads: threads, waiting_threads: 0 }),
            task_added: Condvar::new(),
            unreadable: AtomicU64::new(0),
        };
        let visitors = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| pool.run_worker(visitor()))).collect();
            let mut visitors = vec![pool.run_worker(visitor())];
            for other in others {
                match other.join() {
                    Ok(visitor) => visitors.push(visitor),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            visitors
        });
        let (unreadable, unused_ignores) = (pool.unreadable.into_inner(), pool.reader.unusable_count());
        WalkOutcome { visitors, unreadable, unused_ignores }
    }

    /// Returns whether a file is visited or a directory is walked.
    fn accepts_entry(&self, rules: &IgnoreRules, entry: &FolderEntry, path: &Path, depth: usize) -> bool {
        let filter = &self.filter;
        let is_dir = entry.kind == FileType::Directory;
        if is_dir && filter.literal_directories.get(depth).is_some_and(|name| *name != entry.name) {
            return false;
        }
        match IgnoreVerdict::from(filter.globs.matched(path, is_dir)) {
            IgnoreVerdict::NoMatch => {}
            word => return word == IgnoreVerdict::Included,
        }
        let mut kept = false;
        let ignored = if filter.ignores { rules.verdict_for(path, is_dir) } else { IgnoreVerdict::NoMatch };
        for word in [ignored, IgnoreVerdict::from(filter.types.matched(path, is_dir))] {
            match word {
                IgnoreVerdict::NoMatch => {}
                IgnoreVerdict::Ignored => return false,
                IgnoreVerdict::Included => kept = true,
            }
        }
        kept || filter.hidden || !entry.name.as_bytes().starts_with(b".")
    }
}

enum WalkTask {
    Folder { relative_path: PathBuf, rules: Arc<IgnoreRules> },
    Files { folder: Arc<OpenFolder>, names: Vec<OsString> },
}

struct WalkQueue {
    /// The newest task is taken first, so that the queue grows with the depth of the tree and not with its
    /// size.
    tasks: Vec<WalkTask>,
    /// The number of threads that may still add tasks.
    busy_threads: usize,
    waiting_threads: usize,
}

struct WalkPool<'t> {
    tree: &'t TreeWalk,
    reader: IgnoreReader,
    queue: Mutex<WalkQueue>,
    task_added: Condvar,
    unreadable: AtomicU64,
}

/// Wakes the other threads when a thread panics.
struct PanicAlarm<'p, 't>(&'p WalkPool<'t>);

impl Drop for PanicAlarm<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tree.stop.set();
            self.0.task_added.notify_all();
        }
    }
}

impl WalkPool<'_> {
    fn run_worker<V: FileVisitor>(&self, mut visit: V) -> V {
        let _alarm = PanicAlarm(self);
        let mut buffer = Vec::new();
        while let Some(work) = self.next_task() {
            match work {
                WalkTask::Files { folder, names } => self.visit_files(&folder, &names, &mut visit),
                WalkTask::Folder { relative_path, rules } => {
                    if self.walk_folder(relative_path, &rules, &mut buffer, &mut visit).is_err() {
                        self.unreadable.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        visit
    }

    fn lock_queue(&self) -> MutexGuard<'_, WalkQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next task, or `None` if no thread can add one or the search is cancelled.
    fn next_task(&self) -> Option<WalkTask> {
        let mut queue = self.lock_queue();
        queue.busy_threads -= 1;
        loop {
            if self.tree.stop.is_set() {
                break;
            }
            if let Some(work) = queue.tasks.pop() {
                queue.busy_threads += 1;
                return Some(work);
            }
            if queue.busy_threads == 0 {
                break;
            }
            queue.waiting_threads += 1;
            queue = self.task_added.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting_threads -= 1;
        }
        drop(queue);
        self.task_added.notify_all();
        None
    }

    fn visit_files(&self, folder: &OpenFolder, names: &[OsString], visit: &mut impl FileVisitor) {
        for name in names {
            if self.tree.stop.is_set() {
                return;
            }
            visit.visit_file(&WalkedFile { folder, name });
        }
    }

    /// Lists a directory: queues its subdirectories and distributes its files.
    fn walk_folder(
        &self,
        relative_path: PathBuf,
        above: &Arc<IgnoreRules>,
        buffer: &mut Vec<u8>,
        visit: &mut impl FileVisitor,
    ) -> io::Result<()> {
        let tree = self.tree;
        let path = if relative_path.as_os_str().is_empty() {
            tree.root.clone()
        } else {
            tree.root.join(&relative_path)
        };
        let opened = tree.files.open_dir(&path).map_err(io::Error::other)?;
        if opened.path != path {
            return Err(io::Error::other("a link has replaced the directory"));
        }
        let descriptor = opened.dir;
        // Parts below may be less accessible than the directory itself.
        let uneven = !tree.files.may_read_all_below(&path);
        let folder = Arc::new(OpenFolder { descriptor, path, relative_path });
        let depth = folder.relative_path.components().count();
        let mut rules: Option<Arc<IgnoreRules>> = None;
        let mut path = folder.path.clone();
        list_batches(&folder.descriptor, buffer, |entries, whole| {
            // The first batch of a short directory shows its ignore files; in a long one they are looked up.
            let rules = rules.get_or_insert_with(|| {
                let has = |name: &str| !whole || entries.iter().any(|entry| entry.name == name);
                if tree.filter.ignores {
                    self.reader.rules_in(above, &folder.path, has)
                } else {
                    above.clone()
                }
            });
            let (mut folders, mut files) = (Vec::new(), Vec::new());
            for entry in entries.drain(..) {
                path.push(&entry.name);
                let is_accepted = tree.accepts_entry(rules, &entry, &path, depth)
                    && (!uneven || tree.files.may_read(&path));
                path.pop();
                match entry.kind {
                    FileType::Directory if is_accepted => {
                        folders.push(folder.relative_path.join(&entry.name))
                    }
                    FileType::RegularFile if is_accepted => files.push(entry.name),
                    _ => {}
                }
            }
            let mine = self.share_work(&folder, folders, files, rules);
            self.visit_files(&folder, &mine, visit);
            !tree.stop.is_set()
        })
    }

    /// Queues tasks for all threads and returns the files that remain for this one.
    fn share_work(
        &self,
        folder: &Arc<OpenFolder>,
        folders: Vec<PathBuf>,
        mut files: Vec<OsString>,
        rules: &Arc<IgnoreRules>,
    ) -> Vec<OsString> {
        if folders.is_empty() && files.len() <= FILES_PER_TASK {
            return files;
        }
        let mut queue = self.lock_queue();
        queue.tasks.extend(
            folders.into_iter().map(|relative_path| WalkTask::Folder { relative_path, rules: rules.clone() }),
        );
        while files.len() > FILES_PER_TASK && queue.tasks.len() < MAX_QUEUED_TASKS {
            let names = files.split_off(files.len() - FILES_PER_TASK);
            queue.tasks.push(WalkTask::Files { folder: folder.clone(), names });
        }
        let wake = queue.waiting_threads > 0;
        drop(queue);
        if wake {
            self.task_added.notify_all();
        }
        files
    }
}

struct FolderEntry {
    name: OsString,
    kind: FileType,
}

/// Passes the entries of a directory in batches, without `.` and `..`; the flag tells that a batch is the
/// whole directory. Stops when the callback returns false.
fn list_batches(
    descriptor: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut batch: impl FnMut(&mut Vec<FolderEntry>, bool) -> bool,
) -> io::Result<()> {
    let mut entries = Vec::new();
    let mut first = true;
    for_each_entry(descriptor, buffer, |name, kind| {
        if name == b"." || name == b".." {
            return true;
        }
        if entries.len() == ENTRIES_PER_BATCH {
            first = false;
            if !batch(&mut entries, false) {
                return false;
            }
        }
        let name = OsStr::from_bytes(name);
        let kind = match kind {
            // Some file systems do not report the type.
            FileType::Unknown => rustix::fs::statat(descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode)),
            kind => kind,
        };
        entries.push(FolderEntry { name: name.to_owned(), kind });
        true
    })?;
    batch(&mut entries, first);
    Ok(())
}

#[cfg(target_os = "linux")]
fn for_each_entry(
    descriptor: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut entry: impl FnMut(&[u8], FileType) -> bool,
) -> io::Result<()> {
    /// The buffer size for the kernel: a few hundred names.
    const BUFFER_BYTES: usize = 32 * 1024;
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = rustix::fs::RawDir::new(descriptor.as_fd(), buffer.spare_capacity_mut());
    while let Some(found) = entries.next() {
        let found = match found {
            Err(rustix::io::Errno::INTR) => continue,
            found => found?,
        };
        if !entry(found.file_name().to_bytes(), found.file_type()) {
            break;
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn for_each_entry(
    descriptor: &OwnedFd,
    _buffer: &mut Vec<u8>,
    mut entry: impl FnMut(&[u8], FileType) -> bool,
) -> io::Result<()> {
    for found in rustix::fs::Dir::read_from(descriptor.as_fd())? {
        let found = found?;
        if !entry(found.file_name().to_bytes(), found.file_type()) {
            break;
        }
    }
    Ok(())
}
