//! A real disk whose syncs can be held: what is written is there, and what waits for the disk waits.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use minke_session::{Disk, DiskFile, Meta, OpenHow, RealDisk};

#[derive(Debug, Default)]
struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct HeldDisk(Arc<Gate>);

impl HeldDisk {
    /// From now on no sync ends.
    pub(crate) fn hold(&self) {
        *self.0.held.lock().unwrap() = true;
    }

    pub(crate) fn let_go(&self) {
        *self.0.held.lock().unwrap() = false;
        self.0.opened.notify_all();
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(HeldFile { file, gate: Arc::clone(&self.0) })
    }
}

impl Disk for HeldDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(RealDisk.open(path, how)?))
    }
    fn adopt(&self, fd: OwnedFd) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(RealDisk.adopt(fd)?))
    }
    fn is_at(&self, file: &dyn DiskFile, path: &Path) -> io::Result<bool> {
        RealDisk.is_at(file, path)
    }
    fn meta(&self, path: &Path) -> io::Result<Option<Meta>> {
        RealDisk.meta(path)
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
    fn breathe(&self) {
        RealDisk.breathe();
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn DiskFile>,
    gate: Arc<Gate>,
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
        let mut held = self.gate.held.lock().unwrap();
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
    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.duplicate()
    }
    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
    }
}
