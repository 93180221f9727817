//! One exchange with a server: an address that was checked, a request, and a bounded answer.
//!
//! The client's own resolver is ours: it asks once, checks what came, and the connection goes to exactly that. Addresses
//! that are written as numbers never reach a resolver and are checked before. No proxy of the environment is used,
//! because behind one nobody knows which address is dialled. No connection is kept.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use minke_exec::address::{Host, Outside, Unreachable, WEB_PORTS};
use minke_tool::ToolError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The longest address that is fetched: longer ones carry something else than an address.
const URL_BYTES: usize = 4 * 1024;
/// What is shown of an address in a message.
const SHOWN_BYTES: usize = 200;
/// What is shown of a chain of errors.
const CHAIN_CHARS: usize = 300;

/// How far it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Public,
    /// Also this machine and its networks.
    Near,
}

/// Connections of one reach, made when they are needed.
pub(super) struct Web {
    outside: Outside,
    reach: Reach,
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

/// Asks once and gives only what may be dialled.
struct Checked {
    outside: Outside,
    near: bool,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (outside, near) = (self.outside.clone(), self.near);
        Box::pin(async move {
            // The only name without a dot that is meant: `check` has refused it where it is not.
            let host = match name.as_str() {
                "localhost" if near => "127.0.0.1",
                name => name,
            };
            let host = Host::parse(host)?;
            let found = outside.find(&host, near).await?;
            // Port 0 stands for the one of the address that is fetched.
            Ok(Box::new(outside.targets(&found, 0).into_iter()) as Addrs)
        })
    }
}

impl Web {
    pub(super) fn new(outside: Outside, reach: Reach) -> Web {
        Web { outside, reach, plain: OnceLock::new(), secure: OnceLock::new() }
    }

    /// Whether an address may be asked for at all, as far as its text says, and the host that it names. Pure.
    pub(super) fn check(&self, url: &Url) -> Result<Host, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{}:` is not fetched: only http and https are", shown(url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it has a user name or password in it: leave that out".to_owned());
        }
        let near = self.reach == Reach::Near;
        let host = match url.host_str() {
            Some("localhost") if near => "127.0.0.1",
            Some(host) => host,
            None => return Err("it names no host".to_owned()),
        };
        let host = Host::parse(host).map_err(|e| e.to_string())?;
        let port = url.port_or_known_default().unwrap_or_default();
        if !near && !WEB_PORTS.contains(&port) {
            return Err(format!("port {port} is not reached: only 80 and 443 are"));
        }
        Ok(host)
    }

    /// Asks for an address and waits for the head of the answer. Follows nothing.
    pub(super) async fn get(&self, url: &Url, headers: HeaderMap) -> Result<Response, String> {
        let host = self.check(url)?;
        if host.ip().is_some() {
            self.outside.find(&host, self.reach == Reach::Near).await.map_err(|e| e.to_string())?;
        }
        let client = self.client(url.scheme() == "https")?;
        client.get(url.clone()).headers(headers).send().await.map_err(|e| {
            let passed_by =
                if e.is_connect() { passed_by(|name| std::env::var_os(name).is_some()) } else { None };
            format!("{}{}", explain(&e), passed_by.unwrap_or_default())
        })
    }

    fn client(&self, secure: bool) -> Result<Client, String> {
        let kept = if secure { &self.secure } else { &self.plain };
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let client = self.build(secure).map_err(|e| format!("no HTTP client can be built: {}", chain(&e)))?;
        Ok(kept.get_or_init(|| client).clone())
    }

    fn build(&self, secure: bool) -> Result<Client, reqwest::Error> {
        let new = || {
            let checked = Checked { outside: self.outside.clone(), near: self.reach == Reach::Near };
            Client::builder()
                .user_agent(USER_AGENT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .gzip(false)
                .connect_timeout(CONNECT_WAIT)
                .pool_max_idle_per_host(0)
                .dns_resolver(checked)
        };
        if !secure {
            return new().tls_certs_only([]).build();
        }
        // Without certificates of the system, as in a bare container, the widely trusted ones are used.
        new().build().or_else(|_| {
            let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
            let own = all.map(|der| reqwest::Certificate::from_der(der)).collect::<Result<Vec<_>, _>>()?;
            new().tls_certs_only(own).build()
        })
    }
}

/// Reads an address as the model wrote it.
pub(super) fn read_url(key: &str, text: &str) -> Result<Url, ToolError> {
    let invalid = |why: &str| Err(ToolError::Invalid(format!("`{key}` is {}: {why}", quoted(text))));
    if text.is_empty() {
        return Err(ToolError::Invalid(format!(
            "`{key}` is empty: give an address that begins with https://"
        )));
    }
    if text.len() > URL_BYTES {
        return Err(ToolError::Invalid(format!(
            "`{key}` has {} bytes: the longest address has {URL_BYTES}",
            text.len()
        )));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return invalid("it has a space or a control character in it; write it without, or percent-encoded");
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

/// A text of somebody else's in a message: short, on one line.
pub(super) fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_BYTES);
    let mut out: String = text.get(..end).unwrap_or_default().chars().flat_map(char::escape_debug).collect();
    if end < text.len() {
        out.push('…');
    }
    out
}

fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}

/// Reads an answer's body up to a size. Says whether it went on.
pub(super) async fn read_body(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| explain(&e))? {
        let room = most - body.len();
        if piece.len() > room {
            body.extend_from_slice(piece.get(..room).unwrap_or_default());
            return Ok((body, true));
        }
        body.extend_from_slice(&piece);
    }
    Ok((body, false))
}

/// A proxy that is there and not used may be why nothing is reached.
fn passed_by(is_set: impl Fn(&str) -> bool) -> Option<String> {
    let variables = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let variable = variables.into_iter().find(|name| is_set(name))?;
    Some(format!(
        "; the proxy in {variable} is not used, because behind one nobody can check which address is dialled"
    ))
}

/// What went wrong, in our own words where it was our own refusal or the server's certificate.
fn explain(error: &reqwest::Error) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(e) = cause {
        if let Some(refused) = e.downcast_ref::<Unreachable>() {
            return refused.to_string();
        }
        if let Some(words) = of_tls(e).and_then(insecure) {
            return words;
        }
        cause = e.source();
    }
    chain(error)
}

/// What went wrong in TLS, if that is what it was. An error of reading and writing does not name what it wraps as its
/// source.
fn of_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut inner = error;
    loop {
        if let Some(found) = inner.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        inner = inner.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
}

/// Why no connection that can be trusted came about, and what a model can do about it.
fn insecure(error: &rustls::Error) -> Option<String> {
    use rustls::CertificateError as Bad;
    let words = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "its certificate has expired, so nobody can say who answers; use another source".to_owned()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "its certificate is not valid yet; if the clock of this machine is right, use another source"
                    .to_owned()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "its certificate is for another name; look at the spelling of the host, or use another source"
                    .to_owned()
            }
            Bad::UnknownIssuer => "its certificate was issued by somebody whom this machine does not trust; use another \
                source. If the server is the person's own, they can add its authority to the certificates of this machine"
                .to_owned(),
            other => {
                let why: String = other.to_string().chars().take(CHAIN_CHARS).collect();
                format!("its certificate cannot be trusted ({why}); use another source")
            }
        },
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS; if the page is not secret, try it with http://".to_owned()
        }
        _ => return None,
    };
    Some(words)
}

fn chain(error: &reqwest::Error) -> String {
    let mut parts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(e) = cause {
        parts.push(e.to_string());
        cause = e.source();
    }
    parts.dedup();
    parts.join(": ").chars().take(CHAIN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_is_passed_by_is_named() {
        assert_eq!(passed_by(|_| false), None);
        assert!(passed_by(|name| name == "https_proxy").is_some_and(|words| words.contains("https_proxy")));
    }
}
