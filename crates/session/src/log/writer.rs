//! The writer: appends steps to the log of a session whose lease it holds.
//!
//! Here: sealing a step, its one write call, rotation, the ballast, and the recovery from a failed write. Elsewhere:
//! syncing (`syncer`), the lease (`lease`), opening (`open`).
//! Guarantee: a step is written whole or not at all, never across two files, and after a failed write the log contains
//! no part of it (`a_fault_at_every_disk_operation_loses_nothing_written`, `a_step_never_crosses_a_file`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::limits::{BALLAST_BYTES, LINE_BYTES};
use minke_record::{
    Blob, BlobRef, ChainHash, Draft, Entry, History, Kind, Millis, PodName, Position, SessionId, line,
};

use crate::check::soundness;
use crate::error::{AppendError, LogDamage, StoreError, SyncError};
use crate::files::blobs;
use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;
use crate::files::lease;
use crate::log::head::{self, LineMark, LogHead};
use crate::log::replay::LogDir;
use crate::log::syncer::{RotateError, SharedLogFile};
use crate::log::tail::{self, LogTail};
use crate::log::walk::LogLocation;
use crate::store::{LeaseHolder, SealedEntry, Syncer, Writer};

/// The usual size of a line, so that a usual step needs no reallocation.
const USUAL_LINE_BYTES: usize = 1_536;

/// The writer of a session on a disk.
pub(crate) struct LogWriter {
    pub(crate) log: LogDir,
    pub(crate) shared: Arc<SharedLogFile>,
    pub(crate) lease: Box<dyn DiskFile>,
    pub(crate) holder: LeaseHolder,
    /// The index of the current file.
    pub(crate) file: u32,
    pub(crate) file_bytes: u64,
    pub(crate) sync: bool,
    pub(crate) last_ts: Millis,
    /// The start of the newest segment, which a carry names.
    pub(crate) segment: Option<LineMark>,
    /// A head that is not written yet.
    pub(crate) pending_head: Option<LogHead>,
    pub(crate) state: LogWriterState,
}

/// The work that must precede the next step.
pub(crate) enum LogWriterState {
    Ready,
    /// A write failed, and so did truncating the file to its previous length.
    Overhang,
    /// Opening could not move the tail of an earlier writer aside.
    Tail(LogTail),
    /// Only a prefix is readable; nothing is written after it.
    Damaged(LogDamage),
}

/// A step in its serialized form.
struct SerializedStep {
    bytes: Vec<u8>,
    entries: Vec<SealedEntry>,
    blobs: Vec<Blob>,
    /// The offset of each line in `bytes`.
    offsets: Vec<u64>,
    prev: ChainHash,
    link: ChainHash,
}

impl LogWriter {
    fn disk(&self) -> &dyn Disk {
        self.log.disk()
    }

    fn session_id(&self) -> SessionId {
        self.log.id
    }

    fn log_path(&self) -> PathBuf {
        layout::log_file_path(&self.log.dir, self.file)
    }

    fn storage_error(&self, what: &'static str) -> impl Fn(io::Error) -> AppendError + use<> {
        let path = self.log_path();
        move |source| AppendError::Storage { what, path: path.clone(), source }
    }

    /// Serializes the drafts into lines. Writes nothing yet.
    fn seal_step(&self, step: Vec<Draft>) -> Result<SerializedStep, AppendError> {
        let prev = self.shared.lock_state().link;
        let mut out = SerializedStep {
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
            // Clocks may go backwards; the times in a log may not.
            ts = ts.max(draft.ts);
            draft.ts = ts;
            out.add_draft(draft, at + 1 < count)?;
        }
        if count == 0 { Err(AppendError::Empty) } else { Ok(out) }
    }

    /// Cleans up after an earlier failure, so that the file ends after its last whole step.
    fn clean_up_failure(&mut self) -> Result<(), AppendError> {
        match &self.state {
            LogWriterState::Ready => return Ok(()),
            LogWriterState::Damaged(damage) => return Err(AppendError::Damaged(damage.clone())),
            LogWriterState::Overhang => {
                let state = self.shared.lock_state();
                state
                    .file
                    .truncate(state.good_bytes)
                    .map_err(self.storage_error("truncate the failed step in"))?;
            }
            LogWriterState::Tail(tail) => {
                tail::move_tail_aside(self.disk(), tail, self.sync)
                    .map_err(self.storage_error("move the tail of"))?;
            }
        }
        self.state = LogWriterState::Ready;
        Ok(())
    }

    fn rotate_file(&mut self) -> Result<(), AppendError> {
        let (index, sync) = (self.file + 1, self.sync);
        let path = layout::log_file_path(&self.log.dir, index);
        let (disk, dir) = (self.log.home.disk.clone(), self.log.dir.clone());
        let rotated = self.shared.rotate_file(|| {
            // An existing file of that name is empty: an earlier attempt failed after creating it.
            let file = match disk.open(&path, OpenMode::AppendNew) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => disk.open(&path, OpenMode::Append)?,
                other => other?,
            };
            if sync {
                disk.sync_dir(&dir)?;
            }
            Ok((Arc::from(file), path))
        });
        rotated.map_err(|error| match error {
            RotateError::Sync(error) => AppendError::Sync(error),
            RotateError::Disk(error) => self.storage_error("create a new file after")(error),
        })?;
        self.file = index;
        Ok(())
    }

    fn write_step(&mut self, step: &SerializedStep) -> Result<(), AppendError> {
        let state = self.shared.lock_state();
        let error = match state.file.append(&step.bytes) {
            Ok(written) if written == step.bytes.len() => return Ok(()),
            // The kernel reports the reason only for the rest, and the rest must not be written separately.
            Ok(_) => io::Error::new(io::ErrorKind::StorageFull, "only part of the step was written"),
            Err(error) => error,
        };
        let back = state.file.truncate(state.good_bytes);
        drop(state);
        if back.is_err() {
            self.state = LogWriterState::Overhang;
        }
        Err(self.storage_error("append to")(error))
    }

    /// Records the location of a new segment or carry, and updates the cache.
    fn update_marks(&mut self, step: &SerializedStep, base: u64) {
        let mut prev = step.prev;
        for (sealed, offset) in step.entries.iter().zip(&step.offsets) {
            let entry = &sealed.entry;
            let location = LogLocation { file: self.file, offset: base + offset, seq: entry.seq, prev };
            let mark = LineMark::new(location, entry.h);
            prev = entry.h;
            match &entry.kind {
                Kind::SegmentStart(start) => {
                    self.segment = Some(mark);
                    if !matches!(start.history, History::SameAs { .. }) {
                        self.pending_head = Some(LogHead { carry: mark, start: mark });
                    }
                }
                Kind::Carry(carry) if !matches!(carry.history, History::SameAs { .. }) => {
                    if let Some(start) = self.segment.filter(|segment| segment.seq == carry.start) {
                        self.pending_head = Some(LogHead { carry: mark, start });
                    }
                }
                _ => {}
            }
        }
        self.write_head();
    }

    /// Writes the cached head. On failure it is tried again with the next step; meanwhile opening reads more.
    pub(crate) fn write_head(&mut self) {
        if let Some(due) = self.pending_head
            && head::store_head(self.disk(), &self.log.dir, self.session_id(), due).is_ok()
        {
            self.pending_head = None;
        }
    }

    fn check_sync_error(&self) -> Result<(), AppendError> {
        self.shared.sync_error().map_or(Ok(()), |error: SyncError| Err(AppendError::Sync(error)))
    }

    pub(crate) fn make_ballast(&self) -> io::Result<()> {
        make_ballast(self.disk(), &self.log)
    }
}

/// Writes real bytes, not a hole: the space must be reserved.
pub(crate) fn make_ballast(disk: &dyn Disk, log: &LogDir) -> io::Result<()> {
    let path = log.dir.join(layout::BALLAST_FILE);
    if disk.metadata(&path)?.is_some_and(|meta| meta.bytes == BALLAST_BYTES) {
        return Ok(());
    }
    let file = disk.open(&path, OpenMode::Write)?;
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

impl SerializedStep {
    fn add_draft(&mut self, mut draft: Draft, more: bool) -> Result<(), AppendError> {
        self.blobs.extend(draft.kind.spill_texts());
        let from = self.bytes.len();
        // The fold needs the lists in place, but the line may not contain them: only a copy is spilled.
        let has_lists = matches!(draft.kind, Kind::SegmentStart(_) | Kind::Carry(_) | Kind::Snapshot(_));
        self.link = if has_lists {
            let mut spilled = draft.clone();
            self.blobs.extend(spilled.kind.spill_lists());
            line::seal_entry(self.link, &spilled, more, &mut self.bytes)
        } else {
            line::seal_entry(self.link, &draft, more, &mut self.bytes)
        };
        let bytes = self.bytes.len() - from;
        if bytes > LINE_BYTES {
            return Err(AppendError::TooLong { seq: draft.seq, bytes });
        }
        let text = &self.bytes[from..self.bytes.len() - 1];
        let text = std::str::from_utf8(text).expect("a sealed line is JSON, which is UTF-8");
        let Draft { seq, ts, run, kind, durability: _ } = draft;
        let entry = Entry { seq, ts, run, more, kind, h: self.link };
        self.entries.push(SealedEntry { entry, line: Arc::from(text) });
        self.offsets.push(from as u64);
        Ok(())
    }
}

impl Writer for LogWriter {
    fn append(&mut self, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<Vec<SealedEntry>, AppendError> {
        self.check_sync_error()?;
        let mut step = self.seal_step(step)?;
        self.clean_up_failure()?;
        for blob in blobs.iter().chain(&step.blobs) {
            blobs::store_blob(self.disk(), &self.log.dir, blob, self.sync)
                .map_err(self.storage_error("write a blob in"))?;
        }
        let good = self.shared.lock_state().good_bytes;
        if good > 0 && good + step.bytes.len() as u64 > self.file_bytes {
            self.rotate_file()?;
        } else if self.shared.is_pending_full(step.bytes.len()) {
            self.shared.sync().map_err(AppendError::Sync)?;
        }
        self.write_step(&step)?;
        let base = self.shared.lock_state().good_bytes;
        let last = step.entries.last().map_or(0, |last| last.entry.seq);
        self.last_ts = step.entries.last().map_or(self.last_ts, |last| last.entry.ts);
        self.shared.record_write(std::mem::take(&mut step.bytes), last, step.link);
        self.update_marks(&step, base);
        Ok(step.entries)
    }

    fn append_with_ballast(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<SealedEntry>, AppendError> {
        match self.disk().remove_file(&self.log.dir.join(layout::BALLAST_FILE)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(self.storage_error("free the ballast of")(e))
            }
            _ => self.append(step, blobs),
        }
    }

    fn restore_ballast(&mut self) -> io::Result<()> {
        self.make_ballast()
    }

    fn mark_damaged(&mut self, damage: LogDamage) -> io::Result<()> {
        self.state = LogWriterState::Damaged(damage);
        soundness::mark_suspect(&self.log)
    }

    fn head_position(&self) -> Option<Position> {
        let state = self.shared.lock_state();
        state.written_seq.map(|seq| Position { seq, h: state.link })
    }

    fn syncer(&self) -> Arc<dyn Syncer> {
        self.shared.clone()
    }

    fn set_holder_name(&mut self, name: &PodName) -> io::Result<()> {
        self.holder.name = Some(name.clone());
        lease::write_holder(&*self.lease, &self.holder)
    }

    fn lease_fd(&self) -> io::Result<OwnedFd> {
        self.lease.duplicate_fd()
    }

    fn into_lease(self: Box<Self>) -> io::Result<OwnedFd> {
        self.lease.duplicate_fd()
    }

    fn put_blob(&self, content: Vec<u8>) -> Result<BlobRef, AppendError> {
        let blob = Blob::new(content);
        blobs::store_blob(self.disk(), &self.log.dir, &blob, self.sync)
            .map_err(self.storage_error("write a blob in"))?;
        Ok(blob.name)
    }

    fn read_blob(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        self.log.read_blob(name)
    }
}
