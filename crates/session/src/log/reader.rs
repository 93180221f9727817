//! The reader: reads a session from the disk without its lease, while a writer may be active.
//!
//! Guarantee: it never returns an unfinished step (`a_reader_beside_a_writer_never_sees_half_a_step`), and its memory
//! use does not depend on the size of the log.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use minke_record::{ForkOrigin, Position, SessionId};

use crate::check::soundness::CheckDepth;
use crate::error::{LogDamage, StoreError};
use crate::files::blobs::BlobFile;
use crate::files::disk::Disk;
use crate::files::locate::{link_before_offset, locate_entry};
use crate::log::head;
use crate::log::lines::read_up_to;
use crate::log::replay::{LogDir, UnreadableEntry, fetch_spilled_lists, parse_sealed};
use crate::log::walk::{self, LogFiles, LogLocation, StepLines, WalkEnd, WalkEndReason};
use crate::store::{LogPage, Reader, ScanEnd, SealedEntry};

/// Reads one log.
pub(crate) struct LogReader {
    log: LogDir,
    /// The end of the last whole step seen. The next request for the head reads only newer lines.
    last_seen: Mutex<Option<LogLocation>>,
}

impl LogReader {
    pub(crate) fn new(log: LogDir) -> LogReader {
        LogReader { log, last_seen: Mutex::new(None) }
    }

    /// Returns the last seen location if it is still valid, else the cached carry, else the beginning.
    fn known_location(&self, files: &LogFiles) -> io::Result<LogLocation> {
        let last_seen = *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = last_seen
            && place.file <= files.last
            && link_before_offset(self.log.disk(), files, place.file, place.offset)? == Some(place.prev)
        {
            return Ok(place);
        }
        let cached = head::load_head(self.log.disk(), files, self.log.id);
        Ok(cached.map_or(LogLocation::ORIGIN, |head| head.carry.location()))
    }

    /// Returns the location from which to read an entry.
    fn location_of_entry(&self, files: &LogFiles, seq: u64) -> io::Result<LogLocation> {
        if seq == 0 {
            return Ok(LogLocation::ORIGIN);
        }
        Ok(locate_entry(self.log.disk(), files, seq)?.unwrap_or(LogLocation::ORIGIN))
    }

    fn walk_entries(
        &self,
        how: WalkFn,
        from_seq: u64,
        emit: &mut dyn FnMut(SealedEntry) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<ScanEnd, StoreError> {
        let files = self.log.log_files()?;
        let from = self.log.io_result("read", self.location_of_entry(&files, from_seq))?;
        let mut stopped = None;
        let walked =
            how(self.log.disk(), &files, from, &mut |step| match self.emit_step(step, from_seq, emit) {
                Ok(true) => Ok(true),
                Ok(false) => Ok(false),
                Err(why) => {
                    stopped = Some(why);
                    Ok(false)
                }
            });
        match (self.log.io_result("read", walked)?, stopped) {
            (_, Some(ReadStop::Error(error))) => Err(error),
            (_, Some(ReadStop::BadEntry { location, seq, reason })) => {
                let damage = walk::damage_at(self.log.disk(), &files, location, reason);
                let damage = self.log.io_result("read", damage)?;
                Ok(ScanEnd::Damaged(LogDamage { seq, ..damage }))
            }
            (None, None) => Ok(ScanEnd::Stopped),
            (Some(end), None) => Ok(match end.reason {
                WalkEndReason::Tail(tail) => ScanEnd::Clean { tail },
                // The part that a fork shares with its parent ends before the damage.
                WalkEndReason::Damage(damage) if self.log.limit.is_some_and(|limit| limit < damage.seq) => {
                    ScanEnd::Stopped
                }
                WalkEndReason::Damage(damage) => ScanEnd::Damaged(damage),
            }),
        }
    }

    /// Parses all entries of a step, then emits them.
    fn emit_step(
        &self,
        step: &StepLines,
        from_seq: u64,
        emit: &mut dyn FnMut(SealedEntry) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<bool, ReadStop> {
        let mut entries = Vec::with_capacity(step.lines.len());
        let mut go_on = true;
        for line in &step.lines {
            if self.log.limit.is_some_and(|limit| line.location.seq > limit) {
                go_on = false;
                break;
            }
            if line.location.seq < from_seq {
                continue;
            }
            let first = step.lines.first().map_or(line.location.seq, |first| first.location.seq);
            let bad = |reason| ReadStop::BadEntry { location: line.location, seq: first, reason };
            let mut read = parse_sealed(step.line_bytes(line)).map_err(bad)?;
            fetch_spilled_lists(&self.log, &mut read.entry).map_err(|why| match why {
                UnreadableEntry::Invalid(reason) => bad(reason),
                UnreadableEntry::Disk(error) => ReadStop::Error(error),
            })?;
            entries.push(read);
        }
        for entry in entries {
            if emit(entry).map_err(ReadStop::Error)?.is_break() {
                return Ok(false);
            }
        }
        Ok(go_on)
    }
}

/// Reads step by step for a few entries, or with a read-ahead thread for many.
type WalkFn = fn(
    &dyn Disk,
    &LogFiles,
    LogLocation,
    &mut dyn FnMut(&StepLines) -> io::Result<bool>,
) -> io::Result<Option<WalkEnd>>;

enum ReadStop {
    Error(StoreError),
    BadEntry { location: LogLocation, seq: u64, reason: String },
}

impl Reader for LogReader {
    fn session_id(&self) -> SessionId {
        self.log.id
    }

    fn head_position(&self) -> Result<Option<Position>, StoreError> {
        if let Some(limit) = self.log.limit {
            return self.position_of(limit);
        }
        let files = self.log.log_files()?;
        let from = self.log.io_result("read", self.known_location(&files))?;
        let walked = walk::walk_steps(self.log.disk(), &files, from, &mut |_| Ok(true));
        let end = self.log.io_result("read", walked)?;
        let good = end.map_or(from, |end| end.good_end);
        *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(good);
        Ok(good.head_position())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let files = self.log.log_files()?;
        // Older files were synced before the newest one was created.
        let newest = self.log.io_result("open", files.open_file(self.log.disk(), files.last))?;
        self.log.io_result("sync", newest.sync_data())
    }

    fn read_page(&self, from_seq: u64, max_entries: usize, max_bytes: usize) -> Result<LogPage, StoreError> {
        let mut page = LogPage { entries: Vec::new(), next_seq: None };
        let mut bytes = 0usize;
        let end = self.walk_entries(walk::walk_steps, from_seq, &mut |sealed| {
            bytes = bytes.saturating_add(sealed.line.len());
            if !page.entries.is_empty() && (page.entries.len() >= max_entries || bytes > max_bytes) {
                page.next_seq = Some(sealed.entry.seq);
                return Ok(ControlFlow::Break(()));
            }
            page.entries.push(sealed);
            Ok(ControlFlow::Continue(()))
        })?;
        match end {
            ScanEnd::Damaged(damage) if page.entries.is_empty() => {
                Err(StoreError::Damaged { id: self.log.id, damage })
            }
            // The next request returns the damage.
            ScanEnd::Damaged(damage) => Ok(LogPage { next_seq: Some(damage.seq), ..page }),
            _ => Ok(page),
        }
    }

    fn scan_entries(
        &self,
        from_seq: u64,
        emit: &mut dyn FnMut(SealedEntry) -> ControlFlow<()>,
    ) -> Result<ScanEnd, StoreError> {
        self.walk_entries(walk::walk_steps_ahead, from_seq, &mut |sealed| Ok(emit(sealed)))
    }

    fn read_replay(&self) -> Result<Vec<SealedEntry>, StoreError> {
        self.log.read_start()?;
        let (replayed, broken) = self.log.replay(CheckDepth::Quick)?;
        match (broken, self.log.read_forked_from()?) {
            (Some(reason), Some(from)) => {
                Err(StoreError::Lineage { id: self.log.id, parent: from.session, reason })
            }
            _ => Ok(replayed.entries),
        }
    }

    fn read_blob(&self, name: &str, offset: u64, limit: usize) -> Result<Vec<u8>, StoreError> {
        let bad = |reason: &str| StoreError::Blob {
            id: self.log.id,
            name: name.chars().take(64).collect(),
            reason: reason.to_owned(),
        };
        let BlobFile { path, file } = self.log.find_blob(name)?.ok_or_else(|| bad("it is missing"))?;
        let part = file.size().and_then(|size| {
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            read_up_to(&*file, offset, limit.min(left))
        });
        part.map_err(|source| StoreError::Io { what: "read", path, source })
    }

    fn position_of(&self, seq: u64) -> Result<Option<Position>, StoreError> {
        if self.log.limit.is_some_and(|limit| seq > limit) {
            return Ok(None);
        }
        let files = self.log.log_files()?;
        let from = self.log.io_result("read", self.location_of_entry(&files, seq))?;
        let mut sealed_entries = None;
        let walked = walk::walk_steps(self.log.disk(), &files, from, &mut |step| {
            sealed_entries = step.lines.iter().find(|line| line.location.seq == seq).map(|line| line.h);
            Ok(sealed_entries.is_none())
        });
        self.log.io_result("read", walked)?;
        Ok(sealed_entries.map(|h| Position { seq, h }))
    }

    fn forked_from(&self) -> Result<Option<ForkOrigin>, StoreError> {
        self.log.read_forked_from()
    }

    fn store_problems(&self) -> Result<Vec<String>, StoreError> {
        let mut sealed_entries = Vec::new();
        if self.log.limit.is_some() {
            // The caches of a parent cover more than the shared part.
            return Ok(sealed_entries);
        }
        let whole = head::is_intact(self.log.disk(), &self.log.log_files()?, self.log.id);
        if !self.log.io_result("read the head of", whole)? {
            sealed_entries
                .push("the head does not match the log; opening the session rewrites it".to_owned());
        }
        Ok(sealed_entries)
    }

    fn parent_reader(&self) -> Result<Option<Box<dyn Reader>>, StoreError> {
        let Some(from) = self.log.read_forked_from()? else {
            return Ok(None);
        };
        let parent = self.log.parent_log(&from)?;
        parent.log_files()?;
        Ok(Some(Box::new(LogReader::new(parent))))
    }
}
