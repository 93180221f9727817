//! The pod's proxy: the only network access of a sandbox, if the user granted hosts (`sandbox.network`).
//!
//! Here: its socket, its connections and their limits. In this folder: parsing requests (`head`), request bodies
//! (`body`), one connection (`exchange`), copying and counting bytes (`relay`). Elsewhere: hosts and addresses
//! (`address`), how a sandbox reaches the socket (`sandbox`), where tallies are logged (`driver`).
//! Invariants: a host is parsed once, resolved once, and connected to at the checked address
//! (`a_rebinding_resolver_is_asked_once`); only one request of a connection reaches a server
//! (`a_second_request_in_the_same_bytes_goes_nowhere`); every connection with a request is reported
//! (`every_request_is_told_with_its_bytes`).

mod body;
mod exchange;
mod head;
mod relay;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::address::{Dialer, HostRules};

/// How long the proxy pauses when no descriptor is left for another connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Only the pod's own user may connect.
const SOCKET_MODE: u32 = 0o600;

/// The settings of a proxy.
pub struct ProxySettings {
    pub rules: HostRules,
    pub dialer: Dialer,
    pub limits: ProxyLimits,
    /// Called when a connection with a request has ended. Must not block.
    pub on_closed: Arc<dyn Fn(ConnectionTally) + Send + Sync>,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections at once: package managers open dozens.
    pub connections: usize,
    /// The timeout for receiving the head of a request.
    pub head: Duration,
    /// The timeout without a byte in either direction.
    pub idle: Duration,
    /// The total timeout.
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

/// The report of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionTally {
    /// The parsed host; empty if the request did not name one.
    pub host: String,
    pub port: u16,
    /// Bytes to the host.
    pub up: u64,
    /// Bytes from the host.
    pub down: u64,
    /// Whether rules and address allowed it.
    pub allowed: bool,
    /// Why it was refused, or how it ended.
    pub why: String,
}

/// A listening proxy. Dropping it ends all its connections.
pub struct Proxy {
    socket: PathBuf,
    /// Device and inode of the socket, because another proxy may have replaced it.
    identity: (u64, u64),
    stop: Option<oneshot::Sender<()>>,
    accept_task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a socket at this path, in a directory of the pod. Replaces a socket of an earlier process. Requires a
    /// tokio runtime.
    pub fn start_proxy(socket: &Path, settings: ProxySettings) -> io::Result<Proxy> {
        let (listener, identity) = bind_socket(socket).map_err(|e| {
            let what = format!("could not open the proxy's socket {}: {e}", socket.display());
            io::Error::new(e.kind(), what)
        })?;
        let (stop, stopped) = oneshot::channel();
        let accept_task = tokio::spawn(accept_connections(listener, Arc::new(settings), stopped));
        Ok(Proxy { socket: socket.to_owned(), identity, stop: Some(stop), accept_task })
    }

    pub fn socket_path(&self) -> &Path {
        &self.socket
    }

    /// Ends and reports every connection, and removes the socket.
    pub async fn stop_proxy(mut self) {
        drop(self.stop.take());
        // The panic hook has already reported a panic in it.
        let _ = (&mut self.accept_task).await;
    }

    fn remove_socket(&self) {
        // Removed only if it is still this proxy's socket. If that fails, the next start replaces it.
        if fs::symlink_metadata(&self.socket).is_ok_and(|found| file_identity(&found) == self.identity) {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept_task.abort();
        self.remove_socket();
    }
}

fn file_identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Binds a socket under a temporary name and renames it, so that no client connects before its mode is set.
fn bind_socket(socket: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let beside = socket.with_extension("new");
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&beside)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(SOCKET_MODE))?;
    let identity = file_identity(&fs::symlink_metadata(&beside)?);
    fs::rename(&beside, socket)?;
    Ok((UnixListener::from_std(listener)?, identity))
}

async fn accept_connections(
    listener: UnixListener,
    settings: Arc<ProxySettings>,
    mut stopped: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(settings.limits.connections));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // A closed channel means stop; no value is sent.
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if !is_same_user(&client) => {}
                Ok((client, _)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let settings = settings.clone();
                        connections.spawn(async move {
                            exchange::serve_connection(client, &settings).await;
                            drop(place);
                        });
                    }
                    Err(_) => exchange::reject_busy(&client, &settings),
                },
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            },
        }
    }
    connections.shutdown().await;
}

/// Whether the client is a process of the same user.
fn is_same_user(client: &UnixStream) -> bool {
    client.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}
