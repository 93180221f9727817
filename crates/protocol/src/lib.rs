//! The protocol between clients and pods.
//!
//! Clients send methods and pods send events, one JSON object per line. `entry_events` is the only source of
//! events with a `seq`. Here: shapes, encoding, line codec. Elsewhere: sockets (`driver`, `client`), the
//! effect of a method (`pod`).

pub mod api;
mod choice;
mod codec;
mod entry_events;
mod event;
mod frame;
mod id;
mod legacy;
pub mod limits;
mod method;
mod reply;
mod request;
#[cfg(feature = "schema")]
mod schema;
mod state;
#[cfg(feature = "schema")]
mod typescript;

pub use choice::{CompletionKind, RunMode, ShutdownMode, Subscribe, Until};
pub use codec::{LineReadError, LineReader};
pub use entry_events::{entry_events, entry_frames};
pub use event::*;
pub use frame::{
    EventPosition, Frame, FrameError, ReplyData, encode_event, encode_history, encode_reply, encode_snapshot,
};
pub use id::RequestId;
pub use legacy::HistoryItem;
pub use method::*;
pub use reply::*;
pub use request::{ClientRequest, RequestError};
#[cfg(feature = "schema")]
pub use schema::{json_schema, typescript};
pub use state::*;

/// The protocol version in `hello`.
pub const PROTOCOL: u32 = 2;
