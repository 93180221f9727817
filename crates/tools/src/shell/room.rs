//! Room: the files of output that did not fit inline are bounded as a whole; the oldest go first.
//!
//! Here: finding their directory, which whoever runs commands made, and removing what is too much before a command is
//! started. Elsewhere: writing the files, each bounded by itself (`exec`), and keeping what a result names as a blob, from
//! which it can still be had (`session`).
//! Invariant: files of commands that have ended come to at most `OUTPUT_BYTES` when a command starts, and none of a
//! running one is touched (`old_output_goes_when_there_is_too_much_of_it`).

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use minke_exec::command::Commands;

use super::counted;

/// The most that is kept of commands that have ended; each one that runs may have a file beside.
pub(super) const OUTPUT_BYTES: u64 = 1024 * 1024 * 1024;

/// Where output goes, as soon as a file in it was named.
#[derive(Default)]
pub(super) struct Room(OnceLock<PathBuf>);

impl Room {
    /// A file of output was named.
    pub(super) fn learn(&self, file: &Path) {
        if let Some(dir) = file.parent() {
            self.0.get_or_init(|| dir.to_owned());
        }
    }

    /// Removes what is too much; says so, or why it could not.
    pub(super) async fn make(&self, commands: &Arc<Commands>) -> Option<String> {
        if self.0.get().is_none() {
            self.ask(commands).await;
        }
        let dir = self.0.get()?.clone();
        let busy = commands.running().into_iter().map(|row| file_name(&row.id)).collect();
        let swept = tokio::task::spawn_blocking(move || sweep(&dir, &busy, OUTPUT_BYTES)).await;
        match swept.unwrap_or_else(|e| Err(io::Error::other(e))) {
            Ok(0) => None,
            Ok(removed) => Some(format!(
                "to make room, the output of {} was removed, the oldest first: {} MiB are kept",
                counted(removed, "earlier command"),
                OUTPUT_BYTES / (1024 * 1024)
            )),
            Err(e) => Some(format!("old output could not be removed to make room: {e}")),
        }
    }

    /// Background commands that nobody has looked at have files, too.
    async fn ask(&self, commands: &Commands) {
        for (row, _) in commands.list() {
            // One that is no longer remembered has nothing to say about files.
            let Ok(piece) = commands.output(&row.id, Some(u64::MAX)).await else { continue };
            if let Some(file) = &piece.file {
                return self.learn(file);
            }
        }
    }
}

fn file_name(id: &str) -> OsString {
    format!("{id}.txt").into()
}

/// How many files had to go.
fn sweep(dir: &Path, busy: &HashSet<OsString>, most: u64) -> io::Result<u64> {
    let mut files: Vec<(SystemTime, OsString, u64)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A link is neither followed nor ours.
        let Some(meta) = still_there(entry.metadata())?.filter(std::fs::Metadata::is_file) else { continue };
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
        still_there(std::fs::remove_file(dir.join(name)))?;
        kept -= bytes;
        removed += 1;
    }
    Ok(removed)
}

/// A command that was given up takes its file with it at any time.
fn still_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
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
        let busy = HashSet::from([file_name("running")]);
        let there = |name: &str| dir.path().join(name).symlink_metadata().is_ok();
        assert_eq!(sweep(dir.path(), &busy, 30).unwrap(), 0);
        assert_eq!(sweep(dir.path(), &busy, 25).unwrap(), 1);
        assert!(!there("older.txt") && there("old.txt") && there("new.txt"));
        assert_eq!(sweep(dir.path(), &busy, 0).unwrap(), 2);
        assert!(there("running.txt") && there("dir") && there("link"));
        assert!(sweep(&dir.path().join("none"), &busy, 0).is_err());
    }
}
