//! System calls as the attacks make them: by number, past the C library, so that what a probe names is what it does.
//!
//! Here: one raw call, its arguments, and errors in short words. Elsewhere: which call is made and why (`attacks`).

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One word that a system call takes.
pub(crate) trait Arg {
    fn word(&self) -> libc::c_long;
}

macro_rules! words {
    ($($t:ty),*) => {
        $(impl Arg for $t {
            fn word(&self) -> libc::c_long {
                *self as libc::c_long
            }
        })*
    };
}
words!(i32, u32, i64, u64, usize, isize);

impl Arg for CString {
    fn word(&self) -> libc::c_long {
        self.as_ptr() as libc::c_long
    }
}

impl Arg for &CStr {
    fn word(&self) -> libc::c_long {
        self.as_ptr() as libc::c_long
    }
}

impl<T> Arg for *const T {
    fn word(&self) -> libc::c_long {
        *self as libc::c_long
    }
}

impl<T> Arg for *mut T {
    fn word(&self) -> libc::c_long {
        *self as libc::c_long
    }
}

/// Makes a system call with up to six words. Every attack goes through here, so this is the one unsafe place of the
/// probes that talk to the kernel.
pub(crate) fn call(number: libc::c_long, words: &[libc::c_long]) -> io::Result<libc::c_long> {
    let mut six = [0; 6];
    six[..words.len()].copy_from_slice(words);
    // SAFETY: the kernel checks every pointer it is given. What it writes to are buffers of the calling attack, which
    // outlive the call and are at least as long as the length passed with them.
    let answer = unsafe { libc::syscall(number, six[0], six[1], six[2], six[3], six[4], six[5]) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// `sys!(SYS_kill, pid, 0)`
macro_rules! sys {
    ($name:ident $(, $arg:expr)* $(,)?) => {
        $crate::sys::call(libc::$name, &[$($crate::sys::Arg::word(&$arg)),*])
    };
}
pub(crate) use sys;

/// A path for the kernel.
pub(crate) fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("the paths of the probes hold no NUL")
}

/// The short name of an error, for a cell of the table.
pub(crate) fn short(error: &io::Error) -> String {
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

/// Takes the descriptor that a call answered.
pub(crate) fn own(answer: libc::c_long) -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the number was answered just now by a call that makes a descriptor, and nobody else has it.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(answer as i32) }
}
