//! Labels: the first line of every file describes its content.
//!
//! Here: checking the first line. Elsewhere: whether the label is true (readers).
//! Invariant: no Rust file without one (`every_file_has_a_label`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files whose first line is not a `//!` label.
pub fn missing_labels(root: &Path, files: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut bare = Vec::new();
    for file in files {
        if !is_labelled(&fs::read_to_string(root.join(file))?) {
            bare.push(file.clone());
        }
    }
    Ok(bare)
}

/// A label is a non-empty doc comment on the first line.
pub fn is_labelled(text: &str) -> bool {
    text.lines().next().and_then(|line| line.strip_prefix("//!")).is_some_and(|said| !said.trim().is_empty())
}
