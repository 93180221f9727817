//! Replaces the content of a file atomically. A temporary file in the same opened directory gets the old file's mode,
//! owner and attributes, is synced, and is renamed. The old file is never written to, so other hard links keep their
//! content.
//!
//! Invariant: concurrent changes of one file are serialized (`parallel_replacements_lose_nothing`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use minke_policy::AccessLevel;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::access::AccessRules;
use crate::error::FileError;
use crate::resolve::{PathTarget, ResolvedPath};
use crate::safe_open::{self, file_mode, retry_interrupted};
use crate::scoped_files::{ScopedFiles, open_resolved, refuse_special};
use crate::temporary::{NEW_FILE_MODE, TemporaryFile, mode_under_umask};

/// The largest file that is compared or replaced; it is held in memory once or twice.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
const NEW_DIRECTORY_MODE: u32 = 0o777;

/// The required content before a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedContent<'a> {
    /// The file must not exist.
    Absent,
    /// The content must have this hash (`content_hash`).
    Hash(&'a str),
    Any,
}

/// The result of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedFile {
    /// The path without links.
    pub path: PathBuf,
    pub created: bool,
    /// Hash of the old content, if it was checked.
    pub old_hash: Option<String>,
    /// Hash of the new content.
    pub new_hash: String,
    /// Directories that were created for it, outermost first.
    pub created_directories: Vec<PathBuf>,
    /// Whether the file had another owner or group that could not be restored; it now belongs to this process's user.
    pub owner_lost: bool,
}

/// Returns the SHA-256 in hexadecimal, as in previews and in the log.
pub fn content_hash(content: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Serializes changes of one file. The number of locks is fixed; two files that share one only wait for each other.
pub(crate) struct FileLocks {
    locks: [Mutex<()>; 64],
    order: RandomState,
}

impl Default for FileLocks {
    fn default() -> FileLocks {
        FileLocks { locks: [const { Mutex::new(()) }; 64], order: RandomState::new() }
    }
}

/// The lock of one file.
#[must_use]
pub struct FileGuard<'a> {
    files: &'a ScopedFiles,
    path: PathBuf,
    _lock: MutexGuard<'a, ()>,
}

impl ScopedFiles {
    /// Waits for the lock of a file. While the guard exists, no other call of this process changes the file.
    pub fn lock_file(&self, path: &Path) -> Result<FileGuard<'_>, FileError> {
        let real = self.with_shown_paths(|walls| walls.resolve_path(path, AccessLevel::Read))?.path;
        let FileLocks { locks, order } = &self.locks;
        let index = order.hash_one(&real) % locks.len() as u64;
        let lock = &locks[usize::try_from(index).expect("the index is below the number of locks")];
        // Files are replaced by a rename, so the file is consistent after a panic.
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(FileGuard { files: self, path: path.to_owned(), _lock: held })
    }

    /// Replaces a file, or creates it and its missing directories.
    pub fn replace_file(
        &self,
        path: &Path,
        content: &[u8],
        expect: ExpectedContent<'_>,
    ) -> Result<ReplacedFile, FileError> {
        self.lock_file(path)?.replace_content(content, expect)
    }

    /// Replaces a file and sets the given mode; used to restore a file.
    pub fn restore_file(&self, path: &Path, content: &[u8], mode: u32) -> Result<ReplacedFile, FileError> {
        self.lock_file(path)?.put_content(content, ExpectedContent::Any, Some(mode))
    }
}

impl FileGuard<'_> {
    /// Returns the content of the file; `None` if it does not exist.
    pub fn read_content(&self) -> Result<Option<(Vec<u8>, std::fs::Metadata)>, FileError> {
        self.files.with_shown_paths(|walls| {
            let spot = walls.resolve_path(&self.path, AccessLevel::Read)?;
            if !spot.exists() {
                return Ok(None);
            }
            let mut opened = open_resolved(spot)?;
            let content = read_whole_file(&mut opened.file, &opened.path)?;
            Ok(Some((content, opened.meta)))
        })
    }

    pub fn replace_content(
        &self,
        content: &[u8],
        expect: ExpectedContent<'_>,
    ) -> Result<ReplacedFile, FileError> {
        self.put_content(content, expect, None)
    }

    fn put_content(
        &self,
        content: &[u8],
        expect: ExpectedContent<'_>,
        mode: Option<u32>,
    ) -> Result<ReplacedFile, FileError> {
        self.files.with_shown_paths(|walls| self.put_with_access(walls, content, expect, mode))
    }

    fn put_with_access(
        &self,
        walls: &AccessRules,
        content: &[u8],
        expect: ExpectedContent<'_>,
        mode: Option<u32>,
    ) -> Result<ReplacedFile, FileError> {
        let ResolvedPath { path, target } = walls.resolve_path(&self.path, AccessLevel::Write)?;
        let mut made = Vec::new();
        let (dir, name, old) = match target {
            PathTarget::Grant => return Err(FileError::IsDirectory { path }),
            PathTarget::Entry { dir, name, stat } => (dir, name, Some(stat)),
            PathTarget::Missing { dir, name } => (dir, name, None),
            PathTarget::MissingParent => {
                let (dir, name) = create_directories(walls, &path, &mut made)?;
                (dir, name, None)
            }
        };
        let place = ReplaceTarget { dir, name, path };
        let result = place.put_content(content, expect, mode, old);
        if result.is_err() {
            // Remove the directories that were created for nothing; one that is not empty stays.
            for made in made.iter().rev() {
                drop(self.files.remove_directory(made));
            }
        }
        result.map(|replaced| ReplacedFile { created_directories: made, ..replaced })
    }
}

/// A name in an opened directory.
struct ReplaceTarget {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl ReplaceTarget {
    fn put_content(
        self,
        content: &[u8],
        expect: ExpectedContent<'_>,
        mode: Option<u32>,
        old: Option<Stat>,
    ) -> Result<ReplacedFile, FileError> {
        let failed = |doing| move |e: io::Error| (doing, e);
        let say = |(doing, e): (&'static str, io::Error)| FileError::from_io(&self.path, doing, e);
        let old_hash = self.check_expected(expect, old.as_ref())?;
        let mut temporary = TemporaryFile::create(&self.dir, old.is_some() || mode.is_some()).map_err(say)?;
        temporary.file.write_all(content).map_err(failed("writing it")).map_err(say)?;
        let mut owner_lost = false;
        if let Some(old) = &old {
            owner_lost = temporary.copy_owner(old).map_err(say)?;
            temporary.copy_attributes(&self.dir, &self.name).map_err(say)?;
        }
        if let Some(mode) = mode.or(old.as_ref().map(file_mode)).or_else(|| mode_under_umask(NEW_FILE_MODE)) {
            temporary.set_mode(mode).map_err(say)?;
        }
        temporary.file.sync_all().map_err(failed("writing it to disk")).map_err(say)?;
        self.check_unchanged(old.as_ref())?;
        temporary
            .move_into_place(&self.name, old.is_none())
            .map_err(|e| say(("moving it into place", e.into())))?;
        Ok(ReplacedFile {
            path: self.path,
            created: old.is_none(),
            old_hash,
            new_hash: content_hash(content),
            created_directories: Vec::new(),
            owner_lost,
        })
    }

    /// Checks that the existing file is the expected one and may be replaced. Returns its hash, if that was checked.
    fn check_expected(
        &self,
        expect: ExpectedContent<'_>,
        old: Option<&Stat>,
    ) -> Result<Option<String>, FileError> {
        let path = self.path.clone();
        let Some(old) = old else {
            return match expect {
                ExpectedContent::Hash(_) => Err(FileError::Changed { path }),
                ExpectedContent::Absent | ExpectedContent::Any => Ok(None),
            };
        };
        refuse_special(&path, rustix::fs::FileType::from_raw_mode(old.st_mode))?;
        if old.st_mode & 0o222 == 0 {
            let why = "it is marked as read-only; to change it anyway, change its mode first";
            return Err(FileError::Denied { path, why });
        }
        if !is_writable(&self.dir, &self.name) {
            return Err(FileError::Denied { path, why: "its permissions forbid writing to it" });
        }
        match expect {
            ExpectedContent::Any => Ok(None),
            ExpectedContent::Absent => Err(FileError::Exists { path }),
            ExpectedContent::Hash(wanted) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened =
                    safe_open::open_below(self.dir.as_fd(), Path::new(&self.name), flags, Mode::empty());
                let mut file = File::from(opened.map_err(|e| FileError::from_io(&path, "opening it", e))?);
                let now = content_hash(&read_whole_file(&mut file, &path)?);
                if now == wanted { Ok(Some(now)) } else { Err(FileError::Changed { path }) }
            }
        }
    }

    /// Checks that the file has not been replaced since the first check.
    fn check_unchanged(&self, old: Option<&Stat>) -> Result<(), FileError> {
        let now = retry_interrupted(|| rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW));
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

/// Asks the system, because it knows groups and access lists.
fn is_writable(dir: &OwnedFd, name: &OsStr) -> bool {
    use rustix::fs::Access;
    // Without support in the kernel, the mode bits are the check.
    !matches!(
        retry_interrupted(|| rustix::fs::accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS)),
        Err(Errno::ACCESS | Errno::ROFS)
    )
}

fn read_whole_file(file: &mut File, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    let failed = |e| FileError::from_io(path, "reading it", e);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let bytes = file.metadata().map_err(failed)?.len();
        return Err(FileError::TooLarge { path: path.to_owned(), bytes, most: MAX_FILE_BYTES });
    }
    Ok(content)
}

/// Sets the mode of a new directory according to the user's umask, keeping inherited bits.
fn apply_new_mode(dir: BorrowedFd<'_>, name: &Path) -> Result<(), Errno> {
    let Some(mode) = mode_under_umask(NEW_DIRECTORY_MODE) else { return Ok(()) };
    let made = safe_open::open_listable(dir, name)?;
    let inherited = Mode::from_raw_mode(rustix::fs::fstat(&made)?.st_mode) & Mode::SGID;
    retry_interrupted(|| {
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode as rustix::fs::RawMode) | inherited)
    })
}

/// Opens the directory of a path and creates missing ones; each must be writable itself.
fn create_directories(
    walls: &AccessRules,
    path: &Path,
    made: &mut Vec<PathBuf>,
) -> Result<(OwnedFd, OsString), FileError> {
    let invalid = || FileError::IsDirectory { path: path.to_owned() };
    let (parent, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    let failed = |e| FileError::from_io(path, "creating its directory", e);
    let (grant, below) = walls.grant_below(parent)?;
    let top = parent.ancestors().nth(below.components().count()).unwrap_or(parent);
    let mut dir = safe_open::open_directory(grant, Path::new("")).map_err(failed)?;
    let mut here = top.to_owned();
    for part in below.components() {
        let part = part.as_os_str();
        here.push(part);
        dir = match safe_open::open_directory(dir.as_fd(), Path::new(part)) {
            Err(Errno::NOENT) => {
                walls.check_access(&here, AccessLevel::Write)?;
                let mode = Mode::from_raw_mode(NEW_DIRECTORY_MODE as rustix::fs::RawMode);
                match retry_interrupted(|| rustix::fs::mkdirat(&dir, part, mode)) {
                    Ok(()) => {
                        made.push(here.clone());
                        apply_new_mode(dir.as_fd(), Path::new(part)).map_err(failed)?;
                    }
                    // Another process created it first.
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(failed(e)),
                }
                safe_open::open_directory(dir.as_fd(), Path::new(part)).map_err(failed)?
            }
            next => next.map_err(failed)?,
        };
    }
    Ok((dir, name.to_owned()))
}
