//! Removal of whole directories that a command may have shaped: deep, wide, closed to their owner, full of links.
//!
//! Here: the one function that removes such a directory. It works by descriptors, follows no link and needs no more
//! descriptors, stack or path length for thirty thousand levels than for one: the directories of each level are moved up
//! into the one that is removed, so none is ever deep. A caller may bound its time; the next call finishes the rest.
//! Invariant: time grows with the number of entries alone (`a_deep_directory_is_removed_in_linear_time`), and nothing
//! outside the directory changes (`removal_follows_no_link`).

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// What a directory is opened with; a link in its place is refused.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Passes over a directory in which something else still creates entries.
const PASSES: u32 = 64;

/// Makes the names of moved directories differ between the calls of one process.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How a removal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// The directory is gone.
    Complete,
    /// The time was over; a later call removes the rest.
    Unfinished,
}

/// Removes a directory with everything in it. A path at which there is nothing is no error. With `until`, it stops at that
/// time and leaves the rest. Blocks.
pub fn remove_tree(path: &Path, until: Option<Instant>) -> io::Result<Removal> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of a directory to remove has no name",
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
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let prefix = format!(".minke-removal-{}-{call}-{since}-", std::process::id());
    let mut work = Work { root, prefix, moved: 0, emptied: 0, until };
    for _ in 0..PASSES {
        if work.pass()? == Removal::Unfinished {
            return Ok(Removal::Unfinished);
        }
        match rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Removal::Complete),
            // Some file systems skip entries of a directory that changes while it is read.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::Error::from(Errno::NOTEMPTY))
}

/// A removal under way.
struct Work {
    root: OwnedFd,
    /// What the names of moved directories begin with. No command can have foreseen it.
    prefix: String,
    /// Directories that were moved into the root …
    moved: u64,
    /// … and how many of them are gone again.
    emptied: u64,
    until: Option<Instant>,
}

impl Work {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Removes what the root holds now.
    fn pass(&mut self) -> io::Result<Removal> {
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for entry in read(&root)? {
            if self.is_over() {
                return Ok(Removal::Unfinished);
            }
            let entry = entry?;
            let name = entry.file_name();
            if is_self(name) || name.to_bytes().starts_with(self.prefix.as_bytes()) {
                continue;
            }
            if !unlink(root.as_fd(), name, entry.file_type())?
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

    /// Removes a directory of the root. Its own directories are moved into the root.
    fn empty_directory(&mut self, name: &CStr) -> io::Result<Removal> {
        let dir = match open_directory(self.root.as_fd(), name) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Removal::Complete),
            Err(e) => return Err(e.into()),
        };
        for _ in 0..PASSES {
            for entry in read(&dir)? {
                if self.is_over() {
                    return Ok(Removal::Unfinished);
                }
                let entry = entry?;
                let inner = entry.file_name();
                if !is_self(inner) && !unlink(dir.as_fd(), inner, entry.file_type())? {
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
            // Its `..` changes, for which its owner needs the right to write in it.
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

/// Removes an entry that is no directory, or an empty one. Gives false for a directory that holds something.
fn unlink(dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Directory {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // Not every file system says what an entry is.
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

/// Opens a directory by its name, and makes it readable and writable for its owner if it is not.
fn open_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            grant_owner(dir, name)?;
            rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
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

/// Gives the owner of a directory all rights in it. A link in its place is refused.
#[cfg(target_os = "linux")]
fn grant_owner(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(dir, name, place, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)
}

/// Gives the owner of a directory all rights in it. A link in its place is not followed.
#[cfg(not(target_os = "linux"))]
fn grant_owner(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

/// The entries of a directory, from its beginning.
fn read(dir: &OwnedFd) -> Result<Dir, Errno> {
    let mut entries = Dir::read_from(dir)?;
    entries.rewind();
    Ok(entries)
}

fn is_self(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn c_name(name: OsString) -> io::Result<CString> {
    use std::os::unix::ffi::OsStringExt;
    CString::new(name.into_vec()).map_err(io::Error::other)
}
