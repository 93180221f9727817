//! Limits the total size of the output files; removes the oldest files first.
//!
//! This module finds the output directory and removes old files before a command starts. `exec` writes the
//! files, each with its own limit, and `session` keeps a file that a result names as a blob.
//! Invariant: when a command starts, the files of finished commands have at most `MAX_OUTPUT_BYTES`, and
//! files of running commands are never removed (`old_output_goes_when_there_is_too_much_of_it`).

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use minke_exec::command::Commands;

use super::count_noun;

/// The maximum total size for finished commands; each running command may have a file in addition.
pub(super) const MAX_OUTPUT_BYTES: u64 = 1024 * 1024 * 1024;

/// The output directory, known as soon as a result names a file in it.
#[derive(Default)]
pub(super) struct OutputRetention(OnceLock<PathBuf>);

impl OutputRetention {
    /// Records the directory of an output file.
    pub(super) fn note_file(&self, file: &Path) {
        if let Some(dir) = file.parent() {
            self.0.get_or_init(|| dir.to_owned());
        }
    }

    /// Removes files beyond the limit; returns a note about removed files or an error.
    pub(super) async fn make_room(&self, commands: &Arc<Commands>) -> Option<String> {
        if self.0.get().is_none() {
            self.find_directory(commands).await;
        }
        let dir = self.0.get()?.clone();
        let busy = commands.running_commands().into_iter().map(|row| output_file_name(&row.id)).collect();
        let removal = tokio::task::spawn_blocking(move || remove_oldest(&dir, &busy, MAX_OUTPUT_BYTES)).await;
        match removal.unwrap_or_else(|e| Err(io::Error::other(e))) {
            Ok(0) => None,
            Ok(removed) => Some(format!(
                "to make room, the output of {} was removed, the oldest first: {} MiB are kept",
                count_noun(removed, "earlier command"),
                MAX_OUTPUT_BYTES / (1024 * 1024)
            )),
            Err(e) => Some(format!("could not remove old output to make room: {e}")),
        }
    }

    /// Finds the directory from the files of background commands that no result has named yet.
    async fn find_directory(&self, commands: &Commands) {
        for (row, _) in commands.list_background() {
            // A command that is no longer known has no file.
            let Ok(piece) = commands.read_output(&row.id, Some(u64::MAX)).await else { continue };
            if let Some(file) = &piece.file {
                return self.note_file(file);
            }
        }
    }
}

fn output_file_name(id: &str) -> OsString {
    format!("{id}.txt").into()
}

/// Removes the oldest files beyond the limit and returns their number.
fn remove_oldest(dir: &Path, busy: &HashSet<OsString>, most: u64) -> io::Result<u64> {
    let mut files: Vec<(SystemTime, OsString, u64)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Symbolic links are skipped.
        let Some(meta) = ignore_missing(entry.metadata())?.filter(std::fs::Metadata::is_file) else {
            continue;
        };
        if !busy.contains(&entry.file_name()) {
            files.push((meta.modified()?, entry.file_name(), meta.len()));
        }
    }
    files.sort();
    let mut kept: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
    let mut removed = 0;
    for (_, name, bytes) in files {
        if kept <= most {
            break;
        }
        ignore_missing(std::fs::remove_file(dir.join(name)))?;
        kept -= bytes;
        removed += 1;
    }
    Ok(removed)
}

/// Treats a missing file as success: a cancelled command may remove its file at any time.
fn ignore_missing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_oldest_go_first_and_what_runs_stays() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, age: u64, bytes: u64| {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(bytes).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        put("running.txt", 90, 1000);
        put("old.txt", 80, 10);
        put("older.txt", 85, 10);
        put("new.txt", 1, 10);
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("link")).unwrap();
        let busy = HashSet::from([output_file_name("running")]);
        let there = |name: &str| dir.path().join(name).symlink_metadata().is_ok();
        assert_eq!(remove_oldest(dir.path(), &busy, 30).unwrap(), 0);
        assert_eq!(remove_oldest(dir.path(), &busy, 25).unwrap(), 1);
        assert!(!there("older.txt") && there("old.txt") && there("new.txt"));
        assert_eq!(remove_oldest(dir.path(), &busy, 0).unwrap(), 2);
        assert!(there("running.txt") && there("dir") && there("link"));
        assert!(remove_oldest(&dir.path().join("none"), &busy, 0).is_err());
    }
}
