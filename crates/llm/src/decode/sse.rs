//! Server-sent events, read from bytes as they come.
//!
//! Here: lines and fields (`data`, `event`; comments, `id` and `retry` say nothing to us), nothing about what is in
//! them. Elsewhere: bodies that are no event streams (`frame`).
//! Invariant: the events do not depend on how the bytes are cut (tests below, `tests/conformance.rs`), and no more
//! than one event of `EVENT_BYTES` is held at a time.

use memchr::memchr2;

use super::Frame;
use crate::problem::{Problem, Reason};

/// The largest event, and the longest line, that is read. Images and long files come in one event; nothing honest is
/// larger than this.
pub(crate) const EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Buffers larger than this are given back after the event that needed them.
const KEPT_BYTES: usize = 256 * 1024;

/// Who is given the events.
pub(crate) type Sink<'s> = dyn FnMut(Frame<'_>) -> Result<(), Problem> + 's;

/// The state between two chunks. A line or an event that lies whole in a chunk is never copied.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The last byte was a CR: if an LF follows, it belongs to it.
    after_cr: bool,
    name: String,
    /// The event's data so far, if `has_data`; lines joined by LF.
    data: Vec<u8>,
    has_data: bool,
}

impl Sse {
    pub(crate) fn push(&mut self, mut chunk: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
        // The only data line of an event, as long as it lies in this chunk.
        let mut lone: Option<&[u8]> = None;
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = chunk.split_at(1).1;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', chunk) else {
                bounded(self.line.len() + chunk.len())?;
                self.line.extend_from_slice(chunk);
                break;
            };
            let (line, rest) = chunk.split_at(end);
            self.after_cr = rest.first() == Some(&b'\r');
            chunk = rest.split_at(1).1;
            if self.line.is_empty() {
                self.take_line(line, &mut lone, sink)?;
            } else {
                bounded(self.line.len() + line.len())?;
                self.line.extend_from_slice(line);
                let whole = std::mem::take(&mut self.line);
                // What is in this buffer does not live as long as the chunk, so it cannot be `lone`.
                self.hold(lone.take())?;
                let mut own = None;
                self.take_line(&whole, &mut own, sink)?;
                match own.map(|value| whole.len() - value.len()) {
                    Some(before) => self.keep(whole, before),
                    None => self.line = emptied(whole),
                }
            }
        }
        self.hold(lone)
    }

    /// The bytes are over. An event without its blank line is given too: some servers end so, and whether it is whole
    /// its content shows.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Problem> {
        let line = std::mem::take(&mut self.line);
        let mut lone = None;
        if !line.is_empty() {
            self.take_line(&line, &mut lone, sink)?;
        }
        self.dispatch(&mut lone, sink)
    }

    /// Keeps a line of a chunk beyond the chunk.
    fn hold(&mut self, lone: Option<&[u8]>) -> Result<(), Problem> {
        match lone {
            Some(line) => self.add_data(line),
            None => Ok(()),
        }
    }

    /// Makes a line that came in pieces the event's data without another copy: it may be the largest thing there is.
    fn keep(&mut self, mut line: Vec<u8>, before: usize) {
        line.drain(..before);
        self.data = line;
        self.has_data = true;
    }

    fn add_data(&mut self, line: &[u8]) -> Result<(), Problem> {
        bounded(self.data.len() + line.len() + 1)?;
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(line);
        Ok(())
    }

    fn take_line<'c>(
        &mut self,
        line: &'c [u8],
        lone: &mut Option<&'c [u8]>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Problem> {
        bounded(line.len())?;
        if line.is_empty() {
            return self.dispatch(lone, sink);
        }
        if let Some(value) = field(line, b"data") {
            if lone.is_none() && !self.has_data {
                *lone = Some(value);
            } else {
                self.hold(lone.take())?;
                self.add_data(value)?;
            }
        } else if let Some(value) = field(line, b"event") {
            self.name.clear();
            self.name.push_str(text(value)?);
        }
        // Everything else is a comment, `id`, `retry`, or a field that the format tells us to ignore.
        Ok(())
    }

    /// A blank line: the event is whole. One without data is none.
    fn dispatch(&mut self, lone: &mut Option<&[u8]>, sink: &mut Sink<'_>) -> Result<(), Problem> {
        let result = match lone.take() {
            Some(data) => give(&self.name, data, sink),
            None if self.has_data => give(&self.name, &self.data, sink),
            None => Ok(()),
        };
        self.name.clear();
        self.has_data = false;
        self.data = emptied(std::mem::take(&mut self.data));
        result
    }
}

fn give(name: &str, data: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
    sink(Frame { name, data: text(data)? })
}

/// The value if the line is this field: after the colon and at most one space; empty without a colon.
fn field<'c>(line: &'c [u8], name: &[u8]) -> Option<&'c [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None => rest.is_empty().then_some(rest),
    }
}

fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
    buffer
}

fn bounded(bytes: usize) -> Result<(), Problem> {
    if bytes <= EVENT_BYTES {
        return Ok(());
    }
    let mib = EVENT_BYTES / (1024 * 1024);
    Err(Problem::new(Reason::TooLarge, format!("one event of the stream is larger than {mib} MiB")))
}

/// Bytes that must be text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|e| {
        let shown = super::preview(&String::from_utf8_lossy(bytes));
        Problem::new(
            Reason::Malformed,
            format!("an event is not UTF-8 (byte {} of it): {shown}", e.valid_up_to()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(String, String)>;

    fn read(chunks: &[&[u8]]) -> Result<Seen, Problem> {
        let mut seen = Seen::new();
        let mut sse = Sse::default();
        let mut sink = |frame: Frame<'_>| {
            seen.push((frame.name.to_owned(), frame.data.to_owned()));
            Ok(())
        };
        for chunk in chunks {
            sse.push(chunk, &mut sink)?;
        }
        sse.finish(&mut sink)?;
        Ok(seen)
    }

    fn events(pairs: &[(&str, &str)]) -> Seen {
        pairs.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    /// Whole, byte by byte and cut in two at every place.
    fn check(body: &str, expected: &[(&str, &str)]) {
        let bytes = body.as_bytes();
        let expected = events(expected);
        assert_eq!(read(&[bytes]).expect("readable"), expected, "whole: {body:?}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single).expect("readable"), expected, "byte by byte: {body:?}");
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(read(&[a, b]).expect("readable"), expected, "cut at {at}: {body:?}");
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
            check(&body, &[("a", "1"), ("", "2\né😀\n"), ("", " two spaces")]);
        }
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        check("data: 1\n\nevent: z\ndata: 2", &[("", "1"), ("z", "2")]);
        check("data: 1\r", &[("", "1")]);
        check("data: 1\n\nevent: only a name\n", &[("", "1")]);
    }

    #[test]
    fn a_name_does_not_outlive_its_event() {
        check("event: a\n\ndata: 1\n\nevent: b\nevent: c\ndata: 2\n\n", &[("", "1"), ("c", "2")]);
    }

    #[test]
    fn fields_are_matched_whole() {
        check("database: 1\ndata : 2\n data: 3\ndata: 4\n\n", &[("", "4")]);
    }

    #[test]
    fn what_is_no_text_is_a_problem_and_no_panic() {
        let found = read(&[b"data: a\n\ndata: \xff\xfe\n\n"]).expect_err("not UTF-8");
        assert_eq!(found.reason, Reason::Malformed);
        let found = read(&[b"event: \xc3\n\n"]).expect_err("not UTF-8");
        assert_eq!(found.reason, Reason::Malformed);
        // What is ignored need not be text.
        assert_eq!(read(&[b": \xff\nid: \xff\ndata: 1\n\n"]).expect("readable"), events(&[("", "1")]));
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_given_up() {
        let piece = vec![b'x'; 1024 * 1024];
        for start in ["data: ", ": ", "unknown"] {
            let mut sse = Sse::default();
            let mut sink = |_: Frame<'_>| Ok(());
            sse.push(start.as_bytes(), &mut sink).expect("small");
            let found = (0..64).find_map(|_| sse.push(&piece, &mut sink).err()).expect("too large");
            assert_eq!(found.reason, Reason::TooLarge);
            assert!(sse.line.capacity() <= 2 * EVENT_BYTES, "memory is bounded");
        }
        let mut line = b"data: ".to_vec();
        line.extend_from_slice(&piece);
        line.push(b'\n');
        let mut sse = Sse::default();
        let mut sink = |_: Frame<'_>| Ok(());
        let found = (0..64).find_map(|_| sse.push(&line, &mut sink).err()).expect("too large");
        assert_eq!(found.reason, Reason::TooLarge);
        assert!(sse.data.capacity() <= 2 * EVENT_BYTES, "memory is bounded");
    }

    #[test]
    fn a_large_event_gives_its_memory_back() {
        let mut body = b"data: ".to_vec();
        body.resize(8 * 1024 * 1024, b'x');
        body.extend_from_slice(b"\n\ndata: 1\n\n");
        let mut sse = Sse::default();
        let mut lengths = Vec::new();
        for chunk in body.chunks(16 * 1024) {
            sse.push(chunk, &mut |frame| {
                lengths.push(frame.data.len());
                Ok(())
            })
            .expect("readable");
        }
        assert_eq!(lengths, [8 * 1024 * 1024 - 6, 1]);
        assert!(sse.line.capacity() <= KEPT_BYTES && sse.data.capacity() <= KEPT_BYTES);
    }
}
