//! Replace: a file's new content, whole or not at all. A temporary file in the same opened directory takes the old one's
//! mode, owner and attributes, reaches the disk and is renamed; the old file is never written to, so that a hard link to
//! it elsewhere keeps what it had.
//!
//! Invariant: two changes of one file follow one another (`parallel_replacements_lose_nothing`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use minke_policy::Level;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::beneath::{self, again, mode_of};
use crate::error::FileError;
use crate::files::{Files, open_spot, refuse_special};
use crate::resolve::{At, Spot};
use crate::temporary::{NEW_FILE, Temporary, under_umask};
use crate::walls::Walls;

/// The largest file whose content is compared or replaced: it is held in memory once or twice.
pub const FILE_BYTES: u64 = 64 * 1024 * 1024;
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
        let real = self.named(|walls| walls.resolve(path, Level::Read))?.path;
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
        self.files.named(|walls| {
            let spot = walls.resolve(&self.path, Level::Read)?;
            if !spot.exists() {
                return Ok(None);
            }
            let mut opened = open_spot(spot)?;
            let content = read_whole(&mut opened.file, &opened.path)?;
            Ok(Some((content, opened.meta)))
        })
    }

    pub fn replace(&self, content: &[u8], expect: Expect<'_>) -> Result<Replaced, FileError> {
        self.put(content, expect, None)
    }

    fn put(&self, content: &[u8], expect: Expect<'_>, mode: Option<u32>) -> Result<Replaced, FileError> {
        self.files.named(|walls| self.put_within(walls, content, expect, mode))
    }

    fn put_within(
        &self,
        walls: &Walls,
        content: &[u8],
        expect: Expect<'_>,
        mode: Option<u32>,
    ) -> Result<Replaced, FileError> {
        let Spot { path, at } = walls.resolve(&self.path, Level::Write)?;
        let mut made = Vec::new();
        let (dir, name, old) = match at {
            At::Grant => return Err(FileError::IsDirectory { path }),
            At::Entry { dir, name, found } => (dir, name, Some(found)),
            At::Free { dir, name } => (dir, name, None),
            At::Far => {
                let (dir, name) = make_directories(walls, &path, &mut made)?;
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
        if let Some(mode) = mode.or(old.as_ref().map(mode_of)).or_else(|| under_umask(NEW_FILE)) {
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

/// Gives a directory that was just made the mode that the user's umask leaves it, and what it got from the one above.
fn open_up(dir: BorrowedFd<'_>, name: &Path) -> Result<(), Errno> {
    let Some(mode) = under_umask(NEW_DIRECTORY) else { return Ok(()) };
    let made = beneath::listable(dir, name)?;
    let inherited = Mode::from_raw_mode(rustix::fs::fstat(&made)?.st_mode) & Mode::SGID;
    again(|| rustix::fs::fchmod(&made, Mode::from_raw_mode(mode as rustix::fs::RawMode) | inherited))
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
                    Ok(()) => {
                        made.push(here.clone());
                        open_up(dir.as_fd(), Path::new(part)).map_err(failed)?;
                    }
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
