//! The bubblewrap backend: the system's `bwrap` mounts the layers, for systems where only `bwrap` may create
//! namespaces.
//!
//! Here: the plan as `bwrap` arguments, and the part of the helper that `bwrap` executes inside. The inner part finds
//! its input at fixed descriptor numbers, becomes the init of the pid namespace, and applies the remaining restrictions
//! as the namespaces backend does.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, WaitOptions};

use super::super::control::ControlReply;
use super::super::helper::init::{HOST_NAME, drop_privileges, watch_command};
use super::super::helper::proxy_relay::ProxyRelay;
use super::super::helper::{self, HelperError, HelperInputs, StepContext};
use super::super::layers::{LayerSource, MountLayer, prepare_layers};
use super::super::placeholders;
use super::super::plan::{HelperRequest, SandboxPlan};
use super::super::restrictions::Restrictions;
use super::super::sys::{self, ForkResult};

/// The only argument of the inner part; distinguishes it from the outer one.
pub(in crate::sandbox) const INNER_ARGUMENT: &str = "inside";

/// The first descriptor number of the inner part, above all descriptors that the outer part has open.
const FIRST_FD: i32 = 100;
const PLAN_FD: i32 = FIRST_FD;
const STDIO_FDS: [i32; 3] = [FIRST_FD + 1, FIRST_FD + 2, FIRST_FD + 3];
const LOCK_FD: i32 = FIRST_FD + 4;
const HELPER_FD: i32 = FIRST_FD + 5;
const PROXY_FD: i32 = FIRST_FD + 6;
/// The most bytes of an error message of `bwrap` that are passed on.
const MAX_ERROR_BYTES: u64 = 2048;

/// The outer part: starts `bwrap`, waits for its exit, removes placeholders.
pub(in crate::sandbox) fn run_outer(
    request: &HelperRequest,
    plan: OwnedFd,
    held: HelperInputs,
) -> Result<(), HelperError> {
    let notes = File::from(held.lock.try_clone().with_step(|| "keeping the lock".to_owned())?);
    let outcome =
        prepare_layers(&request.plan, &notes).and_then(|layers| run_bubblewrap(request, plan, held, &layers));
    // Placeholders that cannot be removed stay noted, and the next sandbox of the pod tries again.
    let _noted = placeholders::remove_noted(&notes);
    outcome
}

fn run_bubblewrap(
    errand: &HelperRequest,
    plan: OwnedFd,
    held: HelperInputs,
    layers: &[MountLayer],
) -> Result<(), HelperError> {
    let argv = build_arguments(&errand.plan, layers)?;
    let program = to_c_string(errand.plan.bubblewrap.as_os_str())?;
    let (complaints, complain) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .with_step(|| "making a pipe to bwrap".to_owned())?;
    match sys::fork_process().with_step(|| "forking bwrap".to_owned())? {
        ForkResult::Child => {
            let handed = place_descriptors(errand, plan, &held, &complain);
            let why = match handed {
                Ok(()) => match sys::exec_path(&program, &argv, &[]) {
                    Ok(never) => match never {},
                    Err(error) => format!("executing {}: {error}", errand.plan.bubblewrap.display()),
                },
                Err(error) => format!("handing descriptors to bwrap: {error}"),
            };
            helper::send_failure(&held.control, HelperError::SetupFailed(why));
            sys::exit_now(1)
        }
        ForkResult::Parent(pid) => {
            drop((complain, plan, held.stdio));
            let mut said = Vec::new();
            // The lock is released when `bwrap`, the last process that holds it, exits.
            let _cut = File::from(complaints).take(MAX_ERROR_BYTES).read_to_end(&mut said);
            let pid = Pid::from_raw(pid);
            while matches!(rustix::process::waitpid(pid, WaitOptions::empty()), Err(rustix::io::Errno::INTR))
            {
            }
            if !said.is_empty() {
                // Once the command has run, the pod no longer reads setup errors.
                let why = format!("bwrap: {}", String::from_utf8_lossy(&said).trim());
                let _late = ControlReply::SetupFailed(why).write_to(&held.control);
            }
            Ok(())
        }
    }
}

/// Duplicates the descriptors to their fixed numbers, without close-on-exec.
fn place_descriptors(
    request: &HelperRequest,
    plan: OwnedFd,
    held: &HelperInputs,
    complain: &OwnedFd,
) -> io::Result<()> {
    rustix::stdio::dup2_stderr(complain)?;
    let own = File::open("/proc/self/exe")?;
    let proxy = request.plan.proxy.as_deref().map(ProxyRelay::open_socket).transpose()?;
    let [stdin, stdout, stderr] = &held.stdio;
    let mut handed: Vec<(i32, BorrowedFd<'_>)> = vec![(PLAN_FD, plan.as_fd()), (LOCK_FD, held.lock.as_fd())];
    handed.extend(STDIO_FDS.into_iter().zip([stdin, stdout, stderr].map(AsFd::as_fd)));
    handed.push((HELPER_FD, own.as_fd()));
    handed.extend(proxy.as_ref().map(|socket| (PROXY_FD, socket.as_fd())));
    for (number, fd) in handed {
        sys::dup_inheritable(fd.as_raw_fd(), number)?;
    }
    rustix::fs::seek(&plan, rustix::fs::SeekFrom::Start(0))?;
    sys::reset_signals();
    Ok(())
}

fn to_c_string(text: &OsStr) -> Result<CString, HelperError> {
    CString::new(text.as_bytes()).map_err(|_| HelperError::SetupFailed("a path contains a NUL".to_owned()))
}

/// Converts the layers to arguments of `bwrap`.
fn build_arguments(plan: &SandboxPlan, layers: &[MountLayer]) -> Result<Vec<CString>, HelperError> {
    let mut argv: Vec<OsString> = ["bwrap", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]
        .iter()
        .map(Into::into)
        .collect();
    let host_name = OsStr::from_bytes(HOST_NAME);
    for (wall, words) in [
        (Restrictions::PID_NAMESPACE, &["--unshare-pid".as_ref(), "--as-pid-1".as_ref()][..]),
        (Restrictions::IPC_NAMESPACE, &["--unshare-ipc".as_ref()]),
        (Restrictions::UTS_NAMESPACE, &["--unshare-uts".as_ref(), "--hostname".as_ref(), host_name]),
        (Restrictions::NET_NAMESPACE, &["--unshare-net".as_ref()]),
    ] {
        if plan.restrictions.contains(wall) {
            argv.extend(words.iter().map(|word: &&OsStr| (*word).to_owned()));
        }
    }
    let mut push = |words: &[&OsStr]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    let root: &OsStr = "/".as_ref();
    let writable = plan.writable_root || !plan.restrictions.contains(Restrictions::READ_ONLY_ROOT);
    push(&[if writable { "--bind" } else { "--ro-bind" }.as_ref(), root, root]);
    let mut closed: Vec<&Path> = Vec::new();
    for layer in layers {
        let at = layer.target.as_os_str();
        match &layer.source {
            LayerSource::Bind { from, .. } if layer.is_link => {
                let why = format!(
                    "{} is protected and a symbolic link, which bwrap cannot protect; replace the link by its \
                     target, or make it writable with `--lift PATH`",
                    from.display()
                );
                return Err(HelperError::SetupFailed(why));
            }
            LayerSource::Bind { from, write } => {
                push(&[if *write { "--bind" } else { "--ro-bind" }.as_ref(), from.as_os_str(), at]);
            }
            LayerSource::Mask { .. } if layer.is_directory => {
                push(&["--tmpfs".as_ref(), at]);
                closed.push(&layer.target);
            }
            LayerSource::Mask { .. } => push(&["--ro-bind".as_ref(), "/dev/null".as_ref(), at]),
        }
    }
    push(&["--dev".as_ref(), "/dev".as_ref(), "--proc".as_ref(), "/proc".as_ref()]);
    push(&["--remount-ro".as_ref(), "/proc".as_ref()]);
    // Remount only now: the mount points inside a mask had to be created first.
    for at in closed {
        push(&["--remount-ro".as_ref(), at.as_os_str()]);
    }
    let own = format!("/proc/self/fd/{HELPER_FD}");
    let name = format!("/dev/{}", helper::HELPER_NAME);
    push(&["--symlink".as_ref(), own.as_ref(), name.as_ref(), "--chdir".as_ref(), root]);
    push(&["--".as_ref(), name.as_ref(), INNER_ARGUMENT.as_ref()]);
    argv.iter().map(|word| to_c_string(word)).collect()
}

/// The inner part: applies the restrictions that `bwrap` does not.
pub(in crate::sandbox) fn run_inner(control: UnixStream) -> Result<(), HelperError> {
    // Only the control socket and the inherited descriptors exist in this process.
    let [plan, stdin, stdout, stderr, lock] =
        [PLAN_FD, STDIO_FDS[0], STDIO_FDS[1], STDIO_FDS[2], LOCK_FD].map(sys::take_descriptor);
    let request = helper::read_request(plan?)?;
    drop(sys::take_descriptor(HELPER_FD));
    let carrier = match request.plan.proxy {
        Some(_) => Some(
            ProxyRelay::listen_on_loopback(sys::take_descriptor(PROXY_FD)?)
                .with_step(|| "opening the proxy relay".to_owned())?,
        ),
        None => None,
    };
    rustix::process::chdir("/").with_step(|| "entering the root".to_owned())?;
    drop_privileges(request.plan.restrictions)?;
    let held = HelperInputs { control, stdio: [stdin?, stdout?, stderr?], lock: lock? };
    watch_command(&request, held, carrier)
}
