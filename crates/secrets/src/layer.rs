//! Text after decoding one kind of escape, with a mapping from each decoded byte to its position in the
//! source.
//!
//! A layer is a list of spans. A span is an escape with the bytes that it decodes to, or invisible bytes that
//! decode to nothing. Decoding covers one level, like a decoder does. Invariant: spans of a layer never
//! overlap, so the text on both sides of a cut outside of spans decodes the same.

pub(crate) struct DecodedLayer {
    /// The decoded text, or empty if it equals the source.
    pub(crate) bytes: Vec<u8>,
    spans: Vec<SpanMapping>,
    /// Start of an incomplete escape at the end of the source, or the length of the source.
    pub(crate) incomplete_from: usize,
}

/// One span: its range in the source and its range in the decoded text. The latter may be empty.
struct SpanMapping {
    source: (usize, usize),
    decoded: (usize, usize),
}

/// Result of parsing an escape at a position.
pub(crate) enum ParsedEscape {
    /// This number of source bytes decodes to this unit.
    Escape(usize, DecodedUnit),
    /// The escape may continue after the end of the text.
    Incomplete,
    /// There is no escape here; the byte is literal.
    Literal,
}

/// What an escape decodes to.
pub(crate) enum DecodedUnit {
    Char(char),
    /// One byte, possibly part of a multi-byte character.
    Byte(u8),
    Nothing,
}

impl DecodedLayer {
    /// Decodes `raw`. `next` returns the next position at or after an index where an escape may start, and
    /// `parse` parses it. `last` means that no more text follows, so an incomplete escape is literal text.
    pub(crate) fn decode(
        raw: &[u8],
        last: bool,
        mut next: impl FnMut(usize) -> Option<usize>,
        mut parse: impl FnMut(usize) -> ParsedEscape,
    ) -> DecodedLayer {
        let mut layer = DecodedLayer { bytes: Vec::new(), spans: Vec::new(), incomplete_from: raw.len() };
        let mut done = 0;
        let mut from = 0;
        while let Some(start) = next(from) {
            from = match parse(start) {
                ParsedEscape::Escape(length, meaning) => {
                    let bytes = &mut layer.bytes;
                    bytes.extend_from_slice(raw.get(done..start).unwrap_or_default());
                    let before = bytes.len();
                    match meaning {
                        DecodedUnit::Char(letter) => {
                            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        DecodedUnit::Byte(byte) => bytes.push(byte),
                        DecodedUnit::Nothing => {}
                    }
                    done = start + length;
                    layer.spans.push(SpanMapping { source: (start, done), decoded: (before, bytes.len()) });
                    done
                }
                ParsedEscape::Incomplete if !last => {
                    layer.incomplete_from = start;
                    break;
                }
                ParsedEscape::Incomplete | ParsedEscape::Literal => start + 1,
            };
        }
        if layer.changes_text(raw) {
            layer.bytes.extend_from_slice(raw.get(done..layer.incomplete_from).unwrap_or_default());
        }
        layer
    }

    /// Returns whether the decoded text differs from the source or ends before it.
    pub(crate) fn changes_text(&self, raw: &[u8]) -> bool {
        !self.spans.is_empty() || self.incomplete_from < raw.len()
    }

    /// Returns the source position of the decoded byte at `at`, after any invisible bytes before it.
    pub(crate) fn source_start(&self, at: usize) -> usize {
        let before = self.spans.partition_point(|unit| unit.decoded.1 <= at);
        match before.checked_sub(1).and_then(|index| self.spans.get(index)) {
            Some(unit) => unit.source.1 + (at - unit.decoded.1),
            None => at,
        }
    }

    /// Returns the source position where the decoded bytes before `at` end.
    pub(crate) fn source_end(&self, at: usize) -> usize {
        let Some(last) = at.checked_sub(1) else { return 0 };
        let before = self.spans.partition_point(|unit| unit.decoded.1 <= last);
        match self.spans.get(before) {
            // The last byte comes from this span.
            Some(unit) if unit.decoded.0 <= last => unit.source.1,
            _ => self.source_start(last) + 1,
        }
    }

    /// Returns the first span that ends after `place`. `end` returns the end of a span.
    pub(crate) fn first_span_ending_after(
        &self,
        place: usize,
        end: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let before = self.spans.partition_point(|unit| end(unit.source.1) <= place);
        self.spans.get(before).map(|unit| unit.source.0)
    }
}
