//! Finds an entry in a log without reading the entries before it.
//!
//! The result relies on unverified lines; a reader that continues from there checks the chain (`walk`).

use std::io;

use minke_record::{ChainHash, line};

use crate::files::disk::{Disk, DiskFile};
use crate::log::lines::{LineRead, LogLineReader, read_up_to};
use crate::log::walk::{LogFiles, LogLocation, parse_envelope};

/// Returns the unverified link of the line that ends at an offset. `None` if no line ends there.
pub(crate) fn link_before_offset(
    disk: &dyn Disk,
    files: &LogFiles,
    index: u32,
    offset: u64,
) -> io::Result<Option<ChainHash>> {
    if index == 0 && offset == 0 {
        return Ok(Some(ChainHash::ZERO));
    }
    let (file, offset) = if offset == 0 {
        let file = files.open_file(disk, index - 1)?;
        let end = file.size()?;
        (file, end)
    } else {
        (files.open_file(disk, index)?, offset)
    };
    link_ending_at(&*file, offset)
}

/// The same in an open file.
pub(crate) fn link_ending_at(file: &dyn DiskFile, offset: u64) -> io::Result<Option<ChainHash>> {
    const LINK_BYTES: u64 = 41;
    let Some(from) = offset.checked_sub(LINK_BYTES) else {
        return Ok(None);
    };
    let bytes = read_up_to(file, from, 41)?;
    let Some((b'\n', line)) = bytes.split_last() else {
        return Ok(None);
    };
    Ok(line::claimed_link(line).ok())
}

/// The size of the interval below which lines are read one by one.
const MIN_SEARCH_BYTES: u64 = 128 * 1024;

/// Finds an entry by binary search. Returns `None` if it is not at the expected position: then only a walk from the
/// beginning can find it.
pub(crate) fn locate_entry(disk: &dyn Disk, files: &LogFiles, seq: u64) -> io::Result<Option<LogLocation>> {
    let mut index = files.last;
    let file = loop {
        let file = files.open_file(disk, index)?;
        match first_seq_after(&*file, 0)? {
            Some((_, first)) if first <= seq => break file,
            _ if index == 0 => return Ok(None),
            _ => index -= 1,
        }
    };
    let (mut low, mut high) = (0, file.size()?);
    while high - low > MIN_SEARCH_BYTES {
        let middle = low + (high - low) / 2;
        match first_seq_after(&*file, middle)? {
            Some((at, found)) if found <= seq && at < high => low = at,
            _ => high = middle,
        }
    }
    let mut lines = LogLineReader::new(&*file, low);
    loop {
        let offset = lines.file_offset();
        let LineRead::Line(bytes) = lines.next()? else {
            return Ok(None);
        };
        match parse_envelope(bytes) {
            Ok(envelope) if envelope.seq == seq => {
                let prev = link_before_offset(disk, files, index, offset)?;
                return Ok(prev.map(|prev| LogLocation { file: index, offset, seq, prev }));
            }
            Ok(envelope) if envelope.seq < seq => {}
            _ => return Ok(None),
        }
    }
}

/// Returns the offset and the number of the first whole line at or after an offset.
fn first_seq_after(file: &dyn DiskFile, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let mut lines = LogLineReader::new(file, offset);
    if offset > 0 {
        lines.next()?;
    }
    let at = lines.file_offset();
    Ok(match lines.next()? {
        LineRead::Line(bytes) => parse_envelope(bytes).ok().map(|envelope| (at, envelope.seq)),
        LineRead::TooLong | LineRead::Unfinished(_) | LineRead::End => None,
    })
}
