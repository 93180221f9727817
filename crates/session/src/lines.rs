//! The lines of one file, one after another, with bounded memory whatever the file holds.

use std::io;

use minke_record::limits::LINE_BYTES;

use crate::disk::DiskFile;

/// What is read first: most lines that somebody looks for are short.
const FIRST_BYTES: usize = 16 * 1024;
/// What is read at once when reading goes on.
const CHUNK_BYTES: usize = 256 * 1024;

/// What stands at a place of the file.
pub(crate) enum Found<'a> {
    /// A line, without its newline.
    Line(&'a [u8]),
    /// More bytes than a line may have, without a newline. The next call goes on after its end.
    TooLong,
    /// Bytes at the end of the file without a newline.
    Unfinished(u64),
    End,
}

/// Reads the lines of a file from an offset on.
pub(crate) struct Lines<'f> {
    file: &'f dyn DiskFile,
    buffer: Vec<u8>,
    /// Up to here the buffer holds bytes of the file.
    filled: usize,
    /// Where in the buffer the next line begins.
    at: usize,
    /// Up to here the buffer was searched for a newline.
    searched: usize,
    /// Where in the file the buffer begins.
    base: u64,
    ended: bool,
}

impl<'f> Lines<'f> {
    pub(crate) fn new(file: &'f dyn DiskFile, offset: u64) -> Lines<'f> {
        Lines { file, buffer: Vec::new(), filled: 0, at: 0, searched: 0, base: offset, ended: false }
    }

    /// Where in the file the next line begins.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(crate) fn next(&mut self) -> io::Result<Found<'_>> {
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..self.filled]) {
                let (from, to) = (self.at, self.searched + found);
                self.at = to + 1;
                self.searched = self.at;
                // With its newline a line of the limit is one too long.
                let long = to - from >= LINE_BYTES;
                return Ok(if long { Found::TooLong } else { Found::Line(&self.buffer[from..to]) });
            }
            self.searched = self.filled;
            if self.ended {
                let rest = self.filled - self.at;
                self.at = self.filled;
                return Ok(if rest > 0 { Found::Unfinished(rest as u64) } else { Found::End });
            }
            if self.filled - self.at > LINE_BYTES {
                return self.skip();
            }
            self.fill()?;
        }
    }

    /// Moves what is left to the front and reads on behind it.
    fn fill(&mut self) -> io::Result<()> {
        let rest = self.filled - self.at;
        let chunk = if self.buffer.is_empty() { FIRST_BYTES } else { CHUNK_BYTES };
        if self.buffer.len() < rest + chunk {
            let mut larger = vec![0; rest + chunk];
            larger[..rest].copy_from_slice(&self.buffer[self.at..self.filled]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(self.at..self.filled, 0);
        }
        self.base += self.at as u64;
        self.searched -= self.at;
        self.filled = rest;
        self.at = 0;
        let read = self.file.read_at(&mut self.buffer[rest..], self.base + rest as u64)?;
        self.filled += read;
        self.ended = read == 0;
        Ok(())
    }

    /// Goes over a line that is too long without keeping it.
    fn skip(&mut self) -> io::Result<Found<'_>> {
        let from = self.offset();
        loop {
            self.at = self.filled;
            self.searched = self.at;
            self.fill()?;
            if self.ended {
                return Ok(Found::Unfinished(self.base - from));
            }
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[..self.filled]) {
                self.at = found + 1;
                self.searched = self.at;
                return Ok(Found::TooLong);
            }
        }
    }
}

/// Reads exactly `bytes` bytes at `offset`, or fewer where the file ends.
pub(crate) fn read_exactly(file: &dyn DiskFile, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        let read = file.read_at(&mut out[filled..], offset + filled as u64)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    out.truncate(filled);
    Ok(out)
}
