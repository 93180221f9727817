//! What did not come along, counted by name.

use std::collections::BTreeMap;

use crate::bounds::NAMES;
use crate::plain::word;

/// Something of a file that did not come along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub what: String,
    pub count: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: &str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: &str, count: u64) {
        if count == 0 {
            return;
        }
        let full = self.0.len() >= NAMES && !self.0.contains_key(what);
        let name = if full { "other things" } else { what };
        let counted = self.0.entry(name.to_owned()).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Something whose name stands in the file: that name is bounded and has no control characters.
    pub(crate) fn named(&mut self, kind: &str, name: &str) {
        self.count(&format!("{kind} `{}`", word(name, 60).unwrap_or_default()));
    }

    pub(crate) fn left(&self) -> Vec<Left> {
        let mut left: Vec<Left> =
            self.0.iter().map(|(what, count)| Left { what: what.clone(), count: *count }).collect();
        left.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
        left
    }
}
