//! Recorder: stores the data of a model exchange for replay.
//!
//! A request may have several attempts; its recording contains all of them in order. Data is compressed as it
//! arrives; the beginning is also kept uncompressed, for the next attempt and for an interrupted reply.
//! Elsewhere: the format (`llm`), whether a recording is wanted and fits (`pod`).

use std::sync::{Arc, Mutex, PoisonError};

use minke_llm::RecordingWriter;
use minke_model::{ModelEvent, RecordingPart};
use minke_record::Blob;

/// The limit of the uncompressed data: attempts that failed before the first output, and the partial reply of
/// the current attempt. An interrupted reply beyond this limit has no recording.
const MAX_TAPE_BYTES: usize = 2 * 1024 * 1024;

/// The attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestAttempts {
    call: Option<u64>,
    pieces: Arc<Mutex<TapePieces>>,
}

#[derive(Debug, Default)]
struct TapePieces {
    tape: Vec<RecordingPart>,
    bytes: usize,
}

impl TapePieces {
    fn push(&mut self, tape: RecordingPart) {
        self.bytes += match &tape {
            RecordingPart::Bytes(bytes) => bytes.len(),
            RecordingPart::Header(text) | RecordingPart::Trailer(text) => text.len(),
            RecordingPart::ContainsSecret => 0,
        };
        if self.bytes > MAX_TAPE_BYTES {
            self.tape = Vec::new();
        } else {
            self.tape.push(tape);
        }
    }

    /// A recording of all attempts so far, unless they exceed the limit.
    fn writer(&self) -> Option<RecordingWriter> {
        if self.bytes > MAX_TAPE_BYTES {
            return None;
        }
        let mut writer = RecordingWriter::new();
        self.tape.iter().for_each(|piece| writer.push_part(piece));
        Some(writer)
    }
}

impl RequestAttempts {
    pub(crate) fn for_call(call: u64) -> RequestAttempts {
        RequestAttempts { call: Some(call), pieces: Arc::default() }
    }

    pub(crate) fn call(&self) -> Option<u64> {
        self.call
    }

    /// The recorder of the next attempt, starting with the earlier ones.
    pub(crate) fn recorder(&self) -> AttemptRecorder {
        let writer = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).writer();
        AttemptRecorder { writer, pieces: Arc::clone(&self.pieces) }
    }

    /// The recording so far, for a reply that is about to be interrupted. The recording itself continues.
    pub(crate) fn partial_recording(&self) -> Option<ModelEvent> {
        finish_writer(self.pieces.lock().unwrap_or_else(PoisonError::into_inner).writer())
    }
}

/// Records one attempt.
pub(crate) struct AttemptRecorder {
    writer: Option<RecordingWriter>,
    pieces: Arc<Mutex<TapePieces>>,
}

impl AttemptRecorder {
    pub(crate) fn push(&mut self, tape: RecordingPart) {
        if let Some(writer) = &mut self.writer {
            writer.push_part(&tape);
        }
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).push(tape);
    }

    /// The recording of all attempts; `None` if it is too long or would contain a secret.
    pub(crate) fn finish(&mut self) -> Option<ModelEvent> {
        finish_writer(self.writer.take())
    }
}

fn finish_writer(writer: Option<RecordingWriter>) -> Option<ModelEvent> {
    let content = writer?.finish().ok()?;
    Some(ModelEvent::Recording { blob: Arc::new(Blob::new(content)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_llm::Recording;

    #[test]
    fn a_recording_holds_all_attempts_in_order() {
        let attempts = RequestAttempts::for_call(3);
        let mut last = None;
        for output in ["busy", "at last"] {
            let mut recorder = attempts.recorder();
            recorder.push(RecordingPart::Header(HEAD.to_owned()));
            recorder.push(RecordingPart::Bytes(output.as_bytes().to_vec()));
            recorder.push(RecordingPart::Trailer("{}".to_owned()));
            last = recorder.finish();
        }
        let Some(ModelEvent::Recording { blob }) = last else { panic!("nothing was recorded") };
        let recording = Recording::parse(&blob.content).unwrap();
        let output: Vec<&[u8]> = recording.attempts.iter().map(|attempt| attempt.bytes.as_slice()).collect();
        assert_eq!(output, [b"busy".as_slice(), b"at last"]);
    }

    const HEAD: &str =
        r#"{"v":1,"settings":{"scheme":"scripted","provider":"p","model_id":"m"},"request_sha256":""}"#;

    #[test]
    fn a_reply_that_is_cut_off_leaves_what_it_said() {
        let attempts = RequestAttempts::for_call(0);
        let mut recorder = attempts.recorder();
        recorder.push(RecordingPart::Header(HEAD.to_owned()));
        recorder.push(RecordingPart::Bytes(b"once upon".to_vec()));
        let Some(ModelEvent::Recording { blob }) = attempts.partial_recording() else {
            panic!("nothing was recorded")
        };
        let recording = Recording::parse(&blob.content).unwrap();
        assert_eq!(recording.attempts[0].bytes, b"once upon");
        assert_eq!(recording.attempts[0].trailer, None);
        recorder.push(RecordingPart::Bytes(vec![b'x'; MAX_TAPE_BYTES]));
        assert_eq!(attempts.partial_recording(), None, "a partial recording would look complete");
        assert!(recorder.finish().is_some(), "the recording continued");
    }

    #[test]
    fn what_would_hold_a_secret_is_not_kept() {
        let mut recorder = RequestAttempts::for_call(0).recorder();
        recorder.push(RecordingPart::Header(HEAD.to_owned()));
        recorder.push(RecordingPart::ContainsSecret);
        assert_eq!(recorder.finish(), None);
    }
}
