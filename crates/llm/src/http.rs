//! HTTP: the transport of all providers: connections, certificates, timeouts, URLs.
//!
//! Here: sending one request, reading its response piece by piece, and describing transport errors.
//! Elsewhere: proxies (`proxy`), the request (`build`), the meaning of an error status (`classify`), keys
//! (`provider`). Invariant: nothing is created before the first request, and the system's certificates are
//! not read for `http://` (`tests/http.rs`); no redirect is followed, so a key goes nowhere else; every wait
//! has a timeout.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};

use crate::error::{ProviderError, ProviderErrorKind};
use crate::proxy::{ProxyConfig, ProxyVia};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
/// How long an idle connection stays open: longer than a user's pause, shorter than the timeout of most servers.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The most cached clients. They are keyed by connect timeout.
const MAX_CLIENTS: usize = 16;
/// The longest shown chain of errors.
const MAX_SHOWN_CHARS: usize = 500;

/// The timeouts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpTimeouts {
    pub(crate) connect: Duration,
    /// From the request to the first byte of the response body.
    pub(crate) first_byte: Duration,
    /// Between two pieces of the body.
    pub(crate) idle: Duration,
}

/// The connections of a process, created on demand.
#[derive(Debug)]
pub struct HttpPool {
    proxies: ProxyConfig,
    clients: Mutex<Vec<(ClientKey, Client)>>,
}

/// The key of a cached client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    /// Whether the system's certificates are needed, which are slow to load.
    needs_certificates: bool,
    connect: Duration,
}

/// One request.
pub(crate) struct PostRequest {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl HttpPool {
    /// Creates a pool without clients. `env` reads the proxy variables.
    pub fn new(env: &dyn Fn(&str) -> Option<String>) -> HttpPool {
        HttpPool { proxies: ProxyConfig::from_env(env), clients: Mutex::new(Vec::new()) }
    }

    /// Returns the pool of this process.
    pub fn shared() -> Arc<HttpPool> {
        static HTTP: OnceLock<Arc<HttpPool>> = OnceLock::new();
        Arc::clone(HTTP.get_or_init(|| Arc::new(HttpPool::new(&|name| std::env::var(name).ok()))))
    }

    /// Returns the proxy for `url` and the variable that sets it, without its password.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<String> {
        self.proxies.proxy_for(url).map(ToString::to_string)
    }

    /// Sends a request and waits for the start of the response.
    pub(crate) async fn send_post(
        &self,
        post: PostRequest,
        deadlines: HttpTimeouts,
    ) -> Result<HttpResponse, ProviderError> {
        let via = self.proxies.proxy_for(&post.url);
        let secure_proxy = via.is_some_and(|via| via.url.scheme() == "https");
        let needs_certificates = post.url.scheme() == "https" || secure_proxy;
        let client = self.client_for(ClientKey { needs_certificates, connect: deadlines.connect })?;
        let request = client.post(post.url.clone()).headers(post.headers).body(post.body);
        let begun = async {
            let mut response = request.send().await.map_err(|e| send_error(&e, via, deadlines.connect))?;
            // For an error the headers are enough; a reply starts with its first byte.
            let first = match response.status().is_success() {
                true => response.chunk().await.map_err(|e| body_error(&e))?,
                false => None,
            };
            Ok((response, first))
        };
        let (response, first_chunk) =
            tokio::time::timeout(deadlines.first_byte, begun).await.map_err(|_| {
                let waited = format_seconds(deadlines.first_byte);
                ProviderError::new(
                    ProviderErrorKind::Timeout,
                    format!("no response within {waited} (first_byte_s)"),
                )
            })??;
        let is_finished = first_chunk.is_none() && response.status().is_success();
        Ok(HttpResponse { response, first_chunk, is_finished, idle: deadlines.idle })
    }

    fn client_for(&self, kind: ClientKey) -> Result<Client, ProviderError> {
        // A thread that panicked inside can only have lost a cached client.
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(have, _)| *have == kind) {
            return Ok(client.clone());
        }
        let client = self.build_client(kind)?;
        if clients.len() >= MAX_CLIENTS {
            clients.remove(0);
        }
        clients.push((kind, client.clone()));
        Ok(client)
    }

    fn build_client(&self, kind: ClientKey) -> Result<Client, ProviderError> {
        let new = || {
            let builder = Client::builder()
                .user_agent(USER_AGENT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(kind.connect)
                .pool_idle_timeout(POOL_IDLE_TIMEOUT)
                .tcp_nodelay(true);
            self.proxies.configure_client(builder)
        };
        if !kind.needs_certificates {
            return new()?.tls_certs_only([]).build().map_err(|e| build_error(&e));
        }
        // Without system certificates, as in a minimal container, use the bundled ones.
        new()?
            .build()
            .or_else(|_| new()?.tls_certs_only(system_certificates()?).build().map_err(|e| build_error(&e)))
    }
}

fn system_certificates() -> Result<Vec<reqwest::Certificate>, ProviderError> {
    let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    all.map(|der| reqwest::Certificate::from_der(der)).collect::<Result<_, _>>().map_err(|e| build_error(&e))
}

fn build_error(error: &reqwest::Error) -> ProviderError {
    ProviderError::new(
        ProviderErrorKind::Tls,
        format!("could not create an HTTP client: {}", error_chain(error)),
    )
}

/// A response that has started.
pub(crate) struct HttpResponse {
    response: Response,
    first_chunk: Option<Bytes>,
    is_finished: bool,
    idle: Duration,
}

impl HttpResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the next decompressed piece of the body, or `None` at its end.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        if let Some(first) = self.first_chunk.take() {
            return Ok(Some(first));
        }
        if self.is_finished {
            return Ok(None);
        }
        let next = tokio::time::timeout(self.idle, self.response.chunk()).await.map_err(|_| {
            let waited = format_seconds(self.idle);
            ProviderError::new(
                ProviderErrorKind::Timeout,
                format!("the response stalled for {waited} (idle_s)"),
            )
        })?;
        let next = next.map_err(|e| body_error(&e))?;
        self.is_finished = next.is_none();
        Ok(next)
    }
}

/// Converts an error before the response started.
fn send_error(error: &reqwest::Error, via: Option<&ProxyVia>, connect: Duration) -> ProviderError {
    let words = error_chain(error);
    if let Some(text) = tls_message(error) {
        return ProviderError::new(ProviderErrorKind::Tls, text);
    }
    let timed_out = error.is_timeout();
    if via.is_some() && error.is_connect() {
        return ProviderError::new(ProviderErrorKind::Proxy, words);
    }
    if timed_out {
        let waited = format_seconds(connect);
        return ProviderError::new(
            ProviderErrorKind::Timeout,
            format!("no connection within {waited} (connect_s)"),
        );
    }
    let text = match (error.is_dns(), io_error_kind(error)) {
        (true, _) => format!("the name of the host cannot be resolved: {words}"),
        (_, Some(std::io::ErrorKind::ConnectionRefused)) => {
            "the connection was refused: nothing listens there".to_owned()
        }
        _ => words,
    };
    ProviderError::new(ProviderErrorKind::Network, text)
}

/// Converts an error inside the response body.
fn body_error(error: &reqwest::Error) -> ProviderError {
    ProviderError::new(
        ProviderErrorKind::Interrupted,
        format!("the connection broke in the middle of the response: {}", error_chain(error)),
    )
}

/// Returns the error of the TLS layer, if it is the cause.
fn tls_message(error: &reqwest::Error) -> Option<String> {
    error_causes(error).find_map(|cause| match cause.downcast_ref::<rustls::Error>() {
        Some(tls @ rustls::Error::InvalidMessage(_)) => Some(format!("the server does not speak TLS: {tls}")),
        Some(tls) => Some(tls.to_string()),
        // The handshake ended without an alert.
        None => Some(cause.to_string()).filter(|words| words.starts_with("tls handshake")),
    })
}

fn io_error_kind(error: &reqwest::Error) -> Option<std::io::ErrorKind> {
    error_causes(error).find_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()))
}

type ErrorRef<'a> = &'a (dyn std::error::Error + 'static);

/// Returns the causes of an error, from the outermost to the innermost.
fn error_causes(error: &reqwest::Error) -> impl Iterator<Item = ErrorRef<'_>> {
    std::iter::successors(error.source(), |cause| source_of(*cause))
}

fn source_of(cause: ErrorRef<'_>) -> Option<ErrorRef<'_>> {
    // `source()` of an I/O error skips the error inside it.
    let inside = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inside.map(|inside| inside as ErrorRef<'_>).or_else(|| cause.source())
}

/// Formats an error and its causes, up to a limit. Omits the URL, which may contain secrets.
fn error_chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    for cause in error_causes(error) {
        let words = cause.to_string();
        // Causes often repeat the text of their own cause, and the outermost one has no information.
        if !text.ends_with(&words) && !words.starts_with("client error") {
            let sep = if text.is_empty() { "" } else { ": " };
            write!(text, "{sep}{words}").expect("writing to a string cannot fail");
        }
    }
    if text.is_empty() {
        text = "the request could not be sent".to_owned();
    }
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Formats `10 s` or `0.25 s`.
fn format_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Returns the URL of a request. The base may end with or without a version and a slash.
pub(crate) fn endpoint_url(base: &Url, version: &str, path: &str) -> Result<Url, ProviderError> {
    let bad = |why: &str| {
        ProviderError::new(ProviderErrorKind::BadRequest, format!("the address {base} cannot be used: {why}"))
    };
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let below = base.path().trim_end_matches('/');
    let whole = if below.ends_with(&format!("/{path}")) {
        // The base is already the complete URL.
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

/// Returns whether a path ends with a version (`v1`, `v1beta`), or with the directory of another format below
/// one (`v1beta/openai`).
fn has_version(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let last = segments.next().unwrap_or_default();
    is_version_segment(last) || (last == "openai" && segments.next().is_some_and(is_version_segment))
}

fn is_version_segment(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() + 1 < segment.len()
        && (rest.is_empty() || rest.starts_with("alpha") || rest.starts_with("beta"))
}

/// Creates a header value that is hidden in debug output.
pub(crate) fn sensitive_header(text: &str) -> Result<HeaderValue, ProviderError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        ProviderError::new(
            ProviderErrorKind::InvalidKey,
            "the key contains a character that is not allowed in a header: copy it again, alone",
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
            endpoint_url(&Url::parse(base).unwrap(), version, path).unwrap().to_string()
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
