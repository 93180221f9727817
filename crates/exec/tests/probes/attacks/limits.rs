//! Limits of one command: files, descriptors and processes. The stage makes them small.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::attacker::{AttackContext, exit_now, fork_process};
use crate::probe::{
    DocumentedGap, ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction, UnsandboxedResult,
    attack_probe, outcome_of,
};
use crate::sys::sys;

/// The limits of the stage [`Stage::Small`].
pub(crate) const FILE_BYTES: u64 = 1 << 20;
pub(crate) const OPEN_FILES: u64 = 64;
pub(crate) const PROCESSES: u64 = 64;
/// What the probes try to exceed the limits with.
const MORE_FILES: u64 = 400;
/// More than the limit plus the process ids that a pid namespace reserves.
const MORE_PROCESSES: usize = 400;

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("huge-file", "pwrite64", TestedRestriction::Limits, |g| {
        outcome_of(fs::File::create(g.own_path("huge")).and_then(|file| file.write_at(b"x", FILE_BYTES * 2)))
    })
    .in_stage(ProbeStage::Small),
    attack_probe("huge-file-truncate", "ftruncate", TestedRestriction::Limits, |g| {
        outcome_of(fs::File::create(g.own_path("huge")).and_then(|file| file.set_len(FILE_BYTES * 2)))
    })
    .in_stage(ProbeStage::Small),
    attack_probe("many-descriptors", "openat", TestedRestriction::Limits, |_| {
        let opened: Result<Vec<fs::File>, _> =
            (0..MORE_FILES / 2).map(|_| fs::File::open("/dev/null")).collect();
        match opened {
            Ok(_) => ProbeOutcome::Succeeded("opened".to_owned()),
            Err(error) => ProbeOutcome::Stopped(error.to_string()),
        }
    })
    .in_stage(ProbeStage::Small),
    attack_probe("raise-limit", "prlimit64", TestedRestriction::Limits, |_| {
        let more = [MORE_FILES, MORE_FILES];
        outcome_of(sys!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, more.as_ptr(), 0))
    })
    .in_stage(ProbeStage::Small),
    attack_probe("core-file", "prlimit64 RLIMIT_CORE", TestedRestriction::Limits, |_| {
        let some = [4096u64, 4096];
        outcome_of(sys!(SYS_prlimit64, 0, libc::RLIMIT_CORE, some.as_ptr(), 0))
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("fork-bomb", "clone", TestedRestriction::Limits, fork_bomb)
        .in_stage(ProbeStage::Small)
        .left_by_landlock(DocumentedGap::Processes)
        .run_alone(),
];

/// Forks many children; each waits to be killed.
fn fork_bomb(_: &AttackContext) -> ProbeOutcome {
    let mut children = Vec::new();
    let mut end = None;
    while children.len() < MORE_PROCESSES && end.is_none() {
        match fork_process() {
            Ok(None) => {
                std::thread::sleep(std::time::Duration::from_secs(5));
                exit_now();
            }
            Ok(Some(child)) => children.push(child),
            Err(error) => end = Some(error),
        }
    }
    for child in &children {
        let _ = sys!(SYS_kill, *child, libc::SIGKILL);
    }
    for child in &children {
        crate::attacker::wait_for_child(*child);
    }
    match end {
        Some(error) => {
            ProbeOutcome::Stopped(format!("{} after {}", crate::sys::error_name(&error), children.len()))
        }
        None => ProbeOutcome::Succeeded(format!("{MORE_PROCESSES} processes")),
    }
}
