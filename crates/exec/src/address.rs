//! Addresses: which of them may be dialled on behalf of a model.
//!
//! Here: the kind of an IP address, and the refusal of every kind that is not public. Beneath: a host's name as it is
//! written (`host`), which hosts a person granted (`rules`), one resolution and the dial of exactly what was checked
//! (`outside`). Elsewhere: who asks (`proxy`, and the web tools of `tools`).
//! Invariant: an address is public only if nothing says otherwise: outside `2000::/3` all of IPv6 is refused, and so is
//! whatever carries an IPv4 address inside (`every_address_has_its_kind`, `no_spelling_of_this_machine_is_reached`).

mod host;
mod outside;
mod rules;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use host::{Authority, BadHost, Host};
pub use outside::{Found, Outside, Resolve, Resolving, Unreachable};
pub use rules::{BadRule, HostRules, NotGranted, WEB_PORTS};

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Public,
    Loopback,
    /// RFC 1918.
    Private,
    LinkLocal,
    /// A provider's own network between its customers and the Internet, 100.64.0.0/10.
    Shared,
    /// Where clouds tell a machine its own credentials.
    Metadata,
    Multicast,
    Unspecified,
    Documentation,
    Benchmarking,
    /// Set aside for something else, or for nothing yet.
    Reserved,
    /// An IPv4 address in an IPv6 one: mapped, compatible or translated.
    Mapped,
    /// 6to4, Teredo, ISATAP or NAT64: the packets come out at an IPv4 address that stands inside.
    Tunnel,
    /// IPv6's private addresses, `fc00::/7`.
    UniqueLocal,
    /// Their forerunner, `fec0::/10`.
    SiteLocal,
}

impl Kind {
    pub fn of(address: IpAddr) -> Kind {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Whether `web.fetch.allow_private` opens it: what a person may have a server of their own on. The addresses where
    /// clouds hand out credentials are not among them.
    pub fn is_near(self) -> bool {
        matches!(
            self,
            Kind::Loopback
                | Kind::Private
                | Kind::LinkLocal
                | Kind::Shared
                | Kind::UniqueLocal
                | Kind::SiteLocal
        )
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Public => "a public address",
            Kind::Loopback => "this machine's own loopback",
            Kind::Private => "a private network",
            Kind::LinkLocal => "the local link",
            Kind::Shared => "a provider's internal network",
            Kind::Metadata => "a cloud's metadata service",
            Kind::Multicast => "a multicast group",
            Kind::Unspecified => "no particular machine",
            Kind::Documentation => "an address for examples",
            Kind::Benchmarking => "an address for benchmarks",
            Kind::Reserved => "a reserved address",
            Kind::Mapped => "an IPv4 address written as IPv6",
            Kind::Tunnel => "a tunnel to an IPv4 address",
            Kind::UniqueLocal => "a private network",
            Kind::SiteLocal => "a private network",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Addresses where a cloud tells whoever asks from this machine what it may do. Most lie in ranges that are refused
/// anyway; they are named because the last one is in a public range, and because `allow_private` does not open them.
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

fn of_v4(address: Ipv4Addr) -> Kind {
    if METADATA_V4.contains(&address) {
        return Kind::Metadata;
    }
    match address.octets() {
        [0, 0, 0, 0] => Kind::Unspecified,
        [0, ..] => Kind::Reserved,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private,
        [100, 64..=127, ..] => Kind::Shared,
        [127, ..] => Kind::Loopback,
        [169, 254, ..] => Kind::LinkLocal,
        // Protocol assignments, and the anycast address of 6to4 relays, which nobody runs any more.
        [192, 0, 0, _] | [192, 88, 99, _] => Kind::Reserved,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Documentation,
        [198, 18..=19, ..] => Kind::Benchmarking,
        [224..=239, ..] => Kind::Multicast,
        [240..=255, ..] => Kind::Reserved,
        _ => Kind::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Kind {
    if METADATA_V6.contains(&address) {
        return Kind::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Kind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Kind::Loopback,
        // Compatible `::a.b.c.d`, mapped `::ffff:a.b.c.d`, translated `::ffff:0:a.b.c.d`.
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => {
            Kind::Mapped
        }
        // NAT64: the well-known prefix and the one for local use.
        [0x64, 0xff9b, 0 | 1, ..] => Kind::Tunnel,
        [0xfe80..=0xfebf, ..] => Kind::LinkLocal,
        [0xfec0..=0xfeff, ..] => Kind::SiteLocal,
        [0xfc00..=0xfdff, ..] => Kind::UniqueLocal,
        [0xff00..=0xffff, ..] => Kind::Multicast,
        [0x2001, 0, ..] | [0x2002, ..] => Kind::Tunnel,
        [0x2001, 2, 0, ..] => Kind::Benchmarking,
        // The rest of what is set aside for protocols, ORCHID among it.
        [0x2001, 0..=0x01ff, ..] => Kind::Reserved,
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Kind::Documentation,
        // ISATAP writes the IPv4 address behind this mark, in whatever prefix its router has.
        [0x2000..=0x3fff, _, _, _, 0 | 0x0200, 0x5efe, _, _] => Kind::Tunnel,
        [0x2000..=0x3fff, ..] => Kind::Public,
        _ => Kind::Reserved,
    }
}
