//! Finding a place in a log without reading what comes before it.
//!
//! What is found here is only claimed by the lines themselves; whoever reads on from there checks the chain (`walk`).

use std::io;

use minke_record::{Chain, line};

use crate::disk::{Disk, DiskFile};
use crate::lines::{Found, Lines, read_exactly};
use crate::walk::{LogFiles, Place, envelope};

/// The link of the line that ends right before an offset, as it claims it. `None` where no line ends.
pub(crate) fn link_before(
    disk: &dyn Disk,
    files: &LogFiles,
    index: u32,
    offset: u64,
) -> io::Result<Option<Chain>> {
    if index == 0 && offset == 0 {
        return Ok(Some(Chain::ZERO));
    }
    let (file, offset) = if offset == 0 {
        let file = files.open(disk, index - 1)?;
        let end = file.size()?;
        (file, end)
    } else {
        (files.open(disk, index)?, offset)
    };
    link_ending_at(&*file, offset)
}

/// The same in an open file.
pub(crate) fn link_ending_at(file: &dyn DiskFile, offset: u64) -> io::Result<Option<Chain>> {
    const TAIL: u64 = 41;
    let Some(from) = offset.checked_sub(TAIL) else {
        return Ok(None);
    };
    let bytes = read_exactly(file, from, 41)?;
    let Some((b'\n', line)) = bytes.split_last() else {
        return Ok(None);
    };
    Ok(line::claimed(line).ok())
}

/// How far apart the ends of the search may be before lines are read one by one.
const SEARCH_BYTES: u64 = 128 * 1024;

/// Finds the place of an entry without reading what comes before it. `None` if it is not where it should be: then
/// only a walk from the beginning can tell.
pub(crate) fn locate(disk: &dyn Disk, files: &LogFiles, seq: u64) -> io::Result<Option<Place>> {
    let mut index = files.last;
    let file = loop {
        let file = files.open(disk, index)?;
        match first_seq(&*file, 0)? {
            Some((_, first)) if first <= seq => break file,
            _ if index == 0 => return Ok(None),
            _ => index -= 1,
        }
    };
    let (mut low, mut high) = (0, file.size()?);
    while high - low > SEARCH_BYTES {
        let middle = low + (high - low) / 2;
        match first_seq(&*file, middle)? {
            Some((at, found)) if found <= seq && at < high => low = at,
            _ => high = middle,
        }
    }
    let mut lines = Lines::new(&*file, low);
    loop {
        let offset = lines.offset();
        let Found::Line(bytes) = lines.next()? else {
            return Ok(None);
        };
        match envelope(bytes) {
            Ok(envelope) if envelope.seq == seq => {
                let prev = link_before(disk, files, index, offset)?;
                return Ok(prev.map(|prev| Place { file: index, offset, seq, prev }));
            }
            Ok(envelope) if envelope.seq < seq => {}
            _ => return Ok(None),
        }
    }
}

/// The first whole line that begins at or after an offset: where, and its number.
fn first_seq(file: &dyn DiskFile, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let mut lines = Lines::new(file, offset);
    if offset > 0 {
        lines.next()?;
    }
    let at = lines.offset();
    Ok(match lines.next()? {
        Found::Line(bytes) => envelope(bytes).ok().map(|envelope| (at, envelope.seq)),
        Found::TooLong | Found::Unfinished(_) | Found::End => None,
    })
}
