//! The line codec: splits a byte stream into lines.
//!
//! Here: finding lines and limiting their length. Elsewhere: reading bytes (`driver`, `client`), parsing a
//! line (`request`, `frame`).
//! Invariant: chunk boundaries do not affect the lines (`any_cutting_gives_the_same_lines`), and a line of
//! any length needs at most the memory of one frame (`an_endless_line_costs_one_frame`).

use std::collections::VecDeque;
use std::fmt;

use crate::limits::MAX_FRAME_BYTES;

/// Splits received bytes into lines. Use one reader per connection, because it stores an incomplete line
/// between reads.
#[derive(Debug)]
pub struct LineReader {
    /// Complete lines, then the start of the next one, without newlines and blank lines.
    bytes: Vec<u8>,
    /// Number of bytes that were returned.
    consumed: usize,
    /// Lengths of the pending lines in `bytes` after `consumed`.
    pending: VecDeque<PendingLine>,
    /// Length of the incomplete line at the end of `bytes`.
    partial_len: usize,
    /// The current line is too long and is skipped up to its newline.
    skipping: bool,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
enum PendingLine {
    Line(usize),
    TooLong,
}

/// An unreadable line. The connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineReadError {
    /// Longer than a frame. The line is skipped.
    TooLong { limit: usize },
    /// Invalid UTF-8 at this byte of the line.
    NotUtf8 { at: usize },
}

impl fmt::Display for LineReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineReadError::TooLong { limit } => {
                write!(
                    f,
                    "the line is longer than {limit} bytes and was skipped: send large content as a blob"
                )
            }
            LineReadError::NotUtf8 { at } => write!(f, "the line is not UTF-8 from byte {at} on"),
        }
    }
}

impl std::error::Error for LineReadError {}

impl Default for LineReader {
    fn default() -> Self {
        LineReader::new()
    }
}

impl LineReader {
    pub fn new() -> LineReader {
        LineReader::with_limit(MAX_FRAME_BYTES)
    }

    /// Creates a reader with another limit, for tests and for short lines.
    pub fn with_limit(limit: usize) -> LineReader {
        LineReader {
            bytes: Vec::new(),
            consumed: 0,
            pending: VecDeque::new(),
            partial_len: 0,
            skipping: false,
            limit,
        }
    }

    /// Adds received bytes. Call `next` until it returns `None` before the next `push`, so that at most one
    /// incomplete line is stored.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.drop_consumed();
        while !bytes.is_empty() {
            match memchr::memchr(b'\n', bytes) {
                Some(at) => {
                    let (piece, rest) = bytes.split_at(at);
                    self.push_piece(piece);
                    self.end_line();
                    bytes = rest.get(1..).unwrap_or_default();
                }
                None => {
                    self.push_piece(bytes);
                    return;
                }
            }
        }
    }

    /// Returns the next complete line without its newline.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrows of itself")]
    pub fn next(&mut self) -> Option<Result<&str, LineReadError>> {
        match self.pending.pop_front()? {
            PendingLine::TooLong => Some(Err(LineReadError::TooLong { limit: self.limit })),
            PendingLine::Line(length) => {
                let start = self.consumed;
                self.consumed += length;
                let line = self.bytes.get(start..self.consumed).unwrap_or_default();
                Some(std::str::from_utf8(line).map_err(|e| LineReadError::NotUtf8 { at: e.valid_up_to() }))
            }
        }
    }

    /// Returns whether a line is incomplete. The line is lost if the connection ends there.
    pub fn is_mid_line(&self) -> bool {
        self.partial_len > 0 || self.skipping
    }

    /// Adds a part of the current line.
    fn push_piece(&mut self, piece: &[u8]) {
        if self.skipping {
            return;
        }
        if self.partial_len + piece.len() > self.limit {
            self.bytes.truncate(self.bytes.len() - self.partial_len);
            self.partial_len = 0;
            self.skipping = true;
            self.pending.push_back(PendingLine::TooLong);
            return;
        }
        self.reserve_bytes(piece.len());
        self.bytes.extend_from_slice(piece);
        self.partial_len += piece.len();
    }

    /// Doubles the capacity up to one frame. `Vec` alone would grow up to two frames.
    fn reserve_bytes(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).min(self.limit);
            self.bytes.reserve_exact(needed.max(doubled) - self.bytes.len());
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.skipping) {
            return;
        }
        let start = self.bytes.len() - std::mem::take(&mut self.partial_len);
        let line = self.bytes.get(start..).unwrap_or_default();
        if line.iter().all(u8::is_ascii_whitespace) {
            self.bytes.truncate(start);
        } else {
            self.pending.push_back(PendingLine::Line(line.len()));
        }
    }

    /// Removes returned bytes. Releases the memory of a long line, so that an idle client needs little.
    fn drop_consumed(&mut self) {
        const RETAINED_BYTES: usize = 64 * 1024;
        if self.consumed > 0 {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
        if self.bytes.len() < RETAINED_BYTES && self.bytes.capacity() > 4 * RETAINED_BYTES {
            self.bytes.shrink_to(RETAINED_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_costs_one_frame() {
        let mut reader = LineReader::new();
        let piece = vec![b'x'; 64 * 1024];
        let mut faults = 0;
        let mut most = 0;
        // 64 MiB. Nothing is stored beyond the limit, so a gigabyte would need the same memory.
        for _ in 0..1_024 {
            reader.push(&piece);
            most = most.max(reader.bytes.capacity());
            while let Some(line) = reader.next() {
                assert_eq!(line, Err(LineReadError::TooLong { limit: MAX_FRAME_BYTES }));
                faults += 1;
            }
        }
        assert_eq!(faults, 1);
        assert!(most <= MAX_FRAME_BYTES + piece.len(), "{most} bytes were stored");
        assert!(reader.is_mid_line());
        reader.push(b"\n{}\n");
        assert_eq!(reader.next(), Some(Ok("{}")));
        assert_eq!(reader.next(), None);
        assert!(!reader.is_mid_line());
        reader.push(b"");
        assert!(reader.bytes.capacity() <= 256 * 1024, "the memory of the long line was not released");
    }

    #[test]
    fn a_line_of_exactly_one_frame_is_taken() {
        let mut reader = LineReader::with_limit(4);
        reader.push(b"abcd\nabcde\nab");
        assert_eq!(reader.next(), Some(Ok("abcd")));
        assert_eq!(reader.next(), Some(Err(LineReadError::TooLong { limit: 4 })));
        assert_eq!(reader.next(), None);
        reader.push(b"c\r\n \t\n\n\xff\n");
        assert_eq!(reader.next(), Some(Ok("abc\r")));
        assert_eq!(reader.next(), Some(Err(LineReadError::NotUtf8 { at: 0 })));
        assert_eq!(reader.next(), None);
    }
}
