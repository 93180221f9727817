//! Pod: what a pod decides.
//!
//! `Pod::step` takes one input and gives what is to be written, shown and done. Durable state changes only in
//! `State::apply`, so replaying the log gives the same pod. No clock, disk, socket, task or randomness is here.

mod input;
mod step;

pub use input::*;
pub use step::*;
