//! Veil: takes keys out of decoded events.
//!
//! The raw bytes have been through the redactor before they were decoded. What is found here was split over deltas or
//! written with escapes: then the recording holds it in pieces and must not be kept (`Tape::Spoiled`).
//! Invariant: text is held back only as long as it may be the beginning of a key, and all of it comes before its block
//! ends (`a_key_in_pieces_is_veiled_and_spoils_the_recording`).

use std::borrow::Cow;

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason, Tape};
use minke_secrets::{Redactor, TextStream};

/// Looks through the events of one reply.
pub(crate) struct Veil {
    redactor: Redactor,
    /// The texts of the blocks that are open, by index.
    open: Vec<(u32, TextStream)>,
    spoiled: bool,
}

impl Veil {
    pub(crate) fn new(redactor: Redactor) -> Veil {
        Veil { redactor, open: Vec::new(), spoiled: false }
    }

    /// Passes events on. Costs nothing if there is no key to hide.
    pub(crate) fn pass(&mut self, events: Vec<ModelEvent>, out: &mut Vec<ModelEvent>) {
        if self.redactor.is_empty() {
            out.extend(events);
            return;
        }
        let was = self.spoiled;
        let at = out.len();
        for event in events {
            self.one(event, out);
        }
        if self.spoiled && !was {
            out.insert(at, ModelEvent::Tape(Tape::Spoiled));
        }
    }

    /// The reply breaks off: what was held back and is no key is shown.
    pub(crate) fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        for (index, mut text) in std::mem::take(&mut self.open) {
            let text = text.finish();
            if !text.is_empty() {
                out.push(ModelEvent::Delta { index, text });
            }
        }
    }

    fn one(&mut self, event: ModelEvent, out: &mut Vec<ModelEvent>) {
        let veiled = match event {
            ModelEvent::BlockStart { index, kind } => {
                self.open.push((index, self.redactor.text_stream()));
                let kind = match kind {
                    BlockKind::ToolCall { id, name } => {
                        BlockKind::ToolCall { id: self.text(id), name: self.text(name) }
                    }
                    other => other,
                };
                ModelEvent::BlockStart { index, kind }
            }
            ModelEvent::Delta { index, text } => {
                let Some((_, stream)) = self.open.iter_mut().find(|(open, _)| *open == index) else { return };
                let text = stream.push(&text);
                self.spoiled |= stream.hit();
                if text.is_empty() {
                    return;
                }
                ModelEvent::Delta { index, text }
            }
            ModelEvent::BlockStop { index, end } => {
                if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
                    let (_, mut stream) = self.open.swap_remove(at);
                    let text = stream.finish();
                    self.spoiled |= stream.hit();
                    if !text.is_empty() {
                        out.push(ModelEvent::Delta { index, text });
                    }
                }
                let BlockEnd { signature, encrypted, summary } = end;
                let end = BlockEnd {
                    signature: signature.map(|text| self.text(text)),
                    encrypted: encrypted.map(|text| self.text(text)),
                    summary: summary.into_iter().map(|text| self.text(text)).collect(),
                };
                ModelEvent::BlockStop { index, end }
            }
            ModelEvent::Unknown { kind, text } => {
                ModelEvent::Unknown { kind: self.text(kind), text: self.text(text) }
            }
            ModelEvent::StopDetail { text } => ModelEvent::StopDetail { text: self.text(text) },
            ModelEvent::Done { stop: StopReason::Other(text) } => {
                ModelEvent::Done { stop: StopReason::Other(self.text(text)) }
            }
            other @ (ModelEvent::Usage(_)
            | ModelEvent::Tape(_)
            | ModelEvent::Recorded { .. }
            | ModelEvent::Done { .. }) => other,
        };
        out.push(veiled);
    }

    fn text(&mut self, text: String) -> String {
        match self.redactor.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(veiled) => {
                self.spoiled = true;
                veiled
            }
        }
    }
}
