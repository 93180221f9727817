//! Protocol: what clients and pods say to each other.
//!
//! Methods in, events out, one JSON object a line. Everything that has a `seq` is made from its entry by `events`;
//! nobody sends one by hand. Here: shapes, their written form, the line codec. Elsewhere: sockets (`driver`, `client`),
//! what a method does (`pod`).

pub mod api;
mod choice;
mod codec;
mod event;
mod frame;
mod id;
pub mod limits;
mod logged;
mod method;
mod older;
mod reply;
mod request;
#[cfg(feature = "schema")]
mod schema;
mod state;
#[cfg(feature = "schema")]
mod typescript;

pub use choice::{CompletionKind, RunMode, ShutdownMode, Subscribe, Until};
pub use codec::{LineFault, LineReader};
pub use event::*;
pub use frame::{BadFrame, Frame, Place, ReplyData, encode, history, reply, snapshot};
pub use id::Id;
pub use logged::{events, frames};
pub use method::*;
pub use older::HistoryItem;
pub use reply::*;
pub use request::{BadRequest, Request};
#[cfg(feature = "schema")]
pub use schema::{json_schema, typescript};
pub use state::*;

/// The version of the protocol that `hello` names.
pub const PROTOCOL: u32 = 2;
