//! Removes directory trees of any shape that a command may have created: deep, wide, without permissions, full of
//! links.
//!
//! Works by descriptors and follows no link. Subdirectories are moved up into the root of the removal, so the work
//! never gets deep: thirty thousand levels need no more descriptors, stack or path length than one. The caller may set
//! a deadline; the next call removes the rest.
//! Invariants: the time is linear in the number of entries (`a_deep_directory_is_removed_in_linear_time`); nothing
//! outside the directory changes (`removal_follows_no_link`).

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Flags for opening a directory; a link in its place is refused.
const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The most passes over a directory in which another process still creates entries.
const MAX_PASSES: u32 = 64;

/// Makes the names of moved directories unique within one process.
static CALL_COUNTER: AtomicU64 = AtomicU64::new(0);

/// The result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// The directory has been removed.
    Complete,
    /// The deadline has passed; a later call removes the rest.
    Unfinished,
}

/// Removes a directory tree. A missing path is not an error. With `until`, it stops at that time and leaves the rest.
/// Blocks.
pub fn remove_tree(path: &Path, deadline: Option<Instant>) -> io::Result<Removal> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of the directory to remove has no file name",
        ));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let above =
        match rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(above) => above,
            Err(Errno::NOENT) => return Ok(Removal::Complete),
            Err(e) => return Err(e.into()),
        };
    let name = c_name(name.to_owned())?;
    let root = match open_directory(above.as_fd(), &name) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(Removal::Complete),
        Err(e) => return Err(e.into()),
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let call = CALL_COUNTER.fetch_add(1, Ordering::Relaxed);
    let prefix = format!(".minke-removal-{}-{call}-{since}-", std::process::id());
    let mut work = TreeRemoval { root, prefix, moved: 0, emptied: 0, deadline };
    for _ in 0..MAX_PASSES {
        if work.remove_entries()? == Removal::Unfinished {
            return Ok(Removal::Unfinished);
        }
        match rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Removal::Complete),
            // Some file systems skip entries of a directory that changes during the listing.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::Error::from(Errno::NOTEMPTY))
}

/// A running removal.
struct TreeRemoval {
    root: OwnedFd,
    /// Name prefix of moved directories; unpredictable for commands.
    prefix: String,
    /// Number of directories that were moved into the root.
    moved: u64,
    /// Number of moved directories that have been removed.
    emptied: u64,
    deadline: Option<Instant>,
}

impl TreeRemoval {
    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|until| Instant::now() >= until)
    }

    /// Removes the current entries of the root.
    fn remove_entries(&mut self) -> io::Result<Removal> {
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for entry in read_entries(&root)? {
            if self.is_past_deadline() {
                return Ok(Removal::Unfinished);
            }
            let entry = entry?;
            let name = entry.file_name();
            if is_dot_entry(name) || name.to_bytes().starts_with(self.prefix.as_bytes()) {
                continue;
            }
            if !remove_entry(root.as_fd(), name, entry.file_type())?
                && self.empty_directory(name)? == Removal::Unfinished
            {
                return Ok(Removal::Unfinished);
            }
        }
        while self.emptied < self.moved {
            let name = c_name(OsString::from(format!("{}{}", self.prefix, self.emptied)))?;
            if self.empty_directory(&name)? == Removal::Unfinished {
                return Ok(Removal::Unfinished);
            }
            self.emptied += 1;
        }
        Ok(Removal::Complete)
    }

    /// Empties a directory of the root. Its subdirectories are moved into the root.
    fn empty_directory(&mut self, name: &CStr) -> io::Result<Removal> {
        let dir = match open_directory(self.root.as_fd(), name) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Removal::Complete),
            Err(e) => return Err(e.into()),
        };
        for _ in 0..MAX_PASSES {
            for entry in read_entries(&dir)? {
                if self.is_past_deadline() {
                    return Ok(Removal::Unfinished);
                }
                let entry = entry?;
                let inner = entry.file_name();
                if !is_dot_entry(inner) && !remove_entry(dir.as_fd(), inner, entry.file_type())? {
                    self.move_up(dir.as_fd(), inner)?;
                }
            }
            match rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(Removal::Complete),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::Error::from(Errno::NOTEMPTY))
    }

    fn move_up(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let to = c_name(OsString::from(format!("{}{}", self.prefix, self.moved)))?;
        let moved = match rustix::fs::renameat(dir, name, &self.root, &to) {
            // The move changes its `..`, for which the owner needs write permission.
            Err(Errno::ACCESS | Errno::PERM) => {
                grant_owner(dir, name)?;
                rustix::fs::renameat(dir, name, &self.root, &to)
            }
            moved => moved,
        };
        match moved {
            Ok(()) => {
                self.moved += 1;
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Removes a file or an empty directory. Returns false for a directory that is not empty.
fn remove_entry(dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Directory {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // Not every file system reports the type of an entry.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Opens a directory by name, and grants its owner access if necessary.
fn open_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = match rustix::fs::openat(dir, name, DIRECTORY_FLAGS, Mode::empty()) {
        Err(Errno::ACCESS) => {
            grant_owner(dir, name)?;
            rustix::fs::openat(dir, name, DIRECTORY_FLAGS, Mode::empty())
        }
        opened => opened,
    }?;
    let all = Mode::RWXU;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode);
    if !mode.contains(all) {
        rustix::fs::fchmod(&opened, all)?;
    }
    Ok(opened)
}

/// Grants the owner of a directory all permissions. A link in its place is refused.
#[cfg(target_os = "linux")]
fn grant_owner(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(dir, name, place, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)
}

/// Grants the owner of a directory all permissions. A link in its place is not followed.
#[cfg(not(target_os = "linux"))]
fn grant_owner(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

/// Reads the entries of a directory from its beginning.
fn read_entries(dir: &OwnedFd) -> Result<Dir, Errno> {
    let mut entries = Dir::read_from(dir)?;
    entries.rewind();
    Ok(entries)
}

fn is_dot_entry(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn c_name(name: OsString) -> io::Result<CString> {
    use std::os::unix::ffi::OsStringExt;
    CString::new(name.into_vec()).map_err(io::Error::other)
}
