//! A plain client of a host: one request on a connection, and streams of events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Going, World};

/// Nothing of what is tried here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host of a world, and how it is reached.
pub(crate) struct Host {
    pub(crate) going: Going,
    pub(crate) door: Door,
}

/// Where a host listens, and its token.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) address: String,
    token: String,
    pub(crate) pid: Value,
}

impl Host {
    pub(crate) fn start(world: &World, args: &[&str]) -> Host {
        let mut going = world.start(&[&["host"], args].concat());
        let line = going.until("http://");
        let door = Door::of(world);
        assert_eq!(line.trim(), format!("http://{}", door.address));
        Host { going, door }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself, which is tried elsewhere.
        drop(self.going.child.kill());
        drop(self.going.child.wait());
    }
}

impl Door {
    /// What `host.json` says.
    pub(crate) fn of(world: &World) -> Door {
        let text = std::fs::read_to_string(world.home().join("run/host.json")).unwrap();
        let info: Value = serde_json::from_str(&text).unwrap();
        let text = |name: &str| info[name].as_str().unwrap().to_owned();
        Door { address: text("address"), token: text("token"), pid: info["pid"].clone() }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn request(&self, verb: &str, path: &str, more: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n{more}\r\n{body}",
            self.address, self.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// One request, one answer.
    pub(crate) fn call(&self, verb: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut answer = String::new();
        self.request(verb, path, "", &body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)))
    }

    /// One request that must be done.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call("POST", path, body);
        assert_eq!(status, 200, "{path} {body}: {answer:#}");
        answer
    }

    /// The frames of a thread, after an id if there is one.
    pub(crate) fn events(&self, thread: &str, since: Option<&str>) -> Events {
        let more = since.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let stream = self.request("GET", &format!("/v1/events?thread={thread}"), &more, "");
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Events { lines, chunk: Vec::new() }
    }
}

/// A frame with the id that it can be gone on from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) id: Option<String>,
    pub(crate) frame: Value,
}

impl Seen {
    pub(crate) fn event(&self) -> &str {
        self.frame["event"].as_str().unwrap()
    }
}

/// A stream of server-sent events.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    /// What was taken out of the transfer coding and not read as lines yet.
    chunk: Vec<u8>,
}

impl Events {
    /// The next frame; none when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Seen> {
        let (mut id, mut data) = (None, String::new());
        let begin = Instant::now();
        loop {
            // Comments that keep the connection alive would keep this waiting for ever.
            if begin.elapsed() > PATIENCE {
                return None;
            }
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data.push_str(text);
            } else if line.is_empty() && !data.is_empty() {
                return Some(Seen { id, frame: serde_json::from_str(&data).unwrap() });
            }
        }
    }

    /// Frames until one is of this event, that one included.
    #[track_caller]
    pub(crate) fn until(&mut self, event: &str) -> Vec<Seen> {
        let mut all = Vec::new();
        let begin = Instant::now();
        while all.last().is_none_or(|seen: &Seen| seen.event() != event) {
            assert!(begin.elapsed() < PATIENCE * 2, "`{event}` does not come: {all:#?}");
            all.push(self.next().unwrap_or_else(|| panic!("it ended before `{event}`: {all:#?}")));
        }
        all
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.chunk.drain(..=end).collect();
                return Some(String::from_utf8(line).unwrap().trim_end_matches('\n').to_owned());
            }
            let mut size = String::new();
            if self.lines.read_line(&mut size).ok()? == 0 {
                return None;
            }
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut piece = vec![0; size + 2];
            self.lines.read_exact(&mut piece).ok()?;
            if size == 0 {
                return None;
            }
            piece.truncate(size);
            self.chunk.extend(piece);
        }
    }
}
