//! Glob and Grep: which files there are, and what is in them.
//!
//! Here: what the two share, from the place that is searched to the words about what was left out. Elsewhere: walking
//! (`walk`), ignore rules (`ignores`), a search inside one file (`lines`), results that stay bounded (`keep`), files
//! (`files`). Both do as ripgrep does; where they differ, the description of the option says so.

mod glob;
mod grep;
mod ignores;
mod keep;
mod lines;
mod names;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{FileError, Files};
use minke_record::Action;
use minke_tool::{Running, Tool, ToolError, ToolOutput};

use crate::arguments::off_the_loop;
use walk::Stop;

pub use names::{Listing, list_files};

/// The most that one call puts into the context, the closing remark included.
const CONTENT_BYTES: usize = 64 * 1024;
/// Room for the remark about what was left out.
const REMARK_BYTES: usize = 256;
/// The longest pattern or glob: one that a person could have meant.
const PATTERN_BYTES: usize = 16 * 1024;

/// The most that is repeated of what is wrong with a pattern; the reason stands at its end.
const ERROR_BYTES: usize = 1_500;

/// Glob and Grep over these files.
pub fn search_tools(files: &Arc<Files>) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(glob::Glob::new(files.clone())), Arc::new(grep::Grep::new(files.clone()))]
}

/// An action that only reads what is at a path.
fn reads(path: &Path) -> Action {
    Action { reads: vec![path.to_string_lossy().into_owned()], ..Action::default() }
}

/// What a path argument leads to.
enum Root {
    /// A directory by its real path.
    Tree(PathBuf),
    File(std::fs::File),
}

impl Root {
    fn open(files: &Files, path: &Path) -> Result<Root, FileError> {
        match files.open_dir(path) {
            Ok(opened) => Ok(Root::Tree(opened.path)),
            Err(FileError::NotADirectory { .. }) => Ok(Root::File(files.open(path)?.file)),
            Err(e) => Err(e),
        }
    }
}

/// A pattern that can be looked at: there, not endless, without a zero byte.
fn usable(key: &str, text: &str) -> Result<(), ToolError> {
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > PATTERN_BYTES {
        format!("has {} bytes, more than the {PATTERN_BYTES} that are taken", text.len())
    } else if text.contains('\0') {
        "holds a zero byte".to_owned()
    } else {
        return Ok(());
    };
    Err(ToolError::Invalid(format!("`{key}` {why}: give what to look for")))
}

/// A path as the results show it: from the working directory where it lies below it, and without characters that would
/// break the line.
fn shown(cwd: &Path, path: &Path) -> String {
    let path = path.strip_prefix(cwd).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(path);
    let text = path.to_string_lossy();
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// `1 file`, `2 files`.
fn number(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// What could not be looked at, in words for the end of a summary.
fn troubles(files: u64, folders: u64, ignores: u64) -> String {
    let mut text = String::new();
    for (count, one, many) in [
        (files, "file could not be read", "files could not be read"),
        (folders, "directory could not be listed", "directories could not be listed"),
        (ignores, "ignore file could not be used", "ignore files could not be used"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {}", number(count, one, many)));
        }
    }
    text
}

/// Asks a search to stop when nobody waits for it any more: work off the loop cannot be taken back otherwise.
struct Waiting(Stop);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// Runs a search that ends when the future is dropped.
fn stoppable(work: impl FnOnce(Stop) -> Result<ToolOutput, ToolError> + Send + 'static) -> Running {
    let stop = Stop::default();
    let waiting = Waiting(stop.clone());
    let running = off_the_loop(move || work(stop));
    Box::pin(async move {
        let _waiting = waiting;
        running.await
    })
}
