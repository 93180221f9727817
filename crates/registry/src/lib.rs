//! Registry: who is alive.
//!
//! Here: where things lie on this machine (`paths`); the runtime directory with one directory and one scope lease per
//! live pod (`runtime`, `opened`, `look`, `lease`, `leaving`, `graves`); the scope table, who holds what and who has lent it to whom (`table`, pure;
//! `ledger` and `shelf`, its files; `grant`, what is lent, opened; `ticket`, how a child gets its row; `watch`, seeing a pod end); what a pod says of
//! itself (`status`); and sockets whose path is too long (`socket`). Session leases are in `session`.
//! Invariant: liveness is a kernel lock, never a pid (`a_killed_pod_is_not_shown_and_its_name_is_free`).

#[cfg(test)]
mod cuts;
mod error;
#[cfg(test)]
mod exhaustive;
mod files;
pub mod grant;
mod graves;
mod lease;
mod leaving;
mod ledger;
mod look;
mod opened;
mod paths;
mod runtime;
mod shelf;
mod socket;
mod status;
mod table;
mod ticket;
mod watch;

pub use error::{PathsError, RegistryError};
pub use lease::{OwnDirs, Row, ScopeLease};
pub use look::{Live, Look, Reclaimed};
pub use paths::{Paths, Surroundings};
pub use runtime::Runtime;
pub use socket::{SOCKET_PATH_BYTES, SocketPath};
pub use status::{PodStatus, StatusWaiting, Tally};
pub use table::{Lend, Loan, Table, TableLimits};
pub use ticket::Ticket;
pub use watch::Watch;
