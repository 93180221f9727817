//! A real disk whose syncs can be blocked: writes succeed, and everything that needs a sync waits.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use minke_session::{Disk, DiskFile, FileMeta, OpenMode, RealDisk};

#[derive(Debug, Default)]
struct SyncGate {
    is_held: Mutex<bool>,
    opened: Condvar,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct HeldDisk(Arc<SyncGate>);

impl HeldDisk {
    /// Blocks all syncs from now on.
    pub(crate) fn hold_syncs(&self) {
        *self.0.is_held.lock().unwrap() = true;
    }

    pub(crate) fn release_syncs(&self) {
        *self.0.is_held.lock().unwrap() = false;
        self.0.opened.notify_all();
    }

    fn wrap_file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(HeldFile { file, gate: Arc::clone(&self.0) })
    }
}

impl Disk for HeldDisk {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap_file(RealDisk.open(path, how)?))
    }
    fn adopt_fd(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap_file(RealDisk.adopt_fd(fd)?))
    }
    fn is_file_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        RealDisk.is_file_at(file, path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<FileMeta>> {
        RealDisk.metadata(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        RealDisk.read_dir(path)
    }
    fn pause_briefly(&self) {
        RealDisk.pause_briefly();
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn DiskFile>,
    gate: Arc<SyncGate>,
}

impl DiskFile for HeldFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.file.append(bytes)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        let mut held = self.gate.is_held.lock().unwrap();
        while *held {
            held = self.gate.opened.wait(held).unwrap();
        }
        drop(held);
        self.file.sync_data()
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
    fn lock(&self) -> io::Result<()> {
        self.file.lock()
    }
    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        self.file.duplicate_fd()
    }
    fn file_identity(&self) -> io::Result<(u64, u64)> {
        self.file.file_identity()
    }
}
