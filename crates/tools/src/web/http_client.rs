//! An HTTP request to a checked address, with a limited response.
//!
//! The client uses Minke's resolver: it resolves a name once, checks the addresses, and the client connects
//! to exactly those. Numeric addresses bypass the resolver and are checked before. Proxies from the
//! environment are ignored, because the target address could not be checked. Connections are not reused.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use minke_net::address::{DialError, Dialer, Host, WEB_PORTS};
use minke_tool::ToolError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a URL; longer ones may carry data.
const MAX_URL_BYTES: usize = 4 * 1024;
/// The maximum length of a URL in a message.
const MAX_EXCERPT_BYTES: usize = 200;
/// The maximum length of an error chain.
const MAX_CHAIN_CHARS: usize = 300;

/// The reachable networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkReach {
    Public,
    /// Private networks and this machine too.
    Private,
}

/// HTTP clients for a network reach, created on demand.
pub(super) struct WebClient {
    dialer: Dialer,
    reach: NetworkReach,
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

/// Resolves a name once and returns only permitted addresses.
struct GuardedResolver {
    dialer: Dialer,
    allows_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (dialer, allows_private) = (self.dialer.clone(), self.allows_private);
        Box::pin(async move {
            // `check` has rejected this name where it is not allowed.
            let host = match name.as_str() {
                "localhost" if allows_private => "127.0.0.1",
                name => name,
            };
            let host = Host::parse(host)?;
            let found = dialer.resolve_host(&host, allows_private).await?;
            // The HTTP client replaces port 0 by the port of the URL.
            Ok(Box::new(dialer.socket_addresses(&found, 0).into_iter()) as Addrs)
        })
    }
}

impl WebClient {
    pub(super) fn new(outside: Dialer, reach: NetworkReach) -> WebClient {
        WebClient { dialer: outside, reach, plain: OnceLock::new(), secure: OnceLock::new() }
    }

    /// Checks the text of a URL and returns its host. Does no I/O.
    pub(super) fn check_url(&self, url: &Url) -> Result<Host, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "`{}:` is not supported: only http and https are",
                url_excerpt(url.scheme())
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it contains a user name or password: remove it".to_owned());
        }
        let allows_private = self.reach == NetworkReach::Private;
        let host = match url.host_str() {
            Some("localhost") if allows_private => "127.0.0.1",
            Some(host) => host,
            None => return Err("it names no host".to_owned()),
        };
        let host = Host::parse(host).map_err(|e| e.to_string())?;
        let port = url.port_or_known_default().unwrap_or_default();
        if !allows_private && !WEB_PORTS.contains(&port) {
            return Err(format!("port {port} is not allowed: only 80 and 443 are"));
        }
        Ok(host)
    }

    /// Sends a request and waits for the head of the response. Does not follow redirects.
    pub(super) async fn send_get(&self, url: &Url, headers: HeaderMap) -> Result<Response, String> {
        let host = self.check_url(url)?;
        if host.ip().is_some() {
            self.dialer
                .resolve_host(&host, self.reach == NetworkReach::Private)
                .await
                .map_err(|e| e.to_string())?;
        }
        let client = self.http_client(url.scheme() == "https")?;
        client.get(url.clone()).headers(headers).send().await.map_err(|e| {
            let proxy_note = if e.is_connect() {
                unused_proxy_note(|name| std::env::var_os(name).is_some())
            } else {
                None
            };
            format!("{}{}", describe_error(&e), proxy_note.unwrap_or_default())
        })
    }

    fn http_client(&self, secure: bool) -> Result<Client, String> {
        let kept = if secure { &self.secure } else { &self.plain };
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let client = self
            .build_client(secure)
            .map_err(|e| format!("could not create an HTTP client: {}", error_chain(&e)))?;
        Ok(kept.get_or_init(|| client).clone())
    }

    fn build_client(&self, secure: bool) -> Result<Client, reqwest::Error> {
        let new = || {
            let checked = GuardedResolver {
                dialer: self.dialer.clone(),
                allows_private: self.reach == NetworkReach::Private,
            };
            Client::builder()
                .user_agent(USER_AGENT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .gzip(false)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_max_idle_per_host(0)
                .dns_resolver(checked)
        };
        if !secure {
            return new().tls_certs_only([]).build();
        }
        // Without system certificates, as in a minimal container, use the bundled root certificates.
        new().build().or_else(|_| {
            let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
            let own = all.map(|der| reqwest::Certificate::from_der(der)).collect::<Result<Vec<_>, _>>()?;
            new().tls_certs_only(own).build()
        })
    }
}

/// Parses a URL from the model.
pub(super) fn parse_url(key: &str, text: &str) -> Result<Url, ToolError> {
    let invalid =
        |why: &str| Err(ToolError::InvalidArguments(format!("`{key}` is {}: {why}", quote_excerpt(text))));
    if text.is_empty() {
        return Err(ToolError::InvalidArguments(format!(
            "`{key}` is empty: give a URL that begins with https://"
        )));
    }
    if text.len() > MAX_URL_BYTES {
        return Err(ToolError::InvalidArguments(format!(
            "`{key}` has {} bytes: the longest address has {MAX_URL_BYTES}",
            text.len()
        )));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return invalid("it contains a space or a control character; remove it, or percent-encode it");
    }
    match Url::parse(text) {
        Ok(mut url) => {
            url.set_fragment(None);
            Ok(url)
        }
        Err(e) => {
            invalid(&format!("it is not an address ({e}); write it in full, as https://example.org/page"))
        }
    }
}

/// Returns an untrusted text for a message: shortened, on one line.
pub(super) fn url_excerpt(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_EXCERPT_BYTES);
    let mut out: String = text.get(..end).unwrap_or_default().chars().flat_map(char::escape_debug).collect();
    if end < text.len() {
        out.push('…');
    }
    out
}

fn quote_excerpt(text: &str) -> String {
    format!("`{}`", url_excerpt(text))
}

/// Reads the body of a response up to a limit, and returns whether there was more.
pub(super) async fn read_body(response: &mut Response, max_bytes: usize) -> Result<(Vec<u8>, bool), String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| describe_error(&e))? {
        let room = max_bytes - body.len();
        if piece.len() > room {
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            return Ok((body, true));
        }
        body.extend_from_slice(&piece);
    }
    Ok((body, false))
}

/// Returns a note about an ignored proxy, which may be the reason for a failed connection.
fn unused_proxy_note(is_set: impl Fn(&str) -> bool) -> Option<String> {
    let variables = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let variable = variables.into_iter().find(|name| is_set(name))?;
    Some(format!(
        "; the proxy in {variable} is not used, because the address behind a proxy cannot be checked"
    ))
}

/// Describes an error; certificate errors and rejected addresses have their own texts.
fn describe_error(error: &reqwest::Error) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(e) = cause {
        if let Some(refused) = e.downcast_ref::<DialError>() {
            return refused.to_string();
        }
        if let Some(words) = tls_error(e).and_then(describe_tls_error) {
            return words;
        }
        cause = e.source();
    }
    error_chain(error)
}

/// Returns the TLS error in an error chain. An I/O error does not return its inner error as its source.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut inner = error;
    loop {
        if let Some(found) = inner.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        inner = inner.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
}

/// Describes a TLS error, with a suggestion for the model.
fn describe_tls_error(error: &rustls::Error) -> Option<String> {
    use rustls::CertificateError as Bad;
    let words = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "its certificate has expired, so the server cannot be verified; use another source".to_owned()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "its certificate is not valid yet; if the clock of this machine is right, use another source"
                    .to_owned()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "its certificate is for another name; check the spelling of the host, or use another source"
                    .to_owned()
            }
            Bad::UnknownIssuer => "its certificate was issued by an authority that this machine does not trust; use another \
                source. For the user's own server, the user can add its authority to the certificates of this machine"
                .to_owned(),
            other => {
                let why: String = other.to_string().chars().take(MAX_CHAIN_CHARS).collect();
                format!("its certificate cannot be trusted ({why}); use another source")
            }
        },
        rustls::Error::InvalidMessage(_) => {
            "the server does not speak TLS; if the page is not secret, try it with http://".to_owned()
        }
        _ => return None,
    };
    Some(words)
}

fn error_chain(error: &reqwest::Error) -> String {
    let mut parts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(e) = cause {
        parts.push(e.to_string());
        cause = e.source();
    }
    parts.dedup();
    parts.join(": ").chars().take(MAX_CHAIN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_is_passed_by_is_named() {
        assert_eq!(unused_proxy_note(|_| false), None);
        assert!(
            unused_proxy_note(|name| name == "https_proxy")
                .is_some_and(|words| words.contains("https_proxy"))
        );
    }
}
