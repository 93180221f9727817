//! Voice: what every format needs to know to tell a reply, and how one event looks before it is framed.
//!
//! Here: the small trait that one file per format implements. Elsewhere: when events are told and how their bytes are
//! cut (`reply`).

use minke_model::{BlockKind, Failure, ModelEvent, StopReason, TokenUsage};

use super::asked::Wishes;
use crate::scripted::Beat;

/// Bytes of thinking that count as one token where a format wants them apart.
const BYTES_PER_TOKEN: u64 = 4;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// The SSE `event:` field; empty = the format names no events.
    pub(super) name: &'static str,
    pub(super) data: String,
}

/// Tells a reply in one format.
pub(super) trait Tell: Send {
    /// Before the first block.
    fn begin(&mut self, out: &mut Vec<Told>);
    fn start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<Told>);
    fn delta(&mut self, index: u32, text: &str, out: &mut Vec<Told>);
    fn stop(&mut self, index: u32, out: &mut Vec<Told>);
    fn done(&mut self, stop: &StopReason, out: &mut Vec<Told>);
    /// An error after the reply has begun.
    fn fail(&mut self, failure: &Failure, out: &mut Vec<Told>);

    fn event(&mut self, event: &ModelEvent, out: &mut Vec<Told>) {
        match event {
            ModelEvent::BlockStart { index, kind } => self.start(*index, kind, out),
            ModelEvent::Delta { index, text } => self.delta(*index, text, out),
            ModelEvent::BlockStop { index, .. } => self.stop(*index, out),
            ModelEvent::Done { stop } => self.done(stop, out),
            // The usage is known from the beginning (`Voice`), the rest is not for the wire.
            ModelEvent::Usage(_)
            | ModelEvent::Unknown { .. }
            | ModelEvent::StopDetail { .. }
            | ModelEvent::Tape(_)
            | ModelEvent::Recorded { .. } => {}
        }
    }
}

/// The reply as a whole, known before its first word.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    /// The end of every id in this reply.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) wishes: Wishes,
    pub(super) usage: TokenUsage,
    /// Tokens of the output that are thinking.
    pub(super) thought: u64,
    /// `None`: the reply has no end.
    pub(super) stop: Option<StopReason>,
    /// Seconds since 1970.
    pub(super) created: u64,
}

impl Voice {
    /// Learns from the beats what formats say early: usage and the stop reason.
    pub(super) fn listen(mut self, beats: &[Beat]) -> Voice {
        let mut thoughts = Vec::new();
        let mut bytes: u64 = 0;
        for beat in beats {
            match beat {
                Beat::Event(ModelEvent::BlockStart { index, kind: BlockKind::Thinking }) => {
                    thoughts.push(*index)
                }
                Beat::Event(ModelEvent::Delta { index, text }) if thoughts.contains(index) => {
                    bytes += text.len() as u64;
                }
                Beat::Event(ModelEvent::Usage(usage)) => self.usage = usage.clone(),
                Beat::Event(ModelEvent::Done { stop }) => self.stop = Some(stop.clone()),
                Beat::Event(_) | Beat::Wait(_) | Beat::Fail(_) => {}
            }
        }
        self.thought = bytes.div_ceil(BYTES_PER_TOKEN).min(self.usage.output);
        self
    }

    /// All tokens that went in; formats with one number for them mean this.
    pub(super) fn input(&self) -> u64 {
        self.usage.input + self.usage.cache_read + self.usage.cache_write
    }
}
