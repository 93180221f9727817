//! Text as it reads when one kind of writing is undone, and where each byte of that is in the text itself.
//!
//! A layer is made of units: an escape and the bytes that it means, or bytes that a reader does not see and that mean
//! nothing. Undone is one level, as a decoder does.
//! Invariant: a unit never begins inside another one of the same layer, so that every cut outside of units is read the
//! same from both sides.

pub(crate) struct Layer {
    /// As it reads; empty if that is the text itself.
    pub(crate) bytes: Vec<u8>,
    units: Vec<Unit>,
    /// Where a unit begins that is not all there; the end of the text if none does.
    pub(crate) open: usize,
}

/// One unit: where it is in the text, and what it means in the layer. The latter may be empty.
struct Unit {
    raw: (usize, usize),
    view: (usize, usize),
}

/// What a parser of units says about a place in a text.
pub(crate) enum Parsed {
    /// So many bytes of the text mean these.
    Unit(usize, Meaning),
    /// More must come before that can be decided.
    Open,
    /// Nothing begins here: the byte is what it is.
    Plain,
}

/// What a unit means.
pub(crate) enum Meaning {
    Letter(char),
    /// A byte, maybe one of several of a letter.
    Byte(u8),
    Nothing,
}

impl Layer {
    /// `next` gives the next place at or after another where a unit may begin, `parse` decides about that place.
    /// `last`: nothing more comes, so that half a unit is what it looks like.
    pub(crate) fn of(
        raw: &[u8],
        last: bool,
        mut next: impl FnMut(usize) -> Option<usize>,
        mut parse: impl FnMut(usize) -> Parsed,
    ) -> Layer {
        let mut layer = Layer { bytes: Vec::new(), units: Vec::new(), open: raw.len() };
        let mut done = 0;
        let mut from = 0;
        while let Some(start) = next(from) {
            from = match parse(start) {
                Parsed::Unit(length, meaning) => {
                    let bytes = &mut layer.bytes;
                    bytes.extend_from_slice(raw.get(done..start).unwrap_or_default());
                    let before = bytes.len();
                    match meaning {
                        Meaning::Letter(letter) => {
                            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        Meaning::Byte(byte) => bytes.push(byte),
                        Meaning::Nothing => {}
                    }
                    done = start + length;
                    layer.units.push(Unit { raw: (start, done), view: (before, bytes.len()) });
                    done
                }
                Parsed::Open if !last => {
                    layer.open = start;
                    break;
                }
                Parsed::Open | Parsed::Plain => start + 1,
            };
        }
        if layer.differs(raw) {
            layer.bytes.extend_from_slice(raw.get(done..layer.open).unwrap_or_default());
        }
        layer
    }

    /// Whether it reads otherwise than the text does, or ends before it.
    pub(crate) fn differs(&self, raw: &[u8]) -> bool {
        !self.units.is_empty() || self.open < raw.len()
    }

    /// Where a byte of the layer begins in the text; what means nothing before it does not belong to it.
    pub(crate) fn start(&self, at: usize) -> usize {
        let before = self.units.partition_point(|unit| unit.view.1 <= at);
        match before.checked_sub(1).and_then(|index| self.units.get(index)) {
            Some(unit) => unit.raw.1 + (at - unit.view.1),
            None => at,
        }
    }

    /// Where the bytes before this place of the layer end in the text.
    pub(crate) fn end(&self, at: usize) -> usize {
        let Some(last) = at.checked_sub(1) else { return 0 };
        let before = self.units.partition_point(|unit| unit.view.1 <= last);
        match self.units.get(before) {
            // The last byte is one of the unit's.
            Some(unit) if unit.view.0 <= last => unit.raw.1,
            _ => self.start(last) + 1,
        }
    }

    /// The first unit that ends behind a place. `end` gives the place of a unit's end.
    pub(crate) fn unit_behind(&self, place: usize, end: impl Fn(usize) -> usize) -> Option<usize> {
        let before = self.units.partition_point(|unit| end(unit.raw.1) <= place);
        self.units.get(before).map(|unit| unit.raw.0)
    }
}
