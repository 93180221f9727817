//! The host: one door to all threads, for programs. It holds no conversation; whatever it knows, it has read in logs.
//!
//! Here: what can be asked (`engine`, `request`), how it is answered (`answer`), why it is refused (`fault`), and the verbs
//! themselves; what is told of a thread (`frames`, `live`, `watch`); the doors (`http`, with `openapi` and `metrics`; `rpc`,
//! which speaks JSON-RPC on whatever carries it, and `stdio`, which does). Elsewhere: what a session amounts to (`thread`),
//! how a pod is reached (`client`), how a session is made (the binary, which hands in a `Maker`).

mod answer;
mod asks;
mod changes;
mod claims;
mod conversation;
mod engine;
mod fault;
mod firing;
mod frames;
pub mod http;
mod import;
mod instance;
mod jobs;
mod keeper;
mod known;
mod lists;
mod live;
mod look;
mod message;
mod metrics;
mod openapi;
mod owed;
mod pods;
mod prompt;
mod refused;
mod request;
mod room;
mod rpc;
mod settings;
mod shared;
mod stderr;
mod stdio;
mod story;
mod threads;
mod tools;
mod visits;
mod watch;
mod watching;

pub use answer::Answer;
pub use conversation::Whole;
pub use engine::{Engine, Maker, NewThread};
pub use fault::Fault;
pub use frames::{
    Channel, Frame, FrameId, Frames, Goal, McpStatus, McpUpdate, Place, ThreadFrame, Told, UserInput,
};
pub use instance::{Ended, HostError, HostInfo, Instance, Options, ensure, run, running};
pub use lists::Found;
pub use openapi::document;
pub use owed::{Owed, owed, wake};
pub use request::{KINDS, ThreadName, ThreadRequest};
pub use room::{Held, clear};
pub use rpc::Rpc;
pub use stdio::stdio;
pub use threads::of_provider;
pub use visits::{change, ids, now, seed, step};
pub use watch::Watch;
