//! The init of a sandbox with namespaces: mounts the command's view, drops all privileges and supervises the command.
//!
//! Here: the steps of the namespaces backend. The helper stays outside, waits for the init and removes placeholders.
//! The init dies with the helper, and the processes of the pid namespace with the init. The init is forked before the
//! request is known: by a spare helper in advance, else while the helper prepares the layers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use super::super::control;
use super::super::helper::proxy_relay::ProxyRelay;
use super::super::helper::reaper::watch_child;
use super::super::helper::{
    HelperError, HelperInputs, StepContext, launch_command, read_request, send_failure,
};
use super::super::layers::{MountLayer, prepare_layers};
use super::super::plan::HelperRequest;
use super::super::restrictions::Restrictions;
use super::super::sys::{self, ForkResult};
use super::super::{backends::mounts, helper::process_tree, placeholders};

/// The host name inside the sandbox.
pub(in crate::sandbox) const HOST_NAME: &[u8] = b"sandbox";

/// Returns the namespaces that do not depend on the request: one per restriction, and the user namespace that owns
/// them. The mount namespace is created later, because it must be a copy of the current mounts.
fn namespace_flags(restrictions: Restrictions) -> i32 {
    let mut flags = libc::CLONE_NEWUSER;
    for (wall, flag) in [
        (Restrictions::PID_NAMESPACE, libc::CLONE_NEWPID),
        (Restrictions::IPC_NAMESPACE, libc::CLONE_NEWIPC),
        (Restrictions::UTS_NAMESPACE, libc::CLONE_NEWUTS),
        (Restrictions::NET_NAMESPACE, libc::CLONE_NEWNET),
    ] {
        if restrictions.contains(wall) {
            flags |= flag;
        }
    }
    flags
}

/// An init in its namespaces that waits for its request. It dies with this process.
pub(in crate::sandbox) struct PendingInit {
    pid: Option<Pid>,
    /// Closing it tells an init that has not begun to exit.
    to_init: UnixStream,
    restrictions: Restrictions,
}

impl PendingInit {
    pub(in crate::sandbox) fn fork_init(
        restrictions: Restrictions,
        line: &UnixStream,
    ) -> Result<PendingInit, HelperError> {
        let (to_init, from_helper) =
            UnixStream::pair().with_step(|| "creating a socket to the init".to_owned())?;
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        match sys::clone_namespaces(namespace_flags(restrictions))
            .with_step(|| "creating namespaces".to_owned())?
        {
            ForkResult::Child => {
                drop(to_init);
                if let Err(failure) = init_main(restrictions, line, from_helper, uid, gid) {
                    send_failure(line, failure);
                }
                sys::exit_now(0)
            }
            ForkResult::Parent(pid) => Ok(PendingInit { pid: Pid::from_raw(pid), to_init, restrictions }),
        }
    }
}

impl Drop for PendingInit {
    /// Ends and reaps an init that was not started.
    fn drop(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _gone = self.to_init.shutdown(Shutdown::Both);
            wait_for_init(pid);
        }
    }
}

fn wait_for_init(init: Pid) {
    while matches!(rustix::process::waitpid(Some(init), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {
    }
}

/// The helper's part: starts the init, waits for its exit, removes the placeholders.
pub(in crate::sandbox) fn run_in_namespaces(
    request: &HelperRequest,
    plan: OwnedFd,
    inputs: HelperInputs,
    waiting: Option<PendingInit>,
) -> Result<(), HelperError> {
    let notes = File::from(inputs.lock.try_clone().with_step(|| "keeping the lock".to_owned())?);
    let waiting = match waiting {
        Some(waiting) if waiting.restrictions == request.plan.restrictions => waiting,
        // Closing the socket ends an init with other restrictions.
        _ => PendingInit::fork_init(request.plan.restrictions, &inputs.control)?,
    };
    let layers = prepare_layers(&request.plan, &notes);
    let outcome = layers.and_then(|layers| start_init(plan, inputs, &layers, waiting));
    // Placeholders that cannot be removed stay noted, and the next sandbox of the pod tries again.
    let _noted = placeholders::remove_noted(&notes);
    outcome
}

fn start_init(
    plan: OwnedFd,
    inputs: HelperInputs,
    layers: &[MountLayer],
    mut waiting: PendingInit,
) -> Result<(), HelperError> {
    rustix::fs::seek(&plan, rustix::fs::SeekFrom::Start(0)).with_step(|| "rewinding the plan".to_owned())?;
    let [stdin, stdout, stderr] = &inputs.stdio;
    let to_init = &mut waiting.to_init;
    control::send_descriptors(to_init, [&plan, stdin, stdout, stderr, &inputs.lock])
        .and_then(|()| to_init.write_all(&MountLayer::encode(layers)))
        .and_then(|()| to_init.shutdown(Shutdown::Write))
        .with_step(|| "sending the request to the init".to_owned())?;
    drop((plan, inputs));
    // The socket stays open: its close would tell the init that this process has exited.
    if let Some(pid) = waiting.pid.take() {
        wait_for_init(pid);
    }
    Ok(())
}

/// The init's part, from the fork to the end of the command.
fn init_main(
    restrictions: Restrictions,
    line: &UnixStream,
    mut from_helper: UnixStream,
    uid: u32,
    gid: u32,
) -> Result<(), HelperError> {
    die_with_parent(&from_helper)?;
    map_ids(uid, gid).with_step(|| "mapping the user into the namespace".to_owned())?;
    if restrictions.contains(Restrictions::UTS_NAMESPACE) {
        rustix::system::sethostname(HOST_NAME).with_step(|| "setting the host name".to_owned())?;
    }
    let told = control::receive_descriptors(&from_helper).with_step(|| "receiving the command".to_owned())?;
    let Some([plan, stdin, stdout, stderr, lock]) = told else { return Ok(()) };
    let request = read_request(plan)?;
    let mut layers = Vec::new();
    from_helper
        .read_to_end(&mut layers)
        .and_then(|_| MountLayer::decode(&layers))
        .with_step(|| "receiving the layers".to_owned())
        .and_then(|layers| {
            let control = line.try_clone().with_step(|| "duplicating the control socket".to_owned())?;
            let inputs = HelperInputs { control, stdio: [stdin, stdout, stderr], lock };
            begin_command(&request, inputs, &layers, uid)
        })
}

/// Mounts the layers, limits processes and starts the command.
fn begin_command(
    errand: &HelperRequest,
    held: HelperInputs,
    layers: &[MountLayer],
    uid: u32,
) -> Result<(), HelperError> {
    let plan = &errand.plan;
    sys::unshare_mounts().with_step(|| "creating a mount namespace".to_owned())?;
    limit_processes(errand, uid).with_step(|| "limiting the number of processes".to_owned())?;
    let carrier = plan.proxy.as_ref().map(|socket| {
        sys::bring_loopback_up()?;
        ProxyRelay::listen_on_loopback(ProxyRelay::open_socket(socket)?)
    });
    let carrier = carrier.transpose().with_step(|| "opening the proxy relay".to_owned())?;
    mounts::build_mounts(plan, layers)?;
    drop_privileges(plan.restrictions)?;
    watch_command(errand, held, carrier)
}

/// Starts the command and supervises it until it ends or is killed. This process holds the lock until it exits.
pub(in crate::sandbox) fn watch_command(
    request: &HelperRequest,
    inputs: HelperInputs,
    carrier: Option<ProxyRelay>,
) -> Result<(), HelperError> {
    let ends = sys::child_exit_fd().with_step(|| "watching for exits of children".to_owned())?;
    if let Some(carrier) = carrier {
        carrier.fork_relay().with_step(|| "starting the proxy relay".to_owned())?;
    }
    let HelperInputs { control, stdio, lock: _lock } = inputs;
    let launched = launch_command(request, stdio, &control)?;
    watch_child(&control, launched, &ends);
    if !request.plan.restrictions.contains(Restrictions::PID_NAMESPACE) {
        process_tree::kill_descendants();
    }
    Ok(())
}

/// Asks the kernel to kill this process with the helper, then checks that the helper was still alive.
fn die_with_parent(helper: &UnixStream) -> Result<(), HelperError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .with_step(|| "asking to die with the helper".to_owned())?;
    let mut polled = [PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default()))
        .with_step(|| "checking for the helper".to_owned())?;
    let [polled] = polled;
    if polled.revents().contains(PollFlags::HUP) {
        sys::exit_now(1);
    }
    Ok(())
}

/// Maps the user and group to themselves; no other ids exist in the namespace.
fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// The first kernel with a `pid_max` per pid namespace. Before, it is one setting for the whole machine.
const PID_MAX_KERNEL: (u32, u32) = (6, 14);
const PID_MAX_PATH: &str = "/proc/sys/kernel/pid_max";
/// Process numbers that the kernel assigns only once, in a new namespace.
const RESERVED_PIDS: u64 = 300;

/// Lowers `pid_max`, because the process limit does not apply to root.
fn limit_processes(request: &HelperRequest, uid: u32) -> io::Result<()> {
    let restrictions = request.plan.restrictions;
    let limit = request.limits.iter().find(|(resource, _)| u64::from(*resource) == libc::RLIMIT_NPROC as u64);
    let Some((_, most)) = limit.filter(|_| {
        uid == 0 && restrictions.contains(Restrictions::LIMITS.with(Restrictions::PID_NAMESPACE))
    }) else {
        return Ok(());
    };
    let release = rustix::system::uname();
    if parse_kernel_release(&release.release().to_string_lossy()) < Some(PID_MAX_KERNEL) {
        return Ok(());
    }
    match std::fs::write(PID_MAX_PATH, (most + RESERVED_PIDS).to_string()) {
        // Inside a container with read-only kernel settings; the container has its own limit.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        done => done,
    }
}

/// Returns the first two numbers of a kernel release.
fn parse_kernel_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Drops all capabilities and sets `no_new_privs`.
pub(in crate::sandbox) fn drop_privileges(restrictions: Restrictions) -> Result<(), HelperError> {
    if restrictions.contains(Restrictions::CAPABILITIES) {
        sys::drop_capabilities().with_step(|| "dropping capabilities".to_owned())?;
    }
    if restrictions.contains(Restrictions::NO_NEW_PRIVILEGES) {
        rustix::thread::set_no_new_privs(true).with_step(|| "setting no_new_privs".to_owned())?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .with_step(|| "making this process undumpable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert_eq!(parse_kernel_release("6.18.44"), Some((6, 18)));
        assert_eq!(parse_kernel_release("6.9.0-rc1+custom"), Some((6, 9)));
        assert_eq!(parse_kernel_release("7.0"), Some((7, 0)));
        assert_eq!(parse_kernel_release("unknown"), None);
        assert!(
            parse_kernel_release("6.9.0") < Some(PID_MAX_KERNEL)
                && parse_kernel_release("") < Some(PID_MAX_KERNEL)
        );
        assert!(parse_kernel_release("6.14-arch1") >= Some(PID_MAX_KERNEL));
    }
}
