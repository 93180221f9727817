//! Nested instructions: what people wrote for agents in the directories below where a pod works.
//!
//! Here: looking for them when a call has worked on a file there. Elsewhere: reading one (`sources`), whether it is told
//! (`pod`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minke_llm::Cover;
use minke_pod::Instructions;
use minke_policy::{Level, level};
use minke_prompts::{Catalog, Snippet};
use minke_record::{Action, Scope};
use minke_sources::{Searching, of_directory};
use minke_tool::Place;

/// Directories between where a pod works and a file that are looked into.
const DIRECTORIES: usize = 32;

/// How much is complained about in one life.
const PROBLEMS: usize = 64;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Nested {
    catalog: Arc<Catalog>,
    /// What was complained about in this life.
    told: Arc<Mutex<BTreeSet<String>>>,
}

/// What was found, and what the person should know of it.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) instructions: Vec<Instructions>,
    pub(crate) problems: Vec<String>,
}

/// The one file that a call is about; commands may have touched anything and tell nothing.
pub(crate) fn file_of(action: &Action) -> Option<&str> {
    let mut paths = action.reads.iter().chain(&action.writes);
    let first = paths.next().filter(|_| action.command.is_none())?;
    paths.all(|other| other == first).then_some(first)
}

impl Nested {
    pub(crate) fn new(catalog: Catalog) -> Nested {
        Nested { catalog: Arc::new(catalog), told: Arc::default() }
    }

    /// Reads files: not for the loop.
    pub(crate) fn below(&self, place: &Place, file: &str, cover: &Cover) -> Found {
        let mut found = Found::default();
        let Some(between) = Path::new(file).strip_prefix(&place.cwd).ok().and_then(Path::parent) else {
            return found;
        };
        let mut directories: Vec<PathBuf> = between.ancestors().map(Path::to_owned).collect();
        // The last one is where the pod works: that is in the system prompt.
        directories.pop();
        directories.truncate(DIRECTORIES);
        let may_read = |path: &Path| reads(&place.scope, path);
        let searching =
            Searching { config: Path::new(""), workspace: &place.cwd, cwd: &place.cwd, may_read: &may_read };
        let mut problems = Vec::new();
        for directory in directories.iter().rev() {
            let Some(file) = of_directory(searching, directory, &mut problems) else { continue };
            let mut text = file.text;
            let cut =
                if file.bytes > text.len() as u64 { "\n[cut here; read the file for the rest]" } else { "" };
            if let Err(e) = cover.hide(&mut [&mut text]) {
                problems.push(format!("{} is not told: keys could not be looked for in it: {e}", file.path));
                continue;
            }
            let text = format!("{}{cut}", text.trim_end());
            let values = [("path", file.path.as_str()), ("text", text.as_str())];
            let body = self.catalog.say(Snippet::Instructions, &values);
            found.instructions.push(Instructions { path: file.path, body });
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = |problem: &String| told.len() < PROBLEMS && told.insert(problem.clone());
        found.problems = problems.into_iter().filter(|problem| new(problem)).collect();
        found
    }
}

/// Whether a file may be read by a scope.
pub(crate) fn reads(scope: &Scope, path: &Path) -> bool {
    path.to_str().is_some_and(|path| level(scope, path) != Level::None)
}
