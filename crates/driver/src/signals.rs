//! Signals: SIGTERM and SIGINT ask the pod to stop; a second one ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Added to the signal number for the exit code of a signalled process, as in a shell.
const SIGNAL_EXIT_BASE: u8 = 128;

#[derive(Default)]
pub(crate) struct PodSignals {
    handlers: Option<(Signal, Signal)>,
}

impl PodSignals {
    /// Handles both signals or none: a pod inside a test process must not handle them.
    pub(crate) fn install_handlers(wanted: bool) -> io::Result<PodSignals> {
        if !wanted {
            return Ok(PodSignals { handlers: None });
        }
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(PodSignals { handlers: Some((terminate, interrupt)) })
    }

    /// Waits for a signal and returns its exit code.
    pub(crate) async fn next(&mut self) -> u8 {
        let Some((terminate, interrupt)) = &mut self.handlers else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => SIGNAL_EXIT_BASE + 15,
            _ = interrupt.recv() => SIGNAL_EXIT_BASE + 2,
        }
    }
}
