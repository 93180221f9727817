//! The inside of a fence with namespaces: its init, which makes the look, drops every power and watches the command.
//!
//! Here: the order of things in tier A. The helper stays outside, waits for the init and tidies up after it; the init
//! dies with the helper, and everything in the pid namespace with the init. The init is made before it is known what for:
//! by a spare helper long before, else while the helper prepares the layers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use super::carrier::Carrier;
use super::control;
use super::helper::{Failure, Held, Step, launch, read_errand, say_failure};
use super::plan::Errand;
use super::prepare::{Layer, prepare};
use super::sys::{self, Forked};
use super::walls::Walls;
use super::watch::watch;
use super::{mounts, placeholders, tree};

/// What the fence calls its machine.
pub(super) const HOST_NAME: &[u8] = b"fence";

/// Namespaces that do not depend on what a command may touch; each that a wall stands for, and the one that owns them.
/// Mounts have theirs too, made when the plan is there: it is a copy of the machine's, and is to be a fresh one.
fn namespaces(walls: Walls) -> i32 {
    let mut flags = libc::CLONE_NEWUSER;
    for (wall, flag) in [
        (Walls::PID_NAMESPACE, libc::CLONE_NEWPID),
        (Walls::IPC_NAMESPACE, libc::CLONE_NEWIPC),
        (Walls::UTS_NAMESPACE, libc::CLONE_NEWUTS),
        (Walls::NET_NAMESPACE, libc::CLONE_NEWNET),
    ] {
        if walls.has(wall) {
            flags |= flag;
        }
    }
    flags
}

/// An init in its namespaces that waits to be told what it is to look like. It dies with this process.
pub(super) struct Waiting {
    pid: Option<Pid>,
    /// Its end tells the init, which has not begun, that it is not needed.
    to_init: UnixStream,
    walls: Walls,
}

impl Waiting {
    pub(super) fn make(walls: Walls, line: &UnixStream) -> Result<Waiting, Failure> {
        let (to_init, from_helper) = UnixStream::pair().step(|| "making a line to the init".to_owned())?;
        let ids = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        match sys::clone_namespaces(namespaces(walls)).step(|| "making namespaces".to_owned())? {
            Forked::Child => {
                drop(to_init);
                if let Err(failure) = be_init(walls, line, from_helper, ids) {
                    say_failure(line, failure);
                }
                sys::leave(0)
            }
            Forked::Parent(pid) => Ok(Waiting { pid: Pid::from_raw(pid), to_init, walls }),
        }
    }
}

impl Drop for Waiting {
    /// An init that was not let begin ends with the line to it, and is waited for: nobody else would.
    fn drop(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _gone = self.to_init.shutdown(Shutdown::Both);
            wait_for(pid);
        }
    }
}

fn wait_for(init: Pid) {
    while matches!(rustix::process::waitpid(Some(init), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {
    }
}

/// The helper's part: lets the init begin, waits for its end, removes what was made for it.
pub(super) fn serve(
    errand: &Errand,
    plan: OwnedFd,
    held: Held,
    waiting: Option<Waiting>,
) -> Result<(), Failure> {
    let notes = File::from(held.lock.try_clone().step(|| "keeping the lock".to_owned())?);
    let waiting = match waiting {
        Some(waiting) if waiting.walls == errand.plan.walls => waiting,
        // The init of other walls is told by the end of its line that it is not needed.
        _ => Waiting::make(errand.plan.walls, &held.line)?,
    };
    let layers = prepare(&errand.plan, &notes);
    let outcome = layers.and_then(|layers| enclose(plan, held, &layers, waiting));
    // What cannot be removed is noted still, and the next fence of the pod tries again.
    let _noted = placeholders::sweep(&notes);
    outcome
}

fn enclose(plan: OwnedFd, held: Held, layers: &[Layer], mut waiting: Waiting) -> Result<(), Failure> {
    rustix::fs::seek(&plan, rustix::fs::SeekFrom::Start(0)).step(|| "rewinding the plan".to_owned())?;
    let [stdin, stdout, stderr] = &held.stdio;
    let to_init = &mut waiting.to_init;
    control::send_descriptors(to_init, [&plan, stdin, stdout, stderr, &held.lock])
        .and_then(|()| to_init.write_all(&Layer::encode(layers)))
        .and_then(|()| to_init.shutdown(Shutdown::Write))
        .step(|| "telling the init what to do".to_owned())?;
    drop((plan, held));
    // The line stays open to the end: by its end the init would learn that this process is gone.
    if let Some(pid) = waiting.pid.take() {
        wait_for(pid);
    }
    Ok(())
}

/// The init's part, from its first moment to the command's end.
fn be_init(
    walls: Walls,
    line: &UnixStream,
    mut from_helper: UnixStream,
    (uid, gid): (u32, u32),
) -> Result<(), Failure> {
    die_with_parent(&from_helper)?;
    map_ids(uid, gid).step(|| "mapping the user into the namespace".to_owned())?;
    if walls.has(Walls::UTS_NAMESPACE) {
        rustix::system::sethostname(HOST_NAME).step(|| "naming the machine".to_owned())?;
    }
    let told = control::receive_descriptors(&from_helper).step(|| "receiving the command".to_owned())?;
    let Some([plan, stdin, stdout, stderr, lock]) = told else { return Ok(()) };
    let errand = read_errand(plan)?;
    let mut layers = Vec::new();
    from_helper
        .read_to_end(&mut layers)
        .and_then(|_| Layer::decode(&layers))
        .step(|| "receiving what to mount".to_owned())
        .and_then(|layers| {
            let line = line.try_clone().step(|| "keeping the line".to_owned())?;
            let held = Held { line, stdio: [stdin, stdout, stderr], lock };
            begin(&errand, held, &layers, uid)
        })
}

/// Puts up what the plan says, and the command behind it.
fn begin(errand: &Errand, held: Held, layers: &[Layer], uid: u32) -> Result<(), Failure> {
    let plan = &errand.plan;
    sys::unshare_mounts().step(|| "making a mount namespace".to_owned())?;
    bound_processes(errand, uid).step(|| "bounding the number of processes".to_owned())?;
    let carrier = plan.proxy.as_ref().map(|socket| {
        sys::bring_loopback_up()?;
        Carrier::on(Carrier::open_socket(socket)?)
    });
    let carrier = carrier.transpose().step(|| "opening the way to the proxy".to_owned())?;
    mounts::build(plan, layers)?;
    drop_powers(plan.walls)?;
    keep_watch(errand, held, carrier)
}

/// Starts the command and stays until it ends, or is to end. The lock is held as long as this process lives.
pub(super) fn keep_watch(errand: &Errand, held: Held, carrier: Option<Carrier>) -> Result<(), Failure> {
    let ends = sys::child_ends().step(|| "hearing of children".to_owned())?;
    if let Some(carrier) = carrier {
        carrier.launch().step(|| "starting the way to the proxy".to_owned())?;
    }
    let Held { line, stdio, lock: _lock } = held;
    let launched = launch(errand, stdio, &line)?;
    watch(&line, launched, &ends);
    if !errand.plan.walls.has(Walls::PID_NAMESPACE) {
        tree::end_descendants();
    }
    Ok(())
}

/// Asks the kernel for death with the helper, and looks whether the helper died before that was asked.
fn die_with_parent(helper: &UnixStream) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step(|| "asking to die with the helper".to_owned())?;
    let mut polled = [PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default()))
        .step(|| "looking for the helper".to_owned())?;
    let [polled] = polled;
    if polled.revents().contains(PollFlags::HUP) {
        sys::leave(1);
    }
    Ok(())
}

/// The own user and group are themselves, and nobody else exists.
fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Since when a pid namespace has a highest number of its own. Before, there is one for the whole machine, which is not
/// ours to change.
const OWN_HIGHEST_NUMBER: (u32, u32) = (6, 14);
const HIGHEST_NUMBER: &str = "/proc/sys/kernel/pid_max";
/// Numbers that are given out once only, when the namespace is new.
const GIVEN_ONCE: u64 = 300;

/// Root's processes are not counted against a limit; but numbers of processes can be made few.
fn bound_processes(errand: &Errand, uid: u32) -> io::Result<()> {
    let walls = errand.plan.walls;
    let limit = errand.limits.iter().find(|(resource, _)| u64::from(*resource) == libc::RLIMIT_NPROC as u64);
    let Some((_, most)) = limit.filter(|_| uid == 0 && walls.has(Walls::LIMITS.with(Walls::PID_NAMESPACE)))
    else {
        return Ok(());
    };
    let release = rustix::system::uname();
    if kernel(&release.release().to_string_lossy()) < Some(OWN_HIGHEST_NUMBER) {
        return Ok(());
    }
    match std::fs::write(HIGHEST_NUMBER, (most + GIVEN_ONCE).to_string()) {
        // In a container that shows its settings read-only; it has a limit of its own for that.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        done => done,
    }
}

/// The two first numbers of a kernel's release.
fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Gives up every capability for good, and the way to new ones.
pub(super) fn drop_powers(walls: Walls) -> Result<(), Failure> {
    if walls.has(Walls::CAPABILITIES) {
        sys::drop_capabilities().step(|| "dropping capabilities".to_owned())?;
    }
    if walls.has(Walls::NO_NEW_PRIVILEGES) {
        rustix::thread::set_no_new_privs(true).step(|| "renouncing new privileges".to_owned())?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .step(|| "hiding this process".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert_eq!(kernel("6.18.44"), Some((6, 18)));
        assert_eq!(kernel("6.9.0-rc1+custom"), Some((6, 9)));
        assert_eq!(kernel("7.0"), Some((7, 0)));
        assert_eq!(kernel("unknown"), None);
        assert!(kernel("6.9.0") < Some(OWN_HIGHEST_NUMBER) && kernel("") < Some(OWN_HIGHEST_NUMBER));
        assert!(kernel("6.14-arch1") >= Some(OWN_HIGHEST_NUMBER));
    }
}
