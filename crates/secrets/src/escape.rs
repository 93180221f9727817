//! Text as it reads when its JSON escapes are undone, and where each byte of that stands in the text itself.
//!
//! Anybody can write `\u0073k-…` for `sk-…`; whoever decodes it has the key. Undone is one level, as a decoder does.

use std::borrow::Cow;

/// What an escape stands for never begins in the middle of another: `\\u0073` is a backslash and `u0073`.
pub(crate) struct View<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    /// The escapes, in order.
    units: Vec<Unit>,
    /// Where an escape begins that is not all there; the end of the text if none does.
    pub(crate) open: usize,
}

/// One escape: where it stands in the text, and what it stands for in the view.
struct Unit {
    raw: (usize, usize),
    view: (usize, usize),
}

/// What an escape is.
enum Escape {
    /// So many bytes of the text, and what they stand for.
    Whole(usize, char),
    /// More must come before that can be said.
    Open,
    /// A backslash that begins nothing.
    None,
}

impl<'a> View<'a> {
    /// `last`: nothing more comes, so that half an escape is what it looks like.
    pub(crate) fn of(raw: &'a [u8], last: bool) -> View<'a> {
        let mut view = View { bytes: Cow::Borrowed(raw), units: Vec::new(), open: raw.len() };
        let Some(first) = memchr::memchr(b'\\', raw) else { return view };
        let mut bytes = Vec::with_capacity(raw.len());
        let mut done = 0;
        let mut at = Some(first);
        while let Some(start) = at {
            bytes.extend_from_slice(raw.get(done..start).unwrap_or_default());
            done = start;
            done = match escape(raw.get(start..).unwrap_or_default()) {
                Escape::Whole(length, letter) => {
                    let before = bytes.len();
                    bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                    view.units.push(Unit { raw: (start, start + length), view: (before, bytes.len()) });
                    start + length
                }
                Escape::Open if !last => {
                    view.open = start;
                    break;
                }
                Escape::Open | Escape::None => {
                    bytes.push(b'\\');
                    start + 1
                }
            };
            at = memchr::memchr(b'\\', raw.get(done..).unwrap_or_default()).map(|next| done + next);
        }
        bytes.extend_from_slice(raw.get(done..view.open).unwrap_or_default());
        view.bytes = Cow::Owned(bytes);
        view
    }

    /// Where a byte of the view stands in the text.
    pub(crate) fn raw(&self, at: usize) -> usize {
        let before = self.units.partition_point(|unit| unit.view.1 <= at);
        match before.checked_sub(1).and_then(|index| self.units.get(index)) {
            Some(unit) => unit.raw.1 + (at - unit.view.1),
            None => at,
        }
    }

    /// The beginning of the escape that a place in the text is inside of; else the place itself.
    pub(crate) fn outside(&self, at: usize) -> usize {
        let before = self.units.partition_point(|unit| unit.raw.1 <= at);
        self.units.get(before).map_or(at, |unit| at.min(unit.raw.0))
    }
}

/// The escape at the beginning of this text, which begins with a backslash.
fn escape(text: &[u8]) -> Escape {
    let Some(kind) = text.get(1) else { return Escape::Open };
    let letter = match kind {
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unit(text),
        _ => return Escape::None,
    };
    Escape::Whole(2, letter)
}

/// `\uXXXX`. Half a pair is shown as unreadable: no key is made of such letters.
fn unit(text: &[u8]) -> Escape {
    let digits = text.get(2..).unwrap_or_default();
    let count = digits.iter().take(4).take_while(|digit| digit.is_ascii_hexdigit()).count();
    if count < 4 {
        return if count == digits.len() { Escape::Open } else { Escape::None };
    }
    let code =
        digits.iter().take(4).fold(0, |code, digit| code * 16 + char::from(*digit).to_digit(16).unwrap_or(0));
    Escape::Whole(6, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
}
