//! Walking a tree: every regular file that the ignore rules, the filters and the scope leave, found by several threads.
//!
//! Here: directories, opened one by one beneath the scope's grants and listed by descriptor, and the order of work.
//! Elsewhere: the rules (`ignores`), what is done with a file (`glob`, `grep`). No path is resolved twice and no link is
//! followed, so a directory that somebody swaps meanwhile leads nowhere; a file is opened by its name in a directory that
//! is already open.
//! Invariants: nothing outside the scope is listed or opened, whoever swaps directories and links meanwhile
//! (`a_swapped_directory_shows_nothing_outside`); a search that nobody waits for ends (`a_dropped_search_ends_soon`).

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
use minke_files::Files;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::ignores::{Reader, Rules, Word};

/// More threads than this only wait for the disk and for each other.
const THREADS: usize = 12;
/// The files that a thread takes at once: many enough that taking is cheap, few enough that no thread is left alone.
const PORTION: usize = 32;
/// Portions that may wait; a thread that finds more files does the work itself, so that a directory of millions is never
/// held in memory.
const WAITING: usize = 256;
/// Entries of a directory that are looked at together.
const BATCH: usize = 1_024;

/// Whether anybody still waits for the result.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Which entries are taken.
pub(super) struct Filter {
    /// Strongest: what these say of an entry holds, whatever the ignore rules say.
    pub(super) globs: Override,
    pub(super) types: Types,
    pub(super) ignores: bool,
    pub(super) hidden: bool,
    /// The names of the directories below the root that lead to anything at all; empty if all may.
    pub(super) lead: Vec<OsString>,
}

/// A tree to be walked.
pub(super) struct Tree {
    pub(super) files: Arc<Files>,
    /// The real path of its root, without links.
    pub(super) root: PathBuf,
    pub(super) filter: Filter,
    pub(super) stop: Stop,
}

/// Something that is done with every file. Each thread has its own.
pub(super) trait Visit: Send {
    fn file(&mut self, found: &Found<'_>);
}

/// What a walk came to.
pub(super) struct Walked<V> {
    /// What visited the files, one for each thread.
    pub(super) visitors: Vec<V>,
    /// Directories that could not be listed.
    pub(super) unreadable: u64,
    /// Ignore files that could not be used.
    pub(super) unused_ignores: u64,
}

/// A directory that is being looked at.
pub(super) struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    /// The same from the root of the walk.
    pub(super) below: PathBuf,
}

/// A regular file that was found.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) folder: &'a Folder,
    pub(super) name: &'a OsStr,
}

impl Found<'_> {
    /// From the root of the walk.
    pub(super) fn below(&self) -> PathBuf {
        self.folder.below.join(self.name)
    }

    /// Opens it for reading, if it still is a regular file. Never waits.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder.descriptor, self.name, flags, Mode::empty())?;
        regular(&rustix::fs::fstat(&file)?)?;
        Ok(File::from(file))
    }

    /// What is known of it, if it still is a regular file.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        let found = rustix::fs::statat(&self.folder.descriptor, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        regular(&found)?;
        Ok(found)
    }
}

fn regular(found: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::other("it is no longer a regular file")),
    }
}

impl Tree {
    /// Visits every file, in no order. `visitor` is asked for one visitor a thread.
    pub(super) fn walk<V: Visit>(&self, visitor: impl Fn() -> V + Sync) -> Walked<V> {
        let reader = Reader::new(self.files.clone());
        let rules = if self.filter.ignores { reader.above(&self.root) } else { Arc::new(Rules::none()) };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let root = Work::Folder { below: PathBuf::new(), rules };
        let pool = Pool {
            tree: self,
            reader,
            queue: Mutex::new(Queue { work: vec![root], busy: threads, waiting: 0 }),
            more: Condvar::new(),
            unreadable: AtomicU64::new(0),
        };
        let visitors = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| pool.work(visitor()))).collect();
            let mut visitors = vec![pool.work(visitor())];
            for other in others {
                match other.join() {
                    Ok(visitor) => visitors.push(visitor),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            visitors
        });
        let (unreadable, unused_ignores) = (pool.unreadable.into_inner(), pool.reader.unused());
        Walked { visitors, unreadable, unused_ignores }
    }

    /// Whether an entry is taken: a file visited, a directory walked.
    fn takes(&self, rules: &Rules, entry: &Entry, path: &Path, depth: usize) -> bool {
        let filter = &self.filter;
        let is_dir = entry.kind == FileType::Directory;
        if is_dir && filter.lead.get(depth).is_some_and(|name| *name != entry.name) {
            return false;
        }
        match Word::from(filter.globs.matched(path, is_dir)) {
            Word::Silent => {}
            word => return word == Word::Kept,
        }
        let mut kept = false;
        let ignored = if filter.ignores { rules.word(path, is_dir) } else { Word::Silent };
        for word in [ignored, Word::from(filter.types.matched(path, is_dir))] {
            match word {
                Word::Silent => {}
                Word::Ignored => return false,
                Word::Kept => kept = true,
            }
        }
        kept || filter.hidden || !entry.name.as_bytes().starts_with(b".")
    }
}

enum Work {
    Folder { below: PathBuf, rules: Arc<Rules> },
    Files { folder: Arc<Folder>, names: Vec<OsString> },
}

struct Queue {
    /// The newest first, so that what waits grows with the depth of the tree and not with its size.
    work: Vec<Work>,
    /// Threads that may still find more.
    busy: usize,
    waiting: usize,
}

struct Pool<'t> {
    tree: &'t Tree,
    reader: Reader,
    queue: Mutex<Queue>,
    more: Condvar,
    unreadable: AtomicU64,
}

/// Lets the others end, too, when a thread panics.
struct Alarm<'p, 't>(&'p Pool<'t>);

impl Drop for Alarm<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tree.stop.ask();
            self.0.more.notify_all();
        }
    }
}

impl Pool<'_> {
    fn work<V: Visit>(&self, mut visit: V) -> V {
        let _alarm = Alarm(self);
        let mut buffer = Vec::new();
        while let Some(work) = self.next() {
            match work {
                Work::Files { folder, names } => self.visit(&folder, &names, &mut visit),
                Work::Folder { below, rules } => {
                    if self.folder(below, &rules, &mut buffer, &mut visit).is_err() {
                        self.unreadable.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        visit
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work; none when there is none and nobody can find more, or nobody waits for the result.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        queue.busy -= 1;
        loop {
            if self.tree.stop.asked() {
                break;
            }
            if let Some(work) = queue.work.pop() {
                queue.busy += 1;
                return Some(work);
            }
            if queue.busy == 0 {
                break;
            }
            queue.waiting += 1;
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
        drop(queue);
        self.more.notify_all();
        None
    }

    fn visit(&self, folder: &Folder, names: &[OsString], visit: &mut impl Visit) {
        for name in names {
            if self.tree.stop.asked() {
                return;
            }
            visit.file(&Found { folder, name });
        }
    }

    /// Lists a directory: its directories wait, its files are shared out.
    fn folder(
        &self,
        below: PathBuf,
        above: &Arc<Rules>,
        buffer: &mut Vec<u8>,
        visit: &mut impl Visit,
    ) -> io::Result<()> {
        let tree = self.tree;
        let path = if below.as_os_str().is_empty() { tree.root.clone() } else { tree.root.join(&below) };
        let opened = tree.files.open_dir(&path).map_err(io::Error::other)?;
        if opened.path != path {
            return Err(io::Error::other("a link has taken the place of the directory"));
        }
        let descriptor = opened.dir;
        // Whether some of what is below may be less open than the directory itself.
        let uneven = !tree.files.may_read_all_below(&path);
        let folder = Arc::new(Folder { descriptor, path, below });
        let depth = folder.below.components().count();
        let mut rules: Option<Arc<Rules>> = None;
        let mut path = folder.path.clone();
        list(&folder.descriptor, buffer, |entries, whole| {
            // Of a short directory we know which ignore files it has; of a long one they are looked for.
            let rules = rules.get_or_insert_with(|| {
                let has = |name: &str| !whole || entries.iter().any(|entry| entry.name == name);
                if tree.filter.ignores { self.reader.below(above, &folder.path, has) } else { above.clone() }
            });
            let (mut folders, mut files) = (Vec::new(), Vec::new());
            for entry in entries.drain(..) {
                path.push(&entry.name);
                let taken =
                    tree.takes(rules, &entry, &path, depth) && (!uneven || tree.files.may_read(&path));
                path.pop();
                match entry.kind {
                    FileType::Directory if taken => folders.push(folder.below.join(&entry.name)),
                    FileType::RegularFile if taken => files.push(entry.name),
                    _ => {}
                }
            }
            let mine = self.share(&folder, folders, files, rules);
            self.visit(&folder, &mine, visit);
            !tree.stop.asked()
        })
    }

    /// Puts work where any thread can take it, and gives back the files that are left for this one.
    fn share(
        &self,
        folder: &Arc<Folder>,
        folders: Vec<PathBuf>,
        mut files: Vec<OsString>,
        rules: &Arc<Rules>,
    ) -> Vec<OsString> {
        if folders.is_empty() && files.len() <= PORTION {
            return files;
        }
        let mut queue = self.queue();
        queue.work.extend(folders.into_iter().map(|below| Work::Folder { below, rules: rules.clone() }));
        while files.len() > PORTION && queue.work.len() < WAITING {
            let names = files.split_off(files.len() - PORTION);
            queue.work.push(Work::Files { folder: folder.clone(), names });
        }
        let wake = queue.waiting > 0;
        drop(queue);
        if wake {
            self.more.notify_all();
        }
        files
    }
}

struct Entry {
    name: OsString,
    kind: FileType,
}

/// Gives the entries of a directory in batches, without `.` and `..`; the flag says that a batch is the whole of it. Stops
/// when told to.
fn list(
    descriptor: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut batch: impl FnMut(&mut Vec<Entry>, bool) -> bool,
) -> io::Result<()> {
    let mut entries = Vec::new();
    let mut first = true;
    each(descriptor, buffer, |name, kind| {
        if name == b"." || name == b".." {
            return true;
        }
        if entries.len() == BATCH {
            first = false;
            if !batch(&mut entries, false) {
                return false;
            }
        }
        let name = OsStr::from_bytes(name);
        let kind = match kind {
            // Some file systems do not say.
            FileType::Unknown => rustix::fs::statat(descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode)),
            kind => kind,
        };
        entries.push(Entry { name: name.to_owned(), kind });
        true
    })?;
    batch(&mut entries, first);
    Ok(())
}

#[cfg(target_os = "linux")]
fn each(
    descriptor: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut entry: impl FnMut(&[u8], FileType) -> bool,
) -> io::Result<()> {
    /// What the kernel fills at once: room for a few hundred names.
    const BUFFER: usize = 32 * 1024;
    buffer.clear();
    buffer.reserve(BUFFER);
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
fn each(
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
