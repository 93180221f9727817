//! Store-postgres: sessions in PostgreSQL, for hosts on several machines.
//!
//! The log is the same, byte for byte; only its storage differs. Here: the disk interface on tables, leases with
//! fencing tokens, claims of jobs. Elsewhere: the log, and opening, verifying, repairing and forking it (`session`,
//! shared by both stores).
//! Guarantee: a session has one writer under all network failures, and no acknowledged entry is lost
//! (`an_overtaken_writer_writes_nothing`, `a_server_that_dies_again_and_again_loses_nothing_that_was_synced`).

mod disk;
mod locks;
mod log_file;
mod path_names;
mod queries;
mod row_file;
mod schema;
mod server_link;
mod settings;
mod store;
mod store_choice;
mod tls;

pub use settings::{PostgresSettings, SettingsError};
pub use store::PostgresStore;
pub use store_choice::{ADDRESS_ENV, StoreChoice};
