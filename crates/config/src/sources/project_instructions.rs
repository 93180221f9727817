//! Finds and reads project instructions such as `AGENTS.md`.
//!
//! Reads the user's own file and one file of each directory from the workspace down to the working directory;
//! never follows links and never blocks. Elsewhere: the size limit and the text for the model
//! (`prompts::project`), the readable files (`policy`, through the caller).
//! Invariant: the search ends whatever the workspace contains, and reports ignored files
//! (`whatever_lies_there_instructions_are_found_or_named`).

use std::path::Path;

use minke_prompts::{FittedInstructions, MAX_PROJECT_BYTES, ProjectFile, fit_project_files};

/// The user's file in the configuration directory.
const USER_FILE: &str = "AGENTS.md";
/// The first readable one of these files in a directory is used.
const FILE_NAMES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];
/// Limit for searched directories; the nearest ones are searched.
const MAX_DIRECTORIES: usize = 64;

/// The project instructions of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectInstructions {
    pub instructions: FittedInstructions,
    /// Ignored files with the reason, one line each.
    pub problems: Vec<String>,
}

impl ProjectInstructions {
    /// Describes the loaded and truncated files in one line. Returns `None` if there are none.
    pub fn load_summary(&self) -> Option<String> {
        let FittedInstructions { files, cut, dropped } = &self.instructions;
        if files.is_empty() && dropped.is_empty() {
            return None;
        }
        let loaded = files.iter().map(|file| {
            let (path, shown) = (&file.path, file.text.len());
            if cut.contains(path) {
                format!("{path} ({shown} of {} bytes, truncated)", file.bytes)
            } else {
                format!("{path} ({shown} bytes)")
            }
        });
        let mut message = format!("project instructions: {}", loaded.collect::<Vec<_>>().join(", "));
        if !dropped.is_empty() {
            message.push_str(&format!("; omitted beyond {MAX_PROJECT_BYTES} bytes: {}", dropped.join(", ")));
        }
        Some(message)
    }
}

/// Where to search for instructions.
#[derive(Clone, Copy)]
pub struct InstructionSearch<'a> {
    /// The configuration directory of the user.
    pub config: &'a Path,
    pub workspace: &'a Path,
    pub cwd: &'a Path,
    /// Whether the pod may read a file.
    pub may_read: &'a dyn Fn(&Path) -> bool,
}

/// Finds the instructions for a pod, outermost first: the user's, then those of the directories.
pub fn find_instructions(search: InstructionSearch<'_>) -> ProjectInstructions {
    let InstructionSearch { config, workspace, cwd, .. } = search;
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    let own = config.join(USER_FILE);
    match crate::sources::config::read_config_file(&own) {
        Ok(None) => {}
        Ok(Some(text)) => {
            let bytes = text.len() as u64;
            files.push(ProjectFile { path: own.display().to_string(), text, bytes });
        }
        Err(e) => problems.push(format!("{} is not used: {e}", own.display())),
    }
    let below = cwd.strip_prefix(workspace).unwrap_or(Path::new(""));
    let mut directories: Vec<&Path> = below.ancestors().take(MAX_DIRECTORIES).collect();
    directories.reverse();
    for directory in directories {
        files.extend(directory_instructions(search, directory, &mut problems));
    }
    ProjectInstructions { instructions: fit_project_files(files, MAX_PROJECT_BYTES), problems }
}

/// Finds the instructions in one directory of the workspace.
pub fn directory_instructions(
    searching: InstructionSearch<'_>,
    directory: &Path,
    problems: &mut Vec<String>,
) -> Option<ProjectFile> {
    for name in FILE_NAMES {
        let file = directory.join(name);
        let path = searching.workspace.join(&file);
        if !(searching.may_read)(&path) {
            continue;
        }
        match crate::trust::read_file_prefix(searching.workspace, &file, MAX_PROJECT_BYTES as u64) {
            Ok(None) => {}
            Ok(Some(read)) => {
                let path = path.display().to_string();
                let text = decode_text(read.bytes, &path, problems);
                return Some(ProjectFile { path, text, bytes: read.total_bytes });
            }
            Err(refused) => problems.push(refused.to_string()),
        }
    }
    None
}

/// Decodes UTF-8 with replacement characters and drops a character that was cut in two.
fn decode_text(mut bytes: Vec<u8>, path: &str, problems: &mut Vec<String>) -> String {
    if let Err(e) = std::str::from_utf8(&bytes)
        && e.error_len().is_none()
    {
        bytes.truncate(e.valid_up_to());
    }
    String::from_utf8(bytes).unwrap_or_else(|e| {
        problems.push(format!("{path} is not UTF-8: invalid bytes are shown as `\u{fffd}`"));
        let mut text = String::from_utf8_lossy(e.as_bytes()).into_owned();
        // The replacement character is longer than the byte that it replaces.
        text.truncate(text.floor_char_boundary(MAX_PROJECT_BYTES));
        text
    })
}
