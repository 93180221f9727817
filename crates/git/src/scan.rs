//! Scans a scope for repositories and denied paths, and caches the result.
//!
//! The scanner remembers each directory. The next scan only checks the state of known directories and reads changed
//! ones again: a new name always changes a directory's change time, which no command can reset. Elsewhere: the risks of
//! a repository (`risks`), protection (`exec`).
//! Invariants: a cached scan returns the same as a fresh one (`a_scan_that_keeps_finds_what_a_fresh_one_finds`); a scan
//! is limited, and reports when it reached a limit (`a_scan_says_when_it_did_not_see_all`).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use minke_policy::{AccessLevel, DeniedPaths};
use minke_record::{Permission, Scope};
use rustix::fs::{Dir, FileType};

use crate::safe_paths::{FileStamp, file_stamp, open_directory};

/// The most directories of one scan, nearest first.
pub const MAX_DIRECTORIES: usize = 30_000;
/// The most repositories of one scan.
pub const MAX_REPOSITORIES: usize = 1000;
/// The most denied paths of one scan.
pub const MAX_DENIED: usize = 4096;
/// A directory that changed this shortly before it was read may change again without a new time.
const RACY_NANOS: i128 = 100_000_000;
/// The same on file systems with a resolution of one second.
const RACY_SECONDS_NANOS: i128 = 2_100_000_000;
/// Kernel file systems, which are never scanned.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// How git recognizes a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepositoryKind {
    /// A directory `.git`.
    Directory,
    /// A file `.git`, which names a directory.
    File,
    /// A symbolic link `.git`.
    Link,
    /// A bare repository: a directory with `HEAD`, `objects` and `refs`, whatever its name.
    Bare,
}

/// A repository, by its entry point.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryEntry {
    /// The `.git` entry, or the bare directory.
    pub path: PathBuf,
    pub kind: RepositoryKind,
}

/// The result of a scan.
#[derive(Debug, Clone, Default)]
pub struct RepositorySurvey {
    /// Writable repositories, nearest first.
    pub repositories: Vec<RepositoryEntry>,
    /// Paths that a rule denies, the outermost of each tree; more than `MAX_DENIED` if there are too many.
    pub denied: Vec<PathBuf>,
    /// The number of scanned directories.
    pub directories: usize,
    /// Messages about limits that were reached.
    pub limits: Vec<String>,
}

/// The area to scan.
#[derive(Clone, Copy)]
pub struct SurveyArea<'a> {
    pub scope: &'a Scope,
    pub denied: Option<&'a Arc<DeniedPaths>>,
}

/// A remembered directory.
struct KnownDirectory {
    stamp: FileStamp,
    /// Whether it must be read again in any case.
    is_racy: bool,
    directories: Vec<OsString>,
    git: Vec<(OsString, RepositoryKind)>,
    is_bare: bool,
    denied: Vec<OsString>,
    scan: u64,
}

/// Scans, and remembers directories for the next scan.
#[derive(Default)]
pub struct RepositoryScanner {
    known: HashMap<PathBuf, KnownDirectory>,
    denied: Option<Arc<DeniedPaths>>,
    scan_count: u64,
}

struct PendingDirectory {
    path: PathBuf,
    /// Whether the root that led to it is recursive.
    is_recursive: bool,
}

impl RepositoryScanner {
    /// Scans every directory of the area.
    pub fn scan_area(&mut self, area: SurveyArea<'_>) -> RepositorySurvey {
        if self.denied.as_ref() != area.denied {
            self.known.clear();
            self.denied = area.denied.cloned();
        }
        self.scan_count += 1;
        let scan = self.scan_count;
        let mut survey = RepositorySurvey::default();
        let mut pending: VecDeque<PendingDirectory> = scan_roots(area).into();
        while let Some(PendingDirectory { path, is_recursive }) = pending.pop_front() {
            if survey.directories == MAX_DIRECTORIES {
                survey.limits.push(format!(
                    "more than {MAX_DIRECTORIES} directories: the rest, the deepest ones, was not scanned for git \
                     repositories and denied paths"
                ));
                break;
            }
            if KERNEL_TREES.iter().any(|kernel| path.starts_with(kernel)) {
                continue;
            }
            let Some(known) = self.refresh_directory(&path) else { continue };
            survey.directories += 1;
            known.scan = scan;
            if known.is_bare && !known.git.iter().any(|(name, _)| path.ends_with(name)) {
                survey
                    .add_repository(RepositoryEntry { path: path.clone(), kind: RepositoryKind::Bare }, area);
            }
            for (name, kind) in &known.git {
                survey.add_repository(RepositoryEntry { path: path.join(name), kind: *kind }, area);
            }
            for name in &known.denied {
                survey.add_denied(path.join(name));
            }
            if is_recursive {
                pending.extend(
                    known
                        .directories
                        .iter()
                        .map(|name| PendingDirectory { path: path.join(name), is_recursive: true }),
                );
            }
        }
        self.known.retain(|_, known| known.scan == scan);
        // Paths that a rule names literally are protected wherever they are.
        for place in area.denied.iter().flat_map(|denied| denied.literal_paths()) {
            let path = Path::new(place);
            if !survey.denied.iter().any(|held| path.starts_with(held)) && file_stamp(path).is_some() {
                survey.add_denied(path.to_owned());
            }
        }
        // A `.git` directory contains HEAD, objects and refs as well; it is one repository.
        let named: Vec<PathBuf> = survey
            .repositories
            .iter()
            .filter(|entry| entry.kind == RepositoryKind::Directory)
            .map(|entry| entry.path.clone())
            .collect();
        survey
            .repositories
            .retain(|entry| entry.kind != RepositoryKind::Bare || !named.contains(&entry.path));
        survey
    }

    /// Returns a directory, which is read again if it has changed.
    fn refresh_directory(&mut self, path: &Path) -> Option<&mut KnownDirectory> {
        let now = file_stamp(path).filter(|now| now.is_directory)?;
        let is_current = self.known.get(path).is_some_and(|known| !known.is_racy && known.stamp == now);
        if !is_current {
            let read = self.read_directory(path)?;
            self.known.insert(path.to_owned(), read);
        }
        self.known.get_mut(path)
    }

    fn read_directory(&self, path: &Path) -> Option<KnownDirectory> {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let directory = open_directory(path).ok()?;
        let stamp = FileStamp::from_stat(&rustix::fs::fstat(&directory).ok()?);
        let window = if stamp.changed % 1_000_000_000 == 0 { RACY_SECONDS_NANOS } else { RACY_NANOS };
        let is_racy = stamp.changed + window >= i128::try_from(begun).unwrap_or(0);
        let (directories, git, denied) = (Vec::new(), Vec::new(), Vec::new());
        let mut known = KnownDirectory { stamp, is_racy, directories, git, is_bare: false, denied, scan: 0 };
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
                && path.join(&name).to_str().is_some_and(|path| denied.denies_path(path))
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

fn git_kind(kind: FileType) -> Option<RepositoryKind> {
    match kind {
        FileType::Directory => Some(RepositoryKind::Directory),
        FileType::RegularFile => Some(RepositoryKind::File),
        FileType::Symlink => Some(RepositoryKind::Link),
        // A placeholder of Minke, or a file that git does not read.
        _ => None,
    }
}

impl RepositorySurvey {
    fn add_repository(&mut self, entry: RepositoryEntry, area: SurveyArea<'_>) {
        // This pod cannot change read-only or lent repositories.
        let inside = entry.path.join("x");
        let writable = |path: &Path| {
            path.to_str()
                .is_none_or(|path| minke_policy::access_level(area.scope, path) == AccessLevel::Write)
        };
        if !writable(&entry.path) && !writable(&inside) {
            return;
        }
        if self.repositories.len() < MAX_REPOSITORIES {
            self.repositories.push(entry);
        } else if self.repositories.len() == MAX_REPOSITORIES
            && !self.limits.iter().any(|l| l.contains("repositories of"))
        {
            self.limits.push(format!(
                "more than {MAX_REPOSITORIES} git repositories: the repositories of the rest were not checked"
            ));
        }
    }

    fn add_denied(&mut self, path: PathBuf) {
        if self.denied.len() <= MAX_DENIED {
            self.denied.push(path);
        }
    }
}

/// Returns the roots of a scan without duplicates: writable ones, and readable ones if paths are denied.
fn scan_roots(area: SurveyArea<'_>) -> Vec<PendingDirectory> {
    let wanted = area.scope.allow.iter().filter(|rule| {
        rule.permission == Permission::Write || (area.denied.is_some() && rule.permission == Permission::Read)
    });
    let all: Vec<(&Path, bool)> = wanted.map(|rule| (Path::new(&rule.target), rule.recursive)).collect();
    let mut roots: Vec<PendingDirectory> = Vec::new();
    for (place, (path, recursive)) in all.iter().enumerate() {
        let is_covered = all.iter().enumerate().any(|(other_place, (other, other_recursive))| {
            let covers = if *other_recursive { path.starts_with(other) } else { path == other && !recursive };
            let covered_back = *recursive && other.starts_with(path);
            other_place != place && covers && (!covered_back || other_place < place)
        });
        if !is_covered {
            roots.push(PendingDirectory { path: (*path).to_owned(), is_recursive: *recursive });
        }
    }
    roots
}
