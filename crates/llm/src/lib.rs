//! llm: providers, from a prompt to a stream of `ModelEvent`s.
//!
//! Here: which model a reference means (`resolve`), and `scripted`, the model inside the binary. Other providers join as
//! one file each. Elsewhere: the stream contract (`model`), when to try again (`pod`).

mod resolve;
mod scripted;

pub use resolve::{ResolveError, canonical, resolve};
pub use scripted::{ScriptError, Scripted};
