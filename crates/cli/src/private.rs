//! What this process holds in memory stays there: keys are among it.
//!
//! Here: no core files, and on Linux no look from outside either (`/proc/PID/mem`, `/proc/PID/environ`, debuggers).
//! Invariant: every process of ours is so from its first moment on (`no_process_of_ours_leaves_a_core_file`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Exit, Failure};

/// From here on a crash leaves no image of the memory. Only the soft limit is lowered: what tools start may raise it
/// again for themselves.
pub(crate) fn keep_memory_private() -> Result<(), Failure> {
    let failed = |e| Failure::new(Exit::Failed, "cannot forbid core files, which would hold keys").why(e);
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit }).map_err(failed)?;
    // The limit does not bind a system that hands its core files to a program; this does.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(failed)?;
    Ok(())
}
