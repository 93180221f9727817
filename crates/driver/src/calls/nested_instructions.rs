//! Nested instructions: instruction files in directories below the working directory.
//!
//! Here: finding them when a call has worked on a file there. Elsewhere: reading one (`sources`), whether the
//! model gets it (`pod`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minke_config::sources::InstructionSearch;
use minke_config::sources::directory_instructions;
use minke_pod::NestedInstructions;
use minke_policy::{AccessLevel, access_level};
use minke_prompts::{Snippet, SnippetCatalog};
use minke_record::{Action, Scope};
use minke_secrets::KeyRedactor;
use minke_tool::ToolContext;

/// The maximum number of directories searched between the working directory and a file.
const MAX_DIRECTORIES: usize = 32;

/// The maximum number of reported problems of one process.
const MAX_PROBLEMS: usize = 64;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct NestedInstructionFinder {
    catalog: Arc<SnippetCatalog>,
    /// Problems that this process has reported.
    reported: Arc<Mutex<BTreeSet<String>>>,
}

/// The instructions found, and the problems to report to the user.
#[derive(Default)]
pub(crate) struct InstructionFindings {
    pub(crate) instructions: Vec<NestedInstructions>,
    pub(crate) problems: Vec<String>,
}

/// The single file that a call is about; commands have none, because they may have used any file.
pub(crate) fn action_file(action: &Action) -> Option<&str> {
    let mut paths = action.reads.iter().chain(&action.writes);
    let first = paths.next().filter(|_| action.command.is_none())?;
    paths.all(|other| other == first).then_some(first)
}

impl NestedInstructionFinder {
    pub(crate) fn new(catalog: SnippetCatalog) -> NestedInstructionFinder {
        NestedInstructionFinder { catalog: Arc::new(catalog), reported: Arc::default() }
    }

    /// Reads files: do not call it on the event loop.
    pub(crate) fn find_below(
        &self,
        place: &ToolContext,
        file: &str,
        redactor: &KeyRedactor,
    ) -> InstructionFindings {
        let mut found = InstructionFindings::default();
        let Some(between) = Path::new(file).strip_prefix(&place.cwd).ok().and_then(Path::parent) else {
            return found;
        };
        let mut directories: Vec<PathBuf> = between.ancestors().map(Path::to_owned).collect();
        // The last directory is the working directory, whose instructions are in the system prompt.
        directories.pop();
        directories.truncate(MAX_DIRECTORIES);
        let may_read = |path: &Path| is_readable(&place.scope, path);
        let searching = InstructionSearch {
            config: Path::new(""),
            workspace: &place.cwd,
            cwd: &place.cwd,
            may_read: &may_read,
        };
        let mut problems = Vec::new();
        for directory in directories.iter().rev() {
            let Some(file) = directory_instructions(searching, directory, &mut problems) else { continue };
            let mut text = file.text;
            let cut =
                if file.bytes > text.len() as u64 { "\n[cut here; read the file for the rest]" } else { "" };
            if let Err(e) = redactor.redact(&mut [&mut text]) {
                problems.push(format!("{} is not used: could not check it for secrets: {e}", file.path));
                continue;
            }
            let text = format!("{}{cut}", text.trim_end());
            let values = [("path", file.path.as_str()), ("text", text.as_str())];
            let body = self.catalog.render(Snippet::Instructions, &values);
            found.instructions.push(NestedInstructions { path: file.path, body });
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = |problem: &String| reported.len() < MAX_PROBLEMS && reported.insert(problem.clone());
        found.problems = problems.into_iter().filter(|problem| new(problem)).collect();
        found
    }
}

/// Whether a scope allows reading a file.
pub(crate) fn is_readable(scope: &Scope, path: &Path) -> bool {
    path.to_str().is_some_and(|path| access_level(scope, path) != AccessLevel::None)
}
