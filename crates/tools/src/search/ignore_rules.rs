//! Ignore rules: `.rgignore`, `.ignore`, `.gitignore` and `.git/info/exclude`, with ripgrep's precedence.
//!
//! This module has the rules of a directory and its ancestors; `walk` applies them, the `ignore` crate parses
//! the patterns. Ignore files are opened through `Files` like any other file: a FIFO, a device, a link
//! outside the scope or a too large file is counted and not used, whereas the walker of `ignore` would wait
//! for it or read it. The user's global ignore file and ignore files above the scope are not read.
//! Invariant: `what_is_listed_is_what_rg_lists`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use minke_files::{FileError, ScopedFiles};

/// The maximum size of an ignore file; a larger file is not used.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;

/// Ignore files by precedence, highest first.
const RIPGREP_IGNORE: &str = ".rgignore";
const GENERIC_IGNORE: &str = ".ignore";
const GIT_IGNORE: &str = ".gitignore";
/// Entries that mark the top of a repository; `.gitignore` applies only inside one.
const REPOSITORY_MARKERS: [&str; 2] = [".git", ".jj"];

/// The decision of the rules on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IgnoreVerdict {
    NoMatch,
    Ignored,
    /// Explicitly included, even if it is hidden.
    Included,
}

impl<T> From<Match<T>> for IgnoreVerdict {
    fn from(found: Match<T>) -> IgnoreVerdict {
        match found {
            Match::None => IgnoreVerdict::NoMatch,
            Match::Ignore(_) => IgnoreVerdict::Ignored,
            Match::Whitelist(_) => IgnoreVerdict::Included,
        }
    }
}

/// The rules of a directory, linked to those of its ancestors.
pub(super) struct IgnoreRules {
    parent: Option<Arc<IgnoreRules>>,
    custom: Gitignore,
    plain: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    is_repository: bool,
    is_in_repository: bool,
}

impl IgnoreRules {
    pub(super) fn empty() -> IgnoreRules {
        IgnoreRules {
            parent: None,
            custom: Gitignore::empty(),
            plain: Gitignore::empty(),
            git: Gitignore::empty(),
            exclude: Gitignore::empty(),
            is_repository: false,
            is_in_repository: false,
        }
    }

    pub(super) fn verdict_for(&self, path: &Path, is_dir: bool) -> IgnoreVerdict {
        let everywhere =
            |kind: fn(&IgnoreRules) -> &Gitignore| first_verdict(self.self_and_parents(), kind, path, is_dir);
        // The rules of a repository apply up to and including its top directory.
        let inside = |kind: fn(&IgnoreRules) -> &Gitignore| {
            if !self.is_in_repository {
                return IgnoreVerdict::NoMatch;
            }
            let mut left = false;
            let within = self
                .self_and_parents()
                .take_while(|rules| !std::mem::replace(&mut left, rules.is_repository));
            first_verdict(within, kind, path, is_dir)
        };
        let mut verdict = everywhere(|rules| &rules.custom);
        if verdict == IgnoreVerdict::NoMatch {
            verdict = everywhere(|rules| &rules.plain);
        }
        if verdict == IgnoreVerdict::NoMatch {
            verdict = inside(|rules| &rules.git);
        }
        if verdict == IgnoreVerdict::NoMatch {
            verdict = inside(|rules| &rules.exclude);
        }
        verdict
    }

    fn self_and_parents(&self) -> impl Iterator<Item = &IgnoreRules> {
        std::iter::successors(Some(self), |rules| rules.parent.as_deref())
    }
}

fn first_verdict<'a>(
    chain: impl Iterator<Item = &'a IgnoreRules>,
    kind: fn(&IgnoreRules) -> &Gitignore,
    path: &Path,
    is_dir: bool,
) -> IgnoreVerdict {
    let mut verdicts = chain.map(|rules| IgnoreVerdict::from(kind(rules).matched(path, is_dir)));
    verdicts.find(|verdict| *verdict != IgnoreVerdict::NoMatch).unwrap_or(IgnoreVerdict::NoMatch)
}

/// Reads ignore files and counts those that could not be used.
pub(super) struct IgnoreReader {
    files: Arc<ScopedFiles>,
    unusable: AtomicU64,
}

impl IgnoreReader {
    pub(super) fn new(files: Arc<ScopedFiles>) -> IgnoreReader {
        IgnoreReader { files, unusable: AtomicU64::new(0) }
    }

    /// Returns the number of ignore files that could not be used.
    pub(super) fn unusable_count(&self) -> u64 {
        self.unusable.load(Ordering::Relaxed)
    }

    /// Returns the rules that apply in `dir` from the directories above it.
    pub(super) fn rules_above(&self, dir: &Path) -> Arc<IgnoreRules> {
        let mut above: Vec<&Path> = dir.ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().fold(Arc::new(IgnoreRules::empty()), |rules, dir| {
            if self.files.may_read(dir) {
                return self.rules_in(&rules, dir, |_| true);
            }
            // Outside the scope nothing is read; only the existence of a repository is checked.
            if !REPOSITORY_MARKERS.iter().any(|name| path_exists(&dir.join(name))) {
                return rules;
            }
            let (is_repository, is_in_repository) = (true, true);
            Arc::new(IgnoreRules {
                parent: Some(rules),
                is_repository,
                is_in_repository,
                ..IgnoreRules::empty()
            })
        })
    }

    /// Returns the rules for `dir`, given those above it; `has` tells whether an entry of that name may
    /// exist.
    pub(super) fn rules_in(
        &self,
        above: &Arc<IgnoreRules>,
        dir: &Path,
        has: impl Fn(&str) -> bool,
    ) -> Arc<IgnoreRules> {
        let is_repository = REPOSITORY_MARKERS.iter().any(|name| has(name) && path_exists(&dir.join(name)));
        if !is_repository && ![RIPGREP_IGNORE, GENERIC_IGNORE, GIT_IGNORE].iter().any(|name| has(name)) {
            return above.clone();
        }
        let own =
            |name| if has(name) { self.read_patterns(dir, &dir.join(name)) } else { Gitignore::empty() };
        let exclude = if is_repository { self.read_exclude(dir) } else { Gitignore::empty() };
        let rules = IgnoreRules {
            parent: Some(above.clone()),
            custom: own(RIPGREP_IGNORE),
            plain: own(GENERIC_IGNORE),
            git: own(GIT_IGNORE),
            exclude,
            is_repository,
            is_in_repository: is_repository || above.is_in_repository,
        };
        Arc::new(rules)
    }

    /// Reads the patterns of a file, for the paths below `dir`.
    fn read_patterns(&self, dir: &Path, file: &Path) -> Gitignore {
        let Some(content) = self.read_content(file) else { return Gitignore::empty() };
        let mut builder = GitignoreBuilder::new(dir);
        // Like ripgrep: stop at a line that is not UTF-8, and skip a line that is not a pattern.
        for line in content.split(|&byte| byte == b'\n').enumerate() {
            let (number, Ok(line)) = (line.0, std::str::from_utf8(line.1)) else {
                self.unusable.fetch_add(1, Ordering::Relaxed);
                break;
            };
            let line = if number == 0 { line.trim_start_matches('\u{feff}') } else { line };
            if builder.add_line(None, line).is_err() {
                continue;
            }
        }
        builder.build().unwrap_or_else(|_| {
            self.unusable.fetch_add(1, Ordering::Relaxed);
            Gitignore::empty()
        })
    }

    /// Reads a file of the scope; returns `None` if it does not exist or cannot be used.
    fn read_content(&self, file: &Path) -> Option<Vec<u8>> {
        let read = |opened: std::fs::File| {
            let mut content = Vec::new();
            let read = opened.take(MAX_IGNORE_BYTES + 1).read_to_end(&mut content);
            (read.is_ok() && content.len() as u64 <= MAX_IGNORE_BYTES).then_some(content)
        };
        let content = match self.files.open_file(file) {
            Ok(opened) => read(opened.file),
            Err(FileError::NotFound { .. } | FileError::MissingDirectory { .. }) => return None,
            Err(_) => None,
        };
        if content.is_none() {
            self.unusable.fetch_add(1, Ordering::Relaxed);
        }
        content
    }

    /// Reads `info/exclude` of the repository at `dir`. In a work tree `.git` is a file that names the
    /// directory.
    fn read_exclude(&self, dir: &Path) -> Gitignore {
        let git = dir.join(".git");
        let pointed = |file: &Path| {
            let content = self.read_content(file)?;
            let mut line = String::new();
            BufReader::new(content.as_slice()).read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let home = match std::fs::symlink_metadata(&git) {
            Ok(found) if found.is_file() => pointed(&git).and_then(|line| {
                let home = normalize_path(&dir.join(line.strip_prefix("gitdir: ")?));
                let common = pointed(&home.join("commondir"))?;
                Some(normalize_path(&home.join(common)))
            }),
            Ok(_) => Some(git),
            Err(_) => None,
        };
        home.map_or_else(Gitignore::empty, |home| self.read_patterns(dir, &home.join("info/exclude")))
    }
}

/// Returns whether a path exists, without reading it.
fn path_exists(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok()
}

/// Removes `..` from a path that git wrote. The caller checks afterwards whether it may be read.
fn normalize_path(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            whole.pop();
        } else if part != Component::CurDir {
            whole.push(part);
        }
    }
    whole
}
