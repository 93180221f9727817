//! Registry: tracks live pods and their scopes.
//!
//! Here: the user's directories (`paths`); the runtime directory with one directory and one scope lease per live pod
//! (`runtime_dir`, `locked_table`, `snapshot`, `lease`, `release`, `liveness`); the scope table with all scopes and
//! loans (`table`, pure; `table_store` and `table_files`, its storage; `grant`, opened lent paths; `ticket`, by which a
//! child gets its row; `watch`, waiting for the end of a pod); the published status of a pod (`status`); and sockets
//! with long paths (`socket`). Session leases are in `session`.
//! Invariant: liveness is a kernel lock, never a pid (`a_killed_pod_is_not_shown_and_its_name_is_free`).

#[cfg(test)]
mod cuts;
mod error;
#[cfg(test)]
mod exhaustive;
mod files;
pub mod grant;
mod lease;
mod liveness;
mod locked_table;
mod paths;
mod release;
mod runtime_dir;
mod snapshot;
mod socket;
mod status;
mod table;
mod table_files;
mod table_store;
mod ticket;
mod watch;

pub use error::{PathsError, RegistryError};
pub use lease::{PodOwnDirs, ScopeLease, ScopeRow};
pub use paths::{ProcessEnv, UserPaths};
pub use runtime_dir::RuntimeDir;
pub use snapshot::{LivePod, ReclaimedPod, RegistrySnapshot};
pub use socket::{MAX_SOCKET_PATH_BYTES, SocketPath};
pub use status::{LogTotals, PendingReasons, PodStatus};
pub use table::{LoanRequest, PodLimits, ScopeLoan, ScopeTable};
pub use ticket::ScopeTicket;
pub use watch::PodWatch;
