//! Resolves a repository to the directories and configuration files that git uses.
//!
//! Here: following `.git` files and links, reading `commondir`, reading configurations with their includes. Reads only.
//! Elsewhere: the meaning of the settings (`settings`).
//! Files are read as git would read them, except for conditions: `includeIf` always counts, whether its condition holds
//! or not.

use std::path::{Path, PathBuf};

use crate::config::{GitSetting, parse_config};
use crate::safe_paths::{follow_links, read_text};
use crate::scan::{RepositoryEntry, RepositoryKind};
use crate::settings::{SettingTarget, setting_target};

/// The most configuration files of one repository or of the user, including included ones.
const MAX_FILES: usize = 64;

/// A repository with its directories, links resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRepository {
    pub entry: RepositoryEntry,
    /// The directory of `HEAD`.
    pub git_dir: PathBuf,
    /// The directory of `config`, `hooks` and `objects`; a different one for a linked work tree.
    pub common_dir: PathBuf,
    /// The directory in which hooks run and to which settings are relative.
    pub top: PathBuf,
}

/// One configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitConfigFile {
    pub path: PathBuf,
    /// Its settings, or why it could not be read.
    pub settings: Result<Vec<GitSetting>, String>,
}

impl GitConfigFile {
    /// Reads a file, if it exists.
    fn read_if_present(path: &Path) -> Option<GitConfigFile> {
        let settings = match read_text(path) {
            Ok(None) => return None,
            Ok(Some(text)) => {
                parse_config(&text).map_err(|bad| format!("line {} is not valid configuration", bad.line))
            }
            Err(e) => Err(e.to_string()),
        };
        Some(GitConfigFile { path: path.to_owned(), settings })
    }

    /// Returns the settings; none if the file could not be read.
    pub fn settings(&self) -> &[GitSetting] {
        self.settings.as_deref().unwrap_or_default()
    }
}

impl GitRepository {
    /// Resolves an entry to its directories. Missing paths stay as written.
    pub fn from_entry(entry: &RepositoryEntry) -> GitRepository {
        let parent = entry.path.parent().unwrap_or(Path::new("/"));
        let (git_dir, top) = match entry.kind {
            RepositoryKind::Bare => (entry.path.clone(), entry.path.clone()),
            RepositoryKind::Directory => (entry.path.clone(), parent.to_owned()),
            RepositoryKind::File | RepositoryKind::Link => (git_dir_target(&entry.path), parent.to_owned()),
        };
        let common_dir = match read_text(&git_dir.join("commondir")) {
            Ok(Some(text)) => follow_links(&git_dir.join(first_line(&text))).real_path,
            _ => git_dir.clone(),
        };
        GitRepository { entry: entry.clone(), git_dir, common_dir, top }
    }

    /// Returns the configuration files of the repository itself.
    pub fn own_config_files(&self) -> Vec<GitConfigFile> {
        let mut paths = vec![
            self.common_dir.join("config"),
            self.git_dir.join("config.worktree"),
            self.common_dir.join("config.worktree"),
        ];
        paths.dedup();
        paths.iter().filter_map(|path| GitConfigFile::read_if_present(path)).collect()
    }
}

/// Returns the target of a `.git` file or link; a link to a `.git` file counts as that file.
fn git_dir_target(path: &Path) -> PathBuf {
    let real = follow_links(path).real_path;
    let text = read_text(&real).ok().flatten().unwrap_or_default();
    match text.strip_prefix("gitdir:") {
        Some(named) => {
            let parent = real.parent().unwrap_or(Path::new("/"));
            follow_links(&parent.join(first_line(named))).real_path
        }
        None => real,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

/// Adds included files, recursively, up to a limit.
pub fn with_includes(files: Vec<GitConfigFile>, home: Option<&Path>) -> Vec<GitConfigFile> {
    let mut all = files;
    let mut at = 0;
    while let Some(file) = all.get(at) {
        at += 1;
        let base = file.path.parent().unwrap_or(Path::new("/")).to_owned();
        let included: Vec<PathBuf> = file
            .settings()
            .iter()
            .filter_map(|setting| match setting_target(setting) {
                Some(SettingTarget::Include(path)) => expand_path(&path, &base, home),
                _ => None,
            })
            .collect();
        for path in included {
            if all.len() < MAX_FILES && !all.iter().any(|known| known.path == path) {
                all.extend(GitConfigFile::read_if_present(&path));
            }
        }
    }
    all
}

/// Expands the path of a setting: `~/` is the home directory.
pub(crate) fn expand_path(path: &str, base: &Path, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(below) => home.map(|home| home.join(below)),
        // Another user's home, or a path of the git installation.
        None if path.starts_with('~') || path.starts_with("%(") => None,
        None => Some(base.join(path)),
    }
}

/// Returns the configuration files for all repositories of a user, including included ones.
pub fn user_config_files(
    home: Option<&Path>,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> Vec<GitConfigFile> {
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
    with_includes(paths.iter().filter_map(|path| GitConfigFile::read_if_present(path)).collect(), home)
}
