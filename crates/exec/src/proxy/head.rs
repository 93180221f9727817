//! What a request says: read strictly, because whatever two programs read in two ways is a way around the rules.
//!
//! Only `CONNECT host:port` and `http://host/…` are understood. Lines end with CR and LF, a name is followed by its colon
//! at once, one length or `chunked` says where the body ends. Everything else is refused with its reason.
//! Invariant: what goes to a server is written anew from what was understood
//! (`no_request_that_can_be_read_in_two_ways_passes`).

use crate::address::Authority;

/// The longest head, as most servers have it.
pub(super) const HEAD_BYTES: usize = 16 * 1024;
/// The most header lines.
const HEADERS: usize = 100;
/// The longest name of a method.
const METHOD_BYTES: usize = 32;

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) to: Authority,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// `CONNECT`: bytes both ways.
    Tunnel,
    /// One request, with the head that the server is sent.
    Plain { head: Vec<u8>, body: Body },
}

/// Where the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// One header line.
struct Header<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl Header<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Reads a head, the empty line at its end included.
pub(super) fn read(head: &[u8]) -> Result<Request, String> {
    let head = head.strip_suffix(b"\r\n\r\n").ok_or("the head of the request does not end")?;
    let mut lines = Vec::new();
    for line in split_lines(head) {
        let allowed = |b: &u8| *b == b'\t' || (*b >= b' ' && *b != 0x7f);
        if !line.iter().all(allowed) {
            return Err("the head of the request has a control character in it".to_owned());
        }
        lines.push(line);
        if lines.len() > HEADERS + 1 {
            return Err(format!("the request has more than {HEADERS} header lines"));
        }
    }
    let (first, rest) = lines.split_first().ok_or("the request is empty")?;
    let headers: Vec<Header<'_>> = rest.iter().map(|line| read_header(line)).collect::<Result<_, _>>()?;
    let (method, target, version) = read_first_line(first)?;
    let body = read_body(&headers, version)?;
    if method == "CONNECT" {
        let to = Authority::parse(target, None).map_err(|e| e.to_string())?;
        if body != Body::Length(0) || headers.iter().any(|h| h.is("content-length")) {
            return Err("a CONNECT request has no body".to_owned());
        }
        check_host(&headers, &to, false)?;
        return Ok(Request { to, kind: Kind::Tunnel });
    }
    let (to, path) = read_absolute(target)?;
    check_host(&headers, &to, true)?;
    let head = write(method, &path, &to, &headers, body)?;
    Ok(Request { to, kind: Kind::Plain { head, body } })
}

/// The lines between CR LF. A CR or LF by itself stays in its line and is found there.
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

fn read_first_line(line: &[u8]) -> Result<(&str, &str, &str), String> {
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

fn read_header(line: &[u8]) -> Result<Header<'_>, String> {
    let strange = || "a header line is not `name: value`".to_owned();
    let colon = line.iter().position(|b| *b == b':').ok_or_else(strange)?;
    let (name, value) = line.split_at(colon);
    let name = std::str::from_utf8(name).map_err(|_| strange())?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    // A space before the colon, or a line that goes on the one before, is read by some and skipped by others.
    if name.is_empty() || !name.bytes().all(token) {
        return Err(strange());
    }
    Ok(Header { name, value: value.get(1..).unwrap_or_default().trim_ascii() })
}

/// `http://host[:port]/path?query`, taken apart.
fn read_absolute(target: &str) -> Result<(Authority, String), String> {
    let scheme = target.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err(
            "this is a proxy: ask with `CONNECT host:port`, or for a whole address that begins with http://"
                .to_owned(),
        );
    }
    let rest = target.get(7..).unwrap_or_default();
    if rest.contains(['#', '\\']) {
        return Err("the address holds `#` or a backslash, which are read in more than one way".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let to = Authority::parse(authority, Some(80)).map_err(|e| e.to_string())?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((to, path))
}

/// The host that the server is told must be the one that was asked of us: servers choose by it.
fn check_host(headers: &[Header<'_>], to: &Authority, needed: bool) -> Result<(), String> {
    let mut hosts = headers.iter().filter(|h| h.is("host"));
    match (hosts.next(), hosts.next()) {
        (None, _) if needed => Err("the request has no Host header".to_owned()),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err("the request has more than one Host header".to_owned()),
        (Some(host), None) => {
            let default = if needed { 80 } else { to.port };
            let said = std::str::from_utf8(host.value).ok().map(|text| Authority::parse(text, Some(default)));
            match said {
                Some(Ok(said)) if said == *to => Ok(()),
                _ => Err(format!("the Host header names another host than the request, which is for {to}")),
            }
        }
    }
}

fn read_body(headers: &[Header<'_>], version: &str) -> Result<Body, String> {
    let mut lengths = headers.iter().filter(|h| h.is("content-length"));
    let mut codings = headers.iter().filter(|h| h.is("transfer-encoding"));
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Body::Length(0)),
        (Some(_), Some(_)) => Err("the request has both a Content-Length and a Transfer-Encoding".to_owned()),
        (Some(length), None) => {
            let digits = length.value.iter().all(u8::is_ascii_digit) && lengths.next().is_none();
            let read = std::str::from_utf8(length.value).ok().filter(|_| digits);
            read.and_then(|text| text.parse().ok())
                .map(Body::Length)
                .ok_or_else(|| "the Content-Length is not one number".to_owned())
        }
        (None, Some(coding)) => {
            let chunked = coding.value.eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            if !chunked || version != "HTTP/1.1" {
                return Err("the only Transfer-Encoding that is taken is `chunked`, in HTTP/1.1".to_owned());
            }
            Ok(Body::Chunked)
        }
    }
}

/// Headers that concern one connection only, and those that are written anew.
const OURS: [&str; 12] = [
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

/// The head as the server gets it: one request, then the end.
fn write(
    method: &str,
    path: &str,
    to: &Authority,
    headers: &[Header<'_>],
    body: Body,
) -> Result<Vec<u8>, String> {
    let mut dropped: Vec<String> = Vec::new();
    for connection in headers.iter().filter(|h| h.is("connection")) {
        let value = std::str::from_utf8(connection.value)
            .map_err(|_| "the Connection header is not text".to_owned())?;
        dropped.extend(value.split(',').map(|name| name.trim().to_ascii_lowercase()));
    }
    let host = if to.port == 80 { to.host.to_string() } else { to.to_string() };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if OURS.contains(&name.as_str()) || dropped.contains(&name) {
            continue;
        }
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    match body {
        Body::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Body::Length(length) if headers.iter().any(|h| h.is("content-length")) => {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        Body::Length(_) => {}
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(head)
}

/// An answer's head, with the word that the connection ends after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// 1xx: another head follows.
    Interim(Vec<u8>),
    Last(Vec<u8>),
}

/// Reads the head of a server's answer, the empty line included, and writes what the client gets.
pub(super) fn read_answer(head: &[u8]) -> Result<Answer, String> {
    let strange = || "the server did not answer in HTTP".to_owned();
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
        return Err("the server changed the protocol, which nobody asked for".to_owned());
    }
    let mut out = first.to_vec();
    out.extend_from_slice(b"\r\n");
    for line in lines {
        let header = read_header(line).map_err(|_| strange())?;
        if !(header.is("connection") || header.is("keep-alive") || header.is("proxy-connection")) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
    }
    if (100..200).contains(&status) {
        out.extend_from_slice(b"\r\n");
        return Ok(Answer::Interim(out));
    }
    out.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(Answer::Last(out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces from which requests are made that nearly are some.
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

    fn request() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(PIECES.to_vec());
        let wild = prop::collection::vec(piece.clone(), 0..12).prop_map(|pieces| pieces.concat());
        let tail = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
        let near = tail
            .prop_map(|tail| format!("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n{tail}"));
        prop_oneof![wild, near]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// Whatever is asked, a server gets one head with one host, the checked one, and one way to find its end.
        #[test]
        fn a_server_gets_one_head_with_the_host_that_was_checked(text in request()) {
            let text = format!("{text}\r\n\r\n");
            if let Ok(Request { to, kind: Kind::Plain { head, body } }) = read(text.as_bytes()) {
                let head = String::from_utf8_lossy(&head).into_owned();
                let lines: Vec<&str> = head.split("\r\n").collect();
                prop_assert!(head.ends_with("\r\n\r\n"), "{:?}", head);
                prop_assert_eq!(head.matches("\r\n\r\n").count(), 1, "{:?}", head);
                prop_assert!(lines.iter().all(|line| !line.contains(char::is_control) || line.contains('\t')), "{:?}", head);
                let named = |name: &str| {
                    lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:"))).count()
                };
                prop_assert_eq!(named("host"), 1, "{:?}", head);
                let host = if to.port == 80 { format!("Host: {}", to.host) } else { format!("Host: {to}") };
                prop_assert!(lines.contains(&host.as_str()), "{:?}", head);
                let ends = named("content-length") + named("transfer-encoding");
                prop_assert!(ends <= 1 && (body != Body::Chunked || named("content-length") == 0), "{:?}", head);
                prop_assert_eq!(named("connection"), 1, "{:?}", head);
            }
        }

        #[test]
        fn no_head_makes_it_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let whole = [head.as_slice(), b"\r\n\r\n"].concat();
            let _ = read(&whole);
            let _ = read_answer(&whole);
        }
    }
}
