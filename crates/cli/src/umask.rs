//! The umask: what Minke makes for itself is its user's alone, and what it makes for the user is as the user has set it.
//!
//! Here: closing it, first thing in `main`, and handing the user's own on to the processes that this one starts. Elsewhere:
//! commands and files of a workspace, which get it back (`driver`).
//! Invariant: no file of ours can be read by another user (`what_minke_writes_is_its_users_alone`).

use rustix::fs::Mode;

/// Under this name a process of ours tells those that it starts what the user's umask was.
const VARIABLE: &str = "MINKE_UMASK";
const PRIVATE: u32 = 0o077;

/// Makes every file from here on private.
#[expect(unsafe_code, reason = "the environment is the one thing that every process of ours hands on")]
#[cfg_attr(target_os = "linux", expect(clippy::useless_conversion, reason = "narrower on macOS"))]
pub(crate) fn close() {
    let private = Mode::from_raw_mode(PRIVATE as rustix::fs::RawMode);
    let found = u32::from(rustix::process::umask(private).as_raw_mode());
    let told = std::env::var(VARIABLE).ok().and_then(|told| u32::from_str_radix(&told, 8).ok());
    // A user who has set another umask since then means that one.
    let users = told.filter(|_| found == PRIVATE).unwrap_or(found) & 0o777;
    // SAFETY: called first thing in `main`, where there is one thread.
    unsafe { std::env::set_var(VARIABLE, format!("{users:03o}")) };
    minke_driver::work_under(users);
}
