//! A command in a sandbox: its start through the helper, the control socket, and its exit.
//!
//! Here: starting, waiting, signalling, killing. Elsewhere: streams, timeouts and background commands (`command`).
//! Dropping a `SandboxChild` kills its process tree and leaves no zombie (`tests/sandbox`,
//! `dropping_a_command_ends_its_tree`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use minke_policy::SandboxBackend;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::super::control::{ControlReply, ControlRequest};
use super::super::helper::spare::{self, SpareHelper};
use super::super::plan::{HelperRequest, SandboxPlan};
use super::super::{HelperBinary, SandboxError};
use crate::limits::{CommandLimits, START_DEADLINE};

/// A command to start.
#[derive(Debug)]
pub struct SandboxCommand {
    /// The program and its arguments. A program without a slash is looked up in the command's own `PATH`.
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Whether standard input is a terminal, which becomes the controlling one.
    pub tty: bool,
    pub limits: CommandLimits,
}

/// How a command exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

/// A running command. Dropping it kills the process tree.
#[derive(Debug)]
pub struct SandboxChild {
    helper: Arc<Mutex<Child>>,
    pid: u32,
    control: UnixStream,
    received: Vec<u8>,
    exit: Option<ProcessExit>,
    set_id_refused: Arc<AtomicBool>,
    /// Whether the helper process has been reaped.
    is_reaped: bool,
}

const SIGKILL: i32 = 9;
/// How often, and at which interval, the pod's sandbox lock is tried.
const LOCK_TRIES: u32 = 500;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(2);

pub(in crate::sandbox) fn start_command(
    helper: &HelperBinary,
    plan: &SandboxPlan,
    start: SandboxCommand,
    spare: Option<SpareHelper>,
) -> Result<SandboxChild, SandboxError> {
    let lock = acquire_lock(&plan.lock_file)?;
    let SandboxCommand { argv, cwd, stdin, stdout, stderr, tty, limits } = start;
    let limits = kernel_limits(&limits, plan.backend);
    let umask = super::super::COMMAND_UMASK.get().copied();
    let errand = HelperRequest { plan: plan.clone(), argv, cwd, tty, limits, umask };
    let errand =
        memory_file(&errand.encode()).map_err(|e| SandboxError::setup_failed("writing the plan", e))?;
    let sent = [&errand, &stdin, &stdout, &stderr, &lock];
    let (child, control) = match spare.and_then(|spare| spare.send_plan(helper, plan, sent)) {
        Some(taken) => taken,
        None => spare::spawn_helper(helper, None, Some(sent))?,
    };
    let pid = child.id();
    let helper = Arc::new(Mutex::new(child));
    let mut started = SandboxChild {
        helper,
        pid,
        control,
        received: Vec::new(),
        exit: None,
        set_id_refused: Arc::default(),
        is_reaped: false,
    };
    started.wait_until_running()?;
    Ok(started)
}

/// Takes the shared lock that marks a sandbox as running. It is taken here and passed to the helper, so that there is
/// no moment without it.
fn acquire_lock(lock_file: &Path) -> Result<OwnedFd, SandboxError> {
    let what = || format!("locking {}", lock_file.display());
    let mut options = File::options();
    let file = options
        .read(true)
        .append(true)
        .create(true)
        .open(lock_file)
        .map_err(|e| SandboxError::setup_failed(&what(), e))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(file.into()),
            // Another process checks the lock or removes placeholders, which takes moments.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_RETRY_DELAY),
            Err(error) => return Err(SandboxError::setup_failed(&what(), io::Error::from(error))),
        }
    }
    Err(SandboxError::setup_failed(
        &what(),
        "another process holds the lock exclusively; if no pod is being removed, this is a defect of Minke",
    ))
}

/// Creates a file in memory, positioned at its start.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let mut file = File::from(rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    let mut file = unnamed_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Creates an unnamed file, on systems without memory files.
#[cfg(not(target_os = "linux"))]
fn unnamed_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("minke-plan-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Returns the limits with the kernel's resource numbers.
fn kernel_limits(limits: &CommandLimits, backend: SandboxBackend) -> Vec<(u32, u64)> {
    let counted_by_namespace = matches!(backend, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap);
    let pairs = [
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_AS, limits.address_space),
        (libc::RLIMIT_CPU, limits.cpu_seconds),
        (libc::RLIMIT_NPROC, limits.processes.filter(|_| counted_by_namespace)),
    ];
    #[expect(clippy::unnecessary_cast, reason = "the type of a resource differs between C libraries")]
    pairs.into_iter().filter_map(|(resource, limit)| Some((resource as u32, limit?))).collect()
}

impl SandboxChild {
    /// Returns the process id of the helper; the command itself may have no id outside its sandbox.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a flag that is set when the kernel refuses a set-user-ID or set-group-ID file, while the caller waits.
    pub fn set_id_refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.set_id_refused)
    }

    /// Waits for the first frame, which says whether the command runs.
    fn wait_until_running(&mut self) -> Result<(), SandboxError> {
        let broken = |e| SandboxError::setup_failed("reading from the helper", e);
        self.control.set_read_timeout(Some(START_DEADLINE)).map_err(broken)?;
        let said = loop {
            if let Some(said) = ControlReply::decode_frame(&mut self.received).map_err(broken)? {
                break said;
            }
            let mut piece = [0; 1024];
            match self.control.read(&mut piece) {
                Ok(0) => return Err(self.early_death_error()),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(self.early_death_error()),
                Ok(read) => self.received.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SandboxError::setup_failed(
                        "reading from the helper",
                        "it did not reply in time",
                    ));
                }
                Err(e) => return Err(broken(e)),
            }
        };
        self.control.set_nonblocking(true).map_err(broken)?;
        match said {
            ControlReply::Running => Ok(()),
            ControlReply::SetupFailed(why) => Err(SandboxError::SetupFailed { why }),
            ControlReply::ExecFailed(why) => Err(SandboxError::CommandFailed { why }),
            ControlReply::Exited(_) | ControlReply::Killed(_) | ControlReply::SetIdRefused => {
                Err(self.early_death_error())
            }
        }
    }

    fn early_death_error(&mut self) -> SandboxError {
        let how = match self.reap_helper() {
            Ok(status) => format!("it exited ({status}) without a reply; is this binary a helper?"),
            Err(error) => error.to_string(),
        };
        SandboxError::setup_failed("reading from the helper", how)
    }

    fn reap_helper(&mut self) -> io::Result<std::process::ExitStatus> {
        let status = lock_child(&self.helper).wait()?;
        self.is_reaped = true;
        Ok(status)
    }

    /// Waits for the exit of the whole process tree. May be cancelled and called again.
    pub async fn wait_for_exit(&mut self) -> io::Result<ProcessExit> {
        loop {
            // The exit may have been received with the first frame.
            while let Some(said) = ControlReply::decode_frame(&mut self.received)? {
                self.record_reply(&said);
            }
            if self.is_reaped {
                return Ok(self.exit.unwrap_or(ProcessExit::Signal(SIGKILL)));
            }
            // Registered on each call, because the command may have been started outside this runtime.
            let line = tokio::net::UnixStream::from_std(self.control.try_clone()?)?;
            line.readable().await?;
            let mut piece = [0; 256];
            let read = line.try_read(&mut piece);
            match read {
                // The socket closes when the helper and its sandbox exit, so its status is available now.
                Ok(0) => {
                    self.reap_helper()?;
                }
                Ok(read) => {
                    self.received.extend_from_slice(piece.get(..read).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It exited without reading all requests.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.reap_helper()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits without a runtime, at most for `limit`; after that the tree is killed and an error is returned.
    pub(crate) fn wait_blocking(&mut self, limit: Duration) -> io::Result<ProcessExit> {
        self.control.set_nonblocking(false)?;
        self.control.set_read_timeout(Some(limit))?;
        let until = Instant::now() + limit;
        loop {
            let mut piece = [0; 256];
            match self.control.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => self.received.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.reap_helper()?;
        while let Some(said) = ControlReply::decode_frame(&mut self.received)? {
            self.record_reply(&said);
        }
        Ok(self.exit.unwrap_or(ProcessExit::Signal(SIGKILL)))
    }

    fn record_reply(&mut self, said: &ControlReply) {
        match said {
            ControlReply::Exited(code) => self.exit = Some(ProcessExit::Code(*code)),
            ControlReply::Killed(signal) => self.exit = Some(ProcessExit::Signal(*signal)),
            ControlReply::SetIdRefused => self.set_id_refused.store(true, Ordering::Relaxed),
            ControlReply::Running | ControlReply::SetupFailed(_) | ControlReply::ExecFailed(_) => {}
        }
    }

    /// Kills the process tree. The caller must still wait for its exit.
    pub fn kill_tree(&mut self) {
        // If the write fails, the helper has exited, and its tree with it.
        let _gone = ControlRequest::Kill.write_to(&self.control);
        self.wake_helper();
    }

    /// Sends a signal to the command's process group.
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        ControlRequest::Signal(signal).write_to(&self.control)
    }

    /// Continues a stopped helper; without a pid namespace, a command may have stopped it.
    fn wake_helper(&self) {
        if self.is_reaped {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
    }
}

impl Drop for SandboxChild {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        self.kill_tree();
        if matches!(lock_child(&self.helper).try_wait(), Ok(Some(_))) {
            return;
        }
        reap_shared(&self.helper);
    }
}

/// Reaps a helper on another thread: killing its tree takes a moment, and the caller may be a thread of the runtime.
pub(in crate::sandbox) fn reap_in_background(helper: Child) {
    reap_shared(&Arc::new(Mutex::new(helper)));
}

fn reap_shared(helper: &Arc<Mutex<Child>>) {
    let waited = Arc::clone(helper);
    let reaper = std::thread::Builder::new().name("reap".to_owned());
    if reaper.spawn(move || lock_child(&waited).wait().is_ok()).is_err() {
        // No thread could be started; blocking is better than a zombie.
        let _reaped = lock_child(helper).wait();
    }
}

/// Locks the child; no code panics under this lock with the state half-changed.
fn lock_child(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
