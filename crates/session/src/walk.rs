//! Walking over a log: whole steps with their chain checked, up to the end, an unfinished tail, or damage.
//!
//! Here: what counts as a good prefix, and the difference between a tail (never happened; may be cut) and damage (a
//! bad line with entries after it; nothing is cut). Elsewhere: reading entries out of lines (`replay`, `reader`).
//! Invariant 1 of the log: numbers follow each other and the chain holds
//! (`every_flipped_bit_of_a_log_is_found`, `a_log_torn_at_every_byte_opens_with_its_good_prefix`).

use std::io;
use std::path::{Path, PathBuf};

use minke_record::line::{self, Envelope};
use minke_record::{Chain, Position};

use crate::disk::{Disk, DiskFile, OpenHow};
use crate::error::Damage;
use crate::layout;
use crate::lines::{Found, Lines};

/// Where a line begins, and what comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    /// The number of the entry that begins here.
    pub(crate) seq: u64,
    /// The link of the line before.
    pub(crate) prev: Chain,
}

impl Place {
    pub(crate) const ORIGIN: Place = Place { file: 0, offset: 0, seq: 0, prev: Chain::ZERO };

    /// The entry before this place.
    pub(crate) fn head(&self) -> Option<Position> {
        self.seq.checked_sub(1).map(|seq| Position { seq, h: self.prev })
    }
}

/// One line of a whole step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineAt {
    pub(crate) place: Place,
    pub(crate) h: Chain,
    from: usize,
    to: usize,
}

/// The lines of a whole step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    bytes: Vec<u8>,
    pub(crate) lines: Vec<LineAt>,
}

impl Step {
    pub(crate) fn text(&self, line: &LineAt) -> &[u8] {
        &self.bytes[line.from..line.to]
    }
}

/// Where and why a walk ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// After the last whole step.
    pub(crate) good: Place,
    pub(crate) why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// The log ends here, but for this many bytes that never happened.
    Tail(u64),
    Damage(Damage),
}

/// The files of a log, as they are now.
#[derive(Debug, Clone)]
pub(crate) struct LogFiles {
    pub(crate) dir: PathBuf,
    /// Files 0 to this one follow each other.
    pub(crate) last: u32,
    /// A file with a higher number is there although this one is missing.
    missing: Option<u32>,
}

impl LogFiles {
    /// `None` if there is no log.
    pub(crate) fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<LogFiles>> {
        let mut found: Vec<u32> =
            disk.read_dir(dir)?.iter().filter_map(|name| layout::log_index(name)).collect();
        found.sort_unstable();
        let there = found.iter().zip(0u32..).take_while(|(index, expected)| **index == *expected).count();
        let Some(last) = u32::try_from(there).ok().and_then(|n| n.checked_sub(1)) else {
            return Ok(None);
        };
        let missing = (there < found.len()).then_some(last + 1);
        Ok(Some(LogFiles { dir: dir.to_owned(), last, missing }))
    }

    pub(crate) fn open(&self, disk: &dyn Disk, index: u32) -> io::Result<Box<dyn DiskFile>> {
        disk.open(&layout::log_path(&self.dir, index), OpenHow::Read)
    }
}

/// Gives each whole step from a place on, and says where and why it ended. `each` may end the walk by `false`; then
/// `None` is the answer.
pub(crate) fn walk(
    disk: &dyn Disk,
    files: &LogFiles,
    from: Place,
    each: &mut dyn FnMut(&Step) -> io::Result<bool>,
) -> io::Result<Option<End>> {
    let mut state = Walking { next: from, good: from, step: Step::default() };
    for index in from.file..=files.last {
        let file = files.open(disk, index)?;
        state.next.file = index;
        if index != from.file {
            state.next.offset = 0;
        }
        let mut lines = Lines::new(&*file, state.next.offset);
        match state.one_file(&mut lines, each)? {
            FileEnd::Stopped => return Ok(None),
            FileEnd::Whole if index == files.last => {}
            FileEnd::Whole => {
                // The next file begins with a whole step, so a good place after this one is its start.
                state.good = Place { file: index + 1, offset: 0, ..state.good };
                continue;
            }
            FileEnd::Unfinished { offset, bytes } => {
                if index == files.last && files.missing.is_none() {
                    return Ok(Some(End { good: state.good, why: Why::Tail(bytes) }));
                }
                let reason = "a step is cut short and another file follows".to_owned();
                return state.damaged(disk, files, offset, reason).map(Some);
            }
            FileEnd::Bad { offset, reason } => {
                if index == files.last && files.missing.is_none() && !stands_after(&mut lines)? {
                    let tail = file.size()?.saturating_sub(state.good.offset);
                    return Ok(Some(End { good: state.good, why: Why::Tail(tail) }));
                }
                return state.damaged(disk, files, offset, reason).map(Some);
            }
        }
    }
    if let Some(missing) = files.missing {
        let offset = state.next.offset;
        let reason = format!("{} is missing and later files are there", layout::log_name(missing));
        return state.damaged(disk, files, offset, reason).map(Some);
    }
    Ok(Some(End { good: state.good, why: Why::Tail(0) }))
}

/// From this size on, a log is read and checked by a thread of its own while the caller works on what was read.
/// Below, everything happens in one thread and in one order, which is what a simulation needs.
const AHEAD_FROM_BYTES: u64 = 4 * 1024 * 1024;
/// How much is handed over at once, and how many of those may wait.
const BATCH_BYTES: usize = 256 * 1024;
const BATCHES: usize = 4;

/// The same as `walk`, faster where there is much to read.
pub(crate) fn walk_ahead(
    disk: &dyn Disk,
    files: &LogFiles,
    from: Place,
    each: &mut dyn FnMut(&Step) -> io::Result<bool>,
) -> io::Result<Option<End>> {
    let mut bytes = 0;
    for index in from.file..=files.last {
        bytes += files.open(disk, index)?.size()?;
    }
    if bytes.saturating_sub(from.offset) < AHEAD_FROM_BYTES {
        return walk(disk, files, from, each);
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<Step>>(BATCHES);
        let walker = scope.spawn(move || {
            let (mut batch, mut size) = (Vec::new(), 0);
            let end = walk(disk, files, from, &mut |step| {
                size += step.bytes.len();
                batch.push(step.clone());
                if size < BATCH_BYTES {
                    return Ok(true);
                }
                size = 0;
                // Nobody listens any more when the caller has had enough.
                Ok(sender.send(std::mem::take(&mut batch)).is_ok())
            })?;
            Ok::<_, io::Error>(if sender.send(batch).is_ok() { end } else { None })
        });
        let mut stopped = false;
        'batches: for batch in &receiver {
            for step in &batch {
                if !each(step)? {
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

struct Walking {
    next: Place,
    good: Place,
    step: Step,
}

enum FileEnd {
    /// Ended after a whole step.
    Whole,
    /// Ended inside a step, `bytes` after the last whole one.
    Unfinished {
        offset: u64,
        bytes: u64,
    },
    Bad {
        offset: u64,
        reason: String,
    },
    Stopped,
}

impl Walking {
    fn one_file(
        &mut self,
        lines: &mut Lines<'_>,
        each: &mut dyn FnMut(&Step) -> io::Result<bool>,
    ) -> io::Result<FileEnd> {
        loop {
            let offset = lines.offset();
            match lines.next()? {
                Found::Line(bytes) => match self.take(bytes, offset) {
                    Ok(more) => {
                        self.next.offset = offset + bytes.len() as u64 + 1;
                        if !more {
                            self.good = self.next;
                            let go_on = each(&self.step)?;
                            self.step.bytes.clear();
                            self.step.lines.clear();
                            if !go_on {
                                return Ok(FileEnd::Stopped);
                            }
                        }
                    }
                    Err(reason) => return Ok(FileEnd::Bad { offset, reason }),
                },
                Found::TooLong => {
                    return Ok(FileEnd::Bad { offset, reason: "the line is longer than 2 MiB".to_owned() });
                }
                Found::Unfinished(bytes) => {
                    let end = offset + bytes;
                    return Ok(FileEnd::Unfinished { offset, bytes: end - self.good_offset(end) });
                }
                Found::End if self.step.lines.is_empty() => return Ok(FileEnd::Whole),
                Found::End => {
                    return Ok(FileEnd::Unfinished { offset, bytes: offset - self.good_offset(offset) });
                }
            }
        }
    }

    fn good_offset(&self, end: u64) -> u64 {
        if self.good.file == self.next.file { self.good.offset } else { end }
    }

    /// Adds a line to the step, if it follows; says whether the step goes on.
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<bool, String> {
        let h = line::check(self.next.prev, bytes).map_err(|e| e.to_string())?;
        let envelope = envelope(bytes)?;
        if envelope.seq != self.next.seq {
            return Err(format!("entry {} stands where {} belongs", envelope.seq, self.next.seq));
        }
        let from = self.step.bytes.len();
        self.step.bytes.extend_from_slice(bytes);
        let place = Place { offset, ..self.next };
        self.step.lines.push(LineAt { place, h, from, to: self.step.bytes.len() });
        self.next.seq = envelope.seq.checked_add(1).ok_or("there is no number after this one")?;
        self.next.prev = h;
        Ok(envelope.more)
    }

    fn damaged(self, disk: &dyn Disk, files: &LogFiles, offset: u64, reason: String) -> io::Result<End> {
        let damage = damage_at(disk, files, Place { offset, ..self.next }, reason)?;
        Ok(End { good: self.good, why: Why::Damage(Damage { seq: self.good.seq, ..damage }) })
    }
}

/// Describes damage for a person: counts the lines before it.
pub(crate) fn damage_at(
    disk: &dyn Disk,
    files: &LogFiles,
    place: Place,
    reason: String,
) -> io::Result<Damage> {
    let file = files.open(disk, place.file)?;
    let mut lines = Lines::new(&*file, 0);
    let mut line = 1;
    while lines.offset() < place.offset {
        match lines.next()? {
            Found::Line(_) | Found::TooLong => line += 1,
            Found::Unfinished(_) | Found::End => break,
        }
    }
    Ok(Damage { file: layout::log_name(place.file), line, offset: place.offset, seq: place.seq, reason })
}

/// Whether any entry stands after a bad line. A write that was cut short leaves none.
fn stands_after(lines: &mut Lines<'_>) -> io::Result<bool> {
    loop {
        match lines.next()? {
            Found::Line(bytes) if line::claimed(bytes).is_ok() && envelope(bytes).is_ok() => return Ok(true),
            Found::Line(_) | Found::TooLong => {}
            Found::Unfinished(_) | Found::End => return Ok(false),
        }
    }
}

pub(crate) fn envelope(bytes: &[u8]) -> Result<Envelope, String> {
    if let Some((envelope, _)) = line::glance(bytes) {
        return Ok(envelope);
    }
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    line::peek(text).map(|(envelope, _)| envelope).map_err(|e| e.to_string())
}
