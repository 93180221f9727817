//! The recording of one request with all its attempts, as one compressed blob.
//!
//! Here: the format, its writer (used during the reply) and its reader (used by replay). Elsewhere: the
//! sources of the parts (`provider`, `scripted`), the storage of the blob (`session`).
//!
//! The blob is one zstd frame of lines and bytes:
//!
//! ```text
//! minke-stream 1
//! head {"v":1,"settings":{…},"request_sha256":"…"}
//! bytes 4096
//! …4096 bytes of the response, repeated for each piece…
//! foot {"status":200}
//! ```
//!
//! Invariant: the reader returns the parts that were pushed, and no blob makes it allocate much more than
//! `MAX_RECORDING_BYTES` (`what_was_pushed_is_what_is_read`, `a_bomb_is_refused`).

use std::io::{self, Read, Write};

use minke_model::{ModelError, ModelErrorKind, RecordingPart};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::settings::ModelSettings;

/// The largest recording before compression. A longer one is discarded completely: a part would replay as
/// something that never happened.
pub const MAX_RECORDING_BYTES: usize = 64 * 1024 * 1024;

/// The version of headers and trailers that this code writes.
pub const RECORDING_VERSION: u32 = 1;

const FIRST_LINE: &str = "minke-stream 1";
/// Bytes are buffered up to this size before they become a part.
const MAX_PART_BYTES: usize = 64 * 1024;
/// The most bytes that lines may add to `MAX_RECORDING_BYTES`, so that the reader accepts every recording of
/// the writer.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Streams are so repetitive that a higher level saves little and costs time in the run.
const COMPRESSION_LEVEL: i32 = 1;
/// A shorter recording is compressed at once when it is complete.
const MAX_SHORT_BYTES: usize = 128 * 1024;
/// The writer's window is smaller than 8 MiB; a blob that requires more was not written by Minke.
const MAX_WINDOW_LOG: u32 = 23;

/// The parameters of a request, sufficient to rebuild and compare it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptHeader {
    pub v: u32,
    pub settings: ModelSettings,
    /// Hash of the sent body, or of nothing for a model without HTTP.
    pub request_sha256: String,
}

impl AttemptHeader {
    pub fn new(settings: ModelSettings, request_sha256: String) -> AttemptHeader {
        AttemptHeader { v: RECORDING_VERSION, settings, request_sha256 }
    }

    pub fn to_json_line(&self) -> String {
        to_one_line(self)
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptTrailer {
    /// The status of the HTTP response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error as the run saw it, if the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<TrailerError>,
}

impl AttemptTrailer {
    pub fn new(status: Option<u16>, failure: Option<&ModelError>) -> AttemptTrailer {
        AttemptTrailer { status, problem: failure.map(TrailerError::from) }
    }

    pub fn to_json_line(&self) -> String {
        to_one_line(self)
    }
}

/// An error in a trailer. Its message depends on the environment of the program, so it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailerError {
    pub kind: TrailerErrorKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The stored form of `ModelErrorKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrailerErrorKind {
    Cut,
    Transient,
    Permanent,
    TooLong,
    Refused,
}

impl From<&ModelError> for TrailerError {
    fn from(failure: &ModelError) -> TrailerError {
        TrailerError {
            kind: match failure.kind {
                ModelErrorKind::Interrupted => TrailerErrorKind::Cut,
                ModelErrorKind::Transient => TrailerErrorKind::Transient,
                ModelErrorKind::Permanent => TrailerErrorKind::Permanent,
                ModelErrorKind::ContextTooLong => TrailerErrorKind::TooLong,
                ModelErrorKind::Refused => TrailerErrorKind::Refused,
            },
            message: failure.message.clone(),
            status: failure.status,
            retry_after_ms: failure.retry_after_ms,
        }
    }
}

impl From<&TrailerError> for ModelError {
    fn from(problem: &TrailerError) -> ModelError {
        ModelError {
            kind: match problem.kind {
                TrailerErrorKind::Cut => ModelErrorKind::Interrupted,
                TrailerErrorKind::Transient => ModelErrorKind::Transient,
                TrailerErrorKind::Permanent => ModelErrorKind::Permanent,
                TrailerErrorKind::TooLong => ModelErrorKind::ContextTooLong,
                TrailerErrorKind::Refused => ModelErrorKind::Refused,
            },
            message: problem.message.clone(),
            status: problem.status,
            retry_after_ms: problem.retry_after_ms,
        }
    }
}

fn to_one_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with string keys is JSON")
}

/// Compresses a complete recording at once, with the same checksum.
fn compress_recording(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(text)
}

/// Why a recording is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardReason {
    /// Longer than `MAX_RECORDING_BYTES`.
    TooLong,
    /// It contains a secret that was detected only after decoding.
    ContainsSecret,
    /// There was nothing to record.
    Empty,
    /// The compressor failed, which only happens without memory.
    CompressionFailed,
}

/// Writes one recording, part by part.
#[derive(Default)]
pub struct RecordingWriter {
    state: WriterState,
    /// Received bytes before compression.
    raw_bytes: usize,
    /// Bytes that are not yet a part.
    buffered: Vec<u8>,
}

#[derive(Default)]
enum WriterState {
    #[default]
    Empty,
    /// Not compressed yet: most replies are short, and a compressor with a known size needs little memory and
    /// time.
    Buffering(Vec<u8>),
    Compressing(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Discarded(DiscardReason),
}

impl RecordingWriter {
    pub fn new() -> RecordingWriter {
        RecordingWriter::default()
    }

    /// Adds the next part. Does nothing after the recording was discarded.
    pub fn push_part(&mut self, tape: &RecordingPart) {
        if matches!(self.state, WriterState::Discarded(_)) {
            return;
        }
        match tape {
            RecordingPart::Header(json) => self.write_json_line("head ", json),
            RecordingPart::Trailer(json) => self.write_json_line("foot ", json),
            RecordingPart::Bytes(bytes) => self.write_bytes(bytes),
            RecordingPart::ContainsSecret => self.discard(DiscardReason::ContainsSecret),
        }
    }

    /// Returns the compressed recording, or why there is none.
    pub fn finish(mut self) -> Result<Vec<u8>, DiscardReason> {
        self.flush_buffer();
        match self.state {
            WriterState::Empty => Err(DiscardReason::Empty),
            WriterState::Discarded(why) => Err(why),
            WriterState::Buffering(text) => {
                compress_recording(&text).map_err(|_| DiscardReason::CompressionFailed)
            }
            WriterState::Compressing(encoder) => {
                encoder.finish().map_err(|_| DiscardReason::CompressionFailed)
            }
        }
    }

    fn write_json_line(&mut self, word: &str, json: &str) {
        self.flush_buffer();
        // A line break would end the line. JSON on one line has none.
        let json = json.replace(['\n', '\r'], " ");
        if self.reserve_bytes(word.len() + json.len() + 1) {
            self.write_parts(&[word.as_bytes(), json.as_bytes(), b"\n"]);
        }
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        if !self.reserve_bytes(bytes.len()) {
            return;
        }
        self.buffered.extend_from_slice(bytes);
        if self.buffered.len() >= MAX_PART_BYTES {
            self.flush_buffer();
        }
    }

    fn flush_buffer(&mut self) {
        if self.buffered.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(&mut self.buffered);
        let line = format!("bytes {}\n", gathered.len());
        self.write_parts(&[line.as_bytes(), &gathered]);
        gathered.clear();
        self.buffered = gathered;
    }

    /// Counts bytes and discards the recording if it is too long.
    fn reserve_bytes(&mut self, more: usize) -> bool {
        self.raw_bytes = self.raw_bytes.saturating_add(more);
        let room = self.raw_bytes <= MAX_RECORDING_BYTES;
        if !room {
            self.discard(DiscardReason::TooLong);
        }
        room
    }

    fn discard(&mut self, why: DiscardReason) {
        self.state = WriterState::Discarded(why);
        self.buffered = Vec::new();
    }

    fn write_parts(&mut self, parts: &[&[u8]]) {
        if matches!(self.state, WriterState::Empty) {
            self.state = WriterState::Buffering(format!("{FIRST_LINE}\n").into_bytes());
        }
        let written = match &mut self.state {
            WriterState::Buffering(text) => {
                parts.iter().for_each(|part| text.extend_from_slice(part));
                Ok(())
            }
            WriterState::Compressing(encoder) => parts.iter().try_for_each(|part| encoder.write_all(part)),
            WriterState::Empty | WriterState::Discarded(_) => return,
        };
        if written.is_err() {
            self.discard(DiscardReason::CompressionFailed);
        }
        self.start_compression();
    }

    /// Starts streaming compression for a recording that is no longer short.
    fn start_compression(&mut self) {
        let WriterState::Buffering(text) = &self.state else { return };
        if text.len() < MAX_SHORT_BYTES {
            return;
        }
        let begun =
            zstd::stream::write::Encoder::new(Vec::new(), COMPRESSION_LEVEL).and_then(|mut encoder| {
                // Without a checksum a raw block would not detect a flipped byte.
                encoder.include_checksum(true)?;
                encoder.write_all(text)?;
                Ok(encoder)
            });
        self.state = match begun {
            Ok(encoder) => WriterState::Compressing(Box::new(encoder)),
            Err(_) => WriterState::Discarded(DiscardReason::CompressionFailed),
        };
    }
}

/// An error in a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    #[error("the recording cannot be decompressed: {0}")]
    Decompress(#[source] io::Error),
    #[error("the recording is longer than {MAX_RECORDING_BYTES} bytes: it was not written by Minke")]
    TooLong,
    #[error("the recording does not start with `{FIRST_LINE}`: it has another format or a later version")]
    UnknownFormat,
    #[error("the recording is damaged at byte {at} of its content: {what}")]
    Damaged { at: usize, what: &'static str },
}

/// A parsed recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    pub attempts: Vec<RecordedAttempt>,
}

/// One attempt of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// JSON of an `AttemptHeader`.
    pub header: String,
    /// The decompressed response without secrets.
    pub bytes: Vec<u8>,
    /// JSON of an `AttemptTrailer`; absent if the attempt was unfinished.
    pub trailer: Option<String>,
}

impl Recording {
    /// Parses a blob that `RecordingWriter` wrote.
    pub fn parse(blob: &[u8]) -> Result<Recording, RecordingError> {
        let content = decompress_recording(blob)?;
        let mut reading = RecordingReader { content: &content, at: 0 };
        if reading.read_json_line() != Some(FIRST_LINE.as_bytes()) {
            return Err(RecordingError::UnknownFormat);
        }
        let mut attempts: Vec<RecordedAttempt> = Vec::new();
        while reading.at < content.len() {
            let at = reading.at;
            let damaged = |what| RecordingError::Damaged { at, what };
            let line = reading.read_json_line().ok_or(damaged("a line has no end"))?;
            let line = std::str::from_utf8(line).map_err(|_| damaged("a line is not UTF-8"))?;
            let (word, rest) = line.split_once(' ').ok_or(damaged("a line has no word"))?;
            if word == "head" {
                attempts.push(RecordedAttempt { header: rest.to_owned(), ..RecordedAttempt::default() });
                continue;
            }
            let open = attempts.last_mut().filter(|attempt| attempt.trailer.is_none());
            let attempt = open.ok_or(damaged("no attempt is open"))?;
            match word {
                "foot" => attempt.trailer = Some(rest.to_owned()),
                "bytes" => {
                    let count = rest.parse().map_err(|_| damaged("a byte count is not a number"))?;
                    let piece = reading.take_bytes(count).ok_or(damaged("bytes are missing"))?;
                    attempt.bytes.extend_from_slice(piece);
                }
                _ => return Err(damaged("a line begins with an unknown word")),
            }
        }
        Ok(Recording { attempts })
    }
}

/// Decompresses a blob, whose content is not trusted.
fn decompress_recording(blob: &[u8]) -> Result<Vec<u8>, RecordingError> {
    let mut decoder = zstd::stream::read::Decoder::new(blob).map_err(RecordingError::Decompress)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(RecordingError::Decompress)?;
    let most = MAX_RECORDING_BYTES + MAX_LINE_BYTES;
    let mut content = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(&mut content).map_err(RecordingError::Decompress)?;
    if content.len() > most { Err(RecordingError::TooLong) } else { Ok(content) }
}

struct RecordingReader<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> RecordingReader<'a> {
    fn read_json_line(&mut self) -> Option<&'a [u8]> {
        let rest = self.content.get(self.at..)?;
        let end = memchr::memchr(b'\n', rest)?;
        self.at += end + 1;
        rest.get(..end)
    }

    fn take_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let piece = self.content.get(self.at..end)?;
        self.at = end;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ModelCapability, ProviderQuirks, WireScheme};

    fn write_recording(tapes: &[RecordingPart]) -> Result<Vec<u8>, DiscardReason> {
        let mut writer = RecordingWriter::new();
        tapes.iter().for_each(|tape| writer.push_part(tape));
        writer.finish()
    }

    fn test_header() -> AttemptHeader {
        let settings = ModelSettings {
            scheme: WireScheme::Gemini,
            provider: "example".into(),
            model_id: "something".into(),
            max_output: None,
            capability: ModelCapability::default(),
            quirks: ProviderQuirks::default(),
        };
        AttemptHeader::new(settings, "ab".repeat(32))
    }

    #[test]
    fn what_was_pushed_is_what_is_read() {
        let failure = ModelError {
            kind: ModelErrorKind::Transient,
            message: "busy\nvery".into(),
            status: Some(529),
            retry_after_ms: Some(7),
        };
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let feet = [AttemptTrailer::new(Some(529), Some(&failure)), AttemptTrailer::new(Some(200), None)];
        let mut tapes = vec![
            RecordingPart::Header(test_header().to_json_line()),
            RecordingPart::Bytes(b"\nfoot {}\n".to_vec()),
        ];
        tapes.push(RecordingPart::Trailer(feet[0].to_json_line()));
        tapes.push(RecordingPart::Header(test_header().to_json_line()));
        tapes.extend(large.chunks(777).map(|piece| RecordingPart::Bytes(piece.to_vec())));
        tapes.push(RecordingPart::Trailer(feet[1].to_json_line()));
        tapes.push(RecordingPart::Header("{}".into()));

        let recording = Recording::parse(&write_recording(&tapes).unwrap()).unwrap();
        let [first, second, third] = &recording.attempts[..] else { panic!("{recording:?}") };
        assert_eq!(first.bytes, b"\nfoot {}\n");
        assert_eq!(second.bytes, large);
        assert_eq!(serde_json::from_str::<AttemptHeader>(&first.header).unwrap(), test_header());
        let foot: AttemptTrailer = serde_json::from_str(first.trailer.as_ref().unwrap()).unwrap();
        assert_eq!(ModelError::from(&foot.problem.unwrap()), failure);
        assert_eq!(
            serde_json::from_str::<AttemptTrailer>(second.trailer.as_ref().unwrap()).unwrap(),
            feet[1]
        );
        assert_eq!(third, &RecordedAttempt { header: "{}".into(), ..RecordedAttempt::default() });
    }

    #[test]
    fn a_recording_is_kept_whole_or_not_at_all() {
        assert_eq!(write_recording(&[]), Err(DiscardReason::Empty));
        let head = RecordingPart::Header("{}".into());
        let spoiled = [
            head.clone(),
            RecordingPart::Bytes(b"x".to_vec()),
            RecordingPart::ContainsSecret,
            RecordingPart::Trailer("{}".into()),
        ];
        assert_eq!(write_recording(&spoiled), Err(DiscardReason::ContainsSecret));

        let piece = RecordingPart::Bytes(vec![b'x'; MAX_RECORDING_BYTES / 8]);
        let mut writer = RecordingWriter::new();
        (0..8).for_each(|_| writer.push_part(&piece));
        assert!(!matches!(writer.state, WriterState::Discarded(_)));
        writer.push_part(&RecordingPart::Bytes(b"x".to_vec()));
        assert_eq!(writer.finish(), Err(DiscardReason::TooLong));
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = zstd::encode_all(io::repeat(b'x').take(200 * 1024 * 1024), 1).unwrap();
        assert!(bomb.len() < 100_000);
        assert!(matches!(Recording::parse(&bomb), Err(RecordingError::TooLong)));
    }

    #[test]
    fn damage_is_named_and_never_read_as_something_else() {
        let good = write_recording(&[
            RecordingPart::Header("{}".into()),
            RecordingPart::Bytes(b"hello".to_vec()),
            RecordingPart::Trailer("{}".into()),
        ]);
        let good = good.unwrap();
        let whole = Recording::parse(&good).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            if let Ok(read) = Recording::parse(&bad) {
                assert_eq!(read, whole, "byte {at}");
            }
            assert!(Recording::parse(&good[..at]).is_err(), "cut at {at}");
        }
        for content in
            ["", "minke-stream 2\n", "minke-stream 1\nbytes 1\nx", "minke-stream 1\nhead {}\nbytes 9\nx"]
        {
            let blob = zstd::encode_all(content.as_bytes(), 1).unwrap();
            assert!(Recording::parse(&blob).is_err(), "{content}");
        }
    }
}
