//! Other processes: listing them, signalling them, reading and changing them, their shared memory.
//!
//! `pod` is the process that starts the sandboxes. `victim` is a bystander of the same user outside, which blocks every
//! signal so that received signals stay pending. Each signal probe has its own signal.

use std::fs;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::attacker::{
    AttackContext, CANARY, contains_canary, exit_now, fork_process, lists_name, outcome_of_read, read_secret,
    wait_for_child,
};
use crate::probe::{
    DocumentedGap, ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction, UnsandboxedResult,
    attack_probe, outcome_of, outcome_unless,
};
use crate::sys::{sys, to_c_string};

/// The signals for the victim, which show from outside which probe succeeded.
pub(crate) const SIGNALS: [(&str, i32); 6] = [
    ("kill-outside", 40),
    ("tgkill-outside", 41),
    ("sigqueue-outside", 42),
    ("pidfd-signal", 43),
    ("sigio-outside", 44),
    ("kill-group", 45),
];

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("list-processes", "getdents64 /proc", TestedRestriction::Proc, |g| {
        match lists_name("/proc", g.fact_text("victim")) {
            ProbeOutcome::Succeeded(_) if !is_victim(g) => {
                ProbeOutcome::Stopped("the number is another process's".to_owned())
            }
            seen => seen,
        }
    })
    .left_by_landlock(DocumentedGap::Processes),
    attack_probe("proc-cmdline", "openat /proc/PID/cmdline", TestedRestriction::Proc, |g| {
        read_secret(format!("/proc/{}/cmdline", g.fact_text("victim")))
    })
    .left_by_landlock(DocumentedGap::Processes),
    attack_probe("pod-environ", "openat /proc/PID/environ", TestedRestriction::PidNamespace, |g| {
        read_secret(format!("/proc/{}/environ", g.fact_text("pod")))
    }),
    attack_probe("victim-environ", "openat /proc/PID/environ", TestedRestriction::PidNamespace, |g| {
        read_secret(format!("/proc/{}/environ", g.fact_text("victim")))
    }),
    attack_probe("pod-mem", "openat /proc/PID/mem", TestedRestriction::PidNamespace, |g| {
        outcome_of(fs::File::open(format!("/proc/{}/mem", g.fact_text("pod"))))
    }),
    attack_probe("victim-mem", "openat /proc/PID/mem, pread64", TestedRestriction::PidNamespace, victim_mem),
    attack_probe("pod-maps", "openat /proc/PID/maps", TestedRestriction::PidNamespace, |g| {
        outcome_of(fs::read(format!("/proc/{}/maps", g.fact_text("pod"))))
    }),
    attack_probe("pod-fds", "readlink /proc/PID/fd/N", TestedRestriction::PidNamespace, |g| {
        outcome_of(fs::read_link(format!("/proc/{}/fd/1", g.fact_text("pod"))))
    }),
    attack_probe("victim-fd-reopened", "openat /proc/PID/fd/N", TestedRestriction::PidNamespace, |g| {
        read_secret(format!("/proc/{}/fd/{}", g.fact_text("victim"), g.fact_text("victim_fd")))
    }),
    attack_probe("victim-root", "openat /proc/PID/root", TestedRestriction::PidNamespace, |g| {
        read_secret(format!("/proc/{}/root{}", g.fact_text("victim"), g.path_outside("secret").display()))
    }),
    attack_probe("kill-outside", "kill", TestedRestriction::LandlockScope, |g| {
        outcome_of(sys!(SYS_kill, g.fact_number("victim"), signal_victim("kill-outside")))
    }),
    attack_probe("kill-pod", "kill", TestedRestriction::LandlockScope, |g| {
        outcome_of(sys!(SYS_kill, g.fact_number("pod"), libc::SIGWINCH))
    }),
    attack_probe("kill-group", "kill", TestedRestriction::LandlockScope, |g| {
        outcome_of(sys!(SYS_kill, -g.fact_number("victim_group"), signal_victim("kill-group")))
    }),
    attack_probe("tgkill-outside", "tgkill", TestedRestriction::LandlockScope, |g| {
        let victim = g.fact_number("victim");
        outcome_of(sys!(SYS_tgkill, victim, victim, signal_victim("tgkill-outside")))
    }),
    attack_probe("sigqueue-outside", "rt_sigqueueinfo", TestedRestriction::LandlockScope, |g| {
        const SI_QUEUE: i32 = -1;
        let mut info = [0i32; 32];
        (info[0], info[2]) = (signal_victim("sigqueue-outside"), SI_QUEUE);
        outcome_of(sys!(
            SYS_rt_sigqueueinfo,
            g.fact_number("victim"),
            signal_victim("sigqueue-outside"),
            info.as_ptr()
        ))
    }),
    attack_probe("pidfd-signal", "pidfd_open, pidfd_send_signal", TestedRestriction::LandlockScope, |g| {
        let opened = sys!(SYS_pidfd_open, g.fact_number("victim"), 0);
        outcome_of(opened.and_then(|fd| sys!(SYS_pidfd_send_signal, fd, signal_victim("pidfd-signal"), 0, 0)))
    }),
    attack_probe("sigio-outside", "fcntl F_SETOWN", TestedRestriction::LandlockScope, send_sigio),
    attack_probe("ptrace-seize", "ptrace PTRACE_SEIZE", TestedRestriction::SeccompCalls, |g| {
        outcome_of(sys!(SYS_ptrace, libc::PTRACE_SEIZE, g.fact_number("victim"), 0, 0))
    }),
    attack_probe("ptrace-child", "ptrace PTRACE_TRACEME", TestedRestriction::SeccompCalls, |_| {
        outcome_of(sys!(SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0))
    }),
    attack_probe("vm-read", "process_vm_readv", TestedRestriction::SeccompCalls, |g| {
        access_victim_memory(g, libc::SYS_process_vm_readv)
    }),
    attack_probe("vm-write", "process_vm_writev", TestedRestriction::SeccompCalls, |g| {
        access_victim_memory(g, libc::SYS_process_vm_writev)
    }),
    attack_probe("pidfd-getfd", "pidfd_getfd", TestedRestriction::SeccompCalls, |g| {
        let opened = sys!(SYS_pidfd_open, g.fact_number("victim"), 0);
        let fd = opened.and_then(|fd| sys!(SYS_pidfd_getfd, fd, g.fact_number("victim_fd"), 0));
        outcome_of_read(fd.and_then(|fd| fs::read(format!("/proc/self/fd/{fd}"))))
    }),
    attack_probe("kcmp-outside", "kcmp", TestedRestriction::PidNamespace, |g| {
        let victim = g.fact_number("victim");
        let own = rustix::process::getpid().as_raw_nonzero().get();
        outcome_unless(sys!(SYS_kcmp, own, victim, 0, 0, 0), &[libc::ENOSYS])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("prlimit-outside", "prlimit64", TestedRestriction::PidNamespace, |g| {
        let limit = [4096u64, 4096];
        outcome_of(sys!(SYS_prlimit64, g.fact_number("victim"), libc::RLIMIT_NOFILE, limit.as_ptr(), 0))
    }),
    attack_probe("renice-outside", "setpriority", TestedRestriction::PidNamespace, |g| {
        // 19: raising the nice value is allowed at any level at which the tests run, lowering it is not.
        outcome_of(sys!(SYS_setpriority, libc::PRIO_PROCESS, g.fact_number("victim"), 19))
    }),
    attack_probe("ioprio-outside", "ioprio_set", TestedRestriction::PidNamespace, |g| {
        const PROCESS: i32 = 1;
        const BEST_EFFORT_7: i32 = (2 << 13) | 7;
        outcome_of(sys!(SYS_ioprio_set, PROCESS, g.fact_number("victim"), BEST_EFFORT_7))
    }),
    attack_probe("affinity-outside", "sched_setaffinity", TestedRestriction::PidNamespace, |g| {
        let all = [u64::MAX; 16];
        outcome_of(sys!(SYS_sched_setaffinity, g.fact_number("victim"), 128, all.as_ptr()))
    }),
    attack_probe("scheduler-outside", "sched_setscheduler", TestedRestriction::PidNamespace, |g| {
        let param = 0i32;
        outcome_of(sys!(SYS_sched_setscheduler, g.fact_number("victim"), libc::SCHED_BATCH, &raw const param))
    }),
    attack_probe(
        "oom-score-outside",
        "openat /proc/PID/oom_score_adj",
        TestedRestriction::PidNamespace,
        |g| outcome_of(fs::write(format!("/proc/{}/oom_score_adj", g.fact_text("victim")), "1000")),
    ),
    attack_probe("sysv-memory", "shmget, shmat", TestedRestriction::IpcNamespace, |g| {
        let id = sys!(SYS_shmget, g.fact_number("shm_key"), 64, 0);
        outcome_of(id.and_then(|id| sys!(SYS_shmat, id, 0, libc::SHM_RDONLY)))
    }),
    attack_probe("sysv-memory-by-id", "shmat", TestedRestriction::IpcNamespace, |g| {
        outcome_of(sys!(SYS_shmat, g.fact_number("shm_id"), 0, libc::SHM_RDONLY))
    }),
    attack_probe("sysv-queue", "msgget", TestedRestriction::IpcNamespace, |g| {
        outcome_of(sys!(SYS_msgget, g.fact_number("msg_key"), 0))
    }),
    attack_probe("sysv-semaphore", "semget", TestedRestriction::IpcNamespace, |g| {
        outcome_of(sys!(SYS_semget, g.fact_number("sem_key"), 1, 0))
    }),
    attack_probe("posix-queue", "mq_open", TestedRestriction::IpcNamespace, |g| {
        outcome_unless(sys!(SYS_mq_open, to_c_string(g.fact_text("mq")), libc::O_RDWR, 0, 0), &[libc::ENOSYS])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("shared-memory-file", "openat /dev/shm", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.fact_text("shm_file"))
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("terminal-outside", "openat /dev/pts/N", TestedRestriction::LandlockFiles, |g| {
        let path = g.fact_text("host_pts");
        let opened = sys!(SYS_openat, libc::AT_FDCWD, to_c_string(path), libc::O_RDWR | libc::O_NOCTTY);
        outcome_of(opened.and_then(|fd| sys!(SYS_write, fd, CANARY.as_ptr(), CANARY.len())))
    }),
    attack_probe("kill-starter", "kill SIGKILL", TestedRestriction::LandlockScope, |g| {
        signal_starter(g, libc::SIGKILL)
    })
    .run_alone(),
    attack_probe("stop-starter", "kill SIGSTOP", TestedRestriction::LandlockScope, |g| {
        signal_starter(g, libc::SIGSTOP)
    })
    .run_alone(),
    attack_probe("daemon-outlives", "setsid, fork", TestedRestriction::Watcher, |g| {
        start_daemon(g, DaemonEnding::Waits)
    })
    .unsandboxed(TREES_END)
    .run_alone(),
    attack_probe("stopped-outlives", "setsid, kill SIGSTOP", TestedRestriction::Watcher, |g| {
        start_daemon(g, DaemonEnding::Stops)
    })
    .unsandboxed(TREES_END)
    .run_alone(),
    attack_probe("forking-outlives", "setsid, fork without end", TestedRestriction::Watcher, |g| {
        start_daemon(g, DaemonEnding::Forks)
    })
    .unsandboxed(TREES_END)
    .run_alone(),
    attack_probe("tiocsti", "ioctl TIOCSTI", TestedRestriction::SeccompCalls, |_| {
        let byte = b'x';
        outcome_unless(sys!(SYS_ioctl, 0, libc::TIOCSTI, &raw const byte), &[libc::EIO])
    })
    .in_stage(ProbeStage::Terminal)
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("tiocsti-high-bits", "ioctl TIOCSTI | 1 << 32", TestedRestriction::SeccompCalls, |_| {
        // The kernel uses 32 bits of the command; a filter that compares 64 would let this pass.
        let byte = b'x';
        let request = libc::TIOCSTI | (1 << 32);
        outcome_unless(sys!(SYS_ioctl, 0, request, &raw const byte), &[libc::EIO])
    })
    .in_stage(ProbeStage::Terminal)
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("tioclinux", "ioctl TIOCLINUX", TestedRestriction::SeccompCalls, |_| {
        const TIOCLINUX: u64 = 0x541C;
        let mut subcode = 6u8;
        outcome_unless(sys!(SYS_ioctl, 0, TIOCLINUX, &raw mut subcode), &[libc::ENOTTY])
    })
    .in_stage(ProbeStage::Terminal)
    .unsandboxed(UnsandboxedResult::IfOffered),
];

fn signal_victim(probe: &str) -> i32 {
    SIGNALS.iter().find(|(name, _)| *name == probe).map_or(0, |(_, signal)| *signal)
}

/// In a pid namespace the number may belong to another process.
fn is_victim(g: &AttackContext) -> bool {
    fs::read(format!("/proc/{}/cmdline", g.fact_text("victim"))).is_ok_and(|line| contains_canary(&line))
}

fn victim_mem(g: &AttackContext) -> ProbeOutcome {
    let mut buffer = [0u8; CANARY.len()];
    let file = match fs::File::open(format!("/proc/{}/mem", g.fact_text("victim"))) {
        Ok(file) => file,
        err => return outcome_of(err),
    };
    let at = g.fact_number("victim_address");
    let count = sys!(SYS_pread64, file.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), at);
    outcome_of_read(count.map(|_| buffer.to_vec()))
}

/// Reads or writes the victim's canary at its address.
fn access_victim_memory(g: &AttackContext, number: libc::c_long) -> ProbeOutcome {
    let mut buffer = *b"overwritten by a probe";
    let local = IoSliceMut::new(&mut buffer);
    let remote = [g.fact_number("victim_address"), 8];
    let words =
        [g.fact_number("victim"), &raw const local as libc::c_long, 1, remote.as_ptr() as libc::c_long, 1, 0];
    outcome_of(crate::sys::raw_syscall(number, &words))
}

/// Lets the kernel send the signal: the owner of a descriptor is notified of input.
fn send_sigio(g: &AttackContext) -> ProbeOutcome {
    let mut pair = [0i32; 2];
    if let Err(error) = sys!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) {
        return ProbeOutcome::Unclear(error.to_string());
    }
    let set = sys!(SYS_fcntl, pair[0], libc::F_SETOWN, g.fact_number("victim"))
        .and_then(|_| sys!(SYS_fcntl, pair[0], F_SETSIG, signal_victim("sigio-outside")))
        .and_then(|_| sys!(SYS_fcntl, pair[0], libc::F_SETFL, libc::O_ASYNC))
        .and_then(|_| sys!(SYS_write, pair[1], b"x".as_ptr(), 1));
    match set {
        // A successful call proves nothing; a pending signal at the victim does.
        Ok(_) => ProbeOutcome::Stopped("not delivered".to_owned()),
        err => outcome_of(err),
    }
}

const F_SETSIG: i32 = 10;

/// Returns the state letter of a process.
fn process_state(pid: i64) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// How often in a row a process must be found waiting, and how often that is tried.
const REPEATS: usize = 5;
const MAX_LOOKS: usize = 40;
/// The interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// Whether the supervising process can be killed or stopped from inside the sandbox.
fn signal_starter(g: &AttackContext, signal: i32) -> ProbeOutcome {
    let starter = g.fact_number("starter");
    // At first it is still reporting the start of the command.
    let waits = || {
        std::thread::sleep(LOOK_INTERVAL);
        process_state(starter) == Some('S')
    };
    let _ = (0..MAX_LOOKS).find(|_| (0..REPEATS).all(|_| waits()));
    if let Err(error) = sys!(SYS_kill, starter, signal) {
        return ProbeOutcome::Stopped(crate::sys::error_name(&error));
    }
    // The init of a pid namespace ignores the signal, so check its state.
    for _ in 0..MAX_LOOKS {
        match process_state(starter) {
            None | Some('Z' | 'X') => return ProbeOutcome::Succeeded("it is gone".to_owned()),
            Some('T') => {
                // Continue it; otherwise nothing would end this sandbox.
                let _ = sys!(SYS_kill, starter, libc::SIGCONT);
                return ProbeOutcome::Succeeded("it is stopped".to_owned());
            }
            Some(_) => std::thread::sleep(LOOK_INTERVAL),
        }
    }
    ProbeOutcome::Stopped("it ignored the signal".to_owned())
}

/// Daemons, and the locks that show from outside whether they are alive.
pub(crate) const DAEMON_LOCKS: [(&str, &str); 3] = [
    ("daemon-outlives", "daemon-outlives-lock"),
    ("stopped-outlives", "stopped-outlives-lock"),
    ("forking-outlives", "forking-outlives-lock"),
];
const TREES_END: UnsandboxedResult = UnsandboxedResult::Never("process trees are ended in every backend");

/// What a daemon does after it has its lock.
#[derive(Clone, Copy, PartialEq)]
enum DaemonEnding {
    Waits,
    /// Stops itself, so that it handles no signal but SIGKILL.
    Stops,
    /// Forks repeatedly, so that a scan finds only its child.
    Forks,
}

/// How long a daemon lives if it is not killed.
const DAEMON_LIFETIME: Duration = Duration::from_secs(20);

/// Leaves a process that holds a lock, in its own session, without a parent. The lock shows from outside whether it
/// outlives the sandbox.
fn start_daemon(g: &AttackContext, after: DaemonEnding) -> ProbeOutcome {
    let made = fs::File::create(g.own_path("lock")).and_then(|file| Ok((file, std::io::pipe()?)));
    let (file, (mut reader, writer)) = match made {
        Ok(made) => made,
        Err(error) => return ProbeOutcome::Unclear(error.to_string()),
    };
    match fork_process() {
        Ok(Some(child)) => {
            drop((writer, file));
            wait_for_child(child);
            let mut ready = [0u8; 1];
            match std::io::Read::read(&mut reader, &mut ready) {
                Ok(1) => ProbeOutcome::Stopped("checked from outside".to_owned()),
                other => ProbeOutcome::Unclear(format!("the daemon did not start: {other:?}")),
            }
        }
        Ok(None) => {
            let _ = sys!(SYS_setsid);
            if !matches!(fork_process(), Ok(None)) {
                exit_now();
            }
            drop(reader);
            // SAFETY: clears the timer of the try, so that the daemon can live as long as possible.
            unsafe { libc::alarm(0) };
            if sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_ok() {
                let _ = std::io::Write::write(&mut &writer, b"x");
            }
            drop(writer);
            outlive_command(after);
            exit_now()
        }
        Err(error) => ProbeOutcome::Unclear(error.to_string()),
    }
}

fn outlive_command(after: DaemonEnding) {
    let end = Instant::now() + DAEMON_LIFETIME;
    match after {
        DaemonEnding::Waits => {}
        DaemonEnding::Stops => {
            let _ = sys!(SYS_kill, rustix::process::getpid().as_raw_nonzero().get(), libc::SIGSTOP);
        }
        DaemonEnding::Forks => {
            while Instant::now() < end {
                if !matches!(fork_process(), Ok(None)) {
                    exit_now();
                }
            }
        }
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}
