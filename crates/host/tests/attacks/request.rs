//! A request as bytes, so that anything can be wrong with it.

use crate::world::World;

#[derive(Clone)]
pub(crate) struct Request {
    method: String,
    target: String,
    version: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Instead of what the body's length says.
    length: Option<String>,
}

impl Request {
    /// One that makes a session.
    pub(crate) fn good(world: &World) -> Request {
        Request {
            method: "POST".to_owned(),
            target: "/v1/thread".to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: vec![
                ("Host".to_owned(), world.host()),
                ("Authorization".to_owned(), format!("Bearer {}", world.token())),
                ("Content-Type".to_owned(), "application/json".to_owned()),
                ("Connection".to_owned(), "close".to_owned()),
            ],
            body: world.creating().into_bytes(),
            length: None,
        }
    }

    /// One that opens a WebSocket.
    pub(crate) fn socket(world: &World) -> Request {
        let mut request = Request::good(world).method("GET").target("/v1/ws").body(b"");
        request.headers.retain(|(name, _)| name != "Content-Type" && name != "Connection");
        request
            .with("Connection", "Upgrade")
            .with("Upgrade", "websocket")
            .with("Sec-WebSocket-Version", "13")
            .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    pub(crate) fn method(mut self, method: &str) -> Request {
        self.method = method.to_owned();
        self
    }

    pub(crate) fn target(mut self, target: &str) -> Request {
        self.target = target.to_owned();
        self
    }

    pub(crate) fn version(mut self, version: &str) -> Request {
        self.version = version.to_owned();
        self
    }

    /// Replaces a header.
    pub(crate) fn set(self, name: &str, value: &str) -> Request {
        self.without(name).with(name, value)
    }

    /// Adds a header, beside one of the same name.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(had, _)| !had.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Request {
        self.body = body.to_vec();
        self
    }

    /// What is said of the body's length; empty says nothing.
    pub(crate) fn length(mut self, length: &str) -> Request {
        self.length = Some(length.to_owned());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
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

/// The status of an answer; none if there is no answer.
pub(crate) fn status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    text.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}
