//! Walks the write scope and collects the captured paths, with a stamp of each to detect changes.
//!
//! Directories are opened relative to their grant without following links, so a replaced directory cannot
//! redirect the walk. Ignore files apply from the grant downwards. Hidden directories are skipped here;
//! hidden files are not opened later.
//! Invariant: paths not covered when a run began are known by name or by the scope of that time, so a path
//! never counts as new only because it has become visible (`a_file_that_was_ignored_before_is_never_removed`,
//! `what_could_not_be_seen_before_is_never_removed`, `a_wider_scope_makes_nothing_look_new`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use minke_files::{PathEntry, ScopedFiles};
use minke_policy::AccessLevel;
use minke_record::{Permission, Scope};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::capture::{CaptureError, CaptureLimits};
use crate::ignores::{IgnoreFileRules, load_rules};
use crate::state::CapturedKind;
use crate::worker_pool::{PoolWorker, WorkerPool};

const GIT_DIR: &[u8] = b".git";
/// Deeper directories are opened from the grant again, to limit the number of open descriptors.
const MAX_HELD_DEPTH: usize = 64;

/// Metadata that identifies an unchanged file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CaptureStamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Nanoseconds since 1970: time of the last content change, and of the last change of any kind.
    pub(crate) modified: i128,
    pub(crate) changed: i128,
    /// Permission bits.
    pub(crate) mode: u32,
}

impl CaptureStamp {
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "other types on macOS")
    )]
    pub(crate) fn from_stat(found: &Stat) -> CaptureStamp {
        let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        CaptureStamp {
            device: found.st_dev as u64,
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified: nanos(found.st_mtime, found.st_mtime_nsec as u64),
            changed: nanos(found.st_ctime, found.st_ctime_nsec as u64),
            mode: u32::from(found.st_mode) & 0o7777,
        }
    }
}

/// A captured path.
#[derive(Debug, Clone)]
pub(crate) struct FoundPath {
    pub(crate) path: String,
    pub(crate) kind: CapturedKind,
    pub(crate) stamp: CaptureStamp,
}

impl FoundPath {
    /// From a path that the walk did not reach; returns the path as the error if undo does not cover it. The
    /// change time is unknown, so the file is read each time.
    pub(crate) fn from_entry(path: String, entry: &PathEntry) -> Result<FoundPath, String> {
        let kind = match entry.kind {
            minke_files::PathEntryKind::File => CapturedKind::File,
            minke_files::PathEntryKind::Link(_) => CapturedKind::Link,
            minke_files::PathEntryKind::Directory => CapturedKind::Directory,
            minke_files::PathEntryKind::Special => return Err(path),
        };
        let PathEntry { device, inode, size, mode, changed_nanos: modified, .. } = *entry;
        let stamp = CaptureStamp { device, inode, size, modified, changed: i128::MAX, mode };
        Ok(FoundPath { path, kind, stamp })
    }
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    pub(crate) found: Vec<FoundPath>,
    /// Ignored or unreadable paths; their descendants are not listed.
    pub(crate) excluded: BTreeSet<String>,
    /// FIFOs, sockets, devices.
    pub(crate) special: u64,
    /// Directories that could not be listed.
    pub(crate) unreadable: u64,
    /// Names that are not UTF-8.
    pub(crate) unnamed: u64,
}

/// The paths covered when a run began.
#[derive(Debug)]
pub(crate) struct WalkBaseline {
    pub(crate) scope: Scope,
    pub(crate) excluded: BTreeSet<String>,
}

impl WalkBaseline {
    fn is_covered(&self, path: &str) -> bool {
        !self.excluded.contains(path) && minke_policy::access_level(&self.scope, path) == AccessLevel::Write
    }
}

/// A directory to be listed.
struct QueuedDirectory {
    path: String,
    ignore_rules: Arc<IgnoreFileRules>,
    /// Its parent directory, unless that is too deep to be held open.
    parent_fd: Option<Arc<OwnedFd>>,
    depth: usize,
    /// No component of the path can match a protected name.
    is_plain: bool,
    /// No descendant is hidden.
    is_visible: bool,
}

/// The state shared by all walkers.
struct WalkContext<'a> {
    files: &'a ScopedFiles,
    scope: &'a Scope,
    /// Every path below a grant is writable: there are no denials, and every grant is recursive.
    is_unrestricted: bool,
    limits: &'a CaptureLimits,
    /// The baseline of the run, if there is one: the walk covers no more than it did.
    baseline: Option<&'a WalkBaseline>,
    /// The number of paths found so far.
    count: AtomicUsize,
    bytes: AtomicU64,
}

/// One worker of the walk.
struct Walker<'a> {
    context: &'a WalkContext<'a>,
    result: WalkResult,
    /// Subdirectories of the directory being listed.
    pending: Vec<QueuedDirectory>,
}

/// Walks the write grants of a scope.
pub(crate) fn walk_scope(
    files: &ScopedFiles,
    scope: &Scope,
    limits: &CaptureLimits,
    baseline: Option<&WalkBaseline>,
) -> Result<WalkResult, CaptureError> {
    let is_unrestricted = scope.deny.is_empty() && scope.allow.iter().all(|rule| rule.recursive);
    let (count, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let context = WalkContext { files, scope, is_unrestricted, limits, baseline, count, bytes };
    let new = || Walker { context: &context, result: WalkResult::default(), pending: Vec::new() };
    let mut first = new();
    for root in walk_roots(scope) {
        first.walk_root(root)?;
    }
    let crew = WorkerPool::new(std::mem::take(&mut first.pending));
    let mut walked = first.result;
    for part in crew.run_all(new)? {
        walked.merge_with(part.result);
    }
    Ok(walked)
}

impl PoolWorker for Walker<'_> {
    type Piece = QueuedDirectory;
    type Error = CaptureError;

    fn process_piece(&mut self, next: QueuedDirectory) -> Result<Vec<QueuedDirectory>, CaptureError> {
        self.list_directory(&next)?;
        Ok(std::mem::take(&mut self.pending))
    }
}

impl WalkResult {
    fn merge_with(&mut self, mut other: WalkResult) {
        self.found.append(&mut other.found);
        self.excluded.append(&mut other.excluded);
        self.special += other.special;
        self.unreadable += other.unreadable;
        self.unnamed += other.unnamed;
    }
}

/// The roots of the write grants, without roots inside another grant.
fn walk_roots(scope: &Scope) -> Vec<&str> {
    let writes = || scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let is_reached = |target: &str| {
        let path = Path::new(target);
        writes().filter(|rule| rule.target != target).any(|rule| {
            let parent = Path::new(&rule.target);
            if rule.recursive { path.starts_with(parent) } else { path.parent() == Some(parent) }
        })
    };
    let roots: BTreeSet<&str> =
        writes().map(|rule| rule.target.as_str()).filter(|target| !is_reached(target)).collect();
    roots.into_iter().collect()
}

impl Walker<'_> {
    /// The directory of a grant is not captured itself; a grant of a single file is.
    fn walk_root(&mut self, root: &str) -> Result<(), CaptureError> {
        let none = Arc::new(IgnoreFileRules::default());
        match self.context.files.path_entry(Path::new(root)) {
            Ok(Some(entry)) if entry.kind == minke_files::PathEntryKind::Directory => {
                let is_plain = root.split('/').all(is_plain_name);
                let is_visible = self.context.files.may_read_all_below(Path::new(root));
                let path = root.to_owned();
                self.pending.push(QueuedDirectory {
                    path,
                    ignore_rules: none,
                    parent_fd: None,
                    depth: 0,
                    is_plain,
                    is_visible,
                });
                Ok(())
            }
            Ok(Some(entry)) => match FoundPath::from_entry(root.to_owned(), &entry) {
                Ok(found) => self.push_found(found),
                Err(_) => {
                    self.result.special += 1;
                    Ok(())
                }
            },
            Ok(None) => Ok(()),
            Err(_) => {
                self.add_excluded(root.to_owned());
                Ok(())
            }
        }
    }

    /// Records an inaccessible path.
    fn add_excluded(&mut self, path: String) {
        self.result.unreadable += 1;
        self.result.excluded.insert(path);
    }

    fn list_directory(&mut self, next: &QueuedDirectory) -> Result<(), CaptureError> {
        let listed =
            self.open_directory(next).and_then(|dir| entry_names(dir.as_fd()).map(|names| (dir, names)));
        let Some((dir, names)) = listed else {
            self.add_excluded(next.path.clone());
            return Ok(());
        };
        let rules = load_rules(dir.as_fd(), &next.path, &names, &next.ignore_rules);
        let dir = Arc::new(dir);
        for name in &names {
            if name.as_bytes() != GIT_DIR {
                self.visit_entry(&dir, next, name, &rules)?;
            }
        }
        Ok(())
    }

    /// Opens a directory without following links.
    fn open_directory(&self, next: &QueuedDirectory) -> Option<OwnedFd> {
        let path = Path::new(&next.path);
        if let Some((parent, name)) = next.parent_fd.as_ref().zip(path.file_name()) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = || rustix::fs::openat(parent, name, flags, Mode::empty()).ok();
            return (next.is_visible || self.context.files.may_read(path)).then(opened).flatten();
        }
        // If it is a link now, the directory was replaced.
        self.context.files.open_dir(path).ok().filter(|opened| opened.path == path).map(|opened| opened.dir)
    }

    /// Whether names and scope allow writing a path.
    fn is_writable(&self, path: &str, plain: bool) -> bool {
        (self.context.is_unrestricted || minke_policy::access_level(self.context.scope, path) == AccessLevel::Write)
            // Only `files` knows the paths that the user has exempted.
            && (plain
                || minke_policy::protected_name(path).is_none()
                || self.context.files.access_level(Path::new(path)) == AccessLevel::Write)
    }

    fn visit_entry(
        &mut self,
        dir: &Arc<OwnedFd>,
        parent: &QueuedDirectory,
        name: &OsStr,
        rules: &Arc<IgnoreFileRules>,
    ) -> Result<(), CaptureError> {
        let Some(text) = name.to_str() else {
            self.result.unnamed += 1;
            return Ok(());
        };
        let path = format!("{}/{text}", parent.path.strip_suffix('/').unwrap_or(&parent.path));
        let found = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            // Removed since it was listed.
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => {
                self.add_excluded(path);
                return self.count_path(0);
            }
        };
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let unseen = self.context.baseline.is_some_and(|baseline| !baseline.is_covered(&path));
        if unseen || rules.is_ignored(Path::new(&path), is_dir) {
            self.result.excluded.insert(path);
            return self.count_path(0);
        }
        let is_plain = parent.is_plain && is_plain_name(text);
        if !self.is_writable(&path, is_plain) {
            return Ok(());
        }
        if is_dir {
            let depth = parent.depth + 1;
            let parent_fd = (depth <= MAX_HELD_DEPTH).then(|| Arc::clone(dir));
            let ignore_rules = Arc::clone(rules);
            self.pending.push(QueuedDirectory {
                path: path.clone(),
                ignore_rules,
                parent_fd,
                depth,
                is_plain,
                is_visible: parent.is_visible,
            });
        }
        self.add_path(path, &found)
    }

    fn add_path(&mut self, path: String, found: &Stat) -> Result<(), CaptureError> {
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => CapturedKind::File,
            FileType::Directory => CapturedKind::Directory,
            FileType::Symlink => CapturedKind::Link,
            _ => {
                self.result.special += 1;
                self.result.excluded.insert(path);
                return Ok(());
            }
        };
        self.push_found(FoundPath { path, kind, stamp: CaptureStamp::from_stat(found) })
    }

    fn push_found(&mut self, found: FoundPath) -> Result<(), CaptureError> {
        let bytes = if found.kind == CapturedKind::File { found.stamp.size } else { 0 };
        self.result.found.push(found);
        self.count_path(bytes)
    }

    /// Counts a path; fails if the limit is exceeded.
    fn count_path(&self, bytes: u64) -> Result<(), CaptureError> {
        let limits = self.context.limits;
        let files = self.context.count.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.context.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if files > limits.files || bytes > limits.bytes {
            return Err(CaptureError::TooMuch { files, bytes, limits: *limits });
        }
        Ok(())
    }
}

/// Whether a path component cannot match any protected name; a cheap check that covers most names.
fn is_plain_name(part: &str) -> bool {
    part.is_ascii() && !part.starts_with('.') && !part.contains('~')
}

/// The names in a directory; `None` if it cannot be read completely.
fn entry_names(dir: BorrowedFd<'_>) -> Option<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).ok()? {
        let entry = entry.ok()?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => names.push(OsStr::from_bytes(name).to_owned()),
        }
    }
    Some(names)
}
