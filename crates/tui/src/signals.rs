//! The signals of the main loop.

use std::io;

use rustix::process::Signal as Sent;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that must not end the process before the terminal is restored.
pub(crate) struct Signals {
    pub(crate) terminate: Signal,
    pub(crate) hangup: Signal,
    pub(crate) interrupt: Signal,
    /// Another process requests a stop.
    pub(crate) suspend: Signal,
    pub(crate) resume: Signal,
    /// The event library may miss a resize that coincides with a key.
    pub(crate) resize: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            suspend: signal(SignalKind::from_raw(Sent::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(Sent::CONT.as_raw()))?,
            resize: signal(SignalKind::window_change())?,
        })
    }
}
