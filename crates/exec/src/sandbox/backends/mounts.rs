//! Mounts: the file system view of a command.
//!
//! Here: applying the layers, creating `/dev` and `/proc`. Runs in the init of a new mount namespace. First all sources
//! are cloned from the current view, then the root becomes read-only, then the clones are attached. No symbolic link is
//! followed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use super::super::helper::{HelperError, StepContext};
use super::super::layers::{LayerSource, MountLayer};
use super::super::plan::SandboxPlan;
use super::super::restrictions::Restrictions;
use super::super::sys::{self, MountAttributes};
use super::super::system_paths;

/// The size of `/dev/shm`: enough for browsers and test suites, too little to exhaust memory.
const SHM_BYTES: &str = "1g";
/// The size of a mask, which contains names only.
const MASK_BYTES: &str = "1m";

/// Mounts the view of a sandbox, in its own mount namespace.
pub(in crate::sandbox) fn build_mounts(plan: &SandboxPlan, layers: &[MountLayer]) -> Result<(), HelperError> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .with_step(|| "making mounts private".to_owned())?;
    let mut clones = Vec::with_capacity(layers.len());
    let mut from = ParentCache::default();
    for layer in layers {
        // Clone writable sources before the root becomes read-only.
        clones.push(if is_writable(layer) { clone_layer(&mut from, layer, true)? } else { None });
    }
    let devices =
        if plan.restrictions.contains(Restrictions::DEVICES) { clone_devices()? } else { Vec::new() };
    let root = open_path(Path::new("/")).with_step(|| "opening the root".to_owned())?;
    let mut attributes = MountAttributes::NO_SUID | MountAttributes::NO_DEVICES;
    if plan.restrictions.contains(Restrictions::READ_ONLY_ROOT) && !plan.writable_root {
        attributes |= MountAttributes::READ_ONLY;
    }
    sys::set_mount_attributes(root.as_fd(), attributes, true)
        .with_step(|| "making the root read-only".to_owned())?;
    for (layer, clone) in layers.iter().zip(&mut clones).filter(|(layer, _)| !is_writable(layer)) {
        // Clone the others afterwards, unless a test left the root writable.
        let is_read_only = plan.restrictions.contains(Restrictions::READ_ONLY_ROOT) && !plan.writable_root;
        *clone = clone_layer(&mut from, layer, !is_read_only)?;
    }
    // Both are mounted over later, unless a test omits that restriction.
    let empties = EmptySources::new(Path::new(if plan.restrictions.contains(Restrictions::TMP) {
        "/tmp"
    } else {
        "/dev"
    }))?;
    let mut to = ParentCache::default();
    for (layer, clone) in layers.iter().zip(clones) {
        attach_layer(&mut to, layer, clone, &empties)
            .with_step(|| format!("mounting {}", layer.target.display()))?;
    }
    if plan.restrictions.contains(Restrictions::DEVICES) {
        mount_devices(devices)?;
    }
    if plan.restrictions.contains(Restrictions::PROC) {
        mount_proc()?;
    }
    rustix::process::chdir("/").with_step(|| "entering the new root".to_owned())
}

/// Opens a path without symbolic links, with `O_PATH`.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open_path_at(CWD, path)
}

fn open_path_at(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve);
    match opened {
        Err(Errno::LOOP) => {
            Err(io::Error::other("the path contains a symbolic link; grant its target instead"))
        }
        // A link at the end is opened itself, which `NO_SYMLINKS` does not allow.
        other => Ok(other?),
    }
}

/// Caches the directory of the last target, because dozens of protected names share one. Layers of a directory come
/// before the layers in it, so the opened directory stays the right one.
#[derive(Default)]
struct ParentCache(Option<(PathBuf, OwnedFd)>);

impl ParentCache {
    fn open_parent(&mut self, path: &Path) -> io::Result<BorrowedFd<'_>> {
        if self.0.as_ref().is_none_or(|(open, _)| open != path) {
            self.0 = Some((path.to_owned(), open_path(path)?));
        }
        let (_, open) = self.0.as_ref().ok_or(Errno::BADF)?;
        Ok(open.as_fd())
    }

    /// Opens a path like the function `open_path`.
    fn open_path(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return open_path(path) };
        open_path_at(self.open_parent(parent)?, Path::new(name))
    }
}

/// Opens a mount point, which may itself be a symbolic link.
fn open_mount_point(path: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return open_path(path) };
    let parent = open_path(parent)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}

fn clone_mount(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(place, "", flags)?)
}

fn attach_mount(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", place, "", flags)?)
}

fn is_writable(layer: &MountLayer) -> bool {
    matches!(layer.source, LayerSource::Bind { write: true, .. })
}

fn clone_layer(
    directory: &mut ParentCache,
    layer: &MountLayer,
    set_attributes: bool,
) -> Result<Option<OwnedFd>, HelperError> {
    let LayerSource::Bind { from, write } = &layer.source else { return Ok(None) };
    let what = || format!("opening {}", from.display());
    // A protected name that is a link is covered by an empty file.
    if layer.is_link {
        return Ok(None);
    }
    let opened = directory.open_path(from).with_step(what)?;
    let cloned = clone_mount(opened.as_fd()).with_step(what)?;
    if set_attributes {
        let mut attributes = MountAttributes::NO_SUID | MountAttributes::NO_DEVICES;
        if !write {
            attributes |= MountAttributes::READ_ONLY;
        }
        sys::set_mount_attributes(cloned.as_fd(), attributes, true).with_step(what)?;
    }
    Ok(Some(cloned))
}

fn attach_layer(
    directory: &mut ParentCache,
    layer: &MountLayer,
    clone: Option<OwnedFd>,
    empties: &EmptySources,
) -> io::Result<()> {
    let mount = match (clone, &layer.source) {
        (Some(clone), _) => clone,
        (None, LayerSource::Mask { mount_points }) if !mount_points.is_empty() => {
            create_mask(&layer.target, mount_points)?
        }
        (None, _) => empties.clone_empty(layer.is_directory)?,
    };
    let (Some(parent), Some(name)) = (layer.target.parent(), layer.target.file_name()) else {
        return attach_mount(&mount, &open_path(&layer.target)?);
    };
    // Mount on a link itself, not on its target.
    let parent = directory.open_parent(parent)?;
    Ok(rustix::mount::move_mount(&mount, "", parent, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Creates a tmpfs that is not mounted yet.
fn create_tmpfs(size: &str, mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "size", size)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", mode)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// An empty directory and an empty file, the sources of masks.
struct EmptySources {
    directory: OwnedFd,
    file: OwnedFd,
}

impl EmptySources {
    /// Mounts a temporary tmpfs at a path that is covered later.
    fn new(at: &Path) -> Result<EmptySources, HelperError> {
        let make = || -> io::Result<EmptySources> {
            let mount = create_tmpfs(MASK_BYTES, "0755")?;
            rustix::fs::mkdirat(&mount, "directory", Mode::from_raw_mode(0o555))?;
            let made = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&mount, "file", made, Mode::from_raw_mode(0o444))?);
            sys::set_mount_attributes(mount.as_fd(), MountAttributes::READ_ONLY, false)?;
            attach_mount(&mount, &open_mount_point(at)?)?;
            let open = |name| rustix::fs::openat(&mount, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            Ok(EmptySources { directory: open("directory")?, file: open("file")? })
        };
        make().with_step(|| "creating masks".to_owned())
    }

    fn clone_empty(&self, is_directory: bool) -> io::Result<OwnedFd> {
        clone_mount(if is_directory { self.directory.as_fd() } else { self.file.as_fd() })
    }
}

/// Creates a mask with mount points for the paths that stay visible.
fn create_mask(at: &Path, rooms: &[(PathBuf, bool)]) -> io::Result<OwnedFd> {
    let mask = create_tmpfs(MASK_BYTES, "0555")?;
    let mode = Mode::from_raw_mode(0o555);
    for (room, is_directory) in rooms {
        let Ok(below) = room.strip_prefix(at) else { continue };
        let mut path = PathBuf::new();
        let count = below.components().count();
        for (place, part) in below.components().enumerate() {
            path.push(part);
            let made = if place + 1 < count || *is_directory {
                // This process is root in its namespace and needs no permission on the directory.
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
    sys::set_mount_attributes(mask.as_fd(), MountAttributes::READ_ONLY, false)?;
    Ok(mask)
}

/// Clones harmless devices before devices are disabled.
fn clone_devices() -> Result<Vec<(&'static str, OwnedFd)>, HelperError> {
    let mut devices = Vec::new();
    for path in system_paths::DEVICES {
        let what = || format!("opening {path}");
        match open_path(Path::new(path)) {
            Ok(device) => {
                let device = clone_mount(device.as_fd()).with_step(what)?;
                // The device stays writable; its mode and owner, which are the host's, cannot be changed.
                sys::set_mount_attributes(
                    device.as_fd(),
                    MountAttributes::READ_ONLY | MountAttributes::NO_SUID,
                    false,
                )
                .with_step(what)?;
                devices.push((path, device));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_step(what),
        }
    }
    Ok(devices)
}

/// Symbolic links in `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

fn mount_devices(devices: Vec<(&'static str, OwnedFd)>) -> Result<(), HelperError> {
    let make = || -> io::Result<()> {
        let dev = create_tmpfs(MASK_BYTES, "0755")?;
        for (path, _) in &devices {
            let name = Path::new(path).file_name().unwrap_or_default();
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&dev, name, flags, Mode::from_raw_mode(0o666))?);
        }
        for name in ["pts", "shm"] {
            rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        }
        for (name, target) in DEVICE_LINKS {
            rustix::fs::symlinkat(target, &dev, name)?;
        }
        let open = |name: &str| rustix::fs::openat(&dev, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        attach_mount(&dev, &open_mount_point(Path::new("/dev"))?)?;
        for (path, device) in &devices {
            let name = path.rsplit('/').next().unwrap_or_default();
            attach_mount(device, &open(name)?)?;
        }
        attach_mount(&create_tmpfs(SHM_BYTES, "1777")?, &open("shm")?)?;
        attach_mount(&mount_terminals()?, &open("pts")?)?;
        sys::set_mount_attributes(dev.as_fd(), MountAttributes::READ_ONLY, false)
    };
    make().with_step(|| "creating /dev".to_owned())
}

/// Mounts a private devpts.
fn mount_terminals() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "ptmxmode", "0666")?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "0600")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Mounts `/proc` of the sandbox's pid namespace, read-only, because a command of root could change settings.
fn mount_proc() -> Result<(), HelperError> {
    let make = || -> io::Result<()> {
        let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        attach_mount(&proc, &open_mount_point(Path::new("/proc"))?)
    };
    make().with_step(|| "mounting /proc".to_owned())
}
