//! Ignore rules: what `.rgignore`, `.ignore`, `.gitignore` and `.git/info/exclude` leave out, in ripgrep's order.
//!
//! Here: the rules of one directory and of those above it. Elsewhere: what is done about them (`walk`), the patterns
//! themselves (the `ignore` crate). Their files are opened like any other, through `Files`: one that is a FIFO, a device, a
//! link out of the scope or too large is counted and not used, where `ignore`'s own walker would wait for it or read it.
//! The person's global ignore file and ignore files above the scope are not read.
//! Invariant: `what_is_listed_is_what_rg_lists`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use minke_files::{FileError, Files};

/// The most of one ignore file that is read; a larger one is not used at all.
const IGNORE_BYTES: u64 = 1024 * 1024;

/// Files with rules, the strongest first.
const CUSTOM: &str = ".rgignore";
const PLAIN: &str = ".ignore";
const GIT: &str = ".gitignore";
/// What makes a directory the top of a repository; `.gitignore` counts only inside one.
const REPOSITORY: [&str; 2] = [".git", ".jj"];

/// What the rules say of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Silent,
    Ignored,
    /// Asked for by name, so that it is taken even if it is hidden.
    Kept,
}

impl<T> From<Match<T>> for Word {
    fn from(found: Match<T>) -> Word {
        match found {
            Match::None => Word::Silent,
            Match::Ignore(_) => Word::Ignored,
            Match::Whitelist(_) => Word::Kept,
        }
    }
}

/// The rules of a directory, and behind them those of the directories above it.
pub(super) struct Rules {
    above: Option<Arc<Rules>>,
    custom: Gitignore,
    plain: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    repository: bool,
    in_repository: bool,
}

impl Rules {
    pub(super) fn none() -> Rules {
        Rules {
            above: None,
            custom: Gitignore::empty(),
            plain: Gitignore::empty(),
            git: Gitignore::empty(),
            exclude: Gitignore::empty(),
            repository: false,
            in_repository: false,
        }
    }

    pub(super) fn word(&self, path: &Path, is_dir: bool) -> Word {
        let everywhere = |kind: fn(&Rules) -> &Gitignore| first(self.chain(), kind, path, is_dir);
        // A repository's rules end at its top, that directory's own included.
        let inside = |kind: fn(&Rules) -> &Gitignore| {
            if !self.in_repository {
                return Word::Silent;
            }
            let mut left = false;
            let within = self.chain().take_while(|rules| !std::mem::replace(&mut left, rules.repository));
            first(within, kind, path, is_dir)
        };
        let mut word = everywhere(|rules| &rules.custom);
        if word == Word::Silent {
            word = everywhere(|rules| &rules.plain);
        }
        if word == Word::Silent {
            word = inside(|rules| &rules.git);
        }
        if word == Word::Silent {
            word = inside(|rules| &rules.exclude);
        }
        word
    }

    fn chain(&self) -> impl Iterator<Item = &Rules> {
        std::iter::successors(Some(self), |rules| rules.above.as_deref())
    }
}

fn first<'a>(
    chain: impl Iterator<Item = &'a Rules>,
    kind: fn(&Rules) -> &Gitignore,
    path: &Path,
    is_dir: bool,
) -> Word {
    let mut words = chain.map(|rules| Word::from(kind(rules).matched(path, is_dir)));
    words.find(|word| *word != Word::Silent).unwrap_or(Word::Silent)
}

/// Reads ignore files, and counts those that could not be used.
pub(super) struct Reader {
    files: Arc<Files>,
    unused: AtomicU64,
}

impl Reader {
    pub(super) fn new(files: Arc<Files>) -> Reader {
        Reader { files, unused: AtomicU64::new(0) }
    }

    /// How many ignore files could not be used.
    pub(super) fn unused(&self) -> u64 {
        self.unused.load(Ordering::Relaxed)
    }

    /// The rules that hold in `dir` because of the directories above it.
    pub(super) fn above(&self, dir: &Path) -> Arc<Rules> {
        let mut above: Vec<&Path> = dir.ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().fold(Arc::new(Rules::none()), |rules, dir| {
            if self.files.may_read(dir) {
                return self.below(&rules, dir, |_| true);
            }
            // Outside of the scope nothing is read; only whether a repository begins there is asked.
            if !REPOSITORY.iter().any(|name| exists(&dir.join(name))) {
                return rules;
            }
            let (repository, in_repository) = (true, true);
            Arc::new(Rules { above: Some(rules), repository, in_repository, ..Rules::none() })
        })
    }

    /// The rules that hold in `dir`, given those above it; `has` says whether an entry of that name may be there.
    pub(super) fn below(&self, above: &Arc<Rules>, dir: &Path, has: impl Fn(&str) -> bool) -> Arc<Rules> {
        let repository = REPOSITORY.iter().any(|name| has(name) && exists(&dir.join(name)));
        if !repository && ![CUSTOM, PLAIN, GIT].iter().any(|name| has(name)) {
            return above.clone();
        }
        let own = |name| if has(name) { self.read(dir, &dir.join(name)) } else { Gitignore::empty() };
        let exclude = if repository { self.exclude(dir) } else { Gitignore::empty() };
        let rules = Rules {
            above: Some(above.clone()),
            custom: own(CUSTOM),
            plain: own(PLAIN),
            git: own(GIT),
            exclude,
            repository,
            in_repository: repository || above.in_repository,
        };
        Arc::new(rules)
    }

    /// The patterns of a file, for the paths below `dir`.
    fn read(&self, dir: &Path, file: &Path) -> Gitignore {
        let Some(content) = self.content(file) else { return Gitignore::empty() };
        let mut builder = GitignoreBuilder::new(dir);
        // Like ripgrep: what follows a line that is not text is not used, a line that is no pattern is passed over.
        for line in content.split(|&byte| byte == b'\n').enumerate() {
            let (number, Ok(line)) = (line.0, std::str::from_utf8(line.1)) else {
                self.unused.fetch_add(1, Ordering::Relaxed);
                break;
            };
            let line = if number == 0 { line.trim_start_matches('\u{feff}') } else { line };
            if builder.add_line(None, line).is_err() {
                continue;
            }
        }
        builder.build().unwrap_or_else(|_| {
            self.unused.fetch_add(1, Ordering::Relaxed);
            Gitignore::empty()
        })
    }

    /// A file of the scope; none if it is not there or cannot be used.
    fn content(&self, file: &Path) -> Option<Vec<u8>> {
        let read = |opened: std::fs::File| {
            let mut content = Vec::new();
            let read = opened.take(IGNORE_BYTES + 1).read_to_end(&mut content);
            (read.is_ok() && content.len() as u64 <= IGNORE_BYTES).then_some(content)
        };
        let content = match self.files.open(file) {
            Ok(opened) => read(opened.file),
            Err(FileError::NotFound { .. } | FileError::NoDirectory { .. }) => return None,
            Err(_) => None,
        };
        if content.is_none() {
            self.unused.fetch_add(1, Ordering::Relaxed);
        }
        content
    }

    /// `info/exclude` of the repository whose top is `dir`. In a work tree `.git` is a file that says where it is.
    fn exclude(&self, dir: &Path) -> Gitignore {
        let git = dir.join(".git");
        let pointed = |file: &Path| {
            let content = self.content(file)?;
            let mut line = String::new();
            BufReader::new(content.as_slice()).read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let home = match std::fs::symlink_metadata(&git) {
            Ok(found) if found.is_file() => pointed(&git).and_then(|line| {
                let home = plain(&dir.join(line.strip_prefix("gitdir: ")?));
                let common = pointed(&home.join("commondir"))?;
                Some(plain(&home.join(common)))
            }),
            Ok(_) => Some(git),
            Err(_) => None,
        };
        home.map_or_else(Gitignore::empty, |home| self.read(dir, &home.join("info/exclude")))
    }
}

/// Whether something is there. Nothing of it is read or shown.
fn exists(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok()
}

/// A path of git's own making without its `..`; whether it may be read is decided afterwards, on what it names.
fn plain(path: &Path) -> PathBuf {
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
