//! Error messages for users: what failed, the words of the provider, and a remedy.
//!
//! Elsewhere: the kind of an error (`classify`, `http`), redaction of the provider's words (the caller).
//! Invariant: every message names the provider and a remedy
//! (`every_message_names_the_provider_and_what_to_do`).

use std::path::Path;

use minke_model::ModelError;

use crate::classify::sanitize_text;
use crate::error::{ProviderError, ProviderErrorKind};

/// The most known names suggested for an unknown one.
const MAX_SUGGESTIONS: usize = 3;

/// The target of a request, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    /// Variables that may contain the key, or none if no key is needed.
    pub(crate) key_env: &'a [String],
    pub(crate) key_file: Option<&'a Path>,
    pub(crate) base_url: &'a str,
    pub(crate) known_models: &'a [String],
    /// The proxy in use and the variable that sets it.
    pub(crate) proxy: Option<&'a str>,
}

/// Returns the error with its message for the user.
pub(crate) fn to_model_error(problem: &ProviderError, target: &RequestTarget<'_>) -> ModelError {
    let happened = describe_error(problem, target);
    let words = sanitize_text(&problem.text);
    let words = words.trim_end_matches(['.', ' ']);
    let told = if words.is_empty() { happened } else { format!("{happened}: {words}") };
    ModelError {
        kind: problem.kind.model_error_kind(),
        message: format!("{told}. {}", capitalize(&describe_remedy(problem, target))),
        status: problem.status,
        retry_after_ms: problem.retry_after_ms,
    }
}

/// Describes the failure and its target.
fn describe_error(problem: &ProviderError, who: &RequestTarget<'_>) -> String {
    let RequestTarget { provider, model, base_url, .. } = who;
    let status = problem.status.map(|status| format!(" (status {status})")).unwrap_or_default();
    match problem.kind {
        ProviderErrorKind::Interrupted => format!("the response of {provider} ended before it was complete"),
        ProviderErrorKind::Malformed => {
            format!("{provider} at {base_url} sent something that cannot be read")
        }
        ProviderErrorKind::TooLarge => format!("{provider} sent more than the limit"),
        ProviderErrorKind::Overloaded => format!("{provider} is overloaded{status}"),
        ProviderErrorKind::RateLimited => {
            format!("{provider} accepts no more requests for {model} at the moment{status}")
        }
        ProviderErrorKind::Server => format!("{provider} failed{status}"),
        ProviderErrorKind::Timeout => format!("{provider} at {base_url} took too long{status}"),
        ProviderErrorKind::Network => format!("no connection to {provider} at {base_url}"),
        ProviderErrorKind::Proxy => match who.proxy {
            Some(proxy) => format!("no connection to {provider} through the proxy {proxy}"),
            None => format!("no connection to {provider} through the proxy"),
        },
        ProviderErrorKind::Tls => format!("no TLS connection to {provider} at {base_url}"),
        ProviderErrorKind::NoKey => format!("there is no key for {provider}"),
        ProviderErrorKind::InvalidKey => format!("{provider} does not accept the key{status}"),
        ProviderErrorKind::Forbidden => format!("{provider} does not let this key use {model}{status}"),
        ProviderErrorKind::NoCredit => format!("the account at {provider} has no credit left{status}"),
        ProviderErrorKind::UnknownModel => format!("{provider} has no model `{model}`{status}"),
        ProviderErrorKind::ContextTooLong => {
            format!("the request is too long for {model} of {provider}{status}")
        }
        ProviderErrorKind::BadRequest => format!("{provider} rejected this request for {model}{status}"),
        ProviderErrorKind::Refused => format!("{provider} refuses to answer this{status}"),
    }
}

/// Describes the remedy.
fn describe_remedy(problem: &ProviderError, target: &RequestTarget<'_>) -> String {
    const CHOOSE_ANOTHER_MODEL: &str = "choose another model with --model, or name some in `model.fallback`";
    match problem.kind {
        ProviderErrorKind::Interrupted => {
            "Send it again; if this happens often, look at the network or the proxy in between".into()
        }
        ProviderErrorKind::Malformed => {
            "Send it again; if it fails again, check that `base_url` and `scheme` match".into()
        }
        ProviderErrorKind::TooLarge => "Ask for less at a time".into(),
        ProviderErrorKind::Overloaded | ProviderErrorKind::Server => {
            format!("Try again {}, or {CHOOSE_ANOTHER_MODEL}", retry_later(problem))
        }
        ProviderErrorKind::RateLimited => {
            format!("Try again {}, ask for less at a time, or {CHOOSE_ANOTHER_MODEL}", retry_later(problem))
        }
        ProviderErrorKind::Timeout => {
            format!(
                "Try again, allow it more time (`timeouts` of {} in providers.toml), or {CHOOSE_ANOTHER_MODEL}",
                target.provider
            )
        }
        ProviderErrorKind::Network => network_remedy(target),
        ProviderErrorKind::Proxy => {
            "Check the proxy and the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY".into()
        }
        ProviderErrorKind::Tls => {
            "Check the address (https or http), the clock of this computer, and that the certificates \
                        of your system include those of a proxy in between"
                .into()
        }
        ProviderErrorKind::NoKey => format!("{}, then try again", key_instructions(target)),
        ProviderErrorKind::InvalidKey => {
            format!("Check the key, or set another: {}", key_instructions(target))
        }
        ProviderErrorKind::Forbidden => {
            format!("Check the permissions of the key in your account, or {CHOOSE_ANOTHER_MODEL}")
        }
        ProviderErrorKind::NoCredit => {
            format!("Add credit or raise the limit in your account, or {CHOOSE_ANOTHER_MODEL}")
        }
        ProviderErrorKind::UnknownModel => unknown_model_remedy(target),
        ProviderErrorKind::ContextTooLong => {
            "Shorten the input: compact the thread or start a new one".into()
        }
        ProviderErrorKind::BadRequest => bad_request_remedy(problem, target),
        ProviderErrorKind::Refused => format!("Rephrase the request, or {CHOOSE_ANOTHER_MODEL}"),
    }
}

fn retry_later(problem: &ProviderError) -> String {
    match problem.retry_after_ms {
        Some(wait) => format!("in {}", format_duration(wait)),
        None => "in a while".to_owned(),
    }
}

/// Formats a duration, rounded up.
fn format_duration(ms: u64) -> String {
    match ms.div_ceil(1000) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// Lists all ways to set a key.
fn key_instructions(target: &RequestTarget<'_>) -> String {
    let mut ways = Vec::new();
    if !target.key_env.is_empty() {
        ways.push(format!("set {}", target.key_env.join(" or ")));
    }
    ways.push(format!("run `minke login {}`", target.provider));
    if let Some(file) = target.key_file {
        ways.push(format!("put it into {}", file.display()));
    }
    ways.join(", or ")
}

/// Capitalizes the first letter.
fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn network_remedy(target: &RequestTarget<'_>) -> String {
    let local = ["://localhost", "://127.", "://[::1]"].iter().any(|host| target.base_url.contains(host));
    match (local, target.proxy) {
        (true, _) => {
            format!("Start the server, or set the right address (`base_url` of {})", target.provider)
        }
        (false, Some(proxy)) => format!("Check the network, the address (`base_url`) and the proxy {proxy}"),
        (false, None) => {
            "Check the network and the address (`base_url`); where a proxy is needed, set HTTPS_PROXY".into()
        }
    }
}

fn unknown_model_remedy(target: &RequestTarget<'_>) -> String {
    let mut left: Vec<&str> = target.known_models.iter().map(String::as_str).collect();
    let mut suggestion = Vec::new();
    while suggestion.len() < MAX_SUGGESTIONS
        && let Some(name) = minke_text::suggest_name(target.model, left.iter().copied())
    {
        left.retain(|other| *other != name);
        suggestion.push(format!("`{}/{name}`", target.provider));
    }
    match suggestion.split_last() {
        None => "`minke models` lists the known models".to_owned(),
        Some((only, [])) => format!("Did you mean {only}? `minke models` lists the known models"),
        Some((last, rest)) => {
            format!("Did you mean {} or {last}? `minke models` lists the known models", rest.join(", "))
        }
    }
}

fn bad_request_remedy(problem: &ProviderError, target: &RequestTarget<'_>) -> String {
    match problem.status {
        Some(300..=399 | 404 | 405) => {
            format!(
                "Check the address {} (`base_url` of {}) and its `scheme`",
                target.base_url, target.provider
            )
        }
        _ => format!(
            "Check the settings of this model (`minke models show {}/{}`); if they are correct, report this as a bug",
            target.provider, target.model
        ),
    }
}

#[cfg(test)]
mod tests {
    use minke_model::ModelErrorKind;

    use super::*;

    /// All error kinds, with the remedy that the message must contain.
    const EXPECTED_REMEDIES: [(ProviderErrorKind, &str); 18] = [
        (ProviderErrorKind::Interrupted, "Send it again"),
        (ProviderErrorKind::Malformed, "check that `base_url` and `scheme`"),
        (ProviderErrorKind::TooLarge, "Ask for less"),
        (ProviderErrorKind::Overloaded, "Try again in 2 min"),
        (ProviderErrorKind::RateLimited, "Try again in 2 min"),
        (ProviderErrorKind::Server, "another model with --model"),
        (ProviderErrorKind::Timeout, "allow it more time"),
        (ProviderErrorKind::Network, "Check the network"),
        (ProviderErrorKind::Proxy, "HTTPS_PROXY"),
        (ProviderErrorKind::Tls, "clock"),
        (
            ProviderErrorKind::NoKey,
            "Set ACME_API_KEY or ACME_KEY, or run `minke login acme`, or put it into /keys/acme",
        ),
        (ProviderErrorKind::InvalidKey, "run `minke login acme`"),
        (ProviderErrorKind::Forbidden, "in your account"),
        (ProviderErrorKind::NoCredit, "Add credit"),
        (ProviderErrorKind::UnknownModel, "Did you mean `acme/fast-2` or `acme/fast-3`?"),
        (ProviderErrorKind::ContextTooLong, "compact the thread"),
        (ProviderErrorKind::BadRequest, "minke models show acme/fast-1"),
        (ProviderErrorKind::Refused, "Rephrase the request"),
    ];

    fn error_of_kind(reason: ProviderErrorKind) -> ProviderError {
        ProviderError {
            status: Some(418),
            retry_after_ms: Some(119_001),
            ..ProviderError::new(reason, "I am a\u{1b}[1m teapot.")
        }
    }

    fn with_target<T>(test: impl FnOnce(RequestTarget<'_>) -> T) -> T {
        let env = ["ACME_API_KEY".to_owned(), "ACME_KEY".to_owned()];
        let known = ["fast-2", "slow-and-thorough", "fast-mini", "fast-3"].map(str::to_owned);
        test(RequestTarget {
            provider: "acme",
            model: "fast-1",
            key_env: &env,
            key_file: Some(Path::new("/keys/acme")),
            base_url: "https://api.acme.test/v1",
            known_models: &known,
            proxy: None,
        })
    }

    #[test]
    fn every_message_names_the_provider_and_what_to_do() {
        with_target(|target| {
            for (reason, deed) in EXPECTED_REMEDIES {
                let failure = to_model_error(&error_of_kind(reason), &target);
                let message = &failure.message;
                assert!(message.contains("acme") && message.contains(deed), "{reason:?}: {message}");
                assert!(message.contains(": I am a [1m teapot. "), "{reason:?}: {message}");
                assert!(message.len() < 600 && !message.contains('\n'), "{reason:?}: {message}");
                assert_eq!((failure.kind, failure.status), (reason.model_error_kind(), Some(418)));
                assert_eq!(failure.retry_after_ms, Some(119_001));
            }
            let reasons: std::collections::HashSet<ProviderErrorKind> =
                EXPECTED_REMEDIES.map(|(reason, _)| reason).into();
            assert_eq!(reasons.len(), EXPECTED_REMEDIES.len(), "one line a reason");
        });
    }

    #[test]
    fn nothing_said_is_no_empty_quotation() {
        with_target(|target| {
            let failure = to_model_error(&ProviderError::new(ProviderErrorKind::NoKey, ""), &target);
            assert!(failure.message.starts_with("there is no key for acme. Set "), "{}", failure.message);
            assert_eq!(failure.kind, ModelErrorKind::Permanent);
        });
    }

    #[test]
    fn advice_fits_the_place() {
        with_target(|target| {
            let say = |reason, who: &RequestTarget<'_>| {
                to_model_error(&ProviderError::new(reason, "x"), who).message
            };
            let local = RequestTarget { base_url: "http://localhost:11434/v1", ..target };
            assert!(say(ProviderErrorKind::Network, &local).contains("Start the server"));
            let behind = RequestTarget { proxy: Some("http://proxy:3128 (HTTPS_PROXY)"), ..target };
            assert!(say(ProviderErrorKind::Network, &behind).contains("http://proxy:3128"));
            assert!(say(ProviderErrorKind::Proxy, &behind).contains("through the proxy http://proxy:3128"));
            let none = RequestTarget { known_models: &[], key_env: &[], key_file: None, ..target };
            assert!(say(ProviderErrorKind::UnknownModel, &none).contains("`minke models` lists"));
            assert!(say(ProviderErrorKind::NoKey, &none).contains(": x. Run `minke login acme`"));
            let missing = ProviderError {
                status: Some(404),
                ..ProviderError::new(ProviderErrorKind::BadRequest, "Not Found")
            };
            assert!(
                to_model_error(&missing, &target)
                    .message
                    .contains("Check the address https://api.acme.test/v1")
            );
        });
    }

    #[test]
    fn waits_are_told_in_the_largest_fitting_unit() {
        for (ms, wanted) in
            [(1, "1 s"), (34_400, "35 s"), (120_000, "2 min"), (7_200_000, "2 h"), (9_000_000, "3 h")]
        {
            assert_eq!(format_duration(ms), wanted);
        }
    }
}
