//! Addresses, hosts and rules: tables with known bypasses of other programs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minke_net::address::{
    AddressKind, Authority, DialError, Dialer, Host, HostNotGranted, HostResolver, HostRules, ResolveFuture,
};
use proptest::prelude::*;

const ADDRESSES: &[(&str, AddressKind)] = &[
    ("8.8.8.8", AddressKind::Public),
    ("1.1.1.1", AddressKind::Public),
    ("93.184.216.34", AddressKind::Public),
    ("9.255.255.255", AddressKind::Public),
    ("11.0.0.0", AddressKind::Public),
    ("100.63.255.255", AddressKind::Public),
    ("100.128.0.0", AddressKind::Public),
    ("126.255.255.255", AddressKind::Public),
    ("128.0.0.0", AddressKind::Public),
    ("169.253.255.255", AddressKind::Public),
    ("169.255.0.0", AddressKind::Public),
    ("172.15.255.255", AddressKind::Public),
    ("172.32.0.0", AddressKind::Public),
    ("192.0.1.0", AddressKind::Public),
    ("192.0.3.0", AddressKind::Public),
    ("192.167.255.255", AddressKind::Public),
    ("192.169.0.0", AddressKind::Public),
    ("198.17.255.255", AddressKind::Public),
    ("198.20.0.0", AddressKind::Public),
    ("198.51.99.255", AddressKind::Public),
    ("203.0.112.255", AddressKind::Public),
    ("223.255.255.255", AddressKind::Public),
    ("168.63.129.15", AddressKind::Public),
    ("0.0.0.0", AddressKind::Unspecified),
    ("0.0.0.1", AddressKind::Reserved),
    ("0.255.255.255", AddressKind::Reserved),
    ("10.0.0.0", AddressKind::Private),
    ("10.255.255.255", AddressKind::Private),
    ("172.16.0.0", AddressKind::Private),
    ("172.31.255.255", AddressKind::Private),
    ("192.168.0.0", AddressKind::Private),
    ("192.168.255.255", AddressKind::Private),
    ("100.64.0.0", AddressKind::Shared),
    ("100.127.255.255", AddressKind::Shared),
    ("127.0.0.0", AddressKind::Loopback),
    ("127.0.0.1", AddressKind::Loopback),
    ("127.255.255.254", AddressKind::Loopback),
    ("169.254.0.1", AddressKind::LinkLocal),
    ("169.254.255.255", AddressKind::LinkLocal),
    ("169.254.169.254", AddressKind::Metadata),
    ("169.254.170.2", AddressKind::Metadata),
    ("100.100.100.200", AddressKind::Metadata),
    ("192.0.0.192", AddressKind::Metadata),
    ("168.63.129.16", AddressKind::Metadata),
    ("192.0.0.1", AddressKind::Reserved),
    ("192.0.0.171", AddressKind::Reserved),
    ("192.88.99.1", AddressKind::Reserved),
    ("192.0.2.7", AddressKind::Documentation),
    ("198.51.100.7", AddressKind::Documentation),
    ("203.0.113.7", AddressKind::Documentation),
    ("198.18.0.0", AddressKind::Benchmarking),
    ("198.19.255.255", AddressKind::Benchmarking),
    ("224.0.0.1", AddressKind::Multicast),
    ("239.255.255.250", AddressKind::Multicast),
    ("240.0.0.1", AddressKind::Reserved),
    ("255.255.255.255", AddressKind::Reserved),
    ("2606:4700:4700::1111", AddressKind::Public),
    ("2a00:1450:4001:82b::200e", AddressKind::Public),
    ("2001:200::1", AddressKind::Public),
    ("2001:4860:4860::8888", AddressKind::Public),
    ("3ffe::1", AddressKind::Public),
    ("::", AddressKind::Unspecified),
    ("::1", AddressKind::Loopback),
    ("::2", AddressKind::Mapped),
    ("::127.0.0.1", AddressKind::Mapped),
    ("::8.8.8.8", AddressKind::Mapped),
    ("::ffff:127.0.0.1", AddressKind::Mapped),
    ("::ffff:7f00:1", AddressKind::Mapped),
    ("::ffff:8.8.8.8", AddressKind::Mapped),
    ("::ffff:169.254.169.254", AddressKind::Mapped),
    ("::ffff:0:127.0.0.1", AddressKind::Mapped),
    ("0:0:0:0:0:ffff:a00:1", AddressKind::Mapped),
    ("64:ff9b::127.0.0.1", AddressKind::Tunnel),
    ("64:ff9b::8.8.8.8", AddressKind::Tunnel),
    ("64:ff9b:1::1", AddressKind::Tunnel),
    ("64:ff9b:1:ffff::7f00:1", AddressKind::Tunnel),
    ("64:ff9b:2::1", AddressKind::Reserved),
    ("2001::1", AddressKind::Tunnel),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", AddressKind::Tunnel),
    ("2002:7f00:1::", AddressKind::Tunnel),
    ("2002:808:808::1", AddressKind::Tunnel),
    ("2606:4700::5efe:127.0.0.1", AddressKind::Tunnel),
    ("2606:4700::200:5efe:10.0.0.1", AddressKind::Tunnel),
    ("2001:2::1", AddressKind::Benchmarking),
    ("2001:10::1", AddressKind::Reserved),
    ("2001:20::1", AddressKind::Reserved),
    ("2001:1ff:ffff::1", AddressKind::Reserved),
    ("2001:db8::1", AddressKind::Documentation),
    ("3fff:fff::1", AddressKind::Documentation),
    ("3fff:1000::1", AddressKind::Public),
    ("100::1", AddressKind::Reserved),
    ("1::1", AddressKind::Reserved),
    ("4000::1", AddressKind::Reserved),
    ("5f00::1", AddressKind::Reserved),
    ("fc00::1", AddressKind::UniqueLocal),
    ("fd12:3456:789a::1", AddressKind::UniqueLocal),
    ("fdff:ffff::1", AddressKind::UniqueLocal),
    ("fd00:ec2::254", AddressKind::Metadata),
    ("fd20:ce::254", AddressKind::Metadata),
    ("fe00::1", AddressKind::Reserved),
    ("fe80::1", AddressKind::LinkLocal),
    ("febf::1", AddressKind::LinkLocal),
    ("fe80::5efe:127.0.0.1", AddressKind::LinkLocal),
    ("fec0::1", AddressKind::SiteLocal),
    ("feff::1", AddressKind::SiteLocal),
    ("ff02::1", AddressKind::Multicast),
    ("ff0e::1", AddressKind::Multicast),
];

#[test]
fn every_address_has_its_kind() {
    for (text, kind) in ADDRESSES {
        let address: IpAddr = text.parse().unwrap();
        assert_eq!(AddressKind::classify(address), *kind, "{text}");
    }
}

#[test]
fn every_part_of_the_refused_ranges_is_refused() {
    // The table above contains both ends of each range and their neighbours. Here the ranges are compared bit by bit
    // with their prefixes, as a registry lists them.
    let prefixes_v4 = [
        ("0.0.0.0", 8),
        ("10.0.0.0", 8),
        ("100.64.0.0", 10),
        ("127.0.0.0", 8),
        ("169.254.0.0", 16),
        ("172.16.0.0", 12),
        ("192.0.0.0", 24),
        ("192.0.2.0", 24),
        ("192.88.99.0", 24),
        ("192.168.0.0", 16),
        ("198.18.0.0", 15),
        ("198.51.100.0", 24),
        ("203.0.113.0", 24),
        ("224.0.0.0", 3),
        ("168.63.129.16", 32),
    ];
    let inside = |address: u32| {
        prefixes_v4.iter().any(|(base, bits)| {
            let base: std::net::Ipv4Addr = base.parse().unwrap();
            (u32::from(base) ^ address) >> (32 - bits) == 0
        })
    };
    // The stride shares no factor with the ranges, so that every range is hit many times.
    for address in (0..=u32::MAX).step_by(4_093) {
        let kind = AddressKind::classify(IpAddr::V4(address.into()));
        assert_eq!(kind != AddressKind::Public, inside(address), "{}", std::net::Ipv4Addr::from(address));
    }
}

/// Valid spellings of hosts and their canonical form.
const HOSTS: &[(&str, &str)] = &[
    ("example.org", "example.org"),
    ("EXAMPLE.Org", "example.org"),
    ("a-b.example.org", "a-b.example.org"),
    ("r3---sn-4g5e6nez.example.org", "r3---sn-4g5e6nez.example.org"),
    ("1.example.org", "1.example.org"),
    ("127.0.0.1.example.org", "127.0.0.1.example.org"),
    ("bücher.example", "xn--bcher-kva.example"),
    ("BÜCHER.example", "xn--bcher-kva.example"),
    ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
    ("ｅｘａｍｐｌｅ.org", "example.org"),
    ("example。org", "example.org"),
    ("faß.example", "xn--fa-hia.example"),
    ("8.8.8.8", "8.8.8.8"),
    ("2606:4700:4700::1111", "[2606:4700:4700::1111]"),
    ("[2606:4700:4700:0:0:0:0:1111]", "[2606:4700:4700::1111]"),
    ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
];

/// Invalid or ambiguous spellings, and a word of the error.
const NO_HOSTS: &[(&str, &str)] = &[
    ("", "empty"),
    ("localhost", "this machine"),
    ("LOCALHOST", "this machine"),
    ("foo.localhost", "this machine"),
    ("localhost.", "dot"),
    ("example.org.", "dot"),
    ("example.org..", "dot"),
    ("example.org。", "dot"),
    (".example.org", "letters"),
    ("example..org", "letters"),
    (".", "dot"),
    ("0x7f.1", "four decimal"),
    ("0x7f000001", "four decimal"),
    ("0X7F.0.0.1", "four decimal"),
    ("0x", "four decimal"),
    ("2130706433", "four decimal"),
    ("017700000001", "four decimal"),
    ("127.1", "four decimal"),
    ("127.0.1", "four decimal"),
    ("0", "four decimal"),
    ("0.0", "four decimal"),
    ("0127.0.0.1", "four decimal"),
    ("127.0.0.01", "four decimal"),
    ("127.0.0.0x1", "four decimal"),
    ("256.1.1.1", "four decimal"),
    ("1.2.3.4.5", "four decimal"),
    ("１２７.0.0.1", "four decimal"),
    ("①②⑦.⓪.⓪.①", "four decimal"),
    ("127。0。0。1", "four decimal"),
    ("example.123", "four decimal"),
    ("127.0.0.1.", "dot"),
    ("127.0.0.1%00.example.org", "percent"),
    ("127.0.0.1%2eexample.org", "percent"),
    ("ex%61mple.org", "percent"),
    ("fe80::1%eth0", "colon"),
    ("[fe80::1%25eth0]", "IPv6"),
    ("[::1", "bracket"),
    ("[127.0.0.1]", "IPv6"),
    ("[]", "IPv6"),
    ("[v1.a:b]", "IPv6"),
    ("::1]", "colon"),
    ("user@example.org", "user name"),
    ("example.org@127.0.0.1", "user name"),
    ("example.org\0.evil.example", "control"),
    ("example.org\r\nHost: evil.example", "control"),
    ("example.org\t", "control"),
    ("example.org evil.example", "space"),
    (" example.org", "space"),
    ("example.org\u{a0}", "space"),
    ("example.org/evil", "behind"),
    ("example.org\\evil", "behind"),
    ("example.org?x", "behind"),
    ("example.org#x", "behind"),
    ("example.org:80", "colon"),
    ("exa_mple.org", "letters"),
    ("exam!ple.org", "letters"),
    ("*.example.org", "letters"),
    ("-example.org", "letters"),
    ("example-.org", "letters"),
    ("xn--.org", "letters"),
    ("xn--a.org", "letters"),
    ("xn--localhost-.example", "letters"),
    ("xn--ls8h=.org", "letters"),
    ("l\u{200d}ocalhost.org", "letters"),
    ("a\u{202e}b.org", "letters"),
    ("example\u{2024}org", "letters"),
    ("com", "no dot"),
    ("metadata", "no dot"),
];

#[test]
fn hosts_are_read_in_one_spelling() {
    for (text, canonical) in HOSTS {
        let host = Host::parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!(host.to_string(), *canonical, "{text:?}");
        assert_eq!(Host::parse(canonical).unwrap(), host, "{text:?}");
    }
}

#[test]
fn no_spelling_of_this_machine_is_reached() {
    for (text, word) in NO_HOSTS {
        match Host::parse(text) {
            Ok(host) => panic!("{text:?} was read as {host}"),
            Err(e) => {
                let said = e.to_string();
                assert!(said.contains(word), "{text:?}: {said}");
                assert!(!said.contains(char::is_control), "{text:?}: {said:?}");
            }
        }
    }
    let long = "a.".repeat(200) + "org";
    for text in [long.as_str(), &"ä".repeat(600), &format!("{}.org", "a".repeat(64)), &"x".repeat(1_000_000)]
    {
        let said = Host::parse(text).unwrap_err().to_string();
        assert!(said.len() < 400, "{said}");
    }
}

#[test]
fn an_authority_is_a_host_and_a_port() {
    for (text, shown) in [
        ("example.org:443", "example.org:443"),
        ("Example.ORG:8080", "example.org:8080"),
        ("8.8.8.8:53", "8.8.8.8:53"),
        ("[2606:4700::1]:443", "[2606:4700::1]:443"),
        ("example.org", "example.org:80"),
        ("[2606:4700::1]", "[2606:4700::1]:80"),
    ] {
        assert_eq!(Authority::parse(text, Some(80)).unwrap().to_string(), shown);
    }
    for text in [
        "",
        ":",
        ":80",
        "example.org:",
        "example.org:0",
        "example.org:080",
        "example.org:+80",
        "example.org:65536",
        "example.org:99999999999999999999",
        "example.org:80:80",
        "example.org:８０",
        "example.org: 80",
        "2606:4700::1:443",
        "[2606:4700::1]443",
        "[2606:4700::1]:",
        "[2606:4700::1",
        "user:password@example.org:443",
        "example.org:443@evil.example:443",
        "127.1:443",
        "localhost:443",
    ] {
        assert!(Authority::parse(text, Some(80)).is_err(), "{text:?}");
    }
    assert!(Authority::parse("example.org", None).unwrap_err().to_string().contains("no port"));
}

proptest! {
    #[test]
    fn a_host_has_one_spelling(text in "\\PC{0,40}") {
        if let Ok(host) = Host::parse(&text) {
            let shown = host.to_string();
            prop_assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b)), "{}", shown);
            prop_assert_eq!(Host::parse(&shown), Ok(host));
        }
    }

    #[test]
    fn whatever_libc_reads_as_ipv4_is_no_name(text in "[0-9a-fxX.]{1,20}") {
        // A text that `inet_aton` or a browser reads as an address ends with a number; only the canonical spelling
        // passes.
        let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let numeric = last.bytes().all(|b| b.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
        if numeric && let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(host.ip().map(|ip| ip.to_string()), Some(text));
        }
    }
}

fn check_grant(rules: &HostRules, host: &str, port: u16) -> bool {
    rules.check(&Host::parse(host).expect("a host"), port).is_ok()
}

#[test]
fn a_rule_matches_whole_labels_and_nothing_else() {
    let rules = HostRules::parse_list(&[
        "example.org",
        "*.wild.example",
        "ports.example:8443",
        "*.deep.example:9000",
        "9.9.9.9",
        "2606:4700::1",
        "[2606:4700::2]:8080",
        "Bücher.example",
    ])
    .unwrap();
    for (host, port, expected) in [
        ("example.org", 443, true),
        ("example.org", 80, true),
        ("EXAMPLE.org", 443, true),
        ("example.org", 22, false),
        ("example.org", 8443, false),
        ("www.example.org", 443, false),
        ("notexample.org", 443, false),
        ("example.org.evil.example", 443, false),
        ("a.wild.example", 443, true),
        ("a.b.wild.example", 443, true),
        ("wild.example", 443, false),
        ("evilwild.example", 443, false),
        ("evil-wild.example", 443, false),
        ("wild.example.evil.org", 443, false),
        ("ports.example", 8443, true),
        ("ports.example", 443, false),
        ("a.deep.example", 9000, true),
        ("a.deep.example", 443, false),
        ("9.9.9.9", 443, true),
        ("9.9.9.90", 443, false),
        ("2606:4700::1", 443, true),
        ("2606:4700:0::1", 443, true),
        ("2606:4700::2", 8080, true),
        ("2606:4700::2", 443, false),
        ("xn--bcher-kva.example", 443, true),
    ] {
        assert_eq!(check_grant(&rules, host, port), expected, "{host}:{port}");
    }
    assert!(!check_grant(&HostRules::Off, "example.org", 443));
    assert!(check_grant(&HostRules::Public, "example.org", 443));
    assert!(check_grant(&HostRules::Public, "example.org", 80));
    assert!(!check_grant(&HostRules::Public, "example.org", 25));
    assert!(!check_grant(&HostRules::parse_list::<&str>(&[]).unwrap(), "example.org", 443));
}

#[test]
fn a_rule_that_cannot_be_meant_is_refused() {
    for rule in [
        "",
        "*",
        "*.",
        "*.org",
        "*.*.example.org",
        "*example.org",
        "ex*mple.org",
        "www.*.org",
        "*.9.9.9.9",
        "*.2606::1",
        "localhost",
        "https://example.org",
        "example.org/path",
        "example.org:http",
        "user@example.org",
        "example.org.",
        "127.1",
    ] {
        assert!(HostRules::parse_list(&[rule]).is_err(), "{rule:?}");
    }
    let said = HostRules::parse_list(&["*"]).unwrap_err().to_string();
    assert!(said.contains("`on`"), "{said}");
    assert!(HostRules::parse_list(&vec!["example.org"; 5_000]).is_err());
}

#[test]
fn a_refusal_says_what_is_granted_and_who_can_change_it() {
    let rules = HostRules::parse_list(&["a.example", "*.b.example", "c.example:8443"]).unwrap();
    let said = rules.check(&Host::parse("d.example").unwrap(), 443).unwrap_err().to_string();
    for word in ["d.example", "a.example, *.b.example, c.example:8443", "sandbox.network", "the user"] {
        assert!(said.contains(word), "{said}");
    }
    let port = rules.check(&Host::parse("c.example").unwrap(), 443).unwrap_err();
    assert!(matches!(port, HostNotGranted::Port { .. }), "{port}");
    let many: Vec<String> = (0..100).map(|n| format!("host{n}.example")).collect();
    let said = HostRules::parse_list(&many)
        .unwrap()
        .check(&Host::parse("d.example").unwrap(), 443)
        .unwrap_err()
        .to_string();
    assert!(said.contains("and 92 more") && said.len() < 500, "{said}");
}

/// Returns the replies of a list in order.
struct ScriptedResolver {
    asked_names: AtomicUsize,
    answers: Vec<Vec<IpAddr>>,
}

impl ScriptedResolver {
    fn new(answers: &[&[&str]]) -> Arc<ScriptedResolver> {
        let read = |list: &&[&str]| list.iter().map(|text| text.parse().expect("an address")).collect();
        Arc::new(ScriptedResolver {
            asked_names: AtomicUsize::new(0),
            answers: answers.iter().map(read).collect(),
        })
    }
}

impl HostResolver for ScriptedResolver {
    fn resolve(&self, name: &str) -> ResolveFuture {
        let turn = self.asked_names.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.get(turn).cloned();
        let missing = io::Error::other(format!("no answer {turn} for {name}"));
        Box::pin(std::future::ready(answer.ok_or(missing)))
    }
}

fn same_address(address: SocketAddr) -> SocketAddr {
    address
}

async fn find_host(answers: &[&[&str]], host: &str, near: bool) -> Result<Vec<String>, DialError> {
    let outside = Dialer::with_test_route(ScriptedResolver::new(answers), same_address);
    let found = outside.resolve_host(&Host::parse(host).expect("a host"), near).await?;
    Ok(outside.socket_addresses(&found, 443).iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    for (text, kind) in ADDRESSES {
        let by_name = find_host(&[&[text]], "name.example", false).await;
        let by_literal = find_host(&[], text, false).await;
        for found in [by_name, by_literal] {
            match found {
                Ok(_) => assert_eq!(*kind, AddressKind::Public, "{text}"),
                Err(DialError::Refused { kind: refused, .. }) => assert_eq!(refused, *kind, "{text}"),
                Err(other) => panic!("{text}: {other}"),
            }
        }
    }
    let said = find_host(&[&["10.1.2.3"]], "name.example", false).await.unwrap_err().to_string();
    assert!(said.contains("name.example") && said.contains("10.1.2.3") && said.contains("private"), "{said}");
}

#[tokio::test]
async fn of_mixed_answers_only_the_public_ones_are_dialled() {
    let answers: &[&[&str]] = &[&["127.0.0.1", "9.9.9.9", "::1", "2606:4700::1", "169.254.169.254"]];
    let found = find_host(answers, "name.example", false).await.unwrap();
    assert_eq!(found, ["9.9.9.9:443", "[2606:4700::1]:443"]);
    assert!(matches!(
        find_host(&[&[]], "name.example", false).await.unwrap_err(),
        DialError::NotFound { .. }
    ));
}

#[tokio::test]
async fn private_addresses_are_opened_by_a_person_but_no_metadata_service() {
    for (text, kind) in ADDRESSES {
        let found = find_host(&[&[text]], "name.example", true).await;
        assert_eq!(found.is_ok(), *kind == AddressKind::Public || kind.is_local_network(), "{text}");
    }
    assert!(
        !AddressKind::Metadata.is_local_network()
            && !AddressKind::Mapped.is_local_network()
            && !AddressKind::Tunnel.is_local_network()
    );
}

#[tokio::test]
async fn a_name_is_asked_for_once() {
    let script = ScriptedResolver::new(&[&["9.9.9.9"], &["127.0.0.1"]]);
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = server.local_addr().unwrap();
    let asked_for = Arc::new(std::sync::Mutex::new(Vec::new()));
    let outside = Dialer::with_test_route(script.clone(), {
        let asked_for = asked_for.clone();
        move |address| {
            asked_for.lock().unwrap().push(address.to_string());
            there
        }
    });
    let host = Host::parse("name.example").unwrap();
    let found = outside.resolve_host(&host, false).await.unwrap();
    outside.connect_to(&host, &found, 443).await.unwrap();
    assert_eq!(script.asked_names.load(Ordering::SeqCst), 1);
    assert_eq!(*asked_for.lock().unwrap(), ["9.9.9.9:443"]);
}
