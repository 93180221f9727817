//! Direct access to files outside every grant: one probe per way to change or read a file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::attacker::{AttackContext, CANARY, lists_name, read_secret};
use crate::probe::{
    DocumentedGap, ProbeOutcome, SandboxProbe, TestedRestriction, attack_probe, outcome_of, outcome_unless,
};
use crate::sys::{sys, to_c_string};

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("read-outside", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.path_outside("secret"))
    }),
    attack_probe("list-outside", "getdents64", TestedRestriction::LandlockFiles, |g| {
        lists_name(g.path_outside("."), "secret")
    }),
    attack_probe("write-outside", "openat O_WRONLY", TestedRestriction::LandlockFiles, write_file),
    attack_probe("append-outside", "openat O_APPEND", TestedRestriction::LandlockFiles, append_file),
    attack_probe("truncate-outside", "truncate", TestedRestriction::LandlockFiles, |g| {
        outcome_of(sys!(SYS_truncate, to_c_string(g.path_outside("victim")), 0))
    }),
    attack_probe("create-outside", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_outside("new"), "planted"))
    }),
    attack_probe("tmpfile-outside", "openat O_TMPFILE", TestedRestriction::LandlockFiles, |g| {
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        outcome_of(sys!(SYS_openat, libc::AT_FDCWD, to_c_string(g.path_outside(".")), flags, 0o600))
    }),
    attack_probe("mkdir-outside", "mkdir", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::create_dir(g.path_outside("newdir")))
    }),
    attack_probe("rmdir-outside", "rmdir", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::remove_dir(g.path_outside("dir")))
    }),
    attack_probe("unlink-outside", "unlink", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::remove_file(g.path_outside("victim")))
    }),
    attack_probe("symlink-outside", "symlink", TestedRestriction::LandlockFiles, |g| {
        outcome_of(symlink("victim", g.path_outside("link")))
    }),
    attack_probe("fifo-outside", "mknodat S_IFIFO", TestedRestriction::LandlockFiles, |g| {
        outcome_of(sys!(
            SYS_mknodat,
            libc::AT_FDCWD,
            to_c_string(g.path_outside("fifo")),
            libc::S_IFIFO | 0o600,
            0
        ))
    }),
    attack_probe("rename-outside", "rename", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::rename(g.path_outside("victim"), g.path_outside("moved")))
    }),
    attack_probe("rename-into-scope", "rename", TestedRestriction::LandlockFiles, |g| {
        match fs::rename(g.path_outside("secret"), g.own_path("stolen")) {
            Ok(()) => read_secret(g.own_path("stolen")),
            err => outcome_of(err),
        }
    }),
    attack_probe("rename-out-of-scope", "rename", TestedRestriction::LandlockFiles, |g| {
        outcome_of(
            fs::write(g.own_path("bait"), "planted")
                .and_then(|()| fs::rename(g.own_path("bait"), g.path_outside("planted"))),
        )
    }),
    attack_probe(
        "rename-exchange",
        "renameat2 RENAME_EXCHANGE",
        TestedRestriction::LandlockFiles,
        exchange_files,
    ),
    attack_probe(
        "hard-link-into-scope",
        "linkat",
        TestedRestriction::LandlockFiles,
        |g| match fs::hard_link(g.path_outside("secret"), g.own_path("link")) {
            Ok(()) => read_secret(g.own_path("link")),
            err => outcome_of(err),
        },
    ),
    attack_probe("hard-link-out-of-scope", "linkat", TestedRestriction::LandlockFiles, |g| {
        outcome_of(
            fs::write(g.own_path("bait"), "planted")
                .and_then(|()| fs::hard_link(g.own_path("bait"), g.path_outside("planted"))),
        )
    }),
    attack_probe("chmod-outside", "fchmodat", TestedRestriction::ReadOnlyRoot, |g| {
        outcome_of(fs::set_permissions(g.path_outside("victim"), fs::Permissions::from_mode(0o777)))
    })
    .left_by_landlock(DocumentedGap::Metadata),
    attack_probe("chown-outside", "fchownat", TestedRestriction::ReadOnlyRoot, |g| {
        // Sets the current owner, which every user may do with their own file, and which changes the inode anyway.
        let own = rustix::process::getuid().as_raw();
        outcome_of(sys!(
            SYS_fchownat,
            libc::AT_FDCWD,
            to_c_string(g.path_outside("victim")),
            own,
            u32::MAX,
            0
        ))
    })
    .left_by_landlock(DocumentedGap::Metadata),
    attack_probe("utime-outside", "utimensat", TestedRestriction::ReadOnlyRoot, |g| {
        outcome_of(sys!(SYS_utimensat, libc::AT_FDCWD, to_c_string(g.path_outside("victim")), 0, 0))
    })
    .left_by_landlock(DocumentedGap::Metadata),
    attack_probe("xattr-outside", "setxattr", TestedRestriction::ReadOnlyRoot, |g| {
        let value = b"planted";
        let (path, name) = (to_c_string(g.path_outside("victim")), to_c_string("user.minke"));
        outcome_unless(sys!(SYS_setxattr, path, name, value.as_ptr(), value.len(), 0), &[libc::EOPNOTSUPP])
    })
    .left_by_landlock(DocumentedGap::Metadata),
    attack_probe("copy-range-outside", "copy_file_range", TestedRestriction::LandlockFiles, |g| {
        outcome_of(
            fs::copy(g.path_outside("secret"), g.own_path("copy")).and_then(|_| fs::read(g.own_path("copy"))),
        )
    }),
    attack_probe("mmap-outside", "mmap", TestedRestriction::LandlockFiles, write_by_mmap),
];

fn write_file(g: &AttackContext) -> ProbeOutcome {
    let opened = OpenOptions::new().write(true).open(g.path_outside("victim"));
    outcome_of(opened.and_then(|mut file| file.write_all(b"planted")))
}

fn append_file(g: &AttackContext) -> ProbeOutcome {
    let opened = OpenOptions::new().append(true).open(g.path_outside("victim"));
    outcome_of(opened.and_then(|mut file| file.write_all(b"planted")))
}

fn exchange_files(g: &AttackContext) -> ProbeOutcome {
    if let Err(error) = fs::write(g.own_path("bait"), "planted") {
        return ProbeOutcome::Unclear(error.to_string());
    }
    let (ours, theirs) = (to_c_string(g.own_path("bait")), to_c_string(g.path_outside("secret")));
    let done = sys!(SYS_renameat2, libc::AT_FDCWD, ours, libc::AT_FDCWD, theirs, libc::RENAME_EXCHANGE);
    match done {
        Ok(_) => read_secret(g.own_path("bait")),
        err => outcome_of(err),
    }
}

/// Uses a mapping instead of `read`: the open must already be refused.
fn write_by_mmap(g: &AttackContext) -> ProbeOutcome {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = match sys!(SYS_openat, libc::AT_FDCWD, to_c_string(g.path_outside("secret")), flags) {
        Ok(fd) => fd,
        err => return outcome_of(err),
    };
    match sys!(SYS_mmap, 0, CANARY.len(), libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) {
        Ok(_) => ProbeOutcome::Succeeded("mapped".to_owned()),
        err => outcome_of(err),
    }
}
