//! Signals that the loop listens for.

use std::io;

use rustix::process::Signal as Sent;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that must not end it with the terminal changed.
pub(crate) struct Signals {
    pub(crate) end: Signal,
    pub(crate) hangup: Signal,
    pub(crate) interrupt: Signal,
    /// Somebody else wants it to stop.
    pub(crate) stop: Signal,
    pub(crate) proceed: Signal,
    /// The library that reads keys may overlook it when a key comes at the same time.
    pub(crate) resize: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            end: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(SignalKind::from_raw(Sent::TSTP.as_raw()))?,
            proceed: signal(SignalKind::from_raw(Sent::CONT.as_raw()))?,
            resize: signal(SignalKind::window_change())?,
        })
    }
}
