//! Sockets whose path is too long for the kernel, bound and connected through a short path.
//!
//! Linux: a descriptor of the directory and `/proc/self/fd/N/<name>`. Other systems: a short link in the temp
//! directory.
//! Invariant: a path of any length works (`a_socket_on_a_long_path_is_bound_and_reached`).

use std::io;
use std::path::{Path, PathBuf};

/// The longest socket path that the kernel accepts.
#[cfg(target_os = "linux")]
pub const MAX_SOCKET_PATH_BYTES: usize = 107;
#[cfg(not(target_os = "linux"))]
pub const MAX_SOCKET_PATH_BYTES: usize = 103;

/// A path that can be bound or connected while this value exists. Drop it after that: the socket no longer needs it.
#[derive(Debug)]
pub struct SocketPath {
    short_path: PathBuf,
    _alias: Option<DirAlias>,
}

impl SocketPath {
    pub fn for_socket(socket: &Path) -> io::Result<SocketPath> {
        if socket.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
            return Ok(SocketPath { short_path: socket.to_owned(), _alias: None });
        }
        let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a socket path needs a directory and a file name",
            ));
        };
        let keep = DirAlias::open_dir(directory)?;
        Ok(SocketPath { short_path: keep.alias_path().join(name), _alias: Some(keep) })
    }

    pub fn path(&self) -> &Path {
        &self.short_path
    }
}

/// An open directory, used through its descriptor.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct DirAlias(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl DirAlias {
    fn open_dir(directory: &Path) -> io::Result<DirAlias> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(DirAlias(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    fn alias_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// A link to the directory, removed on drop.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct DirAlias(PathBuf);

#[cfg(not(target_os = "linux"))]
impl DirAlias {
    fn open_dir(directory: &Path) -> io::Result<DirAlias> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static LINK_COUNT: AtomicU32 = AtomicU32::new(0);
        let count = LINK_COUNT.fetch_add(1, Ordering::Relaxed);
        let link = std::env::temp_dir().join(format!("mk{}-{count}", std::process::id()));
        match std::os::unix::fs::symlink(directory, &link) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // A killed process with the same pid left it.
                std::fs::remove_file(&link)?;
                std::os::unix::fs::symlink(directory, &link)?;
            }
            made => made?,
        }
        Ok(DirAlias(link))
    }

    fn alias_path(&self) -> PathBuf {
        self.0.clone()
    }
}

#[cfg(not(target_os = "linux"))]
impl Drop for DirAlias {
    fn drop(&mut self) {
        // A link that cannot be removed is harmless.
        drop(std::fs::remove_file(&self.0));
    }
}
