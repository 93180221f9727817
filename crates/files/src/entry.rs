//! Metadata, creation and removal of single entries without following links; used to restore files.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use minke_policy::AccessLevel;
use rustix::fs::{AtFlags, FileType, Mode};

use crate::access::AccessRules;
use crate::error::FileError;
use crate::resolve::{PathTarget, ResolvedPath};
use crate::safe_open::{self, device_number, file_mode, retry_interrupted};
use crate::scoped_files::ScopedFiles;

/// The metadata of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    pub kind: PathEntryKind,
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    pub device: u64,
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub changed_nanos: i128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathEntryKind {
    File,
    Directory,
    /// A symbolic link and its target.
    Link(PathBuf),
    /// A FIFO, a socket or a device.
    Special,
}

impl ScopedFiles {
    /// Returns the entry at a path, `None` if it is missing. A link in the path is refused; a link at its end is
    /// returned itself.
    pub fn path_entry(&self, path: &Path) -> Result<Option<PathEntry>, FileError> {
        self.with_shown_paths(|walls| read_entry(walls, path))
    }

    /// Removes a file or a link, not the link's target.
    pub fn remove_entry(&self, path: &Path) -> Result<(), FileError> {
        self.unlink_entry(path, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &Path) -> Result<(), FileError> {
        self.unlink_entry(path, AtFlags::REMOVEDIR)
    }

    fn unlink_entry(&self, path: &Path, flags: AtFlags) -> Result<(), FileError> {
        self.with_shown_paths(|walls| match walls.resolve_nofollow(path, AccessLevel::Write)? {
            ResolvedPath { target: PathTarget::Entry { dir, name, .. }, .. } => {
                retry_interrupted(|| rustix::fs::unlinkat(&dir, &name, flags))
                    .map_err(|e| FileError::from_io(path, "removing it", e))
            }
            ResolvedPath { target: PathTarget::Grant, path } => {
                Err(FileError::Denied { path, why: "the directory of a grant cannot be removed" })
            }
            ResolvedPath { path, .. } => Err(FileError::NotFound { path }),
        })
    }

    /// Creates a symbolic link. The target is not checked; it is checked when the link is followed.
    pub fn create_symlink(&self, path: &Path, target: &Path) -> Result<(), FileError> {
        let (dir, name) = self.open_free_name(path)?;
        retry_interrupted(|| rustix::fs::symlinkat(target, &dir, &name))
            .map_err(|e| FileError::from_io(path, "creating a link", e))
    }

    /// Creates a directory; its parent must exist.
    pub fn create_directory(&self, path: &Path, mode: u32) -> Result<(), FileError> {
        let (dir, name) = self.open_free_name(path)?;
        let failed = |e| FileError::from_io(path, "creating a directory", e);
        let mode = Mode::from_raw_mode((mode & 0o1777) as rustix::fs::RawMode);
        retry_interrupted(|| rustix::fs::mkdirat(&dir, &name, mode)).map_err(failed)?;
        // The umask of this process has removed bits.
        let made = safe_open::open_listable(dir.as_fd(), Path::new(&name)).map_err(failed)?;
        retry_interrupted(|| rustix::fs::fchmod(&made, mode)).map_err(failed)
    }

    fn open_free_name(&self, path: &Path) -> Result<(OwnedFd, OsString), FileError> {
        self.with_shown_paths(|walls| match walls.resolve_nofollow(path, AccessLevel::Write)? {
            ResolvedPath { target: PathTarget::Missing { dir, name }, .. } => Ok((dir, name)),
            ResolvedPath { target: PathTarget::MissingParent, path } => {
                let missing = path.parent().unwrap_or(&path).to_owned();
                Err(FileError::MissingDirectory { path, missing })
            }
            ResolvedPath { path, .. } => Err(FileError::Exists { path }),
        })
    }
}

fn read_entry(walls: &AccessRules, path: &Path) -> Result<Option<PathEntry>, FileError> {
    let spot = walls.resolve_nofollow(path, AccessLevel::Read)?;
    let failed = |e| FileError::from_io(path, "reading its metadata", e);
    let (found, kind) = match spot.target {
        PathTarget::Missing { .. } | PathTarget::MissingParent => return Ok(None),
        PathTarget::Grant => {
            let (grant, below) = walls.grant_below(&spot.path)?;
            let dir = safe_open::open_directory(grant, &below).map_err(failed)?;
            (rustix::fs::fstat(&dir).map_err(failed)?, PathEntryKind::Directory)
        }
        PathTarget::Entry { dir, name, stat } => {
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => PathEntryKind::File,
                FileType::Directory => PathEntryKind::Directory,
                FileType::Symlink => {
                    let target = retry_interrupted(|| rustix::fs::readlinkat(&dir, &name, Vec::new()))
                        .map_err(failed)?;
                    PathEntryKind::Link(OsStr::from_bytes(target.as_bytes()).into())
                }
                _ => PathEntryKind::Special,
            };
            (stat, kind)
        }
    };
    Ok(Some(PathEntry {
        kind,
        mode: file_mode(&found) & 0o7777,
        size: u64::try_from(found.st_size).unwrap_or_default(),
        device: device_number(&found),
        inode: found.st_ino,
        changed_nanos: i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec),
    }))
}
