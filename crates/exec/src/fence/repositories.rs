//! Protected names inside a write grant: which of them a fence holds.
//!
//! Here: the names, at the grant's root and in repositories below it that a short search finds. Elsewhere: what is
//! protected and why (`policy`), how it is held (`prepare`, `mounts`).
//!
//! Held exactly: at the root of every write grant all protected names, there or not (of those that mean something only in
//! a home directory and are not there, none elsewhere); in a repository below the root, up to `DEPTH` levels and
//! `ENTRIES` entries away, those of its `.git` and those that programs read in any project, there or not. A repository
//! that a command makes itself is its own to fill: nobody runs anything there unless told.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use minke_policy::{NAMES, is_of_home, is_of_project, protected_unless};

use super::plan::Protected;

/// How far below a grant repositories are looked for, and how many names are looked at on the way: some milliseconds
/// on a slow disk.
const DEPTH: usize = 3;
const ENTRIES: usize = 4000;
/// Submodules and worktrees of one repository that are held.
const MODULES: usize = 64;
/// Directories that hold thousands of others and no repository of anybody's.
const PASSED_OVER: [&str; 4] = ["node_modules", "target", "vendor", "__pycache__"];

/// Names of a module's or worktree's own directory below `.git`.
const OF_A_MODULE: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "gitdir"];

/// The protected names of one write grant.
pub(super) fn protected_names(root: &Path, home: Option<&Path>, lifted: &[PathBuf]) -> Vec<Protected> {
    let mut names = Vec::new();
    at_root(root, home == Some(root), &mut names);
    if let Some(home) = home.filter(|home| home.starts_with(root) && *home != root) {
        at_root(home, true, &mut names);
    }
    modules(root, &mut names);
    for repository in repositories(root) {
        let of_repository = |name: &&&str| name.starts_with(".git/") || is_of_project(name);
        for name in NAMES.iter().filter(|name| !name.contains('*')).filter(of_repository) {
            names.push(Protected { root: repository.clone(), name: name.into(), missing: true });
        }
        modules(&repository, &mut names);
    }
    for held in &mut names {
        // Counted from the grant: the directories on the way are pinned, or the repository could be moved aside and
        // another built in its place.
        if let Ok(below) = held.root.strip_prefix(root) {
            held.name = below.join(&held.name);
            held.root = root.to_owned();
        }
    }
    let lifted: Vec<_> = lifted.iter().map(|path| path.to_string_lossy()).collect();
    names.retain(|held| {
        let path = held.root.join(&held.name);
        protected_unless(&path.to_string_lossy(), &lifted).is_some()
    });
    names
}

fn at_root(root: &Path, is_home: bool, names: &mut Vec<Protected>) {
    for name in NAMES.iter().filter(|name| !name.contains('*')) {
        let missing = is_home || !is_of_home(name);
        names.push(Protected { root: root.to_owned(), name: name.into(), missing });
        // A grant that begins inside a name, such as `.config` or `.git`, holds the rest of it.
        for (place, _) in name.match_indices('/') {
            let (above, rest) =
                (name.get(..place).unwrap_or_default(), name.get(place + 1..).unwrap_or_default());
            if root.ends_with(above) {
                names.push(Protected { root: root.to_owned(), name: rest.into(), missing: true });
            }
        }
    }
}

/// What submodules and worktrees of a repository keep in its `.git`.
fn modules(repository: &Path, names: &mut Vec<Protected>) {
    let git = repository.join(".git");
    let mut pending = VecDeque::from([git.join("modules"), git.join("worktrees")]);
    let mut left = MODULES;
    while let Some(dir) = pending.pop_front() {
        for module in directories(&dir) {
            if left == 0 {
                return;
            }
            left -= 1;
            // A module has a HEAD; what has none is a part of a module's name.
            if !module.join("HEAD").exists() {
                pending.push_back(module);
                continue;
            }
            let Ok(below) = module.strip_prefix(repository) else { continue };
            for name in OF_A_MODULE {
                let missing = name != "gitdir" && (name == "config.worktree" || !dir.ends_with("worktrees"));
                names.push(Protected { root: repository.to_owned(), name: below.join(name), missing });
            }
        }
    }
}

fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Directories below a grant's root, not itself, that have a `.git`.
fn repositories(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = VecDeque::from([(root.to_owned(), 0)]);
    let mut left = ENTRIES;
    while let Some((dir, depth)) = pending.pop_front() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            left = match left.checked_sub(1) {
                Some(left) => left,
                None => return found,
            };
            let name = entry.file_name();
            if name == ".git" && depth > 0 {
                found.push(dir.clone());
            }
            let walked = depth < DEPTH
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !name.to_string_lossy().starts_with('.')
                && !PASSED_OVER.iter().any(|passed| name == *passed);
            if walked {
                pending.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}
