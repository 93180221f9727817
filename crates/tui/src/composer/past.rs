//! Inputs that were sent before, and looking at them.

use minke_record::{InputSegment, Text};

use super::Draft;

/// How many inputs are remembered.
pub(crate) const PAST: usize = 500;
/// An input longer than this is remembered with its chips' names only.
const PAST_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// Oldest first.
    inputs: Vec<String>,
    /// Which of them is shown, and what was typed before.
    shown: Option<(usize, Draft)>,
}

impl Past {
    pub(super) fn new(inputs: Vec<String>) -> Past {
        Past { inputs, shown: None }
    }

    pub(super) fn newest(&self) -> Option<&str> {
        self.inputs.last().map(String::as_str)
    }

    /// What is shown is the person's own now.
    pub(super) fn leave(&mut self) {
        self.shown = None;
    }

    pub(super) fn remember(&mut self, draft: &Draft) {
        let mut text = draft.text.trim().to_owned();
        for chip in &draft.chips {
            if let InputSegment::Paste { content: Text::Here(content), .. } = &chip.segment
                && text.len() + content.len() <= PAST_BYTES
            {
                text = text.replacen(&chip.mark, content, 1);
            }
        }
        if text.len() <= PAST_BYTES && self.inputs.last() != Some(&text) {
            self.inputs.push(text);
            if self.inputs.len() > PAST {
                self.inputs.remove(0);
            }
        }
    }

    /// The one before; the oldest one stays.
    pub(super) fn older(&mut self, here: Draft) -> Option<Draft> {
        let (at, kept) = match self.shown.take() {
            Some((at, kept)) => (at.checked_sub(1), kept),
            None => (self.inputs.len().checked_sub(1), here),
        };
        let found = at.and_then(|at| self.inputs.get(at).map(|text| (at, text.clone())));
        let Some((at, text)) = found else {
            self.shown = (!self.inputs.is_empty()).then_some((0, kept));
            return None;
        };
        self.shown = Some((at, kept));
        Some(Draft { text, chips: Vec::new() })
    }

    /// The one behind; at the end what was typed.
    pub(super) fn newer(&mut self) -> Option<Draft> {
        let (at, kept) = self.shown.take()?;
        match self.inputs.get(at + 1).cloned() {
            Some(text) => {
                self.shown = Some((at + 1, kept));
                Some(Draft { text, chips: Vec::new() })
            }
            None => Some(kept),
        }
    }
}
