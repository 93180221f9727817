//! Noticed: what looks like a key and is none that we know, told once.
//!
//! Here: which kinds this session was told of, and the words. Elsewhere: what a key looks like (`secrets`).
//! Invariant: one alert for each kind in a session's whole life, since earlier lives are read from the log before the
//! first one of this life (`a_kind_is_told_once_in_a_session`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use minke_record::{Entry, Kind};
use minke_secrets::kinds_in;
use tokio::sync::mpsc;

use crate::answers::scan_lineage;
use crate::library::Library;
use crate::mail::Mail;
use crate::stderr::report;

/// How every such alert begins, up to its kind.
const BEGINS: &str = "what looks like a key (";
/// A longer text is looked through on another thread.
const LONG: usize = 256 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Noticed {
    told: Arc<Mutex<Option<BTreeSet<String>>>>,
    library: Library,
    mail: mpsc::Sender<Mail>,
}

impl Noticed {
    pub(crate) fn new(library: Library, mail: mpsc::Sender<Mail>) -> Noticed {
        Noticed { told: Arc::default(), library, mail }
    }

    /// Looks through a text; `place` says where it stands.
    pub(crate) async fn look(&self, text: &str, place: &str) {
        let kinds = if text.len() <= LONG {
            kinds_in(text.as_bytes())
        } else {
            let text = text.to_owned();
            self.library.off_loop(move |_| kinds_in(text.as_bytes())).await
        };
        self.tell(kinds, place).await;
    }

    /// Tells what was found, as far as it is new.
    pub(crate) async fn tell(&self, kinds: BTreeSet<&'static str>, place: &str) {
        if kinds.is_empty() {
            return;
        }
        let told = Arc::clone(&self.told);
        let new = self.library.off_loop(move |library| new(&told, library, kinds)).await;
        for kind in new {
            let message = format!(
                "{BEGINS}{kind}) is in {place}. It stays in this session's log as it is; hooks and exports get it \
                 masked. If it is real, store it with `minke login` or put it into a variable that `sandbox.env.pass` \
                 names: then it is hidden everywhere; and consider it seen by the model's provider"
            );
            // The loop is gone only when the process ends.
            drop(self.mail.send(Mail::Noticed(message)).await);
        }
    }
}

/// Those of which nobody was told yet. A log that cannot be read has told nothing.
fn new(
    told: &Mutex<Option<BTreeSet<String>>>,
    library: &Library,
    kinds: BTreeSet<&'static str>,
) -> Vec<&'static str> {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_with(|| {
        let mut before = BTreeSet::new();
        if let Ok(reader) = library.reader() {
            let seen = scan_lineage(reader.as_ref(), &mut |entry| before.extend(kind_of(entry)));
            if let Err(e) = seen {
                report!("warning: what this session was told of keys cannot be read: {e}");
            }
        }
        before
    });
    kinds.into_iter().filter(|kind| told.insert((*kind).to_owned())).collect()
}

/// The kind that an entry has told of.
fn kind_of(entry: &Entry) -> Option<String> {
    let Kind::Alert(alert) = &entry.kind else { return None };
    let (kind, _) = alert.message.strip_prefix(BEGINS)?.split_once(')')?;
    Some(kind.to_owned())
}
