//! Tapes: the recording of one request, all its attempts, as one compressed blob.
//!
//! Here: the format, its writer (used while the reply comes) and its reader (used by replay). Elsewhere: who makes the
//! pieces (`provider`, `scripted`), where the blob lies (`session`).
//!
//! The blob is one zstd frame of lines and bytes:
//!
//! ```text
//! minke-stream 1
//! head {"v":1,"settings":{…},"request_sha256":"…"}
//! bytes 4096
//! …4096 bytes of the response, as many such pieces as it takes…
//! foot {"status":200}
//! ```
//!
//! Invariant: what was pushed is what is read, and no blob makes the reader hold more than `TAPE_BYTES` and a little
//! (`what_was_pushed_is_what_is_read`, `a_bomb_is_refused`).

use std::io::{self, Read, Write};

use minke_model::{Failure, FailureKind, Tape};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::settings::Settings;

/// What one recording may hold before compression. A longer one is given up whole: a part would replay as something
/// that never happened.
pub const TAPE_BYTES: usize = 64 * 1024 * 1024;

/// The version of heads and feet that this code writes.
pub const TAPE_VERSION: u32 = 1;

const FIRST_LINE: &str = "minke-stream 1";
/// Bytes are gathered up to here before they become a piece of their own.
const PIECE_BYTES: usize = 64 * 1024;
/// What lines may add to `TAPE_BYTES`: a recording that the writer accepted is never too long for the reader.
const LINES_BYTES: usize = 1024 * 1024;
/// Streams repeat themselves so much that a higher level saves little and costs the run time.
const LEVEL: i32 = 1;
/// A recording shorter than this is compressed at once, when it is whole.
const SHORT_BYTES: usize = 128 * 1024;
/// The writer's window is smaller than 8 MiB; a blob that asks for more is not ours.
const WINDOW_LOG: u32 = 23;

/// How a request was made: enough to build it again and compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub v: u32,
    pub settings: Settings,
    /// Of the body that was sent; of nothing for a model that has no wire.
    pub request_sha256: String,
}

impl Head {
    pub fn new(settings: Settings, request_sha256: String) -> Head {
        Head { v: TAPE_VERSION, settings, request_sha256 }
    }

    pub fn line(&self) -> String {
        as_line(self)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foot {
    /// Of the HTTP answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The failure as the run saw it, if the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<FootProblem>,
}

impl Foot {
    pub fn new(status: Option<u16>, failure: Option<&Failure>) -> Foot {
        Foot { status, problem: failure.map(FootProblem::from) }
    }

    pub fn line(&self) -> String {
        as_line(self)
    }
}

/// A failure in a foot. The advice in its message depends on where the program ran, so it is kept, not made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FootProblem {
    pub kind: FootKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// `FailureKind`, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FootKind {
    Cut,
    Transient,
    Permanent,
    TooLong,
    Refused,
}

impl From<&Failure> for FootProblem {
    fn from(failure: &Failure) -> FootProblem {
        FootProblem {
            kind: match failure.kind {
                FailureKind::Cut => FootKind::Cut,
                FailureKind::Transient => FootKind::Transient,
                FailureKind::Permanent => FootKind::Permanent,
                FailureKind::TooLong => FootKind::TooLong,
                FailureKind::Refused => FootKind::Refused,
            },
            message: failure.message.clone(),
            status: failure.status,
            retry_after_ms: failure.retry_after_ms,
        }
    }
}

impl From<&FootProblem> for Failure {
    fn from(problem: &FootProblem) -> Failure {
        Failure {
            kind: match problem.kind {
                FootKind::Cut => FailureKind::Cut,
                FootKind::Transient => FailureKind::Transient,
                FootKind::Permanent => FailureKind::Permanent,
                FootKind::TooLong => FailureKind::TooLong,
                FootKind::Refused => FailureKind::Refused,
            },
            message: problem.message.clone(),
            status: problem.status,
            retry_after_ms: problem.retry_after_ms,
        }
    }
}

fn as_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with string keys is JSON")
}

/// A whole recording, compressed at once, with the same checksum.
fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(text)
}

/// Why a recording is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// Longer than `TAPE_BYTES`.
    TooLong,
    /// It holds a secret that was only seen after decoding.
    Spoiled,
    /// There was nothing to record.
    Empty,
    /// The compressor failed, which it does only for want of memory.
    Compressor,
}

/// Writes one recording, piece by piece.
#[derive(Default)]
pub struct TapeWriter {
    state: Writing,
    /// What has been taken so far, before compression.
    raw: usize,
    /// Bytes that are not a piece yet.
    gathered: Vec<u8>,
}

#[derive(Default)]
enum Writing {
    #[default]
    Fresh,
    /// Not compressed yet: most replies are short, and a compressor that knows how short needs little memory and time.
    Short(Vec<u8>),
    On(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Off(NotKept),
}

impl TapeWriter {
    pub fn new() -> TapeWriter {
        TapeWriter::default()
    }

    /// Takes the next piece. Costs nothing any more once the recording is given up.
    pub fn push(&mut self, tape: &Tape) {
        if matches!(self.state, Writing::Off(_)) {
            return;
        }
        match tape {
            Tape::Head(json) => self.line("head ", json),
            Tape::Foot(json) => self.line("foot ", json),
            Tape::Bytes(bytes) => self.bytes(bytes),
            Tape::Spoiled => self.give_up(NotKept::Spoiled),
        }
    }

    /// The compressed recording, or why there is none.
    pub fn finish(mut self) -> Result<Vec<u8>, NotKept> {
        self.flush();
        match self.state {
            Writing::Fresh => Err(NotKept::Empty),
            Writing::Off(why) => Err(why),
            Writing::Short(text) => compress(&text).map_err(|_| NotKept::Compressor),
            Writing::On(encoder) => encoder.finish().map_err(|_| NotKept::Compressor),
        }
    }

    fn line(&mut self, word: &str, json: &str) {
        self.flush();
        // A line break would end the line early; JSON of one line has none.
        let json = json.replace(['\n', '\r'], " ");
        if self.room(word.len() + json.len() + 1) {
            self.write(&[word.as_bytes(), json.as_bytes(), b"\n"]);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if !self.room(bytes.len()) {
            return;
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        let line = format!("bytes {}\n", gathered.len());
        self.write(&[line.as_bytes(), &gathered]);
        gathered.clear();
        self.gathered = gathered;
    }

    /// Counts what comes, and gives up if it is too much.
    fn room(&mut self, more: usize) -> bool {
        self.raw = self.raw.saturating_add(more);
        let room = self.raw <= TAPE_BYTES;
        if !room {
            self.give_up(NotKept::TooLong);
        }
        room
    }

    fn give_up(&mut self, why: NotKept) {
        self.state = Writing::Off(why);
        self.gathered = Vec::new();
    }

    fn write(&mut self, parts: &[&[u8]]) {
        if matches!(self.state, Writing::Fresh) {
            self.state = Writing::Short(format!("{FIRST_LINE}\n").into_bytes());
        }
        let written = match &mut self.state {
            Writing::Short(text) => {
                parts.iter().for_each(|part| text.extend_from_slice(part));
                Ok(())
            }
            Writing::On(encoder) => parts.iter().try_for_each(|part| encoder.write_all(part)),
            Writing::Fresh | Writing::Off(_) => return,
        };
        if written.is_err() {
            self.give_up(NotKept::Compressor);
        }
        self.grow_up();
    }

    /// What is no longer short is compressed as it comes.
    fn grow_up(&mut self) {
        let Writing::Short(text) = &self.state else { return };
        if text.len() < SHORT_BYTES {
            return;
        }
        let begun = zstd::stream::write::Encoder::new(Vec::new(), LEVEL).and_then(|mut encoder| {
            // A flipped byte must not come back as other text: without it a raw block has no checksum.
            encoder.include_checksum(true)?;
            encoder.write_all(text)?;
            Ok(encoder)
        });
        self.state = match begun {
            Ok(encoder) => Writing::On(Box::new(encoder)),
            Err(_) => Writing::Off(NotKept::Compressor),
        };
    }
}

/// What is wrong with a recording.
#[derive(Debug, Error)]
pub enum TapeError {
    #[error("the recording cannot be decompressed: {0}")]
    Compressed(#[source] io::Error),
    #[error("the recording is longer than {TAPE_BYTES} bytes: it was not written by this program")]
    TooLong,
    #[error("the recording does not begin with `{FIRST_LINE}`: it is of another kind or of a later version")]
    Other,
    #[error("the recording is damaged at byte {at} of its content: {what}")]
    Damaged { at: usize, what: &'static str },
}

/// A recording that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    pub attempts: Vec<Attempt>,
}

/// One attempt of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// JSON of a `Head`.
    pub head: String,
    /// The response, decompressed, without its secrets.
    pub bytes: Vec<u8>,
    /// JSON of a `Foot`; absent if the attempt was still on its way.
    pub foot: Option<String>,
}

impl Recording {
    /// Reads a blob that `TapeWriter` wrote.
    pub fn read(blob: &[u8]) -> Result<Recording, TapeError> {
        let content = decompress(blob)?;
        let mut reading = Reading { content: &content, at: 0 };
        if reading.line() != Some(FIRST_LINE.as_bytes()) {
            return Err(TapeError::Other);
        }
        let mut attempts: Vec<Attempt> = Vec::new();
        while reading.at < content.len() {
            let at = reading.at;
            let damaged = |what| TapeError::Damaged { at, what };
            let line = reading.line().ok_or(damaged("a line has no end"))?;
            let line = std::str::from_utf8(line).map_err(|_| damaged("a line is not UTF-8"))?;
            let (word, rest) = line.split_once(' ').ok_or(damaged("a line has no word"))?;
            if word == "head" {
                attempts.push(Attempt { head: rest.to_owned(), ..Attempt::default() });
                continue;
            }
            let open = attempts.last_mut().filter(|attempt| attempt.foot.is_none());
            let attempt = open.ok_or(damaged("no attempt is open"))?;
            match word {
                "foot" => attempt.foot = Some(rest.to_owned()),
                "bytes" => {
                    let count = rest.parse().map_err(|_| damaged("a count of bytes is no number"))?;
                    let piece = reading.take(count).ok_or(damaged("bytes are missing"))?;
                    attempt.bytes.extend_from_slice(piece);
                }
                _ => return Err(damaged("a line begins with an unknown word")),
            }
        }
        Ok(Recording { attempts })
    }
}

/// The content of a blob, which may hold whatever somebody put there.
fn decompress(blob: &[u8]) -> Result<Vec<u8>, TapeError> {
    let mut decoder = zstd::stream::read::Decoder::new(blob).map_err(TapeError::Compressed)?;
    decoder.window_log_max(WINDOW_LOG).map_err(TapeError::Compressed)?;
    let most = TAPE_BYTES + LINES_BYTES;
    let mut content = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(&mut content).map_err(TapeError::Compressed)?;
    if content.len() > most { Err(TapeError::TooLong) } else { Ok(content) }
}

struct Reading<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> Reading<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.content.get(self.at..)?;
        let end = memchr::memchr(b'\n', rest)?;
        self.at += end + 1;
        rest.get(..end)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let piece = self.content.get(self.at..end)?;
        self.at = end;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Capability, Quirks, Scheme};

    fn written(tapes: &[Tape]) -> Result<Vec<u8>, NotKept> {
        let mut writer = TapeWriter::new();
        tapes.iter().for_each(|tape| writer.push(tape));
        writer.finish()
    }

    fn head() -> Head {
        let settings = Settings {
            scheme: Scheme::Gemini,
            provider: "somebody".into(),
            model_id: "something".into(),
            max_output: None,
            capability: Capability::default(),
            quirks: Quirks::default(),
        };
        Head::new(settings, "ab".repeat(32))
    }

    #[test]
    fn what_was_pushed_is_what_is_read() {
        let failure = Failure {
            kind: FailureKind::Transient,
            message: "busy\nvery".into(),
            status: Some(529),
            retry_after_ms: Some(7),
        };
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let feet = [Foot::new(Some(529), Some(&failure)), Foot::new(Some(200), None)];
        let mut tapes = vec![Tape::Head(head().line()), Tape::Bytes(b"\nfoot {}\n".to_vec())];
        tapes.push(Tape::Foot(feet[0].line()));
        tapes.push(Tape::Head(head().line()));
        tapes.extend(large.chunks(777).map(|piece| Tape::Bytes(piece.to_vec())));
        tapes.push(Tape::Foot(feet[1].line()));
        tapes.push(Tape::Head("{}".into()));

        let recording = Recording::read(&written(&tapes).unwrap()).unwrap();
        let [first, second, third] = &recording.attempts[..] else { panic!("{recording:?}") };
        assert_eq!(first.bytes, b"\nfoot {}\n");
        assert_eq!(second.bytes, large);
        assert_eq!(serde_json::from_str::<Head>(&first.head).unwrap(), head());
        let foot: Foot = serde_json::from_str(first.foot.as_ref().unwrap()).unwrap();
        assert_eq!(Failure::from(&foot.problem.unwrap()), failure);
        assert_eq!(serde_json::from_str::<Foot>(second.foot.as_ref().unwrap()).unwrap(), feet[1]);
        assert_eq!(third, &Attempt { head: "{}".into(), ..Attempt::default() });
    }

    #[test]
    fn a_recording_is_kept_whole_or_not_at_all() {
        assert_eq!(written(&[]), Err(NotKept::Empty));
        let head = Tape::Head("{}".into());
        let spoiled = [head.clone(), Tape::Bytes(b"x".to_vec()), Tape::Spoiled, Tape::Foot("{}".into())];
        assert_eq!(written(&spoiled), Err(NotKept::Spoiled));

        let piece = Tape::Bytes(vec![b'x'; TAPE_BYTES / 8]);
        let mut writer = TapeWriter::new();
        (0..8).for_each(|_| writer.push(&piece));
        assert!(!matches!(writer.state, Writing::Off(_)));
        writer.push(&Tape::Bytes(b"x".to_vec()));
        assert_eq!(writer.finish(), Err(NotKept::TooLong));
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = zstd::encode_all(io::repeat(b'x').take(200 * 1024 * 1024), 1).unwrap();
        assert!(bomb.len() < 100_000);
        assert!(matches!(Recording::read(&bomb), Err(TapeError::TooLong)));
    }

    #[test]
    fn damage_is_named_and_never_read_as_something_else() {
        let good =
            written(&[Tape::Head("{}".into()), Tape::Bytes(b"hello".to_vec()), Tape::Foot("{}".into())]);
        let good = good.unwrap();
        let whole = Recording::read(&good).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            if let Ok(read) = Recording::read(&bad) {
                assert_eq!(read, whole, "byte {at}");
            }
            assert!(Recording::read(&good[..at]).is_err(), "cut at {at}");
        }
        for content in
            ["", "minke-stream 2\n", "minke-stream 1\nbytes 1\nx", "minke-stream 1\nhead {}\nbytes 9\nx"]
        {
            let blob = zstd::encode_all(content.as_bytes(), 1).unwrap();
            assert!(Recording::read(&blob).is_err(), "{content}");
        }
    }
}
