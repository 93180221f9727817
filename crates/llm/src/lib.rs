//! llm: providers, from a prompt to a stream of `ModelEvent`s.
//!
//! The walk of a request: which model a reference means (`resolve`, out of `catalog`), the bytes that are sent (`build`),
//! the transport (`http`), the bytes that come back (`decode`), what a failure means (`classify`) and what a person can
//! do about it (`advice`), without what nobody is to see (`veil`, `cover`), kept for replay (`tape`); all of it joined in
//! `provider`. Beside it `scripted`, the model inside the binary, and `mock`, which speaks the other side of the wire.
//! Elsewhere: the stream contract (`model`), when to try again (`pod`).

mod advice;
mod around;
mod build;
mod catalog;
pub mod classify;
mod cover;
mod decode;
mod http;
mod keys;
mod local;
mod login;
pub mod mock;
mod near;
mod pick;
mod priced;
mod problem;
mod provider;
mod proxy;
mod resolve;
mod scripted;
mod settings;
mod tape;
mod veil;

pub use around::{Around, Env};
pub use build::{WireRequest, build};
pub use catalog::{Catalog, CatalogError, Listed, Listing, LongPrices, Origin, Prices, models};
pub use cover::Cover;
pub use decode::Decoder;
pub use http::Http;
pub use local::{LocalModel, local_models, local_providers};
pub use login::{KeyHolder, key_holder, key_holders};
pub use pick::Field;
pub use problem::{Problem, Reason};
pub use resolve::{ModelRequest, ResolveError, Resolved, canonical, resolve};
pub use scripted::{ScriptError, Scripted};
pub use settings::{Caching, Capability, Quirks, ReasoningKind, Scheme, Settings, ToolUse};
pub use tape::{
    Attempt, Foot, FootKind, FootProblem, Head, NotKept, Recording, TAPE_BYTES, TAPE_VERSION, TapeError,
    TapeWriter,
};
