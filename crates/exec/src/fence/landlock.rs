//! Landlock: which files a command may open, that it opens no TCP port, and that its signals and abstract sockets end
//! at the fence.
//!
//! Here: rights by the kernel's ABI and the domain itself. Elsewhere: which paths get which rights (`compile`).
//! What a kernel does not know is left out; below which ABI a tier is none is said in `needs`.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "Landlock has three system calls and no wrapper in libc")
)]

#[cfg(target_os = "linux")]
use std::ffi::c_void;
#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::{FileType, Mode, OFlags};

#[cfg(target_os = "linux")]
/// The lowest ABI of a fence that has nothing else for files (tier B): without `TRUNCATE`, files outside could be
/// emptied.
pub(crate) const ALONE: u32 = 3;
#[cfg(target_os = "linux")]
/// The lowest ABI of a fence with mounts.
pub(crate) const BESIDE_MOUNTS: u32 = 1;

/// What may be done below a path, as a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u64);

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

impl Rights {
    pub(crate) const LIST: Rights = Rights(READ_DIR);
    pub(crate) const READ: Rights = Rights(EXECUTE | READ_FILE | READ_DIR);
    /// Everything that ordinary work needs, and no devices. A socket that nobody can listen on is a name like others;
    /// copying a directory that holds a placeholder makes one.
    pub(crate) const WRITE: Rights = Rights(
        Rights::READ.0
            | WRITE_FILE
            | REMOVE_DIR
            | REMOVE_FILE
            | MAKE_DIR
            | MAKE_REG
            | MAKE_SOCK
            | MAKE_FIFO
            | MAKE_SYM
            | REFER
            | TRUNCATE,
    );
    /// Files of one directory, and no new directories in it.
    pub(crate) const WRITE_FLAT: Rights = Rights(Rights::WRITE.0 & !(REMOVE_DIR | MAKE_DIR | REFER));
    /// A device: read, written and asked.
    pub(crate) const DEVICE: Rights = Rights(READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV);
    /// What makes sense for something that is not a directory; the kernel refuses the rest for it.
    const OF_A_FILE: u64 = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;

    #[must_use]
    pub(super) fn with(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    pub(super) fn has(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn from_bits(bits: u64) -> Rights {
        Rights(bits)
    }
}

#[cfg(target_os = "linux")]
/// Rights that are refused unless a rule gives them, by ABI.
fn handled(abi: u32) -> u64 {
    let mut rights = EXECUTE
        | WRITE_FILE
        | READ_FILE
        | READ_DIR
        | REMOVE_DIR
        | REMOVE_FILE
        | MAKE_CHAR
        | MAKE_DIR
        | MAKE_REG
        | MAKE_SOCK
        | MAKE_FIFO
        | MAKE_BLOCK
        | MAKE_SYM;
    for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)] {
        if abi >= since {
            rights |= right;
        }
    }
    rights
}

#[cfg(target_os = "linux")]
/// What a domain refuses beside files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) files: bool,
    pub(super) tcp: bool,
    pub(super) scope: bool,
}

#[cfg(target_os = "linux")]
#[repr(C)]
struct Ruleset {
    handled_files: u64,
    handled_net: u64,
    scoped: u64,
}

#[cfg(target_os = "linux")]
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

#[cfg(target_os = "linux")]
const VERSION: u32 = 1;
#[cfg(target_os = "linux")]
const RULE_PATH_BENEATH: u32 = 1;
#[cfg(target_os = "linux")]
const NET_BIND_CONNECT: u64 = 0b11;
#[cfg(target_os = "linux")]
const SCOPE_ABSTRACT_SIGNAL: u64 = 0b11;

#[cfg(target_os = "linux")]
/// The ABI of this kernel; 0 without Landlock.
pub(crate) fn abi() -> u32 {
    // SAFETY: with this flag the kernel reads no structure.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<c_void>(), 0_usize, VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

#[cfg(target_os = "linux")]
/// Holds this process, and all it starts, to these rules. `no_new_privs` must be set.
pub(super) fn restrict(rules: &[(PathBuf, Rights)], beside: Beside) -> io::Result<()> {
    let abi = abi();
    let ruleset = Ruleset {
        handled_files: if beside.files { handled(abi) } else { 0 },
        handled_net: if beside.tcp && abi >= 4 { NET_BIND_CONNECT } else { 0 },
        scoped: if beside.scope && abi >= 6 { SCOPE_ABSTRACT_SIGNAL } else { 0 },
    };
    if ruleset.handled_files | ruleset.handled_net | ruleset.scoped == 0 {
        return Ok(());
    }
    // Older kernels refuse a larger structure than they know unless the rest is zero, which it is for them.
    // SAFETY: the structure is the kernel's, initialised, and its size is given.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            std::mem::size_of::<Ruleset>(),
            0_u32,
        )
    };
    let domain = match i32::try_from(made) {
        // SAFETY: a new descriptor that nobody else owns.
        Ok(fd) if fd >= 0 => unsafe { OwnedFd::from_raw_fd(fd) },
        _ => return Err(io::Error::last_os_error()),
    };
    if beside.files {
        for (path, rights) in rules {
            add(&domain, path, Rights(rights.0 & ruleset.handled_files))
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        }
    }
    // SAFETY: the descriptor is a ruleset.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, domain.as_raw_fd(), 0_u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(target_os = "linux")]
/// Gives rights below one path. What is not there needs none.
fn add(domain: &OwnedFd, path: &Path, rights: Rights) -> io::Result<()> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let parent = match opened {
        Ok(parent) => parent,
        // Not there, or not to be reached by us either.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&parent)?.st_mode);
    let allowed = if kind == FileType::Directory { rights.0 } else { rights.0 & Rights::OF_A_FILE };
    if allowed == 0 {
        return Ok(());
    }
    let rule = PathBeneath { allowed, parent: parent.as_fd().as_raw_fd() };
    // SAFETY: the structure is the kernel's, packed as it wants it, and the descriptor in it is open.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            domain.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
