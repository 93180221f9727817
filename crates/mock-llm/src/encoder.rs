//! The interface for encoding a reply in one format.
//!
//! Here: the trait that one file per format implements, and the reply metadata. Elsewhere: timing and
//! splitting (`reply_stream`).

use minke_model::{BlockKind, ModelError, ModelEvent, StopReason, TokenUsage};

use crate::request::RequestOptions;
use minke_llm::StreamBeat;

/// Bytes of thinking per token, for formats that count them separately.
const BYTES_PER_TOKEN: u64 = 4;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireEvent {
    /// The SSE `event:` field, or empty for formats without event names.
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

/// Encodes a reply in one format.
pub(crate) trait ReplyEncoder: Send {
    /// Called before the first block.
    fn encode_begin(&mut self, out: &mut Vec<WireEvent>);
    fn encode_start(&mut self, index: u32, kind: &BlockKind, out: &mut Vec<WireEvent>);
    fn encode_delta(&mut self, index: u32, text: &str, out: &mut Vec<WireEvent>);
    fn encode_stop(&mut self, index: u32, out: &mut Vec<WireEvent>);
    fn encode_done(&mut self, stop: &StopReason, out: &mut Vec<WireEvent>);
    /// Encodes an error inside the reply.
    fn encode_error(&mut self, failure: &ModelError, out: &mut Vec<WireEvent>);

    fn encode_event(&mut self, event: &ModelEvent, out: &mut Vec<WireEvent>) {
        match event {
            ModelEvent::BlockStart { index, kind } => self.encode_start(*index, kind, out),
            ModelEvent::Delta { index, text } => self.encode_delta(*index, text, out),
            ModelEvent::BlockStop { index, .. } => self.encode_stop(*index, out),
            ModelEvent::Done { stop } => self.encode_done(stop, out),
            // The usage is known from the start (`ReplyInfo`); the other events are not sent.
            ModelEvent::Usage(_)
            | ModelEvent::Unknown { .. }
            | ModelEvent::StopDetail { .. }
            | ModelEvent::RecordingPart(_)
            | ModelEvent::Recording { .. } => {}
        }
    }
}

/// Metadata of a reply, known before its first event.
#[derive(Debug, Clone)]
pub(crate) struct ReplyInfo {
    /// Suffix of every id in this reply.
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) options: RequestOptions,
    pub(crate) usage: TokenUsage,
    /// Thinking tokens in the output.
    pub(crate) thinking_tokens: u64,
    /// `None`: the reply has no end.
    pub(crate) stop_reason: Option<StopReason>,
    /// Seconds since 1970.
    pub(crate) created_s: u64,
}

impl ReplyInfo {
    /// Takes usage and stop reason from the stream, for formats that send them early.
    pub(crate) fn with_beats(mut self, beats: &[StreamBeat]) -> ReplyInfo {
        let mut thoughts = Vec::new();
        let mut bytes: u64 = 0;
        for beat in beats {
            match beat {
                StreamBeat::Event(ModelEvent::BlockStart { index, kind: BlockKind::Thinking }) => {
                    thoughts.push(*index)
                }
                StreamBeat::Event(ModelEvent::Delta { index, text }) if thoughts.contains(index) => {
                    bytes += text.len() as u64;
                }
                StreamBeat::Event(ModelEvent::Usage(usage)) => self.usage = usage.clone(),
                StreamBeat::Event(ModelEvent::Done { stop }) => self.stop_reason = Some(stop.clone()),
                StreamBeat::Event(_) | StreamBeat::Wait(_) | StreamBeat::Fail(_) => {}
            }
        }
        self.thinking_tokens = bytes.div_ceil(BYTES_PER_TOKEN).min(self.usage.output);
        self
    }

    /// Returns all input tokens, for formats with a single count.
    pub(crate) fn total_input(&self) -> u64 {
        self.usage.input + self.usage.cache_read + self.usage.cache_write
    }
}
