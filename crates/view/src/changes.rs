//! Changes: everything that a session has changed in files, one file after the other, each in the order it happened.
//!
//! Here: what calls with a preview did (their diffs), and which files commands have changed, as far as that was captured.
//! A call counts when it is done; one that was refused or lost changes nothing here. What was undone is a change too.
//! Invariant: what is held is bounded (`changes_are_bounded`).

use std::collections::BTreeMap;

use minke_record::{
    CallId, Entry, Facts, Item, Kind, Large, Millis, Outcome, Snapshot, SnapshotWhen, ToolDispatch,
};

use crate::tell;

/// What was changed.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    files: Vec<FileChanges>,
    /// Calls that have begun, with what they would change.
    begun: BTreeMap<CallId, Change>,
    cwd: String,
    held: usize,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChanges {
    /// As it is seen from where the session works.
    pub path: String,
    pub changes: Vec<Change>,
    /// How many more there were than are held.
    pub left_out: u64,
}

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The entry that says so.
    pub seq: u64,
    pub ts: Millis,
    /// The tool, or `a command`.
    pub by: String,
    /// Unified; none where only the fact is known, or where too much is held already.
    pub diff: Option<String>,
    pub added: u64,
    pub removed: u64,
    path: String,
}

impl Changes {
    /// Files that are held.
    pub const FILES: usize = 4_096;
    /// Bytes of diffs that are held; later changes are counted and have none.
    pub const BYTES: usize = 16 * 1024 * 1024;
    /// Changes of one file that are held.
    const OF_FILE: usize = 256;
    /// Calls under way.
    const BEGUN: usize = 1_024;

    pub fn new() -> Changes {
        Changes::default()
    }

    /// Takes an entry; they come in the order of the log.
    pub fn entry(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::SessionStart(start) => self.cwd.clone_from(&start.cwd),
            Kind::SegmentStart(start) => self.placed(&start.carry),
            Kind::Carry(carry) => self.placed(&carry.carry),
            Kind::ToolDispatch(dispatch) => self.begins(dispatch, entry),
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, .. } = &result.item else { return };
                let begun = self.begun.remove(call_id);
                if let Some(change) = begun.filter(|_| result.outcome == Outcome::Done) {
                    self.add(Change { seq: entry.seq, ts: entry.ts, ..change });
                }
            }
            Kind::Snapshot(snapshot) => self.captured(snapshot, entry),
            _ => {}
        }
    }

    /// The files in the order in which they were first changed.
    pub fn files(&self) -> &[FileChanges] {
        &self.files
    }

    /// Lines added and removed, over everything.
    pub fn lines(&self) -> (u64, u64) {
        let all = self.files.iter().flat_map(|file| &file.changes);
        all.fold((0, 0), |(added, removed), change| {
            (added.saturating_add(change.added), removed.saturating_add(change.removed))
        })
    }

    /// Whoever does not begin at the beginning learns here where the session works.
    fn placed(&mut self, carry: &Large<Box<Facts>>) {
        if let Some(about) = carry.here().and_then(|facts| facts.about.as_ref()) {
            self.cwd.clone_from(&about.cwd);
        }
    }

    fn begins(&mut self, dispatch: &ToolDispatch, entry: &Entry) {
        let Some(preview) = &dispatch.preview else { return };
        if self.begun.len() >= Changes::BEGUN {
            return;
        }
        let diff = preview.diff.clone();
        let (added, removed) = diff.as_deref().map(counted).unwrap_or_default();
        let change = Change {
            seq: entry.seq,
            ts: entry.ts,
            by: dispatch.tool.clone(),
            diff,
            added,
            removed,
            path: preview.path.clone(),
        };
        self.begun.insert(dispatch.call_id.clone(), change);
    }

    /// What commands of a run have changed. A snapshot of one call's file tells nothing that its preview does not.
    fn captured(&mut self, snapshot: &Snapshot, entry: &Entry) {
        if snapshot.call_id.is_some() || snapshot.when != SnapshotWhen::After {
            return;
        }
        for file in snapshot.files.here().into_iter().flatten() {
            self.add(Change {
                seq: entry.seq,
                ts: entry.ts,
                by: "a command".to_owned(),
                diff: None,
                added: 0,
                removed: 0,
                path: file.path.clone(),
            });
        }
    }

    fn add(&mut self, mut change: Change) {
        let bytes = change.diff.as_ref().map_or(0, String::len);
        if self.held.saturating_add(bytes) > Changes::BYTES {
            change.diff = None;
        } else {
            self.held += bytes;
        }
        let path = tell::near(&change.path, &self.cwd).to_owned();
        let file = match self.files.iter().position(|file| file.path == path) {
            Some(at) => self.files.get_mut(at),
            None if self.files.len() < Changes::FILES => {
                self.files.push(FileChanges { path, changes: Vec::new(), left_out: 0 });
                self.files.last_mut()
            }
            None => None,
        };
        match file {
            Some(file) if file.changes.len() < Changes::OF_FILE => file.changes.push(change),
            Some(file) => file.left_out += 1,
            None => {}
        }
    }
}

/// Lines that a unified diff adds and removes.
fn counted(diff: &str) -> (u64, u64) {
    let (mut added, mut removed) = (0, 0);
    let mut in_hunk = false;
    for line in diff.lines() {
        in_hunk |= line.starts_with("@@");
        // Before the first hunk stand the names of the file.
        let name = !in_hunk && (line.starts_with("+++") || line.starts_with("---"));
        added += u64::from(!name && line.starts_with('+'));
        removed += u64::from(!name && line.starts_with('-'));
    }
    (added, removed)
}
