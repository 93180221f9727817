//! The helper: this binary, executed again, applies the restrictions of one command and execs it.
//!
//! Here: its `main` and the order of steps. Elsewhere: each restriction in its own file, the supervising loop
//! (`reaper`). It is single-threaded and starts no runtime. If a step fails, it reports the error on its control socket
//! and exits (`tests/sandbox`, `a_sandbox_that_cannot_stand_runs_nothing`).

pub(super) mod child;
#[cfg(target_os = "linux")]
pub(super) mod init;
pub(super) mod process_tree;
#[cfg(target_os = "linux")]
pub(super) mod proxy_relay;
pub(super) mod reaper;
pub(super) mod spare;

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use minke_policy::SandboxBackend;
use rustix::process::{Pid, WaitOptions};

use super::control::{self, ControlReply};
use super::helper::reaper::watch_child;
use super::plan::HelperRequest;
use super::refusals::RefusalListener;
use super::restrictions::Restrictions;
use super::sys::{self, ForkResult};

/// `argv[0]` of the helper process.
pub(super) const HELPER_NAME: &str = "minke-sandbox";

/// Why a command does not run.
pub(super) enum HelperError {
    /// A restriction could not be applied.
    SetupFailed(String),
    /// The command could not be executed.
    ExecFailed(String),
}

/// Adds the name of the failed step to an error.
pub(super) trait StepContext<T> {
    fn with_step(self, what: impl FnOnce() -> String) -> Result<T, HelperError>;
}

impl<T, E: Into<io::Error>> StepContext<T> for Result<T, E> {
    fn with_step(self, what: impl FnOnce() -> String) -> Result<T, HelperError> {
        self.map_err(|error| HelperError::SetupFailed(format!("{}: {}", what(), error.into())))
    }
}

/// The descriptors that the helper received.
pub(super) struct HelperInputs {
    pub(super) control: UnixStream,
    pub(super) stdio: [OwnedFd; 3],
    /// The pod's sandbox lock, held shared.
    pub(super) lock: OwnedFd,
}

/// Whether this process was started as a helper. Then `main` must only call `helper_main`.
pub fn is_helper(arg0: &OsStr) -> bool {
    Path::new(arg0).file_name() == Some(OsStr::new(HELPER_NAME))
}

/// Runs the helper. Must be called first in `main`, before any thread or runtime exists.
pub fn helper_main() -> ExitCode {
    sys::block_signals();
    let argument = std::env::args_os().nth(1);
    let spare_of: Option<SandboxBackend> =
        argument.as_ref().and_then(|backend| backend.to_str()?.parse().ok());
    // The parent of the pod may have leaked descriptors that must not stay open.
    #[cfg(target_os = "linux")]
    if spare_of.is_some() && sys::close_from(3).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok(line) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    #[cfg(target_os = "linux")]
    if argument.as_deref() == Some(OsStr::new(super::backends::bubblewrap::INNER_ARGUMENT)) {
        let served = line
            .try_clone()
            .with_step(|| "duplicating the control socket".to_owned())
            .and_then(super::backends::bubblewrap::run_inner);
        if let Err(failure) = served {
            send_failure(&line, failure);
        }
        return ExitCode::SUCCESS;
    }
    match serve_request(&line, spare_of) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            send_failure(&line, failure);
            ExitCode::FAILURE
        }
    }
}

pub(super) fn send_failure(line: &UnixStream, failure: HelperError) {
    let said = match failure {
        HelperError::SetupFailed(why) => ControlReply::SetupFailed(why),
        HelperError::ExecFailed(why) => ControlReply::ExecFailed(why),
    };
    // If the pod has exited, the error has no reader.
    let _gone = said.write_to(line);
}

/// A spare helper prepares before it receives the request: its only argument is the backend.
fn serve_request(line: &UnixStream, spare_of: Option<SandboxBackend>) -> Result<(), HelperError> {
    rustix::process::chdir("/").with_step(|| "leaving the pod's directory".to_owned())?;
    #[cfg(target_os = "linux")]
    let waiting = match spare_of {
        Some(SandboxBackend::Namespaces) => {
            Some(super::helper::init::PendingInit::fork_init(Restrictions::ALL, line)?)
        }
        _ => None,
    };
    #[cfg(not(target_os = "linux"))]
    let _nothing_to_make = spare_of;
    let sent = control::receive_descriptors(line).with_step(|| "receiving the command".to_owned())?;
    // A pod that has exited or no longer needs its spare sends nothing.
    let Some([plan, stdin, stdout, stderr, lock]) = sent else { return Ok(()) };
    let again = plan.try_clone().with_step(|| "duplicating the plan".to_owned())?;
    let request = read_request(plan)?;
    let control = line.try_clone().with_step(|| "duplicating the control socket".to_owned())?;
    let inputs = HelperInputs { control, stdio: [stdin, stdout, stderr], lock };
    match request.plan.backend {
        #[cfg(target_os = "linux")]
        SandboxBackend::Namespaces => {
            super::helper::init::run_in_namespaces(&request, again, inputs, waiting)
        }
        #[cfg(target_os = "linux")]
        SandboxBackend::Bubblewrap => super::backends::bubblewrap::run_outer(&request, again, inputs),
        SandboxBackend::Landlock | SandboxBackend::Seatbelt | SandboxBackend::Off => {
            drop(again);
            run_watcher(&request, inputs)
        }
        other => Err(HelperError::SetupFailed(format!(
            "the helper does not implement the sandbox backend {other}"
        ))),
    }
}

pub(super) fn read_request(plan: OwnedFd) -> Result<HelperRequest, HelperError> {
    let mut bytes = Vec::new();
    File::from(plan).read_to_end(&mut bytes).with_step(|| "reading the plan".to_owned())?;
    HelperRequest::decode(&bytes).with_step(|| "reading the plan".to_owned())
}

/// Supervises a command without a pid namespace, and kills the remaining processes.
fn run_watcher(request: &HelperRequest, inputs: HelperInputs) -> Result<(), HelperError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .with_step(|| "becoming a subreaper".to_owned())?;
    let ends = sys::child_exit_fd().with_step(|| "watching for exits of children".to_owned())?;
    // From here on, every path must kill the command's processes.
    let launched = launch_command(request, inputs.stdio, &inputs.control);
    let done = launched.map(|launched| watch_child(&inputs.control, launched, &ends));
    process_tree::kill_descendants();
    done
}

/// An executed command, and the kernel's notifications of refused calls.
pub(super) struct LaunchedProcess {
    pub(super) command: Pid,
    pub(super) refusals: Option<RefusalListener>,
}

/// Forks the command, waits for its exec and reports it.
pub(super) fn launch_command(
    request: &HelperRequest,
    stdio: [OwnedFd; 3],
    line: &UnixStream,
) -> Result<LaunchedProcess, HelperError> {
    // The exec closes the other end.
    let (executed, executing) =
        UnixStream::pair().with_step(|| "creating a socket to the command".to_owned())?;
    match sys::fork_process().with_step(|| "forking the command".to_owned())? {
        ForkResult::Child => {
            drop(executed);
            let failure = match exec_command(request, stdio, &executing) {
                Err(failure) => failure,
                Ok(never) => match never {},
            };
            send_failure(line, failure);
            // Written after the error was reported, so the supervisor adds nothing.
            let _told = rustix::io::write(&executing, b"F");
            sys::exit_now(127)
        }
        ForkResult::Parent(pid) => {
            drop(executing);
            drop(stdio);
            let pid = Pid::from_raw(pid)
                .ok_or_else(|| HelperError::SetupFailed("fork returned no process id".to_owned()))?;
            let refusals = wait_for_exec(&executed, pid)?;
            // If the pod has exited, the supervising loop notices it and kills the tree.
            let _gone = ControlReply::Running.write_to(line);
            Ok(LaunchedProcess { command: pid, refusals })
        }
    }
}

/// Waits for the exec, which closes the socket. The listener for refused calls arrives before that.
fn wait_for_exec(executed: &UnixStream, command: Pid) -> Result<Option<RefusalListener>, HelperError> {
    let mut refusals = None;
    loop {
        match control::receive_byte(executed) {
            Ok(None) => return Ok(refusals),
            Ok(Some((control::DESCRIPTOR_BYTE, handed))) => {
                refusals = handed.into_iter().next().map(RefusalListener::from_listener)
            }
            Ok(Some(_)) => {
                // The child has reported the error and is about to exit.
                let _left = rustix::process::waitpid(Some(command), WaitOptions::empty());
                sys::exit_now(1);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_step(|| "reading from the command's process".to_owned()),
        }
    }
}

/// The last steps, in the command's own process: session, streams, limits, restrictions. Sends the listener for refused
/// calls over `executing`.
fn exec_command(
    request: &HelperRequest,
    stdio: [OwnedFd; 3],
    executing: &UnixStream,
) -> Result<std::convert::Infallible, HelperError> {
    rustix::process::setsid().with_step(|| "creating a session".to_owned())?;
    #[cfg(target_os = "linux")]
    let stdio = if request.plan.restrictions.contains(Restrictions::DEVICES) {
        replace_null_devices(stdio).with_step(|| "opening the null device".to_owned())?
    } else {
        stdio
    };
    let [stdin, stdout, stderr] = stdio;
    rustix::stdio::dup2_stdin(&stdin).with_step(|| "setting standard input".to_owned())?;
    rustix::stdio::dup2_stdout(&stdout).with_step(|| "setting standard output".to_owned())?;
    rustix::stdio::dup2_stderr(&stderr).with_step(|| "setting standard error".to_owned())?;
    if request.tty {
        rustix::process::ioctl_tiocsctty(&stdin)
            .with_step(|| "setting the controlling terminal".to_owned())?;
    }
    if let Err(error) = rustix::process::chdir(&request.cwd) {
        let (cwd, error) = (request.cwd.display(), io::Error::from(error));
        return Err(HelperError::ExecFailed(format!(
            "could not enter {cwd}: {error}; it must be inside the scope"
        )));
    }
    let (argv, environment) = exec_strings(request)?;
    if let Some(umask) = request.umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask as rustix::fs::RawMode));
    }
    if request.plan.restrictions.contains(Restrictions::LIMITS) {
        sys::set_limits(&request.limits).with_step(|| "setting limits".to_owned())?;
    }
    #[cfg(target_os = "linux")]
    {
        if request.plan.restrictions.contains(Restrictions::DESCRIPTORS) {
            sys::close_from_on_exec(3).with_step(|| "closing descriptors".to_owned())?;
        }
        if request.plan.backend != SandboxBackend::Off {
            apply_restrictions(&request.plan, executing)?;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _nothing_to_hand_over = executing;
    sys::reset_signals();
    exec_program(request, &argv, &environment)
}

/// Replaces descriptors of the host's null device by the sandbox's own. With a descriptor of the host's device, a
/// command of root could change the device's mode for the whole machine.
#[cfg(target_os = "linux")]
fn replace_null_devices(stdio: [OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
    use rustix::fs::{FileType, Mode, OFlags};
    let null = rustix::fs::makedev(1, 3);
    let mut owned = Vec::with_capacity(stdio.len());
    for stream in stdio {
        let about = rustix::fs::fstat(&stream)?;
        let device = FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice;
        owned.push(if device && about.st_rdev == null {
            let access = rustix::fs::fcntl_getfl(&stream)? & OFlags::ACCMODE;
            rustix::fs::open("/dev/null", access | OFlags::CLOEXEC, Mode::empty())?
        } else {
            stream
        });
    }
    owned.try_into().map_err(|_| io::Error::other("three streams are three"))
}

/// Applies the restrictions of the process itself, in an order in which each one still permits the next.
#[cfg(target_os = "linux")]
fn apply_restrictions(plan: &super::plan::SandboxPlan, executing: &UnixStream) -> Result<(), HelperError> {
    use super::backends::landlock::{self, LandlockOptions};
    use super::backends::seccomp::{self, SeccompFilter};
    let restrictions = plan.restrictions;
    super::helper::init::drop_privileges(restrictions)?;
    let least = if plan.backend == SandboxBackend::Landlock {
        landlock::MIN_ABI_ALONE
    } else {
        landlock::MIN_ABI_WITH_MOUNTS
    };
    let abi = landlock::abi_version();
    if abi < least {
        return Err(HelperError::SetupFailed(format!(
            "Landlock ABI {least} is needed, this kernel has {abi}"
        )));
    }
    let beside = LandlockOptions {
        files: restrictions.contains(Restrictions::LANDLOCK_FILES),
        // With a proxy, only the sandbox's loopback address exists, and servers under test may use it.
        tcp: restrictions.contains(Restrictions::LANDLOCK_TCP) && plan.proxy.is_none(),
        scope: restrictions.contains(Restrictions::LANDLOCK_SCOPE),
    };
    landlock::restrict_self(&plan.rules, beside).with_step(|| "entering the Landlock domain".to_owned())?;
    let filters = [Restrictions::SECCOMP_SOCKETS, Restrictions::SECCOMP_CALLS, Restrictions::SECCOMP_SET_ID];
    if filters.into_iter().any(|wall| restrictions.contains(wall)) {
        let sieve = SeccompFilter {
            loopback: plan.proxy.is_some(),
            without_namespaces: plan.backend == SandboxBackend::Landlock,
            restrictions,
        };
        let listener =
            seccomp::install_filter(sieve).with_step(|| "installing the seccomp filter".to_owned())?;
        if let Some(listener) = listener {
            control::send_descriptors(executing, [&listener])
                .with_step(|| "sending the seccomp listener".to_owned())?;
        }
    }
    Ok(())
}

fn exec_strings(request: &HelperRequest) -> Result<(Vec<CString>, Vec<CString>), HelperError> {
    let text = |bytes: &[u8]| {
        CString::new(bytes)
            .map_err(|_| HelperError::ExecFailed("an argument or variable contains a NUL".to_owned()))
    };
    let argv = request.argv.iter().map(|argument| text(argument.as_bytes())).collect::<Result<_, _>>()?;
    let joined = request.plan.env.iter().map(|(name, value)| {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        text(pair.as_bytes())
    });
    Ok((argv, joined.collect::<Result<_, _>>()?))
}

/// The search path if the command has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Executes the program, which is looked up in the command's own `PATH` as a shell would do.
fn exec_program(
    request: &HelperRequest,
    argv: &[CString],
    environment: &[CString],
) -> Result<std::convert::Infallible, HelperError> {
    let Some(program) = request.argv.first().filter(|program| !program.is_empty()) else {
        return Err(HelperError::ExecFailed("there is no program to execute".to_owned()));
    };
    if request.plan.backend == SandboxBackend::Seatbelt {
        return exec_in_profile(&request.plan.profile, argv, environment);
    }
    let named = if program.as_bytes().contains(&b'/') {
        vec![program.clone()]
    } else {
        let path = request.plan.env.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| DEFAULT_PATH.into());
        std::env::split_paths(&path).map(|dir| OsString::from(dir.join(program))).collect()
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in named {
        let Ok(path) = CString::new(candidate.as_bytes()) else { continue };
        let Err(error) = sys::exec_path(&path, argv, environment);
        let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        // Report that an existing file cannot be executed, rather than that later directories lack it.
        if !missing || last.kind() == io::ErrorKind::NotFound {
            last = error;
        }
        if !missing && last.kind() != io::ErrorKind::PermissionDenied {
            break;
        }
    }
    Err(HelperError::ExecFailed(format!("could not execute {}: {last}", program.display())))
}

/// The system program that applies a Seatbelt profile and then executes the command.
const SANDBOX_EXEC: &std::ffi::CStr = c"/usr/bin/sandbox-exec";

fn exec_in_profile(
    profile: &str,
    argv: &[CString],
    environment: &[CString],
) -> Result<std::convert::Infallible, HelperError> {
    let profile = CString::new(profile)
        .map_err(|_| HelperError::SetupFailed("the Seatbelt profile contains a NUL".to_owned()))?;
    let mut whole = vec![SANDBOX_EXEC.to_owned(), c"-p".to_owned(), profile];
    whole.extend(argv.iter().cloned());
    let Err(error) = sys::exec_path(SANDBOX_EXEC, &whole, environment);
    Err(HelperError::SetupFailed(format!("could not execute {}: {error}", SANDBOX_EXEC.to_string_lossy())))
}
