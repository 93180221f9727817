//! `minke thread import --list`: lists session files of Claude Code and Codex, the newest first.
//!
//! Looks only at names and times; the contents are read on import.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Maximum depth of directories.
const MAX_DEPTH: usize = 6;
/// Maximum number of names that are scanned, and of files that are listed.
const MAX_SCANNED: usize = 50_000;
const MAX_SHOWN: usize = 100;

struct SessionFile {
    path: PathBuf,
    bytes: u64,
    changed: u64,
}

/// Lists session files below a directory, or below the usual directories in the user's home.
pub(crate) fn list_session_files(below: Option<&Path>, output: &CliOutput) -> Result<ExitKind, CliError> {
    let dirs: Vec<PathBuf> = match below {
        Some(dir) => vec![dir.to_owned()],
        None => {
            let home = std::env::home_dir().ok_or_else(|| {
                CliError::usage("could not find your home directory").with_hint("name a directory to search")
            })?;
            vec![home.join(".claude/projects"), home.join(".codex/sessions")]
        }
    };
    let (mut files, mut left) = (Vec::new(), MAX_SCANNED);
    for dir in &dirs {
        collect_files(dir, MAX_DEPTH, &mut left, &mut files);
    }
    files.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| a.path.cmp(&b.path)));
    let all = files.len();
    files.truncate(MAX_SHOWN);
    if output.json {
        let rows: Vec<Value> = files
            .iter()
            .map(|file| json!({ "file": file.path, "bytes": file.bytes, "changed_at": file.changed }))
            .collect();
        output.print_json(&json!({ "files": rows, "found": all, "complete": left > 0 }))?;
        return Ok(ExitKind::Success);
    }
    for file in &files {
        output.print_line(&format!("{:>9} {}", format_size(file.bytes), file.path.display()))?;
    }
    match all {
        0 => {
            let looked: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            output.print_note(&format!("no session files in {}", looked.join(" and ")));
        }
        all if all > MAX_SHOWN => output.print_note(&format!("the newest {MAX_SHOWN} of {all}")),
        _ => {}
    }
    if left == 0 {
        output.print_warning(&format!(
            "the directories contain more than {MAX_SCANNED} names: the list is incomplete"
        ));
    }
    Ok(ExitKind::Success)
}

/// Collects session files below a directory. Follows no links and skips unreadable directories.
fn collect_files(dir: &Path, depth: usize, left: &mut usize, files: &mut Vec<SessionFile>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let path = entry.path();
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() && depth > 0 {
            collect_files(&path, depth - 1, left, files);
        } else if meta.is_file() && path.extension().is_some_and(|end| end == "jsonl") {
            let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            files.push(SessionFile { path, bytes: meta.len(), changed });
        }
    }
}

fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
