//! Protects the memory of this process, which contains keys.
//!
//! Here: disables core dumps and, on Linux, access through `/proc/PID/mem`, `/proc/PID/environ` and
//! debuggers.
//! Invariant: this applies to every Minke process from its start (`no_process_of_ours_leaves_a_core_file`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{CliError, ExitKind};

/// Disables core dumps. Lowers only the soft limit, so that tools may raise it again for themselves.
pub(crate) fn protect_memory() -> Result<(), CliError> {
    let failed = |e| {
        CliError::new(ExitKind::Failed, "could not disable core dumps, which would contain keys")
            .with_reason(e)
    };
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit }).map_err(failed)?;
    // The limit does not apply where the system pipes core dumps to a program; this does.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(failed)?;
    Ok(())
}
