//! Repository: from the name that git finds to the directories and configurations that it then uses.
//!
//! Here: `.git` files and links followed, `commondir` read, configurations read with their includes. Reads only.
//! Elsewhere: what the settings mean (`settings`).
//! Everything is read as git would read it, but for conditions: what an `includeIf` names counts whether its condition
//! holds or not.

use std::path::{Path, PathBuf};

use crate::config::{Setting, parse};
use crate::places::{follow, read_text};
use crate::scan::{Entry, Kind};
use crate::settings::{Named, named};

/// The most configuration files that one repository or one person is read from, includes counted.
const FILES: usize = 64;

/// A repository with its directories, links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    pub entry: Entry,
    /// Where `HEAD` is.
    pub git_dir: PathBuf,
    /// Where `config`, `hooks` and `objects` are: another directory for a linked work tree.
    pub common_dir: PathBuf,
    /// Where hooks run and relative settings begin.
    pub top: PathBuf,
}

/// One configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// Its settings, or why it cannot be read.
    pub settings: Result<Vec<Setting>, String>,
}

impl ConfigFile {
    /// A file, if it is there.
    fn open(path: &Path) -> Option<ConfigFile> {
        let settings = match read_text(path) {
            Ok(None) => return None,
            Ok(Some(text)) => parse(&text).map_err(|bad| format!("line {} is no configuration", bad.line)),
            Err(e) => Err(e.to_string()),
        };
        Some(ConfigFile { path: path.to_owned(), settings })
    }

    /// The settings; of a file that cannot be read none.
    pub fn settings(&self) -> &[Setting] {
        self.settings.as_deref().unwrap_or_default()
    }
}

impl Repository {
    /// Follows an entry to its directories. What does not exist is kept as it is written.
    pub fn open(entry: &Entry) -> Repository {
        let parent = entry.path.parent().unwrap_or(Path::new("/"));
        let (git_dir, top) = match entry.kind {
            Kind::Bare => (entry.path.clone(), entry.path.clone()),
            Kind::Directory => (entry.path.clone(), parent.to_owned()),
            Kind::File | Kind::Link => (behind(&entry.path), parent.to_owned()),
        };
        let common_dir = match read_text(&git_dir.join("commondir")) {
            Ok(Some(text)) => follow(&git_dir.join(line(&text))).real,
            _ => git_dir.clone(),
        };
        Repository { entry: entry.clone(), git_dir, common_dir, top }
    }

    /// The configurations that belong to the repository itself.
    pub fn own_files(&self) -> Vec<ConfigFile> {
        let mut paths = vec![
            self.common_dir.join("config"),
            self.git_dir.join("config.worktree"),
            self.common_dir.join("config.worktree"),
        ];
        paths.dedup();
        paths.iter().filter_map(|path| ConfigFile::open(path)).collect()
    }
}

/// Where a file or link `.git` leads: a link to a file `.git` counts as that file.
fn behind(path: &Path) -> PathBuf {
    let real = follow(path).real;
    let text = read_text(&real).ok().flatten().unwrap_or_default();
    match text.strip_prefix("gitdir:") {
        Some(named) => {
            let parent = real.parent().unwrap_or(Path::new("/"));
            follow(&parent.join(line(named))).real
        }
        None => real,
    }
}

fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

/// Adds what the files include, and what that includes, up to a bound.
pub fn with_includes(files: Vec<ConfigFile>, home: Option<&Path>) -> Vec<ConfigFile> {
    let mut all = files;
    let mut at = 0;
    while let Some(file) = all.get(at) {
        at += 1;
        let base = file.path.parent().unwrap_or(Path::new("/")).to_owned();
        let included: Vec<PathBuf> = file
            .settings()
            .iter()
            .filter_map(|setting| match named(setting) {
                Some(Named::Include(path)) => expand(&path, &base, home),
                _ => None,
            })
            .collect();
        for path in included {
            if all.len() < FILES && !all.iter().any(|known| known.path == path) {
                all.extend(ConfigFile::open(&path));
            }
        }
    }
    all
}

/// A path of a setting in full: `~/` is the home directory.
pub(crate) fn expand(path: &str, base: &Path, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(below) => home.map(|home| home.join(below)),
        // Another user's home, or a place of the installation.
        None if path.starts_with('~') || path.starts_with("%(") => None,
        None => Some(base.join(path)),
    }
}

/// The configurations that hold for every repository of a person, includes counted.
pub fn user_files(home: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<ConfigFile> {
    let mut paths = vec![PathBuf::from("/etc/gitconfig")];
    match variable("GIT_CONFIG_GLOBAL") {
        Some(path) => paths.push(path),
        None => {
            let xdg = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
            paths.extend(
                xdg.or_else(|| home.map(|home| home.join(".config"))).map(|dir| dir.join("git/config")),
            );
            paths.extend(home.map(|home| home.join(".gitconfig")));
        }
    }
    with_includes(paths.iter().filter_map(|path| ConfigFile::open(path)).collect(), home)
}
