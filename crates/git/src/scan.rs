//! Scan: the repositories and the denied paths of a scope, found again cheaply.
//!
//! Here: a walk of the directories that keeps what it saw. The next walk asks for the state of each known directory only
//! and reads again what has changed: a name cannot appear in a directory without a new time of change, which no command
//! can set back. Elsewhere: what a repository is worth (`verdict`), what is held (`exec`).
//! Invariants: a scan that keeps finds what a fresh one finds (`a_scan_that_keeps_finds_what_a_fresh_one_finds`); it is
//! bounded, and says when the bound was reached (`a_scan_says_when_it_did_not_see_all`).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use minke_policy::{DeniedPaths, Level};
use minke_record::{Permission, Scope};
use rustix::fs::{Dir, FileType};

use crate::places::{Stamp, open_directory, stamp};

/// The most directories that one scan looks at, the nearest first.
pub const DIRECTORIES: usize = 30_000;
/// The most repositories of one scan.
pub const REPOSITORIES: usize = 1000;
/// The most denied paths that one scan names.
pub const DENIED: usize = 4096;
/// A directory that changed so shortly before it was read may change once more without another time.
const RACY: i128 = 100_000_000;
/// The same on file systems that count whole seconds.
const RACY_SECONDS: i128 = 2_100_000_000;
/// Trees of the kernel, never walked.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What kind of thing makes git take a directory for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A directory `.git`.
    Directory,
    /// A file `.git`, which names a directory.
    File,
    /// A link `.git`.
    Link,
    /// A directory that holds `HEAD`, `objects` and `refs`, whatever its name.
    Bare,
}

/// A repository by the name that git finds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The `.git`, or the bare directory.
    pub path: PathBuf,
    pub kind: Kind,
}

/// What a scan found.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Repositories that could be written, the nearest first.
    pub repositories: Vec<Entry>,
    /// Paths that a rule denies, the outermost of each tree; more than `DENIED` if there are too many.
    pub denied: Vec<PathBuf>,
    /// Directories that were looked at.
    pub directories: usize,
    /// What a bound kept from being looked at, in words.
    pub limits: Vec<String>,
}

/// What is to be looked at.
#[derive(Clone, Copy)]
pub struct Area<'a> {
    pub scope: &'a Scope,
    pub denied: Option<&'a Arc<DeniedPaths>>,
}

/// One directory as it was read.
struct Known {
    stamp: Stamp,
    /// Read again in any case.
    racy: bool,
    directories: Vec<OsString>,
    git: Vec<(OsString, Kind)>,
    is_bare: bool,
    denied: Vec<OsString>,
    scan: u64,
}

/// Scans, and keeps what it saw for the next time.
#[derive(Default)]
pub struct Scanner {
    known: HashMap<PathBuf, Known>,
    denied: Option<Arc<DeniedPaths>>,
    scans: u64,
}

struct Next {
    path: PathBuf,
    /// The root that it was reached from goes all the way down.
    recursive: bool,
}

impl Scanner {
    /// Looks at every directory of the area.
    pub fn scan(&mut self, area: Area<'_>) -> Survey {
        if self.denied.as_ref() != area.denied {
            self.known.clear();
            self.denied = area.denied.cloned();
        }
        self.scans += 1;
        let scan = self.scans;
        let mut survey = Survey::default();
        let mut pending: VecDeque<Next> = roots(area).into();
        while let Some(Next { path, recursive }) = pending.pop_front() {
            if survey.directories == DIRECTORIES {
                survey.limits.push(format!(
                    "more than {DIRECTORIES} directories: git repositories and denied paths in the rest of them, the \
                     deepest, were not looked for"
                ));
                break;
            }
            if KERNEL.iter().any(|kernel| path.starts_with(kernel)) {
                continue;
            }
            let Some(known) = self.look(&path) else { continue };
            survey.directories += 1;
            known.scan = scan;
            if known.is_bare && !known.git.iter().any(|(name, _)| path.ends_with(name)) {
                survey.add(Entry { path: path.clone(), kind: Kind::Bare }, area);
            }
            for (name, kind) in &known.git {
                survey.add(Entry { path: path.join(name), kind: *kind }, area);
            }
            for name in &known.denied {
                survey.deny(path.join(name));
            }
            if recursive {
                pending.extend(
                    known.directories.iter().map(|name| Next { path: path.join(name), recursive: true }),
                );
            }
        }
        self.known.retain(|_, known| known.scan == scan);
        // Paths that a rule writes out are held wherever they are.
        for place in area.denied.iter().flat_map(|denied| denied.places()) {
            let path = Path::new(place);
            if !survey.denied.iter().any(|held| path.starts_with(held)) && stamp(path).is_some() {
                survey.deny(path.to_owned());
            }
        }
        // A `.git` directory holds HEAD, objects and refs as well; it is one repository.
        let named: Vec<PathBuf> = survey
            .repositories
            .iter()
            .filter(|entry| entry.kind == Kind::Directory)
            .map(|entry| entry.path.clone())
            .collect();
        survey.repositories.retain(|entry| entry.kind != Kind::Bare || !named.contains(&entry.path));
        survey
    }

    /// What is in a directory, read again if it has changed.
    fn look(&mut self, path: &Path) -> Option<&mut Known> {
        let now = stamp(path).filter(|now| now.is_directory)?;
        let is_current = self.known.get(path).is_some_and(|known| !known.racy && known.stamp == now);
        if !is_current {
            let read = self.read(path)?;
            self.known.insert(path.to_owned(), read);
        }
        self.known.get_mut(path)
    }

    fn read(&self, path: &Path) -> Option<Known> {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let directory = open_directory(path).ok()?;
        let stamp = Stamp::of(&rustix::fs::fstat(&directory).ok()?);
        let window = if stamp.changed % 1_000_000_000 == 0 { RACY_SECONDS } else { RACY };
        let racy = stamp.changed + window >= i128::try_from(begun).unwrap_or(0);
        let (directories, git, denied) = (Vec::new(), Vec::new(), Vec::new());
        let mut known = Known { stamp, racy, directories, git, is_bare: false, denied, scan: 0 };
        let mut parts = 0;
        for entry in Dir::read_from(&directory).ok()? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(name.to_vec());
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let found = rustix::fs::statat(&directory, &*name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                kind = found.map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode));
            }
            if let Some(denied) = &self.denied
                && path.join(&name).to_str().is_some_and(|path| denied.holds(path))
            {
                known.denied.push(name);
                continue;
            }
            if name == "HEAD" || name == "objects" || name == "refs" {
                parts += 1;
            }
            if name.eq_ignore_ascii_case(".git") {
                known.git.extend(git_kind(kind).map(|kind| (name.clone(), kind)));
            }
            if kind == FileType::Directory {
                known.directories.push(name);
            }
        }
        known.is_bare = parts == 3;
        known.directories.sort();
        Some(known)
    }
}

fn git_kind(kind: FileType) -> Option<Kind> {
    match kind {
        FileType::Directory => Some(Kind::Directory),
        FileType::RegularFile => Some(Kind::File),
        FileType::Symlink => Some(Kind::Link),
        // Placeholders of ours, and what git does not read.
        _ => None,
    }
}

impl Survey {
    fn add(&mut self, entry: Entry, area: Area<'_>) {
        // What is only readable, or lent to another pod, is not this pod's to change.
        let inside = entry.path.join("x");
        let writable = |path: &Path| {
            path.to_str().is_none_or(|path| minke_policy::level(area.scope, path) == Level::Write)
        };
        if !writable(&entry.path) && !writable(&inside) {
            return;
        }
        if self.repositories.len() < REPOSITORIES {
            self.repositories.push(entry);
        } else if self.repositories.len() == REPOSITORIES
            && !self.limits.iter().any(|l| l.contains("repositories of"))
        {
            self.limits.push(format!(
                "more than {REPOSITORIES} git repositories: the repositories of the rest were not looked at"
            ));
        }
    }

    fn deny(&mut self, path: PathBuf) {
        if self.denied.len() <= DENIED {
            self.denied.push(path);
        }
    }
}

/// Where a scan begins: what may be written, and what may be read if something is denied. None twice.
fn roots(area: Area<'_>) -> Vec<Next> {
    let wanted = area.scope.allow.iter().filter(|rule| {
        rule.permission == Permission::Write || (area.denied.is_some() && rule.permission == Permission::Read)
    });
    let all: Vec<(&Path, bool)> = wanted.map(|rule| (Path::new(&rule.target), rule.recursive)).collect();
    let mut roots: Vec<Next> = Vec::new();
    for (place, (path, recursive)) in all.iter().enumerate() {
        let is_covered = all.iter().enumerate().any(|(other_place, (other, other_recursive))| {
            let covers = if *other_recursive { path.starts_with(other) } else { path == other && !recursive };
            let covered_back = *recursive && other.starts_with(path);
            other_place != place && covers && (!covered_back || other_place < place)
        });
        if !is_covered {
            roots.push(Next { path: (*path).to_owned(), recursive: *recursive });
        }
    }
    roots
}
