//! Webhooks: one POST with a limited time and size, to https or to localhost. Follows no redirects, uses no
//! proxy.
//!
//! Elsewhere: parsing an answer (`verdict`), handling a missing one (`steer`, `observers`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, Url};

const USER_AGENT: &str = concat!("minke/", env!("CARGO_PKG_VERSION"));
/// The connect timeout: an unreachable host is reported early.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum length of a reported error chain.
const MAX_CHAIN_CHARS: usize = 300;

/// The reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookHttpError {
    pub(crate) why: String,
    /// Whether a retry may succeed.
    pub(crate) is_retryable: bool,
}

/// HTTP clients, created on first use: loading the system's certificates is slow.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpClients {
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

/// Checks that a URL is allowed: https, or http to localhost.
pub(crate) fn check_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("invalid URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL contains a user name or password: remove it".to_owned());
    }
    let Some(host) = url.host_str() else { return Err("the URL has no host".to_owned()) };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(host) => Ok(()),
        "http" => {
            Err("plain http is only allowed to this machine (127.0.0.1, [::1], localhost): use https"
                .to_owned())
        }
        _ => Err("only http and https are supported".to_owned()),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Scheme, host and port of a URL. The rest may contain a secret.
pub(crate) fn url_origin(text: &str) -> String {
    let Ok(url) = Url::parse(text) else { return "an address".to_owned() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

impl HttpClients {
    /// Posts a body and returns the body of a successful response.
    pub(crate) async fn post_body(
        &self,
        url: &str,
        body: Vec<u8>,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<u8>, HookHttpError> {
        match tokio::time::timeout(timeout, self.send_request(url, body, limit)).await {
            Ok(answer) => answer,
            Err(_) => Err(retryable_error(format!(
                "{} gave no answer within {} s",
                url_origin(url),
                timeout.as_secs()
            ))),
        }
    }

    async fn send_request(&self, url: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, HookHttpError> {
        let never = |why: String| HookHttpError { why, is_retryable: false };
        let address = Url::parse(url).map_err(|error| never(error.to_string()))?;
        let client = self.client_for(address.scheme() == "https").map_err(|e| never(error_chain(&e)))?;
        let request = client.post(address).header("content-type", "application/json").body(body);
        let mut answer = request.send().await.map_err(|error| {
            retryable_error(format!(
                "could not reach {}: {}",
                url_origin(url),
                error_chain(&error.without_url())
            ))
        })?;
        let status = answer.status();
        if !status.is_success() {
            let redirect = if status.is_redirection() { ": redirects are not followed" } else { "" };
            let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
            return Err(HookHttpError {
                why: format!("{} answered {status}{redirect}", url_origin(url)),
                is_retryable: again,
            });
        }
        let mut reply = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(None) => return Ok(reply),
                Ok(Some(chunk)) => {
                    if reply.len() + chunk.len() > limit {
                        return Err(never(format!(
                            "{} answered with more than {limit} bytes",
                            url_origin(url)
                        )));
                    }
                    reply.extend_from_slice(&chunk);
                }
                Err(error) => {
                    return Err(retryable_error(format!(
                        "could not read the response of {}: {}",
                        url_origin(url),
                        error_chain(&error.without_url())
                    )));
                }
            }
        }
    }

    fn client_for(&self, secure: bool) -> Result<Client, reqwest::Error> {
        let saved = if secure { &self.secure } else { &self.plain };
        if let Some(client) = saved.get() {
            return Ok(client.clone());
        }
        let client = build_client(secure)?;
        Ok(saved.get_or_init(|| client).clone())
    }
}

fn build_client(secure: bool) -> Result<Client, reqwest::Error> {
    let new = || {
        Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .gzip(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            // Port 0 keeps the port of the URL.
            .resolve("localhost", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
    if !secure {
        return new().tls_certs_only([]).build();
    }
    // Without system certificates, as in a minimal container, the bundled root certificates are used.
    new().build().or_else(|_| {
        let all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let own = all.map(|der| reqwest::Certificate::from_der(der)).collect::<Result<Vec<_>, _>>()?;
        new().tls_certs_only(own).build()
    })
}

fn retryable_error(why: String) -> HookHttpError {
    HookHttpError { why, is_retryable: true }
}

/// An error with its causes; the last one is the reason.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    crate::verdict::truncate_chars(&text, MAX_CHAIN_CHARS)
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
            assert_eq!(check_url(good), Ok(()), "{good}");
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
            assert!(check_url(bad).is_err(), "{bad}");
        }
        assert_eq!(url_origin("https://example.org:444/secret?token=x"), "https://example.org:444");
    }
}
