//! The host: one door to all threads, for programs. It holds no conversation; whatever it knows, it has read in logs.
//!
//! Here: what can be asked (`engine`), why it is refused (`fault`); what is told of a thread (`frames`, `live`). Elsewhere: what a session amounts to (`thread`), how a
//! pod is reached (`client`), how a session is made (the binary, which hands in a `Maker`).

mod engine;
mod fault;
mod frames;
mod live;
mod watch;

pub use engine::{Engine, Maker, NewThread};
pub use fault::Fault;
pub use frames::{
    Channel, Frame, FrameId, Frames, Goal, McpStatus, McpUpdate, Place, ThreadFrame, Told, UserInput,
};
pub use watch::Watch;
