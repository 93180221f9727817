//! Proxies: the proxy of a request and the variable that sets it.
//!
//! Here: reading the usual variables and matching a URL. Elsewhere: the connections (`http`). Invariant: a
//! shown proxy has no password (`the_proxy_of_a_request_is_told_without_its_password`), and an invalid
//! variable stops requests instead of bypassing the proxy (`a_proxy_that_fails_is_named_by_its_variable`).

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{NoProxy, Proxy, Url};

use crate::error::{ProviderError, ProviderErrorKind};

/// The proxies from the usual variables.
#[derive(Debug, Default)]
pub(crate) struct ProxyConfig {
    http: Option<ProxyVia>,
    https: Option<ProxyVia>,
    no_proxy: String,
    matcher: Option<Matcher>,
    /// A variable without a valid URL: requests must not bypass it.
    invalid_variable: Option<String>,
}

/// A proxy and the variable that sets it.
#[derive(Debug, Clone)]
pub(crate) struct ProxyVia {
    variable: &'static str,
    pub(crate) url: Url,
}

impl std::fmt::Display for ProxyVia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.url.host_str().unwrap_or("?");
        write!(f, "{} ({}://{host}", self.variable, self.url.scheme())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))?;
        f.write_str(")")
    }
}

impl ProxyConfig {
    pub(crate) fn from_env(env: &dyn Fn(&str) -> Option<String>) -> ProxyConfig {
        let mut proxies = ProxyConfig::default();
        let first = |names: [&'static str; 2]| {
            let set =
                |name: &'static str| Some((name, env(name)?)).filter(|(_, value)| !value.trim().is_empty());
            names.into_iter().find_map(set)
        };
        let mut via = |names| {
            let (variable, value) = first(names)?;
            match parse_proxy(value.trim()) {
                Some(url) => Some(ProxyVia { variable, url }),
                None => {
                    proxies.invalid_variable.get_or_insert_with(|| variable.to_owned());
                    None
                }
            }
        };
        let all = via(["ALL_PROXY", "all_proxy"]);
        let https = via(["HTTPS_PROXY", "https_proxy"]);
        // In a CGI program HTTP_PROXY is a header that any client can send.
        let http = if env("REQUEST_METHOD").is_some() { None } else { via(["HTTP_PROXY", "http_proxy"]) };
        proxies.http = http.or_else(|| all.clone());
        proxies.https = https.or(all);
        proxies.no_proxy = first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
        let matcher = Matcher::builder();
        let url = |via: &Option<ProxyVia>| via.as_ref().map(|via| via.url.to_string()).unwrap_or_default();
        let matcher =
            matcher.http(url(&proxies.http)).https(url(&proxies.https)).no(proxies.no_proxy.clone());
        proxies.matcher = Some(matcher.build());
        proxies
    }

    /// Returns the proxy for `url`.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<&ProxyVia> {
        let uri = url.as_str().parse().ok()?;
        self.matcher.as_ref()?.intercept(&uri)?;
        match url.scheme() {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }
    }

    pub(crate) fn configure_client(
        &self,
        builder: reqwest::ClientBuilder,
    ) -> Result<reqwest::ClientBuilder, ProviderError> {
        if let Some(variable) = &self.invalid_variable {
            let text =
                format!("the variable {variable} does not contain a proxy URL, such as http://proxy:3128");
            return Err(ProviderError::new(ProviderErrorKind::Proxy, text));
        }
        // Use the proxy settings of the system if there is not a variable.
        let system = cfg!(any(target_os = "macos", target_os = "windows"));
        if system && self.http.is_none() && self.https.is_none() {
            return Ok(builder);
        }
        let except = || NoProxy::from_string(&self.no_proxy);
        let bad =
            |via: &ProxyVia| ProviderError::new(ProviderErrorKind::Proxy, format!("{via} cannot be used"));
        let mut builder = builder.no_proxy();
        if let Some(via) = &self.http {
            builder = builder.proxy(Proxy::http(via.url.clone()).map_err(|_| bad(via))?.no_proxy(except()));
        }
        if let Some(via) = &self.https {
            builder = builder.proxy(Proxy::https(via.url.clone()).map_err(|_| bad(via))?.no_proxy(except()));
        }
        Ok(builder)
    }
}

/// Parses `http://proxy:3128`, with or without a scheme.
fn parse_proxy(value: &str) -> Option<Url> {
    let url = match value.contains("://") {
        true => Url::parse(value),
        false => Url::parse(&format!("http://{value}")),
    };
    let known =
        |url: &Url| matches!(url.scheme(), "http" | "https" | "socks4" | "socks4a" | "socks5" | "socks5h");
    url.ok().filter(|url| url.has_host() && known(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_a_request_is_told_without_its_password() {
        let variables = [
            ("HTTPS_PROXY", "http://user:hidden@proxy.example:3128"),
            ("http_proxy", "plain.example:8080"),
            ("NO_PROXY", "inside.example,10.0.0.0/8"),
        ];
        let proxies = ProxyConfig::from_env(&|name| {
            variables.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned())
        });
        let via = |url: &str| proxies.proxy_for(&Url::parse(url).unwrap()).map(ToString::to_string);
        assert_eq!(via("https://a.example").as_deref(), Some("HTTPS_PROXY (http://proxy.example:3128)"));
        assert_eq!(via("http://a.example").as_deref(), Some("http_proxy (http://plain.example:8080)"));
        assert_eq!(via("https://inside.example"), None);
        assert_eq!(via("http://10.1.2.3"), None);
        let none = ProxyConfig::from_env(&|_| None);
        assert!(none.proxy_for(&Url::parse("https://a.example").unwrap()).is_none());
    }
}
