//! Classification: maps the error response of a provider to an error kind.
//!
//! Here: the decision, based on the status and the text of an error. Its parts: extracting the text from any
//! body (`error_text`), retry delays (`retry_delay`). Elsewhere: the kinds (`error`), messages for users
//! (`error_messages`). Invariant: a status that the specification retries never becomes a permanent error
//! unless the provider's text says so, and the shown text is limited (`tests/classify.rs`).

mod error_text;
mod retry_delay;

use serde_json::Value;

use error_text::ErrorText;
pub(crate) use error_text::sanitize_text;
pub use retry_delay::RetryDelay;

use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;

/// Classifies a response with an error status.
pub fn classify_response(scheme: WireScheme, status: u16, retry: RetryDelay, body: &[u8]) -> ProviderError {
    let text = ErrorText::from_body(body);
    let mut problem = classify_text(scheme, Some(status), &text);
    if problem.text.is_empty() {
        problem.text = format!("status {status}, without a message");
    }
    if let Some(after) = retry.after_ms {
        problem.retry_after_ms = Some(after);
    }
    problem
}

/// Classifies an error object, which may also appear inside a stream.
pub fn classify_error_json(scheme: WireScheme, status: Option<u16>, body: &Value) -> ProviderError {
    let mut problem = classify_text(scheme, status, &ErrorText::from_json(body));
    if problem.text.is_empty() {
        problem.text = "an error without a message".to_owned();
    }
    problem
}

fn classify_text(scheme: WireScheme, status: Option<u16>, text: &ErrorText) -> ProviderError {
    let status = status.or(text.status);
    let kind = classify_kind(scheme, status, text);
    let waits = matches!(
        kind,
        ProviderErrorKind::RateLimited
            | ProviderErrorKind::Overloaded
            | ProviderErrorKind::Server
            | ProviderErrorKind::Timeout
    );
    let retry_after_ms = text.wait_ms.filter(|_| waits);
    ProviderError { kind, text: text.display_text(), status, retry_after_ms }
}

/// The text takes precedence over the status: providers use one status for different errors.
fn classify_kind(scheme: WireScheme, status: Option<u16>, words: &ErrorText) -> ProviderErrorKind {
    if is_too_long(status, words) {
        return ProviderErrorKind::ContextTooLong;
    }
    if is_no_credit(status, words) {
        return ProviderErrorKind::NoCredit;
    }
    if let Some(reason) = key_error_kind(status, words) {
        return reason;
    }
    if is_unknown_model(scheme, status, words) {
        return ProviderErrorKind::UnknownModel;
    }
    if is_refused(status, words) {
        return ProviderErrorKind::Refused;
    }
    if words.has_code(&["overloaded", "slow_down"]) {
        return ProviderErrorKind::Overloaded;
    }
    match status {
        Some(status) => kind_from_status(status),
        None => kind_from_code(words),
    }
}

/// Classifies by the status alone. Retryable are those of the specification, and those with which a front
/// server reports a lost connection to its backend (520 to 524).
fn kind_from_status(status: u16) -> ProviderErrorKind {
    match status {
        401 => ProviderErrorKind::InvalidKey,
        402 => ProviderErrorKind::NoCredit,
        403 => ProviderErrorKind::Forbidden,
        408 | 504 | 524 => ProviderErrorKind::Timeout,
        413 => ProviderErrorKind::ContextTooLong,
        429 => ProviderErrorKind::RateLimited,
        503 | 529 => ProviderErrorKind::Overloaded,
        409 | 425 | 500 | 502 | 520..=523 => ProviderErrorKind::Server,
        _ => ProviderErrorKind::BadRequest,
    }
}

/// Classifies an error without a status: inside a stream only its type identifies it. An unknown type counts
/// as a server error, because the request itself was accepted.
fn kind_from_code(text: &ErrorText) -> ProviderErrorKind {
    const CODE_KINDS: &[(&[&str], ProviderErrorKind)] = &[
        (
            &["rate_limit", "ratelimit", "too_many_requests", "resource_exhausted", "throttl"],
            ProviderErrorKind::RateLimited,
        ),
        (&["unavailable"], ProviderErrorKind::Overloaded),
        (&["timeout", "timed_out", "deadline_exceeded"], ProviderErrorKind::Timeout),
        (&["permission", "forbidden"], ProviderErrorKind::Forbidden),
        (&["server_error", "api_error", "internal"], ProviderErrorKind::Server),
        (&["invalid_request", "invalid_argument", "bad_request", "not_found"], ProviderErrorKind::BadRequest),
    ];
    if text.has_phrase(&["overloaded"]) {
        return ProviderErrorKind::Overloaded;
    }
    CODE_KINDS
        .iter()
        .find(|(codes, _)| text.has_code(codes))
        .map_or(ProviderErrorKind::Server, |(_, reason)| *reason)
}

/// The request exceeds the context window of the model or the size limit of the provider. The remedy is the
/// same.
fn is_too_long(status: Option<u16>, text: &ErrorText) -> bool {
    // A limit per minute often has the same text. It resets automatically, unless the request alone exceeds
    // it.
    if status == Some(429) {
        return text.has_phrase(&["request too large"]);
    }
    text.has_code(&[
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size",
        "too_many_prompt_tokens",
        "max_prompt_tokens_exceeded",
        "tokens_limit_reached",
        "request_too_large",
        "string_above_max_length",
    ]) || text.has_phrase(&[
        "maximum context length",
        "maximum prompt length",
        "context length",
        "context window",
        "context size",
        "context limit",
        "prompt is too long",
        "prompt too long",
        "input is too long",
        "messages is too long",
        "exceeds the maximum number of tokens",
        "exceeds the maximum allowed input",
        "input token count",
        "request too large",
        "payload size exceeds",
    ])
}

fn is_no_credit(status: Option<u16>, text: &ErrorText) -> bool {
    if text.has_code(&["insufficient_quota", "insufficient_balance", "billing", "payment_required", "credit"])
    {
        return true;
    }
    if text.has_code(&["resource_exhausted"]) {
        // The same text as for an exhausted plan, but this limit resets, unless it is 0.
        return text.has_phrase(&["limit: 0,", "limit: 0\n"]);
    }
    let may_be = matches!(status, None | Some(400 | 402 | 403 | 429));
    may_be
        && text.has_phrase(&[
            "credit balance",
            "insufficient credit",
            "insufficient balance",
            "insufficient funds",
            "requires more credits",
            "exceeded your current quota",
            "run out of credits",
        ])
}

fn key_error_kind(status: Option<u16>, text: &ErrorText) -> Option<ProviderErrorKind> {
    if !matches!(status, None | Some(400 | 401 | 403)) {
        return None;
    }
    let missing = text.has_phrase(&[
        "missing authentication",
        "missing api key",
        "no api key",
        "no auth credentials",
        "provide an api key",
        "api-key header is required",
        "without established identity",
    ]);
    if missing {
        return Some(ProviderErrorKind::NoKey);
    }
    let wrong = text.has_code(&["authentication", "invalid_api_key", "api_key_invalid", "unauthenticated"])
        || text.has_phrase(&["api key not valid", "incorrect api key", "invalid api key", "api key expired"]);
    wrong.then_some(ProviderErrorKind::InvalidKey)
}

fn is_unknown_model(scheme: WireScheme, status: Option<u16>, words: &ErrorText) -> bool {
    if words.has_code(&["model_not_found", "model_not_available", "invalid_model", "unknown_model"]) {
        return true;
    }
    // In these two schemes the path is fixed, so a 404 refers to the model. In others it may be a wrong base
    // URL.
    let of_the_model =
        matches!(scheme, WireScheme::Anthropic | WireScheme::Gemini) && words.has_code(&["not_found"]);
    let may_be = matches!(status, None | Some(400 | 404 | 422));
    may_be
        && (of_the_model
            || (words.has_phrase(&["model"])
                && words.has_phrase(&[
                    "not found",
                    "does not exist",
                    "not exist",
                    "not a valid model",
                    "unknown model",
                    "invalid model",
                    "no such model",
                    "no endpoints found",
                ])))
}

fn is_refused(status: Option<u16>, text: &ErrorText) -> bool {
    matches!(status, None | Some(400 | 403 | 422))
        && (text.has_code(&["content_filter", "content_policy", "responsibleai", "moderation", "safety"])
            || text.has_phrase(&["content management policy", "was flagged", "violating our usage policy"]))
}
