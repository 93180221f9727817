//! Limits: files, descriptors and processes of one command. The stage makes them small.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::inside::{Ground, fork, leave};
use crate::probe::{Bare, Probe, Rest, Seen, Stage, Wall, probe, tried};
use crate::sys::sys;

/// The limits of the stage [`Stage::Small`].
pub(crate) const FILE_BYTES: u64 = 1 << 20;
pub(crate) const OPEN_FILES: u64 = 64;
pub(crate) const PROCESSES: u64 = 64;
/// What the probes try to have instead.
const MORE_FILES: u64 = 400;
/// More than the limit and the numbers that a pid namespace gives out once.
const MORE_PROCESSES: usize = 400;

pub(super) const PROBES: &[Probe] = &[
    probe("huge-file", "pwrite64", Wall::Limits, |g| {
        tried(fs::File::create(g.own("huge")).and_then(|file| file.write_at(b"x", FILE_BYTES * 2)))
    })
    .on(Stage::Small),
    probe("huge-file-truncate", "ftruncate", Wall::Limits, |g| {
        tried(fs::File::create(g.own("huge")).and_then(|file| file.set_len(FILE_BYTES * 2)))
    })
    .on(Stage::Small),
    probe("many-descriptors", "openat", Wall::Limits, |_| {
        let opened: Result<Vec<fs::File>, _> =
            (0..MORE_FILES / 2).map(|_| fs::File::open("/dev/null")).collect();
        match opened {
            Ok(_) => Seen::Done("opened".to_owned()),
            Err(error) => Seen::Held(error.to_string()),
        }
    })
    .on(Stage::Small),
    probe("raise-limit", "prlimit64", Wall::Limits, |_| {
        let more = [MORE_FILES, MORE_FILES];
        tried(sys!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, more.as_ptr(), 0))
    })
    .on(Stage::Small),
    probe("core-file", "prlimit64 RLIMIT_CORE", Wall::Limits, |_| {
        let some = [4096u64, 4096];
        tried(sys!(SYS_prlimit64, 0, libc::RLIMIT_CORE, some.as_ptr(), 0))
    })
    .bare(Bare::IfOffered),
    probe("fork-bomb", "clone", Wall::Limits, bomb).on(Stage::Small).left_by_b(Rest::Processes).alone(),
];

/// Many children at once; each waits to be ended.
fn bomb(_: &Ground) -> Seen {
    let mut children = Vec::new();
    let mut end = None;
    while children.len() < MORE_PROCESSES && end.is_none() {
        match fork() {
            Ok(None) => {
                std::thread::sleep(std::time::Duration::from_secs(5));
                leave();
            }
            Ok(Some(child)) => children.push(child),
            Err(error) => end = Some(error),
        }
    }
    for child in &children {
        let _ = sys!(SYS_kill, *child, libc::SIGKILL);
    }
    for child in &children {
        crate::inside::wait(*child);
    }
    match end {
        Some(error) => Seen::Held(format!("{} after {}", crate::sys::short(&error), children.len())),
        None => Seen::Done(format!("{MORE_PROCESSES} processes")),
    }
}
