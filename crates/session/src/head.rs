//! The head: a cache of where the last carry and its segment's start lie, so that opening reads nothing older.
//!
//! Invariant: a head that is missing, torn, stale or forged costs time and never changes what is read
//! (`a_wrong_head_costs_time_and_nothing_else`): its own hash, the place's line and that line's link must all fit, and
//! a newer carry found on the way wins.

use std::io;
use std::path::Path;

use minke_record::{Chain, SessionId, hex, line};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::{Disk, OpenHow};
use crate::layout;
use crate::lines::{Found, Lines, read_exactly};
use crate::locate::link_before;
use crate::walk::{LogFiles, Place, envelope};

/// Larger than any head.
const HEAD_BYTES: usize = 4 * 1024;

/// One line and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) prev: Chain,
    pub(crate) h: Chain,
}

impl Mark {
    pub(crate) fn new(place: Place, h: Chain) -> Mark {
        Mark { file: place.file, offset: place.offset, seq: place.seq, prev: place.prev, h }
    }

    pub(crate) fn place(&self) -> Place {
        Place { file: self.file, offset: self.offset, seq: self.seq, prev: self.prev }
    }
}

/// Where the last carry and its segment's start are. They are the same line if the segment's start is the carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) carry: Mark,
    pub(crate) start: Mark,
}

#[derive(Serialize, Deserialize)]
struct Written {
    session: SessionId,
    #[serde(flatten)]
    head: Head,
}

/// What the cache says, if it fits the log. Never an error: whatever is wrong with it, the log can be walked.
pub(crate) fn load(disk: &dyn Disk, files: &LogFiles, session: SessionId) -> Option<Head> {
    let file = disk.open(&files.dir.join(layout::HEAD), OpenHow::Read).ok()?;
    let bytes = read_exactly(&*file, 0, HEAD_BYTES).ok()?;
    let written = read(&bytes)?;
    let fits = |mark: &Mark| line_at(disk, files, mark).ok().flatten().is_some();
    let head = written.head;
    (written.session == session && fits(&head.carry) && fits(&head.start)).then_some(head)
}

fn read(bytes: &[u8]) -> Option<Written> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (json, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    if sum != hex(&Sha256::digest(json.as_bytes())) {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// Whether a head that is there is whole, for `verify`: it is a cache, but a flipped bit in it is found too.
pub(crate) fn is_whole(disk: &dyn Disk, files: &LogFiles, session: SessionId) -> io::Result<bool> {
    match disk.meta(&files.dir.join(layout::HEAD))? {
        None => Ok(true),
        Some(_) => Ok(load(disk, files, session).is_some()),
    }
}

/// Makes the cache again. It is renamed into place, and not synced: a head that a power cut left behind is found out.
pub(crate) fn store(disk: &dyn Disk, dir: &Path, session: SessionId, head: Head) -> io::Result<()> {
    let mut text = serde_json::to_string(&Written { session, head })?;
    let sum = hex(&Sha256::digest(text.as_bytes()));
    text.push(' ');
    text.push_str(&sum);
    text.push('\n');
    let new = dir.join(layout::HEAD_NEW);
    let file = disk.open(&new, OpenHow::Write)?;
    file.truncate(0)?;
    if file.write_at(text.as_bytes(), 0)? < text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    disk.rename(&new, &dir.join(layout::HEAD))
}

/// The line at a mark, if it begins and ends there, has that number and follows from the line before.
pub(crate) fn line_at(disk: &dyn Disk, files: &LogFiles, mark: &Mark) -> io::Result<Option<Vec<u8>>> {
    if mark.file > files.last || link_before(disk, files, mark.file, mark.offset)? != Some(mark.prev) {
        return Ok(None);
    }
    let file = files.open(disk, mark.file)?;
    let mut lines = Lines::new(&*file, mark.offset);
    let Found::Line(bytes) = lines.next()? else {
        return Ok(None);
    };
    let fits =
        line::check(mark.prev, bytes) == Ok(mark.h) && envelope(bytes).is_ok_and(|e| e.seq == mark.seq);
    Ok(fits.then(|| bytes.to_vec()))
}
