//! Plain attempts on files outside every grant: one for each way to change or read one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::inside::{CANARY, Ground, lists, read};
use crate::probe::{Probe, Rest, Seen, Wall, probe, tried, tried_if};
use crate::sys::{c, sys};

pub(super) const PROBES: &[Probe] = &[
    probe("read-outside", "openat", Wall::LandlockFiles, |g| read(g.outside("secret"))),
    probe("list-outside", "getdents64", Wall::LandlockFiles, |g| lists(g.outside("."), "secret")),
    probe("write-outside", "openat O_WRONLY", Wall::LandlockFiles, write),
    probe("append-outside", "openat O_APPEND", Wall::LandlockFiles, append),
    probe("truncate-outside", "truncate", Wall::LandlockFiles, |g| {
        tried(sys!(SYS_truncate, c(g.outside("victim")), 0))
    }),
    probe("create-outside", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.outside("new"), "planted"))
    }),
    probe("tmpfile-outside", "openat O_TMPFILE", Wall::LandlockFiles, |g| {
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        tried(sys!(SYS_openat, libc::AT_FDCWD, c(g.outside(".")), flags, 0o600))
    }),
    probe("mkdir-outside", "mkdir", Wall::LandlockFiles, |g| tried(fs::create_dir(g.outside("newdir")))),
    probe("rmdir-outside", "rmdir", Wall::LandlockFiles, |g| tried(fs::remove_dir(g.outside("dir")))),
    probe("unlink-outside", "unlink", Wall::LandlockFiles, |g| tried(fs::remove_file(g.outside("victim")))),
    probe("symlink-outside", "symlink", Wall::LandlockFiles, |g| tried(symlink("victim", g.outside("link")))),
    probe("fifo-outside", "mknodat S_IFIFO", Wall::LandlockFiles, |g| {
        tried(sys!(SYS_mknodat, libc::AT_FDCWD, c(g.outside("fifo")), libc::S_IFIFO | 0o600, 0))
    }),
    probe("rename-outside", "rename", Wall::LandlockFiles, |g| {
        tried(fs::rename(g.outside("victim"), g.outside("moved")))
    }),
    probe("rename-into-scope", "rename", Wall::LandlockFiles, |g| {
        match fs::rename(g.outside("secret"), g.own("stolen")) {
            Ok(()) => read(g.own("stolen")),
            err => tried(err),
        }
    }),
    probe("rename-out-of-scope", "rename", Wall::LandlockFiles, |g| {
        tried(
            fs::write(g.own("bait"), "planted")
                .and_then(|()| fs::rename(g.own("bait"), g.outside("planted"))),
        )
    }),
    probe("rename-exchange", "renameat2 RENAME_EXCHANGE", Wall::LandlockFiles, exchange),
    probe("hard-link-into-scope", "linkat", Wall::LandlockFiles, |g| {
        match fs::hard_link(g.outside("secret"), g.own("link")) {
            Ok(()) => read(g.own("link")),
            err => tried(err),
        }
    }),
    probe("hard-link-out-of-scope", "linkat", Wall::LandlockFiles, |g| {
        tried(
            fs::write(g.own("bait"), "planted")
                .and_then(|()| fs::hard_link(g.own("bait"), g.outside("planted"))),
        )
    }),
    probe("chmod-outside", "fchmodat", Wall::ReadOnlyRoot, |g| {
        tried(fs::set_permissions(g.outside("victim"), fs::Permissions::from_mode(0o777)))
    })
    .left_by_b(Rest::Metadata),
    probe("chown-outside", "fchownat", Wall::ReadOnlyRoot, |g| {
        // To what it is already: anybody may do that with a file of their own, and it changes the inode all the same.
        let own = rustix::process::getuid().as_raw();
        tried(sys!(SYS_fchownat, libc::AT_FDCWD, c(g.outside("victim")), own, u32::MAX, 0))
    })
    .left_by_b(Rest::Metadata),
    probe("utime-outside", "utimensat", Wall::ReadOnlyRoot, |g| {
        tried(sys!(SYS_utimensat, libc::AT_FDCWD, c(g.outside("victim")), 0, 0))
    })
    .left_by_b(Rest::Metadata),
    probe("xattr-outside", "setxattr", Wall::ReadOnlyRoot, |g| {
        let value = b"planted";
        let (path, name) = (c(g.outside("victim")), c("user.minke"));
        tried_if(sys!(SYS_setxattr, path, name, value.as_ptr(), value.len(), 0), &[libc::EOPNOTSUPP])
    })
    .left_by_b(Rest::Metadata),
    probe("copy-range-outside", "copy_file_range", Wall::LandlockFiles, |g| {
        tried(fs::copy(g.outside("secret"), g.own("copy")).and_then(|_| fs::read(g.own("copy"))))
    }),
    probe("mmap-outside", "mmap", Wall::LandlockFiles, mmap),
];

fn write(g: &Ground) -> Seen {
    let opened = OpenOptions::new().write(true).open(g.outside("victim"));
    tried(opened.and_then(|mut file| file.write_all(b"planted")))
}

fn append(g: &Ground) -> Seen {
    let opened = OpenOptions::new().append(true).open(g.outside("victim"));
    tried(opened.and_then(|mut file| file.write_all(b"planted")))
}

fn exchange(g: &Ground) -> Seen {
    if let Err(error) = fs::write(g.own("bait"), "planted") {
        return Seen::Unclear(error.to_string());
    }
    let (ours, theirs) = (c(g.own("bait")), c(g.outside("secret")));
    let done = sys!(SYS_renameat2, libc::AT_FDCWD, ours, libc::AT_FDCWD, theirs, libc::RENAME_EXCHANGE);
    match done {
        Ok(_) => read(g.own("bait")),
        err => tried(err),
    }
}

/// Memory instead of `read`: the wall must stand at the opening, not at the reading.
fn mmap(g: &Ground) -> Seen {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = match sys!(SYS_openat, libc::AT_FDCWD, c(g.outside("secret")), flags) {
        Ok(fd) => fd,
        err => return tried(err),
    };
    match sys!(SYS_mmap, 0, CANARY.len(), libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) {
        Ok(_) => Seen::Done("mapped".to_owned()),
        err => tried(err),
    }
}
