//! Ways around path restrictions: `..`, links, `/proc`, descriptors, handles, a race.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::attacker::{AttackContext, open_dir, outcome_of_read, read_at, read_secret};
use crate::probe::{
    ProbeOutcome, SandboxProbe, TestedRestriction, UnsandboxedResult, attack_probe, outcome_of,
};
use crate::sys::{sys, to_c_string};

/// The duration of the race.
const RACE_DURATION: Duration = Duration::from_millis(150);

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("dot-dot", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(path_upwards(g, &g.path_in_work("")))
    }),
    attack_probe("proc-self-root", "openat /proc/self/root", TestedRestriction::LandlockFiles, |g| {
        read_secret(path_under("/proc/self/root", g))
    }),
    attack_probe("proc-1-root", "openat /proc/1/root", TestedRestriction::LandlockFiles, |g| {
        read_secret(path_under("/proc/1/root", g))
    })
    .unsandboxed(UnsandboxedResult::IfOffered),
    attack_probe("proc-task-root", "openat /proc/thread-self/root", TestedRestriction::LandlockFiles, |g| {
        read_secret(path_under("/proc/thread-self/root", g))
    }),
    attack_probe("proc-parent-root", "openat /proc/PPID/root", TestedRestriction::LandlockFiles, |g| {
        read_secret(path_under(
            &format!("/proc/{}/root", rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get())),
            g,
        ))
    }),
    attack_probe("proc-self-cwd", "openat /proc/self/cwd", TestedRestriction::LandlockFiles, |g| {
        match std::env::set_current_dir(g.path_in_work("")) {
            Ok(()) => read_secret(path_upwards(g, Path::new("/proc/self/cwd"))),
            err => ProbeOutcome::Unclear(format!("{err:?}")),
        }
    }),
    attack_probe("proc-self-fd", "openat /proc/self/fd/N", TestedRestriction::LandlockFiles, |g| {
        through_fd(g, "/proc/self/fd")
    }),
    attack_probe("dev-fd", "openat /dev/fd/N", TestedRestriction::LandlockFiles, |g| {
        through_fd(g, "/dev/fd")
    }),
    attack_probe("dir-fd-dot-dot", "openat dirfd", TestedRestriction::LandlockFiles, |g| {
        match open_dir(g.path_in_work("")) {
            Ok(dir) => read_at(&dir, &path_upwards(g, Path::new("")).to_string_lossy()),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("path-fd-reopened", "openat O_PATH", TestedRestriction::LandlockFiles, |g| {
        match sys!(SYS_openat, libc::AT_FDCWD, to_c_string(g.path_outside("secret")), libc::O_PATH) {
            Ok(fd) => read_secret(format!("/proc/self/fd/{fd}")),
            err => outcome_of(err),
        }
    }),
    attack_probe("chdir-outside", "chdir", TestedRestriction::LandlockFiles, |g| {
        match std::env::set_current_dir(g.path_outside("")) {
            Ok(()) => read_secret("secret"),
            err => outcome_of(err),
        }
    }),
    attack_probe("symlink-read", "symlink, openat", TestedRestriction::LandlockFiles, |g| {
        match symlink(g.path_outside("secret"), g.own_path("link")) {
            Ok(()) => read_secret(g.own_path("link")),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("symlink-write", "symlink, openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        match symlink(g.path_outside("planted"), g.own_path("link")) {
            Ok(()) => outcome_of(fs::write(g.own_path("link"), "planted")),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("symlink-dir", "symlink, openat", TestedRestriction::LandlockFiles, |g| {
        match symlink(g.path_outside(""), g.own_path("link")) {
            Ok(()) => read_secret(g.own_path("link/secret")),
            Err(error) => ProbeOutcome::Unclear(error.to_string()),
        }
    }),
    attack_probe("swap-race", "renameat2, openat", TestedRestriction::LandlockFiles, race_swaps),
    attack_probe(
        "handle",
        "name_to_handle_at, open_by_handle_at",
        TestedRestriction::SeccompCalls,
        open_by_handle,
    )
    .unsandboxed(UnsandboxedResult::AsRoot),
    attack_probe("inherited-dir", "openat dirfd", TestedRestriction::Descriptors, |g| {
        let fd = g.fact_number("leaked_dir");
        let opened = sys!(SYS_openat, fd, to_c_string("secret"), libc::O_RDONLY);
        match opened {
            Ok(fd) => outcome_of_read(fs::read(format!("/proc/self/fd/{fd}"))),
            err => outcome_of(err),
        }
    }),
    attack_probe("inherited-dir-list", "getdents64", TestedRestriction::Descriptors, |g| {
        let mut buffer = [0u8; 1024];
        match sys!(SYS_getdents64, g.fact_number("leaked_dir"), buffer.as_mut_ptr(), buffer.len()) {
            Ok(count) if count > 0 => ProbeOutcome::Succeeded(format!("{count} bytes of names")),
            Ok(_) => ProbeOutcome::Stopped("empty".to_owned()),
            err => outcome_of(err),
        }
    }),
    attack_probe("inherited-file", "pread64", TestedRestriction::Descriptors, |g| {
        let mut buffer = [0u8; 64];
        let count = sys!(SYS_pread64, g.fact_number("leaked_file"), buffer.as_mut_ptr(), buffer.len(), 0);
        outcome_of_read(count.map(|count| buffer.iter().take(count as usize).copied().collect()))
    }),
    attack_probe("inherited-writer", "write", TestedRestriction::Descriptors, |g| {
        outcome_of(sys!(SYS_write, g.fact_number("leaked_writer"), b"planted".as_ptr(), 7))
    }),
];

/// `from/../outside/<probe>/secret`
fn path_upwards(g: &AttackContext, from: &Path) -> PathBuf {
    let outside = g.path_outside("secret");
    let below = outside.strip_prefix(&g.base).map(Path::to_path_buf).unwrap_or_default();
    from.join("..").join(below)
}

/// Returns the secret's absolute path behind a link to the root.
fn path_under(root: &str, g: &AttackContext) -> PathBuf {
    let secret = g.path_outside("secret");
    Path::new(root).join(secret.strip_prefix("/").unwrap_or(&secret))
}

fn through_fd(g: &AttackContext, at: &str) -> ProbeOutcome {
    match open_dir(g.path_in_work("")) {
        Ok(dir) => read_secret(path_upwards(g, &Path::new(at).join(dir.as_raw_fd().to_string()))),
        Err(error) => ProbeOutcome::Unclear(error.to_string()),
    }
}

/// One thread replaces a directory by a link to the outside and back, the other opens files through the name.
fn race_swaps(g: &AttackContext) -> ProbeOutcome {
    let (real, link) = (g.own_path("real"), g.own_path("link"));
    let made = fs::create_dir(&real)
        .and_then(|()| fs::write(real.join("secret"), "ours"))
        .and_then(|()| symlink(g.path_outside(""), &link));
    if let Err(error) = made {
        return ProbeOutcome::Unclear(error.to_string());
    }
    let stop = AtomicBool::new(false);
    let (a, b) = (to_c_string(&real), to_c_string(&link));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let swap = libc::RENAME_EXCHANGE;
                let _ = sys!(SYS_renameat2, libc::AT_FDCWD, a.as_c_str(), libc::AT_FDCWD, b.as_c_str(), swap);
            }
        });
        let (end, mut tries, mut last) =
            (Instant::now() + RACE_DURATION, 0u64, ProbeOutcome::Unclear("never tried".to_owned()));
        while Instant::now() < end {
            tries += 1;
            last = read_secret(real.join("secret"));
            if matches!(last, ProbeOutcome::Succeeded(_)) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        if let ProbeOutcome::Stopped(_) = last {
            ProbeOutcome::Stopped(format!("{tries} tries"))
        } else {
            last
        }
    })
}

/// A file handle identifies an inode, independent of its path.
fn open_by_handle(g: &AttackContext) -> ProbeOutcome {
    #[repr(C)]
    struct FileHandle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = FileHandle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let (path, at) = (to_c_string(g.path_outside("secret")), libc::AT_FDCWD);
    let named = sys!(SYS_name_to_handle_at, at, path, &raw mut handle, &raw mut mount, 0);
    if let Err(error) = named {
        return ProbeOutcome::Stopped(format!("name_to_handle_at: {}", crate::sys::error_name(&error)));
    }
    let from = match sys!(SYS_openat, at, to_c_string(g.path_in_work("")), libc::O_RDONLY) {
        Ok(from) => from,
        Err(error) => return ProbeOutcome::Unclear(error.to_string()),
    };
    match sys!(SYS_open_by_handle_at, from, &raw mut handle, libc::O_RDONLY) {
        Ok(fd) => outcome_of_read(fs::read(format!("/proc/self/fd/{fd}"))),
        err => outcome_of(err),
    }
}
