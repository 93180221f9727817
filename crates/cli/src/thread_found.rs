//! `minke thread import --list`: session files of Claude Code and Codex that could be imported, the newest first.
//!
//! Only names and moments are looked at: what a file holds is told when it is imported.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How deep files lie below the usual places, and a little more.
const DEEP: usize = 6;
/// How many names are looked at, and how many files are shown.
const LOOKED_AT: usize = 50_000;
const SHOWN: usize = 100;

struct File {
    path: PathBuf,
    bytes: u64,
    changed: u64,
}

/// Lists what is below a directory, or below the usual places of the person's home.
pub(crate) fn list(below: Option<&Path>, screen: &Screen) -> Result<Exit, Failure> {
    let places: Vec<PathBuf> = match below {
        Some(place) => vec![place.to_owned()],
        None => {
            let home = std::env::home_dir().ok_or_else(|| {
                Failure::usage("your home directory is not known").hint("name a directory to look in")
            })?;
            vec![home.join(".claude/projects"), home.join(".codex/sessions")]
        }
    };
    let (mut files, mut left) = (Vec::new(), LOOKED_AT);
    for place in &places {
        gather(place, DEEP, &mut left, &mut files);
    }
    files.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| a.path.cmp(&b.path)));
    let all = files.len();
    files.truncate(SHOWN);
    if screen.json {
        let rows: Vec<Value> = files
            .iter()
            .map(|file| json!({ "file": file.path, "bytes": file.bytes, "changed_at": file.changed }))
            .collect();
        screen.object(&json!({ "files": rows, "found": all, "complete": left > 0 }))?;
        return Ok(Exit::Done);
    }
    for file in &files {
        screen.line(&format!("{:>9} {}", size(file.bytes), file.path.display()))?;
    }
    match all {
        0 => {
            let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            screen.note(&format!("no session files in {}", looked.join(" and ")));
        }
        all if all > SHOWN => screen.note(&format!("the newest {SHOWN} of {all}")),
        _ => {}
    }
    if left == 0 {
        screen.warn(&format!("there is more than {LOOKED_AT} names there: not all were looked at"));
    }
    Ok(Exit::Done)
}

/// Session files below a directory; links are not followed. What cannot be read has nothing to list.
fn gather(place: &Path, deep: usize, left: &mut usize, files: &mut Vec<File>) {
    let Ok(entries) = std::fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let path = entry.path();
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() && deep > 0 {
            gather(&path, deep - 1, left, files);
        } else if meta.is_file() && path.extension().is_some_and(|end| end == "jsonl") {
            let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            files.push(File { path, bytes: meta.len(), changed });
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
