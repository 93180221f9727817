//! Opens one file or directory of a workspace without following links, blocking or reading without limit.
//!
//! Opens each path component relative to the descriptor of its parent, and never through a link; `..` is
//! rejected. Only reads regular files on the workspace's file system, checked before opening (a FIFO or a
//! device is not even opened) and again afterwards.
//! Invariant: `whatever_lies_there_the_look_ends_and_names_it`, `no_swap_leads_outside`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::trust::limits::{MAX_DIR_ENTRIES, MAX_LINE_CHARS};
use crate::trust::sanitize::sanitize_bytes;

/// Why a path of a workspace is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoreReason {
    Link,
    /// Not a regular file, or not a directory where one is expected.
    WrongFileType(&'static str),
    TooLong {
        max: u64,
    },
    NotText,
    /// The name contains control characters, characters that reorder text, or invalid UTF-8.
    UnreadableName,
    /// On another, mounted file system.
    OtherFilesystem,
    /// Beyond a limit of the scan; contains a description.
    LimitExceeded(String),
    /// The file was replaced while it was opened.
    Replaced,
    /// Not a path inside the workspace.
    OutsideWorkspace,
    /// The system call failed; contains the error.
    Unreadable(String),
}

impl fmt::Display for IgnoreReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IgnoreReason::Link => out.write_str("a symbolic link, which is never followed"),
            IgnoreReason::WrongFileType(kind) => out.write_str(kind),
            IgnoreReason::TooLong { max } => write!(out, "longer than {max} bytes"),
            IgnoreReason::NotText => out.write_str("not UTF-8 text"),
            IgnoreReason::UnreadableName => out.write_str("a name with invisible characters"),
            IgnoreReason::OtherFilesystem => out.write_str("on another file system"),
            IgnoreReason::LimitExceeded(what) => out.write_str(what),
            IgnoreReason::Replaced => out.write_str("replaced during the scan"),
            IgnoreReason::OutsideWorkspace => out.write_str("not inside the workspace"),
            IgnoreReason::Unreadable(why) => write!(out, "not readable ({why})"),
        }
    }
}

/// A path of a workspace that is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not used: {reason}")]
pub struct ReadRefusal {
    /// Relative to the workspace. Safe to display.
    pub path: String,
    pub reason: IgnoreReason,
}

/// Reads a text file of a workspace of at most `max` bytes. Returns `None` if it does not exist. Refuses anything
/// other than a regular text file and names the reason.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("AGENTS.md"), "Be brief.")?;
/// assert_eq!(minke_config::trust::read_text_file(dir.path(), "AGENTS.md".as_ref(), 64)?.as_deref(), Some("Be brief."));
/// assert!(minke_config::trust::read_text_file(dir.path(), "AGENTS.md".as_ref(), 4).is_err());
/// assert_eq!(minke_config::trust::read_text_file(dir.path(), ".minke/policy.toml".as_ref(), 64)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_text_file(workspace: &Path, file: &Path, max: u64) -> Result<Option<String>, ReadRefusal> {
    let refused =
        |reason| ReadRefusal { path: sanitize_bytes(file.as_os_str().as_bytes(), MAX_LINE_CHARS), reason };
    let Some((dir, name)) = open_parent(workspace, file)? else { return Ok(None) };
    let Some(bytes) = dir.read_file(&name, max).map_err(refused)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refused(IgnoreReason::NotText)),
    }
}

/// The first bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePrefix {
    pub bytes: Vec<u8>,
    /// Size of the file.
    pub total_bytes: u64,
}

/// Reads the first bytes of a workspace file as safely as [`read_text_file`]. For display only.
pub fn read_file_prefix(workspace: &Path, file: &Path, most: u64) -> Result<Option<FilePrefix>, ReadRefusal> {
    let refused =
        |reason| ReadRefusal { path: sanitize_bytes(file.as_os_str().as_bytes(), MAX_LINE_CHARS), reason };
    let Some((dir, name)) = open_parent(workspace, file)? else { return Ok(None) };
    dir.read_prefix(&name, most).map_err(refused)
}

/// Opens the directory of a file. Returns it with the file name, or `None` if the directory does not exist.
fn open_parent(workspace: &Path, file: &Path) -> Result<Option<(WorkspaceDir, OsString)>, ReadRefusal> {
    let refused =
        |reason| ReadRefusal { path: sanitize_bytes(file.as_os_str().as_bytes(), MAX_LINE_CHARS), reason };
    let mut names = Vec::new();
    for part in file.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return Err(refused(IgnoreReason::OutsideWorkspace)),
        }
    }
    let Some((name, parents)) = names.split_last() else {
        return Err(refused(IgnoreReason::OutsideWorkspace));
    };
    let mut dir = match WorkspaceDir::open_root(workspace) {
        Ok(dir) => dir,
        Err(IgnoreReason::Unreadable(_)) if !workspace.exists() => return Ok(None),
        Err(why) => return Err(refused(why)),
    };
    for parent in parents {
        match dir.open_subdir(parent) {
            Ok(Some(next)) => dir = next,
            // A path below a file does not exist.
            Ok(None) | Err(IgnoreReason::WrongFileType(_)) => return Ok(None),
            Err(why) => return Err(refused(why)),
        }
    }
    Ok(Some((dir, (*name).to_owned())))
}

/// A directory of the workspace.
#[derive(Debug)]
pub(crate) struct WorkspaceDir {
    fd: OwnedFd,
    /// File system of the workspace.
    device: u64,
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    File,
    Directory,
    Link,
    /// Description, and whether all permission bits are clear; then it is the placeholder of a sandbox.
    Other(&'static str, bool),
}

/// Flags for a directory on the way. On Linux they need no permission to list it.
#[cfg(target_os = "linux")]
const PASS_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASS_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LIST_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags that neither block nor acquire a controlling terminal.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl WorkspaceDir {
    /// Opens the workspace. The user chose this path, so links in it are followed.
    pub(crate) fn open_root(workspace: &Path) -> Result<WorkspaceDir, IgnoreReason> {
        let flags = PASS_FLAGS.difference(OFlags::NOFOLLOW);
        let fd = rustix::fs::open(workspace, flags, Mode::empty()).map_err(unreadable_reason)?;
        let device = device_id(&rustix::fs::fstat(&fd).map_err(unreadable_reason)?);
        Ok(WorkspaceDir { fd, device })
    }

    /// Returns the metadata of an entry, or `None` if it does not exist.
    pub(crate) fn stat_name(&self, name: &OsStr) -> Result<Option<Stat>, IgnoreReason> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            // A file cannot have such a name.
            Err(Errno::NAMETOOLONG | Errno::INVAL) => Ok(None),
            Err(e) => Err(unreadable_reason(e)),
        }
    }

    /// Opens a subdirectory.
    pub(crate) fn open_subdir(&self, name: &OsStr) -> Result<Option<WorkspaceDir>, IgnoreReason> {
        let Some(stat) = self.stat_name(name)? else { return Ok(None) };
        match file_type(&stat) {
            PathKind::Directory => {}
            PathKind::Link => return Err(IgnoreReason::Link),
            PathKind::File => return Err(IgnoreReason::WrongFileType("a file instead of a directory")),
            PathKind::Other(kind, _) => return Err(IgnoreReason::WrongFileType(kind)),
        }
        let fd = match rustix::fs::openat(&self.fd, name, PASS_FLAGS, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            // The directory was replaced after the check.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(IgnoreReason::Replaced),
            Err(e) => return Err(unreadable_reason(e)),
        };
        if device_id(&rustix::fs::fstat(&fd).map_err(unreadable_reason)?) != self.device {
            return Err(IgnoreReason::OtherFilesystem);
        }
        Ok(Some(WorkspaceDir { fd, device: self.device }))
    }

    /// Returns the sorted names of the entries.
    pub(crate) fn sorted_names(&self) -> Result<Vec<OsString>, IgnoreReason> {
        let list = rustix::fs::openat(&self.fd, ".", LIST_FLAGS, Mode::empty()).map_err(unreadable_reason)?;
        let mut names = Vec::new();
        for row in rustix::fs::Dir::new(list).map_err(unreadable_reason)? {
            let row = row.map_err(unreadable_reason)?;
            let name = row.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() == MAX_DIR_ENTRIES {
                return Err(IgnoreReason::LimitExceeded(format!(
                    "a directory of more than {MAX_DIR_ENTRIES} entries"
                )));
            }
            names.push(OsString::from_vec(name.to_vec()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a regular file of at most `max` bytes.
    pub(crate) fn read_file(&self, name: &OsStr, max: u64) -> Result<Option<Vec<u8>>, IgnoreReason> {
        match self.read_prefix(name, max)? {
            // The file may have grown after the check.
            Some(read) if read.total_bytes > max => Err(IgnoreReason::TooLong { max }),
            read => Ok(read.map(|read| read.bytes)),
        }
    }

    /// Reads the first bytes of a regular file.
    fn read_prefix(&self, name: &OsStr, most: u64) -> Result<Option<FilePrefix>, IgnoreReason> {
        let Some(stat) = self.stat_name(name)? else { return Ok(None) };
        match file_type(&stat) {
            PathKind::File => {}
            PathKind::Link => return Err(IgnoreReason::Link),
            PathKind::Directory => return Err(IgnoreReason::WrongFileType("a directory instead of a file")),
            PathKind::Other(kind, _) => return Err(IgnoreReason::WrongFileType(kind)),
        }
        if device_id(&stat) != self.device {
            return Err(IgnoreReason::OtherFilesystem);
        }
        let fd = match rustix::fs::openat(&self.fd, name, READ_FLAGS, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(IgnoreReason::Replaced),
            Err(e) => return Err(unreadable_reason(e)),
        };
        let opened = rustix::fs::fstat(fd.as_fd()).map_err(unreadable_reason)?;
        if (opened.st_ino, device_id(&opened)) != (stat.st_ino, device_id(&stat))
            || file_type(&opened) != PathKind::File
        {
            return Err(IgnoreReason::Replaced);
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::from(fd).take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|e| IgnoreReason::Unreadable(e.to_string()))?;
        let total_bytes = u64::try_from(opened.st_size).unwrap_or(u64::MAX).max(bytes.len() as u64);
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(Some(FilePrefix { bytes, total_bytes }))
    }

    /// Returns the target of a link without following it.
    pub(crate) fn link_target(&self, name: &OsStr) -> Vec<u8> {
        rustix::fs::readlinkat(&self.fd, name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .unwrap_or_default()
    }
}

pub(crate) fn file_type(stat: &Stat) -> PathKind {
    let closed =
        Mode::from_raw_mode(stat.st_mode).intersection(Mode::RWXU | Mode::RWXG | Mode::RWXO).is_empty();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => PathKind::File,
        FileType::Directory => PathKind::Directory,
        FileType::Symlink => PathKind::Link,
        FileType::Fifo => PathKind::Other("a FIFO", closed),
        FileType::Socket => PathKind::Other("a socket", closed),
        FileType::CharacterDevice | FileType::BlockDevice => PathKind::Other("a device", closed),
        FileType::Unknown => PathKind::Other("of an unknown type", closed),
    }
}

#[cfg(target_os = "linux")]
fn device_id(stat: &Stat) -> u64 {
    stat.st_dev
}

/// Signed on this platform; only compared.
#[cfg(not(target_os = "linux"))]
fn device_id(found: &Stat) -> u64 {
    i64::from(found.st_dev).cast_unsigned()
}

fn unreadable_reason(e: Errno) -> IgnoreReason {
    IgnoreReason::Unreadable(std::io::Error::from(e).to_string())
}
