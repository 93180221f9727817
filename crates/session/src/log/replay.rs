//! Replay: reads the part of a log that resuming needs, starting at its last carry.
//!
//! Here: the last carry's `segment_start`, the carry and everything after it, through fork parents, with spilled lists
//! restored. Elsewhere: the check of the bytes (`walk`), folding the entries (`pod`).
//! Invariant 8 of the log: the `h` in a fork's `from` is the `h` of that entry in its parent
//! (`a_fork_whose_parent_changed_is_found`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::{Entry, FetchError, ForkOrigin, Kind, Millis, SessionId, line};

use crate::check::soundness::{self, CheckDepth, LogFlaw, Soundness};
use crate::collector::{CacheUse, CollectResult, ReplayCollector};
use crate::error::{LogDamage, StoreError};
use crate::files::blobs::{self, BlobFile};
use crate::files::disk::Disk;
use crate::files::layout;
use crate::log::head::{LineMark, LogHead};
use crate::log::walk::{self, LogFiles, LogLocation};
use crate::store::SealedEntry;

/// The maximum depth of nested forks. Users create each fork, so it is out of reach; it also ends a cycle.
const MAX_GENERATIONS: usize = 1_000;

/// The directory of all sessions and its disk.
#[derive(Debug, Clone)]
pub(crate) struct StoreHome {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) sessions: PathBuf,
}

/// One log on the disk: a session's own, or a copy of its parent's prefix.
#[derive(Debug, Clone)]
pub(crate) struct LogDir {
    pub(crate) home: StoreHome,
    pub(crate) id: SessionId,
    pub(crate) dir: PathBuf,
    /// The last readable entry; a fork reads only the shared part of its parent.
    pub(crate) limit: Option<u64>,
}

/// The replay of one log.
pub(crate) struct ReplayedLog {
    pub(crate) entries: Vec<SealedEntry>,
    /// The end of the last good step in the readable part.
    pub(crate) good_end: LogLocation,
    /// The number of bytes after it that belong to no whole step.
    pub(crate) tail_bytes: u64,
    pub(crate) damage: Option<LogDamage>,
    /// The last carry, for the cache.
    pub(crate) head: Option<LogHead>,
    /// The start of the newest segment, for the next carry.
    pub(crate) segment: Option<LineMark>,
    /// The cache did not point to the last carry.
    pub(crate) is_cache_stale: bool,
    pub(crate) last_ts: Millis,
    /// The part before the last carry was not checked because it is large.
    pub(crate) is_unchecked: bool,
}

impl LogDir {
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.home.disk
    }

    pub(crate) fn io_result<T>(
        &self,
        what: &'static str,
        result: std::io::Result<T>,
    ) -> Result<T, StoreError> {
        result.map_err(|source| StoreError::Io { what, path: self.dir.clone(), source })
    }

    pub(crate) fn log_files(&self) -> Result<LogFiles, StoreError> {
        let missing = || StoreError::NotFound { id: self.id, place: self.home.sessions.clone() };
        match LogFiles::find_files(self.disk(), &self.dir) {
            Ok(Some(files)) => Ok(files),
            Ok(None) => Err(self.missing_first_file()?.unwrap_or_else(missing)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(missing()),
            Err(source) => Err(StoreError::Io { what: "list", path: self.dir.clone(), source }),
        }
    }

    /// Returns an error if the first file of a log is missing while later ones exist: there is no good prefix.
    fn missing_first_file(&self) -> Result<Option<StoreError>, StoreError> {
        let names = self.io_result("list", self.disk().read_dir(&self.dir))?;
        let later = names.iter().any(|name| layout::parse_log_index(name).is_some());
        let file = layout::log_file_name(0);
        let reason = "the file is missing, but later ones exist".to_owned();
        let damage = LogDamage { file, line: 1, offset: 0, seq: 0, reason };
        Ok(later.then_some(StoreError::Damaged { id: self.id, damage }))
    }

    /// Returns the session's first entry, if it is readable.
    pub(crate) fn read_start(&self) -> Result<Option<SealedEntry>, StoreError> {
        let files = self.log_files()?;
        let mut start = None;
        let walked = walk::walk_steps(self.disk(), &files, LogLocation::ORIGIN, &mut |step| {
            start = step.lines.first().and_then(|first| parse_sealed(step.line_bytes(first)).ok());
            Ok(false)
        });
        self.io_result("read", walked)?;
        if let Some(SealedEntry { entry: Entry { kind: Kind::SessionStart(start), .. }, .. }) = &start
            && start.format > minke_record::LOG_FORMAT
        {
            let (format, version) = (start.format, start.version.clone());
            return Err(StoreError::NewerFormat { id: self.id, format, version });
        }
        Ok(start)
    }

    /// Returns the position at which this log was forked.
    pub(crate) fn read_forked_from(&self) -> Result<Option<ForkOrigin>, StoreError> {
        Ok(match self.read_start()? {
            Some(SealedEntry { entry: Entry { kind: Kind::SessionStart(start), .. }, .. }) => start.from,
            _ => None,
        })
    }

    /// Returns the parent's log, limited to the shared part: the copy in `base/` if it exists, else the parent itself.
    pub(crate) fn parent_log(&self, from: &ForkOrigin) -> Result<LogDir, StoreError> {
        let base = self.dir.join(layout::BASE_DIR);
        let copied = self.io_result("look for", self.disk().metadata(&base))?.is_some();
        let dir = if copied { base } else { self.home.sessions.join(from.session.to_string()) };
        Ok(LogDir { home: self.home.clone(), id: from.session, dir, limit: Some(from.seq) })
    }

    /// Returns this log's directory, its parent's, and so on.
    pub(crate) fn lineage_dirs(&self) -> Result<Vec<LogDir>, StoreError> {
        let mut all = vec![self.clone()];
        while all.len() < MAX_GENERATIONS {
            let last = &all[all.len() - 1];
            let Some(from) = last.read_forked_from()? else { break };
            let parent = last.parent_log(&from)?;
            if self.io_result("look for", self.disk().metadata(&parent.dir))?.is_none() {
                break;
            }
            all.push(parent);
        }
        Ok(all)
    }

    /// Returns the whole content of a blob of this log or of its ancestors.
    pub(crate) fn read_blob(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let bad =
            |reason: &str| StoreError::Blob { id: self.id, name: name.to_owned(), reason: reason.to_owned() };
        let BlobFile { path, file } = self.find_blob(name)?.ok_or_else(|| bad("it is missing"))?;
        blobs::read_and_check(&*file, name)
            .map_err(|source| StoreError::Io { what: "read", path, source })?
            .map_err(|reason| bad(&reason))
    }

    pub(crate) fn find_blob(&self, name: &str) -> Result<Option<BlobFile>, StoreError> {
        // Almost always this directory contains it; only a fork searches its ancestors.
        if let Some(found) = self.io_result(
            "look for a blob in",
            blobs::find_blob_file(self.disk(), std::slice::from_ref(&self.dir), name),
        )? {
            return Ok(Some(found));
        }
        let dirs: Vec<PathBuf> = self.lineage_dirs()?.into_iter().map(|log| log.dir).collect();
        self.io_result("look for a blob in", blobs::find_blob_file(self.disk(), &dirs, name))
    }

    /// Returns the entries of this log alone that resuming needs.
    pub(crate) fn replay_own(&self, check: CheckDepth) -> Result<ReplayedLog, StoreError> {
        let files = self.log_files()?;
        let mut limit = self.limit;
        let mut damage: Option<LogDamage> = None;
        let mut cache = CacheUse::Use;
        loop {
            let mut gather = ReplayCollector::new(self, &files, limit);
            let end = self.io_result("read", gather.walk_log(cache))?;
            let cached = gather.cached_head.is_some();
            let soundness = match gather.last_carry() {
                Some(carry) => soundness::check_before_carry(self, &files, &carry, check)?,
                None => Soundness::Sound,
            };
            match soundness {
                Soundness::Sound | Soundness::Unknown => {}
                // A walk from the beginning ends at the broken link.
                Soundness::Flawed(LogFlaw::Chain) if cached => {
                    cache = CacheUse::Ignore;
                    continue;
                }
                // The file changed between two reads; the walked lines form a valid chain.
                Soundness::Flawed(LogFlaw::Chain) => {}
                Soundness::Flawed(LogFlaw::Entry { location, step_seq, reason }) => {
                    damage = Some(self.damage_of_entry(&files, location, step_seq, reason)?);
                    match step_seq.checked_sub(1) {
                        Some(last) => limit = Some(last),
                        None => return Ok(ReplayedLog::empty_replay(damage)),
                    }
                    continue;
                }
            }
            match gather.into_replayed(end)? {
                CollectResult::Valid(mut replayed) => {
                    if damage.is_some() {
                        replayed.damage = damage;
                    }
                    replayed.is_unchecked = matches!(soundness, Soundness::Unknown);
                    return Ok(*replayed);
                }
                // From the middle of a log the start of the bad entry's step is unknown.
                CollectResult::Invalid { .. } if cached => cache = CacheUse::Ignore,
                CollectResult::Invalid { location, step_seq, reason } => {
                    damage = Some(self.damage_of_entry(&files, location, step_seq, reason)?);
                    // Everything before that step is good. Each iteration ends earlier, so this terminates.
                    match step_seq.checked_sub(1) {
                        Some(last) => limit = Some(last),
                        None => return Ok(ReplayedLog::empty_replay(damage)),
                    }
                }
            }
        }
    }

    /// Describes an unreadable entry with a valid link. Its whole step is outside the good prefix.
    fn damage_of_entry(
        &self,
        files: &LogFiles,
        location: LogLocation,
        step: u64,
        reason: String,
    ) -> Result<LogDamage, StoreError> {
        let found = walk::damage_at(self.disk(), files, location, reason);
        Ok(LogDamage { seq: step, ..self.io_result("read", found)? })
    }

    /// Returns the entries that resuming needs, through the parents if this log has no carry of its own. If a parent is
    /// unreadable, returns the readable rest of the lineage, and the reason.
    pub(crate) fn replay(&self, check: CheckDepth) -> Result<(ReplayedLog, Option<String>), StoreError> {
        let mut own = self.replay_own(check)?;
        let mut log = self.clone();
        let mut carried = own.head.is_some();
        let mut generations = Vec::new();
        let mut start = own.entries.first().cloned();
        let mut broken = None;
        while !carried && generations.len() < MAX_GENERATIONS {
            let Some(from) = start.as_ref().and_then(forked_from) else { break };
            let parent = log.parent_log(&from)?;
            match parent.replay_shared(&from, check) {
                Ok(found) => {
                    carried = found.head.is_some();
                    own.is_unchecked |= found.is_unchecked;
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

    /// Returns a parent's entries up to the fork position, if they match the fork's record.
    fn replay_shared(&self, from: &ForkOrigin, check: CheckDepth) -> Result<ReplayedLog, String> {
        let found = self.replay_own(check).map_err(|e| e.to_string())?;
        match found.entries.last().map(|last| &last.entry) {
            Some(last) if last.seq == from.seq && last.h == from.h => Ok(found),
            Some(last) if last.seq == from.seq => Err(format!("entry {} is not the forked one", last.seq)),
            Some(last) => Err(format!("the log ends at entry {}, the fork began at {}", last.seq, from.seq)),
            None => Err("the log has no whole step".to_owned()),
        }
    }
}

impl ReplayedLog {
    fn empty_replay(damage: Option<LogDamage>) -> ReplayedLog {
        ReplayedLog {
            entries: Vec::new(),
            good_end: LogLocation::ORIGIN,
            tail_bytes: 0,
            damage,
            head: None,
            segment: None,
            is_cache_stale: true,
            last_ts: 0,
            is_unchecked: false,
        }
    }
}

fn forked_from(start: &SealedEntry) -> Option<ForkOrigin> {
    match &start.entry.kind {
        Kind::SessionStart(start) => start.from.clone(),
        _ => None,
    }
}

/// Parses the entry of a line; lists stay spilled.
pub(crate) fn parse_sealed(bytes: &[u8]) -> Result<SealedEntry, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let entry = line::parse_entry(text).map_err(|e| e.to_string())?;
    Ok(SealedEntry { entry, line: Arc::from(text) })
}

/// Why an entry with a valid chain is unusable.
pub(crate) enum UnreadableEntry {
    /// The entry, or a blob that belongs to it, is invalid.
    Invalid(String),
    /// Reading failed.
    Disk(StoreError),
}

/// Restores the spilled lists of an entry.
pub(crate) fn fetch_spilled_lists(log: &LogDir, entry: &mut Entry) -> Result<(), UnreadableEntry> {
    let fetched = entry.kind.fetch_lists(&mut |name| log.read_blob(&name.blob));
    fetched.map_err(|error| match error {
        FetchError::Blob(StoreError::Io { what, path, source }) => {
            UnreadableEntry::Disk(StoreError::Io { what, path, source })
        }
        FetchError::Blob(other) => UnreadableEntry::Invalid(other.to_string()),
        FetchError::Content(reason) => {
            UnreadableEntry::Invalid(format!("a spilled list is unreadable: {reason}"))
        }
    })
}

/// Returns the directory of a session.
pub(crate) fn session_dir(sessions: &Path, id: SessionId) -> PathBuf {
    sessions.join(id.to_string())
}
