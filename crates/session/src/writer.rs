//! The writer: appends steps to the log of a session whose lease it holds.
//!
//! Here: sealing a step, its one write call, rotation, the ballast, and going back when a write fails. Elsewhere:
//! syncing (`syncer`), the lease (`lease`), opening (`open`).
//! Promise: a step is written whole or not at all, never across two files, and after a failed write nothing of it
//! stands (`a_fault_at_every_disk_operation_loses_nothing_written`, `a_step_never_crosses_a_file`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::limits::{BALLAST_BYTES, LINE_BYTES};
use minke_record::{
    Blob, BlobRef, Chain, Draft, Entry, History, Kind, Millis, PodName, Position, SessionId, line,
};

use crate::blobs;
use crate::cut::{self, Tail};
use crate::disk::{Disk, DiskFile, OpenHow};
use crate::error::{AppendError, Damage, StoreError, SyncError};
use crate::head::{self, Head, Mark};
use crate::layout;
use crate::lease;
use crate::replay::LogDir;
use crate::sound;
use crate::store::{Holder, Sealed, Syncer, Writer};
use crate::syncer::{Rotation, Shared};
use crate::walk::Place;

/// Room for a usual line, so that a usual step is put together without moving it.
const USUAL_LINE_BYTES: usize = 1_536;

/// The writer of a session on a disk.
pub(crate) struct LogWriter {
    pub(crate) log: LogDir,
    pub(crate) shared: Arc<Shared>,
    pub(crate) lease: Box<dyn DiskFile>,
    pub(crate) holder: Holder,
    /// The number of the file that is written to.
    pub(crate) file: u32,
    pub(crate) file_bytes: u64,
    pub(crate) sync: bool,
    pub(crate) last_ts: Millis,
    /// Where the newest segment begins; a carry names it.
    pub(crate) segment: Option<Mark>,
    /// A head that could not be written yet.
    pub(crate) head_due: Option<Head>,
    pub(crate) state: WriterState,
}

/// What must happen before the next step can be written.
pub(crate) enum WriterState {
    Ready,
    /// A write failed, and so did going back: the file is longer than it should be.
    Overhang,
    /// Bytes that an earlier writer left could not be moved aside at the opening.
    Tail(Tail),
    /// Only a prefix can be read; nothing is written after it.
    Damaged(Damage),
}

/// A step in its written form.
struct Written {
    bytes: Vec<u8>,
    entries: Vec<Sealed>,
    blobs: Vec<Blob>,
    /// Where each line begins in `bytes`.
    offsets: Vec<u64>,
    prev: Chain,
    link: Chain,
}

impl LogWriter {
    fn disk(&self) -> &dyn Disk {
        self.log.disk()
    }

    fn id(&self) -> SessionId {
        self.log.id
    }

    fn path(&self) -> PathBuf {
        layout::log_path(&self.log.dir, self.file)
    }

    fn storage(&self, what: &'static str) -> impl Fn(io::Error) -> AppendError + use<> {
        let path = self.path();
        move |source| AppendError::Storage { what, path: path.clone(), source }
    }

    /// Gives every draft its line. Nothing is touched yet.
    fn seal(&self, step: Vec<Draft>) -> Result<Written, AppendError> {
        let prev = self.shared.state().link;
        let mut out = Written {
            bytes: Vec::with_capacity(step.len() * USUAL_LINE_BYTES),
            entries: Vec::with_capacity(step.len()),
            blobs: Vec::new(),
            offsets: Vec::with_capacity(step.len()),
            prev,
            link: prev,
        };
        let count = step.len();
        let mut ts = self.last_ts;
        for (at, (mut draft, expected)) in step.into_iter().zip(self.next_seq()..).enumerate() {
            if draft.seq != expected {
                return Err(AppendError::WrongSeq { given: draft.seq, expected });
            }
            if let Kind::Unknown(unknown) = &draft.kind {
                return Err(AppendError::UnknownKind { seq: draft.seq, kind: unknown.kind.clone() });
            }
            // Clocks go back; the log does not.
            ts = ts.max(draft.ts);
            draft.ts = ts;
            out.add(draft, at + 1 < count)?;
        }
        if count == 0 { Err(AppendError::Empty) } else { Ok(out) }
    }

    /// Clears away what an earlier failure left, so that the file ends after its last whole step.
    fn settle(&mut self) -> Result<(), AppendError> {
        match &self.state {
            WriterState::Ready => return Ok(()),
            WriterState::Damaged(damage) => return Err(AppendError::Damaged(damage.clone())),
            WriterState::Overhang => {
                let state = self.shared.state();
                state.file.truncate(state.good).map_err(self.storage("cut off the failed step in"))?;
            }
            WriterState::Tail(tail) => {
                cut::move_aside(self.disk(), tail, self.sync).map_err(self.storage("move the tail of"))?;
            }
        }
        self.state = WriterState::Ready;
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), AppendError> {
        let (index, sync) = (self.file + 1, self.sync);
        let path = layout::log_path(&self.log.dir, index);
        let (disk, dir) = (self.log.home.disk.clone(), self.log.dir.clone());
        let rotated = self.shared.rotate(|| {
            // A file of that name can only be an empty one, from an attempt that failed after making it.
            let file = match disk.open(&path, OpenHow::AppendNew) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => disk.open(&path, OpenHow::Append)?,
                other => other?,
            };
            if sync {
                disk.sync_dir(&dir)?;
            }
            Ok((Arc::from(file), path))
        });
        rotated.map_err(|error| match error {
            Rotation::Sync(error) => AppendError::Sync(error),
            Rotation::Disk(error) => self.storage("begin a new file after")(error),
        })?;
        self.file = index;
        Ok(())
    }

    fn write(&mut self, step: &Written) -> Result<(), AppendError> {
        let state = self.shared.state();
        let error = match state.file.append(&step.bytes) {
            Ok(written) if written == step.bytes.len() => return Ok(()),
            // The kernel says why only when it is asked for the rest, and the rest must not be written by itself.
            Ok(_) => io::Error::new(io::ErrorKind::StorageFull, "only part of the step was taken"),
            Err(error) => error,
        };
        let back = state.file.truncate(state.good);
        drop(state);
        if back.is_err() {
            self.state = WriterState::Overhang;
        }
        Err(self.storage("append to")(error))
    }

    /// Remembers where a new segment or carry lies, and tells the cache.
    fn note_marks(&mut self, step: &Written, base: u64) {
        let mut prev = step.prev;
        for (sealed, offset) in step.entries.iter().zip(&step.offsets) {
            let entry = &sealed.entry;
            let place = Place { file: self.file, offset: base + offset, seq: entry.seq, prev };
            let mark = Mark::new(place, entry.h);
            prev = entry.h;
            match &entry.kind {
                Kind::SegmentStart(start) => {
                    self.segment = Some(mark);
                    if !matches!(start.history, History::SameAs { .. }) {
                        self.head_due = Some(Head { carry: mark, start: mark });
                    }
                }
                Kind::Carry(carry) if !matches!(carry.history, History::SameAs { .. }) => {
                    if let Some(start) = self.segment.filter(|segment| segment.seq == carry.start) {
                        self.head_due = Some(Head { carry: mark, start });
                    }
                }
                _ => {}
            }
        }
        self.write_head();
    }

    /// A cache: if it cannot be written it is tried again with the next step, and whoever opens meanwhile reads more.
    pub(crate) fn write_head(&mut self) {
        if let Some(due) = self.head_due
            && head::store(self.disk(), &self.log.dir, self.id(), due).is_ok()
        {
            self.head_due = None;
        }
    }

    fn failed(&self) -> Result<(), AppendError> {
        self.shared.failed().map_or(Ok(()), |error: SyncError| Err(AppendError::Sync(error)))
    }

    pub(crate) fn make_ballast(&self) -> io::Result<()> {
        make_ballast(self.disk(), &self.log)
    }
}

/// Real bytes, not a hole: the space must be taken now to be free later.
pub(crate) fn make_ballast(disk: &dyn Disk, log: &LogDir) -> io::Result<()> {
    let path = log.dir.join(layout::BALLAST);
    if disk.meta(&path)?.is_some_and(|meta| meta.bytes == BALLAST_BYTES) {
        return Ok(());
    }
    let file = disk.open(&path, OpenHow::Write)?;
    file.truncate(0)?;
    let zeros = vec![0; usize::try_from(BALLAST_BYTES).map_err(io::Error::other)?];
    let mut rest = zeros.as_slice();
    let mut at = 0;
    while !rest.is_empty() {
        let written = file.write_at(rest, at)?;
        if written == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        at += written as u64;
        rest = &rest[written..];
    }
    Ok(())
}

impl Written {
    fn add(&mut self, mut draft: Draft, more: bool) -> Result<(), AppendError> {
        self.blobs.extend(draft.kind.spill_texts());
        let from = self.bytes.len();
        // The fold sees lists, the line may not: what is spilled is a copy.
        let has_lists = matches!(draft.kind, Kind::SegmentStart(_) | Kind::Carry(_) | Kind::Snapshot(_));
        self.link = if has_lists {
            let mut spilled = draft.clone();
            self.blobs.extend(spilled.kind.spill_lists());
            line::seal(self.link, &spilled, more, &mut self.bytes)
        } else {
            line::seal(self.link, &draft, more, &mut self.bytes)
        };
        let bytes = self.bytes.len() - from;
        if bytes > LINE_BYTES {
            return Err(AppendError::TooLong { seq: draft.seq, bytes });
        }
        let text = &self.bytes[from..self.bytes.len() - 1];
        let text = std::str::from_utf8(text).expect("a sealed line is JSON, which is UTF-8");
        let Draft { seq, ts, run, kind, durability: _ } = draft;
        let entry = Entry { seq, ts, run, more, kind, h: self.link };
        self.entries.push(Sealed { entry, line: Arc::from(text) });
        self.offsets.push(from as u64);
        Ok(())
    }
}

impl Writer for LogWriter {
    fn append(&mut self, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<Vec<Sealed>, AppendError> {
        self.failed()?;
        let mut step = self.seal(step)?;
        self.settle()?;
        for blob in blobs.iter().chain(&step.blobs) {
            blobs::put(self.disk(), &self.log.dir, blob, self.sync)
                .map_err(self.storage("write a blob beside"))?;
        }
        let good = self.shared.state().good;
        if good > 0 && good + step.bytes.len() as u64 > self.file_bytes {
            self.rotate()?;
        } else if self.shared.is_full(step.bytes.len()) {
            self.shared.sync().map_err(AppendError::Sync)?;
        }
        self.write(&step)?;
        let base = self.shared.state().good;
        let last = step.entries.last().map_or(0, |last| last.entry.seq);
        self.last_ts = step.entries.last().map_or(self.last_ts, |last| last.entry.ts);
        self.shared.wrote(std::mem::take(&mut step.bytes), last, step.link);
        self.note_marks(&step, base);
        Ok(step.entries)
    }

    fn append_with_ballast(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<Sealed>, AppendError> {
        match self.disk().remove_file(&self.log.dir.join(layout::BALLAST)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.storage("give up the ballast of")(e)),
            _ => self.append(step, blobs),
        }
    }

    fn restore_ballast(&mut self) -> io::Result<()> {
        self.make_ballast()
    }

    fn refuse_after(&mut self, damage: Damage) -> io::Result<()> {
        self.state = WriterState::Damaged(damage);
        sound::suspect(&self.log)
    }

    fn head(&self) -> Option<Position> {
        let state = self.shared.state();
        state.written.map(|seq| Position { seq, h: state.link })
    }

    fn syncer(&self) -> Arc<dyn Syncer> {
        self.shared.clone()
    }

    fn introduce(&mut self, name: &PodName) -> io::Result<()> {
        self.holder.name = Some(name.clone());
        lease::sign(&*self.lease, &self.holder)
    }

    fn lease_fd(&self) -> io::Result<OwnedFd> {
        self.lease.duplicate()
    }

    fn into_lease(self: Box<Self>) -> io::Result<OwnedFd> {
        self.lease.duplicate()
    }

    fn put_blob(&self, content: Vec<u8>) -> Result<BlobRef, AppendError> {
        let blob = Blob::new(content);
        blobs::put(self.disk(), &self.log.dir, &blob, self.sync)
            .map_err(self.storage("write a blob beside"))?;
        Ok(blob.name)
    }

    fn blob(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        self.log.blob(name)
    }
}
