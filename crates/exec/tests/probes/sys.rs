//! System calls by number, without the C library, so that a probe makes exactly the call that it names.
//!
//! Here: the raw call, its arguments, short error names. Elsewhere: which calls are made and why (`attacks`).

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An argument of a system call.
pub(crate) trait SyscallArgument {
    fn to_word(&self) -> libc::c_long;
}

macro_rules! words {
    ($($t:ty),*) => {
        $(impl SyscallArgument for $t {
            fn to_word(&self) -> libc::c_long {
                *self as libc::c_long
            }
        })*
    };
}
words!(i32, u32, i64, u64, usize, isize);

impl SyscallArgument for CString {
    fn to_word(&self) -> libc::c_long {
        self.as_ptr() as libc::c_long
    }
}

impl SyscallArgument for &CStr {
    fn to_word(&self) -> libc::c_long {
        self.as_ptr() as libc::c_long
    }
}

impl<T> SyscallArgument for *const T {
    fn to_word(&self) -> libc::c_long {
        *self as libc::c_long
    }
}

impl<T> SyscallArgument for *mut T {
    fn to_word(&self) -> libc::c_long {
        *self as libc::c_long
    }
}

/// Makes a system call with up to six arguments. Every attack uses it, so this is the only unsafe code of the probes
/// that enters the kernel.
pub(crate) fn raw_syscall(number: libc::c_long, words: &[libc::c_long]) -> io::Result<libc::c_long> {
    let mut six = [0; 6];
    six[..words.len()].copy_from_slice(words);
    // SAFETY: the kernel checks every pointer that it gets. It writes only to buffers of the calling attack, which
    // outlive the call and are at least as long as the length passed with them.
    let answer = unsafe { libc::syscall(number, six[0], six[1], six[2], six[3], six[4], six[5]) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// `sys!(SYS_kill, pid, 0)`
macro_rules! sys {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        $crate::sys::raw_syscall(libc::$name, &[$($crate::sys::SyscallArgument::to_word(&$arg)),*])
    };
}
pub(crate) use sys;

/// Converts a path for the kernel.
pub(crate) fn to_c_string(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("the paths of the probes contain no NUL")
}

/// Returns the short name of an error, for a cell of the table.
pub(crate) fn error_name(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::EACCES) => "EACCES",
        Some(libc::EROFS) => "EROFS",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EXDEV) => "EXDEV",
        Some(libc::EBUSY) => "EBUSY",
        Some(libc::ESRCH) => "ESRCH",
        Some(libc::EBADF) => "EBADF",
        Some(libc::EAFNOSUPPORT) => "EAFNOSUPPORT",
        Some(libc::ENXIO) => "ENXIO",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::ENOTDIR) => "ENOTDIR",
        Some(libc::ELOOP) => "ELOOP",
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::ENETUNREACH) => "ENETUNREACH",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EIO) => "EIO",
        Some(libc::EFBIG) => "EFBIG",
        Some(libc::ENODEV) => "ENODEV",
        _ => return error.to_string(),
    };
    name.to_owned()
}

/// Takes ownership of a descriptor that a call returned.
pub(crate) fn own_descriptor(answer: libc::c_long) -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: a call that creates a descriptor has just returned the number, and it has no other owner.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(answer as i32) }
}
