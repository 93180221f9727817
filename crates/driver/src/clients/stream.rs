//! The event stream: one ordered sequence that all clients share.
//!
//! Here: the newest pieces of the stream, and a cursor for each subscribed client. A client that reads too
//! slowly loses its position and continues from the log (`clients::writer`). Elsewhere: which events enter,
//! and when (`release_queue`).
//! Invariant: the pod never waits for a client, and a client that stops reading costs no more than the shared
//! buffer (`a_client_that_stops_reading_disturbs_nobody_and_costs_little`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_protocol::limits::{CLIENT_QUEUE_BYTES, CLIENT_QUEUE_EVENTS};
use tokio::sync::watch;

/// A piece of the stream that is never split: one live event, or all events of one entry.
#[derive(Debug, Clone)]
pub(crate) struct StreamPiece {
    /// Lines, each with its newline.
    pub(crate) lines: Arc<str>,
    pub(crate) events: usize,
    /// The entry that the events belong to.
    pub(crate) seq: Option<u64>,
}

/// A position in the stream: the number of the next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamCursor(u64);

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamRead {
    /// Lines were added, up to the given entry.
    Lines {
        next: StreamCursor,
        seq: Option<u64>,
    },
    UpToDate,
    /// The piece was dropped: the client has fallen behind.
    FellBehind,
}

/// Counts as a reader of the stream until it is dropped.
#[derive(Debug)]
pub(crate) struct ReaderTicket(Arc<PodEventStream>);

impl Drop for ReaderTicket {
    fn drop(&mut self) {
        self.0.unsubscribe();
    }
}

#[derive(Debug)]
pub(crate) struct PodEventStream {
    buffer: Mutex<StreamBuffer>,
    /// The end of the stream; a change wakes the writers.
    end: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct StreamBuffer {
    pieces: VecDeque<StreamPiece>,
    /// Number of the first piece in the buffer.
    first: u64,
    events: usize,
    bytes: usize,
    readers: usize,
    /// Set when the pod stops: the last line of every subscriber.
    farewell: Option<Arc<str>>,
}

impl StreamBuffer {
    fn end_position(&self) -> u64 {
        self.first + self.pieces.len() as u64
    }

    fn drop_oldest(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.first += 1;
            self.events -= piece.events;
            self.bytes -= piece.lines.len();
        }
    }
}

impl PodEventStream {
    pub(crate) fn new() -> PodEventStream {
        PodEventStream { buffer: Mutex::default(), end: watch::Sender::new(0) }
    }

    fn lock_buffer(&self) -> MutexGuard<'_, StreamBuffer> {
        // No code panics while it holds the lock, and the guarded value would still be consistent.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the stream has readers.
    pub(crate) fn has_readers(&self) -> bool {
        self.lock_buffer().readers > 0
    }

    /// Adds a piece. `wake_readers` wakes the readers.
    pub(crate) fn push_piece(&self, piece: StreamPiece) {
        let mut kept = self.lock_buffer();
        kept.events += piece.events;
        kept.bytes += piece.lines.len();
        kept.pieces.push_back(piece);
        while kept.pieces.len() > 1 && (kept.events > CLIENT_QUEUE_EVENTS || kept.bytes > CLIENT_QUEUE_BYTES)
        {
            kept.drop_oldest();
        }
    }

    /// Wakes the readers once for all added pieces.
    pub(crate) fn wake_readers(&self) {
        let end = self.lock_buffer().end_position();
        self.end.send_if_modified(|old| std::mem::replace(old, end) != end);
    }

    /// The current end of the stream.
    pub(crate) fn position(&self) -> StreamCursor {
        StreamCursor(self.lock_buffer().end_position())
    }

    /// Subscribes from the current end, until the ticket is dropped.
    pub(crate) fn subscribe(self: &Arc<PodEventStream>) -> (ReaderTicket, StreamCursor) {
        let mut kept = self.lock_buffer();
        kept.readers += 1;
        (ReaderTicket(Arc::clone(self)), StreamCursor(kept.end_position()))
    }

    /// Removes a reader. Without readers nothing is buffered.
    fn unsubscribe(&self) {
        let mut kept = self.lock_buffer();
        kept.readers = kept.readers.saturating_sub(1);
        if kept.readers == 0 {
            while !kept.pieces.is_empty() {
                kept.drop_oldest();
            }
            kept.pieces.shrink_to_fit();
        }
    }

    /// Copies pieces from `at` up to `until`, while `out` is shorter than `room`; at least one.
    pub(crate) fn copy_pieces(
        &self,
        at: StreamCursor,
        until: Option<StreamCursor>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> StreamRead {
        let kept = self.lock_buffer();
        let Some(skip) = at.0.checked_sub(kept.first) else { return StreamRead::FellBehind };
        let end = until.map_or(kept.end_position(), |until| until.0.min(kept.end_position()));
        let (mut next, mut seq) = (at.0, None);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        for piece in kept.pieces.iter().skip(skip) {
            if next >= end || (next > at.0 && out.len() + piece.lines.len() > max_bytes) {
                break;
            }
            out.extend_from_slice(piece.lines.as_bytes());
            seq = piece.seq.or(seq);
            next += 1;
        }
        if next == at.0 { StreamRead::UpToDate } else { StreamRead::Lines { next: StreamCursor(next), seq } }
    }

    /// A receiver for a writer that waits for more pieces.
    pub(crate) fn watch_end(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Sets the last line: every writer sends it after everything else and then ends.
    pub(crate) fn set_farewell(&self, line: Arc<str>) {
        self.lock_buffer().farewell = Some(line);
        self.end.send_modify(|_| {});
    }

    pub(crate) fn farewell(&self) -> Option<Arc<str>> {
        self.lock_buffer().farewell.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_piece(text: &str, seq: Option<u64>) -> StreamPiece {
        StreamPiece { lines: text.into(), events: 1, seq }
    }

    #[test]
    fn a_reader_gets_what_came_after_it_joined() {
        let stream = Arc::new(PodEventStream::new());
        let (_ticket, at) = stream.subscribe();
        stream.push_piece(new_piece("a\n", None));
        stream.push_piece(new_piece("b\n", Some(7)));
        let mut out = Vec::new();
        let StreamRead::Lines { next, seq } = stream.copy_pieces(at, None, 1_000, &mut out) else {
            panic!("nothing")
        };
        assert_eq!((out.as_slice(), seq), (&b"a\nb\n"[..], Some(7)));
        assert_eq!(stream.copy_pieces(next, None, 1_000, &mut out), StreamRead::UpToDate);
    }

    #[test]
    fn a_slow_reader_is_told_that_it_is_lost_and_nothing_grows() {
        let stream = Arc::new(PodEventStream::new());
        let (ticket, at) = stream.subscribe();
        for _ in 0..=CLIENT_QUEUE_EVENTS {
            stream.push_piece(new_piece("x\n", None));
        }
        assert_eq!(stream.copy_pieces(at, None, 10, &mut Vec::new()), StreamRead::FellBehind);
        assert_eq!(stream.lock_buffer().events, CLIENT_QUEUE_EVENTS);
        drop(ticket);
        assert!(stream.lock_buffer().pieces.is_empty());
    }

    #[test]
    fn a_large_piece_is_given_alone_and_never_split() {
        let stream = Arc::new(PodEventStream::new());
        let (_ticket, at) = stream.subscribe();
        let large = "y".repeat(CLIENT_QUEUE_BYTES + 1);
        stream.push_piece(new_piece(&large, None));
        let mut out = Vec::new();
        assert!(matches!(stream.copy_pieces(at, None, 10, &mut out), StreamRead::Lines { .. }));
        assert_eq!(out.len(), large.len());
    }
}
