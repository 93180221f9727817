//! Programs: from outside, copied, renamed, by the dynamic loader, from memory, set-user-ID, with another calling
//! convention.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::attacker::{AttackContext, outcome_of_read};
use crate::probe::{
    ProbeOutcome, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe, outcome_of,
};
use crate::sys::{own_descriptor, sys, to_c_string};

const CAT_PATH: &str = "/bin/cat";
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("exec-outside", "execve", TestedRestriction::LandlockFiles, |g| {
        outcome_of(Command::new(g.path_outside("tool")).output())
    }),
    attack_probe("shell-reads-outside", "execve bash, openat", TestedRestriction::LandlockFiles, |g| {
        program_output(Command::new("bash").arg("-c").arg("cat < \"$0\"").arg(g.path_outside("secret")))
    }),
    attack_probe("copied-program", "execve of a copy", TestedRestriction::LandlockFiles, |g| {
        with_copy(g, "copy", |copy| program_output(Command::new(copy).arg(g.path_outside("secret"))))
    }),
    attack_probe("renamed-program", "execve of a renamed copy", TestedRestriction::LandlockFiles, |g| {
        with_copy(g, "git", |copy| program_output(Command::new(copy).arg(g.path_outside("secret"))))
    }),
    attack_probe("loader-runs-program", "execve ld.so", TestedRestriction::LandlockFiles, |g| {
        match find_loader() {
            Some(loader) => program_output(Command::new(loader).arg(CAT_PATH).arg(g.path_outside("secret"))),
            None => ProbeOutcome::Absent("no loader at a known place".to_owned()),
        }
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe(
        "loader-runs-copy",
        "execve ld.so",
        TestedRestriction::LandlockFiles,
        |g| match find_loader() {
            // A copy that is not executable; the loader does not check.
            Some(loader) => with_copy(g, "data", |copy| {
                let _ = fs::set_permissions(copy, fs::Permissions::from_mode(0o600));
                program_output(Command::new(loader).arg(copy).arg(g.path_outside("secret")))
            }),
            None => ProbeOutcome::Absent("no loader at a known place".to_owned()),
        },
    )
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("loader-runs-outside", "execve ld.so", TestedRestriction::LandlockFiles, |g| {
        match find_loader() {
            Some(loader) => {
                match Command::new(loader).arg(g.path_outside("program")).arg("--version").output() {
                    Ok(done) if done.status.success() => ProbeOutcome::Succeeded("ran".to_owned()),
                    Ok(done) => ProbeOutcome::Stopped(format!("{}", done.status)),
                    err => outcome_of(err),
                }
            }
            None => ProbeOutcome::Absent("no loader at a known place".to_owned()),
        }
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("preloaded-library", "execve LD_PRELOAD", TestedRestriction::LandlockFiles, |g| {
        // The library only has to be mapped; the loader reports on standard error that it is not found.
        let path = g.path_outside("program");
        match Command::new(CAT_PATH).arg("/dev/null").env("LD_PRELOAD", &path).output() {
            Ok(done) if String::from_utf8_lossy(&done.stderr).contains("cannot open shared object") => {
                ProbeOutcome::Stopped("cannot be opened".to_owned())
            }
            Ok(_) => ProbeOutcome::Succeeded("mapped".to_owned()),
            err => outcome_of(err),
        }
    }),
    attack_probe("memfd-program", "memfd_create, execveat", TestedRestriction::LandlockFiles, |g| {
        let made = exec_memfd();
        match made {
            Ok(fd) => program_output(
                Command::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).arg(g.path_outside("secret")),
            ),
            Err(error) => ProbeOutcome::Stopped(format!("memfd: {}", crate::sys::error_name(&error))),
        }
    }),
    attack_probe(
        "path-fd-program",
        "openat O_PATH, execveat",
        TestedRestriction::LandlockFiles,
        |g| match sys!(SYS_openat, libc::AT_FDCWD, to_c_string(g.path_outside("tool")), libc::O_PATH) {
            Ok(fd) => outcome_of(Command::new(format!("/proc/self/fd/{fd}")).output()),
            err => outcome_of(err),
        },
    ),
    attack_probe("proc-self-root-program", "execve /proc/self/root", TestedRestriction::LandlockFiles, |g| {
        program_output(Command::new("/proc/self/root/bin/cat").arg(g.path_outside("secret")))
    }),
    attack_probe("interpreter-outside", "execve #!", TestedRestriction::LandlockFiles, |g| {
        let script = g.own_path("script");
        let text = format!("#!{}\n", g.path_outside("tool").display());
        let made = fs::write(&script, text)
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
        match made {
            Ok(()) => outcome_of(Command::new(script).output()),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("set-uid-program", "execve of a set-uid file", TestedRestriction::NoNewPrivileges, |g| {
        let program = g.fact_text("suid");
        if program.is_empty() || rustix::process::getuid().is_root() {
            return ProbeOutcome::Absent("there is no other user or no program to change to it".to_owned());
        }
        match Command::new(program).arg("euid").output() {
            Ok(done) if done.stdout.starts_with(b"0\n") => ProbeOutcome::Succeeded("uid 0".to_owned()),
            Ok(done) => {
                ProbeOutcome::Stopped(format!("uid {}", String::from_utf8_lossy(&done.stdout).trim()))
            }
            err => outcome_of(err),
        }
    })
    .unsandboxed(UnsandboxedResult::AsUser),
    #[cfg(target_arch = "x86_64")]
    attack_probe("32-bit-call", "int 0x80 socket", TestedRestriction::SeccompCalls, |_| compat_socket())
        .unsandboxed(UnsandboxedResult::IfOffered),
    #[cfg(target_arch = "x86_64")]
    attack_probe("x32-call", "socket | 0x40000000", TestedRestriction::SeccompCalls, |_| {
        const X32: libc::c_long = 0x4000_0000;
        let words = [libc::AF_INET, libc::SOCK_STREAM, 0].map(libc::c_long::from);
        crate::probe::outcome_unless(crate::sys::raw_syscall(libc::SYS_socket | X32, &words), &[libc::ENOSYS])
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
];

fn program_output(command: &mut Command) -> ProbeOutcome {
    outcome_of_read(command.output().map(|done| done.stdout))
}

fn find_loader() -> Option<&'static str> {
    LOADERS.into_iter().find(|path| Path::new(path).exists())
}

fn with_copy(
    g: &AttackContext,
    name: impl AsRef<OsStr>,
    then: impl FnOnce(&Path) -> ProbeOutcome,
) -> ProbeOutcome {
    let dir = g.own_path("programs");
    let copy = dir.join(name.as_ref());
    match fs::create_dir_all(&dir).and_then(|()| fs::copy(CAT_PATH, &copy)) {
        Ok(_) => then(&copy),
        Err(error) => ProbeOutcome::Unclear(format!("copying {CAT_PATH}: {error}")),
    }
}

/// `cat` in memory, to which no directory rule applies. It has the access of its process.
fn exec_memfd() -> io::Result<fs::File> {
    let mut file = fs::File::from(own_descriptor(sys!(SYS_memfd_create, to_c_string("cat"), 0)?));
    file.write_all(&fs::read(CAT_PATH)?)?;
    // Reopened read-only, because a file open for writing cannot be executed.
    let reader = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let fd = own_descriptor(sys!(SYS_fcntl, reader.as_raw_fd(), libc::F_DUPFD, 0)?);
    Ok(fs::File::from(fd))
}

/// Creates a socket by the 32-bit call: a filter that knows only 64-bit numbers would read 359 differently.
#[cfg(target_arch = "x86_64")]
fn compat_socket() -> ProbeOutcome {
    const SOCKET_32: i32 = 359;
    let answer: i32;
    // SAFETY: a system call without memory; `rbx`, which the compiler reserves, is restored.
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
        return ProbeOutcome::Succeeded("a socket".to_owned());
    }
    crate::probe::outcome_unless::<()>(Err(io::Error::from_raw_os_error(-answer)), &[libc::ENOSYS])
}
