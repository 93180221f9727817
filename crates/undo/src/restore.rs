//! Restore: restores the paths that are unchanged since the run, and reports the others.
//!
//! All paths are inspected before the first change. The order of changes lets each step succeed: remove
//! obstacles, create directories, write contents, set directory modes. A file that cannot be restored is
//! never removed.
//! Invariant: the tree is as before the run, except for changes by other processes (`a_run_is_undone`,
//! `what_somebody_else_changed_is_named_and_left_alone`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use minke_files::{FileError, PathEntry, ScopedFiles};
use minke_policy::AccessLevel;
use minke_record::SnapshotFile;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};

use crate::capture::{hash_stream, to_hex};
use crate::state::{CapturedKind, PathChange, PathState};

/// The set-id bits, which a restored file does not get again.
const OWNER_RIGHTS: u32 = 0o6000;
/// The permissions needed to change a directory.
const ENTER_BITS: u32 = 0o700;
const WRITE_BITS: u32 = 0o200;

/// The change of a restored path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreAction {
    /// It was missing and was created again.
    Created,
    Changed,
    /// It was new and was removed again.
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredPath {
    pub path: String,
    pub action: RestoreAction,
}

/// A path that was not restored, or not completely, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedPath {
    pub path: String,
    pub why: String,
}

/// The result of an undo; each list is sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    pub restored: Vec<RestoredPath>,
    pub skipped: Vec<SkippedPath>,
    /// The number of paths that were unchanged.
    pub unchanged: usize,
}

/// Restores the changed paths. `fetch` loads a blob by name.
pub fn restore_changes(
    files: &ScopedFiles,
    changes: &[PathChange],
    fetch: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
) -> RestoreReport {
    let mut undo = RestoreJob {
        files,
        fetch,
        blob: None,
        steps: Vec::new(),
        opened_modes: HashMap::new(),
        report: RestoreReport::default(),
    };
    for change in changes {
        undo.inspect_change(change);
    }
    undo.unlock_directories();
    undo.remove_created();
    undo.make_directories();
    undo.write_contents();
    undo.restore_directory_modes();
    undo.report.restored.sort_by(|a, b| a.path.cmp(&b.path));
    undo.report.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    undo.report
}

/// The restoration of one path.
#[derive(Clone, Copy)]
struct RestoreStep<'a> {
    path: &'a str,
    snapshot: Option<&'a SnapshotFile>,
    before: Option<CapturedKind>,
    after: Option<CapturedKind>,
}

impl RestoreStep<'_> {
    /// Whether the current file must be removed before the old one can be restored.
    fn needs_removal(&self) -> bool {
        self.after.is_some() && self.before != self.after
    }
}

struct RestoreJob<'a, 'f> {
    files: &'a ScopedFiles,
    fetch: &'f mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    /// The last loaded blob: neighbours share one.
    blob: Option<(String, Vec<u8>)>,
    steps: Vec<(RestoreStep<'a>, Option<PathEntry>)>,
    /// Directories made writable, with the mode to set at the end.
    opened_modes: HashMap<&'a str, u32>,
    report: RestoreReport,
}

impl<'a> RestoreJob<'a, '_> {
    fn skip_path(&mut self, path: &str, why: impl Into<String>) {
        self.report.skipped.push(SkippedPath { path: path.to_owned(), why: why.into() });
    }

    fn add_restored(&mut self, path: &str, action: RestoreAction) {
        self.report.restored.push(RestoredPath { path: path.to_owned(), action });
    }

    /// Decides the step for a path without changing it.
    fn inspect_change(&mut self, change: &'a PathChange) {
        let path = change.path.as_str();
        let before = change.before.as_ref().and_then(PathState::from_snapshot);
        let after = change.after.as_ref().and_then(PathState::from_snapshot);
        let (now, entry) = match inspect_path(self.files, path) {
            Ok(now) => now.unzip(),
            Err(why) => return self.skip_path(path, why),
        };
        if is_same_state(now.as_ref(), before.as_ref()) {
            self.report.unchanged += 1;
            return;
        }
        if !is_same_state(now.as_ref(), after.as_ref()) {
            return self.skip_path(path, describe_difference(now.as_ref(), after.as_ref()));
        }
        if self.files.access_level(Path::new(path)) < AccessLevel::Write {
            return self.skip_path(path, "it is outside the write scope or protected");
        }
        let kinds = (before.map(|state| state.kind), after.map(|state| state.kind));
        let step = RestoreStep { path, snapshot: change.before.as_ref(), before: kinds.0, after: kinds.1 };
        // Never remove a file whose old content is not available.
        if step.needs_removal()
            && let Some(line) = step.snapshot
            && kinds.0 != Some(CapturedKind::Directory)
            && let Err(why) = self.load_content(line)
        {
            return self.skip_path(path, why);
        }
        self.steps.push((step, entry));
    }

    /// Makes the affected directories writable.
    fn unlock_directories(&mut self) {
        let steps = self.take_steps(|step| step.after == Some(CapturedKind::Directory));
        for (step, entry) in steps {
            let Some(mode) = entry.as_ref().map(|entry| entry.mode) else { continue };
            if mode & ENTER_BITS != ENTER_BITS {
                match set_directory_mode(self.files, step.path, mode | ENTER_BITS) {
                    Ok(_) => drop(self.opened_modes.insert(step.path, mode)),
                    Err(why) => {
                        self.skip_path(step.path, why);
                        continue;
                    }
                }
            }
            self.steps.push((step, entry));
        }
    }

    /// Removes files that the run created and files that block old paths: files and links first, then
    /// directories, deepest first.
    fn remove_created(&mut self) {
        let mut steps = self.take_steps(RestoreStep::needs_removal);
        steps.sort_by(|(a, _), (b, _)| {
            let last = |step: &RestoreStep<'_>| step.after == Some(CapturedKind::Directory);
            last(a).cmp(&last(b)).then(b.path.cmp(a.path))
        });
        for (step, entry) in steps {
            let path = Path::new(step.path);
            let removed = if step.after == Some(CapturedKind::Directory) {
                self.files.remove_directory(path).map_err(|e| removal_error(&e))
            } else {
                check_unchanged(self.files, path, entry.as_ref())
                    .and_then(|()| self.files.remove_entry(path).map_err(|e| e.to_string()))
            };
            match (removed, step.before) {
                (Err(why), _) => self.skip_path(step.path, why),
                (Ok(()), None) => {
                    self.opened_modes.remove(step.path);
                    self.add_restored(step.path, RestoreAction::Removed);
                }
                (Ok(()), Some(_)) => {
                    self.opened_modes.remove(step.path);
                    self.steps.push((RestoreStep { after: None, ..step }, None));
                }
            }
        }
    }

    fn make_directories(&mut self) {
        let mut steps = self.take_steps(|step| step.before == Some(CapturedKind::Directory));
        steps.sort_by(|(a, _), (b, _)| a.path.cmp(b.path));
        for (step, entry) in steps {
            let mode = step
                .snapshot
                .and_then(PathState::from_snapshot)
                .and_then(|state| state.mode)
                .unwrap_or(ENTER_BITS | 0o055);
            if entry.is_none()
                && let Err(e) = self.files.create_directory(Path::new(step.path), mode | ENTER_BITS)
            {
                self.skip_path(step.path, e.to_string());
                continue;
            }
            self.opened_modes.insert(step.path, mode);
            let done = if entry.is_none() { RestoreAction::Created } else { RestoreAction::Changed };
            self.add_restored(step.path, done);
        }
    }

    /// Writes files and links, ordered by blob.
    fn write_contents(&mut self) {
        let mut steps = self.take_steps(|step| step.before.is_some());
        let place =
            |step: &RestoreStep<'a>| step.snapshot.map(|line| (line.blob.as_deref(), line.at, step.path));
        steps.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)));
        for (step, entry) in steps {
            let Some(line) = step.snapshot else { continue };
            match self.restore_path(step, line, entry.as_ref()) {
                Ok(done) => self.add_restored(step.path, done),
                Err(why) => self.skip_path(step.path, why),
            }
        }
    }

    fn restore_path(
        &mut self,
        step: RestoreStep<'a>,
        line: &SnapshotFile,
        entry: Option<&PathEntry>,
    ) -> Result<RestoreAction, String> {
        let path = Path::new(step.path);
        let done = if entry.is_some() { RestoreAction::Changed } else { RestoreAction::Created };
        let Some(state) = PathState::from_snapshot(line) else {
            return Err("its old state is unknown".to_owned());
        };
        if state.kind == CapturedKind::Link {
            let target = self.load_content(line)?;
            check_unchanged(self.files, path, entry)?;
            if entry.is_some() {
                self.files.remove_entry(path).map_err(|e| e.to_string())?;
            }
            let target = Path::new(OsStr::from_bytes(&target));
            return self.files.create_symlink(path, target).map(|()| done).map_err(|e| e.to_string());
        }
        let old = state.mode.or(entry.map(|entry| entry.mode)).unwrap_or(0o644);
        if let Some(entry) = entry {
            let mut opened = self.files.open_beneath_nofollow(path).map_err(|e| e.to_string())?;
            if hash_stream(&mut opened.file).is_ok_and(|hash| to_hex(&hash) == line.hash) {
                if set_mode(&opened.file, old)? {
                    self.skip_path(step.path, RIGHTS_LOST);
                }
                return Ok(done);
            }
            let content = self.load_content(line)?;
            check_unchanged(self.files, path, Some(entry))?;
            if entry.mode & WRITE_BITS == 0 {
                set_mode(&opened.file, entry.mode | WRITE_BITS)?;
            }
            return self.write_file(step.path, &content, old).map(|()| done);
        }
        let content = self.load_content(line)?;
        check_unchanged(self.files, path, None)?;
        self.write_file(step.path, &content, old).map(|()| done)
    }

    fn write_file(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), String> {
        self.files.restore_file(Path::new(path), content, mode).map_err(|e| e.to_string())?;
        if mode & OWNER_RIGHTS != 0 {
            self.skip_path(path, RIGHTS_LOST);
        }
        Ok(())
    }

    /// Sets the final mode of every directory, deepest first, because a parent may become inaccessible.
    fn restore_directory_modes(&mut self) {
        let mut modes: Vec<(&str, u32)> = self.opened_modes.drain().collect();
        modes.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (path, mode) in modes {
            match set_directory_mode(self.files, path, mode) {
                Ok(false) => {}
                Ok(true) => self.skip_path(path, GROUP_LOST),
                Err(why) => self.skip_path(path, why),
            }
        }
    }

    /// Removes and returns the steps of a kind.
    fn take_steps(
        &mut self,
        changes: impl Fn(&RestoreStep<'a>) -> bool,
    ) -> Vec<(RestoreStep<'a>, Option<PathEntry>)> {
        let (report, rest) = std::mem::take(&mut self.steps).into_iter().partition(|(step, _)| changes(step));
        self.steps = rest;
        report
    }

    /// The old content of a file, verified by its hash.
    fn load_content(&mut self, line: &SnapshotFile) -> Result<Vec<u8>, String> {
        let hash = |content: &[u8]| to_hex(&Sha256::digest(content).into());
        if line.hash == hash(&[]) {
            return Ok(Vec::new());
        }
        let Some(name) = &line.blob else {
            return Err(
                "its old content was not stored, because it was too large or contained a secret".to_owned()
            );
        };
        if self.blob.as_ref().is_none_or(|(held, _)| held != name) {
            let blob = (self.fetch)(name).map_err(|e| format!("could not load its old content: {e}"))?;
            self.blob = Some((name.clone(), blob));
        }
        let blob = self.blob.as_ref().map_or(&[][..], |(_, blob)| blob.as_slice());
        let content = match (line.at, line.bytes) {
            (Some(at), Some(bytes)) => {
                let range = usize::try_from(at).ok().zip(usize::try_from(at.saturating_add(bytes)).ok());
                range.and_then(|(from, to)| blob.get(from..to))
            }
            _ => Some(blob),
        };
        match content {
            Some(content) if hash(content) == line.hash => Ok(content.to_vec()),
            _ => Err("its old content in the log is damaged".to_owned()),
        }
    }
}

/// The current state of a path.
fn inspect_path(files: &ScopedFiles, path: &str) -> Result<Option<(PathState, PathEntry)>, String> {
    let at = Path::new(path);
    let entry = match files.path_entry(at) {
        Ok(Some(entry)) => entry,
        // A parent is not a directory, so the path does not exist.
        Ok(None) | Err(FileError::NotADirectory { .. } | FileError::SymlinkNotFollowed { .. }) => {
            return Ok(None);
        }
        Err(e) => return Err(e.to_string()),
    };
    let (kind, hash) = match &entry.kind {
        minke_files::PathEntryKind::Directory => (CapturedKind::Directory, Sha256::digest([]).into()),
        minke_files::PathEntryKind::Link(target) => {
            (CapturedKind::Link, Sha256::digest(target.as_os_str().as_bytes()).into())
        }
        minke_files::PathEntryKind::File => {
            let mut opened = files.open_beneath_nofollow(at).map_err(|e| e.to_string())?;
            (
                CapturedKind::File,
                hash_stream(&mut opened.file).map_err(|e| format!("could not read it: {e}"))?,
            )
        }
        minke_files::PathEntryKind::Special => {
            return Err("it is now a FIFO, a socket or a device".to_owned());
        }
    };
    let mode = (kind != CapturedKind::Link).then_some(entry.mode);
    Ok(Some((PathState { kind, mode, hash: to_hex(&hash) }, entry)))
}

fn is_same_state(one: Option<&PathState>, other: Option<&PathState>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_compatible(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Describes how a path differs from its state after the run.
fn describe_difference(now: Option<&PathState>, after: Option<&PathState>) -> String {
    match (now, after) {
        (None, _) => "it has been removed since the run".to_owned(),
        (Some(now), None) => format!("{} was created there since the run", now.kind.as_str()),
        (Some(now), Some(after)) if now.kind != after.kind => {
            format!("it is {} since the run", now.kind.as_str())
        }
        (Some(now), Some(after)) if now.hash != after.hash => "it has been changed since the run".to_owned(),
        (Some(now), Some(_)) => {
            format!("its mode has been changed to {:o} since the run", now.mode.unwrap_or_default())
        }
    }
}

fn removal_error(e: &FileError) -> String {
    format!("{e}; it may contain files that the run did not create")
}

/// Checks that a path is unchanged since it was inspected.
fn check_unchanged(files: &ScopedFiles, path: &Path, previous: Option<&PathEntry>) -> Result<(), String> {
    match files.path_entry(path) {
        Ok(now) if now.as_ref() == previous => Ok(()),
        Ok(_) => Err("it was changed during the undo".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Rights that undo never restores, because another process could have replaced the file meanwhile.
const RIGHTS_LOST: &str = "its content was restored, but not its set-id bits";
const GROUP_LOST: &str = "it was restored, but not its set-group-id bit";

/// Returns whether a set-id bit was omitted.
fn set_directory_mode(files: &ScopedFiles, path: &str, mode: u32) -> Result<bool, String> {
    let at = Path::new(path);
    let opened = files.open_dir(at).map_err(|e| e.to_string())?;
    if opened.path != at {
        return Err("its path now contains a symbolic link".to_owned());
    }
    set_mode(&opened.dir, mode)
}

/// Sets a mode without adding set-id bits: another process could have created the file. Returns whether such
/// a bit was omitted.
fn set_mode(at: impl rustix::fd::AsFd, mode: u32) -> Result<bool, String> {
    let now = rustix::fs::fstat(&at).map_err(|e| format!("could not read its mode: {e}"))?;
    let missing = (Mode::SUID | Mode::SGID) - Mode::from_raw_mode(now.st_mode);
    let changes = Mode::from_raw_mode(mode as rustix::fs::RawMode);
    let given = changes - missing;
    rustix::fs::fchmod(at, given)
        .map(|()| given != changes)
        .map_err(|e| format!("could not change its mode: {e}"))
}
