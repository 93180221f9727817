//! The attacks, as a table.

use crate::request::Request;
use crate::world::World;

pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether whoever sends it has the right token, and may be told what is wrong.
    pub(crate) with_token: bool,
}

pub(crate) fn attacks(world: &World) -> Vec<Attack> {
    let mut table = Table { world, attacks: Vec::new() };
    table.hosts();
    table.origins();
    table.tokens();
    table.lines();
    table.paths();
    table.lengths();
    table.contents();
    table.bodies();
    table.heads();
    table.sockets();
    table.frames();
    table.attacks
}

struct Table<'a> {
    world: &'a World,
    attacks: Vec<Attack>,
}

impl Table<'_> {
    fn good(&self) -> Request {
        Request::good(self.world)
    }

    /// By somebody who gets no further than the guard.
    fn outside(&mut self, name: impl Into<String>, request: &Request) {
        let bytes = request.bytes();
        self.attacks.push(Attack { name: name.into(), bytes, with_token: false });
    }

    /// By somebody who has the token.
    fn inside(&mut self, name: impl Into<String>, request: &Request) {
        let bytes = request.bytes();
        self.attacks.push(Attack { name: name.into(), bytes, with_token: true });
    }

    fn raw(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.attacks.push(Attack { name: name.into(), bytes: bytes.into(), with_token: false });
    }

    fn hosts(&mut self) {
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
            self.outside(format!("host `{host}`"), &self.good().set("Host", &host));
        }
        self.outside("no host", &self.good().without("Host"));
        self.outside("two hosts", &self.good().with("Host", "evil.example"));
        self.outside("the same host twice", &self.good().with("Host", &self.world.host()));
        self.outside("no host in HTTP/1.0", &self.good().version("HTTP/1.0").without("Host"));
        let forwarded = self.good().set("Host", "evil.example").with("X-Forwarded-Host", &self.world.host());
        self.outside("a host that was forwarded", &forwarded);
    }

    fn origins(&mut self) {
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
            self.outside(format!("origin `{origin}`"), &self.good().set("Origin", &origin));
        }
        let own = format!("http://{}", self.world.host());
        let two = self.good().with("Origin", &own).with("Origin", "http://evil.example");
        self.outside("two origins", &two);
        for site in ["cross-site", "same-site", "Same-Origin", ""] {
            self.outside(format!("fetched from `{site}`"), &self.good().with("Sec-Fetch-Site", site));
        }
        let both = self.good().with("Sec-Fetch-Site", "same-origin").with("Sec-Fetch-Site", "cross-site");
        self.outside("fetched from here and there", &both);
        let simple = self.good().set("Content-Type", "text/plain").without("Authorization");
        self.outside("a form's simple request", &simple.clone().with("Origin", "http://evil.example"));
        self.outside("a form's request without an origin", &simple);
        let preflight = self
            .good()
            .method("OPTIONS")
            .without("Authorization")
            .body(b"")
            .with("Origin", "http://evil.example")
            .with("Access-Control-Request-Method", "POST")
            .with("Access-Control-Request-Private-Network", "true");
        self.outside("a preflight", &preflight);
    }

    fn tokens(&mut self) {
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
            self.outside(format!("token: {name}"), &self.good().set("Authorization", &value));
        }
        self.outside("token: none", &self.good().without("Authorization"));
        let twice = self.good().with("Authorization", "Bearer x");
        self.outside("token: two headers", &twice);
        let none = self.good().without("Authorization");
        self.outside("token: in the query", &none.clone().target(&format!("/v1/thread?token={token}")));
        self.outside("token: as a cookie", &none.clone().with("Cookie", &format!("token={token}")));
        self.outside("token: in another header", &none.clone().with("X-Minke-Token", &token));
        self.outside(
            "token: in a proxy's header",
            &none.clone().with("Proxy-Authorization", &format!("Bearer {token}")),
        );
        let subprotocol = none.with("Sec-WebSocket-Protocol", &format!("minke.bearer.{token}"));
        self.outside("token: as a subprotocol elsewhere", &subprotocol);
    }

    fn lines(&mut self) {
        let host = self.world.host();
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
            self.raw(format!("line: {name}"), line);
        }
        let wide: Vec<u8> = format!("GET /v1/pods HTTP/1.1\r\nHost: {host}\r\n\r\n")
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        self.raw("line: UTF-16", wide);
        self.outside(
            "line: a proxy's",
            &self.good().target(&format!("http://evil.example:{}/v1/thread", self.world.port())),
        );
        self.outside("line: a proxy's for us", &self.good().target(&format!("http://{host}/v1/thread")));
        self.outside(
            "line: a tunnel",
            &self.good().method("CONNECT").target("evil.example:443").without("Authorization"),
        );
        self.outside("line: all", &self.good().method("OPTIONS").target("*").without("Authorization"));
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "post", "BREW"] {
            self.inside(format!("method {method}"), &self.good().method(method));
        }
        let over = self.good().method("GET").body(b"").with("X-HTTP-Method-Override", "POST");
        self.inside("method over method", &over);
    }

    fn paths(&mut self) {
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
            self.inside(format!("path {path}"), &self.good().target(path));
        }
        self.inside("path of 16,000", &self.good().target(&format!("/v1/thread?{}", "a".repeat(16_000))));
        self.inside("path of 9,000", &self.good().target(&format!("/v1/thread?{}", "a".repeat(9_000))));
        self.inside("a query where there is none", &self.good().target("/v1/thread?kind=create"));
        self.inside(
            "a member of the query twice",
            &self.good().method("GET").body(b"").target("/v1/config?cwd=/a&cwd=/b"),
        );
        self.inside("events of nothing", &self.good().method("GET").body(b"").target("/v1/events"));
        self.inside(
            "events of what is not there",
            &self
                .good()
                .method("GET")
                .body(b"")
                .target("/v1/events?thread=s_00000000-0000-7000-8000-000000000000"),
        );
        self.inside(
            "events since a wrong place",
            &self.good().method("GET").body(b"").target("/v1/events?thread=x&since=../../x"),
        );
        self.inside(
            "events of a file",
            &self.good().method("GET").body(b"").target("/v1/events?thread=../../../../etc/passwd"),
        );
    }

    fn lengths(&mut self) {
        let body = self.world.creating();
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let te = self.good().body(chunked.as_bytes()).length("").with("Transfer-Encoding", "chunked");
        self.inside("chunked", &te);
        self.inside("both lengths", &te.clone().length(&body.len().to_string()));
        self.inside("both lengths, the other way", &te.clone().length("4"));
        self.inside("chunked twice", &te.clone().with("Transfer-Encoding", "chunked"));
        for coding in
            ["chunked, identity", "identity", "gzip, chunked", "xchunked", " chunked", "chunked;x", "cow"]
        {
            let odd = self.good().body(chunked.as_bytes()).length("").with("Transfer-Encoding", coding);
            self.inside(format!("coding `{coding}`"), &odd);
        }
        let bad = self.good().body(b"fffffffffffffffff\r\n").length("").with("Transfer-Encoding", "chunked");
        self.inside("a chunk that overflows", &bad);
        for length in
            ["-1", "+5", "0x20", "1e3", "5, 6", "99999999999999999999", "a", "16777217", "4294967296"]
        {
            self.inside(format!("length {length}"), &self.good().length(length));
        }
        let two = self.good().with("Content-Length", "5");
        self.inside("two lengths", &two);
        // Ends in the middle: the rest never comes.
        self.inside("more promised than sent", &self.good().length("100000"));
        let hidden = format!(
            "{body}POST /v1/thread HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.world.host(),
            body.len()
        );
        let smuggled = self
            .good()
            .without("Authorization")
            .set("Connection", "keep-alive")
            .length(&body.len().to_string());
        self.outside("a request behind a refused one", &smuggled.body(hidden.as_bytes()));
    }

    fn contents(&mut self) {
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
            self.inside(format!("content `{kind}`"), &self.good().set("Content-Type", kind));
        }
        self.inside("no content type", &self.good().without("Content-Type"));
        self.inside("two content types", &self.good().with("Content-Type", "application/json"));
        let gzip = self.good().with("Content-Encoding", "gzip").body(b"\x1f\x8b\x08\x00\x00\x00\x00\x00");
        self.inside("compressed", &gzip);
    }

    fn bodies(&mut self) {
        let body = self.world.creating();
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
            self.inside(format!("body: {name}"), &self.good().body(text.as_bytes()));
        }
        let mut torn = body.clone().into_bytes();
        torn.insert(torn.len() - 2, 0xff);
        self.inside("body: not UTF-8", &self.good().body(&torn));
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_be_bytes).collect();
        self.inside("body: UTF-16", &self.good().body(&wide));
        let large = vec![b' '; 16 * 1024 * 1024 + 1];
        self.inside("body: too large", &self.good().body(&large));
    }

    fn heads(&mut self) {
        let many = (0..200).fold(self.good(), |request, n| request.with(&format!("X-{n}"), "y"));
        self.outside("two hundred headers", &many);
        self.outside("a header of 100,000", &self.good().with("X", &"y".repeat(100_000)));
        self.outside("a name of 100,000", &self.good().with(&"x".repeat(100_000), "y"));
        self.inside("an expectation", &self.good().with("Expect", "200-maybe").body(b"{").length("100"));
        let upgrade = self
            .good()
            .set("Connection", "Upgrade, HTTP2-Settings")
            .with("Upgrade", "h2c")
            .with("HTTP2-Settings", "x")
            .target("/v1/nothing");
        self.inside("an upgrade to HTTP/2", &upgrade);
    }

    fn sockets(&mut self) {
        let socket = Request::socket(self.world);
        let token = self.world.token().to_owned();
        for origin in ["http://evil.example", "null", "https://localhost", "file://"] {
            self.outside(format!("socket from {origin}"), &socket.clone().with("Origin", origin));
        }
        self.outside(
            "socket, rebound",
            &socket.clone().set("Host", &format!("evil.example:{}", self.world.port())),
        );
        self.outside("socket without a token", &socket.clone().without("Authorization"));
        let none = socket.clone().without("Authorization");
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
            self.outside(
                format!("socket with {name}"),
                &none.clone().with("Sec-WebSocket-Protocol", &protocols),
            );
        }
        self.outside(
            "socket with a token in the query",
            &none.clone().target(&format!("/v1/ws?token={token}")),
        );
        self.outside("socket from another site", &socket.clone().with("Sec-Fetch-Site", "cross-site"));
        self.inside("socket of another version", &socket.clone().set("Sec-WebSocket-Version", "8"));
        self.inside("socket without a version", &socket.clone().without("Sec-WebSocket-Version"));
        self.inside("socket without a key", &socket.clone().without("Sec-WebSocket-Key"));
        self.inside("socket without an upgrade", &socket.clone().without("Upgrade"));
        self.inside("socket by POST", &socket.set("Connection", "Upgrade").method("POST"));
    }

    /// The door is open; what comes through it is not what may.
    fn frames(&mut self) {
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"thread","params":{}}}"#, self.world.creating());
        let text = request.as_bytes();
        let masked = |first: u8, payload: &[u8]| frame(first, payload, true);
        for (name, sent) in [
            ("not masked", frame(0x81, text, false)),
            ("binary", masked(0x82, text)),
            ("a reserved bit", masked(0xc1, text)),
            ("an unknown kind", masked(0x83, text)),
            ("a continuation of nothing", masked(0x80, text)),
            ("not UTF-8", masked(0x81, &[text, b"\xff"].concat())),
            ("a ping in pieces", masked(0x09, text)),
            ("a ping too long", masked(0x89, &[text, &[b' '; 200]].concat())),
            ("a length of 2^62", [&[0x81, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0][..], text].concat()),
            ("a length beyond the limit", [&[0x81, 0xff, 0, 0, 0, 0, 0x02, 0, 0, 0][..], text].concat()),
            ("half a frame", frame(0x81, text, true).into_iter().take(20).collect()),
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
            ("plain HTTP", Request::good(self.world).bytes()),
            ("a close, then more", [masked(0x88, &[3, 232]), masked(0x81, text)].concat()),
        ] {
            let end = masked(0x88, &[3, 232]);
            let bytes = [Request::socket(self.world).bytes(), sent, end].concat();
            self.attacks.push(Attack { name: format!("socket: {name}"), bytes, with_token: true });
        }
    }
}

/// A WebSocket frame.
pub(crate) fn frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
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
