//! Signals: SIGTERM and SIGINT ask the pod to stop; a second one ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a process that a signal ended gives as its exit code, by the shell's convention, is this much more.
const SIGNAL_CODE: u8 = 128;

#[derive(Default)]
pub(crate) struct Signals {
    caught: Option<(Signal, Signal)>,
}

impl Signals {
    /// Catches both, or none: a pod inside a test's process leaves the process's signals alone.
    pub(crate) fn catch(wanted: bool) -> io::Result<Signals> {
        if !wanted {
            return Ok(Signals { caught: None });
        }
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { caught: Some((terminate, interrupt)) })
    }

    /// Waits for one and gives the exit code that it stands for.
    pub(crate) async fn next(&mut self) -> u8 {
        let Some((terminate, interrupt)) = &mut self.caught else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => SIGNAL_CODE + 15,
            _ = interrupt.recv() => SIGNAL_CODE + 2,
        }
    }
}
