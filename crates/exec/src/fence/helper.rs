//! The helper: our own binary, executed again, that puts up the walls of one command and execs it.
//!
//! Here: its `main` and the order of things. Elsewhere: each wall in its own file, the loop that watches (`watch`).
//! It is single-threaded, starts no runtime, and says on its line why something failed instead of going on
//! (`tests/fence.rs`, `a_fence_that_cannot_stand_runs_nothing`).

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use minke_policy::Tier;
use rustix::process::{Pid, WaitOptions};

use super::control::{self, Said};
use super::plan::Errand;
use super::refusals::Refusals;
use super::sys::{self, Forked};
use super::tree;
use super::walls::Walls;
use super::watch::watch;

/// What the helper is called: `argv[0]` of its process.
pub(super) const NAME: &str = "minke-fence";

/// Why a command does not run.
pub(super) enum Failure {
    /// A wall does not stand.
    Broken(String),
    /// The command itself cannot be executed.
    Refused(String),
}

/// Names the step that failed.
pub(super) trait Step<T> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::Broken(format!("{}: {}", what(), error.into())))
    }
}

/// What came over the line, in the hands of the helper.
pub(super) struct Held {
    pub(super) line: UnixStream,
    pub(super) stdio: [OwnedFd; 3],
    /// The lock of the pod's fences, shared.
    pub(super) lock: OwnedFd,
}

/// Whether this process was started as a helper: then `helper_main` is all that it does.
pub fn is_helper(arg0: &OsStr) -> bool {
    Path::new(arg0).file_name() == Some(OsStr::new(NAME))
}

/// The helper's whole life. To be called first thing in `main`, before any thread or runtime.
pub fn helper_main() -> ExitCode {
    sys::block_signals();
    let argument = std::env::args_os().nth(1);
    let spare_of: Option<Tier> = argument.as_ref().and_then(|tier| tier.to_str()?.parse().ok());
    // Whoever started the pod may have left it descriptors that nobody is to keep open.
    #[cfg(target_os = "linux")]
    if spare_of.is_some() && sys::close_from(3).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok(line) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    #[cfg(target_os = "linux")]
    if argument.as_deref() == Some(OsStr::new(super::bwrap::INSIDE)) {
        let served =
            line.try_clone().step(|| "keeping the line".to_owned()).and_then(super::bwrap::serve_inside);
        if let Err(failure) = served {
            say_failure(&line, failure);
        }
        return ExitCode::SUCCESS;
    }
    match serve(&line, spare_of) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say_failure(&line, failure);
            ExitCode::FAILURE
        }
    }
}

pub(super) fn say_failure(line: &UnixStream, failure: Failure) {
    let said = match failure {
        Failure::Broken(why) => Said::Broken(why),
        Failure::Refused(why) => Said::Refused(why),
    };
    // A pod that is gone does not hear it, and need not.
    let _gone = said.write(line);
}

/// A spare helper does what it can before it hears what for: its tier is its only argument.
fn serve(line: &UnixStream, spare_of: Option<Tier>) -> Result<(), Failure> {
    rustix::process::chdir("/").step(|| "leaving the pod's directory".to_owned())?;
    #[cfg(target_os = "linux")]
    let waiting = match spare_of {
        Some(Tier::A) => Some(super::inner::Waiting::make(Walls::ALL, line)?),
        _ => None,
    };
    #[cfg(not(target_os = "linux"))]
    let _nothing_to_make = spare_of;
    let sent = control::receive_descriptors(line).step(|| "receiving the command".to_owned())?;
    // A pod that does not need its spare any more, or is gone, says nothing.
    let Some([plan, stdin, stdout, stderr, lock]) = sent else { return Ok(()) };
    let again = plan.try_clone().step(|| "keeping the plan".to_owned())?;
    let errand = read_errand(plan)?;
    let line = line.try_clone().step(|| "keeping the line".to_owned())?;
    let held = Held { line, stdio: [stdin, stdout, stderr], lock };
    match errand.plan.tier {
        #[cfg(target_os = "linux")]
        Tier::A => super::inner::serve(&errand, again, held, waiting),
        #[cfg(target_os = "linux")]
        Tier::APrime => super::bwrap::serve(&errand, again, held),
        Tier::B | Tier::C | Tier::Off => {
            drop(again);
            watcher(&errand, held)
        }
        other => Err(Failure::Broken(format!("a fence of tier {other} is not made by this helper"))),
    }
}

pub(super) fn read_errand(plan: OwnedFd) -> Result<Errand, Failure> {
    let mut bytes = Vec::new();
    File::from(plan).read_to_end(&mut bytes).step(|| "reading the plan".to_owned())?;
    Errand::decode(&bytes).step(|| "reading the plan".to_owned())
}

/// Tiers without a pid namespace: this process watches, and kills what is left.
fn watcher(errand: &Errand, held: Held) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .step(|| "becoming the parent of orphans".to_owned())?;
    let ends = sys::child_ends().step(|| "hearing of children".to_owned())?;
    // Whatever happens from here on, nothing of the command stays.
    let launched = launch(errand, held.stdio, &held.line);
    let done = launched.map(|launched| watch(&held.line, launched, &ends));
    tree::end_descendants();
    done
}

/// A command that was executed, and the kernel's reports of what it refuses it.
pub(super) struct Launched {
    pub(super) command: Pid,
    pub(super) refusals: Option<Refusals>,
}

/// Forks the command and waits until it has been executed, which is then said.
pub(super) fn launch(errand: &Errand, stdio: [OwnedFd; 3], line: &UnixStream) -> Result<Launched, Failure> {
    // Closed by the execution, on the other side.
    let (executed, executing) = UnixStream::pair().step(|| "making a line to the command".to_owned())?;
    match sys::fork().step(|| "forking the command".to_owned())? {
        Forked::Child => {
            drop(executed);
            let failure = match become_command(errand, stdio, &executing) {
                Err(failure) => failure,
                Ok(never) => match never {},
            };
            say_failure(line, failure);
            // Written only after the failure was said: the watcher then knows that there is nothing to add.
            let _told = rustix::io::write(&executing, b"F");
            sys::leave(127)
        }
        Forked::Parent(pid) => {
            drop(executing);
            drop(stdio);
            let pid =
                Pid::from_raw(pid).ok_or_else(|| Failure::Broken("a fork without a number".to_owned()))?;
            let refusals = await_execution(&executed, pid)?;
            // A pod that died meanwhile does not hear it; that it is gone is seen by whoever watches, who ends the tree.
            let _gone = Said::Running.write(line);
            Ok(Launched { command: pid, refusals })
        }
    }
}

/// Waits for the execution, which closes the line; the kernel's reports of refused calls come before it.
fn await_execution(executed: &UnixStream, command: Pid) -> Result<Option<Refusals>, Failure> {
    let mut refusals = None;
    loop {
        match control::receive_byte(executed) {
            Ok(None) => return Ok(refusals),
            Ok(Some((control::CARRIER, handed))) => refusals = handed.into_iter().next().map(Refusals::of),
            Ok(Some(_)) => {
                // It has said why, and is about to leave.
                let _left = rustix::process::waitpid(Some(command), WaitOptions::empty());
                sys::leave(1);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).step(|| "hearing from the command".to_owned()),
        }
    }
}

/// The last steps, in the command's own process: a session of its own, its streams, its limits, its walls. The watcher is
/// handed the kernel's reports of refused calls over `executing`.
fn become_command(
    errand: &Errand,
    stdio: [OwnedFd; 3],
    executing: &UnixStream,
) -> Result<std::convert::Infallible, Failure> {
    rustix::process::setsid().step(|| "making a session".to_owned())?;
    #[cfg(target_os = "linux")]
    let stdio = if errand.plan.walls.has(Walls::DEVICES) {
        own_null_devices(stdio).step(|| "opening the null device".to_owned())?
    } else {
        stdio
    };
    let [stdin, stdout, stderr] = stdio;
    rustix::stdio::dup2_stdin(&stdin).step(|| "setting standard input".to_owned())?;
    rustix::stdio::dup2_stdout(&stdout).step(|| "setting standard output".to_owned())?;
    rustix::stdio::dup2_stderr(&stderr).step(|| "setting standard error".to_owned())?;
    if errand.tty {
        rustix::process::ioctl_tiocsctty(&stdin).step(|| "taking the terminal".to_owned())?;
    }
    if let Err(error) = rustix::process::chdir(&errand.cwd) {
        let (cwd, error) = (errand.cwd.display(), io::Error::from(error));
        return Err(Failure::Refused(format!("entering {cwd}: {error}; it must be inside the scope")));
    }
    let (argv, environment) = strings(errand)?;
    if let Some(umask) = errand.umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask as rustix::fs::RawMode));
    }
    if errand.plan.walls.has(Walls::LIMITS) {
        sys::set_limits(&errand.limits).step(|| "setting limits".to_owned())?;
    }
    #[cfg(target_os = "linux")]
    {
        if errand.plan.walls.has(Walls::DESCRIPTORS) {
            sys::close_from_on_exec(3).step(|| "closing descriptors".to_owned())?;
        }
        if errand.plan.tier != Tier::Off {
            close_walls(&errand.plan, executing)?;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _nothing_to_hand_over = executing;
    sys::reset_signals();
    execute(errand, &argv, &environment)
}

/// The machine's null device gives way to the fence's own: through a descriptor of the machine's, root's command could
/// change its mode and so stop everybody else.
#[cfg(target_os = "linux")]
fn own_null_devices(stdio: [OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
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

/// The walls that a process puts around itself, in the order in which each leaves room for the next.
#[cfg(target_os = "linux")]
fn close_walls(plan: &super::plan::Plan, executing: &UnixStream) -> Result<(), Failure> {
    use super::landlock::{self, Beside};
    use super::seccomp::{self, Sieve};
    let walls = plan.walls;
    super::inner::drop_powers(walls)?;
    let least = if plan.tier == Tier::B { landlock::ALONE } else { landlock::BESIDE_MOUNTS };
    let abi = landlock::abi();
    if abi < least {
        return Err(Failure::Broken(format!("Landlock {least} is needed, this kernel has {abi}")));
    }
    let beside = Beside {
        files: walls.has(Walls::LANDLOCK_FILES),
        // With a proxy only the loopback address of the fence exists, and servers under test use it.
        tcp: walls.has(Walls::LANDLOCK_TCP) && plan.proxy.is_none(),
        scope: walls.has(Walls::LANDLOCK_SCOPE),
    };
    landlock::restrict(&plan.rules, beside).step(|| "closing the Landlock domain".to_owned())?;
    let filters = [Walls::SECCOMP_SOCKETS, Walls::SECCOMP_CALLS, Walls::SECCOMP_SET_ID];
    if filters.into_iter().any(|wall| walls.has(wall)) {
        let sieve = Sieve { loopback: plan.proxy.is_some(), alone: plan.tier == Tier::B, walls };
        let listener =
            seccomp::restrict(sieve).step(|| "installing the filter of system calls".to_owned())?;
        if let Some(listener) = listener {
            control::send_descriptors(executing, [&listener])
                .step(|| "handing over the reports of refused calls".to_owned())?;
        }
    }
    Ok(())
}

fn strings(errand: &Errand) -> Result<(Vec<CString>, Vec<CString>), Failure> {
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| Failure::Refused("an argument or variable holds a NUL".to_owned()))
    };
    let argv = errand.argv.iter().map(|argument| text(argument.as_bytes())).collect::<Result<_, _>>()?;
    let joined = errand.plan.env.iter().map(|(name, value)| {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        text(pair.as_bytes())
    });
    Ok((argv, joined.collect::<Result<_, _>>()?))
}

/// Where programs are looked for when the command has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Becomes the program, looked up in the command's own `PATH` as a shell would.
fn execute(
    errand: &Errand,
    argv: &[CString],
    environment: &[CString],
) -> Result<std::convert::Infallible, Failure> {
    let Some(program) = errand.argv.first().filter(|program| !program.is_empty()) else {
        return Err(Failure::Refused("there is no program to execute".to_owned()));
    };
    if errand.plan.tier == Tier::C {
        return execute_in_profile(&errand.plan.profile, argv, environment);
    }
    let named = if program.as_bytes().contains(&b'/') {
        vec![program.clone()]
    } else {
        let path = errand.plan.env.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| DEFAULT_PATH.into());
        std::env::split_paths(&path).map(|dir| OsString::from(dir.join(program))).collect()
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in named {
        let Ok(path) = CString::new(candidate.as_bytes()) else { continue };
        let Err(error) = sys::execute(&path, argv, environment);
        let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        // What exists and cannot be executed says more than that it is not elsewhere.
        if !missing || last.kind() == io::ErrorKind::NotFound {
            last = error;
        }
        if !missing && last.kind() != io::ErrorKind::PermissionDenied {
            break;
        }
    }
    Err(Failure::Refused(format!("executing {}: {last}", program.display())))
}

/// The system's program that applies a Seatbelt profile and then becomes the command.
const SANDBOX_EXEC: &std::ffi::CStr = c"/usr/bin/sandbox-exec";

fn execute_in_profile(
    profile: &str,
    argv: &[CString],
    environment: &[CString],
) -> Result<std::convert::Infallible, Failure> {
    let profile = CString::new(profile)
        .map_err(|_| Failure::Broken("the profile of the fence holds a NUL".to_owned()))?;
    let mut whole = vec![SANDBOX_EXEC.to_owned(), c"-p".to_owned(), profile];
    whole.extend(argv.iter().cloned());
    let Err(error) = sys::execute(SANDBOX_EXEC, &whole, environment);
    Err(Failure::Broken(format!("executing {}: {error}", SANDBOX_EXEC.to_string_lossy())))
}
