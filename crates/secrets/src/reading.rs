//! The ways in which a text can be read: as it is, without the escapes of JSON, without what only the eye sees, without the
//! escapes of HTML, without those of addresses, and these one after the other in this order.
//!
//! Nearly every text reads one way only, so that it is looked through once.

use crate::escape::{without_html, without_json, without_percent};
use crate::layer::Layer;
use crate::unseen::without_unseen;

/// Every way to read one text.
pub(crate) struct Readings<'a> {
    raw: &'a [u8],
    steps: Vec<Step>,
    open: usize,
}

/// A layer over the text, or over an earlier step.
struct Step {
    layer: Layer,
    over: Option<usize>,
}

/// One way to read a text: the text itself, or as it is after a step.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    readings: &'a Readings<'a>,
    step: Option<usize>,
}

impl<'a> Readings<'a> {
    /// `last`: nothing more comes. `encoded`: so many letters of an encoded line precede the text.
    pub(crate) fn of(raw: &'a [u8], last: bool, encoded: usize) -> Readings<'a> {
        let mut readings = Readings { raw, steps: Vec::new(), open: raw.len() };
        readings.read(None, |bytes| without_json(bytes, last));
        readings.read_each(|bytes| without_unseen(bytes, last, encoded));
        readings.read_each(|bytes| without_html(bytes, last));
        readings.read_each(|bytes| without_percent(bytes, last));
        readings
    }

    /// Reads the text and every step so far once more.
    fn read_each(&mut self, layer: impl Fn(&[u8]) -> Layer) {
        let steps = self.steps.len();
        for over in std::iter::once(None).chain((0..steps).map(Some)) {
            self.read(over, &layer);
        }
    }

    fn read(&mut self, over: Option<usize>, layer: impl Fn(&[u8]) -> Layer) {
        let below = Reading { readings: self, step: over };
        let bytes = below.bytes();
        let layer = layer(bytes);
        if layer.differs(bytes) {
            self.open = self.open.min(below.start(layer.open));
            self.steps.push(Step { layer, over });
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Reading<'_>> {
        let steps = (0..self.steps.len()).map(Some);
        std::iter::once(None).chain(steps).map(|step| Reading { readings: self, step })
    }

    /// Where an escape begins that is not all there, in any reading; the end of the text if none does.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The last place, not behind this one, that is inside no escape of any reading.
    pub(crate) fn outside(&self, mut at: usize) -> usize {
        loop {
            let before = at;
            for step in &self.steps {
                let below = Reading { readings: self, step: step.over };
                if let Some(start) = step.layer.unit_behind(at, |end| below.end(end)) {
                    at = at.min(below.start(start));
                }
            }
            if at == before {
                return at;
            }
        }
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.step().map_or(self.readings.raw, |step| &step.layer.bytes)
    }

    /// Where a byte of the reading begins in the text.
    pub(crate) fn start(&self, at: usize) -> usize {
        self.step().map_or(at, |step| self.below(step).start(step.layer.start(at)))
    }

    /// Where the bytes before this place of the reading end in the text.
    pub(crate) fn end(&self, at: usize) -> usize {
        self.step().map_or(at, |step| self.below(step).end(step.layer.end(at)))
    }

    fn step(&self) -> Option<&'a Step> {
        self.step.and_then(|step| self.readings.steps.get(step))
    }

    fn below(&self, step: &Step) -> Reading<'a> {
        Reading { readings: self.readings, step: step.over }
    }
}
