//! A client that speaks to a pod's socket by hand, so that the figures do not depend on our own client.
//!
//! Here: connecting, sending a method, reading frames. Elsewhere: what is asked (`fanout`, `start`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A pod that says nothing for this long has a fault.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) struct Wire {
    reader: BufReader<UnixStream>,
    line: String,
}

/// What a client saw of one run.
#[derive(Debug, Default)]
pub(crate) struct Saw {
    pub(crate) deltas: usize,
    /// How often it was told that it had fallen behind.
    pub(crate) lags: usize,
    /// Of everything that all clients get, in order.
    pub(crate) digest: u64,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> Result<Wire, String> {
        let stream =
            UnixStream::connect(socket).map_err(|why| format!("cannot connect to the pod: {why}"))?;
        stream.set_read_timeout(Some(SILENCE)).map_err(|why| format!("cannot set a timeout: {why}"))?;
        Ok(Wire { reader: BufReader::with_capacity(64 * 1024, stream), line: String::new() })
    }

    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        let stream = self.reader.get_mut();
        stream
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|why| format!("cannot send to the pod: {why}"))
    }

    /// The next frame: its event's name and the whole line.
    fn next(&mut self) -> Result<(&str, &str), String> {
        self.line.clear();
        let read = self
            .reader
            .read_line(&mut self.line)
            .map_err(|why| format!("cannot read from the pod: {why}"))?;
        if read == 0 {
            return Err("the pod closed the connection".into());
        }
        // Every frame begins with its event; a parser for 20,000 lines a client would measure itself.
        let rest = self.line.strip_prefix("{\"event\":\"").unwrap_or_default();
        let name = rest.split('"').next().unwrap_or_default();
        Ok((name, &self.line))
    }

    /// Reads up to and with the first frame of that event.
    pub(crate) fn until(&mut self, event: &str) -> Result<(), String> {
        while self.next()?.0 != event {}
        Ok(())
    }

    /// Connects with a subscription to everything and waits for the snapshot.
    pub(crate) fn subscribe(socket: &Path) -> Result<Wire, String> {
        let mut wire = Wire::connect(socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"full","client":{"name":"bench","version":"0"}}}"#)?;
        wire.until("snapshot")?;
        Ok(wire)
    }

    /// Watches one run to its end.
    pub(crate) fn watch(&mut self) -> Result<Saw, String> {
        let mut saw = Saw::default();
        let mut digest = DefaultHasher::new();
        loop {
            let (event, line) = self.next()?;
            match event {
                // To one client alone.
                "reply" | "hello" => continue,
                // Both say that live events were left out; `in_flight` alone if no entry was pending.
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
