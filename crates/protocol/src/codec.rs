//! The line codec: from bytes in any pieces to whole lines.
//!
//! Here: finding lines, bounding them. Elsewhere: the bytes (`driver`, `client`), what a line means (`request`, `frame`).
//! Invariant: how the bytes are cut does not change the lines (`any_cutting_gives_the_same_lines`), and a line of any
//! length costs no more than one frame (`an_endless_line_costs_one_frame`).

use std::collections::VecDeque;
use std::fmt;

use crate::limits::FRAME_BYTES;

/// Takes bytes as they come and gives lines. It belongs to the connection, not to one read: a half-received line
/// survives everything but the connection's end.
#[derive(Debug)]
pub struct LineReader {
    /// Whole lines, then the beginning of the next one. Newlines and blank lines are not kept.
    bytes: Vec<u8>,
    /// Up to here the bytes have been given out.
    given: usize,
    /// What stands in `bytes` from `given` on.
    found: VecDeque<Found>,
    /// Length of the beginning at the end of `bytes`.
    begun: usize,
    /// The line that is coming is too long: it is skipped to its newline.
    skipping: bool,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
enum Found {
    Line(usize),
    TooLong,
}

/// A line that could not be given. The connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFault {
    /// Longer than a frame; it is skipped.
    TooLong { limit: usize },
    /// Not UTF-8 from this byte of the line on.
    NotUtf8 { at: usize },
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFault::TooLong { limit } => {
                write!(
                    f,
                    "the line is longer than {limit} bytes and was skipped; send large content as a blob"
                )
            }
            LineFault::NotUtf8 { at } => write!(f, "the line is not UTF-8 from byte {at} on"),
        }
    }
}

impl std::error::Error for LineFault {}

impl Default for LineReader {
    fn default() -> Self {
        LineReader::new()
    }
}

impl LineReader {
    pub fn new() -> LineReader {
        LineReader::with_limit(FRAME_BYTES)
    }

    /// For tests, and for lines that are known to be short.
    pub fn with_limit(limit: usize) -> LineReader {
        LineReader { bytes: Vec::new(), given: 0, found: VecDeque::new(), begun: 0, skipping: false, limit }
    }

    /// Takes the next bytes. Call `next` until it gives nothing before the next `push`, so that only one unfinished
    /// line is ever kept.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.forget_given();
        while !bytes.is_empty() {
            match memchr::memchr(b'\n', bytes) {
                Some(at) => {
                    let (piece, rest) = bytes.split_at(at);
                    self.take(piece);
                    self.end_line();
                    bytes = rest.get(1..).unwrap_or_default();
                }
                None => {
                    self.take(bytes);
                    return;
                }
            }
        }
    }

    /// The next whole line, without its newline.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it owns")]
    pub fn next(&mut self) -> Option<Result<&str, LineFault>> {
        match self.found.pop_front()? {
            Found::TooLong => Some(Err(LineFault::TooLong { limit: self.limit })),
            Found::Line(length) => {
                let start = self.given;
                self.given += length;
                let line = self.bytes.get(start..self.given).unwrap_or_default();
                Some(std::str::from_utf8(line).map_err(|e| LineFault::NotUtf8 { at: e.valid_up_to() }))
            }
        }
    }

    /// Whether a line has begun and not ended: at the end of a connection it is lost, since it was never whole.
    pub fn is_mid_line(&self) -> bool {
        self.begun > 0 || self.skipping
    }

    /// A piece of the line that is coming.
    fn take(&mut self, piece: &[u8]) {
        if self.skipping {
            return;
        }
        if self.begun + piece.len() > self.limit {
            self.bytes.truncate(self.bytes.len() - self.begun);
            self.begun = 0;
            self.skipping = true;
            self.found.push_back(Found::TooLong);
            return;
        }
        self.make_room(piece.len());
        self.bytes.extend_from_slice(piece);
        self.begun += piece.len();
    }

    /// Grows by doubling, but not beyond one frame: a vector left to itself would keep up to two.
    fn make_room(&mut self, more: usize) {
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
        let start = self.bytes.len() - std::mem::take(&mut self.begun);
        let line = self.bytes.get(start..).unwrap_or_default();
        if line.iter().all(u8::is_ascii_whitespace) {
            self.bytes.truncate(start);
        } else {
            self.found.push_back(Found::Line(line.len()));
        }
    }

    /// Frees what has been given out. After a long line the room goes back, so that an idle client costs little.
    fn forget_given(&mut self) {
        const KEPT_BYTES: usize = 64 * 1024;
        if self.given > 0 {
            self.bytes.drain(..self.given);
            self.given = 0;
        }
        if self.bytes.len() < KEPT_BYTES && self.bytes.capacity() > 4 * KEPT_BYTES {
            self.bytes.shrink_to(KEPT_BYTES);
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
        // 64 MiB; the limit is passed once and then nothing is kept, so a gigabyte would cost the same.
        for _ in 0..1_024 {
            reader.push(&piece);
            most = most.max(reader.bytes.capacity());
            while let Some(line) = reader.next() {
                assert_eq!(line, Err(LineFault::TooLong { limit: FRAME_BYTES }));
                faults += 1;
            }
        }
        assert_eq!(faults, 1);
        assert!(most <= FRAME_BYTES + piece.len(), "{most} bytes were kept");
        assert!(reader.is_mid_line());
        reader.push(b"\n{}\n");
        assert_eq!(reader.next(), Some(Ok("{}")));
        assert_eq!(reader.next(), None);
        assert!(!reader.is_mid_line());
        reader.push(b"");
        assert!(reader.bytes.capacity() <= 256 * 1024, "the room of the long line is kept");
    }

    #[test]
    fn a_line_of_exactly_one_frame_is_taken() {
        let mut reader = LineReader::with_limit(4);
        reader.push(b"abcd\nabcde\nab");
        assert_eq!(reader.next(), Some(Ok("abcd")));
        assert_eq!(reader.next(), Some(Err(LineFault::TooLong { limit: 4 })));
        assert_eq!(reader.next(), None);
        reader.push(b"c\r\n \t\n\n\xff\n");
        assert_eq!(reader.next(), Some(Ok("abc\r")));
        assert_eq!(reader.next(), Some(Err(LineFault::NotUtf8 { at: 0 })));
        assert_eq!(reader.next(), None);
    }
}
