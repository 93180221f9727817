//! The reader: a session as it is on the disk, without its lease and beside a live writer.
//!
//! Promise: an unfinished step is never seen (`a_reader_beside_a_writer_never_sees_half_a_step`), and memory stays
//! small whatever the size of the log.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use minke_record::{ForkedFrom, Position, SessionId};

use crate::blobs::BlobFile;
use crate::disk::Disk;
use crate::error::{Damage, StoreError};
use crate::head;
use crate::lines::read_exactly;
use crate::locate::{link_before, locate};
use crate::replay::{LogDir, Unreadable, fetch_lists, sealed};
use crate::sound::Check;
use crate::store::{Page, Reader, ScanEnd, Sealed};
use crate::walk::{self, End, LogFiles, Place, Step, Why};

/// Reads one log.
pub(crate) struct LogReader {
    log: LogDir,
    /// After the last whole step that was seen: asking for the head again reads only what is new.
    seen: Mutex<Option<Place>>,
}

impl LogReader {
    pub(crate) fn new(log: LogDir) -> LogReader {
        LogReader { log, seen: Mutex::new(None) }
    }

    /// A place that was good before and still is, or the carry that the cache names, or the beginning.
    fn known(&self, files: &LogFiles) -> io::Result<Place> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = seen
            && place.file <= files.last
            && link_before(self.log.disk(), files, place.file, place.offset)? == Some(place.prev)
        {
            return Ok(place);
        }
        let cached = head::load(self.log.disk(), files, self.log.id);
        Ok(cached.map_or(Place::ORIGIN, |head| head.carry.place()))
    }

    /// Where reading from an entry on begins.
    fn place_of(&self, files: &LogFiles, seq: u64) -> io::Result<Place> {
        if seq == 0 {
            return Ok(Place::ORIGIN);
        }
        Ok(locate(self.log.disk(), files, seq)?.unwrap_or(Place::ORIGIN))
    }

    fn walk(
        &self,
        how: Walk,
        from_seq: u64,
        each: &mut dyn FnMut(Sealed) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<ScanEnd, StoreError> {
        let files = self.log.files()?;
        let from = self.log.io("read", self.place_of(&files, from_seq))?;
        let mut stopped = None;
        let walked = how(self.log.disk(), &files, from, &mut |step| match self.give(step, from_seq, each) {
            Ok(true) => Ok(true),
            Ok(false) => Ok(false),
            Err(why) => {
                stopped = Some(why);
                Ok(false)
            }
        });
        match (self.log.io("read", walked)?, stopped) {
            (_, Some(Stopped::Error(error))) => Err(error),
            (_, Some(Stopped::Damage { place, seq, reason })) => {
                let damage = walk::damage_at(self.log.disk(), &files, place, reason);
                let damage = self.log.io("read", damage)?;
                Ok(ScanEnd::Damaged(Damage { seq, ..damage }))
            }
            (None, None) => Ok(ScanEnd::Stopped),
            (Some(end), None) => Ok(match end.why {
                Why::Tail(tail) => ScanEnd::Clean { tail },
                // What a fork shares with its parent ends before it.
                Why::Damage(damage) if self.log.limit.is_some_and(|limit| limit < damage.seq) => {
                    ScanEnd::Stopped
                }
                Why::Damage(damage) => ScanEnd::Damaged(damage),
            }),
        }
    }

    /// Reads the entries of a step, all of them before the first is given.
    fn give(
        &self,
        step: &Step,
        from_seq: u64,
        each: &mut dyn FnMut(Sealed) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<bool, Stopped> {
        let mut entries = Vec::with_capacity(step.lines.len());
        let mut go_on = true;
        for line in &step.lines {
            if self.log.limit.is_some_and(|limit| line.place.seq > limit) {
                go_on = false;
                break;
            }
            if line.place.seq < from_seq {
                continue;
            }
            let first = step.lines.first().map_or(line.place.seq, |first| first.place.seq);
            let bad = |reason| Stopped::Damage { place: line.place, seq: first, reason };
            let mut read = sealed(step.text(line)).map_err(bad)?;
            fetch_lists(&self.log, &mut read.entry).map_err(|why| match why {
                Unreadable::Here(reason) => bad(reason),
                Unreadable::Disk(error) => Stopped::Error(error),
            })?;
            entries.push(read);
        }
        for entry in entries {
            if each(entry).map_err(Stopped::Error)?.is_break() {
                return Ok(false);
            }
        }
        Ok(go_on)
    }
}

/// Step by step for a few entries, or with a thread that reads ahead for many.
type Walk =
    fn(&dyn Disk, &LogFiles, Place, &mut dyn FnMut(&Step) -> io::Result<bool>) -> io::Result<Option<End>>;

enum Stopped {
    Error(StoreError),
    Damage { place: Place, seq: u64, reason: String },
}

impl Reader for LogReader {
    fn id(&self) -> SessionId {
        self.log.id
    }

    fn head(&self) -> Result<Option<Position>, StoreError> {
        if let Some(limit) = self.log.limit {
            return self.position(limit);
        }
        let files = self.log.files()?;
        let from = self.log.io("read", self.known(&files))?;
        let walked = walk::walk(self.log.disk(), &files, from, &mut |_| Ok(true));
        let end = self.log.io("read", walked)?;
        let good = end.map_or(from, |end| end.good);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(good);
        Ok(good.head())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let files = self.log.files()?;
        // Older files were synced before the newest was begun.
        let newest = self.log.io("open", files.open(self.log.disk(), files.last))?;
        self.log.io("sync", newest.sync_data())
    }

    fn page(&self, from_seq: u64, max_entries: usize, max_bytes: usize) -> Result<Page, StoreError> {
        let mut page = Page { entries: Vec::new(), next_seq: None };
        let mut bytes = 0usize;
        let end = self.walk(walk::walk, from_seq, &mut |sealed| {
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
            // Asking for what comes next says why there is no more.
            ScanEnd::Damaged(damage) => Ok(Page { next_seq: Some(damage.seq), ..page }),
            _ => Ok(page),
        }
    }

    fn scan(
        &self,
        from_seq: u64,
        each: &mut dyn FnMut(Sealed) -> ControlFlow<()>,
    ) -> Result<ScanEnd, StoreError> {
        self.walk(walk::walk_ahead, from_seq, &mut |sealed| Ok(each(sealed)))
    }

    fn replay(&self) -> Result<Vec<Sealed>, StoreError> {
        self.log.start()?;
        let (replayed, broken) = self.log.replay(Check::Short)?;
        match (broken, self.log.from()?) {
            (Some(reason), Some(from)) => {
                Err(StoreError::Lineage { id: self.log.id, parent: from.session, reason })
            }
            _ => Ok(replayed.entries),
        }
    }

    fn blob(&self, name: &str, offset: u64, limit: usize) -> Result<Vec<u8>, StoreError> {
        let bad = |reason: &str| StoreError::Blob {
            id: self.log.id,
            name: name.chars().take(64).collect(),
            reason: reason.to_owned(),
        };
        let BlobFile { path, file } = self.log.find_blob(name)?.ok_or_else(|| bad("it is missing"))?;
        let part = file.size().and_then(|size| {
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            read_exactly(&*file, offset, limit.min(left))
        });
        part.map_err(|source| StoreError::Io { what: "read", path, source })
    }

    fn position(&self, seq: u64) -> Result<Option<Position>, StoreError> {
        if self.log.limit.is_some_and(|limit| seq > limit) {
            return Ok(None);
        }
        let files = self.log.files()?;
        let from = self.log.io("read", self.place_of(&files, seq))?;
        let mut found = None;
        let walked = walk::walk(self.log.disk(), &files, from, &mut |step| {
            found = step.lines.iter().find(|line| line.place.seq == seq).map(|line| line.h);
            Ok(found.is_none())
        });
        self.log.io("read", walked)?;
        Ok(found.map(|h| Position { seq, h }))
    }

    fn from(&self) -> Result<Option<ForkedFrom>, StoreError> {
        self.log.from()
    }

    fn doubtful(&self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        if self.log.limit.is_some() {
            // The caches of a parent are about more than a fork shares with it.
            return Ok(found);
        }
        let whole = head::is_whole(self.log.disk(), &self.log.files()?, self.log.id);
        if !self.log.io("read the head of", whole)? {
            found.push("the head does not fit the log; opening the session makes it again".to_owned());
        }
        Ok(found)
    }

    fn parent(&self) -> Result<Option<Box<dyn Reader>>, StoreError> {
        let Some(from) = self.log.from()? else {
            return Ok(None);
        };
        let parent = self.log.parent(&from)?;
        parent.files()?;
        Ok(Some(Box::new(LogReader::new(parent))))
    }
}
