//! The pod's proxy: the only way from a fence to the network, if a person granted hosts (`sandbox.network`).
//!
//! Here: its socket, its connections and their limits. Beneath: what a request says (`head`), its body (`body`), one
//! connection from its head to its end (`exchange`), the bytes that were carried (`carry`). Elsewhere: which hosts and
//! addresses (`address`), how a fence reaches the socket (`fence`), who writes down the tallies (`driver`).
//! Invariant: a host is read once, asked for once and dialled where it was checked
//! (`a_rebinding_resolver_is_asked_once`); nothing but the one request of a connection reaches a server
//! (`a_second_request_in_the_same_bytes_goes_nowhere`); every connection that asked for something is told
//! (`every_request_is_told_with_its_bytes`).

mod body;
mod carry;
mod exchange;
mod head;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::address::{HostRules, Outside};

/// How long the proxy rests when the machine has no descriptor left for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// Only the pod's own user speaks to it.
const SOCKET_MODE: u32 = 0o600;

/// What a proxy lets pass, and how it gets there.
pub struct ProxySettings {
    pub rules: HostRules,
    pub outside: Outside,
    pub limits: ProxyLimits,
    /// Hears of every connection that asked for something, when it is over. Must not wait.
    pub tell: Arc<dyn Fn(Tally) + Send + Sync>,
}

/// How much and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections at once: package managers open some dozens.
    pub connections: usize,
    /// The longest that a request may take to say what it wants.
    pub head: Duration,
    /// The longest without a byte in either direction.
    pub idle: Duration,
    /// The longest of all.
    pub total: Duration,
}

impl Default for ProxyLimits {
    fn default() -> ProxyLimits {
        ProxyLimits {
            connections: 128,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(180),
            total: Duration::from_secs(2 * 60 * 60),
        }
    }
}

/// What a connection came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The host as it was understood; empty if the request did not get as far as naming one.
    pub host: String,
    pub port: u16,
    /// Bytes to the host.
    pub up: u64,
    /// Bytes from the host.
    pub down: u64,
    /// Whether rules and address let it pass.
    pub allowed: bool,
    /// Why not, or how it ended.
    pub why: String,
}

/// A proxy that listens. Dropping it ends it with all its connections.
pub struct Proxy {
    socket: PathBuf,
    /// Device and inode of our socket: another proxy may have taken the path since.
    identity: (u64, u64),
    stop: Option<oneshot::Sender<()>>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a socket at this path, whose directory is the pod's own. What stands there from an earlier life is
    /// replaced. Needs a running runtime.
    pub fn start(socket: &Path, settings: ProxySettings) -> io::Result<Proxy> {
        let (listener, identity) = listen(socket).map_err(|e| {
            let what = format!("cannot open the proxy's socket {}: {e}", socket.display());
            io::Error::new(e.kind(), what)
        })?;
        let (stop, stopped) = oneshot::channel();
        let listening = tokio::spawn(serve(listener, Arc::new(settings), stopped));
        Ok(Proxy { socket: socket.to_owned(), identity, stop: Some(stop), listening })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends every connection, tells what they came to, and takes the socket away.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        // A panic in it has already been told by whoever hears panics.
        let _ = (&mut self.listening).await;
    }

    fn remove_socket(&self) {
        // Removed only while it is still ours; if that cannot be said or done, the next start replaces it.
        if fs::symlink_metadata(&self.socket).is_ok_and(|found| identity(&found) == self.identity) {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.remove_socket();
    }
}

fn identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Binds beside the path and moves the socket there, so that nobody meets it before its mode is set.
fn listen(socket: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let beside = socket.with_extension("new");
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&beside)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(SOCKET_MODE))?;
    let identity = identity(&fs::symlink_metadata(&beside)?);
    fs::rename(&beside, socket)?;
    Ok((UnixListener::from_std(listener)?, identity))
}

async fn serve(listener: UnixListener, settings: Arc<ProxySettings>, mut stopped: oneshot::Receiver<()>) {
    let places = Arc::new(Semaphore::new(settings.limits.connections));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Its sender is never used: whichever way it goes, it is over.
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if !is_ours(&client) => {}
                Ok((client, _)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let settings = settings.clone();
                        connections.spawn(async move {
                            exchange::serve(client, &settings).await;
                            drop(place);
                        });
                    }
                    Err(_) => exchange::turn_away(&client, &settings),
                },
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    connections.shutdown().await;
}

/// Whether the other end is a process of the same user: nobody else has a business with this pod's network.
fn is_ours(client: &UnixStream) -> bool {
    client.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}
