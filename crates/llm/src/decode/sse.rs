//! Server-sent events from a byte stream.
//!
//! Here: lines and fields (`data`, `event`; comments, `id` and `retry` are ignored), not their content.
//! Elsewhere: bodies in other formats (`framing`). Invariant: events do not depend on the chunking of the
//! bytes (tests below, `tests/conformance.rs`), and at most one event of `MAX_EVENT_BYTES` is buffered.

use memchr::memchr2;

use super::StreamFrame;
use crate::error::{ProviderError, ProviderErrorKind};

/// The largest event and the longest line. Images and long files arrive in one event; no real event is
/// larger.
pub(crate) const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Larger buffers are freed after the event that needed them.
const MAX_KEPT_BYTES: usize = 256 * 1024;

/// Receives the events.
pub(crate) type FrameSink<'s> = dyn FnMut(StreamFrame<'_>) -> Result<(), ProviderError> + 's;

/// The state between two chunks. A line or event inside one chunk is not copied.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    /// The beginning of an incomplete line.
    partial_line: Vec<u8>,
    /// Whether the last byte was a CR: a following LF belongs to it.
    after_cr: bool,
    name: String,
    /// The data of the event so far, if `has_data`; lines are joined by LF.
    data: Vec<u8>,
    has_data: bool,
}

impl SseParser {
    pub(crate) fn push(&mut self, mut chunk: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        // The only data line of an event, while it is inside this chunk.
        let mut lone: Option<&[u8]> = None;
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = chunk.split_at(1).1;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', chunk) else {
                check_event_size(self.partial_line.len() + chunk.len())?;
                self.partial_line.extend_from_slice(chunk);
                break;
            };
            let (line, rest) = chunk.split_at(end);
            self.after_cr = rest.first() == Some(&b'\r');
            chunk = rest.split_at(1).1;
            if self.partial_line.is_empty() {
                self.handle_line(line, &mut lone, sink)?;
            } else {
                check_event_size(self.partial_line.len() + line.len())?;
                self.partial_line.extend_from_slice(line);
                let whole = std::mem::take(&mut self.partial_line);
                // This buffer does not outlive the chunk, so its content cannot be `lone`.
                self.keep_line(lone.take())?;
                let mut own = None;
                self.handle_line(&whole, &mut own, sink)?;
                match own.map(|value| whole.len() - value.len()) {
                    Some(before) => self.set_data(whole, before),
                    None => self.partial_line = clear_buffer(whole),
                }
            }
        }
        self.keep_line(lone)
    }

    /// Handles the end of the bytes. Emits an event without its blank line too: some servers omit it, and the
    /// content shows whether the event is complete.
    pub(crate) fn finish(&mut self, sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
        let line = std::mem::take(&mut self.partial_line);
        let mut lone = None;
        if !line.is_empty() {
            self.handle_line(&line, &mut lone, sink)?;
        }
        self.dispatch_event(&mut lone, sink)
    }

    /// Copies a line out of its chunk.
    fn keep_line(&mut self, lone: Option<&[u8]>) -> Result<(), ProviderError> {
        match lone {
            Some(line) => self.add_data(line),
            None => Ok(()),
        }
    }

    /// Moves a line that arrived in pieces into the data of the event without a copy: it may be very large.
    fn set_data(&mut self, mut line: Vec<u8>, before: usize) {
        line.drain(..before);
        self.data = line;
        self.has_data = true;
    }

    fn add_data(&mut self, line: &[u8]) -> Result<(), ProviderError> {
        check_event_size(self.data.len() + line.len() + 1)?;
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(line);
        Ok(())
    }

    fn handle_line<'c>(
        &mut self,
        line: &'c [u8],
        lone: &mut Option<&'c [u8]>,
        sink: &mut FrameSink<'_>,
    ) -> Result<(), ProviderError> {
        check_event_size(line.len())?;
        if line.is_empty() {
            return self.dispatch_event(lone, sink);
        }
        if let Some(value) = field_value(line, b"data") {
            if lone.is_none() && !self.has_data {
                *lone = Some(value);
            } else {
                self.keep_line(lone.take())?;
                self.add_data(value)?;
            }
        } else if let Some(value) = field_value(line, b"event") {
            self.name.clear();
            self.name.push_str(utf8_text(value)?);
        }
        // Everything else is a comment, `id`, `retry`, or a field that the format requires to be ignored.
        Ok(())
    }

    /// Handles a blank line, which completes the event. An event without data is dropped.
    fn dispatch_event(
        &mut self,
        lone: &mut Option<&[u8]>,
        sink: &mut FrameSink<'_>,
    ) -> Result<(), ProviderError> {
        let result = match lone.take() {
            Some(data) => emit_frame(&self.name, data, sink),
            None if self.has_data => emit_frame(&self.name, &self.data, sink),
            None => Ok(()),
        };
        self.name.clear();
        self.has_data = false;
        self.data = clear_buffer(std::mem::take(&mut self.data));
        result
    }
}

fn emit_frame(name: &str, data: &[u8], sink: &mut FrameSink<'_>) -> Result<(), ProviderError> {
    sink(StreamFrame { name, data: utf8_text(data)? })
}

/// Returns the value if the line is this field: the text after the colon and one optional space, or an empty
/// text without a colon.
fn field_value<'c>(line: &'c [u8], name: &[u8]) -> Option<&'c [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None => rest.is_empty().then_some(rest),
    }
}

fn clear_buffer(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.shrink_to(MAX_KEPT_BYTES);
    buffer
}

fn check_event_size(bytes: usize) -> Result<(), ProviderError> {
    if bytes <= MAX_EVENT_BYTES {
        return Ok(());
    }
    let mib = MAX_EVENT_BYTES / (1024 * 1024);
    Err(ProviderError::new(
        ProviderErrorKind::TooLarge,
        format!("one event of the stream is larger than {mib} MiB"),
    ))
}

/// Converts bytes to text or returns an error.
pub(crate) fn utf8_text(bytes: &[u8]) -> Result<&str, ProviderError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let shown = super::preview_text(&String::from_utf8_lossy(bytes));
        ProviderError::new(
            ProviderErrorKind::Malformed,
            format!("an event is not UTF-8 (byte {} of it): {shown}", e.valid_up_to()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type EventList = Vec<(String, String)>;

    fn parse_events(chunks: &[&[u8]]) -> Result<EventList, ProviderError> {
        let mut seen = EventList::new();
        let mut sse = SseParser::default();
        let mut sink = |frame: StreamFrame<'_>| {
            seen.push((frame.name.to_owned(), frame.data.to_owned()));
            Ok(())
        };
        for chunk in chunks {
            sse.push(chunk, &mut sink)?;
        }
        sse.finish(&mut sink)?;
        Ok(seen)
    }

    fn event_list(pairs: &[(&str, &str)]) -> EventList {
        pairs.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    /// Decodes the body whole, byte by byte and split in two at every position.
    fn check_all_cuts(body: &str, expected: &[(&str, &str)]) {
        let bytes = body.as_bytes();
        let expected = event_list(expected);
        assert_eq!(parse_events(&[bytes]).expect("readable"), expected, "whole: {body:?}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse_events(&single).expect("readable"), expected, "byte by byte: {body:?}");
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(parse_events(&[a, b]).expect("readable"), expected, "cut at {at}: {body:?}");
        }
    }

    #[test]
    fn every_line_end_and_every_cut_gives_the_same_events() {
        for end in ["\n", "\r", "\r\n"] {
            let body =
                ["event: a", "data: 1", "", ": comment", "data:2", "data: é😀", "data", "", "", "id: 7"]
                    .join(end)
                    + end
                    + "retry: 5"
                    + end
                    + end
                    + "data:  two spaces"
                    + end
                    + end;
            check_all_cuts(&body, &[("a", "1"), ("", "2\né😀\n"), ("", " two spaces")]);
        }
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        check_all_cuts("data: 1\n\nevent: z\ndata: 2", &[("", "1"), ("z", "2")]);
        check_all_cuts("data: 1\r", &[("", "1")]);
        check_all_cuts("data: 1\n\nevent: only a name\n", &[("", "1")]);
    }

    #[test]
    fn a_name_does_not_outlive_its_event() {
        check_all_cuts("event: a\n\ndata: 1\n\nevent: b\nevent: c\ndata: 2\n\n", &[("", "1"), ("c", "2")]);
    }

    #[test]
    fn fields_are_matched_whole() {
        check_all_cuts("database: 1\ndata : 2\n data: 3\ndata: 4\n\n", &[("", "4")]);
    }

    #[test]
    fn what_is_no_text_is_a_problem_and_no_panic() {
        let found = parse_events(&[b"data: a\n\ndata: \xff\xfe\n\n"]).expect_err("not UTF-8");
        assert_eq!(found.kind, ProviderErrorKind::Malformed);
        let found = parse_events(&[b"event: \xc3\n\n"]).expect_err("not UTF-8");
        assert_eq!(found.kind, ProviderErrorKind::Malformed);
        // Ignored lines need not be text.
        assert_eq!(
            parse_events(&[b": \xff\nid: \xff\ndata: 1\n\n"]).expect("readable"),
            event_list(&[("", "1")])
        );
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_given_up() {
        let piece = vec![b'x'; 1024 * 1024];
        for start in ["data: ", ": ", "unknown"] {
            let mut sse = SseParser::default();
            let mut sink = |_: StreamFrame<'_>| Ok(());
            sse.push(start.as_bytes(), &mut sink).expect("small");
            let found = (0..64).find_map(|_| sse.push(&piece, &mut sink).err()).expect("too large");
            assert_eq!(found.kind, ProviderErrorKind::TooLarge);
            assert!(sse.partial_line.capacity() <= 2 * MAX_EVENT_BYTES, "memory is bounded");
        }
        let mut line = b"data: ".to_vec();
        line.extend_from_slice(&piece);
        line.push(b'\n');
        let mut sse = SseParser::default();
        let mut sink = |_: StreamFrame<'_>| Ok(());
        let found = (0..64).find_map(|_| sse.push(&line, &mut sink).err()).expect("too large");
        assert_eq!(found.kind, ProviderErrorKind::TooLarge);
        assert!(sse.data.capacity() <= 2 * MAX_EVENT_BYTES, "memory is bounded");
    }

    #[test]
    fn a_large_event_gives_its_memory_back() {
        let mut body = b"data: ".to_vec();
        body.resize(8 * 1024 * 1024, b'x');
        body.extend_from_slice(b"\n\ndata: 1\n\n");
        let mut sse = SseParser::default();
        let mut lengths = Vec::new();
        for chunk in body.chunks(16 * 1024) {
            sse.push(chunk, &mut |frame| {
                lengths.push(frame.data.len());
                Ok(())
            })
            .expect("readable");
        }
        assert_eq!(lengths, [8 * 1024 * 1024 - 6, 1]);
        assert!(sse.partial_line.capacity() <= MAX_KEPT_BYTES && sse.data.capacity() <= MAX_KEPT_BYTES);
    }
}
