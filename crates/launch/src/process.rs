//! Launches a pod: runs the current executable with the locked session lease and a socket pair, on which a
//! child gets its ticket and the pod sends `ready` or one line with an error.
//!
//! Elsewhere: taking the lease (`deliver`, or the creator of the session), the boot of the pod
//! (`driver::boot`).
//! Invariant: a failed launch leaves no process (`a_pod_that_cannot_start_says_why_and_leaves_nothing`).

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_record::{ErrorCode, PodName, SessionId};
use minke_registry::{RegistryError, RuntimeDir, ScopeTicket, UserPaths};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::inherit::inherit_fds;

/// A pod is ready within milliseconds; after this time (a dying disk) it counts as hanging.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of the pod's line.
const READY_LINE_BYTES: u64 = 64 * 1024;
/// The shown part of a failed pod's stderr: its end, which contains the reason.
const MAX_STDERR_BYTES: u64 = 4 * 1024;
const MAX_STDERR_LINES: usize = 10;
/// Disk space reserved for a pod's last output: some lines, or a panic with its backtrace.
#[cfg(target_os = "linux")]
const STDERR_RESERVE_BYTES: u64 = 16 * 1024;
/// The polling interval for the exit, which follows the close of the socket within a millisecond.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The line that a pod sends to its launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyLine {
    Ready(PodReady),
    Failed(PodStartFailure),
}

/// The pod accepts methods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReady {
    pub name: PodName,
    pub socket: PathBuf,
}

/// The pod could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStartFailure {
    pub code: ErrorCode,
    pub message: String,
    /// A hint for the user, if the pod has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A pod that was started here and is ready. After a drop, a detached pod keeps running; a bound one finishes
/// its work and exits.
#[derive(Debug)]
pub struct LaunchedPod {
    pub ready: PodReady,
    child: Child,
    /// A bound pod exits when this end is closed.
    _lifetime_socket: Option<StdUnixStream>,
}

impl LaunchedPod {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process, for a caller that waits for it.
    pub fn into_child(self) -> Child {
        self.child
    }

    /// Terminates the process as a reboot does: its run can be resumed.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Kills the process. Nothing on disk depends on an orderly exit.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for the exit, at most for `patience`; `None` if it is still running.
    pub async fn wait_exit(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= until => return Ok(None),
                None => tokio::time::sleep(EXIT_POLL_INTERVAL).await,
            }
        }
    }
}

/// The lifetime of a pod relative to the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLifetime {
    /// It keeps running as long as its manifest says.
    Detached,
    /// It finishes its work and exits.
    BoundToLauncher,
}

/// Starts a pod for a session whose lease is held here, and waits until it is ready.
pub async fn launch_pod(
    paths: &UserPaths,
    session: SessionId,
    lease: OwnedFd,
    lifetime: PodLifetime,
) -> Result<LaunchedPod, LaunchError> {
    PodLaunch { paths, session, lease, ticket: None, lifetime, timeout: READY_TIMEOUT }.start_pod().await
}

/// The parameters of a launch.
pub struct PodLaunch<'a> {
    pub paths: &'a UserPaths,
    pub session: SessionId,
    /// The locked session lease.
    pub lease: OwnedFd,
    /// The ticket for the loan of a child.
    pub ticket: Option<ScopeTicket>,
    pub lifetime: PodLifetime,
    /// The timeout until the pod is ready.
    pub timeout: Duration,
}

impl PodLaunch<'_> {
    /// Starts the pod and waits until it is ready. After a failure no process is left.
    pub async fn start_pod(self) -> Result<LaunchedPod, LaunchError> {
        spawn_and_wait(self).await
    }
}

async fn spawn_and_wait(launch: PodLaunch<'_>) -> Result<LaunchedPod, LaunchError> {
    let PodLaunch { paths, session, lease, ticket, lifetime, timeout } = launch;
    let failed = |what| move |source| LaunchError::Io { what, session, source };
    let log = RuntimeDir::new(paths).starting_log(session)?;
    let stderr = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log)
        .map_err(failed("open the stderr file of"))?;
    reserve_space(&stderr);
    let (mut ours, theirs) = StdUnixStream::pair().map_err(failed("create a socket pair for"))?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(current_executable().map_err(failed("find the executable of"))?);
    command
        .arg0("minke")
        .args(["pod", "--session", &session.to_string()])
        .args(["--lease-fd", &lease.as_raw_fd().to_string()])
        .args(["--ready-fd", &theirs.as_raw_fd().to_string()])
        .args(ticket.as_ref().map(|_| "--ticket"))
        .args((lifetime == PodLifetime::BoundToLauncher).then_some("--bound"))
        // A pod keeps no directory open but its own.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr));
    inherit_fds(&mut command, [&lease, &theirs]);
    if let Some(ticket) = ticket {
        // It fits the socket buffer, so this never blocks.
        ours.write_all(format!("{}\n", ticket.to_hex()).as_bytes()).map_err(failed("pass a ticket to"))?;
    }
    let bond = match lifetime {
        PodLifetime::Detached => None,
        PodLifetime::BoundToLauncher => Some(ours.try_clone().map_err(failed("bind"))?),
    };
    let mut child = command.spawn().map_err(failed("start the process of"))?;
    // From here on only the child holds them: if it dies, the lease is free and the socket pair is closed.
    drop((lease, theirs));
    match wait_for_ready(ours, timeout).await {
        Ok(Some(ReadyLine::Ready(ready))) => Ok(LaunchedPod { ready, child, _lifetime_socket: bond }),
        Ok(Some(ReadyLine::Failed(why))) => {
            end_process(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::Failed { session, why, said: take_stderr(&log) })
        }
        Ok(None) => {
            let status = end_process(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::Exited { session, status, said: take_stderr(&log) })
        }
        Err(source) => {
            end_process(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::NotReady { session, source, said: take_stderr(&log) })
        }
    }
}

/// Reserves disk space for a pod's last output, so that it can be written when the disk is full. Failures are
/// ignored: the output is then written as far as there is space.
fn reserve_space(stderr: &fs::File) {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(stderr, rustix::fs::FallocateFlags::KEEP_SIZE, 0, STDERR_RESERVE_BYTES) {
        Ok(()) | Err(_) => {}
    }
    #[cfg(not(target_os = "linux"))]
    drop(stderr.metadata());
}

/// The running executable itself, even if an upgrade has replaced the file since.
fn current_executable() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// The pod's line; `None` if it exited without one.
async fn wait_for_ready(ours: StdUnixStream, patience: Duration) -> io::Result<Option<ReadyLine>> {
    ours.set_nonblocking(true)?;
    let mut line = String::new();
    let mut reader = BufReader::new(UnixStream::from_std(ours)?.take(READY_LINE_BYTES));
    match timeout(patience, reader.read_line(&mut line)).await {
        Err(_) => {
            let seconds = patience.as_secs();
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {seconds} s")))
        }
        // A pod that is killed with unread bytes on its end resets the socket pair.
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Ok(Err(e)) => Err(e),
        Ok(Ok(_)) if !line.ends_with('\n') => Ok(None),
        Ok(Ok(_)) => serde_json::from_str(&line).map(Some).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("could not read its first line: {e}"))
        }),
    }
}

/// Ensures that no process is left, and returns its exit status.
fn end_process(child: &mut Child) -> io::Result<ExitStatus> {
    // A pod that has sent its error is about to exit, but it may hang there, and a launcher must not leave it
    // behind. Its log needs no orderly exit.
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    // Kills its process group too: it may have started other processes.
    match kill_process_group(Pid::from_child(child), Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => return Err(e.into()),
    }
    child.wait()
}

/// The last lines that the pod wrote before it had its own directory; then removes the file.
fn take_stderr(log: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_STDERR_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(MAX_STDERR_BYTES).read_to_end(&mut bytes)?;
        fs::remove_file(log)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines.iter().skip(lines.len().saturating_sub(MAX_STDERR_LINES)).map(ToString::to_string).collect()
        }
        // The pod has created its own directory and redirected its stderr there.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => vec![format!("(could not read its stderr in {}: {e})", log.display())],
    }
}

/// The reason why a pod did not start. Its session is unchanged.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("could not {what} the pod of session {session}")]
    Io { what: &'static str, session: SessionId, source: io::Error },
    #[error("the pod of session {session} could not start: {}", .why.message)]
    Failed { session: SessionId, why: PodStartFailure, said: Vec<String> },
    #[error("the pod of session {session} died while it started ({status})")]
    Exited { session: SessionId, status: ExitStatus, said: Vec<String> },
    #[error("the pod of session {session} did not become ready")]
    NotReady { session: SessionId, source: io::Error, said: Vec<String> },
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl LaunchError {
    /// The last lines of the pod's stderr.
    pub fn stderr_lines(&self) -> &[String] {
        match self {
            LaunchError::Failed { said, .. }
            | LaunchError::Exited { said, .. }
            | LaunchError::NotReady { said, .. } => said,
            LaunchError::Io { .. } | LaunchError::Registry(_) => &[],
        }
    }
}
