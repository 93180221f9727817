//! Open asks in the log of a session.

use std::ops::ControlFlow;

use minke_pod::State;
use minke_record::{OpenAsk, SessionId};
use minke_session::{Reader, ScanEnd, StoreError};

/// The open asks of one session.
pub(crate) struct OpenAsks {
    pub(crate) pod: String,
    pub(crate) cwd: String,
    pub(crate) asks: Vec<OpenAsk>,
    /// Why there may be more.
    pub(crate) incomplete_reason: Option<String>,
}

/// Reads the open asks of a session. A damaged log is read up to the damage.
pub(crate) fn read_open_asks(reader: &dyn Reader) -> Result<OpenAsks, StoreError> {
    let replay = reader.read_replay()?;
    let next = replay.last().map_or(0, |last| last.entry.seq + 1);
    let facts = State::replay(replay.iter().map(|sealed| &sealed.entry)).facts;
    let reason = match reader.scan_entries(next, &mut |_| ControlFlow::Break(()))? {
        ScanEnd::Damaged(damage) => {
            let id = reader.session_id();
            Some(format!("s_{id} may have open asks: {damage}; `minke log repair {id}` shows the rest"))
        }
        ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
    };
    let pod = facts.name.as_ref().map(ToString::to_string).unwrap_or_default();
    let cwd = facts.about.map(|about| about.cwd).unwrap_or_default();
    Ok(OpenAsks { pod, cwd, asks: facts.asks, incomplete_reason: reason })
}

/// Returns the warning for a log that cannot be read.
pub(crate) fn unreadable_log(session: SessionId, why: &StoreError) -> String {
    format!("s_{session} may have open asks: could not read its log: {why}")
}
