//! Reads small files safely, follows links one by one, and opens directories without following links.
//!
//! Commands may change the tree at the same time. Reads use paths. Changes use a directory that was opened without
//! following a link (`open_directory`), so that no link leads a rename out of the scope
//! (`no_link_leads_a_rename_astray`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, Stat};

/// The largest configuration or `.git` file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The most links in one path.
const MAX_LINKS: usize = 40;

/// Identifies the state of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: i128,
    modified: i128,
    pub(crate) changed: i128,
    pub(crate) mode: u32,
    pub(crate) is_directory: bool,
}

impl FileStamp {
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "other types on macOS")
    )]
    pub(crate) fn from_stat(found: &Stat) -> FileStamp {
        let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        FileStamp {
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

/// Returns the stamp of a path, without following a link at its end.
pub(crate) fn file_stamp(path: &Path) -> Option<FileStamp> {
    rustix::fs::lstat(path).ok().map(|found| FileStamp::from_stat(&found))
}

/// Opens a directory; a link anywhere in the path is refused.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, ResolveFlags};
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            // An outer sandbox refuses the call.
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

/// Reads a regular file as text, without blocking on a FIFO; `None` if it is missing.
pub(crate) fn read_text(path: &Path) -> io::Result<Option<String>> {
    Ok(read_bytes(path, MAX_FILE_BYTES)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
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

/// The result of following a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkTrail {
    /// Every link in the path, by its real path.
    pub(crate) links: Vec<PathBuf>,
    /// The target; missing parts stay as written.
    pub(crate) real_path: PathBuf,
}

/// Follows an absolute path link by link. A loop ends where it begins.
pub(crate) fn follow_links(path: &Path) -> LinkTrail {
    let mut links = Vec::new();
    let mut real_path = PathBuf::from("/");
    let mut parts: Vec<PathBuf> = reversed_parts(path);
    while let Some(part) = parts.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                real_path.pop();
            }
            Some(Component::RootDir) => real_path = PathBuf::from("/"),
            Some(Component::Normal(name)) => {
                let next = real_path.join(name);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        links.push(next);
                        parts.extend(reversed_parts(&target));
                    }
                    _ => real_path = next,
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    LinkTrail { links, real_path }
}

/// Returns the parts of a path, last one first.
fn reversed_parts(path: &Path) -> Vec<PathBuf> {
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
        let followed = follow_links(&at.join("one/b/two/missing"));
        assert_eq!(followed.real_path, at.join("a/b/missing"));
        assert_eq!(followed.links, [at.join("one"), at.join("a/b/two"), at.join("one")]);
        symlink("loop", at.join("loop")).unwrap();
        assert_eq!(follow_links(&at.join("loop")).real_path, at.join("loop"));
    }
}
