//! One host for each user: a lock, a file that says where it listens, and when it ends.
//!
//! Here: claiming the place (`host.lock` in the runtime directory), telling clients (`host.json`, 0600), serving until a
//! signal comes or nobody needs it, and starting one on demand. Elsewhere: what is served (`http`).
//! Invariants: one host at a time (`a_second_host_says_who_is_there`); a dead one's file is replaced
//! (`a_killed_hosts_place_is_taken`); the end of a host touches no pod (`a_host_that_ends_leaves_pods_alone`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_registry::Paths;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::http::{Door, Hosts, Token, serve};

const LOCK: &str = "host.lock";
const FILE: &str = "host.json";
/// The token alone, for scripts that hand a file to `curl`.
const TOKEN_FILE: &str = "host.token";
const LOG: &str = "host.log";
/// Who only looks whether the place is taken takes it for a moment: whoever wants it asks this often.
const CLAIMS: u32 = 10;
const CLAIM_EVERY: Duration = Duration::from_millis(10);
/// How often a host looks whether anybody needs it.
const TICK: Duration = Duration::from_millis(500);
/// How long one that was started on demand may take to listen.
const START_WAIT: Duration = Duration::from_secs(10);
const START_LOOK: Duration = Duration::from_millis(20);
/// Larger than any `host.json`.
const FILE_BYTES: u64 = 64 * 1024;

/// Where a host listens, and what lets a client in.
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

/// The place of the one host, held.
#[derive(Debug)]
pub struct Instance {
    /// Unlocked by the kernel, however this process ends.
    _lock: File,
    file: PathBuf,
    token_file: PathBuf,
}

impl Instance {
    /// Takes the place, or says who has it.
    pub fn claim(paths: &Paths) -> Result<Instance, HostError> {
        let path = paths.runtime.join(LOCK);
        let cannot = |what, path: &Path| {
            let path = path.to_owned();
            move |source| HostError::Io { what, path, source }
        };
        let lock = open_lock(&path).map_err(cannot("open", &path))?;
        for _ in 0..CLAIMS {
            match lock.try_lock() {
                Ok(()) => {
                    let (file, token_file) = (paths.runtime.join(FILE), paths.runtime.join(TOKEN_FILE));
                    // A host that was killed leaves these files behind.
                    for left in [&file, &token_file] {
                        match fs::remove_file(left) {
                            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                                return Err(cannot("remove", left)(e));
                            }
                            _ => {}
                        }
                    }
                    return Ok(Instance { _lock: lock, file, token_file });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(CLAIM_EVERY),
                Err(TryLockError::Error(e)) => return Err(cannot("lock", &path)(e)),
            }
        }
        Err(HostError::Taken { by: read(paths) })
    }

    /// Whether clients can find it.
    fn stands(&self) -> bool {
        self.file.exists()
    }

    fn hide(&self) {
        // If it cannot be removed it names a process that will hold no lock: clients see that.
        drop(fs::remove_file(&self.file));
        drop(fs::remove_file(&self.token_file));
    }

    /// Writes the token first: a client that finds `host.json` finds the token's file too.
    fn publish(&self, info: &HostInfo) -> Result<(), HostError> {
        let write = |path: &Path, text: &str| {
            replace_private(path, text)
                .map_err(|source| HostError::Io { what: "write", path: path.to_owned(), source })
        };
        let json = serde_json::to_string(info).map_err(io::Error::from);
        let json = json.map_err(|source| HostError::Io { what: "write", path: self.file.clone(), source })?;
        write(&self.token_file, &format!("{}\n", info.token))?;
        write(&self.file, &format!("{json}\n"))
    }
}

/// Replaces a file in one step; only the user can read it.
fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temp, path)
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.hide();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The host that runs, if one does.
pub fn running(paths: &Paths) -> Option<HostInfo> {
    let lock = File::open(paths.runtime.join(LOCK)).ok()?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => read(paths),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

fn read(paths: &Paths) -> Option<HostInfo> {
    let file = File::open(paths.runtime.join(FILE)).ok()?;
    serde_json::from_reader(io::Read::take(file, FILE_BYTES)).ok()
}

/// How a host is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// One that somebody chose; without it a new one is drawn.
    pub token: Option<Token>,
    /// The name by which a reverse proxy with TLS is reached.
    pub proxy: Option<String>,
    /// Ends after so long without anything to do; `None` never.
    pub idle: Option<Duration>,
}

/// Why a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Idle,
    Signal,
    /// Its file is gone, and nobody finds it any more.
    Lost,
}

/// Runs the host until a signal comes or nobody needs it. `ready` is told where it listens.
pub async fn run(
    engine: Engine,
    options: Options,
    ready: impl FnOnce(&HostInfo) -> Result<(), HostError>,
) -> Result<Ended, HostError> {
    if !options.listen.ip().is_loopback() && (options.token.is_none() || options.proxy.is_none()) {
        return Err(HostError::Open { listen: options.listen });
    }
    let paths = engine.home.paths.clone();
    let instance = Instance::claim(&paths)?;
    raise_descriptors();
    let cannot = |source| HostError::Listen { listen: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    let token = match options.token {
        Some(token) => token,
        None => Token::draw().map_err(|source| HostError::Random { source })?,
    };
    let info = HostInfo {
        address: bound.to_string(),
        token: token.reveal().to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token_file: instance.token_file.clone(),
    };
    // Before anybody is told: who reads the file may ask at once.
    let mut terminated = signal(SignalKind::terminate()).map_err(|source| HostError::Signals { source })?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|source| HostError::Signals { source })?;
    instance.publish(&info)?;
    ready(&info)?;
    let door = Arc::new(Door::new(engine.clone(), token, Hosts::of(bound, options.proxy.as_deref())));
    let (stop, stopped) = watch::channel(false);
    let keeping = tokio::spawn(crate::keeper::keep(engine.clone(), stopped.clone()));
    let mut serving = tokio::spawn(serve(listener, door.clone(), stopped));
    let ended = loop {
        tokio::select! {
            _ = terminated.recv() => break Ended::Signal,
            _ = interrupted.recv() => break Ended::Signal,
            () = tokio::time::sleep(TICK) => {
                engine.reap();
                if !instance.stands() {
                    break Ended::Lost;
                }
                if options.idle.is_some_and(|idle| door.metrics.idle() >= idle) && !engine.busy() {
                    break Ended::Idle;
                }
            }
        }
    };
    // Nobody finds it any more. A new one comes when this one does nothing any more, not before.
    instance.hide();
    stop.send_replace(true);
    drop((&mut serving).await);
    drop(keeping.await);
    drop(instance);
    Ok(ended)
}

/// As many descriptors as this process may have: each client that watches needs two. What cannot be had is not needed
/// until then.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The host that runs, or one that is started for the purpose: the running executable itself, on its own.
pub async fn ensure(paths: &Paths) -> Result<HostInfo, HostError> {
    let until = Instant::now() + START_WAIT;
    let mut started: Option<Child> = None;
    loop {
        if let Some(info) = running(paths) {
            return Ok(info);
        }
        let ended = match &mut started {
            Some(child) => child.try_wait().map_err(|source| HostError::Start { source })?,
            None => {
                started = Some(start(paths).map_err(|source| HostError::Start { source })?);
                None
            }
        };
        match ended {
            // Another one was faster, and is there in a moment; or is about to end, and then it is tried again.
            Some(status) if status.code() == Some(TAKEN) => started = None,
            Some(status) if running(paths).is_none() => {
                return Err(HostError::Died { status, log: paths.runtime.join(LOG) });
            }
            Some(_) | None => {}
        }
        if Instant::now() >= until {
            return Err(HostError::Silent { log: paths.runtime.join(LOG) });
        }
        tokio::time::sleep(START_LOOK).await;
    }
}

/// The exit code of a host whose place is taken.
const TAKEN: i32 = 75;

pub(crate) fn start(paths: &Paths) -> io::Result<Child> {
    let log = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(paths.runtime.join(LOG))?;
    let executable =
        if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { std::env::current_exe()? };
    Command::new(executable)
        .arg0("minke")
        .arg("host")
        // It holds on to no directory but its own, and ends with nobody.
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
        Some(info) => format!("a host runs already: process {} at {}", info.pid, info.address),
        None => "a host is just starting or ending".to_owned(),
    })]
    Taken { by: Option<HostInfo> },
    #[error("{listen} can be reached from other machines: that needs --token-file and --behind-proxy NAME")]
    Open { listen: SocketAddr },
    #[error("cannot listen on {listen}")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot draw a token from /dev/urandom")]
    Random { source: io::Error },
    #[error("cannot listen for signals")]
    Signals { source: io::Error },
    #[error("cannot say where the host listens: {why}")]
    Untold { why: String },
    #[error("cannot start a host")]
    Start { source: io::Error },
    #[error("the host died while it started ({status}); {} may say why", log.display())]
    Died { status: ExitStatus, log: PathBuf },
    #[error("the host did not listen within {} s; {} may say why", START_WAIT.as_secs(), log.display())]
    Silent { log: PathBuf },
}
