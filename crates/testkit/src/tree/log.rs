//! Logs in memory, by session: what was written, how much of it would survive a power cut, and who may write.
//!
//! Here: entries as values, so that millions of steps can be taken. Elsewhere: the same as bytes with their chain
//! (`memlog`), which the stories and the one-pod simulation use.

use minke_pod::{State, Written};
use minke_record::{Chain, Draft, Entry};

use super::Key;

/// One session on the virtual disk.
#[derive(Debug, Default)]
pub(super) struct Session {
    entries: Vec<Entry>,
    synced: usize,
    /// The process that holds the session lease.
    pub(super) holder: Option<Key>,
    /// The fold of the entries, while nobody lives who has it.
    rested: Option<State>,
}

impl Session {
    /// Writes a step whole. Gives the place of its first entry.
    pub(super) fn append(&mut self, drafts: Vec<Draft>) -> usize {
        let from = self.entries.len();
        let count = drafts.len();
        self.entries.extend(drafts.into_iter().enumerate().map(|(at, draft)| {
            let Draft { seq, ts, run, kind, .. } = draft;
            Entry { seq, ts, run, more: at + 1 < count, kind, h: Chain::ZERO }
        }));
        self.rested = None;
        from
    }

    /// A step that somebody wrote while no pod lives: whole, synced.
    pub(super) fn written(&mut self, step: Written) -> usize {
        let from = self.append(step.entries);
        self.sync();
        from
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.entries.len();
    }

    pub(super) fn synced(&self) -> usize {
        self.synced
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The power was cut: what was not synced is gone. Says whether that was anything.
    pub(super) fn cut(&mut self) -> bool {
        let lost = self.synced < self.entries.len();
        self.entries.truncate(self.synced);
        self.rested = None;
        lost
    }

    /// What the log says, for somebody who only reads.
    pub(super) fn state(&mut self) -> &State {
        self.rested.get_or_insert_with(|| State::replay(&self.entries))
    }

    pub(super) fn replayed(&self) -> State {
        State::replay(&self.entries)
    }
}
