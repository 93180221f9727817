//! Exec: runs processes inside a fence, hears them, and ends their whole tree.
//!
//! Here: the fence compiled from a scope (`fence`), commands with their output (`command`), the pod's proxy (`proxy`),
//! clones of a workspace (`clone`).
//! Elsewhere: which fence an action needs (`policy`), what a shell line means to a model (`tools`).

mod env;
pub use env::names_a_secret;
pub mod fence;
mod limits;
mod memory;
pub mod probe;

pub mod address;
pub mod proxy;
pub mod seatbelt;

pub mod clone;
pub mod command;
pub mod git;
