//! What must work in every fence: a wall that also keeps out honest work would be taken down by its users.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{mounts, sockets};
use crate::inside::{Ground, fork, leave, wait};
use crate::probe::{Probe, Seen, Stage, control, tried};
use crate::sys::{c, own, sys};

pub(super) const PROBES: &[Probe] = &[
    control("reads-system", "openat", |_| tried(fs::read("/usr/bin/env"))),
    control("lists-system", "getdents64", |_| tried(fs::read_dir("/usr/bin"))),
    control("reads-etc", "openat", |_| tried(fs::read("/etc/passwd"))),
    control("reads-read-grant", "openat", |g| tried(fs::read(g.at("reads/file")))),
    control("reads-home", "openat", |g| tried(fs::read(g.at("home/notes")))),
    control("reads-output", "openat", |g| tried(fs::read(g.at("runtime/pods/probe/output/1.txt")))),
    control("writes-grant", "openat, rename", |g| {
        let done = fs::create_dir_all(g.own("a/b"))
            .and_then(|()| fs::create_dir_all(g.own("c")))
            .and_then(|()| fs::write(g.own("a/b/file"), "ours"))
            .and_then(|()| fs::rename(g.own("a/b/file"), g.own("c/file")))
            .and_then(|()| fs::hard_link(g.own("c/file"), g.own("a/link")))
            .and_then(|()| symlink("file", g.own("c/soft")))
            .and_then(|()| fs::set_permissions(g.own("c/file"), fs::Permissions::from_mode(0o600)))
            .and_then(|()| fs::remove_dir_all(g.own("a")));
        tried(done)
    }),
    control("writes-flat-grant", "openat O_CREAT", |g| tried(fs::write(g.at("flat/file"), "ours")))
        .on(Stage::Denied),
    control("writes-tmp", "openat O_CREAT", |_| {
        let dir = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        tried(fs::write(dir.join("scratch"), "ours").and_then(|()| fs::read(dir.join("scratch"))))
    }),
    control("writes-grant-below-tmp", "openat O_CREAT", |g| {
        tried(fs::write(Path::new(g.fact("tmp_grant")).join("file"), "ours"))
    }),
    control("runs-own-script", "execve", |g| {
        let script = g.own("script");
        let made = fs::write(&script, "#!/bin/sh\nexit 7\n")
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
        tried(made.and_then(|()| Command::new(&script).status()).and_then(|status| match status.code() {
            Some(7) => Ok(()),
            code => Err(std::io::Error::other(format!("code {code:?}"))),
        }))
    }),
    control("shell-pipes", "pipe2, clone, execve", |_| {
        says(Command::new("bash").arg("-c").arg("printf 'b\\na\\n' | sort | head -n 1"), "a")
    }),
    control("git-status", "execve git", |g| run(Command::new("git").arg("-C").arg(g.work("")).arg("status"))),
    control("git-commit", "execve git", |g| {
        let git = |args: &[&str]| run(Command::new("git").arg("-C").arg(g.work("")).args(args));
        let who = ["-c", "user.name=p", "-c", "user.email=p@example.org"];
        match git(&["add", "file"]) {
            Seen::Done(_) => git(&[&who[..], &["commit", "-q", "-m", "one", "--", "file"]].concat()),
            other => other,
        }
    }),
    control("git-init-below", "execve git", |g| {
        run(Command::new("git").args(["init", "-q"]).arg(g.own("new")))
    }),
    control("compiles-and-runs", "execve cc", compile),
    control("python", "execve python3", |_| {
        if !Path::new("/usr/bin/python3").exists() {
            return Seen::Absent("not installed".to_owned());
        }
        says(
            Command::new("/usr/bin/python3")
                .args(["-c", "import tempfile, subprocess; print(subprocess.call('true'))"]),
            "0",
        )
    }),
    control("null-device", "openat /dev/null", |_| tried(fs::write("/dev/null", "gone"))),
    control("random-devices", "openat", |_| {
        let mut bytes = [0u8; 8];
        let devices = ["/dev/zero", "/dev/urandom", "/dev/random"];
        tried(devices.into_iter().try_for_each(|path| fs::File::open(path)?.read_exact(&mut bytes)))
    }),
    control("no-terminal", "openat /dev/tty", |_| match fs::File::open("/dev/tty") {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO)) => {
            Seen::Done("none, and so said".to_owned())
        }
        Err(error) => Seen::Held(crate::sys::short(&error)),
        Ok(_) => Seen::Held("there is one".to_owned()),
    }),
    control("own-terminal", "openat /dev/tty", |_| {
        tried(
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/tty")
                .and_then(|mut tty| tty.write_all(b"hi")),
        )
    })
    .on(Stage::Terminal),
    control("makes-terminals", "openat /dev/ptmx", |_| {
        let made =
            sys!(SYS_openat, libc::AT_FDCWD, c("/dev/ptmx"), libc::O_RDWR | libc::O_NOCTTY).and_then(|fd| {
                let master = own(fd);
                let unlock = 0i32;
                sys!(SYS_ioctl, master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock)?;
                let mut number = 0i32;
                sys!(SYS_ioctl, master.as_raw_fd(), libc::TIOCGPTN, &raw mut number)?;
                fs::OpenOptions::new().read(true).write(true).open(format!("/dev/pts/{number}"))
            });
        tried(made)
    })
    .missing_in_b(),
    control("shared-memory", "openat /dev/shm", |_| {
        let path = "/dev/shm/minke-probe-own";
        tried(fs::write(path, "ours").and_then(|()| fs::remove_file(path)))
    })
    .missing_in_b(),
    control("socket-pair", "socketpair", sockets::pair_works),
    control("children", "clone, wait4", mounts::children_work),
    control("threads", "clone CLONE_THREAD", |_| {
        tried(std::thread::spawn(|| 1).join().map_err(|_| std::io::Error::other("no thread")))
    }),
    control("signals-own-child", "kill", |_| match fork() {
        Ok(None) => {
            std::thread::sleep(std::time::Duration::from_secs(5));
            leave();
        }
        Ok(Some(child)) => {
            let sent = tried(sys!(SYS_kill, child, libc::SIGTERM));
            wait(child);
            sent
        }
        err => tried(err),
    }),
    control("own-proc", "openat /proc/self", |_| tried(fs::read("/proc/self/status"))),
    control("machine-facts", "openat /proc", |_| {
        tried(fs::read("/proc/meminfo").and_then(|_| fs::read("/proc/cpuinfo")))
    }),
    control("own-limits", "prlimit64", |_| {
        let mut limit = [0u64; 2];
        tried(sys!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, limit.as_mut_ptr()))
    }),
    control("watches-grant", "inotify_add_watch", |g| {
        let made = sys!(SYS_inotify_init1, 0);
        tried(made.and_then(|fd| sys!(SYS_inotify_add_watch, fd, c(g.work("")), libc::IN_CREATE)))
    }),
    control("locks-file", "flock", |g| {
        tried(
            fs::File::create(g.own("lock")).and_then(|file| sys!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX)),
        )
    }),
    control("read-only-reads", "openat", |g| tried(fs::read(g.work("file")))).on(Stage::ReadOnly),
    control("denied-reads", "openat", |g| tried(fs::read(g.work("box/denied/file")))).on(Stage::Denied),
    control("denied-siblings", "openat O_CREAT", |g| tried(fs::write(g.work("box/beside"), "ours")))
        .on(Stage::Denied),
    control("proxied-connect", "connect", |_| proxied()).on(Stage::Proxy),
];

fn run(command: &mut Command) -> Seen {
    match command.output() {
        Ok(done) if done.status.success() => Seen::Done("ran".to_owned()),
        Ok(done) => Seen::Held(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr))),
        err => tried(err),
    }
}

fn says(command: &mut Command, expected: &str) -> Seen {
    match command.output() {
        Ok(done) if done.stdout.trim_ascii() == expected.as_bytes() => Seen::Done(expected.to_owned()),
        Ok(done) => Seen::Held(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr))),
        err => tried(err),
    }
}

fn compile(g: &Ground) -> Seen {
    if !Path::new("/usr/bin/cc").exists() {
        return Seen::Absent("no compiler".to_owned());
    }
    let (source, program) = (g.own("main.c"), g.own("main"));
    if let Err(error) = fs::write(&source, "int main(void) { return 0; }\n") {
        return Seen::Held(error.to_string());
    }
    match run(Command::new("/usr/bin/cc").arg(&source).arg("-o").arg(&program)) {
        Seen::Done(_) => run(&mut Command::new(&program)),
        other => other,
    }
}

/// The pod's proxy answers through the loopback address that the variables name.
fn proxied() -> Seen {
    let proxy = env::var("HTTPS_PROXY").or_else(|_| env::var("https_proxy")).unwrap_or_default();
    let address = proxy.trim_start_matches("http://").trim_end_matches('/');
    let talked = TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(b"ping")?;
        let mut answer = [0u8; 4];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    });
    match talked {
        Ok(answer) if &answer == b"pong" => Seen::Done("the proxy".to_owned()),
        Ok(_) => Seen::Held("somebody else answered".to_owned()),
        Err(error) => Seen::Held(format!("{address}: {error}")),
    }
}
