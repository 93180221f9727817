//! Pack: contents, many files to a blob, each content once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// SHA-256.
pub(crate) type Hash = [u8; 32];

/// Where a content is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) blob: Arc<str>,
    /// Where in the blob and how long, if it is not the whole of it.
    pub(crate) part: Option<(u64, u64)>,
}

/// Keeps a blob and says its name.
pub(crate) type Keep<'a> = dyn FnMut(Vec<u8>) -> io::Result<String> + 'a;

/// Contents on their way into blobs.
pub(crate) struct Packer<'a> {
    keep: &'a mut Keep<'a>,
    most: usize,
    places: HashMap<Hash, Place>,
    /// What has been taken, flushed or not.
    taken: HashSet<Hash>,
    open: Vec<u8>,
    /// What is in `open`, and where.
    inside: Vec<(Hash, u64, u64)>,
}

impl<'a> Packer<'a> {
    /// `places`: what is kept already.
    pub(crate) fn new(keep: &'a mut Keep<'a>, most: usize, places: HashMap<Hash, Place>) -> Packer<'a> {
        Packer { keep, most, places, taken: HashSet::new(), open: Vec::new(), inside: Vec::new() }
    }

    /// Takes a content, unless it has it.
    pub(crate) fn add(&mut self, hash: Hash, content: &[u8]) -> io::Result<()> {
        if content.is_empty() || self.places.contains_key(&hash) || !self.taken.insert(hash) {
            return Ok(());
        }
        if !self.open.is_empty() && self.open.len() + content.len() > self.most {
            self.flush()?;
        }
        self.inside.push((hash, self.open.len() as u64, content.len() as u64));
        self.open.extend_from_slice(content);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let blob: Arc<str> = (self.keep)(std::mem::take(&mut self.open))?.into();
        let alone = self.inside.len() == 1;
        for (hash, at, bytes) in self.inside.drain(..) {
            let part = (!alone).then_some((at, bytes));
            self.places.insert(hash, Place { blob: Arc::clone(&blob), part });
        }
        Ok(())
    }

    /// Where everything is now.
    pub(crate) fn finish(mut self) -> io::Result<HashMap<Hash, Place>> {
        self.flush()?;
        Ok(self.places)
    }
}
