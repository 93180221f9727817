//! A reply on its way: beats in, response bytes out, cut as the options want them.
//!
//! Here: framing, compression, splitting and breaking off. Elsewhere: what each format says (one file per format).
//! Invariant: without a cut the bytes are the same for every split (`any_split_carries_the_same_bytes` in
//! `tests/mock.rs`).

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use hyper::body::Frame;
use minke_model::FailureKind;
use thiserror::Error;

use super::voice::{Tell, Told};
use crate::scripted::Beat;

/// How the bytes of a reply are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Split {
    /// An event a write.
    #[default]
    Events,
    /// So many bytes a write.
    Bytes(usize),
    /// 1 to `RANDOM_BYTES` bytes a write, the same for the same seed.
    Random(u64),
}

/// The longest random piece.
const RANDOM_BYTES: u64 = 32;

/// How events become bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) frames: Frames,
    pub(super) split: Split,
    pub(super) gzip: bool,
    pub(super) comments: bool,
    pub(super) cut_in_event: bool,
}

/// What stands around an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    Lf,
    Crlf,
    /// One JSON array with an event an element.
    Array,
}

/// The connection is to be dropped here.
#[derive(Debug, Clone, Copy, Error)]
#[error("the script cuts the stream here")]
pub(super) struct CutOff;

/// The bytes of a reply, told as its beats come.
pub(super) fn body(
    beats: VecDeque<Beat>,
    teller: Box<dyn Tell>,
    shape: Shape,
) -> impl Stream<Item = Result<Frame<Bytes>, CutOff>> + Send {
    let state = Telling {
        beats,
        teller,
        shape,
        gzip: shape.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        pieces: VecDeque::new(),
        held: Vec::new(),
        random: random_start(shape.split),
        told: 0,
        phase: Phase::Begin,
    };
    futures_util::stream::unfold(state, Telling::next)
}

struct Telling {
    beats: VecDeque<Beat>,
    teller: Box<dyn Tell>,
    shape: Shape,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// What waits to be written, in the pieces to write.
    pieces: VecDeque<Bytes>,
    /// The newest event, kept back as long as it may have to be cut in two.
    held: Vec<u8>,
    random: u64,
    told: u64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Beats,
    CutOff,
    Over,
}

impl Telling {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, CutOff>, Telling)> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                if self.shape.split != Split::Events {
                    // The connection writes what it has when the body has nothing ready.
                    tokio::task::yield_now().await;
                }
                return Some((Ok(Frame::data(piece)), self));
            }
            match self.phase {
                Phase::Begin => {
                    let mut told = Vec::new();
                    self.teller.begin(&mut told);
                    self.tell(&told);
                    self.phase = Phase::Beats;
                }
                Phase::Beats => self.beat().await,
                Phase::CutOff => {
                    // What was said before is written first.
                    tokio::task::yield_now().await;
                    self.phase = Phase::Over;
                    return Some((Err(CutOff), self));
                }
                Phase::Over => return None,
            }
        }
    }

    async fn beat(&mut self) {
        tokio::task::coop::consume_budget().await;
        match self.beats.pop_front() {
            Some(Beat::Event(event)) => {
                let mut told = Vec::new();
                self.teller.event(&event, &mut told);
                self.tell(&told);
            }
            Some(Beat::Wait(time)) => tokio::time::sleep(time).await,
            Some(Beat::Fail(failure)) if failure.kind == FailureKind::Cut => {
                let half = self.held.len() / 2;
                self.held.truncate(half);
                let held = std::mem::take(&mut self.held);
                self.write(&held);
                self.phase = Phase::CutOff;
            }
            Some(Beat::Fail(failure)) => {
                let mut told = Vec::new();
                self.teller.fail(&failure, &mut told);
                self.tell(&told);
                self.end();
            }
            None => self.end(),
        }
    }

    fn tell(&mut self, told: &[Told]) {
        for event in told {
            let bytes = self.frame(event);
            if self.shape.cut_in_event {
                let before = std::mem::replace(&mut self.held, bytes);
                self.write(&before);
            } else {
                self.write(&bytes);
            }
        }
    }

    fn frame(&mut self, event: &Told) -> Vec<u8> {
        self.told += 1;
        let end = match self.shape.frames {
            Frames::Lf => "\n",
            Frames::Crlf => "\r\n",
            Frames::Array => {
                let before = if self.told == 1 { "[" } else { "\n,\n" };
                return format!("{before}{}", event.data).into_bytes();
            }
        };
        let comment =
            if self.shape.comments { format!(": keep-alive {}{end}{end}", self.told) } else { String::new() };
        let name = if event.name.is_empty() { String::new() } else { format!("event: {}{end}", event.name) };
        format!("{comment}{name}data: {}{end}{end}", event.data).into_bytes()
    }

    fn end(&mut self) {
        let mut rest = std::mem::take(&mut self.held);
        if self.shape.frames == Frames::Array {
            rest.extend_from_slice(if self.told == 0 { b"[]" } else { b"\n]\n" });
        }
        self.write(&rest);
        if let Some(gzip) = self.gzip.take() {
            let last = gzip.finish().expect("a vector takes every byte");
            self.cut(&last);
        }
        self.phase = Phase::Over;
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(gzip) = &mut self.gzip else { return self.cut(bytes) };
        // A flush after every event: a client must see it at once, as without compression.
        gzip.write_all(bytes).and_then(|()| gzip.flush()).expect("a vector takes every byte");
        let packed = std::mem::take(gzip.get_mut());
        self.cut(&packed);
    }

    fn cut(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = match self.shape.split {
                Split::Events => rest.len(),
                Split::Bytes(size) => size.max(1),
                Split::Random(_) => self.random_size(),
            };
            let (piece, left) = rest.split_at(size.min(rest.len()));
            self.pieces.push_back(Bytes::copy_from_slice(piece));
            rest = left;
        }
    }

    /// xorshift64: enough to cut bytes anywhere, and the same for the same seed.
    fn random_size(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % RANDOM_BYTES).map_or(1, |size| size + 1)
    }
}

fn random_start(split: Split) -> u64 {
    match split {
        Split::Random(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        Split::Events | Split::Bytes(_) => 1,
    }
}
