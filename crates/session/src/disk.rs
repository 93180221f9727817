//! The disk, as the log sees it: every operation on a file system goes through here, one call each.
//!
//! Here: the traits, and `RealDisk` on the operating system. Elsewhere: a virtual disk with faults (`testkit::disk`).
//! Promise: nothing in this crate touches a file in another way, so a fault can be put at every operation
//! (`a_fault_at_every_disk_operation_loses_nothing_written`).

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use minke_record::Millis;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenHow {
    /// To read; it must be there.
    Read,
    /// To read, and to write at its end; it must be there.
    Append,
    /// The same, and it must not be there yet.
    AppendNew,
    /// To read and write anywhere; made if it is not there.
    Write,
    /// A directory, to lock it.
    Directory,
}

/// What there is to know about a file without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub bytes: u64,
    pub directory: bool,
    pub modified: Option<Millis>,
}

/// A file system. Files are made 0600, directories 0700.
pub trait Disk: Send + Sync + fmt::Debug {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>>;
    /// Takes a descriptor that another process opened.
    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>>;
    /// Whether the open file is the one that this path names now.
    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool>;
    /// `None` if there is nothing.
    fn meta(&self, path: &Path) -> io::Result<Option<Meta>>;
    /// One directory; its parent must be there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// An empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Names only, in no order; names that are not UTF-8 are not ours and are left out.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Gives whoever holds a lock for a moment the time to let go.
    fn breathe(&self);
}

/// An open file. Shared between the writer and whoever syncs.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// One write call at the end of the file. May write less than it was given; says how much.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    fn size(&self) -> io::Result<u64>;
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
    /// Takes the exclusive kernel lock, or says that somebody else has it. Free when the last holder is gone.
    fn try_lock(&self) -> io::Result<bool>;
    /// Waits for the exclusive kernel lock: only where every holder lets go soon.
    fn lock(&self) -> io::Result<()>;
    /// The same open file once more; it shares the lock. Close-on-exec.
    fn duplicate(&self) -> io::Result<OwnedFd>;
    /// Which file it is: device and inode.
    fn identity(&self) -> io::Result<(u64, u64)>;
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(0o600);
        match how {
            OpenHow::Read | OpenHow::Directory => {}
            OpenHow::Append => {
                options.append(true);
            }
            OpenHow::AppendNew => {
                options.append(true).create_new(true);
            }
            OpenHow::Write => {
                options.write(true).create(true).truncate(false);
            }
        }
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        // It came across an exec; it must not cross another one by accident.
        rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
        Ok(Box::new(RealFile(File::from(fd))))
    }

    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == file.identity()?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        match fs::metadata(path) {
            Ok(meta) => {
                let modified = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                Ok(Some(Meta {
                    bytes: meta.len(),
                    directory: meta.is_dir(),
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

    fn breathe(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Debug)]
struct RealFile(File);

/// A call that a signal interrupted has done nothing yet and is made again.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl DiskFile for RealFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| io::Write::write(&mut &self.0, bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| self.0.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| self.0.read_at(bytes, offset))
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
        uninterrupted(|| self.0.lock())
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let meta = self.0.metadata()?;
        Ok((meta.dev(), meta.ino()))
    }
}
