//! Set-ID files: every call and some programs that could leave one, which another user outside could then run.
//!
//! A try is judged by the mode of the file that it left. The world checks again from outside (`probe_world`).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::attacker::{AttackContext, open_dir};
use crate::probe::{
    ProbeOutcome, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe, open_probe,
};
use crate::sys::{error_name, own_descriptor, sys, to_c_string};

/// The two bits.
pub(crate) const SET_ID: u32 = 0o6000;
const FCHMODAT2: libc::c_long = 452;

pub(super) const PROBES: &[SandboxProbe] = &[
    try_set_id("set-id-fchmodat", "fchmodat", |g| {
        let file = create_file(g)?;
        sys!(SYS_fchmodat, libc::AT_FDCWD, to_c_string(file), 0o4755)
    }),
    try_set_id("set-id-fchmodat2", "fchmodat2", |g| {
        let file = create_file(g)?;
        crate::sys::raw_syscall(
            FCHMODAT2,
            &[libc::AT_FDCWD.into(), to_c_string(file).as_ptr() as libc::c_long, 0o6755, 0],
        )
    }),
    try_set_id("set-id-fchmod", "fchmod", |g| {
        let opened = fs::File::open(create_file(g)?)?;
        sys!(SYS_fchmod, opened.as_raw_fd(), 0o2755)
    }),
    try_set_id("set-id-descriptor-path", "fchmodat /proc/self/fd", |g| {
        let opened = fs::File::open(create_file(g)?)?;
        let path = to_c_string(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        sys!(SYS_fchmodat, libc::AT_FDCWD, path, 0o4711)
    }),
    try_set_id("set-id-upper-bits", "fchmodat", |g| {
        // The kernel ignores the higher bits of a mode; a filter that compares the whole word would let this pass.
        let file = create_file(g)?;
        sys!(SYS_fchmodat, libc::AT_FDCWD, to_c_string(file), 0x7FFF_0000_0000_0000_i64 | 0o4755)
    }),
    try_set_id("set-id-openat", "openat O_CREAT", |g| {
        sys!(
            SYS_openat,
            libc::AT_FDCWD,
            to_c_string(g.own_path("file")),
            libc::O_CREAT | libc::O_WRONLY,
            0o4755
        )
    }),
    try_set_id("set-id-tmpfile", "openat O_TMPFILE, linkat", |g| {
        let flags = libc::O_TMPFILE | libc::O_WRONLY;
        let made =
            own_descriptor(sys!(SYS_openat, libc::AT_FDCWD, to_c_string(g.path_in_work("")), flags, 0o4755)?);
        let path = to_c_string(format!("/proc/self/fd/{}", made.as_raw_fd()));
        let named = to_c_string(g.own_path("file"));
        sys!(SYS_linkat, libc::AT_FDCWD, path, libc::AT_FDCWD, named, libc::AT_SYMLINK_FOLLOW)
    }),
    try_set_id("set-id-openat2", "openat2 O_CREAT", |g| {
        let how: [u64; 3] = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
        sys!(SYS_openat2, libc::AT_FDCWD, to_c_string(g.own_path("file")), how.as_ptr(), size_of_val(&how))
    }),
    try_set_id("set-id-mknodat", "mknodat S_IFREG", |g| {
        sys!(SYS_mknodat, libc::AT_FDCWD, to_c_string(g.own_path("file")), libc::S_IFREG | 0o4755, 0)
    }),
    #[cfg(target_arch = "x86_64")]
    try_set_id("set-id-chmod", "chmod", |g| {
        let file = create_file(g)?;
        sys!(SYS_chmod, to_c_string(file), 0o4755)
    }),
    #[cfg(target_arch = "x86_64")]
    try_set_id("set-id-open", "open O_CREAT", |g| {
        sys!(SYS_open, to_c_string(g.own_path("file")), libc::O_CREAT | libc::O_RDWR | libc::O_EXCL, 0o2755)
    }),
    #[cfg(target_arch = "x86_64")]
    try_set_id("set-id-creat", "creat", |g| sys!(SYS_creat, to_c_string(g.own_path("file")), 0o4755)),
    #[cfg(target_arch = "x86_64")]
    try_set_id("set-id-mknod", "mknod S_IFREG", |g| {
        sys!(SYS_mknod, to_c_string(g.own_path("file")), libc::S_IFREG | 0o6755, 0)
    }),
    try_set_id("set-id-directory", "mkdirat, fchmodat", |g| {
        let made = sys!(SYS_mkdirat, libc::AT_FDCWD, to_c_string(g.own_path("file")), 0o2755)
            .or_else(|_| sys!(SYS_mkdirat, libc::AT_FDCWD, to_c_string(g.own_path("file")), 0o755))?;
        let _made = made;
        let dir = open_dir(g.own_path("file"))?;
        sys!(SYS_fchmod, dir.as_raw_fd(), 0o2777)
    }),
    try_set_id("set-id-fifo", "mknodat S_IFIFO", |g| {
        sys!(SYS_mknodat, libc::AT_FDCWD, to_c_string(g.own_path("file")), libc::S_IFIFO | 0o4644, 0)
    }),
    try_set_id("set-id-umask-off", "umask, openat", |g| {
        sys!(SYS_umask, 0)?;
        fs::DirBuilder::new().mode(0o6777).create(g.own_path("dir"))?;
        sys!(
            SYS_openat,
            libc::AT_FDCWD,
            to_c_string(g.own_path("file")),
            libc::O_CREAT | libc::O_WRONLY,
            0o7777
        )
    }),
    try_set_id("set-id-renamed-in", "fchmodat, rename", |g| {
        // Created in a private place, then moved.
        let dir = std::env::var_os("TMPDIR").unwrap_or_else(|| "/tmp".into());
        let bait = Path::new(&dir).join("bait");
        fs::write(&bait, "")?;
        let made = fs::set_permissions(&bait, fs::Permissions::from_mode(0o4755));
        match fs::rename(&bait, g.own_path("file")) {
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                copy_program(&bait, &g.own_path("file"))?
            }
            moved => moved?,
        }
        made.map(|()| 0)
    }),
    try_set_id("set-id-own-filter", "seccomp, fchmodat", |g| {
        // A newer filter with the same action and no listener: the kernel uses the action of the newest.
        const LOAD_NUMBER: u16 = 0x20;
        const IF_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter = [
            step(LOAD_NUMBER, 0, 0, 0),
            step(IF_EQUAL, 0, 1, libc::SYS_fchmodat as u32),
            step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        let file = create_file(g)?;
        let _installed = sys!(SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program);
        sys!(SYS_fchmodat, libc::AT_FDCWD, to_c_string(&file), 0o4755)
            .or_else(|_| fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).map(|()| 0))
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    try_set_id("set-id-by-chmod", "execve chmod", |g| {
        run_program(Command::new("chmod").arg("u+s").arg(create_file(g)?))
    }),
    try_set_id("set-id-by-install", "execve install", |g| {
        run_program(Command::new("install").args(["-m", "4755", "/usr/bin/env"]).arg(g.own_path("file")))
    }),
    try_set_id("set-id-by-copy", "execve cp -p", |g| {
        run_program(
            Command::new("cp").arg("-p").arg(g.path_in_work("granted-set-id")).arg(g.own_path("file")),
        )
    }),
    try_set_id("set-id-by-tar", "execve tar xp", |g| {
        let mut pack = Command::new("tar");
        run_program(
            pack.arg("-C")
                .arg(g.path_in_work(""))
                .arg("-cf")
                .arg(g.own_path("archive"))
                .arg("granted-set-id"),
        )?;
        fs::create_dir(g.own_path("dir"))?;
        run_program(
            Command::new("tar").arg("-C").arg(g.own_path("dir")).arg("-xpf").arg(g.own_path("archive")),
        )?;
        fs::rename(g.own_path("dir").join("granted-set-id"), g.own_path("file")).map(|()| 0)
    }),
    // The user's own directory: the kernel inherits its group bit automatically.
    open_probe("set-id-directory-inherited", "mkdirat", |g| {
        let made = g.path_in_work("granted-shared/sub");
        match fs::create_dir(&made).and_then(|()| fs::metadata(made)) {
            Ok(meta) if meta.permissions().mode() & SET_ID != 0 => {
                ProbeOutcome::Succeeded("inherited".to_owned())
            }
            Ok(meta) => ProbeOutcome::Stopped(format!("{:o}", meta.permissions().mode())),
            Err(error) => ProbeOutcome::Stopped(error_name(&error)),
        }
    }),
];

/// Returns the result of a try from the files that it left.
const fn try_set_id(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> io::Result<libc::c_long>,
) -> SandboxProbe {
    let mut probe = attack_probe(name, call, TestedRestriction::SeccompSetId, remaining_set_id);
    probe.attempt = Some(run);
    probe
}

fn remaining_set_id(ground: &AttackContext) -> ProbeOutcome {
    let Some(tries) =
        PROBES.iter().find(|probe| probe.name == ground.probe_name()).and_then(|probe| probe.attempt)
    else {
        return ProbeOutcome::Unclear("no such probe".to_owned());
    };
    let done = tries(ground);
    for name in ["file", "dir"] {
        let mode = fs::symlink_metadata(ground.own_path(name)).map_or(0, |meta| meta.permissions().mode());
        if mode & SET_ID != 0 {
            return ProbeOutcome::Succeeded(format!("{mode:o}"));
        }
    }
    match done {
        Ok(_) => ProbeOutcome::Stopped("nothing with a set-id bit is left".to_owned()),
        Err(error) => ProbeOutcome::Stopped(error_name(&error)),
    }
}

/// Creates a file of this probe's own.
fn create_file(ground: &AttackContext) -> io::Result<std::path::PathBuf> {
    let file = ground.own_path("file");
    fs::write(&file, "#!/bin/sh\n")?;
    Ok(file)
}

/// Copies a file with its mode, like `cp -p`.
fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn run_program(command: &mut Command) -> io::Result<libc::c_long> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(0);
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}
