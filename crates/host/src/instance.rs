//! The host process: one for each user, with a lock, a file with its address, and an idle timeout.
//!
//! Here: taking the lock (`host.lock` in the runtime directory), publishing the address (`host.json`, 0600), serving
//! until a signal or the idle timeout, and starting a host on demand. Elsewhere: the server (`http`).
//! Invariants: one host at a time (`a_second_host_says_who_is_there`); a dead host's file is replaced
//! (`a_killed_hosts_place_is_taken`); a host that exits does not affect pods (`a_host_that_ends_leaves_pods_alone`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_registry::UserPaths;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::http::{AllowedHosts, BearerToken, HttpServer, serve_http};

const LOCK_FILE: &str = "host.lock";
const INFO_FILE: &str = "host.json";
/// The file with the token alone, for scripts that pass a file to `curl`.
const TOKEN_FILE: &str = "host.token";
const LOG_FILE: &str = "host.log";
/// A process that only checks the lock takes it for a moment, so a host tries this often.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How often a host checks whether it is still needed.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a host that was started on demand may take to listen.
const START_WAIT: Duration = Duration::from_secs(10);
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Larger than any `host.json`.
const MAX_INFO_BYTES: u64 = 64 * 1024;

/// The address of a host, and its token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    pub address: String,
    pub token: String,
    pub pid: u32,
    pub version: String,
    /// The file that contains the token and nothing else. Hosts before this field wrote none.
    #[serde(default)]
    pub token_file: PathBuf,
}

impl std::fmt::Debug for HostInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host {} at {}", self.pid, self.address)
    }
}

/// The lock of the running host.
#[derive(Debug)]
pub struct InstanceLock {
    /// The kernel unlocks it, even if the process is killed.
    _lock: File,
    info_file: PathBuf,
    token_file: PathBuf,
}

impl InstanceLock {
    /// Takes the lock, or returns the running host as an error.
    pub fn acquire(paths: &UserPaths) -> Result<InstanceLock, HostError> {
        let path = paths.runtime.join(LOCK_FILE);
        let cannot = |what, path: &Path| {
            let path = path.to_owned();
            move |source| HostError::Io { what, path, source }
        };
        let lock = open_lock(&path).map_err(cannot("open", &path))?;
        for _ in 0..LOCK_ATTEMPTS {
            match lock.try_lock() {
                Ok(()) => {
                    let (info_file, token_file) =
                        (paths.runtime.join(INFO_FILE), paths.runtime.join(TOKEN_FILE));
                    // A killed host leaves these files.
                    for left in [&info_file, &token_file] {
                        match fs::remove_file(left) {
                            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                                return Err(cannot("remove", left)(e));
                            }
                            _ => {}
                        }
                    }
                    return Ok(InstanceLock { _lock: lock, info_file, token_file });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
                Err(TryLockError::Error(e)) => return Err(cannot("lock", &path)(e)),
            }
        }
        Err(HostError::AlreadyRunning { by: read_info(paths) })
    }

    /// Returns whether clients can find this host.
    fn is_published(&self) -> bool {
        self.info_file.exists()
    }

    fn unpublish(&self) {
        // If it cannot be removed, clients still see that no process holds the lock.
        drop(fs::remove_file(&self.info_file));
        drop(fs::remove_file(&self.token_file));
    }

    /// Writes the token first: a client that finds `host.json` also finds the token file.
    fn publish(&self, info: &HostInfo) -> Result<(), HostError> {
        let write = |path: &Path, text: &str| {
            replace_private(path, text).map_err(|source| HostError::Io {
                what: "write",
                path: path.to_owned(),
                source,
            })
        };
        let json = serde_json::to_string(info).map_err(io::Error::from);
        let json =
            json.map_err(|source| HostError::Io { what: "write", path: self.info_file.clone(), source })?;
        write(&self.token_file, &format!("{}\n", info.token))?;
        write(&self.info_file, &format!("{json}\n"))
    }
}

/// Replaces a file atomically; only the user can read it.
fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temp, path)
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        self.unpublish();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Returns the running host, if there is one.
pub fn find_running(paths: &UserPaths) -> Option<HostInfo> {
    let lock = File::open(paths.runtime.join(LOCK_FILE)).ok()?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => read_info(paths),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

fn read_info(paths: &UserPaths) -> Option<HostInfo> {
    let file = File::open(paths.runtime.join(INFO_FILE)).ok()?;
    serde_json::from_reader(io::Read::take(file, MAX_INFO_BYTES)).ok()
}

/// The options of a host.
#[derive(Debug, Clone)]
pub struct HostOptions {
    pub listen: SocketAddr,
    /// A token chosen by the user; by default a random one.
    pub token: Option<BearerToken>,
    /// The name of a reverse proxy with TLS.
    pub proxy: Option<String>,
    /// The idle time after which the host exits; `None`: never.
    pub idle_timeout: Option<Duration>,
}

/// Why a host exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostExit {
    Idle,
    Signal,
    /// Its file was removed, so clients cannot find it.
    InfoFileLost,
}

/// Runs the host until a signal or the idle timeout. Passes its address to `ready`.
pub async fn run_host(
    engine: Engine,
    options: HostOptions,
    ready: impl FnOnce(&HostInfo) -> Result<(), HostError>,
) -> Result<HostExit, HostError> {
    if !options.listen.ip().is_loopback() && (options.token.is_none() || options.proxy.is_none()) {
        return Err(HostError::NotLoopback { listen: options.listen });
    }
    let paths = engine.home.paths.clone();
    let instance = InstanceLock::acquire(&paths)?;
    raise_descriptor_limit();
    let cannot = |source| HostError::Listen { listen: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    let token = match options.token {
        Some(token) => token,
        None => BearerToken::generate().map_err(|source| HostError::Random { source })?,
    };
    let info = HostInfo {
        address: bound.to_string(),
        token: token.reveal().to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token_file: instance.token_file.clone(),
    };
    // Before the address is published: a client may connect at once.
    let mut terminated = signal(SignalKind::terminate()).map_err(|source| HostError::Signals { source })?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|source| HostError::Signals { source })?;
    instance.publish(&info)?;
    ready(&info)?;
    let door = Arc::new(HttpServer::new(
        engine.clone(),
        token,
        AllowedHosts::for_address(bound, options.proxy.as_deref()),
    ));
    let (stop, stopped) = watch::channel(false);
    let keeping = tokio::spawn(crate::jobs::scheduler::run_scheduler(engine.clone(), stopped.clone()));
    let mut serving = tokio::spawn(serve_http(listener, door.clone(), stopped));
    let ended = loop {
        tokio::select! {
            _ = terminated.recv() => break HostExit::Signal,
            _ = interrupted.recv() => break HostExit::Signal,
            () = tokio::time::sleep(IDLE_CHECK_INTERVAL) => {
                engine.reap_children();
                if !instance.is_published() {
                    break HostExit::InfoFileLost;
                }
                if options.idle_timeout.is_some_and(|idle| door.metrics.idle_time() >= idle) && !engine.has_work() {
                    break HostExit::Idle;
                }
            }
        }
    };
    // The host hides itself first and ends its work. A new host starts only after that.
    instance.unpublish();
    stop.send_replace(true);
    drop((&mut serving).await);
    drop(keeping.await);
    drop(instance);
    Ok(ended)
}

/// Raises the limit of file descriptors to its maximum: each subscriber needs two. A failure matters only when they are
/// used up.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the running host, or starts one as a separate process of the same executable.
pub async fn ensure_running(paths: &UserPaths) -> Result<HostInfo, HostError> {
    let until = Instant::now() + START_WAIT;
    let mut started: Option<Child> = None;
    loop {
        if let Some(info) = find_running(paths) {
            return Ok(info);
        }
        let ended = match &mut started {
            Some(child) => child.try_wait().map_err(|source| HostError::Start { source })?,
            None => {
                started = Some(spawn_host(paths).map_err(|source| HostError::Start { source })?);
                None
            }
        };
        match ended {
            // Another process was faster and is about to listen; or it is about to exit, and then the start is
            // repeated.
            Some(status) if status.code() == Some(ALREADY_RUNNING_EXIT_CODE) => started = None,
            Some(status) if find_running(paths).is_none() => {
                return Err(HostError::ExitedEarly { status, log: paths.runtime.join(LOG_FILE) });
            }
            Some(_) | None => {}
        }
        if Instant::now() >= until {
            return Err(HostError::StartTimedOut { log: paths.runtime.join(LOG_FILE) });
        }
        tokio::time::sleep(START_POLL_INTERVAL).await;
    }
}

/// The exit code of a host that finds another one running.
const ALREADY_RUNNING_EXIT_CODE: i32 = 75;

pub(crate) fn spawn_host(paths: &UserPaths) -> io::Result<Child> {
    let log = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(paths.runtime.join(LOG_FILE))?;
    let executable =
        if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { std::env::current_exe()? };
    Command::new(executable)
        .arg0("minke")
        .arg("host")
        // It uses no directory of its parent, and outlives it.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .spawn()
}

/// Why there is no host.
#[derive(Debug, Error)]
pub enum HostError {
    #[error("{}", match by {
        Some(info) => format!("a host is already running: process {} at {}", info.pid, info.address),
        None => "a host is just starting or exiting".to_owned(),
    })]
    AlreadyRunning { by: Option<HostInfo> },
    #[error("other machines can reach {listen}: use --token-file and --behind-proxy NAME")]
    NotLoopback { listen: SocketAddr },
    #[error("could not listen on {listen}")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error("could not {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("could not read a token from /dev/urandom")]
    Random { source: io::Error },
    #[error("could not install signal handlers")]
    Signals { source: io::Error },
    #[error("could not report the address of the host: {why}")]
    AnnounceFailed { why: String },
    #[error("could not start a host")]
    Start { source: io::Error },
    #[error("the host exited during its start ({status}); see {}", log.display())]
    ExitedEarly { status: ExitStatus, log: PathBuf },
    #[error("the host did not listen within {} s; see {}", START_WAIT.as_secs(), log.display())]
    StartTimedOut { log: PathBuf },
}
