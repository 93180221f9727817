//! The host: one door to all threads, for programs. It holds no conversation; whatever it knows, it has read in logs.
//!
//! Here: what can be asked (`engine`), why it is refused (`fault`); what is told of a thread (`frames`, `live`,
//! `watch`); the doors (`http`, with `openapi` and `metrics`; `rpc`, which speaks JSON-RPC on whatever carries it). Elsewhere: what a session amounts to (`thread`), how a
//! pod is reached (`client`), how a session is made (the binary, which hands in a `Maker`).

mod engine;
mod fault;
mod frames;
pub mod http;
mod instance;
mod live;
mod metrics;
mod openapi;
mod rpc;
mod watch;

pub use engine::{Engine, Maker, NewThread};
pub use fault::Fault;
pub use frames::{
    Channel, Frame, FrameId, Frames, Goal, McpStatus, McpUpdate, Place, ThreadFrame, Told, UserInput,
};
pub use instance::{Ended, HostError, HostInfo, Instance, Options, ensure, run, running};
pub use openapi::document;
pub use rpc::Rpc;
pub use watch::Watch;
