//! Test support for the decoders: decodes events and collects the output.

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason};

use super::{SchemeDecoder, StreamFrame, contains_done};
use crate::error::ProviderError;

/// The output of a decoder.
#[derive(Debug)]
pub(crate) struct DecodedEvents {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) result: Result<(), ProviderError>,
    pub(crate) unknown_count: u64,
}

/// Decodes the events in order, then the end.
pub(crate) fn run_decoder(mut decode: Box<dyn SchemeDecoder>, events: &[&str]) -> DecodedEvents {
    let mut out = Vec::new();
    let mut result = Ok(());
    for data in events {
        result = decode.decode_frame(StreamFrame { name: "", data }, &mut out);
        if result.is_err() || contains_done(&out, 0) {
            break;
        }
    }
    if result.is_ok() && !contains_done(&out, 0) {
        result = decode.decode_end(&mut out);
    }
    DecodedEvents { events: out, result, unknown_count: decode.unknown_count() }
}

pub(crate) fn run_body_decoder(mut decode: Box<dyn SchemeDecoder>, body: &str) -> DecodedEvents {
    let mut out = Vec::new();
    let result = decode.decode_body(body, &mut out);
    DecodedEvents { events: out, result, unknown_count: decode.unknown_count() }
}

impl DecodedEvents {
    /// Returns the texts of the blocks that `wanted` accepts.
    pub(crate) fn block_texts(&self, wanted: impl Fn(&BlockKind) -> bool) -> Vec<String> {
        let starts = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStart { index, kind } if wanted(kind) => Some(*index),
            _ => None,
        });
        starts.map(|index| self.block_text(index)).collect()
    }

    fn block_text(&self, of: u32) -> String {
        let pieces = self.events.iter().filter_map(|event| match event {
            ModelEvent::Delta { index, text } if *index == of => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    pub(crate) fn text_blocks(&self) -> Vec<String> {
        self.block_texts(|kind| *kind == BlockKind::Text)
    }

    pub(crate) fn thinking_blocks(&self) -> Vec<String> {
        self.block_texts(|kind| *kind == BlockKind::Thinking)
    }

    /// Returns id, name and arguments of the calls.
    pub(crate) fn call_blocks(&self) -> Vec<DecodedCall> {
        let starts = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStart { index, kind: BlockKind::ToolCall { id, name } } => {
                Some((*index, id, name))
            }
            _ => None,
        });
        starts
            .map(|(index, id, name)| DecodedCall(id.clone(), name.clone(), self.block_text(index)))
            .collect()
    }

    pub(crate) fn block_ends(&self) -> Vec<&BlockEnd> {
        let ends = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStop { end, .. } => Some(end),
            _ => None,
        });
        ends.collect()
    }

    pub(crate) fn stop_reason(&self) -> Option<&StopReason> {
        match self.events.last() {
            Some(ModelEvent::Done { stop }) => Some(stop),
            _ => None,
        }
    }
}

/// A call that compares with three texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedCall(pub(crate) String, pub(crate) String, pub(crate) String);

impl PartialEq<(&str, &str, &str)> for DecodedCall {
    fn eq(&self, other: &(&str, &str, &str)) -> bool {
        (self.0.as_str(), self.1.as_str(), self.2.as_str()) == *other
    }
}
