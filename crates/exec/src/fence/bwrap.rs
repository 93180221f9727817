//! Tier A′: the same layers, mounted by the system's `bwrap`, where only that may make namespaces.
//!
//! Here: the plan as arguments, and the part of the helper that `bwrap` executes inside. That part finds what it needs
//! under fixed descriptor numbers, becomes the init of the pid namespace and puts up the remaining walls as in tier A.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, WaitOptions};

use super::carrier::Carrier;
use super::control::Said;
use super::helper::{self, Failure, Held, Step};
use super::inner::{HOST_NAME, drop_powers, keep_watch};
use super::placeholders;
use super::plan::{Errand, Plan};
use super::prepare::{Layer, Look, prepare};
use super::sys::{self, Forked};
use super::walls::Walls;

/// What tells the inner part from the outer one: its only argument.
pub(super) const INSIDE: &str = "inside";

/// Where the inner part finds what it needs: above anything that the outer one has open itself.
const FIRST: i32 = 100;
const PLAN: i32 = FIRST;
const STDIO: [i32; 3] = [FIRST + 1, FIRST + 2, FIRST + 3];
const LOCK: i32 = FIRST + 4;
const HELPER: i32 = FIRST + 5;
const PROXY: i32 = FIRST + 6;
/// Longest complaint of `bwrap` that is passed on.
const COMPLAINT: u64 = 2048;

/// The outer part: starts `bwrap`, waits for its end, tidies up.
pub(super) fn serve(errand: &Errand, plan: OwnedFd, held: Held) -> Result<(), Failure> {
    let notes = File::from(held.lock.try_clone().step(|| "keeping the lock".to_owned())?);
    let outcome = prepare(&errand.plan, &notes).and_then(|layers| enclose(errand, plan, held, &layers));
    // What cannot be removed is noted still, and the next fence of the pod tries again.
    let _noted = placeholders::sweep(&notes);
    outcome
}

fn enclose(errand: &Errand, plan: OwnedFd, held: Held, layers: &[Layer]) -> Result<(), Failure> {
    let argv = arguments(&errand.plan, layers)?;
    let program = text(errand.plan.bwrap.as_os_str())?;
    let (complaints, complain) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .step(|| "making a pipe to bwrap".to_owned())?;
    match sys::fork().step(|| "forking bwrap".to_owned())? {
        Forked::Child => {
            let handed = hand_over(errand, plan, &held, &complain);
            let why = match handed {
                Ok(()) => match sys::execute(&program, &argv, &[]) {
                    Ok(never) => match never {},
                    Err(error) => format!("executing {}: {error}", errand.plan.bwrap.display()),
                },
                Err(error) => format!("handing descriptors to bwrap: {error}"),
            };
            helper::say_failure(&held.line, Failure::Broken(why));
            sys::leave(1)
        }
        Forked::Parent(pid) => {
            drop((complain, plan, held.stdio));
            let mut said = Vec::new();
            // Ends with the last process that holds it, which is `bwrap` itself.
            let _cut = File::from(complaints).take(COMPLAINT).read_to_end(&mut said);
            let pid = Pid::from_raw(pid);
            while matches!(rustix::process::waitpid(pid, WaitOptions::empty()), Err(rustix::io::Errno::INTR))
            {
            }
            if !said.is_empty() {
                // After the command has run nobody listens for this any more.
                let why = format!("bwrap: {}", String::from_utf8_lossy(&said).trim());
                let _late = Said::Broken(why).write(&held.line);
            }
            Ok(())
        }
    }
}

/// Puts descriptors where the inner part expects them, open across the execution.
fn hand_over(errand: &Errand, plan: OwnedFd, held: &Held, complain: &OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stderr(complain)?;
    let own = File::open("/proc/self/exe")?;
    let proxy = errand.plan.proxy.as_deref().map(Carrier::open_socket).transpose()?;
    let [stdin, stdout, stderr] = &held.stdio;
    let mut handed: Vec<(i32, BorrowedFd<'_>)> = vec![(PLAN, plan.as_fd()), (LOCK, held.lock.as_fd())];
    handed.extend(STDIO.into_iter().zip([stdin, stdout, stderr].map(AsFd::as_fd)));
    handed.push((HELPER, own.as_fd()));
    handed.extend(proxy.as_ref().map(|socket| (PROXY, socket.as_fd())));
    for (number, fd) in handed {
        sys::place(fd.as_raw_fd(), number)?;
    }
    rustix::fs::seek(&plan, rustix::fs::SeekFrom::Start(0))?;
    sys::reset_signals();
    Ok(())
}

fn text(text: &OsStr) -> Result<CString, Failure> {
    CString::new(text.as_bytes()).map_err(|_| Failure::Broken("a path holds a NUL".to_owned()))
}

/// The layers as arguments of `bwrap`.
fn arguments(plan: &Plan, layers: &[Layer]) -> Result<Vec<CString>, Failure> {
    let mut argv: Vec<OsString> = ["bwrap", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]
        .iter()
        .map(Into::into)
        .collect();
    let host_name = OsStr::from_bytes(HOST_NAME);
    for (wall, words) in [
        (Walls::PID_NAMESPACE, &["--unshare-pid".as_ref(), "--as-pid-1".as_ref()][..]),
        (Walls::IPC_NAMESPACE, &["--unshare-ipc".as_ref()]),
        (Walls::UTS_NAMESPACE, &["--unshare-uts".as_ref(), "--hostname".as_ref(), host_name]),
        (Walls::NET_NAMESPACE, &["--unshare-net".as_ref()]),
    ] {
        if plan.walls.has(wall) {
            argv.extend(words.iter().map(|word: &&OsStr| (*word).to_owned()));
        }
    }
    let mut push = |words: &[&OsStr]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    let root: &OsStr = "/".as_ref();
    let writable = plan.writable_root || !plan.walls.has(Walls::READ_ONLY_ROOT);
    push(&[if writable { "--bind" } else { "--ro-bind" }.as_ref(), root, root]);
    let mut closed: Vec<&Path> = Vec::new();
    for layer in layers {
        let at = layer.at.as_os_str();
        match &layer.look {
            Look::Again { from, .. } if layer.is_link => {
                let why = format!(
                    "{} is protected and a symbolic link, which bwrap cannot hold; replace the link by what it leads \
                     to, or have a person lift it",
                    from.display()
                );
                return Err(Failure::Broken(why));
            }
            Look::Again { from, write } => {
                push(&[if *write { "--bind" } else { "--ro-bind" }.as_ref(), from.as_os_str(), at]);
            }
            Look::Empty { .. } if layer.is_directory => {
                push(&["--tmpfs".as_ref(), at]);
                closed.push(&layer.at);
            }
            Look::Empty { .. } => push(&["--ro-bind".as_ref(), "/dev/null".as_ref(), at]),
        }
    }
    push(&["--dev".as_ref(), "/dev".as_ref(), "--proc".as_ref(), "/proc".as_ref()]);
    push(&["--remount-ro".as_ref(), "/proc".as_ref()]);
    // Only now: what is shown inside a mask needed a place to be mounted on.
    for at in closed {
        push(&["--remount-ro".as_ref(), at.as_os_str()]);
    }
    let own = format!("/proc/self/fd/{HELPER}");
    let name = format!("/dev/{}", helper::NAME);
    push(&["--symlink".as_ref(), own.as_ref(), name.as_ref(), "--chdir".as_ref(), root]);
    push(&["--".as_ref(), name.as_ref(), INSIDE.as_ref()]);
    argv.iter().map(|word| text(word)).collect()
}

/// The inner part: everything that `bwrap` does not do.
pub(super) fn serve_inside(line: UnixStream) -> Result<(), Failure> {
    // Nothing but the line and what was handed over is in this process.
    let [plan, stdin, stdout, stderr, lock] =
        [PLAN, STDIO[0], STDIO[1], STDIO[2], LOCK].map(sys::take_descriptor);
    let errand = helper::read_errand(plan?)?;
    drop(sys::take_descriptor(HELPER));
    let carrier = match errand.plan.proxy {
        Some(_) => Some(
            Carrier::on(sys::take_descriptor(PROXY)?).step(|| "opening the way to the proxy".to_owned())?,
        ),
        None => None,
    };
    rustix::process::chdir("/").step(|| "entering the root".to_owned())?;
    drop_powers(errand.plan.walls)?;
    let held = Held { line, stdio: [stdin?, stdout?, stderr?], lock: lock? };
    keep_watch(&errand, held, carrier)
}
