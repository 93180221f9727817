//! llm: providers, from a prompt to a stream of `ModelEvent`s.
//!
//! A request passes through these modules: the model of a reference (`resolve`, from `catalog`), the request
//! bytes (`build`), the transport (`http`), the response bytes (`decode`), error kinds (`classify`) and
//! messages for users (`error_messages`), the key sources (`key_sources`), recording (`recording`); `provider`
//! joins them. `scripted` is a model inside the binary. Elsewhere: a server that speaks the wire formats
//! (`mock-llm`), the stream contract (`model`), retries (`pod`).

mod build;
mod catalog;
pub mod classify;
mod context;
mod decode;
mod error;
mod error_messages;
mod http;
mod key_providers;
mod key_sources;
mod layers;
mod local_servers;
mod provider;
mod provider_keys;
mod proxy;
mod recording;
mod resolve;
mod scripted;
mod settings;
mod suggest;
mod wire_marks;
mod with_prices;

pub use build::{WireRequest, build_request};
pub use catalog::{
    Catalog, CatalogError, ListedModel, LongContextPrices, ModelListing, TokenPrices, ValueOrigin,
    list_models,
};
pub use context::ResolveContext;
pub use decode::ReplyDecoder;
pub use error::{ProviderError, ProviderErrorKind};
pub use http::HttpPool;
pub use key_providers::{KeyProvider, key_provider, key_providers};
pub use key_sources::build_key_redactor;
pub use layers::ResolvedField;
pub use local_servers::{LocalModel, local_models, local_providers};
pub use recording::{
    AttemptHeader, AttemptTrailer, DiscardReason, MAX_RECORDING_BYTES, RECORDING_VERSION, RecordedAttempt,
    Recording, RecordingError, RecordingWriter, TrailerError, TrailerErrorKind,
};
pub use resolve::{ModelRequest, ResolveError, ResolvedModel, canonical_reference, resolve_model};
pub use scripted::{
    BUILT_IN_SCRIPTS, PlayedReply, RequestAttempt, ScriptError, ScriptedModel, StreamBeat, item_text,
};
pub use settings::{
    CachingMode, ModelCapability, ModelSettings, ProviderQuirks, ReasoningKind, ToolUseSupport, WireScheme,
};
