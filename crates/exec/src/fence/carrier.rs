//! The carrier: takes the pod's proxy to a loopback address of the fence's own net namespace.
//!
//! Here: loopback brought up, a listener, bytes carried both ways. It is a process of the fence's pid namespace outside
//! the command's Landlock domain: the command can neither reach the proxy's socket itself nor touch this process.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};

use super::compile::PROXY_PORT;
use super::sys::{self, Forked};

/// Connections that are carried at once. More are closed at once: the command may try again.
const CONNECTIONS: usize = 128;

/// The way to the proxy, opened while its socket can still be seen.
pub(super) struct Carrier {
    socket: OwnedFd,
    listener: TcpListener,
}

impl Carrier {
    /// The proxy's socket as a place, to be connected to when its path is masked.
    pub(super) fn open_socket(socket: &Path) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Listens on the loopback address, which must be up.
    pub(super) fn on(socket: OwnedFd) -> io::Result<Carrier> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
        Ok(Carrier { socket, listener })
    }

    /// Forks the carrying process.
    pub(super) fn launch(self) -> io::Result<()> {
        match sys::fork()? {
            Forked::Parent(_) => Ok(()),
            Forked::Child => {
                self.carry();
                sys::leave(0)
            }
        }
    }

    fn carry(self) {
        // Through the descriptor: the path is masked by now.
        let proxy: Arc<Path> = Path::new(&format!("/proc/self/fd/{}", self.socket.as_raw_fd())).into();
        let carried = Arc::new(AtomicUsize::new(0));
        for near in self.listener.incoming() {
            let Ok(near) = near else { continue };
            if carried.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                carried.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (proxy, done) = (Arc::clone(&proxy), Arc::clone(&carried));
            let carrying = std::thread::Builder::new().spawn(move || {
                // A connection that breaks is closed on both sides; that is how its ends hear of it.
                let _broken = carry_one(&near, &proxy);
                done.fetch_sub(1, Ordering::Relaxed);
            });
            if carrying.is_err() {
                carried.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn carry_one(near: &TcpStream, proxy: &Path) -> io::Result<()> {
    let far = UnixStream::connect(proxy)?;
    let (mut near_in, mut far_out) = (near.try_clone()?, far.try_clone()?);
    let there = std::thread::Builder::new().spawn(move || {
        let carried = io::copy(&mut near_in, &mut far_out);
        let closed = far_out.shutdown(Shutdown::Write);
        carried.and(closed)
    })?;
    let (mut far_in, mut near_out) = (far.try_clone()?, near.try_clone()?);
    let carried = io::copy(&mut far_in, &mut near_out);
    near_out.shutdown(Shutdown::Write)?;
    let _other_way = there.join();
    carried.map(drop)
}
