//! Targets: files outside a `.git` that git runs or reads as configuration, because a setting or a link names them.
//!
//! Here: `core.hooksPath`, `include.path`, `includeIf`, programs of filters, drivers, monitors and editors, templates,
//! linked hooks and configurations, bare repositories. Elsewhere: protecting them (`exec` by mounts, `files` by path).
//! Invariants: a target is a path without links, and each link on the way to it is a target too
//! (`each_link_to_a_hook_is_a_target`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::repository::{GitConfigFile, GitRepository, expand_path, user_config_files, with_includes};
use crate::safe_paths::follow_links;
use crate::scan::{RepositoryEntry, RepositoryKind};
use crate::settings::{SettingTarget, setting_target, shell_words};

/// The most targets of one scope.
pub const MAX_TARGETS: usize = 512;
/// The most entries of one hooks directory whose links are followed.
const MAX_HOOKS: usize = 128;
/// Names that git reads in a repository that is not named `.git`.
const REPOSITORY_NAMES: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];
/// The names of git's hooks, for a hooks directory that is also the top of the work tree.
pub(crate) const HOOK_NAMES: [&str; 28] = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];

/// One path to protect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitTarget {
    pub path: PathBuf,
    /// Whether git reads it as a file; the placeholder is then an empty file.
    pub is_file: bool,
}

/// Finds targets.
pub struct TargetFinder {
    home: Option<PathBuf>,
    user_config: Vec<GitConfigFile>,
}

impl TargetFinder {
    /// Reads the user's configuration files.
    pub fn new(home: Option<PathBuf>, variable: impl Fn(&str) -> Option<PathBuf>) -> TargetFinder {
        let user_config = user_config_files(home.as_deref(), variable);
        TargetFinder { home, user_config }
    }

    /// Reads the configuration files of this process's user.
    pub fn for_current_user() -> TargetFinder {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        TargetFinder::new(home, |name| std::env::var_os(name).map(PathBuf::from))
    }

    pub(crate) fn home_dir(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub fn user_config_files(&self) -> &[GitConfigFile] {
        &self.user_config
    }

    /// Returns the targets of these repositories whose path `within` accepts.
    pub fn find_targets(
        &self,
        entries: &[RepositoryEntry],
        within: impl Fn(&Path) -> bool,
    ) -> BTreeSet<GitTarget> {
        let mut targets = TargetSet { targets: BTreeSet::new(), within: &within };
        for entry in entries {
            self.add_repository(&GitRepository::from_entry(entry), &mut targets);
            if targets.targets.len() >= MAX_TARGETS {
                break;
            }
        }
        targets.targets
    }

    fn add_repository(&self, repository: &GitRepository, found: &mut TargetSet<'_>) {
        let GitRepository { entry, git_dir, common_dir, top } = repository;
        // Protected names cover a `.git` directory at its usual place.
        let is_plain = |dir: &Path| dir.file_name().is_some_and(|name| name == ".git");
        for dir in [git_dir, common_dir] {
            if entry.kind == RepositoryKind::Bare || !is_plain(dir) {
                for name in REPOSITORY_NAMES {
                    found.add_path(&dir.join(name), name != "hooks");
                }
            }
            for name in ["config", "config.worktree", "commondir"] {
                found.add_if_linked(&dir.join(name), true);
            }
        }
        self.add_hooks(&common_dir.join("hooks"), found);
        let own = with_includes(repository.own_config_files(), self.home.as_deref());
        for file in own.iter().chain(&self.user_config) {
            for setting in file.settings() {
                if let Some(named) = setting_target(setting) {
                    self.add_setting(&named, file, top, found);
                }
            }
        }
    }

    fn add_setting(
        &self,
        named: &SettingTarget,
        file: &GitConfigFile,
        top: &Path,
        targets: &mut TargetSet<'_>,
    ) {
        let home = self.home.as_deref();
        match named {
            SettingTarget::Include(path) => {
                let base = file.path.parent().unwrap_or(Path::new("/"));
                if let Some(path) = expand_path(path, base, home) {
                    targets.add_path(&path, true);
                }
            }
            SettingTarget::Hooks(path) => {
                let Some(path) = expand_path(path, top, home) else { return };
                let real = follow_links(&path).real_path;
                if top.starts_with(&real) {
                    for name in HOOK_NAMES {
                        targets.add_path(&real.join(name), true);
                    }
                    return;
                }
                // husky keeps its own scripts in `_`; they run the scripts next to it.
                let is_machinery = real.file_name().is_some_and(|name| name == "_");
                let above = real.parent().filter(|above| is_machinery && !top.starts_with(above));
                match above {
                    Some(above) => {
                        targets.add_path(&path, false);
                        targets.add_path(above, false);
                        self.add_hooks(above, targets);
                    }
                    None => targets.add_path(&path, false),
                }
                self.add_hooks(&path, targets);
            }
            SettingTarget::Template(path) => {
                if let Some(path) = expand_path(path, top, home) {
                    let real = follow_links(&path).real_path;
                    if !top.starts_with(&real) {
                        targets.add_path(&path, false);
                        self.add_hooks(&path.join("hooks"), targets);
                    }
                }
            }
            SettingTarget::Command(line) => {
                for (place, word) in shell_words(line).into_iter().enumerate() {
                    let Some(path) = expand_path(&word, top, home) else { continue };
                    let is_there = follow_links(&path).real_path.is_file();
                    // A missing program is protected too, if it is named by its path.
                    let is_missing =
                        !path.exists() && place == 0 && word.contains('/') && !word.contains("://");
                    if is_there || is_missing {
                        targets.add_path(&path, true);
                    }
                }
            }
        }
    }

    /// Adds the links among the hooks of a directory, and the link of the directory itself.
    fn add_hooks(&self, dir: &Path, targets: &mut TargetSet<'_>) {
        targets.add_if_linked(dir, false);
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_HOOKS);
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
            targets.add_if_linked(&entry.path(), true);
        }
    }
}

struct TargetSet<'a> {
    targets: BTreeSet<GitTarget>,
    within: &'a dyn Fn(&Path) -> bool,
}

impl TargetSet<'_> {
    /// Adds a path, and the links on the way to it.
    fn add_path(&mut self, path: &Path, is_file: bool) {
        let followed = follow_links(path);
        for link in followed.links {
            self.insert_target(link, true);
        }
        self.insert_target(followed.real_path, is_file);
    }

    /// Adds a path, if it contains a link.
    fn add_if_linked(&mut self, path: &Path, is_file: bool) {
        if !follow_links(path).links.is_empty() {
            self.add_path(path, is_file);
        }
    }

    fn insert_target(&mut self, path: PathBuf, is_file: bool) {
        let text = path.to_string_lossy();
        let is_held_by_name = minke_policy::protected_name(&text).is_some();
        if !is_held_by_name && (self.within)(&path) && self.targets.len() < MAX_TARGETS {
            self.targets.insert(GitTarget { path, is_file });
        }
    }
}
