//! Proxies: which one a request goes through, and who named it.
//!
//! Here: reading the usual variables, and what they mean for an address. Elsewhere: the connections (`http`).
//! Invariant: what is shown of a proxy has no password (`the_proxy_of_a_request_is_told_without_its_password`), and a
//! variable that cannot be read stops requests instead of letting them pass it by
//! (`a_proxy_that_fails_is_named_by_its_variable`).

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{NoProxy, Proxy, Url};

use crate::problem::{Problem, Reason};

/// The proxies of the usual variables.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    http: Option<Via>,
    https: Option<Via>,
    except: String,
    matcher: Option<Matcher>,
    /// A variable that holds no address: nothing is sent past it unseen.
    bad: Option<String>,
}

/// A proxy, and the variable that names it.
#[derive(Debug, Clone)]
pub(crate) struct Via {
    variable: &'static str,
    pub(crate) url: Url,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.url.host_str().unwrap_or("?");
        write!(f, "{} ({}://{host}", self.variable, self.url.scheme())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))?;
        f.write_str(")")
    }
}

impl Proxies {
    pub(crate) fn read(env: &dyn Fn(&str) -> Option<String>) -> Proxies {
        let mut proxies = Proxies::default();
        let first = |names: [&'static str; 2]| {
            let set =
                |name: &'static str| Some((name, env(name)?)).filter(|(_, value)| !value.trim().is_empty());
            names.into_iter().find_map(set)
        };
        let mut via = |names| {
            let (variable, value) = first(names)?;
            match parse_proxy(value.trim()) {
                Some(url) => Some(Via { variable, url }),
                None => {
                    proxies.bad.get_or_insert_with(|| variable.to_owned());
                    None
                }
            }
        };
        let all = via(["ALL_PROXY", "all_proxy"]);
        let https = via(["HTTPS_PROXY", "https_proxy"]);
        // In a CGI program HTTP_PROXY is a header that anybody can send.
        let http = if env("REQUEST_METHOD").is_some() { None } else { via(["HTTP_PROXY", "http_proxy"]) };
        proxies.http = http.or_else(|| all.clone());
        proxies.https = https.or(all);
        proxies.except = first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
        let matcher = Matcher::builder();
        let url = |via: &Option<Via>| via.as_ref().map(|via| via.url.to_string()).unwrap_or_default();
        let matcher = matcher.http(url(&proxies.http)).https(url(&proxies.https)).no(proxies.except.clone());
        proxies.matcher = Some(matcher.build());
        proxies
    }

    /// The proxy that a request to this address goes through.
    pub(crate) fn applies(&self, url: &Url) -> Option<&Via> {
        let uri = url.as_str().parse().ok()?;
        self.matcher.as_ref()?.intercept(&uri)?;
        match url.scheme() {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }
    }

    pub(crate) fn install(&self, builder: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder, Problem> {
        if let Some(variable) = &self.bad {
            let text =
                format!("the variable {variable} holds no address of a proxy, such as http://proxy:3128");
            return Err(Problem::new(Reason::Proxy, text));
        }
        // Where the system itself names proxies, it is asked when no variable does.
        let system = cfg!(any(target_os = "macos", target_os = "windows"));
        if system && self.http.is_none() && self.https.is_none() {
            return Ok(builder);
        }
        let except = || NoProxy::from_string(&self.except);
        let bad = |via: &Via| Problem::new(Reason::Proxy, format!("{via} cannot be used"));
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

/// `http://proxy:3128`, or the same without a scheme.
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
        let proxies = Proxies::read(&|name| {
            variables.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned())
        });
        let via = |url: &str| proxies.applies(&Url::parse(url).unwrap()).map(ToString::to_string);
        assert_eq!(via("https://a.example").as_deref(), Some("HTTPS_PROXY (http://proxy.example:3128)"));
        assert_eq!(via("http://a.example").as_deref(), Some("http_proxy (http://plain.example:8080)"));
        assert_eq!(via("https://inside.example"), None);
        assert_eq!(via("http://10.1.2.3"), None);
        let none = Proxies::read(&|_| None);
        assert!(none.applies(&Url::parse("https://a.example").unwrap()).is_none());
    }
}
