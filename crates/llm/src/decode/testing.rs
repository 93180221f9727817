//! For the tests of the decoders: events in, what was told out.

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason};

use super::{Decode, Frame, said_done};
use crate::problem::Problem;

/// What a decoder told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) result: Result<(), Problem>,
    pub(crate) unknown: u64,
}

/// The events one after the other, then the end.
pub(crate) fn tell(mut decode: Box<dyn Decode>, events: &[&str]) -> Told {
    let mut out = Vec::new();
    let mut result = Ok(());
    for data in events {
        result = decode.frame(Frame { name: "", data }, &mut out);
        if result.is_err() || said_done(&out, 0) {
            break;
        }
    }
    if result.is_ok() && !said_done(&out, 0) {
        result = decode.end(&mut out);
    }
    Told { events: out, result, unknown: decode.unknown() }
}

pub(crate) fn tell_body(mut decode: Box<dyn Decode>, body: &str) -> Told {
    let mut out = Vec::new();
    let result = decode.body(body, &mut out);
    Told { events: out, result, unknown: decode.unknown() }
}

impl Told {
    /// The texts of the blocks of some kind.
    pub(crate) fn of(&self, wanted: impl Fn(&BlockKind) -> bool) -> Vec<String> {
        let starts = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStart { index, kind } if wanted(kind) => Some(*index),
            _ => None,
        });
        starts.map(|index| self.text(index)).collect()
    }

    fn text(&self, of: u32) -> String {
        let pieces = self.events.iter().filter_map(|event| match event {
            ModelEvent::Delta { index, text } if *index == of => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.of(|kind| *kind == BlockKind::Text)
    }

    pub(crate) fn thinking(&self) -> Vec<String> {
        self.of(|kind| *kind == BlockKind::Thinking)
    }

    /// Id, name and arguments.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let starts = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStart { index, kind: BlockKind::ToolCall { id, name } } => {
                Some((*index, id, name))
            }
            _ => None,
        });
        starts.map(|(index, id, name)| Call(id.clone(), name.clone(), self.text(index))).collect()
    }

    pub(crate) fn ends(&self) -> Vec<&BlockEnd> {
        let ends = self.events.iter().filter_map(|event| match event {
            ModelEvent::BlockStop { end, .. } => Some(end),
            _ => None,
        });
        ends.collect()
    }

    pub(crate) fn stop(&self) -> Option<&StopReason> {
        match self.events.last() {
            Some(ModelEvent::Done { stop }) => Some(stop),
            _ => None,
        }
    }
}

/// A call; compares with three texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call(pub(crate) String, pub(crate) String, pub(crate) String);

impl PartialEq<(&str, &str, &str)> for Call {
    fn eq(&self, other: &(&str, &str, &str)) -> bool {
        (self.0.as_str(), self.1.as_str(), self.2.as_str()) == *other
    }
}
