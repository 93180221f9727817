//! Walks over a log: returns whole steps with a checked chain, up to the end, an unfinished tail, or damage.
//!
//! Here: the definition of the good prefix, and the difference between a tail (an interrupted write; may be cut) and
//! damage (a bad line with entries after it; nothing is cut). Elsewhere: parsing entries (`replay`, `reader`).
//! Invariant 1 of the log: entry numbers are consecutive and the chain is valid
//! (`every_flipped_bit_of_a_log_is_found`, `a_log_torn_at_every_byte_opens_with_its_good_prefix`).

use std::io;
use std::path::{Path, PathBuf};

use minke_record::line::{self, EntryEnvelope};
use minke_record::{ChainHash, Position};

use crate::error::LogDamage;
use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;
use crate::log::lines::{LineRead, LogLineReader};

/// The start of a line, and the chain before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLocation {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    /// The number of the entry that begins here.
    pub(crate) seq: u64,
    /// The link of the previous line.
    pub(crate) prev: ChainHash,
}

impl LogLocation {
    pub(crate) const ORIGIN: LogLocation = LogLocation { file: 0, offset: 0, seq: 0, prev: ChainHash::ZERO };

    /// Returns the position of the previous entry.
    pub(crate) fn head_position(&self) -> Option<Position> {
        self.seq.checked_sub(1).map(|seq| Position { seq, h: self.prev })
    }
}

/// One line of a whole step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLine {
    pub(crate) location: LogLocation,
    pub(crate) h: ChainHash,
    from: usize,
    to: usize,
}

/// The lines of a whole step.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepLines {
    bytes: Vec<u8>,
    pub(crate) lines: Vec<StepLine>,
}

impl StepLines {
    pub(crate) fn line_bytes(&self, line: &StepLine) -> &[u8] {
        &self.bytes[line.from..line.to]
    }
}

/// The end of a walk, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalkEnd {
    /// The end of the last whole step.
    pub(crate) good_end: LogLocation,
    pub(crate) reason: WalkEndReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WalkEndReason {
    /// The log ends here, except for this many bytes of an unfinished step.
    Tail(u64),
    Damage(LogDamage),
}

/// The current files of a log.
#[derive(Debug, Clone)]
pub(crate) struct LogFiles {
    pub(crate) dir: PathBuf,
    /// The last of the consecutive files, starting at 0.
    pub(crate) last: u32,
    /// A missing file, if one with a higher number exists.
    missing: Option<u32>,
}

impl LogFiles {
    /// Returns `None` if there is no log.
    pub(crate) fn find_files(disk: &dyn Disk, dir: &Path) -> io::Result<Option<LogFiles>> {
        let mut found: Vec<u32> =
            disk.read_dir(dir)?.iter().filter_map(|name| layout::parse_log_index(name)).collect();
        found.sort_unstable();
        let exists_after =
            found.iter().zip(0u32..).take_while(|(index, expected)| **index == *expected).count();
        let Some(last) = u32::try_from(exists_after).ok().and_then(|n| n.checked_sub(1)) else {
            return Ok(None);
        };
        let missing = (exists_after < found.len()).then_some(last + 1);
        Ok(Some(LogFiles { dir: dir.to_owned(), last, missing }))
    }

    pub(crate) fn open_file(&self, disk: &dyn Disk, index: u32) -> io::Result<Box<dyn DiskFile>> {
        disk.open(&layout::log_file_path(&self.dir, index), OpenMode::Read)
    }
}

/// Passes each whole step from a location on to `each`, and returns the end and its reason. `each` may stop the walk by
/// `false`; then the result is `None`.
pub(crate) fn walk_steps(
    disk: &dyn Disk,
    files: &LogFiles,
    from: LogLocation,
    emit: &mut dyn FnMut(&StepLines) -> io::Result<bool>,
) -> io::Result<Option<WalkEnd>> {
    let mut state = StepReader { next: from, good_end: from, step: StepLines::default() };
    for index in from.file..=files.last {
        let file = files.open_file(disk, index)?;
        state.next.file = index;
        if index != from.file {
            state.next.offset = 0;
        }
        let mut lines = LogLineReader::new(&*file, state.next.offset);
        match state.read_file(&mut lines, emit)? {
            FileEnd::Stopped => return Ok(None),
            FileEnd::Complete if index == files.last => {}
            FileEnd::Complete => {
                // The next file begins with a whole step, so the good prefix now ends at its start.
                state.good_end = LogLocation { file: index + 1, offset: 0, ..state.good_end };
                continue;
            }
            FileEnd::Unfinished { offset, bytes } => {
                if index == files.last && files.missing.is_none() {
                    return Ok(Some(WalkEnd {
                        good_end: state.good_end,
                        reason: WalkEndReason::Tail(bytes),
                    }));
                }
                let reason = "a step is incomplete, but another file follows".to_owned();
                return state.damage_end(disk, files, offset, reason).map(Some);
            }
            FileEnd::Invalid { offset, reason } => {
                if index == files.last && files.missing.is_none() && !has_entry_after(&mut lines)? {
                    let tail = file.size()?.saturating_sub(state.good_end.offset);
                    return Ok(Some(WalkEnd { good_end: state.good_end, reason: WalkEndReason::Tail(tail) }));
                }
                return state.damage_end(disk, files, offset, reason).map(Some);
            }
        }
    }
    if let Some(missing) = files.missing {
        let offset = state.next.offset;
        let reason = format!("{} is missing, but later files exist", layout::log_file_name(missing));
        return state.damage_end(disk, files, offset, reason).map(Some);
    }
    Ok(Some(WalkEnd { good_end: state.good_end, reason: WalkEndReason::Tail(0) }))
}

/// The minimum size for reading and checking a log in a separate thread while the caller processes the steps. Smaller
/// logs use one thread with a fixed order, as simulations need.
const MIN_READ_AHEAD_BYTES: u64 = 4 * 1024 * 1024;
/// The size of one batch, and how many batches may wait.
const BATCH_BYTES: usize = 256 * 1024;
const MAX_BATCHES: usize = 4;

/// The same as `walk_steps`, but faster for large logs.
pub(crate) fn walk_steps_ahead(
    disk: &dyn Disk,
    files: &LogFiles,
    from: LogLocation,
    emit: &mut dyn FnMut(&StepLines) -> io::Result<bool>,
) -> io::Result<Option<WalkEnd>> {
    let mut bytes = 0;
    for index in from.file..=files.last {
        bytes += files.open_file(disk, index)?.size()?;
    }
    if bytes.saturating_sub(from.offset) < MIN_READ_AHEAD_BYTES {
        return walk_steps(disk, files, from, emit);
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<StepLines>>(MAX_BATCHES);
        let walker = scope.spawn(move || {
            let (mut batch, mut size) = (Vec::new(), 0);
            let end = walk_steps(disk, files, from, &mut |step| {
                size += step.bytes.len();
                batch.push(step.clone());
                if size < BATCH_BYTES {
                    return Ok(true);
                }
                size = 0;
                // The caller has stopped and no longer receives.
                Ok(sender.send(std::mem::take(&mut batch)).is_ok())
            })?;
            Ok::<_, io::Error>(if sender.send(batch).is_ok() { end } else { None })
        });
        let mut stopped = false;
        'batches: for batch in &receiver {
            for step in &batch {
                if !emit(step)? {
                    stopped = true;
                    break 'batches;
                }
            }
        }
        drop(receiver);
        let end = walker.join().map_err(|_| io::Error::other("the thread that read the log panicked"))??;
        Ok(if stopped { None } else { end })
    })
}

struct StepReader {
    next: LogLocation,
    good_end: LogLocation,
    step: StepLines,
}

enum FileEnd {
    /// Ended after a whole step.
    Complete,
    /// Ended inside a step, `bytes` after the last whole one.
    Unfinished {
        offset: u64,
        bytes: u64,
    },
    Invalid {
        offset: u64,
        reason: String,
    },
    Stopped,
}

impl StepReader {
    fn read_file(
        &mut self,
        lines: &mut LogLineReader<'_>,
        emit: &mut dyn FnMut(&StepLines) -> io::Result<bool>,
    ) -> io::Result<FileEnd> {
        loop {
            let offset = lines.file_offset();
            match lines.next()? {
                LineRead::Line(bytes) => match self.add_line(bytes, offset) {
                    Ok(more) => {
                        self.next.offset = offset + bytes.len() as u64 + 1;
                        if !more {
                            self.good_end = self.next;
                            let go_on = emit(&self.step)?;
                            self.step.bytes.clear();
                            self.step.lines.clear();
                            if !go_on {
                                return Ok(FileEnd::Stopped);
                            }
                        }
                    }
                    Err(reason) => return Ok(FileEnd::Invalid { offset, reason }),
                },
                LineRead::TooLong => {
                    return Ok(FileEnd::Invalid {
                        offset,
                        reason: "the line is longer than 2 MiB".to_owned(),
                    });
                }
                LineRead::Unfinished(bytes) => {
                    let end = offset + bytes;
                    return Ok(FileEnd::Unfinished { offset, bytes: end - self.good_offset(end) });
                }
                LineRead::End if self.step.lines.is_empty() => return Ok(FileEnd::Complete),
                LineRead::End => {
                    return Ok(FileEnd::Unfinished { offset, bytes: offset - self.good_offset(offset) });
                }
            }
        }
    }

    fn good_offset(&self, end: u64) -> u64 {
        if self.good_end.file == self.next.file { self.good_end.offset } else { end }
    }

    /// Adds a line to the step, if it continues the chain. Returns whether more lines of the step follow.
    fn add_line(&mut self, bytes: &[u8], offset: u64) -> Result<bool, String> {
        let h = line::check_link(self.next.prev, bytes).map_err(|e| e.to_string())?;
        let envelope = parse_envelope(bytes)?;
        if envelope.seq != self.next.seq {
            return Err(format!("found entry {} instead of {}", envelope.seq, self.next.seq));
        }
        let from = self.step.bytes.len();
        self.step.bytes.extend_from_slice(bytes);
        let location = LogLocation { offset, ..self.next };
        self.step.lines.push(StepLine { location, h, from, to: self.step.bytes.len() });
        self.next.seq = envelope.seq.checked_add(1).ok_or("the entry number is at its maximum")?;
        self.next.prev = h;
        Ok(envelope.more)
    }

    fn damage_end(
        self,
        disk: &dyn Disk,
        files: &LogFiles,
        offset: u64,
        reason: String,
    ) -> io::Result<WalkEnd> {
        let damage = damage_at(disk, files, LogLocation { offset, ..self.next }, reason)?;
        Ok(WalkEnd {
            good_end: self.good_end,
            reason: WalkEndReason::Damage(LogDamage { seq: self.good_end.seq, ..damage }),
        })
    }
}

/// Describes damage for display. Counts the lines before it.
pub(crate) fn damage_at(
    disk: &dyn Disk,
    files: &LogFiles,
    location: LogLocation,
    reason: String,
) -> io::Result<LogDamage> {
    let file = files.open_file(disk, location.file)?;
    let mut lines = LogLineReader::new(&*file, 0);
    let mut line = 1;
    while lines.file_offset() < location.offset {
        match lines.next()? {
            LineRead::Line(_) | LineRead::TooLong => line += 1,
            LineRead::Unfinished(_) | LineRead::End => break,
        }
    }
    Ok(LogDamage {
        file: layout::log_file_name(location.file),
        line,
        offset: location.offset,
        seq: location.seq,
        reason,
    })
}

/// Returns whether any entry follows a bad line. An interrupted write leaves none.
fn has_entry_after(lines: &mut LogLineReader<'_>) -> io::Result<bool> {
    loop {
        match lines.next()? {
            LineRead::Line(bytes) if line::claimed_link(bytes).is_ok() && parse_envelope(bytes).is_ok() => {
                return Ok(true);
            }
            LineRead::Line(_) | LineRead::TooLong => {}
            LineRead::Unfinished(_) | LineRead::End => return Ok(false),
        }
    }
}

pub(crate) fn parse_envelope(bytes: &[u8]) -> Result<EntryEnvelope, String> {
    if let Some((envelope, _)) = line::scan_envelope(bytes) {
        return Ok(envelope);
    }
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    line::peek_envelope(text).map(|(envelope, _)| envelope).map_err(|e| e.to_string())
}
