//! Glob and Grep: list files and search in them.
//!
//! This module has the common parts, from the root of a search to the notes about omitted files. Submodules:
//! walking (`walk`), ignore rules (`ignore_rules`), the search in a file (`lines`), and limited results
//! (`first_rows`). Both tools behave like ripgrep; descriptions of options mention the differences.

mod file_listing;
mod first_rows;
mod glob;
mod grep;
mod ignore_rules;
mod lines;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{FileError, ScopedFiles};
use minke_record::Action;
use minke_tool::{Tool, ToolError, ToolFuture, ToolOutput};

use crate::arguments::run_blocking;
use walk::StopFlag;

pub use file_listing::{FileListing, list_files};

/// The maximum content of one result, including the closing remark.
const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// Reserved for the remark about omitted rows.
const RESERVED_REMARK_BYTES: usize = 256;
/// The maximum length of a pattern or glob.
const MAX_PATTERN_BYTES: usize = 16 * 1024;

/// The maximum length of an error about a pattern; the reason is at its end.
const MAX_ERROR_BYTES: usize = 1_500;

/// Creates Glob and Grep over these files.
pub fn search_tools(files: &Arc<ScopedFiles>) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(glob::GlobTool::new(files.clone())), Arc::new(grep::GrepTool::new(files.clone()))]
}

/// Returns an action that only reads a path.
fn read_action(path: &Path) -> Action {
    Action { reads: vec![path.to_string_lossy().into_owned()], ..Action::default() }
}

/// The target of a path argument.
enum SearchRoot {
    /// A directory, by its real path.
    Tree(PathBuf),
    File(std::fs::File),
}

impl SearchRoot {
    fn open_root(files: &ScopedFiles, path: &Path) -> Result<SearchRoot, FileError> {
        match files.open_dir(path) {
            Ok(opened) => Ok(SearchRoot::Tree(opened.path)),
            Err(FileError::NotADirectory { .. }) => Ok(SearchRoot::File(files.open_file(path)?.file)),
            Err(e) => Err(e),
        }
    }
}

/// Checks that a pattern is not empty, not too long, and contains no zero byte.
fn check_pattern(key: &str, text: &str) -> Result<(), ToolError> {
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > MAX_PATTERN_BYTES {
        format!("has {} bytes, but at most {MAX_PATTERN_BYTES} are allowed", text.len())
    } else if text.contains('\0') {
        "contains a zero byte".to_owned()
    } else {
        return Ok(());
    };
    Err(ToolError::InvalidArguments(format!("`{key}` {why}: give a pattern")))
}

/// Returns a path for a result: relative to the working directory if it is below it, and with control
/// characters escaped.
fn relative_path(cwd: &Path, path: &Path) -> String {
    let path = path.strip_prefix(cwd).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(path);
    let text = path.to_string_lossy();
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Formats `1 file`, `2 files`.
fn count_noun(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns a note about files that could not be read, for the end of a summary.
fn describe_problems(files: u64, folders: u64, ignores: u64) -> String {
    let mut text = String::new();
    for (count, one, many) in [
        (files, "file could not be read", "files could not be read"),
        (folders, "directory could not be listed", "directories could not be listed"),
        (ignores, "ignore file could not be used", "ignore files could not be used"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {}", count_noun(count, one, many)));
        }
    }
    text
}

/// Cancels a search when its future is dropped, because blocking work cannot be aborted.
struct StopOnDrop(StopFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs a search that ends when its future is dropped.
fn run_stoppable(
    work: impl FnOnce(StopFlag) -> Result<ToolOutput, ToolError> + Send + 'static,
) -> ToolFuture {
    let stop = StopFlag::default();
    let stop_on_drop = StopOnDrop(stop.clone());
    let running = run_blocking(move || work(stop));
    Box::pin(async move {
        let _waiting = stop_on_drop;
        running.await
    })
}
