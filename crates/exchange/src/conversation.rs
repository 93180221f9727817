//! A conversation independent of the file format.

use std::collections::BTreeMap;

use minke_record::{Item, Millis};

/// The items, the metadata and the images of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PortableConversation {
    pub info: ConversationInfo,
    pub items: Vec<TimedItem>,
    /// Images and texts that items name, by their content hash.
    pub blobs: BTreeMap<String, Vec<u8>>,
}

/// One item, and its time if known.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedItem {
    pub item: Item,
    pub at: Option<Millis>,
}

/// Metadata of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationInfo {
    /// The id in its source.
    pub session: Option<String>,
    pub title: Option<String>,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    /// The last model.
    pub model: Option<String>,
    /// The version of the program that wrote the source.
    pub version: Option<String>,
    pub began: Option<Millis>,
    pub ended: Option<Millis>,
}

impl ConversationInfo {
    /// Extends the time range of the conversation.
    pub(crate) fn extend_time(&mut self, at: Option<Millis>) {
        let Some(at) = at else { return };
        self.began = Some(self.began.map_or(at, |began| began.min(at)));
        self.ended = Some(self.ended.map_or(at, |ended| ended.max(at)));
    }
}
