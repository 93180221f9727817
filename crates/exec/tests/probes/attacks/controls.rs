//! Controls: legitimate operations that must work in every sandbox.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{mounts, sockets};
use crate::attacker::{AttackContext, exit_now, fork_process, wait_for_child};
use crate::probe::{ProbeOutcome, ProbeStage, SandboxProbe, control_probe, outcome_of};
use crate::sys::{own_descriptor, sys, to_c_string};

pub(super) const PROBES: &[SandboxProbe] = &[
    control_probe("reads-system", "openat", |_| outcome_of(fs::read("/usr/bin/env"))),
    control_probe("lists-system", "getdents64", |_| outcome_of(fs::read_dir("/usr/bin"))),
    control_probe("reads-etc", "openat", |_| outcome_of(fs::read("/etc/passwd"))),
    control_probe("reads-read-grant", "openat", |g| outcome_of(fs::read(g.path_to("reads/file")))),
    control_probe("reads-home", "openat", |g| outcome_of(fs::read(g.path_to("home/notes")))),
    control_probe("reads-output", "openat", |g| {
        outcome_of(fs::read(g.path_to("runtime/pods/probe/output/1.txt")))
    }),
    control_probe("writes-grant", "openat, rename", |g| {
        let done = fs::create_dir_all(g.own_path("a/b"))
            .and_then(|()| fs::create_dir_all(g.own_path("c")))
            .and_then(|()| fs::write(g.own_path("a/b/file"), "ours"))
            .and_then(|()| fs::rename(g.own_path("a/b/file"), g.own_path("c/file")))
            .and_then(|()| fs::hard_link(g.own_path("c/file"), g.own_path("a/link")))
            .and_then(|()| symlink("file", g.own_path("c/soft")))
            .and_then(|()| fs::set_permissions(g.own_path("c/file"), fs::Permissions::from_mode(0o600)))
            .and_then(|()| fs::remove_dir_all(g.own_path("a")));
        outcome_of(done)
    }),
    control_probe("writes-flat-grant", "openat O_CREAT", |g| {
        outcome_of(fs::write(g.path_to("flat/file"), "ours"))
    })
    .in_stage(ProbeStage::Denied),
    control_probe("writes-tmp", "openat O_CREAT", |_| {
        let dir = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        outcome_of(fs::write(dir.join("scratch"), "ours").and_then(|()| fs::read(dir.join("scratch"))))
    }),
    control_probe("writes-grant-below-tmp", "openat O_CREAT", |g| {
        outcome_of(fs::write(Path::new(g.fact_text("tmp_grant")).join("file"), "ours"))
    }),
    control_probe("runs-own-script", "execve", |g| {
        let script = g.own_path("script");
        let made = fs::write(&script, "#!/bin/sh\nexit 7\n")
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
        outcome_of(made.and_then(|()| Command::new(&script).status()).and_then(
            |status| match status.code() {
                Some(7) => Ok(()),
                code => Err(std::io::Error::other(format!("code {code:?}"))),
            },
        ))
    }),
    control_probe("shell-pipes", "pipe2, clone, execve", |_| {
        prints_text(Command::new("bash").arg("-c").arg("printf 'b\\na\\n' | sort | head -n 1"), "a")
    }),
    control_probe("git-status", "execve git", |g| {
        run_program(Command::new("git").arg("-C").arg(g.path_in_work("")).arg("status"))
    }),
    control_probe("git-commit", "execve git", |g| {
        let git =
            |args: &[&str]| run_program(Command::new("git").arg("-C").arg(g.path_in_work("")).args(args));
        let who = ["-c", "user.name=p", "-c", "user.email=p@example.org"];
        match git(&["add", "file"]) {
            ProbeOutcome::Succeeded(_) => {
                git(&[&who[..], &["commit", "-q", "-m", "one", "--", "file"]].concat())
            }
            other => other,
        }
    }),
    control_probe("git-init-below", "execve git", |g| {
        run_program(Command::new("git").args(["init", "-q"]).arg(g.own_path("new")))
    }),
    control_probe("compiles-and-runs", "execve cc", compile_program),
    control_probe("python", "execve python3", |_| {
        if !Path::new("/usr/bin/python3").exists() {
            return ProbeOutcome::Absent("not installed".to_owned());
        }
        prints_text(
            Command::new("/usr/bin/python3")
                .args(["-c", "import tempfile, subprocess; print(subprocess.call('true'))"]),
            "0",
        )
    }),
    control_probe("null-device", "openat /dev/null", |_| outcome_of(fs::write("/dev/null", "gone"))),
    control_probe("random-devices", "openat", |_| {
        let mut bytes = [0u8; 8];
        let devices = ["/dev/zero", "/dev/urandom", "/dev/random"];
        outcome_of(devices.into_iter().try_for_each(|path| fs::File::open(path)?.read_exact(&mut bytes)))
    }),
    control_probe("no-terminal", "openat /dev/tty", |_| match fs::File::open("/dev/tty") {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO)) => {
            ProbeOutcome::Succeeded("none, and so said".to_owned())
        }
        Err(error) => ProbeOutcome::Stopped(crate::sys::error_name(&error)),
        Ok(_) => ProbeOutcome::Stopped("there is one".to_owned()),
    }),
    control_probe("own-terminal", "openat /dev/tty", |_| {
        outcome_of(
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/tty")
                .and_then(|mut tty| tty.write_all(b"hi")),
        )
    })
    .in_stage(ProbeStage::Terminal),
    control_probe("makes-terminals", "openat /dev/ptmx", |_| {
        let made = sys!(SYS_openat, libc::AT_FDCWD, to_c_string("/dev/ptmx"), libc::O_RDWR | libc::O_NOCTTY)
            .and_then(|fd| {
                let master = own_descriptor(fd);
                let unlock = 0i32;
                sys!(SYS_ioctl, master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock)?;
                let mut number = 0i32;
                sys!(SYS_ioctl, master.as_raw_fd(), libc::TIOCGPTN, &raw mut number)?;
                fs::OpenOptions::new().read(true).write(true).open(format!("/dev/pts/{number}"))
            });
        outcome_of(made)
    })
    .missing_with_landlock(),
    control_probe("shared-memory", "openat /dev/shm", |_| {
        let path = "/dev/shm/minke-probe-own";
        outcome_of(fs::write(path, "ours").and_then(|()| fs::remove_file(path)))
    })
    .missing_with_landlock(),
    control_probe("socket-pair", "socketpair", sockets::check_pair),
    control_probe("children", "clone, wait4", mounts::check_children),
    control_probe("threads", "clone CLONE_THREAD", |_| {
        outcome_of(std::thread::spawn(|| 1).join().map_err(|_| std::io::Error::other("no thread")))
    }),
    control_probe("signals-own-child", "kill", |_| match fork_process() {
        Ok(None) => {
            std::thread::sleep(std::time::Duration::from_secs(5));
            exit_now();
        }
        Ok(Some(child)) => {
            let sent = outcome_of(sys!(SYS_kill, child, libc::SIGTERM));
            wait_for_child(child);
            sent
        }
        err => outcome_of(err),
    }),
    control_probe("own-proc", "openat /proc/self", |_| outcome_of(fs::read("/proc/self/status"))),
    control_probe("machine-facts", "openat /proc", |_| {
        outcome_of(fs::read("/proc/meminfo").and_then(|_| fs::read("/proc/cpuinfo")))
    }),
    control_probe("own-limits", "prlimit64", |_| {
        let mut limit = [0u64; 2];
        outcome_of(sys!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, limit.as_mut_ptr()))
    }),
    control_probe("watches-grant", "inotify_add_watch", |g| {
        let made = sys!(SYS_inotify_init1, 0);
        outcome_of(
            made.and_then(|fd| {
                sys!(SYS_inotify_add_watch, fd, to_c_string(g.path_in_work("")), libc::IN_CREATE)
            }),
        )
    }),
    control_probe("locks-file", "flock", |g| {
        outcome_of(
            fs::File::create(g.own_path("lock"))
                .and_then(|file| sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX)),
        )
    }),
    control_probe("read-only-reads", "openat", |g| outcome_of(fs::read(g.path_in_work("file"))))
        .in_stage(ProbeStage::ReadOnly),
    control_probe("denied-reads", "openat", |g| outcome_of(fs::read(g.path_in_work("box/denied/file"))))
        .in_stage(ProbeStage::Denied),
    control_probe("denied-siblings", "openat O_CREAT", |g| {
        outcome_of(fs::write(g.path_in_work("box/beside"), "ours"))
    })
    .in_stage(ProbeStage::Denied),
    control_probe("proxied-connect", "connect", |_| fetch_through_proxy()).in_stage(ProbeStage::Proxy),
];

fn run_program(command: &mut Command) -> ProbeOutcome {
    match command.output() {
        Ok(done) if done.status.success() => ProbeOutcome::Succeeded("ran".to_owned()),
        Ok(done) => {
            ProbeOutcome::Stopped(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr)))
        }
        err => outcome_of(err),
    }
}

fn prints_text(command: &mut Command, expected: &str) -> ProbeOutcome {
    match command.output() {
        Ok(done) if done.stdout.trim_ascii() == expected.as_bytes() => {
            ProbeOutcome::Succeeded(expected.to_owned())
        }
        Ok(done) => {
            ProbeOutcome::Stopped(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr)))
        }
        err => outcome_of(err),
    }
}

fn compile_program(g: &AttackContext) -> ProbeOutcome {
    if !Path::new("/usr/bin/cc").exists() {
        return ProbeOutcome::Absent("no compiler".to_owned());
    }
    let (source, program) = (g.own_path("main.c"), g.own_path("main"));
    if let Err(error) = fs::write(&source, "int main(void) { return 0; }\n") {
        return ProbeOutcome::Stopped(error.to_string());
    }
    match run_program(Command::new("/usr/bin/cc").arg(&source).arg("-o").arg(&program)) {
        ProbeOutcome::Succeeded(_) => run_program(&mut Command::new(&program)),
        other => other,
    }
}

/// The pod's proxy replies on the loopback address in the environment variables.
fn fetch_through_proxy() -> ProbeOutcome {
    let proxy = env::var("HTTPS_PROXY").or_else(|_| env::var("https_proxy")).unwrap_or_default();
    let address = proxy.trim_start_matches("http://").trim_end_matches('/');
    let talked = TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(b"ping")?;
        let mut answer = [0u8; 4];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    });
    match talked {
        Ok(answer) if &answer == b"pong" => ProbeOutcome::Succeeded("the proxy".to_owned()),
        Ok(_) => ProbeOutcome::Stopped("another program answered".to_owned()),
        Err(error) => ProbeOutcome::Stopped(format!("{address}: {error}")),
    }
}
