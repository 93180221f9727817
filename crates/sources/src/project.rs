//! Project instructions: `AGENTS.md` and its like, found and read.
//!
//! Here: the person's own, and one file of each directory from the workspace down to where a pod works; never through a
//! link, never waited for. Elsewhere: how many fit and how a model sees them (`prompts::project`), which files a pod may
//! read (`policy`; whoever calls says so).
//! Invariant: whatever lies there, the look ends and names what was left out
//! (`whatever_lies_there_instructions_are_found_or_named`).

use std::path::Path;

use minke_prompts::{Fitted, PROJECT_BYTES, ProjectFile, fit};

/// The person's own, in the configuration directory.
const OF_PERSON: &str = "AGENTS.md";
/// Of a directory the first of these that can be read.
const NAMES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];
/// Directories between a workspace and where a pod works that are looked into: the nearest.
const DIRECTORIES: usize = 64;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Project {
    pub fitted: Fitted,
    /// What lies there and is not used, and why; one line each.
    pub problems: Vec<String>,
}

impl Project {
    /// One line for people: what was loaded, what was cut. `None` if there was nothing.
    pub fn told(&self) -> Option<String> {
        let Fitted { files, cut, dropped } = &self.fitted;
        if files.is_empty() && dropped.is_empty() {
            return None;
        }
        let shown = files.iter().map(|file| {
            let (path, shown) = (&file.path, file.text.len());
            if cut.contains(path) {
                format!("{path} ({shown} of {} bytes, cut)", file.bytes)
            } else {
                format!("{path} ({shown} bytes)")
            }
        });
        let mut told = format!("project instructions: {}", shown.collect::<Vec<_>>().join(", "));
        if !dropped.is_empty() {
            told.push_str(&format!("; left out beyond {PROJECT_BYTES} bytes: {}", dropped.join(", ")));
        }
        Some(told)
    }
}

/// Where instructions are looked for.
#[derive(Clone, Copy)]
pub struct Searching<'a> {
    /// The person's configuration directory.
    pub config: &'a Path,
    pub workspace: &'a Path,
    pub cwd: &'a Path,
    /// Whether the pod may read a file.
    pub may_read: &'a dyn Fn(&Path) -> bool,
}

/// The instructions for a pod, outermost first: the person's, then those of the directories.
pub fn project(searching: Searching<'_>) -> Project {
    let Searching { config, workspace, cwd, .. } = searching;
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    let own = config.join(OF_PERSON);
    match crate::config::read(&own) {
        Ok(None) => {}
        Ok(Some(text)) => {
            let bytes = text.len() as u64;
            files.push(ProjectFile { path: own.display().to_string(), text, bytes });
        }
        Err(e) => problems.push(format!("{} is not used: {e}", own.display())),
    }
    let below = cwd.strip_prefix(workspace).unwrap_or(Path::new(""));
    let mut directories: Vec<&Path> = below.ancestors().take(DIRECTORIES).collect();
    directories.reverse();
    for directory in directories {
        files.extend(of_directory(searching, directory, &mut problems));
    }
    Project { fitted: fit(files, PROJECT_BYTES), problems }
}

/// The instructions of one directory, given from the workspace.
pub fn of_directory(
    searching: Searching<'_>,
    directory: &Path,
    problems: &mut Vec<String>,
) -> Option<ProjectFile> {
    for name in NAMES {
        let file = directory.join(name);
        let path = searching.workspace.join(&file);
        if !(searching.may_read)(&path) {
            continue;
        }
        match minke_trust::beginning(searching.workspace, &file, PROJECT_BYTES as u64) {
            Ok(None) => {}
            Ok(Some(read)) => {
                let path = path.display().to_string();
                let text = text(read.bytes, &path, problems);
                return Some(ProjectFile { path, text, bytes: read.whole });
            }
            Err(refused) => problems.push(refused.to_string()),
        }
    }
    None
}

/// What is no text is shown as far as it is; a character that was cut in two is left out.
fn text(mut bytes: Vec<u8>, path: &str, problems: &mut Vec<String>) -> String {
    if let Err(e) = std::str::from_utf8(&bytes)
        && e.error_len().is_none()
    {
        bytes.truncate(e.valid_up_to());
    }
    String::from_utf8(bytes).unwrap_or_else(|e| {
        problems.push(format!("{path} is not UTF-8: what is no text in it is shown as `\u{fffd}`"));
        let mut text = String::from_utf8_lossy(e.as_bytes()).into_owned();
        // A mark is longer than the byte that it stands for.
        text.truncate(text.floor_char_boundary(PROJECT_BYTES));
        text
    })
}
