//! Output of the tour: one object per event for programs, one line for users, and `--step`.
//!
//! Invariant: with `--step` the tour waits for Enter, so that the printed facts can be checked
//! (`what_the_tour_says_is_what_kernel_and_logs_say`).

use std::io::BufRead;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Prints events as they happen.
pub(super) struct TourPrinter {
    output: CliOutput,
    step: bool,
    pub(super) watch: bool,
    started: Instant,
    /// One message per line on stdin; closed when stdin closes, which ends the tour.
    lines: mpsc::Receiver<()>,
}

impl TourPrinter {
    pub(super) fn new(output: CliOutput, step: bool, watch: bool) -> Result<TourPrinter, CliError> {
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
            .map_err(|e| CliError::new(ExitKind::Failed, "could not read stdin").with_reason(e))?;
        Ok(TourPrinter { output, step, watch, started: Instant::now(), lines })
    }

    /// Prints one event: its name, an object with facts, and a line for users.
    pub(super) async fn print_event(
        &mut self,
        event: &str,
        facts: Value,
        line: &str,
    ) -> Result<(), CliError> {
        if self.output.json {
            let mut object = json!({ "event": event, "ms": self.elapsed_ms() });
            if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), facts) {
                object.extend(facts);
            }
            self.output.print_json(&object)?;
        } else {
            self.output.print_line(line)?;
        }
        if self.step && self.lines.recv().await.is_none() {
            return Err(left_error());
        }
        Ok(())
    }

    /// Resolves when stdin is closed.
    pub(super) async fn wait_for_leave(&mut self) -> CliError {
        while self.lines.recv().await.is_some() {}
        left_error()
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn left_error() -> CliError {
    CliError::new(ExitKind::Signal, "the tour was interrupted")
}
