//! Ways round a wall of names: `..`, links, `/proc`, descriptors, handles, a race.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::inside::{Ground, open_dir, read, read_at, seen_in};
use crate::probe::{Bare, Probe, Seen, Wall, probe, tried};
use crate::sys::{c, sys};

/// How long the race is run.
const RACE: Duration = Duration::from_millis(150);

pub(super) const PROBES: &[Probe] = &[
    probe("dot-dot", "openat", Wall::LandlockFiles, |g| read(up(g, &g.work("")))),
    probe("proc-self-root", "openat /proc/self/root", Wall::LandlockFiles, |g| {
        read(under("/proc/self/root", g))
    }),
    probe("proc-1-root", "openat /proc/1/root", Wall::LandlockFiles, |g| read(under("/proc/1/root", g)))
        .bare(Bare::IfOffered),
    probe("proc-task-root", "openat /proc/thread-self/root", Wall::LandlockFiles, |g| {
        read(under("/proc/thread-self/root", g))
    }),
    probe("proc-parent-root", "openat /proc/PPID/root", Wall::LandlockFiles, |g| {
        read(under(
            &format!("/proc/{}/root", rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get())),
            g,
        ))
    }),
    probe(
        "proc-self-cwd",
        "openat /proc/self/cwd",
        Wall::LandlockFiles,
        |g| match std::env::set_current_dir(g.work("")) {
            Ok(()) => read(up(g, Path::new("/proc/self/cwd"))),
            err => Seen::Unclear(format!("{err:?}")),
        },
    ),
    probe("proc-self-fd", "openat /proc/self/fd/N", Wall::LandlockFiles, |g| through_fd(g, "/proc/self/fd")),
    probe("dev-fd", "openat /dev/fd/N", Wall::LandlockFiles, |g| through_fd(g, "/dev/fd")),
    probe("dir-fd-dot-dot", "openat dirfd", Wall::LandlockFiles, |g| match open_dir(g.work("")) {
        Ok(dir) => read_at(&dir, &up(g, Path::new("")).to_string_lossy()),
        Err(error) => Seen::Unclear(error.to_string()),
    }),
    probe("path-fd-reopened", "openat O_PATH", Wall::LandlockFiles, |g| {
        match sys!(SYS_openat, libc::AT_FDCWD, c(g.outside("secret")), libc::O_PATH) {
            Ok(fd) => read(format!("/proc/self/fd/{fd}")),
            err => tried(err),
        }
    }),
    probe("chdir-outside", "chdir", Wall::LandlockFiles, |g| {
        match std::env::set_current_dir(g.outside("")) {
            Ok(()) => read("secret"),
            err => tried(err),
        }
    }),
    probe("symlink-read", "symlink, openat", Wall::LandlockFiles, |g| {
        match symlink(g.outside("secret"), g.own("link")) {
            Ok(()) => read(g.own("link")),
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }),
    probe("symlink-write", "symlink, openat O_CREAT", Wall::LandlockFiles, |g| {
        match symlink(g.outside("planted"), g.own("link")) {
            Ok(()) => tried(fs::write(g.own("link"), "planted")),
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }),
    probe("symlink-dir", "symlink, openat", Wall::LandlockFiles, |g| {
        match symlink(g.outside(""), g.own("link")) {
            Ok(()) => read(g.own("link/secret")),
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }),
    probe("swap-race", "renameat2, openat", Wall::LandlockFiles, swap_race),
    probe("handle", "name_to_handle_at, open_by_handle_at", Wall::SeccompCalls, handle).bare(Bare::AsRoot),
    probe("inherited-dir", "openat dirfd", Wall::Descriptors, |g| {
        let fd = g.number("leaked_dir");
        let opened = sys!(SYS_openat, fd, c("secret"), libc::O_RDONLY);
        match opened {
            Ok(fd) => seen_in(fs::read(format!("/proc/self/fd/{fd}"))),
            err => tried(err),
        }
    }),
    probe("inherited-dir-list", "getdents64", Wall::Descriptors, |g| {
        let mut buffer = [0u8; 1024];
        match sys!(SYS_getdents64, g.number("leaked_dir"), buffer.as_mut_ptr(), buffer.len()) {
            Ok(count) if count > 0 => Seen::Done(format!("{count} bytes of names")),
            Ok(_) => Seen::Held("empty".to_owned()),
            err => tried(err),
        }
    }),
    probe("inherited-file", "pread64", Wall::Descriptors, |g| {
        let mut buffer = [0u8; 64];
        let count = sys!(SYS_pread64, g.number("leaked_file"), buffer.as_mut_ptr(), buffer.len(), 0);
        seen_in(count.map(|count| buffer.iter().take(count as usize).copied().collect()))
    }),
    probe("inherited-writer", "write", Wall::Descriptors, |g| {
        tried(sys!(SYS_write, g.number("leaked_writer"), b"planted".as_ptr(), 7))
    }),
];

/// `from/../outside/<probe>/secret`
fn up(g: &Ground, from: &Path) -> PathBuf {
    let outside = g.outside("secret");
    let below = outside.strip_prefix(&g.base).map(Path::to_path_buf).unwrap_or_default();
    from.join("..").join(below)
}

/// The secret's absolute path behind a link to the root.
fn under(root: &str, g: &Ground) -> PathBuf {
    let secret = g.outside("secret");
    Path::new(root).join(secret.strip_prefix("/").unwrap_or(&secret))
}

fn through_fd(g: &Ground, at: &str) -> Seen {
    match open_dir(g.work("")) {
        Ok(dir) => read(up(g, &Path::new(at).join(dir.as_raw_fd().to_string()))),
        Err(error) => Seen::Unclear(error.to_string()),
    }
}

/// One thread swaps a directory for a link to the outside, the other opens through the name as fast as it can.
fn swap_race(g: &Ground) -> Seen {
    let (real, link) = (g.own("real"), g.own("link"));
    let made = fs::create_dir(&real)
        .and_then(|()| fs::write(real.join("secret"), "ours"))
        .and_then(|()| symlink(g.outside(""), &link));
    if let Err(error) = made {
        return Seen::Unclear(error.to_string());
    }
    let stop = AtomicBool::new(false);
    let (a, b) = (c(&real), c(&link));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let swap = libc::RENAME_EXCHANGE;
                let _ = sys!(SYS_renameat2, libc::AT_FDCWD, a.as_c_str(), libc::AT_FDCWD, b.as_c_str(), swap);
            }
        });
        let (end, mut tries, mut last) =
            (Instant::now() + RACE, 0u64, Seen::Unclear("never tried".to_owned()));
        while Instant::now() < end {
            tries += 1;
            last = read(real.join("secret"));
            if matches!(last, Seen::Done(_)) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        if let Seen::Held(_) = last { Seen::Held(format!("{tries} tries")) } else { last }
    })
}

/// A file handle names an inode, whatever path leads there.
fn handle(g: &Ground) -> Seen {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let (path, at) = (c(g.outside("secret")), libc::AT_FDCWD);
    let named = sys!(SYS_name_to_handle_at, at, path, &raw mut handle, &raw mut mount, 0);
    if let Err(error) = named {
        return Seen::Held(format!("name_to_handle_at: {}", crate::sys::short(&error)));
    }
    let from = match sys!(SYS_openat, at, c(g.work("")), libc::O_RDONLY) {
        Ok(from) => from,
        Err(error) => return Seen::Unclear(error.to_string()),
    };
    match sys!(SYS_open_by_handle_at, from, &raw mut handle, libc::O_RDONLY) {
        Ok(fd) => seen_in(fs::read(format!("/proc/self/fd/{fd}"))),
        err => tried(err),
    }
}
