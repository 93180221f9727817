//! Webhooks: one POST, bounded in time and size, to https or to this machine. Follows nothing, uses no proxy.
//!
//! Elsewhere: what an answer means (`verdict`), what is done when there is none (`steer`, `observe`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, Url};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take: a host that is not there is told at once.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// What is shown of a chain of errors.
const CHAIN_CHARS: usize = 300;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    pub(crate) why: String,
    /// Whether it may be otherwise later.
    pub(crate) later: bool,
}

/// Clients, made when they are needed: the certificates of the system take a while to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Web {
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

/// Whether an address may be used: https, or http to this machine.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("this is no address: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user name or password in it: leave that out".to_owned());
    }
    let Some(host) = url.host_str() else { return Err("it names no host".to_owned()) };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_this_machine(host) => Ok(()),
        "http" => {
            Err("plain http goes only to this machine (127.0.0.1, [::1], localhost): use https".to_owned())
        }
        _ => Err("only http and https are spoken".to_owned()),
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Scheme, host and port of an address. The rest may be a key.
pub(crate) fn host_of(text: &str) -> String {
    let Ok(url) = Url::parse(text) else { return "an address".to_owned() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

impl Web {
    /// The body of a good answer.
    pub(crate) async fn post(
        &self,
        url: &str,
        body: Vec<u8>,
        timeout: Duration,
        most: usize,
    ) -> Result<Vec<u8>, NoAnswer> {
        match tokio::time::timeout(timeout, self.exchange(url, body, most)).await {
            Ok(answer) => answer,
            Err(_) => Err(later(format!("{} gave no answer within {} s", host_of(url), timeout.as_secs()))),
        }
    }

    async fn exchange(&self, url: &str, body: Vec<u8>, most: usize) -> Result<Vec<u8>, NoAnswer> {
        let never = |why: String| NoAnswer { why, later: false };
        let address = Url::parse(url).map_err(|error| never(error.to_string()))?;
        let client = self.client(address.scheme() == "https").map_err(|e| never(chain(&e)))?;
        let request = client.post(address).header("content-type", "application/json").body(body);
        let mut answer = request.send().await.map_err(|error| {
            later(format!("{} cannot be reached: {}", host_of(url), chain(&error.without_url())))
        })?;
        let status = answer.status();
        if !status.is_success() {
            let redirect = if status.is_redirection() { ": redirects are not followed" } else { "" };
            let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
            return Err(NoAnswer {
                why: format!("{} answered {status}{redirect}", host_of(url)),
                later: again,
            });
        }
        let mut said = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(None) => return Ok(said),
                Ok(Some(chunk)) => {
                    if said.len() + chunk.len() > most {
                        return Err(never(format!("{} answered with more than {most} bytes", host_of(url))));
                    }
                    said.extend_from_slice(&chunk);
                }
                Err(error) => {
                    return Err(later(format!(
                        "{} broke off: {}",
                        host_of(url),
                        chain(&error.without_url())
                    )));
                }
            }
        }
    }

    fn client(&self, secure: bool) -> Result<Client, reqwest::Error> {
        let kept = if secure { &self.secure } else { &self.plain };
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let client = build(secure)?;
        Ok(kept.get_or_init(|| client).clone())
    }
}

fn build(secure: bool) -> Result<Client, reqwest::Error> {
    let new = || {
        Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .gzip(false)
            .connect_timeout(CONNECT_WAIT)
            .pool_max_idle_per_host(0)
            // Port 0 stands for the one of the address.
            .resolve("localhost", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
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

fn later(why: String) -> NoAnswer {
    NoAnswer { why, later: true }
}

/// An error with its causes, the last of which is the reason.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    crate::verdict::cut(&text, CHAIN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine() {
        for good in [
            "https://example.org/x?y",
            "http://127.0.0.1:80/",
            "http://[::1]:9/",
            "http://localhost:8080",
            "http://127.9.9.9",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "http://example.org",
            "http://127.0.0.1.example.org",
            "http://localhost.example.org",
            "ftp://127.0.0.1",
            "https://u:p@example.org",
            "file:///etc/passwd",
            "example.org",
            "http://0.0.0.0",
            "http://10.0.0.1",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert_eq!(host_of("https://example.org:444/secret?token=x"), "https://example.org:444");
    }
}
