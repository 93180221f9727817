//! Recorder: what came over the wire, kept for replay.
//!
//! One request may be attempted several times; its recording holds all attempts, in order. What came is compressed while
//! it comes; the beginning is kept as it is, too, for the next attempt and for a reply that is cut off.
//! Elsewhere: the format (`llm`), whether a recording is wanted and fits (`pod`).

use std::sync::{Arc, Mutex, PoisonError};

use minke_llm::TapeWriter;
use minke_model::{ModelEvent, Tape};
use minke_record::Blob;

/// What is kept as it came, beside the compressed recording: attempts that failed before the model said anything, and
/// what a reply that is cut off has said so far. A longer reply that is cut off has no recording.
const PIECES_BYTES: usize = 2 * 1024 * 1024;

/// The attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    call: Option<u64>,
    pieces: Arc<Mutex<Pieces>>,
}

#[derive(Debug, Default)]
struct Pieces {
    tape: Vec<Tape>,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, tape: Tape) {
        self.bytes += match &tape {
            Tape::Bytes(bytes) => bytes.len(),
            Tape::Head(text) | Tape::Foot(text) => text.len(),
            Tape::Spoiled => 0,
        };
        if self.bytes > PIECES_BYTES {
            self.tape = Vec::new();
        } else {
            self.tape.push(tape);
        }
    }

    /// A recording of everything so far, unless it was too long to be kept.
    fn writer(&self) -> Option<TapeWriter> {
        if self.bytes > PIECES_BYTES {
            return None;
        }
        let mut writer = TapeWriter::new();
        self.tape.iter().for_each(|piece| writer.push(piece));
        Some(writer)
    }
}

impl Attempts {
    pub(crate) fn of(call: u64) -> Attempts {
        Attempts { call: Some(call), pieces: Arc::default() }
    }

    pub(crate) fn call(&self) -> Option<u64> {
        self.call
    }

    /// The recorder of the next attempt, with the earlier ones already on it.
    pub(crate) fn recorder(&self) -> Recorder {
        let writer = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).writer();
        Recorder { writer, pieces: Arc::clone(&self.pieces) }
    }

    /// What has come so far, for a reply that is about to be cut off. The recording itself goes on.
    pub(crate) fn so_far(&self) -> Option<ModelEvent> {
        recorded(self.pieces.lock().unwrap_or_else(PoisonError::into_inner).writer())
    }
}

/// Records one attempt.
pub(crate) struct Recorder {
    writer: Option<TapeWriter>,
    pieces: Arc<Mutex<Pieces>>,
}

impl Recorder {
    pub(crate) fn push(&mut self, tape: Tape) {
        if let Some(writer) = &mut self.writer {
            writer.push(&tape);
        }
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).push(tape);
    }

    /// The recording, all attempts; nothing if none is kept (too long, or it would hold a secret).
    pub(crate) fn finish(&mut self) -> Option<ModelEvent> {
        recorded(self.writer.take())
    }
}

fn recorded(writer: Option<TapeWriter>) -> Option<ModelEvent> {
    let content = writer?.finish().ok()?;
    Some(ModelEvent::Recorded { blob: Arc::new(Blob::new(content)) })
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
    fn a_reply_that_is_cut_off_leaves_what_it_said() {
        let attempts = Attempts::of(0);
        let mut recorder = attempts.recorder();
        recorder.push(Tape::Head(HEAD.to_owned()));
        recorder.push(Tape::Bytes(b"once upon".to_vec()));
        let Some(ModelEvent::Recorded { blob }) = attempts.so_far() else { panic!("nothing was recorded") };
        let recording = Recording::read(&blob.content).unwrap();
        assert_eq!(recording.attempts[0].bytes, b"once upon");
        assert_eq!(recording.attempts[0].foot, None);
        recorder.push(Tape::Bytes(vec![b'x'; PIECES_BYTES]));
        assert_eq!(attempts.so_far(), None, "a part of it would look like the whole");
        assert!(recorder.finish().is_some(), "the recording went on");
    }

    #[test]
    fn what_would_hold_a_secret_is_not_kept() {
        let mut recorder = Attempts::of(0).recorder();
        recorder.push(Tape::Head(HEAD.to_owned()));
        recorder.push(Tape::Spoiled);
        assert_eq!(recorder.finish(), None);
    }
}
