//! Classification: what a provider says when it does not answer, and which sort of problem that is.
//!
//! Here: the decision, from a status and the words of an error. Its parts: finding those words in any body (`words`),
//! how long to wait (`wait`). Elsewhere: the sorts (`problem`), what to tell a person (`advice`).
//! Invariant: a status that the specification retries is never a problem that is not retried unless the provider's own
//! words say why, and the shown text is bounded (`tests/classify.rs`).

mod wait;
mod words;

use serde_json::Value;

pub use wait::RetryHint;
use words::Words;
pub(crate) use words::shown;

use crate::problem::{Problem, Reason};
use crate::settings::Scheme;

/// The problem behind an answer with an error status.
pub fn from_response(scheme: Scheme, status: u16, retry: RetryHint, body: &[u8]) -> Problem {
    let words = Words::of_body(body);
    let mut problem = sorted(scheme, Some(status), &words);
    if problem.text.is_empty() {
        problem.text = format!("status {status}, with nothing said");
    }
    if let Some(after) = retry.after_ms {
        problem.retry_after_ms = Some(after);
    }
    problem
}

/// The problem behind an error object, which may also stand inside a stream.
pub fn from_error_json(scheme: Scheme, status: Option<u16>, body: &Value) -> Problem {
    let mut problem = sorted(scheme, status, &Words::of_json(body));
    if problem.text.is_empty() {
        problem.text = "an error, with nothing said".to_owned();
    }
    problem
}

fn sorted(scheme: Scheme, status: Option<u16>, words: &Words) -> Problem {
    let status = status.or(words.status);
    let reason = reason(scheme, status, words);
    let waits = matches!(reason, Reason::RateLimited | Reason::Overloaded | Reason::Server | Reason::Timeout);
    let retry_after_ms = words.wait_ms.filter(|_| waits);
    Problem { reason, text: words.shown(), status, retry_after_ms }
}

/// Words come before the status: providers say with one status quite different things.
fn reason(scheme: Scheme, status: Option<u16>, words: &Words) -> Reason {
    if too_long(status, words) {
        return Reason::TooLong;
    }
    if no_credit(status, words) {
        return Reason::NoCredit;
    }
    if let Some(reason) = key(status, words) {
        return reason;
    }
    if unknown_model(scheme, status, words) {
        return Reason::UnknownModel;
    }
    if refused(status, words) {
        return Reason::Refused;
    }
    if words.code_has(&["overloaded", "slow_down"]) {
        return Reason::Overloaded;
    }
    match status {
        Some(status) => of_status(status),
        None => of_code(words),
    }
}

/// What a status alone says. The retried ones are those of the specification, and those with which a front server
/// says that it has no connection to the one behind it (520 to 524).
fn of_status(status: u16) -> Reason {
    match status {
        401 => Reason::WrongKey,
        402 => Reason::NoCredit,
        403 => Reason::Forbidden,
        408 | 504 | 524 => Reason::Timeout,
        413 => Reason::TooLong,
        429 => Reason::RateLimited,
        503 | 529 => Reason::Overloaded,
        409 | 425 | 500 | 502 | 520..=523 => Reason::Server,
        _ => Reason::BadRequest,
    }
}

/// An error without a status: inside a stream only its type says what it is. One that says nothing known is taken for
/// a failure of the provider, since the request itself had been accepted.
fn of_code(words: &Words) -> Reason {
    const SORTS: &[(&[&str], Reason)] = &[
        (
            &["rate_limit", "ratelimit", "too_many_requests", "resource_exhausted", "throttl"],
            Reason::RateLimited,
        ),
        (&["unavailable"], Reason::Overloaded),
        (&["timeout", "timed_out", "deadline_exceeded"], Reason::Timeout),
        (&["permission", "forbidden"], Reason::Forbidden),
        (&["server_error", "api_error", "internal"], Reason::Server),
        (&["invalid_request", "invalid_argument", "bad_request", "not_found"], Reason::BadRequest),
    ];
    if words.says(&["overloaded"]) {
        return Reason::Overloaded;
    }
    SORTS.iter().find(|(codes, _)| words.code_has(codes)).map_or(Reason::Server, |(_, reason)| *reason)
}

/// Longer than the model's window, or more bytes than the provider takes: both are mended by saying less.
fn too_long(status: Option<u16>, words: &Words) -> bool {
    // A limit per minute is often told with the same words; it passes by itself unless the request alone is over it.
    if status == Some(429) {
        return words.says(&["request too large"]);
    }
    words.code_has(&[
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size",
        "too_many_prompt_tokens",
        "max_prompt_tokens_exceeded",
        "tokens_limit_reached",
        "request_too_large",
        "string_above_max_length",
    ]) || words.says(&[
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

fn no_credit(status: Option<u16>, words: &Words) -> bool {
    if words.code_has(&[
        "insufficient_quota",
        "insufficient_balance",
        "billing",
        "payment_required",
        "credit",
    ]) {
        return true;
    }
    if words.code_has(&["resource_exhausted"]) {
        // The same words as for a plan that is used up, but it fills up again; unless there is nothing to fill.
        return words.says(&["limit: 0,", "limit: 0\n"]);
    }
    let may_be = matches!(status, None | Some(400 | 402 | 403 | 429));
    may_be
        && words.says(&[
            "credit balance",
            "insufficient credit",
            "insufficient balance",
            "insufficient funds",
            "requires more credits",
            "exceeded your current quota",
            "run out of credits",
        ])
}

fn key(status: Option<u16>, words: &Words) -> Option<Reason> {
    if !matches!(status, None | Some(400 | 401 | 403)) {
        return None;
    }
    let missing = words.says(&[
        "missing authentication",
        "missing api key",
        "no api key",
        "no auth credentials",
        "provide an api key",
        "api-key header is required",
        "without established identity",
    ]);
    if missing {
        return Some(Reason::NoKey);
    }
    let wrong = words.code_has(&["authentication", "invalid_api_key", "api_key_invalid", "unauthenticated"])
        || words.says(&["api key not valid", "incorrect api key", "invalid api key", "api key expired"]);
    wrong.then_some(Reason::WrongKey)
}

fn unknown_model(scheme: Scheme, status: Option<u16>, words: &Words) -> bool {
    if words.code_has(&["model_not_found", "model_not_available", "invalid_model", "unknown_model"]) {
        return true;
    }
    // These two have one path each, so what is not found under it is the model; elsewhere a 404 may be a wrong address.
    let of_the_model = matches!(scheme, Scheme::Anthropic | Scheme::Gemini) && words.code_has(&["not_found"]);
    let may_be = matches!(status, None | Some(400 | 404 | 422));
    may_be
        && (of_the_model
            || (words.says(&["model"])
                && words.says(&[
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

fn refused(status: Option<u16>, words: &Words) -> bool {
    matches!(status, None | Some(400 | 403 | 422))
        && (words.code_has(&["content_filter", "content_policy", "responsibleai", "moderation", "safety"])
            || words.says(&["content management policy", "was flagged", "violating our usage policy"]))
}
