//! Framing: splits a response into events.
//!
//! Here: detection of the body format from its first byte: an event stream (`sse`), one JSON object (a server
//! without streaming, or an error), a JSON array of events, or lines. Elsewhere: the meaning of events.
//! Invariant: events do not depend on the chunking of the bytes; at most one element or body is buffered,
//! with a limit.

use memchr::memchr;

use super::sse::{FrameSink, MAX_EVENT_BYTES, SseParser, utf8_text};
use super::{StreamFrame, preview_text};
use crate::error::{ProviderError, ProviderErrorKind};

/// The largest body that is buffered completely.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How much of a body error messages show.
const MAX_PREVIEW_BYTES: usize = 256;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The framing state of a body.
#[derive(Debug)]
pub(crate) struct BodyFramer {
    format: BodyFormat,
    /// Received bytes of a byte order mark.
    bom_bytes: usize,
    /// The first bytes, for error messages.
    preview: Vec<u8>,
    frame_count: u64,
}

#[derive(Debug)]
enum BodyFormat {
    /// Only white space so far.
    Unknown,
    Sse(SseParser),
    Body(Vec<u8>),
    Array(ArrayElements),
    JsonLines(Vec<u8>),
}

impl BodyFramer {
    /// Creates a framer that detects the format.
    pub(crate) fn detect() -> BodyFramer {
        BodyFramer { format: BodyFormat::Unknown, bom_bytes: 0, preview: Vec::new(), frame_count: 0 }
    }

    /// Creates a framer with one event per line. Blank lines are ignored.
    pub(crate) fn json_lines() -> BodyFramer {
        BodyFramer { format: BodyFormat::JsonLines(Vec::new()), ..BodyFramer::detect() }
    }

    pub(crate) fn push(&mut self, chunk: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        let room = MAX_PREVIEW_BYTES.saturating_sub(self.preview.len());
        self.preview.extend(chunk.iter().take(room));
        let (early, rest): (&[u8], &[u8]) = match self.format {
            BodyFormat::Unknown => match self.detect_format(chunk) {
                Some(found) => found,
                None => return Ok(()),
            },
            _ => (&[], chunk),
        };
        let frames = &mut self.frame_count;
        let sink = &mut |frame: StreamFrame<'_>| {
            *frames += 1;
            sink(frame)
        };
        self.format.push(early, sink)?;
        self.format.push(rest, sink)
    }

    /// Detects the format at the first non-blank byte. Returns the withheld bytes and the rest.
    fn detect_format<'c>(&mut self, chunk: &'c [u8]) -> Option<(&'static [u8], &'c [u8])> {
        for (at, &byte) in chunk.iter().enumerate() {
            if self.bom_bytes < BOM.len() && BOM.get(self.bom_bytes) == Some(&byte) {
                self.bom_bytes += 1;
                continue;
            }
            // A partial byte order mark is part of the body.
            let early = if self.bom_bytes < BOM.len() { BOM.split_at(self.bom_bytes).0 } else { &[] };
            if early.is_empty() {
                if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                    self.bom_bytes = BOM.len();
                    continue;
                }
                self.format = match byte {
                    b'{' => BodyFormat::Body(Vec::new()),
                    b'[' => BodyFormat::Array(ArrayElements::default()),
                    _ => BodyFormat::Sse(SseParser::default()),
                };
            } else {
                self.format = BodyFormat::Sse(SseParser::default());
            }
            return Some((early, chunk.split_at(at).1));
        }
        None
    }

    /// Handles the end of the bytes: emits an event without a proper end. A whole body is returned by
    /// `whole_body`.
    pub(crate) fn finish(&mut self, sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        let frames = &mut self.frame_count;
        let sink = &mut |frame: StreamFrame<'_>| {
            *frames += 1;
            sink(frame)
        };
        match &mut self.format {
            BodyFormat::Sse(sse) => sse.finish(sink),
            BodyFormat::JsonLines(line) => emit_line(&std::mem::take(line), sink),
            BodyFormat::Unknown | BodyFormat::Body(_) | BodyFormat::Array(_) => Ok(()),
        }
    }

    /// Returns the whole body if it is one JSON object.
    pub(crate) fn whole_body(&self) -> Option<Result<&str, ProviderError>> {
        match &self.format {
            BodyFormat::Body(body) => Some(utf8_text(body)),
            _ => None,
        }
    }

    /// Returns an error if the body contains no events.
    pub(crate) fn not_events_error(&self) -> Option<ProviderError> {
        if self.frame_count > 0 || matches!(self.format, BodyFormat::Body(_) | BodyFormat::JsonLines(_)) {
            return None;
        }
        let head = String::from_utf8_lossy(&self.preview);
        let field =
            |head: &str| [":", "data", "event:", "id:", "retry:"].iter().any(|field| head.starts_with(field));
        Some(match head.trim_matches(['\u{feff}', ' ', '\r', '\n', '\t']) {
            "" => ProviderError::new(ProviderErrorKind::Interrupted, "the response was empty"),
            head if field(head) => {
                ProviderError::new(ProviderErrorKind::Interrupted, "the stream ended before its first event")
            }
            head => ProviderError::new(
                ProviderErrorKind::Malformed,
                format!("the response is not an event stream; it starts with: {}", preview_text(head)),
            ),
        })
    }
}

impl BodyFormat {
    fn push(&mut self, chunk: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        match self {
            BodyFormat::Unknown => Ok(()),
            BodyFormat::Sse(sse) => sse.push(chunk, sink),
            BodyFormat::Array(elements) => elements.push(chunk, sink),
            BodyFormat::JsonLines(line) => push_lines(line, chunk, sink),
            BodyFormat::Body(body) => {
                check_limit(body.len() + chunk.len(), MAX_BODY_BYTES, "the response")?;
                body.extend_from_slice(chunk);
                Ok(())
            }
        }
    }
}

fn push_lines(held: &mut Vec<u8>, mut chunk: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
    while let Some(end) = memchr(b'\n', chunk) {
        let (line, rest) = chunk.split_at(end);
        check_limit(held.len() + line.len(), MAX_EVENT_BYTES, "one line")?;
        if held.is_empty() {
            emit_line(line, sink)?;
        } else {
            held.extend_from_slice(line);
            emit_line(&std::mem::take(held), sink)?;
        }
        chunk = rest.split_at(1).1;
    }
    check_limit(held.len() + chunk.len(), MAX_EVENT_BYTES, "one line")?;
    held.extend_from_slice(chunk);
    Ok(())
}

fn emit_line(line: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
    let data = utf8_text(line)?.trim();
    if data.is_empty() { Ok(()) } else { sink(StreamFrame { name: "", data }) }
}

/// The elements of a JSON array, emitted as soon as they are complete.
#[derive(Debug, Default)]
struct ArrayElements {
    /// The bytes of the current element.
    element: Vec<u8>,
    /// Number of open brackets, including that of the array.
    depth: u64,
    in_string: bool,
    is_escaped: bool,
    is_finished: bool,
}

impl ArrayElements {
    fn push(&mut self, chunk: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        // Start of the part of the element in this chunk that has not been copied.
        let mut from = 0;
        for (at, &byte) in chunk.iter().enumerate() {
            if self.is_finished {
                return self.check_after_end(chunk.split_at(at).1);
            }
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == 1 {
                        from = at + 1;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.append_bytes(chunk, from, at)?;
                        from = at + 1;
                        self.emit_element(sink)?;
                        self.is_finished = true;
                    }
                }
                b',' if self.depth == 1 => {
                    self.append_bytes(chunk, from, at)?;
                    from = at + 1;
                    self.emit_element(sink)?;
                }
                _ => {}
            }
            // A complete object does not wait for the comma after it.
            if byte == b'}' && self.depth == 1 {
                self.append_bytes(chunk, from, at + 1)?;
                from = at + 1;
                self.emit_element(sink)?;
            }
        }
        if self.is_finished { Ok(()) } else { self.append_bytes(chunk, from, chunk.len()) }
    }

    fn append_bytes(&mut self, chunk: &[u8], from: usize, to: usize) -> Result<(), ProviderError> {
        let part = chunk.get(from..to).unwrap_or_default();
        check_limit(self.element.len() + part.len(), MAX_EVENT_BYTES, "one element of the response")?;
        self.element.extend_from_slice(part);
        Ok(())
    }

    fn emit_element(&mut self, sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        let element = std::mem::take(&mut self.element);
        emit_line(&element, sink)
    }

    fn check_after_end(&self, rest: &[u8]) -> Result<(), ProviderError> {
        if rest.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        Err(ProviderError::new(ProviderErrorKind::Malformed, "unexpected data after the array"))
    }
}

fn check_limit(bytes: usize, limit: usize, what: &str) -> Result<(), ProviderError> {
    if bytes <= limit {
        return Ok(());
    }
    Err(ProviderError::new(
        ProviderErrorKind::TooLarge,
        format!("{what} is larger than {} MiB", limit / (1024 * 1024)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_frames(
        framing: fn() -> BodyFramer,
        chunks: &[&[u8]],
    ) -> Result<(Vec<String>, Option<String>), ProviderError> {
        let mut seen = Vec::new();
        let mut framing = framing();
        let mut sink = |frame: StreamFrame<'_>| {
            seen.push(frame.data.to_owned());
            Ok(())
        };
        for chunk in chunks {
            framing.push(chunk, &mut sink)?;
        }
        framing.finish(&mut sink)?;
        let body = framing.whole_body().transpose()?.map(str::to_owned);
        Ok((seen, body))
    }

    fn check_all_cuts(framing: fn() -> BodyFramer, body: &[u8], expected: &[&str]) {
        let whole = read_frames(framing, &[body]).expect("readable");
        assert_eq!(whole.0, expected);
        for at in 0..=body.len() {
            let (a, b) = body.split_at(at);
            assert_eq!(read_frames(framing, &[a, b]).expect("readable"), whole, "cut at {at}");
        }
        let single: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(read_frames(framing, &single).expect("readable"), whole, "byte by byte");
    }

    #[test]
    fn the_form_shows_itself() {
        check_all_cuts(BodyFramer::detect, b"\xef\xbb\xbf\r\n data: 1\n\n", &["1"]);
        check_all_cuts(BodyFramer::detect, b"\n\n: hello\n\ndata: 2\n\n", &["2"]);
        check_all_cuts(
            BodyFramer::detect,
            b"\xef\xbb\xbf [{\"a\":\"]}\\\"{\"},\r\n{\"b\":[1,{}]}\n]\n",
            &[r#"{"a":"]}\"{"}"#, r#"{"b":[1,{}]}"#],
        );
        check_all_cuts(BodyFramer::detect, b"[]", &[]);
        let (frames, body) =
            read_frames(BodyFramer::detect, &[b"\xef\xbb", b"\xbf\n{\"a\"", b":1}"]).expect("readable");
        assert_eq!((frames.len(), body.as_deref()), (0, Some("{\"a\":1}")));
    }

    #[test]
    fn an_element_comes_as_soon_as_it_is_whole() {
        let mut framing = BodyFramer::detect();
        let mut seen = 0;
        framing
            .push(b"[{\"a\":1}", &mut |_| {
                seen += 1;
                Ok(())
            })
            .expect("readable");
        assert_eq!(seen, 1);
    }

    #[test]
    fn lines_are_events() {
        check_all_cuts(
            BodyFramer::json_lines,
            b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}",
            &["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"],
        );
    }

    #[test]
    fn what_is_no_stream_is_shown() {
        let mut framing = BodyFramer::detect();
        framing.push(b"<html><title>Bad gateway</title></html>", &mut |_| Ok(())).expect("readable");
        let found = framing.not_events_error().expect("a problem");
        assert!(found.text.contains("Bad gateway"), "{}", found.text);
        assert_eq!(
            BodyFramer::detect().not_events_error().map(|p| p.kind),
            Some(ProviderErrorKind::Interrupted)
        );
        let mut framing = BodyFramer::detect();
        framing.push(b"\xef\xbb\xbf: still waiting\n\nevent: a\n", &mut |_| Ok(())).expect("readable");
        assert_eq!(
            framing.not_events_error().map(|p| p.kind),
            Some(ProviderErrorKind::Interrupted),
            "a stream without events"
        );
    }

    #[test]
    fn what_never_ends_is_given_up() {
        let piece = vec![b'x'; 1024 * 1024];
        for start in ["{\"a\":\"", "[{\"a\":\""] {
            let mut framing = BodyFramer::detect();
            framing.push(start.as_bytes(), &mut |_| Ok(())).expect("small");
            let found = (0..80).find_map(|_| framing.push(&piece, &mut |_| Ok(())).err()).expect("too large");
            assert_eq!(found.kind, ProviderErrorKind::TooLarge);
        }
    }
}
