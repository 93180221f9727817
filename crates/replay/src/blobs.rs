//! Blobs: texts and recordings stored next to the log, loaded by name and verified by hash.

use std::cell::RefCell;

use minke_record::{Blob, BlobRef, InputSegment, SystemItem, Text};

use crate::ReplayError;

/// Loads a blob, or returns the reason why it could not be read.
pub type FetchBlob<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

pub(crate) struct BlobReader<'a> {
    fetch: RefCell<FetchBlob<'a>>,
}

impl<'a> BlobReader<'a> {
    pub(crate) fn new(fetch: FetchBlob<'a>) -> BlobReader<'a> {
        BlobReader { fetch: RefCell::new(fetch) }
    }

    /// Loads and verifies a blob: a changed one would replay events that never happened.
    pub(crate) fn read_blob(&self, name: &str) -> Result<Blob, String> {
        let content = (self.fetch.borrow_mut())(name)?;
        let blob = Blob::new(content);
        if blob.name.blob == name { Ok(blob) } else { Err("its content does not match its hash".to_owned()) }
    }

    /// A text, in the line or in a blob.
    pub(crate) fn load_text(&self, text: &Text, seq: u64) -> Result<String, ReplayError> {
        match text {
            Text::Inline(text) => Ok(text.clone()),
            Text::Blob(name) => self.load_content(name, seq),
        }
    }

    pub(crate) fn load_content(&self, name: &BlobRef, seq: u64) -> Result<String, ReplayError> {
        let failed = |why: String| ReplayError::Blob { seq, name: name.blob.clone(), why };
        let blob = self.read_blob(&name.blob).map_err(failed)?;
        String::from_utf8(blob.content).map_err(|e| failed(e.to_string()))
    }

    /// A system item with its full text.
    pub(crate) fn load_item(&self, item: &SystemItem, seq: u64) -> Result<SystemItem, ReplayError> {
        let body = Text::Inline(self.load_text(&item.body, seq)?);
        Ok(SystemItem { body, ..item.clone() })
    }

    /// An input with its full texts, which the log may have moved into blobs.
    pub(crate) fn load_input(
        &self,
        segments: &[InputSegment],
        seq: u64,
    ) -> Result<Vec<InputSegment>, ReplayError> {
        let mut segments = segments.to_vec();
        let mut failed = None;
        for segment in &mut segments {
            segment.visit_texts_mut(&mut |text| {
                if let Text::Blob(name) = text {
                    match self.load_content(name, seq) {
                        Ok(content) => *text = Text::Inline(content),
                        Err(e) => drop(failed.get_or_insert(e)),
                    }
                }
            });
        }
        failed.map_or(Ok(segments), Err)
    }
}
