//! Kernel mechanisms of the backends.

#[cfg(target_os = "linux")]
pub(super) mod bubblewrap;
pub(super) mod landlock;
#[cfg(target_os = "linux")]
pub(super) mod mounts;
#[cfg(target_os = "linux")]
pub(super) mod seccomp;
