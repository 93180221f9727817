//! Telling: one object a line for programs, one line for people, and the pace.
//!
//! Invariant: with `--step` nothing more is done before the reader has said so, so that what was told can be looked at
//! (`what_the_tour_says_is_what_kernel_and_logs_say`).

use std::io::BufRead;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Says what happens, as it happens.
pub(super) struct Teller {
    screen: Screen,
    step: bool,
    pub(super) watch: bool,
    started: Instant,
    /// One for each line on stdin; closed when stdin is: then nobody is left who wants to know.
    lines: mpsc::Receiver<()>,
}

impl Teller {
    pub(super) fn new(screen: Screen, step: bool, watch: bool) -> Result<Teller, Failure> {
        let (tx, lines) = mpsc::channel(1);
        let listen = move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || tx.blocking_send(()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(listen)
            .map_err(|e| Failure::new(Exit::Failed, "cannot listen to stdin").why(e))?;
        Ok(Teller { screen, step, watch, started: Instant::now(), lines })
    }

    /// One thing that has happened: `event` is its name, `facts` an object.
    pub(super) async fn say(&mut self, event: &str, facts: Value, line: &str) -> Result<(), Failure> {
        if self.screen.json {
            let mut object = json!({ "event": event, "ms": self.ms() });
            if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), facts) {
                object.extend(facts);
            }
            self.screen.object(&object)?;
        } else {
            self.screen.line(line)?;
        }
        if self.step && self.lines.recv().await.is_none() {
            return Err(left());
        }
        Ok(())
    }

    /// Resolves when nobody is left who wants to know.
    pub(super) async fn left(&mut self) -> Failure {
        while self.lines.recv().await.is_some() {}
        left()
    }

    pub(super) fn ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn left() -> Failure {
    Failure::new(Exit::Signal, "the tour was left")
}
