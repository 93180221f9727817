//! The recording of a scripted reply: the beats of one attempt, and the tape that says the same.
//!
//! Here: when the pieces of the tape come: all together, just before the reply ends, because only a reply that has
//! ended is recorded. Elsewhere: the lines (`decode::scripted`), the format of a recording (`tape`).
//! Invariant: decoding the tape gives what was played, with the texts of each block in one piece
//! (`what_was_said_is_what_is_read`).

use minke_model::{Failure, ModelEvent, Prompt, Tape};
use minke_record::hex;
use sha2::{Digest, Sha256};

use super::play::Beat;
use crate::decode::scripted::{Line, Unknown};
use crate::settings::{Capability, Quirks, Scheme, Settings};
use crate::tape::{Foot, Head};

/// The beats with their tape before the last one.
pub(crate) fn taped(mut beats: Vec<Beat>, prompt: &Prompt) -> Vec<Beat> {
    let Some(last) = beats.pop() else { return beats };
    let mut lines = Lines::default();
    for beat in &beats {
        if let Beat::Event(event) = beat {
            lines.take(event);
        }
    }
    let failure = match &last {
        Beat::Event(event) => {
            lines.take(event);
            None
        }
        Beat::Fail(failure) => Some(failure),
        Beat::Wait(_) => None,
    };
    beats.extend(tape(lines.finish(), failure, prompt).map(ModelEvent::Tape).map(Beat::Event));
    beats.push(last);
    beats
}

fn tape(bytes: Vec<u8>, failure: Option<&Failure>, prompt: &Prompt) -> [Tape; 3] {
    let settings = Settings {
        scheme: Scheme::Scripted,
        provider: prompt.route.provider.clone(),
        model_id: prompt.route.model.clone(),
        max_output: None,
        capability: Capability::default(),
        quirks: Quirks::default(),
    };
    // No bytes are sent to a script.
    let head = Head::new(settings, hex(&Sha256::digest([])));
    let foot = Foot::new(failure.and_then(|failure| failure.status), failure);
    [Tape::Head(head.line()), Tape::Bytes(bytes), Tape::Foot(foot.line())]
}

/// Events on their way to lines: a script's blocks follow each other, so one is open at a time.
#[derive(Default)]
struct Lines {
    open: Option<Line>,
    bytes: Vec<u8>,
}

impl Lines {
    fn take(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::BlockStart { kind, .. } => {
                self.flush();
                self.open = Some(Line::block(kind));
            }
            ModelEvent::Delta { text, .. } => {
                if let Some(line) = &mut self.open {
                    line.grow(text);
                }
            }
            ModelEvent::BlockStop { .. } => {
                if let Some(line) = &mut self.open {
                    line.open = false;
                }
                self.flush();
            }
            ModelEvent::Usage(usage) => {
                self.flush();
                Line { usage: Some(usage.clone()), ..Line::default() }.write(&mut self.bytes);
            }
            ModelEvent::Done { stop } => {
                self.flush();
                let stop = Some(stop.as_str().to_owned());
                Line { stop, ..Line::default() }.write(&mut self.bytes);
            }
            ModelEvent::Unknown { kind, text } => {
                self.flush();
                let unknown = Some(Unknown { kind: kind.clone(), text: text.clone() });
                Line { unknown, ..Line::default() }.write(&mut self.bytes);
            }
            ModelEvent::StopDetail { text } => {
                self.flush();
                Line { stop_detail: Some(text.clone()), ..Line::default() }.write(&mut self.bytes);
            }
            ModelEvent::Tape(_) | ModelEvent::Recorded { .. } => {}
        }
    }

    fn flush(&mut self) {
        if let Some(line) = self.open.take() {
            line.write(&mut self.bytes);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.bytes
    }
}
