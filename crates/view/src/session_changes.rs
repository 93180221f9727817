//! File changes of a session, grouped by file, in chronological order.
//!
//! Records the diffs of calls with a preview, and the files that commands have changed, as far as snapshots
//! captured them. A call counts once it has succeeded; refused and lost calls change nothing here. An undo is
//! a change too.
//! Invariant: memory is bounded (`changes_are_bounded`).

use std::collections::BTreeMap;

use minke_record::{
    CallId, Entry, Item, Kind, Large, Millis, Outcome, SessionFacts, Snapshot, SnapshotWhen, ToolDispatch,
};

use crate::format;

/// All file changes of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionChanges {
    changed_files: Vec<FileChanges>,
    /// Calls that have started, with the change that they would make.
    started_calls: BTreeMap<CallId, FileEdit>,
    cwd: String,
    held_bytes: usize,
}

/// All changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChanges {
    /// Relative to the working directory of the session.
    pub path: String,
    pub changes: Vec<FileEdit>,
    /// Number of further changes that are not stored.
    pub omitted: u64,
}

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    /// The entry that records the change.
    pub seq: u64,
    pub ts: Millis,
    /// The tool, or `a command`.
    pub caller: String,
    /// Unified diff. `None` if the diff is unknown or if the memory limit is reached.
    pub diff: Option<String>,
    pub added: u64,
    pub removed: u64,
    path: String,
}

impl SessionChanges {
    /// Limit for files.
    pub const MAX_FILES: usize = 4_096;
    /// Limit for all stored diffs. Later changes are counted without a diff.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// Limit for stored changes per file.
    const MAX_FILE_CHANGES: usize = 256;
    /// Limit for calls in progress.
    const MAX_STARTED_CALLS: usize = 1_024;

    pub fn new() -> SessionChanges {
        SessionChanges::default()
    }

    /// Applies an entry. Entries must arrive in log order.
    pub fn apply_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::SessionStart(start) => self.cwd.clone_from(&start.cwd),
            Kind::SegmentStart(start) => self.apply_carry(&start.carry),
            Kind::Carry(carry) => self.apply_carry(&carry.carry),
            Kind::ToolDispatch(dispatch) => self.start_call(dispatch, entry),
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, .. } = &result.item else { return };
                let started = self.started_calls.remove(call_id);
                if let Some(change) = started.filter(|_| result.outcome == Outcome::Done) {
                    self.add_change(FileEdit { seq: entry.seq, ts: entry.ts, ..change });
                }
            }
            Kind::Snapshot(snapshot) => self.apply_snapshot(snapshot, entry),
            _ => {}
        }
    }

    /// Returns the files in the order of their first change.
    pub fn changed_files(&self) -> &[FileChanges] {
        &self.changed_files
    }

    /// Returns the total of added and removed lines.
    pub fn line_totals(&self) -> (u64, u64) {
        let all = self.changed_files.iter().flat_map(|file| &file.changes);
        all.fold((0, 0), |(added, removed), change| {
            (added.saturating_add(change.added), removed.saturating_add(change.removed))
        })
    }

    /// Takes the working directory from a carry, for readers that do not start at the first entry.
    fn apply_carry(&mut self, carry: &Large<Box<SessionFacts>>) {
        if let Some(about) = carry.inline().and_then(|facts| facts.about.as_ref()) {
            self.cwd.clone_from(&about.cwd);
        }
    }

    fn start_call(&mut self, dispatch: &ToolDispatch, entry: &Entry) {
        let Some(preview) = &dispatch.preview else { return };
        if self.started_calls.len() >= SessionChanges::MAX_STARTED_CALLS {
            return;
        }
        let diff = preview.diff.clone();
        let (added, removed) = diff.as_deref().map(count_lines).unwrap_or_default();
        let change = FileEdit {
            seq: entry.seq,
            ts: entry.ts,
            caller: dispatch.tool.clone(),
            diff,
            added,
            removed,
            path: preview.path.clone(),
        };
        self.started_calls.insert(dispatch.call_id.clone(), change);
    }

    /// Adds files that the commands of a run have changed. Snapshots of single calls are skipped, because
    /// their previews show the same.
    fn apply_snapshot(&mut self, snapshot: &Snapshot, entry: &Entry) {
        if snapshot.call_id.is_some() || snapshot.when != SnapshotWhen::After {
            return;
        }
        for file in snapshot.files.inline().into_iter().flatten() {
            self.add_change(FileEdit {
                seq: entry.seq,
                ts: entry.ts,
                caller: "a command".to_owned(),
                diff: None,
                added: 0,
                removed: 0,
                path: file.path.clone(),
            });
        }
    }

    fn add_change(&mut self, mut change: FileEdit) {
        let bytes = change.diff.as_ref().map_or(0, String::len);
        if self.held_bytes.saturating_add(bytes) > SessionChanges::MAX_BYTES {
            change.diff = None;
        } else {
            self.held_bytes += bytes;
        }
        let path = format::relative_path(&change.path, &self.cwd).to_owned();
        let file = match self.changed_files.iter().position(|file| file.path == path) {
            Some(at) => self.changed_files.get_mut(at),
            None if self.changed_files.len() < SessionChanges::MAX_FILES => {
                self.changed_files.push(FileChanges { path, changes: Vec::new(), omitted: 0 });
                self.changed_files.last_mut()
            }
            None => None,
        };
        match file {
            Some(file) if file.changes.len() < SessionChanges::MAX_FILE_CHANGES => file.changes.push(change),
            Some(file) => file.omitted += 1,
            None => {}
        }
    }
}

/// Counts the added and removed lines of a unified diff.
fn count_lines(diff: &str) -> (u64, u64) {
    let (mut added, mut removed) = (0, 0);
    let mut in_hunk = false;
    for line in diff.lines() {
        in_hunk |= line.starts_with("@@");
        // The file names precede the first hunk.
        let name = !in_hunk && (line.starts_with("+++") || line.starts_with("---"));
        added += u64::from(!name && line.starts_with('+'));
        removed += u64::from(!name && line.starts_with('-'));
    }
    (added, removed)
}
