//! Counts omitted parts by name.

use std::collections::BTreeMap;

use crate::limits::MAX_COUNTED_NAMES;
use crate::portable::clean_line;

/// An omitted part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedPart {
    pub what: String,
    pub count: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct OmissionCounts(BTreeMap<String, u64>);

impl OmissionCounts {
    pub(crate) fn count_one(&mut self, part: &str) {
        self.add_count(part, 1);
    }

    pub(crate) fn add_count(&mut self, what: &str, count: u64) {
        if count == 0 {
            return;
        }
        let full = self.0.len() >= MAX_COUNTED_NAMES && !self.0.contains_key(what);
        let name = if full { "other parts" } else { what };
        let counted = self.0.entry(name.to_owned()).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Counts a part by a name from the file, shortened and without control characters.
    pub(crate) fn count_named(&mut self, kind: &str, name: &str) {
        self.count_one(&format!("{kind} `{}`", clean_line(name, 60).unwrap_or_default()));
    }

    pub(crate) fn to_parts(&self) -> Vec<OmittedPart> {
        let mut parts: Vec<OmittedPart> =
            self.0.iter().map(|(part, count)| OmittedPart { what: part.clone(), count: *count }).collect();
        parts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
        parts
    }
}
