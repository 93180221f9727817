//! Sockets whose path is too long for the kernel, bound and reached through a short one.
//!
//! Linux: a descriptor of the directory and `/proc/self/fd/N/<name>`. Elsewhere: a short link in the temp directory.
//! Invariant: any path works (`a_socket_on_a_long_path_is_bound_and_reached`).

use std::io;
use std::path::{Path, PathBuf};

/// The longest path of a socket that the kernel takes.
#[cfg(target_os = "linux")]
pub const SOCKET_PATH_BYTES: usize = 107;
#[cfg(not(target_os = "linux"))]
pub const SOCKET_PATH_BYTES: usize = 103;

/// A path that can be bound or connected to as long as this value lives. Drop it once the socket is bound or
/// connected: the socket does not need it any more.
#[derive(Debug)]
pub struct SocketPath {
    usable: PathBuf,
    _keep: Option<Keep>,
}

impl SocketPath {
    pub fn to(socket: &Path) -> io::Result<SocketPath> {
        if socket.as_os_str().len() <= SOCKET_PATH_BYTES {
            return Ok(SocketPath { usable: socket.to_owned(), _keep: None });
        }
        let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a directory and a name"));
        };
        let keep = Keep::open(directory)?;
        Ok(SocketPath { usable: keep.path().join(name), _keep: Some(keep) })
    }

    pub fn path(&self) -> &Path {
        &self.usable
    }
}

/// An open directory, reached by its descriptor.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Keep(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Keep {
    fn open(directory: &Path) -> io::Result<Keep> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Keep(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// A link to the directory, removed with this value.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Keep(PathBuf);

#[cfg(not(target_os = "linux"))]
impl Keep {
    fn open(directory: &Path) -> io::Result<Keep> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let link = std::env::temp_dir().join(format!("mk{}-{count}", std::process::id()));
        match std::os::unix::fs::symlink(directory, &link) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // Left behind by a killed process that had our pid.
                std::fs::remove_file(&link)?;
                std::os::unix::fs::symlink(directory, &link)?;
            }
            made => made?,
        }
        Ok(Keep(link))
    }

    fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

#[cfg(not(target_os = "linux"))]
impl Drop for Keep {
    fn drop(&mut self) {
        // A link that cannot be removed is harmless, and nobody is left to be told.
        drop(std::fs::remove_file(&self.0));
    }
}
