//! Which hosts a person granted: `sandbox.network`.
//!
//! A rule is a host (`example.org`), everything below one (`*.example.org`, which is not `example.org` itself), either
//! with a port (`example.org:8443`). Without a port it grants the two ports of the web.
//! Invariant: a rule matches whole labels (`a_rule_matches_whole_labels_and_nothing_else`).

use std::fmt;

use super::host::{Authority, BadHost, Host};

/// The ports of the web: what a rule without a port grants.
pub const WEB_PORTS: [u16; 2] = [80, 443];
/// The most rules: each request looks at all of them.
const RULES: usize = 1_024;
/// How many rules a refusal repeats.
const SHOWN_RULES: usize = 8;

/// The hosts that the commands of a pod may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRules {
    /// None.
    Off,
    /// All public ones.
    Public,
    /// These, if their addresses are public.
    List(Vec<HostRule>),
}

/// One granted host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    which: Which,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    Host(Host),
    /// Names that end with a dot and this one.
    Below(String),
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error("`sandbox.network` has a rule that cannot be used: {0}")]
    Host(#[from] BadHost),
    #[error(
        "`sandbox.network` has the rule `{0}`: a star stands for whole names, as in `*.example.org`; for all public \
         hosts say `on`"
    )]
    Star(String),
    #[error("`sandbox.network` has {0} rules, and {RULES} are the most: grant whole domains, or `on`")]
    TooMany(usize),
}

/// Why a host may not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    #[error("this pod was granted no network (`sandbox.network` is `off`); only a person can change that")]
    Off,
    #[error(
        "{host} is not among the hosts that this pod was granted ({granted}); only a person can add it to \
         `sandbox.network`"
    )]
    Host { host: Host, granted: String },
    #[error(
        "port {port} of {host} was not granted, only {granted}; only a person can add `{host}:{port}` to \
         `sandbox.network`"
    )]
    Port { host: Host, port: u16, granted: String },
}

impl HostRules {
    /// Reads a list of hosts, as it stands in `sandbox.network`.
    pub fn list<T: AsRef<str>>(rules: &[T]) -> Result<HostRules, BadRule> {
        if rules.len() > RULES {
            return Err(BadRule::TooMany(rules.len()));
        }
        rules.iter().map(|rule| HostRule::parse(rule.as_ref())).collect::<Result<_, _>>().map(HostRules::List)
    }

    /// Whether a command may ask for this host on this port. Says nothing about the address behind it.
    pub fn check(&self, host: &Host, port: u16) -> Result<(), NotGranted> {
        match self {
            HostRules::Off => Err(NotGranted::Off),
            HostRules::Public if WEB_PORTS.contains(&port) => Ok(()),
            HostRules::Public => Err(no_port(host, port, "80 and 443".to_owned())),
            HostRules::List(rules) => {
                let named: Vec<&HostRule> = rules.iter().filter(|rule| rule.names(host)).collect();
                if named.iter().any(|rule| rule.opens(port)) {
                    Ok(())
                } else if named.is_empty() {
                    Err(NotGranted::Host { host: host.clone(), granted: show(rules.iter()) })
                } else {
                    Err(no_port(host, port, show(named.into_iter())))
                }
            }
        }
    }
}

fn no_port(host: &Host, port: u16, granted: String) -> NotGranted {
    NotGranted::Port { host: host.clone(), port, granted }
}

fn show<'a>(rules: impl ExactSizeIterator<Item = &'a HostRule>) -> String {
    let more = rules.len().saturating_sub(SHOWN_RULES);
    let mut shown: Vec<String> = rules.take(SHOWN_RULES).map(ToString::to_string).collect();
    if shown.is_empty() {
        return "none".to_owned();
    }
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

impl HostRule {
    fn parse(rule: &str) -> Result<HostRule, BadRule> {
        let (star, rest) = match rule.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rule),
        };
        if rest.contains('*') {
            return Err(BadRule::Star(rule.chars().take(80).collect()));
        }
        // A port that nobody wrote is zero, which no address has.
        let Authority { host, port } = Authority::parse(rest, Some(0)).or_else(|e| {
            // An IPv6 address may stand without brackets if no port follows.
            Host::parse(rest).map(|host| Authority { host, port: 0 }).map_err(|_| e)
        })?;
        let port = (port != 0).then_some(port);
        let which = match host.name() {
            Some(name) if star => Which::Below(name.to_owned()),
            None if star => return Err(BadRule::Star(rule.chars().take(80).collect())),
            _ => Which::Host(host),
        };
        Ok(HostRule { which, port })
    }

    fn names(&self, host: &Host) -> bool {
        match &self.which {
            Which::Host(granted) => granted == host,
            Which::Below(domain) => {
                let above = host.name().and_then(|name| name.strip_suffix(domain.as_str()));
                above.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }

    fn opens(&self, port: u16) -> bool {
        self.port.map_or_else(|| WEB_PORTS.contains(&port), |granted| granted == port)
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Host(host) => write!(f, "{host}")?,
            Which::Below(domain) => write!(f, "*.{domain}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
