//! Programs: run from outside, copied, renamed, by the dynamic loader, from memory, set-uid, in another call convention.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::inside::{Ground, seen_in};
use crate::probe::{Bare, Probe, Seen, Wall, probe, tried};
use crate::sys::{c, own, sys};

const CAT: &str = "/bin/cat";
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

pub(super) const PROBES: &[Probe] = &[
    probe("exec-outside", "execve", Wall::LandlockFiles, |g| tried(Command::new(g.outside("tool")).output())),
    probe("shell-reads-outside", "execve bash, openat", Wall::LandlockFiles, |g| {
        output(Command::new("bash").arg("-c").arg("cat < \"$0\"").arg(g.outside("secret")))
    }),
    probe("copied-program", "execve of a copy", Wall::LandlockFiles, |g| {
        with_copy(g, "copy", |copy| output(Command::new(copy).arg(g.outside("secret"))))
    }),
    probe("renamed-program", "execve of a renamed copy", Wall::LandlockFiles, |g| {
        with_copy(g, "git", |copy| output(Command::new(copy).arg(g.outside("secret"))))
    }),
    probe("loader-runs-program", "execve ld.so", Wall::LandlockFiles, |g| match loader() {
        Some(loader) => output(Command::new(loader).arg(CAT).arg(g.outside("secret"))),
        None => Seen::Absent("no loader at a known place".to_owned()),
    })
    .bare(Bare::IfOffered),
    probe("loader-runs-copy", "execve ld.so", Wall::LandlockFiles, |g| match loader() {
        // A copy that is not marked as executable: the loader does not ask.
        Some(loader) => with_copy(g, "data", |copy| {
            let _ = fs::set_permissions(copy, fs::Permissions::from_mode(0o600));
            output(Command::new(loader).arg(copy).arg(g.outside("secret")))
        }),
        None => Seen::Absent("no loader at a known place".to_owned()),
    })
    .bare(Bare::IfOffered),
    probe("loader-runs-outside", "execve ld.so", Wall::LandlockFiles, |g| match loader() {
        Some(loader) => match Command::new(loader).arg(g.outside("program")).arg("--version").output() {
            Ok(done) if done.status.success() => Seen::Done("ran".to_owned()),
            Ok(done) => Seen::Held(format!("{}", done.status)),
            err => tried(err),
        },
        None => Seen::Absent("no loader at a known place".to_owned()),
    })
    .bare(Bare::IfOffered),
    probe("preloaded-library", "execve LD_PRELOAD", Wall::LandlockFiles, |g| {
        // The library only has to be mapped; that it is not found is told on standard error.
        let path = g.outside("program");
        match Command::new(CAT).arg("/dev/null").env("LD_PRELOAD", &path).output() {
            Ok(done) if String::from_utf8_lossy(&done.stderr).contains("cannot open shared object") => {
                Seen::Held("cannot be opened".to_owned())
            }
            Ok(_) => Seen::Done("mapped".to_owned()),
            err => tried(err),
        }
    }),
    probe("memfd-program", "memfd_create, execveat", Wall::LandlockFiles, |g| {
        let made = memfd();
        match made {
            Ok(fd) => {
                output(Command::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).arg(g.outside("secret")))
            }
            Err(error) => Seen::Held(format!("memfd: {}", crate::sys::short(&error))),
        }
    }),
    probe("path-fd-program", "openat O_PATH, execveat", Wall::LandlockFiles, |g| {
        match sys!(SYS_openat, libc::AT_FDCWD, c(g.outside("tool")), libc::O_PATH) {
            Ok(fd) => tried(Command::new(format!("/proc/self/fd/{fd}")).output()),
            err => tried(err),
        }
    }),
    probe("proc-self-root-program", "execve /proc/self/root", Wall::LandlockFiles, |g| {
        output(Command::new("/proc/self/root/bin/cat").arg(g.outside("secret")))
    }),
    probe("interpreter-outside", "execve #!", Wall::LandlockFiles, |g| {
        let script = g.own("script");
        let text = format!("#!{}\n", g.outside("tool").display());
        let made = fs::write(&script, text)
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
        match made {
            Ok(()) => tried(Command::new(script).output()),
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }),
    probe("set-uid-program", "execve of a set-uid file", Wall::NoNewPrivileges, |g| {
        let program = g.fact("suid");
        if program.is_empty() || rustix::process::getuid().is_root() {
            return Seen::Absent("there is nobody to become, or nothing to become it by".to_owned());
        }
        match Command::new(program).arg("euid").output() {
            Ok(done) if done.stdout.starts_with(b"0\n") => Seen::Done("uid 0".to_owned()),
            Ok(done) => Seen::Held(format!("uid {}", String::from_utf8_lossy(&done.stdout).trim())),
            err => tried(err),
        }
    })
    .bare(Bare::AsUser),
    #[cfg(target_arch = "x86_64")]
    probe("32-bit-call", "int 0x80 socket", Wall::SeccompCalls, |_| compat_socket()).bare(Bare::IfOffered),
    #[cfg(target_arch = "x86_64")]
    probe("x32-call", "socket | 0x40000000", Wall::SeccompCalls, |_| {
        const X32: libc::c_long = 0x4000_0000;
        let words = [libc::AF_INET, libc::SOCK_STREAM, 0].map(libc::c_long::from);
        crate::probe::tried_if(crate::sys::call(libc::SYS_socket | X32, &words), &[libc::ENOSYS])
    })
    .bare(Bare::IfOffered),
];

fn output(command: &mut Command) -> Seen {
    seen_in(command.output().map(|done| done.stdout))
}

fn loader() -> Option<&'static str> {
    LOADERS.into_iter().find(|path| Path::new(path).exists())
}

fn with_copy(g: &Ground, name: impl AsRef<OsStr>, then: impl FnOnce(&Path) -> Seen) -> Seen {
    let dir = g.own("programs");
    let copy = dir.join(name.as_ref());
    match fs::create_dir_all(&dir).and_then(|()| fs::copy(CAT, &copy)) {
        Ok(_) => then(&copy),
        Err(error) => Seen::Unclear(format!("copying {CAT}: {error}")),
    }
}

/// `cat` in memory, where no directory's rule can speak of it. What it may read is what its process may read.
fn memfd() -> io::Result<fs::File> {
    let mut file = fs::File::from(own(sys!(SYS_memfd_create, c("cat"), 0)?));
    file.write_all(&fs::read(CAT)?)?;
    // Written to no more, or running it would be refused as busy: opened again for reading only.
    let reader = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let fd = own(sys!(SYS_fcntl, reader.as_raw_fd(), libc::F_DUPFD, 0)?);
    Ok(fs::File::from(fd))
}

/// A socket by the 32-bit door: a filter that knows only 64-bit numbers would take 359 for something else.
#[cfg(target_arch = "x86_64")]
fn compat_socket() -> Seen {
    const SOCKET_32: i32 = 359;
    let answer: i32;
    // SAFETY: a system call without memory; `rbx`, which the compiler keeps for itself, is put back.
    unsafe {
        std::arch::asm!(
            "xchg {b:r}, rbx",
            "int 0x80",
            "xchg {b:r}, rbx",
            b = inout(reg) libc::AF_INET as i64 => _,
            inout("eax") SOCKET_32 => answer,
            in("ecx") libc::SOCK_STREAM,
            in("edx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if answer >= 0 {
        return Seen::Done("a socket".to_owned());
    }
    crate::probe::tried_if::<()>(Err(io::Error::from_raw_os_error(-answer)), &[libc::ENOSYS])
}
