//! Parses a host: a name of ASCII letters, digits and hyphens, or an IP address in its canonical spelling.
//!
//! Ambiguous texts are rejected: some programs read `0x7f.1` and `2130706433` as addresses and others as names,
//! `example.org.` is a second spelling of a name, and `%`, NUL and `@` end a name in some parsers.
//! Invariant: two hosts are equal exactly if their texts are equal (`a_host_has_one_spelling`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// The longest accepted text: a name has at most 253 bytes, in Unicode a few times as many.
const MAX_HOST_BYTES: usize = 1_024;
/// The most characters of a rejected text that an error repeats.
const SHOWN_CHARS: usize = 60;

/// A host name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(HostKind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum HostKind {
    /// Lower case ASCII, at least two labels.
    Name(String),
    Ip(IpAddr),
}

/// The error for a text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not use `{shown}` as a host: {why}")]
pub struct InvalidHost {
    shown: String,
    why: &'static str,
}

impl InvalidHost {
    fn new(text: &str, why: &'static str) -> InvalidHost {
        let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        if text.chars().nth(SHOWN_CHARS).is_some() {
            shown.push('…');
        }
        InvalidHost { shown, why }
    }
}

impl Host {
    /// Parses a host from a user, a model or a program; an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Result<Host, InvalidHost> {
        let bad = |why| InvalidHost::new(text, why);
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.len() > MAX_HOST_BYTES {
            return Err(bad("it is too long for a name"));
        }
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or_else(|| bad("its closing bracket is missing"))?;
            let address: Ipv6Addr =
                inside.parse().map_err(|_| bad("its brackets do not contain an IPv6 address"))?;
            return Ok(Host(HostKind::Ip(address.into())));
        }
        if let Ok(address) = text.parse() {
            return Ok(Host(HostKind::Ip(address)));
        }
        find_forbidden_char(text).map_or(Ok(()), |why| Err(bad(why)))?;
        let name = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
            .map_err(|_| bad("it is not a name of letters, digits and hyphens with at most 63 in a part"))?;
        find_name_error(&name).map_or(Ok(()), |why| Err(bad(why)))?;
        Ok(Host(HostKind::Name(name.into_owned())))
    }

    /// Returns the address, if the host is an address.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.0 {
            HostKind::Ip(address) => Some(address),
            HostKind::Name(_) => None,
        }
    }

    /// Returns the name, if the host is a name.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            HostKind::Name(name) => Some(name),
            HostKind::Ip(_) => None,
        }
    }
}

impl fmt::Display for Host {
    /// Formats the host as in a URL: an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HostKind::Name(name) => f.write_str(name),
            HostKind::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            HostKind::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Returns an error for a character that no host contains.
fn find_forbidden_char(text: &str) -> Option<&'static str> {
    let found = text.chars().find_map(|c| match c {
        '@' => Some("it has a user name before it: remove the user name"),
        '%' => Some("it has a percent sign: write the name without escapes"),
        ':' => Some("it has a colon but is not an IPv6 address"),
        '/' | '\\' | '?' | '#' => Some("it has a path or query behind the host"),
        c if c.is_control() => Some("it contains a control character"),
        c if c.is_whitespace() => Some("it contains a space"),
        _ => None,
    });
    // All characters that a resolver or IDNA treats as a dot.
    let dot = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];
    found.or_else(|| text.ends_with(dot).then_some("it ends with a dot: remove the dot"))
}

/// Returns an error for a valid name that is not a public host. `name` is lower case ASCII.
fn find_name_error(name: &str) -> Option<&'static str> {
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = |part: &str| {
        let hex = part.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
        hex || part.bytes().all(|b| b.is_ascii_digit())
    };
    if number(last) {
        return Some("some programs read it as an IPv4 address: write that as four decimal numbers");
    }
    if last == "localhost" {
        return Some("it names this machine itself");
    }
    if last == name {
        return Some("it has no dot, so it is not a public name");
    }
    None
}

/// A host and a port, as in a CONNECT request or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    pub host: Host,
    pub port: u16,
}

impl Authority {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`. `port` is the default port.
    pub fn parse(text: &str, port: Option<u16>) -> Result<Authority, InvalidHost> {
        let bad = |why| InvalidHost::new(text, why);
        if text.contains('@') {
            return Err(bad("it has a user name before the host: remove the user name"));
        }
        let (host, written) = match text.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((address, "")) => (format!("[{address}]"), None),
            Some((address, rest)) => {
                let port = rest.strip_prefix(':').ok_or_else(|| bad("it has text behind its bracket"))?;
                (format!("[{address}]"), Some(port))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (text.to_owned(), None),
            },
        };
        let port = match written {
            Some(digits) => {
                parse_port(digits).ok_or_else(|| bad("its port is not a number from 1 to 65535"))?
            }
            None => port.ok_or_else(|| bad("it has no port: write host:port"))?,
        };
        Ok(Authority { host: Host::parse(&host)?, port })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses a port without sign and leading zero.
fn parse_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}
