//! Entries: what stands at a path itself, links not followed; looked at, made and removed, for putting things back.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use minke_policy::Level;
use rustix::fs::{AtFlags, FileType, Mode};

use crate::beneath::{self, again, device_of, mode_of};
use crate::error::FileError;
use crate::files::Files;
use crate::resolve::{At, Spot};
use crate::walls::Walls;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    pub device: u64,
    pub inode: u64,
    /// Since 1970, in nanoseconds.
    pub changed: i128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// A symbolic link, and where it points.
    Link(PathBuf),
    /// A FIFO, a socket or a device.
    Special,
}

impl Files {
    /// What stands at a path; `None` if nothing does. Links in it are refused, one at its end is what is looked at.
    pub fn entry(&self, path: &Path) -> Result<Option<Entry>, FileError> {
        self.named(|walls| entry(walls, path))
    }

    /// Removes a file or a link, not what it points to.
    pub fn remove(&self, path: &Path) -> Result<(), FileError> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes a directory that is empty.
    pub fn remove_directory(&self, path: &Path) -> Result<(), FileError> {
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, path: &Path, flags: AtFlags) -> Result<(), FileError> {
        self.named(|walls| match walls.resolve_nofollow(path, Level::Write)? {
            Spot { at: At::Entry { dir, name, .. }, .. } => {
                again(|| rustix::fs::unlinkat(&dir, &name, flags))
                    .map_err(|e| FileError::from_io(path, "removing it", e))
            }
            Spot { at: At::Grant, path } => {
                Err(FileError::Denied { path, why: "the directory of a grant is not removed" })
            }
            Spot { path, .. } => Err(FileError::NotFound { path }),
        })
    }

    /// Makes a symbolic link. Where it points is not looked at: following it later is.
    pub fn make_link(&self, path: &Path, target: &Path) -> Result<(), FileError> {
        let (dir, name) = self.free(path)?;
        again(|| rustix::fs::symlinkat(target, &dir, &name))
            .map_err(|e| FileError::from_io(path, "making a link", e))
    }

    /// Makes a directory; the one that it is in must exist.
    pub fn make_directory(&self, path: &Path, mode: u32) -> Result<(), FileError> {
        let (dir, name) = self.free(path)?;
        let failed = |e| FileError::from_io(path, "making a directory", e);
        let mode = Mode::from_raw_mode((mode & 0o1777) as rustix::fs::RawMode);
        again(|| rustix::fs::mkdirat(&dir, &name, mode)).map_err(failed)?;
        // The process's own mask has taken bits away.
        let made = beneath::listable(dir.as_fd(), Path::new(&name)).map_err(failed)?;
        again(|| rustix::fs::fchmod(&made, mode)).map_err(failed)
    }

    fn free(&self, path: &Path) -> Result<(OwnedFd, OsString), FileError> {
        self.named(|walls| match walls.resolve_nofollow(path, Level::Write)? {
            Spot { at: At::Free { dir, name }, .. } => Ok((dir, name)),
            Spot { at: At::Far, path } => {
                let missing = path.parent().unwrap_or(&path).to_owned();
                Err(FileError::NoDirectory { path, missing })
            }
            Spot { path, .. } => Err(FileError::Exists { path }),
        })
    }
}

fn entry(walls: &Walls, path: &Path) -> Result<Option<Entry>, FileError> {
    let spot = walls.resolve_nofollow(path, Level::Read)?;
    let failed = |e| FileError::from_io(path, "looking at it", e);
    let (found, kind) = match spot.at {
        At::Free { .. } | At::Far => return Ok(None),
        At::Grant => {
            let (grant, below) = walls.beneath(&spot.path)?;
            let dir = beneath::directory(grant, &below).map_err(failed)?;
            (rustix::fs::fstat(&dir).map_err(failed)?, Kind::Directory)
        }
        At::Entry { dir, name, found } => {
            let kind = match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => {
                    let target = again(|| rustix::fs::readlinkat(&dir, &name, Vec::new())).map_err(failed)?;
                    Kind::Link(OsStr::from_bytes(target.as_bytes()).into())
                }
                _ => Kind::Special,
            };
            (found, kind)
        }
    };
    Ok(Some(Entry {
        kind,
        mode: mode_of(&found) & 0o7777,
        size: u64::try_from(found.st_size).unwrap_or_default(),
        device: device_of(&found),
        inode: found.st_ino,
        changed: i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec),
    }))
}
