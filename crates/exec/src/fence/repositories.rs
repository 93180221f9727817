//! Protected names inside a write grant: which of them a fence holds.
//!
//! Here: the names, at the grant's root and in the repositories below it, and what git is led to from there. Elsewhere:
//! what is protected and why (`policy`), finding repositories and what their settings name (`git`), how it is held
//! (`prepare`, `mounts`).
//!
//! Held exactly: at the root of every write grant all protected names, there or not (of those that mean something only in
//! a home directory and are not there, none elsewhere); in the `REPOSITORIES` nearest repositories below it, those of
//! their `.git` and those that programs read in any project, there or not, with what their settings and links name
//! (`git::targets`). What a command does to other repositories, and to one that it makes itself, is compared when it has
//! ended (`git::guard`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use minke_git::{Finder, Kind, Survey};
use minke_policy::{Level, NAMES, is_of_home, is_of_project, level, protected_unless};
use minke_record::Scope;

use super::plan::Protected;

/// The repositories that are held, the nearest first: each costs some mounts.
const REPOSITORIES: usize = 64;
/// Submodules and worktrees of one repository that are held.
const MODULES: usize = 64;

/// Names of a module's or worktree's own directory below `.git`.
const OF_A_MODULE: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "gitdir"];

/// What the names of all write grants are found with.
pub(super) struct Names<'a> {
    pub(super) scope: &'a Scope,
    pub(super) survey: &'a Survey,
    pub(super) home: Option<&'a Path>,
    pub(super) lifted: &'a [PathBuf],
}

impl Names<'_> {
    /// The protected names of one write grant.
    pub(super) fn of_grant(&self, root: &Path) -> Vec<Protected> {
        let mut names = Vec::new();
        at_root(root, self.home == Some(root), &mut names);
        if let Some(home) = self.home.filter(|home| home.starts_with(root) && *home != root) {
            at_root(home, true, &mut names);
        }
        modules(root, &mut names);
        let below = self.survey.repositories.iter().filter(|entry| entry.path.starts_with(root));
        for entry in below.take(REPOSITORIES) {
            let Some(repository) = entry.path.parent().filter(|_| entry.kind != Kind::Bare) else { continue };
            if repository == root {
                continue;
            }
            let of_repository = |name: &&&str| name.starts_with(".git/") || is_of_project(name);
            for name in NAMES.iter().filter(|name| !name.contains('*')).filter(of_repository) {
                names.push(Protected::name(repository, name));
            }
            modules(repository, &mut names);
        }
        for held in &mut names {
            // Counted from the grant: the directories on the way are pinned, or the repository could be moved aside and
            // another built in its place.
            if let Ok(below) = held.root.strip_prefix(root) {
                held.name = below.join(&held.name);
                held.root = root.to_owned();
            }
        }
        let lifted: Vec<_> = self.lifted.iter().map(|path| path.to_string_lossy()).collect();
        names.retain(|held| {
            let path = held.root.join(&held.name);
            protected_unless(&path.to_string_lossy(), &lifted).is_some()
        });
        names
    }

    /// What git is led to from the nearest repositories: in which grant, and where there.
    pub(super) fn targets(&self, roots: &[&Path]) -> Vec<Protected> {
        let writable = |path: &Path| {
            let text = path.to_str();
            let is_lifted = self.lifted.iter().any(|lifted| path.starts_with(lifted));
            !is_lifted && text.is_some_and(|path| level(self.scope, path) == Level::Write)
        };
        let nearest = self.survey.repositories.get(..REPOSITORIES).unwrap_or(&self.survey.repositories);
        let found = Finder::of_this_user().targets(nearest, writable);
        let place = |target: minke_git::Target| {
            let root = roots.iter().find(|root| target.path.starts_with(root) && target.path != ***root)?;
            let name = target.path.strip_prefix(root).ok()?.to_owned();
            Some(Protected { root: (*root).to_owned(), name, missing: true, is_file: target.is_file })
        };
        found.into_iter().filter_map(place).collect()
    }
}

fn at_root(root: &Path, is_home: bool, names: &mut Vec<Protected>) {
    for name in NAMES.iter().filter(|name| !name.contains('*')) {
        let missing = is_home || !is_of_home(name);
        names.push(Protected { missing, ..Protected::name(root, name) });
        // A grant that begins inside a name, such as `.config` or `.git`, holds the rest of it.
        for (place, _) in name.match_indices('/') {
            let (above, rest) =
                (name.get(..place).unwrap_or_default(), name.get(place + 1..).unwrap_or_default());
            if root.ends_with(above) {
                names.push(Protected::name(root, rest));
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
                names.push(Protected { missing, ..Protected::name(repository, below.join(name)) });
            }
        }
    }
}

fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
