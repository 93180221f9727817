//! What a run changed, read from the log: the snapshots before and after it, and what its file tools replaced.
//!
//! Pure: entries in, changes out. Elsewhere: reading the log and putting the files back (`captures`).
//! Invariant: what a run changed is told apart from what others changed before and after it
//! (`a_run_is_told_apart_from_what_was_before_and_after`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minke_record::{CallId, Entry, Item, Kind, Outcome, RunId, Snapshot, SnapshotFile, SnapshotWhen};
use minke_undo::{Change, State, apply, changes};

type Tree = BTreeMap<String, SnapshotFile>;

/// Goes on with the tree that captures have seen.
pub(crate) fn tree_so_far(tree: &mut Tree, entry: &Entry) {
    if let Kind::Snapshot(taken) = &entry.kind
        && taken.call_id.is_none()
    {
        apply(tree, taken.files.here().map_or(&[], Vec::as_slice));
    }
}

/// A file that a call was to replace.
struct Replaced {
    seq: u64,
    run: RunId,
    call: CallId,
    before: SnapshotFile,
}

/// What the log says of one run, and of those that it continues.
pub(crate) struct Taken {
    run: RunId,
    known: bool,
    /// Which run each one continues.
    continues: BTreeMap<RunId, RunId>,
    tree: Tree,
    /// The tree before each run's first command, and where in the log it was captured.
    before: BTreeMap<RunId, (u64, Tree)>,
    /// The tree as the run left it.
    after: Option<Tree>,
    replaced: Vec<Replaced>,
    /// The file of each call, and the hash that it was to leave.
    planned: BTreeMap<CallId, (String, String)>,
    done: BTreeSet<CallId>,
}

impl Taken {
    pub(crate) fn of(run: RunId) -> Taken {
        Taken {
            run,
            known: false,
            continues: BTreeMap::new(),
            tree: Tree::new(),
            before: BTreeMap::new(),
            after: None,
            replaced: Vec::new(),
            planned: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    /// Takes the next entry.
    pub(crate) fn see(&mut self, entry: &Entry) {
        tree_so_far(&mut self.tree, entry);
        match (&entry.kind, entry.run) {
            (Kind::Invoke(invoke), Some(run)) => {
                self.known |= run == self.run;
                self.continues.extend(invoke.continues.map(|earlier| (run, earlier)));
            }
            (Kind::Snapshot(taken), run) => self.snapshot(taken, run, entry.seq),
            (Kind::ToolDispatch(dispatch), _) => {
                if let Some(preview) = &dispatch.preview {
                    let left = (preview.path.clone(), preview.after.clone());
                    self.planned.insert(dispatch.call_id.clone(), left);
                }
            }
            (Kind::ToolResult(result), _) if result.outcome == Outcome::Done => {
                if let Item::ToolResult { call_id, .. } = &result.item {
                    self.done.insert(call_id.clone());
                }
            }
            _ => {}
        }
    }

    fn snapshot(&mut self, taken: &Snapshot, run: Option<RunId>, seq: u64) {
        let files = taken.files.here().map_or(&[][..], Vec::as_slice);
        match (&taken.call_id, run) {
            (Some(call), Some(run)) => {
                let file = files.first().cloned();
                self.replaced.extend(file.map(|before| Replaced { seq, run, call: call.clone(), before }));
            }
            (None, Some(run)) if taken.when == SnapshotWhen::Before => {
                self.before.insert(run, (seq, self.tree.clone()));
            }
            (None, _) if taken.of_run == Some(self.run) => self.after = Some(self.tree.clone()),
            (Some(_) | None, _) => {}
        }
    }

    /// The run and those that it continues.
    fn chain(&self) -> Vec<RunId> {
        let mut chain = vec![self.run];
        while let Some(earlier) = chain.last().and_then(|run| self.continues.get(run)) {
            if chain.contains(earlier) {
                break;
            }
            chain.push(*earlier);
        }
        chain
    }

    /// What changed, and what is not known of it.
    pub(crate) fn changes(&self) -> Result<(Vec<Change>, Option<String>), String> {
        if !self.known {
            return Err(format!("there is no run {} in this session", self.run));
        }
        let chain = self.chain();
        // Between an interruption and the next capture anybody may have changed anything: what is known of a run's
        // commands is what lies between its own captures.
        let base = self.before.get(&self.run);
        let captured = base.zip(self.after.as_ref());
        let mut all: BTreeMap<String, Change> = BTreeMap::new();
        if let Some(((_, before), after)) = captured {
            all.extend(changes(before, after).into_iter().map(|change| (change.path.clone(), change)));
        }
        for (path, change) in self.by_calls(&chain, captured) {
            all.insert(path, change);
        }
        all.retain(|_, change| !is_nothing(change));
        let interrupted = |run: &RunId| *run != self.run && self.before.contains_key(run);
        let unknown = ((base.is_some() && self.after.is_none()) || chain.iter().any(interrupted)).then(|| {
            "what the run's commands changed before it was interrupted is not known; that is left as it is"
                .to_owned()
        });
        Ok((all.into_values().collect(), unknown))
    }

    /// What file tools changed and captures do not show, or not wholly: what lies outside of what is captured, and
    /// what was changed before the run's first command.
    fn by_calls(&self, chain: &[RunId], captured: Option<(&(u64, Tree), &Tree)>) -> Vec<(String, Change)> {
        let mut first: BTreeMap<&str, &Replaced> = BTreeMap::new();
        let mut last: BTreeMap<&str, &String> = BTreeMap::new();
        let mut made: BTreeMap<&str, u64> = BTreeMap::new();
        for replaced in self.replaced.iter().filter(|replaced| chain.contains(&replaced.run)) {
            let planned = self.planned.get(&replaced.call);
            let path = planned.map_or(&replaced.before.path, |(path, _)| path).as_str();
            first.entry(path).or_insert(replaced);
            if let Some((_, hash)) = planned.filter(|_| self.done.contains(&replaced.call)) {
                last.insert(path, hash);
                for dir in made_for(path, &replaced.before) {
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
                // The captures know it from here on.
                Some(((seq, _), _)) if replaced.seq > *seq => continue,
                Some((_, after)) => after.get(path).cloned(),
                // A call that did not do it changed nothing.
                None => match last.get(path) {
                    Some(hash) => Some(left_by_call(path, hash)),
                    None => continue,
                },
            };
            let before = Some(replaced.before.clone()).filter(|file| !file.hash.is_empty());
            changed.push((path.to_owned(), Change { path: path.to_owned(), before, after }));
        }
        for (dir, made) in made {
            let change = match seen(dir) {
                Some(((seq, _), _)) if made > *seq => continue,
                Some((_, after)) => {
                    Change { path: dir.to_owned(), before: None, after: after.get(dir).cloned() }
                }
                None => Change::made_directory(dir),
            };
            changed.push((dir.to_owned(), change));
        }
        changed
    }
}

/// The directories that were made for a new file, from what was not there: the outermost of them, or the file itself.
fn made_for<'a>(path: &'a str, absent: &SnapshotFile) -> Vec<&'a str> {
    if !absent.hash.is_empty() {
        return Vec::new();
    }
    let above = Path::new(path).ancestors().skip(1);
    above.take_while(|dir| dir.starts_with(&absent.path)).filter_map(Path::to_str).collect()
}

/// A file as a call was to leave it; its mode is not known.
fn left_by_call(path: &str, hash: &str) -> SnapshotFile {
    SnapshotFile { path: path.to_owned(), mode: 0, hash: hash.to_owned(), blob: None, at: None, bytes: None }
}

fn is_nothing(change: &Change) -> bool {
    let state = |file: &Option<SnapshotFile>| file.as_ref().and_then(State::of);
    match (state(&change.before), state(&change.after)) {
        (Some(before), Some(after)) => before.is_like(&after),
        (before, after) => before.is_none() && after.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{
        Action, Actor, Chain, Class, Invoke, Judgement, Large, Preview, ToolDispatch, ToolResult, Trigger,
        Verdict,
    };

    fn id(n: u8) -> RunId {
        RunId(format!("01890000-0000-7000-8000-0000000000{n:02x}").parse().unwrap())
    }

    fn file(path: &str, hash: &str) -> SnapshotFile {
        SnapshotFile { mode: 0o100_644, ..left_by_call(path, hash) }
    }

    /// Entries in order, each with its run.
    fn taken(run: RunId, kinds: Vec<(u8, Kind)>) -> Taken {
        let mut taken = Taken::of(run);
        for (seq, (run, kind)) in (1..).zip(kinds) {
            let run = (run > 0).then(|| id(run));
            taken.see(&Entry { seq, ts: 0, run, more: false, kind, h: Chain::ZERO });
        }
        taken
    }

    fn invoke(continues: Option<RunId>) -> Kind {
        Invoke { trigger: Trigger::UserSend, by: Actor::person("t"), attempt: 0, continues }.into()
    }

    fn before(files: &[SnapshotFile]) -> Kind {
        let files = Large::Here(files.to_vec());
        Snapshot { call_id: None, of_run: None, when: SnapshotWhen::Before, files }.into()
    }

    fn after(run: u8, files: &[SnapshotFile]) -> Kind {
        let files = Large::Here(files.to_vec());
        Snapshot { call_id: None, of_run: Some(id(run)), when: SnapshotWhen::After, files }.into()
    }

    fn lines(taken: &Taken) -> Vec<String> {
        let (changes, _) = taken.changes().unwrap();
        let hash = |file: &Option<SnapshotFile>| file.as_ref().map_or("-".to_owned(), |f| f.hash.clone());
        changes.iter().map(|c| format!("{} {} {}", c.path, hash(&c.before), hash(&c.after))).collect()
    }

    #[test]
    fn a_run_is_told_apart_from_what_was_before_and_after() {
        let log = || {
            vec![
                (1, invoke(None)),
                (1, before(&[file("/a", "1"), file("/b", "1")])),
                (0, after(1, &[file("/a", "2")])),
                (2, invoke(None)),
                // Somebody else has changed /b between the runs.
                (2, before(&[file("/b", "2")])),
                (0, after(2, &[file("/b", "3"), file("/c", "1"), file("/a", "")])),
            ]
        };
        assert_eq!(lines(&taken(id(1), log())), ["/a 1 2"]);
        assert_eq!(lines(&taken(id(2), log())), ["/a 2 -", "/b 2 3", "/c - 1"]);
        assert!(taken(id(9), log()).changes().is_err());
    }

    #[test]
    fn of_a_run_that_was_resumed_only_what_is_known_is_taken_back() {
        let log = vec![
            (1, invoke(None)),
            (1, before(&[file("/a", "1")])),
            (2, invoke(Some(id(1)))),
            (2, before(&[file("/a", "2")])),
            (0, after(2, &[file("/a", "3")])),
        ];
        // Nobody knows who made 2 of 1 while the pod was dead.
        assert_eq!(lines(&taken(id(2), log.clone())), ["/a 2 3"]);
        assert!(taken(id(2), log.clone()).changes().unwrap().1.is_some());
        let (changes, unknown) = taken(id(1), log).changes().unwrap();
        assert!(changes.is_empty() && unknown.is_some());
    }

    /// A call that wrote a new file below directories of which `missing` was the outermost that was not there.
    fn wrote(call: &str, path: &str, missing: &str, done: bool) -> Vec<(u8, Kind)> {
        let call_id = CallId::from(call);
        let verdict = Verdict {
            outcome: Judgement::Allow,
            rule: None,
            layer: None,
            reason: String::new(),
            fence: None,
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
        let files = Large::Here(vec![SnapshotFile { mode: 0, ..file(missing, "") }]);
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
            std::iter::once((1, invoke(None))).chain(calls.into_iter().flatten()).collect::<Vec<_>>()
        };
        let paths = |log| -> Vec<String> {
            let (changes, _) = taken(id(1), log).changes().unwrap();
            changes.into_iter().map(|change| change.path).collect()
        };
        let calls = vec![
            wrote("1", "/w/new/deep/a", "/w/new", true),
            wrote("2", "/w/new/deep/b", "/w/new/deep/b", true),
            wrote("3", "/w/c", "/w/c", true),
        ];
        assert_eq!(paths(log(calls)), ["/w/c", "/w/new", "/w/new/deep", "/w/new/deep/a", "/w/new/deep/b"]);
        let failed = vec![wrote("1", "/w/new/a", "/w/new", false)];
        assert_eq!(paths(log(failed)), [""; 0]);
        // What a command took away again is nobody's any more, and what captures know is theirs.
        let dir = |path: &str| SnapshotFile { mode: 0o040_755, ..file(path, "empty") };
        let mut early = log(vec![wrote("1", "/w/new/a", "/w/new", true)]);
        early.push((1, before(&[dir("/w/new"), file("/w/new/a", "new")])));
        let mut gone = early.clone();
        gone.push((0, after(1, &[file("/w/new", ""), file("/w/new/a", "")])));
        assert_eq!(paths(gone), [""; 0]);
        early.push((0, after(1, &[])));
        assert_eq!(paths(early), ["/w/new", "/w/new/a"]);
    }
}
