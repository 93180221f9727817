//! Walk: everything in the write scope that undo speaks of, with the stamp by which a change is seen.
//!
//! Directories are opened beneath their grant and nothing is followed, so a link that is swapped in leads nowhere. Ignore
//! files count from the grant downwards. What is hidden is not looked into here (directories) or not opened later (files).
//! Invariant: what was not looked at when a run began is known by name or by the scope of then, so that nothing looks new
//! only because it can be seen now (`a_file_that_was_ignored_before_is_never_removed`,
//! `what_could_not_be_seen_before_is_never_removed`, `a_wider_scope_makes_nothing_look_new`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use minke_files::{Entry, Files};
use minke_policy::Level;
use minke_record::{Permission, Scope};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::capture::{CaptureError, Limits};
use crate::crew::{Crew, Work};
use crate::ignores::{Rules, rules_of};
use crate::state::Kind;

const GIT: &[u8] = b".git";
/// Directories deeper than this are reached from the grant again: one descriptor a level would be too many.
const HELD: usize = 64;

/// By what a file is known to be the same without being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Nanoseconds since 1970: content, and content or anything else about it.
    pub(crate) modified: i128,
    pub(crate) changed: i128,
    /// Permission bits.
    pub(crate) mode: u32,
}

impl Stamp {
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "other types on macOS")
    )]
    pub(crate) fn of(found: &Stat) -> Stamp {
        let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Stamp {
            device: found.st_dev as u64,
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified: nanos(found.st_mtime, found.st_mtime_nsec as u64),
            changed: nanos(found.st_ctime, found.st_ctime_nsec as u64),
            mode: u32::from(found.st_mode) & 0o7777,
        }
    }
}

/// Something that undo speaks of.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) stamp: Stamp,
}

impl Found {
    /// From what stands at a path that the walk did not come to; the path back if undo does not speak of it. The time
    /// of its last change is not known then, so it is read each time.
    pub(crate) fn new(path: String, entry: &Entry) -> Result<Found, String> {
        let kind = match entry.kind {
            minke_files::Kind::File => Kind::File,
            minke_files::Kind::Link(_) => Kind::Link,
            minke_files::Kind::Directory => Kind::Directory,
            minke_files::Kind::Special => return Err(path),
        };
        let Entry { device, inode, size, mode, changed: modified, .. } = *entry;
        let stamp = Stamp { device, inode, size, modified, changed: i128::MAX, mode };
        Ok(Found { path, kind, stamp })
    }
}

/// What a walk came to.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) found: Vec<Found>,
    /// Left out by ignore files, or closed to us; what is below is not listed.
    pub(crate) apart: BTreeSet<String>,
    /// FIFOs, sockets, devices.
    pub(crate) special: u64,
    /// Directories that could not be listed.
    pub(crate) unreadable: u64,
    /// Names that are no text.
    pub(crate) unnamed: u64,
}

/// What was looked at when a run began.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) scope: Scope,
    pub(crate) apart: BTreeSet<String>,
}

impl Begun {
    fn saw(&self, path: &str) -> bool {
        !self.apart.contains(path) && minke_policy::level(&self.scope, path) == Level::Write
    }
}

/// A directory still to be listed.
struct Next {
    path: String,
    rules: Arc<Rules>,
    /// The directory that it was found in, unless that is too deep to be held.
    found_in: Option<Arc<OwnedFd>>,
    depth: usize,
    /// No part of the path can belong to a protected name.
    plain: bool,
    /// Nothing below is hidden.
    clear: bool,
}

/// What all who walk have in common.
struct Ground<'a> {
    files: &'a Files,
    scope: &'a Scope,
    /// Everything below a grant may be written: nothing is denied, and every grant goes all the way down.
    whole: bool,
    limits: &'a Limits,
    /// What was looked at when the run began, if one has: no more is looked at now.
    begun: Option<&'a Begun>,
    /// How much has been found so far.
    count: AtomicUsize,
    bytes: AtomicU64,
}

/// One of those who walk.
struct Walker<'a> {
    ground: &'a Ground<'a>,
    walked: Walked,
    /// Directories that were found in the one that is being listed.
    open: Vec<Next>,
}

/// Walks the write grants of a scope.
pub(crate) fn walk(
    files: &Files,
    scope: &Scope,
    limits: &Limits,
    begun: Option<&Begun>,
) -> Result<Walked, CaptureError> {
    let whole = scope.deny.is_empty() && scope.allow.iter().all(|rule| rule.recursive);
    let (count, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let ground = Ground { files, scope, whole, limits, begun, count, bytes };
    let new = || Walker { ground: &ground, walked: Walked::default(), open: Vec::new() };
    let mut first = new();
    for root in roots(scope) {
        first.root(root)?;
    }
    let crew = Crew::new(std::mem::take(&mut first.open));
    let mut walked = first.walked;
    for part in crew.work(new)? {
        walked.join(part.walked);
    }
    Ok(walked)
}

impl Work for Walker<'_> {
    type Piece = Next;
    type Error = CaptureError;

    fn take(&mut self, next: Next) -> Result<Vec<Next>, CaptureError> {
        self.list(&next)?;
        Ok(std::mem::take(&mut self.open))
    }
}

impl Walked {
    fn join(&mut self, mut other: Walked) {
        self.found.append(&mut other.found);
        self.apart.append(&mut other.apart);
        self.special += other.special;
        self.unreadable += other.unreadable;
        self.unnamed += other.unnamed;
    }
}

/// Where the write grants begin: none that the walk of another comes to.
fn roots(scope: &Scope) -> Vec<&str> {
    let writes = || scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let is_reached = |target: &str| {
        let path = Path::new(target);
        writes().filter(|rule| rule.target != target).any(|rule| {
            let above = Path::new(&rule.target);
            if rule.recursive { path.starts_with(above) } else { path.parent() == Some(above) }
        })
    };
    let roots: BTreeSet<&str> =
        writes().map(|rule| rule.target.as_str()).filter(|target| !is_reached(target)).collect();
    roots.into_iter().collect()
}

impl Walker<'_> {
    /// A grant's own directory is not undone; a grant that is one file is.
    fn root(&mut self, root: &str) -> Result<(), CaptureError> {
        let none = Arc::new(Rules::default());
        match self.ground.files.entry(Path::new(root)) {
            Ok(Some(entry)) if entry.kind == minke_files::Kind::Directory => {
                let plain = root.split('/').all(is_plain);
                let clear = self.ground.files.may_read_all_below(Path::new(root));
                let path = root.to_owned();
                self.open.push(Next { path, rules: none, found_in: None, depth: 0, plain, clear });
                Ok(())
            }
            Ok(Some(entry)) => match Found::new(root.to_owned(), &entry) {
                Ok(found) => self.push(found),
                Err(_) => {
                    self.walked.special += 1;
                    Ok(())
                }
            },
            Ok(None) => Ok(()),
            Err(_) => {
                self.closed(root.to_owned());
                Ok(())
            }
        }
    }

    /// Something that we may not look at.
    fn closed(&mut self, path: String) {
        self.walked.unreadable += 1;
        self.walked.apart.insert(path);
    }

    fn list(&mut self, next: &Next) -> Result<(), CaptureError> {
        let listed = self.enter(next).and_then(|dir| names(dir.as_fd()).map(|names| (dir, names)));
        let Some((dir, names)) = listed else {
            self.closed(next.path.clone());
            return Ok(());
        };
        let rules = rules_of(dir.as_fd(), &next.path, &names, &next.rules);
        let dir = Arc::new(dir);
        for name in &names {
            if name.as_bytes() != GIT {
                self.entry(&dir, next, name, &rules)?;
            }
        }
        Ok(())
    }

    /// Opens a directory, following nothing.
    fn enter(&self, next: &Next) -> Option<OwnedFd> {
        let path = Path::new(&next.path);
        if let Some((above, name)) = next.found_in.as_ref().zip(path.file_name()) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = || rustix::fs::openat(above, name, flags, Mode::empty()).ok();
            return (next.clear || self.ground.files.may_read(path)).then(opened).flatten();
        }
        // If it leads elsewhere, a link was swapped in: then it is not this directory.
        self.ground.files.open_dir(path).ok().filter(|opened| opened.path == path).map(|opened| opened.dir)
    }

    /// Whether a path may be written, as far as names and the scope say so.
    fn is_writable(&self, path: &str, plain: bool) -> bool {
        (self.ground.whole || minke_policy::level(self.ground.scope, path) == Level::Write)
            // Only `files` knows what a person has lifted.
            && (plain
                || minke_policy::protected(path).is_none()
                || self.ground.files.level(Path::new(path)) == Level::Write)
    }

    fn entry(
        &mut self,
        dir: &Arc<OwnedFd>,
        above: &Next,
        name: &OsStr,
        rules: &Arc<Rules>,
    ) -> Result<(), CaptureError> {
        let Some(text) = name.to_str() else {
            self.walked.unnamed += 1;
            return Ok(());
        };
        let path = format!("{}/{text}", above.path.strip_suffix('/').unwrap_or(&above.path));
        let found = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            // Gone since it was listed.
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => {
                self.closed(path);
                return self.count(0);
            }
        };
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let unseen = self.ground.begun.is_some_and(|begun| !begun.saw(&path));
        if unseen || rules.ignores(Path::new(&path), is_dir) {
            self.walked.apart.insert(path);
            return self.count(0);
        }
        let plain = above.plain && is_plain(text);
        if !self.is_writable(&path, plain) {
            return Ok(());
        }
        if is_dir {
            let depth = above.depth + 1;
            let found_in = (depth <= HELD).then(|| Arc::clone(dir));
            let rules = Arc::clone(rules);
            self.open.push(Next { path: path.clone(), rules, found_in, depth, plain, clear: above.clear });
        }
        self.add(path, &found)
    }

    fn add(&mut self, path: String, found: &Stat) -> Result<(), CaptureError> {
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => {
                self.walked.special += 1;
                self.walked.apart.insert(path);
                return Ok(());
            }
        };
        self.push(Found { path, kind, stamp: Stamp::of(found) })
    }

    fn push(&mut self, found: Found) -> Result<(), CaptureError> {
        let bytes = if found.kind == Kind::File { found.stamp.size } else { 0 };
        self.walked.found.push(found);
        self.count(bytes)
    }

    /// One more, unless that is too much.
    fn count(&self, bytes: u64) -> Result<(), CaptureError> {
        let limits = self.ground.limits;
        let files = self.ground.count.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.ground.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if files > limits.files || bytes > limits.bytes {
            return Err(CaptureError::TooMuch { files, bytes, limits: *limits });
        }
        Ok(())
    }
}

/// Whether a part of a path can belong to no protected name: most can be told without looking at the names.
fn is_plain(part: &str) -> bool {
    part.is_ascii() && !part.starts_with('.') && !part.contains('~')
}

/// What is in a directory, if all of it can be told.
fn names(dir: BorrowedFd<'_>) -> Option<Vec<OsString>> {
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
