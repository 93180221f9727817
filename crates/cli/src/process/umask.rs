//! The umask: files of Minke are private, and files that it writes for the user follow the user's umask.
//!
//! Here: setting it, first in `main`, and passing the user's umask on to child processes. Elsewhere: commands
//! and files of a workspace, which use the user's umask (`driver`).
//! Invariant: other users cannot read a file of Minke (`what_minke_writes_is_its_users_alone`).

use rustix::fs::Mode;

/// Passes the user's umask to child processes.
const UMASK_VARIABLE: &str = "MINKE_UMASK";
const PRIVATE_UMASK: u32 = 0o077;

/// Makes every new file private.
#[expect(unsafe_code, reason = "the environment is the one thing that every process of ours hands on")]
#[cfg_attr(target_os = "linux", expect(clippy::useless_conversion, reason = "narrower on macOS"))]
pub(crate) fn make_files_private() {
    let private = Mode::from_raw_mode(PRIVATE_UMASK as rustix::fs::RawMode);
    let found = u32::from(rustix::process::umask(private).as_raw_mode());
    let inherited = std::env::var(UMASK_VARIABLE).ok().and_then(|told| u32::from_str_radix(&told, 8).ok());
    // A different current umask was set by the user since and wins.
    let user_umask = inherited.filter(|_| found == PRIVATE_UMASK).unwrap_or(found) & 0o777;
    // SAFETY: called first in `main`, when there is one thread.
    unsafe { std::env::set_var(UMASK_VARIABLE, format!("{user_umask:03o}")) };
    minke_driver::apply_umask(user_umask);
}
