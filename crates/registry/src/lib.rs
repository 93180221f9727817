//! Registry: who is alive.
//!
//! Here: where things lie on this machine (`paths`), the runtime directory with one directory and one scope lease per
//! live pod (`runtime`, `lease`), what a pod says of itself there (`status`), and sockets whose path is too long
//! (`socket`). Scopes, loans and tickets join the rows here later; session leases are in `session`.
//! Invariant: liveness is a kernel lock, never a pid (`a_killed_pod_is_not_shown_and_its_name_is_free`).

mod error;
mod files;
mod lease;
mod paths;
mod runtime;
mod socket;
mod status;
mod table;

pub use error::{PathsError, RegistryError};
pub use lease::{OwnDirs, Row, ScopeLease};
pub use paths::{Paths, Surroundings};
pub use runtime::{Live, Look, Reclaimed, Runtime};
pub use socket::{SOCKET_PATH_BYTES, SocketPath};
pub use status::{PodStatus, StatusWaiting};
pub use table::{Loan, Table, TableLimits};
