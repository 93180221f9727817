//! A conversation on its way from one place to another.

use std::collections::BTreeMap;

use minke_record::{Item, Millis};

/// What was said, by whom it was kept, and the bytes of its images.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    pub about: About,
    pub said: Vec<Said>,
    /// Images and texts that items name, by the name that their content gives them.
    pub blobs: BTreeMap<String, Vec<u8>>,
}

/// One item, and when it was said where that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub item: Item,
    pub at: Option<Millis>,
}

/// What is known of it beside the items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its id where it comes from.
    pub session: Option<String>,
    pub title: Option<String>,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    /// The model that was asked last.
    pub model: Option<String>,
    /// Of the program that kept it.
    pub version: Option<String>,
    pub began: Option<Millis>,
    pub ended: Option<Millis>,
}

impl About {
    /// Something happened then.
    pub(crate) fn happened(&mut self, at: Option<Millis>) {
        let Some(at) = at else { return };
        self.began = Some(self.began.map_or(at, |began| began.min(at)));
        self.ended = Some(self.ended.map_or(at, |ended| ended.max(at)));
    }
}
