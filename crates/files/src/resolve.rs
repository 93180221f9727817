//! Resolves paths. Links are followed here, one at a time, and only where the scope allows reading. The result contains
//! no link, and the kernel follows none when it opens the path.
//!
//! Invariant: a race with a process that replaces links makes a call fail or retry, but never leads outside
//! (`no_swap_leads_outside`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use minke_policy::AccessLevel;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use crate::access::AccessRules;
use crate::error::FileError;
use crate::safe_open::{self, has_type, retry_interrupted};

/// The most links in one path, as in the kernel.
pub(crate) const MAX_LINKS: usize = 40;
/// The longest path of the kernel, including the final zero byte.
const MAX_PATH_BYTES: usize = 4_096;
/// How often a path is resolved again after a concurrent change.
const MAX_TRIES: usize = 32;

/// A resolved path, with the descriptor of its directory.
pub(crate) struct ResolvedPath {
    /// The path without links.
    pub(crate) path: PathBuf,
    pub(crate) target: PathTarget,
}

pub(crate) enum PathTarget {
    /// An existing entry in a directory.
    Entry { dir: OwnedFd, name: OsString, stat: Stat },
    /// The directory of a grant itself.
    Grant,
    /// A missing entry in an existing directory.
    Missing { dir: OwnedFd, name: OsString },
    /// A missing entry whose directory is missing too.
    MissingParent,
}

struct FollowedPath {
    path: PathBuf,
    /// Whether the last part of the requested path was a link.
    ends_in_link: bool,
}

impl ResolvedPath {
    pub(crate) fn exists(&self) -> bool {
        matches!(self.target, PathTarget::Entry { .. } | PathTarget::Grant)
    }
}

/// Normalizes a path: absolute, without `..`, in its shortest form.
pub(crate) fn normalize_path(path: &Path) -> Result<PathBuf, FileError> {
    let invalid = |why| Err(FileError::InvalidPath { path: path.to_owned(), why });
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return invalid("it is empty; give the name of a file");
    }
    if bytes.len() >= MAX_PATH_BYTES {
        return invalid("the path is too long for the system; use a shorter one");
    }
    if !path.is_absolute() {
        return Err(FileError::RelativePath { path: path.to_owned() });
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return invalid(
            "it climbs with `..`, which is ambiguous after a symbolic link; write the path without it",
        );
    }
    Ok(path.components().collect())
}

impl AccessRules {
    /// Resolves a path, following links. Checks for the wanted access.
    pub(crate) fn resolve_path(&self, path: &Path, want: AccessLevel) -> Result<ResolvedPath, FileError> {
        let asked = normalize_path(path)?;
        let mut real = FollowedPath { path: self.to_real_path(asked.clone()), ends_in_link: false };
        for _ in 0..MAX_TRIES {
            if self.may_read(&real.path) {
                match self.look_up(&real.path) {
                    Err(FileError::SymlinkNotFollowed { .. }) => {}
                    Err(e) => return Err(e.with_path(asked)),
                    Ok(_) if self.check_access(&real.path, want).is_err() => {
                        return Err(self.access_error(asked, real.path, want));
                    }
                    Ok(PathTarget::Missing { .. } | PathTarget::MissingParent) if real.ends_in_link => {
                        return Err(FileError::BrokenSymlink { path: asked, target: real.path });
                    }
                    Ok(target) => return Ok(ResolvedPath { path: real.path, target }),
                }
            }
            real = self.follow_links(&asked)?;
            if !self.may_read(&real.path) {
                return Err(self.access_error(asked, real.path, want));
            }
        }
        let why = "another process keeps changing its directories; try again".to_owned();
        Err(FileError::Io { path: asked, doing: "resolving it", why })
    }

    /// Resolves a path that must not contain links.
    pub(crate) fn resolve_nofollow(&self, path: &Path, want: AccessLevel) -> Result<ResolvedPath, FileError> {
        let real = self.to_real_path(normalize_path(path)?);
        self.check_access(&real, want)?;
        let (grant, below) = self.grant_below(&real)?;
        let target =
            look_up_below(grant, &below).map_err(|e| FileError::from_io(&real, "looking it up", e))?;
        Ok(ResolvedPath { path: real, target })
    }

    /// Returns the error for a path whose target is not accessible.
    fn access_error(&self, asked: PathBuf, real: PathBuf, want: AccessLevel) -> FileError {
        let why = match self.check_access(&real, want) {
            Err(why) => why,
            Ok(()) => return FileError::LinkLoop { path: asked },
        };
        if self.to_real_path(asked.clone()) == real {
            return why;
        }
        let why = why.to_string();
        let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why).to_owned();
        FileError::SymlinkOutOfScope { path: asked, target: real, want, why }
    }

    /// Looks up a path without links.
    fn look_up(&self, real: &Path) -> Result<PathTarget, FileError> {
        let failed = |e| match e {
            Errno::ACCESS => {
                let why = "the permissions of one of its directories forbid it";
                FileError::Denied { path: real.to_owned(), why }
            }
            e => FileError::from_io(real, "looking it up", e),
        };
        let (grant, below) = self.grant_below(real)?;
        match look_up_below(grant, &below).map_err(failed)? {
            PathTarget::Entry { stat, .. } if has_type(&stat, FileType::Symlink) => {
                Err(FileError::SymlinkNotFollowed { path: real.to_owned() })
            }
            at => Ok(at),
        }
    }

    /// Returns the path with its current links resolved. Reads links only where the scope allows reading; is not a
    /// check.
    fn follow_links(&self, asked: &Path) -> Result<FollowedPath, FileError> {
        let mut real = PathBuf::from("/");
        let mut rest: VecDeque<OsString> = path_parts(asked).collect();
        let (mut links, mut ends_in_link) = (0, false);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                real.pop();
                continue;
            }
            let here = real.join(&name);
            if let Some(moved) = self.moved_tmp(&here, &rest) {
                real = moved;
                continue;
            }
            let Some(target) = self.read_link_at(&here) else {
                real = here;
                continue;
            };
            links += 1;
            if links > MAX_LINKS || rest.len() > MAX_PATH_BYTES {
                return Err(FileError::LinkLoop { path: asked.to_owned() });
            }
            ends_in_link |= rest.is_empty();
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            for part in path_parts(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(part);
            }
        }
        Ok(FollowedPath { path: real, ends_in_link })
    }

    /// Returns the pod's own temporary directory, if `/tmp` with this rest refers to it.
    fn moved_tmp(&self, here: &Path, rest: &VecDeque<OsString>) -> Option<PathBuf> {
        let alias = self.tmp_alias().filter(|alias| alias.shown == here)?;
        let whole: PathBuf = here.iter().chain(rest.iter().map(OsString::as_os_str)).collect();
        (self.to_real_path(whole.clone()) != whole).then(|| alias.real.clone())
    }

    fn read_link_at(&self, path: &Path) -> Option<PathBuf> {
        if !self.may_read(path) {
            return None;
        }
        let (grant, below) = self.grant_below(path).ok()?;
        let PathTarget::Entry { dir, name, stat } = look_up_below(grant, &below).ok()? else { return None };
        if !has_type(&stat, FileType::Symlink) {
            return None;
        }
        let target = retry_interrupted(|| rustix::fs::readlinkat(&dir, &name, Vec::new())).ok()?;
        Some(PathBuf::from(OsString::from(std::ffi::OsStr::from_bytes(target.as_bytes()))))
    }
}

fn look_up_below(grant: std::os::fd::BorrowedFd<'_>, below: &Path) -> Result<PathTarget, Errno> {
    let (Some(name), Some(parents)) = (below.file_name(), below.parent()) else {
        return Ok(PathTarget::Grant);
    };
    let dir = match safe_open::open_directory(grant, parents) {
        Err(Errno::NOENT) => return Ok(PathTarget::MissingParent),
        dir => dir?,
    };
    match retry_interrupted(|| rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(stat) => Ok(PathTarget::Entry { dir, name: name.to_owned(), stat }),
        Err(Errno::NOENT) => Ok(PathTarget::Missing { dir, name: name.to_owned() }),
        Err(e) => Err(e),
    }
}

/// Returns the parts of a path, including `..`.
fn path_parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}
