//! Replay: what of a log is needed to go on, found from its last carry.
//!
//! Here: the last carry's `segment_start`, the carry and everything after it, through fork parents, with spilled
//! lists put back. Elsewhere: which bytes are good (`walk`), folding the entries (`pod`).
//! Invariant 8 of the log: the `h` in a fork's `from` is the `h` of that entry in its parent
//! (`a_fork_whose_parent_changed_is_found`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::{Entry, FetchError, ForkedFrom, Kind, Millis, SessionId, line};

use crate::blobs::{self, BlobFile};
use crate::disk::Disk;
use crate::error::{Damage, StoreError};
use crate::gather::{Cache, Finished, Gather};
use crate::head::{Head, Mark};
use crate::layout;
use crate::sound::{self, Check, Flaw, Soundness};
use crate::store::Sealed;
use crate::walk::{self, LogFiles, Place};

/// How many forks of forks are followed. Each is made by hand, so this is out of reach, and it ends a circle.
const GENERATIONS: usize = 1_000;

/// Where sessions lie.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) sessions: PathBuf,
}

/// One log on the disk: a session's own, or a copy of its parent's prefix.
#[derive(Debug, Clone)]
pub(crate) struct LogDir {
    pub(crate) home: Home,
    pub(crate) id: SessionId,
    pub(crate) dir: PathBuf,
    /// The last entry that may be read; a fork sees of its parent only what they share.
    pub(crate) limit: Option<u64>,
}

/// What was found in one log.
pub(crate) struct Replayed {
    pub(crate) entries: Vec<Sealed>,
    /// After the last good step that may be read.
    pub(crate) good: Place,
    /// Bytes after it that never happened.
    pub(crate) tail: u64,
    pub(crate) damage: Option<Damage>,
    /// Where the last carry lies, for the cache.
    pub(crate) head: Option<Head>,
    /// Where the newest segment begins, for the next carry.
    pub(crate) segment: Option<Mark>,
    /// The cache did not lead to the last carry.
    pub(crate) stale: bool,
    pub(crate) last_ts: Millis,
    /// What stands before the last carry was not checked: there is much of it.
    pub(crate) unchecked: bool,
}

impl LogDir {
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.home.disk
    }

    pub(crate) fn io<T>(&self, what: &'static str, result: std::io::Result<T>) -> Result<T, StoreError> {
        result.map_err(|source| StoreError::Io { what, path: self.dir.clone(), source })
    }

    pub(crate) fn files(&self) -> Result<LogFiles, StoreError> {
        let missing = || StoreError::NotFound { id: self.id, place: self.home.sessions.clone() };
        match LogFiles::find(self.disk(), &self.dir) {
            Ok(Some(files)) => Ok(files),
            Ok(None) => Err(self.beheaded()?.unwrap_or_else(missing)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(missing()),
            Err(source) => Err(StoreError::Io { what: "list", path: self.dir.clone(), source }),
        }
    }

    /// Later files of a log whose first one is gone: there is no good prefix to open, and that must be said.
    fn beheaded(&self) -> Result<Option<StoreError>, StoreError> {
        let names = self.io("list", self.disk().read_dir(&self.dir))?;
        let later = names.iter().any(|name| layout::log_index(name).is_some());
        let file = layout::log_name(0);
        let reason = "the file is missing and later ones are there".to_owned();
        let damage = Damage { file, line: 1, offset: 0, seq: 0, reason };
        Ok(later.then_some(StoreError::Damaged { id: self.id, damage }))
    }

    /// The session's first entry, if the log begins with one that can be read.
    pub(crate) fn start(&self) -> Result<Option<Sealed>, StoreError> {
        let files = self.files()?;
        let mut start = None;
        let walked = walk::walk(self.disk(), &files, Place::ORIGIN, &mut |step| {
            start = step.lines.first().and_then(|first| sealed(step.text(first)).ok());
            Ok(false)
        });
        self.io("read", walked)?;
        if let Some(Sealed { entry: Entry { kind: Kind::SessionStart(start), .. }, .. }) = &start
            && start.format > minke_record::FORMAT
        {
            let (format, version) = (start.format, start.version.clone());
            return Err(StoreError::NewerFormat { id: self.id, format, version });
        }
        Ok(start)
    }

    /// Where this log began as a fork.
    pub(crate) fn from(&self) -> Result<Option<ForkedFrom>, StoreError> {
        Ok(match self.start()? {
            Some(Sealed { entry: Entry { kind: Kind::SessionStart(start), .. }, .. }) => start.from,
            _ => None,
        })
    }

    /// The parent's log, bounded to what is shared: the copy in `base/` first, then the parent itself.
    pub(crate) fn parent(&self, from: &ForkedFrom) -> Result<LogDir, StoreError> {
        let base = self.dir.join(layout::BASE);
        let copied = self.io("look for", self.disk().meta(&base))?.is_some();
        let dir = if copied { base } else { self.home.sessions.join(from.session.to_string()) };
        Ok(LogDir { home: self.home.clone(), id: from.session, dir, limit: Some(from.seq) })
    }

    /// This log's directory, its parent's, and so on.
    pub(crate) fn lineage(&self) -> Result<Vec<LogDir>, StoreError> {
        let mut all = vec![self.clone()];
        while all.len() < GENERATIONS {
            let last = &all[all.len() - 1];
            let Some(from) = last.from()? else { break };
            let parent = last.parent(&from)?;
            if self.io("look for", self.disk().meta(&parent.dir))?.is_none() {
                break;
            }
            all.push(parent);
        }
        Ok(all)
    }

    /// The whole content of a blob of this log or of a parent's.
    pub(crate) fn blob(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let bad =
            |reason: &str| StoreError::Blob { id: self.id, name: name.to_owned(), reason: reason.to_owned() };
        let BlobFile { path, file } = self.find_blob(name)?.ok_or_else(|| bad("it is missing"))?;
        blobs::read_whole(&*file, name)
            .map_err(|source| StoreError::Io { what: "read", path, source })?
            .map_err(|reason| bad(&reason))
    }

    pub(crate) fn find_blob(&self, name: &str) -> Result<Option<BlobFile>, StoreError> {
        // Almost always it is here; only a fork has to look further.
        if let Some(found) =
            self.io("look for a blob in", blobs::find(self.disk(), std::slice::from_ref(&self.dir), name))?
        {
            return Ok(Some(found));
        }
        let dirs: Vec<PathBuf> = self.lineage()?.into_iter().map(|log| log.dir).collect();
        self.io("look for a blob in", blobs::find(self.disk(), &dirs, name))
    }

    /// What is needed to go on, of this log alone.
    pub(crate) fn replay_own(&self, check: Check) -> Result<Replayed, StoreError> {
        let files = self.files()?;
        let mut limit = self.limit;
        let mut damage: Option<Damage> = None;
        let mut cache = Cache::Use;
        loop {
            let mut gather = Gather::new(self, &files, limit);
            let end = self.io("read", gather.walk(cache))?;
            let cached = gather.cached.is_some();
            let soundness = match gather.carry() {
                Some(carry) => sound::check(self, &files, &carry, check)?,
                None => Soundness::Sound,
            };
            match soundness {
                Soundness::Sound | Soundness::Unknown => {}
                // A walk from the beginning ends where the links do.
                Soundness::Flawed(Flaw::Chain) if cached => {
                    cache = Cache::Ignore;
                    continue;
                }
                // The file was changed between two looks at it; what the walk gave is chained.
                Soundness::Flawed(Flaw::Chain) => {}
                Soundness::Flawed(Flaw::Entry { place, step, reason }) => {
                    damage = Some(self.damage_in(&files, place, step, reason)?);
                    match step.checked_sub(1) {
                        Some(last) => limit = Some(last),
                        None => return Ok(Replayed::nothing(damage)),
                    }
                    continue;
                }
            }
            match gather.finish(end)? {
                Finished::Good(mut replayed) => {
                    if damage.is_some() {
                        replayed.damage = damage;
                    }
                    replayed.unchecked = matches!(soundness, Soundness::Unknown);
                    return Ok(*replayed);
                }
                // From the middle of a log nobody can tell where the bad entry's step began.
                Finished::Bad { .. } if cached => cache = Cache::Ignore,
                Finished::Bad { place, step, reason } => {
                    damage = Some(self.damage_in(&files, place, step, reason)?);
                    // Everything before that step is good; ending sooner each time, this ends.
                    match step.checked_sub(1) {
                        Some(last) => limit = Some(last),
                        None => return Ok(Replayed::nothing(damage)),
                    }
                }
            }
        }
    }

    /// Describes an entry that cannot be read although its link holds: with its whole step it is not in the good prefix.
    fn damage_in(
        &self,
        files: &LogFiles,
        place: Place,
        step: u64,
        reason: String,
    ) -> Result<Damage, StoreError> {
        let found = walk::damage_at(self.disk(), files, place, reason);
        Ok(Damage { seq: step, ..self.io("read", found)? })
    }

    /// What is needed to go on, through the parents where this log has no carry of its own. If a parent cannot be
    /// read, what is left of the lineage, and why.
    pub(crate) fn replay(&self, check: Check) -> Result<(Replayed, Option<String>), StoreError> {
        let mut own = self.replay_own(check)?;
        let mut log = self.clone();
        let mut carried = own.head.is_some();
        let mut generations = Vec::new();
        let mut start = own.entries.first().cloned();
        let mut broken = None;
        while !carried && generations.len() < GENERATIONS {
            let Some(from) = start.as_ref().and_then(forked_from) else { break };
            let parent = log.parent(&from)?;
            match parent.shared(&from, check) {
                Ok(found) => {
                    carried = found.head.is_some();
                    own.unchecked |= found.unchecked;
                    start = found.entries.first().cloned();
                    generations.push(found.entries);
                    log = parent;
                }
                Err(reason) => {
                    broken = Some(format!("the entries shared with session {}: {reason}", from.session));
                    break;
                }
            }
        }
        if !generations.is_empty() {
            let tail = std::mem::take(&mut own.entries);
            own.entries = generations.into_iter().rev().flatten().chain(tail).collect();
        }
        Ok((own, broken))
    }

    /// A parent's entries up to where a fork left it, if they are what the fork knew.
    fn shared(&self, from: &ForkedFrom, check: Check) -> Result<Replayed, String> {
        let found = self.replay_own(check).map_err(|e| e.to_string())?;
        match found.entries.last().map(|last| &last.entry) {
            Some(last) if last.seq == from.seq && last.h == from.h => Ok(found),
            Some(last) if last.seq == from.seq => {
                Err(format!("entry {} is not the one that was forked", last.seq))
            }
            Some(last) => Err(format!("the log ends at entry {}, the fork began at {}", last.seq, from.seq)),
            None => Err("the log has no whole step".to_owned()),
        }
    }
}

impl Replayed {
    fn nothing(damage: Option<Damage>) -> Replayed {
        Replayed {
            entries: Vec::new(),
            good: Place::ORIGIN,
            tail: 0,
            damage,
            head: None,
            segment: None,
            stale: true,
            last_ts: 0,
            unchecked: false,
        }
    }
}

fn forked_from(start: &Sealed) -> Option<ForkedFrom> {
    match &start.entry.kind {
        Kind::SessionStart(start) => start.from.clone(),
        _ => None,
    }
}

/// Reads an entry out of a line; lists stay spilled.
pub(crate) fn sealed(bytes: &[u8]) -> Result<Sealed, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let entry = line::parse(text).map_err(|e| e.to_string())?;
    Ok(Sealed { entry, line: Arc::from(text) })
}

/// Why an entry whose chain holds cannot be used.
pub(crate) enum Unreadable {
    /// It, or a blob that is part of it, is not what it should be.
    Here(String),
    /// The disk failed.
    Disk(StoreError),
}

/// Puts spilled lists back into an entry.
pub(crate) fn fetch_lists(log: &LogDir, entry: &mut Entry) -> Result<(), Unreadable> {
    let fetched = entry.kind.fetch_lists(&mut |name| log.blob(&name.blob));
    fetched.map_err(|error| match error {
        FetchError::Blob(StoreError::Io { what, path, source }) => {
            Unreadable::Disk(StoreError::Io { what, path, source })
        }
        FetchError::Blob(other) => Unreadable::Here(other.to_string()),
        FetchError::Content(reason) => Unreadable::Here(format!("a spilled list does not read: {reason}")),
    })
}

/// The directory of a session.
pub(crate) fn session_dir(sessions: &Path, id: SessionId) -> PathBuf {
    sessions.join(id.to_string())
}
