//! Recorder: what came over the wire, kept for replay.
//!
//! One request may be attempted several times; its recording holds all attempts, in order. Earlier ones are kept as
//! they came, because they failed before the model said anything and are short.
//! Elsewhere: the format (`llm`), whether a recording is wanted and fits (`pod`).

use std::sync::{Arc, Mutex, PoisonError};

use minke_llm::TapeWriter;
use minke_model::{ModelEvent, Tape};
use minke_record::Blob;

/// What is kept of attempts before the newest one. A longer one had content, so it was the last.
const EARLIER_BYTES: usize = 2 * 1024 * 1024;

/// The attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    call: Option<u64>,
    earlier: Arc<Mutex<Vec<Tape>>>,
}

impl Attempts {
    pub(crate) fn of(call: u64) -> Attempts {
        Attempts { call: Some(call), earlier: Arc::default() }
    }

    pub(crate) fn call(&self) -> Option<u64> {
        self.call
    }

    /// The recorder of the next attempt, with the earlier ones already on it.
    pub(crate) fn recorder(&self) -> Recorder {
        let mut writer = TapeWriter::new();
        let pieces = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for piece in &pieces {
            writer.push(piece);
        }
        Recorder { writer: Some(writer), pieces: Vec::new(), bytes: 0, earlier: Arc::clone(&self.earlier) }
    }
}

/// Records one attempt.
pub(crate) struct Recorder {
    writer: Option<TapeWriter>,
    pieces: Vec<Tape>,
    bytes: usize,
    earlier: Arc<Mutex<Vec<Tape>>>,
}

impl Recorder {
    pub(crate) fn push(&mut self, tape: Tape) {
        if let Some(writer) = &mut self.writer {
            writer.push(&tape);
        }
        self.bytes += match &tape {
            Tape::Bytes(bytes) => bytes.len(),
            Tape::Head(text) | Tape::Foot(text) => text.len(),
            Tape::Spoiled => 0,
        };
        if self.bytes <= EARLIER_BYTES {
            self.pieces.push(tape);
        }
    }

    /// The recording so far, all attempts; nothing if none is kept (too long, or it would hold a secret).
    pub(crate) fn finish(&mut self) -> Option<ModelEvent> {
        let content = self.writer.take()?.finish().ok()?;
        if self.bytes <= EARLIER_BYTES {
            let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
            earlier.append(&mut self.pieces);
        }
        Some(ModelEvent::Recorded { blob: Arc::new(Blob::new(content)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_llm::Recording;

    #[test]
    fn a_recording_holds_all_attempts_in_order() {
        let attempts = Attempts::of(3);
        let mut last = None;
        for said in ["busy", "at last"] {
            let mut recorder = attempts.recorder();
            recorder.push(Tape::Head(HEAD.to_owned()));
            recorder.push(Tape::Bytes(said.as_bytes().to_vec()));
            recorder.push(Tape::Foot("{}".to_owned()));
            last = recorder.finish();
        }
        let Some(ModelEvent::Recorded { blob }) = last else { panic!("nothing was recorded") };
        let recording = Recording::read(&blob.content).unwrap();
        let said: Vec<&[u8]> = recording.attempts.iter().map(|attempt| attempt.bytes.as_slice()).collect();
        assert_eq!(said, [b"busy".as_slice(), b"at last"]);
    }

    const HEAD: &str =
        r#"{"v":1,"settings":{"scheme":"scripted","provider":"p","model_id":"m"},"request_sha256":""}"#;

    #[test]
    fn what_would_hold_a_secret_is_not_kept() {
        let mut recorder = Attempts::of(0).recorder();
        recorder.push(Tape::Head(HEAD.to_owned()));
        recorder.push(Tape::Spoiled);
        assert_eq!(recorder.finish(), None);
    }
}
