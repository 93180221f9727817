//! A command that was started: its helper, the line to it, and its end.
//!
//! Here: starting, waiting, signalling, killing. Elsewhere: streams, time-outs and background commands (`command`).
//! A dropped `Started` kills its whole tree and leaves no zombie (`tests/fence.rs`, `dropping_a_command_ends_its_tree`).

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

use minke_policy::Tier;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::control::{Asked, Said};
use super::plan::{Errand, Plan};
use super::spare::{self, Spare};
use super::{FenceError, Helper};
use crate::limits::{Limits, START_DEADLINE};

/// A command to be started.
#[derive(Debug)]
pub struct Start {
    /// The program, found in the command's own `PATH` unless it has a slash, and its arguments.
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Standard input is a terminal of the command's own: it becomes the controlling one.
    pub tty: bool,
    pub limits: Limits,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// A running command. Dropping it ends the whole tree.
#[derive(Debug)]
pub struct Started {
    helper: Arc<Mutex<Child>>,
    pid: u32,
    line: UnixStream,
    read: Vec<u8>,
    ended: Option<Exit>,
    set_id_refused: Arc<AtomicBool>,
    /// The helper has been waited for.
    reaped: bool,
}

const SIGKILL: i32 = 9;
/// How often, and how far apart, the lock of the pod's fences is tried.
const LOCK_TRIES: u32 = 500;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

pub(super) fn start(
    helper: &Helper,
    plan: &Plan,
    start: Start,
    spare: Option<Spare>,
) -> Result<Started, FenceError> {
    let lock = hold(&plan.fences)?;
    let Start { argv, cwd, stdin, stdout, stderr, tty, limits } = start;
    let limits = kernel_limits(&limits, plan.tier);
    let umask = super::COMMANDS_UMASK.get().copied();
    let errand = Errand { plan: plan.clone(), argv, cwd, tty, limits, umask };
    let errand = memory_file(&errand.encode()).map_err(|e| FenceError::broken("writing the plan", e))?;
    let sent = [&errand, &stdin, &stdout, &stderr, &lock];
    let (child, line) = match spare.and_then(|spare| spare.hand(helper, plan, sent)) {
        Some(taken) => taken,
        None => spare::spawn(helper, None, Some(sent))?,
    };
    let pid = child.id();
    let helper = Arc::new(Mutex::new(child));
    let mut started = Started {
        helper,
        pid,
        line,
        read: Vec::new(),
        ended: None,
        set_id_refused: Arc::default(),
        reaped: false,
    };
    started.await_running()?;
    Ok(started)
}

/// The lock that tells everybody that a fence is alive. Taken here and handed over, so that there is no moment between
/// the start and the lock.
fn hold(fences: &Path) -> Result<OwnedFd, FenceError> {
    let what = || format!("holding the lock {}", fences.display());
    let mut options = File::options();
    let file = options
        .read(true)
        .append(true)
        .create(true)
        .open(fences)
        .map_err(|e| FenceError::broken(&what(), e))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(file.into()),
            // Somebody looks whether fences are alive, or tidies up after the last one: a matter of moments.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(FenceError::broken(&what(), io::Error::from(error))),
        }
    }
    Err(FenceError::broken(
        &what(),
        "somebody else holds it alone; if no pod is being reclaimed, this is a bug",
    ))
}

/// A file that exists in memory only, at its beginning.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let mut file = File::from(rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    let mut file = nameless_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// A file without a name, where there are no memory files.
#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("minke-plan-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Limits as the kernel numbers them.
fn kernel_limits(limits: &Limits, tier: Tier) -> Vec<(u32, u64)> {
    let counted_by_fence = matches!(tier, Tier::A | Tier::APrime);
    let pairs = [
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_AS, limits.address_space),
        (libc::RLIMIT_CPU, limits.cpu_seconds),
        (libc::RLIMIT_NPROC, limits.processes.filter(|_| counted_by_fence)),
    ];
    #[expect(clippy::unnecessary_cast, reason = "the type of a resource differs between C libraries")]
    pairs.into_iter().filter_map(|(resource, limit)| Some((resource as u32, limit?))).collect()
}

impl Started {
    /// The helper's process: the command itself has no number outside its fence.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Set as soon as the kernel has refused the command a set-user-id or set-group-id file, while it is waited for.
    pub fn set_id_refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.set_id_refused)
    }

    /// Waits for the first frame, which says whether the command runs.
    fn await_running(&mut self) -> Result<(), FenceError> {
        let broken = |e| FenceError::broken("hearing from the helper", e);
        self.line.set_read_timeout(Some(START_DEADLINE)).map_err(broken)?;
        let said = loop {
            if let Some(said) = Said::take(&mut self.read).map_err(broken)? {
                break said;
            }
            let mut piece = [0; 1024];
            match self.line.read(&mut piece) {
                Ok(0) => return Err(self.died_early()),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(self.died_early()),
                Ok(read) => self.read.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(FenceError::broken("hearing from the helper", "it did not answer in time"));
                }
                Err(e) => return Err(broken(e)),
            }
        };
        self.line.set_nonblocking(true).map_err(broken)?;
        match said {
            Said::Running => Ok(()),
            Said::Broken(why) => Err(FenceError::Broken { why }),
            Said::Refused(why) => Err(FenceError::Command { why }),
            Said::Exited(_) | Said::Killed(_) | Said::SetIdRefused => Err(self.died_early()),
        }
    }

    fn died_early(&mut self) -> FenceError {
        let how = match self.reap() {
            Ok(status) => format!("it ended ({status}) without a word; is this binary a helper?"),
            Err(error) => error.to_string(),
        };
        FenceError::broken("hearing from the helper", how)
    }

    fn reap(&mut self) -> io::Result<std::process::ExitStatus> {
        let status = lock(&self.helper).wait()?;
        self.reaped = true;
        Ok(status)
    }

    /// Waits for the end of the whole tree. May be given up and called again.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        loop {
            // The end may have come with the first frame.
            while let Some(said) = Said::take(&mut self.read)? {
                self.note(&said);
            }
            if self.reaped {
                return Ok(self.ended.unwrap_or(Exit::Signal(SIGKILL)));
            }
            // Registered anew each time: who starts a command need not be the runtime that waits for it.
            let line = tokio::net::UnixStream::from_std(self.line.try_clone()?)?;
            line.readable().await?;
            let mut piece = [0; 256];
            let read = line.try_read(&mut piece);
            match read {
                // The line ends with the helper and its fence; its status is there at the same moment.
                Ok(0) => {
                    self.reap()?;
                }
                Ok(read) => {
                    self.read.extend_from_slice(piece.get(..read).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It ended without having read all that we asked of it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.reap()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The same without a runtime, for at most that long; then the tree is killed and it is an error.
    pub(crate) fn wait_blocking(&mut self, limit: Duration) -> io::Result<Exit> {
        self.line.set_nonblocking(false)?;
        self.line.set_read_timeout(Some(limit))?;
        let until = Instant::now() + limit;
        loop {
            let mut piece = [0; 256];
            match self.line.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => self.read.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.reap()?;
        while let Some(said) = Said::take(&mut self.read)? {
            self.note(&said);
        }
        Ok(self.ended.unwrap_or(Exit::Signal(SIGKILL)))
    }

    fn note(&mut self, said: &Said) {
        match said {
            Said::Exited(code) => self.ended = Some(Exit::Code(*code)),
            Said::Killed(signal) => self.ended = Some(Exit::Signal(*signal)),
            Said::SetIdRefused => self.set_id_refused.store(true, Ordering::Relaxed),
            Said::Running | Said::Broken(_) | Said::Refused(_) => {}
        }
    }

    /// Ends the whole tree, at once. Its end is still to be waited for.
    pub fn kill(&mut self) {
        // A line that cannot be written to belongs to a helper that is gone, and with it its tree.
        let _gone = Asked::Kill.write(&self.line);
        self.wake_helper();
    }

    /// A signal to the command's process group.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        Asked::Signal(signal).write(&self.line)
    }

    /// A helper that something stopped (in tiers without a pid namespace a command may) is to hear us all the same.
    fn wake_helper(&self) {
        if self.reaped {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        if matches!(lock(&self.helper).try_wait(), Ok(Some(_))) {
            return;
        }
        reap_shared(&self.helper);
    }
}

/// Waits for a helper that was told to end, elsewhere: its tree takes a moment to die, and who asks may be a runtime's
/// thread.
pub(super) fn reap_elsewhere(helper: Child) {
    reap_shared(&Arc::new(Mutex::new(helper)));
}

fn reap_shared(helper: &Arc<Mutex<Child>>) {
    let waited = Arc::clone(helper);
    let reaper = std::thread::Builder::new().name("reap".to_owned());
    if reaper.spawn(move || lock(&waited).wait().is_ok()).is_err() {
        // No thread is to be had: late is better than a zombie.
        let _reaped = lock(helper).wait();
    }
}

/// Nothing that is done under this lock leaves a child half-known.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
