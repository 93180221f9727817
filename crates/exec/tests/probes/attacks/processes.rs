//! Other processes: seeing them, signalling them, reading and changing them, their shared memory.
//!
//! `pod` is the process that starts the fences; `victim` is a bystander of the same user, outside, that blocks every
//! signal so that those that reached it are still pending when it is looked at. Each signal probe has one of its own.

use std::fs;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::inside::{CANARY, Ground, fork, holds, leave, lists, read, seen_in, wait};
use crate::probe::{Bare, Probe, Rest, Seen, Stage, Wall, probe, tried, tried_if};
use crate::sys::{c, sys};

/// Signals by which the victim is reached, so that it can be seen from outside which probe got through.
pub(crate) const SIGNALS: [(&str, i32); 6] = [
    ("kill-outside", 40),
    ("tgkill-outside", 41),
    ("sigqueue-outside", 42),
    ("pidfd-signal", 43),
    ("sigio-outside", 44),
    ("kill-group", 45),
];

pub(super) const PROBES: &[Probe] = &[
    probe("list-processes", "getdents64 /proc", Wall::Proc, |g| match lists("/proc", g.fact("victim")) {
        Seen::Done(_) if !is_victim(g) => Seen::Held("the number is another process's".to_owned()),
        seen => seen,
    })
    .left_by_b(Rest::Processes),
    probe("proc-cmdline", "openat /proc/PID/cmdline", Wall::Proc, |g| {
        read(format!("/proc/{}/cmdline", g.fact("victim")))
    })
    .left_by_b(Rest::Processes),
    probe("pod-environ", "openat /proc/PID/environ", Wall::PidNamespace, |g| {
        read(format!("/proc/{}/environ", g.fact("pod")))
    }),
    probe("victim-environ", "openat /proc/PID/environ", Wall::PidNamespace, |g| {
        read(format!("/proc/{}/environ", g.fact("victim")))
    }),
    probe("pod-mem", "openat /proc/PID/mem", Wall::PidNamespace, |g| {
        tried(fs::File::open(format!("/proc/{}/mem", g.fact("pod"))))
    }),
    probe("victim-mem", "openat /proc/PID/mem, pread64", Wall::PidNamespace, victim_mem),
    probe("pod-maps", "openat /proc/PID/maps", Wall::PidNamespace, |g| {
        tried(fs::read(format!("/proc/{}/maps", g.fact("pod"))))
    }),
    probe("pod-fds", "readlink /proc/PID/fd/N", Wall::PidNamespace, |g| {
        tried(fs::read_link(format!("/proc/{}/fd/1", g.fact("pod"))))
    }),
    probe("victim-fd-reopened", "openat /proc/PID/fd/N", Wall::PidNamespace, |g| {
        read(format!("/proc/{}/fd/{}", g.fact("victim"), g.fact("victim_fd")))
    }),
    probe("victim-root", "openat /proc/PID/root", Wall::PidNamespace, |g| {
        read(format!("/proc/{}/root{}", g.fact("victim"), g.outside("secret").display()))
    }),
    probe("kill-outside", "kill", Wall::LandlockScope, |g| {
        tried(sys!(SYS_kill, g.number("victim"), signal("kill-outside")))
    }),
    probe("kill-pod", "kill", Wall::LandlockScope, |g| {
        tried(sys!(SYS_kill, g.number("pod"), libc::SIGWINCH))
    }),
    probe("kill-group", "kill", Wall::LandlockScope, |g| {
        tried(sys!(SYS_kill, -g.number("victim_group"), signal("kill-group")))
    }),
    probe("tgkill-outside", "tgkill", Wall::LandlockScope, |g| {
        let victim = g.number("victim");
        tried(sys!(SYS_tgkill, victim, victim, signal("tgkill-outside")))
    }),
    probe("sigqueue-outside", "rt_sigqueueinfo", Wall::LandlockScope, |g| {
        const SI_QUEUE: i32 = -1;
        let mut info = [0i32; 32];
        (info[0], info[2]) = (signal("sigqueue-outside"), SI_QUEUE);
        tried(sys!(SYS_rt_sigqueueinfo, g.number("victim"), signal("sigqueue-outside"), info.as_ptr()))
    }),
    probe("pidfd-signal", "pidfd_open, pidfd_send_signal", Wall::LandlockScope, |g| {
        let opened = sys!(SYS_pidfd_open, g.number("victim"), 0);
        tried(opened.and_then(|fd| sys!(SYS_pidfd_send_signal, fd, signal("pidfd-signal"), 0, 0)))
    }),
    probe("sigio-outside", "fcntl F_SETOWN", Wall::LandlockScope, sigio),
    probe("ptrace-seize", "ptrace PTRACE_SEIZE", Wall::SeccompCalls, |g| {
        tried(sys!(SYS_ptrace, libc::PTRACE_SEIZE, g.number("victim"), 0, 0))
    }),
    probe("ptrace-child", "ptrace PTRACE_TRACEME", Wall::SeccompCalls, |_| {
        tried(sys!(SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0))
    }),
    probe("vm-read", "process_vm_readv", Wall::SeccompCalls, |g| vm(g, libc::SYS_process_vm_readv)),
    probe("vm-write", "process_vm_writev", Wall::SeccompCalls, |g| vm(g, libc::SYS_process_vm_writev)),
    probe("pidfd-getfd", "pidfd_getfd", Wall::SeccompCalls, |g| {
        let opened = sys!(SYS_pidfd_open, g.number("victim"), 0);
        let fd = opened.and_then(|fd| sys!(SYS_pidfd_getfd, fd, g.number("victim_fd"), 0));
        seen_in(fd.and_then(|fd| fs::read(format!("/proc/self/fd/{fd}"))))
    }),
    probe("kcmp-outside", "kcmp", Wall::PidNamespace, |g| {
        let victim = g.number("victim");
        let own = rustix::process::getpid().as_raw_nonzero().get();
        tried_if(sys!(SYS_kcmp, own, victim, 0, 0, 0), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("prlimit-outside", "prlimit64", Wall::PidNamespace, |g| {
        let limit = [4096u64, 4096];
        tried(sys!(SYS_prlimit64, g.number("victim"), libc::RLIMIT_NOFILE, limit.as_ptr(), 0))
    }),
    probe("renice-outside", "setpriority", Wall::PidNamespace, |g| {
        // 19: raising it is allowed at any nice level at which the tests run, lowering it is not.
        tried(sys!(SYS_setpriority, libc::PRIO_PROCESS, g.number("victim"), 19))
    }),
    probe("ioprio-outside", "ioprio_set", Wall::PidNamespace, |g| {
        const PROCESS: i32 = 1;
        const BEST_EFFORT_7: i32 = (2 << 13) | 7;
        tried(sys!(SYS_ioprio_set, PROCESS, g.number("victim"), BEST_EFFORT_7))
    }),
    probe("affinity-outside", "sched_setaffinity", Wall::PidNamespace, |g| {
        let all = [u64::MAX; 16];
        tried(sys!(SYS_sched_setaffinity, g.number("victim"), 128, all.as_ptr()))
    }),
    probe("scheduler-outside", "sched_setscheduler", Wall::PidNamespace, |g| {
        let param = 0i32;
        tried(sys!(SYS_sched_setscheduler, g.number("victim"), libc::SCHED_BATCH, &raw const param))
    }),
    probe("oom-score-outside", "openat /proc/PID/oom_score_adj", Wall::PidNamespace, |g| {
        tried(fs::write(format!("/proc/{}/oom_score_adj", g.fact("victim")), "1000"))
    }),
    probe("sysv-memory", "shmget, shmat", Wall::IpcNamespace, |g| {
        let id = sys!(SYS_shmget, g.number("shm_key"), 64, 0);
        tried(id.and_then(|id| sys!(SYS_shmat, id, 0, libc::SHM_RDONLY)))
    }),
    probe("sysv-memory-by-id", "shmat", Wall::IpcNamespace, |g| {
        tried(sys!(SYS_shmat, g.number("shm_id"), 0, libc::SHM_RDONLY))
    }),
    probe("sysv-queue", "msgget", Wall::IpcNamespace, |g| tried(sys!(SYS_msgget, g.number("msg_key"), 0))),
    probe("sysv-semaphore", "semget", Wall::IpcNamespace, |g| {
        tried(sys!(SYS_semget, g.number("sem_key"), 1, 0))
    }),
    probe("posix-queue", "mq_open", Wall::IpcNamespace, |g| {
        tried_if(sys!(SYS_mq_open, c(g.fact("mq")), libc::O_RDWR, 0, 0), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
    probe("shared-memory-file", "openat /dev/shm", Wall::LandlockFiles, |g| read(g.fact("shm_file")))
        .bare(Bare::IfOffered),
    probe("terminal-outside", "openat /dev/pts/N", Wall::LandlockFiles, |g| {
        let path = g.fact("host_pts");
        let opened = sys!(SYS_openat, libc::AT_FDCWD, c(path), libc::O_RDWR | libc::O_NOCTTY);
        tried(opened.and_then(|fd| sys!(SYS_write, fd, CANARY.as_ptr(), CANARY.len())))
    }),
    probe("kill-starter", "kill SIGKILL", Wall::LandlockScope, |g| starter(g, libc::SIGKILL)).alone(),
    probe("stop-starter", "kill SIGSTOP", Wall::LandlockScope, |g| starter(g, libc::SIGSTOP)).alone(),
    probe("daemon-outlives", "setsid, fork", Wall::Watcher, |g| daemon(g, After::Waits)).bare(TREES).alone(),
    probe("stopped-outlives", "setsid, kill SIGSTOP", Wall::Watcher, |g| daemon(g, After::Stops))
        .bare(TREES)
        .alone(),
    probe("forking-outlives", "setsid, fork without end", Wall::Watcher, |g| daemon(g, After::Forks))
        .bare(TREES)
        .alone(),
    probe("tiocsti", "ioctl TIOCSTI", Wall::SeccompCalls, |_| {
        let byte = b'x';
        tried_if(sys!(SYS_ioctl, 0, libc::TIOCSTI, &raw const byte), &[libc::EIO])
    })
    .on(Stage::Terminal)
    .bare(Bare::IfOffered),
    probe("tiocsti-high-bits", "ioctl TIOCSTI | 1 << 32", Wall::SeccompCalls, |_| {
        // The kernel looks at 32 bits of the command; a filter that compares 64 would let this one pass.
        let byte = b'x';
        let request = libc::TIOCSTI | (1 << 32);
        tried_if(sys!(SYS_ioctl, 0, request, &raw const byte), &[libc::EIO])
    })
    .on(Stage::Terminal)
    .bare(Bare::IfOffered),
    probe("tioclinux", "ioctl TIOCLINUX", Wall::SeccompCalls, |_| {
        const TIOCLINUX: u64 = 0x541C;
        let mut subcode = 6u8;
        tried_if(sys!(SYS_ioctl, 0, TIOCLINUX, &raw mut subcode), &[libc::ENOTTY])
    })
    .on(Stage::Terminal)
    .bare(Bare::IfOffered),
];

fn signal(probe: &str) -> i32 {
    SIGNALS.iter().find(|(name, _)| *name == probe).map_or(0, |(_, signal)| *signal)
}

/// In a pid namespace the number may by chance be somebody else's.
fn is_victim(g: &Ground) -> bool {
    fs::read(format!("/proc/{}/cmdline", g.fact("victim"))).is_ok_and(|line| holds(&line))
}

fn victim_mem(g: &Ground) -> Seen {
    let mut buffer = [0u8; CANARY.len()];
    let file = match fs::File::open(format!("/proc/{}/mem", g.fact("victim"))) {
        Ok(file) => file,
        err => return tried(err),
    };
    let at = g.number("victim_address");
    let count = sys!(SYS_pread64, file.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), at);
    seen_in(count.map(|_| buffer.to_vec()))
}

/// Reads or writes the victim's canary, where the victim said it is.
fn vm(g: &Ground, number: libc::c_long) -> Seen {
    let mut buffer = *b"overwritten by a probe";
    let local = IoSliceMut::new(&mut buffer);
    let remote = [g.number("victim_address"), 8];
    let words =
        [g.number("victim"), &raw const local as libc::c_long, 1, remote.as_ptr() as libc::c_long, 1, 0];
    tried(crate::sys::call(number, &words))
}

/// Lets the kernel send the signal: the owner of a descriptor is told of input.
fn sigio(g: &Ground) -> Seen {
    let mut pair = [0i32; 2];
    if let Err(error) = sys!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) {
        return Seen::Unclear(error.to_string());
    }
    let set = sys!(SYS_fcntl, pair[0], libc::F_SETOWN, g.number("victim"))
        .and_then(|_| sys!(SYS_fcntl, pair[0], F_SETSIG, signal("sigio-outside")))
        .and_then(|_| sys!(SYS_fcntl, pair[0], libc::F_SETFL, libc::O_ASYNC))
        .and_then(|_| sys!(SYS_write, pair[1], b"x".as_ptr(), 1));
    match set {
        // That the calls answer says nothing: whether the signal came is seen at the victim.
        Ok(_) => Seen::Held("not delivered".to_owned()),
        err => tried(err),
    }
}

const F_SETSIG: i32 = 10;

/// The letter by which the kernel says what a process is doing.
fn state_of(pid: i64) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// How often in a row a process is to be found waiting before it counts as such, and how often that is tried.
const IN_A_ROW: usize = 5;
const PATIENCE: usize = 40;
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(4);

/// Whether the process that holds this tree can be put away from inside it.
fn starter(g: &Ground, signal: i32) -> Seen {
    let starter = g.number("starter");
    // At first it is still telling the pod that the command runs.
    let waits = || {
        std::thread::sleep(LOOK);
        state_of(starter) == Some('S')
    };
    let _ = (0..PATIENCE).find(|_| (0..IN_A_ROW).all(|_| waits()));
    if let Err(error) = sys!(SYS_kill, starter, signal) {
        return Seen::Held(crate::sys::short(&error));
    }
    // The init of a pid namespace is sent the signal and does not heed it: what counts is what becomes of it.
    for _ in 0..PATIENCE {
        match state_of(starter) {
            None | Some('Z' | 'X') => return Seen::Done("it is gone".to_owned()),
            Some('T') => {
                // Undone, or nobody would ever end what was started here.
                let _ = sys!(SYS_kill, starter, libc::SIGCONT);
                return Seen::Done("it stands still".to_owned());
            }
            Some(_) => std::thread::sleep(LOOK),
        }
    }
    Seen::Held("it did not heed the signal".to_owned())
}

/// Daemons, and the locks by which it is seen from outside whether they live.
pub(crate) const LOCKS: [(&str, &str); 3] = [
    ("daemon-outlives", "daemon-outlives-lock"),
    ("stopped-outlives", "stopped-outlives-lock"),
    ("forking-outlives", "forking-outlives-lock"),
];
const TREES: Bare = Bare::Never("trees are ended whole in every tier");

/// What a daemon does when it has its lock.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Waits,
    /// It cannot be asked to end.
    Stops,
    /// Whoever looks for it finds it gone, and its child in its place.
    Forks,
}

/// How long a daemon that nobody ends would live.
const LIFE: Duration = Duration::from_secs(20);

/// Leaves a process behind that holds a lock, in a session of its own, its parent gone. Whether it outlives the fence is
/// seen from outside by the lock.
fn daemon(g: &Ground, after: After) -> Seen {
    let made = fs::File::create(g.own("lock")).and_then(|file| Ok((file, std::io::pipe()?)));
    let (file, (mut reader, writer)) = match made {
        Ok(made) => made,
        Err(error) => return Seen::Unclear(error.to_string()),
    };
    match fork() {
        Ok(Some(child)) => {
            drop((writer, file));
            wait(child);
            let mut ready = [0u8; 1];
            match std::io::Read::read(&mut reader, &mut ready) {
                Ok(1) => Seen::Held("told from outside".to_owned()),
                other => Seen::Unclear(format!("the daemon did not start: {other:?}")),
            }
        }
        Ok(None) => {
            let _ = sys!(SYS_setsid);
            if !matches!(fork(), Ok(None)) {
                leave();
            }
            drop(reader);
            // SAFETY: takes the timer of the try away; the daemon is to live as long as it can.
            unsafe { libc::alarm(0) };
            if sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_ok() {
                let _ = std::io::Write::write(&mut &writer, b"x");
            }
            drop(writer);
            live_on(after);
            leave()
        }
        Err(error) => Seen::Unclear(error.to_string()),
    }
}

fn live_on(after: After) {
    let end = Instant::now() + LIFE;
    match after {
        After::Waits => {}
        After::Stops => {
            let _ = sys!(SYS_kill, rustix::process::getpid().as_raw_nonzero().get(), libc::SIGSTOP);
        }
        After::Forks => {
            while Instant::now() < end {
                if !matches!(fork(), Ok(None)) {
                    leave();
                }
            }
        }
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}
