//! Decoding: response bytes in, `ModelEvent`s out, whatever the scheme and however the bytes are cut.
//!
//! Here: the front door that keeps the stream contract for all schemes. Its parts: framing (`frame`, `sse`), the blocks
//! that are open (`blocks`), one file per scheme.
//! Invariant: any chunking of the same bytes gives the same events, every start has one stop, `Done` comes once and
//! last, and what ends without a stop is a `Problem` (`tests/conformance.rs`).

mod anthropic;
mod blocks;
mod chat;
mod frame;
mod gemini;
mod items;
mod loose;
mod output;
mod responses;
pub(crate) mod scripted;
mod sse;
#[cfg(test)]
mod testing;
mod wire;

use minke_model::{ModelEvent, StopReason};
use serde::Deserialize;

use crate::problem::{Problem, Reason};
use crate::settings::Scheme;
use frame::Framing;
pub(crate) use gemini::OWN_PART;

/// How much of something unreadable is shown.
const PREVIEW_CHARS: usize = 200;

/// How much of a provider's own word for something is kept.
const WORD_CHARS: usize = 100;

/// How much of the text of an unknown block is kept for a person to read.
pub(crate) const UNKNOWN_BYTES: usize = 4 * 1024;

/// Blocks of one reply. Nothing honest has more, and each is an entry in the log.
pub(crate) const BLOCKS: usize = 10_000;

/// Bytes of one answer, all its events together.
const ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The SSE `event:` field; empty if there was none.
    pub(crate) name: &'a str,
    pub(crate) data: &'a str,
}

/// What one scheme makes of its events. The front door below takes care of bytes, framing and the order of the ends:
/// nothing is passed on after `Done`, and a stream that ends without it is a problem.
pub(crate) trait Decode: Send {
    /// One event of the stream.
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem>;
    /// A whole, unstreamed body: servers that do not stream answer so, and so does a `200` that is an error.
    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem>;
    /// The bytes are over, and `Done` has not come. Closes what is open and says `Done` if the provider's last word
    /// allows it; else leaves everything open and gives `Reason::Cut`.
    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem>;
    /// Events of kinds that this scheme does not know, so far.
    fn unknown(&self) -> u64;
}

/// Reads one response. Give it the bytes as they come, then `finish`.
pub struct Decoder {
    framing: Framing,
    decode: Box<dyn Decode>,
    state: State,
    bounds: Bounds,
}

/// How much one answer may hold. What has come so far.
#[derive(Debug, Default)]
struct Bounds {
    bytes: u64,
    blocks: usize,
    done: bool,
}

#[derive(Debug)]
enum State {
    Open,
    Done,
    Failed(Problem),
}

impl Decoder {
    pub fn new(scheme: Scheme) -> Decoder {
        let framing = match scheme {
            Scheme::Scripted => Framing::lines(),
            Scheme::Anthropic | Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Gemini => {
                Framing::sniffed()
            }
        };
        let decode: Box<dyn Decode> = match scheme {
            Scheme::Anthropic => Box::new(anthropic::AnthropicDecode::new()),
            Scheme::OpenaiResponses => Box::new(responses::ResponsesDecode::new()),
            Scheme::OpenaiChat => Box::new(chat::ChatDecode::new()),
            Scheme::Gemini => Box::new(gemini::GeminiDecode::new()),
            Scheme::Scripted => Box::new(scripted::ScriptedDecode::new()),
        };
        Decoder { framing, decode, state: State::Open, bounds: Bounds::default() }
    }

    /// The next bytes. What they tell goes to `out`, also what they tell before a problem. After `Done` nothing more is
    /// passed on; after a problem the same problem comes again.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        match &self.state {
            State::Open => {}
            State::Done => return Ok(()),
            State::Failed(problem) => return Err(problem.clone()),
        }
        let Decoder { framing, decode, bounds, .. } = self;
        let result = framing.push(chunk, &mut |frame| bounds.take(decode.as_mut(), frame, out));
        self.settle(result)
    }

    /// The bytes are over.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        match &self.state {
            State::Open => {}
            State::Done => return Ok(()),
            State::Failed(problem) => return Err(problem.clone()),
        }
        let Decoder { framing, decode, bounds, .. } = self;
        let mut result = framing.finish(&mut |frame| bounds.take(decode.as_mut(), frame, out));
        if let Err(problem) = &mut result
            && problem.reason == Reason::Malformed
        {
            // The last event had no end, so what makes it unreadable is the cut.
            problem.reason = Reason::Cut;
        }
        if result.is_ok() && !bounds.done {
            let before = out.len();
            result = match (framing.body(), framing.no_events()) {
                (Some(body), _) => body.and_then(|body| decode.body(body, out)),
                (None, Some(problem)) => Err(problem),
                (None, None) => decode.end(out),
            };
            result = result.and(bounds.check(before, out));
            if result.is_ok() && !bounds.done {
                result = Err(Problem::new(Reason::Cut, "the answer ended before it was complete"));
            }
        }
        self.settle(result)
    }

    /// Events and blocks of kinds that we do not know, so far. They are passed over.
    pub fn unknown_events(&self) -> u64 {
        self.decode.unknown()
    }

    /// Whether `Done` has come: the rest of the bytes, if there is any, says nothing more.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    fn settle(&mut self, result: Result<(), Problem>) -> Result<(), Problem> {
        if self.bounds.done {
            // What is wrong behind the end is nobody's business; it would depend on the chunking whether it is seen.
            self.state = State::Done;
            return Ok(());
        }
        if let Err(problem) = &result {
            self.state = State::Failed(problem.clone());
        }
        result
    }
}

impl Bounds {
    /// One event, unless `Done` came before it.
    fn take(
        &mut self,
        decode: &mut dyn Decode,
        frame: Frame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), Problem> {
        let frame = Frame { data: frame.data.trim(), ..frame };
        // An event without content keeps a connection alive, nothing else.
        if self.done || frame.data.is_empty() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(frame.data.len() as u64);
        if self.bytes > ANSWER_BYTES {
            let mib = ANSWER_BYTES / (1024 * 1024);
            return Err(Problem::new(Reason::TooLarge, format!("the answer is larger than {mib} MiB")));
        }
        let before = out.len();
        let result = decode.frame(frame, out);
        result.and(self.check(before, out))
    }

    /// What has just been told.
    fn check(&mut self, before: usize, out: &[ModelEvent]) -> Result<(), Problem> {
        let new = out.iter().skip(before);
        let begins =
            |event: &&ModelEvent| matches!(event, ModelEvent::BlockStart { .. } | ModelEvent::Unknown { .. });
        self.blocks += new.filter(begins).count();
        self.done = said_done(out, before);
        if self.blocks > BLOCKS && !self.done { Err(too_many()) } else { Ok(()) }
    }
}

pub(crate) fn too_many() -> Problem {
    Problem::new(Reason::TooLarge, format!("the answer has more than {BLOCKS} blocks"))
}

fn said_done(out: &[ModelEvent], before: usize) -> bool {
    out.len() > before && matches!(out.last(), Some(ModelEvent::Done { .. }))
}

/// The JSON of an event. What cannot be read is named and shown.
pub(crate) fn parse<'a, T: Deserialize<'a>>(frame: Frame<'a>) -> Result<T, Problem> {
    serde_json::from_str(frame.data).map_err(|e| {
        let name = if frame.name.is_empty() { String::new() } else { format!(" `{}`", preview(frame.name)) };
        let shown = preview(frame.data);
        Problem::new(Reason::Malformed, format!("the event{name} cannot be read ({e}): {shown}"))
    })
}

/// The JSON of a whole body. One that ends too early was cut.
pub(crate) fn parse_body<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Problem> {
    serde_json::from_str(body).map_err(|e| {
        let reason = if e.is_eof() { Reason::Cut } else { Reason::Malformed };
        Problem::new(reason, format!("the answer cannot be read ({e}): {}", preview(body)))
    })
}

/// The beginning of a text, on one line.
pub(crate) fn preview(text: &str) -> String {
    let mut shown: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(PREVIEW_CHARS).collect();
    if text.chars().nth(PREVIEW_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Adds a piece to the text of an unknown block, as far as there is room.
pub(crate) fn add_bounded(text: &mut String, piece: &str) {
    let room = UNKNOWN_BYTES.saturating_sub(text.len());
    let mut end = room.min(piece.len());
    while !piece.is_char_boundary(end) {
        end -= 1;
    }
    text.push_str(piece.split_at(end).0);
}

/// How much of a provider's words about a refusal is kept.
const DETAIL_CHARS: usize = 500;

/// Why the provider refused or filtered a reply, on one line: the words that it gave, most telling first.
pub(crate) fn stop_detail<'a>(words: impl IntoIterator<Item = Option<&'a str>>) -> Option<ModelEvent> {
    let words = words.into_iter().flatten().map(str::trim).filter(|word| !word.is_empty());
    let mut kept: Vec<&str> = Vec::new();
    for word in words {
        if !kept.contains(&word) {
            kept.push(word);
        }
    }
    let line = kept.join(" – ");
    let text: String =
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_CHARS).collect();
    (!text.is_empty()).then_some(ModelEvent::StopDetail { text })
}

/// A reason to stop that is none of those that we know: the provider's word, bounded.
pub(crate) fn other_stop(word: &str) -> StopReason {
    StopReason::from(word.chars().take(WORD_CHARS).collect::<String>().as_str())
}

/// A `stop` that no decoder can give because nothing came: the words for it.
pub(crate) fn cut(what: &str) -> Problem {
    Problem::new(Reason::Cut, format!("the stream ended before the reply did ({what})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scheme: Scheme, chunks: &[&[u8]]) -> (Vec<ModelEvent>, Result<(), Problem>) {
        let mut decoder = Decoder::new(scheme);
        let mut out = Vec::new();
        let pushed = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut out));
        let result = pushed.and_then(|()| decoder.finish(&mut out));
        (out, result)
    }

    #[test]
    fn an_answer_has_no_more_blocks_and_bytes_than_it_may() {
        let event = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\"}}\n\n\
                     data: {\"type\":\"content_block_stop\"}\n\n";
        let body = event.repeat(BLOCKS + 1);
        let (_, result) = read(Scheme::Anthropic, &[body.as_bytes()]);
        assert_eq!(result.map_err(|problem| problem.reason), Err(Reason::TooLarge));

        let piece = format!("data: {{\"type\":\"ping\",\"x\":\"{}\"}}\n\n", "x".repeat(16 * 1024 * 1024));
        let mut decoder = Decoder::new(Scheme::Anthropic);
        let mut out = Vec::new();
        let problem =
            (0..20).find_map(|_| decoder.push(piece.as_bytes(), &mut out).err()).expect("too large");
        assert_eq!(problem.reason, Reason::TooLarge);
        assert_eq!(decoder.push(b"data: {}\n\n", &mut out), Err(problem), "what failed has failed");
    }

    #[test]
    fn what_is_wrong_behind_the_end_is_not_seen() {
        let body = b"data:\n\ndata:  \n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                     data: {\"type\":\"message_stop\"}\n\ndata: \xff{\n\n";
        for chunks in [vec![body.as_slice()], body.chunks(1).collect()] {
            let (events, result) = read(Scheme::Anthropic, &chunks);
            assert_eq!(result, Ok(()));
            assert!(matches!(events.last(), Some(ModelEvent::Done { .. })));
        }
    }

    #[test]
    fn what_is_no_answer_is_a_problem() {
        for (body, reason, said) in [
            ("", Reason::Cut, "empty"),
            ("<html>Sign in</html>", Reason::Malformed, "Sign in"),
            ("{\"content\":[", Reason::Cut, "content"),
            ("{\"content\":}", Reason::Malformed, "content"),
            ("data: {\"type\":\"mess", Reason::Cut, "mess"),
            ("data: {\"type\":\"mess\n\n", Reason::Malformed, "mess"),
        ] {
            let (events, result) = read(Scheme::Anthropic, &[body.as_bytes()]);
            let problem = result.expect_err(body);
            assert_eq!((problem.reason, events.len()), (reason, 0), "{body}");
            assert!(problem.text.contains(said), "{body}: {}", problem.text);
        }
    }
}
