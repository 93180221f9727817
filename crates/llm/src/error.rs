//! Errors of requests, as reported by the provider or the transport.
//!
//! Here: the kinds and which of them are transient. Elsewhere: classifying a provider's response
//! (`classify`), messages for users (`error_messages`).

use minke_model::ModelErrorKind;

/// Why a request did not produce a complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    pub kind: ProviderErrorKind,
    /// The text of the provider, or ours for transport errors; limited in length.
    pub text: String,
    pub status: Option<u16>,
    pub retry_after_ms: Option<u64>,
}

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderErrorKind {
    /// The stream ended before the reply did.
    Interrupted,
    /// An event of the stream is invalid.
    Malformed,
    /// The response exceeds a size limit.
    TooLarge,
    Overloaded,
    RateLimited,
    /// An internal error of the provider.
    Server,
    Timeout,
    /// Could not connect.
    Network,
    /// Could not connect through the proxy.
    Proxy,
    Tls,
    NoKey,
    InvalidKey,
    Forbidden,
    NoCredit,
    UnknownModel,
    /// The request exceeds the context window of the model.
    ContextTooLong,
    /// The provider rejects the request as invalid.
    BadRequest,
    /// The provider refuses to answer.
    Refused,
}

impl ProviderErrorKind {
    /// Returns the kind for retry decisions.
    pub fn model_error_kind(self) -> ModelErrorKind {
        match self {
            ProviderErrorKind::Interrupted | ProviderErrorKind::Malformed => ModelErrorKind::Interrupted,
            ProviderErrorKind::Overloaded
            | ProviderErrorKind::RateLimited
            | ProviderErrorKind::Server
            | ProviderErrorKind::Timeout
            | ProviderErrorKind::Network
            | ProviderErrorKind::Proxy => ModelErrorKind::Transient,
            ProviderErrorKind::ContextTooLong => ModelErrorKind::ContextTooLong,
            ProviderErrorKind::Refused => ModelErrorKind::Refused,
            ProviderErrorKind::TooLarge
            | ProviderErrorKind::Tls
            | ProviderErrorKind::NoKey
            | ProviderErrorKind::InvalidKey
            | ProviderErrorKind::Forbidden
            | ProviderErrorKind::NoCredit
            | ProviderErrorKind::UnknownModel
            | ProviderErrorKind::BadRequest => ModelErrorKind::Permanent,
        }
    }
}

impl ProviderError {
    pub(crate) fn new(kind: ProviderErrorKind, text: impl Into<String>) -> ProviderError {
        ProviderError { kind, text: text.into(), status: None, retry_after_ms: None }
    }
}
