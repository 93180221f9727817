//! Known: which content of which file the model has seen, for the life of the process. A restored pod knows nothing and
//! must read again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use minke_tool::ToolError;

use crate::arguments::show;

/// The most files that are remembered; the one that was seen longest ago is forgotten first, and must be read again.
const FILES: usize = 10_000;

#[derive(Default)]
pub(crate) struct Known {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Real path → hash of its content, and when that was.
    files: HashMap<PathBuf, (String, u64)>,
    clock: u64,
}

impl Known {
    /// The model has seen or written this content.
    pub(crate) fn remember(&self, path: &Path, hash: &str) {
        // A panic while it was held has left a whole map.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clock += 1;
        let now = seen.clock;
        seen.files.insert(path.to_owned(), (hash.to_owned(), now));
        if seen.files.len() > FILES {
            let oldest = seen.files.iter().min_by_key(|(_, (_, when))| *when).map(|(path, _)| path.clone());
            if let Some(oldest) = oldest {
                seen.files.remove(&oldest);
            }
        }
    }

    /// Refuses to change what the model has not seen as it is now; the refusal names the file as it was `asked` for.
    pub(crate) fn check(&self, path: &Path, hash: &str, asked: &Path) -> Result<(), ToolError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.files.get(path) {
            None => Err(ToolError::Failed(format!(
                "{} has not been read yet: Read it before changing it",
                show(asked)
            ))),
            Some((known, _)) if known != hash => Err(ToolError::Failed(format!(
                "{} has been changed since it was read: Read it again before changing it",
                show(asked)
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
        let known = Known::default();
        for n in 0..=FILES {
            known.remember(Path::new(&format!("/{n}")), "h");
        }
        let check = |path: &str, hash| known.check(Path::new(path), hash, Path::new("/asked"));
        assert!(check("/0", "h").unwrap_err().message().starts_with("/asked has not been read"));
        assert!(check("/1", "h").is_ok());
        assert!(check(&format!("/{FILES}"), "h").is_ok());
        assert!(check("/1", "other").unwrap_err().message().starts_with("/asked has been changed since"));
    }
}
