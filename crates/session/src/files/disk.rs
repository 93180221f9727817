//! The disk interface: every file system operation of the log, one call each.
//!
//! Here: the traits, and `RealDisk` for the operating system. Elsewhere: a simulated disk with faults
//! (`testkit::disk`).
//! Guarantee: this crate accesses files only through these traits, so a test can inject a fault at every operation
//! (`a_fault_at_every_disk_operation_loses_nothing_written`).

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use minke_record::Millis;

/// The mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; the file must exist.
    Read,
    /// For reading and appending; the file must exist.
    Append,
    /// For reading and appending; the file must not exist.
    AppendNew,
    /// For reading and writing at any offset; created if missing.
    Write,
    /// A directory, for locking it.
    Directory,
}

/// Metadata of a file, available without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    pub bytes: u64,
    pub is_dir: bool,
    pub modified: Option<Millis>,
}

/// A file system. Creates files with mode 0600 and directories with mode 0700.
pub trait Disk: Send + Sync + fmt::Debug {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// Adopts a descriptor that another process opened.
    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>>;
    /// Returns whether this path currently names the open file.
    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool>;
    /// Returns `None` if the path does not exist.
    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>>;
    /// Creates one directory; its parent must exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory, unsorted; skips names that are not UTF-8.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Pauses, so that another process can release a lock that it holds briefly.
    fn pause_briefly(&self);
}

/// An open file, shared between the writer and the syncing threads.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Makes one write call at the end of the file. Returns the number of bytes written, which may be smaller than
    /// requested.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    fn size(&self) -> io::Result<u64>;
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
    /// Tries to take the exclusive kernel lock; returns `false` if it is held. The kernel frees it with its last
    /// holder.
    fn try_lock(&self) -> io::Result<bool>;
    /// Waits for the exclusive kernel lock. Only for locks whose holders release them soon.
    fn lock(&self) -> io::Result<()>;
    /// Duplicates the descriptor of the same open file, which shares the lock. Close-on-exec.
    fn duplicate_fd(&self) -> io::Result<OwnedFd>;
    /// Returns the device and inode of the file.
    fn file_identity(&self) -> io::Result<(u64, u64)>;
}

/// The file system of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(0o600);
        match mode {
            OpenMode::Read | OpenMode::Directory => {}
            OpenMode::Append => {
                options.append(true);
            }
            OpenMode::AppendNew => {
                options.append(true).create_new(true);
            }
            OpenMode::Write => {
                options.write(true).create(true).truncate(false);
            }
        }
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        // It was inherited through an exec and must not be inherited through another one.
        rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
        Ok(Box::new(RealFile(File::from(fd))))
    }

    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == file.file_identity()?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        match fs::metadata(path) {
            Ok(meta) => {
                let modified = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                Ok(Some(FileMeta {
                    bytes: meta.len(),
                    is_dir: meta.is_dir(),
                    modified: modified.and_then(|d| Millis::try_from(d.as_millis()).ok()),
                }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in fs::read_dir(path)? {
            if let Ok(name) = item?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn pause_briefly(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Debug)]
struct RealFile(File);

/// Repeats a call that a signal interrupted before it had any effect.
fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl DiskFile for RealFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        retry_interrupted(|| io::Write::write(&mut &self.0, bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        retry_interrupted(|| self.0.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        retry_interrupted(|| self.0.read_at(bytes, offset))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        loop {
            return match self.0.try_lock() {
                Ok(()) => Ok(true),
                Err(TryLockError::WouldBlock) => Ok(false),
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(TryLockError::Error(e)) => Err(e),
            };
        }
    }

    fn lock(&self) -> io::Result<()> {
        retry_interrupted(|| self.0.lock())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        let meta = self.0.metadata()?;
        Ok((meta.dev(), meta.ino()))
    }
}
