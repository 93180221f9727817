//! The file contents that the model has read in this process. After a resume the model must read files again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use minke_tool::ToolError;

use crate::arguments::display_path;

/// The maximum number of files; beyond it the least recently read file is removed and must be read again.
const MAX_FILES: usize = 10_000;

#[derive(Default)]
pub(crate) struct SeenFiles {
    hashes: Mutex<SeenHashes>,
}

#[derive(Default)]
struct SeenHashes {
    /// Real path → hash of its content and the time of the read.
    files: HashMap<PathBuf, (String, u64)>,
    clock: u64,
}

impl SeenFiles {
    /// Records that the model has read or written this content.
    pub(crate) fn remember(&self, path: &Path, hash: &str) {
        // The map is consistent even after a panic.
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.clock += 1;
        let now = hashes.clock;
        hashes.files.insert(path.to_owned(), (hash.to_owned(), now));
        if hashes.files.len() > MAX_FILES {
            let oldest = hashes.files.iter().min_by_key(|(_, (_, when))| *when).map(|(path, _)| path.clone());
            if let Some(oldest) = oldest {
                hashes.files.remove(&oldest);
            }
        }
    }

    /// Returns an error if the model has not read the current content. The error names the file by its
    /// requested path.
    pub(crate) fn check_unchanged(&self, path: &Path, hash: &str, requested: &Path) -> Result<(), ToolError> {
        let hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        match hashes.files.get(path) {
            None => Err(ToolError::ExecutionFailed(format!(
                "{} has not been read yet: Read it before changing it",
                display_path(requested)
            ))),
            Some((known, _)) if known != hash => Err(ToolError::ExecutionFailed(format!(
                "{} has been changed since it was read: Read it again before changing it",
                display_path(requested)
            ))),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_longest_ago_is_forgotten_first() {
        let known = SeenFiles::default();
        for n in 0..=MAX_FILES {
            known.remember(Path::new(&format!("/{n}")), "h");
        }
        let check = |path: &str, hash| known.check_unchanged(Path::new(path), hash, Path::new("/asked"));
        assert!(check("/0", "h").unwrap_err().message().starts_with("/asked has not been read"));
        assert!(check("/1", "h").is_ok());
        assert!(check(&format!("/{MAX_FILES}"), "h").is_ok());
        assert!(check("/1", "other").unwrap_err().message().starts_with("/asked has been changed since"));
    }
}
