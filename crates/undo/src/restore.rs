//! Restore: puts back what is still as the run left it, and names the rest.
//!
//! First everything is looked at, then changed, in an order in which each step can succeed: what is in the way goes,
//! directories come, contents come, directories get their modes. A file that cannot be put back is never taken away.
//! Invariant: the tree is as before, and what somebody else changed is left alone (`a_run_is_undone`,
//! `what_somebody_else_changed_is_named_and_left_alone`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use minke_files::{Entry, FileError, Files};
use minke_policy::Level;
use minke_record::SnapshotFile;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};

use crate::capture::{digest, hex};
use crate::state::{Change, Kind, State};

/// Bits that give a program its owner's rights; they are not given back to a file that we have written.
const OWNER_RIGHTS: u32 = 0o6000;
/// What we need to change what is in a directory.
const ENTER: u32 = 0o700;
const WRITE: u32 = 0o200;

/// What was done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It was gone and is there again.
    Made,
    Changed,
    /// It had come and is gone again.
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub path: String,
    pub done: Done,
}

/// A path that was not put back, or not wholly, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub path: String,
    pub why: String,
}

/// What an undo came to, each list by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    pub restored: Vec<Put>,
    pub left: Vec<Left>,
    /// Paths that were as before already.
    pub same: usize,
}

/// Puts back what changed. `fetch` gives a blob by its name.
pub fn restore(
    files: &Files,
    wanted: &[Change],
    fetch: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
) -> Restored {
    let mut undo = Undo {
        files,
        fetch,
        blob: None,
        steps: Vec::new(),
        lifted: HashMap::new(),
        out: Restored::default(),
    };
    for change in wanted {
        undo.inspect(change);
    }
    undo.open_directories();
    undo.clear();
    undo.make_directories();
    undo.fill();
    undo.close_directories();
    undo.out.restored.sort_by(|a, b| a.path.cmp(&b.path));
    undo.out.left.sort_by(|a, b| a.path.cmp(&b.path));
    undo.out
}

/// One path on its way back.
#[derive(Clone, Copy)]
struct Step<'a> {
    path: &'a str,
    line: Option<&'a SnapshotFile>,
    before: Option<Kind>,
    after: Option<Kind>,
}

impl Step<'_> {
    /// What stands there must go, before what was there can come.
    fn clears(&self) -> bool {
        self.after.is_some() && self.before != self.after
    }
}

struct Undo<'a, 'f> {
    files: &'a Files,
    fetch: &'f mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    /// The blob that was fetched last: neighbours share one.
    blob: Option<(String, Vec<u8>)>,
    steps: Vec<(Step<'a>, Option<Entry>)>,
    /// Directories that were opened up, with the mode that they are to have in the end.
    lifted: HashMap<&'a str, u32>,
    out: Restored,
}

impl<'a> Undo<'a, '_> {
    fn leave(&mut self, path: &str, why: impl Into<String>) {
        self.out.left.push(Left { path: path.to_owned(), why: why.into() });
    }

    fn done(&mut self, path: &str, done: Done) {
        self.out.restored.push(Put { path: path.to_owned(), done });
    }

    /// Decides what is to be done with a path, touching nothing.
    fn inspect(&mut self, change: &'a Change) {
        let path = change.path.as_str();
        let before = change.before.as_ref().and_then(State::of);
        let after = change.after.as_ref().and_then(State::of);
        let (now, entry) = match look(self.files, path) {
            Ok(now) => now.unzip(),
            Err(why) => return self.leave(path, why),
        };
        if is_same(now.as_ref(), before.as_ref()) {
            self.out.same += 1;
            return;
        }
        if !is_same(now.as_ref(), after.as_ref()) {
            return self.leave(path, difference(now.as_ref(), after.as_ref()));
        }
        if self.files.level(Path::new(path)) < Level::Write {
            return self.leave(path, "it may not be written: it is outside the write scope, or protected");
        }
        let kinds = (before.map(|state| state.kind), after.map(|state| state.kind));
        let step = Step { path, line: change.before.as_ref(), before: kinds.0, after: kinds.1 };
        // What goes first must be sure to come back.
        if step.clears()
            && let Some(line) = step.line
            && kinds.0 != Some(Kind::Directory)
            && let Err(why) = self.content(line)
        {
            return self.leave(path, why);
        }
        self.steps.push((step, entry));
    }

    /// Makes the directories that a step concerns writable for us.
    fn open_directories(&mut self) {
        let steps = self.take(|step| step.after == Some(Kind::Directory));
        for (step, entry) in steps {
            let Some(mode) = entry.as_ref().map(|entry| entry.mode) else { continue };
            if mode & ENTER != ENTER {
                match set_directory_mode(self.files, step.path, mode | ENTER) {
                    Ok(_) => drop(self.lifted.insert(step.path, mode)),
                    Err(why) => {
                        self.leave(step.path, why);
                        continue;
                    }
                }
            }
            self.steps.push((step, entry));
        }
    }

    /// Removes what the run made, and what stands where something else was: files and links, then directories, the
    /// deepest first.
    fn clear(&mut self) {
        let mut steps = self.take(Step::clears);
        steps.sort_by(|(a, _), (b, _)| {
            let last = |step: &Step<'_>| step.after == Some(Kind::Directory);
            last(a).cmp(&last(b)).then(b.path.cmp(a.path))
        });
        for (step, entry) in steps {
            let path = Path::new(step.path);
            let removed = if step.after == Some(Kind::Directory) {
                self.files.remove_directory(path).map_err(|e| not_removed(&e))
            } else {
                still(self.files, path, entry.as_ref())
                    .and_then(|()| self.files.remove(path).map_err(|e| e.to_string()))
            };
            match (removed, step.before) {
                (Err(why), _) => self.leave(step.path, why),
                (Ok(()), None) => {
                    self.lifted.remove(step.path);
                    self.done(step.path, Done::Removed);
                }
                (Ok(()), Some(_)) => {
                    self.lifted.remove(step.path);
                    self.steps.push((Step { after: None, ..step }, None));
                }
            }
        }
    }

    fn make_directories(&mut self) {
        let mut steps = self.take(|step| step.before == Some(Kind::Directory));
        steps.sort_by(|(a, _), (b, _)| a.path.cmp(b.path));
        for (step, entry) in steps {
            let mode = step.line.and_then(State::of).and_then(|state| state.mode).unwrap_or(ENTER | 0o055);
            if entry.is_none()
                && let Err(e) = self.files.make_directory(Path::new(step.path), mode | ENTER)
            {
                self.leave(step.path, e.to_string());
                continue;
            }
            self.lifted.insert(step.path, mode);
            let done = if entry.is_none() { Done::Made } else { Done::Changed };
            self.done(step.path, done);
        }
    }

    /// Files and links, neighbours of one blob together.
    fn fill(&mut self) {
        let mut steps = self.take(|step| step.before.is_some());
        let place = |step: &Step<'a>| step.line.map(|line| (line.blob.as_deref(), line.at, step.path));
        steps.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)));
        for (step, entry) in steps {
            let Some(line) = step.line else { continue };
            match self.put(step, line, entry.as_ref()) {
                Ok(done) => self.done(step.path, done),
                Err(why) => self.leave(step.path, why),
            }
        }
    }

    fn put(&mut self, step: Step<'a>, line: &SnapshotFile, entry: Option<&Entry>) -> Result<Done, String> {
        let path = Path::new(step.path);
        let done = if entry.is_some() { Done::Changed } else { Done::Made };
        let Some(state) = State::of(line) else { return Err("its old state is not known".to_owned()) };
        if state.kind == Kind::Link {
            let target = self.content(line)?;
            still(self.files, path, entry)?;
            if entry.is_some() {
                self.files.remove(path).map_err(|e| e.to_string())?;
            }
            let target = Path::new(OsStr::from_bytes(&target));
            return self.files.make_link(path, target).map(|()| done).map_err(|e| e.to_string());
        }
        let old = state.mode.or(entry.map(|entry| entry.mode)).unwrap_or(0o644);
        if let Some(entry) = entry {
            let mut opened = self.files.open_beneath_nofollow(path).map_err(|e| e.to_string())?;
            if digest(&mut opened.file).is_ok_and(|hash| hex(&hash) == line.hash) {
                if set_mode(&opened.file, old)? {
                    self.leave(step.path, RIGHTS_LOST);
                }
                return Ok(done);
            }
            let content = self.content(line)?;
            still(self.files, path, Some(entry))?;
            if entry.mode & WRITE == 0 {
                set_mode(&opened.file, entry.mode | WRITE)?;
            }
            return self.write(step.path, &content, old).map(|()| done);
        }
        let content = self.content(line)?;
        still(self.files, path, None)?;
        self.write(step.path, &content, old).map(|()| done)
    }

    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), String> {
        self.files.restore(Path::new(path), content, mode).map_err(|e| e.to_string())?;
        if mode & OWNER_RIGHTS != 0 {
            self.leave(path, RIGHTS_LOST);
        }
        Ok(())
    }

    /// Every directory gets its mode, the deepest first: one above may then be closed to us.
    fn close_directories(&mut self) {
        let mut modes: Vec<(&str, u32)> = self.lifted.drain().collect();
        modes.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (path, mode) in modes {
            match set_directory_mode(self.files, path, mode) {
                Ok(false) => {}
                Ok(true) => self.leave(path, GROUP_LOST),
                Err(why) => self.leave(path, why),
            }
        }
    }

    /// Takes the steps of a kind out of the list.
    fn take(&mut self, wanted: impl Fn(&Step<'a>) -> bool) -> Vec<(Step<'a>, Option<Entry>)> {
        let (taken, rest) = std::mem::take(&mut self.steps).into_iter().partition(|(step, _)| wanted(step));
        self.steps = rest;
        taken
    }

    /// The old content of a file, as it was hashed.
    fn content(&mut self, line: &SnapshotFile) -> Result<Vec<u8>, String> {
        let hash = |content: &[u8]| hex(&Sha256::digest(content).into());
        if line.hash == hash(&[]) {
            return Ok(Vec::new());
        }
        let Some(name) = &line.blob else {
            return Err("its old content was not kept, because it was too large or held a secret".to_owned());
        };
        if self.blob.as_ref().is_none_or(|(held, _)| held != name) {
            let blob =
                (self.fetch)(name).map_err(|e| format!("its old content could not be fetched: {e}"))?;
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

/// What stands at a path now.
fn look(files: &Files, path: &str) -> Result<Option<(State, Entry)>, String> {
    let at = Path::new(path);
    let entry = match files.entry(at) {
        Ok(Some(entry)) => entry,
        // Something above it is no directory, so nothing is here.
        Ok(None) | Err(FileError::NotADirectory { .. } | FileError::SymlinkNotFollowed { .. }) => {
            return Ok(None);
        }
        Err(e) => return Err(e.to_string()),
    };
    let (kind, hash) = match &entry.kind {
        minke_files::Kind::Directory => (Kind::Directory, Sha256::digest([]).into()),
        minke_files::Kind::Link(target) => (Kind::Link, Sha256::digest(target.as_os_str().as_bytes()).into()),
        minke_files::Kind::File => {
            let mut opened = files.open_beneath_nofollow(at).map_err(|e| e.to_string())?;
            (Kind::File, digest(&mut opened.file).map_err(|e| format!("it could not be read: {e}"))?)
        }
        minke_files::Kind::Special => return Err("a FIFO, a socket or a device stands there now".to_owned()),
    };
    let mode = (kind != Kind::Link).then_some(entry.mode);
    Ok(Some((State { kind, mode, hash: hex(&hash) }, entry)))
}

fn is_same(one: Option<&State>, other: Option<&State>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_like(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Why a path is not as the run left it.
fn difference(now: Option<&State>, after: Option<&State>) -> String {
    match (now, after) {
        (None, _) => "it has been removed since the run".to_owned(),
        (Some(now), None) => format!("{} has come there since the run", now.kind.as_str()),
        (Some(now), Some(after)) if now.kind != after.kind => {
            format!("it is {} since the run", now.kind.as_str())
        }
        (Some(now), Some(after)) if now.hash != after.hash => "it has been changed since the run".to_owned(),
        (Some(now), Some(_)) => {
            format!("its mode has been changed to {:o} since the run", now.mode.unwrap_or_default())
        }
    }
}

fn not_removed(e: &FileError) -> String {
    format!("{e}; it may hold something that the run did not make")
}

/// Nobody has changed it since it was looked at.
fn still(files: &Files, path: &Path, seen: Option<&Entry>) -> Result<(), String> {
    match files.entry(path) {
        Ok(now) if now.as_ref() == seen => Ok(()),
        Ok(_) => Err("it was being changed at the same time".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// What undo never gives back, because anybody could have put the file there meanwhile.
const RIGHTS_LOST: &str = "its content is back, but not the right to run as its owner or group";
const GROUP_LOST: &str = "it is back, but not the right to give its group to what is made in it";

/// Whether a set-id bit was left out.
fn set_directory_mode(files: &Files, path: &str, mode: u32) -> Result<bool, String> {
    let at = Path::new(path);
    let opened = files.open_dir(at).map_err(|e| e.to_string())?;
    if opened.path != at {
        return Err("a symbolic link stands in its path now".to_owned());
    }
    set_mode(&opened.dir, mode)
}

/// Sets a mode, but gives nothing a set-id bit that it does not have now: what stands there may be another's work. Whether
/// such a bit was left out.
fn set_mode(at: impl rustix::fd::AsFd, mode: u32) -> Result<bool, String> {
    let now = rustix::fs::fstat(&at).map_err(|e| format!("its mode could not be read: {e}"))?;
    let missing = (Mode::SUID | Mode::SGID) - Mode::from_raw_mode(now.st_mode);
    let wanted = Mode::from_raw_mode(mode as rustix::fs::RawMode);
    let given = wanted - missing;
    rustix::fs::fchmod(at, given)
        .map(|()| given != wanted)
        .map_err(|e| format!("its mode could not be changed: {e}"))
}
