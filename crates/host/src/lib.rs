//! The host: one door to all threads, for programs. It holds no conversation; whatever it knows, it has read in logs.
//!
//! Here: what can be asked (`engine`), why it is refused (`fault`). Elsewhere: what a session amounts to (`thread`), how a
//! pod is reached (`client`), how a session is made (the binary, which hands in a `Maker`).

mod engine;
mod fault;

pub use engine::{Engine, Maker, NewThread};
pub use fault::Fault;
