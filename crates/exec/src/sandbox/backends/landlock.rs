//! Landlock: restricts which files a command may open, denies TCP, and confines its signals and abstract sockets to the
//! sandbox.
//!
//! Here: rights by kernel ABI, and the domain itself. Elsewhere: which paths get which rights (`compile`). Rights that
//! a kernel does not support are left out; `apply_restrictions` requires a minimum ABI per backend.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "Landlock has three system calls without a wrapper in libc")
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
/// The minimum ABI where Landlock alone protects files: without `TRUNCATE`, a command could empty files outside.
pub(crate) const MIN_ABI_ALONE: u32 = 3;
#[cfg(target_os = "linux")]
/// The minimum ABI of a sandbox with mounts.
pub(crate) const MIN_ABI_WITH_MOUNTS: u32 = 1;

/// A set of Landlock rights below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessRights(u64);

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

impl AccessRights {
    pub(crate) const LIST: AccessRights = AccessRights(READ_DIR);
    pub(crate) const READ: AccessRights = AccessRights(EXECUTE | READ_FILE | READ_DIR);
    /// All rights that ordinary work needs, without devices. Creating sockets is included: copying a directory may copy
    /// a placeholder, and no process can listen on it.
    pub(crate) const WRITE: AccessRights = AccessRights(
        AccessRights::READ.0
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
    /// Files of one directory, without creating or removing directories.
    pub(crate) const WRITE_FLAT: AccessRights =
        AccessRights(AccessRights::WRITE.0 & !(REMOVE_DIR | MAKE_DIR | REFER));
    /// A device: read, write and ioctl.
    pub(crate) const DEVICE: AccessRights =
        AccessRights(READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV);
    /// The rights that apply to a file; the kernel rejects the others for it.
    const FILE_RIGHTS: u64 = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;

    #[must_use]
    pub(in crate::sandbox) fn with(self, other: AccessRights) -> AccessRights {
        AccessRights(self.0 | other.0)
    }

    pub(in crate::sandbox) fn contains(self, other: AccessRights) -> bool {
        self.0 & other.0 == other.0
    }

    pub(in crate::sandbox) fn bits(self) -> u64 {
        self.0
    }

    pub(in crate::sandbox) fn from_bits(bits: u64) -> AccessRights {
        AccessRights(bits)
    }
}

#[cfg(target_os = "linux")]
/// Returns the rights that the domain handles, by ABI.
fn handled_rights(abi: u32) -> u64 {
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
/// Which restrictions a domain includes.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct LandlockOptions {
    pub(in crate::sandbox) files: bool,
    pub(in crate::sandbox) tcp: bool,
    pub(in crate::sandbox) scope: bool,
}

#[cfg(target_os = "linux")]
#[repr(C)]
struct RulesetAttributes {
    handled_files: u64,
    handled_net: u64,
    scoped: u64,
}

#[cfg(target_os = "linux")]
#[repr(C, packed)]
struct PathRuleAttributes {
    allowed: u64,
    parent: i32,
}

#[cfg(target_os = "linux")]
const VERSION_FLAG: u32 = 1;
#[cfg(target_os = "linux")]
const RULE_PATH_BENEATH: u32 = 1;
#[cfg(target_os = "linux")]
const NET_BIND_CONNECT: u64 = 0b11;
#[cfg(target_os = "linux")]
const SCOPE_ABSTRACT_SIGNAL: u64 = 0b11;

#[cfg(target_os = "linux")]
/// Returns the ABI of this kernel; 0 without Landlock.
pub(crate) fn abi_version() -> u32 {
    // SAFETY: with this flag the kernel reads no structure.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<c_void>(), 0_usize, VERSION_FLAG)
    };
    u32::try_from(version).unwrap_or(0)
}

#[cfg(target_os = "linux")]
/// Restricts this process and its descendants to these rules. Requires `no_new_privs`.
pub(in crate::sandbox) fn restrict_self(
    rules: &[(PathBuf, AccessRights)],
    options: LandlockOptions,
) -> io::Result<()> {
    let abi = abi_version();
    let ruleset = RulesetAttributes {
        handled_files: if options.files { handled_rights(abi) } else { 0 },
        handled_net: if options.tcp && abi >= 4 { NET_BIND_CONNECT } else { 0 },
        scoped: if options.scope && abi >= 6 { SCOPE_ABSTRACT_SIGNAL } else { 0 },
    };
    if ruleset.handled_files | ruleset.handled_net | ruleset.scoped == 0 {
        return Ok(());
    }
    // An older kernel accepts a larger structure if the unknown rest is zero, which it is there.
    // SAFETY: the structure is the kernel's, initialised, and its size is given.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            std::mem::size_of::<RulesetAttributes>(),
            0_u32,
        )
    };
    let domain = match i32::try_from(made) {
        // SAFETY: the descriptor is new and has no other owner.
        Ok(fd) if fd >= 0 => unsafe { OwnedFd::from_raw_fd(fd) },
        _ => return Err(io::Error::last_os_error()),
    };
    if options.files {
        for (path, rights) in rules {
            add_path_rule(&domain, path, AccessRights(rights.0 & ruleset.handled_files))
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
/// Adds rights below one path. A missing path needs none.
fn add_path_rule(domain: &OwnedFd, path: &Path, rights: AccessRights) -> io::Result<()> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let parent = match opened {
        Ok(parent) => parent,
        // The path is missing, or this process cannot reach it either.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&parent)?.st_mode);
    let allowed = if kind == FileType::Directory { rights.0 } else { rights.0 & AccessRights::FILE_RIGHTS };
    if allowed == 0 {
        return Ok(());
    }
    let rule = PathRuleAttributes { allowed, parent: parent.as_fd().as_raw_fd() };
    // SAFETY: the structure has the kernel's packed layout, and the descriptor in it is open.
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
