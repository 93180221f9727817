//! Replace: a file's new content, whole or not at all. A temporary file in the same opened directory takes the old one's
//! mode, owner and attributes, reaches the disk and is renamed; the old file is never written to, so that a hard link to
//! it elsewhere keeps what it had.
//!
//! Invariant: two changes of one file follow one another (`parallel_replacements_lose_nothing`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use minke_policy::Level;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::beneath::{self, again, mode_of};
use crate::error::FileError;
use crate::files::{Files, open_spot, refuse_special};
use crate::resolve::{At, Spot};
use crate::walls::Walls;

/// The largest file whose content is compared or replaced: it is held in memory once or twice.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Permissions and the sticky bit. Who changes a program's content does not keep the rights that its owner gave it.
const MODE_BITS: u32 = 0o1777;
const NEW_FILE: u32 = 0o666;
const NEW_DIRECTORY: u32 = 0o777;

/// What must stand at a path for it to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect<'a> {
    /// Nothing.
    Absent,
    /// Content with this hash (`hash`).
    Hash(&'a str),
    Any,
}

/// What a replacement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Where it lies, links followed.
    pub path: PathBuf,
    pub created: bool,
    /// Hash of what was there, if it was asked for.
    pub before: Option<String>,
    /// Hash of what is there now.
    pub hash: String,
    /// Directories that were made for it, outermost first.
    pub directories: Vec<PathBuf>,
    /// The file had another owner or group, and we may not give it away: it is ours now.
    pub owner_lost: bool,
}

/// SHA-256 in hexadecimal, as previews and the log have it.
pub fn hash(content: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Whoever changes a file holds its lock meanwhile. A fixed number of locks: two files that share one only wait.
pub(crate) struct Locks {
    locks: [Mutex<()>; 64],
    order: RandomState,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks { locks: [const { Mutex::new(()) }; 64], order: RandomState::new() }
    }
}

/// One file's turn.
#[must_use]
pub struct Guard<'a> {
    files: &'a Files,
    path: PathBuf,
    _held: MutexGuard<'a, ()>,
}

impl Files {
    /// Waits for the file's turn; what is read and replaced through the guard is not changed by us in between.
    pub fn lock(&self, path: &Path) -> Result<Guard<'_>, FileError> {
        let real = self.walls().resolve(path, Level::Read)?.path;
        let Locks { locks, order } = &self.locks;
        let index = order.hash_one(&real) % locks.len() as u64;
        let lock = &locks[usize::try_from(index).expect("a remainder of 64 fits")];
        // A panic under the lock has left the file whole: it is replaced by a rename.
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Guard { files: self, path: path.to_owned(), _held: held })
    }

    /// Replaces a file, or makes one and the directories it needs.
    pub fn replace(&self, path: &Path, content: &[u8], expect: Expect<'_>) -> Result<Replaced, FileError> {
        self.lock(path)?.replace(content, expect)
    }

    /// The same with a mode that is given, for putting a file back as it was.
    pub fn restore(&self, path: &Path, content: &[u8], mode: u32) -> Result<Replaced, FileError> {
        self.lock(path)?.put(content, Expect::Any, Some(mode))
    }
}

impl Guard<'_> {
    /// The whole content of the file; `None` if there is none.
    pub fn read(&self) -> Result<Option<(Vec<u8>, std::fs::Metadata)>, FileError> {
        let spot = self.files.walls().resolve(&self.path, Level::Read)?;
        if !spot.exists() {
            return Ok(None);
        }
        let mut opened = open_spot(spot)?;
        let content = read_whole(&mut opened.file, &opened.path)?;
        Ok(Some((content, opened.meta)))
    }

    pub fn replace(&self, content: &[u8], expect: Expect<'_>) -> Result<Replaced, FileError> {
        self.put(content, expect, None)
    }

    fn put(&self, content: &[u8], expect: Expect<'_>, mode: Option<u32>) -> Result<Replaced, FileError> {
        let walls = self.files.walls();
        let Spot { path, at } = walls.resolve(&self.path, Level::Write)?;
        let mut made = Vec::new();
        let (dir, name, old) = match at {
            At::Grant => return Err(FileError::IsDirectory { path }),
            At::Entry { dir, name, found } => (dir, name, Some(found)),
            At::Free { dir, name } => (dir, name, None),
            At::Far => {
                let (dir, name) = make_directories(&walls, &path, &mut made)?;
                (dir, name, None)
            }
        };
        let place = Place { dir, name, path };
        let result = place.put(content, expect, mode, old);
        if result.is_err() {
            // What was made for nothing goes again; a directory that is no longer empty stays.
            for made in made.iter().rev() {
                drop(self.files.remove_directory(made));
            }
        }
        result.map(|replaced| Replaced { directories: made, ..replaced })
    }
}

/// A name in an opened directory.
struct Place {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Place {
    fn put(
        self,
        content: &[u8],
        expect: Expect<'_>,
        mode: Option<u32>,
        old: Option<Stat>,
    ) -> Result<Replaced, FileError> {
        let failed = |doing| move |e: io::Error| (doing, e);
        let say = |(doing, e): (&'static str, io::Error)| FileError::from_io(&self.path, doing, e);
        let before = self.check(expect, old.as_ref())?;
        let mut temporary = Temporary::create(&self.dir, old.is_some() || mode.is_some()).map_err(say)?;
        temporary.file.write_all(content).map_err(failed("writing it")).map_err(say)?;
        let mut owner_lost = false;
        if let Some(old) = &old {
            owner_lost = temporary.take_owner(old).map_err(say)?;
            temporary.take_attributes(&self.dir, &self.name).map_err(say)?;
        }
        if let Some(mode) = mode.or(old.as_ref().map(mode_of)) {
            temporary.take_mode(mode).map_err(say)?;
        }
        temporary.file.sync_all().map_err(failed("writing it to disk")).map_err(say)?;
        self.still(old.as_ref())?;
        temporary.place(&self.name, old.is_none()).map_err(|e| say(("putting it in its place", e.into())))?;
        Ok(Replaced {
            path: self.path,
            created: old.is_none(),
            before,
            hash: hash(content),
            directories: Vec::new(),
            owner_lost,
        })
    }

    /// What stands there is what is expected and may be replaced; its hash, if that was asked for.
    fn check(&self, expect: Expect<'_>, old: Option<&Stat>) -> Result<Option<String>, FileError> {
        let path = self.path.clone();
        let Some(old) = old else {
            return match expect {
                Expect::Hash(_) => Err(FileError::Changed { path }),
                Expect::Absent | Expect::Any => Ok(None),
            };
        };
        refuse_special(&path, rustix::fs::FileType::from_raw_mode(old.st_mode))?;
        if old.st_mode & 0o222 == 0 {
            let why =
                "it is marked as read-only; if it should be changed all the same, change its mode first";
            return Err(FileError::Denied { path, why });
        }
        if !may_write(&self.dir, &self.name) {
            return Err(FileError::Denied { path, why: "its permissions forbid writing to it" });
        }
        match expect {
            Expect::Any => Ok(None),
            Expect::Absent => Err(FileError::Exists { path }),
            Expect::Hash(wanted) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened = beneath::open(self.dir.as_fd(), Path::new(&self.name), flags, Mode::empty());
                let mut file = File::from(opened.map_err(|e| FileError::from_io(&path, "opening it", e))?);
                let now = hash(&read_whole(&mut file, &path)?);
                if now == wanted { Ok(Some(now)) } else { Err(FileError::Changed { path }) }
            }
        }
    }

    /// Nobody else has put another file there since it was looked at.
    fn still(&self, old: Option<&Stat>) -> Result<(), FileError> {
        let now = again(|| rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW));
        let same = match (old, &now) {
            (None, Err(Errno::NOENT)) => true,
            (Some(old), Ok(now)) => {
                let key = |s: &Stat| {
                    (s.st_dev, s.st_ino, s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec)
                };
                key(old) == key(now)
            }
            _ => false,
        };
        if same { Ok(()) } else { Err(FileError::Changed { path: self.path.clone() }) }
    }
}

/// Asked of the system, because it alone knows about groups and access lists.
fn may_write(dir: &OwnedFd, name: &OsStr) -> bool {
    use rustix::fs::Access;
    // An answer that is no answer (a kernel without the call) leaves the mode bits as the check.
    !matches!(
        again(|| rustix::fs::accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS)),
        Err(Errno::ACCESS | Errno::ROFS)
    )
}

fn read_whole(file: &mut File, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    let failed = |e| FileError::from_io(path, "reading it", e);
    file.take(FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES {
        let bytes = file.metadata().map_err(failed)?.len();
        return Err(FileError::TooLarge { path: path.to_owned(), bytes, most: FILE_BYTES });
    }
    Ok(content)
}

/// A file without a place yet; gone again unless it gets one. Where the file system can do it, it has no name until it
/// is complete, so that nothing is left behind if this process is killed.
struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: Option<OsString>,
    file: File,
}

type Doing = (&'static str, io::Error);

impl<'a> Temporary<'a> {
    /// `private` until it has the old file's mode; else with what a new file gets.
    fn create(dir: &'a OwnedFd, private: bool) -> Result<Temporary<'a>, Doing> {
        let mode = Mode::from_raw_mode((if private { 0o600 } else { NEW_FILE }) as rustix::fs::RawMode);
        if let Some(file) = nameless(dir, mode) {
            return Ok(Temporary { dir, name: None, file: File::from(file) });
        }
        Temporary::named(dir, mode)
    }

    fn named(dir: &'a OwnedFd, mode: Mode) -> Result<Temporary<'a>, Doing> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        loop {
            let name = temporary_name();
            match beneath::open(dir.as_fd(), Path::new(&name), flags, mode) {
                // Left behind by a process of the same number that was killed.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(("making a temporary file beside it", e.into())),
                Ok(file) => return Ok(Temporary { dir, name: Some(name), file: File::from(file) }),
            }
        }
    }

    /// Whether the owner or group had to be left behind.
    fn take_owner(&self, old: &Stat) -> Result<bool, Doing> {
        let mine = rustix::fs::fstat(&self.file).map_err(|e| ("looking at it", e.into()))?;
        let user = (mine.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
        let group = (mine.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
        let lost = |result: Result<(), Errno>| match result {
            Ok(()) => Ok(false),
            Err(Errno::PERM) => Ok(true),
            Err(e) => Err(("keeping its owner", e.into())),
        };
        // One after the other: who may not give a file away may still choose among its own groups.
        let group =
            group.map_or(Ok(false), |group| lost(rustix::fs::fchown(&self.file, None, Some(group))))?;
        let user = user.map_or(Ok(false), |user| lost(rustix::fs::fchown(&self.file, Some(user), None)))?;
        Ok(group || user)
    }

    fn take_mode(&self, mode: u32) -> Result<(), Doing> {
        let mode = Mode::from_raw_mode((mode & MODE_BITS) as rustix::fs::RawMode);
        again(|| rustix::fs::fchmod(&self.file, mode)).map_err(|e| ("keeping its mode", e.into()))
    }

    /// A person's own attributes and access lists. Rights of programs are not kept, as with the mode.
    fn take_attributes(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Doing> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        // One that we may write and not read keeps its content from us, and its attributes with it.
        let Ok(old) = beneath::open(dir.as_fd(), Path::new(name), flags, Mode::empty()) else {
            return Ok(());
        };
        attributes::copy(&old, &self.file).map_err(|e| ("keeping its attributes", e.into()))
    }

    /// Puts it in its place; a `fresh` one never over something that has come meanwhile.
    fn place(mut self, name: &OsStr, fresh: bool) -> Result<(), Errno> {
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None if fresh => return link(&self.file, self.dir, name),
            None => loop {
                let temporary = temporary_name();
                match link(&self.file, self.dir, &temporary) {
                    Err(Errno::EXIST) => {}
                    linked => break linked.map(|()| temporary)?,
                }
            },
        };
        let placed = if fresh {
            rename_fresh(self.dir, &temporary, name)
        } else {
            again(|| rustix::fs::renameat(self.dir, &temporary, self.dir, name))
        };
        if placed.is_err() {
            self.name = Some(temporary);
        }
        placed
    }
}

fn temporary_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".minke-new-{}-{number}", std::process::id()).into()
}

/// A file without a name, where the file system has such and a name can be given to it later.
#[cfg(target_os = "linux")]
fn nameless(dir: &OwnedFd, mode: Mode) -> Option<OwnedFd> {
    static CAN_BE_NAMED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| Path::new(DESCRIPTORS).exists());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // Why not is of no interest: a named file is made instead, and says so if that cannot be done either.
    CAN_BE_NAMED.then(|| rustix::fs::openat(dir, ".", flags, mode).ok())?
}

#[cfg(not(target_os = "linux"))]
fn nameless(_dir: &OwnedFd, _mode: Mode) -> Option<OwnedFd> {
    None
}

/// Where this process's own descriptors have names. They are ours alone, nobody can lead them elsewhere.
const DESCRIPTORS: &str = "/proc/self/fd";

fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let own = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    again(|| rustix::fs::linkat(rustix::fs::CWD, own.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW))
}

/// Never over something that has come meanwhile, where the file system can say so.
fn rename_fresh(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    match again(|| rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        answer => return answer,
    }
    again(|| rustix::fs::renameat(dir, from, dir, to))
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing better can be done than to leave it, under a name that says whose it is.
            let _left = rustix::fs::unlinkat(self.dir, name, AtFlags::empty());
        }
    }
}

mod attributes {
    use super::{Errno, File, OwnedFd};
    use rustix::fs::XattrFlags;

    /// What the kernel takes at most, for the list of names and for one value.
    const MOST: usize = 64 * 1024;

    pub(super) fn copy(old: &OwnedFd, new: &File) -> Result<(), Errno> {
        let mut names = vec![0_u8; MOST];
        let length = match rustix::fs::flistxattr(old, &mut names[..]) {
            Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
            length => length?,
        };
        let mut value = vec![0_u8; MOST];
        for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
            if name.starts_with(b"user.") || name == b"system.posix_acl_access" {
                let length = rustix::fs::fgetxattr(old, name, &mut value[..])?;
                let value = value.get(..length).unwrap_or_default();
                rustix::fs::fsetxattr(new, name, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// The directory of a path, made with those above it that are missing; each must be writable itself.
fn make_directories(
    walls: &Walls,
    path: &Path,
    made: &mut Vec<PathBuf>,
) -> Result<(OwnedFd, OsString), FileError> {
    let invalid = || FileError::IsDirectory { path: path.to_owned() };
    let (parent, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    let failed = |e| FileError::from_io(path, "making its directory", e);
    let (grant, below) = walls.beneath(parent)?;
    let top = parent.ancestors().nth(below.components().count()).unwrap_or(parent);
    let mut dir = beneath::directory(grant, Path::new("")).map_err(failed)?;
    let mut here = top.to_owned();
    for part in below.components() {
        let part = part.as_os_str();
        here.push(part);
        dir = match beneath::directory(dir.as_fd(), Path::new(part)) {
            Err(Errno::NOENT) => {
                walls.check(&here, Level::Write)?;
                let mode = Mode::from_raw_mode(NEW_DIRECTORY as rustix::fs::RawMode);
                match again(|| rustix::fs::mkdirat(&dir, part, mode)) {
                    Ok(()) => made.push(here.clone()),
                    // Somebody was quicker.
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(failed(e)),
                }
                beneath::directory(dir.as_fd(), Path::new(part)).map_err(failed)?
            }
            next => next.map_err(failed)?,
        };
    }
    Ok((dir, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most file systems have files without names, so nothing else would run the other way on this machine.
    #[test]
    fn with_and_without_a_name_a_file_comes_into_place_or_goes() {
        let home = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(home.path(), flags, Mode::empty()).unwrap();
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(home.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let mode = Mode::from_raw_mode(0o600);
        let make = |named: bool| {
            if named { Temporary::named(&dir, mode).unwrap() } else { Temporary::create(&dir, true).unwrap() }
        };
        for named in [false, true] {
            drop(make(named));
            assert!(names().is_empty());
            let mut first = make(named);
            first.file.write_all(b"first").unwrap();
            first.place(OsStr::new("f"), true).unwrap();
            // Fresh means that nothing is there.
            assert_eq!(make(named).place(OsStr::new("f"), true), Err(Errno::EXIST));
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"first");
            let mut second = make(named);
            second.file.write_all(b"second").unwrap();
            second.place(OsStr::new("f"), false).unwrap();
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"second");
            assert_eq!(names(), ["f"]);
            std::fs::create_dir(home.path().join("d")).unwrap();
            assert!(make(named).place(OsStr::new("d"), false).is_err());
            std::fs::remove_dir(home.path().join("d")).unwrap();
            std::fs::remove_file(home.path().join("f")).unwrap();
            assert!(names().is_empty(), "{:?}", names());
        }
    }
}
