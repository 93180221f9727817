//! The head: a cache of the offsets of the last carry and of its segment's start, so that opening skips older entries.
//!
//! Invariant: a missing, torn, stale or forged head costs time and never changes the result
//! (`a_wrong_head_costs_time_and_nothing_else`): its own hash, the line at the offset and that line's link must all
//! match, and a newer carry found on the way takes precedence.

use std::io;
use std::path::Path;

use minke_record::{ChainHash, SessionId, line, to_hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::disk::{Disk, OpenMode};
use crate::files::layout;
use crate::files::locate::link_before_offset;
use crate::log::lines::{LineRead, LogLineReader, read_up_to};
use crate::log::walk::{LogFiles, LogLocation, parse_envelope};

/// Larger than any head.
const MAX_HEAD_BYTES: usize = 4 * 1024;

/// One line and its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineMark {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) prev: ChainHash,
    pub(crate) h: ChainHash,
}

impl LineMark {
    pub(crate) fn new(place: LogLocation, h: ChainHash) -> LineMark {
        LineMark { file: place.file, offset: place.offset, seq: place.seq, prev: place.prev, h }
    }

    pub(crate) fn location(&self) -> LogLocation {
        LogLocation { file: self.file, offset: self.offset, seq: self.seq, prev: self.prev }
    }
}

/// The last carry and its segment's start. They are the same line if the carry starts the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogHead {
    pub(crate) carry: LineMark,
    pub(crate) start: LineMark,
}

#[derive(Serialize, Deserialize)]
struct HeadFile {
    session: SessionId,
    #[serde(flatten)]
    head: LogHead,
}

/// Returns the cached head, if it matches the log. Never fails: without it the log is walked.
pub(crate) fn load_head(disk: &dyn Disk, files: &LogFiles, session: SessionId) -> Option<LogHead> {
    let file = disk.open(&files.dir.join(layout::HEAD_FILE), OpenMode::Read).ok()?;
    let bytes = read_up_to(&*file, 0, MAX_HEAD_BYTES).ok()?;
    let written = parse_head(&bytes)?;
    let fits = |mark: &LineMark| read_line_at(disk, files, mark).ok().flatten().is_some();
    let head = written.head;
    (written.session == session && fits(&head.carry) && fits(&head.start)).then_some(head)
}

fn parse_head(bytes: &[u8]) -> Option<HeadFile> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (json, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if sum != to_hex(&Sha256::digest(json.as_bytes())) {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// Returns whether an existing head is intact, for `verify`, which also reports flipped bits in this cache.
pub(crate) fn is_intact(disk: &dyn Disk, files: &LogFiles, session: SessionId) -> io::Result<bool> {
    match disk.metadata(&files.dir.join(layout::HEAD_FILE))? {
        None => Ok(true),
        Some(_) => Ok(load_head(disk, files, session).is_some()),
    }
}

/// Rewrites the cache. It is renamed into place and not synced: a stale head after a power cut is detected.
pub(crate) fn store_head(disk: &dyn Disk, dir: &Path, session: SessionId, head: LogHead) -> io::Result<()> {
    let mut text = serde_json::to_string(&HeadFile { session, head })?;
    let sum = to_hex(&Sha256::digest(text.as_bytes()));
    text.push(' ');
    text.push_str(&sum);
    text.push('\n');
    let new = dir.join(layout::NEW_HEAD_FILE);
    let file = disk.open(&new, OpenMode::Write)?;
    file.truncate(0)?;
    if file.write_at(text.as_bytes(), 0)? < text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    disk.rename(&new, &dir.join(layout::HEAD_FILE))
}

/// Returns the line at a mark, if it begins and ends there, has that number and continues the chain.
pub(crate) fn read_line_at(
    disk: &dyn Disk,
    files: &LogFiles,
    mark: &LineMark,
) -> io::Result<Option<Vec<u8>>> {
    if mark.file > files.last || link_before_offset(disk, files, mark.file, mark.offset)? != Some(mark.prev) {
        return Ok(None);
    }
    let file = files.open_file(disk, mark.file)?;
    let mut lines = LogLineReader::new(&*file, mark.offset);
    let LineRead::Line(bytes) = lines.next()? else {
        return Ok(None);
    };
    let fits = line::check_link(mark.prev, bytes) == Ok(mark.h)
        && parse_envelope(bytes).is_ok_and(|e| e.seq == mark.seq);
    Ok(fits.then(|| bytes.to_vec()))
}
