//! Store-postgres: sessions in PostgreSQL, for hosts on several machines.
//!
//! The log is the same, byte for byte; only where its lines lie is another thing. Here: the disk of the log on tables,
//! leases with fences, claims of jobs. Elsewhere: what a log is and how it is opened, verified, repaired and forked
//! (`session`, the same code for both stores).
//! Promise: a session has one writer, whatever the network does, and nothing acknowledged is lost
//! (`an_overtaken_writer_writes_nothing`, `a_server_that_dies_again_and_again_loses_nothing_that_was_synced`).

mod chosen;
mod content;
mod disk;
mod link;
mod locks;
mod logfile;
mod names;
mod queries;
mod schema;
mod settings;
mod store;
mod tls;

pub use chosen::{ADDRESS, Chosen};
pub use settings::{Settings, SettingsError};
pub use store::PostgresStore;
