//! The attacks, one list per target. A new probe is one entry in a list.

mod controls;
mod documented;
mod files;
mod git_targets;
mod kernel;
mod limits;
mod masked;
mod mounts;
mod names;
mod paths;
mod processes;
mod programs;
mod scope;
mod set_id;
mod sockets;

pub(crate) use limits::{FILE_BYTES, OPEN_FILES, PROCESSES};
pub(crate) use processes::{DAEMON_LOCKS, SIGNALS};
pub(crate) use set_id::SET_ID;

use crate::probe::SandboxProbe;

/// Returns all probes. Controls come first, before attacks can cause damage.
pub(crate) fn all_probes() -> Vec<SandboxProbe> {
    [
        controls::PROBES,
        files::PROBES,
        paths::PROBES,
        programs::PROBES,
        scope::PROBES,
        masked::PROBES,
        names::PROBES,
        git_targets::PROBES,
        processes::PROBES,
        sockets::PROBES,
        mounts::PROBES,
        kernel::PROBES,
        set_id::PROBES,
        limits::PROBES,
        documented::PROBES,
    ]
    .concat()
}
