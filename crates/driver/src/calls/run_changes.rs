//! The changes of a run, read from the log: the snapshots before and after it, and the files that its tools
//! replaced.
//!
//! Pure: entries in, changes out. Elsewhere: reading the log and restoring the files (`snapshots`).
//! Invariant: changes of a run are distinguished from other changes before and after it
//! (`a_run_is_told_apart_from_what_was_before_and_after`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minke_record::{CallId, Entry, Item, Kind, Outcome, RunId, Snapshot, SnapshotFile, SnapshotWhen};
use minke_undo::{PathChange, PathState, apply_files, diff_trees};

type FileTree = BTreeMap<String, SnapshotFile>;

/// Updates the captured tree with an entry.
pub(crate) fn update_tree(tree: &mut FileTree, entry: &Entry) {
    if let Kind::Snapshot(taken) = &entry.kind
        && taken.call_id.is_none()
    {
        apply_files(tree, taken.files.inline().map_or(&[], Vec::as_slice));
    }
}

/// The previous content of a file that a call replaces.
struct OverwrittenFile {
    seq: u64,
    run: RunId,
    call: CallId,
    before: SnapshotFile,
}

/// The log data of one run and of the runs that it continues.
pub(crate) struct RunChanges {
    run: RunId,
    is_known: bool,
    /// The run that each run continues.
    continues: BTreeMap<RunId, RunId>,
    tree: FileTree,
    /// The tree before each run's first command, and the entry of its capture.
    before: BTreeMap<RunId, (u64, FileTree)>,
    /// The tree after the run.
    after: Option<FileTree>,
    replaced: Vec<OverwrittenFile>,
    /// The file of each call, and the hash of its intended content.
    planned: BTreeMap<CallId, (String, String)>,
    completed_calls: BTreeSet<CallId>,
}

impl RunChanges {
    pub(crate) fn for_run(run: RunId) -> RunChanges {
        RunChanges {
            run,
            is_known: false,
            continues: BTreeMap::new(),
            tree: FileTree::new(),
            before: BTreeMap::new(),
            after: None,
            replaced: Vec::new(),
            planned: BTreeMap::new(),
            completed_calls: BTreeSet::new(),
        }
    }

    /// Applies the next entry.
    pub(crate) fn apply_entry(&mut self, entry: &Entry) {
        update_tree(&mut self.tree, entry);
        match (&entry.kind, entry.run) {
            (Kind::Invoke(invoke), Some(run)) => {
                self.is_known |= run == self.run;
                self.continues.extend(invoke.continues.map(|earlier| (run, earlier)));
            }
            (Kind::Snapshot(taken), run) => self.apply_capture(taken, run, entry.seq),
            (Kind::ToolDispatch(dispatch), _) => {
                if let Some(preview) = &dispatch.preview {
                    let left = (preview.path.clone(), preview.after.clone());
                    self.planned.insert(dispatch.call_id.clone(), left);
                }
            }
            (Kind::ToolResult(result), _) if result.outcome == Outcome::Done => {
                if let Item::ToolResult { call_id, .. } = &result.item {
                    self.completed_calls.insert(call_id.clone());
                }
            }
            _ => {}
        }
    }

    fn apply_capture(&mut self, taken: &Snapshot, run: Option<RunId>, seq: u64) {
        let files = taken.files.inline().map_or(&[][..], Vec::as_slice);
        match (&taken.call_id, run) {
            (Some(call), Some(run)) => {
                let file = files.first().cloned();
                self.replaced.extend(file.map(|before| OverwrittenFile {
                    seq,
                    run,
                    call: call.clone(),
                    before,
                }));
            }
            (None, Some(run)) if taken.when == SnapshotWhen::Before => {
                self.before.insert(run, (seq, self.tree.clone()));
            }
            (None, _) if taken.of_run == Some(self.run) => self.after = Some(self.tree.clone()),
            (Some(_) | None, _) => {}
        }
    }

    /// The run and the runs that it continues.
    fn run_chain(&self) -> Vec<RunId> {
        let mut chain = vec![self.run];
        while let Some(earlier) = chain.last().and_then(|run| self.continues.get(run)) {
            if chain.contains(earlier) {
                break;
            }
            chain.push(*earlier);
        }
        chain
    }

    /// The changes of the run, and a note about unknown ones.
    pub(crate) fn list_changes(&self) -> Result<(Vec<PathChange>, Option<String>), String> {
        if !self.is_known {
            return Err(format!("there is no run {} in this session", self.run));
        }
        let chain = self.run_chain();
        // Between an interruption and the next capture any process may have changed files: only changes
        // between a run's own captures are known to be its own.
        let base = self.before.get(&self.run);
        let captured = base.zip(self.after.as_ref());
        let mut all: BTreeMap<String, PathChange> = BTreeMap::new();
        if let Some(((_, before), after)) = captured {
            all.extend(diff_trees(before, after).into_iter().map(|change| (change.path.clone(), change)));
        }
        for (path, change) in self.changes_by_calls(&chain, captured) {
            all.insert(path, change);
        }
        all.retain(|_, change| !is_unchanged(change));
        let interrupted = |run: &RunId| *run != self.run && self.before.contains_key(run);
        let unknown =
            ((base.is_some() && self.after.is_none()) || chain.iter().any(interrupted)).then(|| {
                "the changes of the run's commands before its interruption are unknown and are not restored"
                    .to_owned()
            });
        Ok((all.into_values().collect(), unknown))
    }

    /// Changes by file tools that the captures show incompletely or not at all: files outside of the captured
    /// scope, and changes before the run's first command.
    fn changes_by_calls(
        &self,
        chain: &[RunId],
        captured: Option<(&(u64, FileTree), &FileTree)>,
    ) -> Vec<(String, PathChange)> {
        let mut first: BTreeMap<&str, &OverwrittenFile> = BTreeMap::new();
        let mut last: BTreeMap<&str, &String> = BTreeMap::new();
        let mut made: BTreeMap<&str, u64> = BTreeMap::new();
        for replaced in self.replaced.iter().filter(|replaced| chain.contains(&replaced.run)) {
            let planned = self.planned.get(&replaced.call);
            let path = planned.map_or(&replaced.before.path, |(path, _)| path).as_str();
            first.entry(path).or_insert(replaced);
            if let Some((_, hash)) = planned.filter(|_| self.completed_calls.contains(&replaced.call)) {
                last.insert(path, hash);
                for dir in created_dirs(path, &replaced.before) {
                    made.entry(dir).or_insert(replaced.seq);
                }
            }
        }
        let seen = |path: &str| {
            captured.filter(|((_, before), after)| before.contains_key(path) || after.contains_key(path))
        };
        let mut changed = Vec::new();
        for (path, replaced) in first {
            let after = match seen(path) {
                // From here on the captures include it.
                Some(((seq, _), _)) if replaced.seq > *seq => continue,
                Some((_, after)) => after.get(path).cloned(),
                // A call that failed changed nothing.
                None => match last.get(path) {
                    Some(hash) => Some(planned_file(path, hash)),
                    None => continue,
                },
            };
            let before = Some(replaced.before.clone()).filter(|file| !file.hash.is_empty());
            changed.push((path.to_owned(), PathChange { path: path.to_owned(), before, after }));
        }
        for (dir, made) in made {
            let change = match seen(dir) {
                Some(((seq, _), _)) if made > *seq => continue,
                Some((_, after)) => {
                    PathChange { path: dir.to_owned(), before: None, after: after.get(dir).cloned() }
                }
                None => PathChange::created_directory(dir),
            };
            changed.push((dir.to_owned(), change));
        }
        changed
    }
}

/// The directories created for a new file, derived from the missing path: the outermost of them, or the file
/// itself.
fn created_dirs<'a>(path: &'a str, absent: &SnapshotFile) -> Vec<&'a str> {
    if !absent.hash.is_empty() {
        return Vec::new();
    }
    let above = Path::new(path).ancestors().skip(1);
    above.take_while(|dir| dir.starts_with(&absent.path)).filter_map(Path::to_str).collect()
}

/// The file as the call intended to write it; its mode is unknown.
fn planned_file(path: &str, hash: &str) -> SnapshotFile {
    SnapshotFile { path: path.to_owned(), mode: 0, hash: hash.to_owned(), blob: None, at: None, bytes: None }
}

fn is_unchanged(change: &PathChange) -> bool {
    let state = |file: &Option<SnapshotFile>| file.as_ref().and_then(PathState::from_snapshot);
    match (state(&change.before), state(&change.after)) {
        (Some(before), Some(after)) => before.is_compatible(&after),
        (before, after) => before.is_none() && after.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{
        Action, Actor, ChainHash, Class, Invoke, Judgement, Large, PolicyVerdict, Preview, ToolDispatch,
        ToolResult, Trigger,
    };

    fn run_id(n: u8) -> RunId {
        RunId(format!("01890000-0000-7000-8000-0000000000{n:02x}").parse().unwrap())
    }

    fn snapshot_file(path: &str, hash: &str) -> SnapshotFile {
        SnapshotFile { mode: 0o100_644, ..planned_file(path, hash) }
    }

    /// Applies entries in order, each with its run.
    fn collect_changes(run: RunId, kinds: Vec<(u8, Kind)>) -> RunChanges {
        let mut taken = RunChanges::for_run(run);
        for (seq, (run, kind)) in (1..).zip(kinds) {
            let run = (run > 0).then(|| run_id(run));
            taken.apply_entry(&Entry { seq, ts: 0, run, more: false, kind, h: ChainHash::ZERO });
        }
        taken
    }

    fn invoke_entry(continues: Option<RunId>) -> Kind {
        Invoke { trigger: Trigger::UserSend, by: Actor::from_person("t"), attempt: 0, continues }.into()
    }

    fn before_entry(files: &[SnapshotFile]) -> Kind {
        let files = Large::Here(files.to_vec());
        Snapshot { call_id: None, of_run: None, when: SnapshotWhen::Before, files }.into()
    }

    fn after_entry(run: u8, files: &[SnapshotFile]) -> Kind {
        let files = Large::Here(files.to_vec());
        Snapshot { call_id: None, of_run: Some(run_id(run)), when: SnapshotWhen::After, files }.into()
    }

    fn change_lines(taken: &RunChanges) -> Vec<String> {
        let (changes, _) = taken.list_changes().unwrap();
        let hash = |file: &Option<SnapshotFile>| file.as_ref().map_or("-".to_owned(), |f| f.hash.clone());
        changes.iter().map(|c| format!("{} {} {}", c.path, hash(&c.before), hash(&c.after))).collect()
    }

    #[test]
    fn a_run_is_told_apart_from_what_was_before_and_after() {
        let log = || {
            vec![
                (1, invoke_entry(None)),
                (1, before_entry(&[snapshot_file("/a", "1"), snapshot_file("/b", "1")])),
                (0, after_entry(1, &[snapshot_file("/a", "2")])),
                (2, invoke_entry(None)),
                // Another process has changed /b between the runs.
                (2, before_entry(&[snapshot_file("/b", "2")])),
                (
                    0,
                    after_entry(
                        2,
                        &[snapshot_file("/b", "3"), snapshot_file("/c", "1"), snapshot_file("/a", "")],
                    ),
                ),
            ]
        };
        assert_eq!(change_lines(&collect_changes(run_id(1), log())), ["/a 1 2"]);
        assert_eq!(change_lines(&collect_changes(run_id(2), log())), ["/a 2 -", "/b 2 3", "/c - 1"]);
        assert!(collect_changes(run_id(9), log()).list_changes().is_err());
    }

    #[test]
    fn of_a_run_that_was_resumed_only_what_is_known_is_taken_back() {
        let log = vec![
            (1, invoke_entry(None)),
            (1, before_entry(&[snapshot_file("/a", "1")])),
            (2, invoke_entry(Some(run_id(1)))),
            (2, before_entry(&[snapshot_file("/a", "2")])),
            (0, after_entry(2, &[snapshot_file("/a", "3")])),
        ];
        // It is unknown which process changed the file while no pod was running.
        assert_eq!(change_lines(&collect_changes(run_id(2), log.clone())), ["/a 2 3"]);
        assert!(collect_changes(run_id(2), log.clone()).list_changes().unwrap().1.is_some());
        let (changes, unknown) = collect_changes(run_id(1), log).list_changes().unwrap();
        assert!(changes.is_empty() && unknown.is_some());
    }

    /// A call that wrote a new file; `missing` was its outermost missing directory.
    fn write_call(call: &str, path: &str, missing: &str, done: bool) -> Vec<(u8, Kind)> {
        let call_id = CallId::from(call);
        let verdict = PolicyVerdict {
            outcome: Judgement::Allow,
            rule: None,
            layer: None,
            reason: String::new(),
            sandbox: minke_record::LoggedBackend::NONE,
        };
        let preview = Preview { path: path.to_owned(), before: None, after: "new".to_owned(), diff: None };
        let dispatch = ToolDispatch {
            call_id: call_id.clone(),
            tool: "Write".to_owned(),
            class: Class::Verifiable,
            action: Action::default(),
            preview: Some(preview),
            verdict,
            by: None,
            arguments: None,
            own: false,
        };
        let files = Large::Here(vec![SnapshotFile { mode: 0, ..snapshot_file(missing, "") }]);
        let before =
            Snapshot { call_id: Some(call_id.clone()), of_run: None, when: SnapshotWhen::Before, files };
        let outcome = if done { Outcome::Done } else { Outcome::Failed };
        let item = Item::ToolResult {
            call_id,
            summary: String::new(),
            content: None,
            is_error: !done,
            blob: None,
            images: Vec::new(),
        };
        let result = ToolResult { item, outcome, verdict: None, by: None, notes: Vec::new() };
        vec![(1, dispatch.into()), (1, before.into()), (1, result.into())]
    }

    #[test]
    fn directories_that_were_made_for_a_file_are_the_runs_and_no_others() {
        let log = |calls: Vec<Vec<(u8, Kind)>>| {
            std::iter::once((1, invoke_entry(None))).chain(calls.into_iter().flatten()).collect::<Vec<_>>()
        };
        let paths = |log| -> Vec<String> {
            let (changes, _) = collect_changes(run_id(1), log).list_changes().unwrap();
            changes.into_iter().map(|change| change.path).collect()
        };
        let calls = vec![
            write_call("1", "/w/new/deep/a", "/w/new", true),
            write_call("2", "/w/new/deep/b", "/w/new/deep/b", true),
            write_call("3", "/w/c", "/w/c", true),
        ];
        assert_eq!(paths(log(calls)), ["/w/c", "/w/new", "/w/new/deep", "/w/new/deep/a", "/w/new/deep/b"]);
        let failed = vec![write_call("1", "/w/new/a", "/w/new", false)];
        assert_eq!(paths(log(failed)), [""; 0]);
        // A file that a command has removed again is not a change of the call, and the captures own the rest.
        let dir = |path: &str| SnapshotFile { mode: 0o040_755, ..snapshot_file(path, "empty") };
        let mut early = log(vec![write_call("1", "/w/new/a", "/w/new", true)]);
        early.push((1, before_entry(&[dir("/w/new"), snapshot_file("/w/new/a", "new")])));
        let mut gone = early.clone();
        gone.push((0, after_entry(1, &[snapshot_file("/w/new", ""), snapshot_file("/w/new/a", "")])));
        assert_eq!(paths(gone), [""; 0]);
        early.push((0, after_entry(1, &[])));
        assert_eq!(paths(early), ["/w/new", "/w/new/a"]);
    }
}
