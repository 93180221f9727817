//! The attacks, by what they are after. One list each; a new probe is one entry in one of them.

mod controls;
mod files;
mod kernel;
mod led;
mod limits;
mod masked;
mod mounts;
mod names;
mod open;
mod paths;
mod processes;
mod programs;
mod scope;
mod set_id;
mod sockets;

pub(crate) use limits::{FILE_BYTES, OPEN_FILES, PROCESSES};
pub(crate) use processes::{LOCKS, SIGNALS};
pub(crate) use set_id::SET_ID;

use crate::probe::Probe;

/// Every probe, what must work first, while nothing has been harmed yet.
pub(crate) fn all() -> Vec<Probe> {
    [
        controls::PROBES,
        files::PROBES,
        paths::PROBES,
        programs::PROBES,
        scope::PROBES,
        masked::PROBES,
        names::PROBES,
        led::PROBES,
        processes::PROBES,
        sockets::PROBES,
        mounts::PROBES,
        kernel::PROBES,
        set_id::PROBES,
        limits::PROBES,
        open::PROBES,
    ]
    .concat()
}
