//! The protected names inside a write grant.
//!
//! Here: the names at the grant's root and in repositories below it, and git targets that they refer to. Elsewhere:
//! which names are protected and why (`policy`), finding repositories and their targets (`git`), the mounts that
//! protect them (`layers`, `mounts`).
//!
//! At the root of every write grant, all protected names are protected, present or not. Names that have a meaning only
//! in a home directory are protected elsewhere only if they exist. In the `MAX_REPOSITORIES` nearest repositories below
//! a grant, these are protected: the names of their `.git`, the names that programs read in any project, and the
//! targets of their settings and links (`git::targets`). Changes to other repositories, and to those that the command
//! creates, are found by a comparison after the command (`git::guard`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use minke_git::{RepositoryKind, RepositorySurvey, TargetFinder};
use minke_policy::{
    AccessLevel, PROTECTED_NAMES, access_level, is_home_name, is_project_name, protected_name_unless,
};
use minke_record::Scope;

use super::plan::ProtectedName;

/// The most protected repositories, nearest first; each costs a few mounts.
const MAX_REPOSITORIES: usize = 64;
/// The most protected submodules and worktrees of one repository.
const MAX_MODULES: usize = 64;

/// Protected names in the directory of a module or worktree below `.git`.
const MODULE_NAMES: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "gitdir"];

/// The inputs for finding protected names.
pub(super) struct ProtectedNames<'a> {
    pub(super) scope: &'a Scope,
    pub(super) survey: &'a RepositorySurvey,
    pub(super) home: Option<&'a Path>,
    pub(super) lifted: &'a [PathBuf],
}

impl ProtectedNames<'_> {
    /// Returns the protected names of one write grant.
    pub(super) fn names_in_grant(&self, root: &Path) -> Vec<ProtectedName> {
        let mut names = Vec::new();
        add_root_names(root, self.home == Some(root), &mut names);
        if let Some(home) = self.home.filter(|home| home.starts_with(root) && *home != root) {
            add_root_names(home, true, &mut names);
        }
        add_module_names(root, &mut names);
        let below = self.survey.repositories.iter().filter(|entry| entry.path.starts_with(root));
        for entry in below.take(MAX_REPOSITORIES) {
            let Some(repository) = entry.path.parent().filter(|_| entry.kind != RepositoryKind::Bare) else {
                continue;
            };
            if repository == root {
                continue;
            }
            let of_repository = |name: &&&str| name.starts_with(".git/") || is_project_name(name);
            for name in PROTECTED_NAMES.iter().filter(|name| !name.contains('*')).filter(of_repository) {
                names.push(ProtectedName::hold_always(repository, name));
            }
            add_module_names(repository, &mut names);
        }
        for held in &mut names {
            // Relative to the grant, so that the directories between are pinned. Otherwise the repository could be
            // moved away and recreated.
            if let Ok(below) = held.root.strip_prefix(root) {
                held.name = below.join(&held.name);
                held.root = root.to_owned();
            }
        }
        let lifted: Vec<_> = self.lifted.iter().map(|path| path.to_string_lossy()).collect();
        names.retain(|held| {
            let path = held.root.join(&held.name);
            protected_name_unless(&path.to_string_lossy(), &lifted).is_some()
        });
        names
    }

    /// Returns the git targets of the nearest repositories, each with its grant and its path there.
    pub(super) fn git_targets(&self, roots: &[&Path]) -> Vec<ProtectedName> {
        let writable = |path: &Path| {
            let text = path.to_str();
            let is_lifted = self.lifted.iter().any(|lifted| path.starts_with(lifted));
            !is_lifted && text.is_some_and(|path| access_level(self.scope, path) == AccessLevel::Write)
        };
        let nearest = self.survey.repositories.get(..MAX_REPOSITORIES).unwrap_or(&self.survey.repositories);
        let found = TargetFinder::for_current_user().find_targets(nearest, writable);
        let place = |target: minke_git::GitTarget| {
            let root = roots.iter().find(|root| target.path.starts_with(root) && target.path != ***root)?;
            let name = target.path.strip_prefix(root).ok()?.to_owned();
            Some(ProtectedName {
                root: (*root).to_owned(),
                name,
                hold_missing: true,
                is_file: target.is_file,
            })
        };
        found.into_iter().filter_map(place).collect()
    }
}

fn add_root_names(root: &Path, is_home: bool, names: &mut Vec<ProtectedName>) {
    for name in PROTECTED_NAMES.iter().filter(|name| !name.contains('*')) {
        let hold_missing = is_home || !is_home_name(name);
        names.push(ProtectedName { hold_missing, ..ProtectedName::hold_always(root, name) });
        // A grant that begins inside a name, such as `.config` or `.git`, protects the rest of the name.
        for (place, _) in name.match_indices('/') {
            let (above, rest) =
                (name.get(..place).unwrap_or_default(), name.get(place + 1..).unwrap_or_default());
            if root.ends_with(above) {
                names.push(ProtectedName::hold_always(root, rest));
            }
        }
    }
}

/// Adds the protected names of submodules and worktrees in a repository's `.git`.
fn add_module_names(repository: &Path, names: &mut Vec<ProtectedName>) {
    let git = repository.join(".git");
    let mut pending = VecDeque::from([git.join("modules"), git.join("worktrees")]);
    let mut left = MAX_MODULES;
    while let Some(dir) = pending.pop_front() {
        for module in subdirectories(&dir) {
            if left == 0 {
                return;
            }
            left -= 1;
            // A module contains HEAD; without it, the directory is a part of a module's name.
            if !module.join("HEAD").exists() {
                pending.push_back(module);
                continue;
            }
            let Ok(below) = module.strip_prefix(repository) else { continue };
            for name in MODULE_NAMES {
                let hold_missing =
                    name != "gitdir" && (name == "config.worktree" || !dir.ends_with("worktrees"));
                names.push(ProtectedName {
                    hold_missing,
                    ..ProtectedName::hold_always(repository, below.join(name))
                });
            }
        }
    }
}

fn subdirectories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
