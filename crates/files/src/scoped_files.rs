//! `ScopedFiles`: opens, lists and locates files of a scope. Each call uses the current scope.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use minke_policy::AccessLevel;
use minke_record::Scope;
use rustix::fs::{FileType, Mode, OFlags};

use crate::access::{AccessRules, LentScope};
use crate::error::{FileError, FilesError};
use crate::replace::FileLocks;
use crate::resolve::{PathTarget, ResolvedPath};
use crate::safe_open;

/// The accessible paths. Directories are canonical.
#[derive(Debug, Clone, Default)]
pub struct FilesConfig {
    pub scope: Scope,
    /// Commands see the pod's own temporary directory as `/tmp`, and so do file tools; grants at or below `/tmp` take
    /// precedence.
    pub tmp: Option<TmpAlias>,
    /// The pod's own temporary directory: readable and writable in addition to the scope.
    pub tmp_dir: Option<PathBuf>,
    pub tmp_read_only: bool,
    /// The pod's own `output` directory: readable, not writable.
    pub output: Option<PathBuf>,
    /// Directories outside the scope that may be read, for example those of the user's own skills.
    pub readable: Vec<PathBuf>,
    /// Secrets and Minke's own directories: hidden even if the scope allows reading them.
    pub masked: Vec<PathBuf>,
    /// Paths at which the user removed a mask or a protection, including everything below.
    pub lifted: Vec<PathBuf>,
    /// Further protected paths, whatever their names.
    pub extra_protection: ExtraProtection,
}

/// Checks whether a path outside of protected names is executed or trusted by programs because a configuration names
/// it. Called before each write, with the current scope.
#[derive(Clone, Default)]
pub struct ExtraProtection(pub Option<Arc<ProtectionCheck>>);

/// Returns why a path of the scope is protected, if it is.
type ProtectionCheck = dyn Fn(&Path, &Scope) -> Option<&'static str> + Send + Sync;

impl std::fmt::Debug for ExtraProtection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LedTo").field(&self.0.is_some()).finish()
    }
}

/// A directory and its alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpAlias {
    pub shown: PathBuf,
    pub real: PathBuf,
}

/// The files of a scope.
pub struct ScopedFiles {
    access: RwLock<Arc<AccessRules>>,
    pub(crate) locks: FileLocks,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenedFile {
    pub file: File,
    /// The path without links.
    pub path: PathBuf,
    pub meta: Metadata,
}

/// A directory, open for listing.
#[derive(Debug)]
pub struct OpenedDir {
    pub dir: OwnedFd,
    /// The path without links.
    pub path: PathBuf,
}

/// The result of locating a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedPath {
    /// The path without links.
    pub path: PathBuf,
    pub exists: bool,
    pub is_dir: bool,
    pub level: AccessLevel,
}

impl ScopedFiles {
    pub fn new(config: FilesConfig) -> Result<ScopedFiles, FilesError> {
        Ok(ScopedFiles {
            access: RwLock::new(Arc::new(AccessRules::new(config)?)),
            locks: FileLocks::default(),
        })
    }

    /// Creates a value without grants: every path is outside the scope.
    pub fn without_grants() -> ScopedFiles {
        ScopedFiles::new(FilesConfig::default()).expect("a scope without grants opens no directory")
    }

    pub(crate) fn access_rules(&self) -> Arc<AccessRules> {
        // The value is only ever replaced as a whole, so it is consistent after a panic.
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the scope for all later calls. If the new scope is invalid, only the pod's own directories stay
    /// accessible, so that a removed grant does not stay open.
    pub fn set_scope(&self, scope: &Scope) -> Result<(), FilesError> {
        let now = self.access_rules();
        let (access, result) = match now.with_scope(scope) {
            Ok(walls) => (walls, Ok(())),
            Err(e) => (now.with_scope(&Scope::default())?, Err(e)),
        };
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
        result
    }

    /// Sets which pods hold parts of the scope; used in error messages only.
    pub fn set_lent_scopes(&self, lent: Vec<LentScope>) {
        let mut walls = self.access.write().unwrap_or_else(PoisonError::into_inner);
        *walls = Arc::new(walls.with_lent(lent));
    }

    pub fn scope(&self) -> Scope {
        self.access_rules().scope.clone()
    }

    /// Returns the access to a real path (links are not followed).
    pub fn access_level(&self, path: &Path) -> AccessLevel {
        let access = self.access_rules();
        access.access_level(&access.to_real_path(path.to_owned()))
    }

    /// Whether a real path may be read. Cheaper than `access_level` for every file of a tree.
    pub fn may_read(&self, path: &Path) -> bool {
        let access = self.access_rules();
        match access.tmp_alias() {
            Some(_) => access.may_read(&access.to_real_path(path.to_owned())),
            None => access.may_read(path),
        }
    }

    /// Whether everything below a readable directory may be read, so that callers need not check each file. A result of
    /// false is always safe.
    pub fn may_read_all_below(&self, dir: &Path) -> bool {
        self.access_rules().may_read_all_below(dir)
    }

    /// Returns a real path as the model and the shell name it: under `/tmp` where that is an alias.
    pub fn shown_path(&self, path: &Path) -> PathBuf {
        self.access_rules().to_shown_path(path)
    }

    /// Opens a regular file for reading. Never blocks on a FIFO, and opens no device.
    pub fn open_file(&self, path: &Path) -> Result<OpenedFile, FileError> {
        self.with_shown_paths(|access| open_resolved(access.resolve_path(path, AccessLevel::Read)?))
    }

    /// Opens a file whose path was found by walking; a link anywhere in it is refused.
    pub fn open_beneath_nofollow(&self, path: &Path) -> Result<OpenedFile, FileError> {
        self.with_shown_paths(|access| open_resolved(access.resolve_nofollow(path, AccessLevel::Read)?))
    }

    /// Opens a directory for walking.
    pub fn open_dir(&self, path: &Path) -> Result<OpenedDir, FileError> {
        self.with_shown_paths(|walls| open_dir(walls, path))
    }

    /// Locates a path, if it has at least the wanted access.
    pub fn locate_path(&self, path: &Path, want: AccessLevel) -> Result<LocatedPath, FileError> {
        self.with_shown_paths(|access| locate_path(access, path, want))
    }

    /// Runs `work` with the access rules. Paths in its error are converted to those that the model and the shell use.
    pub(crate) fn with_shown_paths<T>(
        &self,
        work: impl FnOnce(&AccessRules) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let access = self.access_rules();
        work(&access).map_err(|e| e.with_shown_paths(&access))
    }
}

fn open_dir(walls: &AccessRules, path: &Path) -> Result<OpenedDir, FileError> {
    let ResolvedPath { path: real, target } = walls.resolve_path(path, AccessLevel::Read)?;
    let failed = |e| FileError::from_io(path, "opening it", e);
    let dir = match target {
        PathTarget::Entry { dir, name, .. } => {
            safe_open::open_listable(dir.as_fd(), Path::new(&name)).map_err(failed)?
        }
        PathTarget::Grant => {
            let (grant, below) = walls.grant_below(&real)?;
            safe_open::open_listable(grant, &below).map_err(failed)?
        }
        PathTarget::Missing { .. } | PathTarget::MissingParent => {
            return Err(FileError::NotFound { path: path.to_owned() });
        }
    };
    Ok(OpenedDir { dir, path: real })
}

fn locate_path(access: &AccessRules, path: &Path, want: AccessLevel) -> Result<LocatedPath, FileError> {
    let spot = access.resolve_path(path, want)?;
    let is_dir = match &spot.target {
        PathTarget::Entry { stat, .. } => safe_open::has_type(stat, FileType::Directory),
        PathTarget::Grant => true,
        PathTarget::Missing { .. } | PathTarget::MissingParent => false,
    };
    Ok(LocatedPath { exists: spot.exists(), is_dir, level: access.access_level(&spot.path), path: spot.path })
}

/// Opens a regular file. Its type is checked before, because opening some devices has side effects, and afterwards,
/// because the file may have been replaced.
pub(crate) fn open_resolved(spot: ResolvedPath) -> Result<OpenedFile, FileError> {
    let path = spot.path;
    let (dir, name, found) = match spot.target {
        PathTarget::Entry { dir, name, stat } => (dir, name, stat),
        PathTarget::Grant => return Err(FileError::IsDirectory { path }),
        PathTarget::Missing { .. } | PathTarget::MissingParent => return Err(FileError::NotFound { path }),
    };
    refuse_special(&path, FileType::from_raw_mode(found.st_mode))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |e| FileError::from_io(&path, "opening it", e);
    let file = File::from(
        safe_open::open_below(dir.as_fd(), Path::new(&name), flags, Mode::empty()).map_err(failed)?,
    );
    let opened = rustix::fs::fstat(&file).map_err(failed)?;
    refuse_special(&path, FileType::from_raw_mode(opened.st_mode))?;
    refuse_processes(&path, &file)?;
    let meta = file.metadata().map_err(|e| FileError::from_io(&path, "reading its metadata", e))?;
    Ok(OpenedFile { file, path, meta })
}

/// Refuses files of a proc file system, wherever it is mounted, because they show processes including this one.
#[cfg(target_os = "linux")]
fn refuse_processes(path: &Path, file: &File) -> Result<(), FileError> {
    let system =
        rustix::fs::fstatfs(file).map_err(|e| FileError::from_io(path, "reading its metadata", e))?;
    if system.f_type == rustix::fs::PROC_SUPER_MAGIC {
        return Err(FileError::Masked { path: path.to_owned(), wall: path.to_owned() });
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn refuse_processes(_path: &Path, _file: &File) -> Result<(), FileError> {
    Ok(())
}

pub(crate) fn refuse_special(path: &Path, kind: FileType) -> Result<(), FileError> {
    let path = path.to_owned();
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(FileError::IsDirectory { path }),
        FileType::Symlink => return Err(FileError::SymlinkNotFollowed { path }),
        FileType::Fifo => "a FIFO, on which the call would block",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Socket => "a socket",
        FileType::Unknown => "not a regular file",
    };
    Err(FileError::Special { path, what })
}
