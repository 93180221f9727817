//! The byte stream of a reply: encodes the script's stream and splits the bytes according to the options.
//!
//! Here: framing, compression, splitting and cutting. Elsewhere: the encoding of each format (one file per
//! format). Invariant: without a cut the bytes are the same for every split
//! (`any_split_carries_the_same_bytes` in `tests/mock.rs`).

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use hyper::body::Frame;
use minke_model::ModelErrorKind;
use thiserror::Error;

use crate::encoder::{ReplyEncoder, WireEvent};
use minke_llm::StreamBeat;

/// How the bytes of a reply are split into writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteSplit {
    /// One event per write.
    #[default]
    Events,
    /// N bytes per write.
    Bytes(usize),
    /// 1 to `RANDOM_BYTES` bytes per write, determined by the seed.
    Random(u64),
}

/// The longest random piece.
const MAX_RANDOM_BYTES: u64 = 32;

/// How events are converted to bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyFormat {
    pub(crate) frames: EventFraming,
    pub(crate) split: WriteSplit,
    pub(crate) gzip: bool,
    pub(crate) comments: bool,
    pub(crate) cut_in_event: bool,
}

/// The framing of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventFraming {
    Lf,
    Crlf,
    /// One JSON array with one event per element.
    Array,
}

/// The server drops the connection here.
#[derive(Debug, Clone, Copy, Error)]
#[error("the script cuts the stream here")]
pub(crate) struct ConnectionCut;

/// Returns the bytes of a reply, encoded while its script plays.
pub(crate) fn reply_body(
    beats: VecDeque<StreamBeat>,
    encoder: Box<dyn ReplyEncoder>,
    format: ReplyFormat,
) -> impl Stream<Item = Result<Frame<Bytes>, ConnectionCut>> + Send {
    let state = ReplyStream {
        beats,
        encoder,
        format,
        gzip: format.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        pieces: VecDeque::new(),
        pending_event: Vec::new(),
        random_state: random_seed(format.split),
        event_count: 0,
        phase: StreamPhase::Begin,
    };
    futures_util::stream::unfold(state, ReplyStream::next_piece)
}

struct ReplyStream {
    beats: VecDeque<StreamBeat>,
    encoder: Box<dyn ReplyEncoder>,
    format: ReplyFormat,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Pieces to be written.
    pieces: VecDeque<Bytes>,
    /// The latest event, withheld while it may have to be cut.
    pending_event: Vec<u8>,
    random_state: u64,
    event_count: u64,
    phase: StreamPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPhase {
    Begin,
    Beats,
    Interrupted,
    Finished,
}

impl ReplyStream {
    async fn next_piece(mut self) -> Option<(Result<Frame<Bytes>, ConnectionCut>, ReplyStream)> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                if self.format.split != WriteSplit::Events {
                    // The connection flushes when the body is not ready.
                    tokio::task::yield_now().await;
                }
                return Some((Ok(Frame::data(piece)), self));
            }
            match self.phase {
                StreamPhase::Begin => {
                    let mut events = Vec::new();
                    self.encoder.encode_begin(&mut events);
                    self.write_events(&events);
                    self.phase = StreamPhase::Beats;
                }
                StreamPhase::Beats => self.next_beat().await,
                StreamPhase::Interrupted => {
                    // Flush the previous output first.
                    tokio::task::yield_now().await;
                    self.phase = StreamPhase::Finished;
                    return Some((Err(ConnectionCut), self));
                }
                StreamPhase::Finished => return None,
            }
        }
    }

    async fn next_beat(&mut self) {
        tokio::task::coop::consume_budget().await;
        match self.beats.pop_front() {
            Some(StreamBeat::Event(event)) => {
                let mut events = Vec::new();
                self.encoder.encode_event(&event, &mut events);
                self.write_events(&events);
            }
            Some(StreamBeat::Wait(time)) => tokio::time::sleep(time).await,
            Some(StreamBeat::Fail(failure)) if failure.kind == ModelErrorKind::Interrupted => {
                let half = self.pending_event.len() / 2;
                self.pending_event.truncate(half);
                let held = std::mem::take(&mut self.pending_event);
                self.write_bytes(&held);
                self.phase = StreamPhase::Interrupted;
            }
            Some(StreamBeat::Fail(failure)) => {
                let mut events = Vec::new();
                self.encoder.encode_error(&failure, &mut events);
                self.write_events(&events);
                self.finish_stream();
            }
            None => self.finish_stream(),
        }
    }

    fn write_events(&mut self, told: &[WireEvent]) {
        for event in told {
            let bytes = self.frame_event(event);
            if self.format.cut_in_event {
                let before = std::mem::replace(&mut self.pending_event, bytes);
                self.write_bytes(&before);
            } else {
                self.write_bytes(&bytes);
            }
        }
    }

    fn frame_event(&mut self, event: &WireEvent) -> Vec<u8> {
        self.event_count += 1;
        let end = match self.format.frames {
            EventFraming::Lf => "\n",
            EventFraming::Crlf => "\r\n",
            EventFraming::Array => {
                let before = if self.event_count == 1 { "[" } else { "\n,\n" };
                return format!("{before}{}", event.data).into_bytes();
            }
        };
        let comment = if self.format.comments {
            format!(": keep-alive {}{end}{end}", self.event_count)
        } else {
            String::new()
        };
        let name = if event.name.is_empty() { String::new() } else { format!("event: {}{end}", event.name) };
        format!("{comment}{name}data: {}{end}{end}", event.data).into_bytes()
    }

    fn finish_stream(&mut self) {
        let mut rest = std::mem::take(&mut self.pending_event);
        if self.format.frames == EventFraming::Array {
            rest.extend_from_slice(if self.event_count == 0 { b"[]" } else { b"\n]\n" });
        }
        self.write_bytes(&rest);
        if let Some(gzip) = self.gzip.take() {
            let last = gzip.finish().expect("writing to a vector cannot fail");
            self.split_bytes(&last);
        }
        self.phase = StreamPhase::Finished;
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(gzip) = &mut self.gzip else { return self.split_bytes(bytes) };
        // Flush after every event, so that a client sees it immediately, as without compression.
        gzip.write_all(bytes).and_then(|()| gzip.flush()).expect("writing to a vector cannot fail");
        let packed = std::mem::take(gzip.get_mut());
        self.split_bytes(&packed);
    }

    fn split_bytes(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = match self.format.split {
                WriteSplit::Events => rest.len(),
                WriteSplit::Bytes(size) => size.max(1),
                WriteSplit::Random(_) => self.next_random_size(),
            };
            let (piece, left) = rest.split_at(size.min(rest.len()));
            self.pieces.push_back(Bytes::copy_from_slice(piece));
            rest = left;
        }
    }

    /// xorshift64: random enough for splitting, and reproducible.
    fn next_random_size(&mut self) -> usize {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        usize::try_from(self.random_state % MAX_RANDOM_BYTES).map_or(1, |size| size + 1)
    }
}

fn random_seed(split: WriteSplit) -> u64 {
    match split {
        WriteSplit::Random(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        WriteSplit::Events | WriteSplit::Bytes(_) => 1,
    }
}
