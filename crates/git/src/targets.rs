//! Targets: the places outside a `.git` that git runs or reads as configuration, because a setting or a link says so.
//!
//! Here: `core.hooksPath`, `include.path`, `includeIf`, programs of filters, drivers, monitors and editors, templates, linked
//! hooks and configurations, bare repositories. Elsewhere: what holds them (`exec` by mounts, `files` by the path).
//! Invariants: a target is a path without links, and each link on the way to it is a target, too
//! (`each_link_to_a_hook_is_a_target`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::places::follow;
use crate::repository::{ConfigFile, Repository, expand, user_files, with_includes};
use crate::scan::{Entry, Kind};
use crate::settings::{Named, named, words};

/// The most targets of one scope.
pub const TARGETS: usize = 512;
/// Entries of one directory of hooks whose links are followed.
const HOOKS: usize = 128;
/// What git reads from a directory that is a repository without being named `.git`.
const OF_A_REPOSITORY: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];
/// The hooks that git runs, for a directory of hooks that is also the top of the work tree.
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

/// One place to be held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub path: PathBuf,
    /// Git reads a file there, so an empty file stands in where nothing is.
    pub is_file: bool,
}

/// What all targets are found with.
pub struct Finder {
    home: Option<PathBuf>,
    user: Vec<ConfigFile>,
}

impl Finder {
    /// Reads the configurations of the person.
    pub fn new(home: Option<PathBuf>, variable: impl Fn(&str) -> Option<PathBuf>) -> Finder {
        let user = user_files(home.as_deref(), variable);
        Finder { home, user }
    }

    /// The same for the person whose process this is.
    pub fn of_this_user() -> Finder {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        Finder::new(home, |name| std::env::var_os(name).map(PathBuf::from))
    }

    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub fn user_files(&self) -> &[ConfigFile] {
        &self.user
    }

    /// The targets of these repositories that lie in a place that `within` accepts.
    pub fn targets(&self, entries: &[Entry], within: impl Fn(&Path) -> bool) -> BTreeSet<Target> {
        let mut found = Found { all: BTreeSet::new(), within: &within };
        for entry in entries {
            self.of_repository(&Repository::open(entry), &mut found);
            if found.all.len() >= TARGETS {
                break;
            }
        }
        found.all
    }

    fn of_repository(&self, repository: &Repository, found: &mut Found<'_>) {
        let Repository { entry, git_dir, common_dir, top } = repository;
        // What protected names hold is left to them: a `.git` directory in its own place.
        let is_plain = |dir: &Path| dir.file_name().is_some_and(|name| name == ".git");
        for dir in [git_dir, common_dir] {
            if entry.kind == Kind::Bare || !is_plain(dir) {
                for name in OF_A_REPOSITORY {
                    found.add(&dir.join(name), name != "hooks");
                }
            }
            for name in ["config", "config.worktree", "commondir"] {
                found.linked(&dir.join(name), true);
            }
        }
        self.hooks(&common_dir.join("hooks"), found);
        let own = with_includes(repository.own_files(), self.home.as_deref());
        for file in own.iter().chain(&self.user) {
            for setting in file.settings() {
                if let Some(named) = named(setting) {
                    self.of_setting(&named, file, top, found);
                }
            }
        }
    }

    fn of_setting(&self, named: &Named, file: &ConfigFile, top: &Path, found: &mut Found<'_>) {
        let home = self.home.as_deref();
        match named {
            Named::Include(path) => {
                let base = file.path.parent().unwrap_or(Path::new("/"));
                if let Some(path) = expand(path, base, home) {
                    found.add(&path, true);
                }
            }
            Named::Hooks(path) => {
                let Some(path) = expand(path, top, home) else { return };
                let real = follow(&path).real;
                if top.starts_with(&real) {
                    for name in HOOK_NAMES {
                        found.add(&real.join(name), true);
                    }
                    return;
                }
                // husky keeps its machinery in `_`, which runs the scripts beside it.
                let is_machinery = real.file_name().is_some_and(|name| name == "_");
                let above = real.parent().filter(|above| is_machinery && !top.starts_with(above));
                match above {
                    Some(above) => {
                        found.add(&path, false);
                        found.add(above, false);
                        self.hooks(above, found);
                    }
                    None => found.add(&path, false),
                }
                self.hooks(&path, found);
            }
            Named::Template(path) => {
                if let Some(path) = expand(path, top, home) {
                    let real = follow(&path).real;
                    if !top.starts_with(&real) {
                        found.add(&path, false);
                        self.hooks(&path.join("hooks"), found);
                    }
                }
            }
            Named::Command(line) => {
                for (place, word) in words(line).into_iter().enumerate() {
                    let Some(path) = expand(&word, top, home) else { continue };
                    let is_there = follow(&path).real.is_file();
                    // A program that is not there yet is held, too, if it is named by its place.
                    let is_missing =
                        !path.exists() && place == 0 && word.contains('/') && !word.contains("://");
                    if is_there || is_missing {
                        found.add(&path, true);
                    }
                }
            }
        }
    }

    /// The links among the hooks of a directory, and of the directory itself.
    fn hooks(&self, dir: &Path, found: &mut Found<'_>) {
        found.linked(dir, false);
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(HOOKS);
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
            found.linked(&entry.path(), true);
        }
    }
}

struct Found<'a> {
    all: BTreeSet<Target>,
    within: &'a dyn Fn(&Path) -> bool,
}

impl Found<'_> {
    /// A place, and the links on the way to it.
    fn add(&mut self, path: &Path, is_file: bool) {
        let followed = follow(path);
        for link in followed.links {
            self.keep(link, true);
        }
        self.keep(followed.real, is_file);
    }

    /// The same, if there is a link.
    fn linked(&mut self, path: &Path, is_file: bool) {
        if !follow(path).links.is_empty() {
            self.add(path, is_file);
        }
    }

    fn keep(&mut self, path: PathBuf, is_file: bool) {
        let text = path.to_string_lossy();
        let is_held_by_name = minke_policy::protected(&text).is_some();
        if !is_held_by_name && (self.within)(&path) && self.all.len() < TARGETS {
            self.all.insert(Target { path, is_file });
        }
    }
}
