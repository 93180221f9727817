//! Packs file contents into blobs: many files in each blob, each content once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// SHA-256.
pub(crate) type ContentHash = [u8; 32];

/// The location of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlobLocation {
    pub(crate) blob: Arc<str>,
    /// Offset and length in the blob; `None` if the content is the whole blob.
    pub(crate) byte_range: Option<(u64, u64)>,
}

/// Stores a blob and returns its name.
pub(crate) type StoreBlobFn<'a> = dyn FnMut(Vec<u8>) -> io::Result<String> + 'a;

/// Collects contents into blobs.
pub(crate) struct BlobPacker<'a> {
    store_blob: &'a mut StoreBlobFn<'a>,
    max_bytes: usize,
    locations: HashMap<ContentHash, BlobLocation>,
    /// All added contents, flushed or not.
    added: HashSet<ContentHash>,
    buffer: Vec<u8>,
    /// The contents of `buffer` with offset and length.
    buffered: Vec<(ContentHash, u64, u64)>,
}

impl<'a> BlobPacker<'a> {
    /// `places`: the contents stored already.
    pub(crate) fn new(
        store_blob: &'a mut StoreBlobFn<'a>,
        max_bytes: usize,
        locations: HashMap<ContentHash, BlobLocation>,
    ) -> BlobPacker<'a> {
        BlobPacker {
            store_blob,
            max_bytes,
            locations,
            added: HashSet::new(),
            buffer: Vec::new(),
            buffered: Vec::new(),
        }
    }

    /// Adds a content unless it is stored already.
    pub(crate) fn add_content(&mut self, hash: ContentHash, content: &[u8]) -> io::Result<()> {
        if content.is_empty() || self.locations.contains_key(&hash) || !self.added.insert(hash) {
            return Ok(());
        }
        if !self.buffer.is_empty() && self.buffer.len() + content.len() > self.max_bytes {
            self.flush_pack()?;
        }
        self.buffered.push((hash, self.buffer.len() as u64, content.len() as u64));
        self.buffer.extend_from_slice(content);
        Ok(())
    }

    fn flush_pack(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let blob: Arc<str> = (self.store_blob)(std::mem::take(&mut self.buffer))?.into();
        let alone = self.buffered.len() == 1;
        for (hash, at, bytes) in self.buffered.drain(..) {
            let byte_range = (!alone).then_some((at, bytes));
            self.locations.insert(hash, BlobLocation { blob: Arc::clone(&blob), byte_range });
        }
        Ok(())
    }

    /// Flushes, and returns all locations.
    pub(crate) fn finish(mut self) -> io::Result<HashMap<ContentHash, BlobLocation>> {
        self.flush_pack()?;
        Ok(self.locations)
    }
}
