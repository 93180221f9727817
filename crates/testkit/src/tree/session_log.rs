//! Logs in memory, by session: entries, the synced length and the lease holder.
//!
//! Entries are values, so that millions of steps are fast. Elsewhere: logs as bytes with their chain
//! (`memory_log`), which stories and the one-pod simulation use.

use minke_pod::{State, StepDraft};
use minke_record::{ChainHash, Draft, Entry};

use super::Key;

/// One session on the simulated disk.
#[derive(Debug, Default)]
pub(super) struct SessionLog {
    entries: Vec<Entry>,
    synced: usize,
    /// The process that holds the session lease.
    pub(super) holder: Option<Key>,
    /// The fold of the entries, while no process has it.
    folded_state: Option<State>,
}

impl SessionLog {
    /// Appends a step. Returns the index of its first entry.
    pub(super) fn append_drafts(&mut self, drafts: Vec<Draft>) -> usize {
        let from = self.entries.len();
        let count = drafts.len();
        self.entries.extend(drafts.into_iter().enumerate().map(|(at, draft)| {
            let Draft { seq, ts, run, kind, .. } = draft;
            Entry { seq, ts, run, more: at + 1 < count, kind, h: ChainHash::ZERO }
        }));
        self.folded_state = None;
        from
    }

    /// Appends and syncs a step of an offline edit.
    pub(super) fn append_offline(&mut self, step: StepDraft) -> usize {
        let from = self.append_drafts(step.entries);
        self.sync_entries();
        from
    }

    pub(super) fn sync_entries(&mut self) {
        self.synced = self.entries.len();
    }

    pub(super) fn synced_length(&self) -> usize {
        self.synced
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops unsynced entries after a power cut. Returns whether there were any.
    pub(super) fn cut_power(&mut self) -> bool {
        let lost = self.synced < self.entries.len();
        self.entries.truncate(self.synced);
        self.folded_state = None;
        lost
    }

    /// Returns the state for readers.
    pub(super) fn read_state(&mut self) -> &State {
        self.folded_state.get_or_insert_with(|| State::replay(&self.entries))
    }

    pub(super) fn replay_entries(&self) -> State {
        State::replay(&self.entries)
    }
}
