//! Reach: one file or directory of a workspace, opened without following a link, waiting for anybody or reading on for
//! ever.
//!
//! Every part of a path is opened by itself, beneath the descriptor of the one before, and never through a link; `..`
//! is no part. What is opened for reading is a regular file on the workspace's own file system, looked at before (a
//! FIFO or a device is not even opened) and again afterwards.
//! Invariant: `whatever_lies_there_the_look_ends_and_names_it`, `no_swap_leads_outside`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::limits::{ENTRIES, LINE_CHARS};
use crate::words::shown;

/// Why something in a workspace is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    Link,
    /// Something else than a regular file, or than a directory where one belongs.
    Kind(&'static str),
    TooLong {
        max: u64,
    },
    NotText,
    /// A name that no person could read: control characters, marks that reorder text, bytes that are no text.
    Name,
    /// On another file system, mounted there.
    Mounted,
    /// More than is looked at; says of what.
    TooMuch(String),
    /// It was another file when it was opened.
    Swapped,
    /// Not a path inside the workspace.
    Outside,
    /// The system did not let us; says why.
    Unreadable(String),
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Link => out.write_str("a symbolic link, which is never followed"),
            Why::Kind(kind) => out.write_str(kind),
            Why::TooLong { max } => write!(out, "longer than {max} bytes"),
            Why::NotText => out.write_str("not UTF-8 text"),
            Why::Name => out.write_str("a name with characters that cannot be seen"),
            Why::Mounted => out.write_str("on another file system"),
            Why::TooMuch(what) => out.write_str(what),
            Why::Swapped => out.write_str("replaced while it was looked at"),
            Why::Outside => out.write_str("not inside the workspace"),
            Why::Unreadable(why) => write!(out, "not readable ({why})"),
        }
    }
}

/// Something in a workspace that is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not used: {why}")]
pub struct Refused {
    /// As a person may see it, from the workspace.
    pub path: String,
    pub why: Why,
}

/// Reads a text file of a workspace, at most `max` bytes long; `None` if there is none. Whatever else lies at this place
/// is refused, and named.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("AGENTS.md"), "Be brief.")?;
/// assert_eq!(minke_trust::read(dir.path(), "AGENTS.md".as_ref(), 64)?.as_deref(), Some("Be brief."));
/// assert!(minke_trust::read(dir.path(), "AGENTS.md".as_ref(), 4).is_err());
/// assert_eq!(minke_trust::read(dir.path(), ".minke/policy.toml".as_ref(), 64)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(workspace: &Path, file: &Path, max: u64) -> Result<Option<String>, Refused> {
    let refused = |why| Refused { path: shown(file.as_os_str().as_bytes(), LINE_CHARS), why };
    let Some((dir, name)) = parent_of(workspace, file)? else { return Ok(None) };
    let Some(bytes) = dir.file(&name, max).map_err(refused)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refused(Why::NotText)),
    }
}

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    pub bytes: Vec<u8>,
    /// How many there are in all.
    pub whole: u64,
}

/// Reads the first bytes of a file of a workspace, text or not, as safely as `read` does. For what is shown and gives no
/// right.
pub fn beginning(workspace: &Path, file: &Path, most: u64) -> Result<Option<Beginning>, Refused> {
    let refused = |why| Refused { path: shown(file.as_os_str().as_bytes(), LINE_CHARS), why };
    let Some((dir, name)) = parent_of(workspace, file)? else { return Ok(None) };
    dir.beginning(&name, most).map_err(refused)
}

/// The directory of a file, and the file's name in it; `None` if there is no such directory.
fn parent_of(workspace: &Path, file: &Path) -> Result<Option<(Dir, OsString)>, Refused> {
    let refused = |why| Refused { path: shown(file.as_os_str().as_bytes(), LINE_CHARS), why };
    let mut names = Vec::new();
    for part in file.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return Err(refused(Why::Outside)),
        }
    }
    let Some((name, parents)) = names.split_last() else { return Err(refused(Why::Outside)) };
    let mut dir = match Dir::of(workspace) {
        Ok(dir) => dir,
        Err(Why::Unreadable(_)) if !workspace.exists() => return Ok(None),
        Err(why) => return Err(refused(why)),
    };
    for parent in parents {
        match dir.enter(parent) {
            Ok(Some(next)) => dir = next,
            // Below what is no directory there is nothing.
            Ok(None) | Err(Why::Kind(_)) => return Ok(None),
            Err(why) => return Err(refused(why)),
        }
    }
    Ok(Some((dir, (*name).to_owned())))
}

/// A directory of the workspace.
#[derive(Debug)]
pub(crate) struct Dir {
    held: OwnedFd,
    /// The workspace's file system.
    device: u64,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    File,
    Directory,
    Link,
    /// In words, and whether nobody may do anything with it: then it is the stand-in for a name that a fence holds.
    Other(&'static str, bool),
}

/// A directory that is only passed through: on Linux no permission to list it is needed.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Not waited for, no terminal of ours.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Dir {
    /// The workspace itself. Which one it is, the person said: links on the way to it are theirs.
    pub(crate) fn of(workspace: &Path) -> Result<Dir, Why> {
        let flags = PASS.difference(OFlags::NOFOLLOW);
        let held = rustix::fs::open(workspace, flags, Mode::empty()).map_err(unreadable)?;
        let device = device_of(&rustix::fs::fstat(&held).map_err(unreadable)?);
        Ok(Dir { held, device })
    }

    /// What there is under a name; `None` if nothing.
    pub(crate) fn stat(&self, name: &OsStr) -> Result<Option<Stat>, Why> {
        match rustix::fs::statat(&self.held, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            // No file has such a name.
            Err(Errno::NAMETOOLONG | Errno::INVAL) => Ok(None),
            Err(e) => Err(unreadable(e)),
        }
    }

    /// The directory under a name.
    pub(crate) fn enter(&self, name: &OsStr) -> Result<Option<Dir>, Why> {
        let Some(found) = self.stat(name)? else { return Ok(None) };
        match thing(&found) {
            Thing::Directory => {}
            Thing::Link => return Err(Why::Link),
            Thing::File => return Err(Why::Kind("a file where a directory belongs")),
            Thing::Other(kind, _) => return Err(Why::Kind(kind)),
        }
        let held = match rustix::fs::openat(&self.held, name, PASS, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            // It was a directory a moment ago.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Why::Swapped),
            Err(e) => return Err(unreadable(e)),
        };
        if device_of(&rustix::fs::fstat(&held).map_err(unreadable)?) != self.device {
            return Err(Why::Mounted);
        }
        Ok(Some(Dir { held, device: self.device }))
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Result<Vec<OsString>, Why> {
        let list = rustix::fs::openat(&self.held, ".", LIST, Mode::empty()).map_err(unreadable)?;
        let mut names = Vec::new();
        for row in rustix::fs::Dir::new(list).map_err(unreadable)? {
            let row = row.map_err(unreadable)?;
            let name = row.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() == ENTRIES {
                return Err(Why::TooMuch(format!("a directory of more than {ENTRIES} entries")));
            }
            names.push(OsString::from_vec(name.to_vec()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The content of the regular file under a name, at most `max` bytes long.
    pub(crate) fn file(&self, name: &OsStr, max: u64) -> Result<Option<Vec<u8>>, Why> {
        match self.beginning(name, max)? {
            // It may have grown since its size was looked at.
            Some(read) if read.whole > max => Err(Why::TooLong { max }),
            read => Ok(read.map(|read| read.bytes)),
        }
    }

    /// The first bytes of the regular file under a name.
    fn beginning(&self, name: &OsStr, most: u64) -> Result<Option<Beginning>, Why> {
        let Some(found) = self.stat(name)? else { return Ok(None) };
        match thing(&found) {
            Thing::File => {}
            Thing::Link => return Err(Why::Link),
            Thing::Directory => return Err(Why::Kind("a directory where a file belongs")),
            Thing::Other(kind, _) => return Err(Why::Kind(kind)),
        }
        if device_of(&found) != self.device {
            return Err(Why::Mounted);
        }
        let held = match rustix::fs::openat(&self.held, name, READ, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(Why::Swapped),
            Err(e) => return Err(unreadable(e)),
        };
        let opened = rustix::fs::fstat(held.as_fd()).map_err(unreadable)?;
        if (opened.st_ino, device_of(&opened)) != (found.st_ino, device_of(&found))
            || thing(&opened) != Thing::File
        {
            return Err(Why::Swapped);
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::from(held).take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|e| Why::Unreadable(e.to_string()))?;
        let whole = u64::try_from(opened.st_size).unwrap_or(u64::MAX).max(bytes.len() as u64);
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(Some(Beginning { bytes, whole }))
    }

    /// Where a link says it leads; it is not followed.
    pub(crate) fn target(&self, name: &OsStr) -> Vec<u8> {
        rustix::fs::readlinkat(&self.held, name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .unwrap_or_default()
    }
}

pub(crate) fn thing(found: &Stat) -> Thing {
    let closed =
        Mode::from_raw_mode(found.st_mode).intersection(Mode::RWXU | Mode::RWXG | Mode::RWXO).is_empty();
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Thing::File,
        FileType::Directory => Thing::Directory,
        FileType::Symlink => Thing::Link,
        FileType::Fifo => Thing::Other("a FIFO", closed),
        FileType::Socket => Thing::Other("a socket", closed),
        FileType::CharacterDevice | FileType::BlockDevice => Thing::Other("a device", closed),
        FileType::Unknown => Thing::Other("of a kind that nobody knows", closed),
    }
}

#[cfg(target_os = "linux")]
fn device_of(found: &Stat) -> u64 {
    found.st_dev
}

/// Signed there, and only ever compared.
#[cfg(not(target_os = "linux"))]
fn device_of(found: &Stat) -> u64 {
    i64::from(found.st_dev).cast_unsigned()
}

fn unreadable(e: Errno) -> Why {
    Why::Unreadable(std::io::Error::from(e).to_string())
}
