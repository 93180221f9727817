//! Resource limits of one command, and the timeout of its start.
//!
//! Here: numbers with their reasons. Elsewhere: timeouts and output limits (`command`), the scope (`sandbox`).

use std::time::Duration;

/// The timeout until a helper has executed its command. It takes milliseconds; a slower machine gets an error instead
/// of a hang.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(20);

/// The longest error text that is read from a helper.
pub(crate) const MAX_FAILURE_BYTES: usize = 4096;

/// The largest file that one command may write, so that a runaway log does not fill the disk.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// The most processes and threads of one command, where the kernel counts them by sandbox. Stops a fork bomb.
const MAX_PROCESSES: u64 = 4096;
/// The most open files of one process. Above the usual 1,024, because builds link many files. A higher limit would slow
/// down programs that close every possible descriptor.
const MAX_OPEN_FILES: u64 = 16_384;

/// Resource limits of one command. `None` keeps the limit of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLimits {
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
    /// Processes and threads. Applies to the namespaces and bubblewrap backends only: elsewhere the kernel counts all
    /// processes of the user.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Address space of one process. Off by default: Go, Java, Node and sanitizers reserve far more than they use.
    pub address_space: Option<u64>,
    /// Seconds of CPU time of one process. Off by default, because commands have a timeout.
    pub cpu_seconds: Option<u64>,
}

impl Default for CommandLimits {
    fn default() -> CommandLimits {
        CommandLimits {
            file_bytes: Some(MAX_FILE_BYTES),
            processes: Some(MAX_PROCESSES),
            open_files: Some(MAX_OPEN_FILES),
            address_space: None,
            cpu_seconds: None,
        }
    }
}
