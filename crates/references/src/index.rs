//! The index: the names of the files that a person could mean, in memory, made again in the background when they are old.
//!
//! The first question waits a moment for it; a tree that takes longer is answered from the directory alone until it is
//! there. Elsewhere: the walk and its rules (`tools::list_files`), who asks (`complete`).
//! Invariant: what is held is bounded, and one walk runs at a time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_files::Files;

/// Files that are held, and bytes of their names.
const FILES: usize = 250_000;
const BYTES: usize = 32 * 1024 * 1024;
/// How long the first question waits.
const FIRST_WAIT: Duration = Duration::from_millis(30);
/// When names are looked for again: the next question after this.
const OLD: Duration = Duration::from_secs(3);

/// Names from the working directory, sorted; those of directories end with a slash.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) Vec<String>);

#[derive(Clone, Default)]
pub(crate) struct Index(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    made: Condvar,
}

#[derive(Default)]
struct State {
    names: Option<Arc<Names>>,
    made: Option<Instant>,
    walking: bool,
}

impl Index {
    /// The names as they are known; `None` if they are not known yet.
    pub(crate) fn names(&self, files: &Arc<Files>, root: &Path) -> Option<Arc<Names>> {
        let shared = &self.0;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let old = state.made.is_none_or(|made| made.elapsed() > OLD);
        if old && !state.walking {
            state.walking = true;
            let (shared, files, root) = (Arc::clone(shared), Arc::clone(files), root.to_owned());
            let walk = move || {
                let done = Done(shared);
                let names = names(&files, root);
                done.0.state.lock().unwrap_or_else(PoisonError::into_inner).names = Some(Arc::new(names));
            };
            if std::thread::Builder::new().name("names".to_owned()).spawn(walk).is_err() {
                // No thread to be had: the directory alone answers, and the next question tries again.
                state.walking = false;
            }
        }
        if state.names.is_none() && state.walking {
            let wait = |state: &mut State| state.walking && state.names.is_none();
            let waited = shared.made.wait_timeout_while(state, FIRST_WAIT, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.names.clone()
    }
}

/// Ends a walk, also one that panicked.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.walking, state.made) = (false, Some(Instant::now()));
        drop(state);
        self.0.made.notify_all();
    }
}

/// Files and the directories that they are in. A tree that cannot be walked has none.
fn names(files: &Arc<Files>, root: PathBuf) -> Names {
    let listing = minke_tools::list_files(files, &root, FILES, BYTES).unwrap_or_default();
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
    Names(names)
}
