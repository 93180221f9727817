//! Problems: what went wrong with a request, in the words of the wire.
//!
//! Here: the reasons and which of them may pass by themselves. Elsewhere: reading them from a provider's answer
//! (`classify`), and telling a person what to do (`advice`).

use minke_model::FailureKind;

/// Why a request brought no whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    /// The provider's own words, or ours about the transport; bounded.
    pub text: String,
    pub status: Option<u16>,
    pub retry_after_ms: Option<u64>,
}

/// The sorts of problems that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The stream ended before the reply did.
    Cut,
    /// An event of the stream cannot be read.
    Malformed,
    /// Something is larger than we take.
    TooLarge,
    Overloaded,
    RateLimited,
    /// The provider failed.
    Server,
    Timeout,
    /// No connection.
    Network,
    /// No connection through the proxy.
    Proxy,
    Tls,
    NoKey,
    WrongKey,
    Forbidden,
    NoCredit,
    UnknownModel,
    /// The request is longer than the model's window.
    TooLong,
    /// The provider does not take this request.
    BadRequest,
    /// The provider refuses to answer this.
    Refused,
}

impl Reason {
    /// What those who decide about retries need to know.
    pub fn kind(self) -> FailureKind {
        match self {
            Reason::Cut | Reason::Malformed => FailureKind::Cut,
            Reason::Overloaded
            | Reason::RateLimited
            | Reason::Server
            | Reason::Timeout
            | Reason::Network
            | Reason::Proxy => FailureKind::Transient,
            Reason::TooLong => FailureKind::TooLong,
            Reason::Refused => FailureKind::Refused,
            Reason::TooLarge
            | Reason::Tls
            | Reason::NoKey
            | Reason::WrongKey
            | Reason::Forbidden
            | Reason::NoCredit
            | Reason::UnknownModel
            | Reason::BadRequest => FailureKind::Permanent,
        }
    }
}

impl Problem {
    pub(crate) fn new(reason: Reason, text: impl Into<String>) -> Problem {
        Problem { reason, text: text.into(), status: None, retry_after_ms: None }
    }
}
