//! Addresses: which of them Minke may connect to on behalf of a model.
//!
//! Here: classifying IP addresses. In this folder: parsing host names (`host`), the hosts that the user granted
//! (`rules`), resolving a name and connecting to exactly the checked addresses (`dial`). Elsewhere: the callers
//! (`proxy`, and the web tools of `tools`).
//! Invariant: an address is public only if no rule classifies it otherwise. Outside `2000::/3` all of IPv6 is refused,
//! and so is every IPv6 address that contains an IPv4 address (`every_address_has_its_kind`,
//! `no_spelling_of_this_machine_is_reached`).

mod dial;
mod host;
mod rules;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use dial::{DialError, Dialer, HostResolver, ResolveFuture, ResolvedAddresses};
pub use host::{Authority, Host, InvalidHost};
pub use rules::{HostNotGranted, HostRules, InvalidHostRule, WEB_PORTS};

/// The class of an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressKind {
    Public,
    Loopback,
    /// RFC 1918.
    Private,
    LinkLocal,
    /// Carrier-grade NAT, 100.64.0.0/10.
    Shared,
    /// A cloud metadata service, which returns credentials.
    Metadata,
    Multicast,
    Unspecified,
    Documentation,
    Benchmarking,
    /// Reserved or unassigned.
    Reserved,
    /// An IPv4 address in an IPv6 one: mapped, compatible or translated.
    Mapped,
    /// 6to4, Teredo, ISATAP or NAT64: packets leave for an embedded IPv4 address.
    Tunnel,
    /// Unique local addresses, `fc00::/7`.
    UniqueLocal,
    /// Site-local addresses, `fec0::/10`, the predecessor of unique local ones.
    SiteLocal,
}

impl AddressKind {
    pub fn classify(address: IpAddr) -> AddressKind {
        match address {
            IpAddr::V4(address) => classify_v4(address),
            IpAddr::V6(address) => classify_v6(address),
        }
    }

    /// Whether `web.fetch.allow_private` allows it, for example a server of the user's own. Does not include metadata
    /// services, which return credentials.
    pub fn is_local_network(self) -> bool {
        matches!(
            self,
            AddressKind::Loopback
                | AddressKind::Private
                | AddressKind::LinkLocal
                | AddressKind::Shared
                | AddressKind::UniqueLocal
                | AddressKind::SiteLocal
        )
    }

    pub fn as_str(self) -> &'static str {
        match self {
            AddressKind::Public => "a public address",
            AddressKind::Loopback => "this machine's own loopback",
            AddressKind::Private => "a private network",
            AddressKind::LinkLocal => "the local link",
            AddressKind::Shared => "a provider's internal network",
            AddressKind::Metadata => "a cloud's metadata service",
            AddressKind::Multicast => "a multicast group",
            AddressKind::Unspecified => "no particular machine",
            AddressKind::Documentation => "an address for examples",
            AddressKind::Benchmarking => "an address for benchmarks",
            AddressKind::Reserved => "a reserved address",
            AddressKind::Mapped => "an IPv4 address written as IPv6",
            AddressKind::Tunnel => "a tunnel to an IPv4 address",
            AddressKind::UniqueLocal => "a private network",
            AddressKind::SiteLocal => "a private network",
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Addresses of cloud metadata services. Most are in refused ranges anyway. They are listed because the last one is in
/// a public range, and because `allow_private` must not allow them.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

fn classify_v4(address: Ipv4Addr) -> AddressKind {
    if METADATA_V4.contains(&address) {
        return AddressKind::Metadata;
    }
    match address.octets() {
        [0, 0, 0, 0] => AddressKind::Unspecified,
        [0, ..] => AddressKind::Reserved,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressKind::Private,
        [100, 64..=127, ..] => AddressKind::Shared,
        [127, ..] => AddressKind::Loopback,
        [169, 254, ..] => AddressKind::LinkLocal,
        // Protocol assignments, and the unused anycast address of 6to4 relays.
        [192, 0, 0, _] | [192, 88, 99, _] => AddressKind::Reserved,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => AddressKind::Documentation,
        [198, 18..=19, ..] => AddressKind::Benchmarking,
        [224..=239, ..] => AddressKind::Multicast,
        [240..=255, ..] => AddressKind::Reserved,
        _ => AddressKind::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressKind {
    if METADATA_V6.contains(&address) {
        return AddressKind::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // Compatible `::a.b.c.d`, mapped `::ffff:a.b.c.d`, translated `::ffff:0:a.b.c.d`.
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => {
            AddressKind::Mapped
        }
        // NAT64: the well-known prefix and the one for local use.
        [0x64, 0xff9b, 0 | 1, ..] => AddressKind::Tunnel,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xfec0..=0xfeff, ..] => AddressKind::SiteLocal,
        [0xfc00..=0xfdff, ..] => AddressKind::UniqueLocal,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        [0x2001, 0, ..] | [0x2002, ..] => AddressKind::Tunnel,
        [0x2001, 2, 0, ..] => AddressKind::Benchmarking,
        // The other protocol assignments, including ORCHID.
        [0x2001, 0..=0x01ff, ..] => AddressKind::Reserved,
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => AddressKind::Documentation,
        // ISATAP: the IPv4 address follows this marker in any prefix.
        [0x2000..=0x3fff, _, _, _, 0 | 0x0200, 0x5efe, _, _] => AddressKind::Tunnel,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}
