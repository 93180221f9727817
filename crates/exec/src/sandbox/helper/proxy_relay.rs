//! Relays a loopback address in the sandbox's network namespace to the pod's proxy.
//!
//! Here: bringing loopback up, the listener, copying bytes in both directions. The relay is a process in the sandbox's
//! pid namespace but outside the command's Landlock domain, so the command can neither reach the proxy socket nor this
//! process.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};

use super::super::compile::PROXY_PORT;
use super::super::sys::{self, ForkResult};

/// The most connections at once. Further ones are closed, and the client may retry.
const MAX_CONNECTIONS: usize = 128;

/// The relay to the proxy; opened before the socket's path is masked.
pub(in crate::sandbox) struct ProxyRelay {
    socket: OwnedFd,
    listener: TcpListener,
}

impl ProxyRelay {
    /// Opens the proxy's socket, so that it can be connected to after its path is masked.
    pub(in crate::sandbox) fn open_socket(socket: &Path) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Listens on the loopback address, which must be up.
    pub(in crate::sandbox) fn listen_on_loopback(socket: OwnedFd) -> io::Result<ProxyRelay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
        Ok(ProxyRelay { socket, listener })
    }

    /// Forks the relay process.
    pub(in crate::sandbox) fn fork_relay(self) -> io::Result<()> {
        match sys::fork_process()? {
            ForkResult::Parent(_) => Ok(()),
            ForkResult::Child => {
                self.relay_connections();
                sys::exit_now(0)
            }
        }
    }

    fn relay_connections(self) {
        // Connect through the descriptor: the path is masked by now.
        let proxy: Arc<Path> = Path::new(&format!("/proc/self/fd/{}", self.socket.as_raw_fd())).into();
        let carried = Arc::new(AtomicUsize::new(0));
        for near in self.listener.incoming() {
            let Ok(near) = near else { continue };
            if carried.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                carried.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (proxy, done) = (Arc::clone(&proxy), Arc::clone(&carried));
            let carrying = std::thread::Builder::new().spawn(move || {
                // An error closes both sides, which is how the peers notice it.
                let _broken = relay_connection(&near, &proxy);
                done.fetch_sub(1, Ordering::Relaxed);
            });
            if carrying.is_err() {
                carried.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn relay_connection(near: &TcpStream, proxy: &Path) -> io::Result<()> {
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
