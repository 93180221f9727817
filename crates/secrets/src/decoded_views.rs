//! All decoded views of a text: the text itself, and the text after decoding JSON escapes, invisible
//! sequences, HTML and percent escapes, alone and one after the other in this order.
//!
//! Nearly every text has a single view, so it is searched once.

use crate::escape::{unescape_html, unescape_json, unescape_percent};
use crate::invisible::strip_invisible;
use crate::layer::DecodedLayer;

/// All decoded views of one text.
pub(crate) struct DecodedViews<'a> {
    raw: &'a [u8],
    steps: Vec<DecodeStep>,
    incomplete_from: usize,
}

/// A layer over the text or over an earlier step.
struct DecodeStep {
    layer: DecodedLayer,
    parent: Option<usize>,
}

/// One view of a text: the text itself, or the output of a decode step.
#[derive(Clone, Copy)]
pub(crate) struct DecodedView<'a> {
    views: &'a DecodedViews<'a>,
    decode_step: Option<usize>,
}

impl<'a> DecodedViews<'a> {
    /// Decodes `raw`. `last` means that no more text follows. `encoded` is the number of characters of an
    /// encoded line that precede the text.
    pub(crate) fn decode_text(raw: &'a [u8], last: bool, encoded: usize) -> DecodedViews<'a> {
        let mut readings = DecodedViews { raw, steps: Vec::new(), incomplete_from: raw.len() };
        readings.decode_step(None, |bytes| unescape_json(bytes, last));
        readings.decode_each(|bytes| strip_invisible(bytes, last, encoded));
        readings.decode_each(|bytes| unescape_html(bytes, last));
        readings.decode_each(|bytes| unescape_percent(bytes, last));
        readings
    }

    /// Decodes the text and every existing view once more with `layer`.
    fn decode_each(&mut self, layer: impl Fn(&[u8]) -> DecodedLayer) {
        let steps = self.steps.len();
        for over in std::iter::once(None).chain((0..steps).map(Some)) {
            self.decode_step(over, &layer);
        }
    }

    fn decode_step(&mut self, parent: Option<usize>, layer: impl Fn(&[u8]) -> DecodedLayer) {
        let below = DecodedView { views: self, decode_step: parent };
        let bytes = below.bytes();
        let layer = layer(bytes);
        if layer.changes_text(bytes) {
            self.incomplete_from = self.incomplete_from.min(below.source_start(layer.incomplete_from));
            self.steps.push(DecodeStep { layer, parent });
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = DecodedView<'_>> {
        let steps = (0..self.steps.len()).map(Some);
        std::iter::once(None).chain(steps).map(|decode_step| DecodedView { views: self, decode_step })
    }

    /// Returns the start of an incomplete escape in any view, or the length of the text.
    pub(crate) fn incomplete_from(&self) -> usize {
        self.incomplete_from
    }

    /// Returns the last position, at or before `at`, that is inside no escape of any view.
    pub(crate) fn last_boundary_before(&self, mut at: usize) -> usize {
        loop {
            let before = at;
            for step in &self.steps {
                let below = DecodedView { views: self, decode_step: step.parent };
                if let Some(start) = step.layer.first_span_ending_after(at, |end| below.source_end(end)) {
                    at = at.min(below.source_start(start));
                }
            }
            if at == before {
                return at;
            }
        }
    }
}

impl<'a> DecodedView<'a> {
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.decode_step().map_or(self.views.raw, |step| &step.layer.bytes)
    }

    /// Returns the source position of the byte at `at`.
    pub(crate) fn source_start(&self, at: usize) -> usize {
        self.decode_step().map_or(at, |step| self.parent_view(step).source_start(step.layer.source_start(at)))
    }

    /// Returns the source position where the bytes before `at` end.
    pub(crate) fn source_end(&self, at: usize) -> usize {
        self.decode_step().map_or(at, |step| self.parent_view(step).source_end(step.layer.source_end(at)))
    }

    fn decode_step(&self) -> Option<&'a DecodeStep> {
        self.decode_step.and_then(|step| self.views.steps.get(step))
    }

    fn parent_view(&self, step: &DecodeStep) -> DecodedView<'a> {
        DecodedView { views: self.views, decode_step: step.parent }
    }
}
