//! The history of sent inputs.

use minke_record::{InputSegment, Text};

use super::ComposerDraft;

/// Limit for stored inputs.
pub(crate) const MAX_INPUTS: usize = 500;
/// A longer input is stored with the labels of its attachments only.
const MAX_INPUT_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct InputHistory {
    /// Oldest first.
    inputs: Vec<String>,
    /// Index of the recalled input, and the saved draft.
    recalled: Option<(usize, ComposerDraft)>,
}

impl InputHistory {
    pub(super) fn new(inputs: Vec<String>) -> InputHistory {
        InputHistory { inputs, recalled: None }
    }

    pub(super) fn newest_input(&self) -> Option<&str> {
        self.inputs.last().map(String::as_str)
    }

    /// Makes the recalled input the current draft.
    pub(super) fn stop_recall(&mut self) {
        self.recalled = None;
    }

    pub(super) fn add_input(&mut self, draft: &ComposerDraft) {
        let mut text = draft.text.trim().to_owned();
        for chip in &draft.chips {
            if let InputSegment::Paste { content: Text::Inline(content), .. } = &chip.segment
                && text.len() + content.len() <= MAX_INPUT_BYTES
            {
                text = text.replacen(&chip.mark, content, 1);
            }
        }
        if text.len() <= MAX_INPUT_BYTES && self.inputs.last() != Some(&text) {
            self.inputs.push(text);
            if self.inputs.len() > MAX_INPUTS {
                self.inputs.remove(0);
            }
        }
    }

    /// Recalls the previous input; stops at the oldest.
    pub(super) fn recall_older(&mut self, current: ComposerDraft) -> Option<ComposerDraft> {
        let (at, kept) = match self.recalled.take() {
            Some((at, kept)) => (at.checked_sub(1), kept),
            None => (self.inputs.len().checked_sub(1), current),
        };
        let found = at.and_then(|at| self.inputs.get(at).map(|text| (at, text.clone())));
        let Some((at, text)) = found else {
            self.recalled = (!self.inputs.is_empty()).then_some((0, kept));
            return None;
        };
        self.recalled = Some((at, kept));
        Some(ComposerDraft { text, chips: Vec::new() })
    }

    /// Recalls the next input, and finally the saved draft.
    pub(super) fn recall_newer(&mut self) -> Option<ComposerDraft> {
        let (at, kept) = self.recalled.take()?;
        match self.inputs.get(at + 1).cloned() {
            Some(text) => {
                self.recalled = Some((at + 1, kept));
                Some(ComposerDraft { text, chips: Vec::new() })
            }
            None => Some(kept),
        }
    }
}
