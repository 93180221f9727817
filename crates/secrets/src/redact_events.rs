//! Redacts keys in the events of a model's reply.
//!
//! The raw bytes were redacted before decoding. A key that is found here was split over several deltas or
//! escaped. Then the recording contains it in pieces and must be discarded (`RecordingPart::ContainsSecret`).
//! Invariant: text is pending only while it may be the beginning of a key, and all of it is emitted before
//! its block ends (`a_key_in_pieces_is_redacted_and_discards_the_recording`).

use std::borrow::Cow;

use minke_model::{BlockEnd, BlockKind, ModelEvent, RecordingPart, StopReason};

use crate::redact::{Redactor, TextRedactionStream};

/// Redacts the events of one reply.
pub struct EventRedactor {
    redactor: Redactor,
    /// The texts of the open blocks by index.
    open_blocks: Vec<(u32, TextRedactionStream)>,
    contains_secret: bool,
}

impl EventRedactor {
    /// Creates a redactor for one reply.
    pub fn new(redactor: Redactor) -> EventRedactor {
        EventRedactor { redactor, open_blocks: Vec::new(), contains_secret: false }
    }

    /// Redacts events. Costs nothing without keys.
    pub fn redact_events(&mut self, events: Vec<ModelEvent>, out: &mut Vec<ModelEvent>) {
        if self.redactor.is_empty() {
            out.extend(events);
            return;
        }
        let was = self.contains_secret;
        let at = out.len();
        for event in events {
            self.redact_event(event, out);
        }
        if self.contains_secret && !was {
            out.insert(at, ModelEvent::RecordingPart(RecordingPart::ContainsSecret));
        }
    }

    /// Emits the pending text when the reply is truncated.
    pub fn flush_pending(&mut self, out: &mut Vec<ModelEvent>) {
        for (index, mut text) in std::mem::take(&mut self.open_blocks) {
            let text = text.finish();
            if !text.is_empty() {
                out.push(ModelEvent::Delta { index, text });
            }
        }
    }

    fn redact_event(&mut self, event: ModelEvent, out: &mut Vec<ModelEvent>) {
        let redacted = match event {
            ModelEvent::BlockStart { index, kind } => {
                self.open_blocks.push((index, self.redactor.text_stream()));
                let kind = match kind {
                    BlockKind::ToolCall { id, name } => {
                        BlockKind::ToolCall { id: self.redact_text(id), name: self.redact_text(name) }
                    }
                    other => other,
                };
                ModelEvent::BlockStart { index, kind }
            }
            ModelEvent::Delta { index, text } => {
                let Some((_, stream)) = self.open_blocks.iter_mut().find(|(open, _)| *open == index) else {
                    return;
                };
                let text = stream.push(&text);
                self.contains_secret |= stream.has_redacted();
                if text.is_empty() {
                    return;
                }
                ModelEvent::Delta { index, text }
            }
            ModelEvent::BlockStop { index, end } => {
                if let Some(at) = self.open_blocks.iter().position(|(open, _)| *open == index) {
                    let (_, mut stream) = self.open_blocks.swap_remove(at);
                    let text = stream.finish();
                    self.contains_secret |= stream.has_redacted();
                    if !text.is_empty() {
                        out.push(ModelEvent::Delta { index, text });
                    }
                }
                let BlockEnd { signature, encrypted, summary } = end;
                let end = BlockEnd {
                    signature: signature.map(|text| self.redact_text(text)),
                    encrypted: encrypted.map(|text| self.redact_text(text)),
                    summary: summary.into_iter().map(|text| self.redact_text(text)).collect(),
                };
                ModelEvent::BlockStop { index, end }
            }
            ModelEvent::Unknown { kind, text } => {
                ModelEvent::Unknown { kind: self.redact_text(kind), text: self.redact_text(text) }
            }
            ModelEvent::StopDetail { text } => ModelEvent::StopDetail { text: self.redact_text(text) },
            ModelEvent::Done { stop: StopReason::Other(text) } => {
                ModelEvent::Done { stop: StopReason::Other(self.redact_text(text)) }
            }
            other @ (ModelEvent::Usage(_)
            | ModelEvent::RecordingPart(_)
            | ModelEvent::Recording { .. }
            | ModelEvent::Done { .. }) => other,
        };
        out.push(redacted);
    }

    fn redact_text(&mut self, text: String) -> String {
        match self.redactor.redact_text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(redacted) => {
                self.contains_secret = true;
                redacted
            }
        }
    }
}
