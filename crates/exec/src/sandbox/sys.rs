//! System calls of the helper without a safe wrapper: fork, exec, signals.
//!
//! Here: minimal wrappers. The helper has one thread from start to exit, which makes forking and allocating afterwards
//! sound.

#![expect(unsafe_code, reason = "fork, exec and signals have no safe form; each is wrapped here, once")]

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::io;

/// The result of `fork`.
pub(super) enum ForkResult {
    Child,
    Parent(i32),
}

/// Forks the single-threaded helper.
pub(super) fn fork_process() -> io::Result<ForkResult> {
    // SAFETY: this process has one thread, so no other thread holds a lock of the allocator or of libc.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent(pid)),
    }
}

/// Exits this process without running destructors: a forked copy must not flush or unwind its parent's state.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Executes another program. Returns only on failure.
pub(super) fn exec_path(path: &CStr, argv: &[CString], environment: &[CString]) -> io::Result<Infallible> {
    let list = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, environment) = (list(argv), list(environment));
    // SAFETY: both lists end with a null pointer, and the strings they point into outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// Resets signals for a new program: none blocked, all with their default action.
pub(super) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: the default disposition runs no code of this process. Signal numbers that do not exist or cannot be
        // changed are rejected, which is fine. On Linux the kernel is called directly, with a zeroed structure of its
        // own size: libc reserves two signals, which the parent may have left ignored.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, [0_u64; 4].as_ptr(), std::ptr::null::<u64>(), 8)
        };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: as above.
        unsafe {
            libc::signal(signal, libc::SIG_DFL)
        };
    }
    // SAFETY: the set is initialised by `sigemptyset` before it is read.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Blocks every signal: the helper learns of exits by descriptor and must not be ended by a terminal. Where a signal
/// handler feeds the descriptor, that one signal stays unblocked.
pub(super) fn block_signals() {
    // SAFETY: the set is initialised by `sigfillset` before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if cfg!(not(target_os = "linux")) {
            libc::sigdelset(&raw mut all, libc::SIGCHLD);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Returns a descriptor that becomes readable when a child exits. Signals must be blocked.
#[cfg(target_os = "linux")]
pub(super) fn child_exit_fd() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: the set is initialised before it is read; the descriptor is new and ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Returns a descriptor that becomes readable when a child exits.
#[cfg(not(target_os = "linux"))]
pub(super) fn child_exit_fd() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::sync::atomic::{AtomicI32, Ordering};
    static EXIT_PIPE: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn notify_exit(_signal: i32) {
        // SAFETY: `write` may be called in a signal handler; the descriptor is never closed.
        unsafe { libc::write(EXIT_PIPE.load(Ordering::Relaxed), [0_u8].as_ptr().cast(), 1) };
    }
    let (read, write) = rustix::pipe::pipe()?;
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(end, true)?;
    }
    EXIT_PIPE.store(write.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler only writes one byte.
    unsafe { libc::signal(libc::SIGCHLD, tell as *const () as libc::sighandler_t) };
    let _kept = read.as_raw_fd();
    Ok(read)
}

/// Closes every descriptor from `first` on, for a process that has not opened any of them itself.
#[cfg(target_os = "linux")]
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: nothing in this process owns a descriptor yet except the three standard ones.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets close-on-exec on every descriptor from `first` on.
#[cfg(target_os = "linux")]
pub(super) fn close_from_on_exec(first: u32) -> io::Result<()> {
    // SAFETY: only flags of descriptors change.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lowers limits of this process; lower limits stay unchanged.
pub(super) fn set_limits(limits: &[(u32, u64)]) -> io::Result<()> {
    for (resource, limit) in limits {
        // SAFETY: the structure is ours and initialised; the kernel rejects unknown resources.
        let done = unsafe {
            let mut now: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(*resource as _, &raw mut now) != 0 {
                return Err(io::Error::last_os_error());
            }
            let limit = (*limit).min(now.rlim_max);
            let lowered = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            libc::setrlimit(*resource as _, &raw const lowered)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Forks into new namespaces. The child has no other threads, because the parent has none.
#[cfg(target_os = "linux")]
pub(super) fn clone_namespaces(flags: i32) -> io::Result<ForkResult> {
    let flags = libc::c_ulong::try_from(flags | libc::SIGCHLD).map_err(io::Error::other)?;
    // SAFETY: without a new stack and without shared memory this is `fork`; the process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match i32::try_from(pid) {
        Ok(0) => Ok(ForkResult::Child),
        Ok(pid) if pid > 0 => Ok(ForkResult::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves this process to a copy of the current mount namespace.
#[cfg(target_os = "linux")]
pub(super) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: the process has one thread and shares no state that would be split.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attributes of a mount.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
pub(super) struct MountAttributes(u64);

#[cfg(target_os = "linux")]
impl MountAttributes {
    pub(super) const READ_ONLY: MountAttributes = MountAttributes(libc::MOUNT_ATTR_RDONLY);
    pub(super) const NO_SUID: MountAttributes = MountAttributes(libc::MOUNT_ATTR_NOSUID);
    pub(super) const NO_DEVICES: MountAttributes = MountAttributes(libc::MOUNT_ATTR_NODEV);
}

#[cfg(target_os = "linux")]
impl std::ops::BitOr for MountAttributes {
    type Output = MountAttributes;
    fn bitor(self, other: MountAttributes) -> MountAttributes {
        MountAttributes(self.0 | other.0)
    }
}

#[cfg(target_os = "linux")]
impl std::ops::BitOrAssign for MountAttributes {
    fn bitor_assign(&mut self, other: MountAttributes) {
        *self = *self | other;
    }
}

/// Sets attributes of a mount, and of everything mounted below it.
#[cfg(target_os = "linux")]
pub(super) fn set_mount_attributes(
    mount: std::os::fd::BorrowedFd<'_>,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let set = libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is empty, the structure is the kernel's and its size is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const set,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops all capabilities, including those that a later exec could add.
#[cfg(target_os = "linux")]
pub(super) fn drop_capabilities() -> io::Result<()> {
    // The kernel reports an error beyond the last capability.
    for capability in 0..64 {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL) => break,
                // An ordinary user has no capabilities to drop, and `no_new_privs` prevents new ones.
                Some(libc::EPERM) => break,
                _ => return Err(error),
            }
        }
    }
    // SAFETY: the call takes numbers only; kernels without ambient capabilities reject it, and have none.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    // Version 3 of the interface: this process, and two sets of three words that are zero.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none: [u32; 6] = [0; 6];
    // SAFETY: both structures have the layout that this version of the interface names.
    match unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Brings up the loopback device of a new network namespace.
#[cfg(target_os = "linux")]
pub(super) fn bring_loopback_up() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: the structure is zeroed, which is valid for it; the name fits and ends with a NUL; the kernel reads and
    // writes only within it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
            *to = *from as libc::c_char;
        }
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Duplicates a descriptor to a fixed number, without close-on-exec.
#[cfg(target_os = "linux")]
pub(super) fn dup_inheritable(fd: i32, number: i32) -> io::Result<()> {
    // SAFETY: the caller owns nothing under that number.
    if unsafe { libc::dup2(fd, number) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes ownership of an inherited descriptor with a fixed number.
#[cfg(target_os = "linux")]
pub(super) fn take_descriptor(number: i32) -> Result<std::os::fd::OwnedFd, super::helper::HelperError> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: the call takes numbers only, and fails if nothing is open there.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        let error = io::Error::last_os_error();
        return Err(super::helper::HelperError::SetupFailed(format!("taking descriptor {number}: {error}")));
    }
    // SAFETY: the descriptor is open, was inherited for this purpose, and has no other owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
