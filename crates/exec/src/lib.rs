//! Exec: runs processes in a sandbox, collects their output, and ends their whole process tree.
//!
//! Here: the sandbox compiled from a scope (`sandbox`), commands and their output (`command`), clones of a workspace
//! (`clone`).
//! Elsewhere: which sandbox an action needs (`policy`), how the model's shell lines are handled (`tools`), the proxy
//! that commands reach the network through (`net`).

mod env;
pub use env::is_secret_name;
mod backend_cache;
mod limits;
pub mod probe;
pub mod sandbox;
pub mod seatbelt;
mod spec;

pub mod clone;
pub mod command;
pub mod git;
