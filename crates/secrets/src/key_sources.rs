//! The places in which keys may be, all of whose values are redacted.
//!
//! Elsewhere: which places the catalog names (`llm`), reading them (`lookup`), the redaction (`key_redactor`).

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lookup::{FoundSecret, find_all_secrets};
use crate::redact::Redactor;
use crate::store::KeyStore;

/// Looks up an environment variable.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The variables, the files and the store in which keys may be.
#[derive(Clone)]
pub struct KeySources {
    pub variables: Vec<String>,
    pub files: Vec<PathBuf>,
    pub store: Option<KeyStore>,
    /// Reads the variables.
    pub env: EnvLookup,
}

/// Metadata of a key source. A change means that the keys may have changed.
pub(crate) type SourceFingerprint = Option<(u64, i64, i64, u64)>;

impl KeySources {
    /// Reads every key. Skips unreadable sources.
    pub fn find_all(&self) -> Vec<FoundSecret> {
        find_all_secrets(&self.variables, &self.files, self.store.as_ref(), &*self.env)
    }

    /// Returns a redactor for the keys that the sources contain now.
    pub(crate) fn load_redactor(&self) -> Redactor {
        Redactor::new(self.find_all().into_iter().map(|found| (found.source.mask_name(), found.secret)))
    }

    /// The variables of a process do not change. Files and the directory of the store have a modification
    /// time.
    pub(crate) fn fingerprints(&self) -> Vec<SourceFingerprint> {
        let store = self.store.iter().map(KeyStore::dir);
        let paths = self.files.iter().map(PathBuf::as_path).chain(store);
        paths
            .map(|place| {
                let meta = std::fs::metadata(place).ok()?;
                Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
            })
            .collect()
    }
}
