//! The index: the file names of the workspace, in memory, refreshed in the background.
//!
//! The first query waits a short time for it. For a tree that takes longer, only the directory is listed until the
//! index is complete. Elsewhere: the walk and its rules (`tools::list_files`), the caller (`complete`). Invariant:
//! memory is bounded, and one walk runs at a time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_files::ScopedFiles;

/// The most files, and the most bytes of their names.
const MAX_FILES: usize = 250_000;
const MAX_NAME_BYTES: usize = 32 * 1024 * 1024;
/// How long the first query waits.
const FIRST_WAIT: Duration = Duration::from_millis(30);
/// The age after which the next query starts a refresh.
const MAX_AGE: Duration = Duration::from_secs(3);

/// Sorted names relative to the working directory; directories end with a slash.
#[derive(Debug, Default)]
pub(crate) struct FileNames(pub(crate) Vec<String>);

#[derive(Clone, Default)]
pub(crate) struct FileIndex(Arc<SharedIndex>);

#[derive(Default)]
struct SharedIndex {
    state: Mutex<IndexState>,
    built: Condvar,
}

#[derive(Default)]
struct IndexState {
    names: Option<Arc<FileNames>>,
    built_at: Option<Instant>,
    is_walking: bool,
}

impl FileIndex {
    /// Returns the current names; `None` if they are not complete yet.
    pub(crate) fn file_names(&self, files: &Arc<ScopedFiles>, root: &Path) -> Option<Arc<FileNames>> {
        let shared = &self.0;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let old = state.built_at.is_none_or(|made| made.elapsed() > MAX_AGE);
        if old && !state.is_walking {
            state.is_walking = true;
            let (shared, files, root) = (Arc::clone(shared), Arc::clone(files), root.to_owned());
            let walk = move || {
                let done = WalkGuard(shared);
                let names = list_names(&files, root);
                done.0.state.lock().unwrap_or_else(PoisonError::into_inner).names = Some(Arc::new(names));
            };
            if std::thread::Builder::new().name("names".to_owned()).spawn(walk).is_err() {
                // No thread could be started: only the directory is listed, and the next query tries again.
                state.is_walking = false;
            }
        }
        if state.names.is_none() && state.is_walking {
            let wait = |state: &mut IndexState| state.is_walking && state.names.is_none();
            let waited = shared.built.wait_timeout_while(state, FIRST_WAIT, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.names.clone()
    }
}

/// Marks the end of a walk, even after a panic.
struct WalkGuard(Arc<SharedIndex>);

impl Drop for WalkGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.is_walking, state.built_at) = (false, Some(Instant::now()));
        drop(state);
        self.0.built.notify_all();
    }
}

/// Returns the files and their directories. A tree that cannot be walked has none.
fn list_names(files: &Arc<ScopedFiles>, root: PathBuf) -> FileNames {
    let listing = minke_tools::list_files(files, &root, MAX_FILES, MAX_NAME_BYTES).unwrap_or_default();
    let mut dirs: BTreeSet<&str> = BTreeSet::new();
    for name in &listing.names {
        let mut rest = name.as_str();
        while let Some((dir, _)) = rest.rsplit_once('/') {
            if !dirs.insert(dir) {
                break;
            }
            rest = dir;
        }
    }
    let dirs: Vec<String> = dirs.into_iter().map(|dir| format!("{dir}/")).collect();
    let mut names = listing.names;
    names.extend(dirs);
    names.sort_unstable();
    FileNames(names)
}
