//! A request as bytes, so that every part of it can be invalid.

use crate::world::AttackServer;

#[derive(Clone)]
pub(crate) struct RawRequest {
    method: String,
    target: String,
    version: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Replaces the correct length of the body.
    length: Option<String>,
}

impl RawRequest {
    /// Returns a request that creates a session.
    pub(crate) fn valid(world: &AttackServer) -> RawRequest {
        RawRequest {
            method: "POST".to_owned(),
            target: "/v1/thread".to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: vec![
                ("Host".to_owned(), world.host_header()),
                ("Authorization".to_owned(), format!("Bearer {}", world.token())),
                ("Content-Type".to_owned(), "application/json".to_owned()),
                ("Connection".to_owned(), "close".to_owned()),
            ],
            body: world.create_body().into_bytes(),
            length: None,
        }
    }

    /// Returns a request that opens a WebSocket.
    pub(crate) fn websocket(world: &AttackServer) -> RawRequest {
        let mut request = RawRequest::valid(world).method("GET").target("/v1/ws").body(b"");
        request.headers.retain(|(name, _)| name != "Content-Type" && name != "Connection");
        request
            .add_header("Connection", "Upgrade")
            .add_header("Upgrade", "websocket")
            .add_header("Sec-WebSocket-Version", "13")
            .add_header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    pub(crate) fn method(mut self, method: &str) -> RawRequest {
        self.method = method.to_owned();
        self
    }

    pub(crate) fn target(mut self, target: &str) -> RawRequest {
        self.target = target.to_owned();
        self
    }

    pub(crate) fn version(mut self, version: &str) -> RawRequest {
        self.version = version.to_owned();
        self
    }

    /// Replaces a header.
    pub(crate) fn set_header(self, name: &str, value: &str) -> RawRequest {
        self.remove_header(name).add_header(name, value)
    }

    /// Adds a header, even if there is one of the same name.
    pub(crate) fn add_header(mut self, name: &str, value: &str) -> RawRequest {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn remove_header(mut self, name: &str) -> RawRequest {
        self.headers.retain(|(had, _)| !had.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> RawRequest {
        self.body = body.to_vec();
        self
    }

    /// Sets the value of `Content-Length`; empty omits the header.
    pub(crate) fn length(mut self, length: &str) -> RawRequest {
        self.length = Some(length.to_owned());
        self
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.length {
            None if self.body.is_empty() => {}
            None => text.push_str(&format!("Content-Length: {}\r\n", self.body.len())),
            Some(said) if said.is_empty() => {}
            Some(said) => text.push_str(&format!("Content-Length: {said}\r\n")),
        }
        text.push_str("\r\n");
        [text.as_bytes(), &self.body].concat()
    }
}

/// Returns the status of a response; `None` if there is none.
pub(crate) fn parse_status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    text.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}
