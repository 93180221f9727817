//! A host, parsed at the door: a name in ASCII letters, digits and hyphens, or an IP address in its usual spelling.
//!
//! Whatever has a second reading is refused, not guessed at: `0x7f.1` and `2130706433` are addresses to one program and
//! names to another, `example.org.` is another text for the same name, and `%`, NUL and `@` end a name in some readers.
//! Invariant: two hosts are the same host exactly if their texts are (`a_host_has_one_spelling`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// The longest text that is looked at: a name has at most 253 bytes, in Unicode perhaps a few times as many.
const TEXT_BYTES: usize = 1_024;
/// How much of a refused text an error repeats.
const SHOWN_CHARS: usize = 60;

/// A host's name, or its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(Inner);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Inner {
    /// Lower case ASCII, at least two labels.
    Name(String),
    Ip(IpAddr),
}

/// A text that is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` cannot be used as a host: {why}")]
pub struct BadHost {
    shown: String,
    why: &'static str,
}

impl BadHost {
    fn new(text: &str, why: &'static str) -> BadHost {
        let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        if text.chars().nth(SHOWN_CHARS).is_some() {
            shown.push('…');
        }
        BadHost { shown, why }
    }
}

impl Host {
    /// Reads a host as a person, a model or a program wrote it; an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Result<Host, BadHost> {
        let bad = |why| BadHost::new(text, why);
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.len() > TEXT_BYTES {
            return Err(bad("it is too long for a name"));
        }
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or_else(|| bad("its bracket is not closed"))?;
            let address: Ipv6Addr =
                inside.parse().map_err(|_| bad("there is no IPv6 address in its brackets"))?;
            return Ok(Host(Inner::Ip(address.into())));
        }
        if let Ok(address) = text.parse() {
            return Ok(Host(Inner::Ip(address)));
        }
        refuse_strange(text).map_or(Ok(()), |why| Err(bad(why)))?;
        let name = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
            .map_err(|_| bad("it is not a name of letters, digits and hyphens with at most 63 in a part"))?;
        refuse_name(&name).map_or(Ok(()), |why| Err(bad(why)))?;
        Ok(Host(Inner::Name(name.into_owned())))
    }

    /// The address, if the host is written as one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.0 {
            Inner::Ip(address) => Some(address),
            Inner::Name(_) => None,
        }
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Inner::Name(name) => Some(name),
            Inner::Ip(_) => None,
        }
    }
}

impl fmt::Display for Host {
    /// As it stands in a URL: an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Name(name) => f.write_str(name),
            Inner::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Inner::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// What no host has in it, whatever it would be mapped to.
fn refuse_strange(text: &str) -> Option<&'static str> {
    let found = text.chars().find_map(|c| match c {
        '@' => Some("it has a user name before it: leave that out"),
        '%' => Some("it has a percent sign: write the name plainly"),
        ':' => Some("it has a colon that no IPv6 address explains"),
        '/' | '\\' | '?' | '#' => Some("it goes on behind the host"),
        c if c.is_control() => Some("it has a control character in it"),
        c if c.is_whitespace() => Some("it has a space in it"),
        _ => None,
    });
    // Every character that a resolver or IDNA takes for a dot.
    let dot = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];
    found.or_else(|| text.ends_with(dot).then_some("it ends with a dot: write it without"))
}

/// What is a name by its letters and yet none of a public host. `name` is lower case ASCII.
fn refuse_name(name: &str) -> Option<&'static str> {
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = |part: &str| {
        let hex = part.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
        hex || part.bytes().all(|b| b.is_ascii_digit())
    };
    if number(last) {
        return Some("some read it as an IPv4 address: write that as four decimal numbers");
    }
    if last == "localhost" {
        return Some("it names this machine itself");
    }
    if last == name {
        return Some("it has no dot, so it is no public name");
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
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`. Without a port it is the one given here, if any is.
    pub fn parse(text: &str, port: Option<u16>) -> Result<Authority, BadHost> {
        let bad = |why| BadHost::new(text, why);
        if text.contains('@') {
            return Err(bad("it has a user name before the host: leave that out"));
        }
        let (host, written) = match text.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((address, "")) => (format!("[{address}]"), None),
            Some((address, rest)) => {
                let port = rest.strip_prefix(':').ok_or_else(|| bad("it goes on behind its bracket"))?;
                (format!("[{address}]"), Some(port))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (text.to_owned(), None),
            },
        };
        let port = match written {
            Some(digits) => {
                read_port(digits).ok_or_else(|| bad("its port is not a number from 1 to 65535"))?
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

/// A port in its one spelling: no sign, no leading zero.
fn read_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}
