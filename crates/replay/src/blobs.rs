//! Blobs: texts and recordings that lie beside the log, fetched by name and believed only if they have that name.

use std::cell::RefCell;

use minke_record::{Blob, BlobRef, InputSegment, SystemItem, Text};

use crate::ReplayError;

/// Gives the content of a blob, or why it cannot.
pub type Fetch<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

pub(crate) struct Blobs<'a> {
    fetch: RefCell<Fetch<'a>>,
}

impl<'a> Blobs<'a> {
    pub(crate) fn new(fetch: Fetch<'a>) -> Blobs<'a> {
        Blobs { fetch: RefCell::new(fetch) }
    }

    /// The content of a blob, which is checked: one that was changed would replay as something that never happened.
    pub(crate) fn get(&self, name: &str) -> Result<Blob, String> {
        let content = (self.fetch.borrow_mut())(name)?;
        let blob = Blob::new(content);
        if blob.name.blob == name {
            Ok(blob)
        } else {
            Err("its content is not what its name says".to_owned())
        }
    }

    /// A text, wherever it is.
    pub(crate) fn text(&self, text: &Text, seq: u64) -> Result<String, ReplayError> {
        match text {
            Text::Here(text) => Ok(text.clone()),
            Text::Blob(name) => self.content(name, seq),
        }
    }

    pub(crate) fn content(&self, name: &BlobRef, seq: u64) -> Result<String, ReplayError> {
        let failed = |why: String| ReplayError::Blob { seq, name: name.blob.clone(), why };
        let blob = self.get(&name.blob).map_err(failed)?;
        String::from_utf8(blob.content).map_err(|e| failed(e.to_string()))
    }

    /// A system item with its whole text.
    pub(crate) fn item(&self, item: &SystemItem, seq: u64) -> Result<SystemItem, ReplayError> {
        let body = Text::Here(self.text(&item.body, seq)?);
        Ok(SystemItem { body, ..item.clone() })
    }

    /// An input as it was said: the log may have put its long texts aside.
    pub(crate) fn said(&self, segments: &[InputSegment], seq: u64) -> Result<Vec<InputSegment>, ReplayError> {
        let mut segments = segments.to_vec();
        let mut failed = None;
        for segment in &mut segments {
            segment.texts_mut(&mut |text| {
                if let Text::Blob(name) = text {
                    match self.content(name, seq) {
                        Ok(content) => *text = Text::Here(content),
                        Err(e) => drop(failed.get_or_insert(e)),
                    }
                }
            });
        }
        failed.map_or(Ok(segments), Err)
    }
}
