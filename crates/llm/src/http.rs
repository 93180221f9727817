//! HTTP: one stack for all providers: connections, certificates, deadlines, addresses.
//!
//! Here: sending one request and reading its answer piece by piece, and what went wrong with the transport, in words.
//! Elsewhere: proxies (`proxy`), what is sent (`build`), what an error status means (`classify`), keys (`provider`).
//! Invariant: nothing is built before the first request, and the system's certificates are not read for `http://`
//! (`tests/http.rs`); no redirect is followed, so a key goes nowhere else; every wait has a deadline.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};

use crate::problem::{Problem, Reason};
use crate::proxy::{Proxies, Via};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
/// How long a connection is kept for the next request: longer than a person thinks, shorter than most servers keep it.
const KEEP_ALIVE: Duration = Duration::from_secs(90);
/// Clients are kept by connect deadline; more different ones than this are not kept.
const CLIENTS: usize = 16;
/// What is shown of a chain of errors.
const SHOWN_CHARS: usize = 500;

/// The time that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) connect: Duration,
    /// From the request to the first byte of the answer's body.
    pub(crate) first_byte: Duration,
    /// Between two pieces of the body.
    pub(crate) idle: Duration,
}

/// The connections of a process, made when they are needed.
#[derive(Debug)]
pub struct Http {
    proxies: Proxies,
    clients: Mutex<Vec<(Kind, Client)>>,
}

/// What makes one client different from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// Whether the system's certificates are needed, which take time to read.
    certificates: bool,
    connect: Duration,
}

/// One request.
pub(crate) struct Post {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// Proxies are those of the variables that `env` gives. Builds nothing yet.
    pub fn new(env: &dyn Fn(&str) -> Option<String>) -> Http {
        Http { proxies: Proxies::read(env), clients: Mutex::new(Vec::new()) }
    }

    /// The one of this process.
    pub fn of_process() -> Arc<Http> {
        static HTTP: OnceLock<Arc<Http>> = OnceLock::new();
        Arc::clone(HTTP.get_or_init(|| Arc::new(Http::new(&|name| std::env::var(name).ok()))))
    }

    /// The variable whose proxy a request to this address goes through, and the proxy, without a password.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<String> {
        self.proxies.applies(url).map(ToString::to_string)
    }

    /// Sends a request and waits until the answer begins.
    pub(crate) async fn post(&self, post: Post, deadlines: Deadlines) -> Result<Answer, Problem> {
        let via = self.proxies.applies(&post.url);
        let secure_proxy = via.is_some_and(|via| via.url.scheme() == "https");
        let certificates = post.url.scheme() == "https" || secure_proxy;
        let client = self.client(Kind { certificates, connect: deadlines.connect })?;
        let request = client.post(post.url.clone()).headers(post.headers).body(post.body);
        let begun = async {
            let mut response = request.send().await.map_err(|e| unsent(&e, via, deadlines.connect))?;
            // The head of an error is enough; a reply has begun when its first byte is here.
            let first = match response.status().is_success() {
                true => response.chunk().await.map_err(|e| broken(&e))?,
                false => None,
            };
            Ok((response, first))
        };
        let (response, first) = tokio::time::timeout(deadlines.first_byte, begun).await.map_err(|_| {
            let waited = shown_seconds(deadlines.first_byte);
            Problem::new(Reason::Timeout, format!("no byte of an answer came within {waited} (first_byte_s)"))
        })??;
        let over = first.is_none() && response.status().is_success();
        Ok(Answer { response, first, over, idle: deadlines.idle })
    }

    fn client(&self, kind: Kind) -> Result<Client, Problem> {
        // A thread that panicked inside left at worst one client fewer.
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(have, _)| *have == kind) {
            return Ok(client.clone());
        }
        let client = self.build(kind)?;
        if clients.len() >= CLIENTS {
            clients.remove(0);
        }
        clients.push((kind, client.clone()));
        Ok(client)
    }

    fn build(&self, kind: Kind) -> Result<Client, Problem> {
        let new = || {
            let builder = Client::builder()
                .user_agent(USER_AGENT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(kind.connect)
                .pool_idle_timeout(KEEP_ALIVE)
                .tcp_nodelay(true);
            self.proxies.install(builder)
        };
        if !kind.certificates {
            return new()?.tls_certs_only([]).build().map_err(|e| not_built(&e));
        }
        // Without certificates of the system, as in a bare container, the widely trusted ones are used.
        new()?
            .build()
            .or_else(|_| new()?.tls_certs_only(own_certificates()?).build().map_err(|e| not_built(&e)))
    }
}

fn own_certificates() -> Result<Vec<reqwest::Certificate>, Problem> {
    let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    all.map(|der| reqwest::Certificate::from_der(der)).collect::<Result<_, _>>().map_err(|e| not_built(&e))
}

fn not_built(error: &reqwest::Error) -> Problem {
    Problem::new(Reason::Tls, format!("no connections can be made here: {}", chain(error)))
}

/// An answer that has begun.
pub(crate) struct Answer {
    response: Response,
    first: Option<Bytes>,
    over: bool,
    idle: Duration,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body, decompressed; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.over {
            return Ok(None);
        }
        let next = tokio::time::timeout(self.idle, self.response.chunk()).await.map_err(|_| {
            let waited = shown_seconds(self.idle);
            Problem::new(Reason::Timeout, format!("the answer stood still for {waited} (idle_s)"))
        })?;
        let next = next.map_err(|e| broken(&e))?;
        self.over = next.is_none();
        Ok(next)
    }
}

/// No answer began.
fn unsent(error: &reqwest::Error, via: Option<&Via>, connect: Duration) -> Problem {
    let words = chain(error);
    if let Some(text) = tls_words(error) {
        return Problem::new(Reason::Tls, text);
    }
    let timed_out = error.is_timeout();
    if via.is_some() && error.is_connect() {
        return Problem::new(Reason::Proxy, words);
    }
    if timed_out {
        let waited = shown_seconds(connect);
        return Problem::new(Reason::Timeout, format!("no connection within {waited} (connect_s)"));
    }
    let text = match (error.is_dns(), io_kind(error)) {
        (true, _) => format!("the name of the host cannot be resolved: {words}"),
        (_, Some(std::io::ErrorKind::ConnectionRefused)) => {
            "the connection was refused: nothing listens there".to_owned()
        }
        _ => words,
    };
    Problem::new(Reason::Network, text)
}

/// An answer began and did not come to its end.
fn broken(error: &reqwest::Error) -> Problem {
    Problem::new(Reason::Cut, format!("the connection broke in the middle of the answer: {}", chain(error)))
}

/// What the TLS layer says, if it is to blame.
fn tls_words(error: &reqwest::Error) -> Option<String> {
    causes(error).find_map(|cause| match cause.downcast_ref::<rustls::Error>() {
        Some(tls @ rustls::Error::InvalidMessage(_)) => Some(format!("the server does not speak TLS: {tls}")),
        Some(tls) => Some(tls.to_string()),
        // The handshake ended without a word.
        None => Some(cause.to_string()).filter(|words| words.starts_with("tls handshake")),
    })
}

fn io_kind(error: &reqwest::Error) -> Option<std::io::ErrorKind> {
    causes(error).find_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()))
}

type Cause<'a> = &'a (dyn std::error::Error + 'static);

/// The causes of an error, from the outside to the inside.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = Cause<'_>> {
    std::iter::successors(error.source(), |cause| below(*cause))
}

fn below(cause: Cause<'_>) -> Option<Cause<'_>> {
    // An I/O error does not name what is inside it as its source.
    let inside = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inside.map(|inside| inside as Cause<'_>).or_else(|| cause.source())
}

/// An error and its causes, bounded. Never the address: it may hold what nobody is to see.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let words = cause.to_string();
        // Causes often repeat what they were caused by, and the outermost says only that there was one.
        if !text.ends_with(&words) && !words.starts_with("client error") {
            let sep = if text.is_empty() { "" } else { ": " };
            write!(text, "{sep}{words}").expect("a string takes everything");
        }
    }
    if text.is_empty() {
        text = "the request could not be sent".to_owned();
    }
    text.chars().take(SHOWN_CHARS).collect()
}

/// `10 s`, `0.25 s`.
fn shown_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// The address of a request: a base with or without its version, with or without a slash at its end.
pub(crate) fn endpoint(base: &Url, version: &str, path: &str) -> Result<Url, Problem> {
    let bad =
        |why: &str| Problem::new(Reason::BadRequest, format!("the address {base} cannot be used: {why}"));
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let below = base.path().trim_end_matches('/');
    let whole = if below.ends_with(&format!("/{path}")) {
        // Somebody gave the whole address.
        below.to_owned()
    } else if has_version(below) {
        format!("{below}/{path}")
    } else {
        format!("{below}/{version}/{path}")
    };
    let queries = [base.query(), query].into_iter().flatten().filter(|query| !query.is_empty());
    let query = queries.collect::<Vec<_>>().join("&");
    let mut url = base.clone();
    url.set_path(&whole);
    url.set_query(Some(&query).filter(|query| !query.is_empty()).map(String::as_str));
    if url.has_host() { Ok(url) } else { Err(bad("it has no host")) }
}

/// Whether a path ends with a version (`v1`, `v1beta`), or with another format's corner below one (`v1beta/openai`).
fn has_version(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let last = segments.next().unwrap_or_default();
    is_version(last) || (last == "openai" && segments.next().is_some_and(is_version))
}

fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() + 1 < segment.len()
        && (rest.is_empty() || rest.starts_with("alpha") || rest.starts_with("beta"))
}

/// A header's value that does not print itself.
pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, Problem> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        Problem::new(
            Reason::WrongKey,
            "the key holds a character that no header can carry: copy it again, alone",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_with_and_without_a_version_both_work() {
        let join = |base: &str, version: &str, path: &str| {
            endpoint(&Url::parse(base).unwrap(), version, path).unwrap().to_string()
        };
        for (base, whole) in [
            ("https://a.example", "https://a.example/v1/chat/completions"),
            ("https://a.example/", "https://a.example/v1/chat/completions"),
            ("https://a.example/v1", "https://a.example/v1/chat/completions"),
            ("https://a.example/v1//", "https://a.example/v1/chat/completions"),
            ("https://a.example/api/paas/v4", "https://a.example/api/paas/v4/chat/completions"),
            ("https://a.example/v1beta/openai/", "https://a.example/v1beta/openai/chat/completions"),
            ("https://a.example/openai", "https://a.example/openai/v1/chat/completions"),
            ("https://a.example/vault", "https://a.example/vault/v1/chat/completions"),
            ("https://a.example/v", "https://a.example/v/v1/chat/completions"),
            ("https://a.example/in/chat/completions", "https://a.example/in/chat/completions"),
            ("https://a.example/?api-version=7", "https://a.example/v1/chat/completions?api-version=7"),
        ] {
            assert_eq!(join(base, "v1", "chat/completions"), whole);
        }
        let gemini = "models/gemini-x:streamGenerateContent?alt=sse";
        for base in ["https://g.example", "https://g.example/v1beta", "https://g.example/v1beta/"] {
            assert_eq!(join(base, "v1beta", gemini), format!("https://g.example/v1beta/{gemini}"));
        }
        assert_eq!(
            join("https://g.example?k=v", "v1beta", "m?alt=sse"),
            "https://g.example/v1beta/m?k=v&alt=sse"
        );
    }
}
