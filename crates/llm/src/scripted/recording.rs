//! The recording of a scripted reply: one attempt in the format of a recording.
//!
//! Here: all parts of the recording come together, just before the reply ends, because only an ended reply is
//! recorded. Elsewhere: the lines (`decode::scripted`), the format of a recording (`crate::recording`).
//! Invariant: decoding the recording returns the played events, with the text of each block in one piece
//! (`what_was_said_is_what_is_read`).

use minke_model::{ModelError, ModelEvent, Prompt, RecordingPart};
use minke_record::to_hex;
use sha2::{Digest, Sha256};

use super::playback::StreamBeat;
use crate::decode::scripted::{ScriptedLine, UnknownBlockLine};
use crate::recording::{AttemptHeader, AttemptTrailer};
use crate::settings::{ModelCapability, ModelSettings, ProviderQuirks, WireScheme};

/// Inserts the recording before the last step of a stream.
pub(crate) fn with_recording(mut beats: Vec<StreamBeat>, prompt: &Prompt) -> Vec<StreamBeat> {
    let Some(last) = beats.pop() else { return beats };
    let mut lines = LineRecorder::default();
    for beat in &beats {
        if let StreamBeat::Event(event) = beat {
            lines.push_event(event);
        }
    }
    let failure = match &last {
        StreamBeat::Event(event) => {
            lines.push_event(event);
            None
        }
        StreamBeat::Fail(failure) => Some(failure),
        StreamBeat::Wait(_) => None,
    };
    beats.extend(
        recording_parts(lines.finish(), failure, prompt)
            .map(ModelEvent::RecordingPart)
            .map(StreamBeat::Event),
    );
    beats.push(last);
    beats
}

fn recording_parts(bytes: Vec<u8>, failure: Option<&ModelError>, prompt: &Prompt) -> [RecordingPart; 3] {
    let settings = ModelSettings {
        scheme: WireScheme::Scripted,
        provider: prompt.route.provider.clone(),
        model_id: prompt.route.model.clone(),
        max_output: None,
        capability: ModelCapability::default(),
        quirks: ProviderQuirks::default(),
    };
    // A script receives no request bytes.
    let head = AttemptHeader::new(settings, to_hex(&Sha256::digest([])));
    let foot = AttemptTrailer::new(failure.and_then(|failure| failure.status), failure);
    [
        RecordingPart::Header(head.to_json_line()),
        RecordingPart::Bytes(bytes),
        RecordingPart::Trailer(foot.to_json_line()),
    ]
}

/// Converts events to lines. The blocks of a script are sequential, so one is open at a time.
#[derive(Default)]
struct LineRecorder {
    open_line: Option<ScriptedLine>,
    bytes: Vec<u8>,
}

impl LineRecorder {
    fn push_event(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::BlockStart { kind, .. } => {
                self.flush_line();
                self.open_line = Some(ScriptedLine::from_block_kind(kind));
            }
            ModelEvent::Delta { text, .. } => {
                if let Some(line) = &mut self.open_line {
                    line.append_text(text);
                }
            }
            ModelEvent::BlockStop { .. } => {
                if let Some(line) = &mut self.open_line {
                    line.open = false;
                }
                self.flush_line();
            }
            ModelEvent::Usage(usage) => {
                self.flush_line();
                ScriptedLine { usage: Some(usage.clone()), ..ScriptedLine::default() }
                    .write_line(&mut self.bytes);
            }
            ModelEvent::Done { stop } => {
                self.flush_line();
                let stop = Some(stop.as_str().to_owned());
                ScriptedLine { stop, ..ScriptedLine::default() }.write_line(&mut self.bytes);
            }
            ModelEvent::Unknown { kind, text } => {
                self.flush_line();
                let unknown = Some(UnknownBlockLine { kind: kind.clone(), text: text.clone() });
                ScriptedLine { unknown, ..ScriptedLine::default() }.write_line(&mut self.bytes);
            }
            ModelEvent::StopDetail { text } => {
                self.flush_line();
                ScriptedLine { stop_detail: Some(text.clone()), ..ScriptedLine::default() }
                    .write_line(&mut self.bytes);
            }
            ModelEvent::RecordingPart(_) | ModelEvent::Recording { .. } => {}
        }
    }

    fn flush_line(&mut self) {
        if let Some(line) = self.open_line.take() {
            line.write_line(&mut self.bytes);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush_line();
        self.bytes
    }
}
