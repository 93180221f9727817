//! A simple client of a host: one request per connection, and event streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::world::{CliWorld, RunningMinke};

/// Time limit of every request.
const HTTP_TIMEOUT: Duration = Duration::from_secs(60);

/// A host of a world, and its client.
pub(crate) struct TestHost {
    pub(crate) process: RunningMinke,
    pub(crate) client: HostClient,
}

/// Address and token of a host.
#[derive(Clone, Debug)]
pub(crate) struct HostClient {
    pub(crate) address: String,
    token: String,
    pub(crate) pid: Value,
}

impl TestHost {
    pub(crate) fn start_host(world: &CliWorld, args: &[&str]) -> TestHost {
        let mut process = world.start_minke(&[&["host"], args].concat());
        let line = process.wait_for_stdout("http://");
        let client = HostClient::from_host_file(world);
        assert_eq!(line.trim(), format!("http://{}", client.address));
        TestHost { process, client }
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        // It may have ended; another test covers that.
        drop(self.process.child.kill());
        drop(self.process.child.wait());
    }
}

impl HostClient {
    /// Reads `host.json`.
    pub(crate) fn from_host_file(world: &CliWorld) -> HostClient {
        let text = std::fs::read_to_string(world.home_dir().join("run/host.json")).unwrap();
        let info: Value = serde_json::from_str(&text).unwrap();
        let text = |name: &str| info[name].as_str().unwrap().to_owned();
        HostClient { address: text("address"), token: text("token"), pid: info["pid"].clone() }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn send_request(&self, verb: &str, path: &str, more: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(HTTP_TIMEOUT)).unwrap();
        let length = body.len();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n{more}\r\n{body}",
            self.address, self.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Sends one request and returns the answer.
    pub(crate) fn call_json(&self, verb: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut answer = String::new();
        self.send_request(verb, path, "", &body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)))
    }

    /// Sends one request that must succeed.
    #[track_caller]
    pub(crate) fn post_ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call_json("POST", path, body);
        assert_eq!(status, 200, "{path} {body}: {answer:#}");
        answer
    }

    /// Opens the frames of a thread, after an id if there is one.
    pub(crate) fn open_events(&self, thread: &str, since: Option<&str>) -> SseStream {
        let more = since.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let stream = self.send_request("GET", &format!("/v1/events?thread={thread}"), &more, "");
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        SseStream { lines, chunk: Vec::new() }
    }
}

/// A frame with the id for a reconnect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FrameEvent {
    pub(crate) id: Option<String>,
    pub(crate) frame: Value,
}

impl FrameEvent {
    pub(crate) fn event_name(&self) -> &str {
        self.frame["event"].as_str().unwrap()
    }
}

/// A stream of server-sent events.
pub(crate) struct SseStream {
    lines: BufReader<TcpStream>,
    /// Decoded bytes that are not split into lines yet.
    chunk: Vec<u8>,
}

impl SseStream {
    /// Returns the next frame; `None` at the end of the stream.
    pub(crate) fn next_frame(&mut self) -> Option<FrameEvent> {
        let (mut id, mut data) = (None, String::new());
        let begin = Instant::now();
        loop {
            // Keep-alive comments would let this wait forever.
            if begin.elapsed() > HTTP_TIMEOUT {
                return None;
            }
            let line = self.next_line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data.push_str(text);
            } else if line.is_empty() && !data.is_empty() {
                return Some(FrameEvent { id, frame: serde_json::from_str(&data).unwrap() });
            }
        }
    }

    /// Returns frames up to the first one with this event.
    #[track_caller]
    pub(crate) fn read_until(&mut self, event: &str) -> Vec<FrameEvent> {
        let mut all = Vec::new();
        let begin = Instant::now();
        while all.last().is_none_or(|seen: &FrameEvent| seen.event_name() != event) {
            assert!(begin.elapsed() < HTTP_TIMEOUT * 2, "`{event}` does not arrive: {all:#?}");
            all.push(self.next_frame().unwrap_or_else(|| panic!("it ended before `{event}`: {all:#?}")));
        }
        all
    }

    fn next_line(&mut self) -> Option<String> {
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
