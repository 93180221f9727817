//! The one ordered stream: what all clients see, kept once for all of them.
//!
//! Here: the last pieces of the stream, and a cursor for each client that reads along. A client that reads too slowly
//! finds that its cursor has fallen out and goes on from the log (`clients::writing`). Elsewhere: what may enter, and
//! when (`outlet`).
//! Invariant: the pod never waits for a client, and a client that stops reading costs no more than the pieces that are
//! kept for everybody (`a_client_that_stops_reading_disturbs_nobody_and_costs_little`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_protocol::limits::{CLIENT_BYTES, CLIENT_EVENTS};
use tokio::sync::watch;

/// A piece of the stream that is never split: one live event, or all events of one entry.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Lines, each with its newline.
    pub(crate) lines: Arc<str>,
    pub(crate) events: usize,
    /// The entry that the events are made from.
    pub(crate) seq: Option<u64>,
}

/// A place in the stream: the number of the piece that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor(u64);

/// What a client gets when it asks for more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Lines were added; the last entry among them.
    Lines {
        next: Cursor,
        seq: Option<u64>,
    },
    Nothing,
    /// The piece is no longer kept: the client has fallen behind.
    Lost,
}

/// Counts as a reader of the stream while it lives.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Stream>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    kept: Mutex<Kept>,
    /// Where the stream ends; changes wake the writers.
    end: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    pieces: VecDeque<Piece>,
    /// Number of the first piece that is kept.
    first: u64,
    events: usize,
    bytes: usize,
    readers: usize,
    /// The pod is at its end: the line that every subscriber gets last.
    farewell: Option<Arc<str>>,
}

impl Kept {
    fn end(&self) -> u64 {
        self.first + self.pieces.len() as u64
    }

    fn drop_first(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.first += 1;
            self.events -= piece.events;
            self.bytes -= piece.lines.len();
        }
    }
}

impl Stream {
    pub(crate) fn new() -> Stream {
        Stream { kept: Mutex::default(), end: watch::Sender::new(0) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds the lock, and what it guards would still be whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody reads along.
    pub(crate) fn is_read(&self) -> bool {
        self.kept().readers > 0
    }

    /// Adds a piece. Readers are woken by `flush`.
    pub(crate) fn push(&self, piece: Piece) {
        let mut kept = self.kept();
        kept.events += piece.events;
        kept.bytes += piece.lines.len();
        kept.pieces.push_back(piece);
        while kept.pieces.len() > 1 && (kept.events > CLIENT_EVENTS || kept.bytes > CLIENT_BYTES) {
            kept.drop_first();
        }
    }

    /// Wakes those who read along, once for everything that was added.
    pub(crate) fn flush(&self) {
        let end = self.kept().end();
        self.end.send_if_modified(|old| std::mem::replace(old, end) != end);
    }

    /// Where the stream stands now.
    pub(crate) fn here(&self) -> Cursor {
        Cursor(self.kept().end())
    }

    /// Begins to read along from here on, as long as the ticket lives.
    pub(crate) fn join(self: &Arc<Stream>) -> (Ticket, Cursor) {
        let mut kept = self.kept();
        kept.readers += 1;
        (Ticket(Arc::clone(self)), Cursor(kept.end()))
    }

    /// Stops reading along. When nobody does, nothing is kept.
    fn leave(&self) {
        let mut kept = self.kept();
        kept.readers = kept.readers.saturating_sub(1);
        if kept.readers == 0 {
            while !kept.pieces.is_empty() {
                kept.drop_first();
            }
            kept.pieces.shrink_to_fit();
        }
    }

    /// Copies pieces from `at` on, not beyond `until`, as long as `out` stays below `room`; at least one.
    pub(crate) fn take(&self, at: Cursor, until: Option<Cursor>, room: usize, out: &mut Vec<u8>) -> Taken {
        let kept = self.kept();
        let Some(skip) = at.0.checked_sub(kept.first) else { return Taken::Lost };
        let end = until.map_or(kept.end(), |until| until.0.min(kept.end()));
        let (mut next, mut seq) = (at.0, None);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        for piece in kept.pieces.iter().skip(skip) {
            if next >= end || (next > at.0 && out.len() + piece.lines.len() > room) {
                break;
            }
            out.extend_from_slice(piece.lines.as_bytes());
            seq = piece.seq.or(seq);
            next += 1;
        }
        if next == at.0 { Taken::Nothing } else { Taken::Lines { next: Cursor(next), seq } }
    }

    /// For a writer that waits until there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Says the last line: every writer sends it when it has sent everything else, and ends.
    pub(crate) fn say_farewell(&self, line: Arc<str>) {
        self.kept().farewell = Some(line);
        self.end.send_modify(|_| {});
    }

    pub(crate) fn farewell(&self) -> Option<Arc<str>> {
        self.kept().farewell.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(text: &str, seq: Option<u64>) -> Piece {
        Piece { lines: text.into(), events: 1, seq }
    }

    #[test]
    fn a_reader_gets_what_came_after_it_joined() {
        let stream = Arc::new(Stream::new());
        let (_ticket, at) = stream.join();
        stream.push(piece("a\n", None));
        stream.push(piece("b\n", Some(7)));
        let mut out = Vec::new();
        let Taken::Lines { next, seq } = stream.take(at, None, 1_000, &mut out) else { panic!("nothing") };
        assert_eq!((out.as_slice(), seq), (&b"a\nb\n"[..], Some(7)));
        assert_eq!(stream.take(next, None, 1_000, &mut out), Taken::Nothing);
    }

    #[test]
    fn a_slow_reader_is_told_that_it_is_lost_and_nothing_grows() {
        let stream = Arc::new(Stream::new());
        let (ticket, at) = stream.join();
        for _ in 0..=CLIENT_EVENTS {
            stream.push(piece("x\n", None));
        }
        assert_eq!(stream.take(at, None, 10, &mut Vec::new()), Taken::Lost);
        assert_eq!(stream.kept().events, CLIENT_EVENTS);
        drop(ticket);
        assert!(stream.kept().pieces.is_empty());
    }

    #[test]
    fn a_large_piece_is_given_alone_and_never_split() {
        let stream = Arc::new(Stream::new());
        let (_ticket, at) = stream.join();
        let large = "y".repeat(CLIENT_BYTES + 1);
        stream.push(piece(&large, None));
        let mut out = Vec::new();
        assert!(matches!(stream.take(at, None, 10, &mut out), Taken::Lines { .. }));
        assert_eq!(out.len(), large.len());
    }
}
