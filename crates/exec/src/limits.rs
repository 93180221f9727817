//! Limits of exec: what one command may use of the machine, and how long its fence may take to stand.
//!
//! Here: numbers with their reasons. Elsewhere: time-outs and caps of output (`command`), the scope (`fence`).

use std::time::Duration;

/// How long a helper may take until its command runs. It takes milliseconds; a machine that is this far behind is told
/// so instead of being waited for.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(20);

/// Longest text of a failed start that is read from a helper.
pub(crate) const FAILURE_BYTES: usize = 4096;

/// Largest file that one command may write: a run-away log fills no disk.
const FILE_BYTES: u64 = 16 << 30;
/// Processes and threads of one command where the kernel counts them by fence: a fork bomb ends here.
const PROCESSES: u64 = 4096;
/// Open files of one process. Above the usual 1,024, since builds link many; below what makes programs that close every
/// possible descriptor slow.
const OPEN_FILES: u64 = 16_384;

/// Resource limits of one command. `None` leaves what the pod itself has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
    /// Processes and threads. Held in tiers A and A′ only: elsewhere the kernel counts all processes of the user.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Address space of one process. Off by default: Go, Java, Node and sanitizers reserve far more than they use.
    pub address_space: Option<u64>,
    /// Seconds of processor time of one process. Off by default: commands have a time-out of their own.
    pub cpu_seconds: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_bytes: Some(FILE_BYTES),
            processes: Some(PROCESSES),
            open_files: Some(OPEN_FILES),
            address_space: None,
            cpu_seconds: None,
        }
    }
}
