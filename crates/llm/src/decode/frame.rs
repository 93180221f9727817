//! Framing: where one event of a response ends and the next begins.
//!
//! Here: which form a body has, seen from its first byte: an event stream (`sse`), one JSON object (a server that does
//! not stream, or an error), a JSON array whose elements are the events, or lines. Elsewhere: what events mean.
//! Invariant: events do not depend on how the bytes are cut; one element or body is held at a time, bounded.

use memchr::memchr;

use super::sse::{EVENT_BYTES, Sink, Sse, text};
use super::{Frame, preview};
use crate::problem::{Problem, Reason};

/// The largest body that is read as a whole.
pub(crate) const BODY_BYTES: usize = 64 * 1024 * 1024;

/// How much of a body is kept to show what came instead of events.
const HEAD_BYTES: usize = 256;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A body on its way.
#[derive(Debug)]
pub(crate) struct Framing {
    form: Form,
    /// How many bytes of a byte order mark have come.
    bom: usize,
    /// The first bytes, for messages.
    head: Vec<u8>,
    frames: u64,
}

#[derive(Debug)]
enum Form {
    /// Nothing but blanks so far.
    Unknown,
    Sse(Sse),
    Body(Vec<u8>),
    Array(Elements),
    Lines(Vec<u8>),
}

impl Framing {
    /// The form shows itself.
    pub(crate) fn sniffed() -> Framing {
        Framing { form: Form::Unknown, bom: 0, head: Vec::new(), frames: 0 }
    }

    /// Each line is an event; blank ones are none.
    pub(crate) fn lines() -> Framing {
        Framing { form: Form::Lines(Vec::new()), ..Framing::sniffed() }
    }

    pub(crate) fn push(&mut self, chunk: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
        let room = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend(chunk.iter().take(room));
        let (early, rest): (&[u8], &[u8]) = match self.form {
            Form::Unknown => match self.sniff(chunk) {
                Some(found) => found,
                None => return Ok(()),
            },
            _ => (&[], chunk),
        };
        let frames = &mut self.frames;
        let sink = &mut |frame: Frame<'_>| {
            *frames += 1;
            sink(frame)
        };
        self.form.push(early, sink)?;
        self.form.push(rest, sink)
    }

    /// Decides on the form at the first byte that is no blank. Gives the bytes that were held back, and the rest.
    fn sniff<'c>(&mut self, chunk: &'c [u8]) -> Option<(&'static [u8], &'c [u8])> {
        for (at, &byte) in chunk.iter().enumerate() {
            if self.bom < BOM.len() && BOM.get(self.bom) == Some(&byte) {
                self.bom += 1;
                continue;
            }
            // A half mark is no mark: its bytes belong to the body.
            let early = if self.bom < BOM.len() { BOM.split_at(self.bom).0 } else { &[] };
            if early.is_empty() {
                if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                    self.bom = BOM.len();
                    continue;
                }
                self.form = match byte {
                    b'{' => Form::Body(Vec::new()),
                    b'[' => Form::Array(Elements::default()),
                    _ => Form::Sse(Sse::default()),
                };
            } else {
                self.form = Form::Sse(Sse::default());
            }
            return Some((early, chunk.split_at(at).1));
        }
        None
    }

    /// The bytes are over: gives the event that had no proper end, if there is one. A whole body is `body`'s.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Problem> {
        let frames = &mut self.frames;
        let sink = &mut |frame: Frame<'_>| {
            *frames += 1;
            sink(frame)
        };
        match &mut self.form {
            Form::Sse(sse) => sse.finish(sink),
            Form::Lines(line) => give_line(&std::mem::take(line), sink),
            Form::Unknown | Form::Body(_) | Form::Array(_) => Ok(()),
        }
    }

    /// The whole body, if it is one JSON object.
    pub(crate) fn body(&self) -> Option<Result<&str, Problem>> {
        match &self.form {
            Form::Body(body) => Some(text(body)),
            _ => None,
        }
    }

    /// What came instead of events, if something else came.
    pub(crate) fn no_events(&self) -> Option<Problem> {
        if self.frames > 0 || matches!(self.form, Form::Body(_) | Form::Lines(_)) {
            return None;
        }
        let head = String::from_utf8_lossy(&self.head);
        let field =
            |head: &str| [":", "data", "event:", "id:", "retry:"].iter().any(|field| head.starts_with(field));
        Some(match head.trim_matches(['\u{feff}', ' ', '\r', '\n', '\t']) {
            "" => Problem::new(Reason::Cut, "the answer was empty"),
            head if field(head) => Problem::new(Reason::Cut, "the stream ended before its first event"),
            head => Problem::new(
                Reason::Malformed,
                format!("the answer is no event stream; it begins with: {}", preview(head)),
            ),
        })
    }
}

impl Form {
    fn push(&mut self, chunk: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
        match self {
            Form::Unknown => Ok(()),
            Form::Sse(sse) => sse.push(chunk, sink),
            Form::Array(elements) => elements.push(chunk, sink),
            Form::Lines(line) => push_lines(line, chunk, sink),
            Form::Body(body) => {
                bounded(body.len() + chunk.len(), BODY_BYTES, "the answer")?;
                body.extend_from_slice(chunk);
                Ok(())
            }
        }
    }
}

fn push_lines(held: &mut Vec<u8>, mut chunk: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
    while let Some(end) = memchr(b'\n', chunk) {
        let (line, rest) = chunk.split_at(end);
        bounded(held.len() + line.len(), EVENT_BYTES, "one line")?;
        if held.is_empty() {
            give_line(line, sink)?;
        } else {
            held.extend_from_slice(line);
            give_line(&std::mem::take(held), sink)?;
        }
        chunk = rest.split_at(1).1;
    }
    bounded(held.len() + chunk.len(), EVENT_BYTES, "one line")?;
    held.extend_from_slice(chunk);
    Ok(())
}

fn give_line(line: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
    let data = text(line)?.trim();
    if data.is_empty() { Ok(()) } else { sink(Frame { name: "", data }) }
}

/// The elements of a JSON array, each given as soon as it is whole.
#[derive(Debug, Default)]
struct Elements {
    /// The bytes of the element that has begun.
    element: Vec<u8>,
    /// Brackets open around the place; the array's own is the first.
    depth: u64,
    in_string: bool,
    escaped: bool,
    over: bool,
}

impl Elements {
    fn push(&mut self, chunk: &[u8], sink: &mut Sink<'_>) -> Result<(), Problem> {
        // Where in the chunk the part of the element begins that has not been kept yet.
        let mut from = 0;
        for (at, &byte) in chunk.iter().enumerate() {
            if self.over {
                return self.after_end(chunk.split_at(at).1);
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
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
                        self.keep(chunk, from, at)?;
                        from = at + 1;
                        self.give(sink)?;
                        self.over = true;
                    }
                }
                b',' if self.depth == 1 => {
                    self.keep(chunk, from, at)?;
                    from = at + 1;
                    self.give(sink)?;
                }
                _ => {}
            }
            // An object that is whole need not wait for the comma behind it.
            if byte == b'}' && self.depth == 1 {
                self.keep(chunk, from, at + 1)?;
                from = at + 1;
                self.give(sink)?;
            }
        }
        if self.over { Ok(()) } else { self.keep(chunk, from, chunk.len()) }
    }

    fn keep(&mut self, chunk: &[u8], from: usize, to: usize) -> Result<(), Problem> {
        let part = chunk.get(from..to).unwrap_or_default();
        bounded(self.element.len() + part.len(), EVENT_BYTES, "one element of the answer")?;
        self.element.extend_from_slice(part);
        Ok(())
    }

    fn give(&mut self, sink: &mut Sink<'_>) -> Result<(), Problem> {
        let element = std::mem::take(&mut self.element);
        give_line(&element, sink)
    }

    fn after_end(&self, rest: &[u8]) -> Result<(), Problem> {
        if rest.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        Err(Problem::new(Reason::Malformed, "something follows the end of the answer's array"))
    }
}

fn bounded(bytes: usize, limit: usize, what: &str) -> Result<(), Problem> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Problem::new(Reason::TooLarge, format!("{what} is larger than {} MiB", limit / (1024 * 1024))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: fn() -> Framing, chunks: &[&[u8]]) -> Result<(Vec<String>, Option<String>), Problem> {
        let mut seen = Vec::new();
        let mut framing = framing();
        let mut sink = |frame: Frame<'_>| {
            seen.push(frame.data.to_owned());
            Ok(())
        };
        for chunk in chunks {
            framing.push(chunk, &mut sink)?;
        }
        framing.finish(&mut sink)?;
        let body = framing.body().transpose()?.map(str::to_owned);
        Ok((seen, body))
    }

    fn check(framing: fn() -> Framing, body: &[u8], expected: &[&str]) {
        let whole = read(framing, &[body]).expect("readable");
        assert_eq!(whole.0, expected);
        for at in 0..=body.len() {
            let (a, b) = body.split_at(at);
            assert_eq!(read(framing, &[a, b]).expect("readable"), whole, "cut at {at}");
        }
        let single: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(read(framing, &single).expect("readable"), whole, "byte by byte");
    }

    #[test]
    fn the_form_shows_itself() {
        check(Framing::sniffed, b"\xef\xbb\xbf\r\n data: 1\n\n", &["1"]);
        check(Framing::sniffed, b"\n\n: hello\n\ndata: 2\n\n", &["2"]);
        check(
            Framing::sniffed,
            b"\xef\xbb\xbf [{\"a\":\"]}\\\"{\"},\r\n{\"b\":[1,{}]}\n]\n",
            &[r#"{"a":"]}\"{"}"#, r#"{"b":[1,{}]}"#],
        );
        check(Framing::sniffed, b"[]", &[]);
        let (frames, body) =
            read(Framing::sniffed, &[b"\xef\xbb", b"\xbf\n{\"a\"", b":1}"]).expect("readable");
        assert_eq!((frames.len(), body.as_deref()), (0, Some("{\"a\":1}")));
    }

    #[test]
    fn an_element_comes_as_soon_as_it_is_whole() {
        let mut framing = Framing::sniffed();
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
        check(
            Framing::lines,
            b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}",
            &["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"],
        );
    }

    #[test]
    fn what_is_no_stream_is_shown() {
        let mut framing = Framing::sniffed();
        framing.push(b"<html><title>Bad gateway</title></html>", &mut |_| Ok(())).expect("readable");
        let found = framing.no_events().expect("a problem");
        assert!(found.text.contains("Bad gateway"), "{}", found.text);
        assert_eq!(Framing::sniffed().no_events().map(|p| p.reason), Some(Reason::Cut));
        let mut framing = Framing::sniffed();
        framing.push(b"\xef\xbb\xbf: still waiting\n\nevent: a\n", &mut |_| Ok(())).expect("readable");
        assert_eq!(framing.no_events().map(|p| p.reason), Some(Reason::Cut), "a stream, but without events");
    }

    #[test]
    fn what_never_ends_is_given_up() {
        let piece = vec![b'x'; 1024 * 1024];
        for start in ["{\"a\":\"", "[{\"a\":\""] {
            let mut framing = Framing::sniffed();
            framing.push(start.as_bytes(), &mut |_| Ok(())).expect("small");
            let found = (0..80).find_map(|_| framing.push(&piece, &mut |_| Ok(())).err()).expect("too large");
            assert_eq!(found.reason, Reason::TooLarge);
        }
    }
}
