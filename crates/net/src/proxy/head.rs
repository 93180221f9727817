//! Parses the head of a request strictly: a request that two programs read differently could bypass the rules.
//!
//! Supports only `CONNECT host:port` and `http://host/…`. Lines end with CR LF, a name is directly followed by its
//! colon, and one length or `chunked` ends the body. All other requests are refused with a reason.
//! Invariant: the head for the server is written anew from the parsed values
//! (`no_request_that_can_be_read_in_two_ways_passes`).

use crate::address::Authority;

/// The longest head; most servers have the same limit.
pub(super) const HEAD_BYTES: usize = 16 * 1024;
/// The most header lines.
const MAX_HEADERS: usize = 100;
/// The longest name of a method.
const METHOD_BYTES: usize = 32;

/// A parsed request.
#[derive(Debug)]
pub(super) struct ProxyRequest {
    pub(super) authority: Authority,
    pub(super) kind: RequestKind,
}

#[derive(Debug)]
pub(super) enum RequestKind {
    /// `CONNECT`: a tunnel.
    Tunnel,
    /// One request, with the head for the server.
    Plain { head: Vec<u8>, body: BodyFraming },
}

/// How the end of a request body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
}

/// One header line.
struct HeaderLine<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl HeaderLine<'_> {
    fn has_name(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Parses a head, including the empty line at its end.
pub(super) fn parse_request(head: &[u8]) -> Result<ProxyRequest, String> {
    let head = head.strip_suffix(b"\r\n\r\n").ok_or("the head of the request is incomplete")?;
    let mut lines = Vec::new();
    for line in split_lines(head) {
        let allowed = |b: &u8| *b == b'\t' || (*b >= b' ' && *b != 0x7f);
        if !line.iter().all(allowed) {
            return Err("the head of the request contains a control character".to_owned());
        }
        lines.push(line);
        if lines.len() > MAX_HEADERS + 1 {
            return Err(format!("the request has more than {MAX_HEADERS} header lines"));
        }
    }
    let (first, rest) = lines.split_first().ok_or("the request is empty")?;
    let headers: Vec<HeaderLine<'_>> =
        rest.iter().map(|line| parse_header(line)).collect::<Result<_, _>>()?;
    let (method, target, version) = parse_request_line(first)?;
    let body = parse_body_framing(&headers, version)?;
    if method == "CONNECT" {
        let authority = Authority::parse(target, None).map_err(|e| e.to_string())?;
        if body != BodyFraming::Length(0) || headers.iter().any(|h| h.has_name("content-length")) {
            return Err("a CONNECT request has no body".to_owned());
        }
        check_host(&headers, &authority, false)?;
        return Ok(ProxyRequest { authority, kind: RequestKind::Tunnel });
    }
    let (to, path) = parse_absolute_uri(target)?;
    check_host(&headers, &to, true)?;
    let head = format_head(method, &path, &to, &headers, body)?;
    Ok(ProxyRequest { authority: to, kind: RequestKind::Plain { head, body } })
}

/// Splits at CR LF. A bare CR or LF stays in its line and is rejected there.
fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let all = rest?;
        match all.windows(2).position(|pair| pair == b"\r\n") {
            Some(at) => {
                rest = all.get(at + 2..);
                all.get(..at)
            }
            None => rest.take(),
        }
    })
}

fn parse_request_line(line: &[u8]) -> Result<(&str, &str, &str), String> {
    let strange = || "the first line of the request is not `METHOD target HTTP/1.1`".to_owned();
    let text = std::str::from_utf8(line).map_err(|_| strange())?;
    if !text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        return Err(strange());
    }
    let mut parts = text.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(strange());
    };
    let plain = !method.is_empty()
        && method.len() <= METHOD_BYTES
        && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
    if !plain || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(strange());
    }
    Ok((method, target, version))
}

fn parse_header(line: &[u8]) -> Result<HeaderLine<'_>, String> {
    let strange = || "a header line is not `name: value`".to_owned();
    let colon = line.iter().position(|b| *b == b':').ok_or_else(strange)?;
    let (name, value) = line.split_at(colon);
    let name = std::str::from_utf8(name).map_err(|_| strange())?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    // A space before the colon, or a continuation line, is accepted by some parsers and ignored by others.
    if name.is_empty() || !name.bytes().all(token) {
        return Err(strange());
    }
    Ok(HeaderLine { name, value: value.get(1..).unwrap_or_default().trim_ascii() })
}

/// Parses `http://host[:port]/path?query`.
fn parse_absolute_uri(target: &str) -> Result<(Authority, String), String> {
    let scheme = target.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err(
            "this is a proxy: use `CONNECT host:port`, or a full address that begins with http://".to_owned()
        );
    }
    let rest = target.get(7..).unwrap_or_default();
    if rest.contains(['#', '\\']) {
        return Err("the address contains `#` or a backslash, which is ambiguous".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let to = Authority::parse(authority, Some(80)).map_err(|e| e.to_string())?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((to, path))
}

/// Checks that the Host header names the requested host, because servers route by it.
fn check_host(headers: &[HeaderLine<'_>], to: &Authority, needed: bool) -> Result<(), String> {
    let mut hosts = headers.iter().filter(|h| h.has_name("host"));
    match (hosts.next(), hosts.next()) {
        (None, _) if needed => Err("the request has no Host header".to_owned()),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err("the request has more than one Host header".to_owned()),
        (Some(host), None) => {
            let default = if needed { 80 } else { to.port };
            let said = std::str::from_utf8(host.value).ok().map(|text| Authority::parse(text, Some(default)));
            match said {
                Some(Ok(said)) if said == *to => Ok(()),
                _ => Err(format!("the Host header differs from the host of the request, {to}")),
            }
        }
    }
}

fn parse_body_framing(headers: &[HeaderLine<'_>], version: &str) -> Result<BodyFraming, String> {
    let mut lengths = headers.iter().filter(|h| h.has_name("content-length"));
    let mut codings = headers.iter().filter(|h| h.has_name("transfer-encoding"));
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(BodyFraming::Length(0)),
        (Some(_), Some(_)) => Err("the request has both a Content-Length and a Transfer-Encoding".to_owned()),
        (Some(length), None) => {
            let digits = length.value.iter().all(u8::is_ascii_digit) && lengths.next().is_none();
            let read = std::str::from_utf8(length.value).ok().filter(|_| digits);
            read.and_then(|text| text.parse().ok())
                .map(BodyFraming::Length)
                .ok_or_else(|| "the Content-Length is not a single number".to_owned())
        }
        (None, Some(coding)) => {
            let chunked = coding.value.eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            if !chunked || version != "HTTP/1.1" {
                return Err("the only supported Transfer-Encoding is `chunked`, in HTTP/1.1".to_owned());
            }
            Ok(BodyFraming::Chunked)
        }
    }
}

/// Hop-by-hop headers, and headers that are written anew.
const HOP_BY_HOP: [&str; 12] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Formats the head for the server: one request, then the connection closes.
fn format_head(
    method: &str,
    path: &str,
    to: &Authority,
    headers: &[HeaderLine<'_>],
    body: BodyFraming,
) -> Result<Vec<u8>, String> {
    let mut dropped: Vec<String> = Vec::new();
    for connection in headers.iter().filter(|h| h.has_name("connection")) {
        let value = std::str::from_utf8(connection.value)
            .map_err(|_| "the Connection header is not text".to_owned())?;
        dropped.extend(value.split(',').map(|name| name.trim().to_ascii_lowercase()));
    }
    let host = if to.port == 80 { to.host.to_string() } else { to.to_string() };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if HOP_BY_HOP.contains(&name.as_str()) || dropped.contains(&name) {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    match body {
        BodyFraming::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyFraming::Length(length) if headers.iter().any(|h| h.has_name("content-length")) => {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        BodyFraming::Length(_) => {}
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(head)
}

/// The head of a response, rewritten to close the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponseHead {
    /// 1xx: another head follows.
    Interim(Vec<u8>),
    Final(Vec<u8>),
}

/// Parses the head of a server's response, including the empty line, and formats the head for the client.
pub(super) fn parse_response_head(head: &[u8]) -> Result<ResponseHead, String> {
    let strange = || "the server's response is not HTTP".to_owned();
    let head = head.strip_suffix(b"\r\n\r\n").ok_or_else(strange)?;
    let mut lines = split_lines(head);
    let first = lines.next().ok_or_else(strange)?;
    let status = first
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| first.strip_prefix(b"HTTP/1.0 "))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse::<u16>().ok())
        .ok_or_else(strange)?;
    if status == 101 {
        return Err("the server switched protocols without a request for it".to_owned());
    }
    let mut out = first.to_vec();
    out.extend_from_slice(b"\r\n");
    for line in lines {
        let header = parse_header(line).map_err(|_| strange())?;
        if !(header.has_name("connection")
            || header.has_name("keep-alive")
            || header.has_name("proxy-connection"))
        {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
    }
    if (100..200).contains(&status) {
        out.extend_from_slice(b"\r\n");
        return Ok(ResponseHead::Interim(out));
    }
    out.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(ResponseHead::Final(out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of almost valid requests.
    const PIECES: [&str; 34] = [
        "GET ",
        "POST ",
        "CONNECT ",
        "http://",
        "HTTP://",
        "good.example",
        "evil.example",
        ":80",
        ":443",
        "/",
        "?a",
        "#",
        "@",
        "\\",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "Host: ",
        "host:",
        "Content-Length: 3",
        "Content-Length: ",
        "5",
        "Transfer-Encoding: chunked",
        "Connection: host, content-length",
        "X: y",
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        "\0",
        "\u{e9}",
        ",",
        "chunked",
        "\r\n\r\n",
    ];

    fn request_strategy() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(PIECES.to_vec());
        let wild = prop::collection::vec(piece.clone(), 0..12).prop_map(|pieces| pieces.concat());
        let tail = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
        let near = tail
            .prop_map(|tail| format!("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n{tail}"));
        prop_oneof![wild, near]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// For any request, the server receives one head with one host, the checked one, and one body framing.
        #[test]
        fn a_server_gets_one_head_with_the_host_that_was_checked(text in request_strategy()) {
            let text = format!("{text}\r\n\r\n");
            if let Ok(ProxyRequest { authority, kind: RequestKind::Plain { head, body } }) = parse_request(text.as_bytes()) {
                let head = String::from_utf8_lossy(&head).into_owned();
                let lines: Vec<&str> = head.split("\r\n").collect();
                prop_assert!(head.ends_with("\r\n\r\n"), "{:?}", head);
                prop_assert_eq!(head.matches("\r\n\r\n").count(), 1, "{:?}", head);
                prop_assert!(lines.iter().all(|line| !line.contains(char::is_control) || line.contains('\t')), "{:?}", head);
                let named = |name: &str| {
                    lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:"))).count()
                };
                prop_assert_eq!(named("host"), 1, "{:?}", head);
                let host = if authority.port == 80 { format!("Host: {}", authority.host) } else { format!("Host: {authority}") };
                prop_assert!(lines.contains(&host.as_str()), "{:?}", head);
                let ends = named("content-length") + named("transfer-encoding");
                prop_assert!(ends <= 1 && (body != BodyFraming::Chunked || named("content-length") == 0), "{:?}", head);
                prop_assert_eq!(named("connection"), 1, "{:?}", head);
            }
        }

        #[test]
        fn no_head_makes_it_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let whole = [head.as_slice(), b"\r\n\r\n"].concat();
            let _ = parse_request(&whole);
            let _ = parse_response_head(&whole);
        }
    }
}
