//! A minimal client for a pod's socket, so that the figures do not depend on our own client.
//!
//! Here: connecting, sending a method, reading frames. Elsewhere: the requests (`fanout`, `start`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A pod that sends nothing for this long has failed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct WireClient {
    reader: BufReader<UnixStream>,
    line: String,
}

/// The events of one run as a client received them.
#[derive(Debug, Default)]
pub(crate) struct RunObservation {
    pub(crate) deltas: usize,
    /// The number of lag events.
    pub(crate) lags: usize,
    /// A hash of the events that all clients get, in order.
    pub(crate) digest: u64,
}

impl WireClient {
    pub(crate) fn connect(socket: &Path) -> Result<WireClient, String> {
        let stream =
            UnixStream::connect(socket).map_err(|why| format!("could not connect to the pod: {why}"))?;
        stream
            .set_read_timeout(Some(SILENCE_TIMEOUT))
            .map_err(|why| format!("could not set a timeout: {why}"))?;
        Ok(WireClient { reader: BufReader::with_capacity(64 * 1024, stream), line: String::new() })
    }

    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        let stream = self.reader.get_mut();
        stream
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|why| format!("could not send to the pod: {why}"))
    }

    /// The next frame: the name of its event and the whole line.
    fn next_frame(&mut self) -> Result<(&str, &str), String> {
        self.line.clear();
        let read = self
            .reader
            .read_line(&mut self.line)
            .map_err(|why| format!("could not read from the pod: {why}"))?;
        if read == 0 {
            return Err("the pod closed the connection".into());
        }
        // Every frame starts with its event; parsing 20,000 lines for each client would dominate the
        // measurement.
        let rest = self.line.strip_prefix("{\"event\":\"").unwrap_or_default();
        let name = rest.split('"').next().unwrap_or_default();
        Ok((name, &self.line))
    }

    /// Reads up to and including the first frame of that event.
    pub(crate) fn read_until(&mut self, event: &str) -> Result<(), String> {
        while self.next_frame()?.0 != event {}
        Ok(())
    }

    /// Connects with a subscription to everything and waits for the snapshot.
    pub(crate) fn subscribe(socket: &Path) -> Result<WireClient, String> {
        let mut wire = WireClient::connect(socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"full","client":{"name":"bench","version":"0"}}}"#)?;
        wire.read_until("snapshot")?;
        Ok(wire)
    }

    /// Watches one run to its end.
    pub(crate) fn watch_run(&mut self) -> Result<RunObservation, String> {
        let mut saw = RunObservation::default();
        let mut digest = DefaultHasher::new();
        loop {
            let (event, line) = self.next_frame()?;
            match event {
                // Sent to a single client.
                "reply" | "hello" => continue,
                // Both report that live events were dropped; `in_flight` alone if no entry was pending.
                "lag" | "in_flight" => {
                    saw.lags += 1;
                    continue;
                }
                _ => line.hash(&mut digest),
            }
            saw.deltas += usize::from(event == "text_delta");
            if event == "run_end" {
                saw.digest = digest.finish();
                return Ok(saw);
            }
        }
    }
}
