//! Launching a pod: the running executable itself, with the locked session lease and a socket pair on which it gets its
//! ticket, if it is a child, and says `ready` or one line of failure.
//!
//! Elsewhere: taking the lease (`deliver`, or whoever creates the session), what the pod does then (`driver::boot`).
//! Invariant: a launch that fails leaves no process behind (`a_pod_that_cannot_start_says_why_and_leaves_nothing`).

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
use minke_registry::{Paths, RegistryError, Runtime, Ticket};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::inherit::inherit;

/// A pod is ready in milliseconds; one that needs this long (a dying disk) is taken for one that hangs.
const READY_WAIT: Duration = Duration::from_secs(30);
/// The line that a pod answers with is short.
const READY_LINE_BYTES: u64 = 64 * 1024;
/// What is shown of a failed pod's stderr: its end, where the reason stands.
const STDERR_BYTES: u64 = 4 * 1024;
const STDERR_LINES: usize = 10;
/// Room for the last words of a pod: some lines, or a panic with its backtrace.
#[cfg(target_os = "linux")]
const LAST_WORDS_BYTES: u64 = 16 * 1024;
/// How often a process that is about to end is looked at: it does so within a millisecond of closing its socket.
const ENDED_RETRY: Duration = Duration::from_millis(1);

/// The one line that a pod sends to its launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyLine {
    Ready(Ready),
    Failed(Failed),
}

/// The pod takes methods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub name: PodName,
    pub socket: PathBuf,
}

/// The pod could not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub code: ErrorCode,
    pub message: String,
    /// What a person can do about it, where the pod knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A pod that was started here and is ready. Dropping this leaves a free pod alone; one that is bound finishes what it
/// does and ends.
#[derive(Debug)]
pub struct Launched {
    pub ready: Ready,
    child: Child,
    /// The pod of this process: it sees when this end is closed.
    _bond: Option<StdUnixStream>,
}

impl Launched {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process, for whoever waits for it.
    pub fn into_child(self) -> Child {
        self.child
    }

    /// Asks the process to end as a reboot does: its run can be resumed.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Ends the process at once. Nothing on disk depends on an orderly end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits until the process has ended, at most for `patience`; `None` if it is still there.
    pub async fn ended_within(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= until => return Ok(None),
                None => tokio::time::sleep(ENDED_RETRY).await,
            }
        }
    }
}

/// What a pod does when the process that started it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bond {
    /// It stays, as long as its manifest says.
    Free,
    /// It finishes what it does, and ends.
    Bound,
}

/// Starts a pod for a session whose lease is held here, and waits until it is ready.
pub async fn launch(
    paths: &Paths,
    session: SessionId,
    lease: OwnedFd,
    bond: Bond,
) -> Result<Launched, LaunchError> {
    Launch { paths, session, lease, ticket: None, bond, patience: READY_WAIT }.start().await
}

/// A pod that is to be started.
pub struct Launch<'a> {
    pub paths: &'a Paths,
    pub session: SessionId,
    /// The locked session lease.
    pub lease: OwnedFd,
    /// The right to the scope that was lent to it, if it is a child.
    pub ticket: Option<Ticket>,
    pub bond: Bond,
    /// How long it may take until it is ready.
    pub patience: Duration,
}

impl Launch<'_> {
    /// Starts it, and waits until it is ready. If it does not get there, no process is left.
    pub async fn start(self) -> Result<Launched, LaunchError> {
        start(self).await
    }
}

async fn start(launch: Launch<'_>) -> Result<Launched, LaunchError> {
    let Launch { paths, session, lease, ticket, bond, patience } = launch;
    let failed = |what| move |source| LaunchError::Io { what, session, source };
    let log = Runtime::new(paths).starting_log(session)?;
    let stderr = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log)
        .map_err(failed("open the stderr file of"))?;
    reserve(&stderr);
    let (mut ours, theirs) = StdUnixStream::pair().map_err(failed("make a socket pair for"))?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(executable().map_err(failed("find the executable of"))?);
    command
        .arg0("minke")
        .args(["pod", "--session", &session.to_string()])
        .args(["--lease-fd", &lease.as_raw_fd().to_string()])
        .args(["--ready-fd", &theirs.as_raw_fd().to_string()])
        .args(ticket.as_ref().map(|_| "--ticket"))
        .args((bond == Bond::Bound).then_some("--bound"))
        // A pod holds on to no directory but its own.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr));
    inherit(&mut command, [&lease, &theirs]);
    if let Some(ticket) = ticket {
        // It fits the socket's buffer, so this never waits for the pod.
        ours.write_all(format!("{}\n", ticket.to_hex()).as_bytes()).map_err(failed("hand a ticket to"))?;
    }
    let bond = match bond {
        Bond::Free => None,
        Bond::Bound => Some(ours.try_clone().map_err(failed("bind"))?),
    };
    let mut child = command.spawn().map_err(failed("start the process of"))?;
    // From here on only the child holds them: if it dies, the lease is free and the pair is at its end.
    drop((lease, theirs));
    match wait_ready(ours, patience).await {
        Ok(Some(ReadyLine::Ready(ready))) => Ok(Launched { ready, child, _bond: bond }),
        Ok(Some(ReadyLine::Failed(why))) => {
            end(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::Failed { session, why, said: take_stderr(&log) })
        }
        Ok(None) => {
            let status = end(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::Died { session, status, said: take_stderr(&log) })
        }
        Err(source) => {
            end(&mut child).map_err(failed("wait for the end of"))?;
            Err(LaunchError::Silent { session, source, said: take_stderr(&log) })
        }
    }
}

/// Takes room for a pod's last words, so that they can be written when the disk is full. A file system that cannot, and
/// one without room, leave it at that: the words are then written as far as there is room.
fn reserve(stderr: &fs::File) {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(stderr, rustix::fs::FallocateFlags::KEEP_SIZE, 0, LAST_WORDS_BYTES) {
        Ok(()) | Err(_) => {}
    }
    #[cfg(not(target_os = "linux"))]
    drop(stderr.metadata());
}

/// The running executable itself, even if an upgrade has put another file in its place since.
fn executable() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// The pod's line; `None` if it died without one.
async fn wait_ready(ours: StdUnixStream, patience: Duration) -> io::Result<Option<ReadyLine>> {
    ours.set_nonblocking(true)?;
    let mut line = String::new();
    let mut reader = BufReader::new(UnixStream::from_std(ours)?.take(READY_LINE_BYTES));
    match timeout(patience, reader.read_line(&mut line)).await {
        Err(_) => {
            let seconds = patience.as_secs();
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("it said nothing for {seconds} s")))
        }
        // A pod that is killed while its end holds unread bytes resets the pair.
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Ok(Err(e)) => Err(e),
        Ok(Ok(_)) if !line.ends_with('\n') => Ok(None),
        Ok(Ok(_)) => serde_json::from_str(&line).map(Some).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("its first line cannot be read: {e}"))
        }),
    }
}

/// Makes sure that no process is left behind, and says how it ended.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    // A pod that said why it fails is about to end, but a launcher that reports a failure must not leave one that
    // hangs on its way out. Its log needs no orderly end.
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    // Its group too: it may have begun something already.
    match kill_process_group(Pid::from_child(child), Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => return Err(e.into()),
    }
    child.wait()
}

/// The last lines that the pod wrote before it had a directory of its own; the file has served its purpose then.
fn take_stderr(log: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(STDERR_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(STDERR_BYTES).read_to_end(&mut bytes)?;
        fs::remove_file(log)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines.iter().skip(lines.len().saturating_sub(STDERR_LINES)).map(ToString::to_string).collect()
        }
        // The pod got as far as its own directory, and its stderr with it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => vec![format!("(its stderr in {} cannot be read: {e})", log.display())],
    }
}

/// A pod did not start. Its session is as it was.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("cannot {what} the pod of session {session}")]
    Io { what: &'static str, session: SessionId, source: io::Error },
    #[error("the pod of session {session} could not start: {}", .why.message)]
    Failed { session: SessionId, why: Failed, said: Vec<String> },
    #[error("the pod of session {session} died while it started ({status})")]
    Died { session: SessionId, status: ExitStatus, said: Vec<String> },
    #[error("the pod of session {session} did not get ready")]
    Silent { session: SessionId, source: io::Error, said: Vec<String> },
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl LaunchError {
    /// The last lines of the pod's stderr.
    pub fn said(&self) -> &[String] {
        match self {
            LaunchError::Failed { said, .. }
            | LaunchError::Died { said, .. }
            | LaunchError::Silent { said, .. } => said,
            LaunchError::Io { .. } | LaunchError::Registry(_) => &[],
        }
    }
}
