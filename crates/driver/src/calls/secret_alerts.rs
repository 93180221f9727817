//! Secret alerts: reports text that looks like a secret but is not a known one, once for each kind.
//!
//! Here: the kinds already reported in this session, and the message. Elsewhere: the patterns (`secrets`).
//! Invariant: one alert for each kind in a session, across processes, because reported kinds are read from
//! the log before the first alert (`a_kind_is_told_once_in_a_session`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use minke_record::{Entry, Kind};
use minke_secrets::kinds_in;
use tokio::sync::mpsc;

use crate::clients::log_reader::SessionReader;
use crate::clients::queries::scan_lineage;
use crate::event_loop::event::LoopEvent;
use crate::stderr::report;

/// The start of every alert, up to its kind. Alerts in older logs are recognized by it.
const ALERT_PREFIX: &str = "what looks like a key (";
/// Longer texts are searched on another thread.
const LONG_TEXT_BYTES: usize = 256 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct SecretAlerts {
    reported: Arc<Mutex<Option<BTreeSet<String>>>>,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
}

impl SecretAlerts {
    pub(crate) fn new(session_reader: SessionReader, events: mpsc::Sender<LoopEvent>) -> SecretAlerts {
        SecretAlerts { reported: Arc::default(), session_reader, events }
    }

    /// Searches a text; `place` names its location in the message.
    pub(crate) async fn check_text(&self, text: &str, location: &str) {
        let kinds = if text.len() <= LONG_TEXT_BYTES {
            kinds_in(text.as_bytes())
        } else {
            let text = text.to_owned();
            self.session_reader.run_blocking(move |_| kinds_in(text.as_bytes())).await
        };
        self.report_kinds(kinds, location).await;
    }

    /// Reports the kinds that are new.
    pub(crate) async fn report_kinds(&self, kinds: BTreeSet<&'static str>, place: &str) {
        if kinds.is_empty() {
            return;
        }
        let reported = Arc::clone(&self.reported);
        let new = self
            .session_reader
            .run_blocking(move |session_reader| unreported_kinds(&reported, session_reader, kinds))
            .await;
        for kind in new {
            let message = format!(
                "{ALERT_PREFIX}{kind}) is in {place}. It is stored unchanged in this session's log; hooks and exports get it \
                 redacted. If it is a real secret, store it with `minke login` or put it into a variable that `sandbox.env.pass` \
                 names; it is then redacted everywhere. Assume that the model's provider has seen it"
            );
            // The receiver is dropped only when the process ends.
            drop(self.events.send(LoopEvent::SecretSeen(message)).await);
        }
    }
}

/// The kinds not reported yet. An unreadable log counts as having no reports.
fn unreported_kinds(
    reported: &Mutex<Option<BTreeSet<String>>>,
    session_reader: &SessionReader,
    kinds: BTreeSet<&'static str>,
) -> Vec<&'static str> {
    let mut told = reported.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_with(|| {
        let mut before = BTreeSet::new();
        if let Ok(reader) = session_reader.reader() {
            let seen = scan_lineage(reader.as_ref(), &mut |entry| before.extend(alert_kind(entry)));
            if let Err(e) = seen {
                report!("warning: could not read this session's secret alerts: {e}");
            }
        }
        before
    });
    kinds.into_iter().filter(|kind| told.insert((*kind).to_owned())).collect()
}

/// The kind that an alert entry reports.
fn alert_kind(entry: &Entry) -> Option<String> {
    let Kind::Alert(alert) = &entry.kind else { return None };
    let (kind, _) = alert.message.strip_prefix(ALERT_PREFIX)?.split_once(')')?;
    Some(kind.to_owned())
}
