//! `Files`: a scope's files. Opening, listing, and where a path leads; each call works on the scope as it is then.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use minke_policy::Level;
use minke_record::Scope;
use rustix::fs::{FileType, Mode, OFlags};

use crate::beneath;
use crate::error::{FileError, FilesError};
use crate::replace::Locks;
use crate::resolve::{At, Spot};
use crate::walls::{Lent, Walls};

/// What is to be reached. Directories are canonical.
#[derive(Debug, Clone, Default)]
pub struct FilesConfig {
    pub scope: Scope,
    /// Where commands see the pod's own temporary directory as `/tmp`, so do file tools; grants at or below it win.
    pub tmp: Option<TmpAlias>,
    /// The pod's own temporary directory: readable and writable beside the scope.
    pub tmp_dir: Option<PathBuf>,
    pub tmp_read_only: bool,
    /// The pod's own `output`: readable, not writable.
    pub output: Option<PathBuf>,
    /// Directories beside the scope that may be read, for example those of a person's own skills.
    pub readable: Vec<PathBuf>,
    /// Secrets and our own directories: hidden even where the scope may be read.
    pub masked: Vec<PathBuf>,
    /// Where a person has lifted a mask or a protection: at a place within it, for that place and what is below.
    pub lifted: Vec<PathBuf>,
    /// Further places that programs run or believe, whatever their names.
    pub led_to: LedTo,
}

/// Whether something outside of a protected name is run or believed later, because a configuration leads there. Asked
/// before each write, with the scope as it is then.
#[derive(Clone, Default)]
pub struct LedTo(pub Option<Arc<PathCheck>>);

/// Returns why a path of the scope is protected, if it is.
type PathCheck = dyn Fn(&Path, &Scope) -> Option<&'static str> + Send + Sync;

impl std::fmt::Debug for LedTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LedTo").field(&self.0.is_some()).finish()
    }
}

/// One directory under another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpAlias {
    pub shown: PathBuf,
    pub real: PathBuf,
}

/// The files of a scope.
pub struct Files {
    walls: RwLock<Arc<Walls>>,
    pub(crate) locks: Locks,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    /// Where it lies, links followed.
    pub path: PathBuf,
    pub meta: Metadata,
}

/// A directory, open for listing.
#[derive(Debug)]
pub struct OpenedDir {
    pub dir: OwnedFd,
    /// Where it lies, links followed.
    pub path: PathBuf,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Links followed.
    pub path: PathBuf,
    pub exists: bool,
    pub is_dir: bool,
    pub level: Level,
}

impl Files {
    pub fn new(config: FilesConfig) -> Result<Files, FilesError> {
        Ok(Files { walls: RwLock::new(Arc::new(Walls::new(config)?)), locks: Locks::default() })
    }

    /// No grants: everything is outside.
    pub fn none() -> Files {
        Files::new(FilesConfig::default()).expect("a scope without grants opens nothing that could fail")
    }

    pub(crate) fn walls(&self) -> Arc<Walls> {
        // A panic while it was held has left a whole value: it is only ever replaced.
        Arc::clone(&self.walls.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another scope, from the next call on. One that cannot be held leaves nothing reachable but the pod's own
    /// directories: what was taken away must not stay open because something else was wrong.
    pub fn set_scope(&self, scope: &Scope) -> Result<(), FilesError> {
        let now = self.walls();
        let (walls, result) = match now.with_scope(scope) {
            Ok(walls) => (walls, Ok(())),
            Err(e) => (now.with_scope(&Scope::default())?, Err(e)),
        };
        *self.walls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(walls);
        result
    }

    /// Who has which part of the scope meanwhile; said in the words of a refusal, and nothing else.
    pub fn set_lent(&self, lent: Vec<Lent>) {
        let mut walls = self.walls.write().unwrap_or_else(PoisonError::into_inner);
        *walls = Arc::new(walls.with_lent(lent));
    }

    pub fn scope(&self) -> Scope {
        self.walls().scope.clone()
    }

    /// What may be done at a real path (links are not followed here).
    pub fn level(&self, path: &Path) -> Level {
        let walls = self.walls();
        walls.level(&walls.meant(path.to_owned()))
    }

    /// Whether a real path may be read; cheaper than `level`, for whoever asks about every file of a tree.
    pub fn may_read(&self, path: &Path) -> bool {
        let walls = self.walls();
        match walls.alias() {
            Some(_) => walls.may_read(&walls.meant(path.to_owned())),
            None => walls.may_read(path),
        }
    }

    /// Whether everything below a real directory that may be read may be read, too: then nobody has to ask about each
    /// file. "No" is always a safe answer.
    pub fn may_read_all_below(&self, dir: &Path) -> bool {
        self.walls().may_read_all_below(dir)
    }

    /// A real path as the model and the shell name it: the pod's own temporary directory is `/tmp` where it is moved.
    pub fn shown(&self, path: &Path) -> PathBuf {
        self.walls().shown(path)
    }

    /// A regular file for reading. Never waits for a FIFO, and opens no device.
    pub fn open(&self, path: &Path) -> Result<Opened, FileError> {
        self.named(|walls| open_spot(walls.resolve(path, Level::Read)?))
    }

    /// The same for a path that was found by walking: a link anywhere in it is refused.
    pub fn open_beneath_nofollow(&self, path: &Path) -> Result<Opened, FileError> {
        self.named(|walls| open_spot(walls.resolve_nofollow(path, Level::Read)?))
    }

    /// A directory that may be walked.
    pub fn open_dir(&self, path: &Path) -> Result<OpenedDir, FileError> {
        self.named(|walls| open_dir(walls, path))
    }

    /// Where a path leads, if that much may be done there.
    pub fn locate(&self, path: &Path, want: Level) -> Result<Located, FileError> {
        self.named(|walls| locate(walls, path, want))
    }

    /// Does something within the walls; a refusal names paths as the model and the shell do.
    pub(crate) fn named<T>(&self, work: impl FnOnce(&Walls) -> Result<T, FileError>) -> Result<T, FileError> {
        let walls = self.walls();
        work(&walls).map_err(|e| e.named_by(&walls))
    }
}

fn open_dir(walls: &Walls, path: &Path) -> Result<OpenedDir, FileError> {
    let Spot { path: real, at } = walls.resolve(path, Level::Read)?;
    let failed = |e| FileError::from_io(path, "opening it", e);
    let dir = match at {
        At::Entry { dir, name, .. } => beneath::listable(dir.as_fd(), Path::new(&name)).map_err(failed)?,
        At::Grant => {
            let (grant, below) = walls.beneath(&real)?;
            beneath::listable(grant, &below).map_err(failed)?
        }
        At::Free { .. } | At::Far => return Err(FileError::NotFound { path: path.to_owned() }),
    };
    Ok(OpenedDir { dir, path: real })
}

fn locate(walls: &Walls, path: &Path, want: Level) -> Result<Located, FileError> {
    let spot = walls.resolve(path, want)?;
    let is_dir = match &spot.at {
        At::Entry { found, .. } => beneath::is(found, FileType::Directory),
        At::Grant => true,
        At::Free { .. } | At::Far => false,
    };
    Ok(Located { exists: spot.exists(), is_dir, level: walls.level(&spot.path), path: spot.path })
}

/// Opens what was found, if it is a regular file; it is looked at before, because opening some devices does something,
/// and after, because another file may have taken its place.
pub(crate) fn open_spot(spot: Spot) -> Result<Opened, FileError> {
    let path = spot.path;
    let (dir, name, found) = match spot.at {
        At::Entry { dir, name, found } => (dir, name, found),
        At::Grant => return Err(FileError::IsDirectory { path }),
        At::Free { .. } | At::Far => return Err(FileError::NotFound { path }),
    };
    refuse_special(&path, FileType::from_raw_mode(found.st_mode))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |e| FileError::from_io(&path, "opening it", e);
    let file =
        File::from(beneath::open(dir.as_fd(), Path::new(&name), flags, Mode::empty()).map_err(failed)?);
    let opened = rustix::fs::fstat(&file).map_err(failed)?;
    refuse_special(&path, FileType::from_raw_mode(opened.st_mode))?;
    refuse_processes(&path, &file)?;
    let meta = file.metadata().map_err(|e| FileError::from_io(&path, "looking at it", e))?;
    Ok(Opened { file, path, meta })
}

/// Files that show processes, this one among them, wherever they are mounted.
#[cfg(target_os = "linux")]
fn refuse_processes(path: &Path, file: &File) -> Result<(), FileError> {
    let system = rustix::fs::fstatfs(file).map_err(|e| FileError::from_io(path, "looking at it", e))?;
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
        FileType::Fifo => "a FIFO, which would make the call wait",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Socket => "a socket",
        FileType::Unknown => "something that is no file",
    };
    Err(FileError::Special { path, what })
}
