//! What a session's log still asks, and whether all of it could be read.

use std::ops::ControlFlow;

use minke_pod::State;
use minke_record::{OpenAsk, SessionId};
use minke_session::{Reader, ScanEnd, StoreError};

/// The open questions of one session.
pub(crate) struct Questions {
    pub(crate) pod: String,
    pub(crate) cwd: String,
    pub(crate) asks: Vec<OpenAsk>,
    /// Why there may be others.
    pub(crate) doubt: Option<String>,
}

/// A log that is damaged is read as far as it is whole; what stands behind that is not known.
pub(crate) fn questions(reader: &dyn Reader) -> Result<Questions, StoreError> {
    let replay = reader.replay()?;
    let next = replay.last().map_or(0, |last| last.entry.seq + 1);
    let facts = State::replay(replay.iter().map(|sealed| &sealed.entry)).facts;
    let doubt = match reader.scan(next, &mut |_| ControlFlow::Break(()))? {
        ScanEnd::Damaged(damage) => {
            let id = reader.id();
            Some(format!("s_{id} may ask something: {damage}; `minke log repair {id}` shows the rest"))
        }
        ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
    };
    let pod = facts.name.as_ref().map(ToString::to_string).unwrap_or_default();
    let cwd = facts.about.map(|about| about.cwd).unwrap_or_default();
    Ok(Questions { pod, cwd, asks: facts.asks, doubt })
}

/// What is said of a session that cannot be asked.
pub(crate) fn unread(session: SessionId, why: &StoreError) -> String {
    format!("s_{session} may ask something: its log cannot be read: {why}")
}
