//! Decoding: converts response bytes to `ModelEvent`s for every scheme and any chunking.
//!
//! Here: the entry point that guarantees the stream contract for all schemes. Its parts: framing (`framing`,
//! `sse`), open blocks (`blocks`), one file per scheme. Invariant: any chunking of the same bytes produces
//! the same events, every start has one stop, `Done` comes once and last, and a stream without a stop is a
//! `ProviderError` (`tests/conformance.rs`).

mod anthropic;
mod blocks;
mod chat;
mod framing;
mod gemini;
mod lenient;
mod output_items;
mod response_output;
mod responses;
pub(crate) mod scripted;
mod sse;
#[cfg(test)]
mod test_support;
mod wire_event;

use minke_model::{ModelEvent, StopReason};
use serde::Deserialize;

use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::WireScheme;
use framing::BodyFramer;

/// The longest preview of unreadable data.
const MAX_PREVIEW_CHARS: usize = 200;

/// The longest kept stop reason of a provider.
const MAX_STOP_CHARS: usize = 100;

/// How much text of an unknown block the user sees.
pub(crate) const MAX_UNKNOWN_BYTES: usize = 4 * 1024;

/// The most blocks in one reply. Each is an entry in the log, and no real reply has more.
pub(crate) const MAX_BLOCKS: usize = 10_000;

/// The largest reply in bytes, with all its events.
const MAX_REPLY_BYTES: u64 = 256 * 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamFrame<'a> {
    /// The SSE `event:` field, or empty.
    pub(crate) name: &'a str,
    pub(crate) data: &'a str,
}

/// The decoder of one scheme. `ReplyDecoder` handles bytes, framing and the end: events after `Done` are
/// dropped, and a stream without `Done` is an error.
pub(crate) trait SchemeDecoder: Send {
    /// Decodes one event of the stream.
    fn decode_frame(
        &mut self,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError>;
    /// Decodes a whole body of a server without streaming, or an error with status 200.
    fn decode_body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError>;
    /// Handles the end of the bytes without `Done`. Closes open blocks and emits `Done` if the last event
    /// allows it; otherwise leaves everything open and returns `ProviderErrorKind::Interrupted`.
    fn decode_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError>;
    /// Returns the number of events of unknown kinds so far.
    fn unknown_count(&self) -> u64;
}

/// Decodes one response. Push the bytes as they arrive, then call `finish`.
pub struct ReplyDecoder {
    framer: BodyFramer,
    scheme_decoder: Box<dyn SchemeDecoder>,
    state: DecoderState,
    limits: ReplyLimits,
}

/// The limits of one reply and the counts so far.
#[derive(Debug, Default)]
struct ReplyLimits {
    bytes: u64,
    blocks: usize,
    done: bool,
}

#[derive(Debug)]
enum DecoderState {
    Open,
    Done,
    Failed(ProviderError),
}

impl ReplyDecoder {
    pub fn new(scheme: WireScheme) -> ReplyDecoder {
        let framer = match scheme {
            WireScheme::Scripted => BodyFramer::json_lines(),
            WireScheme::Anthropic
            | WireScheme::OpenaiResponses
            | WireScheme::OpenaiChat
            | WireScheme::Gemini => BodyFramer::detect(),
        };
        let scheme_decoder: Box<dyn SchemeDecoder> = match scheme {
            WireScheme::Anthropic => Box::new(anthropic::AnthropicDecoder::new()),
            WireScheme::OpenaiResponses => Box::new(responses::ResponsesDecoder::new()),
            WireScheme::OpenaiChat => Box::new(chat::ChatDecoder::new()),
            WireScheme::Gemini => Box::new(gemini::GeminiDecoder::new()),
            WireScheme::Scripted => Box::new(scripted::ScriptedDecoder::new()),
        };
        ReplyDecoder { framer, scheme_decoder, state: DecoderState::Open, limits: ReplyLimits::default() }
    }

    /// Decodes the next bytes and appends their events to `out`, even those before an error. After `Done` all
    /// data is ignored; after an error the same error is returned again.
    pub fn push_bytes(&mut self, chunk: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        match &self.state {
            DecoderState::Open => {}
            DecoderState::Done => return Ok(()),
            DecoderState::Failed(problem) => return Err(problem.clone()),
        }
        let ReplyDecoder { framer, scheme_decoder, limits, .. } = self;
        let result =
            framer.push(chunk, &mut |frame| limits.decode_within_limits(scheme_decoder.as_mut(), frame, out));
        self.record_result(result)
    }

    /// Handles the end of the bytes.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        match &self.state {
            DecoderState::Open => {}
            DecoderState::Done => return Ok(()),
            DecoderState::Failed(problem) => return Err(problem.clone()),
        }
        let ReplyDecoder { framer, scheme_decoder, limits, .. } = self;
        let mut result =
            framer.finish(&mut |frame| limits.decode_within_limits(scheme_decoder.as_mut(), frame, out));
        if let Err(problem) = &mut result
            && problem.kind == ProviderErrorKind::Malformed
        {
            // The last event is truncated, which is why it cannot be parsed.
            problem.kind = ProviderErrorKind::Interrupted;
        }
        if result.is_ok() && !limits.done {
            let before = out.len();
            result = match (framer.whole_body(), framer.not_events_error()) {
                (Some(body), _) => body.and_then(|body| scheme_decoder.decode_body(body, out)),
                (None, Some(problem)) => Err(problem),
                (None, None) => scheme_decoder.decode_end(out),
            };
            result = result.and(limits.check_blocks(before, out));
            if result.is_ok() && !limits.done {
                result = Err(ProviderError::new(
                    ProviderErrorKind::Interrupted,
                    "the response ended before it was complete",
                ));
            }
        }
        self.record_result(result)
    }

    /// Returns the number of ignored events and blocks of unknown kinds.
    pub fn unknown_events(&self) -> u64 {
        self.scheme_decoder.unknown_count()
    }

    /// Returns whether `Done` has been emitted. The remaining bytes have no meaning.
    pub fn is_done(&self) -> bool {
        matches!(self.state, DecoderState::Done)
    }

    fn record_result(&mut self, result: Result<(), ProviderError>) -> Result<(), ProviderError> {
        if self.limits.done {
            // Errors after the end are ignored, because their detection would depend on the chunking.
            self.state = DecoderState::Done;
            return Ok(());
        }
        if let Err(problem) = &result {
            self.state = DecoderState::Failed(problem.clone());
        }
        result
    }
}

impl ReplyLimits {
    /// Decodes one event unless `Done` came before it.
    fn decode_within_limits(
        &mut self,
        decode: &mut dyn SchemeDecoder,
        frame: StreamFrame<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), ProviderError> {
        let frame = StreamFrame { data: frame.data.trim(), ..frame };
        // An event without content only keeps the connection alive.
        if self.done || frame.data.is_empty() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(frame.data.len() as u64);
        if self.bytes > MAX_REPLY_BYTES {
            let mib = MAX_REPLY_BYTES / (1024 * 1024);
            return Err(ProviderError::new(
                ProviderErrorKind::TooLarge,
                format!("the response is larger than {mib} MiB"),
            ));
        }
        let before = out.len();
        let result = decode.decode_frame(frame, out);
        result.and(self.check_blocks(before, out))
    }

    /// Checks the limits for the events just emitted.
    fn check_blocks(&mut self, before: usize, out: &[ModelEvent]) -> Result<(), ProviderError> {
        let new = out.iter().skip(before);
        let begins =
            |event: &&ModelEvent| matches!(event, ModelEvent::BlockStart { .. } | ModelEvent::Unknown { .. });
        self.blocks += new.filter(begins).count();
        self.done = contains_done(out, before);
        if self.blocks > MAX_BLOCKS && !self.done { Err(too_many_blocks()) } else { Ok(()) }
    }
}

pub(crate) fn too_many_blocks() -> ProviderError {
    ProviderError::new(ProviderErrorKind::TooLarge, format!("the response has more than {MAX_BLOCKS} blocks"))
}

fn contains_done(out: &[ModelEvent], before: usize) -> bool {
    out.len() > before && matches!(out.last(), Some(ModelEvent::Done { .. }))
}

/// Parses the JSON of an event. The error contains its name and a preview.
pub(crate) fn parse_event<'a, T: Deserialize<'a>>(frame: StreamFrame<'a>) -> Result<T, ProviderError> {
    serde_json::from_str(frame.data).map_err(|e| {
        let name =
            if frame.name.is_empty() { String::new() } else { format!(" `{}`", preview_text(frame.name)) };
        let shown = preview_text(frame.data);
        ProviderError::new(
            ProviderErrorKind::Malformed,
            format!("the event{name} cannot be read ({e}): {shown}"),
        )
    })
}

/// Parses the JSON of a whole body. An early end means that it was truncated.
pub(crate) fn parse_body<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, ProviderError> {
    serde_json::from_str(body).map_err(|e| {
        let reason = if e.is_eof() { ProviderErrorKind::Interrupted } else { ProviderErrorKind::Malformed };
        ProviderError::new(reason, format!("the response cannot be read ({e}): {}", preview_text(body)))
    })
}

/// Returns the beginning of a text on one line.
pub(crate) fn preview_text(text: &str) -> String {
    let mut shown: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_PREVIEW_CHARS).collect();
    if text.chars().nth(MAX_PREVIEW_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Appends a piece to the text of an unknown block, up to the limit.
pub(crate) fn append_limited(text: &mut String, piece: &str) {
    let room = MAX_UNKNOWN_BYTES.saturating_sub(text.len());
    let mut end = room.min(piece.len());
    while !piece.is_char_boundary(end) {
        end -= 1;
    }
    text.push_str(piece.split_at(end).0);
}

/// The longest kept refusal message of a provider.
const MAX_DETAIL_CHARS: usize = 500;

/// Returns why the provider refused or filtered a reply, on one line, with the most specific words first.
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
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_DETAIL_CHARS).collect();
    (!text.is_empty()).then_some(ModelEvent::StopDetail { text })
}

/// Returns an unknown stop reason with the provider's word, truncated.
pub(crate) fn other_stop_reason(word: &str) -> StopReason {
    StopReason::from(word.chars().take(MAX_STOP_CHARS).collect::<String>().as_str())
}

/// Returns the error for a stream that ended too early.
pub(crate) fn cut_off_error(what: &str) -> ProviderError {
    ProviderError::new(
        ProviderErrorKind::Interrupted,
        format!("the stream ended before the reply did ({what})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_chunks(scheme: WireScheme, chunks: &[&[u8]]) -> (Vec<ModelEvent>, Result<(), ProviderError>) {
        let mut decoder = ReplyDecoder::new(scheme);
        let mut out = Vec::new();
        let pushed = chunks.iter().try_for_each(|chunk| decoder.push_bytes(chunk, &mut out));
        let result = pushed.and_then(|()| decoder.finish(&mut out));
        (out, result)
    }

    #[test]
    fn an_answer_has_no_more_blocks_and_bytes_than_it_may() {
        let event = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\"}}\n\n\
                     data: {\"type\":\"content_block_stop\"}\n\n";
        let body = event.repeat(MAX_BLOCKS + 1);
        let (_, result) = decode_chunks(WireScheme::Anthropic, &[body.as_bytes()]);
        assert_eq!(result.map_err(|problem| problem.kind), Err(ProviderErrorKind::TooLarge));

        let piece = format!("data: {{\"type\":\"ping\",\"x\":\"{}\"}}\n\n", "x".repeat(16 * 1024 * 1024));
        let mut decoder = ReplyDecoder::new(WireScheme::Anthropic);
        let mut out = Vec::new();
        let problem =
            (0..20).find_map(|_| decoder.push_bytes(piece.as_bytes(), &mut out).err()).expect("too large");
        assert_eq!(problem.kind, ProviderErrorKind::TooLarge);
        assert_eq!(decoder.push_bytes(b"data: {}\n\n", &mut out), Err(problem), "the error is permanent");
    }

    #[test]
    fn what_is_wrong_behind_the_end_is_not_seen() {
        let body = b"data:\n\ndata:  \n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                     data: {\"type\":\"message_stop\"}\n\ndata: \xff{\n\n";
        for chunks in [vec![body.as_slice()], body.chunks(1).collect()] {
            let (events, result) = decode_chunks(WireScheme::Anthropic, &chunks);
            assert_eq!(result, Ok(()));
            assert!(matches!(events.last(), Some(ModelEvent::Done { .. })));
        }
    }

    #[test]
    fn what_is_no_answer_is_a_problem() {
        for (body, reason, said) in [
            ("", ProviderErrorKind::Interrupted, "empty"),
            ("<html>Sign in</html>", ProviderErrorKind::Malformed, "Sign in"),
            ("{\"content\":[", ProviderErrorKind::Interrupted, "content"),
            ("{\"content\":}", ProviderErrorKind::Malformed, "content"),
            ("data: {\"type\":\"mess", ProviderErrorKind::Interrupted, "mess"),
            ("data: {\"type\":\"mess\n\n", ProviderErrorKind::Malformed, "mess"),
        ] {
            let (events, result) = decode_chunks(WireScheme::Anthropic, &[body.as_bytes()]);
            let problem = result.expect_err(body);
            assert_eq!((problem.kind, events.len()), (reason, 0), "{body}");
            assert!(problem.text.contains(said), "{body}: {}", problem.text);
        }
    }
}
