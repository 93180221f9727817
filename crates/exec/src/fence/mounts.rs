//! Mounts: the file system as a command sees it.
//!
//! Here: layers carried out, `/dev` and `/proc` made. Runs as the init of a new mount namespace, whose changes nobody
//! else sees. Everything is cloned while the old look is still there, then the root becomes read-only, then the clones
//! are put in place. Nothing is resolved through a symbolic link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use super::helper::{Failure, Step};
use super::places;
use super::plan::Plan;
use super::prepare::{Layer, Look};
use super::sys::{self, Attributes};
use super::walls::Walls;

/// Bytes of `/dev/shm`: enough for browsers and test suites, not for filling the memory.
const SHARED_BYTES: &str = "1g";
/// Bytes of a mask, which holds names only.
const MASK_BYTES: &str = "1m";

/// Builds the look of a fence, in a mount namespace of its own.
pub(super) fn build(plan: &Plan, layers: &[Layer]) -> Result<(), Failure> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step(|| "making mounts private".to_owned())?;
    let mut clones = Vec::with_capacity(layers.len());
    let mut from = Directory::default();
    for layer in layers {
        // What may be written is taken while everything still may be.
        clones.push(if may_write(layer) { clone_layer(&mut from, layer, true)? } else { None });
    }
    let devices = if plan.walls.has(Walls::DEVICES) { clone_devices()? } else { Vec::new() };
    let root = open_path(Path::new("/")).step(|| "opening the root".to_owned())?;
    let mut attributes = Attributes::NO_SUID | Attributes::NO_DEVICES;
    if plan.walls.has(Walls::READ_ONLY_ROOT) && !plan.writable_root {
        attributes |= Attributes::READ_ONLY;
    }
    sys::set_attributes(root.as_fd(), attributes, true).step(|| "making the root read-only".to_owned())?;
    for (layer, clone) in layers.iter().zip(&mut clones).filter(|(layer, _)| !may_write(layer)) {
        // The rest is taken as it is now, unless a test left the root as it was.
        let is_read_only = plan.walls.has(Walls::READ_ONLY_ROOT) && !plan.writable_root;
        *clone = clone_layer(&mut from, layer, !is_read_only)?;
    }
    // Something is mounted over either of them later, unless a test leaves that wall out.
    let empties = Empties::new(Path::new(if plan.walls.has(Walls::TMP) { "/tmp" } else { "/dev" }))?;
    let mut to = Directory::default();
    for (layer, clone) in layers.iter().zip(clones) {
        attach_layer(&mut to, layer, clone, &empties).step(|| format!("mounting {}", layer.at.display()))?;
    }
    if plan.walls.has(Walls::DEVICES) {
        make_devices(devices)?;
    }
    if plan.walls.has(Walls::PROC) {
        make_proc()?;
    }
    rustix::process::chdir("/").step(|| "entering the new root".to_owned())
}

/// A path without symbolic links in it, opened for its place only.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open_path_at(CWD, path)
}

fn open_path_at(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve);
    match opened {
        Err(Errno::LOOP) => {
            Err(io::Error::other("a symbolic link is on the way; grant the path that it leads to"))
        }
        // A link at the end is opened as itself, which `NO_SYMLINKS` does not let one do.
        other => Ok(other?),
    }
}

/// The directory of the last place, kept open: dozens of held names share one. A layer at a directory, or above it, comes
/// before those in it, so what was opened is still what the path leads to.
#[derive(Default)]
struct Directory(Option<(PathBuf, OwnedFd)>);

impl Directory {
    fn open(&mut self, path: &Path) -> io::Result<BorrowedFd<'_>> {
        if self.0.as_ref().is_none_or(|(open, _)| open != path) {
            self.0 = Some((path.to_owned(), open_path(path)?));
        }
        let (_, open) = self.0.as_ref().ok_or(Errno::BADF)?;
        Ok(open.as_fd())
    }

    /// What `open_path` gives.
    fn open_path(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return open_path(path) };
        open_path_at(self.open(parent)?, Path::new(name))
    }
}

/// A place to be mounted on, which may itself be a symbolic link.
fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return open_path(path) };
    let parent = open_path(parent)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}

fn clone(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(place, "", flags)?)
}

fn attach(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", place, "", flags)?)
}

fn may_write(layer: &Layer) -> bool {
    matches!(layer.look, Look::Again { write: true, .. })
}

fn clone_layer(
    directory: &mut Directory,
    layer: &Layer,
    set_attributes: bool,
) -> Result<Option<OwnedFd>, Failure> {
    let Look::Again { from, write } = &layer.look else { return Ok(None) };
    let what = || format!("opening {}", from.display());
    // A held name that is a link is held by an empty file over it.
    if layer.is_link {
        return Ok(None);
    }
    let opened = directory.open_path(from).step(what)?;
    let cloned = clone(opened.as_fd()).step(what)?;
    if set_attributes {
        let mut attributes = Attributes::NO_SUID | Attributes::NO_DEVICES;
        if !write {
            attributes |= Attributes::READ_ONLY;
        }
        sys::set_attributes(cloned.as_fd(), attributes, true).step(what)?;
    }
    Ok(Some(cloned))
}

fn attach_layer(
    directory: &mut Directory,
    layer: &Layer,
    clone: Option<OwnedFd>,
    empties: &Empties,
) -> io::Result<()> {
    let mount = match (clone, &layer.look) {
        (Some(clone), _) => clone,
        (None, Look::Empty { rooms }) if !rooms.is_empty() => mask_with_rooms(&layer.at, rooms)?,
        (None, _) => empties.clone_of(layer.is_directory)?,
    };
    let (Some(parent), Some(name)) = (layer.at.parent(), layer.at.file_name()) else {
        return attach(&mount, &open_path(&layer.at)?);
    };
    // A name that is a link is mounted on as the link that it is.
    let parent = directory.open(parent)?;
    Ok(rustix::mount::move_mount(&mount, "", parent, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// A file system in memory, not mounted anywhere yet.
fn memory(size: &str, mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", mode)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// An empty directory and an empty file, from which masks are cloned.
struct Empties {
    directory: OwnedFd,
    file: OwnedFd,
}

impl Empties {
    /// Lies at a place that is covered later.
    fn new(at: &Path) -> Result<Empties, Failure> {
        let make = || -> io::Result<Empties> {
            let mount = memory(MASK_BYTES, "0755")?;
            rustix::fs::mkdirat(&mount, "directory", Mode::from_raw_mode(0o555))?;
            let made = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&mount, "file", made, Mode::from_raw_mode(0o444))?);
            sys::set_attributes(mount.as_fd(), Attributes::READ_ONLY, false)?;
            attach(&mount, &open_place(at)?)?;
            let open = |name| rustix::fs::openat(&mount, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            Ok(Empties { directory: open("directory")?, file: open("file")? })
        };
        make().step(|| "making masks".to_owned())
    }

    fn clone_of(&self, is_directory: bool) -> io::Result<OwnedFd> {
        clone(if is_directory { self.directory.as_fd() } else { self.file.as_fd() })
    }
}

/// A mask with mount points in it for what is shown all the same.
fn mask_with_rooms(at: &Path, rooms: &[(PathBuf, bool)]) -> io::Result<OwnedFd> {
    let mask = memory(MASK_BYTES, "0555")?;
    let mode = Mode::from_raw_mode(0o555);
    for (room, is_directory) in rooms {
        let Ok(below) = room.strip_prefix(at) else { continue };
        let mut path = PathBuf::new();
        let count = below.components().count();
        for (place, part) in below.components().enumerate() {
            path.push(part);
            let made = if place + 1 < count || *is_directory {
                // Its maker is root in this namespace and needs no permission of the directory above.
                rustix::fs::mkdirat(&mask, &path, mode)
            } else {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::openat(&mask, &path, flags, mode).map(drop)
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    sys::set_attributes(mask.as_fd(), Attributes::READ_ONLY, false)?;
    Ok(mask)
}

/// Harmless devices as they are outside, taken before devices are switched off.
fn clone_devices() -> Result<Vec<(&'static str, OwnedFd)>, Failure> {
    let mut devices = Vec::new();
    for path in places::DEVICES {
        let what = || format!("opening {path}");
        match open_path(Path::new(path)) {
            Ok(device) => {
                let device = clone(device.as_fd()).step(what)?;
                // A device can still be written; its mode and owner, which are the machine's own, cannot be changed.
                sys::set_attributes(device.as_fd(), Attributes::READ_ONLY | Attributes::NO_SUID, false)
                    .step(what)?;
                devices.push((path, device));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).step(what),
        }
    }
    Ok(devices)
}

/// Names in `/dev` that lead elsewhere.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

fn make_devices(devices: Vec<(&'static str, OwnedFd)>) -> Result<(), Failure> {
    let make = || -> io::Result<()> {
        let dev = memory(MASK_BYTES, "0755")?;
        for (path, _) in &devices {
            let name = Path::new(path).file_name().unwrap_or_default();
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&dev, name, flags, Mode::from_raw_mode(0o666))?);
        }
        for name in ["pts", "shm"] {
            rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        }
        for (name, target) in LINKS {
            rustix::fs::symlinkat(target, &dev, name)?;
        }
        let open = |name: &str| rustix::fs::openat(&dev, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        attach(&dev, &open_place(Path::new("/dev"))?)?;
        for (path, device) in &devices {
            let name = path.rsplit('/').next().unwrap_or_default();
            attach(device, &open(name)?)?;
        }
        attach(&memory(SHARED_BYTES, "1777")?, &open("shm")?)?;
        attach(&terminals()?, &open("pts")?)?;
        sys::set_attributes(dev.as_fd(), Attributes::READ_ONLY, false)
    };
    make().step(|| "making /dev".to_owned())
}

/// Terminals of the fence's own.
fn terminals() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "ptmxmode", "0666")?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "0600")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Processes of the fence only, and nothing to be set: root's command could set much.
fn make_proc() -> Result<(), Failure> {
    let make = || -> io::Result<()> {
        let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        attach(&proc, &open_place(Path::new("/proc"))?)
    };
    make().step(|| "making /proc".to_owned())
}
