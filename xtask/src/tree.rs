//! The workspace root and the source files below it.
//!
//! Here: finding the root, listing source files, querying Cargo. Elsewhere: all checks (the other modules).
//! Invariant: build output is never listed (`only_our_own_files_are_listed` in tests/house.rs).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Folders without our own sources.
const SKIPPED_FOLDERS: [&str; 4] = ["target", ".git", "bench-results", "corpus"];

/// The workspace root: the parent folder of this package.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is one folder below the workspace root")
        .to_path_buf()
}

/// All Rust files below `root`, sorted, as paths relative to it.
pub fn rust_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect_files(root, root, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect_files(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        // A link could lead out of the tree or form a cycle.
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !SKIPPED_FOLDERS.iter().any(|not| name == *not) {
                collect_files(root, &path, found)?;
            }
        } else if kind.is_file() && path.extension().is_some_and(|ext| ext == "rs") {
            let inside = path.strip_prefix(root).expect("listed below the root").to_path_buf();
            found.push(inside);
        }
    }
    Ok(())
}

/// The output of `cargo metadata`. With `deps`, also for all dependencies.
pub fn cargo_metadata(root: &Path, deps: bool) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["metadata", "--format-version", "1"]);
    if !deps {
        command.arg("--no-deps");
    }
    let output = command.output().map_err(|why| format!("could not run `cargo metadata`: {why}"))?;
    if !output.status.success() {
        return Err(format!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|why| format!("`cargo metadata` is not JSON: {why}"))
}
