//! The table of attacks.

use crate::request::RawRequest;
use crate::world::AttackServer;

pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether the client has the right token, so that the response may describe the defect.
    pub(crate) with_token: bool,
}

pub(crate) fn all_attacks(world: &AttackServer) -> Vec<Attack> {
    let mut table = AttackTable { world, attacks: Vec::new() };
    table.host_attacks();
    table.origin_attacks();
    table.token_attacks();
    table.request_line_attacks();
    table.path_attacks();
    table.length_attacks();
    table.content_type_attacks();
    table.body_attacks();
    table.header_attacks();
    table.websocket_attacks();
    table.frame_attacks();
    table.attacks
}

struct AttackTable<'a> {
    world: &'a AttackServer,
    attacks: Vec<Attack>,
}

impl AttackTable<'_> {
    fn valid_request(&self) -> RawRequest {
        RawRequest::valid(self.world)
    }

    /// Adds an attack that the guard refuses.
    fn add_outside(&mut self, name: impl Into<String>, request: &RawRequest) {
        let bytes = request.to_bytes();
        self.attacks.push(Attack { name: name.into(), bytes, with_token: false });
    }

    /// Adds an attack of a client with the token.
    fn add_inside(&mut self, name: impl Into<String>, request: &RawRequest) {
        let bytes = request.to_bytes();
        self.attacks.push(Attack { name: name.into(), bytes, with_token: true });
    }

    fn add_raw(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.attacks.push(Attack { name: name.into(), bytes: bytes.into(), with_token: false });
    }

    fn host_attacks(&mut self) {
        let port = self.world.port();
        let other = port.wrapping_add(1);
        for host in [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("127.0.0.1.evil.example:{port}"),
            format!("localhost.evil.example:{port}"),
            format!("evil.example#127.0.0.1:{port}"),
            format!("127.0.0.1:{port}@evil.example"),
            format!("user@127.0.0.1:{port}"),
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            format!("127.0.0.1:{other}"),
            "127.0.0.1:80".to_owned(),
            format!("127.1:{port}"),
            format!("2130706433:{port}"),
            format!("0x7f000001:{port}"),
            format!("0177.0.0.1:{port}"),
            format!("0.0.0.0:{port}"),
            format!("[::1]:{port}"),
            format!("[::ffff:127.0.0.1]:{port}"),
            format!("localhost.:{port}"),
            format!("127.0.0.1.:{port}"),
            format!("127.0.0.1:0{port}"),
            format!("127.0.0.1.nip.io:{port}"),
            format!("LOCALHOST.localdomain:{port}"),
            format!("127.0.0.1:{port}, evil.example"),
            format!("127.0.0.1:{port}/"),
            String::new(),
        ] {
            self.add_outside(format!("host `{host}`"), &self.valid_request().set_header("Host", &host));
        }
        self.add_outside("no host", &self.valid_request().remove_header("Host"));
        self.add_outside("two hosts", &self.valid_request().add_header("Host", "evil.example"));
        self.add_outside(
            "the same host twice",
            &self.valid_request().add_header("Host", &self.world.host_header()),
        );
        self.add_outside(
            "no host in HTTP/1.0",
            &self.valid_request().version("HTTP/1.0").remove_header("Host"),
        );
        let forwarded = self
            .valid_request()
            .set_header("Host", "evil.example")
            .add_header("X-Forwarded-Host", &self.world.host_header());
        self.add_outside("a host that was forwarded", &forwarded);
    }

    fn origin_attacks(&mut self) {
        let port = self.world.port();
        for origin in [
            "http://evil.example".to_owned(),
            format!("http://evil.example:{port}"),
            "null".to_owned(),
            "http://127.0.0.1".to_owned(),
            "http://localhost".to_owned(),
            format!("https://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{}", port.wrapping_add(1)),
            format!("http://127.0.0.1:{port}.evil.example"),
            format!("http://127.0.0.1:{port}@evil.example"),
            format!("http://127.0.0.1:{port}/"),
            format!("http://localhost:{port} http://evil.example"),
            format!("http://sub.localhost:{port}"),
            format!("http://[::1]:{port}"),
            "file://".to_owned(),
            "chrome-extension://abcdefgh".to_owned(),
            "*".to_owned(),
            String::new(),
        ] {
            self.add_outside(
                format!("origin `{origin}`"),
                &self.valid_request().set_header("Origin", &origin),
            );
        }
        let own = format!("http://{}", self.world.host_header());
        let two = self.valid_request().add_header("Origin", &own).add_header("Origin", "http://evil.example");
        self.add_outside("two origins", &two);
        for site in ["cross-site", "same-site", "Same-Origin", ""] {
            self.add_outside(
                format!("fetched from `{site}`"),
                &self.valid_request().add_header("Sec-Fetch-Site", site),
            );
        }
        let both = self
            .valid_request()
            .add_header("Sec-Fetch-Site", "same-origin")
            .add_header("Sec-Fetch-Site", "cross-site");
        self.add_outside("fetched from here and there", &both);
        let simple =
            self.valid_request().set_header("Content-Type", "text/plain").remove_header("Authorization");
        self.add_outside(
            "a form's simple request",
            &simple.clone().add_header("Origin", "http://evil.example"),
        );
        self.add_outside("a form's request without an origin", &simple);
        let preflight = self
            .valid_request()
            .method("OPTIONS")
            .remove_header("Authorization")
            .body(b"")
            .add_header("Origin", "http://evil.example")
            .add_header("Access-Control-Request-Method", "POST")
            .add_header("Access-Control-Request-Private-Network", "true");
        self.add_outside("a preflight", &preflight);
    }

    fn token_attacks(&mut self) {
        let token = self.world.token().to_owned();
        let half: String = token.chars().take(32).collect();
        let other: String = token.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
        for (name, value) in [
            ("an empty one", "Bearer ".to_owned()),
            ("no scheme", token.clone()),
            ("another scheme", format!("Basic {token}")),
            ("half", format!("Bearer {half}")),
            ("twice in one", format!("Bearer {token}{token}")),
            ("a longer one", format!("Bearer {token}0")),
            ("another one", format!("Bearer {other}")),
            ("upper case", format!("Bearer {}", token.to_ascii_uppercase())),
            ("two spaces", format!("Bearer  {token}")),
            ("a tab", format!("Bearer\t{token}")),
            ("a list", format!("Bearer x, Bearer {token}")),
            ("quoted", format!("Bearer \"{token}\"")),
            ("null", "Bearer null".to_owned()),
            ("sixteen thousand", format!("Bearer {}", "0".repeat(16_000))),
        ] {
            self.add_outside(
                format!("token: {name}"),
                &self.valid_request().set_header("Authorization", &value),
            );
        }
        self.add_outside("token: none", &self.valid_request().remove_header("Authorization"));
        let twice = self.valid_request().add_header("Authorization", "Bearer x");
        self.add_outside("token: two headers", &twice);
        let none = self.valid_request().remove_header("Authorization");
        self.add_outside("token: in the query", &none.clone().target(&format!("/v1/thread?token={token}")));
        self.add_outside("token: as a cookie", &none.clone().add_header("Cookie", &format!("token={token}")));
        self.add_outside("token: in another header", &none.clone().add_header("X-Minke-Token", &token));
        self.add_outside(
            "token: in a proxy's header",
            &none.clone().add_header("Proxy-Authorization", &format!("Bearer {token}")),
        );
        let subprotocol = none.add_header("Sec-WebSocket-Protocol", &format!("minke.bearer.{token}"));
        self.add_outside("token: as a subprotocol elsewhere", &subprotocol);
    }

    fn request_line_attacks(&mut self) {
        let host = self.world.host_header();
        for (name, line) in [
            ("HTTP/0.9", "POST /v1/thread\r\n".to_owned()),
            ("nothing but a line", "\r\n\r\n\r\n".to_owned()),
            ("no version", format!("GET /healthz\r\nHost: {host}\r\n\r\n")),
            ("HTTP/2 in clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
            ("HTTP/3.0", format!("GET /v1/pods HTTP/3.0\r\nHost: {host}\r\n\r\n")),
            ("HTTP/1.2", format!("GET /v1/pods HTTP/1.2\r\nHost: {host}\r\n\r\n")),
            ("a space before a colon", format!("GET /v1/pods HTTP/1.1\r\nHost : {host}\r\n\r\n")),
            ("a folded header", format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\n evil\r\n\r\n")),
            ("a header without a colon", format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\nevil\r\n\r\n")),
            ("a header without a name", format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\n: evil\r\n\r\n")),
            ("a NUL in a header", format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n")),
            ("a bare CR", format!("GET /v1/pods HTTP/1.1\rHost: {host}\r\r")),
            ("a method with a space", format!("PO ST /v1/thread HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            ("an empty method", format!(" /v1/thread HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            ("TLS", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}".to_owned()),
            ("bytes", "\u{0}\u{1}\u{2}\u{3}\u{4}".repeat(1_000)),
            ("SOCKS", "\u{4}\u{1}\u{0}P\u{7f}\u{0}\u{0}\u{1}\u{0}".to_owned()),
        ] {
            self.add_raw(format!("line: {name}"), line);
        }
        let wide: Vec<u8> = format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\n\r\n")
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        self.add_raw("line: UTF-16", wide);
        self.add_outside(
            "line: a proxy's",
            &self.valid_request().target(&format!("http://evil.example:{}/v1/thread", self.world.port())),
        );
        self.add_outside(
            "line: a proxy's for us",
            &self.valid_request().target(&format!("http://{host}/v1/thread")),
        );
        self.add_outside(
            "line: a tunnel",
            &self.valid_request().method("CONNECT").target("evil.example:443").remove_header("Authorization"),
        );
        self.add_outside(
            "line: all",
            &self.valid_request().method("OPTIONS").target("*").remove_header("Authorization"),
        );
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "post", "BREW"] {
            self.add_inside(format!("method {method}"), &self.valid_request().method(method));
        }
        let over = self.valid_request().method("GET").body(b"").add_header("X-HTTP-Method-Override", "POST");
        self.add_inside("method over method", &over);
    }

    fn path_attacks(&mut self) {
        for path in [
            "//v1/thread",
            "/v1//thread",
            "/v1/thread/",
            "/v1/thread//",
            "/v1/./thread",
            "/v1/../v1/thread",
            "/./v1/thread",
            "/v1/%74hread",
            "/v1/thread%00",
            "/v1/thread%2f",
            "/v1%2fthread",
            "/v1/thread;a=b",
            "/v1/thread;.json",
            "/v1/thread.json",
            "/V1/thread",
            "/v1/Thread",
            "/v1/thread%20",
            "/v1/thread%0d%0aX:y",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/../../etc/passwd",
            "/v1/pods/../thread",
            "/v1/pods/%2e%2e/thread",
            "/healthz/../v1/thread",
            "/healthz/v1/thread",
            "/healthz%2f..%2fv1%2fthread",
            "/v1\\thread",
            "/v2/thread",
            "/thread",
            "/v1/thread/create",
            "/v1/%c0%ae%c0%ae/thread",
            "/v1/\u{fe0f}thread",
            "/v1/thread%",
        ] {
            self.add_inside(format!("path {path}"), &self.valid_request().target(path));
        }
        self.add_inside(
            "path of 16,000",
            &self.valid_request().target(&format!("/v1/thread?{}", "a".repeat(16_000))),
        );
        self.add_inside(
            "path of 9,000",
            &self.valid_request().target(&format!("/v1/thread?{}", "a".repeat(9_000))),
        );
        self.add_inside(
            "a query where there is none",
            &self.valid_request().target("/v1/thread?kind=create"),
        );
        self.add_inside(
            "a member of the query twice",
            &self.valid_request().method("GET").body(b"").target("/v1/config?cwd=/a&cwd=/b"),
        );
        self.add_inside(
            "events of nothing",
            &self.valid_request().method("GET").body(b"").target("/v1/events"),
        );
        self.add_inside(
            "events of what is not there",
            &self
                .valid_request()
                .method("GET")
                .body(b"")
                .target("/v1/events?thread=s_00000000-0000-7000-8000-000000000000"),
        );
        self.add_inside(
            "events since a wrong place",
            &self.valid_request().method("GET").body(b"").target("/v1/events?thread=x&since=../../x"),
        );
        self.add_inside(
            "events of a file",
            &self.valid_request().method("GET").body(b"").target("/v1/events?thread=../../../../etc/passwd"),
        );
    }

    fn length_attacks(&mut self) {
        let body = self.world.create_body();
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let te = self
            .valid_request()
            .body(chunked.as_bytes())
            .length("")
            .add_header("Transfer-Encoding", "chunked");
        self.add_inside("chunked", &te);
        self.add_inside("both lengths", &te.clone().length(&body.len().to_string()));
        self.add_inside("both lengths, the other way", &te.clone().length("4"));
        self.add_inside("chunked twice", &te.clone().add_header("Transfer-Encoding", "chunked"));
        for coding in
            ["chunked, identity", "identity", "gzip, chunked", "xchunked", " chunked", "chunked;x", "cow"]
        {
            let odd = self
                .valid_request()
                .body(chunked.as_bytes())
                .length("")
                .add_header("Transfer-Encoding", coding);
            self.add_inside(format!("coding `{coding}`"), &odd);
        }
        let bad = self
            .valid_request()
            .body(b"fffffffffffffffff\r\n")
            .length("")
            .add_header("Transfer-Encoding", "chunked");
        self.add_inside("a chunk that overflows", &bad);
        for length in
            ["-1", "+5", "0x20", "1e3", "5, 6", "99999999999999999999", "a", "16777217", "4294967296"]
        {
            self.add_inside(format!("length {length}"), &self.valid_request().length(length));
        }
        let two = self.valid_request().add_header("Content-Length", "5");
        self.add_inside("two lengths", &two);
        // The body ends in the middle.
        self.add_inside("more promised than sent", &self.valid_request().length("100000"));
        let hidden = format!(
            "{body}POST /v1/thread HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.world.host_header(),
            body.len()
        );
        let smuggled = self
            .valid_request()
            .remove_header("Authorization")
            .set_header("Connection", "keep-alive")
            .length(&body.len().to_string());
        self.add_outside("a request behind a refused one", &smuggled.body(hidden.as_bytes()));
    }

    fn content_type_attacks(&mut self) {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/json",
            "application/jsonp",
            "application/json; charset=utf-16",
            "application/json, text/plain",
            "application/ld+json",
            "*/*",
            "json",
            "",
        ] {
            self.add_inside(
                format!("content `{kind}`"),
                &self.valid_request().set_header("Content-Type", kind),
            );
        }
        self.add_inside("no content type", &self.valid_request().remove_header("Content-Type"));
        self.add_inside(
            "two content types",
            &self.valid_request().add_header("Content-Type", "application/json"),
        );
        let gzip = self
            .valid_request()
            .add_header("Content-Encoding", "gzip")
            .body(b"\x1f\x8b\x08\x00\x00\x00\x00\x00");
        self.add_inside("compressed", &gzip);
    }

    fn body_attacks(&mut self) {
        let body = self.world.create_body();
        let inner = body.trim_start_matches('{').trim_end_matches('}').to_owned();
        let deep = |open: &str, close: &str| {
            format!("{{{inner},\"metadata\":{}1{}}}", open.repeat(100_000), close.repeat(100_000))
        };
        for (name, text) in [
            ("nested lists", deep("[", "]")),
            ("nested objects", deep("{\"a\":", "}")),
            ("lists without an end", format!("{{{inner},\"metadata\":{}", "[".repeat(1_000_000))),
            ("a member twice", format!("{{{inner},\"kind\":\"create\"}}")),
            ("a member of a member twice", format!("{{{inner},\"metadata\":{{\"a\":1,\"a\":2}}}}")),
            ("two objects", format!("{body}{body}")),
            ("something behind it", format!("{body}x")),
            ("a list around it", format!("[{body}]")),
            ("text around it", format!("{body:?}")),
            ("a comment", format!("/**/{body}")),
            ("a trailing comma", format!("{{{inner},}}")),
            ("single quotes", body.replace('"', "'")),
            ("a lone surrogate", format!("{{{inner},\"metadata\":\"\\ud800\"}}")),
            ("a number that is none", format!("{{{inner},\"metadata\":NaN}}")),
            ("a number too large", format!("{{{inner},\"metadata\":1e999}}")),
            ("a byte order mark", format!("\u{feff}{body}")),
            ("half of it", body.chars().take(body.len() / 2).collect()),
            ("an unknown member", format!("{{{inner},\"__proto__\":{{}}}}")),
            ("null", "null".to_owned()),
            ("nothing", String::new()),
            ("an unknown kind", "{\"kind\":\"destroy\"}".to_owned()),
        ] {
            self.add_inside(format!("body: {name}"), &self.valid_request().body(text.as_bytes()));
        }
        let mut torn = body.clone().into_bytes();
        torn.insert(torn.len() - 2, 0xff);
        self.add_inside("body: not UTF-8", &self.valid_request().body(&torn));
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_be_bytes).collect();
        self.add_inside("body: UTF-16", &self.valid_request().body(&wide));
        let large = vec![b' '; 16 * 1024 * 1024 + 1];
        self.add_inside("body: too large", &self.valid_request().body(&large));
    }

    fn header_attacks(&mut self) {
        let many =
            (0..200).fold(self.valid_request(), |request, n| request.add_header(&format!("X-{n}"), "y"));
        self.add_outside("two hundred headers", &many);
        self.add_outside("a header of 100,000", &self.valid_request().add_header("X", &"y".repeat(100_000)));
        self.add_outside("a name of 100,000", &self.valid_request().add_header(&"x".repeat(100_000), "y"));
        self.add_inside(
            "an expectation",
            &self.valid_request().add_header("Expect", "200-maybe").body(b"{").length("100"),
        );
        let upgrade = self
            .valid_request()
            .set_header("Connection", "Upgrade, HTTP2-Settings")
            .add_header("Upgrade", "h2c")
            .add_header("HTTP2-Settings", "x")
            .target("/v1/nothing");
        self.add_inside("an upgrade to HTTP/2", &upgrade);
    }

    fn websocket_attacks(&mut self) {
        let socket = RawRequest::websocket(self.world);
        let token = self.world.token().to_owned();
        for origin in ["http://evil.example", "null", "https://localhost", "file://"] {
            self.add_outside(format!("socket from {origin}"), &socket.clone().add_header("Origin", origin));
        }
        self.add_outside(
            "socket, rebound",
            &socket.clone().set_header("Host", &format!("evil.example:{}", self.world.port())),
        );
        self.add_outside("socket without a token", &socket.clone().remove_header("Authorization"));
        let none = socket.clone().remove_header("Authorization");
        for (name, protocols) in [
            ("only ours", "minke.v1".to_owned()),
            ("an empty token", "minke.v1, minke.bearer.".to_owned()),
            ("a wrong token", format!("minke.v1, minke.bearer.{}", "0".repeat(64))),
            (
                "half a token",
                format!("minke.v1, minke.bearer.{}", token.chars().take(32).collect::<String>()),
            ),
            ("the bare token", format!("minke.v1, {token}")),
            ("a wrong one first", format!("minke.bearer.x, minke.bearer.{token}")),
        ] {
            self.add_outside(
                format!("socket with {name}"),
                &none.clone().add_header("Sec-WebSocket-Protocol", &protocols),
            );
        }
        self.add_outside(
            "socket with a token in the query",
            &none.clone().target(&format!("/v1/ws?token={token}")),
        );
        self.add_outside(
            "socket from another site",
            &socket.clone().add_header("Sec-Fetch-Site", "cross-site"),
        );
        self.add_inside(
            "socket of another version",
            &socket.clone().set_header("Sec-WebSocket-Version", "8"),
        );
        self.add_inside("socket without a version", &socket.clone().remove_header("Sec-WebSocket-Version"));
        self.add_inside("socket without a key", &socket.clone().remove_header("Sec-WebSocket-Key"));
        self.add_inside("socket without an upgrade", &socket.clone().remove_header("Upgrade"));
        self.add_inside("socket by POST", &socket.set_header("Connection", "Upgrade").method("POST"));
    }

    /// The connection is accepted, but the messages are invalid.
    fn frame_attacks(&mut self) {
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"thread","params":{}}}"#, self.world.create_body());
        let text = request.as_bytes();
        let masked = |first: u8, payload: &[u8]| websocket_frame(first, payload, true);
        for (name, sent) in [
            ("not masked", websocket_frame(0x81, text, false)),
            ("binary", masked(0x82, text)),
            ("a reserved bit", masked(0xc1, text)),
            ("an unknown kind", masked(0x83, text)),
            ("a continuation of nothing", masked(0x80, text)),
            ("not UTF-8", masked(0x81, &[text, b"\xff"].concat())),
            ("a ping in pieces", masked(0x09, text)),
            ("a ping too long", masked(0x89, &[text, &[b' '; 200]].concat())),
            ("a length of 2^62", [&[0x81, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0][..], text].concat()),
            ("a length beyond the limit", [&[0x81, 0xff, 0, 0, 0, 0, 0x02, 0, 0, 0][..], text].concat()),
            ("half a frame", websocket_frame(0x81, text, true).into_iter().take(20).collect()),
            ("not JSON", masked(0x81, b"create a session")),
            ("another protocol", masked(0x81, request.replace("2.0", "1.0").as_bytes())),
            ("a member twice", masked(0x81, request.replacen("\"id\":1", "\"id\":1,\"id\":1", 1).as_bytes())),
            (
                "params as a list",
                masked(
                    0x81,
                    request.replacen("\"params\":{", "\"params\":[{", 1).replacen("}}", "}]}", 1).as_bytes(),
                ),
            ),
            ("a method that is none", masked(0x81, request.replace("\"thread\"", "\"thred\"").as_bytes())),
            ("plain HTTP", RawRequest::valid(self.world).to_bytes()),
            ("a close, then more", [masked(0x88, &[3, 232]), masked(0x81, text)].concat()),
        ] {
            let end = masked(0x88, &[3, 232]);
            let bytes = [RawRequest::websocket(self.world).to_bytes(), sent, end].concat();
            self.attacks.push(Attack { name: format!("socket: {name}"), bytes, with_token: true });
        }
    }
}

/// Returns a WebSocket frame.
pub(crate) fn websocket_frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut out = vec![first];
    match payload.len() {
        short @ 0..=125 => out.push(mask | u8::try_from(short).unwrap()),
        long => {
            out.push(mask | 126);
            out.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    let key = [1_u8, 2, 3, 4];
    if masked {
        out.extend(key);
    }
    let hide = |(n, byte): (usize, &u8)| if masked { byte ^ key[n % 4] } else { *byte };
    out.extend(payload.iter().enumerate().map(hide));
    out
}
