//! Set-id files: every call and some programs that could leave one behind, which another user outside would then run.
//!
//! A try is judged by the mode of what it left, and the world looks at it once more from outside (`world`).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::inside::{Ground, open_dir};
use crate::probe::{Bare, Probe, Seen, Wall, open, probe};
use crate::sys::{c, own, short, sys};

/// The two bits.
pub(crate) const SET_ID: u32 = 0o6000;
const FCHMODAT2: libc::c_long = 452;

pub(super) const PROBES: &[Probe] = &[
    set_id("set-id-fchmodat", "fchmodat", |g| {
        let file = file(g)?;
        sys!(SYS_fchmodat, libc::AT_FDCWD, c(file), 0o4755)
    }),
    set_id("set-id-fchmodat2", "fchmodat2", |g| {
        let file = file(g)?;
        crate::sys::call(FCHMODAT2, &[libc::AT_FDCWD.into(), c(file).as_ptr() as libc::c_long, 0o6755, 0])
    }),
    set_id("set-id-fchmod", "fchmod", |g| {
        let opened = fs::File::open(file(g)?)?;
        sys!(SYS_fchmod, opened.as_raw_fd(), 0o2755)
    }),
    set_id("set-id-descriptor-path", "fchmodat /proc/self/fd", |g| {
        let opened = fs::File::open(file(g)?)?;
        let path = c(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        sys!(SYS_fchmodat, libc::AT_FDCWD, path, 0o4711)
    }),
    set_id("set-id-upper-bits", "fchmodat", |g| {
        // The kernel drops what does not fit a mode; a filter that compared the whole word would let it through.
        let file = file(g)?;
        sys!(SYS_fchmodat, libc::AT_FDCWD, c(file), 0x7FFF_0000_0000_0000_i64 | 0o4755)
    }),
    set_id("set-id-openat", "openat O_CREAT", |g| {
        sys!(SYS_openat, libc::AT_FDCWD, c(g.own("file")), libc::O_CREAT | libc::O_WRONLY, 0o4755)
    }),
    set_id("set-id-tmpfile", "openat O_TMPFILE, linkat", |g| {
        let flags = libc::O_TMPFILE | libc::O_WRONLY;
        let made = own(sys!(SYS_openat, libc::AT_FDCWD, c(g.work("")), flags, 0o4755)?);
        let path = c(format!("/proc/self/fd/{}", made.as_raw_fd()));
        let named = c(g.own("file"));
        sys!(SYS_linkat, libc::AT_FDCWD, path, libc::AT_FDCWD, named, libc::AT_SYMLINK_FOLLOW)
    }),
    set_id("set-id-openat2", "openat2 O_CREAT", |g| {
        let how: [u64; 3] = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
        sys!(SYS_openat2, libc::AT_FDCWD, c(g.own("file")), how.as_ptr(), size_of_val(&how))
    }),
    set_id("set-id-mknodat", "mknodat S_IFREG", |g| {
        sys!(SYS_mknodat, libc::AT_FDCWD, c(g.own("file")), libc::S_IFREG | 0o4755, 0)
    }),
    #[cfg(target_arch = "x86_64")]
    set_id("set-id-chmod", "chmod", |g| {
        let file = file(g)?;
        sys!(SYS_chmod, c(file), 0o4755)
    }),
    #[cfg(target_arch = "x86_64")]
    set_id("set-id-open", "open O_CREAT", |g| {
        sys!(SYS_open, c(g.own("file")), libc::O_CREAT | libc::O_RDWR | libc::O_EXCL, 0o2755)
    }),
    #[cfg(target_arch = "x86_64")]
    set_id("set-id-creat", "creat", |g| sys!(SYS_creat, c(g.own("file")), 0o4755)),
    #[cfg(target_arch = "x86_64")]
    set_id("set-id-mknod", "mknod S_IFREG", |g| sys!(SYS_mknod, c(g.own("file")), libc::S_IFREG | 0o6755, 0)),
    set_id("set-id-directory", "mkdirat, fchmodat", |g| {
        let made = sys!(SYS_mkdirat, libc::AT_FDCWD, c(g.own("file")), 0o2755)
            .or_else(|_| sys!(SYS_mkdirat, libc::AT_FDCWD, c(g.own("file")), 0o755))?;
        let _made = made;
        let dir = open_dir(g.own("file"))?;
        sys!(SYS_fchmod, dir.as_raw_fd(), 0o2777)
    }),
    set_id("set-id-fifo", "mknodat S_IFIFO", |g| {
        sys!(SYS_mknodat, libc::AT_FDCWD, c(g.own("file")), libc::S_IFIFO | 0o4644, 0)
    }),
    set_id("set-id-umask-off", "umask, openat", |g| {
        sys!(SYS_umask, 0)?;
        fs::DirBuilder::new().mode(0o6777).create(g.own("dir"))?;
        sys!(SYS_openat, libc::AT_FDCWD, c(g.own("file")), libc::O_CREAT | libc::O_WRONLY, 0o7777)
    }),
    set_id("set-id-renamed-in", "fchmodat, rename", |g| {
        // Made where nobody else sees it, then moved.
        let dir = std::env::var_os("TMPDIR").unwrap_or_else(|| "/tmp".into());
        let bait = Path::new(&dir).join("bait");
        fs::write(&bait, "")?;
        let made = fs::set_permissions(&bait, fs::Permissions::from_mode(0o4755));
        match fs::rename(&bait, g.own("file")) {
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => copy(&bait, &g.own("file"))?,
            moved => moved?,
        }
        made.map(|()| 0)
    }),
    set_id("set-id-own-filter", "seccomp, fchmodat", |g| {
        // A younger filter with the same answer and nobody who listens to it: the kernel takes the answer of the youngest.
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
        let file = file(g)?;
        let _installed = sys!(SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program);
        sys!(SYS_fchmodat, libc::AT_FDCWD, c(&file), 0o4755)
            .or_else(|_| fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).map(|()| 0))
    })
    .bare(Bare::IfOffered),
    set_id("set-id-by-chmod", "execve chmod", |g| run(Command::new("chmod").arg("u+s").arg(file(g)?))),
    set_id("set-id-by-install", "execve install", |g| {
        run(Command::new("install").args(["-m", "4755", "/usr/bin/env"]).arg(g.own("file")))
    }),
    set_id("set-id-by-copy", "execve cp -p", |g| {
        run(Command::new("cp").arg("-p").arg(g.work("granted-set-id")).arg(g.own("file")))
    }),
    set_id("set-id-by-tar", "execve tar xp", |g| {
        let mut pack = Command::new("tar");
        run(pack.arg("-C").arg(g.work("")).arg("-cf").arg(g.own("archive")).arg("granted-set-id"))?;
        fs::create_dir(g.own("dir"))?;
        run(Command::new("tar").arg("-C").arg(g.own("dir")).arg("-xpf").arg(g.own("archive")))?;
        fs::rename(g.own("dir").join("granted-set-id"), g.own("file")).map(|()| 0)
    }),
    // What the user made is the user's own: the kernel hands the group bit of a directory down by itself.
    open("set-id-directory-inherited", "mkdirat", |g| {
        let made = g.work("granted-shared/sub");
        match fs::create_dir(&made).and_then(|()| fs::metadata(made)) {
            Ok(meta) if meta.permissions().mode() & SET_ID != 0 => Seen::Done("inherited".to_owned()),
            Ok(meta) => Seen::Held(format!("{:o}", meta.permissions().mode())),
            Err(error) => Seen::Held(short(&error)),
        }
    }),
];

/// What a try comes to is what it left behind, in whatever it made.
const fn set_id(
    name: &'static str,
    call: &'static str,
    run: fn(&Ground) -> io::Result<libc::c_long>,
) -> Probe {
    let mut probe = probe(name, call, Wall::SeccompSetId, left_behind);
    probe.tries = Some(run);
    probe
}

fn left_behind(ground: &Ground) -> Seen {
    let Some(tries) = PROBES.iter().find(|probe| probe.name == ground.name()).and_then(|probe| probe.tries)
    else {
        return Seen::Unclear("no such probe".to_owned());
    };
    let done = tries(ground);
    for name in ["file", "dir"] {
        let mode = fs::symlink_metadata(ground.own(name)).map_or(0, |meta| meta.permissions().mode());
        if mode & SET_ID != 0 {
            return Seen::Done(format!("{mode:o}"));
        }
    }
    match done {
        Ok(_) => Seen::Held("nothing with a set-id bit is left".to_owned()),
        Err(error) => Seen::Held(short(&error)),
    }
}

/// A file of this probe's own.
fn file(ground: &Ground) -> io::Result<std::path::PathBuf> {
    let file = ground.own("file");
    fs::write(&file, "#!/bin/sh\n")?;
    Ok(file)
}

/// With its mode, as `cp -p` does it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn run(command: &mut Command) -> io::Result<libc::c_long> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(0);
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}
