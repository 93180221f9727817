//! The hosts that the user granted: `sandbox.network`.
//!
//! A rule is a host (`example.org`) or all subdomains of one (`*.example.org`, without `example.org` itself),
//! optionally with a port (`example.org:8443`). Without a port it grants ports 80 and 443.
//! Invariant: a rule matches whole labels (`a_rule_matches_whole_labels_and_nothing_else`).

use std::fmt;

use super::host::{Authority, Host, InvalidHost};

/// The ports that a rule without a port grants.
pub const WEB_PORTS: [u16; 2] = [80, 443];
/// The most rules: every request checks all of them.
const MAX_RULES: usize = 1_024;
/// The most rules that an error lists.
const SHOWN_RULES: usize = 8;

/// The hosts that commands of a pod may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRules {
    /// None.
    Off,
    /// All public hosts.
    Public,
    /// These hosts, if their addresses are public.
    List(Vec<HostRule>),
}

/// One granted host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    pattern: HostPattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Host(Host),
    /// All subdomains of this name.
    Subdomains(String),
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostRule {
    #[error("`sandbox.network` has an invalid rule: {0}")]
    Host(#[from] InvalidHost),
    #[error(
        "`sandbox.network` has the rule `{0}`: a star stands for whole labels, as in `*.example.org`; for all \
         public hosts use `on`"
    )]
    MisplacedStar(String),
    #[error("`sandbox.network` has {0} rules, the limit is {MAX_RULES}: grant whole domains, or `on`")]
    TooMany(usize),
}

/// Why a host may not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostNotGranted {
    #[error("this pod has no network access (`sandbox.network` is `off`); only the user can change that")]
    Off,
    #[error(
        "{host} is not among the hosts granted to this pod ({granted}); only the user can add it to \
         `sandbox.network`"
    )]
    Host { host: Host, granted: String },
    #[error(
        "port {port} of {host} is not granted, only {granted}; only the user can add `{host}:{port}` to \
         `sandbox.network`"
    )]
    Port { host: Host, port: u16, granted: String },
}

impl HostRules {
    /// Parses a list of hosts, as written in `sandbox.network`.
    pub fn parse_list<T: AsRef<str>>(rules: &[T]) -> Result<HostRules, InvalidHostRule> {
        if rules.len() > MAX_RULES {
            return Err(InvalidHostRule::TooMany(rules.len()));
        }
        rules.iter().map(|rule| HostRule::parse(rule.as_ref())).collect::<Result<_, _>>().map(HostRules::List)
    }

    /// Checks whether a command may request this host and port. Does not check the host's address.
    pub fn check(&self, host: &Host, port: u16) -> Result<(), HostNotGranted> {
        match self {
            HostRules::Off => Err(HostNotGranted::Off),
            HostRules::Public if WEB_PORTS.contains(&port) => Ok(()),
            HostRules::Public => Err(port_not_granted(host, port, "80 and 443".to_owned())),
            HostRules::List(rules) => {
                let named: Vec<&HostRule> = rules.iter().filter(|rule| rule.matches_host(host)).collect();
                if named.iter().any(|rule| rule.matches_port(port)) {
                    Ok(())
                } else if named.is_empty() {
                    Err(HostNotGranted::Host { host: host.clone(), granted: format_rules(rules.iter()) })
                } else {
                    Err(port_not_granted(host, port, format_rules(named.into_iter())))
                }
            }
        }
    }
}

fn port_not_granted(host: &Host, port: u16, granted: String) -> HostNotGranted {
    HostNotGranted::Port { host: host.clone(), port, granted }
}

fn format_rules<'a>(rules: impl ExactSizeIterator<Item = &'a HostRule>) -> String {
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
    fn parse(rule: &str) -> Result<HostRule, InvalidHostRule> {
        let (star, rest) = match rule.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rule),
        };
        if rest.contains('*') {
            return Err(InvalidHostRule::MisplacedStar(rule.chars().take(80).collect()));
        }
        // Zero means that no port was given; no address has it.
        let Authority { host, port } = Authority::parse(rest, Some(0)).or_else(|e| {
            // An IPv6 address may be without brackets if no port follows.
            Host::parse(rest).map(|host| Authority { host, port: 0 }).map_err(|_| e)
        })?;
        let port = (port != 0).then_some(port);
        let pattern = match host.name() {
            Some(name) if star => HostPattern::Subdomains(name.to_owned()),
            None if star => return Err(InvalidHostRule::MisplacedStar(rule.chars().take(80).collect())),
            _ => HostPattern::Host(host),
        };
        Ok(HostRule { pattern, port })
    }

    fn matches_host(&self, host: &Host) -> bool {
        match &self.pattern {
            HostPattern::Host(granted) => granted == host,
            HostPattern::Subdomains(domain) => {
                let above = host.name().and_then(|name| name.strip_suffix(domain.as_str()));
                above.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }

    fn matches_port(&self, port: u16) -> bool {
        self.port.map_or_else(|| WEB_PORTS.contains(&port), |granted| granted == port)
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            HostPattern::Host(host) => write!(f, "{host}")?,
            HostPattern::Subdomains(domain) => write!(f, "*.{domain}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
