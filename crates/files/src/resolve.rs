//! Resolve: where a path leads. Links are followed here, one at a time and only where the scope may be read; what comes
//! out has no link in it, and the kernel is told to follow none when it is opened.
//!
//! Invariant: a race with somebody who swaps links makes a call fail or try again, never lead outside
//! (`no_swap_leads_outside`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use minke_policy::Level;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use crate::beneath::{self, again, is};
use crate::error::FileError;
use crate::walls::Walls;

/// The most links that one path may lead through, as in the kernel.
pub(crate) const LINKS: usize = 40;
/// The longest path that the kernel takes, the zero at its end included.
const PATH_BYTES: usize = 4_096;
/// How often a path is followed again because somebody changed it meanwhile.
const TRIES: usize = 32;

/// What a path leads to, with the descriptor of its directory still held.
pub(crate) struct Spot {
    /// Without links.
    pub(crate) path: PathBuf,
    pub(crate) at: At,
}

pub(crate) enum At {
    /// Something with a name in a directory.
    Entry { dir: OwnedFd, name: OsString, found: Stat },
    /// The directory of a grant itself.
    Grant,
    /// Nothing of that name in a directory that exists.
    Free { dir: OwnedFd, name: OsString },
    /// Nothing, and its directory does not exist either.
    Far,
}

struct Followed {
    path: PathBuf,
    /// The last part of what was asked for was a link.
    ends_in_link: bool,
}

impl Spot {
    pub(crate) fn exists(&self) -> bool {
        matches!(self.at, At::Entry { .. } | At::Grant)
    }
}

/// A path that can be looked for: absolute, without `..`, in its shortest form.
pub(crate) fn clean(path: &Path) -> Result<PathBuf, FileError> {
    let invalid = |why| Err(FileError::InvalidPath { path: path.to_owned(), why });
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return invalid("it is not a path; give the name of a file");
    }
    if bytes.len() >= PATH_BYTES {
        return invalid("the path is too long for the system; use a shorter one");
    }
    if !path.is_absolute() {
        return Err(FileError::RelativePath { path: path.to_owned() });
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return invalid(
            "it climbs with `..`, which behind a link means another place than it says; write it without",
        );
    }
    Ok(path.components().collect())
}

impl Walls {
    /// Where a path leads, following links, with the level that is wanted there.
    pub(crate) fn resolve(&self, path: &Path, want: Level) -> Result<Spot, FileError> {
        let asked = clean(path)?;
        let mut real = Followed { path: self.meant(asked.clone()), ends_in_link: false };
        for _ in 0..TRIES {
            if self.may_read(&real.path) {
                match self.look(&real.path) {
                    Err(FileError::SymlinkNotFollowed { .. }) => {}
                    Err(e) => return Err(e.about(asked)),
                    Ok(_) if self.check(&real.path, want).is_err() => {
                        return Err(self.refuse(asked, real.path, want));
                    }
                    Ok(At::Free { .. } | At::Far) if real.ends_in_link => {
                        return Err(FileError::BrokenSymlink { path: asked, target: real.path });
                    }
                    Ok(at) => return Ok(Spot { path: real.path, at }),
                }
            }
            real = self.follow(&asked)?;
            if !self.may_read(&real.path) {
                return Err(self.refuse(asked, real.path, want));
            }
        }
        let why = "somebody else keeps changing its directories; try again".to_owned();
        Err(FileError::Io { path: asked, doing: "following it", why })
    }

    /// The same for a path that holds no links, or is refused.
    pub(crate) fn resolve_nofollow(&self, path: &Path, want: Level) -> Result<Spot, FileError> {
        let real = self.meant(clean(path)?);
        self.check(&real, want)?;
        let (grant, below) = self.beneath(&real)?;
        let at = look_beneath(grant, &below).map_err(|e| FileError::from_io(&real, "looking for it", e))?;
        Ok(Spot { path: real, at })
    }

    /// Words for a path that leads where it may not.
    fn refuse(&self, asked: PathBuf, real: PathBuf, want: Level) -> FileError {
        let why = match self.check(&real, want) {
            Err(why) => why,
            Ok(()) => return FileError::LinkLoop { path: asked },
        };
        if self.meant(asked.clone()) == real {
            return why;
        }
        let why = why.to_string();
        let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why).to_owned();
        FileError::SymlinkOutOfScope { path: asked, target: real, want, why }
    }

    /// What stands at a path without links.
    fn look(&self, real: &Path) -> Result<At, FileError> {
        let failed = |e| match e {
            Errno::ACCESS => {
                let why = "the permissions of one of its directories forbid it";
                FileError::Denied { path: real.to_owned(), why }
            }
            e => FileError::from_io(real, "looking for it", e),
        };
        let (grant, below) = self.beneath(real)?;
        match look_beneath(grant, &below).map_err(failed)? {
            At::Entry { found, .. } if is(&found, FileType::Symlink) => {
                Err(FileError::SymlinkNotFollowed { path: real.to_owned() })
            }
            at => Ok(at),
        }
    }

    /// The path without its links, as they are now. Looks only where the scope may be read, and is no check.
    fn follow(&self, asked: &Path) -> Result<Followed, FileError> {
        let mut real = PathBuf::from("/");
        let mut rest: VecDeque<OsString> = names(asked).collect();
        let (mut links, mut ends_in_link) = (0, false);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                real.pop();
                continue;
            }
            let here = real.join(&name);
            if let Some(moved) = self.moved(&here, &rest) {
                real = moved;
                continue;
            }
            let Some(target) = self.link_at(&here) else {
                real = here;
                continue;
            };
            links += 1;
            if links > LINKS || rest.len() > PATH_BYTES {
                return Err(FileError::LinkLoop { path: asked.to_owned() });
            }
            ends_in_link |= rest.is_empty();
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            for part in names(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(part);
            }
        }
        Ok(Followed { path: real, ends_in_link })
    }

    /// Where `/tmp` is taken for, if what follows is meant to lie in the pod's own.
    fn moved(&self, here: &Path, rest: &VecDeque<OsString>) -> Option<PathBuf> {
        let alias = self.alias().filter(|alias| alias.shown == here)?;
        let whole: PathBuf = here.iter().chain(rest.iter().map(OsString::as_os_str)).collect();
        (self.meant(whole.clone()) != whole).then(|| alias.real.clone())
    }

    fn link_at(&self, path: &Path) -> Option<PathBuf> {
        if !self.may_read(path) {
            return None;
        }
        let (grant, below) = self.beneath(path).ok()?;
        let At::Entry { dir, name, found } = look_beneath(grant, &below).ok()? else { return None };
        if !is(&found, FileType::Symlink) {
            return None;
        }
        let target = again(|| rustix::fs::readlinkat(&dir, &name, Vec::new())).ok()?;
        Some(PathBuf::from(OsString::from(std::ffi::OsStr::from_bytes(target.as_bytes()))))
    }
}

fn look_beneath(grant: std::os::fd::BorrowedFd<'_>, below: &Path) -> Result<At, Errno> {
    let (Some(name), Some(parents)) = (below.file_name(), below.parent()) else {
        return Ok(At::Grant);
    };
    let dir = match beneath::directory(grant, parents) {
        Err(Errno::NOENT) => return Ok(At::Far),
        dir => dir?,
    };
    match again(|| rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(found) => Ok(At::Entry { dir, name: name.to_owned(), found }),
        Err(Errno::NOENT) => Ok(At::Free { dir, name: name.to_owned() }),
        Err(e) => Err(e),
    }
}

/// The parts of a path, `..` among them.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}
