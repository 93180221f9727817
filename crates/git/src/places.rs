//! Places: small files read safely, links followed one by one, directories opened without following any.
//!
//! Commands may change the tree at the same time. What is only looked at is looked at by name; what is changed is reached
//! through a directory that was opened without following a link (`open_directory`), so that no link leads a rename out
//! of the scope (`no_link_leads_a_rename_astray`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, Stat};

/// The longest configuration or `.git` file that is read.
const FILE_BYTES: u64 = 1024 * 1024;
/// The most links on one way.
const LINKS: usize = 40;

/// By what a directory or a file is known to be as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: i128,
    modified: i128,
    pub(crate) changed: i128,
    pub(crate) mode: u32,
    pub(crate) is_directory: bool,
}

impl Stamp {
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "other types on macOS")
    )]
    pub(crate) fn of(found: &Stat) -> Stamp {
        let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        Stamp {
            device: found.st_dev as u64,
            inode: found.st_ino,
            size: i128::from(found.st_size),
            modified: nanos(found.st_mtime, found.st_mtime_nsec as u64),
            changed: nanos(found.st_ctime, found.st_ctime_nsec as u64),
            mode: u32::from(found.st_mode) & 0o7777,
            is_directory: kind == rustix::fs::FileType::Directory,
        }
    }
}

/// The stamp of what is at a path itself.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    rustix::fs::lstat(path).ok().map(|found| Stamp::of(&found))
}

/// Opens a directory; a link anywhere on the way is refused.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, ResolveFlags};
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            // A fence around us that does not know the call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            opened => return Ok(opened?),
        }
    }
    let mut held = rustix::fs::open("/", flags, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            held = rustix::fs::openat(&held, name, flags, Mode::empty())?;
        }
    }
    Ok(held)
}

/// A regular file as text, never waiting for a FIFO; `None` where nothing is.
pub(crate) fn read_text(path: &Path) -> io::Result<Option<String>> {
    Ok(read_bytes(path, FILE_BYTES)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

pub(crate) fn read_bytes(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is not a file of at most {most} bytes"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Every link on the way, by its real place.
    pub(crate) links: Vec<PathBuf>,
    /// The end of the way; what does not exist is kept as it is written.
    pub(crate) real: PathBuf,
}

/// Follows an absolute path link by link. A loop ends where it began to be one.
pub(crate) fn follow(path: &Path) -> Followed {
    let mut links = Vec::new();
    let mut real = PathBuf::from("/");
    let mut parts: Vec<PathBuf> = split(path);
    while let Some(part) = parts.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::Normal(name)) => {
                let next = real.join(name);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < LINKS => {
                        links.push(next);
                        parts.extend(split(&target));
                    }
                    _ => real = next,
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Followed { links, real }
}

/// The parts of a path, the last one first.
fn split(path: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = path.components().map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("a/b")).unwrap();
        symlink("a", at.join("one")).unwrap();
        symlink("../../one/b", at.join("a/b/two")).unwrap();
        let followed = follow(&at.join("one/b/two/missing"));
        assert_eq!(followed.real, at.join("a/b/missing"));
        assert_eq!(followed.links, [at.join("one"), at.join("a/b/two"), at.join("one")]);
        symlink("loop", at.join("loop")).unwrap();
        assert_eq!(follow(&at.join("loop")).real, at.join("loop"));
    }
}
