//! Reads the lines of a file in sequence, with bounded memory for any content.

use std::io;

use minke_record::limits::LINE_BYTES;

use crate::files::disk::DiskFile;

/// The size of the first read: most requested lines are short.
const FIRST_READ_BYTES: usize = 16 * 1024;
/// The size of each further read.
const CHUNK_BYTES: usize = 256 * 1024;

/// The result of reading one line.
pub(crate) enum LineRead<'a> {
    /// A line, without its newline.
    Line(&'a [u8]),
    /// More bytes than a line may have, without a newline. The next call continues after its end.
    TooLong,
    /// The number of bytes at the end of the file without a newline.
    Unfinished(u64),
    End,
}

/// Reads the lines of a file from an offset.
pub(crate) struct LogLineReader<'f> {
    file: &'f dyn DiskFile,
    buffer: Vec<u8>,
    /// The end of the file's bytes in the buffer.
    filled_to: usize,
    /// The start of the next line in the buffer.
    next_line: usize,
    /// The end of the part of the buffer that was searched for a newline.
    searched_to: usize,
    /// The file offset of the buffer.
    buffer_offset: u64,
    at_end: bool,
}

impl<'f> LogLineReader<'f> {
    pub(crate) fn new(file: &'f dyn DiskFile, offset: u64) -> LogLineReader<'f> {
        LogLineReader {
            file,
            buffer: Vec::new(),
            filled_to: 0,
            next_line: 0,
            searched_to: 0,
            buffer_offset: offset,
            at_end: false,
        }
    }

    /// Returns the file offset of the next line.
    pub(crate) fn file_offset(&self) -> u64 {
        self.buffer_offset + self.next_line as u64
    }

    pub(crate) fn next(&mut self) -> io::Result<LineRead<'_>> {
        loop {
            if let Some(newline_at) = memchr::memchr(b'\n', &self.buffer[self.searched_to..self.filled_to]) {
                let (from, to) = (self.next_line, self.searched_to + newline_at);
                self.next_line = to + 1;
                self.searched_to = self.next_line;
                // The limit includes the newline.
                let long = to - from >= LINE_BYTES;
                return Ok(if long { LineRead::TooLong } else { LineRead::Line(&self.buffer[from..to]) });
            }
            self.searched_to = self.filled_to;
            if self.at_end {
                let rest = self.filled_to - self.next_line;
                self.next_line = self.filled_to;
                return Ok(if rest > 0 { LineRead::Unfinished(rest as u64) } else { LineRead::End });
            }
            if self.filled_to - self.next_line > LINE_BYTES {
                return self.skip_line();
            }
            self.fill_buffer()?;
        }
    }

    /// Moves the remaining bytes to the front and reads more.
    fn fill_buffer(&mut self) -> io::Result<()> {
        let rest = self.filled_to - self.next_line;
        let chunk = if self.buffer.is_empty() { FIRST_READ_BYTES } else { CHUNK_BYTES };
        if self.buffer.len() < rest + chunk {
            let mut larger = vec![0; rest + chunk];
            larger[..rest].copy_from_slice(&self.buffer[self.next_line..self.filled_to]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(self.next_line..self.filled_to, 0);
        }
        self.buffer_offset += self.next_line as u64;
        self.searched_to -= self.next_line;
        self.filled_to = rest;
        self.next_line = 0;
        let read = self.file.read_at(&mut self.buffer[rest..], self.buffer_offset + rest as u64)?;
        self.filled_to += read;
        self.at_end = read == 0;
        Ok(())
    }

    /// Skips a line that is too long, without buffering it.
    fn skip_line(&mut self) -> io::Result<LineRead<'_>> {
        let from = self.file_offset();
        loop {
            self.next_line = self.filled_to;
            self.searched_to = self.next_line;
            self.fill_buffer()?;
            if self.at_end {
                return Ok(LineRead::Unfinished(self.buffer_offset - from));
            }
            if let Some(newline_at) = memchr::memchr(b'\n', &self.buffer[..self.filled_to]) {
                self.next_line = newline_at + 1;
                self.searched_to = self.next_line;
                return Ok(LineRead::TooLong);
            }
        }
    }
}

/// Reads `bytes` bytes at `offset`, or fewer at the end of the file.
pub(crate) fn read_up_to(file: &dyn DiskFile, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
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
