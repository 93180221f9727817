//! Advice: what a person reads when a request brought no reply: what happened, on what, in whose words, what to do.
//!
//! Elsewhere: which problem it is (`classify`, `http`), taking keys out of the provider's words (the caller).
//! Invariant: every message names the provider and something that a person can do
//! (`every_message_names_the_provider_and_what_to_do`).

use std::path::Path;

use minke_model::Failure;

use crate::classify::shown;
use crate::near;
use crate::problem::{Problem, Reason};

/// Known names that are offered for an unknown one.
const OFFERED: usize = 3;

/// Whom a request went to, as a person knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    /// Variables in which the key is looked for; none if no key is needed.
    pub(crate) key_env: &'a [String],
    pub(crate) key_file: Option<&'a Path>,
    pub(crate) base_url: &'a str,
    pub(crate) known_models: &'a [String],
    /// The proxy that is used, and who named it.
    pub(crate) proxy: Option<&'a str>,
}

/// The failure that those who asked are told of.
pub(crate) fn advise(problem: &Problem, who: &Who<'_>) -> Failure {
    let happened = happened(problem, who);
    let words = shown(&problem.text);
    let words = words.trim_end_matches(['.', ' ']);
    let told = if words.is_empty() { happened } else { format!("{happened}: {words}") };
    Failure {
        kind: problem.reason.kind(),
        message: format!("{told}. {}", sentence(&to_do(problem, who))),
        status: problem.status,
        retry_after_ms: problem.retry_after_ms,
    }
}

/// What happened, and on what.
fn happened(problem: &Problem, who: &Who<'_>) -> String {
    let Who { provider, model, base_url, .. } = who;
    let status = problem.status.map(|status| format!(" (status {status})")).unwrap_or_default();
    match problem.reason {
        Reason::Cut => format!("the answer of {provider} ended before it was complete"),
        Reason::Malformed => format!("{provider} at {base_url} sent something that cannot be read"),
        Reason::TooLarge => format!("{provider} sent more than is taken"),
        Reason::Overloaded => format!("{provider} is overloaded{status}"),
        Reason::RateLimited => format!("{provider} takes no more requests for {model} at the moment{status}"),
        Reason::Server => format!("{provider} failed{status}"),
        Reason::Timeout => format!("{provider} at {base_url} took too long{status}"),
        Reason::Network => format!("no connection to {provider} at {base_url}"),
        Reason::Proxy => match who.proxy {
            Some(proxy) => format!("no connection to {provider} through the proxy {proxy}"),
            None => format!("no connection to {provider} through the proxy"),
        },
        Reason::Tls => format!("no safe connection to {provider} at {base_url}"),
        Reason::NoKey => format!("there is no key for {provider}"),
        Reason::WrongKey => format!("{provider} does not accept the key{status}"),
        Reason::Forbidden => format!("{provider} does not let this key use {model}{status}"),
        Reason::NoCredit => format!("the account at {provider} has no credit left{status}"),
        Reason::UnknownModel => format!("{provider} has no model `{model}`{status}"),
        Reason::TooLong => format!("the request is too long for {model} of {provider}{status}"),
        Reason::BadRequest => format!("{provider} does not take this request for {model}{status}"),
        Reason::Refused => format!("{provider} refuses to answer this{status}"),
    }
}

/// What a person can do about it.
fn to_do(problem: &Problem, who: &Who<'_>) -> String {
    const ANOTHER: &str = "choose another model with --model, or name some in `model.fallback`";
    match problem.reason {
        Reason::Cut => {
            "Send it again; if this happens often, look at the network or the proxy in between".into()
        }
        Reason::Malformed => {
            "Send it again; if it stays so, check that `base_url` and `scheme` fit together".into()
        }
        Reason::TooLarge => "Ask for less at a time".into(),
        Reason::Overloaded | Reason::Server => format!("Try again {}, or {ANOTHER}", later(problem)),
        Reason::RateLimited => format!("Try again {}, ask for less at a time, or {ANOTHER}", later(problem)),
        Reason::Timeout => {
            format!(
                "Try again, allow it more time (`timeouts` of {} in providers.toml), or {ANOTHER}",
                who.provider
            )
        }
        Reason::Network => network(who),
        Reason::Proxy => {
            "Check the proxy and the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY".into()
        }
        Reason::Tls => {
            "Check the address (https or http), the clock of this computer, and that the certificates \
                        of your system include those of a proxy in between"
                .into()
        }
        Reason::NoKey => format!("{}, then try again", give_key(who)),
        Reason::WrongKey => format!("Check the key, or give another: {}", give_key(who)),
        Reason::Forbidden => format!("See in your account there what the key may do, or {ANOTHER}"),
        Reason::NoCredit => format!("Add credit or raise the limit in your account there, or {ANOTHER}"),
        Reason::UnknownModel => unknown_model(who),
        Reason::TooLong => "Give it less: compact the thread or begin a new one".into(),
        Reason::BadRequest => bad_request(problem, who),
        Reason::Refused => format!("Say it in another way, or {ANOTHER}"),
    }
}

fn later(problem: &Problem) -> String {
    match problem.retry_after_ms {
        Some(wait) => format!("in {}", duration(wait)),
        None => "in a while".to_owned(),
    }
}

/// A wait in words, rounded up.
fn duration(ms: u64) -> String {
    match ms.div_ceil(1000) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// All the ways to give a key.
fn give_key(who: &Who<'_>) -> String {
    let mut ways = Vec::new();
    if !who.key_env.is_empty() {
        ways.push(format!("set {}", who.key_env.join(" or ")));
    }
    ways.push(format!("run `minke login {}`", who.provider));
    if let Some(file) = who.key_file {
        ways.push(format!("put it into {}", file.display()));
    }
    ways.join(", or ")
}

/// A sentence begins with a capital letter.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn network(who: &Who<'_>) -> String {
    let local = ["://localhost", "://127.", "://[::1]"].iter().any(|host| who.base_url.contains(host));
    match (local, who.proxy) {
        (true, _) => {
            format!("Start the server there, or set the right address (`base_url` of {})", who.provider)
        }
        (false, Some(proxy)) => format!("Check the network, the address (`base_url`) and the proxy {proxy}"),
        (false, None) => {
            "Check the network and the address (`base_url`); where a proxy is needed, set HTTPS_PROXY".into()
        }
    }
}

fn unknown_model(who: &Who<'_>) -> String {
    let mut left: Vec<&str> = who.known_models.iter().map(String::as_str).collect();
    let mut near = Vec::new();
    while near.len() < OFFERED
        && let Some(name) = near::nearest(who.model, left.iter().copied())
    {
        left.retain(|other| *other != name);
        near.push(format!("`{}/{name}`", who.provider));
    }
    match near.split_last() {
        None => "`minke models` lists those that are known here".to_owned(),
        Some((only, [])) => format!("Did you mean {only}? `minke models` lists those that are known here"),
        Some((last, rest)) => {
            format!(
                "Did you mean {} or {last}? `minke models` lists those that are known here",
                rest.join(", ")
            )
        }
    }
}

fn bad_request(problem: &Problem, who: &Who<'_>) -> String {
    match problem.status {
        Some(300..=399 | 404 | 405) => {
            format!("Check the address {} (`base_url` of {}) and its `scheme`", who.base_url, who.provider)
        }
        _ => format!(
            "Check what is set for this model (`minke models show {}/{}`); if all of it is right, report this as a fault",
            who.provider, who.model
        ),
    }
}

#[cfg(test)]
mod tests {
    use minke_model::FailureKind;

    use super::*;

    /// All reasons, and what the message must offer.
    const DEEDS: [(Reason, &str); 18] = [
        (Reason::Cut, "Send it again"),
        (Reason::Malformed, "check that `base_url` and `scheme`"),
        (Reason::TooLarge, "Ask for less"),
        (Reason::Overloaded, "Try again in 2 min"),
        (Reason::RateLimited, "Try again in 2 min"),
        (Reason::Server, "another model with --model"),
        (Reason::Timeout, "allow it more time"),
        (Reason::Network, "Check the network"),
        (Reason::Proxy, "HTTPS_PROXY"),
        (Reason::Tls, "clock"),
        (Reason::NoKey, "Set ACME_API_KEY or ACME_KEY, or run `minke login acme`, or put it into /keys/acme"),
        (Reason::WrongKey, "run `minke login acme`"),
        (Reason::Forbidden, "in your account"),
        (Reason::NoCredit, "Add credit"),
        (Reason::UnknownModel, "Did you mean `acme/fast-2` or `acme/fast-3`?"),
        (Reason::TooLong, "compact the thread"),
        (Reason::BadRequest, "minke models show acme/fast-1"),
        (Reason::Refused, "in another way"),
    ];

    fn problem(reason: Reason) -> Problem {
        Problem {
            status: Some(418),
            retry_after_ms: Some(119_001),
            ..Problem::new(reason, "I am a\u{1b}[1m teapot.")
        }
    }

    fn with_who<T>(test: impl FnOnce(Who<'_>) -> T) -> T {
        let env = ["ACME_API_KEY".to_owned(), "ACME_KEY".to_owned()];
        let known = ["fast-2", "slow-and-thorough", "fast-mini", "fast-3"].map(str::to_owned);
        test(Who {
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
        with_who(|who| {
            for (reason, deed) in DEEDS {
                let failure = advise(&problem(reason), &who);
                let message = &failure.message;
                assert!(message.contains("acme") && message.contains(deed), "{reason:?}: {message}");
                assert!(message.contains(": I am a [1m teapot. "), "{reason:?}: {message}");
                assert!(message.len() < 600 && !message.contains('\n'), "{reason:?}: {message}");
                assert_eq!((failure.kind, failure.status), (reason.kind(), Some(418)));
                assert_eq!(failure.retry_after_ms, Some(119_001));
            }
            let reasons: std::collections::HashSet<Reason> = DEEDS.map(|(reason, _)| reason).into();
            assert_eq!(reasons.len(), DEEDS.len(), "one line a reason");
        });
    }

    #[test]
    fn nothing_said_is_no_empty_quotation() {
        with_who(|who| {
            let failure = advise(&Problem::new(Reason::NoKey, ""), &who);
            assert!(failure.message.starts_with("there is no key for acme. Set "), "{}", failure.message);
            assert_eq!(failure.kind, FailureKind::Permanent);
        });
    }

    #[test]
    fn advice_fits_the_place() {
        with_who(|who| {
            let say = |reason, who: &Who<'_>| advise(&Problem::new(reason, "x"), who).message;
            let local = Who { base_url: "http://localhost:11434/v1", ..who };
            assert!(say(Reason::Network, &local).contains("Start the server there"));
            let behind = Who { proxy: Some("http://proxy:3128 (HTTPS_PROXY)"), ..who };
            assert!(say(Reason::Network, &behind).contains("http://proxy:3128"));
            assert!(say(Reason::Proxy, &behind).contains("through the proxy http://proxy:3128"));
            let none = Who { known_models: &[], key_env: &[], key_file: None, ..who };
            assert!(say(Reason::UnknownModel, &none).contains("`minke models` lists"));
            assert!(say(Reason::NoKey, &none).contains(": x. Run `minke login acme`"));
            let missing = Problem { status: Some(404), ..Problem::new(Reason::BadRequest, "Not Found") };
            assert!(advise(&missing, &who).message.contains("Check the address https://api.acme.test/v1"));
        });
    }

    #[test]
    fn waits_are_told_in_the_largest_fitting_unit() {
        for (ms, wanted) in
            [(1, "1 s"), (34_400, "35 s"), (120_000, "2 min"), (7_200_000, "2 h"), (9_000_000, "3 h")]
        {
            assert_eq!(duration(ms), wanted);
        }
    }
}
